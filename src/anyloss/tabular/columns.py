"""The columns of a data frame as arrays of numbers or of text; what cannot be used is an error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from anyloss._core.backend import Array

# The kinds of values that pandas.api.types.infer_dtype distinguishes.
_NUMBERS = {"boolean", "integer", "floating", "mixed-integer-float", "decimal"}
_DATES = {"date", "datetime", "datetime64", "timedelta", "timedelta64", "time", "period"}

_MONTH, _DAY = "(0?[1-9]|1[0-2])", "(0?[1-9]|[12][0-9]|3[01])"
_TIME = r"[T ][0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)? ?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
_DATE = (
    rf"\s*([0-9]{{4}}-{_MONTH}-{_DAY}|[0-9]{{4}}/{_MONTH}/{_DAY}|{_DAY}\.{_MONTH}\.[0-9]{{4}}"
    rf"|[0-9]{{1,2}}/[0-9]{{1,2}}/[0-9]{{4}})"
    rf"({_TIME})?\s*"
)


def as_frame(X: Any) -> Any:
    """`X` as a data frame with distinct column names of type `str`."""
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
            f"expected a table with rows and columns; got {frame.shape[0]} rows and "
            f"{frame.shape[1]} columns: check how the table was read"
        )
    check_distinct(frame.columns)
    return frame


def check_distinct(names: Iterable[str]) -> None:
    """Raise an error for column names that occur more than once.

    >>> check_distinct(["age", "city", "age"])
    Traceback (most recent call last):
        ...
    ValueError: expected distinct column names; got 'age' more than once: rename or drop columns
    """
    index = pd.Index(list(names), dtype=object)
    if repeated := list(index[index.duplicated()].unique()):
        raise ValueError(
            f"expected distinct column names; got {listed(repeated)} more than once: rename or "
            "drop columns"
        )


def values_of(name: str, series: Any) -> Array:
    """A column as an array of float64 or of `str` objects, with NaN for missing values."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf":
        values: Array = series.to_numpy(np.float64)
    else:
        values = _inferred_values(name, series)
    if values.dtype == np.float64 and (infinite := np.isinf(values).sum()):
        raise ValueError(
            f"column {name!r}: expected finite numbers; got {infinite} infinite: replace them with "
            "a large number, or with NaN for a missing value"
        )
    return values


def _inferred_values(name: str, series: Any) -> Array:
    """The same for a column whose kind depends on its values."""
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
        return np.asarray(texts[series.cat.codes])  # the code of a missing value is -1
    if inferred in _DATES:
        raise _dates_error(name, f"{inferred} values", present.iloc[0])
    types = sorted({type(value).__name__ for value in present})
    raise ValueError(
        f"column {name!r}: expected numbers, booleans or text; got values of {listed(types)}: "
        "convert all of them to numbers (pandas.to_numeric) or to text (astype('string')), or drop "
        "the column"
    )


def refuse_dates_and_identifiers(name: str, texts: Any) -> None:
    """Raise an error for a text column that cannot be encoded as categories."""
    if holds_dates(texts):
        raise _dates_error(name, "dates as text", texts.iloc[0])
    if holds_identifiers(texts):
        raise ValueError(
            f"column {name!r}: expected text with repeated values (categories); got "
            f"{texts.nunique()} distinct values in {len(texts)} rows, such as "
            f"{texts.iloc[0][:40]!r}: drop an identifier or free text, and convert numbers with "
            "pandas.to_numeric"
        )


def holds_dates(texts: Any) -> bool:
    """Whether more than nine in ten of these texts are dates; missing values must be removed.

    >>> holds_dates(pd.Series(["2020-01-31", "31.1.2020 10:30"]))
    True
    """
    # The pattern is slow, and the first 20 texts decide for most columns.
    return all(len(x) and x.str.fullmatch(_DATE).mean() > 0.9 for x in (texts[:20], texts))


def holds_identifiers(texts: Any) -> bool:
    """Whether too few of these texts repeat to be categories; missing values must be removed.

    >>> holds_identifiers(pd.Series([f"customer {k}" for k in range(51)]))
    True
    """
    return len(texts) > 50 and texts.nunique() > 0.9 * len(texts)


def _dates_error(name: str, what: str, example: Any) -> ValueError:
    return ValueError(
        f"column {name!r}: expected numbers, booleans or text; got {what}, such as "
        f"{str(example)!r}: convert them with pandas.to_datetime, or drop the column"
    )


def listed(names: Any) -> str:
    """The names in quotes, joined for a message; at most ten of them.

    >>> listed("ab"), listed(range(12))
    ("'a', 'b'", '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more')
    """
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:10]) + (f" and {len(quoted) - 10} more" if len(quoted) > 10 else "")
