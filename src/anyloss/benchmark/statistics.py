"""Comparisons of a method with a baseline over data sets: wins, the Bayesian sign test, ranks.

Results have one row per fold, with the columns dataset, model, metric, method, repeat, fold and
score. Some functions also need the columns `family`, `rows` and `positives` of the data set.
Methods are compared per data set, on the folds that both of them have.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from anyloss._core.backend import Array

MODEL_METRIC = ["model", "metric"]
KEYS = [*MODEL_METRIC, "dataset"]
FOLD = [*KEYS, "repeat", "fold"]
COMPARISON = ["sets", "difference", "win", "draw", "lose", "p_lose", "p_draw", "p_win"]
COMPARISON += ["p_lose_families"]
EDGES = (0.6, 0.7, 0.8, 0.9)
GROUPS = ("0.5-0.6", "0.6-0.7", "0.7-0.8", "0.8-0.9", "0.9-1.0")
ROUNDING = 1e-12  # 0.81 - 0.80 is above 0.01, but only in floating point


class WinDrawLose(NamedTuple):
    """The numbers of data sets on which a method wins, draws and loses."""

    win: int
    draw: int
    lose: int


class Probabilities(NamedTuple):
    """The probabilities that losing, drawing or winning is the most frequent result."""

    lose: float
    draw: float
    win: float


def check_results(results: Any, *methods: str) -> None:
    """Raise a ValueError unless there is one result per fold and method, and all methods occur.

    >>> check_results(pd.DataFrame(columns=[*FOLD, "method", "score"]))
    Traceback (most recent call last):
        ...
    ValueError: results must have at least one row; got none
    """
    missing = [column for column in [*FOLD, "method", "score"] if column not in results]
    if missing:
        raise ValueError(f"results must have the columns {missing}; got {list(results)}")
    if not len(results):
        raise ValueError("results must have at least one row; got none")
    for wrong, what in (
        # pandas.read_csv reads the method "null" as a missing value by default
        (results[[*FOLD, "method"]].isna().any(axis=1), "no missing names"),
        (~np.isfinite(results["score"]), "a finite score in each row"),
        (results.duplicated([*FOLD, "method"]), "one row per fold and method"),
    ):
        if wrong.any():
            row = results.loc[wrong, [*FOLD, "method", "score"]].iloc[0].to_dict()
            raise ValueError(f"results must have {what}; got {row}")
    known = list(results["method"].unique())
    for method in methods:
        if method not in known:
            raise ValueError(f"no results of the method {method!r}; there are {known}")


def per_dataset(results: Any) -> Any:
    """Mean scores over folds: a row per (model, metric, dataset), a column per method.

    >>> results = pd.DataFrame({"model": "linear", "metric": "f1", "dataset": "iris", "repeat": 0,
    ...                         "fold": [0, 1], "method": "bce", "score": [0.5, 1.0]})
    >>> per_dataset(results).loc[("linear", "f1", "iris"), "bce"].item()
    0.75
    """
    check_results(results)
    return results.groupby([*KEYS, "method"], observed=True)["score"].mean().unstack("method")


def differences(results: Any, method: str, baseline: str) -> Any:
    """Score of the method minus that of the baseline, per (model, metric, dataset) of both."""
    check_results(results, method, baseline)
    if method == baseline:
        raise ValueError(f"method and baseline must be different; got {method!r} twice")
    pair = results[results["method"].isin([method, baseline])]
    folds = pair.pivot(index=FOLD, columns="method", values="score").dropna()
    return (
        (folds[method] - folds[baseline])
        .groupby(level=KEYS, observed=True)
        .mean()
        .rename("difference")
    )


def by_family(difference: Any, results: Any) -> Any:
    """The mean difference per family of data sets, which share rows."""
    family = results.drop_duplicates("dataset").set_index("dataset")["family"]
    names = difference.index.get_level_values("dataset").map(family).rename("family")
    return difference.groupby(names, observed=True).mean()


def win_draw_lose(difference: Array, rope: float = 0.01) -> WinDrawLose:
    """Count the differences above, within and below the region of practical equivalence (rope).

    >>> win_draw_lose([0.2, 0.03, 0.01, -0.01, -0.5])
    WinDrawLose(win=2, draw=2, lose=1)
    """
    values = np.asarray(difference, dtype=float)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise ValueError(
            "differences must be a list of at least one number, all of them finite; "
            f"got shape {values.shape}, {int((~np.isfinite(values)).sum())} of them not finite"
        )
    if not rope >= 0:
        raise ValueError(f"rope must be 0 or more; got {rope}")
    win, lose = (int((side > rope + ROUNDING).sum()) for side in (values, -values))
    return WinDrawLose(win, len(values) - win - lose, lose)


def sign_test(
    difference: Array, rope: float = 0.01, samples: int = 100_000, seed: int = 0
) -> Probabilities:
    """The Bayesian sign test over data sets. The same input gives the same probabilities.

    The shares of losing, drawing and winning have a Dirichlet posterior. Its parameters are the
    counts plus a prior of strength 1 on drawing. Each probability is that of being the largest
    share.

    >>> found = sign_test([0.1, 0.1])  # exactly 0, 1/4 and 3/4
    >>> round(found.lose, 2), round(found.draw, 2), round(found.win, 2)
    (0.0, 0.25, 0.75)

    Reference: Benavoli, Corani, Demšar and Zaffalon, Time for a Change, JMLR 18 (2017).
    """
    return _sign_test(win_draw_lose(difference, rope), samples, seed)


@lru_cache(maxsize=4096)
def _sign_test(counts: WinDrawLose, samples: int, seed: int) -> Probabilities:
    """The sign test from the counts, which are few enough to be cached."""
    if samples < 1:
        raise ValueError(f"samples must be 1 or more; got {samples}")
    # A Dirichlet draw is Gamma draws divided by their sum, which does not change the largest.
    shape = (counts.lose, counts.draw + 1.0, counts.win)
    largest = np.random.default_rng(seed).standard_gamma(shape, (samples, 3)).argmax(1)
    return Probabilities(*(np.bincount(largest, minlength=3) / samples).tolist())


def versus(results: Any, method: str, baseline: str, rope: float = 0.01) -> Any:
    """The method against the baseline, a row per (model, metric) with common data sets.

    Columns: sets, difference (method minus baseline, mean over data sets), win, draw, lose, p_lose,
    p_draw, p_win (sign test over data sets) and p_lose_families (sign test over families, if
    results have them).
    """
    rows = {}
    gaps = differences(results, method, baseline)
    for pair, group in gaps.groupby(level=MODEL_METRIC, sort=False, observed=True):
        row = {"sets": len(group), "difference": group.mean()}
        row |= win_draw_lose(group, rope)._asdict()
        row |= {f"p_{name}": p for name, p in sign_test(group, rope)._asdict().items()}
        families = sign_test(by_family(group, results), rope).lose if "family" in results else None
        rows[pair] = row | {"p_lose_families": families}
    index = pd.MultiIndex.from_tuples(rows, names=MODEL_METRIC)
    return pd.DataFrame(list(rows.values()), index=index, columns=COMPARISON)


def mean_ranks(table: Any) -> Any:
    """The mean rank of each column over the rows: 1 for the highest score, tied ranks averaged.

    >>> mean_ranks(pd.DataFrame({"a": [0.9, 0.8], "b": [0.5, 0.8], "c": [0.1, 0.1]})).to_dict()
    {'a': 1.25, 'b': 1.75, 'c': 3.0}
    """
    if not table.size or table.isna().any(axis=None):
        raise ValueError(
            "ranks need at least one data set and a score of every method on every data set; "
            f"got shape {table.shape}, {int(table.isna().sum().sum())} of them missing"
        )
    ranks = rankdata(-np.round(table.to_numpy(dtype=float), 12), axis=1)
    return pd.Series(ranks.mean(axis=0), index=table.columns, name="mean_rank")


def by_imbalance(results: Any, method: str, baseline: str) -> Any:
    """Score of the method minus that of the baseline, by the share of the larger class.

    A row per (model, metric, majority) has the number of data sets and the mean and sample standard
    deviation of the difference. A share of 0.6 belongs to 0.6-0.7, as 60:40 does in Table 4 of
    AnyLoss.
    """
    table = differences(results, method, baseline).to_frame()
    sets = results.drop_duplicates("dataset").set_index("dataset")
    share = np.maximum(sets["positives"], sets["rows"] - sets["positives"]) / sets["rows"]
    names = pd.Series(np.take(GROUPS, np.digitize(share, EDGES)), index=share.index)
    table["majority"] = table.index.get_level_values("dataset").map(names)
    keys = [*MODEL_METRIC, "majority"]
    grouped = table.groupby(keys, observed=True)["difference"]
    found = grouped.agg(sets="count", mean="mean", std="std")
    pairs = table.index.droplevel("dataset").unique()
    full = [(*pair, group) for pair in pairs for group in GROUPS]
    index = pd.MultiIndex.from_tuples(full, names=keys) if full else found.index
    return found.reindex(index).fillna({"sets": 0}).astype({"sets": int})
