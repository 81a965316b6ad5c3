"""The JAX front-end: pure functions in Optax's argument order, `(logits, labels)`.

They keep no state and run under `jit`, `grad`, `vmap` and `shard_map`. Shapes and averages are
those of `anyloss.torch`. Types and shapes are always checked; values (labels, weights, NaN) only
outside of transformations and on the CPU, where looking at them costs no wait.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np

try:
    import jax
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "anyloss.jax needs JAX; install it with: pip install 'anyloss[jax]'"
    ) from error
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from anyloss._core.backend import Backend
from anyloss._core.counts import (
    Counts,
    averaged,
    check_finite,
    count,
    cross_entropy_sums,
    score_parts,
    whole_score,
)
from anyloss._core.options import (
    FunctionSettings,
    Settings,
    make_settings,
    shows_options_of,
)
from anyloss._core.shapes import Rows, arrange, check_values, layout
from anyloss.metrics import Metric, MetricSpec

__all__ = ["any_loss", "score", "soft_score"]

AxisName = str | tuple[str, ...]


def _backend(dtype: type) -> Backend:
    return Backend(
        sigmoid=jax.nn.sigmoid,
        exp=jnp.exp,
        log=jnp.log,
        sin=jnp.sin,
        where=jnp.where,
        argmax=lambda x: jnp.argmax(x, axis=-1, keepdims=True),
        one_hot=lambda index, classes: index == jnp.arange(classes),
        sum=lambda x, axis: jnp.sum(x, axis=axis, keepdims=True),
        concat=lambda parts: jnp.concatenate(parts, axis=-1),
        constant=jax.lax.stop_gradient,
        tiny=float(np.finfo(dtype).tiny),
    )


BACKENDS = {np.dtype(dtype): _backend(dtype) for dtype in (np.float32, np.float64)}


@shows_options_of(make_settings)
def any_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    metric: MetricSpec | Metric = "f1",
    *,
    weight: ArrayLike | None = None,
    axis_name: AxisName | None = None,
    **options: Unpack[FunctionSettings],
) -> Array:
    """One minus the soft metric: a scalar to minimise, or one loss per class with `average=None`.

    Args:
        logits: scores of shape `(n,)` or `(n, C, ...)`; probabilities with `from_logits=False`.
            Half-precision scores are counted in float32.
        labels: of the same shape, or class indices without the class axis.
        metric: a name, a formula or a function of `tp, fn, fp, tn`.
        weight: one per row, or of the labels' shape. Weight 2 is the row twice.
        axis_name: inside `shard_map` (or `pmap`), the mesh axis over which the rows are split. The
            counts are summed over it, so that every device gets the loss of the undivided batch.
        step, threshold, thresholds, average, smooth, cross_entropy, from_logits, task, per_sample,
            zero_division, soft_labels, ignore_index, validate: as in `anyloss.torch.AnyLoss`.
        class_axis: the axis of the classes or labels; -1 for channels last. None is 1, and raises
            where class indices would fit the last axis too.
        alpha, beta, fn_cost, fp_cost: parameters of the metric; a function may have others.

    >>> logits, labels = jnp.array([2.0, -1.0, 0.5, -2.0]), jnp.array([1, 0, 1, 0])
    >>> print(round(any_loss(logits, labels, "f1").item(), 4))
    0.2274
    >>> gradient = jax.jit(jax.grad(any_loss))(logits, labels)
    >>> bool(gradient[0] < 0 < gradient[1])
    True
    """
    settings = make_settings(metric, **options)
    rows, checked = _rows(logits, labels, weight, settings)
    loss = 1 - _mean_score(rows, checked, axis_name, settings)
    if settings.cross_entropy:
        sums = cross_entropy_sums(rows, settings.options.from_logits, BACKENDS[rows.scores.dtype])
        total, whole = sums if axis_name is None else _sum(sums, axis_name)
        mean = total / jnp.maximum(jax.lax.stop_gradient(whole), BACKENDS[rows.scores.dtype].tiny)
        loss = loss + settings.cross_entropy * mean
    return loss


@shows_options_of(make_settings)
def soft_score(
    logits: ArrayLike,
    labels: ArrayLike,
    metric: MetricSpec | Metric = "f1",
    *,
    weight: ArrayLike | None = None,
    axis_name: AxisName | None = None,
    **options: Unpack[FunctionSettings],
) -> Array:
    """The soft metric, which has a gradient; the arguments are those of `any_loss`.

    >>> labels = jnp.array([1, 0, 1, 0])
    >>> print(round(soft_score(jnp.array([2.0, -1.0, 0.5, -2.0]), labels, "f1").item(), 4))
    0.7726
    """
    settings = make_settings(metric, **options)
    return _mean_score(*_rows(logits, labels, weight, settings), axis_name, settings)


@shows_options_of(make_settings)
def score(
    logits: ArrayLike,
    labels: ArrayLike,
    metric: MetricSpec | Metric = "f1",
    *,
    weight: ArrayLike | None = None,
    axis_name: AxisName | None = None,
    **options: Unpack[FunctionSettings],
) -> Array:
    """The true metric of the hard decisions; the arguments are those of `any_loss`.

    >>> print(score(jnp.array([2.0, -1.0, 0.5, -2.0]), jnp.array([1, 0, 1, 1]), "recall").item())
    0.6666666865348816
    """
    settings = make_settings(metric, **options)
    return _mean_score(*_rows(logits, labels, weight, settings), axis_name, settings, hard=True)


def _mean_score(
    rows: Rows, checked: bool, axis_name: AxisName | None, settings: Settings, hard: bool = False
) -> Array:
    """The mean over the steps of the score, soft or hard."""
    lay, backend, scores = rows.layout, BACKENDS[rows.scores.dtype], []
    smooth = 0.0 if hard else settings.smooth
    for step in settings.steps:
        step.check_dtype(str(rows.scores.dtype), backend.tiny)
        cells = count(rows, step.hard() if hard else step, settings.options, backend)
        if axis_name is not None and not lay.per_sample:
            cells = Counts(*_sum(tuple(cells), axis_name))
        found = averaged(settings.metric, cells, lay, backend, smooth=smooth, hard=hard)
        parts: tuple[Array, ...] = score_parts(found, cells, lay, backend, rows.sample_weight)
        if axis_name is not None and lay.per_sample:  # a sample is on one device as a whole
            parts = _sum(parts, axis_name)
        value = whole_score(parts[0], parts[1], lay, hard, backend)
        if checked:
            check_finite(cells, [*cells] if hard else [value, *cells], settings.metric)
        scores.append(value)
    return jnp.stack(scores).mean(axis=0)


def _sum(x: tuple[Array, ...], axis_name: AxisName) -> tuple[Array, ...]:
    summed: tuple[Array, ...] = jax.lax.psum(x, axis_name)  # type: ignore[no-untyped-call]
    return summed


def _rows(
    logits: ArrayLike, labels: ArrayLike, weight: ArrayLike | None, settings: Settings
) -> tuple[Rows, bool]:
    """The batch in three axes, and whether its values were looked at."""
    options = settings.options
    z, y = _numbers("logits", logits), _numbers("labels", labels)
    if not jnp.issubdtype(z.dtype, jnp.floating):
        raise TypeError(f"logits must hold floating-point scores; got {z.dtype}")
    if z.dtype not in BACKENDS:
        z = z.astype(jnp.float32)
    integer = jnp.issubdtype(y.dtype, jnp.integer)
    lay = layout(z.shape, y.shape, integer, options, settings.metric.has_own_form)
    w = None if weight is None else _numbers("weight", weight).astype(z.dtype)
    checked = options.validate and all(map(_at_hand, (z, y, w)))

    def check(given: Rows) -> None:
        z, y, w = (None if x is None else np.asarray(x) for x in given[:3])
        check_values(Rows(z, y, w, given.layout), options.from_logits)

    found = arrange(
        z,
        y if lay.index_target else y.astype(z.dtype),
        w,
        lay,
        BACKENDS[z.dtype],
        ignore_index=options.ignore_index,
        check=check if checked else None,
    )
    return found, checked


def _numbers(name: str, given: ArrayLike) -> Array:
    try:
        found = jnp.asarray(given)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must be an array of numbers; got {type(given).__name__}"
        ) from error
    if jnp.iscomplexobj(found):
        raise TypeError(f"{name} must hold real numbers; got {found.dtype}")
    return found


def _at_hand(x: Array | None) -> bool:
    """Whether the numbers can be looked at without a wait: no transformation, on the CPU."""
    if x is None:
        return True
    return not isinstance(x, jax.core.Tracer) and {d.platform for d in x.devices()} == {"cpu"}
