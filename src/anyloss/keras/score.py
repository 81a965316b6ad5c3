"""An epoch's true score in Keras: counts merged over batches, not a mean of batch scores."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from anyloss._core.backend import Array
from anyloss._core.counts import Counts, count, score_counts
from anyloss._core.shapes import Layout, Task, ZeroDivision
from anyloss.keras.batch import BACKENDS, counting, dtype_of, make_rows
from anyloss.keras.config import Configured, register
from anyloss.keras.loss import weights_and_masks
from anyloss.metrics import Metric, MetricSpec
from anyloss.steps import Step


@register
class Score(Configured, keras.metrics.Metric):  # type: ignore[misc]
    """The true metric of the hard decisions: `model.compile(..., metrics=[Score("f1")])`.

    The arguments are those of `AnyLoss`; of a step only its threshold matters. Its name in the
    history is the metric's (`"f1"`, `"val_f1"`) unless `name` is given.

    >>> meter = Score("f1")
    >>> for y_true, y_pred in [([1, 1], [[0.7], [0.3]]), ([0, 1], [[0.9], [0.9]])]:
    ...     meter.update_state(y_true, y_pred)
    >>> round(float(meter.result()), 4)
    0.6667
    """

    def __init__(
        self,
        metric: MetricSpec | Metric = "f1",
        *,
        step: Step | None = None,
        threshold: float | None = None,
        average: str | None = "auto",
        from_logits: bool = False,
        task: Task = "auto",
        class_axis: int | None = -1,
        zero_division: ZeroDivision = "auto",
        ignore_index: int | None = None,
        validate: bool = True,
        name: str | None = None,
        dtype: Any = None,
        **params: float,
    ) -> None:
        refused = [option for option in ("thresholds", "per_sample") if option in params]
        if refused:
            raise ValueError(f"Score merges counts and takes no {refused[0]}=; got it")
        arguments = {
            "step": step, "threshold": threshold, "average": average, "from_logits": from_logits,
            "task": task, "class_axis": class_axis, "zero_division": zero_division,
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
        """Count one batch."""
        given, options = weights_and_masks(y_pred, sample_weight), self.settings.options
        rows, _ = make_rows(y_true, y_pred, given, self.settings)
        self._remember(rows.layout)
        step = self.settings.steps[0].hard()
        found = count(rows, step, options, BACKENDS[dtype_of(rows.scores)])
        for cell, more in zip(self._cells, found, strict=True):
            cell.assign_add(ops.cast(more, cell.dtype))

    def _remember(self, lay: Layout) -> None:
        if self._layout is None:
            self._layout = lay
            dtype = counting(self.dtype)
            self._cells = [
                self.add_weight((1, 1, lay.classes), initializer="zeros", dtype=dtype, name=name)
                for name in ("tp", "fn", "fp", "tn")
            ]
        elif self._layout != lay:
            raise ValueError(
                "all batches must have one task and number of classes; had "
                f"{self._layout.task} of {self._layout.classes}, got {lay.task} of {lay.classes}"
            )

    def result(self) -> Array:
        """The metric of all batches since the last reset: a scalar, or one number per class."""
        if self._layout is None:
            return ops.convert_to_tensor(0.0, dtype=self.dtype)
        cells = Counts(*(ops.convert_to_tensor(cell) for cell in self._cells))
        return score_counts(
            cells, self.settings.metric, self._layout, BACKENDS[dtype_of(cells.tp)], hard=True
        )

    def get_config(self) -> dict[str, Any]:
        base: dict[str, Any] = keras.metrics.Metric.get_config(self)
        return self.arguments_config() | base
