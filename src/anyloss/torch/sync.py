"""The exchange of sums between the parts of a batch.

A metric of a batch is not the mean of the metrics of its parts. Each part (that of a rank, a
micro-batch, one of a sequence of small batches) counts its own samples, and a `Pool` returns the
sums over all parts. The metric is computed from these sums. The gradient flows into the part's own
samples only, times a factor of the pool: the number of ranks, because DDP and FSDP divide by it
when they average gradients.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.join import Joinable

Pool = Callable[[int, Tensor], tuple[Tensor, float]]
"""A function of the index of the step and the own sums, detached: the sums of all and a factor."""


CROSS_ENTROPY = -1  # instead of the index of a step: the sums of a mean, which needs no memory


def ranks(sync: bool | None, group: dist.ProcessGroup | None) -> int:
    """The number of ranks that share the batch: 1 if nothing is exchanged.

    With `sync=None` the ranks exchange where gradients are enabled, because all ranks take part in
    training. So a validation without gradients on a single rank waits for no other rank.

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

    A rank that has stopped takes part in DDP's exchanges only, and mistakes an exchange of counts
    for one of them, which would abort the process. Only the modules in a `join()` show that one is
    active.
    """
    for each in gc.get_objects():
        config = getattr(each, "_join_config", None) if Joinable in type(each).__mro__ else None
        if config is not None and config.enable and not config.throw_on_early_termination:
            raise RuntimeError(
                "the ranks exchange the counts of every batch, and under DDP's join() a rank that "
                "has run out of batches would not take part. Give all ranks the same number of "
                "batches and remove join(), write join(throw_on_early_termination=True), or let "
                "each rank count its own samples with sync=False"
            )


def exchange(sums: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The sums over all ranks. All ranks must call this, with sums of the same shape."""
    total = sums.clone()
    dist.all_reduce(total, group=group)
    return total


def over_ranks(sync: bool | None, group: dist.ProcessGroup | None) -> Pool | None:
    """The pool of the samples of all ranks, or None if nothing is exchanged."""
    size = ranks(sync, group)
    return None if size == 1 else lambda step, sums: (exchange(sums, group), size)


def once(pool: Pool) -> Pool:
    """The pool, called once a step: a second derivative gets the result of the first call again."""
    results: dict[int, tuple[Tensor, float]] = {}

    def first_result(step: int, sums: Tensor) -> tuple[Tensor, float]:
        if step not in results:
            results[step] = pool(step, sums)
        return results[step]

    return first_result


def pooled(pool: Pool, step: int, sums: Tensor) -> Tensor:
    """The sums of all parts; their gradient flows into the own samples.

    >>> own = torch.tensor([2.0], requires_grad=True)
    >>> total = pooled(lambda step, sums: (sums + 5, 3.0), 0, own)
    >>> total.sum().backward()
    >>> total.item(), own.grad.item()
    (7.0, 3.0)
    """
    own = sums.detach()
    total, factor = pool(step, own)
    return total + factor * (sums - own)
