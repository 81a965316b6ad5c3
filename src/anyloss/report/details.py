"""The sections of the report about slices and the direction of effects, and their words."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from anyloss.report.drawing import Axis, extent, interval_row
from anyloss.report.words import count, name, number
from anyloss.tabular.effects import Effect
from anyloss.tabular.labels import Outcome
from anyloss.tabular.result import Result
from anyloss.tabular.slices import LEAST_CLASS, LEAST_ROWS, Slice

LOWEST, MOST_SLICES = 10, 120
HARDLY = 0.005  # a spread of the mean decision value that nobody needs to know
STEADY = 0.1  # of the spread, by which a steady effect may go back


def slices(result: Result) -> dict[str, Any] | None:
    """The slices with pictures, the surely lowest first, and all of them; None without any."""
    found = result.slices
    if not found:
        return None
    low, high = extent([result.score, *(x for each in found for x in each.interval)])
    axis = Axis("score", low, high if high > low else low + 1.0)
    lowest = sorted(found, key=lambda x: x.interval[1])[:LOWEST]
    outside = sum(not x.interval[0] <= result.score <= x.interval[1] for x in found)
    return {
        "lowest": [(x, _picture(x, axis, result.score)) for x in lowest],
        "all": found[:MOST_SLICES],
        "looks": looks(len(found), outside, result.small_slices),
    }


def _picture(each: Slice, axis: Axis, score: float) -> Markup:
    title = f"{name(each.column)}, {name(each.values)}: {number(each.score)}"
    return interval_row(each.score, each.interval, axis, title, at=score)


def looks(slices: int, outside: int, small: int) -> str:
    """How many slices were looked at, and how many of them would stand out by chance.

    >>> looks(40, 3, 0)[:68]
    'Of 40 slices, 3 have a 95 % interval without the score of all test r'
    """
    text = (
        f"Of {count(slices)} slices, {count(outside)} {'has' if outside == 1 else 'have'} a 95 % "
        f"interval without the score of all test rows; by chance alone about "
        f"{count(np.ceil(0.05 * slices))} would."
    )
    if small:
        plural, verb = ("", "is") if small == 1 else ("s", "are")
        text += (
            f" {count(small)} smaller slice{plural} (fewer than {LEAST_ROWS} rows, or fewer than "
            f"{LEAST_CLASS} of a class) {verb} left out."
        )
    return text


def directions(result: Result) -> dict[str, str]:
    """The direction of the effect of each column that was measured, in words."""
    return {x.column: direction(x, result.outcome) for x in result.effects}


def direction(effect: Effect, outcome: Outcome) -> str:
    """The direction of an effect on the class, or of several the one that it changes most.

    >>> outcome = Outcome("binary", ("left",), ("no", "yes"))
    >>> found = Effect("age", ("20", "40", "60"), np.array([[0.1], [0.2], [0.7]]), ordered=True)
    >>> direction(found, outcome).translate({0x2068: None, 0x2069: None})
    'higher values: more yes (0.10 at 20, 0.70 at 60)'
    """
    means = effect.means
    if len(means) < 2 or np.ptp(means, axis=0).max() < HARDLY:
        return "hardly any effect on its own"
    k = int(np.ptp(means, axis=0).argmax())
    own, classes = means[:, k], (outcome.positive,) if outcome.task == "binary" else outcome.classes
    target, steps = name(classes[k]), np.diff(own)
    if not effect.ordered:
        most, least = int(own.argmax()), int(own.argmin())
        return (
            f"most {target} for {_at(effect, most)} ({number(own[most], 2)}), least for "
            f"{_at(effect, least)} ({number(own[least], 2)})"
        )
    slack = STEADY * np.ptp(own)
    if steps.min() >= -slack or steps.max() <= slack:
        more = "more" if own[-1] > own[0] else "less"
        return (
            f"higher values: {more} {target} ({number(own[0], 2)} at {_at(effect, 0)}, "
            f"{number(own[-1], 2)} at {_at(effect, -1)})"
        )
    path = ", ".join(f"{number(x, 2)} at {_at(effect, i)}" for i, x in enumerate(own))
    return f"{target} not in one direction: {path}"


def _at(effect: Effect, k: int) -> str:
    return name(effect.values[k], 30)
