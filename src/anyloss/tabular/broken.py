"""Signs of a broken CSV file: a quote that swallows rows, and rows with too few fields.

pandas reads both without a word. Each is looked for only where the table shows a sign of it, and
then found in the file itself, with its line number.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

from anyloss.tabular.sources import Origin, file_rows

MANY_COLUMNS = 5
MOST_ROWS = 500_000  # that are searched for rows with too few fields


def broken_rows(
    path: Path, frame: Any, *, encoding: str, separator: str, columns: int
) -> list[str]:
    """Warnings about rows with too few fields; rows inside a quoted cell are an error."""
    swallowed = _has_lines(frame, separator, columns)
    if swallowed:
        _refuse_swallowed(path, encoding, separator, columns)
    if columns < 2 or not frame.iloc[:, -1].isna().any():
        return []
    short = [
        line
        for line, row in file_rows(Origin(str(path), encoding, separator), MOST_ROWS)
        if 0 < len(row) < columns and any(cell.strip() for cell in row)
    ]
    if not short:
        return []
    rows = f"{len(short)} rows of the file have" if len(short) > 1 else "1 row of the file has"
    return [
        f"{rows} fewer fields than the "
        f"{columns} column names, and the others are missing values (the first is in line "
        f"{short[0]})"
    ]


def too_many_fields(error: Exception) -> list[str] | None:
    """The usual number of fields, the line and its number, from the message of pandas' parser.

    >>> too_many_fields(ValueError("C error: Expected 10 fields in line 51, saw 11"))
    ['10', '51', '11']
    """
    found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
    return list(found.groups()) if found else None


def line_of_open_quote(error: Exception) -> int | None:
    """The line of a quote that is never closed, from the message of pandas' parser.

    >>> line_of_open_quote(ValueError("C error: EOF inside string starting at row 3"))
    4
    """
    found = re.search(r"EOF inside string starting at row (\d+)", str(error))
    return int(found[1]) + 1 if found else None


def _has_lines(frame: Any, separator: str, columns: int) -> bool:
    """Whether a cell holds a line with as many separators as a row of the table has."""
    if columns < 2:
        return False
    for name in frame.select_dtypes(["object", "string"]):
        texts = frame[name].dropna()
        cells = texts[texts.astype(str).str.contains("\n", regex=False)]
        if any(_is_row(line, separator, columns) for cell in cells for line in cell.split("\n")):
            return True
    return False


def _is_row(line: str, separator: str, columns: int) -> bool:
    return line.count(separator) == columns - 1


def _refuse_swallowed(path: Path, encoding: str, separator: str, columns: int) -> None:
    """Raise an error for a cell that holds rows of the table.

    A text of several lines may have as many separators in one of them by chance: with few columns,
    there must be several such lines, or text behind the closing quote.
    """
    origin = Origin(str(path), encoding, separator)
    try:
        list(file_rows(origin, MOST_ROWS, strict=True))
        least = 1 if columns >= MANY_COLUMNS else 3
    except csv.Error:
        least = 1
    for line, row in file_rows(origin, MOST_ROWS):
        for cell in row:
            inner = [x for x in cell.split("\n")[1:] if _is_row(x, separator, columns)]
            if len(inner) >= least:
                raise ValueError(
                    f"{path}: a quote that opens in the row of line {line} is closed only "
                    f"{cell.count(chr(10))} lines later, so that one cell holds {len(inner)} or "
                    "more rows: remove the quote, or double it"
                )
