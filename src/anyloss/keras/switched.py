"""A loss of Keras that is switched, within `fit`, from a start loss to one for a metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from anyloss._core.backend import Array
from anyloss._core.choices import Options
from anyloss._core.shapes import prepare
from anyloss.keras.loss import AnyLoss
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.recipe.priors import log_shares
from anyloss.recipe.selection import Candidate, Selection
from anyloss.recipe.target import Target, new_target
from anyloss.steps import Step


def as_logits(p: Array, task: str) -> Array:
    """Logits of probabilities; for several classes their logarithms."""
    p = ops.clip(p, 1e-7, 1 - 1e-7)
    return ops.log(p) if task == "multiclass" else ops.log(p) - ops.log1p(-p)


def candidate(model: keras.Model, target: Target, z: Array, threshold: Array) -> Candidate:
    """A model with its logits, at a threshold."""
    return Candidate(model.get_weights(), threshold, target.scores_at(z, threshold))


def tried(
    model: keras.Model, target: Target, logits: Callable[[], Array], selection: Selection
) -> Iterator[tuple[float, Candidate]]:
    """The refined weights and their mean with the start, with each of their thresholds."""
    start, refined = selection.start, selection.refined
    if refined is None:
        return
    pairs = zip(start.weights, refined.weights, strict=True)
    mean = [(a + b) / 2 if b.dtype.kind == "f" else b for a, b in pairs]
    for share, weights in ((1.0, refined.weights), (0.5, mean)):
        model.set_weights(weights)
        z = logits()
        for threshold in target.refined_offsets(z, start.threshold):
            yield share, candidate(model, target, z, threshold)


class Refined(NamedTuple):
    """What the loss for a metric needs: the task, a threshold and the log shares of the classes."""

    task: str
    threshold: Array
    log_shares: Array


def read_target(
    predictions: Array, y: Array, weight: Array | None = None, *, metric: MetricSpec | Metric,
    average: str | None,
) -> Target:  # fmt: skip
    """The target of rows, from the shapes of labels and predictions."""
    p, y, chosen = np.asarray(predictions), np.asarray(y), find_metric(metric)
    if p.shape[1:] == (1,):
        p, y = p[:, 0], y.reshape(len(y))
    w = None if weight is None else np.asarray(weight, dtype=float)
    found = prepare(y, p, Options(average=average), weight=w, metric=chosen)
    if p.ndim > 2:
        raise ValueError(f"predictions must have the shape (n,), (n, 1) or (n, C); got {p.shape}")
    return new_target(found.y[0], chosen, found.layout.task, found.layout.average, w)


def refined_from(target: Target, threshold: Array) -> Refined:
    """The task and the shares of the classes are those of the target."""
    sums = np.stack([1 - target.y, target.y]).swapaxes(1, 2) @ target.weight
    return Refined(target.layout.task, threshold, log_shares(sums, target.layout.task))


class SwitchedLoss(keras.losses.Loss):  # type: ignore[misc]
    """A start loss; once `refined` is set, `1 - metric` plus a cross-entropy."""

    def __init__(
        self, start_loss: keras.losses.Loss, metric: MetricSpec | Metric, *, step: Step | None,
        average: str | None, from_logits: bool, cross_entropy: float,
    ) -> None:  # fmt: skip
        super().__init__(name="loss")
        given = getattr(start_loss, "from_logits", from_logits)
        if given != from_logits:
            raise ValueError(
                "start_loss and the callback must agree whether the model returns logits; got "
                f"start_loss with from_logits={given} and from_logits={from_logits}. Pass the same "
                "to both"
            )
        self.start_loss, self.from_logits, self.factor = start_loss, from_logits, cross_entropy
        self.metric_loss = AnyLoss(metric, step=step, average=average, from_logits=True)
        self.refined: Refined | None = None

    def __call__(self, y_true: Array, y_pred: Array, sample_weight: Array | None = None) -> Array:
        if self.refined is None:
            return self.start_loss(y_true, y_pred, sample_weight)
        task = self.refined.task
        threshold, shares = (ops.cast(x, "float32") for x in self.refined[1:])
        z = ops.cast(y_pred if self.from_logits else as_logits(y_pred, task), "float32")
        loss = self.metric_loss(y_true, z - threshold, sample_weight)
        return loss + self.factor * self._entropy(y_true, z + shares, sample_weight)

    def _entropy(self, y_true: Array, z: Array, weight: Array | None) -> Array:
        """The mean cross-entropy."""
        assert self.refined is not None
        if self.refined.task == "multiclass":
            y = ops.cast(ops.reshape(y_true, (-1, 1)), "int32")
            rows = -ops.take_along_axis(ops.log_softmax(z), y, axis=1)
        else:
            y = ops.reshape(ops.cast(y_true, "float32"), ops.shape(z))
            rows = y * ops.softplus(-z) + (1 - y) * ops.softplus(z)
        rows = ops.mean(ops.reshape(rows, (ops.shape(z)[0], -1)), axis=1)
        w = (
            ops.ones_like(rows)
            if weight is None
            else ops.reshape(ops.cast(weight, "float32"), (-1,))
        )
        return ops.sum(w * rows) / ops.maximum(ops.sum(w), 1e-30)
