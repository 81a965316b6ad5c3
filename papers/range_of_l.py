"""AnyLoss's Table 1: which scales L the plain formula can take, for each type of number."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from anyloss.steps import SIGNIFICAND_BITS, scale_range
from papers import runs
from papers.published import figures, levels
from papers.text import columns, signed


def report(request: runs.Request) -> str:
    """Table 1, computed, written and told."""
    ranges = table1()
    runs.write(ranges, request.out, figures="Table 1")
    request.told(1, 1, "table1")
    return table1_text(ranges)


def printed_range(level: str, dtype: str) -> tuple[float, float]:
    """The range in two decimals that lie within it: the minimum rounded up, the maximum down.

    >>> printed_range("0.001", "float64")
    (13.85, 73.62)
    """
    low, high = scale_range(float(level), dtype)
    return math.ceil(low * 100) / 100, math.floor(high * 100) / 100


def table1() -> Any:
    """Tidy: level, dtype, bound, ours, and what the paper printed for float64."""
    rows = []
    for level in levels():
        for dtype in SIGNIFICAND_BITS:
            for bound, ours in zip(("min", "max"), printed_range(level, dtype), strict=True):
                theirs = figures(1, level, bound, "")[""] if dtype == "float64" else None
                rows.append((level, dtype, bound, theirs, ours))
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
            "(two decimals within the range: minimum rounded up, maximum down)",
            "",
            columns(("level", "bound", "published", "ours", "difference"), cells),
            "",
            "The other types, not in the paper:",
            "",
            columns(("level", *others), spans),
            "",
            f"exact matches: {same} of {len(known)}",
        ]
    )


def _span(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}" if low <= high else "none"
