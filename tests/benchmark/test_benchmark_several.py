"""The benchmark of several classes and labels: its data, its baselines, its runs."""

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score, matthews_corrcoef
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

from anyloss._core.shapes import Layout
from anyloss.baselines import rules, several
from anyloss.baselines.splits import new_split
from anyloss.benchmark import (
    Benchmark,
    labels_from_folder,
    protocol,
    read_results,
    several_classes,
    usable,
)
from anyloss.benchmark.datasets import load
from anyloss.benchmark.scoring import scores_of_several
from anyloss.cli import main
from anyloss.decisions.search import best_offsets

SETS = {dataset.name: dataset for dataset in several_classes()}


@pytest.fixture
def folder(tmp_path):
    X, Y = make_multilabel_classification(150, 6, n_classes=4, random_state=0)
    np.savez(tmp_path / "made.npz", X=X, Y=np.column_stack([Y, np.arange(150) < 3]))
    return tmp_path


def test_the_sets_of_several_classes():
    assert len(SETS) == 3 + 26
    X, y = load(SETS["wine"], 5000)
    assert X.shape == (178, 13)
    assert np.bincount(y).tolist() == [59, 71, 48]
    X, y = load(SETS["page-blocks"], 500)
    assert len(y) < 500  # without the rows of classes that have fewer than ten
    assert np.bincount(y).min() >= 10
    X, y = load(SETS["car"], 5000)  # columns of text
    assert X.shape == (1728, 21)
    assert set(np.unique(X)) == {0.0, 1.0}
    assert load(SETS["abalone"], 5000)[0].shape[1] == 10


@pytest.mark.slow("reads 29 data sets")
def test_every_set_can_be_read():
    good, problems = usable(list(SETS.values()), 600, 3)
    assert len(good) == 28
    assert problems == ["post-operative: fewer than three classes have 10 rows"]


def test_a_folder_of_labels(folder, tmp_path_factory):
    (dataset,) = labels_from_folder(folder)
    assert (dataset.name, dataset.task) == ("made", "multilabel")
    X, y = load(dataset, 5000)
    assert X.shape == (150, 6)
    assert y.shape == (150, 4)  # without the label of three rows
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(ValueError, match="must be a folder of files NAME.npz"):
        labels_from_folder(empty)
    np.savez(empty / "a.npz", X=X)
    np.savez(empty / "b.npz", X=X, Y=2 * y)
    assert [x.split(":")[0].split()[0] for x in usable(labels_from_folder(empty), 500, 3)[1]] == [
        "a",
        "b",
    ]


def wine_split(columns=slice(3), hidden=()):
    X, y = load(SETS["wine"], 5000)
    rows = np.random.default_rng(0).permutation(len(y))
    train, test = rows[:120], rows[120:]
    return (
        new_split(X[train][:, columns], y[train], X[test][:, columns], hidden, 0),
        y[test],
        (
            X[train][:, columns],
            X[test][:, columns],
        ),
    )


def test_the_linear_baselines_by_hand():
    """The arg-max, offsets tuned on held-out rows, class weights and logit adjustment."""
    split, truth, (X, test) = wine_split()
    scaler = StandardScaler().fit(X)
    X, test = scaler.transform(X), scaler.transform(test)
    model = LogisticRegression(max_iter=1000)
    held_out = cross_val_predict(model, X, split.y, cv=split.folds, method="predict_proba")
    p = model.fit(X, split.y).predict_proba(test)
    lay = Layout("multiclass", "macro", 3)
    offsets, _ = best_offsets(
        np.eye(3)[split.y], np.log(held_out), rules.read_aim("macro_f1").metric, lay,
        weight=np.ones(120),
    )  # fmt: skip
    wanted = {
        "bce": p.argmax(axis=1),
        "bce_tuned": (np.log(p) - offsets).argmax(axis=1),
        "logit_adjusted": (p / np.bincount(split.y)).argmax(axis=1),
    }
    balanced = LogisticRegression(max_iter=1000, class_weight="balanced").fit(X, split.y)
    wanted["weighted"] = balanced.predict(test)
    found = {}
    for family in ("bce", "weighted"):
        for each in rules.families("linear", "multiclass")[family](split, ["macro_f1"]):
            found[each.method] = each
    for name, decided in wanted.items():
        np.testing.assert_array_equal(found[name].decision, decided, err_msg=name)
    assert {"tuned_decision", "null", "weighted_tuned"} < set(found)
    reached = scores_of_several("multiclass", found["bce"], truth)["score"]
    assert reached == pytest.approx(f1_score(truth, wanted["bce"], average="macro"))


def test_the_boosted_baselines_are_lightgbms():
    split, _, _ = wine_split()
    found = next(rules.families("lightgbm", "multiclass")["weighted"](split, ["mcc"]))
    setup = rules.SETUPS["lightgbm"]
    weight = compute_sample_weight("balanced", split.y)
    model = LGBMClassifier(verbose=-1, **setup.plan(split.seed).parameters)
    p = model.fit(split.X, split.y, sample_weight=weight).predict_proba(split.test)
    np.testing.assert_allclose(found.probability, p)
    np.testing.assert_allclose(several.class_weights(np.eye(3)[split.y]), weight)


