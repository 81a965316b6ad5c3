"""The direction of effects: how the decision values change with a column, for any model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from anyloss._core.backend import Array
from anyloss.tabular.scoring import as_columns
from anyloss.tabular.slices import FEW_LEVELS, shown

MOST_ROWS = 500  # of the sample of the test rows
MOST_LEVELS, MOST_COLUMNS = 6, 15
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Effect:
    """The partial dependence of the decision values on a column.

    All rows of a sample of the test rows are given the same value of the column, and the mean
    decision value is measured; this for several values. `Result.effects` holds them.

    Attributes:
        column (str): the name of the column.
        values (tuple of str): the values: quantiles of numbers and dates, in their order, or the
            most frequent texts.
        means (array): the mean decision values, of shape (values, 1) for two classes, else
            (values, classes).
        ordered (bool): whether the values are numbers or dates.

    Examples:
        >>> found = Effect("age", ("20", "60"), np.array([[0.2], [0.7]]), ordered=True)
        >>> bool(found.means[1, 0] > found.means[0, 0])
        True
    """

    column: str
    values: tuple[str, ...]
    means: Array
    ordered: bool

    def to_json(self) -> dict[str, Any]:
        """The effect as a dictionary that JSON can hold.

        Returns:
            dict: the attributes.
        """
        return {"column": self.column, "values": list(self.values), "means": self.means.tolist()}


def effects(
    predict: Callable[[Array], Array], X: Array, frame: Any, sources: Array,
    columns: Sequence[str], seed: int = 0,
) -> tuple[Effect, ...]:  # fmt: skip
    """The effects of these columns on the decision values that `predict` returns.

    `X` are the encoded rows of `frame`, and `sources` has the source column of each encoded column.
    A value is given to all rows by copying the encoded cells of a row that has it, so that any
    encoding is treated alike.
    """
    rows = np.random.default_rng(seed).permutation(len(X))[:MOST_ROWS]
    base, found = X[rows], []
    for column in columns[:MOST_COLUMNS]:
        at, ordered = np.flatnonzero(sources == column), frame[column].dtype.kind in "biufM"
        donors = _donors(frame[column], ordered)
        if not len(donors):
            continue
        changed = np.tile(base, (len(donors), 1))
        changed[:, at] = np.repeat(X[np.ix_(donors, at)], len(base), axis=0)
        values = as_columns(predict(changed)).reshape(len(donors), len(base), -1)
        means = values.mean(axis=1)
        names = tuple(shown(x) for x in frame[column].iloc[donors])
        found.append(Effect(column, names, means, ordered))
    return tuple(found)


def _donors(series: Any, ordered: bool) -> Array:
    """The positions of rows with typical values of a column: quantiles, or the most frequent."""
    present = np.flatnonzero(series.notna().to_numpy())
    codes, known = pd.factorize(series.iloc[present], sort=True)
    first = np.unique(codes, return_index=True)[1]
    if not ordered:
        chosen = np.argsort(-np.bincount(codes), kind="stable")[:MOST_LEVELS]
    elif len(known) <= FEW_LEVELS:
        chosen = np.arange(len(known))
    else:
        ranks = np.round(np.array(QUANTILES) * (len(codes) - 1)).astype(int)
        chosen = np.unique(np.sort(codes)[ranks])
    return present[first[chosen]]
