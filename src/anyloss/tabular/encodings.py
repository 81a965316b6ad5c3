"""The encodings of single columns: numbers, dates, categories, and the mean label of a category."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.preprocessing import LabelBinarizer, TargetEncoder
from sklearn.utils.multiclass import type_of_target

from anyloss._core.backend import Array
from anyloss.baselines.splits import INNER, splitter
from anyloss.recipe.folds import strata
from anyloss.tabular.dates import as_dates, date_parts, is_dates

SMOOTH = 10.0  # rows of the overall mean that are added to the rows of a value
RARE = "infrequent_sklearn"  # the name that scikit-learn's OneHotEncoder gives this column


class Numbers(NamedTuple):
    """The encoding of a column of numbers."""

    median: float  # replaces missing values
    gaps: bool  # whether `fit` saw missing values


class Texts(NamedTuple):
    """The encoding of a column of text with few values: one column for each."""

    values: tuple[str | None, ...]  # those with a column of their own; None is a missing value
    rare: bool  # whether all other values share one more column


class Means(NamedTuple):
    """The encoding of a column of text with many values: the mean label of each value."""

    levels: tuple[str | None, ...]  # None is a missing value
    means: tuple[tuple[float, ...], ...]  # of each class, for each value
    others: tuple[float, ...]  # of each class, for a value that `fit` has not seen
    classes: tuple[str, ...]  # in the names of the encoded columns; "" if there is one


class Dates(NamedTuple):
    """The encoding of a column of dates."""

    first: str  # from which days are counted
    parts: tuple[str, ...]  # those of `dates.PARTS` that differ between rows
    medians: tuple[float, ...]  # replace missing values
    gaps: bool  # whether `fit` saw missing values


Kept = Numbers | Dates | Texts | Means
KINDS = (Numbers, Dates, Texts, Means)  # the order of the encoded columns


def encoding_in_words(kept: Kept) -> str:
    """How a column is encoded.

    >>> encoding_in_words(Texts(("a", "b"), False)), encoding_in_words(Numbers(1.0, True))
    ('one-hot, 2 columns', 'number, gaps marked')
    """
    if isinstance(kept, Numbers):
        return "number, gaps marked" if kept.gaps else "number"
    if isinstance(kept, Dates):
        return ", ".join(kept.parts)
    if isinstance(kept, Means):
        return f"mean label of each of {len(kept.levels)} values"
    shared = ", rare values share one" if kept.rare else ""
    return f"one-hot, {len(kept.values) + kept.rare} columns{shared}"


def from_json(kept: dict[str, Any]) -> Kept:
    """The encoding that `_asdict` and JSON have kept."""
    if "levels" in kept:
        means = tuple(tuple(map(float, x)) for x in kept["means"])
        others = tuple(map(float, kept["others"]))
        return Means(tuple(kept["levels"]), means, others, tuple(kept["classes"]))
    if "median" in kept:
        return Numbers(float(kept["median"]), bool(kept["gaps"]))
    if "first" in kept:
        medians = tuple(map(float, kept["medians"]))
        return Dates(str(kept["first"]), tuple(kept["parts"]), medians, bool(kept["gaps"]))
    return Texts(tuple(kept["values"]), bool(kept["rare"]))


def date_encoding(dates: Any) -> Dates:
    """The first date, and the parts that differ between rows, with their medians."""
    first = dates.min().floor("D")
    found = {name: x[~np.isnan(x)] for name, x in date_parts(dates, first).items()}
    kept = {name: float(np.median(x)) for name, x in found.items() if np.ptp(x) > 0}
    kept = kept or {"days": 0.0}  # one date, and gaps
    return Dates(first.isoformat(), tuple(kept), tuple(kept.values()), bool(dates.isna().any()))


def write_dates(name: str, given: Any, kept: Dates, encoded: Array, places: list[int]) -> None:
    """Write the parts of dates, and where they are missing."""
    if not is_dates(given) and given.notna().any():
        raise ValueError(
            f"column {name!r}: expected dates, as in fit; got dtype {given.dtype}, such as "
            f"{given.dropna().iloc[0]!r}: convert them with pandas.to_datetime"
        )
    dates = as_dates(given)
    parts = date_parts(dates, pd.Timestamp(kept.first))
    for at, part, median in zip(places, kept.parts, kept.medians, strict=False):
        encoded[:, at] = np.where(dates.isna(), median, parts[part])
    if kept.gaps:
        encoded[:, places[-1]] = dates.isna()


def text_encoding(present: Array, gaps: int, most: int | None) -> Texts:
    """The most frequent values in alphabetical order, a missing value last.

    As in scikit-learn's OneHotEncoder, the last of `most` columns is for all other values, unless
    there are fewer values than columns; among equally frequent values the later ones are kept.
    """
    sizes = pd.Series(present, dtype=object).value_counts().to_dict()
    known: list[str | None] = sorted(sizes)
    counts = [sizes[value] for value in known]
    if gaps:
        known, counts = [*known, None], [*counts, gaps]
    if most is None or len(known) < most:
        return Texts(tuple(known), False)
    kept = sorted(np.argsort(counts, kind="stable")[len(known) - most + 1 :])
    return Texts(tuple(known[k] for k in kept), True)


def check_kind(name: str, values: Array, kept: Kept, given: Any) -> None:
    """Raise an error if a column of numbers became text, or the other way round."""
    numbers = isinstance(kept, Numbers)
    if (values.dtype == np.float64) != numbers and not pd.isna(values).all():
        raise ValueError(
            f"column {name!r}: expected {'numbers' if numbers else 'text'}, as in fit; got dtype "
            f"{given.dtype}, such as {given.dropna().iloc[0]!r}: read or convert the column as for "
            "fit"
        )


def write_numbers(values: Array, kept: Numbers, encoded: Array, places: list[int]) -> None:
    """Write numbers, and where they are missing."""
    gaps = np.isnan(values)
    encoded[:, places[0]] = np.where(gaps, kept.median, values)
    if kept.gaps:
        encoded[:, places[1]] = gaps


def write_texts(values: Array, kept: Texts, encoded: Array, places: list[int]) -> None:
    """Write a 1 in the column of each value, or in that of the rare values, if there is one."""
    known = [value for value in kept.values if value is not None]
    at = pd.Index(known, dtype=object).get_indexer_for(values)
    if None in kept.values:
        at[pd.isna(values)] = len(known)
    if kept.rare:
        at[at < 0] = len(kept.values)
    rows = np.flatnonzero(at >= 0)
    encoded[rows, np.array(places)[at[rows]]] = 1.0


def label_columns(y: Any) -> tuple[Array, tuple[str, ...]]:
    """Labels as columns of numbers, of which means are taken, and the names of these columns.

    Two classes have one column, that of the second one; more have a column each. A matrix has its
    own columns, and numbers that are no classes are one.

    >>> columns, names = label_columns(["a", "b", "a", "c"])
    >>> columns.tolist(), names
    ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], ('a', 'b', 'c'))
    """
    y = np.asarray(y)
    if y.ndim == 2:
        return y.astype(float), tuple(map(str, range(y.shape[1]))) if y.shape[1] > 1 else ("",)
    if type_of_target(y) not in ("binary", "multiclass"):
        return y.astype(float)[:, None], ("",)
    found = LabelBinarizer().fit(y)
    columns = np.asarray(found.transform(y), dtype=float)
    return columns, tuple(map(str, found.classes_)) if columns.shape[1] > 1 else ("",)


def mean_encoding(values: Array, y: Any) -> Means:
    """The mean labels of scikit-learn's TargetEncoder, shrunk to the overall mean for rare values.

    >>> kept = mean_encoding(np.array(["a", "b"] * 40, dtype=object), np.tile([1, 0], 40))
    >>> kept.levels, kept.means, kept.others
    (('a', 'b'), ((0.9, 0.1),), (0.5,))
    """
    columns, names = label_columns(y)
    levels = np.sort(pd.unique(values[~pd.isna(values)]))
    gaps = [None] if pd.isna(values).any() else []
    codes, means, others = _codes(values, (*levels, *gaps)), [], []
    for labels in columns.T:
        found = TargetEncoder(target_type="continuous", smooth=SMOOTH).fit(codes[:, None], labels)
        means.append(tuple(found.encodings_[0].tolist()))
        others.append(float(found.target_mean_))
    return Means((*levels, *gaps), tuple(means), tuple(others), names)


def _codes(values: Array, levels: tuple[str | None, ...]) -> Array:
    """The number of each value among the levels; -1 for others."""
    known = [x for x in levels if x is not None]
    at = pd.Index(known, dtype=object).get_indexer_for(values)
    if None in levels:
        at[pd.isna(values)] = len(known)
    return np.asarray(at)


def write_means(values: Array, kept: Means, encoded: Array, places: list[int]) -> None:
    """Write the mean labels of each value."""
    at = _codes(values, kept.levels)
    for k, means, other in zip(places, kept.means, kept.others, strict=True):
        encoded[:, k] = np.append(means, other)[at]


def cross_fitted(values: Array, y: Any, groups: Array | None, seed: int) -> Array:
    """The mean labels of each row's value among the rows of the other folds, for training rows.

    A row's own label has no part in its encoding, so that a model cannot learn the label from it.
    """
    columns, names = label_columns(y)
    found = np.empty(columns.shape)
    for rows, held in fit_folds(columns, names, groups, seed):
        part = np.empty((len(held), columns.shape[1]))
        kept = mean_encoding(values[rows], columns[rows])
        write_means(values[held], kept, part, list(range(columns.shape[1])))
        found[held] = part
    return found


def fit_folds(
    columns: Array, names: tuple[str, ...], groups: Array | None, seed: int
) -> list[tuple[Array, Array]]:
    """Five folds, stratified by class if there are classes, which keep groups together."""
    classes = set(np.unique(columns)) <= {0.0, 1.0}
    task = "binary" if len(names) == 1 else "multilabel"
    labels = strata(columns, task) if classes else columns
    if classes and np.unique(labels, return_counts=True)[1].min() < INNER:
        labels = np.zeros(len(columns))
    return list(splitter(labels, INNER, seed, groups).split(columns, labels, groups))
