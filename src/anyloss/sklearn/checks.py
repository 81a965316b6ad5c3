"""Checks of parameters that the classifiers share."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from anyloss._core.scoring import ONE_SCORE


def check_integers(model: Any, **least: int) -> None:
    """Raise a ValueError unless these parameters are integers of at least the given values."""
    for name, low in least.items():
        value = getattr(model, name)
        if not isinstance(value, Integral) or value < low:
            raise ValueError(f"{name} must be an integer of at least {low}; got {value!r}")


def check_average_of(model: Any) -> None:
    """Raise a ValueError unless the average gives one score."""
    if model.average not in ONE_SCORE:
        raise ValueError(f"average must be one of {ONE_SCORE}; got {model.average!r}")
