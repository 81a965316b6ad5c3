"""How the networks of `deep.py` are trained: what others do, and what this package does.

Everyone has the same network, first weights, batches, optimizer and number of epochs. A method
returns logits of the validation and test rows, which get a decision rule from the validation rows;
`refine` returns decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from deep_tasks import Array, Batches, Data, Goal, Task, row_weights
from torch import Tensor, nn
from torch.nn import functional as F

from anyloss.recipe.target import Target, new_target
from anyloss.steps import Amplified, RaisedCosine
from anyloss.torch import AnyLoss, refine
from anyloss.torch.refined import shifted

GAMMA = 2.0  # of the focal loss
ALPHA, BETA = 0.3, 0.7  # of Tversky: the weights of false positives and false negatives
MARGIN, SCALE, DEFERRED, EFFECTIVE = 0.5, 30.0, 0.8, 0.9999  # of LDAM-DRW, as its authors use them
SMOOTH = 1e-5  # of Dice and Tversky, as in MONAI
REFINED = 1 / 2  # of the epochs
TAUS = np.linspace(0, 2, 21)  # factors of the log prior
CUTS = np.linspace(-8, 8, 65)  # thresholds per image
PIXELS = 50_000  # at most, to find offsets of several classes

Loss = Callable[[Tensor, Tensor, float], Tensor]  # logits, labels, share of the epochs that passed


class Labels(NamedTuple):
    """What the losses know of the training rows: the task and how often each class occurs."""

    kind: str
    counts: Tensor  # `(classes,)`, or `(2, labels)` of negative and positive labels

    def one_hot(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities and labels `(n, classes, ...)`."""
        if self.kind != "multiclass":
            return (x.reshape(len(z), -1) if z.ndim == 1 else x for x in (z.sigmoid(), y))  # type: ignore[return-value]
        return z.softmax(1), F.one_hot(y, z.shape[1]).movedim(-1, 1).to(z)


def labels_of(task: Task, data: Data) -> Labels:
    y = data.train.y
    if task.kind == "multiclass":
        counts = torch.bincount(y.flatten())
    else:
        columns = y.flatten()[:, None] if task.kind == "binary" else y
        counts = torch.stack([(1 - columns).sum(0), columns.sum(0)])
    return Labels(task.kind, counts.clamp(min=1).float())


