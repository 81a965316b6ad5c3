"""Checks of parameters that the classifiers share."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from anyloss._core.scoring import AVERAGES


def check_integers(model: Any, **least: int) -> None:
    """Raise a ValueError unless these parameters are integers of at least the given values."""
    for name, low in least.items():
        value = getattr(model, name)
        if not isinstance(value, Integral) or value < low:
            raise ValueError(f"{name} must be an integer of at least {low}; got {value!r}")


def check_average_of(model: Any) -> None:
    """Raise a ValueError unless the average gives one score."""
    known = [x for x in AVERAGES if x not in (None, "none", "samples")]
    if model.average not in known:
        raise ValueError(f"average must be one of {known}; got {model.average!r}")
