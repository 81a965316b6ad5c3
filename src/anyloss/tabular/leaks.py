"""Columns that nearly give the label away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from anyloss._core.backend import Array
from anyloss.recipe.folds import thinned
from anyloss.tabular.scoring import as_columns

LEAK = 0.99  # the AUC of a single column above which it may contain the label
MOST_CELLS = 5_000_000  # of the sample for the AUC of single columns


def single_column_aucs(frame: Any, y: Array, seed: int, task: str = "binary") -> dict[str, Array]:
    """The AUC of each column alone for each class, from 0.5 (no relation to the label) to 1.

    A text is scored by the share of rows of the class with this text in the other half of the rows.

    >>> frame = pd.DataFrame({"a": range(40), "b": ["x"] * 20 + ["y"] * 20, "c": [0, 1] * 20})
    >>> found = single_column_aucs(frame, np.repeat([0.0, 1.0], 20), seed=0)
    >>> {name: float(auc[0]) for name, auc in found.items()}
    {'a': 1.0, 'b': 1.0, 'c': 0.5}
    """
    y = as_columns(y)
    most = max(1000, MOST_CELLS // frame.shape[1] // y.shape[1])
    rows = np.arange(len(y))
    if len(y) > most:
        rows, _ = thinned(y, None, task, most, seed)
    y = y[rows]
    halves = np.random.default_rng(seed).permutation(len(y)) % 2
    return {str(name): _aucs(series, y, halves) for name, series in frame.iloc[rows].items()}


def _aucs(series: Any, y: Array, halves: Array) -> Array:
    if series.dtype.kind in "biufM":
        dates = series.dtype.kind == "M"  # the smallest integer is a missing date
        values = series.astype("int64") if dates else series.to_numpy(float, na_value=-np.inf)
        ranks = rankdata(values)
        found = np.array([_auc(ranks, labels) for labels in y.T])
    else:
        codes, values = pd.factorize(series, use_na_sentinel=False)
        rates = (_rates(codes, len(values), labels, halves) for labels in y.T)
        found = np.array([_auc(rankdata(x), labels) for x, labels in zip(rates, y.T, strict=True)])
    return np.maximum(found, 1 - found)


def _rates(codes: Array, size: int, y: Array, halves: Array) -> Array:
    """The share of positives among the rows of the other half that have the same text."""
    found = np.empty(len(y))
    for half in (0, 1):
        seen = halves != half
        positives, all_rows = (np.bincount(codes[seen], w, size) for w in (y[seen], None))
        rate = (positives + y.mean()) / (all_rows + 1)
        found[halves == half] = rate[codes[halves == half]]
    return found


def _auc(ranks: Array, y: Array) -> float:
    positives = y.sum()
    negatives = len(y) - positives
    above = ranks[y == 1].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))
