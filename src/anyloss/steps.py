"""Steps: smooth approximations of "is the probability above the threshold?".

A step is the CDF of a random threshold, and its derivative is the density of the threshold. It
takes the pair `(p, 1 - p)`, both computed from the logit, and returns the pair `(a, 1 - a)`. No
number of these pairs is a subtraction that loses the digits of a confident prediction.
`LogitSigmoid` takes the logit, as the pair `(z, -z)`.

>>> import numpy as np
>>> Amplified(scale=10.0).value(np.array([0.1, 0.5, 0.9])).round(3).tolist()
[0.018, 0.5, 0.982]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from anyloss._core.backend import Array, Backend, mirrored_sigmoid, mirrored_softmax, softmax_back
from anyloss._core.step import Hard, Step, register
from anyloss._core.step import require as _require
from anyloss._core.step import require_threshold as _require_threshold

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


def _above(p: Array, q: Array, threshold: float) -> Array:
    """`p - threshold`, accurate near 0 and 1."""
    return (1 - threshold) * p - threshold * q


@register
@dataclass(frozen=True)
class Amplified(Step):
    """The sigmoid of AnyLoss, `a = sigmoid(scale (p - threshold))`.

    A larger scale is closer to the hard decision and has smaller gradients away from the threshold.
    The plain formula is rounded to 1 for confident predictions and has no gradient there (see
    `scale_range`); this implementation keeps the gradient. For several classes the soft decision is
    `softmax((scale/2 + ln(C-1)) p)` over the `C` class probabilities, at threshold 0.5 only. For
    two classes it equals the binary step.

    Args:
        scale (float): above 0. AnyLoss uses 73, and Bridging the Gap uses 10. Default: 73.
        threshold (float): strictly between 0 and 1. Default: 0.5.

    Raises:
        ValueError: if an argument is out of range.
        TypeError: if an argument is not a number.

    Examples:
        >>> Amplified(scale=10.0).value([0.1, 0.5, 0.9]).round(3).tolist()
        [0.018, 0.5, 0.982]
        >>> bool(Amplified(73.0).mirror(1.0) > 0)  # the plain formula gives 0
        True

    References:
        D. Han, N. Moniz and N. V. Chawla, "AnyLoss: Transforming Classification Metrics into Loss
        Functions", KDD 2024, equation 1.

        N. Tsoi, K. Candon, D. Li, Y. Milkessa and M. Vázquez, "Bridging the Gap: Unifying the
        Training and Evaluation of Neural Network Binary Classifiers", NeurIPS 2022.
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
        return mirrored_softmax(self._class_scale(p, backend) * p, backend)

    def multiclass_back(self, g: Array, p: Array, q: Array, backend: Backend) -> Array:
        a, _ = self.multiclass(p, q, backend)
        return self._class_scale(p, backend) * softmax_back(g, a, backend)

    def _class_scale(self, p: Array, backend: Backend) -> float:
        # With the logarithm, the decision of p = 1 does not depend on the number of classes.
        return self.scale / 2 + math.log(max(p.shape[backend.class_axis] - 1, 1))

    def scale_limit(self, tiny: float) -> float:
        return -math.log(tiny) / max(self.threshold, 1 - self.threshold)