@pytest.mark.parametrize("model", several.MODELS)
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_every_method_is_there_and_learns(model, task, monkeypatch):
    monkeypatch.setattr(rules, "ROUNDS", 9)
    monkeypatch.setattr("anyloss.baselines.boosted.ROUNDS", 9)
    if task == "multiclass":
        split, truth, _ = wine_split(hidden=several.HIDDEN.get(model, ()))
        metrics = ["macro_f1", "mcc", "balanced_accuracy"]
        references = {
            "macro_f1": lambda y, d: f1_score(y, d, average="macro"),
            "mcc": matthews_corrcoef,
            "balanced_accuracy": balanced_accuracy_score,
        }
    else:
        X, Y = make_multilabel_classification(180, 6, n_classes=3, random_state=0)
        split = new_split(X[:120], Y[:120], X[120:], several.HIDDEN.get(model, ()), 0)
        truth, metrics = Y[120:], ["macro_f1", "micro_f1"]
        references = {
            f"{x}_f1": lambda y, d, x=x: f1_score(y, d, average=x, zero_division=0)
            for x in ("macro", "micro")
        }
    seen = set()
    for family, methods in rules.families(model, task).items():
        for each in methods(split, metrics):
            row = scores_of_several(task, each, truth)
            wanted = references[each.metric](truth, each.decision)
            assert row["score"] == pytest.approx(wanted), (family, each.method)
            assert row["score"] > 0.45
            assert each.probability.shape == (len(truth), 3)
            seen.add(each.method)
    wanted = {"bce", "bce_tuned", "tuned_decision", "null", "anyloss", "unrefined"}
    if task == "multiclass":
        wanted |= {"logit_adjusted"}
    if task == "multiclass" or model in ("linear", "lightgbm"):
        wanted |= {"weighted", "weighted_tuned"}
    assert wanted <= seen <= wanted | {"xcolumns", "cutoffs"}


def test_labels_that_are_the_same_in_all_training_rows():
    X, Y = make_multilabel_classification(120, 6, n_classes=3, random_state=0)
    Y[:, 1] = 0
    split = new_split(X[:80], Y[:80], X[80:], (), 0)
    for model in ("linear", "lightgbm"):
        for each in rules.families(model, "multilabel")["bce"](split, ["macro_f1"]):
            assert not each.decision[:, 1].any()


def test_names_of_metrics():
    assert rules.read_aim("macro_f1").metric.name == "f1"
    assert rules.read_aim("balanced_accuracy").average == "auto"
    with pytest.raises(ValueError, match="unknown metric"):
        rules.read_aim("macro_f1x")


def test_the_plan(folder):
    benchmark = Benchmark((SETS["iris"], SETS["wine"]), folds=3, repeats=2)
    assert benchmark.task == "multiclass"
    assert len(list(protocol.units(benchmark))) == 2 * 2 * 3 * 3 * 2
    labels = Benchmark(tuple(labels_from_folder(folder)), models=("mlp32",), metrics=("micro_f1",))
    assert {x.family for x in protocol.units(labels)} == {"bce", "anyloss"}
    for given, message in (
        ({"models": ("xgboost",)}, "models must be among linear, mlp, mlp32, lightgbm"),
        ({"families": ("focal",)}, "methods must be among bce, weighted, anyloss"),
        ({"datasets": (SETS["iris"], labels.datasets[0])}, "the same task; got multiclass, multi"),
        ({"metrics": ("macro_f1x",)}, "unknown metric"),
    ):
        with pytest.raises(ValueError, match=message):
            Benchmark(**{"datasets": (SETS["iris"],)} | given)


def test_folds_are_stratified_by_class():
    _, y = load(SETS["ecoli"], 5000)
    unit = next(protocol.units(Benchmark((SETS["ecoli"],), folds=3, repeats=1)))
    split, truth = protocol._split(*load(SETS["ecoli"], 5000), unit, 3)
    assert len(truth) + len(split.y) == len(y)
    np.testing.assert_allclose(np.bincount(split.y) / np.bincount(y), 2 / 3, atol=0.05)
    sizes = [len(held) for _, held in split.folds]
    assert sum(sizes) == len(split.y)
    folds = StratifiedKFold(5, shuffle=True, random_state=split.seed).split(split.X, split.y)
    np.testing.assert_array_equal(split.folds[0][1], next(folds)[1])


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_the_command_line(task, folder, capsys):
    command = [
        "bench",
        "--task",
        task,
        "--models",
        "linear",
        "--metrics",
        "macro_f1",
        "--jobs",
        "1",
    ]
    command += ["--folds", "3", "--repeats", "1", "--out", str(folder / "out.csv")]
    command += ["--data", str(folder)] if task == "multilabel" else ["--datasets", "iris", "wine"]
    assert main(command) == 0
    assert "linear, macro_f1: anyloss against each method" in capsys.readouterr().out
    results, _ = read_results(folder / "out.csv")
    assert set(results["classes"]) == ({3} if task == "multiclass" else {4})
    assert "| bce_tuned | " in (folder / "out.md").read_text()
    assert main(["bench", "--task", task, "--openml", "phoneme"]) == 2
    assert "--task multilabel needs --data FOLDER" in capsys.readouterr().err
