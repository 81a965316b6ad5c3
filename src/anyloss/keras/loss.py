"""Any metric of the confusion matrix as a Keras loss."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from numbers import Real
from typing import Any

import keras
from keras import ops
from keras.src.backend import get_keras_mask  # there is no public function for it on JAX

from anyloss._core.backend import Array
from anyloss._core.choices import Activation, ClassWeights, Form, PerSample, Task, ZeroDivision
from anyloss._core.constraints import ConstraintSpec
from anyloss._core.counts import Counts, cross_entropy_sums
from anyloss._core.documents import documented
from anyloss._core.per_label import at_threshold
from anyloss._core.scoring import check_finite, loss_of_counts
from anyloss.keras.batch import BACKENDS, count, counting, dtype_of, make_samples
from anyloss.keras.config import Configured, register
from anyloss.keras.lagrangian import Multipliers, is_training
from anyloss.metrics import Metric, MetricSpec
from anyloss.steps import Amplified, Step

# The weights and masks of the current batch. They bypass `call(y_true, y_pred)`, which a user may
# override, and which has no argument for them.
_weights: ContextVar[tuple[Array, ...]] = ContextVar("weights", default=())

EPSILON = 1e-7  # prevents 0/0 in a metric that a user writes in `call`


def weights_and_masks(y_pred: Array, sample_weight: Array | None) -> tuple[Array, ...]:
    """The weights and the mask of a batch, if there are any."""
    return tuple(x for x in (sample_weight, get_keras_mask(y_pred)) if x is not None)


def _once(name: str, given: Any, positional: Any) -> Any:
    if given is not None:
        raise TypeError(
            f"{name} must be given once; got it twice, as {positional!r} and as {given!r}"
        )
    return positional


@register
@documented
class AnyLoss(Configured, keras.losses.Loss):  # type: ignore[misc]
    """One minus a soft metric of the confusion matrix, a loss that trains for this metric.

    `loss = 1 - metric(tp, fn, fp, tn) + cross_entropy * CE`, where CE is the mean cross-entropy.
    The counts are soft: with the soft decisions `a = step(p)` and the labels `y`, they are
    `tp = sum(y a)`, `fn = sum(y (1 - a))`, `fp = sum((1 - y) a)` and `tn = sum((1 - y) (1 - a))`.

    Sample weights and masks are weights in these counts: a weight of 2 equals the sample twice,
    and a masked sample is not counted. The loss is one number per batch.

    For another metric give its formula, or override `call` as in the paper's Keras code (see the
    example).

    Args:
        scale_or_metric (float, str, callable or Metric, optional): either the metric, as in the
            other front-ends (`AnyLoss("mcc")`), or the amplifying scale, as in the paper's Keras
            code (`AnyLoss(73.0)`).
        metric (str, callable or Metric, optional): the name of a metric (`"f1"`, see
            `anyloss.METRICS`), a formula or a function of `tp, fn, fp, tn`. Default: `"f1"`.

    Shape:
        - y_true: `(n,)`, the shape of `y_pred`, or class indices without the class axis (or with
          length 1 there). One-hot labels need `task="multiclass"`.
        - y_pred: `(n,)` or `(n, 1)` for binary decisions (any shape with `task="binary"`),
          `(n, ..., C)` for several classes or labels.
        - sample_weight: `(n,)`, or the first axes of `y_pred`.
        - output: a scalar; with `reduction=None`, `(n,)` if `per_sample=True`, `(C,)` if
          `average=None`, and `(n, C)` if both.

    Raises:
        TypeError: if an argument is unknown, is given twice or has the wrong type.
        ValueError: if an option has an invalid value, the shapes do not match or have two readings,
            or the values are out of range (with `validate=True`, where Keras runs eagerly).

    Examples:
        >>> y_true, y_pred = [1, 1, 0, 0], [[0.9], [0.4], [0.6], [0.2]]
        >>> round(float(AnyLoss("recall", amplifying_scale=73.0)(y_true, y_pred)), 4)
        0.4997
        >>> class RecallLoss(AnyLoss):
        ...     def call(self, y_true, y_pred):
        ...         tn, fn, fp, tp = self.compute_confusion_matrix(y_true, y_pred)
        ...         return 1 - tp / (tp + fn)
        >>> round(float(RecallLoss(73.0)(y_true, y_pred)), 4)
        0.4997

    References:
        D. Han, N. Moniz and N. V. Chawla, "AnyLoss: Transforming Classification Metrics into Loss
        Functions", KDD 2024.
    """

    def __init__(
        self, scale_or_metric: float | MetricSpec | Metric | None = None, *,
        metric: MetricSpec | Metric | None = None, amplifying_scale: float | None = None,
        step: Step | None = None, threshold: float | Sequence[float] | None = None,
        thresholds: Sequence[float] | None = None,
        average: str | None = "auto", smooth: float = 0.0, cross_entropy: float = 0.0,
        from_logits: bool = False, activation: Activation = "auto", squared: bool = False,
        task: Task = "auto", class_axis: int | None = -1,
        classes: Sequence[int] | None = None, include_background: bool = True,
        class_weights: ClassWeights | None = None, per_sample: PerSample = False,
        zero_division: ZeroDivision = "auto", form: Form = "linear",
        top_k: int = 1, soft_labels: bool = False, ignore_index: int | None = None,
        validate: bool = True, constraints: ConstraintSpec | None = None,
        name: str | None = None,
        reduction: str | None = "sum_over_batch_size", dtype: Any = None, **params: float,
    ) -> None:  # fmt: skip
        keras.losses.Loss.__init__(self, name=name, reduction=reduction, dtype=dtype)
        if isinstance(scale_or_metric, Real):
            amplifying_scale = _once("amplifying_scale", amplifying_scale, float(scale_or_metric))
        elif scale_or_metric is not None:
            metric = _once("metric", metric, scale_or_metric)
        given = float(amplifying_scale) if isinstance(amplifying_scale, Real) else amplifying_scale
        self.amplifying_scale = given
        scaled: dict[str, Any] = {}
        if self.amplifying_scale is not None:
            if step is not None:
                raise ValueError(
                    "amplifying_scale cannot be combined with step=; got "
                    f"amplifying_scale={self.amplifying_scale} and step={step!r}. For the step of "
                    f"the paper write step=Amplified({self.amplifying_scale})"
                )
            amplified = Amplified(self.amplifying_scale)
            if threshold is None or thresholds is not None:
                scaled = {"step": amplified}
            else:
                scaled = {"step": at_threshold(amplified, threshold), "threshold": None}
        arguments = {
            "step": step, "threshold": threshold, "thresholds": thresholds, "average": average,
            "smooth": smooth, "cross_entropy": cross_entropy, "from_logits": from_logits,
            "activation": activation, "squared": squared,
            "task": task, "class_axis": class_axis, "classes": classes,
            "include_background": include_background, "class_weights": class_weights,
            "per_sample": per_sample, "zero_division": zero_division, "form": form,
            "top_k": top_k,
            "soft_labels": soft_labels,
            "ignore_index": ignore_index, "validate": validate,
        }  # fmt: skip
        if per_sample or average == "samples":
            words: dict[str | None, str] = {"sum": "sum", "none": "none", None: "none"}
            scaled["reduction"] = words.get(reduction, "mean")
        self.configure("f1" if metric is None else metric, params, arguments, **scaled)
        self._lagrangian = None if constraints is None else Multipliers(constraints, self.settings)

    @property
    def multipliers(self) -> Any:
        """The variable with the multipliers of the constraints; None without constraints.

        `model.multipliers = loss.multipliers` makes it a variable of the model, so that it is saved
        with the weights. The JAX backend needs this.
        """
        return None if self._lagrangian is None else self._lagrangian.state

    def __call__(self, y_true: Array, y_pred: Array, sample_weight: Array | None = None) -> Array:
        """The loss of a batch.

        Args:
            y_true (array): the labels.
            y_pred (array): the predictions: probabilities, or logits with `from_logits=True`.
            sample_weight (array, optional): weights in the counts (they do not multiply the loss).

        Returns:
            Tensor: a scalar; with `reduction=None` one loss per sample if `per_sample=True`, and
            one per class if `average=None`.
        """
        token = _weights.set(weights_and_masks(y_pred, sample_weight))
        dtype = counting(self.dtype)
        try:
            y_true, y_pred = (ops.convert_to_tensor(x, dtype=dtype) for x in (y_true, y_pred))
            loss = self.call(y_true, y_pred)
        finally:
            _weights.reset(token)
        if self.reduction in ("none", None) or not loss.shape:
            return loss
        return ops.sum(loss) if self.reduction == "sum" else ops.mean(loss)

    def call(self, y_true: Array, y_pred: Array) -> Array:
        """The loss of a batch: a scalar, or one loss per class with `average=None`.

        A subclass may override it, and write a metric with `compute_confusion_matrix`.
        """
        settings = self.settings
        samples, checked = make_samples(y_true, y_pred, _weights.get(), settings)
        dtype, total, weight = dtype_of(samples.scores), 0.0, samples.sample_weight
        weight = None if weight is None else ops.reshape(weight, (-1, 1, 1))
        metric, constraints = settings.metric, self._lagrangian
        if constraints is not None:
            metric = constraints.applied(metric, samples)
            if is_training(y_pred):
                constraints.update(samples, settings)
        for step in settings.steps:
            step.check_dtype(dtype, BACKENDS[dtype].tiny)
            found = count(samples, step, settings.options)
            loss = loss_of_counts(
                found, metric, samples.layout, BACKENDS[dtype], smooth=settings.smooth,
                sample_weight=weight, weighted=samples.weight is not None,
            )  # fmt: skip
            if checked:
                cells = Counts(*map(ops.convert_to_numpy, found))
                check_finite(cells, [ops.convert_to_numpy(loss), *cells], metric)
            total = total + loss
        loss = total / len(settings.steps)
        if settings.cross_entropy:
            sums = cross_entropy_sums(samples, settings.options.from_logits, BACKENDS[dtype])
            whole = ops.maximum(ops.stop_gradient(sums[1]), BACKENDS[dtype].tiny)
            loss = loss + settings.cross_entropy * (sums[0] / whole)
        return loss

    def compute_confusion_matrix(self, y_true: Array, y_pred: Array) -> tuple[Array, ...]:
        """The soft counts `(tn, fn, fp, tp)` of a batch, for a metric that `call` computes.

        Args:
            y_true (array): the labels.
            y_pred (array): the predictions.

        Returns:
            tuple: `(tn, fn, fp, tp)`, each a scalar for binary decisions, else one number per
            class. 1e-7 is added to each count, so that a ratio of them is finite.
        """
        steps, smooth, options = self.settings.steps, self.settings.smooth, self.settings.options
        if len(steps) > 1 or options.by_sample:
            raise ValueError(
                "compute_confusion_matrix takes no thresholds= and no per_sample=; got "
                f"{len(steps)} thresholds, per_sample={options.per_sample!r} and "
                f"average={options.average!r}"
            )
        samples, _ = make_samples(y_true, y_pred, _weights.get(), self.settings)
        found = count(samples, steps[0], options)
        single = samples.layout.task == "binary"
        tp, fn, fp, tn = (
            (x[0, 0, 0] if single else x[0, 0, :]) + (smooth + EPSILON) for x in found
        )
        return tn, fn, fp, tp

    def get_config(self) -> dict[str, Any]:
        """The arguments of the loss, as Keras saves them."""
        own = {"amplifying_scale": self.amplifying_scale, "dtype": self.dtype}
        if self._lagrangian is not None:
            own["constraints"] = [str(x) for x in self._lagrangian.constraints]
        base: dict[str, Any] = keras.losses.Loss.get_config(self)
        return self.arguments_config() | base | own


@register
@documented
class ApproximationFunction(keras.layers.Layer):  # type: ignore[misc]
    """A layer that turns probabilities into nearly binary decisions, the step `Amplified`.

    It computes `1 / (1 + exp(-amplifying_scale (p - threshold)))`.

    Args:
        amplifying_scale (float): the scale, which decides how steep the function is at the
            threshold. Default: 10.
        threshold (float): the probability at which the decision is 1/2. Default: 0.5.
        name (str, optional): the name of the layer.
        trainable (bool): as in every Keras layer; the layer has no weights. Default: True.

    Shape:
        - probabilities: any shape.
        - output: the same shape.

    Raises:
        ValueError: if the scale is not positive, or the threshold is not strictly between 0 and 1.

    Examples:
        >>> import numpy as np
        >>> decide = ApproximationFunction(amplifying_scale=10.0)
        >>> [round(float(a), 3) for a in decide(np.array([0.1, 0.5, 0.9]))]
        [0.018, 0.5, 0.982]

    References:
        D. Han, N. Moniz and N. V. Chawla, "AnyLoss: Transforming Classification Metrics into Loss
        Functions", KDD 2024.
    """

    def __init__(
        self, amplifying_scale: float = 10.0, threshold: float = 0.5, *,
        name: str | None = None, dtype: Any = None, trainable: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(name=name, dtype=dtype, trainable=trainable)
        self.step = Amplified(amplifying_scale, threshold)

    def call(self, probabilities: Array) -> Array:
        """The soft decision for each probability."""
        return self.step.both(probabilities, 1 - probabilities, BACKENDS["float32"])[0]

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The shape of the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """The arguments of the layer, as Keras saves them."""
        own = {"amplifying_scale": self.step.scale, "threshold": self.step.threshold}
        config: dict[str, Any] = super().get_config() | own
        return config
