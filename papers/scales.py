"""AnyLoss's Tables 12 and 13: networks trained with five scales L, by the clean protocol.

Which learning rates the paper took for them is not said: here those of Tables 18 and 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from papers import four_networks, networks, runs
from papers.data import TABLE17, Rows
from papers.four_sets import asked, at_hand, not_at_hand
from papers.many_sets import AIMS, DIGITS, NETWORK_RATES, readers, sets
from papers.many_sets_text import DIFFERENT
from papers.published import figures, printed
from papers.text import columns, signed

SCALES = (30, 50, 73, 90, 110)
METRICS = ("accuracy", "f1", "balanced_accuracy")
SETTINGS = {**networks.SETTINGS, "scales": SCALES}


def report12(request: runs.Request) -> str:
    """Table 12 of the sets asked for, run and told; breast cancer alone if quick."""
    names = asked(request)
    return table12_text(*table12(names, request.folder, request.out, request.told))


def report13(request: runs.Request) -> str:
    """Table 13 on the sets at hand, run and told; on the smallest of them if quick."""
    folder, _ = sets(request.folder, request.quick)
    return table13_text(table13(folder, request.quick, request.out, request.told), folder)


def _job(name: str, read: Callable[[], Rows], rates: Mapping[str, float]) -> runs.Job:
    """All scales for the three metrics; a row tells the scale and the metric aimed at."""
    goals = {
        (metric, scale): networks.goal(AIMS[metric], rates[AIMS[metric]], scale)
        for metric in METRICS
        for scale in SCALES
    }

    def work(X: Any, y: Any) -> list[dict[str, Any]]:
        found = networks.scores(
            X, y, {f"{metric} {L}": goal for (metric, L), goal in goals.items()}
        )
        return [
            {"metric": metric, "scale": L, "ours": found[f"{metric} {L}"][metric]}
            for metric, L in goals
        ]

    return runs.Job(name, read, dict(rates), work)


def table12(
    names: Sequence[str] = (),
    folder: Path | None = None,
    out: Path = Path("reproduce-table12.csv"),
    told: runs.Told = runs.silent,
) -> tuple[Any, dict[str, str]]:
    """The tidy comparison, and why the other data sets are not at hand."""
    there, absent = at_hand(names, folder)
    losses = [AIMS[metric] for metric in METRICS]
    jobs = [
        _job(name, partial(Rows, *rows), four_networks.rates(TABLE17[name][0], "MLP", losses))
        for name, rows in there.items()
    ]
    table = runs.run(jobs, out, told, SETTINGS)
    table["published"] = [
        float(figures(12, TABLE17[r.dataset][0], r.metric, "MLP")[f"L={r.scale}"])
        for r in table.itertuples()
    ]
    table["difference"] = table["ours"] - table["published"]
    runs.write(table, out, SETTINGS, figures="Table 12", absent=absent)
    return table, absent


def table12_text(table: Any, absent: Mapping[str, str]) -> str:
    """A line per figure; at the end where the best scale is the paper's."""
    rows = [
        (r.dataset, r.metric, str(r.scale), f"{r.published:.3f}", f"{r.ours:.3f}",
         signed(r.difference, 3))
        for r in table.itertuples()
    ]  # fmt: skip
    groups = list(table.groupby(["dataset", "metric"], sort=False))
    best = {
        source: sum(73 in set(g.loc[g[source] == g[source].max(), "scale"]) for _, g in groups)
        for source in ("published", "ours")
    }
    within = (table["ours"].round(3) - table["published"]).abs() < 0.0005
    header = ("data set", "metric", "L", "published", "ours", "difference")
    return "\n".join(
        [
            "AnyLoss, Table 12: networks with five scales L, mean of ten folds",
            *DIFFERENT,
            "",
            columns(header, rows),
            "",
            *not_at_hand(absent),
            f"L = 73 is best, alone or with others, in {best['published']} of {len(groups)} rows "
            f"(published) and in {best['ours']} (ours)",
            f"exact matches: {int(within.sum())} of {len(table)}",
        ]
    )


def table13(
    folder: Path | None,
    quick: bool = False,
    out: Path = Path("reproduce-table13.csv"),
    told: runs.Told = runs.silent,
) -> Any:
    """Tidy: the score of every set, metric and scale."""
    folder, index = sets(folder, quick)
    jobs = [_job(name, read, NETWORK_RATES) for name, read in readers(folder, index)]
    table = runs.run(jobs, out, told, SETTINGS)
    runs.write(table, out, SETTINGS, figures="Table 13", rates=NETWORK_RATES)
    return table


def scale_wins(table: Any) -> Any:
    """On how many sets each scale is best, per metric: a tie counts for all of it; and alone.

    >>> import pandas as pd
    >>> rows = {"dataset": "a", "metric": "f1", "scale": [30, 73, 90], "ours": [0.5, 0.9, 0.9]}
    >>> scale_wins(pd.DataFrame(rows))["ties"].tolist()
    [0, 1, 1]
    """
    score = table["ours"].round(DIGITS)
    best = score == score.groupby([table["dataset"], table["metric"]]).transform("max")
    tied = best.groupby([table["dataset"], table["metric"]]).transform("sum")
    counted = table.assign(ties=best, sole=best & (tied == 1))
    return counted.groupby(["metric", "scale"], sort=False)[["ties", "sole"]].sum()


def table13_text(table: Any, folder: Path) -> str:
    """The winning numbers, published on 102 sets and ours."""
    found, paper = scale_wins(table), printed(folder, 13, "MLP")
    count = table["dataset"].nunique()
    value = paper.set_index(["metric", "loss"])["value"]
    rows = [
        (metric, str(L), f"{value[f'wins_{metric}', f'AnyLoss L={L}']:.0f}", *map(str, wins))
        for (metric, L), *wins in found.itertuples()
    ]
    header = ("metric", "L", "paper, 102 sets", f"ours, {count} sets", "alone")
    leaders = {
        metric: int(part["ties"].idxmax()[1])
        for metric, part in found.groupby("metric", sort=False)
    }
    return "\n".join(
        [
            "AnyLoss, Table 13: on how many sets each scale L is best, networks",
            "(a tie counts for every scale in it, as in the paper: its rows sum to 115, 104, 103)",
            *DIFFERENT,
            "",
            columns(header, rows),
            "",
            "most wins: paper L = 73 for all three; ours "
            + ", ".join(f"{metric} L = {L}" for metric, L in leaders.items()),
        ]
    )
