"""A table made ready: which column is the label, which ones cannot be used, which rows test."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from anyloss._core.backend import Array
from anyloss.recipe import thinned
from anyloss.recipe.folds import kept_together
from anyloss.tabular.encoder import TableEncoder, holds_dates, holds_identifiers, some
from anyloss.tabular.reading import numbers_in_text

LEAST = 10  # rows of each class
FEW = 50  # positives that make a score uncertain
LEAK = 0.99  # AUC of a single column
LOOKED_AT = 5_000_000  # cells, for the columns one by one


@dataclass(frozen=True)
class Task:
    """Columns to learn from, labels 0 and 1 (1: positive), and what was noticed on the way."""

    frame: Any
    y: Array
    target: str
    positive: str
    negative: str
    dropped: list[str]
    warnings: list[str]


def prepare(
    frame: Any,
    target: str,
    *,
    positive: str | None = None,
    drop: Sequence[str] = (),
    id_column: str | None = None,
) -> Task:
    """Take the label out of a table, and what is no feature; rows without a label go too.

    >>> frame = pd.DataFrame({"age": range(60, 30, -1), "left": ["no"] * 20 + ["yes"] * 10})
    >>> task = prepare(frame, "left")
    >>> task.positive, int(task.y.sum()), list(task.frame)
    ('yes', 10, ['age'])
    """
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    if not frame.columns.is_unique:
        twice = list(frame.columns[frame.columns.duplicated()])
        raise ValueError(f"expected columns of different names; rename {some(twice)}")
    if target in drop:
        raise ValueError(f"{target!r} is the label and cannot be dropped")
    for name in (target, *drop, *([] if id_column is None else [id_column])):
        check_column(name, frame)
    labelled = frame[target].notna()
    told = []
    if not labelled.all():
        told.append(f"rows without a value in {target!r} are left out ({int((~labelled).sum())})")
        frame = frame[labelled]
    y, positive, negative = _labels(frame[target], target, positive)
    given = [x for x in (target, id_column, *drop) if x is not None]
    frame = frame.drop(columns=dict.fromkeys(given))
    if not frame.shape[1]:
        raise ValueError(f"expected columns to learn from beside {target!r}; there are none")
    told += numbers_in_text(frame)
    numbered = [name for name in frame if _counts_rows(name, frame[name])]
    if numbered:
        told.append(f"left out, for they only number the rows: {some(numbered)}")
    dropped = [x for x in given if x != target] + numbered
    return Task(frame.drop(columns=numbered), y, target, positive, negative, dropped, told)


def check_column(name: str, frame: Any) -> None:
    """Refuse a name that is no column, with the nearest ones there are."""
    if name not in frame:
        names = [str(x) for x in frame]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names[:10]
        raise ValueError(f"no column is called {name!r}; there are {some(near)}")


def _labels(series: Any, target: str, positive: str | None) -> tuple[Array, str, str]:
    codes, values = pd.factorize(series, sort=True)
    names, sizes = [_label_text(x) for x in values], np.bincount(codes, minlength=len(values))
    if len(names) < 2:
        raise ValueError(
            f"{target!r} must tell two classes apart; it has one value, {some(names) or 'none'}"
        )
    if positive is None and len(names) > 2:
        raise ValueError(
            f"{target!r} must have two classes; got {len(names)}, such as {some(names[:5])}. "
            "Name one of them as positive (--positive) to tell it from the rest"
        )
    if positive is None:
        positive = names[0] if sizes[0] < sizes[1] else names[1]
    if positive not in names:
        raise ValueError(f"the positive class must be among {some(names)}; got {positive!r}")
    k = names.index(positive)
    negative = f"not {positive}" if len(names) > 2 else names[1 - k]
    least = min(int(sizes[k]), int(sizes.sum() - sizes[k]))
    if least < LEAST:
        raise ValueError(
            f"{target!r} must have {LEAST} rows of each class, to learn from and to test on; got "
            f"{sizes[k]} of {positive!r} and {sizes.sum() - sizes[k]} of {negative!r}"
        )
    return (codes == k).astype(float), positive, negative


def _label_text(value: Any) -> str:
    """A label as it stands in the file; gaps elsewhere in the column make 1 a 1.0."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value)


def _counts_rows(name: str, series: Any) -> bool:
    """Whether whole numbers, all different, are a row number or are called an id."""
    if series.dtype.kind not in "iu" or len(series) <= FEW or not series.is_unique:
        return False
    named = re.search(r"(^|[_ .-])(id|ID|Id)$|[a-z]I[dD]$", name) is not None
    return named or int(series.max()) - int(series.min()) == len(series) - 1


def without_identifiers(task: Task, train: Any) -> Any:
    """The rows to learn from without the columns of `identifiers`, which is told."""
    found = identifiers(train)
    if found:
        task.dropped.extend(found)
        task.warnings.append(f"left out, for the texts hardly ever repeat: {some(found)}")
    return train.drop(columns=found)


