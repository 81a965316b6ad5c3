"""The shapes of scores, labels and weights: their meaning, and their three common axes.

Every front-end brings its arrays into `(samples, rows, classes)` and counts over the rows. There is
one sample unless `per_sample` is set, and one class for a binary task. `layout` decides for all of
them what the shapes mean, from shapes and types and never from values. The functions run on any
framework's tensors, through its `Backend`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from anyloss._core.backend import NUMPY, Array, Backend
from anyloss._core.choices import (
    Activation,
    Form,
    Options,
    PerSample,
    Reduction,
    ZeroDivision,
    counted_classes,
    resolve_average,
)
from anyloss._core.costs import check_costs
from anyloss._core.metric import CostMatrix, Metric


class Layout(NamedTuple):
    """What the shapes of scores and labels mean, and how the classes are averaged."""

    task: str  # "binary", "multilabel" or "multiclass"
    average: str | None
    classes: int  # columns of the scores
    index_target: bool = False  # the labels are class indices, without the class axis
    class_axis: int = 1  # counted from the front
    per_sample: PerSample = False
    zero_division: ZeroDivision = "auto"
    counted: tuple[int, ...] | None = None  # the classes that count; None: all of them
    class_weights: tuple[float, ...] | str | None = None  # of the classes that count
    form: Form = "linear"  # of the loss
    reduction: Reduction = "mean"  # over the samples
    activation: Activation = "auto"  # "auto" also for what the task has anyway
    costs: CostMatrix | None = None  # by which labels and weights are counted, see `costs`

    @property
    def has_softmax(self) -> bool:
        """Whether logits become probabilities by the softmax over the classes."""
        return self.activation == "softmax" or (
            self.activation == "auto" and self.task == "multiclass"
        )

    @property
    def exclusive(self) -> bool:
        """Whether the average is over classes that exclude each other, not over labels."""
        return self.task != "multilabel" and self.average != "binary"


class Samples(NamedTuple):
    """Scores, labels and weights in the three axes, and the meaning of their shapes."""

    scores: Array
    y: Array
    weight: Array | None
    layout: Layout
    sample_weight: Array | None = None  # (samples, 1, 1): the weights in the mean over samples


Check = Callable[[Samples], None]


def layout(
    shape: tuple[int, ...],
    target_shape: tuple[int, ...],
    integer_target: bool,
    options: Options = Options(),
    metric: Metric | None = None,
) -> Layout:
    """Interpret the shapes; refuse those that have two readings or would need broadcasting.

    `metric` may have a multiclass form of its own.

    >>> layout((8, 3), (8,), integer_target=True)[:4]
    ('multiclass', 'macro', 3, True)
    >>> layout((4, 64, 64), (4, 64, 64), integer_target=True)
    Traceback (most recent call last):
        ...
    ValueError: scores and labels of shape (4, 64, 64) have two readings: task='binary', every \
