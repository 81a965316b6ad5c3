"""The closed-form gradient on the CPU: one pass over the samples, without an autograd graph.

It covers the most frequent training steps: logits of one column or of shape `(n, C)`, with the step
`Uniform()` or `Amplified`. The score depends on the samples only through four sums per class. The
sums determine the derivatives `d_positive` and `d_negative`, and these the gradient of every
sample, which the forward pass computes already. Blocks of samples stay in the processor's cache,
and the sums of the blocks are added up in double precision. All other cases (second derivatives,
other steps, accelerators, `torch.compile`, `torch.func`) take the plain path in `loss`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyloss._core.backend import Array
from anyloss._core.counts import Counts, counts_of_sums
from anyloss._core.gradient import Derivatives, column_gradient
from anyloss.steps import Amplified, Uniform

SMALL = 32768  # numbers; below, NumPy's calls are cheaper than PyTorch's
BLOCK = 262144  # numbers per thread: two buffers of this size stay in the third-level cache
LIMIT = {dtype: torch.finfo(dtype).max / 4 for dtype in (torch.float32, torch.float64)}

FastStep = Amplified | Uniform
Evaluate = Callable[[Counts], Derivatives]


def closed_form_loss(
    z: Tensor, y: Tensor, step: FastStep, evaluate: Evaluate, plain: Callable[[Tensor], Tensor]
) -> Tensor:
    """One minus the soft score of logits `z`, a column `(n,)` or `(n, C)`, with its gradient.

    `evaluate` computes the score and its derivatives from counts (floats for a column, else arrays
    over the classes), and `plain` is the same loss in differentiable operations, for second
    derivatives.
    """
    loss: Tensor = _ClosedForm.apply(z, y, step, evaluate, plain)  # type: ignore[no-untyped-call]
    return loss


class _ClosedForm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, y: Tensor, step: FastStep, evaluate: Evaluate,
        plain: Callable[[Tensor], Tensor],
    ) -> Tensor:  # fmt: skip
        wanted = ctx.needs_input_grad[0]
        score, gradient = _loss_and_gradient(z, y, step, evaluate, wanted)
        if wanted:
            ctx.save_for_backward(z, y)
            ctx.gradient, ctx.plain = gradient, plain
            ctx.step, ctx.evaluate = step, evaluate
        if isinstance(score, float):
            return torch.scalar_tensor(1.0 - score, dtype=z.dtype, device="cpu")
        return torch.as_tensor(1.0 - score, dtype=z.dtype, device="cpu")

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        z, y = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient itself will be differentiated
            loss = ctx.plain(z)
            (gradient,) = torch.autograd.grad(loss, z, upstream, create_graph=True)
            return gradient, None, None, None, None
        # The tensor is returned once; a second call computes a new one, as callers may edit both.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            _, gradient = _loss_and_gradient(z, y, ctx.step, ctx.evaluate, True)
        if not _is_one(upstream):
            gradient = gradient * upstream
        return gradient, None, None, None, None


def _loss_and_gradient(
    z: Tensor, y: Tensor, step: FastStep, evaluate: Evaluate, wanted: bool
) -> tuple[Array, Tensor | None]:
    """The score, and the gradient of the loss if it is wanted."""
    if z.ndim > 1 or z.numel() > SMALL:
        return _in_blocks(z, y, step, evaluate, wanted)
    score, found = column_gradient(z.detach().numpy(), y.numpy(), step, evaluate, wanted=wanted)
    return score, None if found is None else torch.from_numpy(np.negative(found, out=found))


def _is_one(upstream: Tensor) -> bool:
    try:
        return upstream.ndim == 0 and upstream.item() == 1.0
    except RuntimeError:  # a batch of upstream gradients has no single value
        return False


def _in_blocks(
    z: Tensor, y: Tensor, step: FastStep, evaluate: Evaluate, wanted: bool
) -> tuple[Array, Tensor | None]:
    """The score, and the gradient of the loss if it is wanted, in blocks that fit the cache."""
    columns = math.prod(z.shape[1:])
    rows = max(1, min(BLOCK * torch.get_num_threads() // max(1, columns), z.shape[0]))
    blocks = [slice(start, start + rows) for start in range(0, z.shape[0], rows)]
    scratch = _scratch(2 * rows * columns, z.dtype).view(2, rows, *z.shape[1:])
    gradient = torch.empty(z.shape, dtype=z.dtype, device="cpu") if wanted else None
    none: Array = 0.0 if z.ndim == 1 else np.zeros((1, 1, columns))
    total = Counts(none, none, none, none)
    for block in blocks:
        out = None if gradient is None else gradient[block]
        total = total + _count(_decide(z[block], step, scratch, out), y[block])
    score, d_positive, d_negative = evaluate(total)
    if gradient is not None:
        scale = getattr(step, "scale", 1.0)
        for block in blocks:
            _scale(gradient[block], y[block], -scale * d_positive, -scale * d_negative, scratch)
    return score, gradient


_workspace = threading.local()


def _scratch(numbers: int, dtype: torch.dtype) -> Tensor:
    """Memory that is kept between calls: to allocate it anew would take longer than the work."""
    kept: Tensor | None = getattr(_workspace, str(dtype), None)
    if kept is None or kept.numel() < numbers:
        with torch.inference_mode(False):  # it is used in training as well
            kept = torch.empty(numbers, dtype=dtype, device="cpu")
        setattr(_workspace, str(dtype), kept)
    return kept[:numbers]


@lru_cache(maxsize=64)
def _constant(value: float, dtype: torch.dtype) -> Tensor:
    """A number as a tensor, because a Python number is converted in every call."""
    with torch.inference_mode(False):
        return torch.tensor(value, dtype=dtype, device="cpu")


def _decide(z: Tensor, step: FastStep, scratch: Tensor, out: Tensor | None) -> Tensor:
    """The soft decisions of a block; `out` gets their derivatives by the logit, without the scale.

    Sigmoids are computed on the side where they are at most 1/2, so that `s - s^2` is accurate.
    """
    first, second = scratch[0, : z.shape[0]], scratch[1, : z.shape[0]]
    s = torch.abs(z, out=first).neg_().sigmoid_()
    if isinstance(step, Uniform):
        if out is not None:
            torch.addcmul(s, s, s, value=-1, out=out)
        above = torch.gt(z, _constant(0.0, z.dtype), out=second)
        return above.sub_(s).abs_()
    shift = _constant(-step.scale * step.threshold, z.dtype)
    if step.threshold == 0.5:  # the decision changes where the sign of the logit does
        sign = z
        small = torch.add(shift, s, alpha=step.scale, out=second).sigmoid_()
    else:
        sign = torch.add(shift, torch.sigmoid(z), alpha=step.scale)
        small = torch.abs(sign, out=second).neg_().sigmoid_()
    if out is not None:
        torch.addcmul(small, small, small, value=-1, out=out)
        out.mul_(s.addcmul_(s, s, value=-1))
    # 1 - small above the threshold, small below it
    above = torch.gt(sign, _constant(0.0, z.dtype), out=s)
    return above.sub_(small).abs_()


def _count(a: Tensor, y: Tensor) -> Counts:
    """The counts of a block: floats, or arrays over the classes.

    Small counts are summed directly, because as differences they would be lost in rounding.
    """
    if a.ndim == 1:
        soft, positives, n = a.sum().item(), y.sum(dtype=torch.float64).item(), float(len(a))
        if 2 * positives <= n:
            return counts_of_sums(soft, torch.dot(a, y).item(), positives, n)
        rest = 1 - y
        negatives = rest.sum(dtype=torch.float64).item()
        tp, fn, fp, tn = counts_of_sums(soft, torch.dot(a, rest).item(), negatives, n)
        return Counts(tp=fp, fn=tn, fp=tp, tn=fn)  # the classes are exchanged
    of_class, product = y.sum(0, dtype=torch.float64), a * y
    tp, fp = product.sum(0).double(), torch.sub(a, product, out=product).sum(0).double()
    cells = tp, of_class - tp, fp, len(a) - of_class - fp
    return Counts(*(x.clamp_min(0.0).numpy().reshape(1, 1, -1) for x in cells))


def _scale(
    derivative: Tensor, y: Tensor, d_positive: Array, d_negative: Array, scratch: Tensor
) -> None:
    """Multiply by `d_negative + y (d_positive - d_negative)` per sample, in place."""
    dtype = derivative.dtype
    out = scratch[0, : y.shape[0]]
    limit = LIMIT[dtype]  # beyond the range of the type, the derivatives of the steps are 0
    if derivative.ndim == 1:
        d_positive = min(max(d_positive, -limit), limit)
        d_negative = min(max(d_negative, -limit), limit)
        base = torch.scalar_tensor(d_negative, dtype=dtype, device="cpu")
        factor = torch.add(base, y, alpha=d_positive - d_negative, out=out)
    else:
        d_positive, d_negative = (
            torch.from_numpy(np.clip(x, -limit, limit).reshape(-1)).to(dtype)
            for x in (d_positive, d_negative)
        )
        factor = torch.addcmul(d_negative, y, d_positive - d_negative, out=out)
    derivative.mul_(factor)
