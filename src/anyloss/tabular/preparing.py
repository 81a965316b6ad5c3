"""The preparation of a table: the label, and the columns that cannot be used."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from anyloss._core.backend import Array
from anyloss.tabular.columns import check_distinct, holds_identifiers, listed
from anyloss.tabular.encoder import TableEncoder
from anyloss.tabular.labels import LEAST, Outcome, alike_classes, read_labels
from anyloss.tabular.messages import information
from anyloss.tabular.options import TableOptions
from anyloss.tabular.reading import read_table
from anyloss.tabular.readings import Reading, read_columns
from anyloss.tabular.sources import local_file
from anyloss.tabular.splitting import FEW, row_keys

IDENTIFIES = "values hardly ever repeat"
ROWS_OF_ONE = 1.5  # rows per value, on average, from which on an identifier is shared


@dataclass(frozen=True)
class PreparedTable:
    """The features, the labels as 0 and 1, and warnings about the data."""

    frame: Any
    y: Array  # (n,) for two classes, else (n, classes)
    outcome: Outcome
    readings: list[Reading]  # of all columns but the labels
    dropped: list[str]
    warnings: list[str]
    groups: Array | None = None  # the number of each row's group, whose rows stay together
    times: Array | None = None  # when each row was observed, as numbers
    costs: Any = None  # the columns of costs, features or not

    @cached_property
    def keys(self) -> Array:
        """A number for each row, the same for identical rows."""
        return row_keys(self.frame)

    def take(self, rows: Array) -> Any:
        """The features of these rows, whose positions are in ascending order."""
        return self.frame.iloc[rows]

    def parts(self, rows: Array) -> Iterator[Any]:
        """The features of these rows in parts that fit into memory."""
        yield self.take(rows)

    def sampled(self, rows: Array, seed: int) -> Array:
        """Those of the rows that are held in memory at once: all of a table that is in memory."""
        return rows

    def leave_out(self, names: Sequence[str], why: str) -> None:
        """Keep that columns are not used, and why; the example of an identifier is a person."""
        self.dropped.extend(names)
        for k, reading in enumerate(self.readings):
            if reading.name in names:
                example = "" if why == IDENTIFIES else reading.example
                self.readings[k] = replace(reading, use=why, example=example)

    def leave_out_numbered(self, names: Sequence[str]) -> None:
        """Keep that columns only number the rows; the table gets a message about them."""
        if names:
            text = f"columns that only number the rows are not used: {listed(names)}"
            self.warnings.append(information(text))
        self.leave_out(names, "only numbers the rows")

    def encoded(self, words: dict[str, str]) -> None:
        """Keep how the columns are encoded, in words."""
        for k, reading in enumerate(self.readings):
            self.readings[k] = replace(reading, encoding=words.get(reading.name, ""))


def load_table(source: Any, options: TableOptions) -> PreparedTable:
    """Read a table, if it is a file, and prepare it."""
    if not isinstance(source, str | Path):
        return prepare_table(source, options)
    with local_file(source) as path:  # its lines are looked up in the preparation
        frame = read_table(
            path, label=options.targets, separator=options.separator, encoding=options.encoding,
            sheet=options.sheet,
        )  # fmt: skip
        return prepare_table(frame, options)


def prepare_table(frame: Any, options: TableOptions) -> PreparedTable:
    """Separate the labels from the features, and remove rows without a label.

    >>> frame = pd.DataFrame({"age": range(60, 30, -1), "left": ["no"] * 20 + ["yes"] * 10})
    >>> table = prepare_table(frame, TableOptions(("left",)))
    >>> table.outcome.positive, int(table.y.sum()), list(table.frame)
    ('yes', 10, ['age'])
    """
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(
            f"expected the path of a file or a pandas DataFrame; got {type(frame).__name__}"
        )
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    frame = frame.reset_index(drop=True)  # the position of each row in the table
    check_distinct(frame.columns)
    others = unused_columns(frame.columns, options)
    labels = read_label_columns(frame[label_columns(options)], options)
    warnings = [*frame.attrs.get("warnings", []), *labels.warnings]
    targets = list(options.targets)
    frame = frame if labels.used.all() else frame[labels.used]
    check_features([x for x in frame if x not in (*targets, *others)], options)
    apart = [x for x in options.costs if x in others]
    others = [x for x in others if x not in apart]
    frame = frame.drop(columns=[*targets, *others])
    frame, readings, more = read_columns(frame, frame.attrs.get("decimal", "."))
    numbered = [x for x in frame if x not in apart and numbers_rows(x, frame[x])]
    table = PreparedTable(
        frame.drop(columns=[*numbered, *apart]), labels.y, labels.outcome, readings, others,
        warnings + more, labels.groups, labels.times, frame[list(options.costs)],
    )  # fmt: skip
    table.leave_out(apart, "costs only")
    table.leave_out_numbered(numbered)
    if options.group is None:
        table.warnings.extend(shared_identifiers(table.frame))
    return table


class LabelColumns(NamedTuple):
    """What the columns besides the features hold, for the rows that have a label."""

    used: Array  # which rows of the table have a label
    y: Array
    outcome: Outcome
    groups: Array | None
    times: Array | None
    warnings: list[str]


def label_columns(options: TableOptions) -> list[str]:
    """The label columns, and those of groups and times."""
    others = [x for x in (options.group, options.time) if x is not None]
    return list(dict.fromkeys([*options.targets, *others]))


def read_label_columns(frame: Any, options: TableOptions) -> LabelColumns:
    """Read the columns of `label_columns`; rows without a label are not used."""
    targets = list(options.targets)
    used, warnings = frame[targets].notna().all(axis=1).to_numpy(), list[str]()
    if not used.all():
        warnings.append(
            information(
                f"rows without a value in {listed(targets)} are not used ({(~used).sum()} of "
                f"{len(frame)} rows)"
            )
        )
        frame = frame[used]
    y, outcome = read_labels(frame, targets, options.positive, options.average)
    warnings += alike_classes(frame, outcome)
    groups, times = _groups(frame, options.group), _times(frame, options.time)
    return LabelColumns(used, y, outcome, groups, times, warnings)


def unused_columns(names: Iterable[str], options: TableOptions) -> list[str]:
    """The columns that are neither labels nor features; all names of the options are checked."""
    known, others = list(names), [*options.drop]
    others += [x for x in (options.id_column, options.group, options.time) if x is not None]
    for name in (*options.targets, *others, *options.costs):
        check_column(name, known)
        if name in options.targets and name in others:
            raise ValueError(
                f"{name!r} is a label column: it cannot be dropped, identify the rows, be their "
                "group or be their time"
            )
        if name in options.targets and name in options.costs:
            raise ValueError(f"{name!r} is a label column and cannot be a cost (--fn-cost)")
    return list(dict.fromkeys(others))


def check_features(names: Sequence[str], options: TableOptions) -> None:
    """Raise an error if a table has no features."""
    if not len(names):
        raise ValueError(
            f"expected feature columns besides {listed(options.targets)}; got none: drop fewer "
            "columns"
        )


def _groups(frame: Any, column: str | None) -> Array | None:
    """The number of each row's group; a row without one is a group of its own."""
    if column is None:
        return None
    codes, values = pd.factorize(frame[column])
    alone = len(values) + np.arange(len(codes))
    groups = np.unique(np.where(codes < 0, alone, codes), return_inverse=True)[1]
    if groups.max() + 1 < LEAST:
        raise ValueError(
            f"the group column {column!r} must have at least {LEAST} groups; got {len(values)}: "
            "name the column of the customers, patients or places to which rows belong (--group)"
        )
    return np.asarray(groups)


