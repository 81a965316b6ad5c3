"""The surrogate F-beta of Lee, Yang and Yoo (2021): gradient paths, and imbalanced images.

The paper claims that the gradient paths of its loss approximate those of F-beta on a large sample.
Here the model has two parameters, `p = sigmoid(w x + b)`, and `x` is normal around +1 for positives
and around -1 for negatives. The sample consists of the quantiles of the two distributions, so that
it is not random. F-beta of a large sample is that of random decisions that are positive with
probability p, which is the step `Uniform()`.

F-beta increases with TP / (beta^2 P + FP). Its gradient therefore has the direction of that of
`log mean+(p) - log(k + mean-(p))`, with the means over the positives and over the negatives. The
surrogate takes the means of the logarithms instead. If it takes them class by class, its gradient
is parallel to that of F-beta where all rows have the same p. If it takes them over all rows, as in
the formula that is known to us, they are parallel for balanced classes only. Both are computed.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from anyloss import counts, metric
from anyloss._core.backend import Array
from anyloss.benchmark.plots import save_figure
from anyloss.steps import Uniform
from anyloss.torch import AnyLoss, SurrogateFBetaLoss
from papers import images, residual, runs, soft_sets
from papers.text_tables import text_table

BETAS = (1, 2)
PRIORS = (0.5, 0.1, 0.02)
STARTS = ((0.0, 0.0), (-1.0, 1.0), (0.5, -3.0))
ROWS = 4000
STRIDE, STRIDES = 0.1, 60  # each path has length 6
TITLE = "Surrogate F-beta"
F_BETA, SURROGATE, BY_CLASS, BCE = "F-beta", "surrogate", "by class", "BCE"
OTHERS = (SURROGATE, BY_CLASS, BCE)


def sample(prior: float, rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """The quantiles of the two normal distributions, and the labels.

    >>> x, y = sample(0.25, 8)
    >>> round(x[y == 1].mean().item(), 9), round(x[y == 0].mean().item(), 9)
    (1.0, -1.0)
    """
    sizes = {1.0: round(prior * rows), -1.0: rows - round(prior * rows)}
    x = [NormalDist(mean).inv_cdf((k + 0.5) / n) for mean, n in sizes.items() for k in range(n)]
    y = torch.arange(rows) < sizes[1.0]
    return torch.tensor(x, dtype=torch.float64), y.double()


def by_class(loss: residual.Loss) -> residual.Loss:
    """The loss of the positive rows plus that of the negative ones."""
    return lambda z, y: loss(z[y == 1], y[y == 1]) + loss(z[y == 0], y[y == 0])


def losses(f_beta: residual.Loss, beta: float, prior: float) -> dict[str, residual.Loss]:
    """F-beta itself, the surrogate with its means over all rows and by class, cross-entropy."""
    surrogate = SurrogateFBetaLoss(beta, positive_share=prior)
    return {
        F_BETA: f_beta, SURROGATE: surrogate, BY_CLASS: by_class(surrogate), BCE: soft_sets.bce,
    }  # fmt: skip


def of_large_samples(beta: float) -> AnyLoss:
    """One minus F-beta of random decisions, which is that of a large sample."""
    return AnyLoss("fbeta", beta=beta, step=Uniform())


def gradient(loss: residual.Loss, at: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of a loss by (w, b)."""
    at = at.detach().requires_grad_()
    return torch.autograd.grad(loss(at[0] * x + at[1], y), at)[0]


def path(beta: float, prior: float, start: tuple[float, float], of: str) -> list[dict[str, Any]]:
    """The gradient path of a loss, in strides of the same length: a row per point.

    The columns `cosine_...` are the cosines of the angles between the gradient of F-beta and those
    of the other losses at the point. `score` is the true F-beta with decisions at 0.5.
    """
    x, y = sample(prior)
    every = losses(of_large_samples(beta), beta, prior)
    at, found = torch.tensor(start, dtype=torch.float64), []
    score = metric("fbeta", beta=beta)
    for point in range(STRIDES + 1):
        gradients = {name: gradient(loss, at, x, y) for name, loss in every.items()}
        f_beta = gradients[F_BETA]
        angles = {
            f"cosine_{name}": torch.cosine_similarity(f_beta, gradients[name], dim=0).item()
            for name in OTHERS
        }
        cells = counts(y.numpy(), (at[0] * x + at[1]).numpy(), from_logits=True)
        place = {"point": point, "w": at[0].item(), "b": at[1].item()}
        found.append(place | angles | {"score": float(score(*cells))})
        at = at - STRIDE * gradients[of] / gradients[of].norm().clamp_min(1e-300)
    return found


def report_paths(request: runs.Request) -> str:
    """Compute and draw the paths of all losses, and return the angles and end points as text."""
    cases = [(1, 0.1)] if request.quick else list(product(BETAS, PRIORS))
    rows: list[dict[str, Any]] = []
    for done, (beta, prior) in enumerate(cases):
        request.on_progress(done, len(cases), f"beta {beta}, prior {prior}")
        for start, of in product(STARTS, (F_BETA, *OTHERS)):
            keys = {"beta": beta, "prior": prior, "start": str(start), "path": of}
            rows += [keys | row for row in path(beta, prior, start, of)]
    request.on_progress(len(cases), len(cases), "")
    table = pd.DataFrame(rows)
    runs.write(table, request.out, {"rows": ROWS, "stride": STRIDE, "seed": None}, figures=TITLE)
    image = request.out.with_suffix(".svg")
    draw(table, image)
    return paths_text(table) + f"\nfigure: {image}"


