"""AnyLoss's Table 18, networks on the four data sets, by a clean protocol; and Table 6.

Table 6 repeats figures of Tables 17 and 18, truncated or rounded to three decimals: for each loss
the metric that it aims at. Its columns SOL (S_A, S_F and S_B in Table 17) are score-oriented
losses, a raised cosine of half-width 0.1. The authors trained their perceptron with Keras in
shuffled batches, so that these figures depend on random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from papers import network_training, runs, slp
from papers.data import TABLE17, LabelledData
from papers.four_sets import DIGITS, METRICS, available, missing_lines
from papers.many_sets import AIMS
from papers.many_sets_report import DIFFERENT_PROTOCOL
from papers.published import published_figures
from papers.text_tables import signed, text_table

SOL = ("S_A", "S_F", "S_B")
LOSSES = (*slp.LOSSES, *SOL)
# By metric of Table 6: the losses in its columns MSE, BCE, SOL and OUR.
TABLE6 = {
    "accuracy": ("MSE", "BCE", "S_A", "L_A"),
    "f1": ("MSE", "BCE", "S_F", "L_F1"),
    "balanced_accuracy": ("MSE", "BCE", "S_B", "L_B"),
}
COLUMNS = ("MSE", "BCE", "SOL", "AnyLoss")


def report18(request: runs.Request) -> str:
    """Run Table 18 on the requested data sets and return the comparison as text."""
    return table18_text(*table18(request))


def report6(request: runs.Request) -> str:
    """Run Table 6 on the requested data sets and return the comparison as text."""
    return table6_text(*table6(request))


def rates(dataset: str, structure: str, losses: Sequence[str]) -> dict[str, float]:
    """The learning rates that Table 17 (SLP) or 18 (MLP) gives for a data set.

    >>> rates("breast_cancer_393", "MLP", ["S_F"])
    {'S_F': 0.01}
    """
    table = 17 if structure == "SLP" else 18
    given = published_figures(table, dataset, "learning_rate", structure)
    return {loss: float(given[loss]) for loss in losses}


def _job(
    name: str, samples: LabelledData, structure: str, losses: Sequence[str], *, kept: bool = False
) -> runs.Job:
    """Train with these losses: networks, or perceptrons by the same optimiser."""
    given = rates(TABLE17[name][0], structure, losses)
    specs = {loss: network_training.loss_spec(loss, rate) for loss, rate in given.items()}
    hidden, key = network_training.HIDDEN if structure == "MLP" else 0, [structure, given, kept]
    read = partial(LabelledData, *samples)
    job = network_training.job(name, read, specs, key, hidden, kept_weights=kept)
    return _marked(job, "MLP, kept" if kept else structure)


def _marked(job: runs.Job, structure: str) -> runs.Job:
    """The job, with the structure in each of its rows."""
    return job._replace(
        work=lambda X, y: [{"structure": structure, **row} for row in job.work(X, y)]
    )


def table18(request: runs.Request) -> tuple[Any, dict[str, str]]:
    """The tidy comparison, and why other data sets are not available.

    The column `ours` is by the clean protocol. The column `kept` repeats the authors' flaw: the
    weights are kept from fold to fold.
    """
    samples, missing = available(request)
    jobs = [
        _job(name, rows, "MLP", LOSSES, kept=kept)
        for name, rows in samples.items()
        for kept in (False, True)
    ]
    found = runs.run(jobs, request, network_training.SETTINGS)
    found = found[found["metric"].isin(METRICS)]
    wide = found.pivot(index=["dataset", "loss", "metric"], columns="structure", values="ours")
    clean = found[found["structure"] == "MLP"].drop(columns="structure").reset_index(drop=True)
    keys = [tuple(row) for row in clean[["dataset", "loss", "metric"]].to_numpy()]
    table = clean.assign(kept=[wide.loc[key, "MLP, kept"] for key in keys])
    table["published"] = [
        float(published_figures(18, TABLE17[dataset][0], metric, "MLP")[loss])
        for dataset, loss, metric in keys
    ]
    table["difference"] = table["ours"] - table["published"]
    runs.write(table, request.out, network_training.SETTINGS, figures="Table 18", absent=missing)
    return table, missing


def table18_text(table: Any, missing: Mapping[str, str]) -> str:
    """A line per figure; then, per metric, the best losses in the paper and here."""
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
    ranked = (
        "data set", "metric", "best, paper", "best, ours", "aims at it",
        "rank, paper", "rank, ours",
    )  # fmt: skip
    exact = int((table["ours"].round(DIGITS) == table["published"]).sum())
    parts = [
        "AnyLoss, Table 18: networks, mean of ten folds",
        *DIFFERENT_PROTOCOL,
        "The last column repeats the authors' flaw: one network per loss, not reset between folds.",
        "",
        text_table(header, rows),
        "",
        "The best losses, and the rank among all losses of the loss that aims at the metric:",
        "",
        text_table(ranked, best),
        "",
        *missing_lines(missing),
        f"exact matches: {exact} of {len(table)}; mean difference "
        f"{signed(table['difference'].mean(), 4)}, and without a reset "
        f"{signed((table['kept'] - table['published']).mean(), 4)}",
    ]
    return "\n".join(parts)


def table6(request: runs.Request) -> tuple[Any, dict[str, str]]:
    """The tidy comparison of both structures: for each loss the metric that it aims at."""
    import pandas as pd

    samples, missing = available(request)
    settings = {"SLP": slp.SETTINGS, "MLP": network_training.SETTINGS}
    found = runs.run(_table6_jobs(samples), request, settings)
    keys = ["dataset", "structure", "metric", "loss"]
    scores = found.set_index(keys)["ours"]
    table = pd.DataFrame(
        {"dataset": name, "structure": structure, "metric": metric, "column": column, "loss": loss}
        for name in samples
        for structure in ("SLP", "MLP")
        for metric, losses in TABLE6.items()
        for column, loss in zip(COLUMNS, losses, strict=True)
    )
    table["published"] = [
        float(published_figures(6, TABLE17[r.dataset][0], r.metric, r.structure)[r.column])
        for r in table.itertuples()
    ]
    table["ours"] = scores.loc[pd.MultiIndex.from_frame(table[keys])].to_numpy()
    table["difference"] = table["ours"] - table["published"]
    # The paper truncates some figures and rounds others.
    table["agrees"] = table["difference"].abs() < 0.001
    runs.write(table, request.out, settings, figures="Table 6", absent=missing)
    return table, missing


def _table6_jobs(samples: Mapping[str, LabelledData]) -> list[runs.Job]:
    """Perceptrons and networks for all losses of Table 6."""
    aimed = list(dict.fromkeys(loss for losses in TABLE6.values() for loss in losses))
    jobs = []
    for name, rows in samples.items():
        exact = rates(TABLE17[name][0], "SLP", [loss for loss in aimed if loss not in SOL])
        jobs += [
            _marked(runs.slp_job(name, partial(LabelledData, *rows), exact), "SLP"),
            _job(name, rows, "SLP", SOL),
            _job(name, rows, "MLP", aimed),
        ]
    return jobs


def table6_text(table: Any, missing: Mapping[str, str]) -> str:
    """A line per figure, and how many agree by structure and column."""
    rows = [
        (r.dataset, r.structure, r.metric, r.column, f"{r.published:.3f}", f"{r.ours:.6f}",
         signed(r.difference, 3))
        for r in table.itertuples()
    ]  # fmt: skip
    slp_part = table[table["structure"] == "SLP"]
    exact, sol = slp_part[slp_part["column"] != "SOL"], slp_part[slp_part["column"] == "SOL"]
    rest = table[table["structure"] == "MLP"]
    counts = (
        ("SLP without SOL, deterministic", exact),
        ("SLP, SOL, with Keras's random batches", sol),
        ("MLP, by a clean protocol", rest),
    )
    header = ("data set", "structure", "metric", "loss", "published", "ours", "difference")
    parts = [
        "AnyLoss, Table 6: the metric that each loss aims at, perceptron and networks",
        *DIFFERENT_PROTOCOL,
        "",
        text_table(header, rows),
        "",
        *missing_lines(missing),
        *(
            f"{what}: {int(part['agrees'].sum())} of {len(part)} within 0.001"
            for what, part in counts
        ),
        f"within 0.001: {int(table['agrees'].sum())} of {len(table)}",
    ]
    return "\n".join(parts)
