"""AnyLoss's Tables 12 and 13: networks trained with five scales L, by the clean protocol.

The paper does not give the learning rates of these tables. Here they are those of Tables 18 and 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from papers import four_networks, network_training, runs
from papers.data import TABLE17, LabelledData
from papers.four_sets import available, missing_lines
from papers.many_sets import AIMS, DIGITS, NETWORK_RATES, readers, rebuilt_sets
from papers.many_sets_report import DIFFERENT_PROTOCOL
from papers.published import anyloss_table, published_figures
from papers.text_tables import signed, text_table

SCALES = (30, 50, 73, 90, 110)
METRICS = ("accuracy", "f1", "balanced_accuracy")
SETTINGS = {**network_training.SETTINGS, "scales": SCALES}


def report12(request: runs.Request) -> str:
    """Run Table 12 on the requested data sets and return the comparison as text."""
    return table12_text(*table12(request))


def report13(request: runs.Request) -> str:
    """Run Table 13 on the rebuilt data sets and return the comparison as text."""
    folder, _ = rebuilt_sets(request.folder, request.quick)
    return table13_text(table13(request), folder)


def _job(name: str, read: Callable[[], LabelledData], rates: Mapping[str, float]) -> runs.Job:
    """Train with all scales for the three metrics; a row has the scale and the metric."""
    specs = {
        (metric, scale): network_training.loss_spec(AIMS[metric], rates[AIMS[metric]], scale)
        for metric in METRICS
        for scale in SCALES
    }

    def work(X: Any, y: Any) -> list[dict[str, Any]]:
        found = network_training.scores(
            X, y, {f"{metric} {L}": spec for (metric, L), spec in specs.items()}
        )
        return [
            {"metric": metric, "scale": L, "ours": found[f"{metric} {L}"][metric]}
            for metric, L in specs
        ]

    return runs.Job(name, read, dict(rates), work)


def table12(request: runs.Request) -> tuple[Any, dict[str, str]]:
    """The tidy comparison, and why other data sets are not available."""
    samples, missing = available(request)
    losses = [AIMS[metric] for metric in METRICS]
    jobs = [
        _job(
            name, partial(LabelledData, *rows), four_networks.rates(TABLE17[name][0], "MLP", losses)
        )
        for name, rows in samples.items()
    ]
    table = runs.run(jobs, request, SETTINGS)
    table["published"] = [
        float(published_figures(12, TABLE17[r.dataset][0], r.metric, "MLP")[f"L={r.scale}"])
        for r in table.itertuples()
    ]
    table["difference"] = table["ours"] - table["published"]
    runs.write(table, request.out, SETTINGS, figures="Table 12", absent=missing)
    return table, missing


def table12_text(table: Any, missing: Mapping[str, str]) -> str:
    """A line per figure, and the number of rows in which L = 73 is best."""
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
            *DIFFERENT_PROTOCOL,
            "",
            text_table(header, rows),
            "",
            *missing_lines(missing),
            f"L = 73 is best, alone or in a tie, in {best['published']} of {len(groups)} rows "
            f"(published) and in {best['ours']} (ours)",
            f"exact matches: {int(within.sum())} of {len(table)}",
        ]
    )


def table13(request: runs.Request) -> Any:
    """Tidy: the score of every data set, metric and scale."""
    folder, index = rebuilt_sets(request.folder, request.quick)
    jobs = [_job(name, read, NETWORK_RATES) for name, read in readers(folder, index)]
    table = runs.run(jobs, request, SETTINGS)
    runs.write(table, request.out, SETTINGS, figures="Table 13", rates=NETWORK_RATES)
    return table


def scale_wins(table: Any) -> Any:
    """The number of data sets on which each scale is best, per metric.

    In the column `ties` a tie counts for all its scales; the column `sole` has sole winners only.

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
    """The winning numbers, published on 102 data sets and ours."""
    found, paper = scale_wins(table), anyloss_table(folder, 13, "MLP")
    count = table["dataset"].nunique()
    value = paper.set_index(["metric", "loss"])["value"]
    rows = [
        (metric, str(L), f"{value[f'wins_{metric}', f'AnyLoss L={L}']:.0f}", *map(str, wins))
        for (metric, L), *wins in found.itertuples()
    ]
    header = ("metric", "L", "paper, 102 sets", f"ours, {count} sets", "sole")
    leaders = {
        metric: int(part["ties"].idxmax()[1])
        for metric, part in found.groupby("metric", sort=False)
    }
    return "\n".join(
        [
            "AnyLoss, Table 13: the number of data sets on which each scale L is best, networks",
            "(a tie counts for all its scales, as in the paper, whose rows sum to 115, 104, 103)",
            *DIFFERENT_PROTOCOL,
            "",
            text_table(header, rows),
            "",
            "most wins: paper L = 73 for all three metrics; ours "
            + ", ".join(f"{metric} L = {L}" for metric, L in leaders.items()),
        ]
    )
