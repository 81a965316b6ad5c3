"""AnyLoss's Table 10 and Bridging the Gap's Table 2: images, with a small residual network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import mse_loss

from anyloss import __version__, counts, metric
from anyloss._core.backend import Array
from anyloss.steps import Amplified
from anyloss.torch import AnyLoss
from papers import residual, runs, soft_sets
from papers.beside import beside, beside_text
from papers.data import Rows
from papers.many_sets import AIMS
from papers.published import printed_in

L = 73.0
MNIST = "MNIST_784 (one digit vs rest)"
CIFAR = {"CIFAR-10 Transportation": (0, 1, 8, 9), "CIFAR-10 Frog": (6,)}


class Plan(NamedTuple):
    """How much is trained: epochs, trials, images of each class (None: all)."""

    epochs: int
    trials: int
    each: int | None = None
    each_test: int | None = None


QUICK = Plan(epochs=3, trials=1, each=150, each_test=50)


class Task(NamedTuple):
    """One network to train: names of data and loss, the trial (its seed), which are positive.

    `share` is that of the positives, of which all the others are left out; None keeps them all.
    """

    dataset: str
    loss: str
    trial: int
    classes: tuple[int, ...]
    criterion: residual.Loss
    share: float | None = None


Scored = Callable[[Task, Array, Array], list[tuple[str, str, float]]]  # loss, metric, value


def mse(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The mean squared error of the probabilities."""
    return mse_loss(z.sigmoid(), y)


def run(
    request: runs.Request, name: str, tasks: list[Task], plan: Plan, scored: Scored
) -> tuple[Any, dict[str, Any]]:
    """The tidy scores of all tasks, a row per metric, and the settings."""
    images = residual.read_images(request.folder, name)
    settings = {
        "anyloss": __version__, "images": name, "width": residual.WIDTH, "batch": residual.BATCH,
        "rate": residual.RATE, "seed": "the trial", "epochs": plan.epochs, "each": plan.each,
        "each_test": plan.each_test,
    }  # fmt: skip
    jobs = [
        runs.Job(
            task.dataset,
            partial(_read, task, images, plan),
            [task.loss, task.trial, task.classes, task.share, settings],
            partial(_work, task, images, plan, scored),
        )
        for task in tasks
    ]
    return runs.run(jobs, request.out, request.told, {}), settings | {"trials": plan.trials}


def _read(task: Task, images: residual.Images, plan: Plan) -> Rows:
    rows, y = _rows(images.y, task, plan.each)
    return Rows(images.scaled(images.x[rows]), y)


def _work(
    task: Task, images: residual.Images, plan: Plan, scored: Scored, X: Array, y: Array
) -> list[dict[str, Any]]:
    test, y_test = _rows(images.y_test, task, plan.each_test)
    X_test = images.scaled(images.x_test[test])
    z = residual.fit(task.criterion, X, y, X_test, plan.epochs, task.trial)
    return [
        {"loss": loss, "trial": task.trial, "metric": name, "ours": value}
        for loss, name, value in scored(task, y_test, z)
    ]


def _rows(classes: Array, task: Task, each: int | None) -> tuple[Array, Array]:
    """Which images a task takes, and which of them are positive."""
    rows = residual.sample(classes, each, task.trial)
    positive = np.isin(classes[rows], task.classes)
    kept = residual.thinned(positive, task.share, task.trial) if task.share else slice(None)
    return rows[kept], positive[kept]


# AnyLoss, Table 10

TABLE10 = Plan(epochs=4, trials=3, each=500)


def table10_losses() -> dict[str, residual.Loss]:
    """The paper's losses: two rivals, and AnyLoss with its L aimed at four metrics."""
    aimed: dict[str, residual.Loss] = {
        loss: AnyLoss(name, step=Amplified(L)) for name, loss in AIMS.items()
    }
    return {"MSE": mse, "BCE": soft_sets.bce} | aimed


def report10(request: runs.Request) -> str:
    """Table 10: a trial per digit, as the paper does not tell which one it took."""
    plan = QUICK if request.quick else TABLE10
    tasks = [
        Task(MNIST, loss, digit, (digit,), criterion)
        for digit in range(plan.trials)
        for loss, criterion in table10_losses().items()
    ]

    def scored(task: Task, y: Array, z: Array) -> list[tuple[str, str, float]]:
        cells = counts(y, z, from_logits=True)
        return [(task.loss, name, float(metric(name)(*cells))) for name in AIMS]

    rows, settings = run(request, "mnist", tasks, plan, scored)
    runs.write(rows, request.out, settings, scale=L, figures="AnyLoss, Table 10")
    aims = rows["loss"] == rows["metric"].map(AIMS)
    shown = rows[aims | rows["loss"].isin(("MSE", "BCE"))]
    shown = shown.assign(loss=shown["loss"].where(~aims, "AnyLoss"))
    paper = printed_in(request.folder or Path(), "AnyLoss", 10)
    notes = [
        f"a residual network of 6 layers, {plan.epochs} epochs (paper: ResNet50, epochs not told)",
        f"{plan.each} training images of each digit; the mean over {plan.trials} digits taken as "
        "positive (paper: one digit, not told which)",
        "AnyLoss: the loss aimed at the metric, L = 73, decisions at 0.5",
    ]
    return beside_text("AnyLoss, Table 10", notes, beside(shown, paper), "BCE", digits=3)


# Bridging the Gap, Table 2

TABLE2 = Plan(epochs=8, trials=2)


def table2_losses() -> dict[str, residual.Loss]:
    """Soft sets with both steps, and cross-entropy; named as in the file of published figures."""
    found: dict[str, residual.Loss] = {
        f"soft-set {shown}{ending}": AnyLoss(name, step=step, thresholds=soft_sets.GRID)
        for ending, step in soft_sets.STEPS.items()
        for shown, name in (("F1", "f1"), ("accuracy", "accuracy"))
    }
    return found | {"BCE": soft_sets.bce}


def report2(request: runs.Request) -> str:
    """Table 2 on the images at hand: run and told."""
    plan = QUICK if request.quick else TABLE2
    tasks = [
        Task(name, loss, trial, classes, criterion)
        for name, classes in CIFAR.items()
        for loss, criterion in table2_losses().items()
        for trial in range(plan.trials)
    ]

    def scored(task: Task, y: Array, z: Array) -> list[tuple[str, str, float]]:
        found = soft_sets.views(task.loss, y, z)
        return [(view, name, values[name]) for view, values in found for name in ("f1", "accuracy")]

    rows, settings = run(request, "cifar10_subset", tasks, plan, scored)
    title = f"{soft_sets.PAPER}, Table 2"
    runs.write(rows, request.out, settings, thresholds=soft_sets.GRID, figures=title)
    paper = printed_in(request.folder or Path(), soft_sets.PAPER, 2)
    notes = [
        f"a residual network of 6 layers, {plan.epochs} epochs (paper: another network, not told)",
        f"{10 * (plan.each or 500):,} training images (paper: 50,000); means of {plan.trials} "
        "trials (paper: 10) and of thresholds 0.1 to 0.9",
        soft_sets.BCE_NOTE,
    ]
    same = {soft_sets.BCE_AS_CODED: "BCE"}
    return beside_text(title, notes, beside(rows, paper, same), "BCE")
