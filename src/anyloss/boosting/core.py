"""The mathematical core: gradient and curvature of `n (1 - soft metric)`, row by row.

The metric sees the rows only through the four soft counts of the whole training set. So two
numbers, what one more soft positive is worth among the positive rows (`A`) and among the negative
rows (`B`), and the slope of each row's own soft decision `a(z)` say it all:

    gradient_i  = -n w_i (y_i A + (1 - y_i) B) a'(z_i)
    curvature_i =  n w_i  mean |y A + (1 - y) B|  a'(z_i)

The gradient is exact. The curvature is a choice: the true one is negative for half of the rows,
and trees need a positive one. This one is that of the log-loss, `p (1 - p)` where the soft decision
is the probability, in the unit of the gradient: a Newton step is never longer than a few logits.
`n` is the sum of the weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anyloss._core.backend import NUMPY, Array
from anyloss._core.counts import Counts, pair
from anyloss._core.gradient import binary_slopes, column_counts, column_decisions
from anyloss.metrics import Metric
from anyloss.steps import Amplified, Step, Uniform

LEAST, MOST = 1e-16, 1e20  # what a library is given must fit into its float32


def step_of(scale: float | str) -> Step:
    """The soft decision: the probability itself (`"auto"`), or amplified by a scale.

    >>> step_of("auto")
    Uniform(delta=None, threshold=0.5)
    >>> step_of(10)
    Amplified(scale=10, threshold=0.5)
    """
    if isinstance(scale, str):
        if scale != "auto":
            raise ValueError(f"scale must be 'auto' or a positive number; got {scale!r}")
        return Uniform()
    return Amplified(scale)


class Worth(NamedTuple):
    """What a soft positive is worth, times `n`: among positive rows, negative rows, on average."""

    positive: float
    negative: float
    average: float


def decisions(margin: Array, step: Step) -> tuple[Array, Array, float]:
    """The soft decision of each row, its slope by the margin, and a factor of the slopes.

    >>> a, slope, factor = decisions(np.zeros(1), Uniform())
    >>> a.tolist(), slope.tolist(), factor
    ([0.5], [0.25], 1.0)
    """
    if isinstance(step, Amplified) or (isinstance(step, Uniform) and step.is_identity):
        return column_decisions(margin, step)
    p, q = pair(margin, step, "binary", True, NUMPY)
    a, _ = step.both(p, q, NUMPY)
    slope = step.density(p, q, NUMPY)
    return a, (slope if step.on_logit else slope * p * q), 1.0


def worth(counts: Counts, metric: Metric, factor: float = 1.0) -> Worth:
    """The slopes of the metric at some counts, in the unit of `n (1 - metric)`, times a factor.

    >>> from anyloss import metric
    >>> worth(Counts(tp=80.0, fn=20.0, fp=20.0, tn=880.0), metric("f1"))
    Worth(positive=6.0, negative=-4.0, average=4.2)
    """
    _, A, B = binary_slopes(counts, metric)
    positives, negatives = counts.tp + counts.fn, counts.fp + counts.tn
    n = (positives + negatives) * factor
    A, B = (min(max(n * x, -MOST), MOST) for x in (A, B))
    share = positives / (positives + negatives)
    return Worth(A, B, share * abs(A) + (1 - share) * abs(B))


def derivatives(slope: Array, y: Array, weight: Array | None, value: Worth) -> tuple[Array, Array]:
    """Gradient and curvature of each row, from its slope and what the metric makes of it."""
    if weight is not None:
        slope = slope * weight
    gradient = y * (value.negative - value.positive)
    gradient -= value.negative
    gradient *= slope
    return gradient, np.maximum(slope * value.average, LEAST)


def gradient_and_curvature(
    margin: Array, y: Array, metric: Metric, step: Step, weight: Array | None = None
) -> tuple[Array, Array]:
    """Gradient and curvature of `n (1 - soft metric)` by the margins; labels are 0 and 1.

    >>> from anyloss import metric
    >>> y = np.array([1.0, 0.0])
    >>> g, h = gradient_and_curvature(np.zeros(2), y, metric("f1"), Uniform())
    >>> g.tolist(), h.tolist()
    ([-0.375, 0.125], [0.25, 0.25])
    """
    a, slope, factor = decisions(margin, step)
    return derivatives(slope, y, weight, worth(column_counts(a, y, weight), metric, factor))


def soft_score(
    margin: Array, y: Array, metric: Metric, step: Step, weight: Array | None = None
) -> float:
    """The soft metric of margins: what the objective raises.

    >>> from anyloss import metric
    >>> soft_score(np.zeros(2), np.array([1.0, 0.0]), metric("f1"), Uniform())
    0.5
    """
    return float(metric(*column_counts(decisions(margin, step)[0], y, weight)))


def hard_score(
    margin: Array, y: Array, metric: Metric, weight: Array | None = None, at: float = 0.0
) -> float:
    """The metric of the decisions `margin > at`.

    >>> from anyloss import metric
    >>> hard_score(np.array([2.0, -1.0, -3.0]), np.array([1.0, 1.0, 0.0]), metric("recall"))
    0.5
    """
    return float(metric(*column_counts((margin > at).astype(float), y, weight)))
