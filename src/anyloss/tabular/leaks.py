"""Columns that nearly give the label away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from anyloss._core.backend import Array
from anyloss.recipe.folds import thinned
from anyloss.tabular.scoring import Scoring, as_columns

LEAK = 0.99  # the AUC of a single column above which it may contain the label
CERTAIN = 0.999  # the AUC, or the share of identified rows, of a column that is the label
TWIN_TEST_ROWS, MOST_TWIN_CELLS = 500, 2_000_000  # of the sample that is searched for near-copies
NEAR = 0.1  # of the usual distance
TWIN_SHARE, FEW_ALONE = 0.05, 20
MOST_VALUES, SURE, GIVEN_AWAY = 20, 0.9, 0.5
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


def twins(X: Array, X_test: Array, seed: int) -> Array:
    """Which of a sample of test rows have a near-copy among the training rows; -1 if not sampled.

    A distance is small if it is far below the distances of the test rows to training rows whose
    columns were shuffled, each for itself, so that no row is a copy of another.

    >>> rng = np.random.default_rng(0)
    >>> X, other = rng.normal(size=(300, 5)), rng.normal(size=(40, 5))
    >>> int((twins(X, X[:40] + 1e-3, seed=0) == 1).sum()), int((twins(X, other, seed=0) == 1).sum())
    (40, 0)
    """
    from sklearn.neighbors import NearestNeighbors

    rng = np.random.default_rng(seed)
    deviation = np.array([x.std() for x in X.T])  # `X.std(axis=0)` needs the memory of X again
    used = deviation > 0
    columns = max(1, min(MOST_TWIN_CELLS // TWIN_TEST_ROWS // 10, int(used.sum())))
    kept = np.flatnonzero(used)[:columns]
    most = max(TWIN_TEST_ROWS, min(len(X), MOST_TWIN_CELLS // columns))
    train = X[rng.permutation(len(X))[:most]][:, kept] / deviation[kept]
    at = rng.permutation(len(X_test))[:TWIN_TEST_ROWS]
    test = X_test[at][:, kept] / deviation[kept]
    shuffled = np.column_stack([rng.permutation(x) for x in train.T])
    near, usual = (
        NearestNeighbors(n_neighbors=1).fit(rows).kneighbors(test)[0][:, 0]
        for rows in (train, shuffled)
    )
    found = np.full(len(X_test), -1)
    found[at] = near < NEAR * np.quantile(usual, 0.25)
    return found


def twin_warning(
    near: Array, y: Array, decided: Array, scoring: Scoring, grouped: bool
) -> list[str]:
    """A warning if many test rows have a near-copy, with the score of the others."""
    sampled, share = near >= 0, (near == 1).sum() / (near >= 0).sum()
    if share < TWIN_SHARE:
        return []
    text = f"{share:.0%} of the test rows have a near-copy among the training rows"
    alone = near == 0
    if as_columns(y)[alone].any(axis=0).all() and alone.sum() >= FEW_ALONE:
        whole, rest = (scoring.score(y[x], decided[x]) for x in (sampled, alone))
        text += f" (score with them {whole:.3f}, without them {rest:.3f})"
    hint = "" if grouped else ": if rows belong together, name their column (--group)"
    return [f"{text}, so the score may be too high{hint}"]


def given_away(frame: Any, y: Array, seed: int) -> dict[str, Array]:
    """For each column, the share of each class's rows that its values identify.

    A value identifies a class if more than nine in ten of the rows with it, in the other half of
    the rows, are of the class. Of a column with many numbers only three values are distinguished:
    missing, the most frequent one, and any other, so that a good measurement is no leak.

    >>> frame = pd.DataFrame({"refund": [5.0, 7.5] * 30 + [None] * 240})
    >>> given_away(frame, np.repeat([1.0, 0.0], [100, 200]), seed=0)["refund"].tolist()
    [0.6]
    """
    y = as_columns(y)
    halves = np.random.default_rng(seed).permutation(len(y)) % 2
    return {str(name): _identified(series, y, halves) for name, series in frame.items()}


def _identified(series: Any, y: Array, halves: Array) -> Array:
    if series.dtype.kind in "iufM" and series.nunique() > MOST_VALUES:
        usual = series.mode().iloc[0]
        series = pd.Series(np.select([series.isna(), series == usual], [0, 1], 2))
    codes, values = pd.factorize(series, use_na_sentinel=False)
    found = np.zeros(y.shape[1])
    for k, labels in enumerate(y.T):
        sure = _rates(codes, len(values), labels, halves) > SURE
        if sure.any() and labels.mean() < SURE / 2 and labels[sure].mean() > SURE:
            found[k] = labels[sure].sum() / labels.sum()
    return found


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
