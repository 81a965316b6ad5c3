"""The papers' experiments from our own code: published figure, ours, and the difference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anyloss.studies.outputs import check_output
from anyloss.studies.reproduce import runs
from anyloss.studies.reproduce.four_sets import QUICK, table17, table17_text
from anyloss.studies.reproduce.many_sets import sets, table15
from anyloss.studies.reproduce.many_sets_text import table15_text
from anyloss.studies.reproduce.range_of_l import table1, table1_text

__all__ = [
    "reproduce", "table1", "table1_text", "table15", "table15_text", "table17", "table17_text",
]  # fmt: skip


def reproduce(
    table: str,
    datasets: Sequence[str] = (),
    folder: Path | None = None,
    out: Path = Path("reproduce.csv"),
    quick: bool = False,
    told: runs.Told = lambda done, total, name: None,
) -> str:
    """Run what a table needs, write the tidy results to `out` and tell the comparison as text."""
    check_output(out)
    if table == "table1":
        ranges = table1()
        runs.write(ranges, out, figures="Table 1")
        told(1, 1, table)
        return table1_text(ranges)
    if table == "table17":
        names = datasets or (QUICK if quick else ())
        return table17_text(*table17(names, folder, out, told))
    if table != "table15":
        raise ValueError(f"table must be table1, table15 or table17; got {table!r}")
    folder, _ = sets(folder, quick)
    return table15_text(table15(folder, quick, out, told), folder)
