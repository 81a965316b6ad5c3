"""Soft decisions of a batch and their counts, without a graph: the first half of the closed form.

The score depends on the samples only through four counts per class. The gradient therefore needs
nothing else than the derivative of each soft decision. Scores are seen as
`(n, before, classes, after)` in the caller's own memory layout. On the CPU they are counted in
blocks that stay in the processor's cache, and the counts of the blocks are added in double
precision.

The derivative `a - a^2` of a decision loses its digits where `a` is close to one. Blocks with such
decisions take a few more operations: sigmoids are computed on their small side `s <= 1/2`, and the
softmax is carried back with its largest entry as the reference of the others (`gradient`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from anyloss._core.backend import Array
from anyloss._core.counts import (
    Counts,
    clamped,
    column_counts,
    counts_of_sums,
    differences,
    pair,
)
from anyloss._core.gradient import column_sides
from anyloss.steps import Amplified, Step
from anyloss.torch.batch import BACKENDS, Batch, check_logits, check_part

BLOCK = 131072  # numbers per thread: a few buffers of this size fit into the cache
SMALL = 32768  # numbers; below, NumPy's calls are cheaper than PyTorch's
# The largest logit up to which `a - a^2` keeps its digits.
MODERATE = {torch.float32: 6.0, torch.float64: 14.0}
# Steps that differ between labels find these in the third axis of a part.
LABELS_THIRD = {
    dtype: backend._replace(class_axis=2, concat=lambda parts: torch.cat(parts, 2))
    for dtype, backend in BACKENDS.items()
}
# The share of the samples below which a count that is a difference of sums is summed directly.
IMPRECISE = {dtype: 1e5 * torch.finfo(dtype).eps for dtype in BACKENDS}


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


class Decided(NamedTuple):
    """The counts of a part, and what its gradient needs.

    Counts are floats for a pooled column, else arrays with the axes `(samples, 1, classes)`; on
    accelerators they are tensors with these axes. `buffer` has the size of the scores: it holds the
    derivatives of the decisions of columns, or the probabilities of classes, and at the end the
    gradient. `saved` has the decisions of each block where they are needed as well: for soft labels
    and squared decisions of columns, and for classes under another step than the identity.
    """

    part: Part
    step: Step
    counts: Counts
    buffer: Tensor | None
    saved: list[Tensor]
    sample_weight: Tensor | None  # of each sample in the mean over samples


def decide(batch: Batch, step: Step, wanted: bool = True) -> Decided:
    """The counts of a batch under a step and, if wanted, what its gradient needs."""
    part, sample_weight = _make_part(batch)
    hides_nan = not (step.is_identity or type(step) is Amplified)  # its comparisons may do so
    if hides_nan:
        part = blanked(part)
        if batch.checked and part.from_logits:
            check_logits(part.z, finite=False)
    if batch.checked and (batch.masked or batch.layout.task == "multiclass"):
        try:
            check_part(batch, part.z, part.y, part.weight)
        except ValueError:  # a sample of weight 0 may hold anything
            part = blanked(part)
            check_part(batch, part.z, part.y, part.weight)
    elif batch.masked and not part.z.is_cpu:
        part = blanked(part)
    if part.by_index and (part.squared or not part.softmax):
        part = _with_one_hot_labels(part)
    found = _decide(part, step, wanted)
    if batch.masked and part.z.is_cpu and not _is_finite(found[0]):
        part = blanked(part)
        found = _decide(part, step, wanted)
    return Decided(part, step, *found, sample_weight)


def _make_part(batch: Batch) -> tuple[Part, Tensor | None]:
    """The batch as it is counted, and the weights of its samples in the mean over samples."""
    lay, shape, options = batch.layout, batch.scores.shape, batch.options
    if lay.task == "binary":
        view = (shape[0], 1, 1, math.prod(shape[1:])) if lay.per_sample else (batch.scores.numel(),)
    else:
        before, after = shape[1 : lay.class_axis], shape[lay.class_axis + 1 :]
        view = (shape[0], math.prod(before), lay.classes, math.prod(after))
    labels = (*view[:2], 1, *view[3:]) if lay.index_target else view
    z, y = batch.scores.detach(), batch.target
    z = z if z.shape == view else z.reshape(view)
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
        options.from_logits, options.soft_labels, options.squared,
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


def _with_one_hot_labels(part: Part) -> Part:
    return part._replace(y=torch.zeros_like(part.z).scatter_(2, part.y, 1.0), by_index=False)


def blocks(part: Part) -> Iterator[tuple[slice, Part]]:
    """Blocks along the first axis that fit into the cache; the whole part on accelerators."""
    n, numbers, w = part.z.shape[0], part.z.numel(), part.weight
    size = max(1, BLOCK * torch.get_num_threads() * n // max(1, numbers))
    if not part.z.is_cpu or size >= n:
        yield slice(None), part
        return
    for start in range(0, n, size):
        at = slice(start, start + size)
        yield at, part._replace(z=part.z[at], y=part.y[at], weight=None if w is None else w[at])


def _decide(part: Part, step: Step, wanted: bool) -> tuple[Counts, Tensor | None, list[Tensor]]:
    """The counts, the buffer and what is saved; see `Decided`."""
    cpu, saved = part.z.is_cpu, list[Tensor]()
    if is_small(part) and _has_short_form(part, step):
        return *_small_columns(part, step), saved
    buffer = torch.empty_like(part.z, memory_format=torch.contiguous_format) if wanted else None
    if not cpu or part.squared:  # which has a difference in `fp` itself
        return _counts(part, step, buffer, saved), buffer, saved
    cells, by_errors = _add(part, step, buffer, saved)
    counts = clamped(Counts(*cells))
    found = [_mirrored(counts) if errors else counts for errors in by_errors]
    share = IMPRECISE[part.z.dtype]
    if any(_is_imprecise(x, share) for x in found):
        decided = saved or ([] if buffer is None else [buffer[at] for at, _ in blocks(part)])
        if part.by_index and decided:
            counts = _index_counts(part, decided)
        if not (part.by_index and decided) or (counts.tn < share * (counts.fp + counts.tn)).any():
            counts = _counts(part, step, None, [])
    return counts, buffer, saved


def _add(
    part: Part, step: Step, buffer: Tensor | None, saved: list[Tensor]
) -> tuple[list[Array], set[bool]]:
    """The cells `tp`, `fn`, `fp` and `tn`, some of them as differences of sums.

    The sums of a block are those of its decisions, or of their errors `|y - a|`; which ones
    occurred is the second result.
    """
    total, by_errors = list[Any](), set[bool]()
    for at, block in blocks(part):
        out = None if buffer is None else buffer[at]
        if part.softmax:
            a = _class_decisions(block, step, out, saved)
            sums, errors = (_index_sums if part.by_index else _sums)(block, a), False
        else:
            sums, errors = _column_sums(block, step, out, saved)
        tp, fn, fp, tn = differences(*sums)
        cells = [fn, tp, fp, tn] if errors else [tp, fn, fp, tn]
        by_errors.add(errors)
        if not total:
            total = cells
        elif part.per_sample:
            total = [np.concatenate(x) for x in zip(total, cells, strict=True)]
        else:
            total = [x + y for x, y in zip(total, cells, strict=True)]
    return total if part.z.ndim == 1 else [x[:, None] for x in total], by_errors


def _counts(part: Part, step: Step, buffer: Tensor | None, saved: list[Tensor]) -> Counts:
    """The counts, none of them as a difference of sums."""
    parts = []
    for at, block in blocks(part):
        out = None if buffer is None else buffer[at]
        if part.softmax:
            if out is not None:
                _class_decisions(block, step, out, saved)
            cells = _class_cells(block, step)
        else:
            cells = _column_cells(block, *_column_decisions(block, step, out, saved, mirrored=True))
        parts.append(torch.stack([x.double() for x in cells]))
    total = torch.cat(parts, 1)
    if not part.per_sample and len(parts) > 1:
        total = total.sum(1, keepdim=True)
    if not part.z.is_cpu:
        return Counts(*total.unsqueeze(2))
    return Counts(*(total.flatten().tolist() if part.z.ndim == 1 else total.unsqueeze(2).numpy()))


def _is_finite(counts: Counts) -> bool:
    return math.isfinite(sum(float(np.add.reduce(x, axis=None)) for x in counts))


def _is_imprecise(counts: Counts, share: float) -> bool:
    """Whether a count that is a difference of sums may be mostly rounding error."""
    tp, fn, fp, tn = counts
    least = share / 100
    lost = (fn + tn < share * (tp + fn + fp + tn)) | (tn < share * (fp + tn))
    lost |= fp + tn < share * (tp + fn)
    # One of `tp` and `fp` is a sum itself; the other one is the predicted positives minus it.
    lost |= ((fn < least * tp) | (tp <= least * fp)) & (tp + fn > 0)
    lost |= (fp < least * tp) & (fp + tn > 0)
    return lost if isinstance(lost, bool) else bool(lost.any())


def _has_short_form(part: Part, step: Step) -> bool:
    """Whether the decisions are those of `Uniform()` or `Amplified`, of logits."""
    return part.from_logits and (step.is_identity or type(step) is Amplified)


def is_small(part: Part) -> bool:
    """Whether NumPy takes columns of hard labels, because it has less overhead per call."""
    small = part.z.is_cpu and part.z.numel() <= SMALL
    return small and not (part.softmax or part.soft_labels or part.squared)


def _small_columns(part: Part, step: Step) -> tuple[Counts, Tensor]:
    """The counts of small columns and the derivatives of their decisions, by NumPy."""
    y, w = part.y.numpy(), None if part.weight is None else part.weight.numpy()
    small, above, derivative, factor = column_sides(part.z.numpy(), step)  # type: ignore[arg-type]
    counts, share = _small_counts(part, np.abs(above - small), y, w), IMPRECISE[part.z.dtype]
    if _is_imprecise(counts, share):
        flat, lost = y.ravel(), True
        if flat @ flat == np.add.reduce(flat):  # the errors of hard labels keep more digits
            found = _small_counts(part, np.abs(np.abs(above - y) - small), y, w)
            counts, lost = _mirrored(found), _is_imprecise(found, share)
        if lost:
            counts = _counts(part, step, None, [])
    if factor != 1.0:
        derivative *= derivative.dtype.type(factor)
    if w is not None:
        derivative *= w
    return counts, torch.from_numpy(derivative)


def _small_counts(part: Part, a: Array, y: Array, w: Array | None) -> Counts:
    if part.z.ndim == 1:
        return column_counts(a, y, w)
    axes, shape = (1, 3) if part.per_sample else (0, 1, 3), (-1, 1, a.shape[2])
    each = [a, a * y, y] if w is None else [a * w, a * y * w, y * w, np.broadcast_to(w, a.shape)]
    sums = [np.add.reduce(x, axis=axes, dtype=float).reshape(shape) for x in each]
    if w is None:
        sums.append(np.full_like(sums[0], a.size / max(1, sums[0].size)))
    return counts_of_sums(*sums)


def _mirrored(counts: Counts) -> Counts:
    """The counts, if those of the errors `|y - a|` were given: of positives they are `fn`."""
    return Counts(tp=counts.fn, fn=counts.tp, fp=counts.fp, tn=counts.tn)


class _Kept(threading.local):
    memory = torch.empty(0)
    rooms = torch.empty(0)  # the same memory in the shape that was asked for last


_kept = _Kept()


def scratch(like: Tensor) -> Tensor:
    """Room for three blocks, kept from call to call: new memory pages cost more than the work."""
    if not like.is_cpu:
        return like.new_empty((3, *like.shape))
    size = 3 * like.numel()
    if _kept.rooms.shape[1:] != like.shape or _kept.rooms.dtype != like.dtype:
        if _kept.memory.dtype != like.dtype or _kept.memory.numel() < size:
            with torch.inference_mode(False):  # what is kept must serve training as well
                _kept.memory = torch.empty(size, dtype=like.dtype)
        _kept.rooms = _kept.memory[:size].view(3, *like.shape)
    return _kept.rooms


@lru_cache(maxsize=64)
def _zero(dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.zeros((), dtype=dtype, device=device)


# Columns: each number is a decision of its own.


def _column_sums(
    part: Part, step: Step, out: Tensor | None, saved: list[Tensor]
) -> tuple[list[Array], bool]:
    """The sums of a block, and whether they are those of the errors.

    Confident decisions are close to the labels, so that their errors keep more digits.
    """
    hard = _has_short_form(part, step) and not (part.soft_labels or _is_simple(part.z, step))
    if hard:
        flat = part.y.reshape(-1)
        hard = torch.dot(flat, flat).item() == flat.sum().item()  # no label is between 0 and 1
    if not hard:
        return _sums(part, _column_decisions(part, step, out, saved)[0]), False
    small, above = _sides(part.z, step, out)
    if out is not None and part.weight is not None:
        out.mul_(part.weight)
    errors = torch.sub(above, part.y, out=scratch(part.z)[2]).abs_().sub_(small).abs_()
    return _sums(part, errors), True


def _column_decisions(
    part: Part, step: Step, out: Tensor | None, saved: list[Tensor], mirrored: bool = False
) -> tuple[Tensor, Tensor]:
    """The soft decisions and, if `mirrored`, their mirrors; derivatives are written to `out`."""
    if _has_short_form(part, step):
        a, b = _short_form(part.z, step, out, mirrored)
    else:
        a, b = _any_step(part, step, out)
    if out is not None and part.weight is not None:
        out.mul_(part.weight)
    if out is not None and (part.soft_labels or part.squared):
        saved.append(a.clone())
    return a, b


def _short_form(z: Tensor, step: Step, out: Tensor | None, mirrored: bool) -> tuple[Tensor, Tensor]:
    """The decisions of `Uniform()` and `Amplified` in few operations."""
    if not mirrored and _is_simple(z, step):
        a = torch.sigmoid(z, out=scratch(z)[0])
        if out is not None:
            torch.addcmul(a, a, a, value=-1, out=out)
        return a, a
    small, above = _sides(z, step, out)
    a = torch.sub(above, small, out=scratch(z)[2]).abs_()
    return a, above.neg_().add_(1).sub_(small).abs_() if mirrored else a


def _sides(z: Tensor, step: Step, out: Tensor | None) -> tuple[Tensor, Tensor]:
    """The smaller of each decision and its mirror, and 1 where the decision is the larger one."""
    room, zero = scratch(z), _zero(z.dtype, z.device)
    small = torch.abs(z, out=room[0]).neg_().sigmoid_()
    if step.is_identity:
        if out is not None:
            torch.addcmul(small, small, small, value=-1, out=out)
        above = torch.gt(z, zero, out=room[1])
    else:
        scale, threshold = step.scale, step.threshold  # type: ignore[attr-defined]
        sign = z
        if threshold == 0.5:  # the decision changes its side where the logit does
            second = torch.sub(small, 0.5, out=room[1]).mul_(scale).sigmoid_()
        else:
            sign = torch.sigmoid(z).sub_(threshold)
            second = torch.abs(sign, out=room[1]).mul_(-scale).sigmoid_()
        if out is not None:
            torch.addcmul(second, second, second, value=-1, out=out)
            out.mul_(small.addcmul_(small, small, value=-1)).mul_(scale)
        above, small = torch.gt(sign, zero, out=room[0]), second
    return small, above


def _is_simple(z: Tensor, step: Step) -> bool:
    """Whether the decision is the sigmoid itself, and none is close to one."""
    return step.is_identity and z.is_cpu and z.numel() > 0 and z.amax().item() <= MODERATE[z.dtype]


def _any_step(part: Part, step: Step, out: Tensor | None) -> tuple[Tensor, Tensor]:
    """The decisions of any step, from its `both` and `density`."""
    backend = LABELS_THIRD[part.z.dtype]
    p, q = pair(part.z, step, "multilabel", part.from_logits, backend)
    if out is not None:
        derivative = step.density(p, q, backend)
        if part.from_logits and not step.on_logit:
            derivative = derivative * p * q
        elif step.on_logit and not part.from_logits:  # the derivative of the logit
            inside = [torch.where(x < backend.tiny, torch.inf, x) for x in (part.z, 1 - part.z)]
            derivative = derivative / inside[0] + derivative / inside[1]
        out.copy_(derivative)
    a, b = step.both(p, q, backend)
    return a, b


def _sums(part: Part, a: Tensor) -> list[Array]:
    """Predicted positives, true positives, positives and all samples: `(samples, classes)`."""
    y, w = part.y, part.weight
    if w is not None:
        a, y = a * w, y * w
    both = torch.minimum(a, y) if part.soft_labels else torch.mul(a, part.y, out=scratch(part.z)[1])
    found = [_sum(x, part) for x in (a, both, y)]
    found.append(torch.full_like(found[0], part.z.numel() / max(1, found[0].numel()))
                 if w is None else _sum(w.expand_as(part.z), part))  # fmt: skip
    return [x.item() if part.z.ndim == 1 else _as_array(x) for x in found]


def _column_cells(part: Part, a: Tensor, b: Tensor) -> list[Tensor]:
    """The four counts `(samples, classes)`, each summed directly."""
    return [_sum(x, part) for x in _cells(part, a, b, part.y)]


def _cells(part: Part, a: Tensor, b: Tensor, y: Tensor) -> Iterator[Tensor]:
    """The part of each decision in `tp`, `fn`, `fp` and `tn`."""
    w = part.weight
    if part.soft_labels:
        both = torch.minimum(a, y)
        cells = both, y - both, a - both, torch.minimum(b, 1 - y)
    elif part.squared:
        both, n = a * b * y, 1 - y
        cells = a * y, b * y, n * a * a - both, n * b * (1 + a) + both
    else:
        cells = a * y, b * y, a * (1 - y), b * (1 - y)
    return iter(cells) if w is None else (x.mul_(w) for x in cells)


def _as_array(x: Tensor) -> Array:
    return x.double().numpy()


def _sum(x: Tensor, part: Part) -> Tensor:
    """The sum over the samples: `(samples, classes)`."""
    if x.ndim == 1:
        return x.sum().view(1, 1)
    if x.shape[2] == 1:
        return x.sum((1, 3)) if part.per_sample else x.sum().view(1, 1)
    return x.sum((1, 3) if part.per_sample else (0, 1, 3)).view(-1, x.shape[2])


# Classes: the decisions of a row depend on each other through the softmax over the third axis.


def class_scale(step: Step, classes: int) -> float:
    """The factor of the probabilities in the softmax of `Amplified`; see its `multiclass`."""
    return step.scale / 2 + math.log(max(classes - 1, 1))  # type: ignore[attr-defined, no-any-return]


def _class_decisions(part: Part, step: Step, out: Tensor | None, saved: list[Tensor]) -> Tensor:
    """The soft decisions. The probabilities are written to `out`, and other decisions saved."""
    p = part.z
    if part.from_logits:
        p = _softmax(p, torch.empty_like(p) if out is None else out)
    elif out is not None:
        p = out.copy_(p)
    if step.is_identity:
        return p
    a = p * class_scale(step, p.shape[2])
    a = _softmax(a, a)
    if out is not None:
        saved.append(a)
    return a


def _softmax(x: Tensor, out: Tensor) -> Tensor:
    torch.softmax(classes_last(x), 2, out=classes_last(out))
    return out


def classes_last(x: Tensor) -> Tensor:
    """A view without an empty last axis: PyTorch's softmax is faster along the last one."""
    return x.squeeze(3) if x.shape[3] == 1 else x


