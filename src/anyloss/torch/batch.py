"""A batch of PyTorch tensors: checked, in one floating-point type, with its layout."""

from __future__ import annotations

import math
from functools import lru_cache, reduce
from operator import add
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from anyloss._core.backend import Array, Backend
from anyloss._core.choices import Options
from anyloss._core.counts import Counts, cross_entropy_sums
from anyloss._core.counts import count as count_samples
from anyloss._core.metric import Metric
from anyloss._core.options import Settings
from anyloss._core.shapes import Layout, Samples, arrange, check_weight, distributions, layout
from anyloss.steps import Amplified, Step


def _backend(dtype: torch.dtype) -> Backend:
    return Backend(
        sigmoid=torch.sigmoid,
        exp=torch.exp,
        log=torch.log,
        sin=torch.sin,
        where=torch.where,
        argmax=lambda x: x.argmax(-1, keepdim=True),
        one_hot=lambda index, classes: index == torch.arange(classes, device=index.device),
        sum=lambda x, axis: x.sum(axis, keepdim=True),
        concat=lambda parts: torch.cat(parts, -1),
        array=lambda numbers, like: torch.tensor(numbers, dtype=like.dtype).to(
            like.device, non_blocking=True
        ),
        constant=torch.Tensor.detach,
        product=_product,
        tiny=torch.finfo(dtype).tiny,
    )


def _product(x: Tensor, matrix: Tensor) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):  # in the precision of the counts
        return x.to(matrix.dtype) @ matrix


def wide(x: Tensor) -> torch.dtype:
    """The type of counts: double, except on Apple's accelerator, which has no double."""
    return x.dtype if x.device.type == "mps" else torch.float64


def _exact_sum(x: Tensor, axis: int) -> Tensor:
    # Hard decisions are whole numbers, and float32 loses whole samples above 16 million.
    return x.sum(axis, keepdim=True, dtype=wide(x))


BACKENDS = {dtype: _backend(dtype) for dtype in (torch.float32, torch.float64)}
HARD_BACKENDS = {dtype: backend._replace(sum=_exact_sum) for dtype, backend in BACKENDS.items()}

_cached_layout = lru_cache(maxsize=256)(layout)


class Batch(NamedTuple):
    """A batch in its original shapes, and the layout of these."""

    scores: Tensor  # float32 or float64
    target: Tensor  # of the same type, or class indices
    weight: Tensor | None
    layout: Layout
    options: Options
    eager: bool  # Python sees plain tensors
    checked: bool  # values are checked: eager, on the CPU, and validate=True
    masked: bool  # samples may be left out, so that values can be checked only after that

    def has_closed_form(self, step: Step) -> bool:
        """Whether the gradient is computed in closed form, without a graph.

        Compilers, `torch.func`, labels or weights that need gradients, one score per class through
        a softmax, steps other than `Uniform()` and `Amplified` for several classes or with another
        activation than that of the task, and devices without double precision take the plain path
        instead.
        """
        lay, w = self.layout, self.weight
        plain = self.target.requires_grad or (w is not None and w.requires_grad)
        if plain or not self.eager or (not self.scores.is_cpu and self.scores.is_mps):
            return False
        if lay.average is None and (lay.task == "binary" or lay.has_softmax):
            return False
        if step.is_identity or (lay.task != "multiclass" and lay.activation == "auto"):
            return True
        return type(step) is Amplified and step.threshold == 0.5 and lay.activation == "auto"


_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
_PLAIN = (Tensor, torch.nn.Parameter)


def is_eager(input: Tensor) -> bool:
    """Whether Python sees plain tensors: no compiler, no tracing, no `torch.func`, no subclass."""
    return type(input) in _PLAIN and not (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )


