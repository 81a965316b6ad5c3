"""The recipe for a PyTorch module and DataLoader of your own: `fit_module` and its `Voter`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anyloss._core.backend import Array
from anyloss._core.shapes import Options, prepare
from anyloss.metrics import Metric, MetricSpec
from anyloss.recipe.task import Task, new_task
from anyloss.steps import Amplified
from anyloss.torch import AnyLoss


class Voter(nn.Module):
    """A started and a refined module that vote, each with `threshold_` subtracted from its logits.

    `start_score` is the metric of the started one, `end_score` that of the vote, both on the rows
    that `scored_on` names: "validation rows", or "training rows" if there were no others, which is
    optimistic. `history` is the mean soft score of the batches per refining epoch.

    >>> Voter(nn.Identity(), nn.Identity(), torch.tensor([2.0]), "binary").predict(torch.ones(1))
    tensor([0])
    """

    def __init__(self, started: nn.Module, refined: nn.Module, threshold: Tensor, kind: str):
        super().__init__()
        self.started, self.refined, self.kind = started, refined, kind
        self.threshold_: Tensor = nn.Buffer(threshold)
        self.start_score, self.end_score, self.history = np.nan, np.nan, list[float]()
        self.scored_on = "validation rows"

    def forward(self, x: Any) -> Tensor:
        """The logit of the mean probability, `(n,)` or `(n, C)`; for multiclass, its log."""
        a, b = (_call(member, x) - self.threshold_ for member in (self.started, self.refined))
        if self.kind == "multiclass":
            return torch.logaddexp(a.log_softmax(1), b.log_softmax(1)).sub(np.log(2))
        high, low = (torch.logaddexp(F.logsigmoid(s * a), F.logsigmoid(s * b)) for s in (1, -1))
        middle = a / 2 + b / 2  # has the sign of the vote, also where that is lost in rounding
        return torch.where((high - low) * middle > 0, high - low, middle * 1e-7)

    def predict(self, x: Any) -> Tensor:
        """0 or 1, `(n,)` or `(n, C)` for multilabel, or class indices `(n,)`; in eval mode."""
        with torch.no_grad(), _mode(self, training=False):
            z: Tensor = self(x)
        return z.argmax(1) if self.kind == "multiclass" else z.gt(0).long()


def fit_module(
    module: nn.Module, loader: Iterable[Any], metric: MetricSpec | Metric = "f1", *,
    valid: Iterable[Any] | None = None, average: str | None = "auto",
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None,
    epochs: int = 20, refine_epochs: int = 10, scale: float = 20.0, cross_entropy: float = 0.1,
    start: bool = True, on_epoch: Callable[[str, int, float], None] | None = None,
) -> Voter:  # fmt: skip
    """Cross-entropy, the best threshold, a copy refined for the metric, and the vote of both.

    `loader` gives `(x, y)` or `(x, y, weight)` anew in each pass, in large batches; a tuple or dict
    `x` is passed on as `module(*x)` or `module(**x)`. Logits `(n,)` or `(n, 1)` are binary (one
    column is squeezed, on purpose: labels may be `(n,)` or `(n, 1)`), `(n, C)` with class indices
    `(n,)` multiclass, with labels `(n, C)` multilabel; `average` of several classes is "macro" or
    the metric's own form, as in `AnyLoss`. `module` is trained in place, or left alone with
    `start=False`; the vote holds copies. Threshold and scores come from `valid`, or else from
    `loader`, which is optimistic (`scored_on` says which). `optimizer` makes one from parameters,
    once for each stage (None: Adam, lr=1e-3).
    `on_epoch("cross-entropy" or "metric", epoch, mean loss or soft score)`.

    >>> x = torch.linspace(-3, 3, 200)[:, None]
    >>> fit_module(nn.Linear(1, 1), [(x, x > 1)], optimizer=torch.optim.Rprop).predict(x[::99])
    tensor([0, 0, 1])
    """
    if epochs < 0 or refine_epochs < 0:
        raise ValueError(f"expected epochs from 0 on; got {epochs} and {refine_epochs}")
    if isinstance(optimizer, torch.optim.Optimizer):
        given = type(optimizer).__name__
        raise TypeError(
            "optimizer must be a function or class that makes an optimizer from parameters, such "
            f"as torch.optim.{given}; got an object of it"
        )
    if not any(p.requires_grad for p in module.parameters()):
        raise ValueError("the module has no parameter to train (requires_grad)")
    loss = AnyLoss(metric, step=Amplified(scale), average=average)
    make, tell = optimizer or partial(torch.optim.Adam, lr=1e-3), on_epoch or (lambda *news: None)
    task, z = _collect(module, loader, loss)  # what is wrong shows before anything is trained
    judge, z = (task, z) if valid is None else _collect(module, valid, loss)
    if judge.layout != task.layout:
        raise ValueError(f"valid must be labelled like loader, {task.layout}; got {judge.layout}")
    if start:
        plain = (None, 0.0, torch.ones(2, z.shape[1]), 1.0)
        _train(module, loader, make, epochs, partial(tell, "cross-entropy"), plain)
        judge, z = _collect(module, loader if valid is None else valid, loss)
    offsets = judge.offsets(z)[0].astype(z.dtype)
    at = torch.tensor(offsets, device=next(module.parameters()).device)
    voter = Voter(deepcopy(module), deepcopy(module), at, task.layout.task)
    voter.start_score = judge.score(z - offsets)
    voter.scored_on = "training rows" if valid is None else "validation rows"
    aim = (loss, at, _balance(task), cross_entropy)
    voter.history = _train(voter.refined, loader, make, refine_epochs, partial(tell, "metric"), aim)
    judge, z = _collect(voter.eval(), loader if valid is None else valid, loss)
    voter.end_score = judge.score(z)
    return voter


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
    """The logits in float32 or wider, a single column (or row) of them as `(n,)`."""
    device = next(module.parameters(), torch.empty(0)).device
    if isinstance(x, Mapping):
        z = module(**{name: part.to(device) for name, part in x.items()})
    else:
        z = module(*(part.to(device) for part in (x if isinstance(x, tuple | list) else [x])))
    if not isinstance(z, Tensor) or not z.is_floating_point():
        raise TypeError(f"module(x) must give logits, a float tensor; got {type(z).__name__}")
    z = z.flatten() if z.shape[1:] in ((), (1,)) else z
    return z.to(torch.promote_types(z.dtype, torch.float32))


def _batches(module: nn.Module, loader: Iterable[Any]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Logits, labels and weights of each batch in one pass, on the device of the module."""
    batch = None
    for batch in () if isinstance(loader, Iterator) else loader:
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise TypeError(f"batches must be (x, y) or (x, y, weight); got {type(batch).__name__}")
        z = module(batch[0]) if isinstance(module, Voter) else _call(module, batch[0])
        y = torch.as_tensor(batch[1], device=z.device)
        y = y.squeeze(1) if z.ndim == 1 and y.shape[1:] == (1,) else y
        w = torch.as_tensor(batch[2]).to(z) if len(batch) == 3 else z.new_ones(y.shape[:1])
        yield z, y if y.is_floating_point() else y.long(), w
    if batch is None:
        raise ValueError(f"no batch in {loader!r}; give a DataLoader or list, for many passes")