def _index_sums(part: Part, a: Tensor) -> list[Array]:
    """The same as `_sums` for class indices, without one-hot labels."""
    tp, positives = _sums_of_labels(part, a.gather(2, part.y), None)
    total = np.add.reduce(positives, axis=1, keepdims=True) + 0.0 * tp
    return [
        _as_array(_sum(a if part.weight is None else a * part.weight, part)),
        tp,
        positives,
        total,
    ]


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


def _index_counts(part: Part, decisions: list[Tensor]) -> Counts:
    """The counts for class indices, only `tn` as a difference, from the decisions of each block."""
    parts = []
    for (_, block), a in zip(blocks(part), decisions, strict=True):
        others = a.scatter(2, block.y, 0.0)
        rest = others.sum(2, keepdim=True)
        tp, fn, positives = _sums_of_labels(block, a.gather(2, block.y), rest, None)
        fp = _as_array(_sum(others if block.weight is None else others.mul_(block.weight), block))
        total = np.add.reduce(positives, axis=1, keepdims=True)
        parts.append(np.stack([tp, fn, fp, total - positives - fp]))
    found = np.concatenate(parts, 1) if part.per_sample else np.add.reduce(parts)
    return Counts(*found[:, :, None])


def _class_cells(part: Part, step: Step) -> list[Tensor]:
    """The four counts `(samples, classes)`, each summed directly."""
    a, b = (part.z, 1 - part.z) if not part.from_logits else _mirrored_softmax(part.z)
    if not step.is_identity:
        a, b = _mirrored_softmax(a * class_scale(step, a.shape[2]))
    y = _with_one_hot_labels(part).y if part.by_index else part.y
    return [_sum(x, part) for x in _cells(part, a, b, y)]


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
