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
from papers.comparison import comparison_text, with_published
from papers.data import LabelledData
from papers.many_sets import AIMS
from papers.published import printed_table

L = 73.0
MNIST = "MNIST_784 (one digit vs rest)"
CIFAR = {"CIFAR-10 Transportation": (0, 1, 8, 9), "CIFAR-10 Frog": (6,)}


class TrainingBudget(NamedTuple):
    """How much is trained: epochs, trials, and images of each class (None: all)."""

    epochs: int
    trials: int
    each: int | None = None
    each_test: int | None = None


QUICK = TrainingBudget(epochs=3, trials=1, each=150, each_test=50)


class ImageTrial(NamedTuple):
    """One network to train: data set, loss, trial (which is its seed) and positive classes.

    With a `share`, positives are left out until they have this share of all images.
    """

    dataset: str
    loss: str
    trial: int
    classes: tuple[int, ...]
    criterion: residual.Loss
    share: float | None = None


# From a trial, its test labels and logits to rows of loss, metric and value.
Scorer = Callable[[ImageTrial, Array, Array], list[tuple[str, str, float]]]


def mse(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The mean squared error of the probabilities."""
    return mse_loss(z.sigmoid(), y)


def run(
    request: runs.Request,
    name: str,
    trials: list[ImageTrial],
    budget: TrainingBudget,
    scorer: Scorer,
) -> tuple[Any, dict[str, Any]]:
    """The tidy scores of all trials, a row per metric, and the settings."""
    images = residual.read_images(request.folder, name)
    settings = {
        "anyloss": __version__, "images": name, "width": residual.WIDTH, "batch": residual.BATCH,
        "rate": residual.RATE, "seed": "the trial", "epochs": budget.epochs, "each": budget.each,
        "each_test": budget.each_test,
    }  # fmt: skip
    jobs = [
        runs.Job(
            trial.dataset,
            partial(_read, trial, images, budget),
            [trial.loss, trial.trial, trial.classes, trial.share, settings],
            partial(_work, trial, images, budget, scorer),
        )
        for trial in trials
    ]
    return runs.run(jobs, request, {}), settings | {"trials": budget.trials}


def _read(trial: ImageTrial, images: residual.Images, budget: TrainingBudget) -> LabelledData:
    """The training images of a trial and their labels."""
    rows, y = _rows(images.y, trial, budget.each)
    return LabelledData(images.scaled(images.x[rows]), y)


def _work(
    trial: ImageTrial,
    images: residual.Images,
    budget: TrainingBudget,
    scorer: Scorer,
    X: Array,
    y: Array,
) -> list[dict[str, Any]]:
    """Train a network and score it on the test images."""
    test, y_test = _rows(images.y_test, trial, budget.each_test)
    X_test = images.scaled(images.x_test[test])
    z = residual.fit(trial.criterion, X, y, X_test, budget.epochs, trial.trial)
    return [
        {"loss": loss, "trial": trial.trial, "metric": name, "ours": value}
        for loss, name, value in scorer(trial, y_test, z)
    ]


def _rows(classes: Array, trial: ImageTrial, each: int | None) -> tuple[Array, Array]:
    """The images of a trial, and which of them are positive."""
    rows = residual.sample(classes, each, trial.trial)
    positive = np.isin(classes[rows], trial.classes)
    kept = residual.thinned(positive, trial.share, trial.trial) if trial.share else slice(None)
    return rows[kept], positive[kept]


# AnyLoss, Table 10

TABLE10 = TrainingBudget(epochs=4, trials=3, each=500)


def table10_losses() -> dict[str, residual.Loss]:
    """The losses of the paper: two baselines, and AnyLoss with L = 73 for four metrics."""
    aimed: dict[str, residual.Loss] = {
        loss: AnyLoss(name, step=Amplified(L)) for name, loss in AIMS.items()
    }
    return {"MSE": mse, "BCE": soft_sets.bce} | aimed


def report10(request: runs.Request) -> str:
    """Run Table 10 and return the comparison as text.

    Each trial takes another digit as the positive class, because the paper does not name its digit.
    """
    budget = QUICK if request.quick else TABLE10
    trials = [
        ImageTrial(MNIST, loss, digit, (digit,), criterion)
        for digit in range(budget.trials)
        for loss, criterion in table10_losses().items()
    ]

    def scorer(trial: ImageTrial, y: Array, z: Array) -> list[tuple[str, str, float]]:
        cells = counts(y, z, from_logits=True)
        return [(trial.loss, name, float(metric(name)(*cells))) for name in AIMS]

    rows, settings = run(request, "mnist", trials, budget, scorer)
    runs.write(rows, request.out, settings, scale=L, figures="AnyLoss, Table 10")
    aims = rows["loss"] == rows["metric"].map(AIMS)
    shown = rows[aims | rows["loss"].isin(("MSE", "BCE"))]
    shown = shown.assign(loss=shown["loss"].where(~aims, "AnyLoss"))
    paper = printed_table(request.folder or Path(), "AnyLoss", 10)
    remarks = [
        f"a residual network of 6 layers, {budget.epochs} epochs (paper: ResNet50, epochs not "
        "given)",
        f"{budget.each} training images of each digit; the mean over {budget.trials} digits as the "
        "positive class (paper: one digit, not named)",
        "AnyLoss: the loss that aims at the metric, L = 73, decisions at 0.5",
    ]
    table = with_published(shown, paper)
    return comparison_text("AnyLoss, Table 10", remarks, table, "BCE", digits=3)


# Bridging the Gap, Table 2

TABLE2 = TrainingBudget(epochs=8, trials=2)


def table2_losses() -> dict[str, residual.Loss]:
    """Soft sets with both steps, and cross-entropy; named as in the published tables."""
    found: dict[str, residual.Loss] = {
        f"soft-set {shown}{ending}": AnyLoss(name, step=step, thresholds=soft_sets.GRID)
        for ending, step in soft_sets.STEPS.items()
        for shown, name in (("F1", "f1"), ("accuracy", "accuracy"))
    }
    return found | {"BCE": soft_sets.bce}


def report2(request: runs.Request) -> str:
    """Run Table 2 on the available images and return the comparison as text."""
    budget = QUICK if request.quick else TABLE2
    trials = [
        ImageTrial(name, loss, trial, classes, criterion)
        for name, classes in CIFAR.items()
        for loss, criterion in table2_losses().items()
        for trial in range(budget.trials)
    ]

    def scorer(trial: ImageTrial, y: Array, z: Array) -> list[tuple[str, str, float]]:
        found = soft_sets.variants(trial.loss, y, z)
        return [(loss, name, values[name]) for loss, values in found for name in ("f1", "accuracy")]

    rows, settings = run(request, "cifar10_subset", trials, budget, scorer)
    title = f"{soft_sets.PAPER}, Table 2"
    runs.write(rows, request.out, settings, thresholds=soft_sets.GRID, figures=title)
    paper = printed_table(request.folder or Path(), soft_sets.PAPER, 2)
    remarks = [
        f"a residual network of 6 layers, {budget.epochs} epochs (paper: another network, not "
        "specified)",
        f"{10 * (budget.each or 500):,} training images (paper: 50,000); means of {budget.trials} "
        "trials (paper: 10) and of thresholds 0.1 to 0.9",
        soft_sets.BCE_REMARK,
    ]
    table = with_published(rows, paper, {soft_sets.BCE_AS_CODED: "BCE"})
    return comparison_text(title, remarks, table, "BCE")
