"""The recipe for a PyTorch module: `refine`, and the `ModuleEnsemble` that it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anyloss._core.backend import Array
from anyloss._core.choices import Options
from anyloss._core.shapes import prepare
from anyloss.metrics import Metric, MetricSpec
from anyloss.recipe.skeleton import HeldOutScores, refine_members
from anyloss.recipe.target import Target, new_target
from anyloss.steps import Amplified
from anyloss.torch.loss import AnyLoss

Optimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
OnEpoch = Callable[[str, int, float], None]
Train = Callable[[nn.Module, Tensor], tuple[list[float], Array]]


class ModuleEnsemble(nn.Module):
    """A started and a refined module, whose mean probability decides.

    `threshold_` is subtracted from the logits of both, so that a logit above 0 is a positive
    decision.

    Attributes:
        started (Module): the module as it was after cross-entropy.
        refined (Module): its copy, trained further for the metric.
        threshold_ (Tensor): the threshold of the logits, one per class if there are several.
        share (float): the share of the refined module in the decision: 1, 0.5 or 0.
        task (str): `"binary"`, `"multilabel"` or `"multiclass"`.
        start_score (float): the metric of the started module.
        end_score (float): the metric of the ensemble, on the same rows.
        scored_on (str): which rows these are: `"validation rows"`, or `"training rows"` if there
            were no others; scores of training rows are optimistic.
        history (list of float): the mean soft score of the batches in each refining epoch.

    Examples:
        >>> both = ModuleEnsemble(nn.Identity(), nn.Identity(), torch.tensor([2.0]), "binary")
        >>> both.predict(torch.tensor([1.0, 3.0]))
        tensor([0, 1])
    """

    def __init__(
        self, started: nn.Module, refined: nn.Module, threshold: Tensor, task: str,
        share: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__()
        self.started, self.refined, self.task, self.share = started, refined, task, share
        self.threshold_: Tensor = nn.Buffer(threshold)
        self.start_score, self.end_score, self.history = np.nan, np.nan, list[float]()
        self.scored_on = "validation rows"

    def get_extra_state(self) -> dict[str, float]:
        return {"share": self.share}

    def set_extra_state(self, state: dict[str, float]) -> None:
        self.share = state["share"]

    def forward(self, x: Any) -> Tensor:
        """The logit of the mean probability, `(n,)` or `(n, C)`; for several classes, its log."""
        if self.share in (0.0, 1.0):
            z = _call(self.refined if self.share else self.started, x) - self.threshold_
            return _combined(z, None, self.task)
        a, b = (_call(member, x) - self.threshold_ for member in (self.started, self.refined))
        return _combined(a, b, self.task)

    def predict(self, x: Any) -> Tensor:
        """Decisions in eval mode: 0 or 1, `(n,)` or `(n, C)`; for several classes their indices."""
        with torch.no_grad(), _mode(self, training=False):
            z: Tensor = self(x)
        return z.argmax(1) if self.task == "multiclass" else z.gt(0).long()


def refine(
    model: nn.Module, loader: Iterable[Any], metric: MetricSpec | Metric = "f1", *,
    valid: Iterable[Any] | None = None, average: str | None = "auto",
    optimizer: Optimizer | None = None, epochs: int = 20, refine_epochs: int = 10,
    scale: float = 20.0, cross_entropy: float = 0.1, start: bool = True,
    on_epoch: OnEpoch | None = None,
) -> ModuleEnsemble:  # fmt: skip
    """Train a module by cross-entropy, then refine a copy of it for a metric.

    The stages are those of `anyloss.recipe.skeleton`: cross-entropy, the best threshold, and
    `1 - metric` of the soft counts of each batch plus `cross_entropy` times the class-weighted
    cross-entropy. The validation rows decide whether the refined module, the mean of both, or the
    started module is used: the result is never worse than the start on these rows. Without
    validation rows the mean of both is used, because training rows cannot show that refining went
    too far.

    Args:
        model (Module): returns logits. It is trained in place, or left unchanged with
            `start=False`; the ensemble holds copies.
        loader (iterable): gives `(x, y)` or `(x, y, weight)` anew in each pass, in large batches. A
            tuple or dict `x` is passed on as `model(*x)` or `model(**x)`.
        metric (str, callable or Metric): a name, a formula or a function of `tp, fn, fp, tn`.
            Default: `"f1"`.
        valid (iterable, optional): validation batches for the threshold, the scores and the choice
            of the result. By default the threshold and the scores come from `loader`, which is
            optimistic.
        average (str): how several classes or labels are combined, as in `AnyLoss`.
        optimizer (callable, optional): makes an optimizer from a list of parameters, once for each
            stage. Default: Adam with a learning rate of 0.001.
        epochs (int): the epochs of cross-entropy. Default: 20.
        refine_epochs (int): the epochs for the metric. Default: 10.
        scale (float): the scale of the step `Amplified` of the second stage. Default: 20.
        cross_entropy (float): the factor of the cross-entropy in the second stage. Default: 0.1.
        start (bool): whether to train the model by cross-entropy first. Default: True.
        on_epoch (callable, optional): receives the stage (`"cross-entropy"` or `"metric"`), the
            epoch, and its mean loss or soft score.

    Shape:
        - logits: `(n,)` or `(n, 1)` for two classes, `(n, C)` for several classes or labels.
        - `y`: `(n,)` or `(n, 1)` for two classes; class indices `(n,)`; or labels `(n, C)`.
        - `weight`: `(n,)`.

    Returns:
        ModuleEnsemble: a module with the thresholds, scores and `predict`.

    Raises:
        ValueError: if there is no batch or no parameter to train, if labels, weights or logits
            are out of range, or if `valid` has another task than `loader`.
        TypeError: if a batch is no pair or triple, `model` returns no float tensor, or `optimizer`
            is an optimizer instead of a function that makes one.

    Examples:
        >>> x = torch.linspace(-3, 3, 200)[:, None]
        >>> refine(nn.Linear(1, 1), [(x, x > 1)], optimizer=torch.optim.Rprop).predict(x[::99])
        tensor([0, 0, 1])
    """
    if epochs < 0 or refine_epochs < 0:
        raise ValueError(
            f"epochs and refine_epochs must be at least 0; got {epochs} and {refine_epochs}"
        )
    if isinstance(optimizer, torch.optim.Optimizer):
        given = type(optimizer).__name__
        raise TypeError(
            "optimizer must be a function or class that makes an optimizer from parameters, such "
            f"as torch.optim.{given}; got an instance of it"
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("the model has no parameter to train (requires_grad=True)")
    make, callback = optimizer or partial(torch.optim.Adam, lr=1e-3), on_epoch or _no_callback
    loss = AnyLoss(metric, step=Amplified(scale), average=average)
    target, z = _collect(model, loader, loss)  # errors are raised before anything is trained
    judge, z = (target, z) if valid is None else _collect(model, valid, loss)
    if judge.layout != target.layout:
        raise ValueError(
            f"valid must have the task and classes of loader, {target.layout}; got {judge.layout}"
        )
    if start:
        plain = _Objective(None, torch.zeros(()), torch.ones(2, z.shape[1]), 1.0)
        _train(model, loader, make, epochs, partial(callback, "cross-entropy"), plain)
        judge, z = _collect(model, loader if valid is None else valid, loss)

    def train(refined: nn.Module, threshold: Tensor) -> tuple[list[float], Array]:
        objective = _Objective(loss, threshold, _balance(target), cross_entropy)
        receive = partial(callback, "metric")
        history = _train(refined, loader, make, refine_epochs, receive, objective)
        return history, _collect(refined, loader if valid is None else valid, loss)[1]

    members = _ModuleMembers(model, judge, z, train, guarded=valid is not None)
    found = refine_members(members)
    ensemble = ModuleEnsemble(
        deepcopy(model), members.refined, members.threshold, target.layout.task, found.share
    )
    ensemble.start_score, ensemble.end_score = found.start_score, found.held_out_score
    ensemble.history = members.history
    ensemble.scored_on = "validation rows" if members.guarded else "training rows"
    return ensemble.eval()


def _no_callback(stage: str, epoch: int, value: float) -> None:
    """The default of `on_epoch`: do nothing."""


class _ModuleMembers:
    """The started and the refined module, as the skeleton of the recipe uses them.

    `z` are the logits of the started module on the rows that decide, `train` trains a module and
    returns its history and its logits on these rows.
    """

    def __init__(
        self, model: nn.Module, target: Target, z: Array, train: Train, guarded: bool
    ) -> None:
        self.model, self.target, self.z = model, target, z
        self.train, self.guarded = train, guarded

    @property
    def shares(self) -> tuple[float, ...]:
        if not self.guarded:
            return (0.5,)
        least = self.held_out(0.0).hard
        return tuple(x for x in (1.0, 0.5, 0.0) if self.held_out(x).hard >= least)

    def move_threshold(self) -> float:
        offsets = self.target.offsets(self.z)[0].astype(self.z.dtype)
        self.threshold = torch.tensor(offsets, device=next(self.model.parameters()).device)
        self.started_logits = torch.tensor(self.z - offsets)
        return self.target.score(self.z - offsets)

    def refine(self) -> None:
        self.refined = deepcopy(self.model)
        self.history, z = self.train(self.refined, self.threshold)
        self.refined_logits = torch.tensor(z) - self.threshold.cpu()

    def held_out(self, share: float) -> HeldOutScores:
        task, a, b = self.target.layout.task, self.started_logits, self.refined_logits
        z = _combined(a, b, task) if share == 0.5 else _combined(b if share else a, None, task)
        p = z.exp() if task == "multiclass" else z.sigmoid()
        return HeldOutScores(self.target.score(z.numpy()), self.target.soft_score(p.numpy()))


def _combined(a: Tensor, b: Tensor | None, task: str) -> Tensor:
    """The logit of the mean probability of one or two logits; for several classes, its log."""
    if task == "multiclass":
        found = a.log_softmax(1)
        return found if b is None else torch.logaddexp(found, b.log_softmax(1)).sub(np.log(2))
    if b is None:
        return a
    high, low = (torch.logaddexp(F.logsigmoid(s * a), F.logsigmoid(s * b)) for s in (1, -1))
    middle = a / 2 + b / 2  # has the right sign, also where rounding loses the difference
    return torch.where((high - low) * middle > 0, high - low, middle * 1e-7)


class _Objective(NamedTuple):
    """A loss (None: cross-entropy only), the threshold, class weights, and their factor."""

    loss: AnyLoss | None
    threshold: Tensor
    balance: Tensor
    factor: float


@contextmanager
def _mode(module: nn.Module, training: bool) -> Iterator[None]:
    before = [(part, part.training) for part in module.modules()]
    module.train(training)
    try:
        yield
    finally:
        for part, was in before:
            part.training = was


def _call(module: nn.Module, x: Any) -> Tensor:
    """The logits in float32 or wider; a single column of them becomes `(n,)`."""
    device = next(module.parameters(), torch.empty(0)).device
    if isinstance(x, Mapping):
        z = module(**{name: part.to(device) for name, part in x.items()})
    else:
        z = module(*(part.to(device) for part in (x if isinstance(x, tuple | list) else [x])))
    if not isinstance(z, Tensor) or not z.is_floating_point():
        raise TypeError(f"model(x) must return logits, a float tensor; got {type(z).__name__}")
    z = z.flatten() if z.shape[1:] in ((), (1,)) else z
    return z.to(torch.promote_types(z.dtype, torch.float32))


def _batches(module: nn.Module, loader: Iterable[Any]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Logits, labels and weights of each batch in one pass, on the device of the module."""
    batch = None
    for batch in () if isinstance(loader, Iterator) else loader:
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise TypeError(f"batches must be (x, y) or (x, y, weight); got {type(batch).__name__}")
        z = module(batch[0]) if isinstance(module, ModuleEnsemble) else _call(module, batch[0])
        y = torch.as_tensor(batch[1], device=z.device)
        y = y.squeeze(1) if z.ndim == 1 and y.shape[1:] == (1,) else y
        w = torch.as_tensor(batch[2]).to(z) if len(batch) == 3 else z.new_ones(y.shape[:1])
        yield z, y if y.is_floating_point() else y.long(), w
    if batch is None:
        raise ValueError(
            f"no batch in {loader!r}; pass a DataLoader or a list, which can be read many times"
        )


