"""Data frames as they come from a CSV file, made ready for a classifier of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from numbers import Integral
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from anyloss._core.backend import Array

# What pandas.api.types.infer_dtype calls a column.
_NUMBERS = {"boolean", "integer", "floating", "mixed-integer-float", "decimal"}
_DATES = {"date", "datetime", "datetime64", "timedelta", "timedelta64", "time", "period"}

_MONTH, _DAY = "(0?[1-9]|1[0-2])", "(0?[1-9]|[12][0-9]|3[01])"
_TIME = r"[T ][0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)? ?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
_DATE = (
    rf"\s*([0-9]{{4}}-{_MONTH}-{_DAY}|[0-9]{{4}}/{_MONTH}/{_DAY}|{_DAY}\.{_MONTH}\.[0-9]{{4}}"
    rf"|[0-9]{{1,2}}/[0-9]{{1,2}}/[0-9]{{4}})"
    rf"({_TIME})?\s*"
)

RARE = "infrequent_sklearn"  # the name scikit-learn's OneHotEncoder gives the column


class Numbers(NamedTuple):
    """What is kept of a column of numbers: what fills a gap, and whether there were any."""

    median: float
    gaps: bool


class Texts(NamedTuple):
    """What is kept of a column of text: values with a column of their own, one for the others.

    A gap is a value too, None.
    """

    values: tuple[str | None, ...]
    rare: bool


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn a data frame of numbers, booleans and text, with gaps, into a matrix of numbers.

    Numbers and booleans: gaps take the median, and a column `missingindicator_<name>` says where
    they were, if there were any in `fit`. Text and categories: a column `<name>=<value>` of 0 and 1
    for each value, a gap being a value too; the rarest values share a column where there are more
    than `max_categories`. A value not seen in `fit` goes to that column, or is 0 in all of them.

    Columns with one value only, or none, are dropped. Dates, identifiers, free text, infinite
    numbers and mixed columns are errors that name the column and say what to do with it.

    Args:
        max_categories: columns per text column at most; None for no limit.

    After `fit`: `dropped_` (names), `columns_` (what is kept of each other column, numbers first),
    `feature_names_in_`, `n_features_in_`. `to_json` tells all that, `from_json` rebuilds it.

    >>> frame = pd.DataFrame({"age": [30, None, 50], "city": ["Rome", "Oslo", "Rome"]})
    >>> encoder = TableEncoder().fit(frame)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'missingindicator_age', 'city=Oslo', 'city=Rome']
    >>> encoder.transform(frame).tolist()
    [[30.0, 0.0, 0.0, 1.0], [40.0, 1.0, 1.0, 0.0], [50.0, 0.0, 0.0, 1.0]]
    """

    def __init__(self, *, max_categories: int | None = 20) -> None:
        self.max_categories = max_categories

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn medians and categories from the rows of `X`; `y` is not used."""
        most = self.max_categories
        if most is not None and (not isinstance(most, Integral) or most < 2):
            raise ValueError(f"max_categories must be an integer from 2 on, or None; got {most!r}")
        frame, found = _frame(X), dict[str, Numbers | Texts]()
        for name, series in frame.items():
            values = _plain(name, series)
            gaps = pd.isna(values)
            present = values[~gaps]
            if values.dtype == object:
                _refuse_dates_and_identifiers(name, pd.Series(present, dtype=object))
            if not len(present) or not (gaps.any() or (present != present[0]).any()):
                continue
            if values.dtype == object:
                found[name] = _texts(present, int(gaps.sum()), most)
            else:
                found[name] = Numbers(float(np.median(present)), bool(gaps.any()))
        if not found:
            raise ValueError(
                f"expected a column with two values or more; all of {some(frame)} are constant or "
                f"missing in {len(frame)} rows: give more rows or other columns"
            )
        return self._keep(list(frame), found)

    def _keep(self, names: list[str], found: dict[str, Numbers | Texts]) -> Self:
        self.dropped_: list[str] = [name for name in names if name not in found]
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)
        self.columns_ = {
            name: found[name] for name in names if isinstance(found.get(name), Numbers)
        }
        self.columns_ |= {name: found[name] for name in names if name in found}
        return self

    def transform(self, X: Any) -> Array:
        """The rows of `X` as a matrix of float64 without gaps; columns are found by name."""
        check_is_fitted(self)
        frame = _frame(X)
        missing = [name for name in self.feature_names_in_ if name not in frame]
        missing = [name for name in missing if name in self.columns_]  # a dropped one may be gone
        if missing:
            raise ValueError(
                f"expected the columns of fit; {some(missing)} not found among {some(frame)}: "
                "add or rename columns (values may be missing)"
            )
        if isinstance(X, np.ndarray) and X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"expected an array of {self.n_features_in_} columns, as in fit; got {X.shape[1]}"
            )
        outputs = list(self._outputs())
        encoded = np.zeros((len(frame), len(outputs)))
        places: dict[str, list[int]] = {}
        for k, (name, _) in enumerate(outputs):
            places.setdefault(name, []).append(k)
        for name, kept in self.columns_.items():
            values = _plain(name, frame[name])
            _check_kind(name, values, kept, frame[name])
            if isinstance(kept, Numbers):
                _write_numbers(values, kept, encoded, places[name])
            else:
                _write_texts(values, kept, encoded, places[name])
        return encoded

    def _outputs(self) -> Iterator[tuple[str, str]]:
        """For each column that `transform` returns: the column it is made of, and its name.

        A name that is taken already ("a=b" with value "c" and "a" with value "b=c") is numbered.
        """
        taken: set[str] = set()
        for source, name in self._named():
            free = (f"{name} ({k})" for k in count(2))
            own = name if name not in taken else next(x for x in free if x not in taken)
            taken.add(own)
            yield source, own

    def _named(self) -> Iterator[tuple[str, str]]:
        numbers = {name: x for name, x in self.columns_.items() if isinstance(x, Numbers)}
        yield from ((name, name) for name in numbers)
        yield from ((name, f"missingindicator_{name}") for name, x in numbers.items() if x.gaps)
        for name, kept in self.columns_.items():
            if isinstance(kept, Texts):
                for value in kept.values:
                    yield name, f"{name} is missing" if value is None else f"{name}={value}"
                if kept.rare:
                    yield name, f"{name}={RARE}"

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The names of the columns that `transform` returns."""
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)
        return np.array([name for _, name in self._outputs()], dtype=object)

    def sources(self) -> Array:
        """The name of the column that each column of `transform` is made of.

        >>> frame = pd.DataFrame({"age": [30, None, 50], "city": ["Rome", "Oslo", "Rome"]})
        >>> TableEncoder().fit(frame).sources().tolist()
        ['age', 'age', 'city', 'city']
        """
        check_is_fitted(self)
        return np.array([source for source, _ in self._outputs()], dtype=object)

    def to_json(self) -> dict[str, Any]:
        """All that `fit` has learned, in what JSON can hold.

        >>> frame = pd.DataFrame({"age": [30, None, 50], "city": ["Rome", "Oslo", "Rome"]})
        >>> stored = TableEncoder().fit(frame).to_json()
        >>> stored["columns"]
        {'age': {'median': 40.0, 'gaps': True}, 'city': {'values': ['Oslo', 'Rome'], 'rare': False}}
        >>> TableEncoder.from_json(stored).transform(frame)[1].tolist()
        [40.0, 1.0, 1.0, 0.0]
        """
        check_is_fitted(self)
        columns = {name: kept._asdict() for name, kept in self.columns_.items()}
        for kept in columns.values():
            kept |= {"values": list(kept["values"])} if "values" in kept else {}
        names = self.feature_names_in_.tolist()
        return {"max_categories": self.max_categories, "names": names, "columns": columns}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """The encoder that `to_json` was called of."""
        found: dict[str, Numbers | Texts] = {
            name: Numbers(float(kept["median"]), bool(kept["gaps"]))
            if "median" in kept
            else Texts(tuple(kept["values"]), bool(kept["rare"]))
            for name, kept in stored["columns"].items()
        }
        return cls(max_categories=stored["max_categories"])._keep(stored["names"], found)


