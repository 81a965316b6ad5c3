"""Gradient accumulation: the exact gradient of a batch that does not fit into memory at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from anyloss.torch.batch import read_batch
from anyloss.torch.loss import AnyLoss, batch_loss
from anyloss.torch.sync import Pool


def accumulate(
    loss: AnyLoss,
    model: nn.Module,
    micro_batches: Iterable[Sequence[Tensor]],
    *,
    backward: Callable[[Tensor], object] = Tensor.backward,
) -> Tensor:
    """Add the gradient of all micro-batches, taken as one batch, to the model's; give its loss.

    The mean of the micro-batches' losses is not the loss of the batch. So the rows are counted in
    a first pass without gradients, and in a second pass each micro-batch gets the gradient that
    its rows have in the whole. Twice the forward passes, the memory of one micro-batch.

    The first pass leaves no trace: random numbers are drawn again (so that dropout drops the
    same), and buffers such as BatchNorm's are put back. BatchNorm still normalises each
    micro-batch by itself, as in any accumulation. Random numbers from elsewhere than PyTorch are
    not replayed.

    Under DDP and FSDP the ranks exchange counts once, and gradients with the last micro-batch.

    Args:
        loss: an `AnyLoss`; its `sync` and `memory` hold for the whole batch.
        model: called with the first element of each micro-batch.
        micro_batches: `(input, target)` or `(input, target, weight)` each; all are held, so on an
            accelerator let the model move its input to the device.
        backward: what is called with each part's loss, such as `accelerator.backward`.

    >>> model, loss = nn.Linear(3, 1), AnyLoss("f1")
    >>> parts = [(torch.randn(4, 3), torch.ones(4, 1)), (torch.randn(2, 3), torch.zeros(2, 1))]
    >>> value = accumulate(loss, model, parts)
    >>> x, y = (torch.cat(both) for both in zip(*parts))
    >>> torch.allclose(value, loss(model(x), y))
    True
    """
    if not isinstance(loss, AnyLoss):
        raise TypeError(
            "accumulate adds up the counts of an AnyLoss; a loss of pairs or of a mean, such as "
            f"{type(loss).__name__}, has none"
        )
    parts = list(micro_batches)
    if not parts:
        raise ValueError("micro_batches must hold at least one (input, target); got none")
    settings, outer = loss.settings, loss.pool()
    if settings.options.average is None:
        raise ValueError(
            "accumulate needs a loss of one number; average=None gives one per class. Use 'macro'"
        )

    def run(model: nn.Module, part: Sequence[Tensor], pool: Pool) -> Tensor:
        input, target, *weight = part
        batch = read_batch(model(input), target, weight[0] if weight else None, settings)
        return batch_loss(batch, settings, pool)

    sums: dict[int, Tensor] = {}

    def collect(step: int, own: Tensor) -> tuple[Tensor, float]:
        sums[step] = sums[step] + own if step in sums else own
        return own, 1.0

    with torch.no_grad(), _without_trace(model):
        for part in parts:
            run(
                model.module if isinstance(model, DistributedDataParallel) else model, part, collect
            )
    whole = {step: (own, 1.0) if outer is None else outer(step, own) for step, own in sums.items()}
    for k, part in enumerate(parts, 1):
        with _gradients_exchanged(model, k == len(parts)):
            value = run(model, part, lambda step, own: whole[step])
            backward(value)
    return value.detach()


@contextmanager
def _without_trace(model: nn.Module) -> Iterator[None]:
    """Put back the random state and the model's buffers."""
    device = next((x.device for x in model.parameters()), torch.device("cpu"))
    devices = [] if device.type == "cpu" else [device]
    buffers = [(x, x.clone()) for x in model.buffers()]
    with torch.random.fork_rng(devices, device_type=device.type):
        yield
    for buffer, kept in buffers:
        buffer.copy_(kept)


@contextmanager
def _gradients_exchanged(model: nn.Module, now: bool) -> Iterator[None]:
    """Whether the ranks average their gradients in this backward pass, or wait for a later one."""
    if isinstance(model, DistributedDataParallel) and not now:
        with model.no_sync():
            yield
    else:
        set_fsdp = getattr(model, "set_requires_gradient_sync", None)
        if set_fsdp is not None:  # known by its method: importing its class takes a second
            set_fsdp(now)
        yield
