"""Soft decisions of a batch and their counts, without a graph: the first half of the closed form.

The score depends on the samples only through four counts per class. The gradient therefore needs
nothing else than the derivative of each soft decision. The counts of the blocks of a part are added
in double precision. Cells that are differences of sums are summed directly where that is needed to
keep their digits.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from anyloss._core.backend import Array
from anyloss._core.costs import cost_labels
from anyloss._core.counts import Counts, clamped, differences
from anyloss.steps import Amplified, Step
from anyloss.torch.batch import BACKENDS, Batch, check_logits, check_part
from anyloss.torch.classes import class_cells, class_sums, index_counts
from anyloss.torch.columns import THIRD, column_cells, column_sums
from anyloss.torch.part import Part, blanked, blocks, make_part, with_one_hot_labels

# The share of the samples below which a count that is a difference of sums is summed directly.
IMPRECISE = {dtype: 1e5 * torch.finfo(dtype).eps for dtype in BACKENDS}


class Decided(NamedTuple):
    """The counts of a part, and what its gradient needs.

    Counts are floats for a pooled column, else arrays with the axes `(samples, 1, classes)`; on
    accelerators they are tensors with these axes. `buffer` has the size of the scores: it holds
    what determines the derivatives of the decisions of columns (`columns.column_slope`), or the
    probabilities of classes, and at the end the gradient. It is None if no gradient is wanted.
    `saved` has the decisions of each block where they are needed as well: for soft labels and
    squared decisions of columns, and for classes under another step than the identity.
    """

    part: Part
    counts: Counts
    buffer: Tensor | None
    saved: list[Tensor]
    sample_weight: Tensor | None  # of each sample in the mean over samples


def decide(batch: Batch, step: Step, wanted: bool = True) -> Decided:
    """The counts of a batch under a step and, if wanted, what its gradient needs."""
    part, sample_weight = make_part(batch, step)
    if not (part.identity or type(step) is Amplified):  # comparisons of others may hide a NaN
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
    if part.by_index and (part.squared or not part.softmax or batch.layout.costs is not None):
        part = with_one_hot_labels(part)
    if batch.layout.costs is not None:
        backend = THIRD[part.z.dtype]
        y, weight = cost_labels(part.y, part.weight, batch.layout.costs, backend, part.z)
        part = part._replace(y=y, weight=weight)
    found = _decide(part, wanted)
    if batch.masked and part.z.is_cpu and not all_finite(*found[0]):
        part = blanked(part)
        found = _decide(part, wanted)
    return Decided(part, *found, sample_weight)


def _decide(part: Part, wanted: bool) -> tuple[Counts, Tensor | None, list[Tensor]]:
    """The counts, the buffer and what is saved; see `Decided`."""
    saved = list[Tensor]()
    buffer = torch.empty_like(part.z, memory_format=torch.contiguous_format) if wanted else None
    if not part.z.is_cpu or part.squared:  # which has a difference in `fp` itself
        return _counts(part, buffer, saved), buffer, saved
    counts, is_precise = _sums(part, buffer, saved)
    if not is_precise:
        counts = _precise_counts(part, buffer, saved)
    return counts, buffer, saved


def _sums(part: Part, buffer: Tensor | None, saved: list[Tensor]) -> tuple[Counts, bool]:
    """The counts, some of them as differences of sums, and whether these keep their digits.

    The sums of a block are those of its decisions, or of their errors.
    """
    cells, ways = list[Any](), set[bool]()
    for block, given in blocks(part, buffer):
        out, kept = (torch.empty_like(block.z), []) if given is None else (given, saved)
        if part.softmax:
            sums, errors = class_sums(block, out, kept), False
        else:
            sums, errors = column_sums(block, out, kept)
        found = differences(*sums)
        ways.add(errors)
        if errors:  # those of positive samples are `fn`
            found[:2] = found[1], found[0]
        if not cells:
            cells = found
        elif part.per_sample:
            cells = [np.concatenate(x) for x in zip(cells, found, strict=True)]
        else:
            cells = [x + y for x, y in zip(cells, found, strict=True)]
    share = IMPRECISE[part.z.dtype]
    if part.z.ndim == 1:
        counts = clamped(cells)
        is_precise = min(cells) > share * sum(cells)
    else:
        every = np.maximum(np.array(cells), 0.0)[:, :, None]
        counts = Counts(*every)
        is_precise = bool((every > share * np.add.reduce(every)).all())
    # Where every count is large, none is lost.
    return counts, is_precise or not any(_is_imprecise(counts, x, share) for x in ways)


def _precise_counts(part: Part, buffer: Tensor | None, saved: list[Tensor]) -> Counts:
    """The counts again, none of them as a difference that loses its digits."""
    if part.by_index and buffer is not None:
        counts = index_counts(part, saved or [out for _, out in blocks(part, buffer)])
        if not (counts.tn < IMPRECISE[part.z.dtype] * (counts.fp + counts.tn)).any():
            return counts
    return _counts(part, None, [])


def _counts(part: Part, buffer: Tensor | None, saved: list[Tensor]) -> Counts:
    """The counts, none of them as a difference of sums."""
    count, parts = class_cells if part.softmax else column_cells, []
    classes = 1 if part.z.ndim == 1 else part.z.shape[2]
    for block, given in blocks(part, buffer):
        out, kept = (torch.empty_like(block.z), []) if given is None else (given, saved)
        parts.append(torch.stack(count(block, out, kept)).double().view(4, -1, classes))
    whole = torch.cat(parts, 1)
    if not part.per_sample and len(parts) > 1:
        whole = whole.sum(1, keepdim=True)
    if not part.z.is_cpu:
        return Counts(*whole.unsqueeze(2))
    return Counts(*(whole.flatten().tolist() if part.z.ndim == 1 else whole.unsqueeze(2).numpy()))


def all_finite(*values: Array) -> bool:
    """Whether floats, or arrays of one shape, are finite; a sum shows what is not."""
    if type(values[0]) is float:
        return math.isfinite(sum(values))
    return math.isfinite(np.add.reduce(np.array(values), axis=None))


def _is_imprecise(counts: Counts, errors: bool, share: float) -> bool:
    """Whether a count that is a difference of sums may be mostly rounding error."""
    tp, fn, fp, tn = counts
    if errors:
        tp, fn = fn, tp
    least = share / 100
    lost = (fn + tn < share * (tp + fn + fp + tn)) | (tn < share * (fp + tn))
    lost |= fp + tn < share * (tp + fn)
    # One of `tp` and `fp` is a sum itself; the other one is the predicted positives minus it.
    lost |= ((fn < least * tp) | (tp <= least * fp)) & (tp + fn > 0)
    lost |= (fp < least * tp) & (fp + tn > 0)
    return lost if isinstance(lost, bool) else bool(lost.any())
