"""AnyLoss's Table 17, single-layer perceptron: to the last printed digit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from papers import runs, slp
from papers.data import TABLE17, Rows
from papers.published import figures
from papers.text import columns, signed

METRICS = ("accuracy", "f1", "gmean", "balanced_accuracy")
DIGITS = 6
QUICK = ("random", "breast-cancer")


def report(request: runs.Request) -> str:
    """Table 17 of the sets asked for, run and told; the two that need no file if quick."""
    names = asked(request, QUICK)
    return table17_text(*table17(names, request.folder, request.out, request.told))


def asked(request: runs.Request, quick: tuple[str, ...] = QUICK[1:]) -> tuple[str, ...]:
    """The sets asked for; if none and quick, these."""
    return request.datasets or (quick if request.quick else ())


def rates(dataset: str) -> dict[str, float]:
    """The learning rates that the table gives for a data set.

    >>> rates("breast_cancer_393")["L_F2"]
    0.007
    """
    given = figures(17, dataset, "learning_rate")
    return {loss: float(given[loss]) for loss in slp.LOSSES}


def table17(
    names: Sequence[str] = (),
    folder: Path | None = None,
    out: Path = Path("reproduce-table17.csv"),
    told: runs.Told = runs.silent,
) -> tuple[Any, dict[str, str]]:
    """The tidy comparison, and why the other data sets are not at hand."""
    there, absent = at_hand(names, folder)
    jobs = [
        runs.slp_job(name, partial(Rows, *rows), rates(TABLE17[name][0]))
        for name, rows in there.items()
    ]
    table = compared(runs.run(jobs, out, told))
    runs.write(table, out, figures="Table 17", absent=absent)
    return table, absent


def at_hand(
    names: Sequence[str] = (), folder: Path | None = None
) -> tuple[dict[str, Rows], dict[str, str]]:
    """The rows of these of the four sets (default: all), and why others are not at hand."""
    unknown = [name for name in names if name not in TABLE17]
    if unknown:
        raise ValueError(f"data sets must be among {', '.join(TABLE17)}; got {', '.join(unknown)}")
    there, absent = {}, {}
    for name in dict.fromkeys(names or TABLE17):
        try:
            there[name] = TABLE17[name][1](folder)
        except FileNotFoundError as error:
            absent[name] = str(error)
    return there, absent


def not_at_hand(absent: Mapping[str, str]) -> list[str]:
    """A line for each set that is not at hand.

    >>> not_at_hand({"diabetes": "no file"})
    ['not at hand: diabetes: no file']
    """
    return [f"not at hand: {name}: {reason}" for name, reason in absent.items()]


def compared(scores: Any) -> Any:
    """Scores with the published figures beside them."""
    table = scores[scores["metric"].isin(METRICS)].reset_index(drop=True)
    table["published"] = [
        float(figures(17, TABLE17[row.dataset][0], row.metric)[row.loss])
        for row in table.itertuples()
    ]
    table["difference"] = table["ours"] - table["published"]
    table["agrees"] = table["ours"].round(DIGITS) == table["published"]
    return table[["dataset", "loss", "metric", "published", "ours", "difference", "agrees"]]


def table17_text(table: Any, absent: dict[str, str]) -> str:
    """A line per figure, published and ours; at the end the number of exact matches."""
    rows = [
        (r.dataset, r.loss, r.metric, f"{r.published:.{DIGITS}f}", f"{r.ours:.{DIGITS}f}",
         signed(round(r.ours, DIGITS) - r.published, DIGITS))
        for r in table.itertuples()
    ]  # fmt: skip
    header = ("data set", "loss", "metric", "published", "ours", "difference")
    parts = ["AnyLoss, Table 17: single-layer perceptron, mean of ten folds", ""]
    parts += [columns(header, rows), ""] if rows else []
    parts += not_at_hand(absent)
    for name, group in table.groupby("dataset", sort=False):
        parts.append(f"{name}: {int(group['agrees'].sum())} of {len(group)} exact")
    parts.append(f"exact matches: {int(table['agrees'].sum())} of {len(table)}")
    return "\n".join(parts)
