"""Slopes: the closed-form gradient of any metric, without an autodiff framework.

The score depends on the rows only through the counts, so two numbers per class say it all: what
one more soft positive is worth among the positive rows (`A`) and among the negative rows (`B`),
`d score / d a_i = w_i (y_i A + (1 - y_i) B)`. They come out of the metric itself, evaluated on
cells that carry their slopes (`arithmetic.Cell`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from anyloss._core.backend import FLOATS, NUMPY, Array, Backend, softmax_back
from anyloss._core.cell import Cell
from anyloss._core.counts import (
    Counts,
    averaged,
    check_average,
    check_number,
    count,
    counts_of_sums,
    pair,
    part_of_mean,
    whole_score,
)
from anyloss._core.shapes import (
    Layout,
    PerSample,
    Task,
    ZeroDivision,
    as_scores,
    make_options,
    prepare,
)
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.steps import DEFAULT, Amplified, Step, Uniform


class Slopes(NamedTuple):
    """The score of some counts, and what one more soft positive is worth."""

    score: Array
    A: Array  # among the positive rows
    B: Array  # among the negative rows


def _seeded(counts: Counts, smooth: float, backend: Backend) -> tuple[Cell, ...]:
    tp, fn, fp, tn = counts
    return (
        Cell(tp + smooth, 1.0, 0.0, backend),
        Cell(fn + smooth, -1.0, 0.0, backend),
        Cell(fp + smooth, 0.0, 1.0, backend),
        Cell(tn + smooth, 0.0, -1.0, backend),
    )


def binary_slopes(
    counts: Counts, chosen: Metric, smooth: float = 0.0, backend: Backend = FLOATS
) -> Slopes:
    """The slopes of one set of counts, in plain floats.

    >>> binary_slopes(Counts(tp=80.0, fn=20.0, fp=20.0, tn=880.0), find_metric("f1"))
    Slopes(score=0.8, A=0.006, B=-0.004)
    """
    result = chosen(*_seeded(counts, smooth, backend))
    return Slopes(result.value, result.A, result.B)


def class_slopes(
    counts: Counts,
    chosen: Metric,
    lay: Layout,
    smooth: float = 0.0,
    sample_weight: Array | None = None,
) -> Slopes:
    """The slopes of NumPy counts with axes `(samples, 1, classes)`, for any average.

    With `average=None` the slopes are those of the sum of the scores.
    """
    found = averaged(chosen, counts, lay, NUMPY, smooth=smooth, slopes=True)
    part = part_of_mean(found, counts, lay, NUMPY, sample_weight)
    total, weight = (found.score.value * part).sum(0, keepdims=True), part.sum(0, keepdims=True)
    part = part / np.where(weight < NUMPY.tiny, 1.0, weight)
    A, B = _by_column(found.score.A * part, found.score.B * part, counts, lay)
    return Slopes(whole_score(total, weight, lay, False, NUMPY), A, B)


def sample_slopes(counts: Counts, chosen: Metric, lay: Layout) -> Slopes:
    """The same for each sample on its own, before the mean over samples."""
    score = averaged(chosen, counts, lay, NUMPY, slopes=True).score
    return Slopes(score.value, *_by_column(score.A, score.B, counts, lay))


def _by_column(A: Array, B: Array, counts: Counts, lay: Layout) -> tuple[Array, Array]:
    """The slopes of each column of the scores, from those of the classes averaged over."""
    samples, columns = counts.tp.shape[0], counts.tp.shape[-1]
    if lay.task == "binary" and lay.average != "binary":
        # One column decides both classes: a positive row's decision is a miss of class 0.
        A, B = (np.broadcast_to(x, (samples, 1, 2)) for x in (A, B))
        return A[..., 1:] - B[..., :1], B[..., 1:] - A[..., :1]
    if lay.task == "multiclass" and lay.average == "binary":
        none = np.zeros((samples, 1, 1))
        A, B = (np.concatenate([none, np.broadcast_to(x, none.shape)], axis=-1) for x in (A, B))
        return A, B
    return np.broadcast_to(A, (samples, 1, columns)), np.broadcast_to(B, (samples, 1, columns))


def _sigmoid_and_slope(x: Array) -> tuple[Array, Array]:
    """`sigmoid(x)` and its slope for `x <= 0`, where neither loses digits."""
    e = np.exp(x)
    whole = e + 1
    e /= whole
    return e, e / whole


def column_decisions(z: Array, step: Amplified | Uniform) -> tuple[Array, Array, float]:
    """The soft decisions of a column of logits, their slopes by the logits, and a factor of these.

    For `Amplified`, and for `Uniform` where it is the identity; in the type of `z` and in as few
    operations as can be.

    >>> a, slope, factor = column_decisions(np.zeros(1), Amplified(8.0))
    >>> a.tolist(), slope.tolist(), factor
    ([0.5], [0.0625], 8.0)
    """
    number = z.dtype.type
    minus_one = number(-1)
    s, slope = _sigmoid_and_slope(np.copysign(z, minus_one))
    if isinstance(step, Uniform):
        return np.abs((z > 0) - s), slope, 1.0
    scale, threshold = number(step.scale), number(step.threshold)
    if threshold == 0.5:  # the decision turns where the logit does
        sign, x = z, (s - threshold) * scale
    else:
        sign = (np.where(z > 0, 1 - s, s) - threshold) * scale
        x = np.copysign(sign, minus_one)
    small, step_slope = _sigmoid_and_slope(x)
    slope *= step_slope
    return np.abs((sign > 0) - small), slope, float(step.scale)


def column_gradient(
    z: Array,
    y: Array,
    step: Amplified | Uniform,
    evaluate: Callable[[Counts], Slopes],
    wanted: bool = True,
) -> tuple[float, Array | None]:
    """The soft score of a column of logits, and its gradient by them; see `column_decisions`.

    The same as `gradient`, in the type of `z` and in as few operations as can be: for small
    batches the number of calls is what costs. `evaluate` turns the four counts into slopes.

    >>> evaluate = lambda counts: binary_slopes(counts, find_metric("recall"))
    >>> score, grad = column_gradient(np.zeros(2), np.array([1.0, 0.0]), Amplified(8.0), evaluate)
    >>> score, grad.tolist()
    (0.5, [0.5, 0.0])
    """
    a, slope, factor = column_decisions(z, step)
    score, A, B = evaluate(column_counts(a, y, None))
    if not wanted:
        return score, None
    number, limit = z.dtype.type, float(np.finfo(z.dtype).max) / 4
    A, B = min(max(factor * A, -limit), limit), min(max(factor * B, -limit), limit)
    slope *= y * number(A - B) + number(B)
    return score, slope


def column_counts(a: Array, y: Array, weight: Array | None = None) -> Counts:
    """The counts of a column of decisions, soft or hard, in plain floats.

    The rarer class is summed itself, or its counts would be lost in the others' rounding.

    >>> column_counts(np.array([1.0, 0.0, 1.0]), np.array([1.0, 1.0, 0.0]))
    Counts(tp=1.0, fn=1.0, fp=1.0, tn=0.0)
    """
    total = np.add.reduce
    if weight is None:
        soft, rows, positives = float(total(a)), float(len(a)), float(total(y))
    else:
        soft, rows, positives = float(a @ weight), float(total(weight)), float(weight @ y)
    if 2 * positives <= rows:
        hits = float(a @ (y if weight is None else weight * y))
        return counts_of_sums(soft, hits, positives, rows)
    rest = 1 - y if weight is None else weight * (1 - y)
    tp, fn, fp, tn = counts_of_sums(soft, float(a @ rest), float(total(rest)), rows)
    return Counts(tp=fp, fn=tn, fp=tp, tn=fn)  # the classes changed places


def gradient(
    y_true: Array,
    y_score: Array,
    metric: MetricSpec | Metric = "f1",
    step: Step = DEFAULT,
    *,
    average: str | None = "auto",
    smooth: float = 0.0,
    from_logits: bool = False,
    weight: Array | None = None,
    task: Task = "auto",
    class_axis: int | None = None,
    per_sample: PerSample = False,
    zero_division: ZeroDivision = "auto",
    soft_labels: bool = False,
    ignore_index: int | None = None,
) -> tuple[Array, Array]:
    """The soft score and its gradient with respect to `y_score`, in closed form.

    `y_score` holds probabilities, or logits with `from_logits=True`. With `average=None` the
    gradient is that of the sum of the per-class scores. The arguments are those of
    `anyloss.torch.AnyLoss`.

    >>> score, grad = gradient([1, 0], [0.5, 0.5], "f1")
    >>> score, grad.tolist()
    (0.5, [0.75, -0.25])
    """
    chosen = find_metric(metric)
    check_average(chosen, average)
    check_number("smooth", smooth)
    options = make_options(
        average=average, from_logits=from_logits, per_sample=per_sample, task=task,
        class_axis=class_axis, zero_division=zero_division, soft_labels=soft_labels,
        ignore_index=ignore_index,
    )  # fmt: skip
    found = prepare(y_true, y_score, options, weight=weight, own_form=chosen.has_own_form)
    lay, y = found.layout, found.y
    cells = count(found, step, options, NUMPY)
    score, A, B = class_slopes(cells, chosen, lay, smooth, found.sample_weight)
    if soft_labels:  # more of the decision is more of `tp` below the label, of `fp` above it
        a, _ = pair(found.scores, step, lay.task, from_logits, NUMPY)
        g = (a < y) * A + (a > y) * B
    else:
        g = y * A + (1 - y) * B
    if found.weight is not None:
        g = g * found.weight
    g = _back(g, found.scores, step, lay.task, from_logits)
    return (float(score) if score.ndim == 0 else score), as_scores(g, np.shape(y_score), lay)


def _back(g: Array, scores: Array, step: Step, task: str, from_logits: bool) -> Array:
    """Carry the gradient of the decisions back to the scores."""
    p, q = pair(scores, step, task, from_logits, NUMPY)
    if task == "multiclass":
        g = step.multiclass_back(g, p, q, NUMPY)
        return softmax_back(g, p, NUMPY) if from_logits else g
    g = g * step.density(p, q, NUMPY)
    if step.on_logit and not from_logits:  # the logit of a probability, see `pair`
        inside = [np.where(x < NUMPY.tiny, np.inf, x) for x in (scores, 1 - scores)]
        return g / inside[0] + g / inside[1]
    return g * p * q if from_logits and not step.on_logit else g
