"""Shapes: what comes in, brought into three axes.

Every front-end brings its scores and labels into `(samples, rows, classes)`, and counts over the
rows: one sample unless `per_sample=True`, one class for a binary column. The functions below run on
any framework's tensors, through its `Ops`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from anyloss.arithmetic import NUMPY, Array, Ops


class Layout(NamedTuple):
    """What the shapes of scores and labels mean."""

    kind: str  # "binary", "multilabel" or "multiclass"
    average: str | None
    classes: int  # columns of the scores
    index_target: bool  # the labels are class indices, without the class axis


class Rows(NamedTuple):
    """Scores, labels and weights in the three axes, and what their shapes meant."""

    scores: Array
    y: Array
    weight: Array | None
    layout: Layout


Check = Callable[[Rows], None]


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
    check: Check | None = None,
) -> Rows:
    """Scores, labels and weights in the three axes; see `spread`."""
    shape = tuple(scores.shape)
    z, labels = rows(scores, shape, per_sample), rows(target, shape, per_sample)
    w = None if weight is None else _weight_rows(weight, labels, shape, lay)
    return spread(Rows(z, labels, w, lay), ops, ignore_index, check)


def spread(
    given: Rows, ops: Ops, ignore_index: int | None = None, check: Check | None = None
) -> Rows:
    """Leave out the rows that do not count; class indices become one column per class.

    A row of weight 0, or with the label `ignore_index`, is no row, whatever else stands in it.
    `check` is shown the rows before the indices are spread out.
    """
    z, labels, w, lay = given
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
        check(Rows(z, labels, w, lay))
    if lay.index_target:
        labels = ops.where(ops.one_hot(labels, lay.classes), 1.0, 0.0)
    return Rows(z, labels, w, lay)


def distributions(given: Rows, from_logits: bool) -> list[tuple[str, Array]]:
    """What must sum to one over the classes, with its name: to be checked by a front-end."""
    lay, found = given.layout, []
    if lay.kind == "multiclass" and not lay.index_target:
        found.append(("one-hot labels", given.y))
    if lay.kind == "multiclass" and not from_logits:
        found.append(("class probabilities", given.scores))
    return found


def check_values(given: Rows, from_logits: bool) -> None:
    """Refuse NumPy rows whose numbers cannot be what they are said to be."""
    z, y, w, lay = given
    _check_range("labels", y, 0, lay.classes - 1 if lay.index_target else 1)
    if w is not None:
        _check_range("weights", w, 0, np.finfo(float).max)
    if from_logits:
        limit = np.finfo(float).max if lay.kind == "multiclass" else np.inf
        _check_range("logits", z, -limit, limit)
    else:
        _check_range("probabilities (pass from_logits=True for logits)", z, 0, 1)
    for what, x in distributions(given, from_logits):
        present = np.ones(x.shape[:2], bool) if w is None else (w > 0).any(-1)
        _check_range(f"the sums over the classes of {what}", x.sum(-1)[present], 0.99, 1.01)


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
) -> Rows:
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

    return arrange(
        scores.astype(float),
        labels if lay.index_target else labels.astype(float),
        None if weight is None else np.asarray(weight, dtype=float),
        lay,
        NUMPY,
        per_sample=per_sample,
        ignore_index=ignore_index,
        check=partial(check_values, from_logits=from_logits),
    )


def _check_range(what: str, x: Array, low: float, high: float) -> None:
    if x.size and not (x.min() >= low and x.max() <= high):
        raise ValueError(
            f"{what} must lie in [{low}, {high}], with no NaN; got {x.min()} to {x.max()}"
        )
