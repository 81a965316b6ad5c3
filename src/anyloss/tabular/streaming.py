"""Tables that are larger than the memory: Parquet files, whose rows are read whenever needed.

In memory are one label, one key and one decision value per row, and samples of the rows. How the
columns are read is found in a random sample; every row is then read by these rules, as
`predict_table` reads a new table. The split, the rows that are drawn and the score of the test rows
are those of the same table in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from anyloss._core.backend import Array
from anyloss.recipe.constrained import Promise
from anyloss.tabular.evaluating import BASELINE_ROWS, enough_rows
from anyloss.tabular.messages import information
from anyloss.tabular.options import TableOptions
from anyloss.tabular.parquet import ParquetFile, parquet_file
from anyloss.tabular.preparing import (
    PreparedTable,
    check_features,
    label_columns,
    load_table,
    numbers_rows,
    read_label_columns,
    unused_columns,
)
from anyloss.tabular.reading import read_table
from anyloss.tabular.readings import Reading, apply_reading, extent, read_columns, unread_warning
from anyloss.tabular.splitting import row_keys, sample_rows

MOST_CELLS = 50_000_000  # rows times columns, above which a Parquet file is streamed
LARGE_CSV = 2 << 30  # bytes, from which on a message advises Parquet
READ_ROWS = 100_000  # of the sample that shows how the columns are read
KEPT_CELLS = 25_000_000  # of the samples of training rows and of test rows


@dataclass(frozen=True)
class StreamedTable(PreparedTable):
    """A table whose features are read when they are needed; `frame` has no rows."""

    keys: Array = field(kw_only=True)
    file: ParquetFile = field(kw_only=True)
    places: Array = field(kw_only=True)  # of the labelled rows in the file

    def parts(self, rows: Array) -> Iterator[Any]:
        known = {x.name: x for x in self.readings}
        columns = [Column(known[name], self.frame[name].dtype) for name in self.frame]
        for raw in self.file.batches(list(self.frame), self.places[rows]):
            yield read_batch(columns, raw)

    def take(self, rows: Array) -> Any:
        found = list(self.parts(rows))
        return pd.concat(found) if found else self.frame

    def sampled(self, rows: Array, seed: int) -> Array:
        """A stratified sample: 100,000 rows, or as many as hold 2,000 of the rarest class.

        It has at most 25 million cells, or 100,000 rows.
        """
        y, task = self.y[rows], self.outcome.task
        room = max(BASELINE_ROWS, KEPT_CELLS // self.frame.shape[1])
        if len(rows) <= (most := min(enough_rows(y, task), room)):
            return rows
        return rows[sample_rows(y, most, seed, task)]


def open_table(source: Any, options: TableOptions, stream: bool | None) -> PreparedTable:
    """Prepare a table in memory, or one that is streamed; None decides by its size."""
    if is_streamed(source, stream):
        return stream_table(Path(source), options)
    return load_table(source, options)


def is_streamed(source: Any, stream: bool | None) -> bool:
    """Whether a table is streamed: a Parquet file of more than 50 million cells."""
    there = isinstance(source, str | Path) and Path(source).suffix.lower() == ".parquet"
    if stream and not there:
        kind = str(source) if isinstance(source, str | Path) else "a data frame"
        raise ValueError(
            f"only a Parquet file is streamed; got {kind}: convert it to Parquet (.parquet), or "
            "leave out --stream"
        )
    if stream is not None or not there:
        return bool(stream)
    file = parquet_file(Path(source))
    return file.rows * len(file.names) > MOST_CELLS


def size_advice(source: Any) -> str:
    """What to know before a large file is read as a whole; "" for others."""
    path = Path(source) if isinstance(source, str | Path) else None
    if path is None or path.suffix.lower() == ".parquet" or not path.is_file():
        return ""
    size = path.stat().st_size
    if size < LARGE_CSV:
        return ""
    return (
        f" ({size / 1e9:.1f} GB, as a whole: if the memory is too small, convert it to Parquet, "
        "which is streamed)"
    )


def bounded(
    table: PreparedTable, promise: Promise, folds: int | None, costs: bool = False
) -> tuple[Promise, int | None]:
    """The rows that certify and the folds: of a streamed table at most 100,000 rows, and none."""
    if not isinstance(table, StreamedTable):
        return promise, folds
    if folds:
        raise ValueError(
            f"a streamed table has one set of test rows; got {folds} folds: leave them out "
            "(--folds), or read the table into memory (--no-stream)"
        )
    if costs:
        raise ValueError(
            "costs of errors need a table in memory; got a streamed one: leave out the costs "
            "(--fn-cost, --fp-cost), or read the table into memory (--no-stream)"
        )
    share = min(promise.certify_share, BASELINE_ROWS / len(table.y))
    return promise._replace(certify_share=share), 0


def stream_table(path: Path, options: TableOptions) -> StreamedTable:
    """Read the labels and the kinds of the columns of a Parquet file, and a key of each row."""
    file = parquet_file(path)
    others = unused_columns(file.names, options)
    features = [x for x in file.names if x not in (*options.targets, *others)]
    check_features(features, options)
    whole = read_table(path, label=options.targets, columns=label_columns(options))
    labels = read_label_columns(whole.reset_index(drop=True), options)
    del whole
    places = np.flatnonzero(labels.used)
    drawn = pd.concat(file.batches(features, _some(places, options.seed)))
    categories = {x: "category" for x in features if x in file.categories}
    sample, readings, _ = read_columns(drawn.astype(categories))  # row groups may differ in them
    numbered = _numbered(path, places, sample)
    columns = [
        Column(x, _whole_dtype(sample[x.name].dtype, x.name in file.gaps))
        for x in readings
        if x.name not in numbered
    ]
    keys = _scan(file, places, columns)
    found = {x.reading.name: x for x in columns}
    table = StreamedTable(
        pd.concat([sample[x][:0].astype(found[x].dtype) for x in found], axis=1),
        labels.y, labels.outcome,
        [numbered.get(x.name) or found[x.name].described(len(places)) for x in readings],
        others, [*labels.warnings, *(y for x in columns for y in x.warnings())], labels.groups,
        labels.times, keys=keys, file=file, places=places,
    )  # fmt: skip
    table.leave_out_numbered(list(numbered))
    if len(sample) < len(places):
        text = (
            "the table is streamed: how its columns are read, and the number of their distinct "
            f"values, rest on {len(sample)} of {len(places)} rows, drawn at random"
        )
        table.warnings.append(information(text))
    return table


def _some(places: Array, seed: int) -> Array:
    """At most `READ_ROWS` of the rows, drawn at random."""
    if len(places) <= READ_ROWS:
        return places
    rng = np.random.default_rng(seed)
    return places[np.sort(rng.choice(len(places), READ_ROWS, replace=False))]


def _numbered(path: Path, places: Array, sample: Any) -> dict[str, Reading]:
    """The columns that only number the rows; those that may are read as a whole."""
    found = {}
    for name, series in sample.items():
        if series.dtype.kind in "iu" and series.is_unique:
            whole = read_table(path, columns=[name]).iloc[places]
            if numbers_rows(name, whole[name]):
                (found[name],) = read_columns(whole)[1]
    return found


def _whole_dtype(dtype: Any, gaps: bool) -> Any:
    """The type of a column in all batches: integers with gaps are floats, as in a whole table."""
    return (
        np.dtype(float) if gaps and isinstance(dtype, np.dtype) and dtype.kind in "biu" else dtype
    )


def _scan(file: ParquetFile, places: Array, columns: list[Column]) -> Array:
    """Read all rows once: what is found in the columns, and a key of each row."""
    keys, done = np.empty(len(places), dtype=np.uint64), 0
    for raw in file.batches([x.reading.name for x in columns], places):
        keys[done : done + len(raw)] = row_keys(read_batch(columns, raw))
        done += len(raw)
    return keys


class Column:
    """How a column of a file is read, and what is found in the batches that were read."""

    def __init__(self, reading: Reading, dtype: Any) -> None:
        self.reading, self.dtype = reading, dtype
        self.missing = self.unread = 0
        self.low = self.high = None  # of numbers or dates
        self.lost: tuple[Any, Any] | None = None  # the first unreadable cells

    def read(self, raw: Any) -> Any:
        """The values of a batch."""
        try:
            values, unread = apply_reading(self.reading, raw)
        except ValueError as error:
            raise ValueError(f"{error}, or do not use the column (--drop)") from None
        if isinstance(self.dtype, np.dtype) and self.dtype.kind in "biuf":
            values = values.astype(self.dtype)
        gaps = values.isna()
        self.missing, self.unread = self.missing + int(gaps.sum()), self.unread + unread
        if unread and self.lost is None:
            at = (gaps & raw.notna()).to_numpy()
            self.lost = values[at], raw[at]
        if self.reading.kind != "text" and not gaps.all():
            low, high = values.min(), values.max()
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)
        return values

    def described(self, rows: int) -> Reading:
        """The reading, with what was found in all rows."""
        low, high = ("", "") if self.low is None else extent(self.low, self.high)
        return replace(
            self.reading, rows=rows, gaps=self.missing - self.unread, unread=self.unread, low=low,
            high=high,
        )  # fmt: skip

    def warnings(self) -> list[str]:
        """A warning about cells that are not what the column is."""
        if self.lost is None:
            return []
        return [unread_warning(replace(self.reading, unread=self.unread), *self.lost)]


def read_batch(columns: list[Column], raw: Any) -> Any:
    """The features of a batch of rows."""
    found = {x.reading.name: x.read(raw[x.reading.name]) for x in columns}
    return pd.DataFrame(found, index=raw.index)
