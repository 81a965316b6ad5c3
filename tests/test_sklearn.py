"""AnyLossClassifier: scikit-learn's own checks, and what it is for."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from imblearn.metrics import geometric_mean_score
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    make_multilabel_classification,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    cohen_kappa_score,
    f1_score,
    matthews_corrcoef,
)
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import anyloss
from anyloss.recipe.folder import load_model, save_model
from anyloss.recipe.numpy_models import finish, start
from anyloss.sklearn import AnyLossClassifier
from anyloss.tabular.encoder import for_tables


@parametrize_with_checks(
    [AnyLossClassifier(), AnyLossClassifier("mcc", (4,), repeats=1, folds=3, max_iter=20)]
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def hard_problem(n=600, seed=0):
    """Imbalanced and not linear: where a threshold alone is not enough."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    y = (X[:, 0] + X[:, 1] ** 2 + rng.normal(size=n) > 2.8).astype(int)
    return X, y


@pytest.mark.parametrize(("metric", "reference"), [("f1", f1_score), ("mcc", matthews_corrcoef)])
def test_score_is_the_metric_of_the_decisions(metric, reference):
    X, y = hard_problem()
    model = AnyLossClassifier(metric).fit(X, y)
    assert model.score(X, y) == pytest.approx(reference(y, model.predict(X)), abs=1e-12)
    np.testing.assert_array_equal(model.predict_proba(X)[:, 1] > 0.5, model.predict(X) == 1)
    assert model.history_.shape == (300,)
    assert model.history_[-1] > model.history_[0]


@pytest.mark.slow("fits many models")
def test_it_does_not_lose_to_a_tuned_threshold_on_bundled_data():
    """Ten digits, one against the rest, seen through few pixels: mean F1, five folds."""
    digits = load_digits()
    X = digits.data[:, 18:30]
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    gains = []
    for digit in (2, 5, 8):
        y = (digits.target == digit).astype(int)
        ours = cross_val_predict(AnyLossClassifier("f1", random_state=0), X, y, cv=folds)
        tuned = TunedThresholdClassifierCV(
            make_pipeline(StandardScaler(), LogisticRegression()), scoring="f1", random_state=0
        )
        gains.append(f1_score(y, ours) - f1_score(y, cross_val_predict(tuned, X, y, cv=folds)))
    assert np.mean(gains) > -0.005
    assert min(gains) > -0.02


def test_the_positive_class():
    X, y = load_breast_cancer(return_X_y=True)
    rare = AnyLossClassifier(random_state=0).fit(X, y)
    assert rare.pos_label_ == 0
    other = AnyLossClassifier(pos_label=1, random_state=0).fit(X, y)
    assert other.pos_label_ == 1
    assert rare.score(X, y) == pytest.approx(f1_score(y, rare.predict(X), pos_label=0))
    text = AnyLossClassifier(pos_label="bad").fit(X, np.where(y == 0, "bad", "good"))
    assert set(text.predict(X[:50])) == {"bad", "good"}
    # the same model whatever the classes are called
    np.testing.assert_array_equal(
        AnyLossClassifier(random_state=0).fit(X, np.where(y == 0, "z", "a")).predict(X) == "z",
        rare.predict(X) == 0,
    )


def test_same_seed_same_bits_and_columns_of_any_unit():
    X, y = hard_problem()
    first, second = (AnyLossClassifier(random_state=3).fit(X, y).coef_ for _ in range(2))
    np.testing.assert_array_equal(first, second)
    moved = X * [1e-3, 1.0, 1e4, 1.0] + [5, 0, -1e5, 3]
    np.testing.assert_array_equal(
        AnyLossClassifier(random_state=0).fit(moved, y).predict(moved),
        AnyLossClassifier(random_state=0).fit(X, y).predict(X),
    )


