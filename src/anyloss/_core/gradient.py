"""The closed-form gradient of any metric, without an autodiff framework.

The score depends on the samples only through the counts. Two derivatives per class are therefore
enough for the gradient: how the score changes per unit of soft decision of a positive sample
(`d_positive`) and of a negative sample (`d_negative`),
`d score / d a_i = w_i (y_i d_positive + (1 - y_i) d_negative)`. They come from the metric itself,
which is evaluated on cells that carry their derivatives (`Cell`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from anyloss._core.backend import FLOATS, NUMPY, Array, Backend
from anyloss._core.cell import Cell
from anyloss._core.counts import Counts
from anyloss._core.metric import Metric
from anyloss._core.scoring import (
    averaged,
    in_form,
    part_of_mean,
    score_parts,
    whole_loss,
    whole_score,
)
from anyloss._core.shapes import Layout
from anyloss.steps import Amplified, Uniform


class Derivatives(NamedTuple):
    """The score of counts, and how it changes per unit of soft decision of a sample."""

    score: Array
    d_positive: Array  # of a positive sample
    d_negative: Array  # of a negative sample


def _seeded(counts: Counts, smooth: float, backend: Backend) -> tuple[Cell, ...]:
    tp, fn, fp, tn = counts
    return (
        Cell(tp + smooth, 1.0, 0.0, backend),
        Cell(fn + smooth, -1.0, 0.0, backend),
        Cell(fp + smooth, 0.0, 1.0, backend),
        Cell(tn + smooth, 0.0, -1.0, backend),
    )


def binary_derivatives(
    counts: Counts, chosen: Metric, smooth: float = 0.0, backend: Backend = FLOATS,
    form: str = "linear",
) -> Derivatives:  # fmt: skip
    """The derivatives of one set of counts, as Python floats.

    >>> from anyloss import metric
    >>> binary_derivatives(Counts(tp=80.0, fn=20.0, fp=20.0, tn=880.0), metric("f1"))
    Derivatives(score=0.8, d_positive=0.006, d_negative=-0.004)
    """
    result = in_form(chosen(*_seeded(counts, smooth, backend)), form)
    return Derivatives(result.value, result.d_positive, result.d_negative)


Merge = Callable[[Array, Array], tuple[Array, Array]]


def class_derivatives(
    counts: Counts, chosen: Metric, lay: Layout, smooth: float = 0.0,
    sample_weight: Array | None = None, backend: Backend = NUMPY, merge: Merge | None = None,
    of_loss: bool = False,
) -> Derivatives:  # fmt: skip
    """The derivatives of counts with axes `(samples, 1, classes)`, for any average.

    With `average=None` and `reduction="none"` they are the derivatives of the sum of the scores.
    `merge` adds the scores and weights of samples that are elsewhere to the two sums of the mean
    over samples. With `of_loss`, the score is one minus the loss, also where the loss is a sum.
    """
    found = averaged(chosen, counts, lay, backend, smooth=smooth, derivatives=True)
    part = part_of_mean(found, counts, lay, backend, sample_weight)
    total, weight = score_parts(found, part, lay, backend)
    if merge is not None:
        total, weight = merge(total, weight)
    a_sum = lay.reduction == "sum" or (lay.reduction == "none" and of_loss)
    if not (a_sum or isinstance(part, float)):
        part = part / backend.where(weight < backend.tiny, 1.0, weight)
    d_positive, d_negative = _by_column(
        found.score.d_positive * part, found.score.d_negative * part, counts, lay, backend
    )
    if of_loss:
        score = 1 - whole_loss(total, weight, lay, backend)
    else:
        score = whole_score(total, weight, lay, False, backend)
    return Derivatives(score, d_positive, d_negative)


def sample_derivatives(counts: Counts, chosen: Metric, lay: Layout) -> Derivatives:
    """The derivatives of each sample's own score, before the mean over samples."""
    score = averaged(chosen, counts, lay, NUMPY, derivatives=True).score
    both = _by_column(score.d_positive, score.d_negative, counts, lay, NUMPY)
    return Derivatives(score.value, *both)


def _by_column(
    d_positive: Array, d_negative: Array, counts: Counts, lay: Layout, backend: Backend
) -> tuple[Array, Array]:
    """The derivatives for each column of the scores, from those of the averaged classes."""
    zero = counts.tp * 0.0
    if lay.task == "binary" and lay.average != "binary":
        # One column decides both classes: a positive decision is a negative one for class 0.
        two = backend.concat([zero, zero])
        p, n = d_positive + two, d_negative + two
        return p[..., 1:] - n[..., :1], n[..., 1:] - p[..., :1]
    if lay.task == "multiclass" and lay.average == "binary":
        none = zero[..., :1]
        return backend.concat([none, d_positive + none]), backend.concat([none, d_negative + none])
    return d_positive + zero, d_negative + zero


def _sigmoid_and_derivative(x: Array) -> tuple[Array, Array]:
    """`sigmoid(x)` and its derivative for `x <= 0`, where neither loses digits."""
    e = np.exp(x)
    whole = e + 1
    e /= whole
    return e, e / whole


def column_decisions(z: Array, step: Amplified | Uniform) -> tuple[Array, Array, float]:
    """The soft decisions of a column of logits, their derivatives, and a factor of these.

    The step is `Amplified`, or `Uniform` where it is the identity. The smaller of each decision and
    its mirror is computed. The result has the type of `z` and takes few operations.

    >>> a, derivative, factor = column_decisions(np.zeros(1), Amplified(8.0))
    >>> a.tolist(), derivative.tolist(), factor
    ([0.5], [0.0625], 8.0)
    """
    number = z.dtype.type
    minus_one = number(-1)
    s, derivative = _sigmoid_and_derivative(np.copysign(z, minus_one))
    if isinstance(step, Uniform):
        return np.abs((z > 0) - s), derivative, 1.0
    scale, threshold = number(step.scale), number(step.threshold)
    if threshold == 0.5:  # the decision changes its side where the logit does
        sign, x = z, (s - threshold) * scale
    else:
        sign = (np.where(z > 0, 1 - s, s) - threshold) * scale
        x = np.copysign(sign, minus_one)
    small, step_derivative = _sigmoid_and_derivative(x)
    derivative *= step_derivative
    return np.abs((sign > 0) - small), derivative, float(step.scale)
