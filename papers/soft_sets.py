"""Bridging the Gap, Tables 1 and 4: soft sets for tabular data, by a clean protocol.

Different from the authors' code: every loss starts from weights of its own; cross-entropy is scored
on probabilities (the code cut its logits at 0.1 to 0.9); AUROC is that of the scores (that of the
code is one of decisions, which is balanced accuracy); WMW compares positives with negatives. The
two ways of scoring are also computed as in the code, from the same networks, to tell what they do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from anyloss import __version__, counts, metric
from anyloss._core.backend import Array
from anyloss.steps import Amplified, Hard, Linear, Step
from anyloss.torch import AnyLoss, AUROCLoss, WMWLoss
from papers import perceptrons, runs
from papers.beside import beside, beside_text
from papers.data import Rows, at_hand, read_numbers
from papers.published import printed_in

PAPER = "Bridging the Gap"
GRID = tuple(k / 10 for k in range(1, 10))
# Logits cut at 0.1 to 0.9 are probabilities cut at these.
LOGIT_GRID = tuple(1 / (1 + math.exp(-t)) for t in GRID)
STEPS: dict[str, Step] = {"": Linear(0.2), ", sigmoid": Amplified(10.0)}
BCE_AS_CODED = "BCE, logits cut"
AUROC_AS_CODED = "auroc_of_labels"
BCE_NOTE = f"{BCE_AS_CODED}: as the authors' code did it, from the same networks as BCE"
AUROC_NOTE = f"{AUROC_AS_CODED}: the published AUROC is one of decisions; auroc is that of scores"
SCORES = {
    "f1": metric("f1"),
    "f2": metric("fbeta", beta=2),
    "f3": metric("fbeta", beta=3),
    "accuracy": metric("accuracy"),
    "precision": metric("precision"),
    "recall": metric("recall"),
    AUROC_AS_CODED: metric("balanced_accuracy"),
}


class Source(NamedTuple):
    """The file of a data set, how many updates a network is trained for, what is different."""

    file: str
    updates: int
    note: str = ""


SETS = {
    "Mammography": Source("mammography", 1500),
    "Adult": Source("adult", 300, "categories are integer codes; the paper's coding is not known"),
    "Kaggle credit card fraud 2013": Source(
        "creditcard_492", 200, "15,869 of 284,807 rows (3.1 % fraud, not 0.17 %): only the claims"
    ),
}
TRIALS = 5
QUICK_TRIALS, QUICK_UPDATES, QUICK_ROWS = 2, 30, 2000


def bce(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross-entropy per column."""
    return binary_cross_entropy_with_logits(z, y, reduction="none").mean(0)


