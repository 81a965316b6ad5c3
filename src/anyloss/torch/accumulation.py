"""Gradient accumulation: the exact gradient of a batch that does not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from anyloss.torch.batch import Batch, read_batch
from anyloss.torch.loss import AnyLoss, batch_loss


def accumulate(
    loss: AnyLoss,
    model: nn.Module,
    micro_batches: Iterable[Sequence[Tensor]],
    *,
    backward: Callable[[Tensor], object] = Tensor.backward,
) -> Tensor:
    """Add the gradient of a batch, given as micro-batches, to the gradients of a model.

    The mean of the losses of the micro-batches is not the loss of the batch. So a first pass
    without gradients counts all samples, and in a second pass each micro-batch contributes the
    gradient that its samples have in the whole batch. This takes one more forward pass per sample,
    and the memory of one micro-batch.

    The first pass has no side effects on the model: the random state of PyTorch is restored, so
    that dropout uses the same masks in both passes, and so are buffers such as those of BatchNorm.
    BatchNorm normalises each micro-batch separately, as in any accumulation. Random numbers from
    other libraries than PyTorch are not repeated.

    Under DDP and FSDP the ranks exchange their counts once, and their gradients with the last
    micro-batch.

    Args:
        loss (AnyLoss): the loss. Its `sync`, `memory` and `constraints` apply to the whole
            batch.
        model (Module): the model. It is called with the first element of each micro-batch.
        micro_batches (iterable): tuples `(input, target)` or `(input, target, weight)`. All of them
            are held in memory, so on an accelerator let the model move its input to the device.
        backward (callable): the function that receives the loss of each micro-batch, such as
            `accelerator.backward`. Default: `Tensor.backward`.

    Returns:
        Tensor: the loss of the whole batch, detached.

    Raises:
        TypeError: if the loss is not an `AnyLoss`.
        ValueError: if there is no micro-batch, or the loss is not one number.

    Examples:
        >>> model, loss = nn.Linear(3, 1), AnyLoss("f1")
        >>> parts = [(torch.randn(4, 3), torch.ones(4, 1)), (torch.randn(2, 3), torch.zeros(2, 1))]
        >>> value = accumulate(loss, model, parts)
        >>> x, y = (torch.cat(both) for both in zip(*parts))
        >>> torch.allclose(value, loss(model(x), y))
        True
    """
    if not isinstance(loss, AnyLoss):
        raise TypeError(
            "loss must be an AnyLoss, whose confusion counts are added up over the micro-batches; "
            f"got {type(loss).__name__}"
        )
    parts = list(micro_batches)
    if not parts:
        raise ValueError("micro_batches must hold at least one (input, target); got an empty one")
    settings, outer = loss.settings, loss.pool()
    if settings.options.average is None or settings.options.reduction == "none":
        raise ValueError(
            "accumulate needs a loss of one number; got "
            f"average={settings.options.average!r} and reduction={settings.options.reduction!r}, "
            "which give one loss per class or per sample. Use average='macro' and reduction='mean'"
        )

    constraints = loss.constraints

    def read(model: nn.Module, part: Sequence[Tensor]) -> Batch:
        input, target, *weight = part
        return read_batch(model(input), target, weight[0] if weight else None, settings)

    sums: dict[int, Tensor] = {}

    def collect(step: int, own: Tensor) -> tuple[Tensor, float]:
        sums[step] = sums[step] + own if step in sums else own
        return own, 1.0

    with torch.no_grad(), _without_side_effects(model):
        for part in parts:
            batch = read(
                model.module if isinstance(model, DistributedDataParallel) else model, part
            )
            batch_loss(batch, settings, collect)
            if constraints is not None:
                constraints.count(batch, settings, collect)
    whole = {step: (own, 1.0) if outer is None else outer(step, own) for step, own in sums.items()}
    trained = settings if constraints is None else constraints.applied(settings, batch)
    for k, part in enumerate(parts, 1):
        with _gradients_exchanged(model, k == len(parts)):
            value = batch_loss(read(model, part), trained, lambda step, own: whole[step])
            backward(value)
    if constraints is not None and loss.training:
        constraints.update(whole[constraints.index][0].flatten())
    return value.detach()


@contextmanager
def _without_side_effects(model: nn.Module) -> Iterator[None]:
    """Restore the random state and the buffers of the model afterwards."""
    device = next((x.device for x in model.parameters()), torch.device("cpu"))
    devices = [] if device.type == "cpu" else [device]
    buffers = [(x, x.clone()) for x in model.buffers()]
    with torch.random.fork_rng(devices, device_type=device.type):
        yield
    for buffer, kept in buffers:
        buffer.copy_(kept)


@contextmanager
def _gradients_exchanged(model: nn.Module, now: bool) -> Iterator[None]:
    """Set whether the ranks average their gradients in this backward pass or in a later one."""
    if isinstance(model, DistributedDataParallel) and not now:
        with model.no_sync():
            yield
    else:
        set_fsdp = getattr(model, "set_requires_gradient_sync", None)
        if set_fsdp is not None:  # tested by the method, because importing the class takes a second
            set_fsdp(now)
        yield