@register
@dataclass(frozen=True)
class Linear(Step):
    """The piecewise linear step of Bridging the Gap, through (0, 0), (t, 1/2) and (1, 1).

    With the threshold `t` and `m = min(t, 1 - t)`, the derivative is `(1 - 2 delta) / m` between
    `t - m/2` and `t + m/2`, `delta / (t - m/2)` below and `delta / (1 - t - m/2)` above. It is
    nowhere 0, so that every sample has a gradient.

    Args:
        delta (float): the soft decision at `t - m/2`, strictly between 0 and 0.5. Default: 0.2, as
            in the authors' code.
        threshold (float): `t`, strictly between 0 and 1. Default: 0.5.

    Raises:
        ValueError: if an argument is out of range.
        TypeError: if an argument is not a number.

    Examples:
        >>> Linear(delta=0.2).value([0.25, 0.5, 0.75]).tolist()
        [0.2, 0.5, 0.8]

    References:
        N. Tsoi, K. Candon, D. Li, Y. Milkessa and M. Vázquez, "Bridging the Gap: Unifying the
        Training and Evaluation of Neural Network Binary Classifiers", NeurIPS 2022, equation 5.
    """

    delta: float = 0.2
    threshold: float = 0.5

    def __post_init__(self) -> None:
        _require(lambda x: 0 < x < 0.5, "delta", "strictly between 0 and 0.5", self.delta)
        _require_threshold(self.threshold)

    def derivatives(self) -> tuple[float, float, float]:
        """The derivatives of the three segments, from left to right."""
        t, m = self.threshold, min(self.threshold, 1 - self.threshold)
        return self.delta / (t - m / 2), (1 - 2 * self.delta) / m, self.delta / (1 - t - m / 2)

    def _segments(self, p: Array, q: Array) -> tuple[Array, Array, Array]:
        above, m = _above(p, q, self.threshold), min(self.threshold, 1 - self.threshold)
        return above < -m / 2, above > m / 2, above

    def both(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        left, middle, right = self.derivatives()
        is_left, is_right, above = self._segments(p, q)
        inner = 0.5 + middle * above
        a = backend.where(is_left, left * p, backend.where(is_right, 1 - right * q, inner))
        b = backend.where(is_left, 1 - left * p, backend.where(is_right, right * q, 1 - inner))
        return a, b

    def density(self, p: Array, q: Array, backend: Backend) -> Array:
        left, middle, right = self.derivatives()
        is_left, is_right, above = self._segments(p, q)
        flat = above * 0.0
        return backend.where(
            is_left, left + flat, backend.where(is_right, right + flat, middle + flat)
        )


@register
@dataclass(frozen=True)
class RaisedCosine(Step):
    """The step of a threshold with a raised cosine density within `threshold -+ delta`.

    With `x = (p - threshold) / delta` the soft decision is `(1 + x + sin(pi x) / pi) / 2` for
    `-1 < x < 1`, 0 below and 1 above. Samples outside of this range have no gradient.

    Args:
        delta (float): half the width, above 0 and at most 1. Default: 0.1.
        threshold (float): strictly between 0 and 1. Default: 0.5.

    Raises:
        ValueError: if an argument is out of range.
        TypeError: if an argument is not a number.

    Examples:
        >>> RaisedCosine(delta=0.1).value([0.45, 0.55]).round(7).tolist()
        [0.0908451, 0.9091549]

    References:
        F. Marchetti, S. Guastavino, M. Piana and C. Campi, "Score-Oriented Loss (SOL) functions",
        Pattern Recognition 132, 2022.
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
    """The step of a uniform threshold; `Uniform()`, the default step, is the probability itself.

    F1 under `Uniform()` is the soft Dice of image segmentation. At another threshold `t` the soft
    decision is linear below and above `t`, through (0, 0), (t, 1/2) and (1, 1). With `delta` the
    threshold is uniform within `threshold -+ delta`, and samples outside of this range have no
    gradient. For several classes the step must be `Uniform()`.

    Args:
        delta (float, optional): half the width, above 0 and at most 1. Default: None, for the whole
            range from 0 to 1.
        threshold (float): strictly between 0 and 1. Default: 0.5.

    Raises:
        ValueError: if an argument is out of range.
        TypeError: if an argument is not a number.

    Examples:
        >>> Uniform().value([0.1, 0.7]).tolist()
        [0.1, 0.7]
        >>> Uniform(threshold=0.2).value([0.0, 0.1, 0.2, 0.6, 1.0]).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
        >>> Uniform(delta=0.1).value([0.3, 0.5, 0.55]).round(2).tolist()
        [0.0, 0.5, 0.75]

    References:
        F. Marchetti, S. Guastavino, M. Piana and C. Campi, "Score-Oriented Loss (SOL) functions",
        Pattern Recognition 132, 2022.

        F. Milletari, N. Navab and S.-A. Ahmadi, "V-Net: Fully Convolutional Neural Networks for
        Volumetric Medical Image Segmentation", 3DV 2016, for the soft Dice.
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
    """The step of sigmoidF1 on the logit `z`, `a = sigmoid(scale (z + offset))`.

    With the default arguments the soft decision is the probability. The hard decision that the step
    approximates is `z > -offset`.

    Args:
        scale (float): above 0. Default: 1.
        offset (float): between -15 and 15. Default: 0.

    Raises:
        ValueError: if an argument is out of range.
        TypeError: if an argument is not a number.

    Examples:
        >>> LogitSigmoid(scale=2.0, offset=1.0).value([-1.0]).tolist()
        [0.5]

    References:
        G. Bénédict, V. Koops, D. Odijk and M. de Rijke, "sigmoidF1: A Smooth F1 Score Surrogate
        Loss for Multilabel Classification", TMLR 2022.
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


# The default step of every front-end; the choice was measured, see benchmarks/tried.md.
DEFAULT = Uniform()


def scale_range(level: float, dtype: str = "float64") -> tuple[float, float]:
    """Compute the smallest and the largest scale L of the plain AnyLoss formula.

    With a scale in this range, the plain formula `1 / (1 + exp(-L (p - 1/2)))` amplifies every
    probability between `level` and `1 - level`, and rounds none of them to exactly 0 or 1. With `b`
    significand bits the range is from `ln((1 - level) / level) / (1/2 - level)` to
    `b ln(2) / (1/2 - level)`. This is information only: `Amplified` is computed in another way and
    learns above the largest scale, too.

    Args:
        level (float): strictly between 0 and 0.5.
        dtype (str): `"float64"`, `"float32"`, `"float16"` or `"bfloat16"`, or the type of NumPy or
            PyTorch. Default: `"float64"`.

    Returns:
        tuple of float: the smallest and the largest scale.

    Raises:
        ValueError: if `level` is out of range or `dtype` is unknown.
        TypeError: if `level` is not a number.

    Examples:
        >>> [round(x, 2) for x in scale_range(1e-15)]
        [69.08, 73.47]
        >>> round(scale_range(1e-15, "float32")[1], 2)
        33.27

    References:
        D. Han, N. Moniz and N. V. Chawla, "AnyLoss: Transforming Classification Metrics into Loss
        Functions", KDD 2024, Table 1.
    """
    _require(lambda x: 0 < x < 0.5, "level", "strictly between 0 and 0.5", level)
    name = str(dtype).removeprefix("torch.")
    if name not in SIGNIFICAND_BITS:
        name = getattr(dtype, "__name__", name)
    if name not in SIGNIFICAND_BITS:
        raise ValueError(f"dtype must be one of {', '.join(SIGNIFICAND_BITS)}; got {dtype!r}")
    width = 0.5 - level
    return math.log((1 - level) / level) / width, SIGNIFICAND_BITS[name] * math.log(2) / width
