"""Data frames as they come from a CSV file, made ready for a classifier of numbers."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from anyloss.arithmetic import Array

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

    After `fit`: `dropped_` (names), `encoder_` (the fitted `ColumnTransformer`),
    `feature_names_in_`, `n_features_in_`.

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
        frame = _plain_frame(_frame(X))
        for name, values in frame.select_dtypes(object).items():
            _refuse_dates_and_identifiers(name, values.dropna())
        varied = frame.nunique(dropna=False) > 1
        if not varied.any():
            raise ValueError(
                f"expected a column with two values or more; all of {_some(frame)} are constant or "
                f"missing in {len(frame)} rows: give more rows or other columns"
            )
        self.dropped_: list[str] = frame.columns[~varied].tolist()
        self.feature_names_in_ = frame.columns.to_numpy(dtype=object)
        self.n_features_in_ = frame.shape[1]
        self.encoder_ = _encoder(frame.loc[:, varied], most)
        return self

    def transform(self, X: Any) -> Array:
        """The rows of `X` as a matrix of float64 without gaps; columns are found by name."""
        check_is_fitted(self)
        frame = _frame(X)
        missing = [name for name in self.feature_names_in_ if name not in frame]
        if missing:
            raise ValueError(
                f"expected the columns of fit; {_some(missing)} not found among {_some(frame)}: "
                "add or rename columns (values may be missing)"
            )
        if isinstance(X, np.ndarray) and X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"expected an array of {self.n_features_in_} columns, as in fit; got {X.shape[1]}"
            )
        kinds = {name: kind for kind, _, names in self.encoder_.transformers for name in names}
        plain = _plain_frame(frame[list(kinds)])
        for name, kind in kinds.items():
            dtype = np.float64 if kind == "numbers" else object
            if plain[name].isna().all():
                plain[name] = plain[name].astype(dtype)
            elif plain[name].dtype != dtype:
                raise ValueError(
                    f"column {name!r}: expected {kind}, as in fit; got dtype {frame[name].dtype}, "
                    f"such as {frame[name].dropna().iloc[0]!r}: read or convert it as for fit"
                )
        return np.asarray(self.encoder_.transform(plain), dtype=np.float64)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The names of the columns that `transform` returns."""
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)
        names: Array = self.encoder_.get_feature_names_out()
        return names


def for_tables(classifier: Any, **encoder_parameters: Any) -> Pipeline:
    """A pipeline of `TableEncoder(**encoder_parameters)` and the classifier, to fit data frames.

    >>> from sklearn.linear_model import LogisticRegression
    >>> frame = pd.DataFrame({"age": [30, None, 50, 20], "city": ["Rome", "Oslo", "Rome", "Oslo"]})
    >>> model = for_tables(LogisticRegression()).fit(frame, [1, 0, 1, 0])
    >>> model.predict(pd.DataFrame({"city": ["Rome", "Oslo"], "age": [40, None]})).tolist()
    [1, 0]
    """
    return make_pipeline(TableEncoder(**encoder_parameters), classifier)


def _encoder(frame: Any, max_categories: int | None) -> Any:
    numbers = SimpleImputer(strategy="median", add_indicator=True)
    text = OneHotEncoder(
        handle_unknown="infrequent_if_exist",
        max_categories=max_categories,
        sparse_output=False,
        feature_name_combiner=_feature_name,
    )
    steps = [
        ("numbers", numbers, frame.select_dtypes(np.float64).columns.tolist()),
        ("text", text, frame.select_dtypes(object).columns.tolist()),
    ]
    encoder = ColumnTransformer(steps, sparse_threshold=0, verbose_feature_names_out=False)
    return encoder.set_output(transform="default").fit(frame)


def _feature_name(column: str, value: Any) -> str:
    return f"{column}={value}" if isinstance(value, str) else f"{column} is missing"


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
        raise ValueError(
            f"expected distinct column names; got {_some(twice)} twice: rename or drop"
        )
    return frame


def _plain_frame(frame: Any) -> Any:
    """Each column as float64 or as `str` objects, with NaN for gaps."""
    return pd.DataFrame({name: _plain(name, values) for name, values in frame.items()})


def _plain(name: str, series: Any) -> Any:
    present = series.dropna()
    inferred = pd.api.types.infer_dtype(present)
    if present.empty:
        values: Array = np.full(len(series), np.nan)
    elif inferred in _NUMBERS:
        values = series.to_numpy(np.float64, na_value=np.nan)
    elif inferred == "string":
        values = series.to_numpy(object, na_value=np.nan)
    elif inferred == "categorical":
        texts = np.array([*map(str, series.cat.categories), np.nan], dtype=object)
        values = texts[series.cat.codes]  # the code of a gap is -1
    elif inferred in _DATES:
        raise _dates_error(name, f"{inferred} values", present.iloc[0])
    else:
        types = sorted({type(value).__name__ for value in present})
        raise ValueError(
            f"column {name!r}: expected numbers, booleans or text; got values of {_some(types)}: "
            "make them all numbers (pandas.to_numeric) or all text (astype('string')), or drop the "
            "column"
        )
    if values.dtype == np.float64 and (infinite := np.isinf(values).sum()):
        raise ValueError(
            f"column {name!r}: expected finite numbers; got {infinite} infinite: replace them by a "
            "large number, or by NaN for missing"
        )
    return pd.Series(values, index=series.index, dtype=values.dtype)


def _refuse_dates_and_identifiers(name: str, texts: Any) -> None:
    if texts.str.fullmatch(_DATE).mean() > 0.9:
        raise _dates_error(name, "dates as text", texts.iloc[0])
    distinct = texts.nunique()
    if len(texts) > 50 and distinct > 0.9 * len(texts):
        raise ValueError(
            f"column {name!r}: expected text that repeats, as categories do; got {distinct} "
            f"distinct values in {len(texts)} rows, such as {texts.iloc[0][:40]!r}. For an "
            "identifier or free text, drop the column; for numbers, use pandas.to_numeric"
        )


def _dates_error(name: str, what: str, example: Any) -> ValueError:
    return ValueError(
        f"column {name!r}: expected numbers, booleans or text; got {what}, such as "
        f"{str(example)!r}: turn them into numbers (age in days, year, month, weekday), or drop "
        "the column"
    )


def _some(names: Any) -> str:
    """The names in quotes, ten at most."""
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:10]) + (f" and {len(quoted) - 10} more" if len(quoted) > 10 else "")
