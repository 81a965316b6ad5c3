"""The soft decisions of columns, where each number is a decision of its own.

The derivative `a - a^2` of a sigmoid loses its digits where `a` is close to one. Blocks with such
decisions are counted by their errors `|y - a|`, or by the smaller of each decision and its mirror.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from anyloss._core.backend import Array, Backend
from anyloss._core.counts import pair
from anyloss.torch.batch import BACKENDS
from anyloss.torch.part import Part, cells_of, is_moderate, scratch, sums_of

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input


def _on_third_axis(backend: Backend) -> Backend:
    """The backend of a part, whose third axis has the classes or labels."""

    def product(x: Tensor, matrix: Array) -> Tensor:
        found: Tensor = backend.product(x.mT, matrix).mT
        return found

    return backend._replace(class_axis=2, concat=lambda parts: torch.cat(parts, 2), product=product)


THIRD = {dtype: _on_third_axis(backend) for dtype, backend in BACKENDS.items()}


def column_sums(part: Part, out: Tensor, saved: list[Tensor]) -> tuple[list[Array], bool]:
    """The sums of a block, and whether they are those of the errors instead of the decisions.

    Confident decisions are close to the labels, so that their errors keep more digits. What
    `column_slope` needs is written to `out`.
    """
    a, errors = _decisions(part, out)
    if part.soft_labels:
        saved.append(a.clone())
    return sums_of(part, a), errors


def column_cells(part: Part, out: Tensor, saved: list[Tensor]) -> list[Tensor]:
    """The four counts of a block, each summed directly; see `column_sums`."""
    if part.short:
        small, above = _sides(part, out)
        a, b = (above - small).abs_(), (1 - above).sub_(small).abs_()
    else:
        a, b = _any_step(part, out)
    if part.soft_labels or part.squared:
        saved.append(a)
    return cells_of(part, a, b)


def column_slope(part: Part, g: Tensor, out: Tensor) -> None:
    """Multiply `g` by the derivatives of the decisions, which `out` determines, into `out`."""
    if part.from_logits and part.identity:
        sigmoid_backward(g, out, grad_input=out)
    else:
        out.mul_(g)


def slope_factor(part: Part) -> float:
    """The factor that `column_slope` leaves out."""
    if not part.short or part.identity or part.softmax:
        return 1.0
    return part.step.scale  # type: ignore[attr-defined, no-any-return]


def _decisions(part: Part, out: Tensor) -> tuple[Tensor, bool]:
    """The soft decisions or, of confident ones with hard labels, their errors."""
    z, y = part.z, part.y
    if not part.short:
        return _any_step(part, out)[0], False
    if part.identity and is_moderate(z):
        return torch.sigmoid(z, out=out), False
    hard = _has_hard_labels(part)
    if hard and part.identity:
        # The sigmoid of the logit of the wrong side, which is `-z` for a positive sample.
        wrong = torch.addcmul(z, y, z, value=-2, out=out)
        if is_moderate(wrong):
            return wrong.sigmoid_(), True
    small, above = _sides(part, out)
    if hard:
        torch.ne(above, y, out=above)
    return above.sub_(small).abs_(), hard


def _has_hard_labels(part: Part) -> bool:
    """Whether no label is between 0 and 1."""
    if part.soft_labels:
        return False
    y = part.y.reshape(-1)
    return torch.dot(y, y).item() == y.sum().item()


def _sides(part: Part, out: Tensor) -> tuple[Tensor, Tensor]:
    """The smaller of each decision and its mirror, and 1 where the decision is the larger one."""
    z, step, room = part.z, part.step, scratch(part.z)
    zero = number(0.0, z.dtype, z.device)
    if part.identity:
        return torch.abs(z, out=out).neg_().sigmoid_(), torch.gt(z, zero, out=room[0])
    scale, threshold = step.scale, step.threshold  # type: ignore[attr-defined]
    small = torch.abs(z, out=room[0]).neg_().sigmoid_()
    if threshold == 0.5:  # the decision changes its side where the logit does
        offset = number(-scale / 2, z.dtype, z.device)
        sign, second = z, torch.add(offset, small, alpha=scale, out=room[1]).sigmoid_()
    else:
        sign = torch.sigmoid(z).sub_(threshold)
        second = torch.abs(sign, out=room[1]).mul_(-scale).sigmoid_()
    torch.addcmul(second, second, second, value=-1, out=out)
    sigmoid_backward(out, small, grad_input=out)
    return second, torch.gt(sign, zero, out=room[0])


@lru_cache(maxsize=64)
def number(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number as a tensor, kept for the next call."""
    with torch.inference_mode(False):
        return torch.full((), value, dtype=dtype, device=device)


def _any_step(part: Part, out: Tensor) -> tuple[Tensor, Tensor]:
    """The decisions of any step and their mirrors, from its `both` and `density`."""
    step, backend = part.step, THIRD[part.z.dtype]
    p, q = pair(part.z, step, "multilabel", part.from_logits, backend)
    derivative = step.density(p, q, backend)
    if part.from_logits and not step.on_logit:
        derivative = derivative * p * q
    elif step.on_logit and not part.from_logits:  # the derivative of the logit
        inside = [torch.where(x < backend.tiny, torch.inf, x) for x in (part.z, 1 - part.z)]
        derivative = derivative / inside[0] + derivative / inside[1]
    out.copy_(derivative)
    a, b = step.both(p, q, backend)
    return a, b
