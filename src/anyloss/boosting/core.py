"""The mathematical core: gradient and curvature of `n (1 - soft metric)` for each row.

The metric depends on the rows only through the four soft counts of the whole training set. Its
gradient therefore needs two numbers, the derivatives of the score by a unit of soft decision of a
positive row (`d_positive`) and of a negative row (`d_negative`), and the derivative of each row's
own soft decision `a(z)` by its margin:

    gradient_i  = -n w_i (y_i d_positive + (1 - y_i) d_negative) a'(z_i)
    curvature_i =  n w_i  mean |y d_positive + (1 - y) d_negative|  a'(z_i)

The gradient is exact. The curvature is a choice: the true one is negative for half of the rows,
but trees need a positive one. This is the curvature of the log-loss, `p (1 - p)` where the soft
decision is the probability, in the unit of the gradient, so that a Newton step is never longer than
a few logits. `n` is the sum of the weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anyloss._core.backend import NUMPY, Array
from anyloss._core.counts import Counts, column_counts, pair
from anyloss._core.gradient import binary_derivatives, column_decisions
from anyloss.metrics import Metric
from anyloss.steps import Amplified, Step, Uniform

LEAST, MOST = 1e-16, 1e20  # the libraries compute in float32


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


class ScaledDerivatives(NamedTuple):
    """`d_positive` and `d_negative` times `n`, and their mean absolute value over the rows."""

    d_positive: float
    d_negative: float
    mean: float


def decisions(margin: Array, step: Step) -> tuple[Array, Array, float]:
    """The soft decision of each row, its derivative by the margin, and a factor of the latter.

    >>> a, derivative, factor = decisions(np.zeros(1), Uniform())
    >>> a.tolist(), derivative.tolist(), factor
    ([0.5], [0.25], 1.0)
    """
    if isinstance(step, Amplified) or (isinstance(step, Uniform) and step.is_identity):
        return column_decisions(margin, step)
    p, q = pair(margin, step, "binary", True, NUMPY)
    a, _ = step.both(p, q, NUMPY)
    density = step.density(p, q, NUMPY)
    return a, (density if step.on_logit else density * p * q), 1.0


def scaled_derivatives(counts: Counts, metric: Metric, factor: float = 1.0) -> ScaledDerivatives:
    """The derivatives of the metric in the unit of `n (1 - metric)`, times a factor.

    >>> from anyloss import metric
    >>> scaled_derivatives(Counts(tp=80.0, fn=20.0, fp=20.0, tn=880.0), metric("f1"))
    ScaledDerivatives(d_positive=6.0, d_negative=-4.0, mean=4.2)
    """
    _, *both = binary_derivatives(counts, metric)
    positives, negatives = counts.tp + counts.fn, counts.fp + counts.tn
    n = (positives + negatives) * factor
    d_positive, d_negative = (min(max(n * x, -MOST), MOST) for x in both)
    share = positives / (positives + negatives)
    mean = share * abs(d_positive) + (1 - share) * abs(d_negative)
    return ScaledDerivatives(d_positive, d_negative, mean)


def per_row(
    derivative: Array, y: Array, weight: Array | None, scaled: ScaledDerivatives
) -> tuple[Array, Array]:
    """Gradient and curvature of each row, from the derivative of its soft decision."""
    if weight is not None:
        derivative = derivative * weight
    gradient = y * (scaled.d_negative - scaled.d_positive)
    gradient -= scaled.d_negative
    gradient *= derivative
    return gradient, np.maximum(derivative * scaled.mean, LEAST)


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
    a, derivative, factor = decisions(margin, step)
    scaled = scaled_derivatives(column_counts(a, y, weight), metric, factor)
    return per_row(derivative, y, weight, scaled)


def soft_score(
    margin: Array, y: Array, metric: Metric, step: Step, weight: Array | None = None
) -> float:
    """The soft metric of margins, which the objective maximises.

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
