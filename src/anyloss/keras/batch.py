"""A batch of Keras tensors: matched sample by sample, weighted, and counted.

Shapes may have unknown axes (None) while TensorFlow traces a graph, so this module needs only the
number of axes and of classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from anyloss._core.backend import Array, Backend
from anyloss._core.choices import Options
from anyloss._core.counts import Counts
from anyloss._core.counts import count as count_samples
from anyloss._core.options import Settings
from anyloss._core.shapes import Layout, Samples, check_values, layout, spread
from anyloss._core.step import Step

Shape = tuple[int | None, ...]


def _sin(x: Array) -> Array:
    if keras.backend.backend() == "jax":  # Keras would convert double to single precision
        import jax.numpy

        return jax.numpy.sin(x)
    return ops.sin(x)


def _product(x: Array, matrix: Array) -> Array:
    if keras.backend.backend() == "jax":
        import jax.numpy

        return jax.numpy.matmul(x, matrix, precision="highest")
    return x @ matrix  # `ops.matmul` would convert double to single precision


def _mirrored_sigmoid() -> Callable[[Array], tuple[Array, Array]] | None:
    if keras.backend.backend() != "torch":
        return None
    from anyloss.keras.sigmoid import MirroredSigmoid

    return MirroredSigmoid.apply


def _backend(dtype: str) -> Backend:
    def where(condition: Array, yes: Array, no: Array) -> Array:
        if not (ops.is_tensor(yes) or ops.is_tensor(no)):
            yes = ops.convert_to_tensor(yes, dtype)
        return ops.where(condition, yes, no)

    return Backend(
        sigmoid=ops.sigmoid,
        exp=ops.exp,
        log=ops.log,
        sin=_sin,
        where=where,
        argmax=lambda x: ops.argmax(x, axis=-1, keepdims=True),
        one_hot=lambda index, classes: ops.equal(index, ops.arange(classes, dtype="int32")),
        sum=lambda x, axis: ops.sum(x, axis=axis, keepdims=True),
        concat=lambda parts: ops.concatenate(parts, axis=-1),
        array=lambda numbers, like: ops.convert_to_tensor(numbers, dtype_of(like)),
        constant=ops.stop_gradient,
        product=_product,
        tiny=float(np.finfo(dtype).tiny),
        mirrored_sigmoid=_mirrored_sigmoid(),
    )


BACKENDS = {dtype: _backend(dtype) for dtype in ("float32", "float64")}


def counting(dtype: str) -> str:
    """The type of the counts: float32 for half precision."""
    return dtype if dtype in BACKENDS else "float32"


def dtype_of(x: Array) -> str:
    """The name of a tensor's type, on every backend."""
    return str(keras.backend.standardize_dtype(x.dtype))


def is_concrete(x: Array) -> bool:
    """Whether the values are available without a wait: no graph is traced, and on the CPU."""
    if keras.backend.backend() == "torch":
        import torch

        return not torch.compiler.is_compiling() and bool(x.is_cpu)
    if keras.backend.backend() == "jax":
        import jax

        return not isinstance(x, jax.core.Tracer) and {d.platform for d in x.devices()} == {"cpu"}
    return hasattr(x, "numpy") and "CPU" in x.device


def make_samples(
    y_true: Array, y_pred: Array, weights: Sequence[Array], settings: Settings
) -> tuple[Samples, bool]:
    """The batch, and whether its values were checked.

    Binary scores are flattened, all or those of each sample. Others keep their axes, the classes
    last. XLA makes slower code of axes of length 1 and of transposed arrays.
    """
    options = settings.options
    y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
    y_pred = ops.cast(y_pred, counting(dtype_of(y_pred)))
    y_true, y_pred, weights = _class_axis_last(y_true, y_pred, weights, options)
    dtype = dtype_of(y_pred)
    lay = _layout(tuple(y_true.shape), tuple(y_pred.shape), settings)
    checked = options.validate and is_concrete(y_pred) and is_concrete(y_true)
    if checked and lay.index_target:
        _check_whole(ops.convert_to_numpy(y_true))
    if len(y_true.shape) < len(y_pred.shape):
        y_true = ops.expand_dims(y_true, -1)
    y_true = ops.cast(y_true, "int32" if lay.index_target else dtype)
    weight = _weight(weights, y_pred, lay)
    if lay.task == "binary":
        axes = (-1, math.prod(y_pred.shape[1:])) if lay.per_sample else (-1,)
        weight = None if weight is None else ops.reshape(weight * ops.ones_like(y_pred), axes)
        y_pred, y_true = ops.reshape(y_pred, axes), ops.reshape(y_true, axes)
    sample_weight = _sample_weight(weights, y_pred) if lay.per_sample else None
    found = Samples(y_pred, y_true, weight, lay, sample_weight)

    def check(given: Samples) -> None:
        z, y, w = ops.convert_to_numpy(given.scores), ops.convert_to_numpy(given.y), given.weight
        if w is not None:
            w = np.broadcast_to(ops.convert_to_numpy(w), (*z.shape[:-1], w.shape[-1]))
        check_values(Samples(z, y, w, given.layout), options.from_logits)

    return spread(found, BACKENDS[dtype], options.ignore_index, check if checked else None), checked


