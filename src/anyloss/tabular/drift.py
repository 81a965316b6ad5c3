"""How far a new table is from the training rows: unreadable cells, unseen values, shifted columns.

The training rows are kept as the shares of each column's values: of ten ranges of numbers or dates,
or of the texts, and of missing values. The population stability index compares them with the new
shares: `sum((q - p) * ln(q / p))`, by convention large above 0.25.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from anyloss._core.backend import Array
from anyloss.tabular.columns import listed
from anyloss.tabular.readings import is_gap
from anyloss.tabular.scoring import as_columns

RANGES, MOST_LEVELS = 10, 1000
UNREAD = 0.1  # the share of unreadable cells above which a table is refused
UNSEEN, SHIFTED, FEW_ROWS = 0.01, 0.25, 50


def column_profiles(frame: Any) -> dict[str, dict[str, Any]]:
    """The shares of the values of each column of training rows, as JSON can hold them.

    >>> found = column_profiles(pd.DataFrame({"city": ["Rome", "Rome", None, "Oslo"]}))
    >>> found["city"]
    {'levels': ['Oslo', 'Rome'], 'counts': [1, 2, 0, 1]}
    """
    found: dict[str, dict[str, Any]] = {}
    for name, series in frame.items():
        if series.dtype.kind in "biufM":
            inner = np.quantile(_numbers(series.dropna()), np.linspace(0, 1, RANGES + 1)[1:-1])
            kept: dict[str, Any] = {"edges": np.unique(inner).tolist()}
        else:
            sizes = series.dropna().astype(str).value_counts()
            if len(sizes) > MOST_LEVELS:
                continue
            kept = {"levels": sorted(sizes.index)}
        found[str(name)] = kept | {"counts": _counts(series, kept).tolist()}
    return found


def _numbers(series: Any) -> Array:
    return series.astype("int64" if series.dtype.kind == "M" else float).to_numpy(float)


def _counts(series: Any, kept: dict[str, Any]) -> Array:
    """The number of cells of each range or text, then of unseen texts, then of missing values."""
    present = series.dropna()
    if "edges" in kept:
        size = RANGES
        codes: Array = np.searchsorted(kept["edges"], _numbers(present), side="right")
    else:
        codes = pd.Index(kept["levels"], dtype=object).get_indexer_for(present.astype(str))
        size = len(kept["levels"]) + 1
        codes = np.where(codes < 0, size - 1, codes)
    return np.append(np.bincount(codes, minlength=size), len(series) - len(present))


class Drift:
    """The counts of a new table, added up over its parts, beside those of the training rows."""

    def __init__(self, profile: dict[str, Any]) -> None:
        self.profile = profile
        self.rows, self.predicted = 0, np.zeros(len(profile["classes"]))
        self.unread: dict[str, int] = {}
        self.counts: dict[str, Array] = {}

    def add(self, raw: Any, read: Any, decided: Array) -> None:
        """Add a part of the table: as it is in the file, as it was read, and the decisions."""
        self.rows += len(read)
        self.predicted += as_columns(decided).sum(axis=0)
        for name in read:
            lost = raw[name][read[name].isna() & raw[name].notna()].astype(str)
            bad = len(lost) - int(is_gap(lost).sum()) if len(lost) else 0
            self.unread[name] = self.unread.get(name, 0) + bad
            if name in self.profile["columns"]:
                found = _counts(read[name], self.profile["columns"][name])
                self.counts[name] = self.counts.get(name, 0) + found

    def check(self) -> None:
        """Raise an error if a column became unreadable."""
        bad = [name for name, x in self.unread.items() if x > UNREAD * self.rows]
        if bad:
            shares = ", ".join(
                f"{name!r} ({self.unread[name] / self.rows:.0%})" for name in bad[:5]
            )
            raise ValueError(
                f"cells of these columns cannot be read as in the training table: {shares}; "
                "correct them, or predict all the same with --allow-drift, as missing values"
            )

    def warnings(self) -> list[str]:
        """What differs from the training rows: unseen texts, shifted columns, predictions."""
        found = []
        for name, counts in self.counts.items():
            kept = self.profile["columns"][name]
            unseen = int(counts[-2]) if "levels" in kept else 0
            if unseen > UNSEEN * self.rows:
                found.append(
                    f"column {name!r}: {unseen} of {self.rows} cells have values that the training "
                    "rows do not have"
                )
        if self.rows < FEW_ROWS:
            return found
        shifted = [name for name in self.counts if self.stability(name) > SHIFTED]
        if shifted:
            found.append(
                f"the values of {listed(shifted)} are distributed otherwise than in the training "
                "rows (population stability index above 0.25): the scores of the report may not "
                "hold"
            )
        return found + self._predictions()

    def stability(self, name: str) -> float:
        """The population stability index of a column, less what chance adds to it on average."""
        old, new = np.asarray(self.profile["columns"][name]["counts"]), self.counts[name]
        used = (old + new) > 0
        p, q = ((x[used] + 0.5) / (x[used] + 0.5).sum() for x in (old, new))
        chance = (used.sum() - 1) * (1 / old.sum() + 1 / new.sum())
        return float(((q - p) * np.log(q / p)).sum() - chance)

    def _predictions(self) -> list[str]:
        if self.profile["predicted"] is None:
            return []
        before, now = np.asarray(self.profile["predicted"]), self.predicted / self.rows
        error = np.sqrt(before * (1 - before) / self.rows) + 1 / self.rows
        k = int(np.argmax(np.abs(now - before) / error))
        if abs(now[k] - before[k]) < max(4 * error[k], 0.05):
            return []
        what = self.profile["classes"][k]
        return [
            f"{now[k]:.0%} of the rows are predicted as {what!r}, and {before[k]:.0%} of the test "
            "rows of the fit were"
        ]