def paths_text(table: Any) -> str:
    """Per beta and share: the mean cosines along the path of F-beta, and the ends of the paths."""
    angles, ends = [], []
    for (beta, prior), group in table.groupby(["beta", "prior"], sort=False):
        task = str(beta), f"{prior:.0%}"
        along = group[group["path"] == F_BETA]
        parts = along[along["point"] == 0], along[along["point"] < STRIDES // 2], along
        means = (part[f"cosine_{name}"].mean() for name in OTHERS for part in parts)
        angles.append((*task, *(f"{x:.3f}" for x in means)))
        last = group[group["point"] == STRIDES].groupby("path", sort=False)["score"].mean()
        ends.append((*task, *(f"{x:.3f}" for x in last)))
    task = "beta", "positives"
    spans = (text for name in OTHERS for text in (f"{name}: start", "half", "whole"))
    return "\n".join(
        [
            f"{TITLE}: gradient paths of a model with two parameters (not a figure of the paper)",
            f"  'surrogate' takes its means over all rows, {BY_CLASS!r} over each class",
            "",
            "Cosine of the angle to the gradient of F-beta: at the start, and the means along half "
            "and the whole",
            f"of F-beta's path of length {STRIDE * STRIDES:g}, from {len(STARTS)} starts:",
            "",
            text_table((*task, *spans), angles),
            "",
            "True F-beta with decisions at 0.5, at the end of the path of each loss:",
            "",
            text_table((*task, F_BETA, *OTHERS), ends),
        ]
    )


def draw(table: Any, path: Path) -> None:
    """Draw the paths over the levels of F-beta, a panel per beta and share of positives."""
    from matplotlib.figure import Figure

    panels = list(table.groupby(["beta", "prior"], sort=False))
    across = min(len(panels), len(PRIORS))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(3.2 * across, 3.0 * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    for axes, ((beta, prior), group) in zip(grid.flat, panels, strict=True):
        _panel(axes, beta, prior, group)
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    save_figure(figure, path)


COLOURS = {F_BETA: "black", SURROGATE: "#0072B2", BY_CLASS: "#56B4E9", BCE: "#D55E00"}


def _panel(axes: Any, beta: int, prior: float, group: Any) -> None:
    """Draw the paths of one beta and one share of positives."""
    ends = [
        torch.linspace(group[name].min() - 0.3, group[name].max() + 0.3, 20, dtype=torch.float64)
        for name in ("w", "b")
    ]
    x, y = sample(prior, 400)
    f_beta = of_large_samples(beta)
    levels = [[1 - f_beta(w * x + b, y).item() for w in ends[0]] for b in ends[1]]
    axes.contour(*(end.numpy() for end in ends), levels, 6, colors="#BBBBBB", linewidths=0.6)
    for (of, _), line in group.groupby(["path", "start"], sort=False):
        first = line["start"].iloc[0] == str(STARTS[0])
        line = line[::3]  # for a smaller file
        axes.plot(line["w"], line["b"], color=COLOURS[of], label=of if first else None)
        axes.plot(line["w"].iloc[0], line["b"].iloc[0], "o", color="black", markersize=3)
    axes.set_title(f"beta {beta}, {prior:.0%} positives", fontsize=9)
    axes.set(xlabel="w", ylabel="b")
    axes.tick_params(labelsize=8)


# Imbalanced images

IMAGES = images.TrainingBudget(epochs=5, trials=2, each=500)
SHARE = 0.02
DIGIT = 9  # the hardest one


def report_images(request: runs.Request) -> str:
    """Compare the losses on images of one digit against the rest, with 2 % positives."""
    budget = images.QUICK if request.quick else IMAGES
    trials = [
        images.ImageTrial(f"{SHARE:.0%} positives, F{beta}", name, trial, (DIGIT,), loss, SHARE)
        for beta in BETAS
        for name, loss in losses(AnyLoss("fbeta", beta=beta), beta, SHARE).items()
        for trial in range(budget.trials)
    ]

    def scorer(trial: images.ImageTrial, y: Array, z: Array) -> list[tuple[str, str, float]]:
        cells = counts(y, z, from_logits=True)
        beta = int(trial.dataset[-1])
        return [(trial.loss, f"f{beta}", float(metric("fbeta", beta=beta)(*cells)))]

    rows, settings = images.run(request, "mnist", trials, budget, scorer)
    runs.write(rows, request.out, settings, digit=DIGIT, figures=TITLE)
    return images_text(rows, budget)


def images_text(rows: Any, budget: images.TrainingBudget) -> str:
    """Mean and deviation over the trials; the figures of the paper are not available."""
    found = rows.groupby(["dataset", "loss"], sort=False)["ours"].agg(["mean", "std"]).fillna(0.0)
    cells = found.apply(lambda row: f"{row['mean']:.3f} ± {row['std']:.3f}", axis=1).unstack()
    names = list(rows["loss"].unique())
    best = found["mean"].unstack()[names].idxmax(axis=1)
    lines = [(task, *row[names], best[task]) for task, row in cells.iterrows()]
    return "\n".join(
        [
            f"{TITLE} on images: MNIST, digit {DIGIT} against the rest, decisions at 0.5",
            f"  {budget.each} training images of each other digit, {budget.epochs} epochs, means "
            f"of {budget.trials} trials; a residual network of 6 layers",
            f"  {F_BETA!r}: AnyLoss with its default step; {BY_CLASS!r}: surrogate, means by class",
            "  (paper: ResNets and other image sets; its figures are not available)",
            "",
            text_table(("task", *names, "best"), lines),
        ]
    )