@pytest.mark.parametrize("unit", [1e-200, 1e-16, 1e155, 1e300])
def test_columns_of_extreme_units(unit):
    X, y = hard_problem()
    expected = AnyLossClassifier(random_state=0).fit(X, y).predict(X)
    np.testing.assert_array_equal(
        AnyLossClassifier(random_state=0).fit(X * unit, y).predict(X * unit), expected
    )


def test_weight_zero_is_no_row():
    X, y = hard_problem()
    weight = np.ones(len(y))
    weight[::3] = 0
    dropped = AnyLossClassifier(random_state=0).fit(X[weight > 0], y[weight > 0])
    weighted = AnyLossClassifier(random_state=0).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(dropped.coef_, weighted.coef_)


def test_inside_scikit_learns_tools():
    X, y = hard_problem(300)
    grid = GridSearchCV(
        AnyLossClassifier(max_iter=20), {"C": [0.1, 1.0], "metric": ["f1", "mcc"]}, cv=3
    )
    assert grid.fit(X, y).best_score_ > 0
    tuned = TunedThresholdClassifierCV(AnyLossClassifier(max_iter=20), scoring="f1").fit(X, y)
    assert set(tuned.predict(X)) == {0, 1}
    calibrated = CalibratedClassifierCV(AnyLossClassifier(max_iter=20), cv=3).fit(X, y)
    assert calibrated.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=0.05)
    assert clone(AnyLossClassifier("tp / (tp + fp + 2*fn)")).fit(X, y).score(X, y) > 0


def test_it_tells_what_it_does(capsys):
    X, y = hard_problem(200)
    AnyLossClassifier(verbose=True, max_iter=20).fit(X, y)
    assert "metric 20 of 20" in capsys.readouterr().err


def test_two_positive_rows_are_enough_to_fit():
    X = np.random.default_rng(0).normal(size=(20, 2))
    for positives in (1, 2):
        y = np.arange(20) < positives
        assert np.isfinite(AnyLossClassifier().fit(X, y).decision_function(X)).all()


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({}, np.zeros(30), "got one class"),
        ({"average": "binary"}, np.arange(30) % 3, "is for two classes; got 3"),
        ({"pos_label": 1}, np.arange(30) % 3, "pos_label=1 is for two classes; got 3"),
        ({"average": "mean"}, np.arange(30) % 2, "average must be one of"),
        ({"average": "multiclass"}, np.arange(30) % 3, "multiclass form"),
        ({"hidden_layer_sizes": (0,)}, np.arange(30) % 2, "must be positive integers"),
        ({"repeats": 0}, np.arange(30) % 2, "repeats must be"),
        ({"metric": "f1x"}, np.arange(30) % 2, "did you mean"),
        ({"metric": lambda tp, fn, fp, tn: float("nan")}, np.arange(30) % 2, "finite"),
        (
            {"pos_label": 7},
            np.arange(30) % 2,
            r"pos_label must be one of the classes \[0, 1\]; got 7",
        ),
        ({"C": 0.0}, np.arange(30) % 2, "C must be"),
        ({"folds": 1}, np.arange(30) % 2, "folds must be"),
        ({"max_iter": 0}, np.arange(30) % 2, "max_iter must be"),
        ({"max_rows": 50}, np.arange(30) % 2, "max_rows must be"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_half_fitted(options, y, message):
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = AnyLossClassifier(**options)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "coef_")


def test_text_is_pointed_to_the_tables():
    frame = pd.DataFrame({"city": ["Rome", "Oslo"] * 15})
    with pytest.raises(ValueError, match="could not convert string.*anyloss.tabular.for_tables"):
        AnyLossClassifier().fit(frame, np.arange(30) % 2)


@pytest.mark.parametrize("hidden", [(), (3,)])
@pytest.mark.parametrize("metric", ["f1", "mcc"])
def test_a_label_that_never_occurs_is_never_predicted(metric, hidden):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    y = (X[:, 0] + rng.normal(size=90) > 0).astype(int)
    model = AnyLossClassifier(metric, hidden, random_state=1).fit(X, np.column_stack([0 * y, y]))
    called = model.predict(X).sum(axis=0)
    assert called[0] == 0
    assert 20 < called[1] < 70


