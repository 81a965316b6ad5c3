"""Counts: the four cells, soft or hard, from scores and labels; and the score they give.

Shapes are explained once, here. Every front-end brings its scores and labels into three axes,
`(samples, rows, classes)`, and counts over the rows: one sample unless `per_sample=True`, one
class for a binary column. The functions below run on any framework's tensors, through its `Ops`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from anyloss.arithmetic import NUMPY, Array, Cell, Ops, mirrored_sigmoid, mirrored_softmax
from anyloss.metrics import MULTICLASS, Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.steps import Hard, Step

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


class Layout(NamedTuple):
    """What the shapes of scores and labels mean."""

    kind: str  # "binary", "multilabel" or "multiclass"
    average: str | None
    classes: int  # columns of the scores
    index_target: bool  # the labels are class indices, without the class axis

    @property
    def columns(self) -> int:
        """How many sets of counts the average is taken over."""
        return 2 if self.kind == "binary" and self.average != "binary" else self.classes


def layout(
    shape: tuple[int, ...],
    target_shape: tuple[int, ...],
    integer_target: bool,
    average: str | None = "auto",
    multiclass: bool = False,
    per_sample: bool = False,
) -> Layout:
    """Read the shapes, and refuse those that could only be matched by silent broadcasting.

    >>> layout((8, 3), (8,), integer_target=True)
    Layout(kind='multiclass', average='macro', classes=3, index_target=True)
    """
    shape, target_shape = tuple(shape), tuple(target_shape)
    if not shape:
        raise ValueError("the scores need at least one axis, such as (n,); got a single number")
    if per_sample and len(shape) < 3:
        raise ValueError(
            "per_sample=True counts within each sample and needs scores of shape (n, C, ...), "
            f"such as (n, 1, height, width); got {shape}"
        )
    classes = shape[1] if len(shape) > 1 else 1
    if classes == 0:
        raise ValueError(f"the scores need at least one column; got shape {shape}")
    index_target = classes > 1 and target_shape == shape[:1] + shape[2:]
    if index_target and not integer_target:
        raise TypeError(
            f"labels of shape {target_shape} for scores of shape {shape} are class indices and "
            "must be integers"
        )
    if not index_target and target_shape != shape:
        raise ValueError(
            f"labels must have the shape of the scores, {shape}"
            + (f", or hold class indices of shape {shape[:1] + shape[2:]}" if classes > 1 else "")
            + f"; got {target_shape}. Nothing is broadcast: use squeeze or unsqueeze to match them"
        )
    if multiclass and classes == 1:
        raise ValueError(f"multiclass=True needs scores of shape (n, C) with C > 1; got {shape}")
    kind = "multiclass" if index_target or multiclass else "multilabel" if classes > 1 else "binary"
    binary = kind == "binary" or (kind == "multiclass" and classes == 2)
    if average == "auto":
        average = "binary" if binary else "macro"
    if average == "binary" and not binary:
        raise ValueError(
            f"average='binary' needs a single column or two classes; got {classes} columns "
            f"({kind}). Use 'macro', 'micro', 'weighted' or None"
        )
    if average == "multiclass" and kind == "multilabel":
        raise ValueError(
            "average='multiclass' needs one class per row: class indices, or multiclass=True for "
            f"one-hot labels; got multilabel labels of shape {target_shape}"
        )
    return Layout(kind, average, classes, index_target)


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


def rows(x: Array, shape: tuple[int, ...], per_sample: bool) -> Array:
    """`(n, C, ...)`, or `(n, ...)` without the class axis, to `(samples, rows, C or 1)`.

    `shape` is that of the scores.
    """
    n, inner = shape[0], math.prod(shape[2:])
    if tuple(x.shape) == shape and len(shape) > 1:
        x = x.reshape((n, shape[1], inner)).swapaxes(1, 2)
    else:
        x = x.reshape((n, inner, 1))
    return x if per_sample else x.reshape((1, n * inner, x.shape[2]))


def _weight_rows(weight: Array, labels: Array, shape: tuple[int, ...], lay: Layout) -> Array:
    """Weights per row, or per row and class, to the three axes of the labels."""
    given, n, inner = tuple(weight.shape), shape[0], math.prod(shape[2:])
    full = shape[:1] + shape[2:] if lay.index_target else shape
    if given == full:
        return rows(weight, shape, per_sample=labels.shape[0] == n).reshape(labels.shape)
    if given == shape[:1]:
        # Zeros of the right shape, also where a label is NaN.
        zeros = (labels == labels).reshape((n, inner, labels.shape[2]))[..., :1] * 0
        return (weight.reshape((n, 1, 1)) + zeros).reshape((*labels.shape[:2], 1))
    expected = " or ".join(map(str, dict.fromkeys((shape[:1], full))))
    raise ValueError(f"weight must have shape {expected}; got {given}")


def arrange(
    scores: Array,
    target: Array,
    weight: Array | None,
    lay: Layout,
    ops: Ops,
    *,
    per_sample: bool = False,
    ignore_index: int | None = None,
    check: Callable[[Array, Array, Array | None], None] | None = None,
) -> tuple[Array, Array, Array | None]:
    """Scores, labels and weights in the three axes; class indices become one column per class.

    A row of weight 0, or with the label `ignore_index`, is no row, whatever else stands in it.
    `check` is shown scores, labels and weights before the indices are spread out.
    """
    shape = tuple(scores.shape)
    z, labels = rows(scores, shape, per_sample), rows(target, shape, per_sample)
    w = None if weight is None else _weight_rows(weight, labels, shape, lay)
    if ignore_index is not None:
        if lay.kind == "multiclass" and not lay.index_target:
            raise ValueError(
                "ignore_index is a class index; one-hot labels have none. Give the rows to leave "
                f"out weight 0; got ignore_index={ignore_index!r}"
            )
        keep = ops.where(labels == ignore_index, 0.0, 1.0)
        w = keep if w is None else w * keep
    if w is not None:
        z, labels = ops.where(w == 0, 0.0, z), ops.where(w == 0, 0, labels)
    if check is not None:
        check(z, labels, w)
    if lay.index_target:
        labels = ops.where(ops.one_hot(labels, lay.classes), 1.0, 0.0)
    return z, labels, w


def rows_that_sum_to_one(
    scores: Array, labels: Array, lay: Layout, from_logits: bool
) -> list[tuple[str, Array]]:
    """What must be a distribution over the classes, with its name: to be checked by a front-end."""
    found = []
    if lay.kind == "multiclass" and not lay.index_target:
        found.append(("one-hot labels", labels))
    if lay.kind == "multiclass" and not from_logits:
        found.append(("class probabilities", scores))
    return found


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
    return value.reshape((lay.columns,) if lay.average is None else ())


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
    a, b = decisions(found.scores, step, found.layout.kind, from_logits, NUMPY)
    cells = tally(a, b, found.y, found.weight, NUMPY)
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
    a, b = decisions(found.scores, step, found.layout.kind, from_logits, NUMPY)
    cells = tally(a, b, found.y, found.weight, NUMPY)
    value = score_counts(cells, chosen, found.layout, NUMPY, smooth)
    return float(value) if value.ndim == 0 else value


class Prepared(NamedTuple):
    """Checked NumPy input in the three axes."""

    scores: Array
    y: Array
    weight: Array | None
    layout: Layout


def prepare(
    y_true: Array,
    y_score: Array,
    *,
    from_logits: bool,
    weight: Array | None = None,
    multiclass: bool = False,
    per_sample: bool = False,
    ignore_index: int | None = None,
    average: str | None = "auto",
) -> Prepared:
    """Check NumPy scores and labels and bring them into the three axes."""
    scores, labels = np.asarray(y_score), np.asarray(y_true)
    if scores.dtype.kind not in "fiub" or labels.dtype.kind not in "fiub":
        raise TypeError(
            f"scores and labels must be numbers; got {scores.dtype} scores, {labels.dtype} labels"
        )
    lay = layout(
        scores.shape, labels.shape, integer_target=labels.dtype.kind in "iu", average=average,
        multiclass=multiclass, per_sample=per_sample,
    )  # fmt: skip

    def check(z: Array, y: Array, w: Array | None) -> None:
        _check_range("labels", y, 0, lay.classes - 1 if lay.index_target else 1)
        if w is not None:
            _check_range("weights", w, 0, np.finfo(float).max)
        if from_logits:
            limit = np.finfo(float).max if lay.kind == "multiclass" else np.inf
            _check_range("logits", z, -limit, limit)
        else:
            _check_range("probabilities (pass from_logits=True for logits)", z, 0, 1)
        for what, x in rows_that_sum_to_one(z, y, lay, from_logits):
            present = np.ones(x.shape[:2], bool) if w is None else (w > 0).any(-1)
            _check_range(f"the sums over the classes of {what}", x.sum(-1)[present], 0.99, 1.01)

    z, y, w = arrange(
        scores.astype(float),
        labels if lay.index_target else labels.astype(float),
        None if weight is None else np.asarray(weight, dtype=float),
        lay,
        NUMPY,
        per_sample=per_sample,
        ignore_index=ignore_index,
        check=check,
    )
    return Prepared(z, y, w, lay)


def _check_range(what: str, x: Array, low: float, high: float) -> None:
    if x.size and not (x.min() >= low and x.max() <= high):
        raise ValueError(
            f"{what} must lie in [{low}, {high}], with no NaN; got {x.min()} to {x.max()}"
        )
