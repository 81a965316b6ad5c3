"""Tables 15, 16 and 4 as text: agreement, winning numbers, sign tests, imbalance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anyloss.benchmark.statistics import GROUPS, by_imbalance, versus
from papers import runs
from papers.many_sets import (
    AIMS,
    BASELINES,
    OURS,
    TOLERANCE,
    rebuilt_sets,
    results,
    table15,
    table16,
    winning_numbers,
)
from papers.published import anyloss_table, authors_scores
from papers.text_tables import signed, text_table

ROPES = (0.01, 0.05)
# How a clean protocol of networks differs from that of the authors.
DIFFERENT_PROTOCOL = (
    "The published figures come from one network that was trained through all folds (on the 102",
    "data sets also through all losses) without a reset, so that later folds are tested on rows",
    "that it was trained on. Here every fold and loss starts from the same new weights (seed 100),",
    "and n is the batch size. The figures must therefore differ; compare which loss wins.",
)
# By the paper's group of the share of the larger class: our group.
PRINTED_GROUPS = dict(zip(("60-70%", "70-80%", "80-90%", "90-%"), GROUPS[1:], strict=True))


def report15(request: runs.Request) -> str:
    """Run Table 15 on the rebuilt data sets and return the comparison as text."""
    folder, _ = rebuilt_sets(request.folder, request.quick)
    return table15_text(table15(request), folder)


def report16(request: runs.Request) -> str:
    """Run Table 16 by a clean protocol and return the comparison as text."""
    folder, _ = rebuilt_sets(request.folder, request.quick)
    return table16_text(table16(request), folder)


def table15_text(table: Any, folder: Path) -> str:
    """Tables 15 and 4, published and ours."""
    count = table["dataset"].nunique()
    parts = [
        f"AnyLoss, Table 15: single-layer perceptron, the {count} rebuilt data sets",
        *_agreement(table),
        "",
        *_statistics(table, folder, 15, "SLP"),
        "",
        f"scores that agree: {int(table['agrees'].sum())} of {len(table)}",
    ]
    return "\n".join(parts)


def table16_text(table: Any, folder: Path) -> str:
    """Tables 16 and 4 of networks; of the single scores, which must differ, only the means."""
    count = table["dataset"].nunique()
    aimed = table[table["loss"] == table["metric"].map(AIMS)]
    rows = [
        (metric, f"{part['published'].mean():.4f}", f"{part['ours'].mean():.4f}",
         signed(part["difference"].mean(), 4))
        for metric, part in aimed.groupby("metric", sort=False)
    ]  # fmt: skip
    parts = [
        f"AnyLoss, Table 16: networks, the {count} rebuilt data sets",
        *DIFFERENT_PROTOCOL,
        "",
        "Mean score of the loss that aims at the metric:",
        "",
        text_table(("metric", "published", "ours", "difference"), rows),
        "",
        *_statistics(table, folder, 16, "MLP"),
        "",
        f"scores that agree: {int(table['agrees'].sum())} of {len(table)}",
    ]
    return "\n".join(parts)


def _statistics(table: Any, folder: Path, number: int, model: str) -> Iterator[str]:
    """Winning numbers, sign tests and imbalance, by the same functions from three sources."""
    every = authors_scores(folder, model).rename(columns={"table14": "dataset"})
    count = table["dataset"].nunique()
    sources = {
        f"authors' scores, {every['dataset'].nunique()} sets": results(every, "score", model),
        f"authors' scores, {count} sets": results(table, "published", model),
        f"our scores, {count} sets": results(table, "ours", model),  # only these are computed here
    }
    paper = anyloss_table(folder, number, model)
    yield from (
        "Winning numbers (MSE/BCE/AnyLoss); the paper counts most ties as wins of AnyLoss:",
        "",
        text_table(("metric", "source", "with ties", "sole winners", "ties"),
                   _wins(sources, paper)),
        "",
        "Bayesian sign test: probabilities that AnyLoss wins, draws and loses",
        "",
        text_table(("metric", "against", "rope", "source", "win", "draw", "lose"),
                   _sign_tests(sources, paper, model)),
        "",
        "Table 4: AnyLoss minus the baseline by the share of the larger class, mean ± deviation",
        "(number of data sets)",
        "",
        text_table(("metric", "against", "share", "paper, 102 sets", *list(sources)[1:]),
                   _imbalance(sources, anyloss_table(folder, 4, model), model)),
    )  # fmt: skip


def _agreement(table: Any) -> Iterator[str]:
    """The number of scores that agree, and a table of those that do not."""
    apart = table[~table["agrees"]]
    same = len(table) - len(apart)
    yield f"scores within {TOLERANCE} of the published score: {same} of {len(table)}"
    if len(apart):
        rows = [
            (r.dataset, str(r.table14), r.loss, r.metric, f"{r.published:.4f}", f"{r.ours:.6f}",
             signed(r.difference, 6))
            for r in apart.itertuples()
        ]  # fmt: skip
        header = ("data set", "number", "loss", "metric", "published", "ours", "difference")
        yield from (
            "",
            "Scores that do not agree (docs/reproduction.md explains why):",
            "",
            text_table(header, rows),
        )


def _wins(sources: dict[str, Any], paper: Any) -> Iterator[tuple[str, ...]]:
    """The rows of the winning numbers: metric, source, with ties, sole winners, ties."""
    found = {source: winning_numbers(scores) for source, scores in sources.items()}
    for metric in AIMS:
        wins = paper[paper["metric"] == f"wins_{metric}"].set_index("loss")["value"]
        yield metric, "paper", "/".join(f"{wins[x]:.0f}" for x in (*BASELINES, OURS)), "", ""
        for source, numbers in found.items():
            row = numbers.loc[metric]
            given = "/".join(str(row[x]) for x in (*BASELINES, OURS))
            sole = "/".join(str(row[f"{x}_sole"]) for x in (*BASELINES, OURS))
            yield metric, source, given, sole, str(row["ties"])


def _sign_tests(sources: dict[str, Any], paper: Any, model: str) -> Iterator[tuple[str, ...]]:
    """The rows of the sign tests, for both baselines and both ropes."""
    value = paper.set_index(["loss", "metric"])["value"]
    for baseline in BASELINES:
        for rope in ROPES:
            found = {s: versus(scores, OURS, baseline, rope) for s, scores in sources.items()}
            for metric in AIMS:
                about = metric, baseline, f"{rope:g}"
                key = f"{{}}_{metric}_rope{rope:g}"
                ends = (
                    f"{value[f'{OURS} vs {baseline}', f'bayes_sign_{key.format(x)}']:.3f}"
                    for x in ("win", "draw", "lose")
                )
                yield *about, "paper", *ends
                for source, numbers in found.items():
                    row = numbers.loc[(model, metric)]
                    yield *about, source, *(f"{row[f'p_{x}']:.3f}" for x in ("win", "draw", "lose"))


def _imbalance(sources: dict[str, Any], paper: Any, model: str) -> Iterator[tuple[str, ...]]:
    """The rows of Table 4: differences by the share of the larger class."""
    rebuilt = list(sources.values())[1:]
    for baseline in BASELINES:
        found = [by_imbalance(scores, OURS, baseline) for scores in rebuilt]
        theirs = paper[paper["loss"] == f"{OURS} minus {baseline}"]
        for row in theirs.itertuples():
            share = row.dataset.split()[-1]
            cells = [table.loc[(model, row.metric, PRINTED_GROUPS[share])] for table in found]
            shown = [
                f"{signed(c['mean'], 3)} ± {c['std']:.3f} ({c['sets']:.0f})" if c["sets"] else ""
                for c in cells
            ]
            yield row.metric, baseline, share, f"{signed(row.value, 3)} ± {row.std:.3f}", *shown
