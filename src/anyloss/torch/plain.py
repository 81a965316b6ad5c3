"""The loss in plain differentiable operations, for what has no closed form.

These are compilers, `torch.func`, gradients that are differentiated again, labels and weights that
need gradients, and what else `Batch.has_closed_form` lists. The hard score is computed here too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyloss._core.counts import Counts
from anyloss._core.options import Settings
from anyloss._core.scoring import (
    averaged,
    check_finite,
    part_of_mean,
    score_parts,
    whole_loss,
    whole_score,
)
from anyloss.torch.batch import (
    BACKENDS,
    Batch,
    check_entropy,
    count,
    entropy_sums,
    make_samples,
    wide,
)
from anyloss.torch.sync import CROSS_ENTROPY, Pool, pooled


def plain_loss(batch: Batch, k: int, settings: Settings, pool: Pool | None) -> Tensor:
    """The loss under the step of number `k`."""
    counts, parts = _soft_parts(batch, k, settings, pool)
    backend = BACKENDS[batch.scores.dtype]
    loss: Tensor = whole_loss(*parts, batch.layout, backend).to(batch.scores.dtype)
    if batch.checked:
        with torch.no_grad():
            check_finite(counts, [loss, *counts], settings.metric)
    return loss


def plain_score(batch: Batch, k: int, settings: Settings, pool: Pool | None) -> Tensor:
    """The soft score under the step of number `k`."""
    _, parts = _soft_parts(batch, k, settings, pool)
    score: Tensor = whole_score(*parts, batch.layout, False, BACKENDS[batch.scores.dtype])
    return score


def _soft_parts(
    batch: Batch, k: int, settings: Settings, pool: Pool | None
) -> tuple[Counts, tuple[Tensor, Tensor]]:
    backend = BACKENDS[batch.scores.dtype]
    samples = make_samples(batch, backend)
    own = count(samples, settings.steps[k], batch.options, backend)
    return parts_of_counts(own, batch, settings, pool, k, sample_weight=samples.sample_weight)


def parts_of_counts(
    counts: Counts, batch: Batch, settings: Settings, pool: Pool | None, k: int, *,
    hard: bool = False, sample_weight: Tensor | None = None,
) -> tuple[Counts, tuple[Tensor, Tensor]]:  # fmt: skip
    """The counts of all parts of the pool; the sum of their scores, and that of their weights."""
    # Counts may be double, but their derivatives must fit into the type of the scores.
    lay, backend = batch.layout, BACKENDS[counts.tp.dtype if hard else batch.scores.dtype]
    if pool is not None and not lay.per_sample:
        own = torch.stack(tuple(counts))
        counts = Counts(*pooled(pool, k, own.to(wide(own))))
    smooth = 0.0 if hard else settings.smooth
    found = averaged(
        settings.metric, counts, lay, backend, smooth=smooth, hard=hard,
        weighted=batch.weight is not None,
    )  # fmt: skip
    part = part_of_mean(found, counts, lay, backend, sample_weight)
    total, weight = score_parts(found, part, lay, backend)
    if pool is not None and lay.per_sample and lay.reduction != "none":
        total, weight = pooled(pool, k, torch.stack([total, weight]))  # a sample is in one part
    return counts, (total, weight)


def mean_cross_entropy(batch: Batch, pool: Pool | None) -> Tensor:
    """The mean cross-entropy over the weight of all parts of the pool."""
    sums = entropy_sums(batch)
    if pool is not None:
        sums = pooled(pool, CROSS_ENTROPY, sums.to(wide(sums)))
    loss: Tensor = sums[0] / sums[1].detach().clamp_min(BACKENDS[sums.dtype].tiny)
    if batch.checked:
        check_entropy(loss.item())
    return loss.to(batch.scores.dtype)