def wmw(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The Wilcoxon-Mann-Whitney loss per column."""
    return torch.stack([WMWLoss()(*pair) for pair in zip(z.T, y.T, strict=True)])


def losses(table: int) -> dict[str, perceptrons.Criterion]:
    """The losses of Table 1 or 4, named as in the file of published figures.

    Each is one minus a soft metric per column, the mean over the paper's thresholds.
    """
    found: dict[str, perceptrons.Criterion] = {}
    for ending, step in STEPS.items():
        how: dict[str, Any] = {"step": step, "thresholds": GRID, "average": None}
        for beta in (1,) if table == 1 else (1, 2, 3):
            found[f"soft-set F{beta}{ending}"] = AnyLoss("fbeta", beta=beta, **how)
        if table == 1:
            found[f"soft-set accuracy{ending}"] = AnyLoss("accuracy", **how)
            found[f"soft-set AUROC{ending}"] = AUROCLoss(**how)
    return found | ({"WMW AUROC": wmw, "BCE": bce} if table == 1 else {})


def scores(y: Array, z: Array, thresholds: tuple[float, ...] = GRID) -> dict[str, float]:
    """The means over the thresholds of the metrics of logits; AUROC has no threshold.

    >>> found = scores(torch.tensor([0, 0, 1]).numpy(), torch.tensor([-9.0, -1.0, 9.0]).numpy())
    >>> found["auroc"], round(found["f1"], 4)
    (1.0, 0.9259)
    """
    from sklearn.metrics import roc_auc_score

    cells = [counts(y, z, Hard(t), from_logits=True) for t in thresholds]
    found = {
        name: math.fsum(float(chosen(*four)) for four in cells) / len(cells)
        for name, chosen in SCORES.items()
    }
    return found | {"auroc": float(roc_auc_score(y, z))}


def views(loss: str, y: Array, z: Array) -> Iterator[tuple[str, dict[str, float]]]:
    """The scores of a loss, and those of cross-entropy once more as the authors' code had them."""
    yield loss, scores(y, z)
    if loss == "BCE":
        yield BCE_AS_CODED, scores(y, z, LOGIT_GRID)


def report1(request: runs.Request) -> str:
    """Table 1 without CocktailParty, run and told; one data set if quick."""
    chosen = ("Mammography",) if request.quick else tuple(SETS)
    return _report(request, 1, chosen, ("f1", "accuracy", "auroc", AUROC_AS_CODED))


def report4(request: runs.Request) -> str:
    """Table 4, run and told."""
    return _report(request, 4, ("Mammography",), ("f1", "f2", "f3", "precision", "recall"))


def _report(
    request: runs.Request, table: int, names: tuple[str, ...], metrics: tuple[str, ...]
) -> str:
    plans = {name: _settings(SETS[name], request.quick) for name in names}
    rows = train(request, table, plans)
    rows = rows[rows["metric"].isin(metrics)].reset_index(drop=True)
    title = f"{PAPER}, Table {table}"
    runs.write(rows, request.out, {}, figures=title, datasets=plans)
    paper = printed_in(request.folder or Path(), PAPER, table)
    found = beside(rows, paper, {BCE_AS_CODED: "BCE"}, {AUROC_AS_CODED: "auroc"})
    trials = plans[names[0]]["trials"]
    notes = [
        f"means of {trials} trials and of thresholds 0.1 to 0.9 (paper: 10 trials, up to 5,000 "
        "epochs)",
        *(f"{name}: {_said(SETS[name], plan)}" for name, plan in plans.items()),
    ]
    notes += [BCE_NOTE, AUROC_NOTE] if table == 1 else []
    return beside_text(title, notes, found, "BCE" if table == 1 else "soft-set F1")


def _settings(source: Source, quick: bool) -> dict[str, Any]:
    """All that a data set's scores depend on, beside the data and the loss."""
    return {
        "anyloss": __version__,
        "network": [*perceptrons.HIDDEN, 1],
        "trials": QUICK_TRIALS if quick else TRIALS,
        "updates": QUICK_UPDATES if quick else source.updates,
        "rows": QUICK_ROWS if quick else None,
        "batch": perceptrons.BATCH,
        "rate": perceptrons.RATE,
        "seed": "splits 0 to trials - 1, starts and batches 0",
    }


def _said(source: Source, plan: dict[str, Any]) -> str:
    rows = f"{plan['rows']:,} rows" if plan["rows"] else "all rows"
    return "; ".join(filter(None, (f"{plan['updates']:,} updates, {rows}", source.note)))


def train(request: runs.Request, table: int, plans: dict[str, dict[str, Any]]) -> Any:
    """The tidy scores of every trial; a loss on a data set is a unit of work."""
    jobs = []
    for name, settings in plans.items():
        file = at_hand(request.folder, f"tabular/{SETS[name].file}.csv.gz")
        read = partial(Rows, *read_numbers(file))
        for loss, criterion in losses(table).items():
            work = partial(_work, loss, criterion, settings)
            jobs.append(runs.Job(name, read, [loss, settings], work))
    return runs.run(jobs, request.out, request.told, {})


def _work(
    loss: str, criterion: perceptrons.Criterion, settings: dict[str, Any], X: Array, y: Array
) -> list[dict[str, Any]]:
    parts = perceptrons.split(*_some(Rows(X, y), settings["rows"]), settings["trials"])
    epochs = math.ceil(settings["updates"] / math.ceil(parts.train.X.shape[1] / perceptrons.BATCH))
    logits = perceptrons.fit(parts, criterion, epochs)
    return [
        {"loss": view, "trial": trial, "metric": metric, "ours": value}
        for trial, pair in enumerate(zip(parts.test.y.T, logits.T, strict=True))
        for view, values in views(loss, *(column.numpy() for column in pair))
        for metric, value in values.items()
    ]


def _some(data: Rows, most: int | None) -> Rows:
    """At most so many rows, with the classes in their shares."""
    if most is None or len(data.y) <= most:
        return data
    from sklearn.model_selection import train_test_split

    X, _, y, _ = train_test_split(data.X, data.y, train_size=most, stratify=data.y, random_state=0)
    return Rows(X, y)
