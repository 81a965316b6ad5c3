"""Several classes and several labels of a table, against scikit-learn."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics as sk
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from anyloss.baselines.tables import several_decisions, several_split
from anyloss.sklearn import TunedDecisionClassifierCV
from anyloss.tabular import compare_table, fit_table, load, predict_table, read_table, save
from anyloss.tabular.intervals import difference_interval, score_interval
from anyloss.tabular.labels import Outcome, read_labels
from anyloss.tabular.leaks import single_column_aucs
from anyloss.tabular.onnx import export
from anyloss.tabular.scoring import scoring_of
from anyloss.tabular.splitting import row_keys, split_rows
from anyloss.tabular.trivial import trivial_decisions

AVERAGES = ("macro", "micro", "weighted")


def fruit(n=500, seed=0):
    """Three classes of unequal size, with text and gaps."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(["apple", "fig", "plum"], n, p=[0.6, 0.3, 0.1])
    weight = np.select([kind == "apple", kind == "fig"], [150.0, 50.0], 80.0) + rng.normal(0, 40, n)
    colour = np.where(rng.random(n) < 0.7, np.where(kind == "plum", "blue", "green"), "red")
    frame = pd.DataFrame({"weight": weight.round(1), "colour": colour, "fruit": kind})
    frame.loc[::11, "weight"] = np.nan
    return frame


