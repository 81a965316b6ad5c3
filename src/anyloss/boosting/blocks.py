"""The objective for CatBoost, which passes blocks of at most 1000 rows. Experimental.

The counts are nevertheless those of the whole training set. CatBoost evaluates `eval_metric` on all
rows after every tree; the object that is both objective and metric keeps these counts for the next
tree. The counts of the first tree come from the labels and start margins, if they are passed. This
depends on CatBoost's order of evaluation (as of version 1.2), so the order is checked: an objective
that has not seen the training set since the last tree raises an error.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.constraints import Constraint
from anyloss._core.counts import column_counts
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

    def __init__(self, metric: Metric) -> None:
        self.metric = metric

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # CatBoost copies its parameters, but there must be one set of counts

    def is_max_optimal(self) -> bool:
        return True

    def get_final_error(self, error: float, weight: float) -> float:
        return error

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        if len(approxes) != 1:
            raise ValueError(f"expected one margin per row; got {len(approxes)}: several classes")
        z, y = np.asarray(approxes[0], dtype=float), np.asarray(target, dtype=float)
        w = None if weight is None or not len(weight) else np.asarray(weight, dtype=float)
        self.seen(z, y, w)
        return hard_score(z, y, self.metric, w), 1.0

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

    def __init__(
        self, metric: Metric, step: Step, y: Array | None, margin: Array, weight: Array | None,
        constraints: tuple[Constraint, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__(metric)
        self.moving = MovingMetric(metric, constraints)
        self.step, self.shown, self.fresh = step, 0, False
        self.rows: int | None = None
        self.derivatives: ScaledDerivatives | None = None
        if y is not None:
            self.count(np.broadcast_to(margin, y.shape).astype(float), y, weight)

    def count(self, z: Array, y: Array, weight: Array | None) -> None:
        """Keep the counts of the whole training set for the next tree."""
        a, _, factor = decisions(z, self.step)
        self.counts = column_counts(a, y, weight)
        self.derivatives = scaled_derivatives(self.counts, self.moving.at(z, y, weight), factor)
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
        self.fresh, self.shown = False, self.shown + len(z)
        # A tree passes all rows twice: once for its shape, once for its leaves.
        if self.rows is not None and self.shown > 2 * self.rows:
            raise ValueError(
                "the objective has not seen the training set since the last tree; pass the same "
                f"object as eval_metric, with the settings {SETTINGS}"
            )
        a, derivative, factor = decisions(z, self.step)
        scaled = self.derivatives
        if scaled is None:
            scaled = scaled_derivatives(column_counts(a, y, w), self.metric, factor)
        gradient, curvature = per_row(derivative, y, w, scaled)
        return list(zip((-gradient).tolist(), (-curvature).tolist(), strict=True))
