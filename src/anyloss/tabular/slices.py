"""Slices: the score of the test rows with one value of a column, or between two quartiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from anyloss._core.backend import Array
from anyloss._core.counts import Counts
from anyloss.tabular.intervals import few_rows_interval
from anyloss.tabular.scoring import Scoring, as_columns

MOST_COLUMNS, MOST_LEVELS, FEW_LEVELS = 24, 8, 5
LEAST_ROWS, LEAST_CLASS = 30, 5  # of a slice whose score means something
MOST_ROWS = 50_000  # of the sample of the test rows
MISSING = "missing"


@dataclass(frozen=True)
class Slice:
    """The score of the test rows with one value of a column, or between two of its quartiles.

    `Result.slices` holds them.

    Attributes:
        column (str): the name of the column.
        values (str): the value, the range between two quartiles, or "missing".
        rows (int): the number of test rows.
        positives (float or None): the share of positive rows; None for several classes or labels.
        score (float): the metric of the decisions on these rows.
        interval (tuple of float): the 95 % interval of the score; see `few_rows_interval`.

    Examples:
        >>> found = Slice("city", "Rome", 120, 0.3, 0.61, (0.52, 0.70))
        >>> found.interval[1] < 0.75  # whether it is below a score of 0.75 of all rows
        True
    """

    column: str
    values: str
    rows: int
    positives: float | None
    score: float
    interval: tuple[float, float]


def slices(
    frame: Any, y: Array, decided: Array, scoring: Scoring, columns: Sequence[str], seed: int = 0
) -> tuple[tuple[Slice, ...], int]:
    """The slices of test rows by these columns, and the number of those that are too small.

    A slice is too small if it has fewer than 30 rows, or fewer than 5 of a class (of several
    labels, fewer than 5 rows with or without one). There is none for a metric that depends on the
    number of rows, such as a sum of costs, whose values cannot be compared.

    >>> from anyloss.tabular.scoring import scoring_of
    >>> frame = pd.DataFrame({"city": ["Rome", "Oslo"] * 40})
    >>> y = np.repeat([0.0, 1.0], 40)
    >>> found, small = slices(frame, y, y, scoring_of("f1", "binary", 1), ["city"])
    >>> [(x.values, x.rows, x.score) for x in found], small
    ([('Oslo', 40, 1.0), ('Rome', 40, 1.0)], 0)
    """
    if depends_on_size(scoring, y, decided):
        return (), 0
    if len(y) > MOST_ROWS:
        rows = np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS]
        frame, y, decided = frame.iloc[rows], y[rows], decided[rows]
    two, found, small = scoring.layout.task == "binary", [], 0
    for column in columns[:MOST_COLUMNS]:
        for values, at in levels(frame[column]):
            own, ours = y[at], decided[at]
            if too_small(own, scoring.layout.task):
                small += 1
                continue
            share = float(own.mean()) if two else None
            interval = few_rows_interval(own, ours, scoring, seed)
            score = scoring.score(own, ours)
            found.append(Slice(column, values, len(own), share, score, interval))
    return tuple(found), small


def by_kind(frame: Any, columns: Sequence[str]) -> list[str]:
    """Columns with those of text first, otherwise in their order."""
    return sorted(columns, key=lambda x: frame[x].dtype.kind in "biufM")


def depends_on_size(scoring: Scoring, y: Array, decided: Array) -> bool:
    """Whether twice the rows have another score.

    >>> from anyloss.tabular.scoring import scoring_of
    >>> y, decided = np.array([1.0, 1.0, 0.0, 0.0]), np.array([1.0, 0.0, 1.0, 0.0])
    >>> [
    ...     depends_on_size(scoring_of(x, "binary", 1), y, decided)
    ...     for x in ("f1", "100*tp - 300*fp")
    ... ]
    [False, True]
    """
    once = [np.atleast_1d(x)[None] for x in scoring.counts(y, decided)]
    one, two = (float(scoring.of_counts(Counts(*(k * x for x in once)))[0]) for k in (1, 2))
    return not np.isclose(one, two)


def too_small(y: Array, task: str) -> bool:
    """Whether labels are too few for a score, as `slices` explains."""
    labels = as_columns(y)
    sides = labels if task == "multiclass" else np.hstack([labels, 1 - labels])
    return len(y) < LEAST_ROWS or bool(sides.sum(axis=0).min() < LEAST_CLASS)


def levels(series: Any) -> Iterator[tuple[str, Array]]:
    """The values of a column, or the ranges between its quartiles, and which rows have them.

    Text has a level for each of the 8 most frequent values, and one for all others together;
    numbers and dates with more than 5 distinct values have four quarters; missing values are a
    level of their own.

    >>> [(name, at.tolist()) for name, at in levels(pd.Series(["a", None, "b", "a"]))]
    [('a', [0, 3]), ('b', [2]), ('missing', [1])]
    >>> [name for name, _ in levels(pd.Series(range(1, 9)))]
    ['1 to 2', '3 to 4', '5 to 6', '7 to 8']
    """
    gaps = series.isna().to_numpy()
    present = np.flatnonzero(~gaps)
    values = series.iloc[present]
    if series.dtype.kind in "biufM" and values.nunique() > FEW_LEVELS:
        codes = pd.qcut(values, 4, labels=False, duplicates="drop").to_numpy()
        for k in np.unique(codes):
            own = present[codes == k]
            low, high = shown(series.iloc[own].min()), shown(series.iloc[own].max())
            yield (low if low == high else f"{low} to {high}"), own
    else:
        codes, known = pd.factorize(values, sort=True)
        order = np.argsort(-np.bincount(codes, minlength=len(known)), kind="stable")
        kept = sorted(order[:MOST_LEVELS])
        for k in kept:
            yield shown(known[k]), present[codes == k]
        if len(known) > MOST_LEVELS:
            name = f"{len(known) - MOST_LEVELS} other values"
            yield name, present[~np.isin(codes, kept)]
    if gaps.any():
        yield MISSING, np.flatnonzero(gaps)


def shown(value: Any) -> str:
    """A cell as text: at most six digits of a number, a date without an empty time.

    >>> shown(1234567), shown(0.123456789), shown(pd.Timestamp("2020-01-31")), shown(None)
    ('1234567', '0.123457', '2020-01-31', 'missing')
    """
    if pd.isna(value):
        return MISSING
    if isinstance(value, pd.Timestamp):
        return str(value.isoformat(sep=" ", timespec="minutes")).removesuffix(" 00:00")
    if isinstance(value, float):  # also a float64 of NumPy
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    return str(value)