def three_text_classes():
    X, y = load_iris(return_X_y=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.mark.parametrize("hidden", [(), (5,)])
def test_several_classes(hidden):
    X, y = three_text_classes()
    model = AnyLossClassifier("f1", hidden, repeats=1, max_iter=30, random_state=0).fit(X, y)
    assert (model.average_, model.pos_label_) == ("macro", None)
    assert model.score(X, y) == pytest.approx(f1_score(y, model.predict(X), average="macro"))
    assert model.score(X, y) > 0.93
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))
    with pytest.raises(ValueError, match=r"not present in fit, \['rose'\]"):
        model.score(X[:1], ["rose"])


@pytest.mark.parametrize(
    ("metric", "reference"),
    [("mcc", matthews_corrcoef), ("accuracy", accuracy_score), ("kappa", cohen_kappa_score)],
)
def test_the_multiclass_form_is_what_scikit_learn_reports(metric, reference):
    X, y = three_text_classes()
    model = AnyLossClassifier(metric, repeats=1, max_iter=10).fit(X, y)
    assert model.average_ == "multiclass"
    assert model.score(X, y) == pytest.approx(reference(y, model.predict(X)))


def test_two_classes_with_an_average_over_both():
    X, y = hard_problem()
    model = AnyLossClassifier("f1", average="macro", repeats=1).fit(X, y)
    assert model.score(X, y) == pytest.approx(f1_score(y, model.predict(X), average="macro"))
    assert model.decision_function(X).shape == (600,)
    np.testing.assert_array_equal(model.decision_function(X) > 0, model.predict(X) == 1)


def test_several_labels_have_a_threshold_each():
    gains = []
    for seed in range(3):
        X, Y = make_multilabel_classification(500, n_classes=5, n_labels=2, random_state=seed)
        X = StandardScaler().fit(X[:330]).transform(X)
        model = AnyLossClassifier("f1", random_state=0).fit(X[:330], Y[:330])
        np.testing.assert_array_equal(model.predict_proba(X) > 0.5, model.predict(X) == 1)
        plain = OneVsRestClassifier(LogisticRegression()).fit(X[:330], Y[:330])
        ours, theirs = (
            f1_score(Y[330:], x.predict(X[330:]), average="macro") for x in (model, plain)
        )
        assert model.score(X[330:], Y[330:]) == pytest.approx(ours)
        gains.append(ours - theirs)
    assert np.mean(gains) > 0
    assert model.predict(X).shape == (500, 5)
    pair = AnyLossClassifier("f1", repeats=1, max_iter=5).fit(X, Y[:, :2])
    assert pair.predict(X).shape == pair.predict_proba(X).shape == (500, 2)
    assert pair.score(X, csr_matrix(Y[:, :2])) == pytest.approx(
        f1_score(Y[:, :2], pair.predict(X), average="macro")
    )
    sparse = AnyLossClassifier("f1", random_state=0).fit(X[:330], csr_matrix(Y[:330]))
    np.testing.assert_array_equal(sparse.predict(X), model.predict(X))
    # What is subtracted from the biases of all started models is one threshold per label.
    started = start(X[:330], Y[:330], task="multilabel")
    ended = finish(started, "f1", steps=1)
    moved = started.layers[-1] - ended.layers[-1][:10]
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape), atol=1e-12)
    assert len(np.unique(moved[0])) == 5


def test_a_network_learns_what_a_line_cannot():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    y = (X[:, 0] * X[:, 1] > 0.4).astype(int)
    line = AnyLossClassifier("f1", random_state=0).fit(X[:300], y[:300])
    network = AnyLossClassifier("f1", 8, random_state=0).fit(X[:300], y[:300])
    assert network.score(X[300:], y[300:]) > line.score(X[300:], y[300:]) + 0.2
    assert not hasattr(network, "coef_")
    again = AnyLossClassifier("f1", (8,), random_state=0).fit(X[:300], y[:300])
    np.testing.assert_array_equal(again.decision_function(X), network.decision_function(X))


