"""Estimators, costs and splits that are not as usual: the tuned rule is that of the classes."""

from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix, f1_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

import anyloss
from anyloss.boosting import LGBMAnyLossClassifier
from anyloss.sklearn import AnyLossClassifier, TunedDecisionClassifierCV

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 2))
COMMON = (X[:, 0] + RNG.normal(size=400) > -1) * 1  # the class 0 is the rarer one
THREE = np.digitize(X[:, 0] + 0.5 * RNG.normal(size=400), [-0.5, 0.8])
COSTS = [[0, 1], [5, 0]]


class Given(ClassifierMixin, BaseEstimator):
    """Its rows are its probabilities; `classes` are in any order."""

    def __init__(self, classes=(0, 1, 2)):
        self.classes = classes

    @property
    def classes_(self):
        return np.array(self.classes)

    def fit(self, X, y):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict_proba(self, X):
        return np.asarray(X)


@pytest.mark.parametrize(
    "model",
    [
        TunedDecisionClassifierCV(GaussianNB(), anyloss.cost_matrix(COSTS)),
        AnyLossClassifier(anyloss.cost_matrix(COSTS)),
        LGBMAnyLossClassifier(anyloss.cost_matrix(COSTS), n_estimators=10, min_child_samples=5),
    ],
    ids=lambda model: type(model).__name__,
)
def test_costs_follow_the_order_of_the_classes(model):
    model.fit(X, COMMON)
    assert model.pos_label_ == 1
    decided = model.predict(X)
    cost = (confusion_matrix(COMMON, decided) * COSTS).sum()
    assert cost <= 103  # that of always predicting 1
    most = np.bincount(COMMON) @ [1, 5]
    assert model.score(X, COMMON) == pytest.approx(1 - cost / most)
    with pytest.raises(ValueError, match="Leave it out"):
        model.set_params(pos_label=0).fit(X, COMMON)


def test_costs_of_other_numbers_of_classes_are_refused():
    three = anyloss.cost_matrix(np.ones((3, 3)) - np.eye(3))
    two = anyloss.cost_matrix(COSTS)
    with pytest.raises(ValueError, match="needs two classes; got 3"):
        TunedDecisionClassifierCV(GaussianNB(), two).fit(X, THREE)
    with pytest.raises(ValueError, match="needs two classes; got 3"):
        anyloss.score([0, 1, 2], np.eye(3), two)
    with pytest.raises(ValueError, match="average='auto'; got .* average='macro'"):
        TunedDecisionClassifierCV(GaussianNB(), three, average="macro").fit(X, THREE)
    four = np.where(X[:, 1] > 1.5, 3, THREE)
    with pytest.raises(ValueError, match="3 columns.*got a multiclass task of 4 columns"):
        TunedDecisionClassifierCV(GaussianNB(), three).fit(X, four)


@pytest.mark.parametrize("metric", ["mcc", "f1", "gmean", "accuracy"])
def test_the_score_of_equal_decision_values_is_that_of_the_decisions(metric):
    p = np.array([[4, 0, 6], [2, 4, 4], [0, 6, 4], [2, 4, 4], [4, 2, 4]]) / 10
    y = np.array([1, 0, 2, 1, 0])
    for _ in range(30):
        model = TunedDecisionClassifierCV(Given(), metric, cv="prefit").fit(p, y)
        assert model.best_score_ == pytest.approx(model.score(p, y))
        assert model.best_score_ >= anyloss.score(y, p, metric) - 1e-12
        p = RNG.integers(1, 4, (8, 3)) + 0.0
        p, y = p / p.sum(axis=1, keepdims=True), np.append([0, 1, 2], RNG.integers(0, 3, 5))


@pytest.mark.parametrize("classes", [(1, 0), (2, 0, 1)])
def test_classes_of_a_fitted_estimator_in_any_order(classes):
    y = THREE if len(classes) == 3 else COMMON
    p = LogisticRegression().fit(X, y).predict_proba(X)
    expected = TunedDecisionClassifierCV(Given(range(len(classes))), cv="prefit").fit(p, y)
    found = TunedDecisionClassifierCV(Given(classes), cv="prefit").fit(p[:, classes], y)
    decided = found.predict(p[:, classes])
    assert found.best_score_ == pytest.approx(expected.best_score_, abs=0.01)
    average = "macro" if len(classes) == 3 else "binary"
    positive = {} if len(classes) == 3 else {"pos_label": found.pos_label_}
    assert f1_score(y, decided, average=average, **positive) == pytest.approx(found.best_score_)


def test_rows_of_one_class_are_refused_for_a_fitted_estimator():
    model = GaussianNB().fit(X, COMMON)
    with pytest.raises(ValueError, match="rows of two classes"):
        TunedDecisionClassifierCV(model, cv="prefit").fit(X[COMMON == 1], COMMON[COMMON == 1])


def test_decision_values_of_pairs_of_classes_are_refused():
    for model in (
        SVC(decision_function_shape="ovo"),
        make_pipeline(SVC(decision_function_shape="ovo")),
    ):
        with pytest.raises(ValueError, match="one for each pair of classes"):
            TunedDecisionClassifierCV(model).fit(X, THREE)


class Recorder(GaussianNB):
    rows: ClassVar[list] = []

    def fit(self, X, y, sample_weight=None):
        Recorder.rows.append(X[:, 0].copy())
        return super().fit(X, y)


def test_rows_of_weight_zero_do_not_shift_splits():
    weight, Recorder.rows = np.r_[np.zeros(100), np.ones(300)], []
    splits = [(np.arange(200), np.arange(200, 300))]
    model = TunedDecisionClassifierCV(Recorder(), cv=splits, refit=False)
    model.fit(X, COMMON, sample_weight=weight)
    np.testing.assert_array_equal(Recorder.rows[0], X[100:200, 0])
    with pytest.raises(ValueError, match="at least one split"):
        TunedDecisionClassifierCV(GaussianNB(), cv=iter([])).fit(X, COMMON)


def test_weighted_averages_without_a_positive_label():
    p = RNG.random((4, 2))
    y = np.zeros((4, 2), dtype=int)
    given = {"metric": "accuracy", "average": "weighted", "cv": "prefit"}
    for sharing in ("per_label", "shared"):
        model = TunedDecisionClassifierCV(Given((0, 1)), **given, label_thresholds=sharing)
        assert model.fit(p, y).best_score_ == 1.0


def test_nothing_is_left_of_an_earlier_fit():
    model = TunedDecisionClassifierCV(GaussianNB(), store_cv_results=True).fit(X, COMMON)
    assert "thresholds" in model.cv_results_
    model.set_params(store_cv_results=False).fit(X, THREE)
    assert not hasattr(model, "cv_results_")