def entropies(z: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy of each row, label or pixel."""
    if y.is_floating_point():
        return F.binary_cross_entropy_with_logits(z, y, reduction="none")
    return F.cross_entropy(z, y, reduction="none")


def picked(weights: Tensor, y: Tensor) -> Tensor:
    """The weight of each label: of its class, or of a negative or positive label."""
    return torch.where(y > 0.5, weights[1], weights[0]) if y.is_floating_point() else weights[y]


def cross_entropy(labels: Labels) -> Loss:
    return lambda z, y, passed: entropies(z, y).mean()


def weighted_cross_entropy(labels: Labels) -> Loss:
    """Each class has the same total weight (scikit-learn's `class_weight="balanced"`)."""
    weights = labels.counts.sum(0) / len(labels.counts) / labels.counts
    return lambda z, y, passed: (picked(weights, y) * entropies(z, y)).mean()


def focal(labels: Labels) -> Loss:
    """T.-Y. Lin et al., "Focal loss for dense object detection", ICCV 2017."""

    def loss(z: Tensor, y: Tensor, passed: float) -> Tensor:
        rows = entropies(z, y)
        return ((1 - torch.exp(-rows)) ** GAMMA * rows).mean()

    return loss


def log_priors(labels: Labels) -> Tensor:
    logs = labels.counts.log()
    return logs - logs.logsumexp(0) if labels.kind == "multiclass" else logs[1] - logs[0]


def balanced_softmax(labels: Labels) -> Loss:
    """J. Ren et al., NeurIPS 2020; the logit-adjusted loss of A. K. Menon et al., ICLR 2021."""
    shift = log_priors(labels)
    return lambda z, y, passed: entropies(shifted(z, -shift), y).mean()


def ldam(labels: Labels) -> Loss:
    """K. Cao et al., "Learning imbalanced datasets with label-distribution-aware margin loss",
    NeurIPS 2019: margins in the logits of `normed`, and class weights for the last epochs.
    """
    counts = labels.counts.flatten()
    margins = MARGIN * (counts / counts.min()) ** -0.25
    weights = (1 - EFFECTIVE) / (1 - EFFECTIVE**counts)
    weights = weights / weights.mean()

    def loss(z: Tensor, y: Tensor, passed: float) -> Tensor:
        if y.is_floating_point():  # two classes, of which z is the difference
            moved = z - SCALE * (2 * y - 1) * picked(margins, y)
        else:
            moved = z - SCALE * F.one_hot(y, z.shape[1]) * picked(margins, y)[:, None]
        w = picked(weights, y) if passed >= DEFERRED else torch.ones(len(y))
        return (w * entropies(moved, y)).sum() / w.sum()

    return loss


class NormedLinear(nn.Module):
    """The cosines of features and class vectors, for LDAM; for one output their difference."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(max(2, outputs), inputs) * 2 - 1)
        self.outputs = outputs

    def forward(self, x: Tensor) -> Tensor:
        z = SCALE * F.linear(F.normalize(x), F.normalize(self.weight))
        return z[:, 1:] - z[:, :1] if self.outputs == 1 else z


def normed(network: nn.Module) -> nn.Module:
    """The network with a `NormedLinear` as its last layer."""
    assert isinstance(network, nn.Sequential)
    at = max(k for k, layer in enumerate(network) if isinstance(layer, nn.Linear))
    last = network[at]
    network[at] = NormedLinear(last.in_features, last.out_features)
    return network


def soft_dice(labels: Labels, alpha: float = 0.5, beta: float = 0.5) -> Loss:
    """Dice of the probabilities (F. Milletari et al., 3DV 2016), counted over the batch as in
    nnU-Net; with weights it is Tversky (S. S. M. Salehi et al., MLMI 2017). With labels it is
    sigmoidF1 at its defaults (G. Bénédict et al., TMLR 2022).
    """

    def loss(z: Tensor, y: Tensor, passed: float) -> Tensor:
        p, t = labels.one_hot(z, y)
        axes = (0, *range(2, p.ndim))
        tp, fp, fn = (x.sum(axes) for x in (p * t, p * (1 - t), (1 - p) * t))
        return (1 - (tp + SMOOTH) / (tp + alpha * fp + beta * fn + SMOOTH)).mean()

    return loss


def tversky(labels: Labels) -> Loss:
    return soft_dice(labels, ALPHA, BETA)


def dice_and_cross_entropy(labels: Labels) -> Loss:
    """The sum of both, as in nnU-Net (F. Isensee et al., Nature Methods 2021)."""
    dice, entropy = soft_dice(labels), cross_entropy(labels)
    return lambda z, y, passed: dice(z, y, passed) + entropy(z, y, passed)


def sigmoid_f1(labels: Labels) -> Loss:
    """Macro soft F1 of a sigmoid per class (G. Bénédict et al., TMLR 2022), at its defaults."""
    dice = soft_dice(Labels("multilabel", labels.counts))
    return lambda z, y, passed: dice(z, F.one_hot(y, z.shape[1]).to(z), passed)


def lovasz(labels: Labels) -> Loss:
    """Lovasz-Softmax over the present classes of the batch, for one class the hinge per batch
    (M. Berman, A. R. Triki and M. B. Blaschko, CVPR 2018).
    """

    def extension(errors: Tensor, truth: Tensor) -> Tensor:
        errors, order = errors.sort(descending=True)
        truth = truth[order]
        union = truth.sum() + (1 - truth).cumsum(0)
        jaccard = 1 - (truth.sum() - truth.cumsum(0)) / union
        return errors @ torch.cat([jaccard[:1], jaccard.diff()])

    def loss(z: Tensor, y: Tensor, passed: float) -> Tensor:
        if labels.kind == "binary":
            signs = 2 * y.flatten() - 1
            return extension(F.relu(1 - signs * z.flatten()), y.flatten())
        p, t = (x.movedim(1, 0).flatten(1) for x in labels.one_hot(z, y))
        found = [extension((t[k] - p[k]).abs(), t[k]) for k in range(len(t)) if t[k].any()]
        return torch.stack(found).mean()

    return loss


def any_loss(task: Task, goal: Goal, **options: object) -> AnyLoss:
    sizes = {"average": goal.average, "per_sample": goal.per_sample}
    return AnyLoss(goal.metric, task=task.kind, **sizes, **options)


class Result(NamedTuple):
    """Logits of the validation and test rows, or decision values of the test rows."""

    valid: Tensor | None
    test: Tensor


def fit(
    model: nn.Module, task: Task, data: Data, seed: int, epochs: int, loss: Callable[..., Tensor],
    weight: Tensor | None = None,
) -> nn.Module:  # fmt: skip
    """Train a model by Adam; the loss also receives the share of the epochs that passed."""
    optimizer, loader = (
        torch.optim.Adam(model.parameters(), task.rate),
        Batches(data, task.batch, seed, weight),
    )
    model.train()
    for epoch in range(epochs):
        for x, *rest in loader:
            optimizer.zero_grad()
            loss(model(x), *rest, epoch / epochs).backward()
            optimizer.step()
    return model


def logits(model: nn.Module, x: Tensor) -> Tensor:
    model.eval()
    with torch.no_grad():
        return torch.cat([model(part) for part in x.split(500)])


def new_model(data: Data, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return data.network()


def train_baseline(
    task: Task, data: Data, goal: Goal, seed: int, *, make: Callable[[Labels], Loss]
) -> Result:
    model = new_model(data, seed)
    model = normed(model) if make is ldam else model
    fit(model, task, data, seed, task.epochs, make(labels_of(task, data)))
    return Result(logits(model, data.valid.x), logits(model, data.test.x))


def train_metric(task: Task, data: Data, goal: Goal, seed: int, **options: object) -> Result:
    """Train for the metric from scratch."""
    loss = any_loss(task, goal, **options)

    def with_weight(z: Tensor, y: Tensor, *rest: Tensor | float) -> Tensor:
        return loss(z, y, rest[0]) if len(rest) == 2 else loss(z, y)

    weight = row_weights(data, goal, "train")
    model = fit(new_model(data, seed), task, data, seed, task.epochs, with_weight, weight)
    return Result(logits(model, data.valid.x), logits(model, data.test.x))


def train_refined(
    task: Task, data: Data, goal: Goal, seed: int, *,
    make: Callable[[Labels], Loss], share: float = REFINED, **options: object,
) -> Result:  # fmt: skip
    """Start with a baseline, and refine for the last epochs."""
    last = max(1, round(share * task.epochs))
    loss = make(labels_of(task, data))
    model = fit(new_model(data, seed), task, data, seed, task.epochs - last, loss)
    if goal.uniform and data.shares is not None:
        options["priors"] = torch.full_like(data.shares, 1 / len(data.shares)).tolist()
    if goal.per_sample:
        options["per_sample"] = True
    refined = refine(
        deepcopy(model), Batches(data, task.batch, seed + 1000), goal.metric,
        valid=list(zip(*(part.split(500) for part in data.valid), strict=True)),
        average=goal.average, optimizer=partial(torch.optim.Adam, lr=task.rate), start_epochs=0,
        epochs=last,
        **options,
    )  # fmt: skip
    decided = torch.cat([refined.predict(part) for part in data.test.x.split(500)])
    if task.kind == "multiclass":
        classes = len(labels_of(task, data).counts)
        return Result(None, F.one_hot(decided, classes).movedim(-1, 1).float())
    return Result(None, 2.0 * decided - 1)


class Method(NamedTuple):
    """How a network is trained, for which tasks, and whose method it is."""

    train: Callable[..., Result]
    kinds: tuple[str, ...] = ("binary", "multilabel", "multiclass")
    where: tuple[bool, ...] = (False, True)  # rows, masks
    ours: bool = False
    of_metric: bool = False  # trained for each metric of a task


def baseline(make: Callable[[Labels], Loss], **options: tuple) -> Method:
    return Method(partial(train_baseline, make=make), **options)


def for_metric(ours: bool = True, **options: object) -> Method:
    return Method(partial(train_metric, **options), ours=ours, of_metric=True)


def refined(make: Callable[[Labels], Loss], **options: object) -> Method:
    return Method(partial(train_refined, make=make, **options), ours=True, of_metric=True)


SHARE = 0.1  # of cross-entropy, as documented
ROWS: dict[str, tuple] = {"where": (False,)}
METHODS = {
    "cross-entropy": baseline(cross_entropy),
    "weighted cross-entropy": baseline(weighted_cross_entropy),
    "focal": baseline(focal),
    "balanced softmax": baseline(balanced_softmax),
    "LDAM-DRW": baseline(ldam, kinds=("binary", "multiclass"), **ROWS),
    "Dice": baseline(soft_dice),
    "Dice + cross-entropy": baseline(dice_and_cross_entropy),
    "sigmoidF1": baseline(sigmoid_f1, kinds=("multiclass",), **ROWS),
    "SOL": for_metric(ours=False, step=RaisedCosine())._replace(kinds=("binary",), **ROWS),
    "Tversky": baseline(tversky, where=(True,)),
    "Lovasz": baseline(lovasz, where=(True,)),
    "loss + 0.1 CE": for_metric(cross_entropy=SHARE),
    "loss, bare": for_metric(),
    "loss + 0.1 CE, Amplified(10)": for_metric(step=Amplified(10.0), cross_entropy=SHARE),
    "loss + 0.1 CE, memory": for_metric(memory=0.98, cross_entropy=SHARE),
    "refine": refined(cross_entropy),
    "refine, weighted start": refined(weighted_cross_entropy),
    "refine, balanced softmax start": refined(balanced_softmax),
    "refine, ensemble": refined(balanced_softmax, ensemble=True),
}


def applies(method: Method, task: Task, goal: Goal) -> bool:
    """Whether a method exists for a task; running counts need counts over the batch."""
    pooled = "memory" not in getattr(method.train, "keywords", {}) or not goal.per_sample
    return task.kind in method.kinds and task.masks in method.where and pooled


def columns(task: Task, z: Tensor, y: Tensor) -> tuple[Array, Array]:
    """Logits and labels `(rows, classes)`, where each pixel is a row."""
    if task.kind == "binary":
        return z.flatten().numpy()[:, None], y.flatten().numpy()[:, None]
    if task.kind == "multilabel":
        return z.numpy(), y.numpy()
    y = F.one_hot(y, z.shape[1])
    return z.movedim(1, -1).flatten(0, -2).numpy(), y.flatten(0, -2).numpy()


def judge(
    task: Task, data: Data, goal: Goal, part: str, z: Tensor
) -> tuple[Callable[[Array], float], Array, Target | None]:
    """The score of moved logits, the logits as columns, and the target, None for images."""
    y = getattr(data, part).y
    if goal.per_sample:
        loss = any_loss(task, goal)
        return (
            lambda moved: loss.score(torch.tensor(moved).view(z.shape), y).item(),
            z.numpy(),
            None,
        )
    column, truth = columns(task, z, y)
    weight = row_weights(data, goal, part)
    rows = None if weight is None else weight.numpy()
    target = new_target(truth, goal.metric, task.kind, goal.average, rows)
    return target.score, column, target


def tuned(task: Task, data: Data, goal: Goal, z: Tensor) -> Array:
    """The thresholds or offsets of logits that are best on the validation rows."""
    score, column, target = judge(task, data, goal, "valid", z)
    if target is None:
        return CUTS[int(np.argmax([score(column - cut) for cut in CUTS]))]
    if task.kind == "multiclass" and len(column) > PIXELS:
        some = np.random.default_rng(0).permutation(len(column))[:PIXELS]
        target = target._replace(y=target.y[some], weight=target.weight[some])
        column = column[some]
    return target.offsets(column)[0]


def averaged(task: Task, data: Data, goal: Goal, z: Tensor) -> Array:
    """The mean of the best thresholds or offsets of resampled validation rows (bootstrap)."""
    _, column, target = judge(task, data, goal, "valid", z)
    assert target is not None
    return target.averaged_offsets(column)


def shrunk(task: Task, data: Data, goal: Goal, z: Tensor) -> Array:
    """The best thresholds of labels, shrunk towards a shared one by how few positives they have."""
    _, column, target = judge(task, data, goal, "valid", z)
    assert target is not None
    return target.steady_offsets(column)


def adjusted(task: Task, data: Data, goal: Goal, z: Tensor) -> Array:
    """The multiple of the log priors that is best on the validation rows (Menon et al., 2021)."""
    score, column, _ = judge(task, data, goal, "valid", z)
    shift = log_priors(labels_of(task, data)).numpy()
    return shift * TAUS[int(np.argmax([score(column - tau * shift) for tau in TAUS]))]


def scores(name: str, task: Task, data: Data, goal: Goal, found: Result) -> dict[str, float]:
    """The test score with each decision rule; the rule of `refine` is its own."""
    score, column, _ = judge(task, data, goal, "test", found.test)
    if found.valid is None:
        return {"tuned": score(column)}
    rules = {
        "untuned": score(column),
        "tuned": score(column - tuned(task, data, goal, found.valid)),
    }
    if not task.masks:
        rules["averaged"] = score(column - averaged(task, data, goal, found.valid))
    if task.kind == "multilabel":
        rules["shrunk"] = score(column - shrunk(task, data, goal, found.valid))
    if name == "cross-entropy" and task.kind != "binary":
        rules["adjusted"] = score(column - adjusted(task, data, goal, found.valid))
    return rules


def run(name: str, task: Task, data: Data, seed: int) -> list[dict[str, object]]:
    """Train by a method, once or for each metric, and score all metrics of the task."""
    method, rows, found = METHODS[name], list[dict[str, object]](), None
    for title, goal in task.goals.items():
        if applies(method, task, goal):
            if found is None or method.of_metric:
                found = method.train(task, data, goal, seed)
            rules = scores(name, task, data, goal, found)
            rows += [{"goal": title, "rule": rule, "score": x} for rule, x in rules.items()]
    return rows
