"""Costs of the rows of a table: a column, or one number for all rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss.costs import CostSummary, cost_summary, least_cost
from anyloss.tabular.labels import Outcome
from anyloss.tabular.messages import Message, information
from anyloss.tabular.preparing import check_column
from anyloss.tabular.readings import Reading, apply_reading

PER_ROW = "decided row by row"


class RowCosts(NamedTuple):
    """What a false negative and a false positive cost: the name of a column, or a number."""

    fn: str | float
    fp: str | float

    def columns(self) -> list[str]:
        """The columns that hold costs."""
        return list(dict.fromkeys(x for x in self if isinstance(x, str)))

    def of(self, frame: Any) -> tuple[Array, Array]:
        """The costs of rows whose columns are read already."""
        fn, fp = (_column(x, frame) if isinstance(x, str) else np.array(x) for x in self)
        return fn, fp

    def read(self, frame: Any, readings: Iterable[Reading]) -> tuple[Array, Array]:
        """The costs of rows of a new table, read as in the training table."""
        known = {x.name: x for x in readings}
        read = {}
        for name in self.columns():
            check_column(name, frame)
            if name not in known:
                raise ValueError(
                    f"the cost column {name!r} is not one that the model was fitted with, so it is "
                    "not known how to read it: name it when the model is fitted (--fn-cost, "
                    "--fp-cost), or give a number"
                )
            read[name] = apply_reading(known[name], frame[name], frame.attrs.get("origin"))[0]
        return self.of(read)


def read_costs(fn_cost: str | float | None, fp_cost: str | float | None) -> RowCosts | None:
    """The costs that a user has named, a number also as text; None for none.

    >>> read_costs("amount", "5")
    RowCosts(fn='amount', fp=5.0)
    """
    if fn_cost is None and fp_cost is None:
        return None
    if fn_cost is None or fp_cost is None:
        raise ValueError(
            "expected the costs of both kinds of errors, a column or a number each (--fn-cost and "
            f"--fp-cost); got {fn_cost!r} and {fp_cost!r}"
        )
    found = RowCosts(_number(fn_cost), _number(fp_cost))
    if found == (0, 0):
        raise ValueError("an error must cost more than 0; got costs of 0 (--fn-cost, --fp-cost)")
    return found


def _number(given: str | float) -> str | float:
    try:
        value = float(given)
    except ValueError:
        return given
    if not 0 <= value < np.inf:
        raise ValueError(
            f"a cost must be a number of at least 0; got {given} (--fn-cost, --fp-cost)"
        )
    return value


def _column(name: str, frame: Any) -> Array:
    check_column(name, frame)
    series = frame[name]
    numbers = series.dtype.kind in "iufb"
    values = series.to_numpy(float) if numbers else np.full(len(series), np.nan)
    missing = series.isna().to_numpy()
    wrong = series[~missing & ~(np.isfinite(values) & (values >= 0))]
    if missing.any() or len(wrong):
        got = [f"no readable number in {int(missing.sum())} rows"] * bool(missing.any())
        got += [f"{str(x)!r} in {len(wrong)} rows" for x in wrong[:1]]
        raise ValueError(
            f"the cost column {name!r} must have a number of at least 0 in every row (--fn-cost, "
            f"--fp-cost); got {' and '.join(got)}"
        )
    return values


def check_unambiguous(given: Iterable[str | float | None], names: Iterable[str]) -> None:
    """Refuse a text that is a number and the name of a column."""
    for text in set(given) & set(names):
        if isinstance(_number(str(text)), float):
            raise ValueError(
                f"the cost {text} is a number and also the name of a column (--fn-cost, "
                f"--fp-cost): write {_number(str(text))!r} for the number, or rename the column"
            )


def check_costs(costs: RowCosts | None, outcome: Outcome, constraints: Any) -> None:
    """Refuse costs where a decision has no two kinds of errors, or is constrained."""
    if costs is None:
        return
    if why := outcome.no_positive:
        raise ValueError(
            "false negatives and false positives need a positive class (--fn-cost, --fp-cost); "
            f"got {why}"
        )
    if constraints:
        raise ValueError(
            "decisions of least cost do not follow constraints: fit without them (--constraint), "
            "or leave out the costs (--fn-cost, --fp-cost)"
        )


def decisions_of_least_cost(p: Array, costs: tuple[Array, Array]) -> Array:
    """The decisions for calibrated probabilities, as 0 and 1."""
    return least_cost(p, fn_cost=costs[0], fp_cost=costs[1]).astype(float)


def paid_message(metric: str) -> Message:
    """What predict decides, and what the numbers of a result are about."""
    return information(
        "predict decides each row by its least expected cost; the score, the matrix and the "
        f"baselines are those of decisions for {metric}, which it does not take"
    )


def summaries(
    y: Array, p: Array, decided: Array, costs: tuple[Array, Array], metric: str,
    groups: Array | None = None,
) -> dict[str, CostSummary]:  # fmt: skip
    """What the test rows cost: decided row by row, for the metric, and all alike."""
    each = {
        PER_ROW: decisions_of_least_cost(p, costs),
        f"decided for {metric}": decided,
        "always positive": np.ones(len(y)),
        "never positive": np.zeros(len(y)),
    }
    return {
        name: cost_summary(y, x, fn_cost=costs[0], fp_cost=costs[1], groups=groups)
        for name, x in each.items()
    }
