"""The cross-entropy beside the score, without a graph: its mean, and its part of the gradient."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from anyloss._core.backend import Array
from anyloss.torch.batch import Batch, check_entropy
from anyloss.torch.decide import Decided
from anyloss.torch.part import Part, blanked, blocks, scratch
from anyloss.torch.sync import CROSS_ENTROPY, Pool


class Entropy(NamedTuple):
    """The cross-entropy as it is added to the loss, and its factor in the gradient of a sample."""

    loss: Array
    factor: Array


def has_own_gradient(decided: Decided) -> bool:
    """Whether `closed_entropy` serves: logits, no dense labels of classes, weights as counted."""
    part = decided.part
    return part.from_logits and part.by_index == part.softmax and decided.sample_weight is None


def closed_entropy(batch: Batch, part: Part, share: float, pool: Pool | None) -> Entropy:
    """The mean cross-entropy of all that is in the pool, times its share in the loss."""
    total, whole = _sums(part)
    if batch.masked and part.z.is_cpu and not math.isfinite(total):
        total, whole = _sums(blanked(part))  # a sample of weight 0 may hold anything
    factor = share
    if pool is not None:
        sums = [
            torch.as_tensor(x, dtype=torch.float64, device=part.z.device) for x in (total, whole)
        ]
        own = torch.stack(sums)
        both, ranks = pool(CROSS_ENTROPY, own)
        total, whole = both.tolist() if part.z.is_cpu else both
        factor = share * ranks
    if batch.checked:
        check_entropy(total)
    if isinstance(whole, float):
        return Entropy(share * total / whole, factor / whole) if whole else Entropy(0.0, 0.0)
    none = whole == 0
    each = torch.where(none, 0.0, 1 / torch.where(none, 1.0, whole))
    return Entropy(share * total * each, factor * each)


def _sums(part: Part) -> tuple[Array, Array]:
    """The sum of the cross-entropy and that of the weights: floats, or tensors of a device."""
    found = [_block_sums(block) for (block,) in blocks(part)]
    if not part.z.is_cpu:  # a single block
        return found[0]
    return math.fsum(total.item() for total, _ in found), math.fsum(float(x) for _, x in found)


def _block_sums(part: Part) -> tuple[Tensor, Array]:
    z, y, w = part.z, part.y, part.weight
    if part.softmax:
        rows = torch.logsumexp(z, 2, keepdim=True).sub_(z.gather(2, y))
    else:  # max(z, 0) - y z + log(1 + exp(-|z|)), where nothing cancels
        room = scratch(z)
        rows = torch.clamp_min(z, 0.0, out=room[0]).addcmul_(y, z, value=-1)
        rows.add_(torch.exp(torch.abs(z, out=room[1]).neg_(), out=room[1]).log1p_())
    whole = float(y.numel()) if w is None else w.expand_as(y).sum()
    return _weighted(part, rows).sum(), whole


def add_column_gradient(part: Part, out: Tensor, factor: Array) -> None:
    """Add the gradient of the cross-entropy of columns: `w (p - y)` times the factor."""
    rows = torch.sigmoid(part.z, out=scratch(part.z)[0]).sub_(part.y)
    _add(out, _weighted(part, rows), factor, out=out)


def add_class_gradient(part: Part, g: Tensor, p: Tensor, factor: Array) -> None:
    """Overwrite the probabilities `p` with `g` plus the gradient of the cross-entropy."""
    p.scatter_add_(2, part.y, torch.full_like(part.y, -1, dtype=p.dtype))
    _add(g, _weighted(part, p), factor, out=p)


def _weighted(part: Part, rows: Tensor) -> Tensor:
    return rows if part.weight is None else rows.mul_(part.weight)


def _add(g: Tensor, rows: Tensor, factor: Array, out: Tensor) -> None:
    if isinstance(factor, float):
        torch.add(g, rows, alpha=factor, out=out)
    else:
        torch.add(g, rows.mul_(factor.to(rows.dtype)), out=out)
