"""Calibrated probabilities and other class shares of the boosting classifiers."""

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from scipy.special import logit
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.exceptions import NotFittedError
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, f1_score

import anyloss
from anyloss.boosting import (
    CatBoostAnyLossClassifier,
    LGBMAnyLossClassifier,
    XGBAnyLossClassifier,
)

SETTINGS = {"n_estimators": 30, "folds": 3, "repeats": 1, "random_state": 0, "max_depth": 3}
THREADS = {
    LGBMAnyLossClassifier: {"n_jobs": 1},
    XGBAnyLossClassifier: {"n_jobs": 1},
    CatBoostAnyLossClassifier: {"thread_count": 1},
}


def overlapping(n, seed):
    """Rows whose classes overlap, so that the threshold and the calibration matter."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.4).astype(int)
    return rng.normal(size=(n, 3)) + y[:, None], y


@pytest.fixture(scope="module", params=THREADS, ids=lambda x: x.__name__)
def fitted(request):
    X, y = overlapping(1500, 0)
    return request.param("f1", pos_label=1, **SETTINGS, **THREADS[request.param]).fit(X, y)


@pytest.fixture(scope="module")
def trees():
    X, y = overlapping(1500, 0)
    return LGBMAnyLossClassifier("f1", pos_label=1, **SETTINGS, n_jobs=1).fit(X, y)


def test_probabilities_are_calibrated_and_decisions_stay(fitted):
    X, y = overlapping(3000, 1)
    p = fitted.calibrated_proba(X)
    assert p.sum(axis=1) == pytest.approx(1)
    assert p[:, 1].mean() == pytest.approx(y.mean(), abs=0.03)
    centred = fitted.predict_proba(X)[:, 1]
    assert brier_score_loss(y, p[:, 1]) < brier_score_loss(y, centred)
    assert np.array_equal(fitted.predict(X), (centred > 0.5).astype(int))


def test_calibrate_is_as_good_as_that_of_scikit_learn():
    (X, y), (X_new, y_new) = overlapping(1500, 0), overlapping(3000, 1)
    ours = LGBMAnyLossClassifier("f1", calibrate="auto", n_jobs=1, random_state=0).fit(X, y)
    library = LGBMClassifier(n_jobs=1, verbose=-1, random_state=0)
    plain, theirs = library.fit(X, y), CalibratedClassifierCV(library).fit(X, y)
    briers = [brier_score_loss(y_new, x.predict_proba(X_new)[:, 1]) for x in (ours, theirs, plain)]
    assert briers[0] <= briers[1] + 0.002 < briers[2]
    assert np.array_equal(ours.predict_proba(X_new), ours.calibrated_proba(X_new))


def test_the_map_is_fitted_to_held_out_margins(trees):
    model = clone(trees).set_params(calibrate="isotonic").fit(*overlapping(1500, 0))
    values, labels, weight = model._held_out
    reference = IsotonicRegression(out_of_bounds="clip").fit(values[:, 0], labels[:, 0], weight)
    X, _ = overlapping(200, 2)
    expected = reference.predict(model.decision_function(X))
    assert model.predict_proba(X)[:, 1] == pytest.approx(expected, abs=0.01)  # linear in between


def test_with_priors_scores_better_where_the_shares_are_others(fitted):
    X, y = overlapping(4000, 1)
    rare = fitted.with_priors([0.97, 0.03])
    weight = np.where(y == 1, 0.03 / y.mean(), 0.97 / (1 - y.mean()))
    before, after = (f1_score(y, x.predict(X), sample_weight=weight) for x in (fitted, rare))
    best = anyloss.best_threshold(y, fitted.decision_function(X), "f1", weight=weight).score
    assert before < after - 0.03
    assert after > best - 0.05
    assert rare.score(X, y) == pytest.approx(after)  # rows are weighted to the priors
    assert fitted.score(X, y) == pytest.approx(f1_score(y, fitted.predict(X)))
    p, moved = (x.calibrated_proba(X)[:, 1] for x in (fitted, rare))
    inside = (p > 0) & (p < 1)
    expected = logit(0.03) - logit(fitted.class_shares_[1])
    assert logit(moved[inside]) - logit(p[inside]) == pytest.approx(expected, abs=1e-6)
    assert fitted.class_offsets_.tolist() == [0.0]
    back = rare.with_priors(fitted.class_shares_)
    assert np.array_equal(back.predict(X), fitted.predict(X))


def test_estimated_shares_of_a_changed_table(fitted):
    X, y = overlapping(6000, 1)
    kept = (y == 0) | (np.random.default_rng(0).random(len(y)) < 0.1)
    found, truth = fitted.estimate_priors(X[kept])[1], y[kept].mean()
    assert abs(found - truth) < 0.15 * abs(fitted.class_shares_[1] - truth)


def test_fitted_with_priors(fitted):
    (X, y), (X_new, y_new) = overlapping(1500, 0), overlapping(4000, 1)
    model = clone(fitted).set_params(priors=(0.97, 0.03)).fit(X, y)
    assert model.class_shares_ == pytest.approx([0.97, 0.03])
    weight = np.where(y_new == 1, 0.03 / y_new.mean(), 0.97 / (1 - y_new.mean()))
    after, before = (
        f1_score(y_new, x.predict(X_new), sample_weight=weight) for x in (model, fitted)
    )
    assert after > before
    assert model.score(X_new, y_new) == pytest.approx(after)
    p = model.calibrated_proba(X_new)[:, 1]
    assert p @ weight / weight.sum() == pytest.approx(0.03, abs=0.01)


def test_early_stopping_follows_the_priors(fitted):
    X, y = overlapping(1500, 0)
    given = {"priors": [0.9, 0.1], "early_stopping_rounds": 5}
    model = clone(fitted).set_params(**given).fit(X, y, eval_set=overlapping(500, 1))
    assert model.class_shares_ == pytest.approx([0.9, 0.1])
    with pytest.raises(ValueError, match="a class with a prior above 0 must be among the rows"):
        clone(model).fit(X, y, eval_set=(X[y == 0], y[y == 0]))


def test_several_classes_and_labels(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = LGBMAnyLossClassifier("f1", **SETTINGS, n_jobs=1).fit(X, y)
    p = model.calibrated_proba(X)
    assert p.shape == (150, 3)
    assert p.sum(axis=1) == pytest.approx(1)
    only = model.with_priors([0.01, 0.89, 0.1])
    assert (only.predict(X) == 1).sum() >= (model.predict(X) == 1).sum()
    assert only.class_offsets_.shape == (3,)
    assert model.estimate_priors(X) == pytest.approx([1 / 3] * 3, abs=0.03)
    X, labels = make_multilabel_classification(200, n_classes=3, random_state=0)
    several = LGBMAnyLossClassifier("f1", **SETTINGS, n_jobs=1).fit(X, labels)
    assert several.calibrated_proba(X).mean(axis=0) == pytest.approx(labels.mean(axis=0), abs=0.1)
    for call in (lambda: several.with_priors([0.5, 0.5]), lambda: several.estimate_priors(X)):
        with pytest.raises(ValueError, match="several labels per row"):
            call()
    several.save(tmp_path / "model")
    again = LGBMAnyLossClassifier.load(tmp_path / "model")
    assert np.array_equal(again.calibrated_proba(X), several.calibrated_proba(X))


def test_a_mean_over_both_classes_follows_the_shares():
    X, y = overlapping(800, 0)
    model = LGBMAnyLossClassifier("f1", average="macro", **SETTINGS, n_jobs=1).fit(X, y)
    rare = model.with_priors([0.95, 0.05])
    weight = np.where(y == 1, 0.05 / y.mean(), 0.95 / (1 - y.mean()))
    expected = f1_score(y, rare.predict(X), average="macro", sample_weight=weight)
    assert rare.score(X, y) == pytest.approx(expected)
    assert (rare.predict(X) == 1).mean() < (model.predict(X) == 1).mean()


def test_a_saved_model_keeps_its_shares(fitted, tmp_path):
    X, _ = overlapping(300, 3)
    moved = fitted.with_priors([0.9, 0.1])
    moved.save(tmp_path / "model")
    loaded = type(fitted).load(tmp_path / "model")
    assert np.array_equal(loaded.predict(X), moved.predict(X))
    assert np.array_equal(loaded.calibrated_proba(X), moved.calibrated_proba(X))
    assert np.array_equal(loaded.with_priors(fitted.class_shares_).predict(X), fitted.predict(X))
    assert loaded.calibration_method_ == fitted.calibration_method_


def test_constraints_hold_for_other_shares(trees):
    X, y = overlapping(1500, 0)
    model = clone(trees).set_params(metric="precision", constraints="recall >= 0.8").fit(X, y)
    moved = model.with_priors([0.8, 0.2])
    values, labels, _ = moved._held_out
    decided = moved._rule(values)[:, 0] > 0
    assert decided[labels[:, 0] == 1].mean() >= 0.8  # does not depend on the shares


def test_what_is_refused(trees):
    X, y = overlapping(600, 0)
    with pytest.raises(ValueError, match="priors must be 2 shares above 0 that sum to 1"):
        trees.with_priors([0.5, 0.6])
    with pytest.raises(ValueError, match="calibrate must be None, 'auto'"):
        clone(trees).set_params(calibrate="platt").fit(X, y)
    promised = {"metric": "precision", "constraints": "recall >= 0.5", "confidence_level": 0.9}
    with pytest.raises(ValueError, match="a certificate holds for the class shares"):
        clone(trees).set_params(priors=[0.5, 0.5], **promised).fit(X, y)
    certified = clone(trees).set_params(**promised).fit(X, y)
    with pytest.raises(ValueError, match="Certify on rows with these shares"):
        certified.with_priors([0.5, 0.5])
    for call in (clone(trees).calibrated_proba, clone(trees).estimate_priors):
        with pytest.raises(NotFittedError):
            call(X)
    with pytest.raises(NotFittedError):
        clone(trees).with_priors([0.5, 0.5])


def test_the_held_out_score_of_other_shares_is_saved(trees, tmp_path):
    moved = trees.with_priors([0.2, 0.8])
    moved.save(tmp_path / "moved")
    assert moved.held_out_score_ != trees.held_out_score_
    assert LGBMAnyLossClassifier.load(tmp_path / "moved").held_out_score_ == moved.held_out_score_