def _collect(module: nn.Module, loader: Any, loss: AnyLoss) -> tuple[Task, Array]:
    """One pass in eval mode: labels and weights as a task, logits `(rows, classes)`; checked."""
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
    seen, z, w = columns[w > 0], z[w > 0], w[w > 0]  # a row of weight 0 is no row
    if not ((seen == 0) | (seen == 1)).all() or not (seen.any(0) & (seen == 0).any(0)).any():
        raise ValueError(f"labels must be 0 or 1 (or indices), and differ; got {np.unique(y)}")
    return new_task(seen, chosen, lay.task, lay.average, w), z.reshape(len(z), -1)


def _balance(task: Task) -> Tensor:
    """Weights of negative and positive labels `(2, classes)`, for an equal part of every class."""
    sums = np.stack([task.weight @ (1 - task.y), task.weight @ task.y])
    parts = (sums[1] > 0).sum() if task.layout.task == "multiclass" else 2
    return torch.tensor(task.weight.sum() / parts / np.where(sums > 0, sums, 1.0))


def _cross_entropy(z: Tensor, y: Tensor, w: Tensor, balance: Tensor) -> Tensor:
    negative, positive = balance.to(z)
    if y.ndim < z.ndim:
        rows = F.cross_entropy(z, y, positive, reduction="none")
    else:
        rows = torch.where(y == 1, positive * F.softplus(-z), negative * F.softplus(z))
    return (w * rows.reshape(len(z), -1).mean(1)).sum() / w.sum().clamp_min(1e-30)


def _train(
    module: nn.Module, loader: Any, make: Any, epochs: int, tell: Any, aim: tuple[Any, ...]
) -> list[float]:
    """Epochs in train mode; the mean soft score of each, or cross-entropy where that is all."""
    loss, at, balance, share = aim
    optimizer, history = make([p for p in module.parameters() if p.requires_grad]), list[float]()
    with _mode(module, training=True):
        for epoch in range(1, epochs + 1):
            reports = []
            for z, y, w in _batches(module, loader):
                entropy = _cross_entropy(z - at, y, w, balance)
                missed = loss(z - at, y, w) if loss else torch.zeros(())
                optimizer.zero_grad()
                (missed + share * entropy).backward()
                optimizer.step()
                reports.append((1 - missed if loss else entropy).detach())
            history.append(float(torch.stack(reports).mean()))
            tell(epoch, history[-1])
    return history
