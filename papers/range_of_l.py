"""AnyLoss's Table 1: the scales L that are valid for the plain formula, per floating-point type."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from anyloss.steps import SIGNIFICAND_BITS, scale_range
from papers import runs
from papers.published import levels, published_figures
from papers.text_tables import signed, text_table


def report(request: runs.Request) -> str:
    """Compute and write Table 1, and return the comparison as text."""
    ranges = table1()
    runs.write(ranges, request.out, figures="Table 1")
    request.on_progress(1, 1, "table1")
    return table1_text(ranges)


def printed_range(level: str, dtype: str) -> tuple[float, float]:
    """The range with two decimals, with the minimum rounded up and the maximum rounded down.

    >>> printed_range("0.001", "float64")
    (13.85, 73.62)
    """
    low, high = scale_range(float(level), dtype)
    return math.ceil(low * 100) / 100, math.floor(high * 100) / 100


def table1() -> Any:
    """Tidy: level, dtype, bound, ours, and the published figure for float64."""
    rows = []
    for level in levels():
        for dtype in SIGNIFICAND_BITS:
            for bound, ours in zip(("min", "max"), printed_range(level, dtype), strict=True):
                paper = published_figures(1, level, bound, "")[""] if dtype == "float64" else None
                rows.append((level, dtype, bound, paper, ours))
    table = pd.DataFrame(rows, columns=["level", "dtype", "bound", "published", "ours"])
    table["published"] = table["published"].astype(float)
    table["difference"] = (table["ours"] - table["published"]).round(10)
    return table


def table1_text(table: Any) -> str:
    """Published and ours for float64, and ours for the other types."""
    known = table[table["dtype"] == "float64"]
    cells = [
        (r.level, r.bound, f"{r.published:.2f}", f"{r.ours:.2f}", signed(r.difference, 2))
        for r in known.itertuples()
    ]
    wide = table.pivot(index="level", columns=["dtype", "bound"], values="ours").loc[levels()]
    others = [x for x in SIGNIFICAND_BITS if x != "float64"]
    spans = [
        (level, *(_span(row[dtype]["min"], row[dtype]["max"]) for dtype in others))
        for level, row in wide.iterrows()
    ]
    same = int((known["difference"] == 0).sum())
    return "\n".join(
        [
            "AnyLoss, Table 1: range of L for the plain formula in float64",
            "(the minimum is rounded up, the maximum down)",
            "",
            text_table(("level", "bound", "published", "ours", "difference"), cells),
            "",
            "Other floating-point types, which are not in the paper:",
            "",
            text_table(("level", *others), spans),
            "",
            f"exact matches: {same} of {len(known)}",
        ]
    )


def _span(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}" if low <= high else "none"
