"""The recipe within Keras's `fit`: a callback that switches the loss to the metric."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops

from anyloss._core.backend import Array
from anyloss.keras import switched
from anyloss.metrics import Metric, MetricSpec
from anyloss.recipe.selection import Selection
from anyloss.steps import Step


class RefineCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback of Keras that trains for a metric from some epoch on, as `torch.refine` does.

    It is passed twice, `compile(loss=callback.loss)` and `fit(callbacks=[callback])`. Its loss is
    `start_loss` before `at_epoch`, and that of `refine` from then on, with the class shares of the
    validation rows, without running counts. At the end the model has the refined weights, or if
    these are worse on the validation rows, their mean with the start (and its statistics), or it.

    Args:
        metric (str, callable or Metric): a name, a formula or a function of `tp, fn, fp, tn`.
        validation_data (tuple of arrays): `(x, y)` or `(x, y, weight)`, with predictions `(n, C)`.
        start_loss (Loss): the loss before `at_epoch`, with `from_logits=True` if this is set here.
        at_epoch (int): the first epoch for the metric, counted from 0. Default: 0.
        from_logits (bool): whether the model returns logits, not probabilities. Default: False.
        average (str): how several classes or labels are combined, as in `AnyLoss`.
        step (Step, optional): the step of the soft decisions. Default: `Uniform()`.
        cross_entropy (float): the factor of the logit-adjusted cross-entropy. Default: 1.

    Raises:
        ValueError: if an option, a shape or a label is not valid.

    Examples:
        >>> x, start = np.linspace(-3, 3, 200)[:, None], keras.losses.BinaryCrossentropy()
        >>> callback = RefineCallback("f1", validation_data=(x, x > 1), start_loss=start)
        >>> model = keras.Sequential([keras.layers.Dense(1, activation="sigmoid")])
        >>> model.compile("rmsprop", loss=callback.loss)
        >>> _ = model.fit(x, x > 1, epochs=2, callbacks=[callback], verbose=0)
        >>> callback.end_score >= callback.start_score
        True
    """

    def __init__(
        self, metric: MetricSpec | Metric = "f1", *, validation_data: tuple[Array, ...],
        start_loss: keras.losses.Loss, at_epoch: int = 0, from_logits: bool = False,
        average: str | None = "auto", step: Step | None = None, cross_entropy: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.x, *self.labels = validation_data
        self.at_epoch, self.metric, self.average = at_epoch, metric, average
        self.selection: Selection | None = None
        self.loss = switched.SwitchedLoss(
            start_loss, metric, step=step, average=average, from_logits=from_logits,
            cross_entropy=cross_entropy,
        )  # fmt: skip

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self.selection is None and epoch >= self.at_epoch:
            p = self.model.predict(self.x, verbose=0)
            read = partial(switched.read_target, metric=self.metric, average=self.average)
            self.target = read(p, *self.labels)
            z = self._logits(self.x)
            start = switched.candidate(self.model, self.target, z, self.target.steady_offsets(z))
            self.selection = Selection(start)
            self.loss.refined = switched.refined_from(self.target, start.threshold)
            self.model.make_train_function(force=True)  # a compiled one has the start loss
            self.model.make_test_function(force=True)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.selection is not None:
            weights = self.model.get_weights()
            self.selection.refined = self.selection.start._replace(weights=weights)

    def on_train_end(self, logs: Any = None) -> None:
        if self.selection is not None:
            found = switched.tried(
                self.model, self.target, partial(self._logits, self.x), self.selection
            )
            self.share, chosen = self.selection.choose(found)
            self.model.set_weights(chosen.weights)
            self.threshold_, self.end_score = chosen.threshold, chosen.scores.hard
            self.start_score = self.selection.start.scores.hard

    def decision_values(self, x: Array) -> Array:
        """The logits of the model minus the threshold: positive above 0, or by arg-max."""
        return np.subtract(self._logits(x), self.threshold_)

    def _logits(self, x: Array) -> Array:
        p = np.asarray(self.model.predict(x, verbose=0), dtype=float)
        if not self.loss.from_logits:
            p = ops.convert_to_numpy(switched.as_logits(p, self.target.layout.task))
        return p.reshape(len(p), -1)