def _collect(module: nn.Module, loader: Any, loss: AnyLoss) -> tuple[Target, Array]:
    """One pass in eval mode: the target and the logits `(rows, classes)`, both checked."""
    with torch.no_grad(), _mode(module, training=False):
        parts = list(zip(*_batches(module, loader), strict=True))
    z, y, w = (np.concatenate([x.cpu().numpy() for x in part]) for part in parts)
    if z.ndim > 2 or w.ndim != 1:
        raise ValueError(f"expected logits (n,) or (n, C), weights (n,); got {z.shape}, {w.shape}")
    if not np.isfinite(z).all():
        raise ValueError("logits must be finite; got NaN or inf: check x and the learning rate")
    chosen, average = loss.settings.metric, loss.settings.options.average
    found = prepare(y, z, Options(average=average), weight=w, own_form=chosen.has_own_form)
    (columns,), lay = found.y, found.layout
    seen, z, w = columns[w > 0], z[w > 0], w[w > 0]  # weight 0 equals no row
    if not ((seen == 0) | (seen == 1)).all() or not (seen.any(0) & (seen == 0).any(0)).any():
        raise ValueError(
            f"labels must be 0 or 1 (or class indices) of more than one class; got {np.unique(y)}"
        )
    return new_target(seen, chosen, lay.task, lay.average, w), z.reshape(len(z), -1)


