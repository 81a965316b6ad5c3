"""The closed-form gradient on the CPU: one pass over the rows, two slopes, no autograd graph.

Serves what most training steps are: logits of one column, or `(n, C)`, under `Uniform()` or
`Amplified`. The score depends on the rows through four sums per class only: once these are known,
so is the gradient of every row, and the forward pass leaves it ready. Blocks of rows stay in the
processor's cache, and sums of blocks are added up in double precision. All else (double
backward, other steps, accelerators, `torch.compile`, `torch.func`) takes the plain path in `loss`.
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
from anyloss._core.gradient import Slopes, column_gradient
from anyloss.steps import Amplified, Uniform

SMALL = 32768  # numbers; below, NumPy's calls are cheaper than PyTorch's
BLOCK = 262144  # numbers per thread: two buffers of this size stay in the third-level cache
LIMIT = {dtype: torch.finfo(dtype).max / 4 for dtype in (torch.float32, torch.float64)}

Evaluate = Callable[[Counts], Slopes]


def closed_form_loss(
    z: Tensor,
    y: Tensor,
    step: Amplified | Uniform,
    evaluate: Evaluate,
    plain: Callable[[Tensor], Tensor],
) -> Tensor:
    """One minus the soft score of logits `z`, a column `(n,)` or `(n, C)`, with its gradient.

    `evaluate` turns counts (floats for a column, else arrays over the classes) into slopes, and
    `plain` is the same loss in differentiable operations, for whoever differentiates twice.
    """
    loss: Tensor = _ClosedForm.apply(z, y, step, evaluate, plain)  # type: ignore[no-untyped-call]
    return loss


class _ClosedForm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        y: Tensor,
        step: Amplified | Uniform,
        evaluate: Evaluate,
        plain: Callable[[Tensor], Tensor],
    ) -> Tensor:
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
        # The tensor itself is handed out, once: who asks again gets a fresh one, and may edit both.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            _, gradient = _loss_and_gradient(z, y, ctx.step, ctx.evaluate, True)
        if not _is_one(upstream):
            gradient = gradient * upstream
        return gradient, None, None, None, None


def _loss_and_gradient(
    z: Tensor, y: Tensor, step: Amplified | Uniform, evaluate: Evaluate, wanted: bool
) -> tuple[Array, Tensor | None]:
    """The score, and the gradient of the loss if it is wanted."""
    if z.ndim > 1 or z.numel() > SMALL:
        return _in_blocks(z, y, step, evaluate, wanted)
    score, slope = column_gradient(z.detach().numpy(), y.numpy(), step, evaluate, wanted=wanted)
    return score, None if slope is None else torch.from_numpy(np.negative(slope, out=slope))


def _is_one(upstream: Tensor) -> bool:
    try:
        return upstream.ndim == 0 and upstream.item() == 1.0
    except RuntimeError:  # a batch of upstream gradients has no single value
        return False


def _in_blocks(
    z: Tensor, y: Tensor, step: Amplified | Uniform, evaluate: Evaluate, wanted: bool
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
    score, A, B = evaluate(total)
    if gradient is not None:
        scale = getattr(step, "scale", 1.0)
        for block in blocks:
            _scale(gradient[block], y[block], -scale * A, -scale * B, scratch)
    return score, gradient


_workspace = threading.local()


def _scratch(numbers: int, dtype: torch.dtype) -> Tensor:
    """Memory to work in, kept from call to call: fresh pages would cost more than the work."""
    kept: Tensor | None = getattr(_workspace, str(dtype), None)
    if kept is None or kept.numel() < numbers:
        with torch.inference_mode(False):  # what is kept must serve training as well
            kept = torch.empty(numbers, dtype=dtype, device="cpu")
        setattr(_workspace, str(dtype), kept)
    return kept[:numbers]


@lru_cache(maxsize=64)
def _constant(value: float, dtype: torch.dtype) -> Tensor:
    """A number as a tensor: a Python number costs a conversion in every call."""
    with torch.inference_mode(False):
        return torch.tensor(value, dtype=dtype, device="cpu")


def _decide(z: Tensor, step: Amplified | Uniform, scratch: Tensor, out: Tensor | None) -> Tensor:
    """The soft decisions of some rows; their derivative by the logit, without the scale, to `out`.

    Sigmoids are taken on their small side, at most 1/2, where `s - s^2` loses nothing.
    """
    first, second = scratch[0, : z.shape[0]], scratch[1, : z.shape[0]]
    s = torch.abs(z, out=first).neg_().sigmoid_()
    if isinstance(step, Uniform):
        if out is not None:
            torch.addcmul(s, s, s, value=-1, out=out)
        above = torch.gt(z, _constant(0.0, z.dtype), out=second)
        return above.sub_(s).abs_()
    shift = _constant(-step.scale * step.threshold, z.dtype)
    if step.threshold == 0.5:  # the decision turns where the logit does
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

    What is small is summed itself: as a difference it would be lost in the rounding of the rest.
    """
    if a.ndim == 1:
        soft, positives, rows = a.sum().item(), y.sum(dtype=torch.float64).item(), float(len(a))
        if 2 * positives <= rows:
            return counts_of_sums(soft, torch.dot(a, y).item(), positives, rows)
        rest = 1 - y
        negatives = rest.sum(dtype=torch.float64).item()
        tp, fn, fp, tn = counts_of_sums(soft, torch.dot(a, rest).item(), negatives, rows)
        return Counts(tp=fp, fn=tn, fp=tp, tn=fn)  # the classes changed places
    of_class, hits = y.sum(0, dtype=torch.float64), a * y
    tp, fp = hits.sum(0).double(), torch.sub(a, hits, out=hits).sum(0).double()
    cells = tp, of_class - tp, fp, len(a) - of_class - fp
    return Counts(*(x.clamp_min(0.0).numpy().reshape(1, 1, -1) for x in cells))


def _scale(derivative: Tensor, y: Tensor, A: Array, B: Array, scratch: Tensor) -> None:
    """Multiply each derivative by the slope of its row, `B + y (A - B)`, in place."""
    dtype = derivative.dtype
    out = scratch[0, : y.shape[0]]
    limit = LIMIT[dtype]  # a slope beyond the type's range belongs to derivatives that vanish
    if derivative.ndim == 1:
        A, B = min(max(A, -limit), limit), min(max(B, -limit), limit)
        slope = torch.add(
            torch.scalar_tensor(B, dtype=dtype, device="cpu"), y, alpha=A - B, out=out
        )
    else:
        A, B = (torch.from_numpy(np.clip(x, -limit, limit).reshape(-1)).to(dtype) for x in (A, B))
        slope = torch.addcmul(B, y, A - B, out=out)
    derivative.mul_(slope)
