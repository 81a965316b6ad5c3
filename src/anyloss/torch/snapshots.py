"""The weights of a model at some time: snapshots, their mean, and a running average.

A snapshot is a whole `state_dict` on the CPU, also of a model that is split over ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from anyloss.torch.refined import call, mode
from anyloss.torch.sync import exchange, ranks

Weights = dict[str, Any]


def inner(model: nn.Module) -> nn.Module:
    """The module within DDP, which needs no other rank for a forward pass."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def whole(x: Tensor) -> Tensor:
    """A tensor of which each rank has a part as one tensor. All ranks must call this."""
    found: Tensor = x.full_tensor() if hasattr(x, "full_tensor") else x
    return found


def split_like(x: Tensor, like: Tensor) -> Tensor:
    """A whole tensor on the device of another one, and split over the ranks as that one is."""
    x = x.to(like.device)
    if not hasattr(like, "full_tensor"):
        return x
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(x, like.device_mesh, like.placements)  # type: ignore[attr-defined]


def snapshot(model: nn.Module) -> Weights:
    """A copy of the state of a model, on the CPU."""
    state = inner(model).state_dict()
    return {
        name: whole(x.detach()).to("cpu", copy=True) if isinstance(x, Tensor) else x
        for name, x in state.items()
    }


def restore(model: nn.Module, weights: Weights) -> None:
    """Load a snapshot into its model."""
    own = inner(model).state_dict()
    inner(model).load_state_dict(
        {
            name: split_like(x, own[name]) if isinstance(x, Tensor) else x
            for name, x in weights.items()
        }
    )


def is_split(model: nn.Module) -> bool:
    """Whether each rank has a part of the weights only, as under FSDP."""
    return any(hasattr(p, "full_tensor") for p in model.parameters())


def optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The state of an optimizer, of a model that is split over ranks the whole one."""
    if not is_split(model):
        return optimizer.state_dict()
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True)
    return dict(get_optimizer_state_dict(model, optimizer, options=options))


def load_optimizer_state(
    model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]
) -> None:
    """Go on from a state of `optimizer_state`."""
    if not is_split(model):
        optimizer.load_state_dict(state)
        return
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True)
    set_optimizer_state_dict(model, optimizer, state, options=options)


def mean_weights(start: Weights, end: Weights) -> Weights:
    """The mean of two snapshots; what is no float, such as a number of batches, is that of `end`.

    >>> mean_weights({"w": torch.tensor([1.0])}, {"w": torch.tensor([3.0])})
    {'w': tensor([2.])}
    """
    return {
        name: (start[name] + x) / 2 if isinstance(x, Tensor) and x.is_floating_point() else x
        for name, x in end.items()
    }


def batch_norms(model: nn.Module, parameters: Iterable[Tensor] | None) -> list[_BatchNorm]:
    """The batch norms that are trained: all, or those that own one of the parameters."""
    norms = [part for part in model.modules() if isinstance(part, _BatchNorm)]
    if parameters is None:
        return norms
    chosen = {id(p) for p in parameters}
    return [norm for norm in norms if any(id(p) in chosen for p in norm.parameters())]


def same_buffers(model: nn.Module) -> None:
    """Give all ranks the buffers of the first one, such as the statistics of batch norms."""
    if ranks(True, None) > 1:
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)


@torch.no_grad()
def estimate_statistics(
    model: nn.Module, norms: Sequence[_BatchNorm], inputs: Iterable[Any]
) -> None:
    """Estimate the statistics of batch norms again, as the means over a pass of the inputs."""
    norms = [norm for norm in norms if norm.track_running_stats]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    with mode(model, training=False):
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the cumulative mean
            norm.train()
        for x in inputs:
            call(inner(model), x)
    size = ranks(True, None)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        for each in (norm.running_mean, norm.running_var) if size > 1 else ():
            assert each is not None
            each.copy_(exchange(each, None) / size)


class RunningAverage:
    """The exponential moving average of parameters, which validation and the result use.

    >>> weight = nn.Parameter(torch.tensor([0.0]))
    >>> average = RunningAverage([weight], 0.75)
    >>> weight.data += 1.0
    >>> average.update()
    >>> with average.applied():
    ...     print(weight.item())
    0.25
    >>> weight.item()
    1.0
    """

    def __init__(self, parameters: Iterable[Tensor], decay: float) -> None:
        self.parameters, self.decay = list(parameters), decay
        self.values = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the parameters."""
        for value, parameter in zip(self.values, self.parameters, strict=True):
            value.lerp_(parameter.detach(), 1 - self.decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the average into the parameters, and at the end what was there before."""
        before = [p.detach().clone() for p in self.parameters]
        self.put(self.values)
        try:
            yield
        finally:
            self.put(before)

    @torch.no_grad()
    def put(self, values: Sequence[Tensor]) -> None:
        """Copy values into the parameters."""
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.copy_(value)