number is a decision of its own (masks, tokens), or task='multilabel', 64 labels along \
class_axis=1; got task='auto'. Choose one of them; for one-hot labels of 64 classes write \
task='multiclass'
    """
    shape, target_shape = tuple(shape), tuple(target_shape)
    if not shape:
        raise ValueError("the scores need at least one axis, such as (n,); got a single number")
    axis = _class_axis(shape, options)
    classes = shape[axis] if len(shape) > 1 and options.task != "binary" else 1
    if classes == 0:
        raise ValueError(f"the scores need at least one column; got shape {shape}")
    indices = shape[:axis] + shape[axis + 1 :] if classes > 1 else None
    task = _read_task(shape, target_shape, classes, axis, options.task)
    index_target = task == "multiclass" and target_shape == indices
    last = len(shape) - 1
    if index_target and options.class_axis is None and last > 1 and shape[:last] == target_shape:
        raise ValueError(
            f"scores of shape {shape} with class indices of shape {target_shape} have two "
            "readings: class_axis=1, the classes come before the positions, as in PyTorch, or "
            "class_axis=-1, they come last; got class_axis=None. Choose one of them"
        )
    if index_target and not integer_target:
        raise TypeError(
            f"labels of shape {target_shape} for scores of shape {shape} are class indices and "
            "must be integers; got another type"
        )
    if options.ignore_index is not None and task == "multiclass" and not index_target:
        raise ValueError(
            "ignore_index is a class index, and one-hot labels have none; got "
            f"ignore_index={options.ignore_index!r}. Use weights of 0 to leave samples out"
        )
    needed = 2 if options.task == "binary" or options.average == "samples" else 3
    if options.per_sample and len(shape) < needed:
        raise ValueError(
            "per_sample counts within each sample and needs scores of shape (n, C, ...), such as "
            f"(n, 1, height, width), or (n, ...) with task='binary'; got {shape}"
        )
    by_class = bool(options.of_classes)
    own_form = metric is not None and metric.has_own_form
    average = resolve_average(options.average, task, classes, own_form, by_class)
    if metric is not None:
        check_costs(metric, task, average, classes)
    counted = counted_classes(options, average, 2 if task == "binary" else classes)
    if options.top_k > 1 and (task != "multiclass" or options.top_k > classes):
        raise ValueError(
            "top_k above 1 is for task='multiclass' with at least as many classes; got "
            f"top_k={options.top_k}, task={task!r} and {classes} columns"
        )
    per_sample = options.per_sample or average == "samples"
    return Layout(
        task, average, classes, index_target, axis, per_sample, options.zero_division, counted,
        options.class_weights, options.form, options.reduction, _activation(options, task, classes),
        None if metric is None else metric.cost_matrix,
    )  # fmt: skip


def _activation(options: Options, task: str, classes: int) -> Activation:
    """The activation of the logits; `"auto"` if it is that of the task."""
    if options.activation == "softmax" and classes == 1:
        raise ValueError(
            "activation='softmax' is over several classes or labels; got a single column. Leave it "
            "out for a sigmoid"
        )
    own = "softmax" if task == "multiclass" else "sigmoid"
    return "auto" if options.activation == own else options.activation


def _class_axis(shape: tuple[int, ...], options: Options) -> int:
    """The class axis, counted from the front; 1 where there is none."""
    axis, axes = options.class_axis, len(shape)
    if axes == 1 or options.task == "binary" or axis is None:
        return 1
    found = axis + axes if axis < 0 else axis
    if not 1 <= found < axes:
        raise ValueError(
            f"class_axis must be an axis of the scores of shape {shape}, other than the first one, "
            f"which is the axis of the samples; got {axis}"
        )
    return found


def _read_task(
    shape: tuple[int, ...], target: tuple[int, ...], classes: int, axis: int, task: str
) -> str:
    """The task that the shapes allow, or an error that names the option to set."""
    same = target == shape
    index = classes > 1 and target == shape[:axis] + shape[axis + 1 :]
    if task == "multiclass" and classes == 1:
        raise ValueError(
            "task='multiclass' needs scores of shape (n, C) with C > 1 classes along "
            f"class_axis={axis}; got {shape}"
        )
    if task == "multilabel" and len(shape) == 1:
        raise ValueError(f"task='multilabel' needs scores of shape (n, C, ...); got {shape}")
    if index and task in ("auto", "multiclass"):
        return "multiclass"
    if not same:
        raise ValueError(_mismatch(shape, target, classes, axis, task))
    if task != "auto":
        return task
    if classes == 1:
        return "binary"
    if len(shape) == 2:
        return "multilabel"
    raise ValueError(
        f"scores and labels of shape {shape} have two readings: task='binary', every number is a "
        f"decision of its own (masks, tokens), or task='multilabel', {classes} labels along "
        f"class_axis={axis}; got task='auto'. Choose one of them; for one-hot labels of {classes} "
        "classes write task='multiclass'"
    )


def _mismatch(
    shape: tuple[int, ...], target: tuple[int, ...], classes: int, axis: int, task: str
) -> str:
    """The error message for labels whose shape does not match that of the scores."""
    message = f"labels must have the shape of the scores, {shape}"
    if task in ("auto", "multiclass") and classes > 1:
        message += f", or hold class indices of shape {shape[:axis] + shape[axis + 1 :]}"
    message += f"; got {target}. "
    axes = (k for k in range(1, len(shape)) if shape[k] > 1)
    others = [k for k in axes if shape[:k] + shape[k + 1 :] == target]
    if task == "binary" and others:
        return message + "Class indices are for task='multiclass'"
    if others and others != [axis]:
        last = others[-1] == len(shape) - 1
        where = -1 if last else others[-1]
        return message + (
            f"If axis {others[-1]} is the class axis, write class_axis={where}, or move it "
            f"to axis 1, as in PyTorch, with {'input.movedim(-1, 1)' if last else 'movedim'}"
        )
    return message + "Nothing is broadcast: use squeeze or unsqueeze to match them"


def rows(x: Array, shape: tuple[int, ...], lay: Layout) -> Array:
    """Bring scores, labels or weights to `(samples, rows, C)`, or `C = 1` without the class axis.

    `shape` is the shape of the scores.
    """
    n, axis = shape[0], lay.class_axis
    if lay.task == "binary" or len(shape) == 1:
        each, columns = math.prod(shape[1:]), 1
    else:
        before, after = math.prod(shape[1:axis]), math.prod(shape[axis + 1 :])
        each, columns = before * after, shape[axis] if tuple(x.shape) == shape else 1
        x = x.reshape((n, before, columns, after)).swapaxes(2, 3)
    return x.reshape((n, each, columns) if lay.per_sample else (1, n * each, columns))


def as_scores(x: Array, shape: tuple[int, ...], lay: Layout) -> Array:
    """Bring `(samples, rows, C)` back to the shape of the scores, as the inverse of `rows`."""
    if lay.task == "binary" or len(shape) == 1:
        return x.reshape(shape)
    axis = lay.class_axis
    before, after = math.prod(shape[1:axis]), math.prod(shape[axis + 1 :])
    return x.reshape((shape[0], before, after, shape[axis])).swapaxes(2, 3).reshape(shape)


def full_weight(shape: tuple[int, ...], lay: Layout) -> tuple[int, ...]:
    """The shape of weights for each label of scores of this shape."""
    axis = lay.class_axis
    return shape[:axis] + shape[axis + 1 :] if lay.index_target else shape


def check_weight(given: tuple[int, ...], shape: tuple[int, ...], lay: Layout) -> None:
    """Raise an error unless weights are one per sample, or one per label."""
    allowed = dict.fromkeys((tuple(shape[:1]), tuple(full_weight(shape, lay))))
    given = tuple(given)
    if given not in allowed:
        expected = " or ".join(map(str, allowed))
        raise ValueError(f"weight must have shape {expected}; got {given}")


def _weight_rows(
    weight: Array, labels: Array, shape: tuple[int, ...], lay: Layout
) -> tuple[Array, Array | None]:
    """Bring weights to the three axes; return them and the weights of whole samples."""
    given = tuple(weight.shape)
    check_weight(given, shape, lay)
    if given == full_weight(shape, lay):
        return rows(weight, shape, lay).reshape(labels.shape), None
    n, columns = shape[0], 1 if lay.task == "binary" else shape[lay.class_axis]
    inner = math.prod(shape[1:]) // columns
    # Zeros of this shape, also where a label is NaN.
    zeros = (labels == labels).reshape((n, inner, labels.shape[2]))[..., :1] * 0
    per_row = (weight.reshape((n, 1, 1)) + zeros).reshape((*labels.shape[:2], 1))
    return per_row, weight.reshape((n, 1, 1)) if lay.per_sample else None


def arrange(
    scores: Array,
    target: Array,
    weight: Array | None,
    lay: Layout,
    backend: Backend,
    *,
    ignore_index: int | None = None,
    check: Check | None = None,
) -> Samples:
    """Bring scores, labels and weights to the three axes; see `spread`."""
    shape = tuple(scores.shape)
    z, labels, w, samples = rows(scores, shape, lay), rows(target, shape, lay), None, None
    if weight is not None:
        w, samples = _weight_rows(weight, labels, shape, lay)
    return spread(Samples(z, labels, w, lay, samples), backend, ignore_index, check)


def spread(
    given: Samples, backend: Backend, ignore_index: int | None = None, check: Check | None = None
) -> Samples:
    """Leave out the rows that do not count, and make class indices one column per class.

    A row of weight 0, or with the label `ignore_index`, does not count, whatever its other values
    are. `check` receives the rows before the class indices become columns. With `per_sample`, a
    weight per sample is the weight of this sample in the mean over samples.
    """
    z, labels, w, lay, samples = given
    if ignore_index is not None:
        keep = backend.where(labels == ignore_index, 0.0, 1.0)
        w = keep if w is None else w * keep
    if w is not None:
        # Under the softmax no single class can be set to 0, which would change the others.
        axis = backend.class_axis
        whole = lay.task == "multiclass" and w.shape[axis] > 1
        gone = (backend.sum(w, axis) if whole else w) == 0
        z, labels = backend.where(gone, 0.0, z), backend.where(gone, 0, labels)
    if check is not None:
        check(Samples(z, labels, w, lay, samples))
    if samples is not None and w is not None:
        w = backend.where(w > 0, w * 0.0 + 1.0, 0.0)
    if lay.index_target:
        labels = backend.where(backend.one_hot(labels, lay.classes), 1.0, 0.0)
    return Samples(z, labels, w, lay, samples)


def distributions(given: Samples, from_logits: bool) -> list[tuple[str, Array]]:
    """The arrays that must sum to one over the classes, with their names."""
    lay, found = given.layout, []
    if lay.task == "multiclass" and not lay.index_target:
        found.append(("one-hot labels", given.y))
    if lay.task == "multiclass" and not from_logits:
        found.append(("class probabilities", given.scores))
    return found


def check_values(given: Samples, from_logits: bool) -> None:
    """Refuse NumPy arrays with labels, weights, scores or sums that are out of range."""
    z, y, w, lay, _ = given
    _check_range("labels", y, 0, lay.classes - 1 if lay.index_target else 1)
    if w is not None:
        _check_range("weights", w, 0, np.finfo(float).max)
    if from_logits:
        limit = np.finfo(float).max if lay.task == "multiclass" else np.inf
        _check_range("logits", z, -limit, limit)
    else:
        _check_range("probabilities (pass from_logits=True for logits)", z, 0, 1)
    for what, x in distributions(given, from_logits):
        present = np.ones(x.shape[:-1], bool) if w is None else (w > 0).any(-1)
        _check_range(f"the sums over the classes of {what}", x.sum(-1)[present], 0.99, 1.01)


def prepare(
    y_true: Array,
    y_score: Array,
    options: Options,
    *,
    weight: Array | None = None,
    metric: Metric | None = None,
) -> Samples:
    """Check NumPy scores and labels, and bring them to the three axes."""
    labels, scores = as_numbers(y_true, y_score)
    integer = labels.dtype.kind in "iu"
    lay = layout(scores.shape, labels.shape, integer, options, metric)
    return arrange(
        scores.astype(float),
        labels if lay.index_target else labels.astype(float),
        None if weight is None else np.asarray(weight, dtype=float),
        lay,
        NUMPY,
        ignore_index=options.ignore_index,
        check=partial(check_values, from_logits=options.from_logits),
    )


def as_numbers(y_true: Array, y_score: Array) -> tuple[Array, Array]:
    """Labels and scores as NumPy arrays of numbers; those in the wrong order are refused."""
    labels, scores = np.asarray(y_true), np.asarray(y_score)
    if scores.dtype.kind not in "fiub" or labels.dtype.kind not in "fiub":
        raise TypeError(
            f"scores and labels must be numbers; got {scores.dtype} scores, {labels.dtype} labels"
        )
    if scores.dtype.kind != "f" and labels.dtype.kind == "f":
        shares = bool(((labels > 0) & (labels < 1)).any())
        if shares and bool(((scores == 0) | (scores == 1)).all()):
            raise ValueError(
                "labels come first and scores second; got labels with fractions and scores that "
                f"are 0 or 1 of type {scores.dtype}, as if they were in the wrong order. If these "
                "are decisions, pass them as floats"
            )
    return labels, scores


def _check_range(what: str, x: Array, low: float, high: float) -> None:
    if x.size and not (x.min() >= low and x.max() <= high):
        raise ValueError(
            f"{what} must lie in [{low}, {high}], with no NaN; got {x.min()} to {x.max()}"
        )
