"""Small pictures as SVG elements: axes, lines, dots, bars. The style sheet sets their colours.

The elements are built with the standard library's XML tree, so that they are well-formed and every
name is escaped. Matplotlib is not used: its SVG has fixed colours and is several times as large.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from markupsafe import Markup

from anyloss._core.backend import Array
from anyloss.report.words import number

WIDTH, HEIGHT = 360, 250
RIGHT, TOP, BOTTOM, LEGEND, LETTER = 14, 30, 44, 20, 7  # margins; the width of a letter
ROW_WIDTH, MIDDLE = 300, 11


class Axis(NamedTuple):
    """The label and the range of an axis."""

    label: str
    low: float = 0.0
    high: float = 1.0

    @classmethod
    def around(cls, label: str, values: Iterable[float]) -> Axis:
        """An axis that contains all values, with a small margin."""
        low, high = extent(values)
        same = high - low <= 1e-9 * max(1.0, abs(high))  # but for rounding
        margin = 0.5 if same else 0.06 * (high - low)
        return cls(label, low - margin, high + margin)

    @classmethod
    def of_scores(cls, label: str, values: Iterable[float]) -> Axis:
        """An axis from 0 to 1 if all scores are within it, otherwise around the scores.

        >>> Axis.of_scores("F1", [0.2, 0.9]), Axis.of_scores("profit", [-10, 40])
        (Axis(label='F1', low=0.0, high=1.0), Axis(label='profit', low=-13.0, high=43.0))
        """
        low, high = extent(values)
        return cls(label) if low >= 0 and high <= 1 else cls.around(label, (low, high))

    @classmethod
    def within_shares(cls, label: str, values: Iterable[float]) -> Axis:
        """An axis around shares, within 0 and 1.

        >>> Axis.within_shares("share", [0.0, 0.5])
        Axis(label='share', low=0.0, high=0.53)
        """
        whole = cls.around(label, values)
        return cls(label, max(whole.low, 0.0), min(whole.high, 1.0))

    def share(self, value: float) -> float:
        """The position of a value along the axis, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """About five round values along the axis, and their labels.

        >>> [label for _, label in Axis("x", -0.02, 0.11).ticks()]
        ['0.00', '0.05', '0.10']
        """
        span = (self.high - self.low) / 5
        unit = 10.0 ** math.floor(math.log10(span))
        step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= span * (1 - 1e-9))
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [(k * step, number(k * step, digits)) for k in range(first, last + 1)]


def extent(values: Iterable[float]) -> tuple[float, float]:
    """The smallest and the largest finite value."""
    finite = [float(x) for x in values if math.isfinite(x)] or [0.0, 1.0]
    return min(finite), max(finite)


