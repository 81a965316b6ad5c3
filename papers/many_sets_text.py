"""Tables 15, 16 and 4 in words: cells that agree, winning numbers, sign tests, imbalance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anyloss.benchmark.statistics import GROUPS, by_imbalance, versus
from papers import runs
from papers.many_sets import (
    AIMS,
    OURS,
    RIVALS,
    TOLERANCE,
    results,
    sets,
    table15,
    table16,
    winning_numbers,
)
from papers.published import authors_scores, printed
from papers.text import columns, signed

ROPES = (0.01, 0.05)
# What a clean protocol of networks must do otherwise than the authors.
DIFFERENT = (
    "The published figures come from one network that all folds (and, on the 102 sets, the losses",
    "in turn) trained on without a reset: later folds are tested on rows it had learnt. Here every",
    "fold and loss starts from the same fresh weights (seed 100), and n is the size of the batch:",
    "figures must differ, and what can be compared is which loss wins.",
)
# The paper's groups by the share of the larger class, and ours.
PRINTED_GROUPS = dict(zip(("60-70%", "70-80%", "80-90%", "90-%"), GROUPS[1:], strict=True))


def report15(request: runs.Request) -> str:
    """Table 15 on the sets at hand, run and told; on the smallest of them if quick."""
    folder, _ = sets(request.folder, request.quick)
    return table15_text(table15(folder, request.quick, request.out, request.told), folder)


def report16(request: runs.Request) -> str:
    """Table 16 by a clean protocol, in the same way."""
    folder, _ = sets(request.folder, request.quick)
    return table16_text(table16(folder, request.quick, request.out, request.told), folder)


def table15_text(table: Any, folder: Path) -> str:
    """All that Tables 15 and 4 tell, published and ours."""
    count = table["dataset"].nunique()
    parts = [
        f"AnyLoss, Table 15: single-layer perceptron, the {count} rebuilt data sets at hand",
        *_cells(table),
        "",
        *_statistics(table, folder, 15, "SLP"),
        "",
        f"cells that agree: {int(table['agrees'].sum())} of {len(table)}",
    ]
    return "\n".join(parts)


def table16_text(table: Any, folder: Path) -> str:
    """All that Tables 16 and 4 tell of networks; cells are summed up, for they must differ."""
    count = table["dataset"].nunique()
    aimed = table[table["loss"] == table["metric"].map(AIMS)]
    rows = [
        (metric, f"{part['published'].mean():.4f}", f"{part['ours'].mean():.4f}",
         signed(part["difference"].mean(), 4))
        for metric, part in aimed.groupby("metric", sort=False)
    ]  # fmt: skip
    parts = [
        f"AnyLoss, Table 16: networks, the {count} rebuilt data sets at hand",
        *DIFFERENT,
        "",
        "Mean score of the loss aimed at the metric: the authors', ours",
        "",
        columns(("metric", "published", "ours", "difference"), rows),
        "",
        *_statistics(table, folder, 16, "MLP"),
        "",
        f"cells that agree: {int(table['agrees'].sum())} of {len(table)}",
    ]
    return "\n".join(parts)


def _statistics(table: Any, folder: Path, number: int, model: str) -> Iterator[str]:
    """Winning numbers, sign tests and imbalance, by the same functions on three sets of scores."""
    every = authors_scores(folder, model).rename(columns={"table14": "dataset"})
    count = table["dataset"].nunique()
    sources = {
        f"authors' scores, {every['dataset'].nunique()} sets": results(every, "score", model),
        f"authors' scores, {count} sets": results(table, "published", model),
        f"our scores, {count} sets": results(table, "ours", model),  # only these are computed here
    }
    paper = printed(folder, number, model)
    yield from (
        "Winning numbers (MSE/BCE/AnyLoss): the paper gives most ties to AnyLoss",
        "",
        columns(("metric", "source", "ties given away", "sole winners", "ties"),
                _wins(sources, paper)),
        "",
        "Bayesian sign test: probabilities that AnyLoss wins/draws/loses",
        "",
        columns(("metric", "against", "rope", "source", "win", "draw", "lose"),
                _sign_tests(sources, paper, model)),
        "",
        "Table 4: AnyLoss minus the rival by the larger class's share, mean ± deviation (sets)",
        "",
        columns(("metric", "against", "share", "paper, 102 sets", *list(sources)[1:]),
                _imbalance(sources, printed(folder, 4, model), model)),
    )  # fmt: skip


def _cells(table: Any) -> Iterator[str]:
    """The cells that do not agree, if any."""
    apart = table[~table["agrees"]]
    same = len(table) - len(apart)
    yield f"cells within {TOLERANCE} of the published score: {same} of {len(table)}"
    if len(apart):
        rows = [
            (r.dataset, str(r.table14), r.loss, r.metric, f"{r.published:.4f}", f"{r.ours:.6f}",
             signed(r.difference, 6))
            for r in apart.itertuples()
        ]  # fmt: skip
        header = ("data set", "number", "loss", "metric", "published", "ours", "difference")
        yield from (
            "",
            "Those that do not agree (why: docs/reproduction.md):",
            "",
            columns(header, rows),
        )


def _wins(sources: dict[str, Any], paper: Any) -> Iterator[tuple[str, ...]]:
    found = {source: winning_numbers(scores) for source, scores in sources.items()}
    for metric in AIMS:
        wins = paper[paper["metric"] == f"wins_{metric}"].set_index("loss")["value"]
        yield metric, "paper", "/".join(f"{wins[x]:.0f}" for x in (*RIVALS, OURS)), "", ""
        for source, numbers in found.items():
            row = numbers.loc[metric]
            given = "/".join(str(row[x]) for x in (*RIVALS, OURS))
            sole = "/".join(str(row[f"{x}_sole"]) for x in (*RIVALS, OURS))
            yield metric, source, given, sole, str(row["ties"])


def _sign_tests(sources: dict[str, Any], paper: Any, model: str) -> Iterator[tuple[str, ...]]:
    value = paper.set_index(["loss", "metric"])["value"]
    for rival in RIVALS:
        for rope in ROPES:
            found = {s: versus(scores, OURS, rival, rope) for s, scores in sources.items()}
            for metric in AIMS:
                about = metric, rival, f"{rope:g}"
                key = f"{{}}_{metric}_rope{rope:g}"
                ends = (
                    f"{value[f'{OURS} vs {rival}', f'bayes_sign_{key.format(x)}']:.3f}"
                    for x in ("win", "draw", "lose")
                )
                yield *about, "paper", *ends
                for source, numbers in found.items():
                    row = numbers.loc[(model, metric)]
                    yield *about, source, *(f"{row[f'p_{x}']:.3f}" for x in ("win", "draw", "lose"))


def _imbalance(sources: dict[str, Any], paper: Any, model: str) -> Iterator[tuple[str, ...]]:
    at_hand = list(sources.values())[1:]
    for rival in RIVALS:
        found = [by_imbalance(scores, OURS, rival) for scores in at_hand]
        theirs = paper[paper["loss"] == f"{OURS} minus {rival}"]
        for row in theirs.itertuples():
            share = row.dataset.split()[-1]
            cells = [table.loc[(model, row.metric, PRINTED_GROUPS[share])] for table in found]
            shown = [
                f"{signed(c['mean'], 3)} ± {c['std']:.3f} ({c['sets']:.0f})" if c["sets"] else ""
                for c in cells
            ]
            yield row.metric, rival, share, f"{signed(row.value, 3)} ± {row.std:.3f}", *shown
