"""AnyLossClassifier: scikit-learn's own checks, and what it is for."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, matthews_corrcoef
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from anyloss.sklearn import AnyLossClassifier


@parametrize_with_checks([AnyLossClassifier()])
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
    assert model.history_.shape == (150,)
    assert model.history_[-1] > model.history_[0]


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
    assert "step 20 of 20: soft score" in capsys.readouterr().out


def test_two_positive_rows_are_enough_to_fit():
    X = np.random.default_rng(0).normal(size=(20, 2))
    for positives in (1, 2):
        y = np.arange(20) < positives
        assert np.isfinite(AnyLossClassifier().fit(X, y).decision_function(X)).all()


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({}, np.zeros(30), "got one class"),
        ({}, np.arange(30) % 3, "Only binary classification is supported"),
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
    ],
)
def test_bad_input_is_refused_and_nothing_is_half_fitted(options, y, message):
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = AnyLossClassifier(**options)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "coef_")
