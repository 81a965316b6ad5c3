"""The papers' experiments from our own code: published figure, ours, and the difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from anyloss._core.outputs import check_output
from papers import (
    curves,
    four_networks,
    four_sets,
    images,
    many_sets_text,
    pictures,
    range_of_l,
    resampling,
    runs,
    scales,
    soft_sets,
    surrogate,
    timing,
)

__all__ = ["REPORTS", "reproduce"]

# What can be reproduced: who runs it and tells the comparison as text.
REPORTS: dict[str, Callable[[runs.Request], str]] = {
    "table1": range_of_l.report,
    "table6": four_networks.report6,
    "table7": resampling.report,
    "table8": timing.report,
    "table9": curves.report,
    "table10": images.report10,
    "table12": scales.report12,
    "table13": scales.report13,
    "table15": many_sets_text.report15,
    "table16": many_sets_text.report16,
    "table17": four_sets.report,
    "table18": four_networks.report18,
    "figure2": pictures.figure2,
    "figure3": pictures.figure3,
    "figure4": pictures.figure4,
    "figure5": pictures.figure5,
    "gap-table1": soft_sets.report1,
    "gap-table2": images.report2,
    "gap-table4": soft_sets.report4,
    "surrogate-paths": surrogate.report_paths,
    "surrogate-images": surrogate.report_images,
}


def reproduce(
    table: str,
    datasets: Sequence[str] = (),
    folder: Path | None = None,
    out: Path = Path("reproduce.csv"),
    quick: bool = False,
    told: runs.Told = runs.silent,
) -> str:
    """Run what a table needs, write the tidy results to `out` and tell the comparison as text."""
    if table not in REPORTS:
        raise ValueError(f"table must be one of {', '.join(REPORTS)}; got {table!r}")
    check_output(out)
    return REPORTS[table](runs.Request(out, folder, tuple(datasets), quick, told))