def for_tables(classifier: Any, **encoder_parameters: Any) -> Pipeline:
    """A pipeline of `TableEncoder(**encoder_parameters)` and the classifier, to fit data frames.

    >>> from sklearn.linear_model import LogisticRegression
    >>> frame = pd.DataFrame({"age": [30, None, 50, 20], "city": ["Rome", "Oslo", "Rome", "Oslo"]})
    >>> model = for_tables(LogisticRegression()).fit(frame, [1, 0, 1, 0])
    >>> model.predict(pd.DataFrame({"city": ["Rome", "Oslo"], "age": [40, None]})).tolist()
    [1, 0]
    """
    return make_pipeline(TableEncoder(**encoder_parameters), classifier)


def _texts(present: Array, gaps: int, most: int | None) -> Texts:
    """The most frequent values in the order of the alphabet, a gap last.

    As in scikit-learn's OneHotEncoder, the last of `most` columns is for all others, unless all
    fit in before it; of equally frequent values the later ones stay.
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


def _check_kind(name: str, values: Array, kept: Numbers | Texts, given: Any) -> None:
    numbers = isinstance(kept, Numbers)
    if (values.dtype == np.float64) != numbers and not pd.isna(values).all():
        raise ValueError(
            f"column {name!r}: expected {'numbers' if numbers else 'text'}, as in fit; got dtype "
            f"{given.dtype}, such as {given.dropna().iloc[0]!r}: read or convert it as for fit"
        )


def _write_numbers(values: Array, kept: Numbers, encoded: Array, places: list[int]) -> None:
    gaps = np.isnan(values)
    encoded[:, places[0]] = np.where(gaps, kept.median, values)
    if kept.gaps:
        encoded[:, places[1]] = gaps


def _write_texts(values: Array, kept: Texts, encoded: Array, places: list[int]) -> None:
    """A 1 in the column of each value; what has none goes to the column of rare values, if any."""
    known = [value for value in kept.values if value is not None]
    at = pd.Index(known, dtype=object).get_indexer_for(values)
    if None in kept.values:
        at[pd.isna(values)] = len(known)
    if kept.rare:
        at[at < 0] = len(kept.values)
    rows = np.flatnonzero(at >= 0)
    encoded[rows, np.array(places)[at[rows]]] = 1.0


def _frame(X: Any) -> Any:
    """`X` as a data frame with distinct names of type `str`, or an error."""
    if isinstance(X, pd.DataFrame):
        frame = X.set_axis([str(name) for name in X.columns], axis=1)
    elif isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf":
        frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    else:
        detail = f" of {X.dtype}, shape {X.shape}" if isinstance(X, np.ndarray) else ""
        raise TypeError(
            "expected a pandas DataFrame or a NumPy array of numbers with rows and columns; got "
            f"{type(X).__name__}{detail}: convert it with pandas.DataFrame(...)"
        )
    if 0 in frame.shape:
        raise ValueError(
            f"expected rows and columns; got {frame.shape[0]} rows and {frame.shape[1]} columns: "
            "check how the table was read"
        )
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()].unique()
        raise ValueError(f"expected distinct column names; got {some(twice)} twice: rename or drop")
    return frame


def _plain(name: str, series: Any) -> Array:
    """A column as float64 or as `str` objects, with NaN for gaps."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf":
        values: Array = series.to_numpy(np.float64)
    else:
        values = _unpacked(name, series)
    if values.dtype == np.float64 and (infinite := np.isinf(values).sum()):
        raise ValueError(
            f"column {name!r}: expected finite numbers; got {infinite} infinite: replace them by a "
            "large number, or by NaN for missing"
        )
    return values


