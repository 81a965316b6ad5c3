"""The score of an epoch in Keras: counts are merged over batches, instead of a mean of scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from anyloss._core.backend import Array
from anyloss._core.choices import Activation, ClassWeights, Task, ZeroDivision
from anyloss._core.counts import Counts
from anyloss._core.documents import documented
from anyloss._core.options import check_merged
from anyloss._core.scoring import score_counts
from anyloss._core.shapes import Layout
from anyloss.keras.batch import BACKENDS, count, counting, dtype_of, make_samples
from anyloss.keras.config import Configured, register
from anyloss.keras.loss import weights_and_masks
from anyloss.metrics import Metric, MetricSpec
from anyloss.steps import Step


@register
@documented
class Score(Configured, keras.metrics.Metric):  # type: ignore[misc]
    """The metric of the hard decisions of an epoch, for `model.compile(metrics=[Score("f1")])`.

    It is `average(metric(counts))` for the sums of the counts of all batches. The mean of the
    scores of the batches, which Keras shows for a loss, would be another number.

    Args:
        step (Step, optional): a step, of which only the threshold has an effect. Default: a step
            with the threshold 0.5.
        threshold (float or sequence of float, optional): the threshold of the decisions, instead of
            `step`, or one threshold for each label. Default: 0.5.
        name (str, optional): the name in Keras' logs and history. Default: the name of the metric,
            such as `"f1"`, which gives `"f1"` and `"val_f1"`.

    Shape:
        - y_true, y_pred, sample_weight: as in `AnyLoss`.

    Raises:
        TypeError: if an argument is unknown or has the wrong type.
        ValueError: if an option has an invalid value, or the batches differ in their task or number
            of classes.

    Examples:
        >>> score = Score("f1")
        >>> for y_true, y_pred in [([1, 1], [[0.7], [0.3]]), ([0, 1], [[0.9], [0.9]])]:
        ...     score.update_state(y_true, y_pred)
        >>> round(float(score.result()), 4)
        0.6667
    """

    def __init__(
        self, metric: MetricSpec | Metric = "f1", *, step: Step | None = None,
        threshold: float | Sequence[float] | None = None, average: str | None = "auto",
        from_logits: bool = False, activation: Activation = "auto", task: Task = "auto",
        class_axis: int | None = -1, classes: Sequence[int] | None = None,
        include_background: bool = True, class_weights: ClassWeights | None = None,
        zero_division: ZeroDivision = "auto", top_k: int = 1, ignore_index: int | None = None,
        validate: bool = True, name: str | None = None, dtype: Any = None, **params: float,
    ) -> None:  # fmt: skip
        check_merged("Score", params, average)
        arguments = {
            "step": step, "threshold": threshold, "average": average, "from_logits": from_logits,
            "activation": activation, "task": task, "class_axis": class_axis, "classes": classes,
            "include_background": include_background, "class_weights": class_weights,
            "zero_division": zero_division, "top_k": top_k,
            "ignore_index": ignore_index, "validate": validate,
        }  # fmt: skip
        self.configure(metric, params, arguments)
        if name is None:
            name = self.settings.metric.name
        super().__init__(name=name if name.isidentifier() else "score", dtype=dtype)
        self._layout: Layout | None = None

    def update_state(
        self, y_true: Array, y_pred: Array, sample_weight: Array | None = None
    ) -> None:
        """Add the counts of a batch.

        Args:
            y_true (array): the labels.
            y_pred (array): the predictions: probabilities, or logits with `from_logits=True`.
            sample_weight (array, optional): weights in the counts.
        """
        given = weights_and_masks(y_pred, sample_weight)
        samples, _ = make_samples(y_true, y_pred, given, self.settings)
        self._set_layout(samples.layout)
        step = self.settings.steps[0].hard()
        found = count(samples, step, self.settings.options)
        for cell, more in zip(self._cells, found, strict=True):
            cell.assign_add(ops.cast(more, cell.dtype))

    def _set_layout(self, lay: Layout) -> None:
        """Make the variables of the counts at the first batch; later batches must agree with it."""
        if self._layout is None:
            self._layout = lay
            dtype = counting(self.dtype)
            self._cells = [
                self.add_weight((1, 1, lay.classes), initializer="zeros", dtype=dtype, name=name)
                for name in ("tp", "fn", "fp", "tn")
            ]
        elif self._layout != lay:
            raise ValueError(
                "all batches must have one task and number of classes; expected "
                f"{self._layout.task} with {self._layout.classes}, got {lay.task} with "
                f"{lay.classes}"
            )

    def result(self) -> Array:
        """The metric of all batches since the last reset: a scalar, or one score per class."""
        if self._layout is None:
            return ops.convert_to_tensor(0.0, dtype=self.dtype)
        cells = Counts(*(ops.convert_to_tensor(cell) for cell in self._cells))
        return score_counts(
            cells, self.settings.metric, self._layout, BACKENDS[dtype_of(cells.tp)], hard=True
        )

    def get_config(self) -> dict[str, Any]:
        """The arguments of the metric, as Keras saves them."""
        base: dict[str, Any] = keras.metrics.Metric.get_config(self)
        return self.arguments_config() | base
