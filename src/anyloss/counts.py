"""Counts: the four cells, soft or hard, from scores and labels; and the score they give.

They are taken over the rows of `(samples, rows, classes)`, see `shapes`, and run on any
framework's tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from anyloss.arithmetic import NUMPY, Array, Cell, Ops, mirrored_sigmoid, mirrored_softmax
from anyloss.metrics import MULTICLASS, Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.shapes import Layout, Rows, prepare
from anyloss.steps import Hard, Step, check_step

AVERAGES = ("auto", "binary", "macro", "micro", "weighted", "multiclass", None)


@dataclass(frozen=True)
class Counts:
    """The four cells, one number or one per class; counts of parts are merged by addition.

    >>> Counts(tp=1.0, fn=0.0, fp=2.0, tn=5.0) + Counts(tp=3.0, fn=1.0, fp=0.0, tn=2.0)
    Counts(tp=4.0, fn=1.0, fp=2.0, tn=7.0)
    """

    tp: Array
    fn: Array
    fp: Array
    tn: Array

    def __iter__(self) -> Iterator[Array]:
        return iter((self.tp, self.fn, self.fp, self.tn))

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(mine + yours for mine, yours in zip(self, other, strict=True)))


def check_average(chosen: Metric, average: str | None) -> None:
    """Refuse an unknown average, and the multiclass form of a metric that has none."""
    if average not in AVERAGES:
        raise ValueError(f"average must be one of {AVERAGES}; got {average!r}")
    if average == "multiclass" and chosen.function not in MULTICLASS:
        names = ", ".join(function.__name__ for function in MULTICLASS)
        raise ValueError(
            f"average='multiclass' is for metrics with a multiclass form ({names}); "
            f"got {chosen.name!r}"
        )


def decisions(
    scores: Array, step: Step, kind: str, from_logits: bool, ops: Ops
) -> tuple[Array, Array]:
    """The soft decisions and their mirrors, for logits or probabilities."""
    p, q = pair(scores, step, kind, from_logits, ops)
    return (step.multiclass if kind == "multiclass" else step.both)(p, q, ops)


def pair(scores: Array, step: Step, kind: str, from_logits: bool, ops: Ops) -> tuple[Array, Array]:
    """What a step is given: `(p, 1 - p)`, or `(z, -z)` for a step on the logit."""
    if kind == "multiclass":
        return mirrored_softmax(scores, ops) if from_logits else (scores, 1 - scores)
    if not step.on_logit:
        return mirrored_sigmoid(scores, ops) if from_logits else (scores, 1 - scores)
    if not from_logits:
        p, q = (ops.where(x < ops.tiny, ops.tiny, x) for x in (scores, 1 - scores))
        scores = ops.log(p) - ops.log(q)
    return scores, -scores


def count(given: Rows, step: Step, from_logits: bool, ops: Ops) -> Counts:
    """The counts under a step, with axes `(samples, 1, classes)`."""
    check_step(step)
    a, b = decisions(given.scores, step, given.layout.kind, from_logits, ops)
    return tally(a, b, given.y, given.weight, ops)


def tally(a: Array, b: Array, y: Array, weight: Array | None, ops: Ops) -> Counts:
    """Count soft decisions `a`, mirrors `b` and labels `y` over the rows, the middle axis."""
    positive, negative = (y, 1 - y) if weight is None else (weight * y, weight * (1 - y))
    return Counts(
        *(ops.sum(x, 1) for x in (positive * a, positive * b, negative * a, negative * b))
    )


def counts_of_sums(soft: Array, hits: Array, positives: Array, rows: Array) -> Counts:
    """Soft positives, hits, positives and rows to the four cells; differences are clamped at 0.

    >>> counts_of_sums(soft=3.0, hits=2.0, positives=2.0, rows=10.0)
    Counts(tp=2.0, fn=0.0, fp=1.0, tn=7.0)
    """
    cells = hits, positives - hits, soft - hits, rows - positives - soft + hits
    if isinstance(hits, float):
        return Counts(*(0.0 if x < 0.0 else x for x in cells))
    return Counts(*(np.maximum(x, 0.0) for x in cells))


def two_classes(counts: Counts, ops: Ops) -> Counts:
    """The counts of a binary column, seen as two classes: the negative one first."""
    tp, fn, fp, tn = counts
    return Counts(*(ops.concat(part) for part in ([tn, tp], [fp, fn], [fn, fp], [tp, tn])))


def averaged(chosen: Metric, cells: tuple[Cell, ...], average: str | None, ops: Ops) -> Cell:
    """The score of one set of cells per class (the last axis), averaged as asked."""
    if average == "multiclass":
        parts, combine = MULTICLASS[chosen.function]
        whole: Cell = combine(*(part.sum() for part in parts(*cells)))
        return whole
    if average == "micro":
        cells = tuple(cell.sum() for cell in cells)
    result: Cell = chosen(*cells)
    if average == "macro":
        result = (result * (1 / cells[0].value.shape[-1])).sum()
    elif average == "weighted":
        result = (result * _share(cells[0].value + cells[1].value, -1, ops)).sum()
    return result


def score_counts(
    counts: Counts, chosen: Metric, lay: Layout, ops: Ops, smooth: float = 0.0
) -> Array:
    """The score of counts with axes `(samples, 1, classes)`: a scalar, or one number per class."""
    cells = tuple(Cell(x + smooth, ops=ops) for x in class_counts(counts, lay, ops))
    value = averaged(chosen, cells, lay.average, ops).value
    value = ops.sum(value * sample_share(counts, ops), 0)
    return value[0, 0, :] if lay.average is None else value[0, 0, 0]


def check_smooth(smooth: float) -> None:
    """Refuse what cannot be added to counts."""
    if not 0 <= smooth < math.inf:
        raise ValueError(f"smooth must be a number >= 0; got {smooth!r}")


def check_finite(counts: Counts, values: list[Array], chosen: Metric) -> None:
    """Refuse a batch that would put a NaN or an infinity into the weights of a model."""
    if math.isfinite(sum(float(x.sum()) if hasattr(x, "sum") else x for x in values)):
        return
    cells = {name: np.asarray(x).ravel().tolist() for name, x in vars(counts).items()}
    if all(np.isfinite(cell).all() for cell in cells.values()):
        raise ValueError(f"metric {chosen.name!r} is not finite for the counts {cells}")
    raise ValueError(
        "input must hold numbers, not NaN, and weights must not overflow; the counts came out as "
        f"{cells}"
    )


def sample_share(counts: Counts, ops: Ops) -> Array:
    """How much each sample counts in the mean over samples: by its weight, so 0 without a row."""
    if counts.tp.shape[0] == 1:
        return 1.0
    return _share(ops.sum(counts.tp + counts.fn + counts.fp + counts.tn, -1), 0, ops)


def _share(x: Array, axis: int, ops: Ops) -> Array:
    """What part of the sum over an axis each entry is; 0 where the sum is."""
    whole = ops.sum(x, axis)
    empty = whole < ops.tiny
    return ops.where(empty, 0.0, x / ops.where(empty, 1.0, whole))


def class_counts(counts: Counts, lay: Layout, ops: Ops) -> Counts:
    """One set of counts per class that the average is taken over."""
    if lay.kind == "binary" and lay.average != "binary":
        return two_classes(counts, ops)
    if lay.kind == "multiclass" and lay.average == "binary":
        return Counts(*(x[..., 1:] for x in counts))
    return counts


def counts(
    y_true: Array,
    y_score: Array,
    step: Step = Hard(),
    *,
    from_logits: bool = False,
    weight: Array | None = None,
    multiclass: bool = False,
    per_sample: bool = False,
    ignore_index: int | None = None,
) -> Counts:
    """The four cells in NumPy: hard by default, soft under any other step.

    `y_score` holds probabilities, or logits with `from_logits=True`. A binary column gives four
    floats; `(n, C)` scores give arrays with one entry per class, `per_sample=True` one row each
    per sample.

    >>> counts([1, 1, 0, 0], [0.9, 0.4, 0.6, 0.2])
    Counts(tp=1.0, fn=1.0, fp=1.0, tn=1.0)
    """
    found = prepare(
        y_true, y_score, from_logits=from_logits, weight=weight, multiclass=multiclass,
        per_sample=per_sample, ignore_index=ignore_index,
    )  # fmt: skip
    cells = count(found, step, from_logits, NUMPY)
    if found.layout.kind == "binary" and not per_sample:
        return Counts(*(float(x[0, 0, 0]) for x in cells))
    return Counts(*(x[:, 0, :] if per_sample else x[0, 0, :] for x in cells))


def score(
    y_true: Array,
    y_score: Array,
    metric: MetricSpec | Metric = "f1",
    step: Step = Hard(),
    *,
    average: str | None = "auto",
    smooth: float = 0.0,
    from_logits: bool = False,
    weight: Array | None = None,
    multiclass: bool = False,
    per_sample: bool = False,
    ignore_index: int | None = None,
) -> Array:
    """The metric of scores and labels in NumPy: the true one, or the soft one under another step.

    >>> score([1, 1, 0, 0], [0.9, 0.4, 0.6, 0.2], "f1")
    0.5
    """
    chosen = find_metric(metric)
    found = prepare(
        y_true, y_score, from_logits=from_logits, weight=weight, multiclass=multiclass,
        per_sample=per_sample, ignore_index=ignore_index, average=average,
    )  # fmt: skip
    check_average(chosen, found.layout.average)
    check_smooth(smooth)
    cells = count(found, step, from_logits, NUMPY)
    smooth = 0.0 if isinstance(step, Hard) else smooth  # the true metric has none
    value = score_counts(cells, chosen, found.layout, NUMPY, smooth)
    check_finite(cells, [value], chosen)
    return float(value) if value.ndim == 0 else value
