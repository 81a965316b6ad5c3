"""Calibrated probabilities and other class shares of a fitted classifier.

A classifier keeps the values of training rows by members that did not see them. These rows
calibrate its probabilities, and find the decision rule for other class shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.constraints import read_constraints
from anyloss.metrics import metric as find_metric
from anyloss.recipe.calibration import METHODS, Calibration, calibrate, calibration_from_arrays
from anyloss.recipe.constrained import Promise
from anyloss.recipe.labels import Labels
from anyloss.recipe.priors import (
    HeldOut,
    Rule,
    best_offsets,
    by_class,
    estimate_priors,
    factors,
    kept_rows,
    read_priors,
    refuse_labels,
    rule_from_json,
    shares_of,
)
from anyloss.recipe.target import new_target


class SharesMixin:
    """What a classifier knows of the rows that its members did not see.

    A classifier defines the first four methods. Its values are what a decision rule is applied to:
    decision values of networks, margins of trees.
    """

    calibrate: str | None
    priors: Sequence[float] | None
    metric: Any
    constraints: Any
    classes_: Array
    pos_label_: Any
    task_: str
    average_: str | None
    certificate_: Any
    class_shares_: Array | None
    _held_out_values: Array  # of all rows of the last fit; not saved
    held_out_score_: float
    pos_label: Any
    folds: int
    _rule: Rule
    _fitted_rule: Rule  # before `with_priors`
    _held_out: HeldOut
    _calibration: Calibration
    _weighted: bool  # rows that are scored are weighted to the shares

    def _values(self, X: Any) -> Array:
        """The values `(rows, columns)` of a fitted classifier, before the decision rule."""
        raise NotImplementedError

    def _mean_probabilities(self, values: Array) -> Array:
        """Values as numbers from 0 to 1, one for each column of the labels."""
        raise NotImplementedError

    def _as_scores(self, values: Array) -> Array:
        """Values as scores from which the offsets of a rule are subtracted."""
        raise NotImplementedError

    def _rule_of(self, offsets: Array) -> Rule:
        """The decision rule that subtracts these offsets from the scores."""
        raise NotImplementedError

    def _decide(self, X: Any) -> Array:
        """The values after the decision rule: it is at 0, or at the highest class."""
        values = self._values(X)  # first, because it checks whether there is a rule
        return self._rule(values)

    @property
    def calibration_method_(self) -> str:
        """How `calibrated_proba` is calibrated."""
        return self._calibration.method

    @property
    def _positive(self) -> int | None:
        """The place of the positive class."""
        if self.task_ != "binary":
            return None
        return int(np.flatnonzero(self.classes_ == self.pos_label_)[0])

    def calibrated_proba(self, X: Any) -> Array:
        """Calibrated probabilities, one column per class, whatever `predict_proba` gives.

        They are fitted to rows that the members did not see, by the method of `calibrate`, or by
        `"auto"` if that is None. `predict` does not follow from them: its threshold is the one that
        is best for the metric.

        Args:
            X (array, sparse matrix or data frame): the rows.

        Returns:
            array: the probabilities of `classes_`, or of each label.
        """
        p = self._unmoved(self._values(X))
        if self.task_ == "multilabel":
            return p
        shares = self._held_out.shares(self.task_, self._positive)
        assert self.class_shares_ is not None
        if np.array_equal(shares, self.class_shares_):
            return p
        moved = p * factors(self.class_shares_, shares)
        total = moved.sum(axis=1, keepdims=True)
        return np.where(total > 0, moved / np.where(total > 0, total, 1.0), p)

    def with_priors(self, priors: Sequence[float]) -> Self:
        """A copy of the fitted classifier that decides for other class shares.

        The members stay as they are. The threshold (for several classes: an offset of each) is the
        best one for the metric of the held-out training rows, weighted to these shares, and
        calibrated probabilities are moved to them. Use `estimate_priors` where the shares are
        unknown.

        Args:
            priors (sequence of float): the shares of `classes_`, which sum to 1.

        Returns:
            Self: the classifier for these shares.

        Raises:
            ValueError: if the priors are no shares of these classes, the rows have several labels,
                or the classifier has a certificate, which other shares would break.

        Examples:
            >>> from sklearn.datasets import load_breast_cancer
            >>> from anyloss.sklearn import AnyLossClassifier
            >>> X, y = load_breast_cancer(return_X_y=True)
            >>> model = AnyLossClassifier("f1", repeats=1, random_state=0).fit(X, y)
            >>> rare = model.with_priors([0.01, 0.99])
            >>> bool((rare.predict(X) == 0).sum() <= (model.predict(X) == 0).sum())
            True
        """
        self._check_fitted()
        refuse_labels(self.task_)
        if self.certificate_ is not None:
            raise ValueError(
                "the certificate holds for the class shares of the rows that certified it; got "
                "with_priors for a certified classifier. Certify on rows with these shares, or fit "
                "without confidence_level"
            )
        wanted, moved = read_priors(priors, len(self.classes_)), copy(self)
        moved.priors = tuple(wanted.tolist())
        moved.class_shares_, moved._weighted = wanted, True
        values, labels, weight = self._held_out
        offsets = best_offsets(
            self._held_out._replace(values=self._as_scores(values)), wanted, self.metric,
            self.task_, self.average_, self._positive, read_constraints(self.constraints),
        )  # fmt: skip
        moved._rule = self._fitted_rule if offsets is None else self._rule_of(offsets)
        weight = moved._weights_of_score(labels, weight)
        target = new_target(labels, self.metric, self.task_, self.average_, weight)
        moved.held_out_score_ = target.score(moved._rule(values))
        return moved

    def estimate_priors(self, X: Any) -> Array:
        """The class shares of new rows without labels, for `with_priors`.

        They are found by expectation-maximisation (`anyloss.sklearn.estimate_priors`) from the
        calibrated probabilities. They are right if only the class shares have changed.

        Args:
            X (array, sparse matrix or data frame): the new rows.

        Returns:
            array: the shares of `classes_`.
        """
        self._check_fitted()
        refuse_labels(self.task_)
        shares = self._held_out.shares(self.task_, self._positive)
        return estimate_priors(self._unmoved(self._values(X)), shares)

    def threshold_for(self, priors: Sequence[float]) -> float:
        """The threshold of `with_priors`, on the scale where that of the classifier is 0.5.

        It is for two classes, and applies to `predict_proba` of a classifier without `calibrate=`,
        in the column of `pos_label_`.

        Args:
            priors (sequence of float): the shares of `classes_`, which sum to 1.

        Returns:
            float: the threshold, from 0 to 1.
        """
        at = np.array([[self.with_priors(priors)._rule.at]])
        return float(self._mean_probabilities(self._rule(at))[0, 0])

    def _check_fitted(self) -> None:
        """Raise scikit-learn's error for a classifier that is not fitted."""
        raise NotImplementedError

    def _check_shares(self, promise: Promise) -> None:
        """Check the parameters of this part, before anything is fitted."""
        if self.calibrate not in (None, "auto", *METHODS):
            raise ValueError(
                f"calibrate must be None, 'auto', 'sigmoid' or 'isotonic'; got {self.calibrate!r}"
            )
        if self.priors is not None and promise.confidence_level is not None:
            raise ValueError(
                "a certificate holds for the class shares of the rows that certify; got "
                f"priors={self.priors!r} as well. Leave out priors, or confidence_level"
            )

    def _weigh(self, target: Labels, weight: Array | None) -> tuple[Labels, Array | None]:
        """The training rows weighted to the priors, and the positive class, the rarer one there."""
        if self.priors is None:
            return target, weight
        priors, positive = read_priors(self.priors, len(target.classes)), None
        if target.task == "binary":
            positive = int(np.flatnonzero(target.classes == target.positive)[0])
            named = self.pos_label is not None or find_metric(self.metric).second_is_positive
            if not named and target.average == "binary" and priors[positive] > 0.5:
                positive = 1 - positive
                target = target._replace(
                    labels=1 - target.labels, positive=target.classes[positive]
                )
        classes = by_class(target.labels, target.task, positive)
        return target, _to_priors(classes, weight, priors)

    def _weights_of_priors(self, labels: Array) -> Array | None:
        """The weights of further rows, such as those for early stopping."""
        if self.priors is None:
            return None
        classes = by_class(labels, self.task_, self._positive)
        return _to_priors(classes, None, read_priors(self.priors, len(self.classes_)))

    def _weights_of_score(self, labels: Array, weight: Array | None) -> Array | None:
        """The weights of rows that are scored; a class without rows stays without."""
        given = np.ones(len(labels)) if weight is None else np.asarray(weight, dtype=float)
        if not self._weighted or given.shape != (len(labels),):
            return weight
        assert self.class_shares_ is not None
        classes = by_class(labels.astype(float), self.task_, self._positive)
        total = given @ classes
        present = total > 0
        if not present.any():
            return weight
        wanted = np.where(present, self.class_shares_, 0.0)
        return given * (classes @ (wanted / np.where(present, total, 1.0))) * total.sum()

    def _keep_held_out(
        self, values: Array, labels: Array, weight: Array | None, held: Array, seed: int
    ) -> None:
        """Keep the rows that find other rules, and calibrate; `held` are those of each member."""
        weight = np.ones(len(labels)) if weight is None else weight
        self._held_out_values = values
        self._weighted = self.priors is not None
        self._held_out = kept_rows(values, labels, weight, self.task_, seed)
        self.class_shares_ = None
        if self.task_ != "multilabel":
            self.class_shares_ = self._held_out.shares(self.task_, self._positive)
        p = self._mean_probabilities(values)
        folds = held[: self.folds].argmax(axis=0)  # those of the first repeat
        self._calibration = calibrate(labels, p, weight, self.calibrate or "auto", folds)

    def _unmoved(self, values: Array) -> Array:
        """The calibrated probabilities for the shares of the training rows."""
        p = self._calibration(self._mean_probabilities(values), self.task_)
        return p if self.task_ == "multilabel" else by_class(p, self.task_, self._positive)

    def _shares_to_save(self) -> tuple[dict[str, Any], dict[str, Array]]:
        described = {
            "method": self.calibration_method_,
            "shares": None if self.class_shares_ is None else self.class_shares_.tolist(),
            "weighted": self._weighted,
            "rule": self._rule.to_json(),
            "fitted_rule": self._fitted_rule.to_json(),
        }
        arrays = {f"held_out.{k}": x for k, x in self._held_out._asdict().items()}
        return described, arrays | self._calibration.to_arrays()

    def _shares_from_saved(self, described: dict[str, Any], arrays: dict[str, Array]) -> None:
        self._weighted, shares = described["weighted"], described["shares"]
        self._rule, self._fitted_rule = (
            rule_from_json(described[x]) for x in ("rule", "fitted_rule")
        )
        self.class_shares_ = None if shares is None else np.array(shares)
        self._held_out = HeldOut(*(arrays.pop(f"held_out.{k}") for k in HeldOut._fields))
        self._calibration = calibration_from_arrays(described["method"], arrays)


class DecisionShares(SharesMixin):
    """The same for decision values: between -1 and 1, or for several classes between 0 and 1."""

    def _mean_probabilities(self, values: Array) -> Array:
        return values if self.task_ == "multiclass" else (1 + values) / 2

    def _as_scores(self, values: Array) -> Array:
        return np.log(np.maximum(values, 1e-12)) if self.task_ == "multiclass" else values

    def _rule_of(self, offsets: Array) -> Rule:
        if self.task_ == "multiclass":
            return Rule(factors=np.exp(-offsets))
        return Rule(float(offsets[0]))


def _to_priors(classes: Array, weight: Array | None, priors: Array) -> Array:
    """Weights that give the classes these shares; the mean weight stays."""
    given = np.ones(len(classes)) if weight is None else weight
    return np.asarray(given * (classes @ factors(priors, shares_of(classes, given))))