def make_batch(
    input: Tensor, target: Tensor, weight: Tensor | None, options: Options,
    metric: Metric | None = None,
) -> Batch:  # fmt: skip
    """Check types and shapes always, and values in eager mode on the CPU, without a wait."""
    _check_types(input, target, weight)
    if target.dtype in _UNSIGNED:  # PyTorch has few functions for them
        target = target.long()
    integer = not (target.is_floating_point() or target.dtype == torch.bool)
    eager = is_eager(input)
    if eager:
        lay = _cached_layout(input.shape, target.shape, integer, options, metric)
    else:
        lay = layout(_shape(input), _shape(target), integer, options, metric)
    scores = input if input.dtype in BACKENDS else input.float()
    checked = options.validate and eager and input.is_cpu
    if weight is not None:
        check_weight(_shape(weight), _shape(input), lay)
    masked = weight is not None or options.ignore_index is not None
    batch = Batch(scores, target, weight, lay, options, eager, checked, masked)
    if checked and weight is not None:
        _check_range("weights", weight, 0, torch.finfo(scores.dtype).max)
    if checked and not masked:
        _check_values(batch, scores, target)
    kind = torch.int64 if lay.index_target else scores.dtype
    return batch if target.dtype == kind else batch._replace(target=target.to(kind))


def _shape(x: Tensor) -> tuple[int, ...]:
    """The shape in plain numbers, because `torch.jit.trace` turns them into tensors."""
    return x.shape if torch._C._get_tracing_state() is None else tuple(map(int, x.shape))


def read_batch(input: Tensor, target: Tensor, weight: Tensor | None, settings: Settings) -> Batch:
    """The batch under the settings of a loss."""
    return make_batch(input, target, weight, settings.options, settings.metric)


def _check_types(input: Tensor, target: Tensor, weight: Tensor | None) -> None:
    _check_tensor("input", input, input)
    _check_tensor("target", target, input)
    if weight is not None:
        _check_tensor("weight", weight, input)
    if not input.is_floating_point():
        raise TypeError(f"input must hold floating-point scores; got {input.dtype}")


