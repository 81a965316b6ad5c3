"""The arithmetic under every metric: safe at 0/0, the same on floats, NumPy and every framework.

A metric is written with plain operators. `Cell` gives those operators the project's rules, so that
no metric has to know them: a division by zero is 0 with slope 0, and a fractional power has slope
0 at 0. A `Cell` can carry its two slopes along (forward-mode differentiation), which is where the
closed-form gradient comes from; under a framework with its own gradients it carries none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = Any  # a float, a NumPy array or a framework's tensor: the core never asks which


class Ops(NamedTuple):
    """The functions a front-end lends to the core, and the smallest normal number of its type."""

    sigmoid: Callable[[Array], Array]  # only ever called with arguments <= 0
    exp: Callable[[Array], Array]
    log: Callable[[Array], Array]
    sin: Callable[[Array], Array]
    where: Callable[[Array, Array, Array], Array]
    argmax: Callable[[Array], Array]  # over the last axis, which stays with length 1
    one_hot: Callable[[Array, int], Array]  # indices (..., 1) and a number C to booleans (..., C)
    sum: Callable[[Array, int], Array]  # over one axis, which stays with length 1
    concat: Callable[[list[Array]], Array]  # along the last axis
    tiny: float


def _sigmoid(x: Array) -> Array:
    e = np.exp(x)
    return e / (1 + e)


NUMPY = Ops(
    sigmoid=_sigmoid,
    exp=np.exp,
    log=np.log,
    sin=np.sin,
    where=np.where,
    argmax=lambda x: np.argmax(x, axis=-1, keepdims=True),
    one_hot=lambda index, classes: index == np.arange(classes),
    sum=lambda x, axis: np.sum(x, axis=axis, keepdims=True),
    concat=lambda parts: np.concatenate(parts, axis=-1),
    tiny=float(np.finfo(np.float64).tiny),
)

# Python's own floats: the arithmetic of a single set of counts, without NumPy's cost per call.
FLOATS = NUMPY._replace(where=lambda condition, yes, no: yes if condition else no)


def mirrored_sigmoid(z: Array, ops: Ops) -> tuple[Array, Array]:
    """`sigmoid(z)` and `sigmoid(-z)`, both right to the last digits, and so are their slopes.

    Only the smaller of the two comes from the sigmoid; `1 - s` is harmless while `s <= 1/2`. An
    autodiff framework multiplies `s (1 - s)` for the slope, which would be 0 for `s` rounded to 1.

    >>> p, q = mirrored_sigmoid(np.array([0.0, 40.0]), NUMPY)
    >>> bool(q[1] == np.exp(-40.0)), float(p[0])
    (True, 0.5)
    """
    positive = z >= 0
    small = ops.sigmoid(ops.where(positive, -z, z))
    large = 1 - small
    return ops.where(positive, large, small), ops.where(positive, small, large)


def top(x: Array, ops: Ops) -> Array:
    """True at the largest entry of the last axis, once per row, also where several are equal."""
    return ops.one_hot(ops.argmax(x), x.shape[-1])


def mirrored_softmax(z: Array, ops: Ops) -> tuple[Array, Array]:
    """The softmax over the last axis and its mirror `1 - p`, stable like `mirrored_sigmoid`.

    The largest entry of each row is the unit of the others, and no gradient runs through it: the
    usual softmax gradient subtracts nearly equal numbers where a row is sure, and goes silent.

    >>> p, q = mirrored_softmax(np.array([[0.0, 50.0]]), NUMPY)
    >>> bool(np.isclose(q[0, 1], np.exp(-50.0), rtol=1e-12))
    True
    """
    first = top(z, ops)
    peak = ops.sum(ops.where(first, z, 0.0), -1)
    others = ops.where(first, 0.0, ops.exp(z - peak))
    rest = ops.sum(others, -1)
    whole = 1 + rest
    p = ops.where(first, 1 / whole, others / whole)
    return p, ops.where(first, rest / whole, 1 - p)


def softmax_back(g: Array, p: Array, ops: Ops) -> Array:
    """The gradient `g` with respect to `p = softmax(z)`, carried back to `z`, without cancellation.

    >>> softmax_back(np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]]), NUMPY).tolist()
    [[0.25, -0.25]]
    """
    relative = g - ops.sum(ops.where(top(p, ops), g, 0.0), -1)
    return p * (relative - ops.sum(p * relative, -1))


class Cell:
    """A number of the confusion matrix, or anything computed from such numbers.

    `A` and `B` are the slopes: how much the value grows with one more soft positive among the
    positive rows and among the negative rows. They are None where a framework differentiates.

    >>> tp, fn = Cell(3.0, A=1.0, B=0.0), Cell(1.0, A=-1.0, B=0.0)
    >>> recall = tp / (tp + fn)
    >>> recall.value, recall.A
    (0.75, 0.25)
    >>> (Cell(0.0) / Cell(0.0)).value
    0.0
    """

    __slots__ = ("A", "B", "ops", "value")
    __array_ufunc__ = None  # a NumPy number on the left leaves the operation to us

    def __init__(self, value: Array, A: Array = None, B: Array = None, ops: Ops = FLOATS) -> None:
        self.value = value
        self.A = A
        self.B = B
        self.ops = ops

    def _linear(self, value: Array, factor: Array) -> Cell:
        """A new value whose slopes are this cell's, times a factor."""
        if self.A is None:
            return Cell(value, ops=self.ops)
        return Cell(value, self.A * factor, self.B * factor, self.ops)

    def __add__(self, other: Array) -> Cell:
        if type(other) is not Cell:
            return Cell(self.value + other, self.A, self.B, self.ops)
        if self.A is None:
            return Cell(self.value + other.value, ops=self.ops)
        return Cell(self.value + other.value, self.A + other.A, self.B + other.B, self.ops)

    __radd__ = __add__

    def __neg__(self) -> Cell:
        return self._linear(-self.value, -1.0)

    def __pos__(self) -> Cell:
        return self

    def __sub__(self, other: Array) -> Cell:
        if type(other) is not Cell:
            return Cell(self.value - other, self.A, self.B, self.ops)
        if self.A is None:
            return Cell(self.value - other.value, ops=self.ops)
        return Cell(self.value - other.value, self.A - other.A, self.B - other.B, self.ops)

    def __rsub__(self, other: Array) -> Cell:
        return self._linear(other - self.value, -1.0)

    def __mul__(self, other: Array) -> Cell:
        if type(other) is not Cell:
            return self._linear(self.value * other, other)
        x, y = self.value, other.value
        if self.A is None:
            return Cell(x * y, ops=self.ops)
        return Cell(x * y, self.A * y + x * other.A, self.B * y + x * other.B, self.ops)

    __rmul__ = __mul__

    def __truediv__(self, other: Array) -> Cell:
        if type(other) is not Cell:
            return self._linear(self.value / other, 1.0 / other)
        where, y = self.ops.where, other.value
        # Below the smallest normal number the slope 1/y would overflow: that counts as zero too.
        void = abs(y) < self.ops.tiny
        if void is False and self.A is not None:  # plain floats, nothing to guard
            value = self.value / y
            A, B = (self.A - value * other.A) / y, (self.B - value * other.B) / y
            return Cell(value, A, B, self.ops)
        y = where(void, 1.0, y)
        value = where(void, 0.0, self.value / y)
        if self.A is None:
            return Cell(value, ops=self.ops)
        A = where(void, 0.0, (self.A - value * other.A) / y)
        B = where(void, 0.0, (self.B - value * other.B) / y)
        return Cell(value, A, B, self.ops)

    def __rtruediv__(self, other: Array) -> Cell:
        numerator: Cell = self._linear(self.value * 0.0, 0.0) + other
        return numerator / self

    def __pow__(self, exponent: float) -> Cell:
        if isinstance(exponent, Cell):
            raise TypeError("the exponent in a metric must be a number, such as x**0.5; got a cell")
        if exponent == int(exponent):
            if exponent < 0:
                return 1 / self**-exponent
            if exponent == 0:
                return self._linear(self.value * 0.0 + 1.0, 0.0)
            return self._linear(self.value**exponent, exponent * self.value ** (exponent - 1))
        where, x = self.ops.where, self.value
        void = x < self.ops.tiny
        x = where(void, 1.0, x)
        value = where(void, 0.0, x**exponent)
        return self._linear(value, where(void, 0.0, exponent * x ** (exponent - 1)))

    def __bool__(self) -> bool:
        raise TypeError("a metric cannot branch, as in `if tp`; 0 / 0 counts as 0 by itself")

    def __eq__(self, other: object) -> bool:
        raise TypeError("a metric cannot compare, as in `tp == 0`; 0 / 0 counts as 0 by itself")

    def sum(self) -> Cell:
        """The sum over the classes; the slopes stay one per class."""
        return Cell(self.ops.sum(self.value, -1), self.A, self.B, self.ops)

    def mean(self, weight: Array, power: int = 1) -> Cell:
        """The weighted mean over the classes: arithmetic (1), geometric (0) or harmonic (-1).

        The weights must sum to one. The last two are 0, with slope 0, where a class has 0.

        >>> recalls = Cell(np.array([0.25, 1.0]), ops=NUMPY)
        >>> half = np.array([0.5, 0.5])
        >>> [recalls.mean(half, power).value.tolist() for power in (1, 0, -1)]
        [[0.625], [0.5], [0.4]]
        """
        if power == 1:
            weighted: Cell = self * weight
            return weighted.sum()
        where, tiny = self.ops.where, self.ops.tiny
        void = self.value < tiny
        x = where(void, 1.0, self.value)
        nothing = self.ops.sum(where(void, weight, 0.0), -1) > 0
        if power == 0:
            whole = self.ops.exp(self.ops.sum(weight * self.ops.log(x), -1))
        else:
            inverse = self.ops.sum(where(void, 0.0, weight / x), -1)
            whole = 1 / where(inverse > 0, inverse, 1.0)
        value = where(nothing, 0.0, whole)
        if self.A is None:
            return Cell(value, ops=self.ops)
        factor = where(nothing, 0.0, where(void, 0.0, weight * (whole / x) ** (1 - power)))
        return Cell(value, self.A * factor, self.B * factor, self.ops)

    def choose(self, condition: Array, other: Cell) -> Cell:
        """Another cell where a condition on the counts holds, this one elsewhere."""
        where = self.ops.where
        value = where(condition, other.value, self.value)
        if self.A is None:
            return Cell(value, ops=self.ops)
        A, B = where(condition, other.A, self.A), where(condition, other.B, self.B)
        return Cell(value, A, B, self.ops)
