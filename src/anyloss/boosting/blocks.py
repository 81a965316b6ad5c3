"""CatBoost shows an objective blocks of at most 1000 rows, one after the other. Experimental.

The counts are those of the whole training set all the same: CatBoost evaluates `eval_metric` on
all rows after every tree, and the object that is both objective and metric keeps the counts it
sees there for the next tree. The first tree's counts come from the labels and start margins, if
these are given. This leans on CatBoost's order of evaluation (seen in version 1.2), so the order is
checked: an objective that has not seen the training set since the last tree stops the training.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.gradient import column_counts
from anyloss.boosting.core import Worth, decisions, derivatives, hard_score, worth
from anyloss.metrics import Metric
from anyloss.steps import Step

# What CatBoost must be told, or its trees see other counts than the last evaluation.
SETTINGS = {
    "boosting_type": "Plain",
    "bootstrap_type": "No",
    "has_time": True,  # one order of the rows: categories are coded by the rows before
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
        return self  # CatBoost copies its parameters; the counts must reach the one that counts

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
        """Told of each set of rows that is evaluated."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metric.name!r})"


class BlockObjective(BlockMetric):
    """Objective and metric in one, for `loss_function=` and `eval_metric=` of CatBoost.

    CatBoost must be given `SETTINGS` too: `CatBoost({"loss_function": f, "eval_metric": f,
    **SETTINGS})`. Without the labels each block of the first tree has its own counts, which are
    those of the training set only if that is no longer than a block (500 rows for the leaves).
    """

    def __init__(
        self, metric: Metric, step: Step, y: Array | None, margin: Array, weight: Array | None
    ) -> None:
        super().__init__(metric)
        self.step, self.shown, self.fresh = step, 0, False
        self.rows: int | None = None
        self.worth: Worth | None = None
        if y is not None:
            self.count(np.broadcast_to(margin, y.shape).astype(float), y, weight)

    def count(self, z: Array, y: Array, weight: Array | None) -> None:
        """Keep the counts of the whole training set for the next tree."""
        a, _, factor = decisions(z, self.step)
        self.counts = column_counts(a, y, weight)
        self.worth = worth(self.counts, self.metric, factor)
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
        if (
            self.rows is not None and self.shown > 2 * self.rows
        ):  # once for the shape of the tree, once for its leaves
            raise ValueError(
                "the objective has not seen the training set since the last tree; it must be given "
                f"as eval_metric too, with the settings {SETTINGS}"
            )
        a, slope, factor = decisions(z, self.step)
        value = self.worth or worth(column_counts(a, y, w), self.metric, factor)
        gradient, curvature = derivatives(slope, y, w, value)
        return list(zip((-gradient).tolist(), (-curvature).tolist(), strict=True))
