"""`TableEncoder`: a data frame of numbers and text as a matrix of numbers."""

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
from anyloss.tabular.columns import as_frame, listed, refuse_dates_and_identifiers, values_of
from anyloss.tabular.dates import as_dates, date_parts, is_dates

RARE = "infrequent_sklearn"  # the name that scikit-learn's OneHotEncoder gives this column


class Numbers(NamedTuple):
    """The encoding of a column of numbers."""

    median: float  # replaces missing values
    gaps: bool  # whether `fit` saw missing values


class Texts(NamedTuple):
    """The encoding of a column of text."""

    values: tuple[str | None, ...]  # those with a column of their own; None is a missing value
    rare: bool  # whether all other values share one more column


class Dates(NamedTuple):
    """The encoding of a column of dates."""

    first: str  # from which days are counted
    parts: tuple[str, ...]  # those of `dates.PARTS` that differ between rows
    medians: tuple[float, ...]  # replace missing values
    gaps: bool  # whether `fit` saw missing values


Kept = Numbers | Dates | Texts


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode a data frame of numbers, booleans, dates and text as a matrix of numbers.

    Numbers and booleans keep their value. A missing value is replaced by the median, and a column
    `missingindicator_<name>` marks it, if there were missing values in `fit`. Text and categories
    are one-hot encoded: one column `<name>=<value>` of 0 and 1 per value, where a missing value
    counts as a value. A column with `max_categories` values or more gets `max_categories` columns,
    the last of which is shared by the rarest values. A value that `fit` has not seen is treated as
    a rare one; if there is no such column, it is 0 in all columns. Dates become the columns
    `<name>: year`, `month`, `weekday` (Monday is 0), `days` (since the first date) and `hour`, of
    which constant ones are left out.

    Columns that are constant or empty are dropped. Dates in text, identifiers, infinite numbers
    and columns of mixed types raise an error that names the column and what to do about it.

    Fitted attributes: `dropped_` (the names of the dropped columns), `columns_` (the encoding of
    each other column, numbers first), `feature_names_in_` and `n_features_in_`.

    Args:
        max_categories (int or None): the largest number of encoded columns per text column; None
            for no limit. Default: 20.

    Raises:
        ValueError: in `fit`, if `max_categories` is below 2, or if a column cannot be encoded.
        TypeError: in `fit` and `transform`, if the table is neither a data frame nor an array of
            numbers.

    Examples:
        >>> import pandas as pd
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
        """Learn the medians and the categories of the columns.

        Args:
            X (DataFrame or array): the training rows, of shape (n_samples, n_columns).
            y (None): ignored; for pipelines.

        Returns:
            TableEncoder: the encoder itself.
        """
        most = self.max_categories
        if most is not None and (not isinstance(most, Integral) or most < 2):
            raise ValueError(
                f"max_categories must be an integer of at least 2, or None; got {most!r}"
            )
        frame, found = as_frame(X), dict[str, Kept]()
        for name, series in frame.items():
            if is_dates(series):
                if series.nunique(dropna=False) > 1:
                    found[name] = _dates(as_dates(series))
                continue
            values = values_of(name, series)
            gaps = pd.isna(values)
            present = values[~gaps]
            if values.dtype == object:
                refuse_dates_and_identifiers(name, pd.Series(present, dtype=object))
            if not len(present) or not (gaps.any() or (present != present[0]).any()):
                continue
            if values.dtype == object:
                found[name] = _texts(present, int(gaps.sum()), most)
            else:
                found[name] = Numbers(float(np.median(present)), bool(gaps.any()))
        if not found:
            raise ValueError(
                f"expected a column with two different values; all of {listed(frame)} are constant "
                f"or empty in {len(frame)} rows: provide more rows or other columns"
            )
        return self._keep(list(frame), found)

    def _keep(self, names: list[str], found: dict[str, Kept]) -> Self:
        self.dropped_: list[str] = [name for name in names if name not in found]
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)
        self.columns_: dict[str, Kept] = {
            name: found[name]
            for kind in (Numbers, Dates, Texts)
            for name in names
            if isinstance(found.get(name), kind)
        }
        return self

    def transform(self, X: Any) -> Array:
        """Encode the rows of a table; columns are matched by name, and further ones are ignored.

        Args:
            X (DataFrame or array): the rows, of shape (n_samples, n_columns).

        Returns:
            array: float64 without missing values, of shape (n_samples, n_encoded_columns).
        """
        check_is_fitted(self)
        frame = as_frame(X)
        missing = [name for name in self.feature_names_in_ if name not in frame]
        missing = [name for name in missing if name in self.columns_]  # a dropped one may be absent
        if missing:
            raise ValueError(
                f"expected the columns of fit; {listed(missing)} not found among {listed(frame)}: "
                "add or rename columns (their values may be missing)"
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
            if isinstance(kept, Dates):
                _write_dates(name, frame[name], kept, encoded, places[name])
                continue
            values = values_of(name, frame[name])
            _check_kind(name, values, kept, frame[name])
            if isinstance(kept, Numbers):
                _write_numbers(values, kept, encoded, places[name])
            else:
                _write_texts(values, kept, encoded, places[name])
        return encoded

    def _outputs(self) -> Iterator[tuple[str, str]]:
        """For each encoded column, the name of its source column and its own name.

        A second column of the same name ("a=b" with value "c" and "a" with value "b=c") gets a
        number.
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
            if isinstance(kept, Dates):
                yield from ((name, f"{name}: {part}") for part in kept.parts)
                if kept.gaps:
                    yield name, f"missingindicator_{name}"
            if isinstance(kept, Texts):
                for value in kept.values:
                    yield name, f"{name} is missing" if value is None else f"{name}={value}"
                if kept.rare:
                    yield name, f"{name}={RARE}"

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The names of the encoded columns.

        Args:
            input_features (array of str, optional): ignored, except that it must equal
                `feature_names_in_`.

        Returns:
            array of str: one name per column that `transform` returns.
        """
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)
        return np.array([name for _, name in self._outputs()], dtype=object)

    def sources(self) -> Array:
        """The name of the source column of each encoded column.

        Returns:
            array of str: one name per column that `transform` returns.

        Examples:
            >>> frame = pd.DataFrame({"age": [30, None, 50], "city": ["Rome", "Oslo", "Rome"]})
            >>> TableEncoder().fit(frame).sources().tolist()
            ['age', 'age', 'city', 'city']
        """
        check_is_fitted(self)
        return np.array([source for source, _ in self._outputs()], dtype=object)

    def to_json(self) -> dict[str, Any]:
        """The fitted encoder as a dictionary that JSON can hold; see `from_json`.

        Returns:
            dict: the parameter, the names of the columns and their encodings.

        Examples:
            >>> frame = pd.DataFrame({"age": [30, None, 50], "city": ["Rome", "Oslo", "Rome"]})
            >>> stored = TableEncoder().fit(frame).to_json()
            >>> stored["columns"]["city"]
            {'values': ['Oslo', 'Rome'], 'rare': False}
            >>> TableEncoder.from_json(stored).transform(frame)[1].tolist()
            [40.0, 1.0, 1.0, 0.0]
        """
        check_is_fitted(self)
        columns = {name: kept._asdict() for name, kept in self.columns_.items()}
        for kept in columns.values():
            kept |= {key: list(x) for key, x in kept.items() if isinstance(x, tuple)}
        names = self.feature_names_in_.tolist()
        return {"max_categories": self.max_categories, "names": names, "columns": columns}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """The encoder that `to_json` has stored.

        Args:
            stored (dict): the result of `to_json`.

        Returns:
            TableEncoder: a fitted encoder.
        """
        found = {name: _from_json(kept) for name, kept in stored["columns"].items()}
        return cls(max_categories=stored["max_categories"])._keep(stored["names"], found)


