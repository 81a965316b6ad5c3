"""Whether a metric rises or falls in recall, specificity and prevalence, proved by algebra.

A metric is evaluated on polynomials in the three quantities with exact coefficients, and roots of
them. Its derivative has the sign of one polynomial, and a polynomial is not negative over the unit
cube if none of its Bernstein coefficients is. What has no such form, as a sum of two roots, is left
unproved. The statements are about the inside of the cube, where each cell occurs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from math import comb
from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.forms import DIGITS, POINTS, CellFunction, cells_of, same_value

MOST_PRODUCTS = 4_000  # of coefficients, for one product; what needs more is left unproved


class Unproved(Exception):
    """A metric has no form that the proof covers."""


def _monomial(axis: int) -> Array:
    """One of the three quantities as a polynomial: an array of the coefficients of its powers."""
    found = np.full([1 + (k == axis) for k in range(3)], Fraction(0))
    found[tuple(int(k == axis) for k in range(3))] = Fraction(1)
    return found


def _constant(value: Any) -> Array:
    return np.full((1, 1, 1), Fraction(value))


def _sum(x: Array, y: Array) -> Array:
    found = np.full(np.maximum(x.shape, y.shape), Fraction(0))
    for part in (x, y):
        found[tuple(map(slice, part.shape))] += part
    return _trimmed(found)


def _product(x: Array, y: Array) -> Array:
    if x.size * y.size > MOST_PRODUCTS:
        raise Unproved
    x, y = sorted((x, y), key=np.size)
    found = np.full(np.add(x.shape, y.shape) - 1, Fraction(0))
    for at, value in np.ndenumerate(x):
        found[tuple(slice(k, k + n) for k, n in zip(at, y.shape, strict=True))] += value * y
    return _trimmed(found)


def _trimmed(x: Array) -> Array:
    """Without the powers that do not occur."""
    used = np.argwhere(x)
    return x[tuple(map(slice, used.max(axis=0) + 1))] if len(used) else _constant(0)


def _derivative(x: Array, axis: int) -> Array:
    if x.shape[axis] == 1:
        return _constant(0)
    powers = np.arange(1, x.shape[axis]).reshape([-1 if k == axis else 1 for k in range(3)])
    return _trimmed(np.delete(x, 0, axis) * powers)


def _combined(x: Array, axis: int, weight: Callable[[int, int], Fraction]) -> Array:
    """Other coefficients along an axis, each a sum of the old ones by weights."""
    places = range(x.shape[axis])
    weights = np.array([[weight(row, k) for k in places] for row in places])
    return np.moveaxis(np.tensordot(weights, x, axes=(1, axis)), 0, axis)


def _bernstein(degree: int, row: int, k: int) -> Fraction:
    """The part of the k-th power in a Bernstein coefficient."""
    return Fraction(comb(row, k), comb(degree, k))


def sign_of(x: Array) -> int | None:
    """The sign of a polynomial inside the cube: 1, -1, 0 for the zero polynomial, None if unproved.

    >>> sign_of(_sum(_constant(1), -_monomial(0))), sign_of(_sum(_constant(0.5), -_monomial(0)))
    (1, None)
    """
    for axis in range(3):  # to Bernstein coefficients
        x = _combined(x, axis, partial(_bernstein, x.shape[axis] - 1))
    signs = {int(value > 0) - int(value < 0) for value in x.flat} - {0}
    return None if len(signs) > 1 else sum(signs)


class Expression:
    """`top / bottom` times powers of polynomials, with the operators of a metric.

    The bottom and the bases of the powers are positive inside the cube.
    """

    __array_ufunc__ = None  # a NumPy number on the left leaves the operation to us

    def __init__(
        self, top: Array, bottom: Array, powers: dict[bytes, tuple[Array, Fraction]] | None = None
    ) -> None:
        self.top, self.bottom, self.powers = top, bottom, powers or {}

    def _lifted(self, other: Any) -> Expression:
        if isinstance(other, Expression):
            return other
        number = other if isinstance(other, int | Fraction) else float(other)
        return Expression(_constant(number), _constant(1))

    def __add__(self, other: Any) -> Expression:
        other = self._lifted(other)
        if not self.top.any() or not other.top.any():
            return other if other.top.any() else self
        if {k: x[1] for k, x in self.powers.items()} != {k: x[1] for k, x in other.powers.items()}:
            raise Unproved
        if np.array_equal(self.bottom, other.bottom):
            return Expression(_sum(self.top, other.top), self.bottom, self.powers)
        top = _sum(_product(self.top, other.bottom), _product(other.top, self.bottom))
        return Expression(top, _product(self.bottom, other.bottom), self.powers)

    __radd__ = __add__

    def __neg__(self) -> Expression:
        return Expression(-self.top, self.bottom, self.powers)

    def __pos__(self) -> Expression:
        return self

    def __sub__(self, other: Any) -> Expression:
        return self + -self._lifted(other)

    def __rsub__(self, other: Any) -> Expression:
        return self._lifted(other) - self

    def __mul__(self, other: Any) -> Expression:
        other = self._lifted(other)
        top, bottom = _product(self.top, other.top), _product(self.bottom, other.bottom)
        powers = dict(self.powers)
        for key, (base, exponent) in other.powers.items():
            total = exponent + powers.pop(key, (base, Fraction(0)))[1]
            if total.denominator > 1:
                powers[key] = base, total
            for _ in range(abs(int(total)) if total.denominator == 1 else 0):
                top, bottom = (
                    (_product(top, base), bottom) if total > 0 else (top, _product(bottom, base))
                )
        return Expression(top, bottom, powers)

    __rmul__ = __mul__

    def _inverse(self) -> Expression:
        sign = sign_of(self.top)
        if sign is None:
            raise Unproved
        if not sign:  # 1 / 0 is 0
            return self
        powers = {key: (base, -exponent) for key, (base, exponent) in self.powers.items()}
        return Expression(sign * self.bottom, sign * self.top, powers)

    def __truediv__(self, other: Any) -> Expression:
        return self * self._lifted(other)._inverse()

    def __rtruediv__(self, other: Any) -> Expression:
        return self._lifted(other) / self

    def __pow__(self, exponent: float) -> Expression:
        if exponent == int(exponent):
            found = self._lifted(1)
            for _ in range(abs(int(exponent))):
                found = found * self
            return found._inverse() if exponent < 0 else found
        sign = sign_of(self.top)
        if sign is None:
            raise Unproved
        if sign <= 0:  # the power of 0, and of a number below it, is 0
            return self._lifted(0)
        power = Fraction(exponent)
        found = self._lifted(1)
        parts = [(self.top, power), (self.bottom, -power)]
        parts += [(base, power * each) for base, each in self.powers.values()]
        for base, each in parts:
            key = repr((base.shape, *map(str, base.flat))).encode()
            found = found * Expression(_constant(1), _constant(1), {key: (base, each)})
        return found

    def direction(self, axis: int) -> int | None:
        """The sign of the derivative in one of the quantities."""
        bases = list(self.powers.values())
        change = _sum(
            _product(_derivative(self.top, axis), self.bottom),
            -_product(self.top, _derivative(self.bottom, axis)),
        )
        rest = _product(self.top, self.bottom)
        for base, exponent in bases:
            change, rest = (
                _sum(_product(change, base), exponent * _product(rest, _derivative(base, axis))),
                _product(rest, base),
            )
        return sign_of(change)

    def least(self, found: Sequence[int]) -> float:
        """The limit where each quantity with a direction is worst, if it is the same everywhere.

        With the distance `t` to that place, a polynomial is its lowest power of `t` times a
        polynomial in the other quantities.
        """
        parts = [(self.top, Fraction(1)), (self.bottom, Fraction(-1)), *self.powers.values()]
        leading = [(_leading(base, found), exponent) for base, exponent in parts]
        order = sum(exponent * power for (power, _), exponent in leading)
        if not self.top.any() or order > 0:
            return 0.0
        if order < 0:
            return -np.inf
        rng, values = random.Random(0), []
        with localcontext(prec=DIGITS):
            for _ in range(POINTS):
                point, value = [Fraction(rng.random()) for _ in range(3)], Decimal(1)
                for (_, base), exponent in leading:
                    value *= _power(_value(base, point), exponent)
                values.append(value)
            return float(values[0]) if all(same_value(values[0], x) for x in values) else -np.inf


def _leading(x: Array, found: Sequence[int]) -> tuple[int, Array]:
    """The lowest power of the distance to where a metric is worst, and what it is multiplied by."""
    for axis, sign in enumerate(found):
        if sign < 0:  # to powers of 1 - quantity
            x = _combined(x, axis, lambda row, k: Fraction((-1) ** row * comb(k, row)))
    sums: dict[int, Array] = {}
    shape = [1 if sign else size for sign, size in zip(found, x.shape, strict=True)]
    for at, value in np.ndenumerate(x):
        power = sum(k for k, sign in zip(at, found, strict=True) if sign)
        rest = tuple(0 if sign else k for k, sign in zip(at, found, strict=True))
        sums.setdefault(power, np.full(shape, Fraction(0)))[rest] += value
    return next(((k, sums[k]) for k in sorted(sums) if sums[k].any()), (0, x))


def _value(x: Array, point: list[Fraction]) -> Fraction:
    """The value of a polynomial."""
    total = Fraction(0)
    for at, value in np.ndenumerate(x):
        for k, base in zip(at, point, strict=True):
            value = value * base**k
        total += value
    return total


def _power(base: Fraction, exponent: Fraction) -> Decimal:
    number = Decimal(base.numerator) / Decimal(base.denominator)
    if exponent.denominator == 1:
        return number ** int(exponent)
    return number ** (Decimal(exponent.numerator) / Decimal(exponent.denominator))


def trend(function: CellFunction, fixed: Sequence[float | None]) -> tuple[tuple[int, ...], float]:
    """1 where a metric is proved to rise in a quantity, -1 where to fall, else 0; and its floor.

    Quantities that are fixed have their value. The metric is never below the floor, which is its
    limit where all these quantities are worst. It is a limit, because a metric may have another
    value where a cell does not occur. Recall and specificity raise the MCC, from -1 on:

    >>> from anyloss.metrics import mcc
    >>> trend(mcc, [None, None, None])
    ((1, 1, 0), -1.0)
    """
    one = _constant(1)
    sides = (
        Expression(_monomial(k) if value is None else _constant(value), one)
        for k, value in enumerate(fixed)
    )
    tp, fn, fp, tn = cells_of(*sides)
    try:
        found = tp._lifted(function(tp=tp, fn=fn, fp=fp, tn=tn))
        directions = tuple(found.direction(axis) or 0 for axis in range(3))
    except Unproved:
        return (0, 0, 0), -np.inf
    return directions, found.least(directions)
