"""One stage of training a module: its optimizer and what belongs to it, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from anyloss.torch.refined import call, mode
from anyloss.torch.rows import Labels, batches, check_finite
from anyloss.torch.snapshots import (
    RunningAverage,
    load_optimizer_state,
    optimizer_state,
    split_like,
    whole,
)

MakeOptimizer = Callable[[Any], torch.optim.Optimizer]
MakeScheduler = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]
Groups = Sequence[Tensor] | Sequence[dict[str, Any]]
Loss = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""A function of logits, labels and weights: the loss, and the value to report."""


class Training(NamedTuple):
    """How a stage trains."""

    optimizer: MakeOptimizer
    scheduler: MakeScheduler | None
    autocast: torch.dtype | None
    max_norm: float | None

    def in_words(self, groups: Groups) -> dict[str, str]:
        """The optimizer with its defaults, and the scheduler, for comparing them."""
        optimizer = self.optimizer(groups)
        scheduler = None if self.scheduler is None else self.scheduler(optimizer)
        options = ", ".join(f"{key}={_plain(x)}" for key, x in optimizer.defaults.items())
        return {
            "optimizer": f"{type(optimizer).__name__}({options})",
            "scheduler": "None" if scheduler is None else type(scheduler).__name__,
        }


def _plain(value: Any) -> str:
    """A value as a text that is the same in every process."""
    return getattr(value, "__qualname__", type(value).__name__) if callable(value) else str(value)


class Stage:
    """A stage of training: the optimizer, the scheduler, the scaler and the running average."""

    def __init__(
        self, model: nn.Module, groups: Groups, how: Training, *, ema: float | None = None,
        fixed: Sequence[nn.Module] = (),
    ) -> None:  # fmt: skip
        self.model, self.how, self.fixed = model, how, fixed
        self.parameters = in_groups(groups)
        self.optimizer = how.optimizer(groups)
        self.scheduler = None if how.scheduler is None else how.scheduler(self.optimizer)
        self.device = self.parameters[0].device.type
        self.scaler = torch.amp.GradScaler(self.device, enabled=how.autocast == torch.float16)
        self.average = None if ema is None else RunningAverage(self.parameters, ema)

    def epoch(self, loader: Iterable[Any], labels: Labels, loss: Loss, number: int) -> float:
        """Train for an epoch; the mean of the reported values. `number` is for the samplers."""
        for part in ("sampler", "batch_sampler"):
            if hasattr(sampler := getattr(loader, part, None), "set_epoch"):
                sampler.set_epoch(number)  # type: ignore[union-attr]
        values = []
        with mode(self.model, training=True, fixed=self.fixed):
            for batch in batches(loader):
                y, weight = labels.read(batch)
                with torch.autocast(self.device, self.how.autocast, self.how.autocast is not None):
                    z = call(self.model, batch[0])
                if z.is_cpu:  # elsewhere it would wait for the device; validation rows show it
                    check_finite(z)
                value = loss(z, y.to(z.device), None if weight is None else weight.to(z))
                values.append(value[1])
                self._step(value[0])
        if self.scheduler is not None:
            self.scheduler.step()
        return float(torch.stack(values).mean())

    def _step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if self.how.max_norm is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.parameters, self.how.max_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.update()

    def state_dict(self) -> dict[str, Any]:
        """The state of all parts, of a model that is split over ranks the whole one."""
        average = [] if self.average is None else self.average.values
        return {
            "optimizer": optimizer_state(self.model, self.optimizer),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "average": [whole(value).cpu() for value in average],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        load_optimizer_state(self.model, self.optimizer, state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.scaler.load_state_dict(state["scaler"])
        if self.average is not None:
            values = zip(state["average"], self.average.values, strict=True)
            self.average.values = [split_like(value, own) for value, own in values]


def in_groups(groups: Groups) -> list[Tensor]:
    """All parameters of a list of parameters or of parameter groups."""
    found: list[Tensor] = []
    for group in groups:
        found += [group] if isinstance(group, Tensor) else _listed(group["params"])
    return found


def _listed(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


@contextmanager
def only(model: nn.Module, parameters: Sequence[Tensor]) -> Iterator[None]:
    """Compute no gradients of other parameters.

    DDP waits for the gradients of all parameters that it was made with, so there they are computed
    and not used.
    """
    chosen = {id(p) for p in parameters}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in chosen]
    others = [] if isinstance(model, DistributedDataParallel) else others
    for p in others:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in others:
            p.requires_grad_(True)
