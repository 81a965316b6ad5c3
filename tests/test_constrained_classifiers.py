"""Constraints and certificates of the scikit-learn classifiers."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_score, recall_score
from sklearn.model_selection import GroupKFold

import anyloss
from anyloss.certificates import certified_threshold
from anyloss.recipe import fit
from anyloss.recipe.constrained import Promise, centred, split_rows
from anyloss.sklearn import AnyLossClassifier, TunedDecisionClassifierCV

X, Y = make_classification(
    3000, 8, n_informative=4, weights=[0.8], class_sep=0.8, flip_y=0.05, random_state=0
)
TRAIN, TEST = slice(0, 1500), slice(1500, None)
QUICK = {"folds": 3, "repeats": 1, "max_iter": 60, "random_state": 0}


def linear(metric="precision", **options):
    return AnyLossClassifier(metric, **QUICK | options)


def tuned(metric="precision", **options):
    return TunedDecisionClassifierCV(
        LogisticRegression(), metric, cv=3, **{"random_state": 0} | options
    )


BOTH = pytest.mark.parametrize("new", [linear, tuned])


@BOTH
def test_the_constraint_holds_on_held_out_rows_and_about_on_new_ones(new):
    with pytest.warns(UserWarning, match="precision does not count false negatives: .*'recall >= "):
        free = new().fit(X[TRAIN], Y[TRAIN]).predict(X[TEST])
    model = new(constraints="recall >= 0.8").fit(X[TRAIN], Y[TRAIN])
    found = model.predict(X[TEST])
    assert recall_score(Y[TEST], free) < 0.5
    assert recall_score(Y[TEST], found) == pytest.approx(0.8, abs=0.06)
    assert precision_score(Y[TEST], found) > Y[TEST].mean() + 0.05
    assert model.certificate_ is None


@BOTH
def test_the_certificate_is_the_test_of_rows_that_took_no_part_in_training(new):
    model = new(constraints="recall >= 0.7", confidence_level=0.9).fit(X[TRAIN], Y[TRAIN])
    found = model.certificate_
    assert found.threshold is not None
    assert found.certificate.holds
    assert found.certificate.rows == 300
    assert found.certificate.statement == "recall >= 0.7"
    seed = np.random.RandomState(0).randint(2**31)
    rows, certifying = split_rows(1500, Promise(confidence_level=0.9), seed)
    assert not set(rows) & set(certifying)
    again = anyloss.certify(
        Y[certifying], model.predict(X[certifying]), "recall >= 0.7", confidence_level=0.9
    )
    assert (again.p_value, again.score) == (found.certificate.p_value, found.certificate.score)
    assert found.certificate.lower == 0.7  # what was tested
    other, labels = X[TRAIN].copy(), Y[TRAIN].copy()
    labels[certifying] = 1 - labels[certifying]
    other[certifying] += 5.0
    with warnings.catch_warnings(action="ignore"):
        unlike = new(constraints="recall >= 0.7", confidence_level=0.9).fit(other, labels)
    for a, b in zip(weights_of(model), weights_of(unlike), strict=True):
        assert (a == b).all()


def weights_of(model):
    if isinstance(model, AnyLossClassifier):
        return model.layers_
    return [model.estimator_.coef_, model.estimator_.intercept_]


@BOTH
def test_what_cannot_be_certified_is_said(new):
    with pytest.warns(UserWarning, match="no threshold is certified"):
        model = new(constraints="recall >= 0.99", confidence_level=0.99).fit(X[:200], Y[:200])
    found = model.certificate_
    assert found.threshold is None
    assert not found.certificate.holds
    assert found.rows_needed > 40
    assert len(found.tested) == 1
    assert np.isfinite(found.uncertified_threshold)


@BOTH
def test_a_constraint_that_no_threshold_satisfies(new):
    with pytest.raises(ValueError, match="no threshold satisfies 'specificity >= 2'"):
        new(constraints="specificity >= 2").fit(X[:300], Y[:300])
    with pytest.warns(UserWarning, match="no number of rows would be enough"):
        model = new(constraints="specificity >= 2", confidence_level=0.95).fit(X[:300], Y[:300])
    assert model.certificate_.rows_needed is None


@BOTH
def test_several_constraints_hold_jointly(new):
    given = ["recall >= 0.7", "specificity >= 0.6"]
    model = new("f1", constraints=given).fit(X[TRAIN], Y[TRAIN])
    found = model.predict(X[TEST])
    for text, name in zip(given, ("recall", "specificity"), strict=True):
        assert anyloss.score(Y[TEST], found * 1.0, name) > float(text[-3:]) - 0.06


@BOTH
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"constraints": "recall > 0.9"}, "got '>'"),
        ({"confidence_level": 0.95}, "certifies constraints; got none"),
        ({"constraints": "recall >= 0.9", "confidence_level": 95}, "from 0.5 to below 1"),
        ({"constraints": "recall >= 0.9", "certify_share": 1.0}, "between 0 and 1"),
    ],
)
def test_bad_parameters(new, options, message):
    with pytest.raises(ValueError, match=message):
        new(**options).fit(X[:100], Y[:100])


@BOTH
def test_weights_have_no_certificate_and_several_classes_no_constraints(new):
    model = new(constraints="recall >= 0.8", confidence_level=0.9)
    with pytest.raises(ValueError, match="rows that count alike; got sample_weight"):
        model.fit(X[:100], Y[:100], sample_weight=np.ones(100))
    weighted = new(constraints="recall >= 0.8").fit(X[:500], Y[:500], sample_weight=np.ones(500))
    assert weighted.certificate_ is None
    three = np.arange(100) % 3
    with pytest.raises(ValueError, match="constraints are for two classes"):
        new("f1", constraints="recall >= 0.8").fit(X[:100], three)


@BOTH
def test_saved_and_loaded_with_the_certificate(new, tmp_path):
    model = new(constraints=["recall >= 0.7"], confidence_level=0.9).fit(X[TRAIN], Y[TRAIN])
    model.save(tmp_path / "model")
    more = {} if new is linear else {"estimator": model.estimator_}
    loaded = type(model).load(tmp_path / "model", **more)
    assert loaded.certificate_ == model.certificate_
    assert (loaded.predict(X) == model.predict(X)).all()
    assert clone(loaded).confidence_level == 0.9


@BOTH
def test_relabelling_the_classes_swaps_recall_and_specificity(new):
    one = new("accuracy", constraints="recall >= 0.9", pos_label=1).fit(X[TRAIN], Y[TRAIN])
    two = new("accuracy", constraints="specificity >= 0.9", pos_label=0).fit(X[TRAIN], Y[TRAIN])
    same = (one.predict(X[TEST]) == two.predict(X[TEST])).mean()
    assert same > 0.99
    assert recall_score(Y[TEST], two.predict(X[TEST])) == pytest.approx(0.9, abs=0.05)


def test_ties_at_the_threshold_are_negative_for_either_class():
    x = np.repeat([[0.0], [1.0], [2.0]], 100, axis=0)
    y = np.r_[np.zeros(90), np.ones(60), np.zeros(50), np.ones(100)].astype(int)
    for label in (0, 1):
        model = linear("precision", constraints="recall >= 0.5", pos_label=label).fit(x, y)
        positive = (y == label).astype(float)
        decided = (model.predict(x) == label).astype(float)
        assert anyloss.score(positive, decided, "recall") >= 0.5
        assert model.score(x, y) == pytest.approx(anyloss.score(positive, decided, "precision"))


def test_rows_of_one_group_do_not_train_and_certify():
    groups = np.arange(1500) // 3
    model = TunedDecisionClassifierCV(
        LogisticRegression(), "precision", cv=GroupKFold(3), random_state=0,
        constraints="recall >= 0.6", confidence_level=0.9,
    ).fit(X[TRAIN], Y[TRAIN], groups=groups)  # fmt: skip
    assert model.certificate_.certificate.rows == 100  # of 500 groups
    rows, certifying = split_rows(1500, Promise(confidence_level=0.9), 7, groups)
    assert len(certifying) == len(set(groups[certifying])) == 100
    assert not set(groups[rows]) & set(groups[certifying])
    assert len(rows) == 1200


def test_a_fitted_estimator_is_certified_as_it_is():
    estimator = LogisticRegression().fit(X[TRAIN], Y[TRAIN])
    model = TunedDecisionClassifierCV(
        estimator, "precision", cv="prefit", random_state=0, constraints="recall >= 0.7",
        confidence_level=0.9, certify_share=0.5,
    ).fit(X[TEST], Y[TEST])  # fmt: skip
    rows, certifying = split_rows(
        1500,
        Promise(confidence_level=0.9, certify_share=0.5),
        np.random.RandomState(0).randint(2**31),
    )
    scores, y = estimator.predict_proba(X[TEST])[:, 1], Y[TEST]
    expected = certified_threshold(
        y[rows], scores[rows], y[certifying], scores[certifying], "precision",
        constraints="recall >= 0.7", confidence_level=0.9,
    )  # fmt: skip
    assert model.certificate_ == expected
    assert model.estimator_ is estimator


def test_options_that_void_a_certificate_are_refused():
    given = {"constraints": "recall >= 0.8", "confidence_level": 0.9}
    with pytest.raises(ValueError, match="warm_start=True"):
        linear(warm_start=True, **given).fit(X[:100], Y[:100])
    with pytest.raises(ValueError, match="early stopping"):
        linear(early_stopping=True, **given).fit(X[:100], Y[:100])
    splits = [(np.arange(50), np.arange(50, 100))]
    with pytest.raises(ValueError, match="cv cannot be a list of splits"):
        TunedDecisionClassifierCV(LogisticRegression(), cv=splits, **given).fit(X[:100], Y[:100])


def test_very_many_rows_are_drawn_and_weighted_without_the_certifying_ones():
    model = linear(constraints="recall >= 0.7", confidence_level=0.9, max_rows=600)
    found = model.fit(X[TRAIN], Y[TRAIN]).certificate_
    assert found.certificate.rows == 300
    assert found.threshold is not None


def test_the_recipe_without_scikit_learn():
    x = (X[TRAIN] - X[TRAIN].mean(axis=0)) / X[TRAIN].std(axis=0)
    found = fit(x, Y[TRAIN], "precision", folds=3, steps=60, constraints="recall >= 0.8")
    held_out = (found.held_out[:, 0] > found.threshold).astype(float)
    assert anyloss.score(Y[TRAIN].astype(float), held_out, "recall") >= 0.8
    score = anyloss.score(Y[TRAIN].astype(float), held_out, "precision")
    assert found.held_out_score == pytest.approx(score)


@pytest.mark.parametrize("threshold", [-1.0 - 1e-9, -0.3, 0.0, 0.8, 1.0])
def test_centred_values_keep_the_decision_and_the_range(threshold):
    values = np.linspace(-1, 1, 41)
    found = centred(values, threshold)
    assert ((found > 0) == (values > threshold)).all()
    assert np.abs(found).max() <= 1
    assert (np.diff(found) >= 0).all()


@pytest.mark.slow("a few hundred fits")
@pytest.mark.parametrize("confidence_level", [0.8, 0.95])
def test_the_promise_is_kept_on_the_population(confidence_level):
    """The population is a large table; how often is the recall of a certified model below 0.8?"""
    population, labels = make_classification(
        60_000, 6, n_informative=3, weights=[0.7], flip_y=0.1, random_state=3
    )
    rng, broken, certified, runs = np.random.default_rng(0), 0, 0, 200
    for seed in range(runs):
        rows = rng.choice(len(labels), 500)
        with warnings.catch_warnings(action="ignore"):
            model = tuned(
                constraints="recall >= 0.8", confidence_level=confidence_level, random_state=seed
            ).fit(population[rows], labels[rows])
        if model.certificate_.threshold is not None:
            certified += 1
            broken += recall_score(labels, model.predict(population)) < 0.8
    assert certified > runs / 2
    # Three standard errors above the promise.
    promised = 1 - confidence_level
    assert broken / runs <= promised + 3 * np.sqrt(promised * (1 - promised) / runs)
