"""Table 15 and Table 4 in words: cells that agree, winning numbers, sign tests, imbalance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anyloss.studies.reproduce import runs
from anyloss.studies.reproduce.many_sets import (
    AIMS,
    OURS,
    RIVALS,
    TOLERANCE,
    results,
    sets,
    table15,
    winning_numbers,
)
from anyloss.studies.reproduce.published import printed, slp_scores
from anyloss.studies.reproduce.text import columns, signed
from anyloss.studies.statistics import GROUPS, by_imbalance, versus

ROPES = (0.01, 0.05)
# The paper's groups by the share of the larger class, and ours.
PRINTED_GROUPS = dict(zip(("60-70%", "70-80%", "80-90%", "90-%"), GROUPS[1:], strict=True))


def report(request: runs.Request) -> str:
    """Table 15 on the sets at hand, run and told; on the smallest of them if quick."""
    folder, _ = sets(request.folder, request.quick)
    return table15_text(table15(folder, request.quick, request.out, request.told), folder)


def table15_text(table: Any, folder: Path) -> str:
    """All that Tables 15 and 4 tell, published and ours."""
    every = slp_scores(folder).rename(columns={"table14": "dataset"})
    count = table["dataset"].nunique()
    # The same functions on three sets of scores; only the last one is computed here.
    sources = {
        f"authors' scores, {every['dataset'].nunique()} sets": results(every, "score"),
        f"authors' scores, {count} sets": results(table, "published"),
        f"our scores, {count} sets": results(table, "ours"),
    }
    parts = [
        f"AnyLoss, Table 15: single-layer perceptron, the {count} rebuilt data sets at hand",
        *_cells(table),
        "",
        "Winning numbers (MSE/BCE/AnyLoss): the paper gives most ties to AnyLoss",
        "",
        columns(("metric", "source", "ties given away", "sole winners", "ties"),
                _wins(sources, printed(folder, 15))),
        "",
        "Bayesian sign test: probabilities that AnyLoss wins/draws/loses",
        "",
        columns(("metric", "against", "rope", "source", "win", "draw", "lose"),
                _sign_tests(sources, printed(folder, 15))),
        "",
        "Table 4: AnyLoss minus the rival by the larger class's share, mean ± deviation (sets)",
        "",
        columns(("metric", "against", "share", "paper, 102 sets", *list(sources)[1:]),
                _imbalance(sources, printed(folder, 4))),
        "",
        f"cells that agree: {int(table['agrees'].sum())} of {len(table)}",
    ]  # fmt: skip
    return "\n".join(parts)


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


def _sign_tests(sources: dict[str, Any], paper: Any) -> Iterator[tuple[str, ...]]:
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
                    row = numbers.loc[("SLP", metric)]
                    yield *about, source, *(f"{row[f'p_{x}']:.3f}" for x in ("win", "draw", "lose"))


def _imbalance(sources: dict[str, Any], paper: Any) -> Iterator[tuple[str, ...]]:
    at_hand = list(sources.values())[1:]
    for rival in RIVALS:
        found = [by_imbalance(scores, OURS, rival) for scores in at_hand]
        theirs = paper[paper["loss"] == f"{OURS} minus {rival}"]
        for row in theirs.itertuples():
            share = row.dataset.split()[-1]
            cells = [table.loc[("SLP", row.metric, PRINTED_GROUPS[share])] for table in found]
            shown = [
                f"{signed(c['mean'], 3)} ± {c['std']:.3f} ({c['sets']:.0f})" if c["sets"] else ""
                for c in cells
            ]
            yield row.metric, rival, share, f"{signed(row.value, 3)} ± {row.std:.3f}", *shown
