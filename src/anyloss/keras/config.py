"""What a loss and a metric share: their arguments, checked, and how these are saved."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Self

import keras
import numpy as np

from anyloss._core.formula import Formula
from anyloss._core.options import make_settings
from anyloss.metrics import METRICS, Metric, MetricSpec
from anyloss.steps import Step

register = keras.saving.register_keras_serializable(package="anyloss")


class Configured:
    """Keeps the arguments of `make_settings`; probabilities by default, as Keras users expect."""

    def configure(
        self, metric: MetricSpec | Metric, arguments: dict[str, Any], **derived: Any
    ) -> None:
        """Check the arguments and what was derived from them, and keep the arguments."""
        keras_defaults = {"from_logits": False, "class_axis": -1}
        self.settings = make_settings(metric, **keras_defaults | arguments | derived)
        self._arguments = {key: _plain(value) for key, value in arguments.items()}

    def arguments_config(self) -> dict[str, Any]:
        """The arguments as text and numbers; a function must be registered with Keras."""
        chosen = self.settings.metric
        named = isinstance(chosen.function, Formula) or chosen.function in METRICS.values()
        spec = chosen.name if named else keras.saving.serialize_keras_object(chosen.function)
        config = {"metric": spec, **chosen.params, **self._arguments}
        if (step := config.get("step")) is not None:
            config["step"] = {"class_name": type(step).__name__, "config": asdict(step)}
        return config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings})"

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


def _step(class_name: str, config: dict[str, float]) -> Step:
    kinds = {kind.__name__: kind for kind in Step.__subclasses__()}
    if class_name not in kinds:
        raise ValueError(f"a saved step must be one of {sorted(kinds)}; got {class_name!r}")
    return kinds[class_name](**config)
