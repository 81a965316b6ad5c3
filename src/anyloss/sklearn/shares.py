"""Calibrated probabilities and other class shares of a fitted classifier."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from anyloss._core.backend import Array
from anyloss._core.constraints import read_constraints
from anyloss.recipe import Ensemble
from anyloss.recipe.calibration import METHODS, Calibration, calibrate, calibration_from_arrays
from anyloss.recipe.constrained import Promise
from anyloss.recipe.labels import Labels
from anyloss.recipe.numpy_models import Started
from anyloss.recipe.priors import (
    HeldOut,
    Rule,
    best_rule,
    by_class,
    estimate_priors,
    factors,
    kept_rows,
    read_priors,
    refuse_labels,
    shares_of,
)
from anyloss.recipe.target import new_target


class SharesMixin:
    """What `AnyLossClassifier` knows of the rows that its members did not see."""

    calibrate: str | None
    priors: Sequence[float] | None
    metric: Any
    constraints: Any
    classes_: Array
    pos_label_: Any
    task_: str
    average_: str | None
    threshold_: float
    certificate_: Any
    class_shares_: Array | None
    _seed: int
    _held_out: HeldOut
    _calibration: Calibration | None
    class_factors_: Array | None = None
    held_out_score_: float
    pos_label: Any
    folds: int
    _fitted_rule: Rule  # before `with_priors`
    _weighted: bool  # rows that are scored are weighted to the shares

    @property
    def calibration_method_(self) -> str | None:
        """How the probabilities are calibrated, or None."""
        check_is_fitted(self)
        return None if self._calibration is None else self._calibration.method

    @property
    def _positive(self) -> int | None:
        """The place of the positive class."""
        if self.task_ != "binary":
            return None
        return int(np.flatnonzero(self.classes_ == self.pos_label_)[0])

    @property
    def _rule(self) -> Rule:
        return Rule(self.threshold_, self.class_factors_)

    def with_priors(self, priors: Sequence[float]) -> Self:
        """A copy of the fitted classifier that decides for other class shares.

        The members stay as they are. The threshold (for several classes: a factor of each) is the
        best one for the metric of the held-out training rows, weighted to these shares, and
        calibrated probabilities are moved to them. Use `estimate_priors` where the shares are
        unknown.

        Args:
            priors (sequence of float): the shares of `classes_`, which sum to 1.

        Returns:
            AnyLossClassifier: the classifier for these shares.

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
        check_is_fitted(self)
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
        moved.threshold_, moved.class_factors_ = best_rule(
            self._held_out, wanted, self._fitted_rule, self.metric, self.task_, self.average_,
            self._positive, read_constraints(self.constraints),
        )  # fmt: skip
        values, labels, weight = self._held_out
        weight = moved._weights_of_score(labels, weight)
        target = new_target(labels, self.metric, self.task_, self.average_, weight)
        moved.held_out_score_ = target.score(moved._rule(values))
        return moved

    def estimate_priors(self, X: Array) -> Array:
        """The class shares of new rows without labels, for `with_priors`.

        They are found by expectation-maximisation (`anyloss.sklearn.estimate_priors`) from the
        calibrated probabilities, so the classifier needs `calibrate=`. They are right if only the
        class shares have changed.

        Args:
            X (array or sparse matrix): the new rows.

        Returns:
            array: the shares of `classes_`.
        """
        check_is_fitted(self)
        if self._calibration is None:
            raise ValueError(
                "shares are estimated from calibrated probabilities; got a classifier without "
                "them. Fit it with calibrate='auto'"
            )
        refuse_labels(self.task_)
        values = self._decide_rows(self._check_rows(X))  # type: ignore[attr-defined]
        shares = self._held_out.shares(self.task_, self._positive)
        return estimate_priors(self._unmoved(values), shares)

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
            if self.pos_label is None and priors[positive] > 0.5:
                positive = 1 - positive
                target = target._replace(
                    labels=1 - target.labels, positive=target.classes[positive]
                )
        classes = by_class(target.labels, target.task, positive)
        return target, _to_priors(classes, weight, priors)

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

    def _keep_held_out(self, started: Started, found: Ensemble) -> None:
        """Keep what finds other rules, and calibrate."""
        values, y, weight = found.held_out, started.y, started.weight
        self._calibration, self.class_factors_ = None, None
        self._weighted = self.priors is not None
        self._held_out = kept_rows(values, y, weight, self.task_, self._seed)
        self.class_shares_ = None
        if self.task_ != "multilabel":
            self.class_shares_ = self._held_out.shares(self.task_, self._positive)
        if self.calibrate is not None:
            p = _mean_probabilities(values, self.task_)
            folds = started.held[: self.folds].argmax(axis=0)  # those of the first repeat
            self._calibration = calibrate(y, p, weight, self.calibrate, folds)

    def _calibrated(self, values: Array) -> Array:
        """The calibrated probabilities for the shares that the classifier decides for."""
        p = self._unmoved(values)
        if self.task_ == "multilabel":
            return p
        shares = self._held_out.shares(self.task_, self._positive)
        assert self.class_shares_ is not None
        if np.array_equal(shares, self.class_shares_):
            return p
        moved = p * factors(self.class_shares_, shares)
        total = moved.sum(axis=1, keepdims=True)
        return np.where(total > 0, moved / np.where(total > 0, total, 1.0), p)

    def _unmoved(self, values: Array) -> Array:
        """The calibrated probabilities for the shares of the training rows."""
        assert self._calibration is not None
        p = self._calibration(_mean_probabilities(values, self.task_), self.task_)
        return p if self.task_ == "multilabel" else by_class(p, self.task_, self._positive)

    def _shares_to_save(self) -> tuple[dict[str, Any], dict[str, Array]]:
        described = {
            "method": self.calibration_method_,
            "shares": None if self.class_shares_ is None else self.class_shares_.tolist(),
            "weighted": self._weighted,
            "fitted_threshold": self._fitted_rule.threshold,
            "factors": None if self.class_factors_ is None else self.class_factors_.tolist(),
        }
        arrays = {f"held_out.{k}": x for k, x in self._held_out._asdict().items()}
        return described, arrays | (self._calibration.to_arrays() if self._calibration else {})

    def _shares_from_saved(self, described: dict[str, Any], arrays: dict[str, Array]) -> None:
        shares, given = described["shares"], described["factors"]
        self._weighted = described["weighted"]
        self._fitted_rule = Rule(described["fitted_threshold"])
        self.class_shares_ = None if shares is None else np.array(shares)
        self.class_factors_ = None if given is None else np.array(given)
        self._held_out = HeldOut(*(arrays.pop(f"held_out.{k}") for k in HeldOut._fields))
        self._calibration = calibration_from_arrays(described["method"], arrays)


def _to_priors(classes: Array, weight: Array | None, priors: Array) -> Array:
    """Weights that give the classes these shares; the mean weight stays."""
    given = np.ones(len(classes)) if weight is None else weight
    return np.asarray(given * (classes @ factors(priors, shares_of(classes, given))))


def _mean_probabilities(values: Array, task: str) -> Array:
    return values if task == "multiclass" else (1 + values) / 2
