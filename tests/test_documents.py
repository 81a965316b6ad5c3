"""The documents tell the truth: examples run, tables are complete."""

import re
from pathlib import Path

import keras
import pytest

import anyloss

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def run_examples(path, capsys):
    """The numbers that the examples of a document print."""
    keras.utils.set_random_seed(0)  # PyTorch's too
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
        exec(compile(block, path.name, "exec"), namespace)  # our own text
    return [float(x) for x in re.findall(r": ([\d.]+)", capsys.readouterr().out)]


def test_the_examples_of_the_readme_run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    score, _, epoch, in_keras, mcc, wine, frame, forest = run_examples(ROOT / "README.md", capsys)
    assert score > 0.85
    assert abs(score - epoch) < 1e-6
    assert in_keras > 0.7
    assert mcc > 0.9
    assert wine > 0.95
    assert frame == 1
    assert forest > 0.95


def test_the_examples_of_the_keras_page_run(capsys):
    score, recall = run_examples(ROOT / "docs" / "keras.md", capsys)
    assert score > 0.9
    assert abs(recall - 0.5) < 1e-3


def test_the_examples_of_the_page_on_decisions_run(capsys):
    assert run_examples(ROOT / "docs" / "decisions.md", capsys) == []


def test_the_examples_of_the_page_of_certificates_run(capsys):
    score, lower, p_value, recall = run_examples(ROOT / "docs" / "certificates.md", capsys)
    assert 0 < lower < score < 1
    assert p_value <= 0.05
    assert recall >= 0.8


def test_the_examples_of_the_jax_page_run(capsys):
    score, split = run_examples(ROOT / "docs" / "jax.md", capsys)
    assert score > 0.97
    assert split < 0.1


def test_the_examples_of_the_page_of_networks_run(capsys):
    start, end, new = run_examples(ROOT / "docs" / "refine.md", capsys)
    assert end >= start > 0.4
    assert new > 0.4


@pytest.mark.slow("fits models of three boosting libraries")
def test_the_examples_of_the_boosting_page_run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    score, _, again, classes, labels = run_examples(ROOT / "docs" / "boosting.md", capsys)
    assert score == again > 0.6
    assert classes > 0.9
    assert labels > 0.6
    assert [x.name for x in tmp_path.iterdir()] == ["churn-model"]


def test_the_examples_of_the_command_line_page_run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (score,) = run_examples(ROOT / "docs" / "command_line.md", capsys)
    assert score > 0.8
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 570


def test_the_examples_of_the_distributed_page_run(capsys):
    difference, positives = run_examples(ROOT / "docs" / "distributed.md", capsys)
    assert difference < 1e-6
    assert 3 <= positives <= 7


def test_the_examples_of_the_page_of_other_libraries_give_their_numbers(capsys):
    for library in ("monai", "kornia", "torchmetrics", "optax"):
        pytest.importorskip(library)
    found = run_examples(ROOT / "docs" / "coming_from.md", capsys)
    assert len(found) == 16
    assert found[::2] == pytest.approx(found[1::2], abs=2e-5)


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
