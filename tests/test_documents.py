"""The documents tell the truth: examples run, tables are complete."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import keras
import nbformat
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


def test_the_readme_is_short_and_its_examples_run(capsys):
    f1, mcc = run_examples(ROOT / "README.md", capsys)
    assert f1 > 0.85
    assert mcc > 0.85
    assert len(README.split()) <= 900


def test_the_examples_of_the_first_page_run(capsys):
    plain, tuned, trained = run_examples(ROOT / "docs" / "index.md", capsys)
    assert min(tuned, trained) > 0.4 > plain


def test_the_examples_of_the_pytorch_page_run(capsys):
    score, _, epoch = run_examples(ROOT / "docs" / "pytorch.md", capsys)
    assert score > 0.85
    assert abs(score - epoch) < 1e-6


def test_the_examples_of_the_segmentation_page_run(capsys):
    dice, iou = run_examples(ROOT / "docs" / "segmentation.md", capsys)
    assert 0.5 < dice < 1.1
    assert 0.8 < iou < 1


def test_the_examples_of_the_scikit_learn_page_run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    mcc, wine, frame, forest, moved, few = run_examples(ROOT / "docs" / "scikit_learn.md", capsys)
    assert mcc > 0.9
    assert wine > 0.95
    assert frame == 1
    assert forest > 0.95
    assert 0 < moved < 1
    assert few == 0.5


def test_the_examples_of_the_page_of_several_classes_run(capsys):
    macro, per_class, micro, wine, labels, ruled = run_examples(
        ROOT / "docs" / "several_classes.md", capsys
    )
    assert macro == pytest.approx(per_class, abs=1e-6)
    assert micro > 0.9
    assert wine > 0.9
    assert labels > 0.6
    assert ruled > 0.9


def test_the_examples_of_the_page_of_serving_run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run_examples(ROOT / "docs" / "serving.md", capsys)
    assert {x.name for x in tmp_path.iterdir()} >= {"refined.pt", "model.onnx", "classifier"}


def test_the_examples_of_the_keras_page_run(capsys):
    score, recall = run_examples(ROOT / "docs" / "keras.md", capsys)
    assert score > 0.9
    assert abs(recall - 0.5) < 1e-3


def test_the_examples_of_the_page_on_decisions_run(capsys):
    (saved,) = run_examples(ROOT / "docs" / "decisions.md", capsys)
    assert 0.9 < saved <= 1


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


def test_the_tables_name_every_metric_and_every_step():
    metrics = re.findall(
        r"^\| `(\w+)[(`]", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE
    )
    assert {anyloss.metric(name).name for name in anyloss.METRICS} <= set(metrics)
    steps = re.findall(r"^\| `(\w+)\(", (ROOT / "docs" / "concepts.md").read_text(), re.MULTILINE)
    assert sorted(steps) == sorted(
        x for x in anyloss.steps.__all__ if x not in ("Step", "register")
    )


def test_the_glossary_and_the_navigation_are_complete():
    nav = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f" {page.name}\n" in nav, f"{page.name} is not in the navigation"
    for page in (ROOT / "docs" / "notebooks").iterdir():
        assert f" notebooks/{page.stem}.md\n" in nav, f"{page.name} is not in the navigation"


def test_each_guide_names_what_its_examples_need():
    guides = re.search(r"- Guides:\n(.*?)\n  - ", (ROOT / "mkdocs.yml").read_text(), re.DOTALL)[1]
    for page in re.findall(r"(\w+\.md)", guides):
        text = (ROOT / "docs" / page).read_text()
        if "```python" in text and page != "coming_from.md":
            assert re.search(r'To run this page.*`pip install "anyloss\[', text), page


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "notebooks").iterdir()), ids=str)
def test_notebooks_are_stored_without_outputs_and_assert_what_they_show(path):
    """`make docs` executes them."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert sum("assert " in cell.source for cell in code) >= 3


def test_the_table_of_extras_names_what_each_of_them_brings(capsys):
    check = runpy.run_path(str(ROOT / "tools" / "release_check.py"))
    text, brings = (ROOT / "docs" / "install.md").read_text(), check["requirements"]()
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", text, re.MULTILINE))
    assert rows.keys() == brings.keys() - check["INTERNAL"]
    assert brings["all"] == set().union(*(brings[name] for name in rows))
    for name in rows.keys() - {"all"}:
        assert set(rows[name].split(", ")) == brings[name], name
    assert run_examples(ROOT / "docs" / "install.md", capsys) == pytest.approx([2 / 3])


def test_the_demo_has_the_figures_of_the_benchmark():
    demo = SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "demo.py")))
    linear = (ROOT / "benchmarks" / "README.md").read_text().split("Linear models, five repeats")[1]
    row = re.search(r"\*\*BCE, tuned threshold\*\* \|.*", linear)[0]
    assert f"**{demo.GAIN:+.4f}**" in row
    assert f"**{demo.WINS}/{demo.DRAWS}/{demo.LOSSES}**" in row
    assert f"| {demo.NOISE} |" in re.search(r"null against BCE tuned.*", linear)[0]
    assert demo.WINS + demo.DRAWS + demo.LOSSES == 88


def test_the_pictures_of_the_documents_are_those_that_the_script_draws(tmp_path):
    subprocess.run(
        [sys.executable, str(ROOT / "docs" / "figures" / "draw.py"), str(tmp_path)], check=True
    )
    drawn = sorted(tmp_path.iterdir())
    names = ["steps.svg", "surfaces.png", "threshold_curve.svg", "worth.svg"]
    assert [x.name for x in drawn] == names
    for path in drawn:
        if path.suffix == ".svg":
            assert path.read_bytes() == (ROOT / "docs" / "figures" / path.name).read_bytes()
