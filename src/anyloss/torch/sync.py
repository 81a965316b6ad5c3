"""Parts of a batch, pooled: what a metric needs of a batch adds up, so parts exchange sums.

A metric of a batch is not the mean of the metrics of its parts. Whoever holds a part (a rank, a
micro-batch, one of a run of small batches) counts its own rows, and a `Pool` tells it the sums of
all. The metric is that of the sums, and the gradient flows into the own rows only, times the
pool's factor: the number of ranks, because DDP and FSDP divide by it when they average.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.join import Joinable

Pool = Callable[[int, Tensor], tuple[Tensor, float]]
"""The number of the step and the own sums, detached, to the sums of all and a factor."""


CROSS_ENTROPY = -1  # in place of a step's number: the sums of a mean, which needs no memory


def ranks(sync: bool | None, group: dist.ProcessGroup | None) -> int:
    """How many ranks share the batch: 1 if nothing is to be exchanged.

    With `sync=None` the ranks exchange where gradients are enabled, which is where all of them
    are: a validation on one rank alone, without gradients, waits for nobody.

    >>> ranks(None, None)
    1
    """
    if sync not in (None, True, False):
        raise TypeError(f"sync must be True, False or None; got {sync!r}")
    if sync is None:
        sync = torch.is_grad_enabled()
    if not (sync and dist.is_available() and dist.is_initialized()):
        return 1
    size = dist.get_world_size(group)
    if size < 1:
        raise ValueError("group= must be a process group that this rank is a member of")
    return size


def refuse_join() -> None:
    """Refuse DDP's `join()`, under which ranks stop at different steps.

    A rank that has stopped answers the exchanges that it knows of, DDP's, and takes ours for one of
    them: the process would be aborted. Nothing says that a `join()` is on but the modules in it.
    """
    for each in gc.get_objects():
        config = getattr(each, "_join_config", None) if Joinable in type(each).__mro__ else None
        if config is not None and config.enable and not config.throw_on_early_termination:
            raise RuntimeError(
                "the ranks exchange the counts of every batch, and under DDP's join() a rank that "
                "has run out of batches would not take part. Give all ranks the same number of "
                "batches and leave join() out, write join(throw_on_early_termination=True), or let "
                "each rank count its own rows with sync=False"
            )


def exchange(sums: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The sums over all ranks. All ranks must come here, with sums of one shape."""
    total = sums.clone()
    dist.all_reduce(total, group=group)
    return total


def over_ranks(sync: bool | None, group: dist.ProcessGroup | None) -> Pool | None:
    """The pool of the rows of all ranks, or None if nothing is to be exchanged."""
    size = ranks(sync, group)
    return None if size == 1 else lambda step, sums: (exchange(sums, group), size)


def once(pool: Pool) -> Pool:
    """The pool, asked once: whoever differentiates twice is given the same answer again."""
    answers: list[tuple[Tensor, float]] = []

    def ask(step: int, sums: Tensor) -> tuple[Tensor, float]:
        if not answers:
            answers.append(pool(step, sums))
        return answers[0]

    return ask


def pooled(pool: Pool, step: int, sums: Tensor) -> Tensor:
    """The sums of all, through which the gradient reaches the own rows.

    >>> own = torch.tensor([2.0], requires_grad=True)
    >>> total = pooled(lambda step, sums: (sums + 5, 3.0), 0, own)
    >>> total.sum().backward()
    >>> total.item(), own.grad.item()
    (7.0, 3.0)
    """
    own = sums.detach()
    total, factor = pool(step, own)
    return total + factor * (sums - own)
