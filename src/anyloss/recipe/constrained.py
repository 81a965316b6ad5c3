"""Constraints of a classifier: which rows certify them, and the threshold that satisfies them.

Without a confidence level, the threshold is the best one that satisfies the constraints on held-out
scores. With one, a plainly random share of the rows takes no part in training. It tests the
candidates that the held-out scores of the other rows give, for the model that is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.constraints import Constraint, ConstraintSpec, read_constraints
from anyloss.certificates import Certificate, CertifiedThreshold, certified_threshold
from anyloss.certificates.certify import check_confidence
from anyloss.metrics import Metric


class FitWarning(UserWarning):
    """What the fit of a classifier warns of, and the result of a table states in its own words."""


class UncertifiedWarning(FitWarning):
    """Nothing could be certified."""


class OneSidedWarning(FitWarning):
    """The metric does not count one kind of mistakes."""


@contextmanager
def without_fit_warnings() -> Iterator[None]:
    """Ignore what the result of a table states."""
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        yield


class Promise(NamedTuple):
    """What a classifier must satisfy, checked: constraints, the confidence, the share of rows."""

    constraints: tuple[Constraint, ...] = ()
    confidence_level: float | None = None
    certify_share: float = 0.2

    @property
    def texts(self) -> list[str] | None:
        """The constraints as they are saved."""
        return [str(x) for x in self.constraints] or None


def read_promise(
    constraints: ConstraintSpec | None, confidence_level: float | None, certify_share: float
) -> Promise:
    """The promise of a classifier from its parameters.

    >>> read_promise("recall >= 0.9", 0.95, 0.2).texts
    ['recall >= 0.9']
    >>> read_promise(None, 0.95, 0.2)
    Traceback (most recent call last):
        ...
    ValueError: confidence_level=0.95 certifies constraints; got none. Write constraints='recall >= 0.9', or leave out confidence_level
    """  # noqa: E501
    required = read_constraints(constraints)
    if confidence_level is not None:
        check_confidence(confidence_level)
        if not required:
            raise ValueError(
                f"confidence_level={confidence_level} certifies constraints; got none. Write "
                "constraints='recall >= 0.9', or leave out confidence_level"
            )
    if not isinstance(certify_share, Real) or not 0 < certify_share < 1:
        raise ValueError(
            f"certify_share must be a number between 0 and 1, such as 0.2; got {certify_share!r}"
        )
    return Promise(required, confidence_level, float(certify_share))


def check_task(promise: Promise, task: str) -> None:
    """Refuse constraints for anything but two classes."""
    if promise.constraints and task != "binary":
        raise ValueError(
            f"constraints are for two classes with average='auto'; got a {task} target. Leave out "
            "constraints=, or train one class against the rest"
        )


def warn_if_one_sided(promise: Promise, metric: Metric, task: str, average: str | None) -> None:
    """Warn of a metric without constraints that decisions of one class can make perfect."""
    ignored = one_sided(metric, task, average)
    if ignored is not None and not promise.constraints:
        warnings.warn(f"{metric.name} {ignored}", OneSidedWarning, stacklevel=4)


def one_sided(metric: Metric, task: str, average: str | None) -> str | None:
    """Which mistakes a metric does not count, and what to do; None if it counts both kinds.

    >>> from anyloss import metric
    >>> one_sided(metric("f1"), "binary", "binary")
    >>> one_sided(metric("recall"), "binary", "binary")[:32]
    'does not count false positives: '
    >>> one_sided(metric("recall"), "multiclass", "macro")
    >>> one_sided(metric("tp / (fp + fn)"), "binary", "binary")
    """
    if task == "multiclass" or (task == "binary" and average != "binary"):
        return None
    # A formula that divides by the mistakes is 0 without any.
    perfect = max(metric(50.0, 0.0, 0.0, 50.0), metric(49.0, 1.0, 1.0, 49.0))
    if metric(50.0, 0.0, 49.0, 1.0) >= perfect:
        kind, rows = "false positives", "nearly every row positive"
    elif metric(1.0, 49.0, 0.0, 50.0) >= perfect:
        kind, rows = "false negatives", "nearly every row negative"
    else:
        return None
    other = "precision" if kind == "false positives" else "recall"
    more = f", or add the constraint '{other} >= 0.5'" if task == "binary" else ""
    return (
        f"does not count {kind}: the best model predicts {rows}. Use a metric that counts both "
        f"kinds of mistakes, such as f1 or mcc{more}"
    )


def refuse_weights(promise: Promise, weight: Array | None) -> None:
    """Refuse weights where a certificate is wanted: a row of weight 5 is not five rows."""
    if promise.confidence_level is not None and weight is not None:
        raise ValueError(
            "a certificate needs rows that count alike; got sample_weight. Leave it out, or leave "
            "out confidence_level"
        )


def split_rows(
    rows: int, promise: Promise, seed: int, groups: Array | None = None
) -> tuple[Array, Array]:
    """The rows for training and the rows for certifying: plainly random, without stratification.

    Of a group either all rows train or one random row certifies.

    >>> [len(x) for x in split_rows(100, Promise(confidence_level=0.95), seed=0)]
    [80, 20]
    """
    if promise.confidence_level is None:
        return np.arange(rows), np.arange(0)
    order = np.random.default_rng([seed, 1]).permutation(rows)
    if groups is None:
        number = max(1, round(promise.certify_share * rows))
        return np.sort(order[number:]), np.sort(order[:number])
    groups = np.asarray(groups)
    first = np.sort(np.unique(groups[order], return_index=True)[1])  # one random row of each group
    number = max(1, round(promise.certify_share * len(first)))
    certifying = order[first[:number]]
    return np.flatnonzero(~np.isin(groups, groups[certifying])), np.sort(certifying)


def check_rows_given(promise: Promise, given: Any) -> None:
    """Refuse certifying rows that are no pair, or that nothing is certified with."""
    if promise.confidence_level is None:
        raise ValueError(
            "certify_set= has the rows that certify constraints; got no confidence_level. Set "
            "confidence_level=0.95, or leave out certify_set"
        )
    if not isinstance(given, tuple) or len(given) != 2:
        raise ValueError(
            "certify_set must be one pair, fit(X, y, certify_set=(X_certify, y_certify)); got "
            f"{type(given).__name__}"
        )


def certified(
    y: Array, scores: Array, weight: Array | None, y_certifying: Array, new_scores: Array,
    metric: Metric, promise: Promise,
) -> CertifiedThreshold:  # fmt: skip
    """The certified threshold; a warning if there is none."""
    assert promise.confidence_level is not None
    found = certified_threshold(
        y, scores, y_certifying, new_scores, metric, constraints=promise.constraints,
        confidence_level=promise.confidence_level, weight_tuning=weight,
    )  # fmt: skip
    if found.threshold is None:
        text = f"{found.words()}. Predictions use the uncertified threshold"
        warnings.warn(text, UncertifiedWarning, stacklevel=2)
    return found


def centred(decision: Array, threshold: float) -> Array:
    """Decision values in -1 .. 1, moved within this range so that the threshold is at 0.

    >>> centred(np.array([-1.0, 0.0, 0.5, 1.0]), 0.5).round(3).tolist()
    [-1.0, -0.333, 0.0, 1.0]
    """
    if threshold == 0:
        return decision
    above, below = max(1 - threshold, 1e-300), max(1 + threshold, 1e-300)
    away = decision - threshold
    return np.clip(np.where(away > 0, away / above, away / below), -1.0, 1.0)


def certificate_to_json(found: CertifiedThreshold | None) -> dict[str, Any] | None:
    """A certificate as JSON, which has no NaN and no infinity.

    >>> y, scores = [0, 1] * 100, [0.25, 0.75] * 100
    >>> found = certified_threshold(y, scores, y, scores, "f1", constraints="recall >= 0.95")
    >>> certificate_from_json(certificate_to_json(found)) == found
    True
    """
    if found is None:
        return None
    stored = asdict(found) | {"tested": list(found.tested)}
    return stored | {"certificate": {k: _plain(x) for k, x in stored["certificate"].items()}}


def certificate_from_json(stored: dict[str, Any] | None) -> CertifiedThreshold | None:
    """The inverse of `certificate_to_json`."""
    if stored is None:
        return None
    numbers = ("score", "lower", "upper", "p_value")
    inner: dict[str, Any] = {
        k: float(x) if k in numbers else x for k, x in stored["certificate"].items()
    }
    whole = {"tested": tuple(stored["tested"]), "certificate": Certificate(**inner)}
    return CertifiedThreshold(**stored | whole)


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value
