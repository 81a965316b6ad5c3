"""Costs that differ from row to row: the decisions of least expected cost, and what they save.

A false negative of row i costs `fn_cost[i]` and a false positive `fp_cost[i]`; correct decisions
cost nothing. (Subtract the costs of correct decisions if they cost something.) If a model gives
calibrated probabilities p, and the costs of a row are known when it is decided, the decision of
least expected cost is positive where `p fn_cost > (1 - p) fp_cost`: each row has a threshold of its
own. If they are only known for the training rows, train with `cost_weights` for the accuracy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from anyloss._core.backend import Array

Z = 1.959963984540054  # standard deviations on both sides of the mean that hold 95 %

__all__ = ["CostSummary", "cost_summary", "cost_weights", "least_cost"]


def _read(costs: Any, rows: int, name: str) -> Array:
    """The costs of each row, checked."""
    found = np.asarray(costs, dtype=float)
    if found.shape not in ((), (rows,)) or not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError(
            f"{name} must be a number of at least 0, or one for each of the {rows} rows, without "
            f"NaN; got {'an array of shape ' + str(found.shape) if found.ndim else costs!r}"
        )
    return np.broadcast_to(found, (rows,))


def _both(rows: int, fn_cost: Any, fp_cost: Any) -> tuple[Array, Array]:
    return _read(fn_cost, rows, "fn_cost"), _read(fp_cost, rows, "fp_cost")


def _labels(y: Any, name: str) -> Array:
    found = np.asarray(y)
    if found.ndim != 1 or found.dtype.kind not in "biuf" or not np.isin(found, (0, 1)).all():
        got = np.unique(found)[:5].tolist() if found.ndim == 1 else f"shape {found.shape}"
        raise ValueError(f"{name} must be one 0 or 1 for each row; got {got}")
    return found.astype(float)


def cost_weights(y_true: Any, *, fn_cost: Any, fp_cost: Any) -> Array:
    """Weights with which the accuracy is one minus the cost per unit of possible cost.

    A positive row weighs `fn_cost` and a negative one `fp_cost`, scaled to a mean of 1. Pass them
    as `sample_weight` to a classifier that is trained for `"accuracy"`.

    Args:
        y_true (array): labels of 0 and 1.
        fn_cost (float or array): the cost of each row if it is a false negative.
        fp_cost (float or array): the cost of each row if it is a false positive.

    Shape:
        - `y_true`, and costs that are arrays: `(n,)`.

    Returns:
        array: the weights `(n,)`.

    Raises:
        ValueError: if the labels are not 0 and 1, a cost is negative, NaN or of another shape, or
            no error costs anything.

    Examples:
        >>> cost_weights([1, 0, 0], fn_cost=[8.0, 2.0, 5.0], fp_cost=2.0).tolist()
        [2.0, 0.5, 0.5]
    """
    y = _labels(y_true, "y_true")
    of_fn, of_fp = _both(len(y), fn_cost, fp_cost)
    weight: Array = y * of_fn + (1 - y) * of_fp
    if not weight.any():
        raise ValueError("an error of some row must cost more than 0; got costs of 0 only")
    return np.asarray(weight / weight.mean())


def least_cost(probabilities: Any, *, fn_cost: Any, fp_cost: Any) -> Array:
    """The decisions of least expected cost for calibrated probabilities of the positive class.

    `p fn_cost > (1 - p) fp_cost`: a threshold `fp_cost / (fn_cost + fp_cost)` for each row. Where
    both cost the same, the decision is negative.

    Args:
        probabilities (array): calibrated probabilities, such as `calibrated_proba(X)[:, 1]`.
        fn_cost (float or array): the cost of each row if it is a false negative.
        fp_cost (float or array): the cost of each row if it is a false positive.

    Shape:
        - `probabilities`, and costs that are arrays: `(n,)`.

    Returns:
        array: decisions of 0 and 1, `(n,)`.

    Raises:
        ValueError: if the probabilities are not between 0 and 1, or a cost is negative, NaN or of
            another shape.

    Examples:
        >>> least_cost([0.1, 0.1, 0.6], fn_cost=[100.0, 10.0, 10.0], fp_cost=5.0).tolist()
        [1, 0, 1]
    """
    p = np.asarray(probabilities, dtype=float)
    wrong = p[~((p >= 0) & (p <= 1))]
    if p.ndim != 1 or len(wrong):
        got = f"{wrong[0]:g}" if p.ndim == 1 else f"shape {p.shape}"
        raise ValueError(f"probabilities must be one number from 0 to 1 for each row; got {got}")
    of_fn, of_fp = _both(len(p), fn_cost, fp_cost)
    return (p * of_fn > (1 - p) * of_fp).astype(int)


class CostSummary(NamedTuple):
    """What decisions cost.

    Attributes:
        total (float): the sum of the costs of the errors.
        per_1000 (float): the cost per 1,000 rows.
        savings (float): `1 - total / constant`; 1 without errors, 0 for the better constant
            decision, and NaN if that costs nothing.
        constant (float): the cost of the better constant decision, all positive or none.
        interval (tuple of float): the 95 % interval of the savings, for other rows of the same
            kind, by the normal approximation of a ratio of sums.

    Examples:
        >>> cost_summary([1, 0], [1, 1], fn_cost=10, fp_cost=1).savings
        0.0
    """

    total: float
    per_1000: float
    savings: float
    constant: float
    interval: tuple[float, float]


def cost_summary(
    y_true: Any, y_pred: Any, *, fn_cost: Any, fp_cost: Any, groups: Any = None
) -> CostSummary:
    """What decisions cost, and what they save against the better constant decision.

    Args:
        y_true (array): labels of 0 and 1.
        y_pred (array): decisions of 0 and 1.
        fn_cost (float or array): the cost of each row if it is a false negative.
        fp_cost (float or array): the cost of each row if it is a false positive.
        groups (array, optional): the group of each row, such as a customer. The interval is then
            for other groups of the same kind.

    Shape:
        - `y_true`, `y_pred`, `groups`, and costs that are arrays: `(n,)`.

    Returns:
        CostSummary: the total, the cost per 1,000 rows, and the savings.

    Raises:
        ValueError: if labels or decisions are not 0 and 1 or differ in length, or a cost is
            negative, NaN or of another shape.

    Examples:
        >>> found = cost_summary([1, 1, 0, 0], [1, 0, 1, 0], fn_cost=[9, 3, 1, 1], fp_cost=2)
        >>> found.total, found.constant, found.savings
        (5.0, 4.0, -0.25)

    References:
        A. Correa Bahnsen, D. Aouada and B. Ottersten, "Example-dependent cost-sensitive decision
        trees", Expert Systems with Applications 42, 2015.
    """
    y, decided = _labels(y_true, "y_true"), _labels(y_pred, "y_pred")
    if len(y) != len(decided) or not len(y):
        raise ValueError(
            "there must be as many decisions as labels, and at least one; got "
            f"{len(decided)} and {len(y)}"
        )
    of_fn, of_fp = _both(len(y), fn_cost, fp_cost)
    of_fn, of_fp = y * of_fn, (1 - y) * of_fp
    each = of_fn * (1 - decided) + of_fp * decided
    better = min(of_fn, of_fp, key=np.sum)  # none is predicted positive, or all are
    total, constant = float(each.sum()), float(better.sum())
    share = total / constant if constant else float("nan")
    beyond = each - share * better
    if groups is not None:
        beyond = np.bincount(np.unique(groups, return_inverse=True)[1], beyond)
    error = Z * float(np.sqrt(np.sum(beyond**2))) / (constant or 1.0)
    savings = 1 - share
    interval = savings - error, min(savings + error, 1.0) if constant else savings
    return CostSummary(total, 1000 * total / len(y), savings, constant, interval)
