"""AnyLoss's Table 9, equation 14 and Figure 5: how the losses of the perceptron decrease.

A loss is that of the training rows of a fold before each step, averaged over the ten folds. Epoch 1
is the start, and the loss of epoch 1,000 is the loss before the last step, as the authors count.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from anyloss import score
from anyloss._core.backend import Array
from anyloss.steps import Amplified
from papers import network_training, runs, slp
from papers.data import TABLE17, LabelledData
from papers.four_sets import available, missing_lines, rates
from papers.published import published_figures
from papers.text_tables import signed, text_table

DIGITS = 3
LOSSES = tuple(loss for loss in slp.LOSSES if loss != "MSE")
PRINTED_EPOCHS = (100, 200, 300, 400, 500)  # of Table 9; the rate of the last epoch is 1
# The epochs of the curves: dense where the curves bend, and including the printed epochs.
EPOCHS = (*range(1, 20), *range(20, 100, 5), *range(100, slp.EPOCHS + 1, 20))


def report(request: runs.Request) -> str:
    """Run Table 9 on the requested data sets and return the comparison as text."""
    return table9_text(*table9(request))


def losses(weights: Array, X: Array, y: Array, folds: slp.Folds, name: str) -> Array:
    """The loss of each fold's training rows at its weights (folds, columns).

    >>> X, y = np.ones((4, 1)), np.array([0.0, 0.0, 0.0, 1.0])
    >>> every = [(np.arange(4), None)]
    >>> losses(np.zeros((1, 1)), X, y, every, "L_F1").round(4).tolist()  # half of 3 and half of 1
    [0.6667]
    """
    found = []
    for w, (train, _) in zip(weights, folds, strict=True):
        z, truth = X[train] @ w, y[train]
        if name == "BCE":
            found.append(np.logaddexp(0, np.where(truth > 0, -z, z)).mean())
        else:
            aim = network_training.AIMED[name.removeprefix("L_")]
            found.append(1 - score(truth, z, aim, Amplified(slp.SCALE), from_logits=True))
    return np.array(found)


def curve_rows(X: Array, y: Array, given: Mapping[str, float]) -> list[dict[str, Any]]:
    """The mean loss of the ten folds at EPOCHS, for losses with the given learning rates."""
    X, folds = slp.with_intercept(X), slp.paper_folds(y)
    rows = []
    with slp.one_thread():
        for epoch, weights in enumerate(islice(slp.steps(X, y, folds, given), slp.EPOCHS), start=1):
            for name, w in weights.items() if epoch in EPOCHS else ():
                value = float(losses(w, X, y, folds, name).mean())
                rows.append({"loss": name, "epoch": epoch, "value": value})
    return rows


def curves(request: runs.Request) -> tuple[Any, dict[str, str]]:
    """Tidy: dataset, loss, epoch, value; and why other data sets are not available."""
    samples, missing = available(request)
    jobs = []
    for name, rows in samples.items():
        every = rates(TABLE17[name][0])
        given = {loss: every[loss] for loss in LOSSES}
        work = partial(curve_rows, given=given)
        jobs.append(runs.Job(name, partial(LabelledData, *rows), ["curves", given], work))
    return runs.run(jobs, request), missing


def achievement(found: Any) -> Any:
    """Equation 14: the part of the whole decrease that is reached, per data set, epoch and loss.

    >>> curve = {"dataset": "a", "loss": "BCE", "epoch": [1, 100, 1000], "value": [1.0, 0.7, 0.4]}
    >>> achievement(pd.DataFrame(curve))["BCE"].round(3).tolist()
    [0.0, 0.5, 1.0]
    """
    wide = found.pivot(index=["dataset", "epoch"], columns="loss", values="value")
    by_set = wide.groupby(level="dataset", sort=False)
    first, last = by_set.transform("first"), by_set.transform("last")
    return (first - wide) / (first - last)


def table9(request: runs.Request) -> tuple[Any, dict[str, str]]:
    """The tidy comparison: achievement rates of BCE and the mean of AnyLoss's six losses."""
    found, missing = curves(request)
    reached = achievement(found)
    shown = pd.DataFrame(
        {"BCE": reached["BCE"], "L_mean": reached.drop(columns="BCE").mean(axis=1)}
    )
    table = shown.rename_axis(columns="loss").stack().rename("ours").reset_index()
    table = table[table["epoch"].isin(PRINTED_EPOCHS)].sort_values(["dataset", "loss", "epoch"])
    table["published"] = [
        float(published_figures(9, TABLE17[r.dataset][0], f"epoch_{r.epoch}")[r.loss])
        for r in table.itertuples()
    ]
    table["difference"] = table["ours"] - table["published"]
    table["agrees"] = table["ours"].round(DIGITS) == table["published"]
    table = table.reset_index(drop=True)
    runs.write(table, request.out, figures="Table 9", absent=missing)
    return table, missing


def table9_text(table: Any, missing: Mapping[str, str]) -> str:
    """A line per figure, and the number of exact matches."""
    rows = [
        (r.dataset, r.loss, str(r.epoch), f"{r.published:.{DIGITS}f}", f"{r.ours:.6f}",
         signed(round(r.ours, DIGITS) - r.published, DIGITS))
        for r in table.itertuples()
    ]  # fmt: skip
    header = ("data set", "loss", "epoch", "published", "ours", "difference")
    return "\n".join(
        [
            "AnyLoss, Table 9: achievement rates (equation 14), single-layer perceptron",
            "",
            text_table(header, rows),
            "",
            *missing_lines(missing),
            f"exact matches: {int(table['agrees'].sum())} of {len(table)}",
        ]
    )
