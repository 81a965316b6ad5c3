"""The gradient of the loss in closed form: the second half, after the score and its derivatives.

`d score / d z_i = w_i a'(z_i) (y_i d_positive + (1 - y_i) d_negative)` for columns; for several
classes the softmax is carried back as well. The forward pass leaves the gradient ready, so that the
backward pass only returns it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyloss._core.backend import Array
from anyloss._core.gradient import Derivatives
from anyloss._core.shapes import Layout
from anyloss.steps import Step
from anyloss.torch.decide import (
    MODERATE,
    Decided,
    Part,
    blocks,
    class_scale,
    classes_last,
    is_small,
    scratch,
)
from anyloss.torch.entropy import Entropy, add_class_gradient, add_column_gradient

LIMIT = {dtype: torch.finfo(dtype).max / 4 for dtype in (torch.float32, torch.float64)}

Again = Callable[[], Decided]
Plain = Callable[[Tensor], Tensor]


def with_gradient(
    scores: Tensor, lay: Layout, decided: Decided, found: Derivatives, entropy: Entropy | None,
    again: Again, plain: Plain,
) -> Tensor:  # fmt: skip
    """One minus the score, plus the cross-entropy, as a tensor whose gradient is known.

    `again` decides once more, for a second backward pass through the same loss. `plain` is the same
    loss in differentiable operations, for a gradient that is differentiated itself.
    """
    loss: Tensor = _ClosedForm.apply(scores, lay, decided, found, entropy, again, plain)  # type: ignore[no-untyped-call]
    return loss


class _ClosedForm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, lay: Layout, decided: Decided, found: Derivatives,
        entropy: Entropy | None, again: Again, plain: Plain,
    ) -> Tensor:  # fmt: skip
        if decided.buffer is not None:
            ctx.save_for_backward(scores)
            ctx.factor = None if entropy is None else entropy.factor
            ctx.found, ctx.again, ctx.plain, ctx.lay = found, again, plain, lay
            ctx.gradient = loss_gradient(decided, found, ctx.factor).reshape(scores.shape)
        value = 1.0 - found.score if entropy is None else 1.0 - found.score + entropy.loss
        if isinstance(value, float):
            return torch.scalar_tensor(value, dtype=scores.dtype)
        return torch.as_tensor(value, dtype=scores.dtype, device=scores.device)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (scores,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient itself will be differentiated
            loss = ctx.plain(scores)
            (gradient,) = torch.autograd.grad(loss, scores, upstream, create_graph=True)
            return gradient, None, None, None, None, None, None
        # The tensor itself is returned once, because the caller may edit it.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            gradient = loss_gradient(ctx.again(), ctx.found, ctx.factor).reshape(scores.shape)
        if upstream.ndim:
            gradient = gradient * _spread(upstream, ctx.lay, scores.ndim)
        elif not _is_one(upstream):
            gradient = gradient * upstream
        return gradient, None, None, None, None, None, None


def _spread(upstream: Tensor, lay: Layout, axes: int) -> Tensor:
    """The gradients of several losses, `(n,)`, `(C,)` or `(n, C)`, with the axes of the scores."""
    shape = [1] * axes
    if lay.reduction == "none":
        shape[0] = len(upstream)
    if lay.average is None:
        if lay.counted is not None:
            given = upstream
            upstream = given.new_zeros((*given.shape[:-1], lay.classes))
            upstream[..., list(lay.counted)] = given
        shape[lay.class_axis] = lay.classes
    return upstream.reshape(shape)


def _is_one(upstream: Tensor) -> bool:
    if not upstream.is_cpu:
        return False
    try:
        return upstream.item() == 1.0
    except RuntimeError:  # a batch of upstream gradients has no single value
        return False


def loss_gradient(decided: Decided, found: Derivatives, factor: Array | None) -> Tensor:
    """The gradient of the loss by the scores, with the axes of the part.

    `factor` is that of the cross-entropy, or None without it.
    """
    part, step, gradient = decided.part, decided.step, decided.buffer
    assert gradient is not None
    limit = LIMIT[part.z.dtype]  # larger derivatives belong to decisions whose own vanish
    if is_small(part):
        _small_gradient(part, gradient, found, limit)
        if factor is not None:
            add_column_gradient(part, gradient, factor)
        return gradient
    if isinstance(found.d_positive, float):
        d_positive, d_negative = (-min(max(x, -limit), limit) for x in found[1:])
    else:
        d_positive, d_negative = (_as_tensor(x, part, limit) for x in found[1:])
    saved = iter(decided.saved)
    for at, block in blocks(part):
        own = [x[at] if part.per_sample else x for x in (d_positive, d_negative)]
        out = gradient[at]
        if part.softmax:
            a = out if step.is_identity else next(saved)
            _class_gradient(block, step, out, a, own[0], own[1], factor)
            continue
        if part.soft_labels or part.squared:
            out.mul_(_by_decision(block, next(saved), *own))
        else:
            _column_gradient(out, block.y, *own)
        if factor is not None:
            add_column_gradient(block, out, factor)
    return gradient


def _column_gradient(out: Tensor, y: Tensor, d_positive: Array, d_negative: Array) -> None:
    """Multiply the derivatives of the decisions by those of the score."""
    room, change = scratch(out)[0], d_positive - d_negative
    if isinstance(change, float):
        torch.mul(out, d_negative, out=room)
        torch.addcmul(room, out, y, value=change, out=out)
    else:
        out.mul_(torch.mul(y, change, out=room).add_(d_negative))


def _small_gradient(part: Part, gradient: Tensor, found: Derivatives, limit: float) -> None:
    """The same by NumPy, which has less overhead per call."""
    derivative = gradient.numpy()
    number = derivative.dtype.type
    if isinstance(found.d_positive, float):
        d_positive, d_negative = (-min(max(x, -limit), limit) for x in found[1:])
        change, other = number(d_positive - d_negative), number(d_negative)
    else:
        shape = () if part.z.ndim == 1 else (-1, 1, part.z.shape[2], 1)
        d_positive, d_negative = (
            np.minimum(np.maximum(-x, -limit), limit).reshape(shape) for x in found[1:]
        )
        change, other = (d_positive - d_negative).astype(number), d_negative.astype(number)
    derivative *= part.y.numpy() * change + other


def _as_tensor(x: Array, part: Part, limit: float) -> Tensor:
    """Minus a derivative, within the limit, with axes that can be multiplied with the scores."""
    shape = () if part.z.ndim == 1 else (-1, 1, part.z.shape[2], 1)
    if isinstance(x, Tensor):
        return x.neg().clamp_(-limit, limit).to(part.z.dtype).reshape(shape)
    found: Tensor = torch.from_numpy(np.minimum(np.maximum(-x, -limit), limit))
    return found.to(part.z.dtype).reshape(shape)


def _by_decision(part: Part, a: Tensor, d_positive: Array, d_negative: Array) -> Tensor:
    """The derivatives of the score by the decisions, where these depend on the decisions."""
    y = part.y
    if part.squared:  # `tp = sum(a y)`, and the predicted positives are `sum(a^2)`
        squares: Tensor = y * (d_positive - d_negative) + 2 * a * d_negative
        return squares
    # More of a decision is more of `tp` below the soft label, and more of `fp` above it.
    side: Tensor = (a < y).to(a.dtype) * d_positive + (a > y).to(a.dtype) * d_negative
    return side


def _class_gradient(
    part: Part, step: Step, p: Tensor, a: Tensor, d_positive: Tensor, d_negative: Tensor,
    factor: Array | None,
) -> None:  # fmt: skip
    """Overwrite the probabilities `p` of a block of classes with the gradient."""
    g, change = scratch(p)[0], d_positive - d_negative
    if part.soft_labels or part.squared:
        g.copy_(_by_decision(part, a, d_positive, d_negative))
    elif part.by_index:
        g.copy_(d_negative.expand_as(p))
        g.scatter_add_(2, part.y, change.expand_as(p).gather(2, part.y))
    else:
        torch.mul(part.y, change, out=g).add_(d_negative)
    if part.weight is not None:
        g.mul_(part.weight)
    if not step.is_identity:
        _softmax_back(g, a, out=g).mul_(class_scale(step, p.shape[2]))
    if not part.from_logits:
        p.copy_(g)
    elif factor is None:
        _softmax_back(g, p, out=p)
    else:
        add_class_gradient(part, _softmax_back(g, p, out=g), p, factor)


def _softmax_back(g: Tensor, p: Tensor, out: Tensor) -> Tensor:
    """The gradient `g` of a softmax `p` over the third axis, carried back to its argument.

    `out` may be `g` or `p`: PyTorch's own kernel reads a row before it writes to it. An entry near
    one is made the reference of the others first, so that nothing cancels.
    """
    if not p.numel():
        return out
    if not (p.is_cpu and p.amax().item() <= 1 / (1 + math.exp(-MODERATE[p.dtype]))):
        above = torch.gt(p, 0.5, out=torch.empty_like(p))
        g.sub_(above.mul_(g).sum(2, keepdim=True))
    rows, of_rows, to_rows = classes_last(g), classes_last(p), classes_last(out)
    torch._softmax_backward_data(rows, of_rows, 2, p.dtype, grad_input=to_rows)
    return out
