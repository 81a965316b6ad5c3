"""The soft decisions of classes, which depend on each other through the softmax.

The softmax is over the third axis of a part. Class indices are counted without one-hot labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from anyloss._core.backend import Array
from anyloss._core.counts import Counts
from anyloss.torch.part import (
    MODERATE,
    Part,
    as_array,
    blocks,
    cells_of,
    scratch,
    sums_of,
    total,
    with_one_hot_labels,
)

# Rows of fewer classes are shorter than a vector register, and PyTorch's own softmax takes four
# times as long for them as its parts.
NARROW = 16


def class_sums(part: Part, out: Tensor, saved: list[Tensor]) -> list[Array]:
    """Predicted positives, true positives, positives and all samples: `(samples, classes)`.

    The probabilities are written to `out`; decisions that differ from them are saved.
    """
    a = _decisions(part, out, saved)
    if not part.by_index:
        return sums_of(part, a)
    tp, positives = _sums_of_labels(part, a.gather(2, part.y), None)
    whole = np.add.reduce(positives, axis=1, keepdims=True) + 0.0 * tp
    predicted = total(a if part.weight is None else a * part.weight, part)
    return [as_array(predicted), tp, positives, whole]


def class_cells(part: Part, out: Tensor, saved: list[Tensor]) -> list[Tensor]:
    """The four counts `(samples, classes)`, each summed directly; see `class_sums`."""
    _decisions(part, out, saved)
    a, b = (part.z, 1 - part.z) if not part.from_logits else _mirrored_softmax(part.z)
    if not part.identity:
        a, b = _mirrored_softmax(a * class_scale(part))
    return cells_of(with_one_hot_labels(part) if part.by_index else part, a, b)


def index_counts(part: Part, decisions: list[Tensor]) -> Counts:
    """The counts for class indices, only `tn` as a difference, from the decisions of each block."""
    parts = []
    for (block,), a in zip(blocks(part), decisions, strict=True):
        others = a.scatter(2, block.y, 0.0)
        rest = others.sum(2, keepdim=True)
        tp, fn, positives = _sums_of_labels(block, a.gather(2, block.y), rest, None)
        fp = as_array(total(others if block.weight is None else others.mul_(block.weight), block))
        whole = np.add.reduce(positives, axis=1, keepdims=True)
        parts.append(np.stack([tp, fn, fp, whole - positives - fp]))
    found = np.concatenate(parts, 1) if part.per_sample else np.add.reduce(parts)
    return Counts(*found[:, :, None])


def class_scale(part: Part) -> float:
    """The factor of the probabilities in the softmax of `Amplified`; see its `multiclass`."""
    scale: float = part.step.scale  # type: ignore[attr-defined]
    return scale / 2 + math.log(max(part.z.shape[2] - 1, 1))


def _decisions(part: Part, out: Tensor, saved: list[Tensor]) -> Tensor:
    p = _softmax(part.z, out) if part.from_logits else out.copy_(part.z)
    if part.identity:
        return p
    a = p * class_scale(part)
    saved.append(_softmax(a, a))
    return a


def _softmax(x: Tensor, out: Tensor) -> Tensor:
    if _is_narrow(x):
        torch.sub(x, x.amax(2, keepdim=True), out=out).exp_()
        return out.div_(out.sum(2, keepdim=True))
    torch.softmax(_classes_last(x), 2, out=_classes_last(out))
    return out


def softmax_back(g: Tensor, p: Tensor, out: Tensor) -> Tensor:
    """The gradient `g` of a softmax `p`, carried back to its argument; `g` is overwritten.

    `out` may be `g` or `p`: PyTorch's own kernel reads a row before it writes to it. An entry near
    one is made the reference of the others first, so that nothing cancels.
    """
    if not p.numel():
        return out
    if not (p.is_cpu and p.amax().item() <= 1 / (1 + math.exp(-MODERATE[p.dtype]))):
        above = torch.gt(p, 0.5, out=torch.empty_like(p))
        g.sub_(above.mul_(g).sum(2, keepdim=True))
    if _is_narrow(p):
        mean = torch.mul(g, p, out=scratch(p)[1]).sum(2, keepdim=True)
        return torch.mul(g.sub_(mean), p, out=out)
    rows, of_rows, to_rows = _classes_last(g), _classes_last(p), _classes_last(out)
    torch._softmax_backward_data(rows, of_rows, 2, p.dtype, grad_input=to_rows)
    return out


def _is_narrow(x: Tensor) -> bool:
    return x.is_cpu and x.shape[3] == 1 and x.shape[2] < NARROW


def _classes_last(x: Tensor) -> Tensor:
    """A view without an empty last axis: PyTorch's softmax is faster along the last one."""
    return x.squeeze(3) if x.shape[3] == 1 else x


def _sums_of_labels(part: Part, *rows: Tensor | None) -> Iterator[Array]:
    """Sums of numbers of each row (None: of its weight) by its label, `(samples, classes)`."""
    n, classes, y, w = len(part.z), part.z.shape[2], part.y, part.weight
    samples = n if part.per_sample else 1
    index = y + classes * torch.arange(n).view(-1, 1, 1, 1) if part.per_sample else y
    at, weight = index.numpy().ravel(), None if w is None else w.expand_as(y).numpy().ravel()
    for x in rows:
        each = weight
        if x is not None:
            each = x.numpy().ravel() if weight is None else x.numpy().ravel() * weight
        found = np.bincount(at, each, samples * classes)  # in double
        yield found.astype(float, copy=False).reshape(samples, classes)


def _mirrored_softmax(x: Tensor) -> tuple[Tensor, Tensor]:
    """The softmax, and one minus it without cancellation: the largest entry is the unit."""
    peak = x.amax(2, keepdim=True)
    e = torch.exp(x - peak)
    top = torch.eq(x, peak, out=torch.empty_like(x))
    # Of several equal entries one is the unit.
    rest = (e - top).sum(2, keepdim=True).add_(top.sum(2, keepdim=True)).sub_(1)
    a = e.div_(rest + 1)
    b = 1 - a
    return a, b.addcmul_(top, rest.div_(rest + 1) - b)