def _balance(target: Target) -> Tensor:
    """Weights `(2, classes)` of negative and positive labels that balance every class."""
    sums = np.stack([target.weight @ (1 - target.y), target.weight @ target.y])
    parts = (sums[1] > 0).sum() if target.layout.task == "multiclass" else 2
    return torch.tensor(target.weight.sum() / parts / np.where(sums > 0, sums, 1.0))


def _cross_entropy(z: Tensor, y: Tensor, w: Tensor, balance: Tensor) -> Tensor:
    negative, positive = balance.to(z)
    if y.ndim < z.ndim:
        rows = F.cross_entropy(z, y, positive, reduction="none")
    else:
        rows = torch.where(y == 1, positive * F.softplus(-z), negative * F.softplus(z))
    return (w * rows.reshape(len(z), -1).mean(1)).sum() / w.sum().clamp_min(1e-30)


def _train(
    module: nn.Module, loader: Any, make: Optimizer, epochs: int,
    receive: Callable[[int, float], None], objective: _Objective,
) -> list[float]:  # fmt: skip
    """Epochs in train mode; the mean soft score of each, or the cross-entropy without a loss."""
    loss, at, balance, factor = objective
    optimizer, history = make([p for p in module.parameters() if p.requires_grad]), list[float]()
    with _mode(module, training=True):
        for epoch in range(1, epochs + 1):
            values = []
            for z, y, w in _batches(module, loader):
                entropy = _cross_entropy(z - at, y, w, balance)
                missing = loss(z - at, y, w) if loss else torch.zeros(())
                optimizer.zero_grad()
                (missing + factor * entropy).backward()
                optimizer.step()
                values.append((1 - missing if loss else entropy).detach())
            history.append(float(torch.stack(values).mean()))
            receive(epoch, history[-1])
    return history
