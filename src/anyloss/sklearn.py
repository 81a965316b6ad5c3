"""A scikit-learn classifier that is fitted for the metric you name."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from anyloss.arithmetic import Array
from anyloss.counts import score as score_of
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.recipe import fit_linear, vote


class AnyLossClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier for two classes, trained for a metric of the confusion matrix.

    It starts from logistic regression with the threshold that is best for the metric, refines that
    for the metric itself, and lets the models of the inner folds vote (see `anyloss.recipe`).
    Columns are standardised inside.

    `predict_proba` is centred so that 0.5 is the decision. It is not calibrated: wrap the
    classifier in `CalibratedClassifierCV` where probabilities matter.

    Args:
        metric: a name, a formula or a function of `tp, fn, fp, tn`.
        pos_label: the positive class, which metrics such as F1 are about. Default: the rarer class
            in the training data (for equal numbers the second one); see `pos_label_`.
        C: inverse strength of the L2 penalty of the start, as in `LogisticRegression`.
        folds: how many inner folds; two members of each vote.
        max_iter: refining steps per member.
        random_state: seed of the inner folds; the same seed gives the same bits.
        verbose: print the soft score as it goes.

    After `fit`: `classes_`, `pos_label_`, `coef_` and `intercept_` (one row per member, for the
    columns as given), `n_iter_`, `history_` (mean soft score per step), `start_score_` (logistic
    regression with the tuned threshold, on held-out rows) and `held_out_score_` (the vote on the
    same rows), `n_features_in_`, `feature_names_in_`.

    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = AnyLossClassifier(metric="f1").fit(X, y)
    >>> int(model.pos_label_), model.score(X, y) > 0.97
    (0, True)
    """

    def __init__(
        self,
        metric: MetricSpec | Metric = "f1",
        *,
        pos_label: Any = None,
        C: float = 1.0,
        folds: int = 5,
        max_iter: int = 150,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.metric = metric
        self.pos_label = pos_label
        self.C = C
        self.folds = folds
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> Self:
        """Fit to rows `X`, labels `y` of two classes and, if given, weights per row."""
        chosen = find_metric(self.metric)
        self._check_numbers()
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
            present = sample_weight > 0
            X, y, sample_weight = X[present], y[present], sample_weight[present]
        classes, index = np.unique(y, return_inverse=True)
        if len(classes) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{type_of_target(y)}: {len(classes)} classes, such as {classes[:3].tolist()}."
            )
        if len(classes) < 2:
            raise ValueError(
                "AnyLossClassifier needs rows of two classes (with a weight above 0); got one "
                f"class, {classes.tolist()}"
            )
        positive = self._positive(classes, index, sample_weight)
        peak = np.abs(X).max(axis=0)
        peak[peak == 0] = 1.0
        X = X / peak  # columns of any unit, without overflow on the way
        mean = np.average(X, axis=0, weights=sample_weight)
        scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=sample_weight))
        scale[scale < 10 * np.finfo(float).eps] = 1.0  # constant but for rounding
        fitted = fit_linear(
            (X - mean) / scale,
            index == positive,
            chosen,
            weight=sample_weight,
            C=self.C,
            folds=self.folds,
            steps=self.max_iter,
            seed=check_random_state(self.random_state).randint(2**31),
            on_step=self._report,
        )
        self.classes_ = classes
        self.pos_label_ = classes[positive]
        self.coef_ = fitted.coef / scale / peak
        self.intercept_ = fitted.intercept - (fitted.coef / scale) @ mean
        self.n_iter_ = self.max_iter
        self.history_ = fitted.history
        self.start_score_, self.held_out_score_ = fitted.start_score, fitted.held_out_score
        return self

    def _check_numbers(self) -> None:
        for name, kind, low in (
            ("C", Real, 0.0),
            ("folds", Integral, 1),
            ("max_iter", Integral, 0),
        ):
            value, inside = getattr(self, name), Interval(kind, low, None, closed="neither")
            if not inside.is_satisfied_by(value):
                raise ValueError(f"{name} must be {inside}; got {value!r}")

    def _positive(self, classes: Array, index: Array, sample_weight: Array | None) -> int:
        """Which of the two classes is the positive one."""
        if self.pos_label is None:
            first, second = np.bincount(index, weights=sample_weight, minlength=2)
            return 0 if first < second else 1
        found = np.flatnonzero(classes == self.pos_label)
        if len(found) != 1:
            raise ValueError(
                f"pos_label must be one of the classes {classes.tolist()}; got {self.pos_label!r}"
            )
        return int(found[0])

    def _report(self, step: int, soft_score: float) -> None:
        if self.verbose and step % 10 == 0:
            print(f"step {step} of {self.max_iter}: soft score {soft_score:.4f}")

    def decision_function(self, X: Array) -> Array:
        """The vote of the members, from -1 to 1: above 0 for the second of `classes_`."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        decision = vote(X @ self.coef_.T + self.intercept_)
        return decision if self.pos_label_ == self.classes_[1] else -decision

    def predict(self, X: Array) -> Array:
        """The class of each row."""
        second = self.decision_function(X) > 0
        return self.classes_[second.astype(int)]

    def predict_proba(self, X: Array) -> Array:
        """The vote moved to [0, 1], one column per class; 0.5 is the decision. Not calibrated."""
        second = (1 + self.decision_function(X)) / 2
        return np.column_stack([1 - second, second])

    def score(self, X: Array, y: Array, sample_weight: Array | None = None) -> float:
        """The metric this classifier is trained for, of its decisions on `X`."""
        called = np.asarray(self.predict(X) == self.pos_label_, dtype=float)
        truth = np.asarray(y) == self.pos_label_
        return float(score_of(truth, called, self.metric, weight=sample_weight))
