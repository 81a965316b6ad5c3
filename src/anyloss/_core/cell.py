"""The safe arithmetic of every metric, the same on floats, NumPy arrays and framework tensors.

A metric is written with plain operators. `Cell` implements these operators: a division by zero is 0
with derivative 0, and a fractional power has derivative 0 at 0. A `Cell` can carry two derivatives
(forward-mode differentiation), which give the closed-form gradient. Under a framework that computes
gradients itself, it carries none.
"""

from __future__ import annotations

import math

from anyloss._core.backend import FLOATS, Array, Backend


class Cell:
    """A count of the confusion matrix, or a value that is computed from counts.

    `d_positive` and `d_negative` are the derivatives of the value: its change per unit of soft
    decision of a positive and of a negative sample. They are None where a framework differentiates.

    >>> tp, fn = Cell(3.0, 1.0, 0.0), Cell(1.0, -1.0, 0.0)
    >>> recall = tp / (tp + fn)
    >>> recall.value, recall.d_positive
    (0.75, 0.25)
    >>> (Cell(0.0) / Cell(0.0)).value
    0.0
    """

    __slots__ = ("backend", "d_negative", "d_positive", "value")
    __array_ufunc__ = None  # a NumPy number on the left leaves the operation to us

    def __init__(
        self,
        value: Array,
        d_positive: Array = None,
        d_negative: Array = None,
        backend: Backend = FLOATS,
    ) -> None:
        self.value = value
        self.d_positive = d_positive
        self.d_negative = d_negative
        self.backend = backend

    def _linear(self, value: Array, factor: Array) -> Cell:
        """A new value with the derivatives of this cell, multiplied by a factor."""
        if self.d_positive is None:
            return Cell(value, backend=self.backend)
        return Cell(value, self.d_positive * factor, self.d_negative * factor, self.backend)

    def __add__(self, other: Array) -> Cell:
        if type(other) is not Cell:
            return Cell(self.value + other, self.d_positive, self.d_negative, self.backend)
        if self.d_positive is None:
            return Cell(self.value + other.value, backend=self.backend)
        return Cell(
            self.value + other.value,
            self.d_positive + other.d_positive,
            self.d_negative + other.d_negative,
            self.backend,
        )

    __radd__ = __add__

    def __neg__(self) -> Cell:
        return self._linear(-self.value, -1.0)

    def __pos__(self) -> Cell:
        return self

    def __sub__(self, other: Array) -> Cell:
        if type(other) is not Cell:
            return Cell(self.value - other, self.d_positive, self.d_negative, self.backend)
        if self.d_positive is None:
            return Cell(self.value - other.value, backend=self.backend)
        return Cell(
            self.value - other.value,
            self.d_positive - other.d_positive,
            self.d_negative - other.d_negative,
            self.backend,
        )

    def __rsub__(self, other: Array) -> Cell:
        return self._linear(other - self.value, -1.0)

    def __mul__(self, other: Array) -> Cell:
        if type(other) is not Cell:
            return self._linear(self.value * other, other)
        x, y = self.value, other.value
        if self.d_positive is None:
            return Cell(x * y, backend=self.backend)
        return Cell(
            x * y,
            self.d_positive * y + x * other.d_positive,
            self.d_negative * y + x * other.d_negative,
            self.backend,
        )

    __rmul__ = __mul__

    def times(self, factor: Array) -> Cell:
        """The product with a number or a framework's tensor, which does not depend on the counts.

        It is `self * factor`, except that compilers need not find out whose operator that is.
        """
        return self._linear(self.value * factor, factor)

    def __truediv__(self, other: Array) -> Cell:
        if type(other) is not Cell:
            return self._linear(self.value / other, 1.0 / other)
        # Below the smallest normal number the derivative 1/y would overflow: this is zero as well.
        # A division by infinity instead is 0, and so are its derivatives.
        y = self.backend.where(abs(other.value) < self.backend.tiny, math.inf, other.value)
        value = self.value / y
        if self.d_positive is None:
            return Cell(value, backend=self.backend)
        d_positive = (self.d_positive - value * other.d_positive) / y
        d_negative = (self.d_negative - value * other.d_negative) / y
        return Cell(value, d_positive, d_negative, self.backend)

    def __rtruediv__(self, other: Array) -> Cell:
        numerator: Cell = self._linear(self.value * 0.0, 0.0) + other
        return numerator / self

    def __pow__(self, exponent: float) -> Cell:
        if isinstance(exponent, Cell):
            raise TypeError(
                "an exponent in a metric must be a number, as in x**0.5; got an expression of "
                "tp, fn, fp, tn"
            )
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
        raise TypeError(
            "a metric cannot branch, as in `if tp`; remove the check, 0 / 0 is already 0"
        )

    def __eq__(self, other: object) -> bool:
        raise TypeError(
            "a metric cannot compare, as in `tp == 0`; remove the check, 0 / 0 is already 0"
        )

    def sum(self) -> Cell:
        """The sum over the classes; the derivatives remain those of each class."""
        return Cell(
            self.backend.sum(self.value, -1), self.d_positive, self.d_negative, self.backend
        )

    def mean(self, weight: Array, power: int = 1) -> Cell:
        """The weighted mean over the classes: arithmetic (1), geometric (0) or harmonic (-1).

        The weights must sum to one. The geometric and the harmonic mean are 0, with derivative 0,
        where a class has the value 0.

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
        if self.d_positive is None:
            return Cell(value, backend=self.backend)
        factor = where(nothing, 0.0, where(void, 0.0, weight * (whole / x) ** (1 - power)))
        return Cell(value, self.d_positive * factor, self.d_negative * factor, self.backend)

    def log(self, least: float) -> Cell:
        """The logarithm; below `least`, its value and its derivative at `least`.

        >>> half, nothing = Cell(0.5, 1.0, 0.0).log(1e-7), Cell(0.0, 1.0, 0.0).log(1e-7)
        >>> half.d_positive, round(nothing.d_positive), round(float(nothing.value), 2)
        (2.0, 10000000, -16.12)
        """
        x = self.value
        x = self.backend.where(x < least, least + (x - self.backend.constant(x)), x)
        return self._linear(self.backend.log(x), 1 / x)

    def choose(self, condition: Array, other: Cell) -> Cell:
        """The values of another cell where a condition holds, and those of this one elsewhere."""
        where = self.backend.where
        value = where(condition, other.value, self.value)
        if self.d_positive is None:
            return Cell(value, backend=self.backend)
        d_positive = where(condition, other.d_positive, self.d_positive)
        d_negative = where(condition, other.d_negative, self.d_negative)
        return Cell(value, d_positive, d_negative, self.backend)