def identifiers(train: Any) -> list[str]:
    """Text columns whose values hardly repeat. Dates are not among them: the encoder refuses those.

    >>> names = [f"customer {k}" for k in range(60)]
    >>> identifiers(pd.DataFrame({"city": ["Rome", "Oslo"] * 30, "name": names}))
    ['name']
    """
    texts = train.select_dtypes(["object", "string"])
    found = [
        name
        for name in texts
        if pd.api.types.infer_dtype(present := texts[name].dropna()) == "string"
        and holds_identifiers(present)
        and not holds_dates(present)
    ]
    if len(found) == train.shape[1]:
        raise ValueError("expected columns to learn from; those there are only name the rows")
    return found


def fitted_encoder(train: Any) -> TableEncoder:
    """An encoder of these rows; if it cannot take a column, it says how to leave it out."""
    try:
        return TableEncoder().fit(train)
    except ValueError as error:
        raise ValueError(f"{error} (--drop NAME leaves a column out)") from None


def split_rows(frame: Any, y: Array, share: float, seed: int) -> tuple[Array, int]:
    """Which rows are for testing, and how many of these have a twin among the others.

    Both classes are in it by their share. Identical rows stay together, unless there are ten or
    more copies: data with few different rows could not be divided.

    >>> frame = pd.DataFrame({"a": list(range(50)) * 2})
    >>> test, twins = split_rows(frame, np.repeat([0.0, 1.0], 50), 0.2, seed=0)
    >>> int(test.sum()), twins, bool((test[:50] == test[50:]).all())
    (20, 0, True)
    """
    if not 0 < share < 1:
        raise ValueError(f"the share of rows to test on must lie between 0 and 1; got {share}")
    keys = pd.util.hash_pandas_object(frame, index=False).to_numpy()
    _, same = np.unique(keys, return_inverse=True)
    _, group = np.unique(kept_together(same), return_inverse=True)
    sizes, positives = np.bincount(group), np.bincount(group, weights=y)
    test, rng = np.zeros(len(sizes), dtype=bool), np.random.default_rng(seed)
    for own, amounts in ((positives > 0, positives), (positives == 0, sizes)):
        groups = rng.permutation(np.flatnonzero(own))
        wanted = round(share * (y.sum() if amounts is positives else len(y))) - sizes[test].sum()
        taken = int((np.cumsum(amounts[groups]) <= wanted).sum())
        test[groups[: max(1, taken)]] = True
    chosen = test[group]
    if min(y[~chosen].sum(), (1 - y[~chosen]).sum()) < LEAST / 2:
        raise ValueError(
            f"testing on {share:g} of the rows leaves too few of a class to learn from; test on "
            "fewer (--test-share)"
        )
    twins = int(np.isin(keys[chosen], keys[~chosen]).sum())
    return chosen, twins


def sample_rows(y: Array, rows: int, seed: int) -> Array:
    """Some of the rows, in order, with the classes in their shares; all if there are no more.

    >>> y = np.repeat([0.0, 1.0], [900, 100])
    >>> kept = sample_rows(y, 50, seed=0)
    >>> len(kept), int(y[kept].sum())
    (50, 5)
    """
    rng, share = np.random.default_rng(seed), min(1.0, rows / len(y))
    parts = [
        rng.permutation(own)[: round(share * len(own))]
        for own in (np.flatnonzero(y == label) for label in (0, 1))
    ]
    return np.sort(np.concatenate(parts))


def alone(frame: Any, y: Array, seed: int) -> dict[str, float]:
    """How well each column on its own orders the rows: the AUC, from 0.5 (not) to 1 (perfectly).

    Text counts by the share of positives of its values, as seen in the other half of the rows.

    >>> frame = pd.DataFrame({"a": range(40), "b": ["x"] * 20 + ["y"] * 20, "c": [0, 1] * 20})
    >>> alone(frame, np.repeat([0.0, 1.0], 20), seed=0)
    {'a': 1.0, 'b': 1.0, 'c': 0.5}
    """
    most = max(1000, LOOKED_AT // frame.shape[1])
    rows = np.arange(len(y))
    if len(y) > most:
        rows, _ = thinned(y[:, None], None, "binary", most, seed)
    y = y[rows]
    halves = np.random.default_rng(seed).permutation(len(y)) % 2
    return {
        str(name): max(auc, 1 - auc)
        for name, series in frame.iloc[rows].items()
        for auc in [_auc(_as_numbers(series, y, halves), y)]
    }


def _as_numbers(series: Any, y: Array, halves: Array) -> Array:
    if series.dtype.kind in "biuf":
        return series.to_numpy(float, na_value=-np.inf)
    codes, values = pd.factorize(series, use_na_sentinel=False)
    found = np.empty(len(y))
    for half in (0, 1):
        seen, size = halves != half, len(values)
        positives, all_rows = (np.bincount(codes[seen], w, size) for w in (y[seen], None))
        rate = (positives + y.mean()) / (all_rows + 1)
        found[halves == half] = rate[codes[halves == half]]
    return found


def _auc(score: Array, y: Array) -> float:
    positives = y.sum()
    negatives = len(y) - positives
    ranks = rankdata(score)[y == 1].sum()
    return float((ranks - positives * (positives + 1) / 2) / (positives * negatives))