def _check_tensor(name: str, x: Tensor, input: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor; got {type(x).__name__}")
    if x.device != input.device:
        raise ValueError(
            f"{name} must be on the device of the input, {input.device}; got {x.device}"
        )
    if x.is_complex():
        raise TypeError(f"{name} must hold real numbers; got {x.dtype}")


def _check_values(batch: Batch, scores: Tensor, labels: Tensor) -> None:
    if batch.layout.index_target:
        _check_range("class indices in the target", labels, 0, batch.layout.classes - 1)
    elif labels.dtype != torch.bool:
        _check_range("labels in the target", labels, 0, 1)
    if not batch.options.from_logits:
        _check_range("probabilities in the input (from_logits=False)", scores, 0, 1)


def check_part(batch: Batch, z: Tensor, y: Tensor, weight: Tensor | None) -> None:
    """Check values `(n, before, classes, after)` as they are counted in closed form."""
    if batch.masked:
        _check_values(batch, z, y)
    if batch.layout.task == "multiclass":
        for what, x in (("one-hot labels", y), ("class probabilities", z)):
            if what == "one-hot labels" and batch.layout.index_target:
                continue
            if what == "class probabilities" and batch.options.from_logits:
                continue
            sums = x.sum(2, keepdim=True)
            if weight is not None:
                sums = sums[(weight > 0).any(2, keepdim=True).expand_as(sums)]
            _check_range(f"the sums over the classes of {what}", sums, 0.99, 1.01)


def _check_range(what: str, x: Tensor, low: float, high: float) -> None:
    if not x.numel():
        return
    least, most = torch.aminmax(x.detach() if x.requires_grad else x)
    if not (least.item() >= low and most.item() <= high):
        raise ValueError(f"{what} must lie in [{low}, {high}]; got {least.item()} to {most.item()}")


def check_logits(scores: Tensor, finite: bool) -> None:
    """Refuse NaN, which a step may hide, and infinity where a softmax follows."""
    if not scores.numel():
        return
    least, most = torch.aminmax(scores.detach())
    if math.isnan(least.item()):
        raise ValueError("input must hold numbers; got NaN logits")
    if finite and math.isinf(most.item() - least.item()):
        raise ValueError(
            f"input must hold finite logits for several classes; got {least.item()} to "
            f"{most.item()}"
        )


def check_entropy(value: Array) -> None:
    """Refuse a cross-entropy that is not finite."""
    if not math.isfinite(value):
        raise ValueError(
            "input must hold finite numbers where cross_entropy is added; got a cross-entropy of "
            f"{float(value)}"
        )


def make_samples(batch: Batch, backend: Backend) -> Samples:
    """The batch with three axes; its values are checked if `batch.checked`."""
    options, weight = batch.options, batch.weight

    def check(given: Samples) -> None:
        if batch.masked:
            _check_values(batch, given.scores, given.y)
        if options.from_logits:
            check_logits(given.scores, finite=batch.layout.task == "multiclass")
        for what, x in distributions(given, options.from_logits):
            sums = x.sum(-1) if given.weight is None else x.sum(-1)[(given.weight > 0).any(-1)]
            _check_range(f"the sums over the classes of {what}", sums, 0.99, 1.01)

    return arrange(
        batch.scores,
        batch.target,
        None if weight is None else weight.to(batch.scores.dtype),
        batch.layout,
        backend,
        ignore_index=options.ignore_index,
        check=check if batch.checked else None,
    )


def count(samples: Samples, step: Step, options: Options, backend: Backend) -> Counts:
    """The counts of samples under a step, with axes `(samples, 1, classes)`."""
    found = count_samples(samples, step, options, backend)
    # A metric multiplies counts, which overflows in float32 for large weights.
    return found if samples.weight is None else Counts(*(x.to(wide(x)) for x in found))


def entropy_sums(batch: Batch) -> Tensor:
    """The sum of the cross-entropy of a batch and the sum of its weights, as two numbers."""
    z, lay, options = batch.scores, batch.layout, batch.options
    torchs_own = lay.task != "multiclass" or lay.index_target
    if torchs_own and batch.eager and options.from_logits and (z.is_cpu or not batch.masked):
        sums = _entropy_sums(batch)
        # A sample of weight 0 may hold anything, which the sum over all samples does not allow.
        if not batch.masked or torch.isfinite(sums.detach()).all():
            return sums
    samples = make_samples(batch, BACKENDS[z.dtype])
    return torch.stack(cross_entropy_sums(samples, options.from_logits, BACKENDS[z.dtype]))


def _entropy_sums(batch: Batch) -> Tensor:
    """The same by PyTorch's own functions, for logits of columns or with class indices."""
    z, y, w, ignored = batch.scores, batch.target, batch.weight, batch.options.ignore_index
    if w is not None:
        w = w.to(z.dtype)
        w = w if w.shape == y.shape else w.reshape(-1, *[1] * (y.ndim - 1))
    if ignored is not None:
        keep = (y != ignored).to(z.dtype)
        w, y = keep if w is None else w * keep, torch.where(y != ignored, y, 0)
    if batch.layout.task != "multiclass":
        total = functional.binary_cross_entropy_with_logits(z, y, weight=w, reduction="sum")
    elif w is None:
        total = functional.cross_entropy(z.movedim(batch.layout.class_axis, 1), y, reduction="sum")
    else:
        rows = functional.cross_entropy(z.movedim(batch.layout.class_axis, 1), y, reduction="none")
        total = (w * rows).sum()
    whole = total.new_tensor(float(y.numel())) if w is None else w.expand_as(y).sum()
    return torch.stack([total, whole])


BLOCK = 2**20  # numbers; larger blocks take more memory and are not faster


def hard_count(batch: Batch, step: Step) -> tuple[Counts, Tensor | None]:
    """The counts of the hard decisions, and the weights of the samples.

    The counts are computed in blocks, so that the memory does not grow with the batch.
    """
    backend, scores, weight = HARD_BACKENDS[batch.scores.dtype], batch.scores, batch.weight
    if batch.layout.costs is not None:  # which float32 would round
        scores = scores.to(wide(scores))
        batch, backend = batch._replace(scores=scores), HARD_BACKENDS[scores.dtype]
    hard, rows = step.hard(), max(1, BLOCK // max(1, math.prod(scores.shape[1:])))
    fits = weight is None or weight.shape[:1] == scores.shape[:1]  # if not, `make_samples` raises
    if not batch.eager or batch.layout.per_sample or len(scores) <= rows or not fits:
        found = make_samples(batch, backend)
        return count(found, hard, batch.options, backend), found.sample_weight
    blocks = torch.split(scores, rows)
    weights = [None] * len(blocks) if weight is None else torch.split(weight, rows)
    parts = zip(blocks, torch.split(batch.target, rows), weights, strict=True)
    given = (batch._replace(scores=z, target=y, weight=w) for z, y, w in parts)
    counted = (count(make_samples(part, backend), hard, batch.options, backend) for part in given)
    return reduce(add, counted), None
