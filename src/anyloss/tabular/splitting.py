"""The test rows of a table, and samples of its rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from anyloss._core.backend import Array
from anyloss.recipe.folds import inner_folds, kept_together, strata
from anyloss.tabular.labels import LEAST
from anyloss.tabular.scoring import as_columns

FEW = 50  # a score of fewer rows of a class is uncertain
COPIED_SHARE, MOST_COPIED = 0.05, 100_000  # rows with copies, and rows that are searched for them
FOLDS, MOST_CROSSED = 5, 20_000  # rows, up to which cross-fitting is chosen by itself


class Plan(NamedTuple):
    """The training rows and test rows of each fit that is judged, as masks."""

    splits: list[tuple[Array, Array]]
    crossed: bool  # several folds, whose test rows are scored together
    copies: int  # test rows that are copies of training rows
    words: str  # what the score rests on


def row_keys(frame: Any) -> Array:
    """A number for each row, the same for identical rows."""
    return np.asarray(pd.util.hash_pandas_object(frame, index=False))


def copies_together(keys: Array) -> Array:
    """The group of each row: identical rows share one, unless there are ten or more copies."""
    return kept_together(np.unique(keys, return_inverse=True)[1])


def copied_rows(keys: Array, y: Array) -> Array | None:
    """The number of each row's copies as a group, if many rows are copies; otherwise None.

    As in a split, rows with ten or more copies count one by one. Rows that are equal by chance, as
    in a table of few values, are no copies: more than a twentieth of them have different labels.

    >>> y = np.array([1.0, 0.0, 1.0, 0.0])
    >>> copied_rows(np.array([5, 7, 5, 9]), y).tolist(), copied_rows(np.array([5, 5, 7, 9]), y)
    ([0, 1, 0, 2], None)
    """
    if len(keys) > MOST_COPIED:
        return None
    _, same = np.unique(copies_together(keys), return_inverse=True)
    sizes, labels = np.bincount(same), as_columns(y)
    if (sizes[same] == 1).mean() > 1 - COPIED_SHARE:
        return None
    positives = np.zeros((len(sizes), labels.shape[1]))
    np.add.at(positives, same, labels)
    shares = (positives / sizes[:, None])[sizes > 1]
    mixed = ((shares > 0) & (shares < 1)).any(axis=1)
    return None if mixed.mean() > COPIED_SHARE else same


def copies_warning(groups: Array | None) -> list[str]:
    """A warning that many rows are copies."""
    if groups is None:
        return []
    rows, different = len(groups), int(groups.max()) + 1
    return [
        f"{rows - different} of {rows} test rows are copies of others: the intervals count the "
        "copies of a row together. Remove copies that are no observations of their own"
    ]


def plan_splits(
    keys: Array, y: Array, used: Array, share: float, folds: int | None, seed: int, task: str,
    groups: Array | None, times: Array | None,
) -> Plan:  # fmt: skip
    """One set of test rows among the `used` rows, or folds.

    `folds` is 0 for one set, or the number of folds. None decides: folds if the test rows would
    have fewer than 50 rows of a class and the table has at most 20,000 rows.

    Equal `keys` are those of identical rows.

    >>> keys, y = np.arange(300), np.repeat([0.0, 1.0], [100, 200])
    >>> every = np.ones(300, dtype=bool)
    >>> plan = plan_splits(keys, y, every, 0.2, None, 0, "binary", None, None)
    >>> plan.crossed, [int(test.sum()) for _, test in plan.splits]
    (True, [60, 60, 60, 60, 60])
    """
    at = np.flatnonzero(used)
    groups, times = (None if x is None else x[at] for x in (groups, times))
    keys, y = keys[at], y[at]
    _check_share(share)
    if folds is not None and (folds < 0 or folds == 1):
        raise ValueError(f"folds must be 0, for one set of test rows, or at least 2; got {folds}")
    one, fewest, failed = None, 0, None
    if not folds:
        try:
            test, copies = split_rows(keys, y, share, seed, task, groups, times)
        except ValueError as error:
            if folds == 0:
                raise
            failed = error  # folds may serve where one set of test rows does not
        else:
            fewest = int(_sides(as_columns(y[test]), task).sum(axis=0).min())
            masks, words = [_masks(at, ~test, test, used)], _one_set(test, groups, times)
            one = Plan(masks, False, copies, words)
    if one is not None and (folds == 0 or fewest >= FEW or len(y) > MOST_CROSSED):
        return one
    found = _fold_masks(keys, y, folds or FOLDS, seed, task, groups, times)
    if len(found) < 2 or (times is None and len(found) < (folds or FOLDS)):
        if folds is not None:
            raise ValueError(
                f"{folds} folds leave too few training rows of a class: choose fewer folds "
                "(--folds)"
            )
        if one is None:
            assert failed is not None
            raise failed
        return one
    copies = sum(int(np.isin(keys[b], keys[a]).sum()) for a, b in found)
    whole = int(sum(b.sum() for _, b in found))
    words = f"{whole} rows in {len(found)} folds, each predicted by a model that was fitted "
    words += "without its fold" if times is None else "to earlier rows only"
    if folds is not None and len(found) < folds:
        words += f" ({folds} folds were wanted; the other periods have too few rows)"
    if folds is None:
        words += f" (one set of test rows would have only {fewest} rows of a class)"
    return Plan([_masks(at, a, b, used) for a, b in found], True, copies, words)


def _check_share(share: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"test_share must be between 0 and 1; got {share}")


def _one_set(test: Array, groups: Array | None, times: Array | None) -> str:
    kind = "random rows" if groups is None else "random groups"
    kind = kind if times is None else "rows, the latest ones,"
    return f"{int(test.sum())} {kind} that the model has not seen"


def _masks(at: Array, train: Array, test: Array, used: Array) -> tuple[Array, Array]:
    """Masks of the used rows as masks of all rows."""
    found = np.zeros((2, len(used)), dtype=bool)
    found[0, at], found[1, at] = train, test
    return found[0], found[1]


def _fold_masks(
    keys: Array, y: Array, folds: int, seed: int, task: str, groups: Array | None,
    times: Array | None,
) -> list[tuple[Array, Array]]:  # fmt: skip
    """The folds whose training rows have enough rows of each class.

    They are stratified and keep groups and identical rows together; with `times` each is a period,
    and its training rows are all earlier ones.
    """
    if times is not None:
        edges = np.quantile(times, np.linspace(0, 1, folds + 2))
        masks = [(times <= a, (times > a) & (times <= b)) for a, b in pairwise(edges[1:])]
    else:
        if groups is None:
            groups = copies_together(keys)
        rng = np.random.default_rng(seed)
        held = inner_folds(y, as_columns(y), task, folds, 1, rng, groups)
        masks = [(~x, x) for x in held]
    enough = [
        _sides(as_columns(y[a]), task).sum(axis=0).min() >= LEAST / 2 and b.any() for a, b in masks
    ]
    return [x for x, good in zip(masks, enough, strict=True) if good]


def _sides(y: Array, task: str) -> Array:
    """The columns of all classes, or of both sides of each label."""
    return y if task == "multiclass" else np.hstack([y, 1 - y])


def split_rows(
    keys: Array, y: Array, share: float, seed: int, task: str = "binary",
    groups: Array | None = None, times: Array | None = None,
) -> tuple[Array, int]:  # fmt: skip
    """Which rows are test rows, and how many of them are copies of training rows.

    All classes are in the test rows by their share; a row of several labels counts for its rarest
    one. Identical rows, which have equal `keys`, stay together, unless there are ten or more
    copies: a table with few different rows could not be split otherwise. With `groups`, the rows of
    a group stay together instead. With `times`, the latest rows are the test rows.

    >>> keys = row_keys(pd.DataFrame({"a": list(range(50)) * 2}))
    >>> test, copies = split_rows(keys, np.repeat([0.0, 1.0], 50), 0.2, seed=0)
    >>> int(test.sum()), copies, bool((test[:50] == test[50:]).all())
    (20, 0, True)
    """
    _check_share(share)
    if times is not None:
        chosen = times > np.quantile(times, 1 - share)
        _check_split(as_columns(y), chosen, share, task)
        return chosen, int(np.isin(keys[chosen], keys[~chosen]).sum())
    same = copies_together(keys) if groups is None else groups
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
    sides = _sides(y, task)
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
