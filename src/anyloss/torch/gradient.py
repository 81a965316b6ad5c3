"""The gradient of the loss in closed form: the second half, after the score and its derivatives.

`d score / d z_i = w_i a'(z_i) (y_i d_positive + (1 - y_i) d_negative)` for columns; for several
classes the softmax is carried back as well. The forward pass leaves the gradient ready, so that the
backward pass only returns it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from anyloss._core.backend import Array
from anyloss._core.gradient import Derivatives
from anyloss._core.shapes import Layout
from anyloss.torch.classes import class_scale, softmax_back
from anyloss.torch.columns import column_slope, slope_factor
from anyloss.torch.decide import Decided
from anyloss.torch.entropy import add_class_gradient, add_column_gradient
from anyloss.torch.part import Part, blocks, scratch

LIMIT = {dtype: torch.finfo(dtype).max / 4 for dtype in (torch.float32, torch.float64)}


class Closed(NamedTuple):
    """A loss whose gradient is known."""

    value: Array
    ready: list[Tensor]  # the gradient, until it is handed out: the caller may edit it
    again: Callable[[], Tensor]  # computes it once more, for a second backward pass
    plain: Callable[[Tensor], Tensor]  # the loss in differentiable operations
    lay: Layout


def with_gradient(scores: Tensor, closed: Closed) -> Tensor:
    """The loss as a tensor."""
    if not closed.ready:
        return _as_loss(closed.value, scores)
    loss: Tensor = _ClosedForm.apply(scores, closed)  # type: ignore[no-untyped-call]
    return loss


def _as_loss(value: Array, scores: Tensor) -> Tensor:
    if isinstance(value, float):
        return torch.scalar_tensor(value, dtype=scores.dtype)
    return torch.as_tensor(value, dtype=scores.dtype, device=scores.device)


class _ClosedForm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, closed: Closed) -> Tensor:
        ctx.save_for_backward(scores)
        ctx.closed = closed
        return _as_loss(closed.value, scores)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        closed = ctx.closed
        if torch.is_grad_enabled():  # the gradient itself will be differentiated
            (scores,) = ctx.saved_tensors
            loss = closed.plain(scores)
            (gradient,) = torch.autograd.grad(loss, scores, upstream, create_graph=True)
            return gradient, None
        gradient = closed.ready.pop() if closed.ready else closed.again()
        if upstream.ndim:
            gradient = gradient * _spread(upstream, closed.lay, gradient.ndim)
        elif not _is_one(upstream):
            gradient = gradient * upstream
        return gradient, None


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
    part, gradient = decided.part, decided.buffer
    assert gradient is not None
    # Derivatives beyond the limit belong to decisions whose own derivatives vanish.
    limit, scale = LIMIT[part.z.dtype], slope_factor(part)
    if isinstance(found.d_positive, float):
        d_positive, d_negative = (-min(max(scale * x, -limit), limit) for x in found[1:])
    else:
        d_positive, d_negative = _as_tensors(found, part, scale, limit)
    saved = iter(decided.saved)
    for block, out, d_p, d_n in blocks(part, gradient, d_positive, d_negative):
        a = next(saved, out)
        if part.softmax:
            _class_gradient(block, out, a, d_p, d_n, factor)
            continue
        column_slope(block, _by_decision(block, a, d_p, d_n), out)
        if factor is not None:
            add_column_gradient(block, out, factor)
    return gradient


def _by_decision(part: Part, a: Tensor, d_positive: Array, d_negative: Array) -> Tensor:
    """The gradient by the decisions of dense labels, times the weights.

    `a` are the decisions, which matter for soft labels and squared decisions.
    """
    y, room, change = part.y, scratch(part.z)[0], d_positive - d_negative
    g: Tensor
    if part.squared:  # `tp = sum(a y)`, and the predicted positives are `sum(a^2)`
        g = y * change + 2 * a * d_negative
    elif part.soft_labels:
        # More of a decision is more of `tp` below the soft label, and more of `fp` above it.
        g = (a < y).to(y.dtype) * d_positive + (a > y).to(y.dtype) * d_negative
    elif isinstance(change, float):
        g = torch.add(torch.scalar_tensor(d_negative, dtype=y.dtype), y, alpha=change, out=room)
    else:
        g = torch.mul(y, change, out=room).add_(d_negative)
    return g if part.weight is None else g.mul_(part.weight)


def _as_tensors(found: Derivatives, part: Part, scale: float, limit: float) -> Sequence[Tensor]:
    """Minus the derivatives times a factor, within the limit, with the axes of the scores."""
    d_positive, d_negative = found[1:]
    if isinstance(d_positive, Tensor):
        both = torch.stack([d_positive, d_negative])
    else:
        both = torch.from_numpy(np.array([d_positive, d_negative]))
    shape = () if part.z.ndim == 1 else (-1, 1, part.z.shape[2], 1)
    return both.mul_(-scale).clamp_(-limit, limit).to(part.z.dtype).view(2, *shape).unbind()


def _class_gradient(
    part: Part, p: Tensor, a: Tensor, d_positive: Tensor, d_negative: Tensor,
    factor: Array | None,
) -> None:  # fmt: skip
    """Overwrite the probabilities `p` of a block of classes with the gradient."""
    if part.by_index:
        g, change = scratch(p)[0].copy_(d_negative.expand_as(p)), d_positive - d_negative
        g.scatter_add_(2, part.y, change.expand_as(p).gather(2, part.y))
        if part.weight is not None:
            g.mul_(part.weight)
    else:
        g = _by_decision(part, a, d_positive, d_negative)
    if not part.identity:
        softmax_back(g, a, out=g).mul_(class_scale(part))
    if not part.from_logits:
        p.copy_(g)
    elif factor is None:
        softmax_back(g, p, out=p)
    else:
        add_class_gradient(part, softmax_back(g, p, out=g), p, factor)
