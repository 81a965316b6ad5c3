"""The least value of a metric over a box of recall, specificity and prevalence, with a guarantee.

The metric is evaluated on intervals that are rounded outwards and carry the intervals of their
three derivatives. Where a derivative has one sign over a box, the least value lies on one side of
it. The boxes with the lowest bounds are halved until the least value is known to the tolerance,
or until the rounds end; the bound holds then too, and is only less tight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.forms import CellFunction, cells_of

TOLERANCE = 1e-5
ROUNDS = 40
AT_ONCE = 128  # boxes that are halved in one round
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

    def __init__(self, boxes: Array) -> None:
        corner = np.stack(np.meshgrid([0, 1], [0, 1], [0, 1], indexing="ij")).reshape(3, 8)
        r, s, p = (boxes[:, k, corner[k]] for k in range(3))  # (k, 8) each
        zero, one = np.zeros_like(r), np.ones_like(r)
        self.values = np.stack([*cells_of(r, s, p), one])
        self.derivatives = np.stack(
            [
                np.stack([p, -p, zero, zero, zero]),
                np.stack([zero, zero, p - 1, 1 - p, zero]),
                np.stack([r, 1 - r, s - 1, -s, zero]),
            ]
        )

    def linear(self, form: Array) -> Interval:
        """The interval of a linear form of the cells, with a constant term at the end."""
        value = _ends(self.values, form)
        if (form >= 0).all():
            value = np.maximum(value[0], 0.0), value[1]
        low, high = zip(*(_ends(x, form) for x in self.derivatives), strict=True)
        return Interval(self, value, (np.stack(low), np.stack(high)), form)


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


def evaluate(function: CellFunction, boxes: Array) -> Interval:
    """The interval of a metric over boxes `(k, 3, 2)` of recall, specificity and prevalence."""
    frame = Boxes(boxes)
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
    boxes, low = _shrunk(function, np.asarray(box, dtype=float)[None])
    reached = np.inf
    for _ in range(ROUNDS):
        middle = boxes.mean(axis=2, keepdims=True).repeat(2, axis=2)
        reached = min(reached, float(evaluate(function, middle).value[1].min()))
        order = low.argsort()
        boxes, low = boxes[order], low[order]
        width = (boxes[:AT_ONCE, :, 1] - boxes[:AT_ONCE, :, 0]).max(axis=1)
        unbounded = low[0] == -np.inf and width[0] < SMALLEST_WIDTH
        if low[0] >= reached - TOLERANCE or width[0] == 0 or unbounded:
            break
        halves, lows = _shrunk(function, _halved(boxes[:AT_ONCE]))
        boxes = np.concatenate([boxes[AT_ONCE:], halves])
        low = np.concatenate([low[AT_ONCE:], lows])
        keep = low < reached
        keep[low.argmin()] = True
        boxes, low = boxes[keep], low[keep]
    return float(low.min())


def _shrunk(function: CellFunction, boxes: Array) -> tuple[Array, Array]:
    """The sides of the boxes where the least values lie, and numbers that they are not below."""
    found = evaluate(function, boxes)
    rising, falling = found.derivative[0].T >= 0, found.derivative[1].T <= 0
    boxes[..., 1] = np.where(rising, boxes[..., 0], boxes[..., 1])
    boxes[..., 0] = np.where(falling & ~rising, boxes[..., 1], boxes[..., 0])
    return boxes, np.maximum(found.value[0], evaluate(function, boxes).value[0])


def _halved(boxes: Array) -> Array:
    """Both halves of each box, cut along its longest side."""
    row, middle = np.arange(len(boxes)), boxes.mean(axis=2)
    axis = (boxes[..., 1] - boxes[..., 0]).argmax(axis=1)
    left, right = boxes.copy(), boxes.copy()
    left[row, axis, 1] = right[row, axis, 0] = middle[row, axis]
    return np.concatenate([left, right])
