"""The form of a metric, found by evaluating it in exact arithmetic.

A metric is called with numbers that carry no rounding error (fractions) or next to none (60 decimal
digits), at random points. An identity that holds at such points holds everywhere, up to a chance
far below that of a hardware error (the Schwartz-Zippel lemma).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

CellFunction = Callable[..., Any]  # of tp, fn, fp, tn
Support = tuple[bool, bool, bool, bool]  # which of the four cells can occur

QUANTITIES = ("recall", "specificity", "prevalence")
DIGITS = 60
POINTS = 4  # of each check
SUPPORTS: list[Support] = [
    (tp, fn, fp, tn) for tp, fn, fp, tn in product((True, False), repeat=4) if tp or fn or fp or tn
]


class Irrational(Exception):
    """A fraction was raised to a fractional power."""


class Exact:
    """A fraction or a decimal number with the operators of a metric; a division by 0 gives 0.

    >>> third = Exact(Fraction(1)) / 3
    >>> (third + 0.25).value, (third / 0).value
    (Fraction(7, 12), Fraction(0, 1))
    """

    __slots__ = ("value",)
    __array_ufunc__ = None  # a NumPy number on the left leaves the operation to us

    def __init__(self, value: Any) -> None:
        self.value = value

    def _lifted(self, other: Any) -> Any:
        if isinstance(other, Exact):
            return other.value
        return type(self.value)(other if isinstance(other, int) else float(other))

    def __add__(self, other: Any) -> Exact:
        return Exact(self.value + self._lifted(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Exact:
        return Exact(self.value - self._lifted(other))

    def __rsub__(self, other: Any) -> Exact:
        return Exact(self._lifted(other) - self.value)

    def __mul__(self, other: Any) -> Exact:
        return Exact(self.value * self._lifted(other))

    __rmul__ = __mul__

    def __neg__(self) -> Exact:
        return Exact(-self.value)

    def __pos__(self) -> Exact:
        return self

    def __truediv__(self, other: Any) -> Exact:
        divisor = self._lifted(other)
        return Exact(self.value / divisor if divisor else divisor)

    def __rtruediv__(self, other: Any) -> Exact:
        return Exact(self._lifted(other)) / self

    def __pow__(self, exponent: float) -> Exact:
        if exponent == int(exponent):
            power = Exact(self.value ** abs(int(exponent)))
            return 1 / power if exponent < 0 else power
        if isinstance(self.value, Fraction):
            raise Irrational
        if self.value <= 0:
            return Exact(Decimal(0))
        return Exact(self.value ** Decimal(exponent))


def value_at(function: CellFunction, cells: Sequence[Any]) -> Any:
    """The value of a function at exact cells."""
    tp, fn, fp, tn = map(Exact, cells)
    found = function(tp=tp, fn=fn, fp=fp, tn=tn)
    return found.value if isinstance(found, Exact) else tp._lifted(found)


def same_value(x: Decimal, y: Decimal) -> bool:
    """Whether two numbers of 60 digits agree in half of them."""
    return abs(x - y) <= Decimal(10) ** (-DIGITS // 2) * (1 + abs(x))


def is_of_shares(function: CellFunction) -> bool:
    """Whether a metric of counts is one of their shares: the same for three times the counts.

    >>> is_of_shares(lambda tp, fn, fp, tn: tp / (tp + fn)), is_of_shares(lambda tp, **_: tp)
    (True, False)
    """
    rng = random.Random(0)
    with localcontext(prec=DIGITS):
        for _ in range(POINTS):
            cells = [Decimal(rng.getrandbits(31) + 1) for _ in range(4)]
            if not same_value(
                value_at(function, cells), value_at(function, [3 * x for x in cells])
            ):
                return False
    return True


def linear_fraction(
    function: CellFunction, support: Support
) -> tuple[list[Fraction], list[Fraction]] | None:
    """The coefficients `a, b` if a metric is `(a . cells) / (b . cells)`, else None.

    Only the cells of the support occur; the coefficients of the others are 0. A constant has equal
    coefficients `b` for all of them. At least one coefficient `b` is positive.

    >>> a, b = linear_fraction(lambda tp, fn, fp, tn: 1 - fn / (tp + fn), (True,) * 4)
    >>> list(map(int, a)), list(map(int, b))
    ([1, 0, 0, 0], [1, 1, 0, 0])
    """
    inside = [j for j in range(4) if support[j]]
    rng, size = random.Random(0), len(inside)

    def point() -> list[Fraction]:
        return [Fraction(rng.getrandbits(31) + 1 if x else 0) for x in support]

    try:
        points = [point() for _ in range(2 * size + POINTS)]
        values = [value_at(function, x) for x in points]
    except Irrational:
        return None
    a, b = [Fraction(0)] * 4, [Fraction(0)] * 4
    if all(x == y for x, y in pairwise(values)):
        for j in inside:
            a[j], b[j] = values[0], Fraction(1)
        return a, b
    rows = [
        [x[j] for j in inside] + [-value * x[j] for j in inside]
        for x, value in zip(points, values, strict=True)
    ]
    solution = _null_vector(rows)
    if solution is None:
        return None
    scale = next((x for x in solution[size:] if x), None)
    if scale is None:
        return None
    for k, j in enumerate(inside):
        a[j], b[j] = solution[k] / scale, solution[size + k] / scale
    return a, b


def _null_vector(rows: list[list[Fraction]]) -> list[Fraction] | None:
    """The vector that all rows map to 0, if there is one up to its length, else None."""
    rows, pivots, width = [row[:] for row in rows], list[int](), len(rows[0])
    for column in range(width):
        top = len(pivots)
        found = next((k for k in range(top, len(rows)) if rows[k][column]), None)
        if found is None:
            continue
        rows[top], rows[found] = rows[found], rows[top]
        lead = rows[top][column]
        rows[top] = [x / lead for x in rows[top]]
        for k, row in enumerate(rows):
            if k != top and row[column]:
                rows[k] = [x - row[column] * y for x, y in zip(row, rows[top], strict=True)]
        pivots.append(column)
    if len(pivots) != width - 1:
        return None
    (free,) = set(range(width)) - set(pivots)
    vector = [Fraction(0)] * width
    vector[free] = Fraction(1)
    for k, column in enumerate(pivots):
        vector[column] = -rows[k][free]
    return vector


def cells_of(recall: Any, specificity: Any, prevalence: Any) -> tuple[Any, Any, Any, Any]:
    """The four cells as shares of all samples."""
    others = 1 - prevalence
    return (
        prevalence * recall,
        prevalence * (1 - recall),
        others * (1 - specificity),
        others * specificity,
    )


def fixed_quantities(support: Support) -> list[float | None]:
    """Recall, specificity and prevalence where the support leaves one value, else None.

    >>> fixed_quantities((True, False, True, True))
    [1.0, None, None]
    """
    tp, fn, fp, tn = support
    return [
        None if tp and fn else float(tp),
        None if tn and fp else float(tn),
        None if (tp or fn) and (fp or tn) else float(tp or fn),
    ]


def dependencies(function: CellFunction, support: Support) -> list[bool]:
    """Whether a metric depends on recall, specificity and prevalence.

    >>> from anyloss.metrics import balanced_accuracy
    >>> dependencies(balanced_accuracy, (True,) * 4)
    [True, True, False]
    """
    fixed, rng, found = fixed_quantities(support), random.Random(0), [False] * 3
    with localcontext(prec=DIGITS):
        for _ in range(POINTS):
            base = [Decimal(rng.random() if x is None else x) for x in fixed]
            value = value_at(function, cells_of(*base))
            for k in range(3):
                other = [Decimal(rng.random()) if j == k else x for j, x in enumerate(base)]
                if fixed[k] is None and not same_value(value, value_at(function, cells_of(*other))):
                    found[k] = True
    return found


def constant_value(function: CellFunction, fixed: Sequence[float | None]) -> float:
    """The value of a metric that depends on no quantity that is not fixed.

    >>> from anyloss.metrics import mcc
    >>> constant_value(mcc, [1.0, 1.0, None])
    1.0
    """
    with localcontext(prec=DIGITS):
        point = (Decimal(0.5 if x is None else x) for x in fixed)
        return float(value_at(function, cells_of(*point)))