def films(n=500, seed=0):
    """Three labels of 0 and 1, which may be present together."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    frame = pd.DataFrame(X, columns=list("abcd"))
    for k, (name, cut) in enumerate({"funny": 0.0, "sad": 0.8, "loud": 1.2}.items()):
        frame[name] = (X[:, k] + 0.5 * X[:, 3] + rng.normal(0, 0.7, n) > cut).astype(int)
    return frame


LABELS = ["funny", "sad", "loud"]


def test_a_label_whose_rows_all_have_a_rarer_one():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(500, 2)), columns=list("ab"))
    frame["cat"] = (frame["a"] > 0.3).astype(int)
    frame["dog"] = (frame["b"] > 0.5).astype(int)
    frame["animal"] = frame["cat"] | frame["dog"]  # the labels form a tree
    result = fit_table(frame, ["cat", "dog", "animal"], model="linear")
    assert result.score > 0.8


@pytest.fixture(scope="module")
def classes():
    return fit_table(fruit(), "fruit", model="linear", folds=0)


@pytest.fixture(scope="module")
def labels():
    return fit_table(films(), LABELS, model="linear", folds=0)


def decided(result):
    """The test labels and predictions as scikit-learn takes them."""
    y, p = result.y_test, result.p_test
    if result.outcome.task == "multiclass":
        return y.argmax(axis=1), p.argmax(axis=1)
    return y.astype(int), (p > 0.5).astype(int)


# The labels


def test_three_values_are_classes_and_two_are_not():
    y, outcome = read_labels(fruit(), ["fruit"])
    assert (outcome.task, outcome.classes) == ("multiclass", ("apple", "fig", "plum"))
    np.testing.assert_array_equal(y, pd.get_dummies(fruit()["fruit"]).to_numpy(float))
    two = fruit()[lambda x: x["fruit"] != "fig"]
    assert read_labels(two, ["fruit"])[1] == Outcome("binary", ("fruit",), ("apple", "plum"))
    y, outcome = read_labels(two, ["fruit"], average="macro")
    assert (outcome.task, y.shape[1]) == ("multiclass", 2)
    assert read_labels(fruit(), ["fruit"], positive="fig")[1].task == "binary"


def test_several_columns_are_labels():
    frame = films().assign(sad=lambda x: x["sad"] == 1, loud=lambda x: x["loud"].astype(str))
    y, outcome = read_labels(frame, LABELS)
    np.testing.assert_array_equal(y, films()[LABELS])
    assert outcome == Outcome("multilabel", tuple(LABELS), tuple(LABELS))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "one"}, r"at least 10 rows of each class, .* got fewer of 'rare' \(1\): merge"),
        ({"target": ["sad", "word"]}, "'word' must hold 0 and 1, .* got 'no', 'yes': convert it"),
        ({"target": ["sad", "count"]}, "'count' must hold 0 and 1, .* got '0.5', '2'"),
        ({"target": ["sad", "never"]}, "at least 10 rows with 0 and 10 with 1, .* got 500 and 0"),
        ({"target": ["sad", "sad"]}, "distinct label columns; got \\['sad', 'sad'\\]"),
        ({"target": ["sad", "sas"]}, "there is no column 'sas'; did you mean 'sad'"),
        ({"target": ["sad", "loud"], "positive": "1"}, "the positive class is for one label col"),
        ({"target": ["sad", "loud"], "drop": ["sad"]}, "'sad' is a label column: it cannot be"),
        ({"target": "one", "average": "samples"}, "average must be one of auto, binary, macro"),
        ({"target": ["sad", "loud"], "average": "binary"}, "average='binary' needs a single col"),
        ({"target": ["sad", "loud"], "average": "multiclass"}, "for metrics with a multiclass fo"),
        ({"target": "a", "model": "linear"}, "it looks like a column of numbers, not of classes"),
    ],
)
def test_labels_that_are_refused(options, message):
    words = np.where(np.arange(500) % 2, "yes", "no")
    frame = films().assign(one=["x", "y"] * 249 + ["y", "rare"], word=words, never=0)
    frame["count"] = [0.5, 2] * 250
    with pytest.raises(ValueError, match=message):
        fit_table(frame, **options)


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_trees_of_several_classes_and_labels(task, tmp_path):
    frame, target = (fruit(300), "fruit") if task == "multiclass" else (films(), LABELS)
    result = fit_table(frame, target, model="lightgbm", folds=0)
    decided = result.outcome.decide(result.p_test)
    expected = sk.f1_score(result.y_test, decided, average="macro", zero_division=0)
    assert result.score == pytest.approx(expected)
    assert result.score > 0.5
    save(result, tmp_path / "trees")
    again = load(tmp_path / "trees")
    values = again.decision_values(frame)
    np.testing.assert_array_equal(values, result.model.decision_values(frame))


def test_rows_without_one_of_the_labels_are_not_used():
    frame = films().astype({"sad": object})
    frame.loc[:19, "sad"] = None
    result = fit_table(frame, LABELS, model="linear")
    assert result.facts["rows"] == 480
    assert any("without a value in 'funny', 'sad', 'loud'" in text for text in result.warnings)


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_the_test_rows_keep_all_classes(task):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(0, 700, 1000), "b": "x"})
    y = np.eye(4)[rng.choice(4, 1000, p=[0.6, 0.3, 0.07, 0.03])]
    if task == "multilabel":
        y = np.maximum(y, rng.random((1000, 4)) < [0.3, 0.2, 0.02, 0.01])
    test, copies = split_rows(row_keys(frame), y, 0.25, 1, task)
    assert copies == 0
    assert test.mean() == pytest.approx(0.25, abs=0.015)
    assert not set(frame["a"][test]) & set(frame["a"][~test])
    np.testing.assert_allclose(y[test].sum(axis=0), 0.25 * y.sum(axis=0), rtol=0.25)


def test_the_aucs_of_single_columns_for_each_class():
    frame = fruit().dropna()
    y, outcome = read_labels(frame, ["fruit"])
    found = single_column_aucs(frame[["weight"]], y, 0, outcome.task)["weight"]
    expected = [sk.roc_auc_score(labels, frame["weight"]) for labels in y.T]
    np.testing.assert_allclose(found, np.maximum(expected, np.subtract(1, expected)), atol=1e-12)


# The scores


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("which", ["classes", "labels"])
def test_scores_and_counts_are_those_of_scikit_learn(which, average, request):
    result = request.getfixturevalue(which)
    y, d = decided(result)
    for name, reference in (
        ("f1", sk.f1_score),
        ("precision", sk.precision_score),
        ("recall", sk.recall_score),
    ):
        scoring = scoring_of(name, result.outcome.task, 3, average)
        found = scoring.score(result.y_test, result.outcome.decide(result.p_test))
        assert found == pytest.approx(reference(y, d, average=average, zero_division=0))
    cells = sk.multilabel_confusion_matrix(y, d)
    np.testing.assert_array_equal(result.counts.tp, cells[:, 1, 1])
    np.testing.assert_array_equal(result.counts.fp, cells[:, 0, 1])
    assert result.score == pytest.approx(sk.f1_score(y, d, average="macro"))
    assert result.average == "macro"
    assert result.score > 0.6


def test_the_average_is_what_is_trained_for():
    assert fit_table(fruit(), "fruit", "mcc", model="linear", folds=0).average == "multiclass"
    result = fit_table(fruit(), "fruit", "f1", average="weighted", model="linear", folds=0)
    y, d = decided(result)
    assert result.model.classifier.average_ == result.average == "weighted"
    assert result.score == pytest.approx(sk.f1_score(y, d, average="weighted"))
    two = fruit()[lambda x: x["fruit"] != "fig"]
    result = fit_table(two, "fruit", "f1", average="macro", model="linear", folds=0)
    y, d = decided(result)
    assert result.score == pytest.approx(sk.f1_score(y, d, average="macro"))


@pytest.mark.parametrize("which", ["classes", "labels"])
def test_intervals_agree_with_a_bootstrap_of_the_rows(which, request):
    result = request.getfixturevalue(which)
    y, d = decided(result)
    rng, n = np.random.default_rng(1), len(y)
    other = np.where(rng.random(n) < 0.9, np.arange(n), rng.permutation(n))
    drawn = [rng.integers(0, n, n) for _ in range(1000)]
    ours = [sk.f1_score(y[i], d[i], average="macro", zero_division=0) for i in drawn]
    theirs = [sk.f1_score(y[i], d[other][i], average="macro", zero_division=0) for i in drawn]
    scoring = scoring_of("f1", result.outcome.task, 3)
    mine = result.outcome.decide(result.p_test)
    expected = np.quantile(ours, [0.025, 0.975])
    assert result.interval == score_interval(result.y_test, mine, scoring)
    assert result.interval == pytest.approx(tuple(expected), abs=0.015)
    found = difference_interval(result.y_test, mine, mine[other], scoring)
    expected = np.quantile(np.subtract(ours, theirs), [0.025, 0.975])
    assert found == pytest.approx(tuple(expected), abs=0.015)


def test_the_score_of_random_decisions_is_a_mean():
    rng = np.random.default_rng(0)
    y = np.eye(3)[rng.choice(3, 300, p=[0.6, 0.3, 0.1])]
    outcome = Outcome("multiclass", ("y",), ("a", "b", "c"))
    scoring = scoring_of("f1", "multiclass", 3)
    constant, random = trivial_decisions(y, outcome, scoring, seed=0)
    assert constant.name == "always 'a'"
    assert scoring.score(y, constant.decide(300)) == pytest.approx(
        sk.f1_score(y.argmax(axis=1), np.zeros(300), average="macro", zero_division=0)
    )
    assert random.name == "at random, by the shares of the classes"
    scores = [
        sk.f1_score(y.argmax(1), rng.choice(3, 300, p=y.mean(axis=0)), average="macro")
        for _ in range(300)
    ]
    found = scoring.score(np.concatenate([y] * 20), random.decide(6000))
    assert found == pytest.approx(np.mean(scores), abs=0.02)
    gmean = scoring_of("gmean", "multiclass", 3)
    assert trivial_decisions(y, outcome, gmean, seed=0)[1].name == "at random, all classes alike"


def test_trivial_decisions_of_labels():
    rng = np.random.default_rng(0)
    y = (rng.random((400, 3)) < [0.1, 0.8, 0.3]).astype(float)
    outcome = Outcome("multilabel", tuple("abc"), tuple("abc"))
    micro = scoring_of("f1", "multilabel", 3, "micro")
    found = {x.name: x.decide(400) for x in trivial_decisions(y, outcome, micro, seed=0)}
    candidates = {
        k: sk.f1_score(y, np.tile(np.isin([0, 1, 2], [1, 2, 0][:k]) * 1, (400, 1)), average="micro")
        for k in (1, 2)
    }
    best = max(candidates, key=candidates.get)
    name = {
        1: "the most frequent label for every row",
        2: "the 2 most frequent labels for every row",
    }
    assert list(found) == [
        "no label", "every label", name[best], "at random, by the shares of the labels",
    ]  # fmt: skip
    assert micro.score(y, found[name[best]]) == pytest.approx(candidates[best])
    assert found["every label"].min() == 1
    assert found["no label"].max() == 0


# The baselines


def test_baselines_of_classes_are_scikit_learns_logistic_regression():
    X, y = load_wine(return_X_y=True)
    X = X[:, :3]
    train, test = np.arange(178) % 4 > 0, np.arange(178) % 4 == 0
    split = several_split(X[train], np.eye(3)[y[train]], X[test], "multiclass", "linear", 0)
    scoring = scoring_of("f1", "multiclass", 3)
    methods = ("bce", "bce_tuned", "weighted", "anyloss")
    found = dict(several_decisions("linear", split, methods, *scoring))
    scaler = StandardScaler().fit(X[train])
    rows, rest = scaler.transform(X[train]), scaler.transform(X[test])
    for name, weight in (("bce", None), ("weighted", "balanced")):
        model = LogisticRegression(max_iter=1000, class_weight=weight).fit(rows, y[train])
        np.testing.assert_array_equal(found[name].argmax(axis=1), model.predict(rest))
    tuned = TunedDecisionClassifierCV(LogisticRegression(max_iter=1000), "f1", cv=split.folds)
    expected = tuned.fit(rows, y[train]).predict(rest)
    np.testing.assert_array_equal(found["bce_tuned"].argmax(axis=1), expected)
    assert scoring.score(np.eye(3)[y[test]], found["anyloss"]) > 0.8


def test_baselines_of_labels_are_one_logistic_regression_each():
    frame = films()
    X, y = frame[list("abcd")].to_numpy(), frame[LABELS].to_numpy(float)
    y = np.column_stack([y, np.zeros(len(y))])  # a label that never occurs in these rows
    split = several_split(X[:400], y[:400], X[400:], "multilabel", "linear", 0)
    scoring = scoring_of("f1", "multilabel", 4)
    found = dict(several_decisions("linear", split, ("bce", "bce_tuned"), *scoring))
    scaler = StandardScaler().fit(X[:400])
    for k in range(3):
        model = LogisticRegression().fit(scaler.transform(X[:400]), y[:400, k])
        np.testing.assert_array_equal(found["bce"][:, k], model.predict(scaler.transform(X[400:])))
    assert not found["bce"][:, 3].any()
    assert found["bce_tuned"].shape == (100, 4)


@pytest.mark.parametrize("model", ["mlp", "lightgbm"])
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_baselines_of_other_models_predict_well(model, task):
    if task == "multiclass":
        X, y = load_wine(return_X_y=True)
        y = np.eye(3)[y]
    else:
        X, y = films()[list("abcd")].to_numpy(), films()[LABELS].to_numpy(float)
    test = np.arange(len(y)) % 4 == 0
    split = several_split(X[~test], y[~test], X[test], task, model, 0)
    for _, each in several_decisions(
        model, split, ("bce", "bce_tuned"), *scoring_of("f1", task, 3)
    ):
        assert scoring_of("f1", task, 3).score(y[test], each) > (
            0.9 if task == "multiclass" else 0.5
        )


def test_the_baselines_stand_beside_the_model(classes, labels):
    assert [x.name for x in classes.baselines] == [
        "cross-entropy, arg-max", "cross-entropy, tuned decision rule",
        "class-weighted cross-entropy", "always 'apple'", "at random, by the shares of the classes",
    ]  # fmt: skip
    assert [x.name for x in labels.baselines][:5] == [
        "cross-entropy, threshold 0.5", "cross-entropy, tuned thresholds",
        "class-weighted cross-entropy", "no label", "every label",
    ]  # fmt: skip
    for result in (classes, labels):
        for each in result.baselines:
            assert each.difference == pytest.approx(result.score - each.score)
            assert each.interval[0] - 0.05 <= each.difference <= each.interval[1] + 0.05
            assert each.interval[0] > 0 or not each.trivial


def test_comparing_several_classes_and_labels(tmp_path):
    options = {"folds": 2, "repeats": 1}
    found = compare_table(fruit(), "fruit", journal=tmp_path / "a", **options)
    assert [x.name for x in found.baselines] == [
        "cross-entropy, arg-max", "cross-entropy, tuned decision rule",
        "class-weighted cross-entropy", "LightGBM, tuned decision rule", "always 'apple'",
        "at random, by the shares of the classes",
    ]  # fmt: skip
    assert found.score > 0.6
    found = compare_table(
        films(), LABELS, average="micro", model="mlp", journal=tmp_path / "b", **options
    )
    names = [x.name for x in found.baselines]
    assert names[:3] == [
        "cross-entropy, threshold 0.5", "cross-entropy, tuned thresholds",
        "LightGBM, tuned thresholds",
    ]  # fmt: skip
    assert found.score > 0.6
    with pytest.raises(ValueError, match="too few for 60 folds"):
        compare_table(fruit(), "fruit", journal=tmp_path / "c", folds=60)


# The model


def test_the_way_to_a_file_of_predicted_classes(classes, tmp_path):
    save(classes, tmp_path / "model")
    model, new = load(tmp_path / "model"), fruit(80, seed=3)
    assert model.outcome == classes.outcome
    values = model.decision_values(new)
    np.testing.assert_array_equal(values, classes.model.decision_values(new))
    np.testing.assert_allclose(values.sum(axis=1), 1)
    new.to_csv(tmp_path / "new.csv", index=False)
    for out in ("out.csv", "out.parquet"):
        predict_table(model, tmp_path / "new.csv", tmp_path / out, id_column="fruit")
        found = read_table(tmp_path / out)
        assert list(found) == [
            "fruit", "prediction", "decision_value: apple", "decision_value: fig",
            "decision_value: plum",
        ]  # fmt: skip
        np.testing.assert_allclose(found.iloc[:, 2:], values)
        expected = np.array(model.outcome.classes)[values.argmax(axis=1)]
        assert found["prediction"].tolist() == expected.tolist()
    assert sk.f1_score(new["fruit"], found["prediction"], average="macro") > 0.6
    stored = json.loads((tmp_path / "model" / "metrics.json").read_text())
    y, d = decided(classes)
    assert stored["confusion"] == sk.confusion_matrix(y, d).tolist()
    assert stored["counts"]["tp"] == classes.counts.tp.tolist()


def test_the_way_to_a_file_of_predicted_labels(labels, tmp_path):
    save(labels, tmp_path / "model")
    model, new = load(tmp_path / "model"), films(80, seed=3)
    values = model.decision_values(new)
    new.to_csv(tmp_path / "new.csv", index=False)
    for out in ("out.csv", "out.parquet"):
        predict_table(model, tmp_path / "new.csv", tmp_path / out)
        found = read_table(tmp_path / out)
        assert list(found)[:4] == [*(f"prediction: {x}" for x in LABELS), "decision_value: funny"]
        np.testing.assert_array_equal(found.iloc[:, :3], values > 0.5)
        np.testing.assert_allclose(found.iloc[:, 3:], values)


@pytest.mark.parametrize("model", ["linear", "mlp", "lightgbm"])
@pytest.mark.parametrize("which", ["classes", "labels"])
def test_an_onnx_graph_decides_as_the_model(which, model, tmp_path):
    onnx, reference = pytest.importorskip("onnx"), pytest.importorskip("onnx.reference")
    several = which == "classes"
    frame, target = (fruit(), "fruit") if several else (films(), LABELS)
    result = fit_table(frame, target, model=model, folds=0)
    export(result.model, tmp_path / "model.onnx")
    new = fruit(50, seed=8)[["weight", "colour"]] if several else films(50, seed=8)[list("abcd")]
    inputs = {
        x: new[x].to_numpy(float if new[x].dtype.kind == "f" else object)[:, None] for x in new
    }
    graph = reference.ReferenceEvaluator(str(tmp_path / "model.onnx"))
    label, values = graph.run(None, inputs)
    expected = result.model.decision_values(new)
    np.testing.assert_allclose(values, expected, atol=1e-12)
    assert label.tolist() == result.model.decide(expected).tolist()
    stored = {x.key: x.value for x in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert json.loads(stored["classes"]) == list(result.outcome.classes)


def test_the_onnx_graph_of_trees_for_two_classes_that_count_alike(tmp_path):
    reference = pytest.importorskip("onnx.reference")
    frame = fruit()[["weight", "colour", "fruit"]]
    frame["fruit"] = np.where(frame["fruit"] == frame["fruit"][0], "this", "that")
    result = fit_table(frame, "fruit", model="lightgbm", average="macro", folds=0)
    export(result.model, tmp_path / "model.onnx")
    new = frame[:50].drop(columns="fruit")
    given = {x: new[x].to_numpy(float if x == "weight" else object)[:, None] for x in new}
    graph = reference.ReferenceEvaluator(str(tmp_path / "model.onnx"))
    label, values = graph.run(None, given)
    expected = result.model.decision_values(new)
    assert expected.shape == (50, 2)
    np.testing.assert_allclose(values, expected, atol=1e-12)
    assert label.tolist() == result.model.decide(expected).tolist()


def test_auto_is_an_ensemble_for_several_classes():
    result = fit_table(fruit(300), "fruit", folds=0)
    assert set(result.candidates) == set(result.weights) == {"linear", "mlp", "lightgbm"}
    assert result.model_name == "auto"
    assert sum(result.weights.values()) == pytest.approx(1)