def for_tables(classifier: Any, **encoder_parameters: Any) -> Pipeline:
    """Combine a classifier with a `TableEncoder`, so that it can be fitted to data frames.

    The columns of the data frames may hold numbers, booleans, text and missing values.

    Args:
        classifier (estimator): a scikit-learn classifier of numbers.
        **encoder_parameters (object): the parameters of `TableEncoder`, such as
            `max_categories=50`.

    Returns:
        Pipeline: `make_pipeline(TableEncoder(**encoder_parameters), classifier)`.

    Raises:
        TypeError: if a parameter is not one of `TableEncoder`.

    Examples:
        >>> import pandas as pd
        >>> from sklearn.linear_model import LogisticRegression
        >>> cities = ["Rome", "Oslo", "Rome", "Oslo"]
        >>> frame = pd.DataFrame({"age": [30, None, 50, 20], "city": cities})
        >>> model = for_tables(LogisticRegression()).fit(frame, [1, 0, 1, 0])
        >>> model.predict(pd.DataFrame({"city": ["Rome", "Oslo"], "age": [40, None]})).tolist()
        [1, 0]
    """
    return make_pipeline(TableEncoder(**encoder_parameters), classifier)


def _from_json(kept: dict[str, Any]) -> Kept:
    if "median" in kept:
        return Numbers(float(kept["median"]), bool(kept["gaps"]))
    if "first" in kept:
        medians = tuple(map(float, kept["medians"]))
        return Dates(str(kept["first"]), tuple(kept["parts"]), medians, bool(kept["gaps"]))
    return Texts(tuple(kept["values"]), bool(kept["rare"]))


def _dates(dates: Any) -> Dates:
    """The first date, and the parts that differ between rows, with their medians."""
    first = dates.min().floor("D")
    found = {name: x[~np.isnan(x)] for name, x in date_parts(dates, first).items()}
    kept = {name: float(np.median(x)) for name, x in found.items() if np.ptp(x) > 0}
    kept = kept or {"days": 0.0}  # one date, and gaps
    return Dates(first.isoformat(), tuple(kept), tuple(kept.values()), bool(dates.isna().any()))


def _write_dates(name: str, given: Any, kept: Dates, encoded: Array, places: list[int]) -> None:
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


def _texts(present: Array, gaps: int, most: int | None) -> Texts:
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


def _check_kind(name: str, values: Array, kept: Kept, given: Any) -> None:
    numbers = isinstance(kept, Numbers)
    if (values.dtype == np.float64) != numbers and not pd.isna(values).all():
        raise ValueError(
            f"column {name!r}: expected {'numbers' if numbers else 'text'}, as in fit; got dtype "
            f"{given.dtype}, such as {given.dropna().iloc[0]!r}: read or convert the column as for "
            "fit"
        )


def _write_numbers(values: Array, kept: Numbers, encoded: Array, places: list[int]) -> None:
    gaps = np.isnan(values)
    encoded[:, places[0]] = np.where(gaps, kept.median, values)
    if kept.gaps:
        encoded[:, places[1]] = gaps


def _write_texts(values: Array, kept: Texts, encoded: Array, places: list[int]) -> None:
    """Write a 1 in the column of each value, or in that of the rare values, if there is one."""
    known = [value for value in kept.values if value is not None]
    at = pd.Index(known, dtype=object).get_indexer_for(values)
    if None in kept.values:
        at[pd.isna(values)] = len(known)
    if kept.rare:
        at[at < 0] = len(kept.values)
    rows = np.flatnonzero(at >= 0)
    encoded[rows, np.array(places)[at[rows]]] = 1.0
