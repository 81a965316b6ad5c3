"""What a loss and a metric share: their arguments, checked, and how these are saved."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Self

import keras
import numpy as np

from anyloss._core.formula import Formula
from anyloss._core.options import SharedSettings, check_names, make_settings
from anyloss._core.shapes import Options
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.steps import STEPS, Step

register = keras.saving.register_keras_serializable(package="anyloss")

# As Keras users expect: probabilities, and the classes in the last axis.
DEFAULTS = Options(from_logits=False, class_axis=-1)


class KerasSettings(SharedSettings, total=False):
    """The arguments of the named losses beside the scale."""

    name: str | None
    reduction: str | None
    dtype: Any


class Configured:
    """Keeps the arguments of a loss or a metric, to be saved with a model."""

    def configure(
        self,
        metric: MetricSpec | Metric,
        params: dict[str, float],
        arguments: dict[str, Any],
        **derived: Any,
    ) -> None:
        """Check the arguments and what was derived from them, and keep the arguments."""
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
        named = isinstance(chosen.function, Formula) or chosen.is_named
        spec = chosen.name if named else keras.saving.serialize_keras_object(chosen.function)
        config = {"metric": spec, **chosen.params, **self._arguments}
        if (step := config.get("step")) is not None:
            config["step"] = {"class_name": type(step).__name__, "config": asdict(step)}
        return config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings.describe(DEFAULTS)})"

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build a loss or a metric from its saved arguments."""
        config = dict(config)
        if isinstance(config.get("metric"), dict):
            config["metric"] = keras.saving.deserialize_keras_object(config["metric"])
        if isinstance(config.get("step"), dict):
            config["step"] = _step(**config["step"])
        return cls(**config)


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as a file can hold them."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _step(class_name: str, config: dict[str, Any]) -> Step:
    if class_name not in STEPS:
        raise ValueError(f"a saved step must be one of {sorted(STEPS)}; got {class_name!r}")
    return STEPS[class_name](**config)
