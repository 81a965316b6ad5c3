"""The test rows of a table, and samples of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from anyloss._core.backend import Array
from anyloss.recipe.folds import kept_together, strata
from anyloss.tabular.labels import LEAST
from anyloss.tabular.scoring import as_columns


def split_rows(
    frame: Any, y: Array, share: float, seed: int, task: str = "binary",
    groups: Array | None = None, times: Array | None = None,
) -> tuple[Array, int]:  # fmt: skip
    """Which rows are test rows, and how many of them are copies of training rows.

    All classes are in the test rows by their share; a row of several labels counts for its rarest
    one. Identical rows stay together, unless there are ten or more copies: a table with few
    different rows could not be split otherwise. With `groups`, the rows of a group stay together
    instead. With `times`, the latest rows are the test rows.

    >>> frame = pd.DataFrame({"a": list(range(50)) * 2})
    >>> test, copies = split_rows(frame, np.repeat([0.0, 1.0], 50), 0.2, seed=0)
    >>> int(test.sum()), copies, bool((test[:50] == test[50:]).all())
    (20, 0, True)
    """
    if not 0 < share < 1:
        raise ValueError(f"test_share must be between 0 and 1; got {share}")
    keys = pd.util.hash_pandas_object(frame, index=False).to_numpy()
    if times is not None:
        chosen = times > np.quantile(times, 1 - share)
        _check_split(as_columns(y), chosen, share, task)
        return chosen, int(np.isin(keys[chosen], keys[~chosen]).sum())
    _, same = np.unique(keys, return_inverse=True)
    same = kept_together(same) if groups is None else groups
    _, group = np.unique(same, return_inverse=True)
    stratum = strata(as_columns(y), task)
    rarest_first = np.argsort(np.bincount(stratum), kind="stable")
    rank = np.argsort(rarest_first)[stratum]  # of the stratum of each row
    of_group = np.full(group.max() + 1, len(rarest_first))
    np.minimum.at(of_group, group, rank)
    test, rng = np.zeros(len(of_group), dtype=bool), np.random.default_rng(seed)
    for k in range(len(rarest_first)):
        own = rank == k
        amounts = np.bincount(group[own], minlength=len(test))
        there = amounts[test].sum()
        groups = rng.permutation(np.flatnonzero(of_group == k))
        taken = int((np.cumsum(amounts[groups]) <= round(share * own.sum()) - there).sum())
        test[groups[: max(int(there == 0), taken)]] = True
    chosen = test[group]
    _check_split(as_columns(y), chosen, share, task)
    return chosen, int(np.isin(keys[chosen], keys[~chosen]).sum())


def _check_split(y: Array, test: Array, share: float, task: str) -> None:
    """Raise an error if a class is too rare among the training rows, or absent from the test."""
    sides = y if task == "multiclass" else np.hstack([y, 1 - y])
    if sides[~test].sum(axis=0).min() < LEAST / 2:
        raise ValueError(
            f"test_share {share:g} leaves too few training rows of a class: choose a smaller one "
            "(--test-share)"
        )
    if not sides[test].any(axis=0).all():
        raise ValueError(
            f"test_share {share:g} leaves no test row of a class: choose a larger one "
            "(--test-share)"
        )


def sample_rows(y: Array, rows: int, seed: int, task: str = "binary") -> Array:
    """A stratified sample of at most `rows` rows, in their order.

    >>> y = np.repeat([0.0, 1.0], [900, 100])
    >>> kept = sample_rows(y, 50, seed=0)
    >>> len(kept), int(y[kept].sum())
    (50, 5)
    """
    rng, share = np.random.default_rng(seed), min(1.0, rows / len(y))
    stratum = strata(as_columns(y), task)
    parts = [
        rng.permutation(own)[: round(share * len(own))]
        for own in (np.flatnonzero(stratum == k) for k in np.unique(stratum))
    ]
    return np.sort(np.concatenate(parts))
