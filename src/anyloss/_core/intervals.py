"""The least value of a metric over a box of recall, specificity and prevalence, with a guarantee.

The metric is evaluated on intervals that are rounded outwards and carry the intervals of their
three derivatives. Where a derivative has one sign over a box, the least value lies on one side of
it; where all are finite, the metric is at least its value in the middle minus what they allow. The
boxes with the lowest bounds are divided until the least value is known to the tolerance, or until
the rounds end; the bound holds then too, and is only less tight. Many searches run side by side,
each box with the number of the search that it belongs to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.forms import CellFunction, cells_of

TOLERANCE = 1e-5
ROUNDS = 40
AT_ONCE = 1024  # boxes of a search that are divided in one round
SIDE_BY_SIDE = 256  # searches
FEW, FEW_PARTS = 256, 8  # few boxes are divided into more parts than two: it takes no longer
SMALLEST_WIDTH = 0.01  # of a box in which the metric is still unbounded

Pair = tuple[Array, Array]  # the lower and the upper ends


def _out(low: Array, high: Array) -> Pair:
    """The ends moved outwards by one floating-point number; what is undefined is unbounded."""
    low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)


def _add(x: Pair, y: Pair) -> Pair:
    low, high = _out(x[0] + y[0], x[1] + y[1])
    return _not_below_zero(low, x, y), high


def _not_below_zero(low: Array, x: Pair, y: Pair) -> Array:
    """The lower ends of a sum or a product, where both parts are at least 0."""
    return np.where((x[0] >= 0) & (y[0] >= 0), np.maximum(low, 0.0), low)


def _negative(x: Pair) -> Pair:
    return -x[1], -x[0]


def _multiply(x: Pair, y: Pair) -> Pair:
    ends = np.stack([x[0] * y[0], x[0] * y[1], x[1] * y[0], x[1] * y[1]])
    ends = np.where(np.isnan(ends), 0.0, ends)  # 0 times an unbounded end
    low, high = _out(ends.min(axis=0), ends.max(axis=0))
    return _not_below_zero(low, x, y), high


class Boxes:
    """Boxes `(k, 3, 2)` of recall, specificity and prevalence, with the cells at their corners.

    A linear form of the cells is linear in each quantity, so that its extremes, and those of its
    derivatives, lie at the corners.
    """

    def __init__(self, boxes: Array, derivatives: bool = True) -> None:
        corner = np.stack(np.meshgrid([0, 1], [0, 1], [0, 1], indexing="ij")).reshape(3, 8)
        r, s, p = (boxes[:, k, corner[k]] for k in range(3))  # (k, 8) each
        self.values = np.stack([*cells_of(r, s, p), np.ones_like(r)])
        self.sides = boxes if derivatives else None

    def linear(self, form: Array) -> Interval:
        """The interval of a linear form of the cells, with a constant term at the end."""
        value = _ends(self.values, form)
        if (form >= 0).all():
            value = np.maximum(value[0], 0.0), value[1]
        return Interval(self, value, self._derivative(form), form)

    def _derivative(self, form: Array) -> Pair:
        if self.sides is None:
            return np.empty((0, 1)), np.empty((0, 1))
        (r, s, p), (positive, negative) = self.sides.transpose(1, 2, 0), form[:4].reshape(2, 2)
        first, second = positive[0] - positive[1], negative[1] - negative[0]
        ends = [_scaled(p, first), _scaled((1 - p[1], 1 - p[0]), second)]
        along = [*_scaled(r, first), *_scaled(s, -second)]
        rest = positive[1] - negative[0]
        ends.append((along[0] + along[2] + rest, along[1] + along[3] + rest))
        low, high = np.array(ends).transpose(1, 0, 2)
        error = 1e-15 * np.maximum(abs(low), abs(high))  # more than all roundings
        if first or second:  # a sum of several terms, which can cancel
            error[2] += 1e-15 * abs(form).sum()
        return low - error, high + error


def _scaled(side: Array | Pair, factor: float) -> Pair:
    low, high = side
    return (factor * low, factor * high) if factor >= 0 else (factor * high, factor * low)


def _ends(corners: Array, form: Array) -> Pair:
    found = np.tensordot(form, corners, axes=1)
    error = 1e-13 * np.tensordot(abs(form), abs(corners), axes=1)  # more than all roundings
    return (found - error).min(axis=-1), (found + error).max(axis=-1)


class Interval:
    """An interval of values with those of the derivatives, and the operators of a metric.

    >>> boxes = Boxes(np.array([[[0.5, 0.75], [0.0, 1.0], [0.25, 0.5]]]))
    >>> tp, fn = (boxes.linear(np.eye(5)[k]) for k in range(2))
    >>> [round(float(x[0]), 6) for x in (tp + fn).value]
    [0.25, 0.5]
    """

    __array_ufunc__ = None  # a NumPy number on the left leaves the operation to us

    def __init__(
        self, boxes: Boxes, value: Pair, derivative: Pair, form: Array | None = None
    ) -> None:
        self.boxes, self.value, self.derivative, self.form = boxes, value, derivative, form

    def _lifted(self, other: Any) -> Interval:
        if isinstance(other, Interval):
            return other
        return self.boxes.linear(np.array([0.0, 0.0, 0.0, 0.0, float(other)]))

    @property
    def _number(self) -> float | None:
        """The value of a constant."""
        return None if self.form is None or self.form[:4].any() else float(self.form[4])

    def __add__(self, other: Any) -> Interval:
        other = self._lifted(other)
        if self.form is not None and other.form is not None:
            return self.boxes.linear(self.form + other.form)
        return Interval(
            self.boxes, _add(self.value, other.value), _add(self.derivative, other.derivative)
        )

    __radd__ = __add__

    def __neg__(self) -> Interval:
        if self.form is not None:
            return self.boxes.linear(-self.form)
        return Interval(self.boxes, _negative(self.value), _negative(self.derivative))

    def __pos__(self) -> Interval:
        return self

    def __sub__(self, other: Any) -> Interval:
        return self + -self._lifted(other)

    def __rsub__(self, other: Any) -> Interval:
        return self._lifted(other) - self

    def __mul__(self, other: Any) -> Interval:
        other = self._lifted(other)
        for one, two in ((self, other), (other, self)):
            if one._number is not None and two.form is not None:
                return self.boxes.linear(one._number * two.form)
        derivative = _add(
            _multiply(self.derivative, other.value), _multiply(self.value, other.derivative)
        )
        return Interval(self.boxes, _multiply(self.value, other.value), derivative)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Interval:
        y = self._lifted(other)
        if y._number is not None:
            return self * (1 / y._number if y._number else 0.0)
        void = (y.value[0] <= 0) & (y.value[1] >= 0)
        inverse = _out(1 / np.where(void, 1.0, y.value[1]), 1 / np.where(void, 1.0, y.value[0]))
        value = _multiply(self.value, inverse)
        change = _add(self.derivative, _negative(_multiply(value, y.derivative)))
        derivative = _multiply(change, inverse)
        # x / 0 is 0; near it the quotient has the sign of x if y has one sign.
        positive, negative = y.value[0] >= 0, y.value[1] <= 0
        below = np.where(positive, self.value[0] < 0, np.where(negative, self.value[1] > 0, True))
        above = np.where(positive, self.value[1] > 0, np.where(negative, self.value[0] < 0, True))
        value = (
            np.where(void, np.where(below, -np.inf, 0.0), value[0]),
            np.where(void, np.where(above, np.inf, 0.0), value[1]),
        )
        return Interval(self.boxes, value, _unbounded(derivative, void))

    def __rtruediv__(self, other: Any) -> Interval:
        return self._lifted(other) / self

    def __pow__(self, exponent: float) -> Interval:
        if exponent == int(exponent):
            return self._whole_power(int(exponent))
        low, high = self.value
        inner = np.maximum(low, 0.0), np.maximum(high, 0.0)
        value = _spread(inner, exponent)
        change = _spread(inner, exponent - 1)
        derivative = _multiply((exponent * change[0], exponent * change[1]), self.derivative)
        if exponent < 0:
            derivative = _multiply(_negative(change), self.derivative)
            derivative = -exponent * derivative[0], -exponent * derivative[1]
        void = (low < 0) | ((low == 0) & (exponent < 0))  # the power of a number below 0 is 0
        value = np.where(void, 0.0, np.maximum(value[0], 0.0)), value[1]
        return Interval(self.boxes, value, _unbounded(derivative, void))

    def _whole_power(self, exponent: int) -> Interval:
        if exponent < 0:
            return 1 / self._whole_power(-exponent)
        if exponent == 0:
            return self._lifted(1.0)
        low, high = (x**exponent for x in self.value)
        if exponent % 2 == 0:
            inside = (self.value[0] < 0) & (self.value[1] > 0)
            low, high = np.where(inside, 0.0, np.minimum(low, high)), np.maximum(low, high)
        rest = self._whole_power(exponent - 1)
        factor = rest.value[0] * exponent, rest.value[1] * exponent
        derivative = _multiply(_out(*factor), self.derivative)
        return Interval(self.boxes, _out(*_out(low, high)), derivative)


def _spread(x: Pair, exponent: float) -> Pair:
    """The ends of a fractional power of positive numbers."""
    low, high = x[0] ** exponent, x[1] ** exponent
    return _out(*_out(np.minimum(low, high), np.maximum(low, high)))


def _unbounded(x: Pair, where: Array) -> Pair:
    return np.where(where, -np.inf, x[0]), np.where(where, np.inf, x[1])


def evaluate(function: CellFunction, boxes: Array, derivatives: bool = True) -> Interval:
    """The interval of a metric over boxes `(k, 3, 2)` of recall, specificity and prevalence."""
    frame = Boxes(boxes, derivatives)
    with np.errstate(all="ignore"):
        tp, fn, fp, tn = (frame.linear(row) for row in np.eye(5)[:4])
        return tp._lifted(function(tp=tp, fn=fn, fp=fp, tn=tn))


def least_value(function: CellFunction, box: Array) -> float:
    """A number that the metric is never below over a box, close below its minimum.

    >>> from anyloss.metrics import gmean
    >>> box = np.array([[0.64, 1.0], [0.25, 1.0], [0.5, 0.5]])
    >>> round(least_value(gmean, box), 4)
    0.4
    """
    return float(least_values(function, np.asarray(box, dtype=float)[None])[0])


def least_values(
    function: CellFunction,
    boxes: Array,
    *,
    enough: float | None = None,
    floor: float = -np.inf,
) -> Array:
    """Numbers `(k,)` that the metric is never below over each of the boxes `(k, 3, 2)`.

    They are close below the minima. With `enough`, a search ends as soon as it is known whether
    its minimum reaches that number. The metric is known never to be below the floor.
    """
    number = len(boxes)
    if number > SIDE_BY_SIDE:
        some = np.array_split(boxes, -(-number // SIDE_BY_SIDE))
        return np.concatenate([least_values(function, x, enough=enough, floor=floor) for x in some])
    boxes, owner = np.array(boxes, dtype=float), np.arange(number)
    done, reached = np.full(number, np.inf), np.full(number, np.inf)
    for last in reversed(range(ROUNDS)):
        boxes, low, high, effect = _bounded(function, boxes)
        np.minimum.at(reached, owner, high)
        goal = reached - TOLERANCE
        if enough is not None:
            goal = np.where(reached < enough, -np.inf, np.minimum(goal, enough))
        width = boxes[..., 1] - boxes[..., 0]
        lost = (low == -np.inf) & (width.max(axis=1) < SMALLEST_WIDTH)
        goal[owner[lost]] = -np.inf
        low = np.maximum(low, floor)
        order = np.flatnonzero((low < goal[owner]) & (width.max(axis=1) > 0))
        order = _lowest(order, owner, low, AT_ONCE * bool(last))
        finished = np.ones(len(low), dtype=bool)
        finished[order] = False
        np.minimum.at(done, owner[finished], low[finished])
        if not len(order):
            break
        parts = FEW_PARTS if len(order) * FEW_PARTS <= FEW else 2
        boxes = _divided(boxes[order], effect[order], parts)
        owner = owner[order].repeat(parts)
    return done


def _lowest(order: Array, owner: Array, low: Array, number: int) -> Array:
    """At most a number of the boxes of each search, those with the lowest bounds."""
    order = order[np.lexsort((low[order], owner[order]))]
    _, first, place = np.unique(owner[order], return_index=True, return_inverse=True)
    return order[np.arange(len(order)) - first[place] < number]


def _bounded(function: CellFunction, boxes: Array) -> tuple[Array, Array, Array, Array]:
    """The sides of boxes where the least values lie, numbers below and above these, and effects.

    An effect `(k, 3)` is how much a quantity can change the metric within its side.
    """
    found = evaluate(function, boxes)
    rising, falling = found.derivative[0].T >= 0, found.derivative[1].T <= 0
    boxes[..., 1] = np.where(rising, boxes[..., 0], boxes[..., 1])
    boxes[..., 0] = np.where(falling & ~rising, boxes[..., 1], boxes[..., 0])
    width = boxes[..., 1] - boxes[..., 0]
    largest = np.maximum(abs(found.derivative[0]), abs(found.derivative[1])).T
    effect = np.where(width > 0, largest * np.where(width > 0, width, 1.0), 0.0)
    middle = boxes.mean(axis=2, keepdims=True).repeat(2, axis=2)
    low, high = evaluate(function, middle, derivatives=False).value
    change = effect.sum(axis=1) * (0.5 + 1e-9)  # more than all roundings
    with np.errstate(invalid="ignore"):
        around = np.where(np.isfinite(change), low - change - 1e-15 * abs(low), -np.inf)
    return boxes, np.maximum(found.value[0], around), high, effect


def _divided(boxes: Array, effect: Array, parts: int) -> Array:
    """The parts of each box, cut along the side with the largest effect, or the longest one."""
    row, width = np.arange(len(boxes)), boxes[..., 1] - boxes[..., 0]
    known = np.isfinite(effect).all(axis=1, keepdims=True)
    axis = np.where(known, effect, width).argmax(axis=1)
    cuts = boxes[row, axis, 0, None] + width[row, axis, None] * np.arange(parts + 1) / parts
    cuts[:, -1] = boxes[row, axis, 1]
    found = boxes[:, None].repeat(parts, axis=1)
    found[row, :, axis] = np.stack([cuts[:, :-1], cuts[:, 1:]], axis=2)
    return found.reshape(-1, 3, 2)
