"""The base class of the steps, their registry, and the hard decision that they approximate."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self, TypeVar

import numpy as np

from anyloss._core.backend import NUMPY, Array, Backend, top

STEPS: dict[str, type[Step]] = {}  # by name, as they are saved with a model

StepClass = TypeVar("StepClass", bound="Step")


class Step(ABC):
    """The base class of all steps.

    A step is a smooth approximation of "is the probability above the threshold?". It is the CDF of
    a random threshold: the soft decision `a = step(p)` lies in [0, 1] and does not decrease in `p`,
    and its derivative is the density of the threshold. `value`, `mirror` and `derivative` evaluate
    a step on NumPy arrays.

    A new step is a subclass: a frozen dataclass whose fields are numbers, decorated with `register`
    (docs/add_a_step.md has a complete example). Steps are compared, hashed, printed and saved by
    their fields. A subclass must define:

    - `both(p, q, backend)`, which returns the pair `(a, 1 - a)` for the pair `p` and `q = 1 - p`.
      Near 0 and 1 one number of a pair is rounded to 1 and the other one carries the information.
      Compute the smaller one of `a` and `1 - a` directly, from `p` and `q`; only the larger one may
      be one minus the other.
    - `density(p, q, backend)`, which returns the derivative of `a` with respect to `p`.

    Both take arrays of any shape: NumPy arrays or the tensors of a framework. They return arrays of
    the same shape and type, and use operators and the functions of `backend` only (`where`, `exp`,
    `log`, `sin`, and `sigmoid` for arguments <= 0). They never branch on values. A framework
    differentiates `both` by itself, and it differentiates both branches of a `where`: each branch
    must be finite everywhere.

    A subclass may also define:

    - the field `threshold`: the probability at which `a = 1/2`. The method `at` and the option
      `thresholds` need it.
    - `hard()`: the hard decision that the step approximates. Default: `Hard(threshold)`, or
      `Hard(0.5)` without the field.
    - `on_logit = True`: `both` and `density` then take the logit, as the pair `z` and `-z`.
    - `is_identity`: True if the soft decision is the probability itself, which the option
      `soft_labels` needs. Default: False.
    - `multiclass(p, q, backend)`: the soft decisions `(a, 1 - a)` from class probabilities, with
      the classes along the axis `backend.class_axis`. Default: an error, because most steps have
      no form for several classes.
    - `multiclass_back(g, p, q, backend)`: the gradient with respect to `p`, from the gradient `g`
      with respect to these decisions. Default: `g`, which is correct if `a = p`.
    - the field `scale` and `scale_limit(tiny)`: the largest scale at which the derivative for a
      confident prediction is above `tiny`, the smallest normal number. The losses refuse a larger
      scale. Default: no limit.

    Raises:
        TypeError: if a subclass without `both` or `density` is instantiated.

    Examples:
        >>> from anyloss.steps import Amplified
        >>> step = Amplified(scale=10.0)
        >>> step.value([0.1, 0.5, 0.9]).round(3).tolist()
        [0.018, 0.5, 0.982]
        >>> step.at(0.3).hard()
        Hard(threshold=0.3)

    References:
        F. Marchetti, S. Guastavino, M. Piana and C. Campi, "Score-Oriented Loss (SOL) functions",
        Pattern Recognition 132, 2022, where the threshold is a random variable.
    """

    on_logit: ClassVar[bool] = False  # whether the pair is (z, -z) instead of (p, 1 - p)

    @property
    def is_identity(self) -> bool:
        """Whether the soft decision is the probability itself."""
        return False

    @abstractmethod
    def both(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        """The soft decision `a` and its mirror `1 - a`, from the pair `p` and `q = 1 - p`."""

    @abstractmethod
    def density(self, p: Array, q: Array, backend: Backend) -> Array:
        """The derivative of the soft decision, which is the density of the random threshold."""

    def multiclass(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        """The soft decisions and their mirrors, from class probabilities along `class_axis`."""
        raise ValueError(
            "for several classes the step must be Uniform(), Amplified or Hard at threshold 0.5; "
            f"got {self!r}"
        )

    def multiclass_back(self, g: Array, p: Array, q: Array, backend: Backend) -> Array:
        """The gradient with respect to `p`, from that of the multiclass decisions, `g`."""
        return g

    def value(self, p: Array) -> Array:
        """The soft decision.

        Args:
            p (array-like): probabilities, or logits for a step on the logit.

        Returns:
            array: the soft decisions, of the same shape.
        """
        return self.both(*self._pair(p), NUMPY)[0]

    def mirror(self, p: Array) -> Array:
        """One minus the soft decision, computed without a subtraction from 1; see `value`."""
        return self.both(*self._pair(p), NUMPY)[1]

    def derivative(self, p: Array) -> Array:
        """The derivative of the soft decision; see `value`."""
        return self.density(*self._pair(p), NUMPY)

    def _pair(self, p: Array) -> tuple[Array, Array]:
        p = np.asarray(p, dtype=float)
        return p, -p if self.on_logit else 1 - p

    def hard(self) -> Hard:
        """The hard decision that the step approximates."""
        return Hard(getattr(self, "threshold", 0.5))

    def at(self, threshold: float) -> Self:
        """The same step at another threshold."""
        if not hasattr(self, "threshold"):
            raise ValueError(f"{self!r} has no threshold; use a step with a threshold")
        return replace(self, threshold=threshold)  # type: ignore[type-var]

    def scale_limit(self, tiny: float) -> float:
        """The largest scale at which confident predictions have a derivative above `tiny`."""
        return math.inf

    def check_dtype(self, dtype: str, tiny: float) -> None:
        """Refuse a step whose derivative vanishes in the given floating-point type."""
        scale, limit = getattr(self, "scale", 0.0), self.scale_limit(tiny)
        if scale > limit:
            raise ValueError(
                f"scale must be at most {limit:.1f} for {dtype}, because the derivative of "
                f"confident predictions is 0 above it; got {self!r}"
            )


def register(kind: type[StepClass]) -> type[StepClass]:
    """Register a step class under its name, so that models with it can be saved and loaded.

    Saved Keras models contain the name of the step's class and its fields. `register` is a class
    decorator. The steps of this package are registered.

    Args:
        kind (type): a subclass of `Step`. A class of the same name is replaced.

    Returns:
        type: the class itself.

    Raises:
        TypeError: if `kind` is not a subclass of `Step`.

    Examples:
        >>> from dataclasses import dataclass
        >>> from anyloss.steps import Amplified, register
        >>> @register
        ... @dataclass(frozen=True)
        ... class Moderate(Amplified):
        ...     scale: float = 10.0
        >>> Moderate(threshold=0.3)
        Moderate(scale=10.0, threshold=0.3)
    """
    if not (isinstance(kind, type) and issubclass(kind, Step)):
        raise TypeError(f"register takes a subclass of anyloss.steps.Step; got {kind!r}")
    STEPS[kind.__name__] = kind
    return kind


def check_step(step: Step) -> None:
    """Refuse an object that is not a step, such as a number or a step's class."""
    if not isinstance(step, Step):
        given = f"the class {step.__name__}" if isinstance(step, type) else type(step).__name__
        raise TypeError(f"step must be one of anyloss.steps; got {given}")


