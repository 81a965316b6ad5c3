"""Excel files as data frames, through openpyxl."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pandas as pd

from anyloss.tabular.columns import listed

EXCEL = (".xlsx", ".xlsm")


def excel_frame(path: Path, sheet: str | None = None) -> Any:
    """The cells of a sheet: the first row has the names; rows without any cell are left out.

    The index holds the place of each row below the names.
    """
    try:
        import openpyxl
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "an Excel file is read with openpyxl; install it with: pip install 'anyloss[excel]'"
        ) from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (BadZipFile, KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"{path} cannot be read as Excel ({error}): is it protected by a password, or another "
            "format? Save it as .xlsx"
        ) from None
    try:
        sheets = {x.title: [list(row) for row in x.iter_rows(values_only=True)] for x in book}
    finally:
        book.close()
    name = _chosen(path, sheets, sheet)
    names, *rows = sheets[name]
    width = max((k + 1 for k, x in enumerate(names) if x is not None), default=0)
    width = max(width, *(_width(row) for row in rows)) if rows else width
    titles = [
        f"column {k + 1}" if x is None or not str(x).strip() else str(x).strip()
        for k, x in enumerate([*names, *[None] * width][:width])
    ]
    cells = pd.DataFrame([row[:width] for row in rows], columns=titles, dtype=object)
    cells = cells[cells.notna().any(axis=1)]
    if cells.empty:
        raise ValueError(f"the sheet {name!r} of {path} has no rows below its names; expected rows")
    return cells


def _width(row: list[Any]) -> int:
    return max((k + 1 for k, x in enumerate(row) if x is not None), default=0)


def _chosen(path: Path, sheets: dict[str, list[Any]], sheet: str | None) -> str:
    """The sheet that is named, or the only one that has cells."""
    if sheet is not None:
        if sheet not in sheets:
            raise ValueError(f"{path} has no sheet {sheet!r}; its sheets are {listed(sheets)}")
        if not sheets[sheet]:
            raise ValueError(f"the sheet {sheet!r} of {path} is empty")
        return sheet
    filled = [x for x, rows in sheets.items() if any(map(_width, rows))]
    if len(filled) != 1:
        raise ValueError(
            f"{path} has {len(filled)} sheets with cells: {listed(filled or sheets)}; name one "
            "(--sheet)"
        )
    return filled[0]