def _unpacked(name: str, series: Any) -> Array:
    """The same for a column whose values have to be looked at."""
    present = series.dropna()
    inferred = pd.api.types.infer_dtype(present)
    if present.empty:
        return np.full(len(series), np.nan)
    if inferred in _NUMBERS:
        return np.asarray(series.to_numpy(np.float64, na_value=np.nan))
    if inferred == "string":
        return np.asarray(series.to_numpy(object, na_value=np.nan))
    if inferred == "categorical":
        texts = np.array([*map(str, series.cat.categories), np.nan], dtype=object)
        return np.asarray(texts[series.cat.codes])  # the code of a gap is -1
    if inferred in _DATES:
        raise _dates_error(name, f"{inferred} values", present.iloc[0])
    types = sorted({type(value).__name__ for value in present})
    raise ValueError(
        f"column {name!r}: expected numbers, booleans or text; got values of {some(types)}: make "
        "them all numbers (pandas.to_numeric) or all text (astype('string')), or drop the column"
    )


def _refuse_dates_and_identifiers(name: str, texts: Any) -> None:
    if holds_dates(texts):
        raise _dates_error(name, "dates as text", texts.iloc[0])
    if holds_identifiers(texts):
        raise ValueError(
            f"column {name!r}: expected text that repeats, as categories do; got {texts.nunique()} "
            f"distinct values in {len(texts)} rows, such as {texts.iloc[0][:40]!r}. For an "
            "identifier or free text, drop the column; for numbers, use pandas.to_numeric"
        )


def holds_dates(texts: Any) -> bool:
    """Whether nine in ten of these texts, without gaps, are dates.

    >>> holds_dates(pd.Series(["2020-01-31", "31.1.2020 10:30"]))
    True
    """
    # A few tell most columns apart; the pattern is slow.
    return all(len(x) and x.str.fullmatch(_DATE).mean() > 0.9 for x in (texts[:20], texts))


def holds_identifiers(texts: Any) -> bool:
    """Whether these texts, without gaps, are too many and too different to be categories.

    >>> holds_identifiers(pd.Series([f"customer {k}" for k in range(51)]))
    True
    """
    return len(texts) > 50 and texts.nunique() > 0.9 * len(texts)


def _dates_error(name: str, what: str, example: Any) -> ValueError:
    return ValueError(
        f"column {name!r}: expected numbers, booleans or text; got {what}, such as "
        f"{str(example)!r}: turn them into numbers (age in days, year, month, weekday), or drop "
        "the column"
    )


def some(names: Any) -> str:
    """The names in quotes, ten at most.

    >>> some("ab"), some(range(12))
    ("'a', 'b'", '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more')
    """
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:10]) + (f" and {len(quoted) - 10} more" if len(quoted) > 10 else "")
