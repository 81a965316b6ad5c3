"""What a Keras loss and a Keras metric share: how their arguments are checked and saved."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Self

import keras
import numpy as np

from anyloss._core.choices import Options
from anyloss._core.constraints import ConstraintSpec
from anyloss._core.formula import Formula
from anyloss._core.options import SharedSettings, check_names, make_settings
from anyloss._core.step import STEPS, Step
from anyloss.metrics import Metric, MetricSpec, cost_matrix
from anyloss.metrics import metric as find_metric

deserialize = keras.saving.deserialize_keras_object
register = keras.saving.register_keras_serializable(package="anyloss")

# The conventions of Keras: probabilities, and the classes in the last axis.
DEFAULTS = Options(from_logits=False, class_axis=-1)


class KerasSettings(SharedSettings, total=False):
    """The options of the named losses, without the scale."""

    constraints: ConstraintSpec | None
    name: str | None
    reduction: str | None
    dtype: Any


class Configured:
    """A loss or a metric that keeps its arguments, so that they are saved with a model."""

    def configure(
        self,
        metric: MetricSpec | Metric,
        params: dict[str, float],
        arguments: dict[str, Any],
        **derived: Any,
    ) -> None:
        """Check the arguments, with derived ones in their place, and keep the arguments."""
        if params:
            check_names(metric, params)
        chosen = find_metric(metric, **params)
        self.settings = make_settings(chosen, **arguments | derived)
        plain = {key: _plain(value) for key, value in arguments.items()}
        defaults = DEFAULTS._asdict() | {"smooth": 0.0, "cross_entropy": 0.0}
        self._arguments = {k: v for k, v in plain.items() if v != defaults.get(k)}

    def arguments_config(self) -> dict[str, Any]:
        """The arguments as text and numbers; a function must be registered with Keras."""
        chosen = self.settings.metric
        config = {"metric": _spec(chosen), **chosen.params, **self._arguments}
        if (step := config.get("step")) is not None:
            config["step"] = {"class_name": type(step).__name__, "config": asdict(step)}
        return config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings.describe(DEFAULTS)})"

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """A loss or a metric from its saved arguments."""
        config = dict(config)
        if isinstance(spec := config.get("metric"), dict):
            costs = spec.get("cost_matrix")
            config["metric"] = cost_matrix(costs) if costs else deserialize(spec)
        if isinstance(config.get("step"), dict):
            config["step"] = _step(**config["step"])
        return cls(**config)


def _spec(chosen: Metric) -> Any:
    """A metric as text; a matrix of costs as numbers; a function as Keras saves it."""
    if chosen.cost_matrix is not None:
        return {"cost_matrix": [list(row) for row in chosen.cost_matrix.costs]}
    if isinstance(chosen.function, Formula) or chosen.is_named:
        return chosen.name
    return keras.saving.serialize_keras_object(chosen.function)


def _plain(value: Any) -> Any:
    """A NumPy number or array as Python numbers, which can be saved."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _step(class_name: str, config: dict[str, Any]) -> Step:
    if class_name not in STEPS:
        raise ValueError(f"a saved step must be one of {sorted(STEPS)}; got {class_name!r}")
    return STEPS[class_name](**config)
