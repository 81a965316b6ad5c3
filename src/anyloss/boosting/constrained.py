"""Constraints in boosting: the multipliers of the Lagrangian, which move between rounds."""

from __future__ import annotations

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.constraints import Constraint
from anyloss._core.counts import column_counts
from anyloss._core.lagrangian import lagrangian, moved
from anyloss.metrics import Metric


class MovingMetric:
    """The metric that each round is trained for: the Lagrangian of the round, or the metric itself.

    >>> from anyloss._core.constraints import read_constraints
    >>> from anyloss import metric
    >>> found = MovingMetric(metric("precision"), read_constraints("recall >= 0.9"))
    >>> round_1, round_2 = (found.at(-np.ones(4), np.array([1.0, 1.0, 0.0, 0.0])) for _ in range(2))
    >>> round(round_1(1.0, 1.0, 1.0, 1.0), 4), round(round_2(1.0, 1.0, 1.0, 1.0), 4)
    (0.5, -0.2152)
    """

    def __init__(self, metric: Metric, constraints: tuple[Constraint, ...]) -> None:
        self.metric, self.constraints = metric, constraints
        self.now: list[Array] = [0.0] * len(constraints)
        self.sums = self.now

    def check_columns(self, margin: Array) -> None:
        """Refuse constraints for several classes and labels."""
        if self.constraints:
            raise ValueError(
                f"constraints are for two classes; got margins of shape {margin.shape}. Leave out "
                "constraints=, or train one class against the rest"
            )

    def at(self, margin: Array, y: Array, weight: Array | None = None) -> Metric:
        """The metric for the round that starts from these margins."""
        if not self.constraints:
            return self.metric
        found = lagrangian(self.metric, self.constraints, self.now)
        decided = column_counts((margin > 0).astype(float), y, weight)
        both = moved(self.sums, self.constraints, map(np.float64, decided))
        self.now, self.sums = ([float(x) for x in each] for each in both)
        return found