def test_warm_start_goes_on_and_cold_does_not():
    X, y = hard_problem(200)
    model = AnyLossClassifier("f1", (4,), warm_start=True, repeats=1, max_iter=5, random_state=0)
    first = model.fit(X, y).layers_[0].copy()
    second = model.fit(X, y).layers_[0]
    assert np.abs(first[:5] - second[:5]).max() > 1e-3
    cold = model.set_params(warm_start=False).fit(X, y)
    np.testing.assert_array_equal(cold.layers_[0], first)
    model.set_params(warm_start=True, hidden_layer_sizes=(6,)).fit(X, y)  # another shape: anew
    assert model.layers_[0].shape[1:] == (4, 6)


def test_scoring_labels_it_does_not_know():
    X, y = hard_problem(100)
    model = AnyLossClassifier(max_iter=3).fit(X, y)
    with pytest.raises(ValueError, match=r"not present in fit, \['0', '1'\]"):
        model.score(X, y.astype(str))
    with pytest.raises(ValueError, match=r"shape of the predictions, \(100,\); got \(99,\)"):
        model.score(X, y[1:])
    assert model.score(X, y[:, None]) == model.score(X, y)


def test_early_stopping_stops():
    X, y = hard_problem(200)
    model = AnyLossClassifier(early_stopping=True, n_iter_no_change=3, random_state=0).fit(X, y)
    assert model.n_iter_ == len(model.history_) < 300


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (AnyLossClassifier("tp / (tp + fp + 2*fn)", pos_label="yes"), "text"),
        (AnyLossClassifier(anyloss.metric("fbeta", beta=2), (3,), repeats=1), "numbers"),
        (AnyLossClassifier("mcc", repeats=1, random_state=np.int64(3)), "three"),
        (AnyLossClassifier("f1", repeats=1, random_state=np.random.RandomState(0)), "labels"),
    ],
)
def test_saved_and_loaded(tmp_path, model, kind):
    X, y = hard_problem(150)
    X = pd.DataFrame(X, columns=list("abcd"))
    target = {
        "text": np.where(y == 1, "yes", "no"),
        "numbers": y,
        "three": np.array(["a", "b", "c"], dtype=object)[y + (X["a"] > 0)],
        "labels": np.column_stack([y, 1 - y]),
    }[kind]
    model.fit(X, target).save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "arrays.safetensors",
        "model.json",
    ]
    again = AnyLossClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.score(X, target) == model.score(X, target)
    assert again.classes_.dtype == model.classes_.dtype
    assert again.feature_names_in_.tolist() == list("abcd")
    assert (again.n_iter_, again.held_out_score_) == (model.n_iter_, model.held_out_score_)
    np.testing.assert_array_equal(again.hard_history_, model.hard_history_)
    model.save(tmp_path / "model")  # a model folder may be replaced
    again.fit(X, target)


