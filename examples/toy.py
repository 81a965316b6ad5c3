"""The data and the model of the training examples: 512 samples with 10 % positives, linear."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

ROWS, EPOCHS, RATE = 512, 5, 1.0


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(ROWS, 1, generator=generator) < 0.1).float()
    return TensorDataset(torch.randn(ROWS, 4, generator=generator) + y, y)


def model() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 1)


def report(trained: nn.Module) -> None:
    """Print F1 and the sum of the weights, which are the same for any number of processes."""
    from anyloss.torch import AnyLoss

    x, y = data().tensors
    weights: Tensor = torch.cat([p.detach().reshape(-1) for p in trained.parameters()])
    with torch.no_grad():
        score = AnyLoss("f1").score(trained(x), y)
    print(f"F1: {score:.6f}, sum of the weights: {weights.sum():.6f}", flush=True)
