"""Lower bounds and p-values for the metric of a population, valid for any number of rows.

The counts of independent rows are multinomial. There are four cases, by the form of the metric:

- `Constant`: nothing to estimate.
- `Share`: a rising function of one share, such as F1 of `tp / (tp + fn + fp)`. Given the number of
  rows that count, the share is binomial (Clopper and Pearson).
- `Ratio`: another ratio of sums of cells, such as F2. `a / b >= v` is `E[a - v b] >= 0` for a
  variable with at most four values, tested by betting (after Waudby-Smith and Ramdas).
- `Region`: any other metric. Exact intervals of recall, specificity and prevalence hold jointly,
  and the bound is the least value of the metric over their box.

All bounds are lower ones; an upper bound is that of the negative metric.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.forms import (
    QUANTITIES,
    SUPPORTS,
    CellFunction,
    Support,
    dependencies,
    fixed_quantities,
    linear_fraction,
)
from anyloss._core.formula import CELLS
from anyloss._core.intervals import evaluate, least_value
from anyloss.metrics import Metric

LARGEST_BET = 0.99  # the share of the wealth that one row can cost
GRID = 2000  # values that a bound by betting is one of
NEEDED_SIDE = 0.95  # the share of the error on the side where a rising or falling metric is least
SMALLEST_P = 1e-9  # of a region; below it the bisection stops


class Form(Protocol):
    """A kind of metric, with its bound and its test."""

    @property
    def method(self) -> str:
        """The method in words."""

    def lower(self, counts: Array, alpha: float) -> float:
        """The number that the metric exceeds with confidence `1 - alpha`."""

    def p_value(self, counts: Array, value: float) -> float:
        """The p-value of "the metric is below the value"."""


@dataclass(frozen=True)
class Constant:
    """A metric that has one value."""

    value: float
    method: str = "the metric is constant"

    def lower(self, counts: Array, alpha: float) -> float:
        return self.value

    def p_value(self, counts: Array, value: float) -> float:
        return 0.0 if self.value >= value else 1.0


@dataclass(frozen=True)
class Share:
    """The metric `(a s + c (1 - s)) / (b s + d (1 - s))` of a share `s`, rising in it."""

    inside: Support  # the cells that the share counts
    outside: Support  # the other cells that it is a share of
    a: float
    b: float
    c: float
    d: float

    @property
    def method(self) -> str:
        parts = [x for x, is_in in zip(CELLS, self.inside, strict=True) if is_in]
        rest = [x for x, is_in in zip(CELLS, self.outside, strict=True) if is_in]
        return f"Clopper-Pearson: {' + '.join(parts)} given {' + '.join(parts + rest)}"

    def lower(self, counts: Array, alpha: float) -> float:
        share = binomial_lower(*self._numbers(counts), alpha)
        return (self.a * share + self.c * (1 - share)) / (self.b * share + self.d * (1 - share))

    def p_value(self, counts: Array, value: float) -> float:
        if value <= self.c / self.d:
            return 0.0
        if value > self.a / self.b:
            return 1.0
        share = (value * self.d - self.c) / (self.a - self.c - value * (self.b - self.d))
        return binomial_p_value(*self._numbers(counts), share)

    def _numbers(self, counts: Array) -> tuple[int, int]:
        inside = int(counts[list(self.inside)].sum())
        return inside, inside + int(counts[list(self.outside)].sum())


@dataclass(frozen=True)
class Ratio:
    """The metric `sum(a cells) / sum(b cells)`, where the cells with `a = b = 0` do not count.

    If the metric is at most `v`, bets on `x = a - v b` do not gain on average: the product of
    `1 + amount * x` over the rows has a mean of at most 1, and so has its mean over several
    amounts. By Markov's inequality one over it is a p-value. It depends on the counts alone, not on
    an order of the rows. A bound tests a fixed grid of values from below, up to the first one that
    is not rejected, so that the p-value need not be monotone.
    """

    a: tuple[float, ...]
    b: tuple[float, ...]

    method = "betting (Waudby-Smith and Ramdas)"

    def lower(self, counts: Array, alpha: float) -> float:
        low, high = self._range()
        values = low + (high - low) * np.arange(1, GRID) / GRID
        rejected = self._p_values(counts, values) <= alpha
        passed = GRID - 1 if rejected.all() else int(rejected.argmin())
        return float(values[passed - 1]) if passed else low

    def p_value(self, counts: Array, value: float) -> float:
        low, high = self._range()
        if not low < value <= high:
            return 0.0 if value <= low else 1.0
        return float(self._p_values(counts, np.array([value]))[0])

    def _range(self) -> tuple[float, float]:
        """The metric lies between the least and the largest quotient of its coefficients."""
        found = [x / y for x, y in zip(self.a, self.b, strict=True) if y]
        return min(found), max(found)

    def _p_values(self, counts: Array, values: Array) -> Array:
        b = np.array(self.b)
        inside = b > 0
        n = counts[inside]
        x = np.array(self.a)[inside] - values[:, None] * b[inside]
        kinds = max(1, int(np.ceil(np.log2(max(n.sum(), 1)) / 2)))
        share = LARGEST_BET * 0.5 ** np.arange(kinds)  # of the wealth that the worst row costs
        amount = share / -x.min(axis=1, keepdims=True)
        wealth = np.log1p(amount[..., None] * x[:, None, :]) @ n
        mean = np.logaddexp.reduce(wealth, axis=1) - np.log(kinds)
        return np.exp(-np.maximum(mean, 0.0))


@dataclass(frozen=True)
class Region:
    """Any metric, as a function of recall, specificity and prevalence.

    Given the number of positive rows, recall and specificity are shares of independent rows, so
    that three intervals with the confidences `c` hold jointly with `c^3`. A metric that rises in a
    quantity is least at its lower limit, which gets nearly all of the error. The sides are chosen
    by the metric, not by the counts, so that the box holds with its confidence in any case.
    """

    function: CellFunction
    fixed: tuple[float | None, ...]  # the quantities with one value
    used: tuple[bool, ...]  # the quantities that the metric depends on
    sides: tuple[int, ...]  # 1: it rises in the quantity, -1: it falls, 0: neither

    @property
    def method(self) -> str:
        names = [name for name, used in zip(QUANTITIES, self.used, strict=True) if used]
        return f"exact joint intervals of {' and '.join(names)}"

    def lower(self, counts: Array, alpha: float) -> float:
        tp, fn, fp, tn = (int(x) for x in counts)
        shares = ((tp, tp + fn), (tn, tn + fp), (tp + fn, tp + fn + fp + tn))
        alone = -np.expm1(np.log1p(-alpha) / sum(self.used)) if alpha < 1 else 1.0
        box = np.empty((3, 2))
        for k, (number, total) in enumerate(shares):
            value = self.fixed[k]
            if value is not None or not self.used[k]:
                box[k] = 0.5 if value is None else value
                continue
            below = (1 - NEEDED_SIDE, 0.5, NEEDED_SIDE)[self.sides[k] + 1] * alone
            low = binomial_lower(number, total, below)
            box[k] = low, 1 - binomial_lower(total - number, total, alone - below)
        return least_value(self.function, box)

    def p_value(self, counts: Array, value: float) -> float:
        low, high = np.log(SMALLEST_P), 0.0
        if self.lower(counts, 1 - 1e-9) < value:
            return 1.0
        while high - low > 0.01:
            middle = (low + high) / 2
            holds = self.lower(counts, float(np.exp(middle))) >= value
            low, high = (low, middle) if holds else (middle, high)
        return float(np.exp(high))


def _special() -> Any:
    try:
        import scipy.special
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("certificates need SciPy; pip install 'scipy>=1.12'") from error
    return scipy.special


def binomial_lower(number: int, total: int, alpha: float) -> float:
    """The lower limit of a share by Clopper and Pearson.

    >>> round(binomial_lower(10, 10, 0.05), 6), binomial_lower(0, 0, 0.05)
    (0.741134, 0.0)
    """
    return float(_special().betaincinv(number, total - number + 1, alpha)) if number else 0.0


def binomial_p_value(number: int, total: int, share: float) -> float:
    """The probability of at least so many successes.

    >>> round(binomial_p_value(9, 10, 0.5), 6)
    0.010742
    """
    return float(_special().betainc(number, total - number + 1, share)) if number else 1.0


@lru_cache(maxsize=1024)
def form_of(metric: Metric, sign: int, support: Support) -> Form:
    """The form of a metric, or of its negative (-1), where only the cells of the support occur."""

    def function(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
        return sign * metric(tp=tp, fn=fn, fp=fp, tn=tn)

    return find_form(function, support)


def find_form(function: CellFunction, support: Support) -> Form:
    """The form of a function of the cells, recognised from its values.

    >>> from anyloss.metrics import f1
    >>> find_form(f1, (True,) * 4).method
    'Clopper-Pearson: tp given tp + fn + fp'
    """
    found = linear_fraction(function, support)
    if found is not None:
        form = _linear_form(*found, support)
        if form is not None:
            return form
    used = dependencies(function, support)
    fixed = fixed_quantities(support)
    if not any(used):  # irrational, and the same everywhere
        return Constant(least_value(function, _points(fixed)[0]))
    return Region(function, tuple(fixed), tuple(used), _sides(function, fixed))


def _linear_form(a: list[Array], b: list[Array], support: Support) -> Form | None:
    """The form of a ratio of sums, or None if its denominator can vanish or change its sign."""
    kinds = {(a[j], b[j]) for j in range(4) if support[j]} - {(0, 0)}
    if min(y for _, y in kinds) <= 0:
        return None
    values = sorted({x / y for x, y in kinds})
    if len(values) == 1:
        return Constant(float(values[0])) if all(b[j] for j in range(4) if support[j]) else None
    if len(kinds) > 2:
        return Ratio(tuple(map(float, a)), tuple(map(float, b)))
    (c, d), (high, below) = sorted(kinds, key=lambda pair: pair[0] / pair[1])
    inside, outside = (
        tuple(support[j] and (a[j], b[j]) == kind for j in range(4))
        for kind in ((high, below), (c, d))
    )
    return Share(inside, outside, *map(float, (high, below, c, d)))  # type: ignore[arg-type]


def _points(fixed: list[float | None]) -> Array:
    """Fifty points of recall, specificity and prevalence, as boxes of no width."""
    found = np.random.default_rng(0).uniform(0.02, 0.98, (50, 3))
    for k, value in enumerate(fixed):
        found[:, k] = found[:, k] if value is None else value
    return found[..., None].repeat(2, axis=2)


def _sides(function: CellFunction, fixed: list[float | None]) -> tuple[int, ...]:
    low, high = evaluate(function, _points(fixed)).derivative
    middle = (low + high) / 2
    rising, falling = (middle > -1e-9).all(axis=1), (middle < 1e-9).all(axis=1)
    return tuple(int(up) - int(down) for up, down in zip(rising, falling, strict=True))


def _possible(counts: Array) -> list[Support]:
    """The sets of cells that may have given these counts: a cell without a row may be impossible.

    Where cells are impossible, a metric may divide 0 by 0, which is 0, and have another form.
    """
    seen = [bool(x) for x in counts]
    return [support for support in SUPPORTS if all(map(operator.ge, support, seen))]


def lower_bound(metric: Metric, counts: Array, alpha: float, sign: int = 1) -> float:
    """The lower bound of a metric, or of its negative, whichever cells are possible."""
    possible = (form_of(metric, sign, support) for support in _possible(counts))
    return min(form.lower(counts, alpha) for form in possible)


def p_value(metric: Metric, counts: Array, value: float, sign: int = 1) -> float:
    """The largest p-value of "the metric, or its negative, is below the value" over these sets."""
    possible = (form_of(metric, sign, support) for support in _possible(counts))
    return max(form.p_value(counts, value) for form in possible)


def method(metric: Metric) -> str:
    """The method that bounds a metric where all four cells can occur."""
    return form_of(metric, 1, (True, True, True, True)).method
