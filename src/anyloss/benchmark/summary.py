"""The results of a benchmark as tables: in a DataFrame, on the console and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from anyloss.benchmark.statistics import (
    COMPARISON,
    FOLD,
    GROUPS,
    KEYS,
    MODEL_METRIC,
    by_imbalance,
    check_results,
    mean_ranks,
    per_dataset,
    versus,
)

NULL, BASE = "null", "bce_tuned"
ROW = [*MODEL_METRIC, "method"]
COLUMNS = ["sets", "mean_score", "mean_rank", *COMPARISON[1:]]
COLUMNS += ["collapse_rate", "brier", "time_ratio"]
SHOWN = {  # column: (heading, format)
    "sets": ("sets", "{:.0f}"),
    "mean_score": ("mean", "{:.4f}"),
    "mean_rank": ("rank", "{:.2f}"),
    "difference": ("gain", "{:+.4f}"),
    "outcome": ("win / draw / lose", "{}"),
    "p_lose": ("P(lose)", "{:.3f}"),
    "p_draw": ("P(draw)", "{:.3f}"),
    "p_win": ("P(win)", "{:.3f}"),
    "p_lose_families": ("P(lose) by family", "{:.3f}"),
    "collapse_rate": ("collapsed", "{:.1%}"),
    "brier": ("Brier", "{:.3f}"),
    "time_ratio": ("time", "{:.2f}"),
}
HEADER = ("method", *(heading for heading, _ in SHOWN.values()))
WIDE_ONLY = ("rank", "P(draw)", "P(win)", "collapsed", "Brier")


class Sheet(NamedTuple):
    """A table whose cells are text."""

    title: str
    header: tuple[str, ...]
    rows: list[list[str]]


def compare(results: Any, seconds: Any = None, ours: str = "anyloss", rope: float = 0.01) -> Any:
    """Our method against each of the others: a row per (model, metric, method), the best first.

    All columns of a method are computed on the folds that it shares with our method, and `sets` is
    the number of their data sets. `difference` is our score minus that of the method. `win`,
    `draw`, `lose` and the `p_` columns count our wins against the method; they are empty for our
    method itself. `mean_rank` is the rank among the methods that have all of our data sets.
    `collapse_rate` is the share of folds without a positive prediction. `time_ratio` is the median
    over folds of the method's fitting time divided by that of `bce_tuned`.
    """
    check_results(results, ours)
    for pair, group in results.groupby(MODEL_METRIC, observed=True):
        known = list(group["method"].unique())
        if ours not in known:
            raise ValueError(f"no results of {ours!r} for {pair}; there are {known}")
    found = {}
    for baseline in set(results["method"]) - {ours}:
        for pair, row in versus(results, ours, baseline, rope).to_dict("index").items():
            found[*pair, baseline] = row
    index = pd.MultiIndex.from_frame(results[ROW].drop_duplicates())
    table = pd.DataFrame([found.get(key, {}) for key in index], index, COMPARISON[1:])
    table = table.astype(float)
    own = results.loc[results["method"] == ours, FOLD]
    table = table.join(_means(results.merge(own, on=FOLD))).join(_ranks(results, ours))
    table = table.join(_time_ratios(seconds, own)) if seconds is not None else table
    counts = {"sets": int, "win": "Int64", "draw": "Int64", "lose": "Int64"}
    table = table.reindex(columns=COLUMNS).fillna({"sets": 0}).astype(counts)
    return table.loc[_order(table["difference"], ours)]


def _means(results: Any) -> Any:
    """The number of data sets, and the means over data sets of score, collapses and Brier score."""
    names = {"score": "mean_score", "collapsed": "collapse_rate", "brier": "brier"}
    values = results.reindex(columns=[*KEYS, "method", *names]).astype(dict.fromkeys(names, float))
    sets = values.groupby([*KEYS, "method"], observed=True).mean().groupby(level=ROW, observed=True)
    return sets.mean().rename(columns=names).assign(sets=sets.size())


def _ranks(results: Any, ours: str) -> Any:
    """The mean rank of the methods that have all data sets of ours."""
    rows: dict[tuple[str, str, str], float] = {}
    for pair, scores in per_dataset(results).groupby(level=MODEL_METRIC, observed=True):
        table = scores[scores[ours].notna()].dropna(axis="columns")
        rows |= {(*pair, method): rank for method, rank in mean_ranks(table).items()}
    return pd.Series(rows, name="mean_rank").rename_axis(ROW)


def _time_ratios(seconds: Any, own: Any) -> Any:
    """The median ratio of the fitting times to those of `bce_tuned` on the same folds."""
    base = seconds.loc[seconds["method"] == BASE, [*FOLD, "seconds"]].merge(own, on=FOLD)
    both = seconds.merge(base, on=FOLD, suffixes=("", "_base"), validate="many_to_one")
    both["time_ratio"] = both["seconds"] / both["seconds_base"]
    return both.groupby(ROW, observed=True)["time_ratio"].median()


def _order(difference: Any, ours: str) -> list[tuple[str, str, str]]:
    """The rows in the order of the tables: by model and metric, then the best method first."""
    pairs = list(dict.fromkeys((model, metric) for model, metric, _ in difference.index))

    def place(key: tuple[str, str, str]) -> tuple[int, float, bool]:
        gap = 0.0 if key[2] == ours else difference[key]
        return pairs.index(key[:2]), np.inf if np.isnan(gap) else gap, key[2] != ours

    return sorted(difference.index, key=place)


def null_row(results: Any, rope: float = 0.01) -> Any:
    """The method "null" against "bce_tuned", whose wins and losses are due to noise alone.

    Both tune a threshold of the same model, on different inner folds. There is a row per (model,
    metric). `difference` is null minus tuned, and `win` counts the data sets that null wins.
    """
    return versus(results, NULL, BASE, rope)


def print_tables(
    results: Any,
    seconds: Any = None,
    console: Any = None,
    ours: str = "anyloss",
    rope: float = 0.01,
) -> None:
    """Print a table per (model, metric), and the differences to "bce_tuned" by imbalance.

    On a console of less than 110 characters the columns of `WIDE_ONLY` are left out.
    """
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = console or Console()
    wide = console.width >= 110
    for sheet in _sheets(results, seconds, ours, rope):
        table = Table(title=escape(sheet.title), title_justify="left", box=box.SIMPLE_HEAD)
        table.padding = 0
        shown = [k for k, name in enumerate(sheet.header) if wide or name not in WIDE_ONLY]
        for k in shown:
            justify: Any = "right" if k else "left"
            table.add_column(sheet.header[k], justify=justify, no_wrap=not k, overflow="fold")
        for row in sheet.rows:
            table.add_row(*(escape(row[k]) for k in shown))
        console.print(table)


def to_markdown(
    results: Any, seconds: Any = None, ours: str = "anyloss", rope: float = 0.01
) -> str:
    """The tables of `print_tables` as Markdown."""

    def line(cells: Any) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    parts = []
    for title, header, rows in _sheets(results, seconds, ours, rope):
        rule = ["---"] + ["---:"] * (len(header) - 1)
        parts.append("\n".join([f"**{title}**", "", *map(line, (header, rule, *rows))]))
    return "\n\n".join(parts) + "\n"


def _sheets(results: Any, seconds: Any, ours: str, rope: float) -> Iterator[Sheet]:
    """The tables: one per (model, metric), and one by imbalance."""
    check_results(results, ours)
    methods = set(results["method"])
    noise = null_row(results, rope).to_dict("index") if {NULL, BASE} <= methods else {}
    table = compare(results, seconds, ours, rope)
    for pair, part in table.groupby(level=MODEL_METRIC, sort=False, observed=True):
        rows = [_cells(key[2], row) for key, row in part.to_dict("index").items()]
        if pair in noise:
            rows.append(_cells(f"{NULL} against {BASE}", noise[pair]))
        yield Sheet(f"{', '.join(pair)}: {ours} against each method, rope {rope:g}", HEADER, rows)
    if ours != BASE and BASE in methods and "positives" in results:
        yield _imbalance(by_imbalance(results, ours, BASE), ours)


def _cells(name: str, row: dict[str, Any]) -> list[str]:
    """The cells of a row as text; missing values are empty."""
    if not pd.isna(row["win"]):
        row = row | {"outcome": "{win}/{draw}/{lose}".format(**row)}
    shown = ((row.get(column), form) for column, (_, form) in SHOWN.items())
    return [name, *("" if pd.isna(value) else form.format(value) for value, form in shown)]


def _imbalance(table: Any, ours: str) -> Sheet:
    """The table of the differences by the share of the larger class."""
    rows = []
    for pair, part in table.groupby(level=MODEL_METRIC, sort=False, observed=True):
        cells = [
            f"{mean:+.4f}" + ("" if np.isnan(std) else f" ± {std:.4f}") + f" ({sets})"
            if sets
            else ""
            for sets, mean, std in part.itertuples(index=False)
        ]
        rows.append([", ".join(pair), *cells])
    title = f"{ours} minus {BASE} by the share of the larger class: mean ± deviation (sets)"
    return Sheet(title, ("model, metric", *GROUPS), rows)