def count(samples: Samples, step: Step, options: Options) -> Counts:
    """The counts, with axes `(samples, 1, classes)`: sums over the other axes of the scores."""
    lay, axes = samples.layout, len(samples.scores.shape)
    rows = tuple(range(1 if lay.per_sample else 0, axes if lay.task == "binary" else axes - 1))

    def total(x: Array) -> Array:
        x = ops.sum(x, axis=rows) if rows else x
        return ops.reshape(x, (-1, 1, lay.classes))

    return count_samples(samples, step, options, BACKENDS[dtype_of(samples.scores)], total)


def _class_axis_last(
    y_true: Array, y_pred: Array, weights: Sequence[Array], options: Options
) -> tuple[Array, Array, list[Array]]:
    """The batch with its class axis last, as is usual in Keras."""
    if len(y_pred.shape) == 1:
        y_pred = ops.expand_dims(y_pred, -1)
    axes, axis = len(y_pred.shape), options.class_axis
    if options.task == "binary" or axis in (None, -1, axes - 1):
        return y_true, y_pred, list(weights)
    if not -axes <= axis < axes or axis % axes == 0:
        raise ValueError(
            f"class_axis must be an axis of the predictions of shape {tuple(y_pred.shape)}, other "
            f"than the first, which holds the samples; got {axis}"
        )

    def moved(x: Array) -> Array:
        return ops.moveaxis(x, axis, -1) if len(x.shape) == axes else x

    return moved(y_true), moved(y_pred), [moved(ops.convert_to_tensor(x)) for x in weights]


def _layout(target: Shape, shape: Shape, settings: Settings) -> Layout:
    """The layout of the shapes. Labels may lack the class axis, or have it with length 1."""
    if not shape or shape[-1] is None:
        raise ValueError(f"predictions must have a known number of columns; got the shape {shape}")
    known, labels = _filled(shape, target), _filled(target, shape)
    if settings.options.task != "binary" and labels == (*known[:-1], 1):
        labels = known[:-1]
    if known[-1] == 1 and labels == known[:-1]:
        labels = known
    options = settings.options._replace(class_axis=-1)
    return layout(known, labels, True, options, settings.metric)


def _filled(shape: Shape, other: Shape) -> tuple[int, ...]:
    """A shape with its unknown axes taken from another; -1 where both are unknown."""
    other = (*other, *[None] * len(shape))
    choices = zip(shape, other, strict=False)
    return tuple(next((n for n in pair if n is not None), -1) for pair in choices)


def _check_whole(labels: np.ndarray[Any, Any]) -> None:
    if labels.dtype.kind == "f" and (wrong := labels[labels != np.floor(labels)]).size:
        raise ValueError(f"class indices must be whole numbers; got {wrong[0]}")


def _weight(weights: Sequence[Array], y_pred: Array, lay: Layout) -> Array | None:
    """The product of weights and masks, with axes that can be multiplied with the predictions."""
    product, shape = None, tuple(y_pred.shape)
    for each in weights:
        weight = ops.cast(ops.convert_to_tensor(each), dtype_of(y_pred))
        axes = tuple(weight.shape)
        fits = 0 < len(axes) <= len(shape) and all(
            mine == yours or None in (mine, yours) or (k > 0 and mine == 1)
            for k, (mine, yours) in enumerate(zip(axes, shape, strict=False))
        )
        if not fits or (lay.index_target and len(axes) == len(shape) and axes[-1] != 1):
            raise ValueError(
                f"weights and masks must have the first axes of the predictions, {shape}, such as "
                f"{shape[:1]}; got {axes}"
            )
        for _ in range(len(shape) - len(axes)):
            weight = ops.expand_dims(weight, -1)
        if weight.shape[-1] is None and lay.classes > 1:
            raise ValueError(
                "weights must have a known last axis where there are several classes; got "
                f"{axes}. Give the data set a spec such as (None,) or (None, 1)"
            )
        product = weight if product is None else product * weight
    return product


def _sample_weight(weights: Sequence[Array], y_pred: Array) -> Array | None:
    """The product of the weights that are given per sample, with the axes of the predictions."""
    product, shape = None, (-1, *[1] * (len(y_pred.shape) - 1))
    for each in weights:
        if all(length == 1 for length in each.shape[1:]):
            weight = ops.reshape(ops.cast(each, dtype_of(y_pred)), shape)
            product = weight if product is None else product * weight
    return product
