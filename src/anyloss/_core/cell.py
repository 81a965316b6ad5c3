"""The arithmetic under every metric: safe at 0/0, the same on floats, NumPy and every framework.

A metric is written with plain operators. `Cell` gives those operators the project's rules, so that
no metric has to know them: a division by zero is 0 with slope 0, and a fractional power has slope
0 at 0. A `Cell` can carry its two slopes along (forward-mode differentiation), which is where the
closed-form gradient comes from; under a framework with its own gradients it carries none.
"""

from __future__ import annotations

from anyloss._core.backend import FLOATS, Array, Backend


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

    __slots__ = ("A", "B", "backend", "value")
    __array_ufunc__ = None  # a NumPy number on the left leaves the operation to us

    def __init__(
        self, value: Array, A: Array = None, B: Array = None, backend: Backend = FLOATS
    ) -> None:
        self.value = value
        self.A = A
        self.B = B
        self.backend = backend

    def _linear(self, value: Array, factor: Array) -> Cell:
        """A new value whose slopes are this cell's, times a factor."""
        if self.A is None:
            return Cell(value, backend=self.backend)
        return Cell(value, self.A * factor, self.B * factor, self.backend)

    def __add__(self, other: Array) -> Cell:
        if type(other) is not Cell:
            return Cell(self.value + other, self.A, self.B, self.backend)
        if self.A is None:
            return Cell(self.value + other.value, backend=self.backend)
        return Cell(self.value + other.value, self.A + other.A, self.B + other.B, self.backend)

    __radd__ = __add__

    def __neg__(self) -> Cell:
        return self._linear(-self.value, -1.0)

    def __pos__(self) -> Cell:
        return self

    def __sub__(self, other: Array) -> Cell:
        if type(other) is not Cell:
            return Cell(self.value - other, self.A, self.B, self.backend)
        if self.A is None:
            return Cell(self.value - other.value, backend=self.backend)
        return Cell(self.value - other.value, self.A - other.A, self.B - other.B, self.backend)

    def __rsub__(self, other: Array) -> Cell:
        return self._linear(other - self.value, -1.0)

    def __mul__(self, other: Array) -> Cell:
        if type(other) is not Cell:
            return self._linear(self.value * other, other)
        x, y = self.value, other.value
        if self.A is None:
            return Cell(x * y, backend=self.backend)
        return Cell(x * y, self.A * y + x * other.A, self.B * y + x * other.B, self.backend)

    __rmul__ = __mul__

    def __truediv__(self, other: Array) -> Cell:
        if type(other) is not Cell:
            return self._linear(self.value / other, 1.0 / other)
        where, y = self.backend.where, other.value
        # Below the smallest normal number the slope 1/y would overflow: that counts as zero too.
        void = abs(y) < self.backend.tiny
        if void is False and self.A is not None:  # plain floats, nothing to guard
            value = self.value / y
            A, B = (self.A - value * other.A) / y, (self.B - value * other.B) / y
            return Cell(value, A, B, self.backend)
        y = where(void, 1.0, y)
        value = where(void, 0.0, self.value / y)
        if self.A is None:
            return Cell(value, backend=self.backend)
        A = where(void, 0.0, (self.A - value * other.A) / y)
        B = where(void, 0.0, (self.B - value * other.B) / y)
        return Cell(value, A, B, self.backend)

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
        where, x = self.backend.where, self.value
        void = x < self.backend.tiny
        x = where(void, 1.0, x)
        value = where(void, 0.0, x**exponent)
        return self._linear(value, where(void, 0.0, exponent * x ** (exponent - 1)))

    def __bool__(self) -> bool:
        raise TypeError("a metric cannot branch, as in `if tp`; 0 / 0 counts as 0 by itself")

    def __eq__(self, other: object) -> bool:
        raise TypeError("a metric cannot compare, as in `tp == 0`; 0 / 0 counts as 0 by itself")

    def sum(self) -> Cell:
        """The sum over the classes; the slopes stay one per class."""
        return Cell(self.backend.sum(self.value, -1), self.A, self.B, self.backend)

    def mean(self, weight: Array, power: int = 1) -> Cell:
        """The weighted mean over the classes: arithmetic (1), geometric (0) or harmonic (-1).

        The weights must sum to one. The last two are 0, with slope 0, where a class has 0.

        >>> import numpy as np
        >>> from anyloss._core.backend import NUMPY
        >>> recalls = Cell(np.array([0.25, 1.0]), backend=NUMPY)
        >>> half = np.array([0.5, 0.5])
        >>> [recalls.mean(half, power).value.tolist() for power in (1, 0, -1)]
        [[0.625], [0.5], [0.4]]
        """
        if power == 1:
            return self._linear(self.value * weight, weight).sum()
        where, tiny = self.backend.where, self.backend.tiny
        void = self.value < tiny
        x = where(void, 1.0, self.value)
        nothing = self.backend.sum(where(void, weight, 0.0), -1) > 0
        if power == 0:
            whole = self.backend.exp(self.backend.sum(weight * self.backend.log(x), -1))
        else:
            inverse = self.backend.sum(where(void, 0.0, weight / x), -1)
            whole = 1 / where(inverse > 0, inverse, 1.0)
        value = where(nothing, 0.0, whole)
        if self.A is None:
            return Cell(value, backend=self.backend)
        factor = where(nothing, 0.0, where(void, 0.0, weight * (whole / x) ** (1 - power)))
        return Cell(value, self.A * factor, self.B * factor, self.backend)

    def choose(self, condition: Array, other: Cell) -> Cell:
        """Another cell where a condition on the counts holds, this one elsewhere."""
        where = self.backend.where
        value = where(condition, other.value, self.value)
        if self.A is None:
            return Cell(value, backend=self.backend)
        A, B = where(condition, other.A, self.A), where(condition, other.B, self.B)
        return Cell(value, A, B, self.backend)
