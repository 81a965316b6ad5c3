"""The papers' experiments from our own code: published figure, our figure and the difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from anyloss._core.outputs import check_output
from papers import (
    figures,
    four_networks,
    four_sets,
    images,
    learning_curves,
    many_sets_report,
    range_of_l,
    resampling,
    runs,
    scales,
    soft_sets,
    surrogate_fbeta,
    timing,
)

__all__ = ["REPORTS", "reproduce"]

# The paper experiments: each function runs one of them and returns the comparison as text.
REPORTS: dict[str, Callable[[runs.Request], str]] = {
    "table1": range_of_l.report,
    "table6": four_networks.report6,
    "table7": resampling.report,
    "table8": timing.report,
    "table9": learning_curves.report,
    "table10": images.report10,
    "table12": scales.report12,
    "table13": scales.report13,
    "table15": many_sets_report.report15,
    "table16": many_sets_report.report16,
    "table17": four_sets.report,
    "table18": four_networks.report18,
    "figure2": figures.figure2,
    "figure3": figures.figure3,
    "figure4": figures.figure4,
    "figure5": figures.figure5,
    "gap-table1": soft_sets.report1,
    "gap-table2": images.report2,
    "gap-table4": soft_sets.report4,
    "surrogate-paths": surrogate_fbeta.report_paths,
    "surrogate-images": surrogate_fbeta.report_images,
}


def reproduce(
    name: str,
    datasets: Sequence[str] = (),
    folder: Path | None = None,
    out: Path = Path("reproduce.csv"),
    quick: bool = False,
    on_progress: runs.ProgressCallback = runs.no_progress,
) -> str:
    """Run a paper experiment, write its tidy results to `out` and return the comparison as text."""
    if name not in REPORTS:
        raise ValueError(f"the experiment must be one of {', '.join(REPORTS)}; got {name!r}")
    check_output(out)
    return REPORTS[name](runs.Request(out, folder, tuple(datasets), quick, on_progress))
