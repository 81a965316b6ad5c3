"""The preparation of a table: the label, the columns that cannot be used, and the test rows."""

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
from anyloss.recipe.folds import kept_together, thinned
from anyloss.tabular.columns import check_distinct, holds_dates, holds_identifiers, listed
from anyloss.tabular.encoder import TableEncoder
from anyloss.tabular.reading import numbers_in_text

LEAST = 10  # rows of each class that a table must have
FEW = 50  # a score of fewer positive rows is uncertain
LEAK = 0.99  # the AUC of a single column above which it may contain the label
MOST_CELLS = 5_000_000  # of the sample for the AUC of single columns


@dataclass(frozen=True)
class PreparedTable:
    """The features, the labels (1 is the positive class), and warnings about the data."""

    frame: Any
    y: Array
    target: str
    positive: str
    negative: str
    dropped: list[str]
    warnings: list[str]


def prepare_table(
    frame: Any,
    target: str,
    *,
    positive: str | None = None,
    drop: Sequence[str] = (),
    id_column: str | None = None,
) -> PreparedTable:
    """Separate the label from the features, and remove rows without a label.

    >>> frame = pd.DataFrame({"age": range(60, 30, -1), "left": ["no"] * 20 + ["yes"] * 10})
    >>> table = prepare_table(frame, "left")
    >>> table.positive, int(table.y.sum()), list(table.frame)
    ('yes', 10, ['age'])
    """
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    check_distinct(frame.columns)
    if target in drop:
        raise ValueError(f"{target!r} is the label column and cannot be dropped")
    for name in (target, *drop, *([] if id_column is None else [id_column])):
        check_column(name, frame)
    labelled = frame[target].notna()
    warnings = []
    if unlabelled := int((~labelled).sum()):
        warnings.append(
            f"rows without a value in {target!r} are not used ({unlabelled} of {len(frame)} rows)"
        )
        frame = frame[labelled]
    y, positive, negative = _labels(frame[target], target, positive)
    given = [x for x in (target, id_column, *drop) if x is not None]
    frame = frame.drop(columns=dict.fromkeys(given))
    if not frame.shape[1]:
        raise ValueError(
            f"expected feature columns besides {target!r}; got none: drop fewer columns"
        )
    warnings += numbers_in_text(frame)
    numbered = [name for name in frame if _numbers_rows(name, frame[name])]
    if numbered:
        warnings.append(f"columns that only number the rows are not used: {listed(numbered)}")
    dropped = [x for x in given if x != target] + numbered
    frame = frame.drop(columns=numbered)
    return PreparedTable(frame, y, target, positive, negative, dropped, warnings)


def check_column(name: str, frame: Any) -> None:
    """Raise an error for a name that is not a column, with the most similar names."""
    if name not in frame:
        names = [str(x) for x in frame]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names[:10]
        raise ValueError(f"there is no column {name!r}; available columns are {listed(near)}")


def _labels(series: Any, target: str, positive: str | None) -> tuple[Array, str, str]:
    codes, values = pd.factorize(series, sort=True)
    names, sizes = [_label_text(x) for x in values], np.bincount(codes, minlength=len(values))
    if len(names) < 2:
        raise ValueError(
            f"the label column {target!r} must have two classes; got {listed(names) or 'no value'} "
            "in all rows"
        )
    if positive is None and len(names) > 2:
        raise ValueError(
            f"the label column {target!r} must have two classes; got {len(names)}, such as "
            f"{listed(names[:5])}: name the positive class (--positive) to separate it from the "
            "others"
        )
    if positive is None:
        positive = names[0] if sizes[0] < sizes[1] else names[1]
    if positive not in names:
        raise ValueError(f"the positive class must be one of {listed(names)}; got {positive!r}")
    k = names.index(positive)
    negative = f"not {positive}" if len(names) > 2 else names[1 - k]
    least = min(int(sizes[k]), int(sizes.sum() - sizes[k]))
    if least < LEAST:
        raise ValueError(
            f"the label column {target!r} must have at least {LEAST} rows of each class, for "
            f"training and testing; got {sizes[k]} of {positive!r} and {sizes.sum() - sizes[k]} of "
            f"{negative!r}"
        )
    return (codes == k).astype(float), positive, negative


def _label_text(value: Any) -> str:
    """A label as in the file: pandas reads 1 as 1.0 if a value of the column is missing."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value)


def _numbers_rows(name: str, series: Any) -> bool:
    """Whether distinct integers are row numbers, or have the name of an identifier."""
    if series.dtype.kind not in "iu" or len(series) <= FEW or not series.is_unique:
        return False
    named = re.search(r"(^|[_ .-])(id|ID|Id)$|[a-z]I[dD]$", name) is not None
    return named or int(series.max()) - int(series.min()) == len(series) - 1


def without_identifiers(table: PreparedTable, train: Any) -> Any:
    """The training rows without identifiers; the table gets a warning about them."""
    found = identifiers(train)
    if found:
        table.dropped.extend(found)
        table.warnings.append(
            f"text columns whose values hardly ever repeat are not used: {listed(found)}"
        )
    return train.drop(columns=found)


def identifiers(train: Any) -> list[str]:
    """Text columns whose values hardly ever repeat, except dates, which the encoder refuses.

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
        raise ValueError("expected feature columns; got only columns that identify the rows")
    return found


def fitted_encoder(train: Any) -> TableEncoder:
    """An encoder that is fitted to these rows; its errors name the option to drop a column."""
    try:
        return TableEncoder().fit(train)
    except ValueError as error:
        raise ValueError(f"{error} (--drop NAME drops a column)") from None


def split_rows(frame: Any, y: Array, share: float, seed: int) -> tuple[Array, int]:
    """Which rows are test rows, and how many of them are copies of training rows.

    Both classes are in the test rows by their share. Identical rows stay together, unless there
    are ten or more copies: a table with few different rows could not be split otherwise.

    >>> frame = pd.DataFrame({"a": list(range(50)) * 2})
    >>> test, copies = split_rows(frame, np.repeat([0.0, 1.0], 50), 0.2, seed=0)
    >>> int(test.sum()), copies, bool((test[:50] == test[50:]).all())
    (20, 0, True)
    """
    if not 0 < share < 1:
        raise ValueError(f"test_share must be between 0 and 1; got {share}")
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
            f"test_share {share:g} leaves too few training rows of a class: choose a smaller one "
            "(--test-share)"
        )
    return chosen, int(np.isin(keys[chosen], keys[~chosen]).sum())


def sample_rows(y: Array, rows: int, seed: int) -> Array:
    """A stratified sample of at most `rows` rows, in their order.

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


def single_column_aucs(frame: Any, y: Array, seed: int) -> dict[str, float]:
    """The AUC of each column alone, from 0.5 (no relation to the label) to 1.

    A text is scored by the share of positive rows with this text in the other half of the rows.

    >>> frame = pd.DataFrame({"a": range(40), "b": ["x"] * 20 + ["y"] * 20, "c": [0, 1] * 20})
    >>> single_column_aucs(frame, np.repeat([0.0, 1.0], 20), seed=0)
    {'a': 1.0, 'b': 1.0, 'c': 0.5}
    """
    most = max(1000, MOST_CELLS // frame.shape[1])
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
