"""Where a table comes from: a file, or the standard input; and in which lines its rows are."""

from __future__ import annotations

import csv
import gzip
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

STANDARD_INPUT = "-"
OTHERS = {
    ".xls": "save it as .xlsx", ".xlsb": "save it as .xlsx", ".ods": "save it as .xlsx or .csv",
    ".json": "convert it to CSV", ".feather": "convert it to Parquet",
}  # fmt: skip
MOST_NAMED = 5  # cells in a message


class Origin(NamedTuple):
    """The file of a table; a CSV file has an encoding and a separator."""

    path: str
    encoding: str | None = None
    separator: str = ","


@contextmanager
def local_file(path: Path | str) -> Iterator[Path | str]:
    """The path itself; `-` becomes a temporary copy of the standard input, which can be reread."""
    if str(path) != STANDARD_INPUT:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "input.csv"
        with open(copy, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            yield copy
        except ValueError as error:
            raise ValueError(str(error).replace(str(copy), "the standard input")) from None


def check_file(path: Path) -> None:
    """Raise an error for what is not a file that can be read more than once."""
    expected = "expected a CSV, Parquet or Excel file"
    if path.is_dir():
        raise ValueError(f"{expected}; {path} is a folder")
    if path.is_symlink() and not path.exists():
        raise ValueError(f"{expected}; {path} is a link to {path.readlink()}, which does not exist")
    if not path.exists():
        raise ValueError(f"{expected}; {path} does not exist")
    if not path.is_file():
        raise ValueError(
            f"{expected}; {path} is a pipe or a device, which cannot be read twice: copy it to a "
            "file, or read it from the standard input with the path -"
        )
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty; expected a line of column names, then rows")
    if path.suffix.lower() in OTHERS:
        raise ValueError(f"{expected}; got {path}: {OTHERS[path.suffix.lower()]}")


def cells_in_words(cells: Any, origin: Origin | None) -> str:
    """The first cells with their lines in the file, or their rows in a data frame.

    >>> import pandas as pd
    >>> cells_in_words(pd.Series(["twenty", "x"], index=[3, 7]), None)
    "'twenty' in row 3, 'x' in row 7"
    """
    named = cells.iloc[:MOST_NAMED]
    rows, word = list(named.index), "row"
    if origin is not None and origin.encoding is not None:
        rows, word = _lines(origin, rows), "line"
    elif origin is not None:
        rows = [row + 2 for row in rows]  # of a sheet, below the row of names
    texts = [repr(x[:40]) if isinstance(x, str) else str(x)[:40] for x in named]
    return ", ".join(f"{text} in {word} {row}" for text, row in zip(texts, rows, strict=True))


def _lines(origin: Origin, rows: list[int]) -> list[int]:
    """The lines of the file in which rows of the table start."""
    # pandas skips blank lines, also those of spaces
    below = (line for line, row in file_rows(origin) if len(row) > 1 or "".join(row).strip())
    found = dict(zip(range(max(rows) + 1), below, strict=False))
    return [found[row] for row in rows]


def file_rows(
    origin: Origin, most: int | None = None, strict: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file below the names, each with the number of its first line."""
    opened = gzip.open if origin.path.lower().endswith(".gz") else open
    with opened(origin.path, "rt", encoding=origin.encoding, newline="") as file:
        reader = csv.reader(file, delimiter=origin.separator, skipinitialspace=True, strict=strict)
        start = 1
        for k, row in enumerate(islice(reader, most)):
            if k:
                yield start, row
            start = reader.line_num + 1
