"""The network of Bridging the Gap, 32-16-1 with dropout, with all trials of a loss trained at once.

Every trial has its own split, scaling, start and batches. A layer has one weight of shape
`(trials, inputs, outputs)`, and the loss is computed per column, so that the gradient of a trial
does not depend on the other trials. Adam works elementwise.
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

# From logits and labels `(rows, trials)` to one loss per trial.
Criterion = Callable[[Tensor, Tensor], Tensor]


class Part(NamedTuple):
    """Rows `(trials, rows, columns)` and labels `(rows, trials)`."""

    X: Tensor
    y: Tensor


class TrialData(NamedTuple):
    """The training rows, the validation rows that choose the epoch, and the test rows."""

    train: Part
    valid: Part
    test: Part


def split_trials(X: Array, y: Array, trials: int) -> TrialData:
    """A stratified split of 64 : 16 : 20 for each trial, scaled by its training rows."""
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
    return TrialData(*(_stacked(part) for part in parts))


def _stacked(part: list[tuple[Array, Array]]) -> Part:
    """The rows of all trials as one tensor."""
    X, y = ([torch.as_tensor(x, dtype=torch.float32) for x in xs] for xs in zip(*part, strict=True))
    return Part(torch.stack(X), torch.stack(y, 1))


class Perceptrons(nn.Module):
    """One network per trial, initialised as PyTorch's `Linear`."""

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
            if k and self.training:  # several times faster than PyTorch's dropout on the CPU
                X = X * (torch.rand(X.shape) >= DROPOUT) / (1 - DROPOUT)
            X = torch.baddbmm(bias, X, weight)
        return X[..., 0].T


def fit(data: TrialData, loss: Criterion, epochs: int, seed: int = 0) -> Tensor:
    """Train and return the logits of the test rows `(rows, trials)`.

    The weights of each trial are those of its lowest validation loss.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _fit(data, loss, epochs)


def _fit(data: TrialData, loss: Criterion, epochs: int) -> Tensor:
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