def test_what_cannot_be_saved_or_loaded(tmp_path):
    X, y = hard_problem(100)
    with pytest.raises(NotFittedError):
        AnyLossClassifier().save(tmp_path / "a")
    model = AnyLossClassifier(lambda tp, fn, fp, tn: tp / (tp + fn + fp), max_iter=2).fit(X, y)
    with pytest.raises(ValueError, match="cannot be saved; write it as a formula"):
        model.save(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    good = AnyLossClassifier(max_iter=2).fit(X, y)
    with pytest.raises(ValueError, match="is not a model folder; choose another path"):
        good.save(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()
    with pytest.raises(ValueError, match=r"has no model\.json"):
        AnyLossClassifier.load(tmp_path / "mine")
    good.save(tmp_path / "good")
    text = (tmp_path / "good" / "model.json").read_text()
    for changed, message in (
        (text[:-20], "damaged"),
        (text.replace('"anyloss": 2', '"anyloss": 9'), "version 2"),
        (text.replace("AnyLossClassifier", "Other"), "kind 'Other'"),
        (text.replace('"<i8"', '"V8"'), r"model\.json was changed since it was saved"),
    ):
        (tmp_path / "good" / "model.json").write_text(changed)
        with pytest.raises(ValueError, match=message):
            AnyLossClassifier.load(tmp_path / "good")
    (tmp_path / "good" / "model.json").write_text(text)
    stored, arrays = load_model(tmp_path / "good", "AnyLossClassifier")
    for changed, message in (
        (stored | {"classes": None}, "not a complete model folder"),
        (stored | {"classes": {"dtype": "V8", "values": []}}, "numbers or text"),
    ):
        save_model(tmp_path / "good", "AnyLossClassifier", changed, arrays)
        with pytest.raises(ValueError, match=message):
            AnyLossClassifier.load(tmp_path / "good")
    with open(tmp_path / "good" / "arrays.safetensors", "ab") as file:
        file.write(b"1")
    with pytest.raises(ValueError, match=r"arrays\.safetensors was changed"):
        AnyLossClassifier.load(tmp_path / "good")


def test_a_data_frame_with_text_and_gaps():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"size": rng.normal(size=300), "shop": rng.choice(["north", "south"], 300)}
    )
    y = np.where(
        frame["size"] + (frame["shop"] == "north") + rng.normal(size=300) > 1.5, "late", "on time"
    )
    frame.loc[::7, "size"] = np.nan
    frame.loc[::11, "shop"] = None
    model = for_tables(AnyLossClassifier("f1", random_state=0)).fit(frame, y)
    assert model[-1].pos_label_ == "late"
    assert model.score(frame, y) == pytest.approx(
        f1_score(y, model.predict(frame), pos_label="late")
    )
    assert model.score(frame, y) > 0.5


def test_a_fit_that_fails_leaves_nothing_behind():
    X, y = hard_problem(100)
    model = AnyLossClassifier(max_iter=3)
    with pytest.raises(ValueError, match="one class"):
        model.fit(X, np.zeros(100))
    with pytest.raises(NotFittedError):
        model.predict(X)
    expected = model.fit(X, y).predict(X)
    with pytest.raises(ValueError, match="one class"):
        model.fit(X[:, :2], np.zeros(100))
    np.testing.assert_array_equal(model.predict(X), expected)


def test_of_very_many_rows_some_are_fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 3))
    y = (X[:, 0] + rng.normal(size=30_000) > 2.5).astype(int)
    train, test = slice(0, 20_000), slice(20_000, None)
    fitted = {
        most: AnyLossClassifier("f1", max_rows=most, max_iter=60, random_state=0).fit(
            X[train], y[train]
        )
        for most in (None, 20_000, 4_000)
    }
    scores = {most: model.score(X[test], y[test]) for most, model in fitted.items()}
    np.testing.assert_array_equal(fitted[None].layers_[0], fitted[20_000].layers_[0])
    assert scores[4_000] == pytest.approx(scores[None], abs=0.01)
    assert scores[4_000] != scores[None]


@pytest.mark.parametrize("metric", ["balanced_accuracy", "accuracy", "gmean", "f1"])
def test_the_score_of_several_classes_is_that_of_the_library(metric):
    """Balanced accuracy was one against the rest: 0.459 where scikit-learn says 0.136."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 7, 300)
    model = AnyLossClassifier(metric, max_iter=5, repeats=1, random_state=0).fit(X, y)
    references = {
        "balanced_accuracy": balanced_accuracy_score,
        "accuracy": accuracy_score,
        "gmean": partial(geometric_mean_score, average="multiclass"),
        "f1": partial(f1_score, average="macro"),
    }
    new, labels = rng.normal(size=(50, 3)), rng.integers(0, 7, 50)
    expected = references[metric](labels, model.predict(new))
    assert model.score(new, labels) == pytest.approx(expected, abs=1e-12)
