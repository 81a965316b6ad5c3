"""Bridging the Gap's network, 32-16-1 with dropout: all trials of a loss trained at once.

A trial has a split, a scaling, a start and batches of its own. The trials stand side by side, a
weight of shape `(trials, inputs, outputs)` per layer, and the losses are taken per column, so that
no trial's gradient knows of another's; Adam works number by number.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from anyloss._core.backend import Array

HIDDEN = (32, 16)
DROPOUT = 0.5
BATCH, RATE = 1024, 1e-3

Criterion = Callable[[Tensor, Tensor], Tensor]  # logits and labels `(rows, trials)`: a loss each


class Part(NamedTuple):
    """Rows `(trials, rows, columns)` and labels `(rows, trials)`."""

    X: Tensor
    y: Tensor


class Split(NamedTuple):
    """The rows to train on, those that choose the epoch, and those that are scored."""

    train: Part
    valid: Part
    test: Part


def split(X: Array, y: Array, trials: int) -> Split:
    """Stratified 64 : 16 : 20, anew for each trial; scaled by what the training rows tell."""
    import numpy as np
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    parts: list[list[tuple[Array, Array]]] = [[], [], []]
    for seed in range(trials):
        rest, test = train_test_split(
            np.arange(len(y)), test_size=0.2, stratify=y, random_state=seed
        )
        train, valid = train_test_split(rest, test_size=0.2, stratify=y[rest], random_state=seed)
        scale = StandardScaler().fit(X[train])
        for part, rows in zip(parts, (train, valid, test), strict=True):
            part.append((scale.transform(X[rows]), y[rows]))
    return Split(*(_stacked(part) for part in parts))


def _stacked(part: list[tuple[Array, Array]]) -> Part:
    X, y = ([torch.as_tensor(x, dtype=torch.float32) for x in xs] for xs in zip(*part, strict=True))
    return Part(torch.stack(X), torch.stack(y, 1))


class Perceptrons(nn.Module):
    """One network per trial, started as PyTorch's `Linear` is."""

    def __init__(self, trials: int, inputs: int) -> None:
        super().__init__()
        sizes = list(pairwise((inputs, *HIDDEN, 1)))
        self.weights, self.biases = (
            nn.ParameterList(
                nn.Parameter((2 * torch.rand(trials, rows or n, m) - 1) / n**0.5) for n, m in sizes
            )
            for rows in (0, 1)
        )

    def forward(self, X: Tensor) -> Tensor:
        """Logits of shape `(rows, trials)`."""
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if k:
                X = X.relu()
            if k and self.training:  # several times as fast as PyTorch's dropout on the CPU
                X = X * (torch.rand(X.shape) >= DROPOUT) / (1 - DROPOUT)
            X = torch.baddbmm(bias, X, weight)
        return X[..., 0].T


def fit(data: Split, loss: Criterion, epochs: int, seed: int = 0) -> Tensor:
    """The logits of the test rows, `(rows, trials)`, at each trial's best validation loss."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _fit(data, loss, epochs)


def _fit(data: Split, loss: Criterion, epochs: int) -> Tensor:
    trials, rows, inputs = data.train.X.shape
    model = Perceptrons(trials, inputs)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    best = torch.full((trials,), torch.inf)
    kept = [parameter.detach().clone() for parameter in model.parameters()]
    which = torch.arange(trials)[:, None]
    for _ in range(epochs):
        model.train()
        for chosen in torch.split(torch.rand(trials, rows).argsort(1), BATCH, 1):
            optimizer.zero_grad()
            X, y = data.train.X[which, chosen], data.train.y[chosen, which].T
            torch.autograd.backward(loss(model(X), y).sum())
            optimizer.step()
        model.eval()
        with torch.no_grad():
            found = loss(model(data.valid.X), data.valid.y)
            better = found < best
            best = torch.where(better, found, best)
            for old, new in zip(kept, model.parameters(), strict=True):
                old[better] = new[better]
    with torch.no_grad():
        for old, new in zip(kept, model.parameters(), strict=True):
            new.copy_(old)
        logits: Tensor = model(data.test.X)
    return logits
