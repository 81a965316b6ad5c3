"""The library's parameters as the user passes them: checked, and adapted to the positive class.

Inside the recipe the positive class is always 1. A parameter that refers to classes is adapted to
that, or refused.
"""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from anyloss._core.formula import CELLS
from anyloss.metrics import Metric

_OWN = "the classifier has its own objectives, log-loss and the metric; remove this parameter"
_WEIGHTS = "the metric weighs the classes; pass fit(..., sample_weight=...) instead"
_START = "the start margin is part of the recipe; remove this parameter"
REFUSED = {
    "objective": _OWN,
    "loss_function": _OWN,
    "class_weight": _WEIGHTS,
    "class_weights": _WEIGHTS,
    "auto_class_weights": _WEIGHTS,
    "init_score": _START,
    "base_margin": _START,
    "baseline": _START,
}
FORESTS = ("rf", "random_forest")
MONOTONE = ("monotone_constraints", "monotone_constraint", "monotonic_cst", "mc")


def check(given: Mapping[str, Any], known: Iterable[str], metric: Metric) -> None:
    """Raise an error for parameters that the recipe sets, those of the metric, and misspelt names.

    `known` are the names that the library and the classifier accept. An unknown name that resembles
    none of them is passed to the library, with a warning.

    >>> from anyloss import metric
    >>> check({"lerning_rate": 0.1}, ["learning_rate", "max_depth"], metric("f1"))
    Traceback (most recent call last):
    ...
    ValueError: unknown parameter 'lerning_rate'; did you mean 'learning_rate'?
    """
    known = set(known)
    of_metric = set(inspect.signature(metric.function).parameters) - set(CELLS)
    for name, value in given.items():
        if name in REFUSED and value is not None:
            raise ValueError(f"{name}: {REFUSED[name]}")
        if name in ("boosting_type", "boosting", "boost") and value in FORESTS:
            raise ValueError(f"{name}: a forest cannot be refined round by round; got {value!r}")
        if name in known or name in REFUSED:
            continue
        if name in of_metric:
            raise ValueError(
                f"{name} is a parameter of the metric: write "
                f"metric=anyloss.metric({metric.name!r}, {name}={value!r})"
            )
        if near := difflib.get_close_matches(name, known, 1, cutoff=0.8):
            raise ValueError(f"unknown parameter {name!r}; did you mean {near[0]!r}?")
        warnings.warn(
            f"{name!r} is not known as a parameter of this library, which may ignore it: check its "
            "name",
            UserWarning,
            stacklevel=4,
        )


def oriented(given: Mapping[str, Any], flipped: bool) -> dict[str, Any]:
    """The parameters, with monotone constraints negated if the first class is the positive one.

    >>> oriented({"monotone_constraints": [1, 0, -1]}, flipped=True)
    {'monotone_constraints': [-1, 0, 1]}
    """
    found = {name: value for name, value in given.items() if name not in REFUSED}
    for name in MONOTONE:
        value = found.get(name)
        if not flipped or value is None:
            continue
        if isinstance(value, str):
            raise ValueError(f"{name} must be a list or a dictionary of -1, 0 and 1; got {value!r}")
        if isinstance(value, Mapping):
            found[name] = {key: -sign for key, sign in value.items()}
        else:
            found[name] = [-sign for sign in value]
    return found


def to_json(name: str, value: Any) -> Any:
    """A parameter as JSON; a random generator becomes None.

    >>> to_json("max_bin", np.int64(63)), to_json("weights", np.array([1.0, 2.0]))
    (63, [1.0, 2.0])
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, np.random.RandomState) or value is None:
        return None
    if isinstance(value, list | tuple):
        return [to_json(name, each) for each in value]
    if isinstance(value, dict):
        return {str(key): to_json(name, each) for key, each in value.items()}
    if isinstance(value, str | int | float):
        return value
    raise ValueError(
        f"the parameter {name} must be text, numbers or lists of them to be saved; got "
        f"{type(value).__name__}"
    )