class Plot:
    """A picture with two axes, drawn from back to front."""

    def __init__(self, title: str, description: str, x: Axis, y: Axis) -> None:
        self.x, self.y = x, y
        self.root = _picture(WIDTH, HEIGHT, title, description)
        self.left = left = 28 + LETTER * max(len(label) for _, label in y.ticks())
        self._legend_at = float(left)
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        for value, label in x.ticks():
            at = self._across(value)
            _add(self.root, "line", "grid", x1=at, x2=at, y1=TOP, y2=bottom)
            _add(self.root, "text", "tick middle", label, x=at, y=bottom + 15)
        for value, label in y.ticks():
            at = self._down(value)
            _add(self.root, "line", "grid", x1=left, x2=right, y1=at, y2=at)
            _add(self.root, "text", "tick end", label, x=left - 7, y=at + 4)
        _add(self.root, "text", "axis middle", x.label, x=(left + right) / 2, y=HEIGHT - 7)
        turned = f"translate(12 {(TOP + bottom) / 2}) rotate(-90)"
        _add(self.root, "text", "axis middle", y.label, transform=turned)

    def _across(self, value: float) -> float:
        return self.left + self.x.share(value) * (WIDTH - self.left - RIGHT)

    def _down(self, value: float) -> float:
        return HEIGHT - BOTTOM - self.y.share(value) * (HEIGHT - TOP - BOTTOM)

    def line(self, x: Array, y: Array, style: str, steps: bool = False, legend: str = "") -> None:
        """Draw a line through points; with `steps`, each value applies until the next point."""
        points = [(self._across(a), self._down(b)) for a, b in zip(x, y, strict=True)]
        if not points:
            return
        pieces = (f"H{a:.1f}V{b:.1f}" if steps else f"L{a:.1f} {b:.1f}" for a, b in points[1:])
        path = "".join(["M{:.1f} {:.1f}".format(*points[0]), *pieces])
        _add(self.root, "path", f"line {style}", d=path)
        if legend:
            at = self._legend_at
            _add(self.root, "line", f"line {style}", x1=at, x2=at + 20, y1=13, y2=13)
            _add(self.root, "text", "tick", legend, x=at + 26, y=17)
            self._legend_at += 40 + LETTER * len(legend)

    def guide(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Draw a thin dashed line for comparison."""
        (x1, y1), (x2, y2) = ((self._across(a), self._down(b)) for a, b in (start, end))
        _add(self.root, "line", "guide", x1=x1, x2=x2, y1=y1, y2=y2)

    def dots(self, x: Array, y: Array, style: str) -> None:
        """Draw one dot per point."""
        for a, b in zip(x, y, strict=True):
            _add(self.root, "circle", f"dot {style}", cx=self._across(a), cy=self._down(b), r=3.5)

    def whiskers(self, x: Array, low: Array, high: Array, style: str) -> None:
        """Draw a vertical line for the interval of each point."""
        for a, b, c in zip(x, low, high, strict=True):
            at = self._across(a)
            _add(
                self.root, "line", f"whisker {style}",
                x1=at, x2=at, y1=self._down(b), y2=self._down(c),
            )  # fmt: skip

    def chosen(self, x: float, y: float, label: str, interval: Sequence[float] = ()) -> None:
        """Draw the point of the model's threshold, with its interval as a vertical line."""
        across, down = self._across(x), self._down(y)
        ends = [self._down(value) for value in interval if math.isfinite(value)] or [down]
        _add(self.root, "line", "whisker chosen", x1=across, x2=across, y1=max(ends), y2=min(ends))
        _add(self.root, "circle", "dot chosen", cx=across, cy=down, r=5)
        left, below = self.x.share(x) > 0.55, max(down, *ends) + 18
        _add(
            self.root, "text", f"label halo {'end' if left else ''}", label,
            x=across + (-10 if left else 10), y=below if below < HEIGHT - BOTTOM else down - 10,
        )  # fmt: skip

    def markup(self) -> Markup:
        """The picture for the page; the space of the legend is cut off if there is none."""
        if self._legend_at == self.left:
            self.root.set("viewBox", f"0 {LEGEND} {WIDTH} {HEIGHT - LEGEND}")
        return _markup(self.root)


def interval_row(
    value: float, interval: tuple[float, float], axis: Axis, title: str, at: float = 0.0
) -> Markup:
    """A dot with its interval and a line at `at`, of the height of a line of text."""
    root = _row(axis, title, at)
    if math.isfinite(value):
        low, high = (_along(axis, x if math.isfinite(x) else value) for x in interval)
        _add(root, "line", "whisker first", x1=low, x2=high, y1=MIDDLE, y2=MIDDLE)
        _add(root, "circle", "dot first", cx=_along(axis, value), cy=MIDDLE, r=5)
    return _markup(root)


def bar_row(value: float, deviation: float, axis: Axis, title: str) -> Markup:
    """A bar from zero with its deviation, of the height of a line of text."""
    root = _row(axis, title)
    start, end = sorted((_along(axis, 0), _along(axis, value)))
    _add(root, "rect", "bar", x=start, y=MIDDLE - 6, width=end - start, height=12)
    spread = deviation if math.isfinite(deviation) else 0.0
    low, high = _along(axis, value - spread), _along(axis, value + spread)
    _add(root, "line", "whisker ink", x1=low, x2=high, y1=MIDDLE, y2=MIDDLE)
    return _markup(root)


def _row(axis: Axis, title: str, at: float = 0.0) -> ElementTree.Element:
    root = _picture(ROW_WIDTH, 2 * MIDDLE, title)
    across = _along(axis, at)
    _add(root, "line", "zero", x1=across, x2=across, y1=0, y2=2 * MIDDLE)
    return root


def _along(axis: Axis, value: float) -> float:
    return 6 + min(max(axis.share(value), 0.0), 1.0) * (ROW_WIDTH - 12)


def _picture(width: int, height: int, title: str, description: str = "") -> ElementTree.Element:
    box = f"0 0 {width} {height}"
    root = ElementTree.Element("svg", {"viewBox": box, "role": "img", "class": "picture"})
    _add(root, "title", text=title)
    if description:
        _add(root, "desc", text=description)
    return root


def _add(
    parent: ElementTree.Element, tag: str, style: str = "", text: str = "", **at: float | str
) -> None:
    """Add an element; numbers are rounded to one decimal."""
    given = {key: value if isinstance(value, str) else f"{value:.1f}" for key, value in at.items()}
    child = ElementTree.SubElement(parent, tag, {"class": style, **given} if style else given)
    child.text = text or None


def _markup(root: ElementTree.Element) -> Markup:
    return Markup(ElementTree.tostring(root, encoding="unicode"))
