"""Constraints of the three boosting classifiers and of the objective."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import precision_score, recall_score

import anyloss
from anyloss.boosting import (
    CatBoostAnyLossClassifier,
    LGBMAnyLossClassifier,
    XGBAnyLossClassifier,
    objective,
)
from anyloss.recipe.constrained import Promise, split_rows

X, Y = make_classification(
    3000, 8, n_informative=4, weights=[0.8], class_sep=0.8, flip_y=0.05, random_state=0
)
TRAIN, TEST = slice(0, 1500), slice(1500, None)
QUICK = {"folds": 2, "repeats": 1, "random_state": 0}
CLASSIFIERS = [
    pytest.param(LGBMAnyLossClassifier, {"n_estimators": 30, "n_jobs": 1}, id="lightgbm"),
    pytest.param(XGBAnyLossClassifier, {"n_estimators": 30, "n_jobs": 1}, id="xgboost"),
    pytest.param(CatBoostAnyLossClassifier, {"iterations": 30, "thread_count": 1}, id="catboost"),
]


@pytest.mark.parametrize(("new", "options"), CLASSIFIERS)
def test_the_constraint_is_aimed_at_and_certified_when_asked(new, options, tmp_path):
    model = new("precision", constraints="recall >= 0.8", **QUICK, **options)
    found = model.fit(X[TRAIN], Y[TRAIN]).predict(X[TEST])
    assert recall_score(Y[TEST], found) == pytest.approx(0.8, abs=0.07)
    assert precision_score(Y[TEST], found) > 2 * Y[TEST].mean()
    assert model.certificate_ is None
    model.set_params(confidence_level=0.9).fit(X[TRAIN], Y[TRAIN])
    result = model.certificate_
    assert result.threshold is not None
    _, certifying = split_rows(
        1500, Promise(confidence_level=0.9), int(np.random.RandomState(0).randint(2**31))
    )
    again = anyloss.certify(
        Y[certifying], model.predict(X[certifying]), "recall >= 0.8", confidence_level=0.9
    )
    assert (again.p_value, again.score) == (
        result.certificate.p_value,
        result.certificate.score,
    )
    model.save(tmp_path / "model")
    loaded = new.load(tmp_path / "model")
    assert loaded.certificate_ == result
    assert (loaded.predict(X) == model.predict(X)).all()


def test_the_objective_moves_its_multipliers_between_rounds():
    y = np.array([1.0, 1.0, 0.0, 0.0])
    both, alone = objective("precision", constraints="recall >= 0.9"), objective("precision")
    margin = np.array([0.5, -1.0, 0.2, -1.0])
    np.testing.assert_array_equal(both(y, margin)[0], alone(y, margin)[0])
    gradient = both(y, margin)[0]
    assert gradient[1] < alone(y, margin)[0][1]  # the missed positive is pulled harder
    # The Lagrangian of the second round, by finite differences of its soft counts.
    m = 4.3 * (0.9 - 0.5)

    def loss(z):
        p = 1 / (1 + np.exp(-z))
        precision, recall = p @ y / p.sum(), p @ y / y.sum()
        return len(y) * (1 - (precision + m * (recall - 0.9)) / (1 + m))

    steps = 1e-6 * np.eye(4)
    expected = [(loss(margin + d) - loss(margin - d)) / 2e-6 for d in steps]
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_what_is_refused():
    with pytest.raises(ValueError, match="early stopping follows the metric"):
        LGBMAnyLossClassifier(constraints="recall >= 0.8", early_stopping_rounds=5).fit(
            X[:100], Y[:100], eval_set=(X[:50], Y[:50])
        )
    model = LGBMAnyLossClassifier(constraints="recall >= 0.8", confidence_level=0.9)
    with pytest.raises(ValueError, match="rows that count alike"):
        model.fit(X[:100], Y[:100], sample_weight=np.ones(100))
    with pytest.raises(ValueError, match="no threshold satisfies"):
        LGBMAnyLossClassifier(constraints="specificity >= 2", n_estimators=5, **QUICK).fit(
            X[:200], Y[:200]
        )
