"""The objective for CatBoost, which passes blocks of at most 1000 rows. Experimental.

The counts are nevertheless those of the whole training set. CatBoost evaluates `eval_metric` on all
rows after every tree; the object that is both objective and metric keeps these counts for the next
tree. The counts of the first tree come from the labels and start margins, if they are passed. This
depends on CatBoost's order of evaluation (as of version 1.2), so the order is checked: an objective
that has not seen the training set since the last tree raises an error.

The rows of several classes or labels are passed one by one. Their derivatives are computed together
when the training set is evaluated, and found again by the margins, labels and weight of the row.
CatBoost has no start margins for several labels.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Self

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.constraints import Constraint
from anyloss._core.counts import Counts, column_counts
from anyloss._core.shapes import Layout
from anyloss.boosting import several
from anyloss.boosting.constrained import MovingMetric
from anyloss.boosting.core import (
    ScaledDerivatives,
    decisions,
    hard_score,
    per_row,
    scaled_derivatives,
)
from anyloss.metrics import Metric
from anyloss.steps import Step

# Without these settings CatBoost's trees would use other counts than the last evaluation.
SETTINGS = {
    "boosting_type": "Plain",
    "bootstrap_type": "No",
    "has_time": True,  # keeps the order of the rows, by which categories are encoded
    "leaf_estimation_iterations": 1,
    "leaf_estimation_method": "Newton",
    "metric_period": 1,
}


class BlockMetric:
    """The hard metric in CatBoost's form."""

    no_jit = True  # CatBoost would compile the methods with numba, and warns where there is none

    def __init__(self, metric: Metric, average: str = "auto") -> None:
        self.metric, self.average = metric, average
        self.two_classes = several.for_two_classes(metric, average)

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # CatBoost copies its parameters, but there must be one set of counts

    def is_max_optimal(self) -> bool:
        return True

    def get_final_error(self, error: float, weight: float) -> float:
        return error

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        z, y = np.asarray(approxes, dtype=float).T, np.asarray(target, dtype=float).T
        z = z[:, 0] if z.shape[1] == 1 else z
        w = None if weight is None or not len(weight) else np.asarray(weight, dtype=float)
        self.seen(z, y, w)
        if z.ndim == 1:
            return hard_score(z, y, self.two_classes, w), 1.0
        y, lay = several.as_columns(y, z, self.metric, self.average)
        return several.hard_score(z, y, self.metric, lay, w), 1.0

    def seen(self, z: Array, y: Array, weight: Array | None) -> None:
        """Receives each set of rows that is evaluated."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metric.name!r})"


class BlockObjective(BlockMetric):
    """Objective and metric in one, for `loss_function=` and `eval_metric=` of CatBoost.

    CatBoost needs `SETTINGS` as well: `CatBoost({"loss_function": f, "eval_metric": f,
    **SETTINGS})`. Without the labels each block of the first tree has its own counts, which are
    those of the training set only if it fits into one block (500 rows for the leaves).
    """

    counts: Counts
    of_columns: several.ColumnDerivatives  # of several classes or labels
    of_rows: dict[tuple[bytes, bytes, float], tuple[list[float], list[float]]]

    def __init__(
        self, metric: Metric, step: Step, average: str, y: Array | None, margin: Array | float,
        weight: Array | None, constraints: tuple[Constraint, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__(metric, average)
        self.moving = MovingMetric(self.two_classes, constraints)
        self.step, self.shown, self.fresh = step, 0, False
        self.rows: int | None = None
        self.layout: Layout | None = None  # None for two classes
        self.derivatives: ScaledDerivatives | None = None  # of two classes
        if y is not None:
            self.count(_start(y, margin), y, weight)

    def count(self, z: Array, y: Array, weight: Array | None) -> None:
        """Keep the counts of the whole training set for the next tree."""
        if z.ndim == 1:
            a, _, factor = decisions(z, self.step)
            self.counts = column_counts(a, y, weight)
            self.derivatives = scaled_derivatives(self.counts, self.moving.at(z, y, weight), factor)
        else:
            self.moving.check_columns(z)
            labels, lay = several.as_columns(y, z, self.metric, self.average)
            self.counts, self.layout = several.soft_counts(z, labels, lay, self.step, weight), lay
            weight = np.ones(len(y)) if weight is None else weight
            n = float(weight.sum())
            self.of_columns = several.scaled_derivatives(self.counts, self.metric, lay, n)
            keys = [_key(*row) for row in zip(z, y, weight.tolist(), strict=True)]
            self.of_rows = dict(zip(keys, self.derivatives_of(z, y, weight), strict=True))
        self.rows, self.shown = len(y), 0
        self.fresh = True  # no block since then

    def seen(self, z: Array, y: Array, weight: Array | None) -> None:
        # After a tree the training set is evaluated first, then the others.
        if self.fresh:
            return
        if self.rows is not None and len(y) != self.rows:
            raise ValueError(
                f"the training set must be evaluated after every tree: expected its {self.rows} "
                f"rows, got {len(y)}. Use eval_metric=<this objective> and metric_period=1"
            )
        self.count(z, y, weight)

    def calc_ders_range(
        self, approxes: Any, targets: Any, weights: Any
    ) -> list[tuple[float, float]]:
        """Minus gradient and minus curvature of a block: CatBoost maximises."""
        z, y = np.asarray(approxes, dtype=float), np.asarray(targets, dtype=float)
        w = None if weights is None or not len(weights) else np.asarray(weights, dtype=float)
        self.show(len(z))
        a, derivative, factor = decisions(z, self.step)
        scaled = self.derivatives
        if scaled is None:
            scaled = scaled_derivatives(column_counts(a, y, w), self.two_classes, factor)
        gradient, curvature = per_row(derivative, y, w, scaled)
        return list(zip((-gradient).tolist(), (-curvature).tolist(), strict=True))

    def calc_ders_multi(
        self, approxes: Any, target: Any, weight: float
    ) -> tuple[list[float], list[list[float]]]:
        """Minus gradient and minus curvature of one row of several classes or labels."""
        self.show(1)
        if self.layout is None:
            raise ValueError(
                "the objective needs the labels of the training set for several classes or labels: "
                "pass objective(..., y_true=y)"
            )
        z, y = np.asarray(approxes, dtype=float), np.asarray(target, dtype=float)
        row = self.of_rows.get(_key(z, y, weight))
        if row is None:  # start margins and weights, which CatBoost rounds to 32 bits
            (row,) = self.derivatives_of(z[None], y[None], np.array([weight]))
        gradient, curvature = row
        zeros = [0.0] * len(curvature)
        return gradient, [[*zeros[:k], x, *zeros[k + 1 :]] for k, x in enumerate(curvature)]

    def derivatives_of(
        self, z: Array, y: Array, weight: Array
    ) -> list[tuple[list[float], list[float]]]:
        """Minus gradient and minus curvature of each of some rows of several columns."""
        assert self.layout is not None
        labels = y if y.ndim == 2 else (y[:, None] == np.arange(z.shape[1])).astype(float)
        both = several.per_row(z, labels, self.layout, self.step, weight, self.of_columns)
        return list(zip(*((-x).tolist() for x in both), strict=True))

    def show(self, rows: int) -> None:
        """Count the rows that were passed since the training set was evaluated."""
        self.fresh, self.shown = False, self.shown + rows
        # A tree passes all rows twice: once for its shape, once for its leaves.
        if self.rows is not None and self.shown > 2 * self.rows:
            raise ValueError(
                "the objective has not seen the training set since the last tree; pass the same "
                f"object as eval_metric, with the settings {SETTINGS}"
            )


def _key(z: Array, y: Array, weight: float) -> tuple[bytes, bytes, float]:
    """By what the derivatives of a row are found again."""
    return (
        np.ascontiguousarray(z, dtype=float).tobytes(),
        np.asarray(y, dtype=float).tobytes(),
        weight,
    )


def _start(y: Array, margin: Array | float) -> Array:
    """The start margins, `(n,)` for two classes and `(n, columns)` for several."""
    if y.ndim == 2:
        return np.broadcast_to(margin, y.shape).astype(float)
    start = np.asarray(margin, dtype=float)
    columns = start.shape[1] if start.ndim == 2 else int(y.max()) + 1
    shape = y.shape if columns <= 2 and start.ndim < 2 else (len(y), columns)
    return np.broadcast_to(start, shape).copy()


def for_labels(kind: type[BlockMetric]) -> Any:
    """The class as CatBoost recognises it for several labels."""
    catboost = import_module("catboost")
    bases = catboost.MultiTargetCustomObjective, catboost.MultiTargetCustomMetric
    return type(kind.__name__, (kind, *bases), {})