def require(inside: Callable[[float], bool], name: str, expected: str, got: object) -> None:
    """Refuse an argument that is not a number or out of range."""
    if not isinstance(got, int | float | np.number):
        raise TypeError(f"{name} must be a number, {expected}; got {got!r}")
    if not inside(float(got)):
        raise ValueError(f"{name} must be {expected}; got {got!r}")


def require_threshold(threshold: float) -> None:
    """Refuse a threshold that is not between 0 and 1."""
    require(lambda x: 0 < x < 1, "threshold", "strictly between 0 and 1", threshold)


@register
@dataclass(frozen=True)
class Hard(Step):
    """The hard decision `p > threshold`, which gives the true metric and has no gradient.

    For several classes it is the class of the highest probability, at threshold 0.5 only.

    Args:
        threshold (float): strictly between 0 and 1. Default: 0.5.

    Raises:
        ValueError: if the threshold is out of range.
        TypeError: if the threshold is not a number.

    Examples:
        >>> from anyloss.steps import Hard
        >>> Hard().value([0.4, 0.5, 0.6]).tolist()
        [0.0, 0.0, 1.0]

    References:
        It is the Heaviside function that N. Tsoi, K. Candon, D. Li, Y. Milkessa and M. Vázquez
        approximate in "Bridging the Gap: Unifying the Training and Evaluation of Neural Network
        Binary Classifiers", NeurIPS 2022.
    """

    threshold: float = 0.5

    def __post_init__(self) -> None:
        require_threshold(self.threshold)

    def both(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        above, one = p > self.threshold, p * 0.0 + 1.0  # of the type of p; a NaN remains a NaN
        return backend.where(above, one, 0.0), backend.where(above, 0.0, one)

    def density(self, p: Array, q: Array, backend: Backend) -> Array:
        return p * 0.0

    def multiclass(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        if self.threshold != 0.5:
            return super().multiclass(p, q, backend)
        first, one = top(p, backend), p * 0.0 + 1.0
        return backend.where(first, one, 0.0), backend.where(first, 0.0, one)

    def multiclass_back(self, g: Array, p: Array, q: Array, backend: Backend) -> Array:
        return g * 0.0
