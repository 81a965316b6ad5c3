"""A probability and its mirror with their derivative, for Keras on PyTorch.

On a CPU, PyTorch's `where` takes more than ten times the time of a product. The function of
`_core/backend.py` needs nine of them, forward and backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class MirroredSigmoid(torch.autograd.Function):
    """`sigmoid(z)` and `sigmoid(-z)`; the derivative is their product, and loses no digits."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sigmoid(z), torch.sigmoid(-z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)

    @staticmethod
    def backward(ctx: Any, d_p: Tensor, d_q: Tensor) -> Tensor:
        p, q = ctx.saved_tensors
        gradient: Tensor = (d_p - d_q) * (p * q)
        return gradient

    @staticmethod
    def jvp(ctx: Any, d_z: Tensor) -> tuple[Tensor, Tensor]:
        p, q = ctx.saved_tensors
        change = p * q * d_z
        return change, -change
