"""The scores behind AnyLoss's Tables 15 and 16, per data set, and the statistics of the tables.

The authors published their scores with about four decimals. The scores of the rebuilt data sets are
compared with them one by one. The winning numbers, the Bayesian sign test and Table 4 are computed
from the authors' scores and from ours by the same functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from papers import network_training, runs
from papers.data import LabelledData, read_standardised
from papers.published import authors_scores

TOLERANCE = 1.5e-4
DIGITS = 4  # of the published scores: scores that are equal in these digits are a tie
QUICK_ROWS = 400
RATES = {
    "MSE": 0.01, "BCE": 0.1, "L_A": 0.005, "L_F1": 0.01, "L_F0.5": 0.005, "L_F2": 0.005,
    "L_G": 0.005, "L_B": 0.005,
}  # fmt: skip
# The learning rates of the networks of Table 16, which has no other losses.
NETWORK_RATES = {"MSE": 0.005, "BCE": 0.003, "L_A": 0.005, "L_F1": 0.001, "L_G": 0.01, "L_B": 0.005}
# By metric: the loss that aims at it.
AIMS = {"accuracy": "L_A", "f1": "L_F1", "gmean": "L_G", "balanced_accuracy": "L_B"}
OURS, BASELINES = "AnyLoss", ("MSE", "BCE")


def rebuilt_sets(folder: Path | None, quick: bool = False) -> tuple[Path, Any]:
    """The folder, and its data sets that give the published scores; the smallest if `quick`.

    Columns: name, file, table14 (the number in the paper), n (rows) and positives.
    """
    if folder is None or not (folder / "index.csv").exists():
        raise ValueError(
            "the data sets of Table 14 need --data FOLDER with an index.csv; "
            f"got {'no folder' if folder is None else str(folder)}"
        )
    index = pd.read_csv(folder / "index.csv")
    wanted = ["name", "file", "table14", "n", "positives", "match"]
    missing = [column for column in wanted if column not in index]
    if missing:
        raise ValueError(f"index.csv must have the columns {missing}; got {list(index)}")
    found = index.loc[index["match"] == "scores", wanted[:-1]]
    found = found[found["n"] < QUICK_ROWS] if quick else found
    if not len(found):
        raise ValueError(f"no data set of {folder / 'index.csv'} has match = scores")
    return folder, found.astype({"table14": int}).reset_index(drop=True)


def table15(request: runs.Request) -> Any:
    """The tidy comparison: a row per data set, loss and metric."""
    folder, index = rebuilt_sets(request.folder, request.quick)
    jobs = [runs.slp_job(name, read, RATES) for name, read in readers(folder, index)]
    table = _compared(runs.run(jobs, request), folder, index, "SLP")
    runs.write(table, request.out, figures="Table 15", rates=RATES, tolerance=TOLERANCE)
    return table


def table16(request: runs.Request) -> Any:
    """The same with networks, by a protocol that separates the folds, unlike the authors'."""
    folder, index = rebuilt_sets(request.folder, request.quick)
    specs = {loss: network_training.loss_spec(loss, rate) for loss, rate in NETWORK_RATES.items()}
    jobs = [
        network_training.job(name, read, specs, NETWORK_RATES)
        for name, read in readers(folder, index)
    ]
    found = runs.run(jobs, request, network_training.SETTINGS)
    table = _compared(found, folder, index, "MLP")
    settings = network_training.SETTINGS
    runs.write(table, request.out, settings, figures="Table 16", rates=NETWORK_RATES)
    return table


def readers(folder: Path, index: Any) -> list[tuple[str, Callable[[], LabelledData]]]:
    """The names of the data sets, and the functions that read them."""
    return [
        (row.name, partial(read_standardised, folder / row.file))
        for row in index.itertuples(index=False)
    ]


def _compared(found: Any, folder: Path, index: Any, structure: str) -> Any:
    """The scores together with those of the authors."""
    published = authors_scores(folder, structure).rename(columns={"score": "published"})
    table = found.merge(index, left_on="dataset", right_on="name").drop(columns=["name", "file"])
    table = table.merge(published, on=["table14", "loss", "metric"], how="left", validate="1:1")
    table["difference"] = table["ours"] - table["published"]
    table["agrees"] = table["difference"].abs() <= TOLERANCE
    return table


def results(scores: Any, column: str, model: str = "SLP") -> Any:
    """Scores in the form of `anyloss.benchmark.statistics`: MSE, BCE and the loss of the metric.

    `scores` has the columns dataset, loss, metric and the given one, and may have the columns n and
    positives.
    """
    aim = scores["metric"].map(AIMS)
    ours = scores["loss"] == aim
    kept = scores[aim.notna() & (ours | scores["loss"].isin(BASELINES))]
    table = pd.DataFrame(
        {
            "model": model,
            "metric": kept["metric"],
            "dataset": kept["dataset"],
            "method": np.where(ours[kept.index], OURS, kept["loss"]),
            "repeat": 0,
            "fold": 0,
            "score": kept[column].round(DIGITS),
        }
    )
    if "n" in kept:
        table[["rows", "positives"]] = kept[["n", "positives"]]
    return table


def winning_numbers(found: Any) -> Any:
    """The number of data sets on which each method is best, per metric.

    The columns MSE, BCE and AnyLoss count a tie for one method, for AnyLoss first and then for BCE.
    The columns MSE_sole, BCE_sole and AnyLoss_sole count sole winners only, and `ties` the ties.

    >>> scores = {"dataset": ["a"] * 3, "loss": ["MSE", "BCE", "L_A"], "metric": "accuracy"}
    >>> found = results(pd.DataFrame(scores | {"score": [0.5, 0.9, 0.9]}), "score")
    >>> winning_numbers(found).loc["accuracy"].tolist()
    [0, 0, 1, 0, 0, 0, 1]
    """
    order = [OURS, *reversed(BASELINES)]
    rows = {}
    for metric, group in found.groupby("metric", sort=False):
        wide = group.pivot(index="dataset", columns="method", values="score")[order]
        best = wide.eq(wide.max(axis=1), axis=0)
        sole = best[best.sum(axis=1) == 1]
        first = best.idxmax(axis=1)
        row = {method: int((first == method).sum()) for method in (*BASELINES, OURS)}
        row |= {f"{method}_sole": int(sole[method].sum()) for method in (*BASELINES, OURS)}
        rows[metric] = row | {"ties": len(best) - len(sole)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("metric")
