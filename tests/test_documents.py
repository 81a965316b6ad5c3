"""The documents tell the truth: examples run, tables are complete."""

import re
from pathlib import Path

import anyloss

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_examples_of_the_readme_run(capsys):
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(block, "README.md", "exec"), namespace)  # our own text
    printed = capsys.readouterr().out
    score, _, epoch = (float(x) for x in re.findall(r": ([\d.]+)", printed))
    assert score > 0.85
    assert abs(score - epoch) < 1e-6


def test_the_tables_name_every_metric_and_step():
    rows = re.findall(r"^\| `(\w+)", README, re.MULTILINE)
    metrics = {function.__name__ for function in anyloss.METRICS.values()}
    steps = {"Amplified", "Linear", "RaisedCosine", "Uniform", "LogitSigmoid", "Hard"}
    assert metrics | steps <= set(rows)
    absent = (ROOT / "docs" / "metrics.md").read_text()
    assert all(re.search(rf"\b{name}\b", absent) for name in metrics)


def test_the_aliases_of_the_readme_exist():
    for name, aliases in re.findall(r"^\| `(\w+)[^|]*\| ([\w, ]+) \|", README, re.MULTILINE):
        if name in anyloss.METRICS:
            for alias in aliases.split(", "):
                assert anyloss.metric(alias).name == name
