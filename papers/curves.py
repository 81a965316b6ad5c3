"""AnyLoss's Table 9, equation 14 and Figure 5: how the losses of the perceptron fall.

The loss of a fold's training rows before each step, averaged over the ten folds. Epoch 1 is the
start, and the loss of epoch 1,000 is that before the last step: so counted the authors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from anyloss._core.backend import Array
from anyloss._core.counts import score
from anyloss.steps import Amplified
from papers import networks, runs, slp
from papers.data import TABLE17, Rows
from papers.four_sets import asked, at_hand, not_at_hand, rates
from papers.published import figures
from papers.text import columns, signed

DIGITS = 3
LOSSES = tuple(loss for loss in slp.LOSSES if loss != "MSE")
TOLD = (100, 200, 300, 400, 500)  # Table 9's epochs; at the last one the rate is 1 by definition
# Where curves are taken: densely where they bend, and at the epochs told.
EPOCHS = (*range(1, 20), *range(20, 100, 5), *range(100, slp.EPOCHS + 1, 20))


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
            aim = networks.AIMED[name.removeprefix("L_")]
            found.append(1 - score(truth, z, aim, Amplified(slp.SCALE), from_logits=True))
    return np.array(found)


def curve_rows(X: Array, y: Array, given: Mapping[str, float]) -> list[dict[str, Any]]:
    """The mean loss of the ten folds at EPOCHS."""
    X, folds = slp.with_intercept(X), slp.paper_folds(y)
    rows = []
    with slp.one_thread():
        for epoch, weights in enumerate(islice(slp.steps(X, y, folds, given), slp.EPOCHS), start=1):
            for name, w in weights.items() if epoch in EPOCHS else ():
                value = float(losses(w, X, y, folds, name).mean())
                rows.append({"loss": name, "epoch": epoch, "value": value})
    return rows


def curves(
    names: Sequence[str], folder: Path | None, out: Path, told: runs.Told = runs.silent
) -> tuple[Any, dict[str, str]]:
    """Tidy: dataset, loss, epoch, value; and why other data sets are not at hand."""
    there, absent = at_hand(names, folder)
    jobs = []
    for name, rows in there.items():
        every = rates(TABLE17[name][0])
        given = {loss: every[loss] for loss in LOSSES}
        work = partial(curve_rows, given=given)
        jobs.append(runs.Job(name, partial(Rows, *rows), ["curves", given], work))
    return runs.run(jobs, out, told), absent


def achievement(found: Any) -> Any:
    """Equation 14: the share of the whole fall that is done; a row per set, a column per loss.

    >>> fall = {"dataset": "a", "loss": "BCE", "epoch": [1, 100, 1000], "value": [1.0, 0.7, 0.4]}
    >>> achievement(pd.DataFrame(fall))["BCE"].round(3).tolist()
    [0.0, 0.5, 1.0]
    """
    wide = found.pivot(index=["dataset", "epoch"], columns="loss", values="value")
    by_set = wide.groupby(level="dataset", sort=False)
    first, last = by_set.transform("first"), by_set.transform("last")
    return (first - wide) / (first - last)


def table9(
    names: Sequence[str] = (),
    folder: Path | None = None,
    out: Path = Path("reproduce-table9.csv"),
    told: runs.Told = runs.silent,
) -> tuple[Any, dict[str, str]]:
    """The tidy comparison: achievement rates of BCE and the mean of AnyLoss's six losses."""
    found, absent = curves(names, folder, out, told)
    done = achievement(found)
    shown = pd.DataFrame({"BCE": done["BCE"], "L_mean": done.drop(columns="BCE").mean(axis=1)})
    table = shown.rename_axis(columns="loss").stack().rename("ours").reset_index()
    table = table[table["epoch"].isin(TOLD)].sort_values(["dataset", "loss", "epoch"])
    table["published"] = [
        float(figures(9, TABLE17[r.dataset][0], f"epoch_{r.epoch}")[r.loss])
        for r in table.itertuples()
    ]
    table["difference"] = table["ours"] - table["published"]
    table["agrees"] = table["ours"].round(DIGITS) == table["published"]
    table = table.reset_index(drop=True)
    runs.write(table, out, figures="Table 9", absent=absent)
    return table, absent


def table9_text(table: Any, absent: Mapping[str, str]) -> str:
    """A line per figure; at the end how many agree."""
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
            columns(header, rows),
            "",
            *not_at_hand(absent),
            f"exact matches: {int(table['agrees'].sum())} of {len(table)}",
        ]
    )


def report(request: runs.Request) -> str:
    """Table 9 of the sets asked for, run and told; breast cancer alone if quick."""
    names = asked(request)
    return table9_text(*table9(names, request.folder, request.out, request.told))
