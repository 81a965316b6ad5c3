"""Training under constraints in Keras: the multipliers, as a variable that is not trained."""

from __future__ import annotations

from importlib import import_module

import keras
from keras import ops
from keras.src.backend.common.stateless_scope import get_stateless_scope

from anyloss._core.backend import Array
from anyloss._core.constraints import ConstraintSpec, read_constraints
from anyloss._core.counts import class_counts
from anyloss._core.lagrangian import check_constrained, check_two_classes, lagrangian, moved
from anyloss._core.options import Settings
from anyloss._core.shapes import Samples
from anyloss.keras.batch import BACKENDS, count, dtype_of
from anyloss.metrics import Metric


class Multipliers:
    """The multipliers of constraints, which follow the hard counts of the training batches.

    The variable `state` `(2, constraints)` has the multipliers of the next loss, and the running
    sums behind them.
    """

    def __init__(self, constraints: ConstraintSpec, settings: Settings) -> None:
        check_constrained(settings)
        self.constraints = read_constraints(constraints)
        self.state = keras.Variable(
            ops.zeros((2, len(self.constraints))), trainable=False, dtype="float32",
            name="multipliers",
        )  # fmt: skip

    def applied(self, metric: Metric, samples: Samples) -> Metric:
        """The Lagrangian in place of the metric."""
        check_two_classes(samples.layout)
        # A copy, because the state moves before the backward pass needs its values.
        now = ops.cast(ops.copy(self.state.value[0]), dtype_of(samples.scores))
        return lagrangian(metric, self.constraints, ops.unstack(now))

    def update(self, samples: Samples, settings: Settings) -> None:
        """Move the multipliers after a batch."""
        self._check_tracked()
        dtype = dtype_of(samples.scores)
        counts = count(samples, settings.steps[0].hard(), settings.options)
        cells = [
            ops.stop_gradient(ops.reshape(x, ()))
            for x in class_counts(counts, samples.layout, BACKENDS[dtype])
        ]
        sums = ops.unstack(ops.cast(self.state.value[1], dtype))
        found = moved(sums, self.constraints, cells, BACKENDS[dtype])
        self.state.assign(ops.cast(ops.stack([ops.stack(row) for row in found]), "float32"))

    def _check_tracked(self) -> None:
        """Refuse a variable whose changes Keras would drop: with JAX it returns the model's own."""
        scope = get_stateless_scope()
        if scope is not None and scope.get_current_value(self.state) is None:
            raise ValueError(
                "on the JAX backend the multipliers of a constraint must be a variable of the "
                "model; write model.multipliers = loss.multipliers before model.fit"
            )


def is_training(y_pred: Array) -> bool:
    """Whether a gradient of the predictions is being recorded."""
    if keras.backend.backend() == "torch":
        import torch

        return torch.is_grad_enabled() and bool(y_pred.requires_grad)
    if keras.backend.backend() == "jax":  # only one of the two classes is public
        return type(y_pred).__name__ in ("JVPTracer", "LinearizeTracer")
    record = import_module("tensorflow.python.eager.record")
    return bool(record.could_possibly_record())
