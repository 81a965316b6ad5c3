"""Lower bounds and p-values for the metric of a population, valid for any number of rows.

The counts of independent rows are multinomial. There are four cases, by the form of the metric:

- `Constant`: nothing to estimate.
- `Share`: a rising function of one share, such as F1 of `tp / (tp + fn + fp)`. Given the number of
  rows that count, the share is binomial (Clopper and Pearson).
- `Ratio`: another ratio of sums of cells, such as F2. `a / b >= v` is `E[a - v b] >= 0` for a
  variable with at most four values, tested by betting (after Waudby-Smith and Ramdas).
- `Region`: any other metric. Exact intervals of recall, specificity and prevalence hold jointly,
  and the bound is the least value of the metric over their box.

All bounds are lower ones; an upper bound is that of the negative metric. Counts are rows `(k, 4)`
of several samples, which are tested side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    constant_value,
    dependencies,
    fixed_quantities,
    linear_fraction,
)
from anyloss._core.formula import CELLS
from anyloss._core.intervals import evaluate, least_values
from anyloss._core.monotone import trend
from anyloss.metrics import Metric

LARGEST_BET = 0.99  # the share of the wealth that one row can cost
GRID = 2000  # values that a bound by betting is one of
NEEDED_SIDE = 0.95  # the share of the error on the side where a rising or falling metric is least
SMALLEST_P = 1e-9  # of a region; below it the search stops
LEVELS = 16  # of the error, that are tried at once
SEARCHES = 3  # a p-value of a region is known to a factor of SMALLEST_P ** (-1 / LEVELS**3)
EDGE = 1e-9  # a metric that rises in a share is least between 0 and this, if the share may be 0


class Form(Protocol):
    """A kind of metric, with its bound and its test."""

    @property
    def method(self) -> str:
        """The method in words."""

    def lower(self, counts: Array, alpha: float) -> Array:
        """The numbers that the metric exceeds with confidence `1 - alpha`."""

    def p_values(self, counts: Array, value: float) -> Array:
        """The p-values of "the metric is below the value"."""


@dataclass(frozen=True)
class Constant:
    """A metric that has one value."""

    value: float
    method: str = "the metric is constant"

    def lower(self, counts: Array, alpha: float) -> Array:
        return np.full(len(counts), self.value)

    def p_values(self, counts: Array, value: float) -> Array:
        return np.full(len(counts), 0.0 if self.value >= value else 1.0)


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

    def lower(self, counts: Array, alpha: float) -> Array:
        share = binomial_lower(*self._numbers(counts), alpha)
        return (self.a * share + self.c * (1 - share)) / (self.b * share + self.d * (1 - share))

    def p_values(self, counts: Array, value: float) -> Array:
        if not self.c / self.d < value <= self.a / self.b:
            return np.full(len(counts), float(value > self.a / self.b))
        share = (value * self.d - self.c) / (self.a - self.c - value * (self.b - self.d))
        return binomial_p_value(*self._numbers(counts), share)

    def _numbers(self, counts: Array) -> tuple[Array, Array]:
        inside = counts[:, self.inside].sum(axis=1)
        return inside, inside + counts[:, self.outside].sum(axis=1)


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

    def lower(self, counts: Array, alpha: float) -> Array:
        low, high = self._range()
        values = low + (high - low) * np.arange(1, GRID) / GRID
        found = []
        for row in counts:
            rejected = self._p_values(row, values) <= alpha
            passed = GRID - 1 if rejected.all() else int(rejected.argmin())
            found.append(values[passed - 1] if passed else low)
        return np.array(found)

    def p_values(self, counts: Array, value: float) -> Array:
        low, high = self._range()
        if not low < value <= high:
            return np.full(len(counts), float(value > high))
        return np.array([self._p_values(row, np.array([value]))[0] for row in counts])

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
    sides: tuple[int, ...]  # 1: it seems to rise in the quantity, -1: to fall, 0: neither
    proved: tuple[int, ...]  # the same, where it is proved
    floor: float  # the metric is never below it

    @property
    def method(self) -> str:
        names = [name for name, used in zip(QUANTITIES, self.used, strict=True) if used]
        return f"exact joint intervals of {' and '.join(names)}"

    def lower(self, counts: Array, alpha: float) -> Array:
        boxes = self._boxes(counts, np.full(len(counts), alpha))
        return least_values(self.function, boxes, floor=self.floor)

    def p_values(self, counts: Array, value: float) -> Array:
        """The least error at which the bound reaches the value, among fixed ones.

        The boxes of two errors contain one another, so that each error at which the value is
        reached is a p-value, whichever errors are tried.
        """
        if value <= self.floor:
            return np.zeros(len(counts))
        low, high = np.full(len(counts), np.log(SMALLEST_P)), np.zeros(len(counts))
        passed = np.zeros(len(counts), dtype=bool)
        for _ in range(SEARCHES):
            logs = low[:, None] + (high - low)[:, None] * np.arange(1, LEVELS + 1) / LEVELS
            alpha = np.minimum(np.exp(logs), 1 - 1e-9).ravel()
            boxes = self._boxes(counts.repeat(LEVELS, axis=0), alpha)
            reached = least_values(self.function, boxes, enough=value) >= value
            reached = reached.reshape(logs.shape)
            passed |= reached.any(axis=1)
            first = np.where(reached.any(axis=1), reached.argmax(axis=1), LEVELS - 1)
            high = logs[np.arange(len(logs)), first]
            low = np.where(first, logs[np.arange(len(logs)), first - 1], low)
        return np.where(passed, np.exp(high), 1.0)

    def _boxes(self, counts: Array, alpha: Array) -> Array:
        """The joint intervals `(k, 3, 2)`, without the parts where the metric is not least."""
        tp, fn, fp, tn = counts.T
        shares = ((tp, tp + fn), (tn, tn + fp), (tp + fn, tp + fn + fp + tn))
        alone = -np.expm1(np.log1p(-alpha) / sum(self.used))
        box = np.empty((len(counts), 3, 2))
        for k, (number, total) in enumerate(shares):
            value = self.fixed[k]
            if value is not None or not self.used[k]:
                box[:, k] = 0.5 if value is None else value
                continue
            below = (1 - NEEDED_SIDE, 0.5, NEEDED_SIDE)[self.sides[k] + 1] * alone
            low = binomial_lower(number, total, below)
            high = 1 - binomial_lower(total - number, total, alone - below)
            if self.proved[k] > 0:
                high = np.minimum(np.maximum(low, EDGE), high)
            if self.proved[k] < 0:
                low = np.maximum(np.minimum(high, 1 - EDGE), low)
            box[:, k] = np.stack([low, high], axis=1)
        return box


def _special() -> Any:
    try:
        import scipy.special
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("certificates need SciPy; pip install 'scipy>=1.12'") from error
    return scipy.special


def binomial_lower(number: Array, total: Array, alpha: Array | float) -> Array:
    """The lower limits of shares by Clopper and Pearson.

    >>> binomial_lower(np.array([10, 0]), np.array([10, 0]), 0.05).round(6)
    array([0.741134, 0.      ])
    """
    some = np.maximum(number, 1)
    return np.where(number > 0, _special().betaincinv(some, total - number + 1, alpha), 0.0)


def binomial_p_value(number: Array, total: Array, share: float) -> Array:
    """The probabilities of at least so many successes.

    >>> binomial_p_value(np.array([9]), np.array([10]), 0.5).round(6)
    array([0.010742])
    """
    some = np.maximum(number, 1)
    return np.where(number > 0, _special().betainc(some, total - number + 1, share), 1.0)


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
        return Constant(constant_value(function, fixed))
    proved, floor = trend(function, fixed)
    sides = _sides(function, fixed)
    return Region(function, tuple(fixed), tuple(used), sides, proved, floor)


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
    with np.errstate(invalid="ignore"):  # a derivative that is unbounded has neither sign
        middle = (low + high) / 2
    rising, falling = (middle > -1e-9).all(axis=1), (middle < 1e-9).all(axis=1)
    return tuple(int(up) - int(down) for up, down in zip(rising, falling, strict=True))


def lower_bounds(metric: Metric, counts: Array, alpha: float, sign: int = 1) -> Array:
    """The lower bounds of a metric, or of its negative, whichever cells are possible."""
    found = np.full(len(counts), np.inf)
    for form, rows in _forms(metric, sign, counts):
        found[rows] = np.minimum(found[rows], form.lower(counts[rows], alpha))
    return found


def p_values(metric: Metric, counts: Array, value: float, sign: int = 1) -> Array:
    """The largest p-values of all forms, for "the metric, or its negative, is below the value"."""
    found = np.zeros(len(counts))
    for form, rows in _forms(metric, sign, counts):
        found[rows] = np.maximum(found[rows], form.p_values(counts[rows], value))
    return found


def _forms(metric: Metric, sign: int, counts: Array) -> Iterator[tuple[Form, Array]]:
    """The forms of all sets of cells that may have given some counts, with the rows of these.

    A cell without a row may be impossible. Where cells are impossible, a metric may divide 0 by 0,
    which is 0, and have another form.
    """
    for support in SUPPORTS:
        rows = ~(counts[:, ~np.array(support)] > 0).any(axis=1)
        if rows.any():
            yield form_of(metric, sign, support), rows


def method(metric: Metric) -> str:
    """The method that bounds a metric where all four cells can occur."""
    return form_of(metric, 1, (True, True, True, True)).method
