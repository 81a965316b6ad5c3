"""Calibration and other class shares, against scikit-learn, SciPy and weighted counts."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV, _SigmoidCalibration
from sklearn.datasets import load_breast_cancer, load_iris, make_multilabel_classification
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, f1_score

import anyloss
import anyloss.costs
from anyloss.recipe.calibration import calibrate
from anyloss.recipe.priors import Rule
from anyloss.sklearn import AnyLossClassifier, estimate_priors


def sample(n=400, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return p, (rng.random(n) < expit(1.7 * logit(p) - 0.8)).astype(float), 1 + rng.random(n)


def test_sigmoid_is_platts():
    p, y, weight = sample()
    found = calibrate(y[:, None], p[:, None], weight, "sigmoid")
    reference = _SigmoidCalibration().fit(logit(p), y, weight)
    grid = np.linspace(0.01, 0.99, 99)
    expected = reference.predict(logit(grid))
    assert found(grid[:, None], "binary")[:, 0] == pytest.approx(expected, abs=1e-5)


def test_isotonic_is_that_of_scikit_learn_with_platts_targets():
    p, y, weight = sample()
    p = p.round(2)  # with ties
    found = calibrate(y[:, None], p[:, None], weight, "isotonic")
    positives, negatives = (weight * y).sum(), (weight * (1 - y)).sum()
    target = np.where(y == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    reference = IsotonicRegression(out_of_bounds="clip").fit(p, target, weight)
    grid = np.linspace(0, 1, 1001)
    expected = reference.predict(grid)
    assert found(grid[:, None], "binary")[:, 0] == pytest.approx(expected, abs=1e-12)


def test_no_probability_is_0_or_1():
    p = np.linspace(0, 1, 24)
    y = (p > 0.6).astype(float)  # separated
    found = calibrate(y[:, None], p[:, None], np.ones(24), "isotonic")(p[:, None], "binary")
    assert [found.min(), found.max()] == pytest.approx([1 / 16, 11 / 12])  # 14 and 10 rows
    assert anyloss.costs.least_cost(found[:, 0], fn_cost=1e3, fp_cost=1).all()


def test_a_weight_of_two_is_the_row_twice():
    p, y, _ = sample(60)
    for method in ("sigmoid", "isotonic"):
        once = calibrate(y[:, None], p[:, None], np.full(60, 2.0), method)
        twice = calibrate(np.tile(y, 2)[:, None], np.tile(p, 2)[:, None], np.ones(120), method)
        assert once(p[:, None], "binary") == pytest.approx(twice(p[:, None], "binary"), abs=1e-9)


def test_auto_takes_what_predicts_left_out_rows_better():
    rng = np.random.default_rng(0)
    p = rng.random((4000, 1))
    stairs = (rng.random((4000, 1)) < np.where(p < 0.5, 0.1, 0.4)).astype(float)
    smooth = (rng.random((4000, 1)) < p).astype(float)
    assert calibrate(stairs, p, np.ones(4000)).method == "isotonic"
    assert calibrate(smooth, p, np.ones(4000)).method == "sigmoid"


def test_a_map_never_turns_the_order_around():
    p = np.linspace(0.01, 0.99, 100)[:, None]
    y = (p < 0.5).astype(float)
    for method in ("sigmoid", "isotonic"):
        found = calibrate(y, p, np.ones(100), method)(p, "binary")
        assert found.min() == pytest.approx(found.max()) == pytest.approx(0.5, abs=0.02)


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    model = AnyLossClassifier("f1", repeats=1, calibrate="auto", random_state=0)
    return X, y, model.fit(X[::2], y[::2])


def test_calibrated_probabilities_are_as_good_as_those_of_scikit_learn(cancer):
    X, y, model = cancer
    plain = clone(model).set_params(calibrate=None).fit(X[::2], y[::2])
    assert np.array_equal(plain.predict(X), model.predict(X))
    reference = CalibratedClassifierCV(plain).fit(X[::2], y[::2])
    brier = [brier_score_loss(y[1::2], x.predict_proba(X[1::2])[:, 1]) for x in (model, reference)]
    assert brier[0] <= brier[1] + 0.005
    assert np.array_equal(plain.calibrated_proba(X), model.predict_proba(X))
    assert np.array_equal(plain.estimate_priors(X), model.estimate_priors(X))
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1)


def test_calibrated_several_classes_and_labels():
    X, y = load_iris(return_X_y=True)
    model = AnyLossClassifier("f1", repeats=1, calibrate="isotonic", random_state=0).fit(X, y)
    p = model.predict_proba(X)
    assert p.shape == (150, 3)
    assert p.sum(axis=1) == pytest.approx(1)
    assert model.estimate_priors(X) == pytest.approx([1 / 3] * 3, abs=0.03)
    X, labels = make_multilabel_classification(200, n_classes=3, random_state=0)
    model = AnyLossClassifier("f1", repeats=1, calibrate="sigmoid", random_state=0).fit(X, labels)
    assert model.predict_proba(X).mean(axis=0) == pytest.approx(labels.mean(axis=0), abs=0.05)
    with pytest.raises(ValueError, match="several labels per row"):
        model.with_priors([0.5, 0.5])
    with pytest.raises(ValueError, match="several labels per row"):
        model.estimate_priors(X)


def test_estimated_shares_have_the_highest_likelihood():
    rng = np.random.default_rng(0)
    y = (rng.random(3000) < 0.1).astype(float)
    x = rng.normal(size=3000) + 2 * y
    p = expit(2 * x - 2)  # calibrated for equal shares
    found = estimate_priors(np.column_stack([1 - p, p]), [0.5, 0.5])

    def loss(share):
        return -np.log(2 * p * share + 2 * (1 - p) * (1 - share)).sum()

    best = minimize_scalar(loss, bounds=(1e-6, 1 - 1e-6), options={"xatol": 1e-10}).x
    assert found[1] == pytest.approx(best, abs=1e-5)
    assert found[1] == pytest.approx(y.mean(), abs=0.03)


def test_estimated_shares_of_a_changed_table(cancer):
    X, y, model = cancer
    rng = np.random.default_rng(0)
    rows = np.arange(1, len(y), 2)
    kept = rows[(y[rows] == 1) | (rng.random(len(rows)) < 0.1)]
    assert model.estimate_priors(X[kept])[0] == pytest.approx(np.mean(y[kept] == 0), abs=0.03)


def test_with_priors_scores_better_where_the_shares_are_others():
    rng = np.random.default_rng(0)
    y = (rng.random(4000) < 0.5).astype(int)
    X = rng.normal(size=(4000, 2)) + y[:, None]
    model = AnyLossClassifier("f1", pos_label=1, repeats=1, random_state=0).fit(X[:2000], y[:2000])
    rare = model.with_priors([0.95, 0.05])
    X, y = X[2000:], y[2000:]
    weight = np.where(y == 1, 0.05 / y.mean(), 0.95 / (1 - y.mean()))
    before, after = (f1_score(y, x.predict(X), sample_weight=weight) for x in (model, rare))
    best = anyloss.best_threshold(y, model.decision_function(X), "f1", weight=weight).score
    assert before < after - 0.1
    assert after > best - 0.02
    assert rare.score(X, y) == pytest.approx(after)  # rows are weighted to the priors
    trained = AnyLossClassifier(
        "f1", pos_label=1, repeats=1, random_state=0, priors=(0.95, 0.05)
    ).fit(X, y)
    assert trained.class_shares_ == pytest.approx([0.95, 0.05])
    assert trained.score(X, y) > best - 0.02


def test_probabilities_move_to_other_shares(cancer):
    X, _, model = cancer
    shares, wanted = model.class_shares_, np.array([0.02, 0.98])
    p, moved = model.predict_proba(X), model.with_priors(wanted).predict_proba(X)
    inside = (p > 1e-9).all(axis=1)
    odds = [np.log(x[inside, 1] / x[inside, 0]) for x in (p, moved)]
    expected = logit(0.98) - logit(shares[1])
    assert odds[1] - odds[0] == pytest.approx(expected, abs=1e-6)


def test_the_rule_of_several_classes_follows_their_shares():
    X, y = load_iris(return_X_y=True)
    model = AnyLossClassifier("accuracy", repeats=1, random_state=0).fit(X, y)
    only = model.with_priors([0.01, 0.89, 0.1])
    assert (only.predict(X) == 1).sum() > (model.predict(X) == 1).sum()


def test_a_saved_model_keeps_its_shares(cancer, tmp_path):
    X, _, model = cancer
    moved = model.with_priors([0.05, 0.95])
    moved.save(tmp_path / "model")
    loaded = AnyLossClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(X), moved.predict_proba(X))
    assert np.array_equal(loaded.predict(X), moved.predict(X))
    again = loaded.with_priors(model.class_shares_)
    assert again.threshold_ == model.threshold_  # the rule of the training shares
    assert loaded.calibration_method_ == model.calibration_method_


def test_what_is_refused(cancer):
    X, y, model = cancer
    for priors in ([0.5], [0, 1], [0.5, 0.6], [1.5, -0.5], "half", [np.nan, 1.0], None):
        with pytest.raises(ValueError, match="priors must be 2 shares above 0 that sum to 1"):
            model.with_priors(priors)
    with pytest.raises(ValueError, match="calibrate must be None, 'auto'"):
        AnyLossClassifier(calibrate="platt").fit(X, y)
    with pytest.raises(ValueError, match="a certificate holds for the class shares"):
        AnyLossClassifier(
            "precision", constraints="recall >= 0.5", confidence_level=0.9, priors=[0.5, 0.5]
        ).fit(X, y)
    with pytest.raises(ValueError, match="rows of one probability per class"):
        estimate_priors([[0.5, 0.6]], [0.5, 0.5])
    certified = AnyLossClassifier(
        "precision", repeats=1, constraints="recall >= 0.5", confidence_level=0.9, random_state=0
    ).fit(X, y)
    with pytest.raises(ValueError, match="Certify on rows with these shares"):
        certified.with_priors([0.5, 0.5])


def test_rules_without_change_leave_values_as_they_are():
    values = np.array([[-0.5], [0.25]])
    assert Rule()(values) is values


def test_equal_weights_of_any_size_calibrate_alike():
    p, y, _ = sample()
    whole = calibrate(y[:, None], p[:, None], np.ones(400), "sigmoid")
    small = calibrate(y[:, None], p[:, None], np.full(400, 1 / 400), "sigmoid")
    assert small(p[:, None], "binary") == pytest.approx(whole(p[:, None], "binary"))


def test_auto_keeps_copies_of_a_row_in_one_fold():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 5))
    y = (X[:, 0] + 2 * rng.normal(size=80) > 1).astype(int)
    rows = np.repeat(np.arange(80), 8)
    settings = {"calibrate": "auto", "repeats": 1, "max_iter": 40, "random_state": 0}
    once = AnyLossClassifier("f1", **settings).fit(X, y, sample_weight=np.full(80, 8.0))
    copied = AnyLossClassifier("f1", **settings).fit(X[rows], y[rows])
    assert once.calibration_method_ == copied.calibration_method_


def test_the_rarer_class_by_the_priors_is_positive():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [290, 310])
    X = rng.normal(size=(600, 3)) + y[:, None]
    settings = {"repeats": 1, "max_iter": 20, "random_state": 0}
    model = AnyLossClassifier("f1", priors=[0.98, 0.02], **settings).fit(X, y)
    assert model.pos_label_ == 1
    kept = AnyLossClassifier("f1", priors=[0.98, 0.02], pos_label=0, **settings).fit(X, y)
    assert kept.pos_label_ == 0


def test_scores_with_priors_and_odd_weights(cancer):
    X, y, model = cancer
    moved = model.with_priors([0.3, 0.7])
    weight = np.where(y == 0, 0.0, 1.0)
    rows = y == 1
    assert moved.score(X, y, sample_weight=weight) == moved.score(X[rows], y[rows])
    with pytest.raises(ValueError, match=r"weight must have shape \(569,\); got \(3,\)"):
        moved.score(X, y, sample_weight=np.ones(3))
    expected = f1_score(
        y, moved.predict(X), pos_label=0, sample_weight=np.where(y == 0, 0.3 / 212, 0.7 / 357)
    )
    assert moved.score(X, y) == pytest.approx(expected)
    changed = moved.set_params(priors=[0.5, 0.5])
    assert changed.score(X, y) == pytest.approx(expected)  # until it is fitted


def test_the_held_out_score_follows_the_shares(cancer):
    _, _, model = cancer
    moved = model.with_priors([0.02, 0.98])
    values, labels, _ = model._held_out
    positive = labels[:, 0] == 1
    weight = np.where(positive, 0.02 / positive.mean(), 0.98 / (1 - positive.mean()))
    decided = values[:, 0] > moved.threshold_
    expected = f1_score(positive, decided, sample_weight=weight)
    assert moved.held_out_score_ == pytest.approx(expected)


def test_shares_are_estimated_alike_before_and_after_they_are_moved(cancer):
    X, _, model = cancer
    moved = model.with_priors([0.05, 0.95])
    assert moved.estimate_priors(X) == pytest.approx(model.estimate_priors(X))
    assert (estimate_priors([[0.0, 1.0]], [0.5, 0.5]) >= 1e-7).all()
    with pytest.raises(ValueError, match="max_iter must be at least 1"):
        estimate_priors([[0.5, 0.5]], [0.5, 0.5], max_iter=0)


def test_priors_keep_the_order_of_a_cost_matrix():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [400, 200])
    X = rng.normal(size=(600, 2)) + y[:, None]
    costs = anyloss.cost_matrix([[0, 1], [5, 0]])
    model = AnyLossClassifier(costs, repeats=1, max_iter=20, priors=[0.2, 0.8], random_state=0)
    assert model.fit(X, y).pos_label_ == 1
