"""The benchmark: its data, its baselines against scikit-learn's, and runs that are killed."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from lightgbm import LGBMClassifier
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, f1_score, make_scorer, matthews_corrcoef
from sklearn.model_selection import StratifiedKFold, TunedThresholdClassifierCV, cross_val_predict
from sklearn.preprocessing import StandardScaler

import anyloss
from anyloss import recipe
from anyloss._core.journal import Journal
from anyloss.baselines import boosted
from anyloss.baselines.methods import (
    FAMILIES,
    MAIN,
    families_for,
    focal_gradient,
    mse_gradient,
    tuned_threshold,
)
from anyloss.benchmark import (
    Benchmark,
    bundled,
    from_folder,
    protocol,
    read_results,
    run,
    usable,
)
from anyloss.benchmark.datasets import load
from anyloss.cli import main

pytestmark = pytest.mark.xdist_group("benchmark")  # they share the runs of a fixture

SETS = {dataset.name: dataset for dataset in bundled()}


# Data


def test_the_bundled_sets_are_real_and_binary():
    assert {"breast_cancer", "digits_3", "wine_0", "iris_2"} < set(SETS)
    assert len(SETS) >= 17 + 119
    X, y = load(SETS["wine_2"], 5000)
    assert X.shape == (178, 13)
    assert y.sum() == 48
    X, y = load(SETS["abalone19"], 5000)
    assert (len(y), y.sum()) == (4174, 32)


@pytest.mark.slow("reads 136 data sets")
def test_every_bundled_set_can_be_read():
    good, problems = usable(list(SETS.values()), 300, 5)
    assert len(good) + len(problems) == len(SETS)
    assert all("too few" in problem for problem in problems)


@pytest.mark.slow("two runs of the benchmark")
def test_other_data_of_the_same_name_are_not_taken_for_done(tmp_path):
    rng = np.random.default_rng(0)
    scores = []
    for k in range(2):
        folder = tmp_path / str(k)
        folder.mkdir()
        frame = pd.DataFrame({"a": rng.normal(size=80), "y": np.arange(80) % 3 == 0})
        frame.to_csv(folder / "same.csv", index=False)
        benchmark = Benchmark(
            tuple(from_folder(folder)), **(SMALL | {"families": ("undersampling",)})
        )
        scores.append(run(benchmark, tmp_path / "out.csv", jobs=1).score.tolist())
    assert scores[0] != scores[1]


def test_a_sample_keeps_the_share_of_positives():
    X, y = load(SETS["breast_cancer"], 200)
    assert (len(X), y.sum()) == (200, round(200 * 212 / 569))
    np.testing.assert_array_equal(X, load(SETS["breast_cancer"], 200)[0])
    _, y = load(SETS["breast_cancer"], 568)
    assert len(y) == 568


def test_a_folder_of_files(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2, 3, 4], "y": ["no", "no", "yes", "no"]})
    frame.to_csv(tmp_path / "one.csv", index=False)
    frame.to_parquet(tmp_path / "two.parquet")
    found = from_folder(tmp_path)
    assert [dataset.name for dataset in found] == ["one", "two"]
    for dataset in found:
        X, y = load(dataset, 100)
        assert X.tolist() == [[1.0], [2.0], [3.0], [4.0]]
        assert y.tolist() == [0, 0, 1, 0]
    index = pd.DataFrame(
        {"name": ["first"], "file": ["one.csv"], "kind": ["tabular"], "family": ["f"]}
    )
    index.to_csv(tmp_path / "index.csv", index=False)
    assert [dataset[:2] for dataset in from_folder(tmp_path)] == [("first", "f")]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [1, 2], "b": [0, 1]}, "last column y"),
        ({"a": ["x", "z"], "y": [0, 1]}, "must be numbers"),
        ({"a": [1, None], "y": [0, 1]}, "missing values"),
        ({"a": [1, 2], "y": [0, 0]}, "two classes"),
        ({"a": [1, 2, 3], "y": ["yes", "no", None]}, "1 are missing"),
    ],
)
def test_files_that_are_no_data_sets(tmp_path, columns, message):
    pd.DataFrame(columns).to_csv(tmp_path / "bad.csv", index=False)
    good, problems = usable(from_folder(tmp_path), 5000, 5)
    assert not good
    assert message in problems[0]


def test_folders_that_hold_nothing(tmp_path):
    with pytest.raises(ValueError, match="no CSV or Parquet files"):
        from_folder(tmp_path)
    with pytest.raises(ValueError, match="must be a folder"):
        from_folder(tmp_path / "absent")
    (tmp_path / "index.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="columns name and file"):
        from_folder(tmp_path)


# Methods


@pytest.mark.parametrize(
    ("metric", "scoring"),
    [
        ("f1", "f1"),
        ("mcc", make_scorer(matthews_corrcoef)),
        ("balanced_accuracy", "balanced_accuracy"),
    ],
)
@pytest.mark.parametrize("case", ["breast_cancer", "digit"])
def test_the_tuned_threshold_is_scikit_learns(case, metric, scoring):
    if case == "digit":
        data = load_digits()
        X, y = data.data[:, 20:26], (data.target == 8).astype(int)
    else:
        X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    folds = StratifiedKFold(5, shuffle=True, random_state=3)
    model = LogisticRegression(max_iter=1000)
    theirs = TunedThresholdClassifierCV(model, scoring=scoring, cv=folds).fit(X, y)
    held_out = cross_val_predict(model, X, y, cv=folds, method="predict_proba")[:, 1]
    ours = tuned_threshold(y, held_out, list(folds.split(X, y)), metric)
    assert ours == pytest.approx(theirs.best_threshold_, rel=1e-9)


@pytest.fixture(scope="module")
def rows():
    """Every family once, on one fold of a real set, linear and with 8 hidden units."""
    found = []
    for model in protocol.MODELS:
        for family in FAMILIES if model == "linear" else MAIN:
            unit = protocol.Unit(SETS["digits_8"], model, family, ("f1", "mcc"), 0, 0)
            found += protocol.run_unit(unit, 5, 600)
    return pd.DataFrame(found)


def test_the_gradients_of_the_baselines_are_those_of_autograd():
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=200) * 20, (rng.random(200) < 0.3).astype(float)
    logits, labels = torch.tensor(z, requires_grad=True), torch.tensor(y)
    each = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    for gradient, loss in (
        (focal_gradient, ((1 - torch.exp(-each)) ** 2 * each).mean()),
        (mse_gradient, ((torch.sigmoid(logits) - labels) ** 2).mean()),
    ):
        (expected,) = torch.autograd.grad(loss, logits, retain_graph=True)
        np.testing.assert_allclose(gradient(z, y), expected.numpy(), rtol=1e-9, atol=1e-15)


def test_the_guide_to_a_new_baseline(capsys):
    """The code of docs/add_a_baseline.md runs, its gradient is right, and its methods learn."""
    namespace = {}
    guide = Path(__file__).parents[2] / "docs" / "add_a_baseline.md"
    for block in re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL):
        exec(compile(block, guide.name, "exec"), namespace)  # our own text
    error, plain, tuned = map(float, re.findall(r": ([\d.]+)", capsys.readouterr().out))
    assert error == 0
    assert min(plain, tuned) > 0.9


@pytest.mark.slow("trains every baseline")
def test_every_method_is_there_and_learns(rows):
    scores = rows[rows.metric == "f1"].set_index(["model", "method"]).score
    scored = [
        name
        for name in FAMILIES
        if name in ("bce", "weighted", "focal", "smote", "undersampling", "mse", "surrogate_fbeta")
    ]
    expected = {
        *scored,
        *(f"{name}_tuned" for name in scored),
        "null",
        "sol",
        "heaviside",
        "sigmoid_f1",
        "published",
        "anyloss",
        "unrefined",
    }
    assert set(scores["linear"].index) == expected
    assert set(scores["mlp"].index) == {
        "bce",
        "bce_tuned",
        "null",
        "weighted",
        "weighted_tuned",
        "published",
        "anyloss",
        "unrefined",
    }
    tuned = scores["linear"][[name for name in expected if name.endswith("_tuned")]]
    assert tuned.min() > 0.5
    assert scores["linear"]["anyloss"] > 0.5  # by chance: 0.18
    assert scores["mlp"]["anyloss"] > 0.5


def test_bce_of_the_linear_model_by_hand(rows):
    unit = protocol.Unit(SETS["digits_8"], "linear", "bce", ("f1",), 0, 0)
    X, y = load(unit.dataset, 600)
    split, truth = protocol._split(X, y, unit, 5)
    model = LogisticRegression(max_iter=1000).fit(split.X, split.y)
    row = rows[(rows.model == "linear") & (rows.method == "bce") & (rows.metric == "f1")].iloc[0]
    assert row.score == pytest.approx(f1_score(truth, model.predict(split.test)))
    p = model.predict_proba(split.test)[:, 1]
    assert row.brier == pytest.approx(brier_score_loss(truth, p))
    assert not row.collapsed
    ours = recipe.fit(split.X, split.y, "mcc", seed=split.seed).decide(split.test)[:, 0] > 0
    row = rows[(rows.model == "linear") & (rows.method == "anyloss") & (rows.metric == "mcc")].iloc[
        0
    ]
    assert row.score == pytest.approx(matthews_corrcoef(truth, ours))


@pytest.mark.parametrize("model", ["lightgbm", "xgboost", "catboost"])
def test_the_trees(model, monkeypatch):
    monkeypatch.setattr(boosted, "ROUNDS", 9)
    found = []
    for family in protocol.BOOSTED[model]:
        unit = protocol.Unit(SETS["digits_8"], model, family, ("f1", "mcc"), 0, 0)
        found += protocol.run_unit(unit, 5, 400)
    rows = pd.DataFrame(found)
    scores = rows[rows.metric == "f1"].set_index("method").score
    baselines = {"bce", "bce_tuned", "null", "weighted", "weighted_tuned", "blend"}
    assert set(scores.index) == {*baselines, "anyloss", "unrefined"}
    assert scores.drop(["bce", "weighted"]).min() > 0.3  # by chance: 0.18
    X, y = load(SETS["digits_8"], 400)
    split, truth = protocol._split(X, y, unit, 5)
    if model == "lightgbm":  # at 0.5, by hand
        theirs = LGBMClassifier(n_estimators=9, n_jobs=1, verbose=-1).fit(split.X, split.y)
        assert scores["bce"] == pytest.approx(f1_score(truth, theirs.predict(split.test)))
    again = protocol.run_unit(unit, 5, 400)
    assert [x["score"] for x in again] == rows.tail(len(again)).score.tolist()


def test_the_plan():
    trees = Benchmark((SETS["iris_1"],), models=("lightgbm",), metrics=("f1",), repeats=1)
    assert {x.family for x in protocol.units(trees)} == {"bce", "weighted", "blend", "anyloss"}
    both = Benchmark((SETS["iris_1"],), models=("linear", "xgboost"), families=("blend", "focal"))
    assert {(x.model, x.family) for x in protocol.units(both)} == {
        ("linear", "focal"),
        ("xgboost", "blend"),
    }
    with pytest.raises(ValueError, match="methods must be among bce, weighted, blend, anyloss"):
        Benchmark((SETS["iris_1"],), models=("lightgbm",), families=("focal",))

    assert families_for("linear", "f1") == tuple(FAMILIES)
    assert families_for("mlp", "f1") == families_for("linear", "gmean") == MAIN
    benchmark = Benchmark((SETS["iris_1"],), repeats=2)
    units = list(protocol.units(benchmark))
    assert len(units) == 2 * 5 * (len(FAMILIES) + len(MAIN))
    assert len({unit.key("") for unit in units}) == len(units)


# Runs


SMALL = {"models": ("linear",), "metrics": ("f1",), "families": ("bce", "anyloss"), "repeats": 1}


@pytest.mark.slow("two runs of the benchmark")
def test_a_run_is_tidy_and_complete_and_goes_on_from_its_journal(tmp_path):
    benchmark = Benchmark((SETS["iris_1"],), **SMALL)
    calls = []
    results = run(benchmark, tmp_path / "a.csv", jobs=1, on_unit=lambda *call: calls.append(call))
    assert calls[0][:2] == (0, 10)
    assert calls[-1][:2] == (10, 10)
    assert list(results.columns) == [
        "dataset",
        "family",
        "rows",
        "features",
        "positives",
        "model",
        "metric",
        "method",
        "repeat",
        "fold",
        "score",
        "brier",
        "collapsed",
    ]
    assert len(results) == 5 * 5  # bce, bce_tuned, null, anyloss, unrefined
    again, seconds = read_results(tmp_path / "a.csv")
    assert set(again.method) == {"bce", "bce_tuned", "null", "anyloss", "unrefined"}
    assert (seconds.seconds > 0).all()
    wider = Benchmark((SETS["iris_1"], SETS["wine_0"]), **SMALL)
    calls.clear()
    run(wider, tmp_path / "a.csv", jobs=1, on_unit=lambda *call: calls.append(call))
    assert calls[0][:2] == (10, 20)  # nothing is run twice
    run(wider, tmp_path / "b.parquet", jobs=2)
    both = [read_results(tmp_path / name)[0] for name in ("a.csv", "b.parquet")]
    pd.testing.assert_frame_equal(*both, check_dtype=False)


@pytest.mark.slow("ten killed runs")
def test_ten_kills_leave_the_same_file(tmp_path):
    command = [
        sys.executable, "-m", "anyloss", "bench", "--datasets", "iris_1", "wine_1", "--models", "linear",
        "--metrics", "f1", "--methods", "bce", "undersampling", "anyloss", "--repeats", "2", "--out",
    ]  # fmt: skip
    subprocess.run([*command, tmp_path / "whole.csv"], check=True, capture_output=True)
    journal, moments = tmp_path / "killed.journal.jsonl", random.Random(0)
    for _ in range(10):
        process = subprocess.Popen(
            [*command, tmp_path / "killed.csv"], stdout=subprocess.DEVNULL, start_new_session=True
        )
        size = journal.stat().st_size if journal.exists() else 0
        lines = moments.randint(0, 4)
        while process.poll() is None and (
            not journal.exists() or journal.read_bytes()[size:].count(b"\n") < lines
        ):
            time.sleep(0.005)
        time.sleep(moments.random() * 0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    kept = journal.read_bytes()
    assert 1 < kept.count(b"\n") < 61  # something was done, and something was left to do
    subprocess.run([*command, tmp_path / "killed.csv"], check=True, capture_output=True)
    assert (tmp_path / "killed.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    units = [json.loads(line).get("unit") for line in journal.read_text().splitlines()]
    assert len(units) == len(set(units)) == 61  # nothing twice
    picture = (tmp_path / "killed.svg").read_text()
    assert picture.startswith("<?xml")


def test_workers_end_with_a_killed_parent(tmp_path):
    command = [
        sys.executable, "-m", "anyloss", "bench", "--datasets", "digits_1", "--models", "linear",
        "--out", tmp_path / "a.csv",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    while not (tmp_path / "a.journal.jsonl").exists() or not _workers(process.pid):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for _ in range(200):
        if not _workers(process.pid):
            return
        time.sleep(0.1)
    pytest.fail("workers are still running")


def _workers(session):
    found = subprocess.run(
        ["ps", "-o", "pid=", "-s", str(session)], capture_output=True, text=True
    ).stdout.split()
    return [pid for pid in found if pid != str(session)]


def test_a_journal_that_was_cut_short(tmp_path):
    path = tmp_path / "j.jsonl"
    with Journal(path, {"rows": 1}) as journal:
        journal.add("a", [{"score": 0.1}])
        journal.add("b", [{"score": 0.2}])
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with Journal(path, {"rows": 1}) as journal:
        assert set(journal.results) == {"a"}
        journal.add("b", [{"score": 0.2}])
    assert path.read_bytes() == whole
    with pytest.raises(ValueError, match="started with other settings"), Journal(path, {"rows": 2}):
        pass
    with (
        Journal(path, {"rows": 1}),
        pytest.raises(ValueError, match="another run is writing"),
        Journal(path, {"rows": 1}),
    ):
        pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ("forest",)}, "models must be among linear, mlp"),
        ({"families": ("magic",)}, "methods must be among bce"),
        ({"metrics": ("f1x",)}, "unknown metric"),
        ({"datasets": ()}, "needs data sets, each of them once; got none"),
        ({"metrics": ("f1", "f1")}, "needs metrics, each of them once; got f1 more than once"),
        ({"folds": 1}, "at least 2 folds"),
    ],
)
def test_invalid_benchmarks_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Benchmark(**({"datasets": (SETS["iris_1"],)} | changes))


def test_invalid_outputs_are_refused(tmp_path):
    benchmark = Benchmark((SETS["iris_1"],), **SMALL)
    with pytest.raises(ValueError, match=r"\.csv or \.parquet"):
        run(benchmark, tmp_path / "a.xlsx")
    with pytest.raises(ValueError, match="jobs"):
        run(benchmark, tmp_path / "a.csv", jobs=0)


def test_sets_that_are_too_small(tmp_path):
    frame = pd.DataFrame({"a": np.arange(45.0), "y": np.arange(45) < 5})
    frame.to_csv(tmp_path / "tiny.csv", index=False)
    problem = usable(from_folder(tmp_path), 100, 5)[1]
    assert problem == [
        "tiny: 5 rows of the rarer class are too few for 5 folds with 5 inner folds each; use fewer folds"
    ]


# The command line


def test_the_command_line_reports_what_is_wrong(capsys, tmp_path):
    for arguments, message in (
        (["bench", "--data", str(tmp_path / "no")], "must be a folder"),
        (["bench", "--datasets", "nothing"], "no data set is called nothing"),
        (["bench", "--datasets", "iris_1", "--metrics", "f1x"], "unknown metric"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"anyloss {anyloss.__version__}\n"


def test_help_imports_neither_torch_nor_scikit_learn():
    code = (
        "import sys\nfrom anyloss.cli import main\ntry:\n    main(['bench', '--help'])\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'sklearn', 'pandas', 'scipy'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_command_line_shows_tables_and_a_picture(capsys, tmp_path):
    command = ["bench", "--datasets", "iris_1", "wine_0", "--models", "linear", "--metrics", "f1"]
    command += ["--methods", "bce", "anyloss", "--repeats", "1", "--jobs", "1"]
    assert main([*command, "--out", str(tmp_path / "a.parquet")]) == 0
    shown = capsys.readouterr().out
    assert "linear, f1: anyloss against each method" in shown
    assert "null against bce_tuned" in shown
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    assert "| bce_tuned | " in (tmp_path / "a.md").read_text()
    results, _ = read_results(tmp_path / "a.parquet")
    assert set(results.method) == {"bce", "bce_tuned", "null", "anyloss", "unrefined"}
    assert main([*command, "--out", str(tmp_path)]) == 2
    assert "must end in .csv or .parquet" in capsys.readouterr().err
