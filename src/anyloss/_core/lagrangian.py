"""Training under constraints: the Lagrangian of a metric, and the multipliers of its constraints.

The Lagrangian `(score + sum_j m_j excess_j) / (1 + sum_j m_j)` is a function of the four counts, so
it is a metric itself: every loss, closed form and objective takes it in place of the metric. Its
counts are soft. The multipliers `m_j` follow the *hard* counts instead, as in the proxy-Lagrangian:
they rise while a constraint is violated by the decisions, and fall while it has room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anyloss._core.backend import FLOATS, Array, Backend
from anyloss._core.cell import Cell
from anyloss._core.constraints import Constraint
from anyloss._core.metric import Metric
from anyloss._core.options import Settings
from anyloss._core.shapes import Layout

RATE, GAIN = 0.3, 4.0  # of the running sum and of the last violation, measured on simulated data


def lagrangian(
    metric: Metric, constraints: tuple[Constraint, ...], multipliers: Sequence[Array]
) -> Metric:
    """The metric together with its constraints, each as heavy as its multiplier.

    Its weights add up to one, so that it stays in the range of its parts, also where a constraint
    cannot be satisfied and its multiplier rises without an end.

    >>> from anyloss._core.constraints import read_constraints
    >>> from anyloss._core.lookup import metric
    >>> both = lagrangian(metric("precision"), read_constraints("recall >= 0.9"), [3.0])
    >>> round(both(tp=50.0, fn=50.0, fp=50.0, tn=50.0), 4)  # (0.5 + 3 * (0.5 - 0.9)) / 4
    -0.175
    """
    whole = 1.0 + sum(multipliers)

    def function(tp: Cell, fn: Cell, fp: Cell, tn: Cell) -> Cell:
        total: Cell = metric(tp, fn, fp, tn).times(1.0 / whole)
        for each, multiplier in zip(constraints, multipliers, strict=True):
            excess: Cell = each.excess(each.metric(tp, fn, fp, tn))
            total = total + excess.times(multiplier / whole)
        return total

    name = " subject to ".join([metric.name, " and ".join(map(str, constraints))])
    return Metric(name, function, undefined_without=metric.undefined_without)


def moved(
    sums: Sequence[Array], constraints: tuple[Constraint, ...], counts: Iterable[Array],
    backend: Backend = FLOATS,
) -> tuple[list[Array], list[Array]]:  # fmt: skip
    """The multipliers after the hard counts of a batch, and the running sums behind them.

    A sum rises by `RATE` times the violation, and is at least 0. The multiplier is the sum plus
    `GAIN` times the violation (a PI controller), which keeps both from swinging. Where a constraint
    is 0/0, such as precision without a predicted positive, nothing is known about its violation.

    >>> from anyloss._core.constraints import read_constraints
    >>> import numpy as np
    >>> half = np.array([5.0, 5.0, 0.0, 10.0])
    >>> now, sums = moved([0.2], read_constraints("recall >= 0.9"), half)
    >>> round(float(now[0]), 4), round(float(sums[0]), 4)
    (1.92, 0.32)
    """
    cells = [Cell(x, backend=backend) for x in counts]
    now: list[Array] = []
    totals: list[Array] = []
    for each, before in zip(constraints, sums, strict=True):
        undefined = each.metric.undefined([x.value for x in cells])
        violation = backend.where(undefined, 0.0, -each.excess(each.metric(*cells)).value)
        after = _at_least_0(before + RATE * violation, backend)
        now.append(_at_least_0(after + GAIN * violation, backend))
        totals.append(after)
    return now, totals


def _at_least_0(x: Array, backend: Backend) -> Array:
    return backend.where(x > 0, x, 0.0)


def check_constrained(settings: Settings) -> None:
    """Refuse the options under which a loss has no single set of four counts."""
    options = settings.options
    for given, usual in (
        (f"thresholds of {len(settings.steps)} numbers", len(settings.steps) == 1),
        (f"per_sample={options.per_sample!r}", not options.per_sample),
        (f"average={options.average!r}", options.average in ("auto", "binary")),
        (f"form={options.form!r}", options.form == "linear"),
        (", ".join(options.of_classes), not options.of_classes),
    ):
        if not usual:
            raise ValueError(
                "constraints are for the decisions of two classes, counted over the batch at one "
                f"threshold; got {given}. Leave it out, or leave out constraints="
            )


def check_two_classes(lay: Layout) -> None:
    """Refuse several classes and labels, which constraints do not serve."""
    if lay.average != "binary":
        raise ValueError(
            f"constraints are for two classes; got {lay.classes} columns ({lay.task}). Leave out "
            "constraints=, or train one class against the rest"
        )
