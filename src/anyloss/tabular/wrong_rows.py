"""The most confident errors among the test rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss.tabular.labels import Outcome
from anyloss.tabular.slices import shown

MOST_OF_A_KIND, MOST_ROWS, MOST_CELLS = 5, 10, 5


@dataclass(frozen=True)
class WrongRow:
    """A test row with a wrong prediction.

    `Result.wrong_rows` holds the most confident ones.

    Attributes:
        row (int): the number of the row in the table; the first row is 1.
        actual (str): its class; for several labels, the label or "not" and the label.
        predicted (str): the predicted class or label.
        value (float): the decision value: of the positive class, of the predicted class, or of the
            label.
        cells (tuple of (str, str)): the most important columns and their values.

    Examples:
        >>> found = WrongRow(17, "no", "yes", 0.93, (("age", "61"), ("city", "Rome")))
        >>> dict(found.cells)["age"]
        '61'
    """

    row: int
    actual: str
    predicted: str
    value: float
    cells: tuple[tuple[str, str], ...]


def wrong_rows(
    take: Callable[[Array], Any], y: Array, p: Array, outcome: Outcome, columns: Sequence[str]
) -> tuple[WrongRow, ...]:
    """The most confident errors, with the values of the first five of these columns.

    Two classes have up to five false positives and up to five false negatives, others up to ten
    rows. `take` returns the data frame of some of the rows, given by their numbers in ascending
    order; its index holds the position of each row in the table.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [61, 20]}, index=[3, 8])
    >>> outcome = Outcome("binary", ("left",), ("no", "yes"))
    >>> wrong_rows(frame.take, np.array([0.0, 1.0]), np.array([0.9, 0.8]), outcome, ["age"])
    (WrongRow(row=4, actual='no', predicted='yes', value=0.9, cells=(('age', '61'),)),)
    """
    find = {"binary": _binary, "multiclass": _multiclass, "multilabel": _multilabel}
    errors = list(find[outcome.task](y, p, outcome))
    rows = np.unique(np.array([k for k, *_ in errors], dtype=int))
    frame = take(rows)[list(columns[:MOST_CELLS])]
    places = np.searchsorted(rows, [k for k, *_ in errors])
    return tuple(
        WrongRow(
            int(frame.index[at]) + 1, actual, predicted, float(value),
            tuple((x, shown(frame[x].iloc[at])) for x in frame),
        )
        for at, (_, actual, predicted, value) in zip(places, errors, strict=True)
    )  # fmt: skip


Found = Iterator[tuple[int, str, str, float]]


def _binary(y: Array, p: Array, outcome: Outcome) -> Found:
    decided = outcome.decide(p)
    for label, sign in ((0, -1), (1, 1)):
        wrong = np.flatnonzero((y == label) & (decided != y))
        for k in wrong[np.argsort(sign * p[wrong], kind="stable")][:MOST_OF_A_KIND]:
            yield k, outcome.classes[label], outcome.classes[1 - label], p[k]


def _multiclass(y: Array, p: Array, outcome: Outcome) -> Found:
    actual, predicted = y.argmax(axis=1), p.argmax(axis=1)
    rows = np.arange(len(y))
    margin = p[rows, predicted] - p[rows, actual]
    wrong = np.flatnonzero(actual != predicted)
    for k in wrong[np.argsort(-margin[wrong], kind="stable")][:MOST_ROWS]:
        a, d = actual[k], predicted[k]
        yield k, outcome.classes[a], outcome.classes[d], p[k, d]


def _multilabel(y: Array, p: Array, outcome: Outcome) -> Found:
    error = np.where(outcome.decide(p) != y, np.abs(p - 0.5), -1.0)
    label = error.argmax(axis=1)
    worst = error.max(axis=1)
    for k in np.argsort(-worst, kind="stable")[:MOST_ROWS]:
        if worst[k] < 0:
            return
        name = outcome.classes[label[k]]
        sides = (name, f"not {name}") if y[k, label[k]] else (f"not {name}", name)
        yield k, *sides, p[k, label[k]]
