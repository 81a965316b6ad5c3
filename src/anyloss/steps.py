"""Steps: soft stand-ins for "is the probability above the threshold?".

A step is the CDF of a random threshold: its value lies in [0, 1], its slope is the density. It
takes the pair `(p, 1 - p)`, both computed from the logit, and gives the pair `(a, 1 - a)`: neither
is ever a subtraction that loses the digits of a sure row. `LogitSigmoid` works on the logit and
takes `(z, -z)`.

>>> import numpy as np
>>> Amplified(scale=10.0).value(np.array([0.1, 0.5, 0.9])).round(3).tolist()
[0.018, 0.5, 0.982]
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self, TypeVar

import numpy as np

from anyloss._core.backend import (
    NUMPY,
    Array,
    Backend,
    mirrored_sigmoid,
    mirrored_softmax,
    softmax_back,
    top,
)

__all__ = [
    "Amplified",
    "Hard",
    "Linear",
    "LogitSigmoid",
    "RaisedCosine",
    "Step",
    "Uniform",
    "register",
]

SIGNIFICAND_BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


StepClass = TypeVar("StepClass", bound="Step")


class Step(ABC):
    """What all steps share. A step defines `both` (value and mirror) and `density` (slope)."""

    on_logit: ClassVar[bool] = False  # whether the pair is (z, -z) instead of (p, 1 - p)

    @property
    def is_identity(self) -> bool:
        """Whether the soft decision is the probability itself."""
        return False

    @abstractmethod
    def both(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        """The soft decision and its mirror `1 - a`, from the pair `p, q = 1 - p`."""

    @abstractmethod
    def density(self, p: Array, q: Array, backend: Backend) -> Array:
        """The derivative of the soft decision: the density of the random threshold."""

    def multiclass(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        """The soft decisions over the last axis and their mirrors, from class probabilities."""
        raise ValueError(
            "several classes take Uniform(), Amplified or Hard, each at threshold 0.5; "
            f"got {self!r}"
        )

    def multiclass_back(self, g: Array, p: Array, q: Array, backend: Backend) -> Array:
        """The gradient `g` of the soft multiclass decisions, carried back to the probabilities."""
        return g  # right for a step that takes the probabilities as they are

    def value(self, p: Array) -> Array:
        """The soft decision for NumPy probabilities (for `LogitSigmoid`: logits)."""
        return self.both(*self._pair(p), NUMPY)[0]

    def mirror(self, p: Array) -> Array:
        """One minus the soft decision, without the subtraction."""
        return self.both(*self._pair(p), NUMPY)[1]

    def slope(self, p: Array) -> Array:
        """The slope for NumPy probabilities (for `LogitSigmoid`: logits)."""
        return self.density(*self._pair(p), NUMPY)

    def _pair(self, p: Array) -> tuple[Array, Array]:
        p = np.asarray(p, dtype=float)
        return p, -p if self.on_logit else 1 - p

    def hard(self) -> Hard:
        """The decision that this step stands for."""
        return Hard(getattr(self, "threshold", 0.5))

    def at(self, threshold: float) -> Self:
        """The same step at another threshold."""
        if not hasattr(self, "threshold"):
            raise ValueError(f"{self!r} has no threshold to move; use a step that has one")
        return replace(self, threshold=threshold)  # type: ignore[type-var]

    def scale_limit(self, tiny: float) -> float:
        """The largest scale at which a sure row keeps a slope above `tiny`."""
        return math.inf

    def check_dtype(self, dtype: str, tiny: float) -> None:
        """Refuse a step whose slope is lost in the given float type."""
        scale, limit = getattr(self, "scale", 0.0), self.scale_limit(tiny)
        if scale > limit:
            raise ValueError(
                f"scale must be at most {limit:.1f} for {dtype}, or the slope of a sure row is "
                f"lost; got {self!r}"
            )


STEPS: dict[str, type[Step]] = {}  # by name, as they are saved with a model


def register(kind: type[StepClass]) -> type[StepClass]:
    """Make a step known by its name, so that what uses it can be saved and loaded.

    A step is a frozen dataclass that defines `both` and `density`, and `multiclass` and
    `multiclass_back` if it has a form for several classes.

    >>> STEPS["Amplified"](10.0)
    Amplified(scale=10.0, threshold=0.5)
    """
    STEPS[kind.__name__] = kind
    return kind


def _require(inside: Callable[[float], bool], name: str, expected: str, got: object) -> None:
    if not isinstance(got, int | float | np.number):
        raise TypeError(f"{name} must be a number, {expected}; got {got!r}")
    if not inside(float(got)):
        raise ValueError(f"{name} must be {expected}; got {got!r}")


def _require_threshold(threshold: float) -> None:
    _require(lambda x: 0 < x < 1, "threshold", "strictly between 0 and 1", threshold)


def _above(p: Array, q: Array, threshold: float) -> Array:
    """`p - threshold`, accurate at both ends."""
    return (1 - threshold) * p - threshold * q


def check_step(step: Step) -> None:
    """Refuse what is not a step, a number or the class of one for instance."""
    if not isinstance(step, Step):
        given = f"the class {step.__name__}" if isinstance(step, type) else type(step).__name__
        raise TypeError(f"step must be one of anyloss.steps; got {given}")


@register
@dataclass(frozen=True)
class Amplified(Step):
    """AnyLoss's approximation, also the sigmoid Heaviside: `sigmoid(scale (p - threshold))`.

    The papers take scale 73 (AnyLoss) and 10 (Bridging the Gap).

    >>> bool(Amplified(73.0).mirror(1.0) > 0)  # the plain formula gives 0 in float32
    True
    """

    scale: float = 73.0
    threshold: float = 0.5

    def __post_init__(self) -> None:
        _require(lambda x: 0 < x < math.inf, "scale", "a positive number", self.scale)
        _require_threshold(self.threshold)

    def both(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        return mirrored_sigmoid(self.scale * _above(p, q, self.threshold), backend)

    def density(self, p: Array, q: Array, backend: Backend) -> Array:
        a, b = self.both(p, q, backend)
        return self.scale * a * b

    def multiclass(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        if self.threshold != 0.5:
            return super().multiclass(p, q, backend)
        return mirrored_softmax(self._class_scale(p) * p, backend)

    def multiclass_back(self, g: Array, p: Array, q: Array, backend: Backend) -> Array:
        a, _ = self.multiclass(p, q, backend)
        return self._class_scale(p) * softmax_back(g, a, backend)

    def _class_scale(self, p: Array) -> float:
        # The logarithm makes a sure row count as sure for any number of classes.
        return self.scale / 2 + math.log(max(p.shape[-1] - 1, 1))

    def scale_limit(self, tiny: float) -> float:
        return -math.log(tiny) / max(self.threshold, 1 - self.threshold)


@register
@dataclass(frozen=True)
class Linear(Step):
    """The five-point linear Heaviside of Bridging the Gap, through (0, 0), (t, 1/2) and (1, 1).

    Flat but never level outside `t -+ m/2`, `m = min(t, 1 - t)`: every row keeps a gradient.

    >>> Linear(delta=0.2).value([0.25, 0.5, 0.75]).tolist()
    [0.2, 0.5, 0.8]
    """

    delta: float = 0.2
    threshold: float = 0.5

    def __post_init__(self) -> None:
        _require(lambda x: 0 < x < 0.5, "delta", "strictly between 0 and 0.5", self.delta)
        _require_threshold(self.threshold)

    def slopes(self) -> tuple[float, float, float]:
        """The slopes of the three segments, from left to right."""
        t, m = self.threshold, min(self.threshold, 1 - self.threshold)
        return self.delta / (t - m / 2), (1 - 2 * self.delta) / m, self.delta / (1 - t - m / 2)

    def _segments(self, p: Array, q: Array) -> tuple[Array, Array, Array]:
        above, m = _above(p, q, self.threshold), min(self.threshold, 1 - self.threshold)
        return above < -m / 2, above > m / 2, above

    def both(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        left, middle, right = self.slopes()
        is_left, is_right, above = self._segments(p, q)
        inner = 0.5 + middle * above
        a = backend.where(is_left, left * p, backend.where(is_right, 1 - right * q, inner))
        b = backend.where(is_left, 1 - left * p, backend.where(is_right, right * q, 1 - inner))
        return a, b

    def density(self, p: Array, q: Array, backend: Backend) -> Array:
        left, middle, right = self.slopes()
        is_left, is_right, above = self._segments(p, q)
        flat = above * 0.0
        return backend.where(
            is_left, left + flat, backend.where(is_right, right + flat, middle + flat)
        )


@register
@dataclass(frozen=True)
class RaisedCosine(Step):
    """SOL's raised cosine: the threshold is random within `threshold -+ delta`.

    >>> RaisedCosine(delta=0.1).value([0.45, 0.55]).round(7).tolist()
    [0.0908451, 0.9091549]
    """

    delta: float = 0.1
    threshold: float = 0.5

    def __post_init__(self) -> None:
        _require(lambda x: 0 < x <= 1, "delta", "greater than 0 and at most 1", self.delta)
        _require_threshold(self.threshold)

    def _margin(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        """Whether `p` is above the threshold, and its distance from the nearer end, in deltas."""
        x = _above(p, q, self.threshold) / self.delta
        margin = 1 - backend.where(x >= 0, x, -x)
        return x >= 0, backend.where(margin > 0, margin, 0.0)

    def both(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        positive, margin = self._margin(p, q, backend)
        small = (margin - backend.sin(math.pi * margin) / math.pi) / 2
        small = backend.where(small > 0, small, 0.0)  # rounding, for the smallest margins
        return backend.where(positive, 1 - small, small), backend.where(positive, small, 1 - small)

    def density(self, p: Array, q: Array, backend: Backend) -> Array:
        _, margin = self._margin(p, q, backend)
        return backend.sin(math.pi / 2 * margin) ** 2 / self.delta


@register
@dataclass(frozen=True)
class Uniform(Step):
    """A threshold that is equally likely everywhere; at 0.5 the soft decision is the probability.

    F1 under `Uniform()` is the soft Dice of segmentation. At another threshold `t` it is straight
    below and above: half of the random thresholds lie on either side of `t`, so that the decision
    runs through (0, 0), (t, 1/2) and (1, 1). With `delta` the threshold is uniform within
    `threshold -+ delta`, as in SOL.

    >>> Uniform().value([0.1, 0.7]).tolist()
    [0.1, 0.7]
    >>> Uniform(threshold=0.2).value([0.0, 0.1, 0.2, 0.6, 1.0]).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    >>> Uniform(delta=0.1).value([0.3, 0.5, 0.55]).round(2).tolist()
    [0.0, 0.5, 0.75]
    """

    delta: float | None = None
    threshold: float = 0.5

    def __post_init__(self) -> None:
        if self.delta is not None:
            _require(lambda x: 0 < x <= 1, "delta", "greater than 0 and at most 1", self.delta)
        _require_threshold(self.threshold)

    @property
    def is_identity(self) -> bool:
        return self.delta in (None, 0.5) and self.threshold == 0.5

    def both(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        if self.is_identity:
            return p, q
        if self.delta is None:
            low, high = p / (2 * self.threshold), q / (2 * (1 - self.threshold))
            above = _above(p, q, self.threshold) > 0
            return backend.where(above, 1 - high, low), backend.where(above, high, 1 - low)
        x = _above(p, q, self.threshold) / (2 * self.delta)
        a, b = 0.5 + x, 0.5 - x
        low, high = x <= -0.5, x >= 0.5
        return (
            backend.where(low, 0.0, backend.where(high, 1.0, a)),
            backend.where(low, 1.0, backend.where(high, 0.0, b)),
        )

    def density(self, p: Array, q: Array, backend: Backend) -> Array:
        x, flat = _above(p, q, self.threshold), p * 0.0
        if self.delta is None:
            low, high = 1 / (2 * self.threshold), 1 / (2 * (1 - self.threshold))
            return backend.where(x > 0, high + flat, low + flat)
        inside = 1 / (2 * self.delta) + flat
        if self.is_identity:
            return inside
        return backend.where(x <= -self.delta, 0.0, backend.where(x >= self.delta, 0.0, inside))

    def multiclass(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        return (p, q) if self.is_identity else super().multiclass(p, q, backend)


@register
@dataclass(frozen=True)
class LogitSigmoid(Step):
    """sigmoidF1: `sigmoid(scale (z + offset))` of the logit `z`; with the defaults `a = p`.

    >>> LogitSigmoid(scale=2.0, offset=1.0).value([-1.0]).tolist()
    [0.5]
    """

    scale: float = 1.0
    offset: float = 0.0
    on_logit: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require(lambda x: 0 < x < math.inf, "scale", "a positive number", self.scale)
        _require(lambda x: -15 <= x <= 15, "offset", "between -15 and 15", self.offset)

    def hard(self) -> Hard:
        return Hard(1 / (1 + math.exp(self.offset)))

    def both(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        return mirrored_sigmoid(self.scale * (p + self.offset), backend)

    def density(self, p: Array, q: Array, backend: Backend) -> Array:
        a, b = self.both(p, q, backend)
        return self.scale * a * b


@register
@dataclass(frozen=True)
class Hard(Step):
    """The decision itself, `p > threshold`: the true metric, without a gradient.

    >>> Hard().value([0.4, 0.5, 0.6]).tolist()
    [0.0, 0.0, 1.0]
    """

    threshold: float = 0.5

    def __post_init__(self) -> None:
        _require_threshold(self.threshold)

    def both(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        one = p * 0.0 + 1.0  # keeps the type of p, and a NaN stays a NaN
        return backend.where(p > self.threshold, one, 0.0), backend.where(
            p > self.threshold, 0.0, one
        )

    def density(self, p: Array, q: Array, backend: Backend) -> Array:
        return p * 0.0

    def multiclass(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        if self.threshold != 0.5:
            return super().multiclass(p, q, backend)
        first, one = top(p, backend), p * 0.0 + 1.0
        return backend.where(first, one, 0.0), backend.where(first, 0.0, one)

    def multiclass_back(self, g: Array, p: Array, q: Array, backend: Backend) -> Array:
        return g * 0.0


# The step every front-end takes when none is named; measured, see benchmarks/README.md.
DEFAULT = Uniform()


def scale_range(level: float, dtype: str = "float64") -> tuple[float, float]:
    """The smallest and largest scale L of the *plain* AnyLoss formula, as in the paper's Table 1.

    Between `level` and `1 - level` such a scale amplifies every probability and rounds none to
    exactly 0 or 1. Ours is computed stably and learns beyond the maximum: this is information.

    >>> [round(x, 2) for x in scale_range(1e-15)]
    [69.08, 73.47]
    >>> round(scale_range(1e-15, "float32")[1], 2)
    33.27
    """
    _require(lambda x: 0 < x < 0.5, "level", "strictly between 0 and 0.5", level)
    name = str(dtype).removeprefix("torch.")
    if name not in SIGNIFICAND_BITS:
        name = getattr(dtype, "__name__", name)
    if name not in SIGNIFICAND_BITS:
        raise ValueError(f"dtype must be one of {', '.join(SIGNIFICAND_BITS)}; got {dtype!r}")
    room = 0.5 - level
    return math.log((1 - level) / level) / room, SIGNIFICAND_BITS[name] * math.log(2) / room
