"""`TableEncoder`: a data frame of numbers and text as a matrix of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from numbers import Integral
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from anyloss._core.backend import Array
from anyloss.tabular.columns import as_frame, listed, refuse_dates_and_identifiers, values_of
from anyloss.tabular.dates import as_dates, is_dates
from anyloss.tabular.encodings import (
    KINDS,
    RARE,
    Dates,
    Kept,
    Means,
    Numbers,
    Texts,
    check_kind,
    cross_fitted,
    date_encoding,
    encoding_in_words,
    from_json,
    mean_encoding,
    text_encoding,
    write_dates,
    write_means,
    write_numbers,
    write_texts,
)

SEED = 0  # of the folds of `fit_transform`


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode a data frame of numbers, booleans, dates and text as a matrix of numbers.

    Numbers and booleans keep their value. A missing value is replaced by the median, and a column
    `missingindicator_<name>` marks it, if there were missing values in `fit`. Text and categories
    are one-hot encoded: one column `<name>=<value>` of 0 and 1 per value, where a missing value
    counts as a value. A value that `fit` has not seen is 0 in all of them. A column with more than
    `max_categories` values is encoded by the mean label of each value, as in scikit-learn's
    `TargetEncoder`: one column `<name>: mean label`, or one for each of several classes or labels.
    As there, `fit_transform` encodes each row by the labels of other rows (in five folds), so that
    `fit(X, y).transform(X)` is not for training rows. Without labels, a column with
    `max_categories` values or more gets `max_categories` columns, the last of which is shared by
    the rarest values and by those that `fit` has not seen.

    Dates become the columns `<name>: year`, `month`, `weekday` (Monday is 0), `days` (since the
    first date) and `hour`, of which constant ones are left out.

    Columns that are constant or empty are dropped. Dates in text, identifiers, infinite numbers
    and columns of mixed types raise an error that names the column and what to do about it.

    Fitted attributes: `dropped_` (the names of the dropped columns), `columns_` (the encoding of
    each other column, numbers first), `feature_names_in_` and `n_features_in_`.

    Args:
        max_categories (int or None): the largest number of one-hot columns per text column; None
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
        """Learn the medians, the categories and their mean labels.

        Args:
            X (DataFrame or array): the training rows, of shape (n_samples, n_columns).
            y (array, optional): the labels, of shape (n_samples,), or (n_samples, n_labels) of 0
                and 1.

        Returns:
            TableEncoder: the encoder itself.
        """
        most = self.max_categories
        check_most(most)
        frame, found = as_frame(X), dict[str, Kept]()
        for name, series in frame.items():
            if is_dates(series):
                if series.nunique(dropna=False) > 1:
                    found[name] = date_encoding(as_dates(series))
                continue
            values = values_of(name, series)
            gaps = pd.isna(values)
            present = values[~gaps]
            if values.dtype == object:
                refuse_dates_and_identifiers(name, pd.Series(present, dtype=object))
            if not len(present) or not (gaps.any() or (present != present[0]).any()):
                continue
            if values.dtype == object:
                size = len(set(present)) + bool(gaps.any())
                if y is not None and most is not None and size > most:
                    found[name] = mean_encoding(values, y)
                else:
                    most_columns = most if y is None else None
                    found[name] = text_encoding(present, int(gaps.sum()), most_columns)
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
            for kind in KINDS
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
                write_dates(name, frame[name], kept, encoded, places[name])
                continue
            values = values_of(name, frame[name])
            check_kind(name, values, kept, frame[name])
            if isinstance(kept, Numbers):
                write_numbers(values, kept, encoded, places[name])
            elif isinstance(kept, Texts):
                write_texts(values, kept, encoded, places[name])
            else:
                write_means(values, kept, encoded, places[name])
        return encoded

    def fit_transform(self, X: Any, y: Any = None, groups: Any = None) -> Array:
        """Fit the encoder and encode the training rows; mean labels are those of other rows.

        Args:
            X (DataFrame or array): the training rows, of shape (n_samples, n_columns).
            y (array, optional): their labels, as in `fit`.
            groups (array, optional): the group of each row. The mean labels of a row are those of
                rows of other groups.

        Returns:
            array: float64 without missing values, of shape (n_samples, n_encoded_columns).
        """
        encoded, sources = self.fit(X, y).transform(X), self.sources()
        frame = as_frame(X)
        for name, kept in self.columns_.items():
            if isinstance(kept, Means):
                values = values_of(name, frame[name])
                encoded[:, sources == name] = cross_fitted(values, y, groups, SEED)
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
            if isinstance(kept, Means):
                yield from ((name, f"{name}: mean label {x}".rstrip()) for x in kept.classes)

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

    def in_words(self) -> dict[str, str]:
        """How each column is encoded, in words.

        Returns:
            dict: the words by the name of the column.

        Examples:
            >>> frame = pd.DataFrame({"age": [30, None, 50], "city": ["Rome", "Oslo", "Rome"]})
            >>> TableEncoder().fit(frame).in_words()
            {'age': 'number, gaps marked', 'city': 'one-hot, 2 columns'}
        """
        return {name: encoding_in_words(kept) for name, kept in self.columns_.items()}

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
        found = {name: from_json(kept) for name, kept in stored["columns"].items()}
        return cls(max_categories=stored["max_categories"])._keep(stored["names"], found)


def check_most(most: int | None) -> None:
    """Raise an error for a limit of categories that is not one."""
    if most is not None and (not isinstance(most, Integral) or most < 2):
        raise ValueError(f"max_categories must be an integer of at least 2, or None; got {most!r}")


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
