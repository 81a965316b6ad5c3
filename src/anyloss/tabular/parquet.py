"""The rows of a Parquet file, read in batches, so that the file may be larger than the memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss.tabular.columns import check_distinct
from anyloss.tabular.sources import check_file

BATCH = 50_000  # rows that become a data frame at once
BUFFER = 1 << 18  # bytes of a column that are read at once, also if a row group is large


class ParquetFile(NamedTuple):
    """A Parquet file, as its metadata describe it."""

    path: Path
    names: list[str]
    sizes: Array  # the rows of each row group
    gaps: frozenset[str]  # the columns that may have missing values
    categories: frozenset[str] = frozenset()  # the columns of texts that have a dictionary

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.sizes.sum())

    def batches(self, columns: Sequence[str], rows: Array) -> Iterator[Any]:
        """Data frames of these rows, whose positions are in ascending order.

        The index of a frame has the positions. Row groups without any of the rows are not read.
        """
        ends = np.cumsum(self.sizes)
        with opened(self.path) as file:
            for k, (start, end) in enumerate(zip(ends - self.sizes, ends, strict=True)):
                wanted = rows[np.searchsorted(rows, start) : np.searchsorted(rows, end)]
                if not len(wanted):
                    continue
                for batch in file.iter_batches(BATCH, row_groups=[k], columns=list(columns)):
                    inside = wanted[: np.searchsorted(wanted, start + len(batch))]
                    if len(inside):
                        some = batch if len(inside) == len(batch) else batch.take(inside - start)
                        yield some.to_pandas().set_axis(inside)
                    wanted, start = wanted[len(inside) :], start + len(batch)


def parquet_file(path: Path) -> ParquetFile:
    """Read the metadata of a Parquet file."""
    from pyarrow.types import is_boolean, is_dictionary, is_integer

    check_file(path)
    with opened(path) as file:
        schema, data = file.schema_arrow, file.metadata
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        names = [x for x in schema.names if x not in index]
        try:
            check_distinct(names)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        groups = [data.row_group(k) for k in range(data.num_row_groups)]
        sizes = np.array([x.num_rows for x in groups], dtype=int)
        if not sizes.sum():
            raise ValueError(f"{path} has columns but no rows; expected rows")
        groups = [x for x in groups if x.num_rows]
        full, unknown = {x.name for x in schema if not x.nullable}, list[str]()
        for j in range(data.num_columns):
            name = groups[0].column(j).path_in_schema
            found = [x.column(j).statistics for x in groups]
            if not all(x is not None and x.has_null_count for x in found):
                unknown.append(name)
            elif not any(x.null_count for x in found):
                full.add(name)
        # A file need not have statistics. Only of integers does the type depend on gaps.
        whole = [x.name for x in schema if is_integer(x.type) or is_boolean(x.type)]
        for name in set(unknown) & set(whole) & set(names):
            batches = file.iter_batches(BATCH, columns=[name])
            if not any(batch.column(0).null_count for batch in batches):
                full.add(name)
        encoded = frozenset(x.name for x in schema if is_dictionary(x.type))
        return ParquetFile(path, names, sizes, frozenset(set(names) - full), encoded)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A Parquet file of pyarrow that holds no more of the file in memory than what is read."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            yield file
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path} cannot be read as Parquet: {error}") from None
