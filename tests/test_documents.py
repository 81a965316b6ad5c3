"""The documents tell the truth: examples run, tables are complete."""

import re
from pathlib import Path

import pytest

import anyloss

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_examples_of_the_readme_run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(block, "README.md", "exec"), namespace)  # our own text
    printed = capsys.readouterr().out
    score, _, epoch, mcc, wine, frame = (float(x) for x in re.findall(r": ([\d.]+)", printed))
    assert score > 0.85
    assert abs(score - epoch) < 1e-6
    assert mcc > 0.9
    assert wine > 0.95
    assert frame == 1


def test_the_examples_of_the_boosting_page_run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    text = (ROOT / "docs" / "boosting.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "boosting.md", "exec"), namespace)  # our own text
    score, _, again = (float(x) for x in re.findall(r": ([\d.]+)", capsys.readouterr().out))
    assert score == again > 0.6
    assert namespace["decided"].mean() == pytest.approx(0.1, abs=0.05)
    assert namespace["margins"].shape == (375,)
    assert [x.name for x in tmp_path.iterdir()] == ["churn-model"]


def test_the_tables_name_what_there_is():
    rows = re.findall(r"^\| `(\w+)", README, re.MULTILINE)
    assert len(rows) >= 24
    for name in rows:
        assert name in anyloss.METRICS or hasattr(anyloss.steps, name)


def test_the_aliases_of_the_readme_exist():
    for name, aliases in re.findall(r"^\| `(\w+)[^|]*\| ([\w, ]+) \|", README, re.MULTILINE):
        if name in anyloss.METRICS:
            for alias in aliases.split(", "):
                assert anyloss.metric(alias).name == name
