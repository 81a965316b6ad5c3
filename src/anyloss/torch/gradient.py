"""The gradient of the loss in closed form: the second half, after the score and its derivatives.

`d score / d z_i = w_i a'(z_i) (y_i d_positive + (1 - y_i) d_negative)` for columns; for several
classes the softmax is carried back as well. The forward pass leaves the gradient ready, so that the
backward pass only returns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from anyloss._core.backend import Array
from anyloss._core.gradient import Derivatives
from anyloss.steps import Step
from anyloss.torch.decide import (
    SMALL,
    Decided,
    Part,
    amplified,
    blocks,
    class_rows,
    class_scale,
    is_laid_out_in_rows,
    scratch,
)

LIMIT = {dtype: torch.finfo(dtype).max / 4 for dtype in (torch.float32, torch.float64)}

Again = Callable[[], Decided]
Plain = Callable[[Tensor], Tensor]


def with_gradient(
    scores: Tensor, class_axis: int, decided: Decided, found: Derivatives, again: Again,
    plain: Plain,
) -> Tensor:  # fmt: skip
    """One minus the score, as a tensor whose gradient is known.

    `again` decides once more, for a second backward pass through the same loss. `plain` is the same
    loss in differentiable operations, for a gradient that is differentiated itself.
    """
    loss: Tensor = _ClosedForm.apply(scores, class_axis, decided, found, again, plain)  # type: ignore[no-untyped-call]
    return loss


class _ClosedForm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, class_axis: int, decided: Decided, found: Derivatives,
        again: Again, plain: Plain,
    ) -> Tensor:  # fmt: skip
        if decided.buffer is not None:
            ctx.save_for_backward(scores)
            ctx.found, ctx.again, ctx.plain, ctx.class_axis = found, again, plain, class_axis
            ctx.gradient = loss_gradient(decided, found).reshape(scores.shape)
        if isinstance(found.score, float):
            return torch.scalar_tensor(1.0 - found.score, dtype=scores.dtype)
        return torch.as_tensor(1.0 - found.score, dtype=scores.dtype, device=scores.device)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (scores,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient itself will be differentiated
            loss = ctx.plain(scores)
            (gradient,) = torch.autograd.grad(loss, scores, upstream, create_graph=True)
            return gradient, None, None, None, None, None
        # The tensor itself is returned once, because the caller may edit it.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            gradient = loss_gradient(ctx.again(), ctx.found).reshape(scores.shape)
        if upstream.ndim == 1:  # one loss per class
            upstream = upstream.reshape(-1, *[1] * (scores.ndim - 1 - ctx.class_axis))
        if not _is_one(upstream):
            gradient = gradient * upstream
        return gradient, None, None, None, None, None


def _is_one(upstream: Tensor) -> bool:
    if upstream.ndim or not upstream.is_cpu:
        return False
    try:
        return upstream.item() == 1.0
    except RuntimeError:  # a batch of upstream gradients has no single value
        return False


def loss_gradient(decided: Decided, found: Derivatives) -> Tensor:
    """The gradient of `1 - score` by the scores, with the axes of the part."""
    part, step, gradient = decided.part, decided.step, decided.buffer
    assert gradient is not None
    limit = LIMIT[part.z.dtype]  # larger derivatives belong to decisions whose own vanish
    if isinstance(found.d_positive, float) and part.z.numel() <= SMALL and not part.soft_labels:
        return _small_column_gradient(part, gradient, found, limit)
    d_positive, d_negative = (_as_tensor(x, part).clamp_(-limit, limit).neg_() for x in found[1:])
    saved = iter(decided.saved)
    for at, block in blocks(part):
        own = [x[at] if part.per_sample else x for x in (d_positive, d_negative)]
        if part.task == "multiclass":
            _class_gradient(block, step, gradient[at], saved, *own)
        elif part.soft_labels:
            gradient[at].mul_(_by_side(next(saved), block.y, *own))
        else:
            room = scratch(block.z, 1)[0]
            gradient[at].mul_(torch.addcmul(own[1], block.y, own[0] - own[1], out=room))
    return gradient


def _small_column_gradient(
    part: Part, gradient: Tensor, found: Derivatives, limit: float
) -> Tensor:
    """The same by NumPy, which has less overhead per call."""
    derivative = gradient.numpy()
    number = derivative.dtype.type
    d_positive, d_negative = (-min(max(x, -limit), limit) for x in found[1:])
    derivative *= part.y.numpy() * number(d_positive - d_negative) + number(d_negative)
    return gradient


def _as_tensor(x: Array, part: Part) -> Tensor:
    """A derivative in the type of the scores, with axes that can be multiplied with theirs."""
    if isinstance(x, float):
        return torch.scalar_tensor(x, dtype=part.z.dtype)
    shape = () if part.z.ndim == 1 else (-1, 1, part.z.shape[2], 1)
    found = (
        x.to(part.z.dtype, copy=True)
        if isinstance(x, Tensor)
        else torch.tensor(x, dtype=part.z.dtype)
    )
    return found.reshape(shape)


def _by_side(a: Tensor, y: Tensor, d_positive: Tensor, d_negative: Tensor) -> Tensor:
    """More of a decision is more of `tp` below the soft label, and more of `fp` above it."""
    return (a < y).to(a.dtype) * d_positive + (a > y).to(a.dtype) * d_negative


def _class_gradient(
    part: Part, step: Step, out: Tensor, saved: Iterator[Tensor], d_positive: Tensor,
    d_negative: Tensor,
) -> None:  # fmt: skip
    """Write the gradient of a block of classes to `out`."""
    in_rows = is_laid_out_in_rows(out)
    p = class_rows(out) if in_rows else next(saved)
    y, w = class_rows(part.y), None if part.weight is None else class_rows(part.weight)
    a = p if step.is_identity else amplified(p, step)[0]
    d_positive, d_negative = (x[:, 0].transpose(0, 1) for x in (d_positive, d_negative))
    if part.by_index:
        change = (d_positive - d_negative).expand(-1, *y.shape[1:]).gather(0, y)
        g = d_negative.expand_as(p).clone().scatter_add_(0, y, change)
    elif part.soft_labels:
        g = _by_side(a, y, d_positive, d_negative)
    else:
        g = torch.addcmul(d_negative, y, d_positive - d_negative)
    if w is not None:
        g.mul_(w)
    if not step.is_identity:
        g = _softmax_back(g, a).mul_(class_scale(step, p.shape[0]))
    if part.from_logits:
        g = _softmax_back(g, p)
    if in_rows:
        p.copy_(g)
    else:
        n, before, classes, after = out.shape
        out.copy_(g.view(classes, n, before, after).permute(1, 2, 0, 3))


def _softmax_back(g: Tensor, p: Tensor) -> Tensor:
    """The gradient `g` of a softmax `p` over the first axis, carried back to its argument.

    The largest entry is the reference of the others, so that nothing cancels where it is near 1.
    """
    top = torch.eq(p, p.amax(0), out=torch.empty_like(p))
    g.sub_((g * top).sum(0).div_(top.sum(0)))
    return g.sub_((p * g).sum(0)).mul_(p)
