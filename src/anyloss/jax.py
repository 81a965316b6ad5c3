"""The JAX front-end: pure functions in the argument order of Optax, `(logits, labels)`.

They keep no state and run under `jit`, `grad`, `vmap` and `shard_map`. Types and shapes are always
checked. Values (labels, weights, NaN) are checked outside of transformations and on the CPU only,
where they are available without a wait.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, Literal, Unpack

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

from anyloss._core.backend import NUMPY, Backend
from anyloss._core.choices import Activation, Options, PerSample, Task
from anyloss._core.constraints import Constraint, ConstraintSpec, read_constraints
from anyloss._core.counts import (
    Counts,
    class_counts,
    count,
    cross_entropy_sums,
    shaped_counts,
)
from anyloss._core.documents import documented, inherits_sections
from anyloss._core.lagrangian import check_constrained, check_two_classes, lagrangian, moved
from anyloss._core.options import FunctionSettings, Settings, make_settings, shows_options_of
from anyloss._core.scoring import (
    averaged,
    check_finite,
    part_of_mean,
    score_parts,
    whole_loss,
    whole_score,
)
from anyloss._core.shapes import (
    Layout,
    Samples,
    arrange,
    check_values,
    check_weight,
    full_weight,
    layout,
    spread,
)
from anyloss.metrics import Metric, MetricSpec
from anyloss.steps import Step

__all__ = [
    "any_loss",
    "new_multipliers",
    "score",
    "soft_counts",
    "soft_score",
    "update_multipliers",
]

AxisName = str | tuple[str, ...]


@lru_cache
def _backend(dtype: np.dtype[Any], class_axis: int = -1) -> Backend:
    """The functions of JAX for a type; `class_axis` is the axis of the classes in the scores."""

    def one_hot(index: Array, classes: int) -> Array:
        shape = [1] * index.ndim
        shape[class_axis] = classes
        return index == jnp.arange(classes).reshape(shape)

    def product(x: Array, matrix: Array) -> Array:
        rows = jnp.moveaxis(x, class_axis, -1)
        found = jnp.matmul(rows, matrix, precision=jax.lax.Precision.HIGHEST)
        return jnp.moveaxis(found, -1, class_axis)

    return Backend(
        sigmoid=jax.nn.sigmoid,
        exp=jnp.exp,
        log=jnp.log,
        sin=jnp.sin,
        where=jnp.where,
        argmax=lambda x: jnp.argmax(x, axis=class_axis, keepdims=True),
        one_hot=one_hot,
        sum=lambda x, axis: jnp.sum(x, axis=axis, keepdims=True),
        concat=lambda parts: jnp.concatenate(parts, axis=class_axis),
        array=lambda numbers, like: jnp.asarray(numbers, like.dtype),
        constant=jax.lax.stop_gradient,
        product=product,
        tiny=float(np.finfo(dtype).tiny),
        class_axis=class_axis,
    )


jax.tree_util.register_dataclass(Counts, ["tp", "fn", "fp", "tn"], [])  # `jit` may return them


@shows_options_of(make_settings)
def any_loss(
    logits: ArrayLike, labels: ArrayLike, metric: MetricSpec | Metric = "f1", *,
    weight: ArrayLike | None = None, axis_name: AxisName | None = None,
    constraints: ConstraintSpec | None = None, multipliers: ArrayLike | None = None,
    **options: Unpack[FunctionSettings],
) -> Array:  # fmt: skip
    """One minus a soft metric of the confusion matrix, a loss that trains for this metric.

    `loss = 1 - metric(tp, fn, fp, tn) + cross_entropy * CE`, where CE is the mean cross-entropy.
    The counts are soft: with the soft decisions `a = step(p)` and the labels `y`, they are
    `tp = sum(y a)`, `fn = sum(y (1 - a))`, `fp = sum((1 - y) a)` and `tn = sum((1 - y) (1 - a))`.

    A parameter of a metric, such as `beta=2` for `"fbeta"`, is a keyword argument as well.
    Half-precision logits are counted in float32.

    Args:
        logits (array): the scores: logits, or probabilities with `from_logits=False`.
        labels (array): the labels.
        axis_name (str or tuple of str, optional): the mesh axis over which the samples are split,
            inside `shard_map` or `pmap`. The counts are summed over it, so that every device
            computes the loss of the undivided batch.
        constraints (str or list of str, optional): constraints for two classes, such as
            `"recall >= 0.9"`, each a metric (a name or a formula), `>=` or `<=`, and a number. The
            loss is then one minus the Lagrangian of the soft metric and the soft constraints.
        multipliers (array, optional): the multipliers of the constraints: `new_multipliers` makes
            them, and `update_multipliers` moves them after each batch.

    Shape:
        - logits: `(n,)` or `(n, 1, ...)` for binary decisions (any shape with `task="binary"`),
          `(n, C, ...)` for several classes or labels. Further axes, such as those of an image, are
          counted as more samples.
        - labels: the shape of the logits, or class indices without the class axis.
        - weight: `(n,)` or the shape of the labels.
        - output: a scalar, or `(C,)` with `average=None`; with `reduction="none"` `(n,)` or
          `(n, C)`.

    Returns:
        Array: the loss, a scalar, or one loss per class with `average=None`.

    Raises:
        TypeError: if an argument is unknown or has the wrong type.
        ValueError: if an option has an invalid value, the shapes do not match or have two readings,
            or the values are out of range (with `validate=True`).

    Examples:
        >>> logits, labels = jnp.array([2.0, -1.0, 0.5, -2.0]), jnp.array([1, 0, 1, 0])
        >>> print(round(any_loss(logits, labels, "f1").item(), 4))
        0.2274
        >>> gradient = jax.jit(jax.grad(any_loss))(logits, labels)
        >>> bool(gradient[0] < 0 < gradient[1])
        True

    References:
        D. Han, N. Moniz and N. V. Chawla, "AnyLoss: Transforming Classification Metrics into Loss
        Functions", KDD 2024.

        N. Tsoi, K. Candon, D. Li, Y. Milkessa and M. Vázquez, "Bridging the Gap: Unifying the
        Training and Evaluation of Neural Network Binary Classifiers", NeurIPS 2022.
    """
    settings = make_settings(metric, **options)
    samples, checked = _samples(logits, labels, weight, settings)
    if constraints is not None or multipliers is not None:
        settings = _constrained(settings, samples, constraints, multipliers)
    loss = _mean(samples, checked, axis_name, settings, "loss")
    if settings.cross_entropy:
        backend = _backend_of(samples)
        sums = cross_entropy_sums(samples, settings.options.from_logits, backend)
        total, whole = sums if axis_name is None else _sum(sums, axis_name)
        mean = total / jnp.maximum(jax.lax.stop_gradient(whole), backend.tiny)
        loss = loss + settings.cross_entropy * mean
    return loss


@inherits_sections(any_loss)
@shows_options_of(make_settings)
def soft_score(
    logits: ArrayLike, labels: ArrayLike, metric: MetricSpec | Metric = "f1", *,
    weight: ArrayLike | None = None, axis_name: AxisName | None = None,
    **options: Unpack[FunctionSettings],
) -> Array:  # fmt: skip
    """The metric of the soft decisions, `metric(tp, fn, fp, tn)` of soft counts.

    It is one minus `any_loss` of the form `"linear"` without cross-entropy, and has a gradient.

    Args:
        logits (array): the scores: logits, or probabilities with `from_logits=False`.
        labels (array): the labels.
        axis_name (str or tuple of str, optional): as in `any_loss`.

    Returns:
        Array: the score, a scalar, or one score per class with `average=None`.

    Examples:
        >>> labels = jnp.array([1, 0, 1, 0])
        >>> print(round(soft_score(jnp.array([2.0, -1.0, 0.5, -2.0]), labels, "f1").item(), 4))
        0.7726
    """
    settings = make_settings(metric, **options | {"form": "linear"})
    return _mean(*_samples(logits, labels, weight, settings), axis_name, settings, "soft_score")


@inherits_sections(any_loss)
@shows_options_of(make_settings)
def score(
    logits: ArrayLike, labels: ArrayLike, metric: MetricSpec | Metric = "f1", *,
    weight: ArrayLike | None = None, axis_name: AxisName | None = None,
    **options: Unpack[FunctionSettings],
) -> Array:  # fmt: skip
    """The metric of the hard decisions, `metric(tp, fn, fp, tn)` of hard counts.

    It equals scikit-learn's function of the same name (docs/metrics.md), and it has no gradient.

    Args:
        logits (array): the scores: logits, or probabilities with `from_logits=False`.
        labels (array): the labels.
        axis_name (str or tuple of str, optional): as in `any_loss`.

    Returns:
        Array: the score, a scalar, or one score per class with `average=None`.

    Examples:
        >>> logits, labels = jnp.array([2.0, -1.0, 0.5, -2.0]), jnp.array([1, 0, 1, 1])
        >>> print(round(score(logits, labels, "recall").item(), 4))
        0.6667
    """
    settings = make_settings(metric, **options)
    return _mean(*_samples(logits, labels, weight, settings), axis_name, settings, "score")


def new_multipliers(constraints: ConstraintSpec) -> Array:
    """The multipliers of constraints before the first batch: zeros.

    The first row has the multipliers of the next loss, the second one the running sums behind them.

    Args:
        constraints (str or list of str): the constraints of `any_loss`.

    Shape:
        - output: `(2, constraints)`.

    Returns:
        Array: the state for `any_loss` and `update_multipliers`.

    Raises:
        ValueError: if a constraint is not valid.

    Examples:
        >>> new_multipliers(["recall >= 0.9", "specificity >= 0.8"]).shape
        (2, 2)
    """
    return jnp.zeros((2, len(read_constraints(constraints))))


@inherits_sections(any_loss)
@shows_options_of(make_settings)
def update_multipliers(
    multipliers: ArrayLike, logits: ArrayLike, labels: ArrayLike, constraints: ConstraintSpec, *,
    weight: ArrayLike | None = None, axis_name: AxisName | None = None,
    **options: Unpack[FunctionSettings],
) -> Array:  # fmt: skip
    """The multipliers after a batch, from the hard decisions of the batch.

    A multiplier rises while its constraint is violated, and falls while it has room.

    Args:
        multipliers (array): those before the batch.
        logits (array): the scores: logits, or probabilities with `from_logits=False`.
        labels (array): the labels.
        constraints (str or list of str): the constraints of `any_loss`.
        axis_name (str or tuple of str, optional): as in `any_loss`.

    Shape:
        - logits, labels, weight: as in `any_loss`.
        - multipliers and output: `(2, constraints)`.

    Returns:
        Array: the multipliers for the next batch.

    Examples:
        >>> logits, labels = jnp.array([2.0, -1.0, 0.5, -2.0]), jnp.array([1, 1, 0, 0])
        >>> state = new_multipliers("recall >= 0.9")
        >>> loss = any_loss(logits, labels, constraints="recall >= 0.9", multipliers=state)
        >>> state = update_multipliers(state, logits, labels, "recall >= 0.9")
        >>> print(round(state[0, 0].item(), 4))
        1.72
    """
    settings, required = make_settings(**options), read_constraints(constraints)
    check_constrained(settings)
    samples, _ = _samples(logits, labels, weight, settings)
    check_two_classes(samples.layout)
    backend = _backend(samples.scores.dtype)
    counts = _count(samples, settings.steps[0].hard(), settings.options)
    cells = tuple(x.reshape(()) for x in class_counts(counts, samples.layout, backend))
    cells = cells if axis_name is None else _sum(cells, axis_name)
    before = _multipliers(multipliers, required)
    return jnp.stack([jnp.stack(x) for x in moved(list(before[1]), required, cells, backend)])


def _constrained(
    settings: Settings, samples: Samples, constraints: ConstraintSpec | None,
    multipliers: ArrayLike | None,
) -> Settings:  # fmt: skip
    """The settings with the Lagrangian in place of the metric."""
    if constraints is None or multipliers is None:
        missing = "constraints" if constraints is None else "multipliers"
        raise ValueError(
            "constraints= and multipliers= belong together, as in constraints='recall >= 0.9', "
            "multipliers=new_multipliers('recall >= 0.9'); got no " + missing
        )
    required = read_constraints(constraints)
    check_constrained(settings)
    check_two_classes(samples.layout)
    now = jax.lax.stop_gradient(_multipliers(multipliers, required)[0])
    return settings._replace(metric=lagrangian(settings.metric, required, list(now)))


def _multipliers(given: ArrayLike, constraints: tuple[Constraint, ...]) -> Array:
    found = _numbers("multipliers", given)
    if found.shape != (2, len(constraints)):
        raise ValueError(
            f"multipliers must have the shape (2, {len(constraints)}), as new_multipliers makes "
            f"them; got {found.shape}"
        )
    return found


@documented
def soft_counts(
    logits: ArrayLike, labels: ArrayLike, weight: ArrayLike | None = None, *,
    step: Step | None = None, threshold: float | Sequence[float] | None = None,
    from_logits: bool = True, activation: Activation = "auto", squared: bool = False,
    task: Task = "auto", class_axis: int | None = None, per_sample: PerSample = False,
    soft_labels: bool = False, ignore_index: int | None = None, validate: bool = True,
) -> Counts:  # fmt: skip
    """The soft counts of a batch, with gradients, for metrics and losses of one's own.

    With the soft decisions `a = step(p)`, labels `y` and weights `w` they are `tp = sum(w y a)`,
    `fn = sum(w y (1 - a))`, `fp = sum(w (1 - y) a)` and `tn = sum(w (1 - y) (1 - a))`. For samples
    that are split over devices, sum them with `jax.lax.psum`.

    Args:
        logits (array): the scores: logits, or probabilities with `from_logits=False`.
        labels (array): the labels.

    Shape:
        - logits, labels, weight: as in `any_loss`.
        - Counts: scalars for a binary task, else `(C,)`; with `per_sample=True` `(n,)` or `(n, C)`.

    Returns:
        Counts: the four counts, a pytree.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if an option has an invalid value, the shapes do not match or have two readings,
            or the values are out of range (with `validate=True`).

    Examples:
        >>> logits, labels = jnp.array([2.0, -1.0, 0.5, -2.0]), jnp.array([1, 0, 1, 0])
        >>> def loss(logits):
        ...     tp, fn, fp, tn = soft_counts(logits, labels)
        ...     return 1 - (tp + 1) / (tp + 0.7 * fn + 0.3 * fp + 1)
        >>> print(round(loss(logits).item(), 4), jax.grad(loss)(logits).shape)
        0.1564 (4,)
    """
    settings = make_settings(
        step=step, threshold=threshold, from_logits=from_logits, activation=activation,
        squared=squared, task=task, class_axis=class_axis, per_sample=per_sample,
        soft_labels=soft_labels, ignore_index=ignore_index, validate=validate,
    )  # fmt: skip
    samples, _ = _samples(logits, labels, weight, settings)
    return shaped_counts(_count(samples, settings.steps[0], settings.options), samples.layout)


def _mean(
    samples: Samples, checked: bool, axis_name: AxisName | None, settings: Settings,
    what: Literal["loss", "soft_score", "score"],
) -> Array:  # fmt: skip
    """The mean over the steps of the loss, of the soft score or of the hard score."""
    lay, backend, values = samples.layout, _backend(samples.scores.dtype), []
    hard, weight = what == "score", samples.sample_weight
    smooth = 0.0 if hard else settings.smooth
    weight = None if weight is None else weight.reshape(-1, 1, 1)
    for step in settings.steps:
        step.check_dtype(str(samples.scores.dtype), backend.tiny)
        counts = _count(samples, step.hard() if hard else step, settings.options)
        if axis_name is not None and not lay.per_sample:
            counts = Counts(*_sum(tuple(counts), axis_name))
        found = averaged(
            settings.metric, counts, lay, backend, smooth=smooth, hard=hard,
            weighted=samples.weight is not None,
        )  # fmt: skip
        share = part_of_mean(found, counts, lay, backend, weight)
        parts: tuple[Array, ...] = score_parts(found, share, lay, backend)
        if axis_name is not None and lay.per_sample and lay.reduction != "none":
            parts = _sum(parts, axis_name)  # each sample is on exactly one device
        if what == "loss":
            value = whole_loss(parts[0], parts[1], lay, backend)
        else:
            value = whole_score(parts[0], parts[1], lay, hard, backend)
        if checked:
            check_finite(counts, [*counts] if hard else [value, *counts], settings.metric)
        values.append(value)
    return jnp.stack(values).mean(axis=0)


def _sum(x: tuple[Array, ...], axis_name: AxisName) -> tuple[Array, ...]:
    summed: tuple[Array, ...] = jax.lax.psum(x, axis_name)  # type: ignore[no-untyped-call]
    return summed


def _backend_of(samples: Samples) -> Backend:
    several = samples.layout.classes > 1
    return _backend(samples.scores.dtype, samples.layout.class_axis if several else -1)


def _count(samples: Samples, step: Step, options: Options) -> Counts:
    """The counts, with axes `(samples, 1, classes)`: sums over the other axes of the scores."""
    lay = samples.layout
    kept = {0} if lay.per_sample else set()
    kept |= {lay.class_axis} if lay.classes > 1 else set()
    axes = tuple(k for k in range(samples.scores.ndim) if k not in kept)

    def total(x: Array) -> Array:
        return jnp.sum(x, axes).reshape(-1, 1, lay.classes)

    return count(samples, step, options, _backend_of(samples), total)


def _samples(
    logits: ArrayLike, labels: ArrayLike, weight: ArrayLike | None, settings: Settings
) -> tuple[Samples, bool]:
    """The batch, and whether its values were checked."""
    options = settings.options
    z, y = _numbers("logits", logits), _numbers("labels", labels)
    if not jnp.issubdtype(z.dtype, jnp.floating):
        raise TypeError(f"logits must hold floating-point scores; got {z.dtype}")
    if z.dtype not in (jnp.float32, jnp.float64):
        z = z.astype(jnp.float32)
    integer = jnp.issubdtype(y.dtype, jnp.integer)
    lay = layout(z.shape, y.shape, integer, options, settings.metric)
    y = y if lay.index_target else y.astype(z.dtype)
    w = None if weight is None else _numbers("weight", weight).astype(z.dtype)
    checked = options.validate and all(map(_is_concrete, (z, y, w)))
    if checked:
        arrange(
            np.asarray(z), np.asarray(y), None if w is None else np.asarray(w), lay, NUMPY,
            ignore_index=options.ignore_index,
            check=partial(check_values, from_logits=options.from_logits),
        )  # fmt: skip
    if w is not None:
        check_weight(w.shape, z.shape, lay)
    found = _arranged(z, y, w, lay)
    return spread(found, _backend_of(found), options.ignore_index), checked


def _arranged(z: Array, y: Array, w: Array | None, lay: Layout) -> Samples:
    """The batch as it is counted.

    Binary scores are flattened, all or those of each sample. Others keep their axes. XLA makes
    slower code of axes of length 1 and of transposed arrays.
    """
    per_label = w is not None and w.shape == full_weight(z.shape, lay)
    if lay.task == "binary":
        rows = math.prod(z.shape[1:])
        whole = not lay.per_sample and (w is None or w.size == z.size)
        shape = (len(z) * rows,) if whole else (len(z), rows)
        z, y = z.reshape(shape), y.reshape(shape)
    elif lay.index_target:
        y = jnp.expand_dims(y, lay.class_axis)
    if w is None:
        return Samples(z, y, None, lay)
    if per_label:
        return Samples(z, y, w.reshape(y.shape), lay)
    w = w.reshape(-1, *[1] * (z.ndim - 1))
    return Samples(z, y, w, lay, w if lay.per_sample else None)


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


def _is_concrete(x: Array | None) -> bool:
    """Whether the values are available without a wait: no transformation, and on the CPU."""
    if x is None:
        return True
    return not isinstance(x, jax.core.Tracer) and {d.platform for d in x.devices()} == {"cpu"}
