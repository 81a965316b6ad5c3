"""Soft counts that carry gradients, for a loss that is written by hand."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from anyloss._core.choices import Activation, PerSample, Task
from anyloss._core.counts import Counts, shaped_counts
from anyloss._core.documents import documented
from anyloss._core.options import make_settings
from anyloss.steps import Step
from anyloss.torch.batch import BACKENDS, count, make_samples, read_batch, wide
from anyloss.torch.sync import over_ranks, pooled


@documented
def soft_counts(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *,
    step: Step | None = None, threshold: float | Sequence[float] | None = None,
    from_logits: bool = True, activation: Activation = "auto", squared: bool = False,
    task: Task = "auto", class_axis: int | None = None, per_sample: PerSample = False,
    soft_labels: bool = False, ignore_index: int | None = None, validate: bool = True,
    sync: bool | None = None, group: dist.ProcessGroup | None = None,
) -> Counts:  # fmt: skip
    """The soft counts of a batch, with gradients, for metrics and losses of one's own.

    With the soft decisions `a = step(p)`, labels `y` and weights `w` they are `tp = sum(w y a)`,
    `fn = sum(w y (1 - a))`, `fp = sum(w (1 - y) a)` and `tn = sum(w (1 - y) (1 - a))`. Where a
    process group is initialised they are the counts of all ranks, except with `per_sample=True`:
    the gradient of a loss of these counts, averaged over the ranks as
    `DistributedDataParallel` does it, is that of the undivided batch.

    Args:
        input (Tensor): the scores: logits, or probabilities with `from_logits=False`.
        target (Tensor): the labels.

    Shape:
        - input, target, weight: as in `AnyLoss`.
        - Counts: scalars for a binary task, else `(C,)`; with `per_sample=True` `(n,)` or `(n, C)`.

    Returns:
        Counts: the four counts, as tensors of the type of the scores.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if an option has an invalid value, the shapes do not match or have two readings,
            or the values are out of range (with `validate=True`).

    Examples:
        >>> logits = torch.tensor([2.0, -1.0, 0.5, -2.0], requires_grad=True)
        >>> tp, fn, fp, tn = soft_counts(logits, torch.tensor([1, 0, 1, 0]))
        >>> loss = 1 - (tp + 1) / (tp + 0.7 * fn + 0.3 * fp + 1)
        >>> loss.backward()
        >>> round(loss.item(), 4)
        0.1564
    """
    settings = make_settings(
        step=step, threshold=threshold, from_logits=from_logits, activation=activation,
        squared=squared, task=task, class_axis=class_axis, per_sample=per_sample,
        soft_labels=soft_labels, ignore_index=ignore_index, validate=validate,
    )  # fmt: skip
    batch = read_batch(input, target, weight, settings)
    backend = BACKENDS[batch.scores.dtype]
    found = count(make_samples(batch, backend), settings.steps[0], batch.options, backend)
    pool = None if batch.layout.per_sample else over_ranks(sync, group)
    if pool is not None:
        own = torch.stack(tuple(found))
        found = Counts(*pooled(pool, 0, own.to(wide(own))))
    return shaped_counts(Counts(*(x.to(batch.scores.dtype) for x in found)), batch.layout)
