"""Result files: refused before a run if they cannot be written, put in place in one move."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def check_output(out: Path, suffixes: Sequence[str] = (".csv",)) -> None:
    """Refuse an output that does not end in one of the suffixes, and a folder.

    >>> check_output(Path("scores.xlsx"))
    Traceback (most recent call last):
        ...
    ValueError: the output must end in .csv; got 'scores.xlsx'
    """
    if out.suffix not in suffixes:
        raise ValueError(f"the output must end in {' or '.join(suffixes)}; got {out.name!r}")
    if out.is_dir():
        raise ValueError(f"the output must be a file; {out} is a folder")


def write_table(table: Any, out: Path) -> None:
    """Write a data frame as CSV or Parquet, by its suffix."""
    aside = out.with_name(f".{out.name}.part")
    if out.suffix == ".csv":
        table.to_csv(aside, index=False)
    else:
        table.to_parquet(aside, index=False)
    aside.replace(out)
