"""Probabilities from decision values, by held-out samples.

A classifier that is trained for a metric orders the samples well around its threshold. Its values
are not the shares of positives that are to be expected. A calibration is an increasing map from
values to these shares, fitted on samples that the members of the ensemble did not see.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import expit, logit

from anyloss._core.backend import Array

METHODS = ("sigmoid", "isotonic")
FOLDS, STEPS, EDGE = 5, 50, 1e-6


class Column(NamedTuple):
    """The calibration of one class: probabilities at increasing values, or a sigmoid.

    A sigmoid has no values, and as probabilities the factor and the offset of the log-odds.
    """

    values: Array
    probabilities: Array

    def __call__(self, p: Array) -> Array:
        """The calibrated probabilities of mean probabilities `(n,)`."""
        if len(self.values):
            return np.interp(p, self.values, self.probabilities)
        factor, offset = self.probabilities
        return np.asarray(expit(factor * _log_odds(p) + offset))


class Calibration(NamedTuple):
    """One map per class, from the mean probabilities `(n, classes)` of the members."""

    method: str
    columns: tuple[Column, ...]

    def __call__(self, p: Array, task: str) -> Array:
        """The calibrated probabilities; those of several classes sum to 1."""
        found = np.column_stack([f(x) for f, x in zip(self.columns, p.T, strict=True)])
        if task != "multiclass":
            return found
        total = found.sum(axis=1, keepdims=True)
        return np.where(total > 0, found / np.where(total > 0, total, 1.0), p)

    def to_arrays(self) -> dict[str, Array]:
        """The maps as they are saved."""
        return {
            f"calibration{k}.{name}": x
            for k, column in enumerate(self.columns)
            for name, x in column._asdict().items()
        }


def calibration_from_arrays(method: str, arrays: dict[str, Array]) -> Calibration:
    """The inverse of `Calibration.to_arrays`, which takes its arrays out of the dictionary."""
    columns: list[Column] = []
    while (name := f"calibration{len(columns)}") + ".values" in arrays:
        columns.append(Column(*(arrays.pop(f"{name}.{x}") for x in Column._fields)))
    return Calibration(method, tuple(columns))


def calibrate(
    y: Array, p: Array, weight: Array, method: str = "auto", folds: Array | None = None
) -> Calibration:
    """Fit the maps to labels `(n, classes)` and held-out mean probabilities of the same shape.

    `"auto"` takes the method with the lower Brier score on samples that it was not fitted to:
    `folds` has the number of the fold of each sample, so that copies can stay together. Weights
    that sum to less than the number of samples are scaled to it.

    >>> p = np.linspace(0.05, 0.95, 200)[:, None]
    >>> y = (np.random.default_rng(0).random((200, 1)) < p**2).astype(float)
    >>> found = calibrate(y, p, np.ones(200))
    >>> found.method, found(np.array([[0.5]]), "binary").round(1).tolist()
    ('sigmoid', [[0.2]])
    """
    weight = weight * max(1.0, len(weight) / weight.sum())
    if method == "auto":
        folds = np.arange(len(y)) % FOLDS if folds is None else folds
        method = min(METHODS, key=lambda x: _brier(y, p, weight, x, folds))
    columns = zip(y.T, p.T, strict=True)
    return Calibration(method, tuple(_fit(*column, weight, method) for column in columns))


def _brier(y: Array, p: Array, weight: Array, method: str, folds: Array) -> float:
    """The sum of squared errors of samples whose folds are left out in turn."""
    total = 0.0
    for k in np.unique(folds):
        out = folds == k
        for labels, values in zip(y.T, p.T, strict=True):
            column = _fit(labels[~out], values[~out], weight[~out], method)
            total += float(weight[out] @ (column(values[out]) - labels[out]) ** 2)
    return total


def _fit(y: Array, p: Array, weight: Array, method: str) -> Column:
    return _isotonic(y, p, weight) if method == "isotonic" else _sigmoid(y, p, weight)


def _isotonic(y: Array, p: Array, weight: Array) -> Column:
    """The best increasing step function, linear between the values; ends of steps are kept.

    Platt's targets keep it away from 0 and 1, which no number of rows can show.
    """
    kept = weight > 0
    y, p, weight = _targets(y, weight)[kept], p[kept], weight[kept]
    values, at = np.unique(p, return_inverse=True)
    total = np.bincount(at, weight)
    found = isotonic_regression(np.bincount(at, weight * y) / total, weights=total).x
    ends = np.ones(len(found), dtype=bool)
    ends[1:-1] = (found[1:-1] != found[:-2]) | (found[1:-1] != found[2:])
    return Column(values[ends], found[ends])


def _sigmoid(y: Array, p: Array, weight: Array) -> Column:
    """Platt's regression on the log-odds, with his targets and his start, by Newton's method."""
    x, positives, total = _log_odds(p), float(weight @ y), float(weight.sum())
    negatives, middle = total - positives, float(weight @ x) / total
    target = _targets(y, weight)
    design = np.column_stack([x - middle, np.ones(len(x))])

    def loss(ab: Array) -> float:
        z = design @ ab
        return float(weight @ (np.logaddexp(0.0, z) - target * z))

    ab = np.array([0.0, np.log((positives + 1) / (negatives + 1))])
    for _ in range(STEPS):
        q = expit(design @ ab)
        slope = design.T @ (weight * (q - target))
        curvature = (design * (weight * q * (1 - q))[:, None]).T @ design
        step = np.linalg.solve(curvature + 1e-9 * total * np.eye(2), slope)
        while loss(ab - step) > loss(ab) and np.abs(step).max() > 1e-9:
            step = step / 2
        ab = ab - step
        if np.abs(step).max() < 1e-9:
            break
    if ab[0] < 0:  # a map must keep the order; the share of the positives is left
        ab = np.array([0.0, np.log((positives + 1) / (negatives + 1))])
    return Column(np.empty(0), np.array([ab[0], ab[1] - ab[0] * middle]))


def _targets(y: Array, weight: Array) -> Array:
    """Platt's targets: the share of positives to expect among rows that are all alike.

    >>> _targets(np.array([1.0, 1.0, 0.0]), np.ones(3)).tolist()
    [0.75, 0.75, 0.3333333333333333]
    """
    positives = float(weight @ y)
    negatives = float(weight.sum()) - positives
    return np.where(y > 0, (positives + 1) / (positives + 2), 1 / (negatives + 2))


def _log_odds(p: Array) -> Array:
    return np.asarray(logit(np.clip(p, EDGE, 1 - EDGE)))
