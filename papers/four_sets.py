"""AnyLoss's Table 17, single-layer perceptron, reproduced to the last printed digit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from papers import runs, slp
from papers.data import TABLE17, LabelledData
from papers.published import published_figures
from papers.text_tables import signed, text_table

METRICS = ("accuracy", "f1", "gmean", "balanced_accuracy")
DIGITS = 6
QUICK = ("random", "breast-cancer")  # the two data sets that need no file


def report(request: runs.Request) -> str:
    """Run Table 17 on the requested data sets and return the comparison as text."""
    return table17_text(*table17(request))


def available(
    request: runs.Request, quick: tuple[str, ...] = ("breast-cancer",)
) -> tuple[dict[str, LabelledData], dict[str, str]]:
    """The requested ones of the four data sets, and why others are not available.

    Without names in the request these are all four, or in a quick run those of `quick`.
    """
    names = request.datasets or (quick if request.quick else tuple(TABLE17))
    unknown = [name for name in names if name not in TABLE17]
    if unknown:
        raise ValueError(f"data sets must be among {', '.join(TABLE17)}; got {', '.join(unknown)}")
    found, missing = {}, {}
    for name in dict.fromkeys(names):
        try:
            found[name] = TABLE17[name][1](request.folder)
        except FileNotFoundError as error:
            missing[name] = str(error)
    return found, missing


def missing_lines(missing: Mapping[str, str]) -> list[str]:
    """A line for each data set that is not available.

    >>> missing_lines({"diabetes": "no file"})
    ['not available: diabetes: no file']
    """
    return [f"not available: {name}: {reason}" for name, reason in missing.items()]


def rates(dataset: str) -> dict[str, float]:
    """The learning rates that Table 17 gives for a data set.

    >>> rates("breast_cancer_393")["L_F2"]
    0.007
    """
    given = published_figures(17, dataset, "learning_rate")
    return {loss: float(given[loss]) for loss in slp.LOSSES}


def table17(request: runs.Request) -> tuple[Any, dict[str, str]]:
    """The tidy comparison, and why other data sets are not available."""
    found, missing = available(request, QUICK)
    jobs = [
        runs.slp_job(name, partial(LabelledData, *samples), rates(TABLE17[name][0]))
        for name, samples in found.items()
    ]
    table = compared(runs.run(jobs, request))
    runs.write(table, request.out, figures="Table 17", absent=missing)
    return table, missing


def compared(scores: Any) -> Any:
    """The scores together with the published figures."""
    table = scores[scores["metric"].isin(METRICS)].reset_index(drop=True)
    table["published"] = [
        float(published_figures(17, TABLE17[row.dataset][0], row.metric)[row.loss])
        for row in table.itertuples()
    ]
    table["difference"] = table["ours"] - table["published"]
    table["agrees"] = table["ours"].round(DIGITS) == table["published"]
    return table[["dataset", "loss", "metric", "published", "ours", "difference", "agrees"]]


def table17_text(table: Any, missing: Mapping[str, str]) -> str:
    """A line per figure, published and ours, and the number of exact matches."""
    rows = [
        (r.dataset, r.loss, r.metric, f"{r.published:.{DIGITS}f}", f"{r.ours:.{DIGITS}f}",
         signed(round(r.ours, DIGITS) - r.published, DIGITS))
        for r in table.itertuples()
    ]  # fmt: skip
    header = ("data set", "loss", "metric", "published", "ours", "difference")
    parts = ["AnyLoss, Table 17: single-layer perceptron, mean of ten folds", ""]
    parts += [text_table(header, rows), ""] if rows else []
    parts += missing_lines(missing)
    for name, group in table.groupby("dataset", sort=False):
        parts.append(f"{name}: {int(group['agrees'].sum())} of {len(group)} exact")
    parts.append(f"exact matches: {int(table['agrees'].sum())} of {len(table)}")
    return "\n".join(parts)
