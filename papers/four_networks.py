"""AnyLoss's Table 18, networks on the four sets, by a clean protocol; and Table 6.

Table 6 repeats Tables 17 and 18: of each loss the metric that it aims at, cut or rounded to three
decimals. Its columns SOL (S_A, S_F, S_B of Table 17) are score-oriented losses, a raised cosine of
half-width 0.1; their perceptron was trained by Keras in shuffled batches, so that chance is in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from papers import networks, runs, slp
from papers.data import TABLE17, Rows
from papers.four_sets import DIGITS, METRICS, asked, at_hand, not_at_hand
from papers.many_sets import AIMS
from papers.many_sets_text import DIFFERENT
from papers.published import figures
from papers.text import columns, signed

SOL = ("S_A", "S_F", "S_B")
LOSSES = (*slp.LOSSES, *SOL)
# A metric of Table 6: the losses that its columns MSE, BCE, SOL and OUR stand for.
TABLE6 = {
    "accuracy": ("MSE", "BCE", "S_A", "L_A"),
    "f1": ("MSE", "BCE", "S_F", "L_F1"),
    "balanced_accuracy": ("MSE", "BCE", "S_B", "L_B"),
}
COLUMNS = ("MSE", "BCE", "SOL", "AnyLoss")


def report18(request: runs.Request) -> str:
    """Table 18 of the sets asked for, run and told; breast cancer alone if quick."""
    return table18_text(*table18(asked(request), request.folder, request.out, request.told))


def report6(request: runs.Request) -> str:
    """Table 6 in the same way."""
    return table6_text(*table6(asked(request), request.folder, request.out, request.told))


def rates(dataset: str, structure: str, losses: Sequence[str]) -> dict[str, float]:
    """The learning rates that Table 17 (SLP) or 18 (MLP) gives for a data set.

    >>> rates("breast_cancer_393", "MLP", ["S_F"])
    {'S_F': 0.01}
    """
    given = figures(17 if structure == "SLP" else 18, dataset, "learning_rate", structure)
    return {loss: float(given[loss]) for loss in losses}


def _job(
    name: str, rows: Rows, structure: str, losses: Sequence[str], *, kept: bool = False
) -> runs.Job:
    """Train for these losses: networks, or perceptrons by the same optimiser."""
    given = rates(TABLE17[name][0], structure, losses)
    goals = {loss: networks.goal(loss, rate) for loss, rate in given.items()}
    hidden, key = networks.HIDDEN if structure == "MLP" else 0, [structure, given, kept]
    job = networks.job(name, partial(Rows, *rows), goals, key, hidden, kept=kept)
    return _marked(job, "MLP, kept" if kept else structure)


def _marked(job: runs.Job, structure: str) -> runs.Job:
    """The job, with the structure in each of its rows."""
    return job._replace(
        work=lambda X, y: [{"structure": structure, **row} for row in job.work(X, y)]
    )


def table18(
    names: Sequence[str] = (),
    folder: Path | None = None,
    out: Path = Path("reproduce-table18.csv"),
    told: runs.Told = runs.silent,
) -> tuple[Any, dict[str, str]]:
    """The tidy comparison, and why the other data sets are not at hand."""
    there, absent = at_hand(names, folder)
    jobs = [
        _job(name, rows, "MLP", LOSSES, kept=kept)
        for name, rows in there.items()
        for kept in (False, True)
    ]
    found = runs.run(jobs, out, told, networks.SETTINGS)
    found = found[found["metric"].isin(METRICS)]
    wide = found.pivot(index=["dataset", "loss", "metric"], columns="structure", values="ours")
    clean = found[found["structure"] == "MLP"].drop(columns="structure").reset_index(drop=True)
    keys = [tuple(row) for row in clean[["dataset", "loss", "metric"]].to_numpy()]
    table = clean.assign(kept=[wide.loc[key, "MLP, kept"] for key in keys])
    table["published"] = [
        float(figures(18, TABLE17[dataset][0], metric, "MLP")[loss])
        for dataset, loss, metric in keys
    ]
    table["difference"] = table["ours"] - table["published"]
    runs.write(table, out, networks.SETTINGS, figures="Table 18", absent=absent)
    return table, absent


def table18_text(table: Any, absent: Mapping[str, str]) -> str:
    """A line per figure; then, per metric, which losses are best in the paper and here."""
    rows = [
        (r.dataset, r.loss, r.metric, f"{r.published:.{DIGITS}f}", f"{r.ours:.{DIGITS}f}",
         signed(r.difference, DIGITS), f"{r.kept:.{DIGITS}f}")
        for r in table.itertuples()
    ]  # fmt: skip
    best = []
    for (dataset, metric), group in table.groupby(["dataset", "metric"], sort=False):
        scores = group.set_index("loss")[["published", "ours"]]
        ranks = scores.rank(ascending=False, method="min").astype(int)
        winners = [", ".join(scores.index[scores[x] == scores[x].max()]) for x in scores]
        aim = AIMS[metric]
        best.append((dataset, metric, *winners, aim, *(str(ranks.loc[aim, x]) for x in ranks)))
    header = ("data set", "loss", "metric", "published", "ours", "difference", "not reset")
    ranked = ("data set", "metric", "best, paper", "best, ours", "aimed at it", "rank", "ours")
    exact = int((table["ours"].round(DIGITS) == table["published"]).sum())
    parts = [
        "AnyLoss, Table 18: networks, mean of ten folds",
        *DIFFERENT,
        "Last column, the flaw on purpose: one network per loss, not reset between the folds.",
        "",
        columns(header, rows),
        "",
        "Which losses are best, and the rank among all of the loss that aims at the metric:",
        "",
        columns(ranked, best),
        "",
        *not_at_hand(absent),
        f"exact matches: {exact} of {len(table)}; mean difference "
        f"{signed(table['difference'].mean(), 4)}, and without a reset "
        f"{signed((table['kept'] - table['published']).mean(), 4)}",
    ]
    return "\n".join(parts)


def table6(
    names: Sequence[str] = (),
    folder: Path | None = None,
    out: Path = Path("reproduce-table6.csv"),
    told: runs.Told = runs.silent,
) -> tuple[Any, dict[str, str]]:
    """The tidy comparison: both structures, the metric that each loss aims at."""
    there, absent = at_hand(names, folder)
    aimed = list(dict.fromkeys(loss for losses in TABLE6.values() for loss in losses))
    jobs = []
    for name, rows in there.items():
        exact = rates(TABLE17[name][0], "SLP", [loss for loss in aimed if loss not in SOL])
        jobs += [
            _marked(runs.slp_job(name, partial(Rows, *rows), exact), "SLP"),
            _job(name, rows, "SLP", SOL),
            _job(name, rows, "MLP", aimed),
        ]
    settings = {"SLP": slp.SETTINGS, "MLP": networks.SETTINGS}
    found = runs.run(jobs, out, told, settings)
    keys = ["dataset", "structure", "metric", "loss"]
    scores = found.set_index(keys)["ours"]
    wanted = [
        {"dataset": name, "structure": structure, "metric": metric, "column": column, "loss": loss}
        for name in there
        for structure in ("SLP", "MLP")
        for metric, losses in TABLE6.items()
        for column, loss in zip(COLUMNS, losses, strict=True)
    ]
    import pandas as pd

    table = pd.DataFrame(wanted)
    table["published"] = [
        float(figures(6, TABLE17[r.dataset][0], r.metric, r.structure)[r.column])
        for r in table.itertuples()
    ]
    table["ours"] = scores.loc[pd.MultiIndex.from_frame(table[keys])].to_numpy()
    table["difference"] = table["ours"] - table["published"]
    table["agrees"] = table["difference"].abs() < 0.001  # cut or rounded: the paper does both
    runs.write(table, out, settings, figures="Table 6", absent=absent)
    return table, absent


def table6_text(table: Any, absent: Mapping[str, str]) -> str:
    """A line per figure; at the end how many agree, by structure and column."""
    rows = [
        (r.dataset, r.structure, r.metric, r.column, f"{r.published:.3f}", f"{r.ours:.6f}",
         signed(r.difference, 3))
        for r in table.itertuples()
    ]  # fmt: skip
    slp_part = table[table["structure"] == "SLP"]
    exact, sol = slp_part[slp_part["column"] != "SOL"], slp_part[slp_part["column"] == "SOL"]
    rest = table[table["structure"] == "MLP"]
    counts = (
        ("SLP without SOL, no chance in it", exact),
        ("SLP, SOL, chance of Keras's batches in it", sol),
        ("MLP, by a clean protocol", rest),
    )
    header = ("data set", "structure", "metric", "loss", "published", "ours", "difference")
    parts = [
        "AnyLoss, Table 6: the metric that each loss aims at, perceptron and networks",
        *DIFFERENT,
        "",
        columns(header, rows),
        "",
        *not_at_hand(absent),
        *(
            f"{what}: {int(part['agrees'].sum())} of {len(part)} within 0.001"
            for what, part in counts
        ),
        f"within 0.001: {int(table['agrees'].sum())} of {len(table)}",
    ]
    return "\n".join(parts)
