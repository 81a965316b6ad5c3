"""Any metric of the confusion matrix as a Keras loss."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from numbers import Real
from typing import Any, Unpack

import keras
from keras import ops
from keras.src.backend import get_keras_mask  # where JAX keeps its masks is not public

from anyloss._core.backend import Array
from anyloss._core.counts import Counts, check_finite, count, cross_entropy_sums, score_counts
from anyloss._core.options import shows_options_of
from anyloss._core.shapes import PerSample, Task, ZeroDivision
from anyloss.keras.batch import BACKENDS, counting, dtype_of, make_rows
from anyloss.keras.config import Configured, KerasSettings, register
from anyloss.metrics import Metric, MetricSpec
from anyloss.steps import Amplified, Step

# The weights and masks of the batch at hand, on their way past a user's own `call(y_true, y_pred)`.
_weights: ContextVar[tuple[Array, ...]] = ContextVar("weights", default=())

EPSILON = 1e-7  # keeps a division in a user's own metric from 0/0


def weights_and_masks(y_pred: Array, sample_weight: Array | None) -> tuple[Array, ...]:
    """What a batch brings along to weigh its rows by."""
    return tuple(x for x in (sample_weight, get_keras_mask(y_pred)) if x is not None)


def _once(name: str, given: Any, positional: Any) -> Any:
    if given is not None:
        raise TypeError(f"{name} was given twice: {positional!r} and {given!r}")
    return positional


@register
class AnyLoss(Configured, keras.losses.Loss):  # type: ignore[misc]
    """One minus a soft metric of the confusion matrix: train for the metric you report.

    Args:
        scale_or_metric: the metric, as in the other front-ends (`AnyLoss("mcc")`), or the
            amplifying scale, as in the paper's Keras code (`AnyLoss(73.0)`).
        metric: a name (`"f1"`, see `anyloss.METRICS`), a formula or a function of `tp, fn, fp, tn`.
        amplifying_scale: the scale of the paper's approximation function, 73 there (default: the
            default step, the probability itself; see benchmarks/README.md).
        step, threshold, thresholds, average, smooth, cross_entropy, task, per_sample,
            zero_division, soft_labels, ignore_index, validate: as in `anyloss.torch.AnyLoss`.
            One-hot labels of the predictions' shape need `task="multiclass"`.
        from_logits: whether predictions are logits; by default they are probabilities.
        class_axis: the axis of the classes; the last one by default.
        name, reduction, dtype: as in every Keras loss. The loss is one number for the batch;
            `reduction` acts only with `average=None`, which gives one per class.
        **params: parameters of the metric, such as `beta=2` for `"fbeta"`.

    For a metric of your own, give its formula, or override `call` as in the paper's Keras code:

    >>> class RecallLoss(AnyLoss):
    ...     def call(self, y_true, y_pred):
    ...         tn, fn, fp, tp = self.compute_confusion_matrix(y_true, y_pred)
    ...         return 1 - tp / (tp + fn)
    >>> y_true, y_pred = [1, 1, 0, 0], [[0.9], [0.4], [0.6], [0.2]]
    >>> round(float(RecallLoss(73.0)(y_true, y_pred)), 4)
    0.4997
    >>> round(float(AnyLoss("recall", amplifying_scale=73.0)(y_true, y_pred)), 4)
    0.4997
    """

    def __init__(
        self,
        scale_or_metric: float | MetricSpec | Metric | None = None,
        *,
        metric: MetricSpec | Metric | None = None,
        amplifying_scale: float | None = None,
        step: Step | None = None,
        threshold: float | None = None,
        thresholds: Sequence[float] | None = None,
        average: str | None = "auto",
        smooth: float = 0.0,
        cross_entropy: float = 0.0,
        from_logits: bool = False,
        task: Task = "auto",
        class_axis: int | None = -1,
        per_sample: PerSample = False,
        zero_division: ZeroDivision = "auto",
        soft_labels: bool = False,
        ignore_index: int | None = None,
        validate: bool = True,
        name: str | None = None,
        reduction: str | None = "sum_over_batch_size",
        dtype: Any = None,
        **params: float,
    ) -> None:
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
                    "amplifying_scale is the scale of the default kind of step; with step= say it "
                    f"there, as in step=Amplified({self.amplifying_scale}); got both"
                )
            amplified = Amplified(self.amplifying_scale)
            if threshold is None or thresholds is not None:
                scaled = {"step": amplified}
            else:
                scaled = {"step": amplified.at(threshold), "threshold": None}
        arguments = {
            "step": step, "threshold": threshold, "thresholds": thresholds, "average": average,
            "smooth": smooth, "cross_entropy": cross_entropy, "from_logits": from_logits,
            "task": task, "class_axis": class_axis, "per_sample": per_sample,
            "zero_division": zero_division, "soft_labels": soft_labels,
            "ignore_index": ignore_index, "validate": validate,
        }  # fmt: skip
        self.configure("f1" if metric is None else metric, params, arguments, **scaled)

    def __call__(self, y_true: Array, y_pred: Array, sample_weight: Array | None = None) -> Array:
        """The loss of a batch; weights and masks weigh in the counts, not in the result."""
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
        """One minus the soft metric. Override it to write a metric with `compute_confusion_matrix`.

        A number for the batch, or one per class with `average=None`.
        """
        settings = self.settings
        rows, checked = make_rows(y_true, y_pred, _weights.get(), settings)
        dtype, total = dtype_of(rows.scores), 0.0
        for step in settings.steps:
            step.check_dtype(dtype, BACKENDS[dtype].tiny)
            found = count(rows, step, settings.options, BACKENDS[dtype])
            score = score_counts(
                found, settings.metric, rows.layout, BACKENDS[dtype], smooth=settings.smooth,
                sample_weight=rows.sample_weight,
            )  # fmt: skip
            if checked:
                cells = Counts(*map(ops.convert_to_numpy, found))
                check_finite(cells, [ops.convert_to_numpy(score), *cells], settings.metric)
            total = total + score
        loss = 1 - total / len(settings.steps)
        if settings.cross_entropy:
            sums = cross_entropy_sums(rows, settings.options.from_logits, BACKENDS[dtype])
            whole = ops.maximum(ops.stop_gradient(sums[1]), BACKENDS[dtype].tiny)
            loss = loss + settings.cross_entropy * (sums[0] / whole)
        return loss

    def compute_confusion_matrix(self, y_true: Array, y_pred: Array) -> tuple[Array, ...]:
        """The soft `(tn, fn, fp, tp)`, each with 1e-7 added so that a ratio of them is finite.

        One number each for a binary column, else one per class.
        """
        steps, smooth, options = self.settings.steps, self.settings.smooth, self.settings.options
        if len(steps) > 1 or options.per_sample:
            raise ValueError("compute_confusion_matrix takes no thresholds= and no per_sample=")
        rows, _ = make_rows(y_true, y_pred, _weights.get(), self.settings)
        found = count(rows, steps[0], options, BACKENDS[dtype_of(rows.scores)])
        single = rows.layout.task == "binary"
        tp, fn, fp, tn = (
            (x[0, 0, 0] if single else x[0, 0, :]) + (smooth + EPSILON) for x in found
        )
        return tn, fn, fp, tp

    def get_config(self) -> dict[str, Any]:
        own = {"amplifying_scale": self.amplifying_scale, "dtype": self.dtype}
        base: dict[str, Any] = keras.losses.Loss.get_config(self)
        return self.arguments_config() | base | own


class _Named(AnyLoss):
    """A loss whose class says its metric."""

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["metric"]
        return config


@register
@shows_options_of(AnyLoss, "metric")
class AccuracyLoss(_Named):
    """`AnyLoss(amplifying_scale, metric="accuracy")`."""

    def __init__(
        self, amplifying_scale: float | None = None, **settings: Unpack[KerasSettings]
    ) -> None:
        super().__init__(amplifying_scale, metric="accuracy", **settings)


@register
@shows_options_of(AnyLoss, "metric")
class F1Loss(_Named):
    """`AnyLoss(amplifying_scale, metric="f1")`.

    >>> float(F1Loss()([1, 0], [[1.0], [0.0]])) < 0.01
    True
    """

    def __init__(
        self, amplifying_scale: float | None = None, **settings: Unpack[KerasSettings]
    ) -> None:
        super().__init__(amplifying_scale, metric="f1", **settings)


@register
@shows_options_of(AnyLoss, "metric")
class FBetaLoss(_Named):
    """`AnyLoss(amplifying_scale, metric="fbeta", beta=beta)`: recall counts `beta` times."""

    def __init__(
        self,
        beta: float = 1.0,
        amplifying_scale: float | None = None,
        **settings: Unpack[KerasSettings],
    ) -> None:
        super().__init__(amplifying_scale, metric="fbeta", beta=beta, **settings)


@register
@shows_options_of(AnyLoss, "metric")
class GeometricMeanLoss(_Named):
    """`AnyLoss(amplifying_scale, metric="gmean")`: the root of recall times specificity."""

    def __init__(
        self, amplifying_scale: float | None = None, **settings: Unpack[KerasSettings]
    ) -> None:
        super().__init__(amplifying_scale, metric="gmean", **settings)


@register
@shows_options_of(AnyLoss, "metric")
class BalancedAccuracyLoss(_Named):
    """`AnyLoss(amplifying_scale, metric="balanced_accuracy")`."""

    def __init__(
        self, amplifying_scale: float | None = None, **settings: Unpack[KerasSettings]
    ) -> None:
        super().__init__(amplifying_scale, metric="balanced_accuracy", **settings)


@register
@shows_options_of(AnyLoss, "metric")
class MCCLoss(_Named):
    """`AnyLoss(amplifying_scale, metric="mcc")`: from 0 (perfect) to 2 (all decisions wrong)."""

    def __init__(
        self, amplifying_scale: float | None = None, **settings: Unpack[KerasSettings]
    ) -> None:
        super().__init__(amplifying_scale, metric="mcc", **settings)


@register
class ApproximationFunction(keras.layers.Layer):  # type: ignore[misc]
    """AnyLoss's approximation function as a layer: probabilities to nearly binary decisions.

    >>> import numpy as np
    >>> decide = ApproximationFunction(amplifying_scale=10.0)
    >>> [round(float(a), 3) for a in decide(np.array([0.1, 0.5, 0.9]))]
    [0.018, 0.5, 0.982]
    """

    def __init__(
        self,
        amplifying_scale: float = 10.0,
        threshold: float = 0.5,
        *,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(name=name, dtype=dtype, trainable=trainable)
        self.step = Amplified(amplifying_scale, threshold)

    def call(self, probabilities: Array) -> Array:
        """The soft decision for each probability."""
        return self.step.both(probabilities, 1 - probabilities, BACKENDS["float32"])[0]

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        own = {"amplifying_scale": self.step.scale, "threshold": self.step.threshold}
        config: dict[str, Any] = super().get_config() | own
        return config