def _times(frame: Any, column: str | None) -> Array | None:
    """When each row was observed, as numbers."""
    if column is None:
        return None
    found, (reading,), _ = read_columns(frame[[column]], frame.attrs.get("decimal", "."))
    if reading.kind == "text" or found[column].isna().any():
        raise ValueError(
            f"the time column {column!r} must have a date or a number in every row; got "
            f"{reading.kind}, {reading.gaps + reading.unread} of {reading.rows} missing, such as "
            f"{reading.example!r}"
        )
    dates = reading.kind == "dates"
    return found[column].astype("int64" if dates else float).to_numpy(float)


def check_column(name: str, columns: Any) -> None:
    """Raise an error for a name that is not a column, with the most similar names."""
    if name not in columns:
        names = [str(x) for x in columns]
        same = [x for x in names if x.strip().lower() == name.strip().lower()]
        if near := same or difflib.get_close_matches(name, names, n=1, cutoff=0.65):
            raise ValueError(f"there is no column {name!r}; did you mean {near[0]!r}?")
        raise ValueError(f"there is no column {name!r}; the columns are {listed(names)}")


def numbers_rows(name: str, series: Any) -> bool:
    """Whether distinct integers are row numbers, or have the name of an identifier."""
    if series.dtype.kind not in "iu" or len(series) <= FEW or not series.is_unique:
        return False
    return names_identifier(name) or int(series.max()) - int(series.min()) == len(series) - 1


def names_identifier(name: str) -> bool:
    """Whether a column has the name of an identifier.

    >>> [names_identifier(x) for x in ("customer_id", "ID", "orderId", "paid", "bid")]
    [True, True, True, False, False]
    """
    return re.search(r"(^|[_ .-])(id|ID|Id)$|[a-z]I[dD]$", name) is not None


def shared_identifiers(frame: Any) -> list[str]:
    """Warnings about identifiers that rows share, as the rows of a customer do.

    >>> shared_identifiers(pd.DataFrame({"id": list(range(60)) * 2, "x": range(120)}))[0][:43]
    "rows share the values of 'id' (60 in 120 ro"
    """
    found = []
    for name in filter(names_identifier, frame):
        rows, values = int(frame[name].notna().sum()), frame[name].nunique()
        if values > FEW and rows >= ROWS_OF_ONE * values:
            found.append(
                f"rows share the values of {name!r} ({values} in {rows} rows): if the rows of a "
                "value belong together, such as those of a customer, keep them together (--group "
                f"{name}), since otherwise the score may be too high"
            )
    return found


def without_identifiers(table: PreparedTable, train: Any) -> Any:
    """The training rows without identifiers; the table gets a warning about them."""
    found = identifiers(train)
    if found:
        table.leave_out(found, IDENTIFIES)
        text = f"text columns whose values hardly ever repeat are not used: {listed(found)}"
        table.warnings.append(information(text))
    return train.drop(columns=found)


def identifiers(train: Any) -> list[str]:
    """Text columns whose values hardly ever repeat.

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
    ]
    if len(found) == train.shape[1]:
        raise ValueError("expected feature columns; got only columns that identify the rows")
    return found


def fitted_encoder(
    train: Any, y: Array, groups: Array | None = None, max_categories: int | None = 20
) -> tuple[TableEncoder, Array]:
    """An encoder that is fitted to training rows, and these rows encoded.

    Its errors name the option to drop a column.
    """
    encoder = TableEncoder(max_categories=max_categories)
    try:
        return encoder, encoder.fit_transform(train, y, groups)
    except ValueError as error:
        raise ValueError(f"{error} (--drop NAME drops a column)") from None
