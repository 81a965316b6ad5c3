"""The preparation of a table: the label, and the columns that cannot be used."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from anyloss._core.backend import Array
from anyloss.tabular.columns import check_distinct, holds_identifiers, listed
from anyloss.tabular.encoder import TableEncoder
from anyloss.tabular.labels import LEAST, Outcome, read_labels
from anyloss.tabular.messages import information
from anyloss.tabular.options import TableOptions
from anyloss.tabular.reading import read_table
from anyloss.tabular.readings import Reading, read_columns
from anyloss.tabular.sources import local_file
from anyloss.tabular.splitting import FEW

IDENTIFIES = "values hardly ever repeat"


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

    def leave_out(self, names: Sequence[str], why: str) -> None:
        """Keep that columns are not used, and why; the example of an identifier is a person."""
        self.dropped.extend(names)
        for k, reading in enumerate(self.readings):
            if reading.name in names:
                example = "" if why == IDENTIFIES else reading.example
                self.readings[k] = replace(reading, use=why, example=example)

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
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    frame = frame.reset_index(drop=True)  # the position of each row in the table
    check_distinct(frame.columns)
    targets, others = list(options.targets), [*options.drop]
    others += [x for x in (options.id_column, options.group, options.time) if x is not None]
    for name in (*targets, *others):
        check_column(name, frame)
        if name in targets and name in others:
            raise ValueError(f"{name!r} is a label column and cannot be dropped")
    unlabelled, warnings = frame[targets].isna().any(axis=1), list(frame.attrs.get("warnings", []))
    if unlabelled.any():
        warnings.append(
            information(
                f"rows without a value in {listed(targets)} are not used ({unlabelled.sum()} of "
                f"{len(frame)} rows)"
            )
        )
        frame = frame[~unlabelled]
    y, outcome = read_labels(frame, targets, options.positive, options.average)
    groups, times = _groups(frame, options.group), _times(frame, options.time)
    frame = frame.drop(columns=dict.fromkeys([*targets, *others]))
    if not frame.shape[1]:
        raise ValueError(
            f"expected feature columns besides {listed(targets)}; got none: drop fewer columns"
        )
    frame, readings, more = read_columns(frame, frame.attrs.get("decimal", "."))
    numbered = [name for name in frame if _numbers_rows(name, frame[name])]
    if numbered:
        text = f"columns that only number the rows are not used: {listed(numbered)}"
        more.append(information(text))
    frame = frame.drop(columns=numbered)
    table = PreparedTable(
        frame, y, outcome, readings, list(dict.fromkeys(others)), warnings + more, groups, times
    )
    table.leave_out(numbered, "only numbers the rows")
    return table


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


def check_column(name: str, frame: Any) -> None:
    """Raise an error for a name that is not a column, with the most similar names."""
    if name not in frame:
        names = [str(x) for x in frame]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names[:10]
        raise ValueError(f"there is no column {name!r}; available columns are {listed(near)}")


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
