"""A batch as the closed form counts it: its axes, its blocks and the memory that they share.

Scores are seen as `(n, before, classes, after)` in the caller's own memory layout, or as a single
axis for a pooled column. On the CPU they are counted in blocks that stay in the processor's cache.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyloss._core.backend import Array
from anyloss.steps import Amplified, Step
from anyloss.torch.batch import Batch

BLOCK = 131072  # numbers per thread: a few buffers of this size fit into the cache
# The largest logit up to which `a - a^2` keeps its digits.
MODERATE = {torch.float32: 6.0, torch.float64: 14.0}


class Part(NamedTuple):
    """A batch, or a block of it, as it is counted.

    The axes are `(n, before, classes, after)`, or a single one for a pooled column. Labels have the
    same axes; class indices have one class. Weights may have axes of length 1.
    """

    z: Tensor
    y: Tensor
    weight: Tensor | None
    softmax: bool  # the decisions of the classes depend on each other
    by_index: bool  # the labels are class indices
    per_sample: bool
    from_logits: bool
    soft_labels: bool
    squared: bool
    step: Step
    identity: bool  # the step is the identity
    short: bool  # the step is `Uniform()` or `Amplified`, of logits


def make_part(batch: Batch, step: Step) -> tuple[Part, Tensor | None]:
    """The batch as it is counted, and the weights of its samples in the mean over samples."""
    lay, shape, options, identity = (
        batch.layout,
        batch.scores.shape,
        batch.options,
        step.is_identity,
    )
    if lay.task == "binary":
        view = (shape[0], 1, 1, math.prod(shape[1:])) if lay.per_sample else (shape.numel(),)
    else:
        before, after = shape[1 : lay.class_axis], shape[lay.class_axis + 1 :]
        view = (shape[0], math.prod(before), lay.classes, math.prod(after))
    labels = (*view[:2], 1, *view[3:]) if lay.index_target else view
    z, y = batch.scores.detach(), batch.target
    z = z if shape == view else z.reshape(view)
    y = y if y.shape == labels else y.reshape(labels)
    w, sample_weight = None, None
    if batch.weight is not None:
        w = batch.weight.detach().to(z.dtype)
        if lay.per_sample and w.shape == shape[:1]:
            w, sample_weight = torch.gt(w, 0.0, out=torch.empty_like(w)), w.reshape(-1, 1, 1)
        w = _weights(w, y)
    if options.ignore_index is not None:
        keep = torch.ne(y, options.ignore_index, out=torch.empty_like(y, dtype=z.dtype))
        w, y = keep if w is None else w * keep, y * keep.to(y.dtype)
    part = Part(
        z, y, w, lay.task != "binary" and lay.has_softmax, lay.index_target, bool(lay.per_sample),
        options.from_logits, options.soft_labels, options.squared, step, identity,
        options.from_logits and (identity or type(step) is Amplified),
    )  # fmt: skip
    return part, sample_weight


def _weights(w: Tensor, y: Tensor) -> Tensor:
    """Weights with the axes of the labels, or with axes of length 1."""
    if w.numel() == y.numel():
        return w.reshape(y.shape)
    if y.ndim == 1:
        return w.reshape(-1, 1).expand(-1, y.numel() // len(w)).reshape(-1)
    return w.reshape(-1, 1, 1, 1)


def blanked(part: Part) -> Part:
    """The part with zeros as scores and labels of the samples of weight 0."""
    if part.weight is None:
        return part
    gone = part.weight == 0
    if part.softmax:  # a single class cannot be blanked: it would change the others
        gone = gone.all(2, keepdim=True)
    return part._replace(z=part.z.masked_fill(gone, 0.0), y=part.y.masked_fill(gone, 0))


def with_one_hot_labels(part: Part) -> Part:
    """The part with labels that have all classes, instead of class indices."""
    return part._replace(y=torch.zeros_like(part.z).scatter_(2, part.y, 1.0), by_index=False)


def blocks(part: Part, *others: Array) -> Iterable[Any]:
    """Blocks along the first axis that fit into the cache; the whole part on accelerators.

    Each comes with the same rows of other tensors. Others stay as they are.
    """
    if part.z.numel() <= BLOCK or not part.z.is_cpu:
        return [(part, *others)]
    return _split(part, others)


def _split(part: Part, others: tuple[Array, ...]) -> Iterator[Any]:
    n, w = len(part.z), part.weight
    size = max(1, BLOCK * torch.get_num_threads() * n // part.z.numel())
    for start in range(0, n, size):
        at = slice(start, start + size)
        block = part._replace(z=part.z[at], y=part.y[at], weight=None if w is None else w[at])
        yield (
            block,
            *(x[at] if isinstance(x, Tensor) and x.shape[:1] == (n,) else x for x in others),
        )


class _Kept(threading.local):
    memory = torch.empty(0)
    rooms = (torch.empty(0),) * 2  # the same memory in the shape that was asked for last


_kept = _Kept()


def scratch(like: Tensor) -> tuple[Tensor, Tensor]:
    """Room for two blocks, kept from call to call: new memory pages cost more than the work."""
    if not like.is_cpu:
        return torch.empty_like(like), torch.empty_like(like)
    rooms = _kept.rooms
    if rooms[0].shape != like.shape or rooms[0].dtype != like.dtype:
        size = like.numel()
        if _kept.memory.dtype != like.dtype or _kept.memory.numel() < 2 * size:
            with torch.inference_mode(False):  # what is kept must serve training as well
                _kept.memory = torch.empty(2 * size, dtype=like.dtype)
        first, second = _kept.memory[:size], _kept.memory[size : 2 * size]
        rooms = _kept.rooms = first.view(like.shape), second.view(like.shape)
    return rooms


def is_moderate(z: Tensor) -> bool:
    """Whether no sigmoid of the logits is so close to one that its derivative loses digits."""
    return z.numel() > 0 and z.amax().item() <= MODERATE[z.dtype]


def sums_of(part: Part, a: Tensor) -> list[Array]:
    """Predicted positives, true positives, positives and all samples, of dense labels.

    They are floats for a pooled column, else arrays `(samples, classes)`.
    """
    y, w, room = part.y, part.weight, scratch(a)[1]
    both = (torch.minimum if part.soft_labels else torch.mul)(a, y, out=room)
    if w is None:
        found = [total(a, part), total(both, part), total(y, part)]
    else:
        tp, predicted = total(both.mul_(w), part), total(torch.mul(a, w, out=room), part)
        positives = total(torch.mul(y, w, out=room), part)
        found = [predicted, tp, positives, total(w.expand_as(a), part)]
    sums = [x.item() for x in found] if a.ndim == 1 else as_array(torch.stack(found))
    return [*sums] if w is not None else [*sums, a.numel() / max(1, found[0].numel())]


def cells_of(part: Part, a: Tensor, b: Tensor) -> list[Tensor]:
    """The four counts `(samples, classes)`, each summed directly, of dense labels.

    They come from the decisions and their mirrors.
    """
    y, w = part.y, part.weight
    if part.soft_labels:
        both = torch.minimum(a, y)
        cells = both, y - both, a - both, torch.minimum(b, 1 - y)
    elif part.squared:
        both, n = a * b * y, 1 - y
        cells = a * y, b * y, n * a * a - both, n * b * (1 + a) + both
    else:
        cells = a * y, b * y, a * (1 - y), b * (1 - y)
    return [total(x if w is None else x.mul_(w), part) for x in cells]


def total(x: Tensor, part: Part) -> Tensor:
    """The sum over the samples: `(samples, classes)`, or one number for a pooled column."""
    if x.ndim == 1:
        return x.sum()
    if x.shape[2] == 1:
        return x.sum((1, 3)) if part.per_sample else x.sum().view(1, 1)
    return x.sum((1, 3) if part.per_sample else (0, 1, 3)).view(-1, x.shape[2])


def as_array(x: Tensor) -> Array:
    """A tensor as an array in double precision."""
    return x.double().numpy()
