"""A small residual network for images, which is trained in the same way with every loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from anyloss._core.backend import Array
from papers.data import require_file

WIDTH = 8  # of the first of 6 layers; the paper's ResNet50 has 50 layers and starts with 64
BATCH, RATE = 256, 2e-3

Loss = Callable[[Tensor, Tensor], Tensor]  # logits and labels of a batch


class Images(NamedTuple):
    """Training and test images as bytes `(n, height, width, channels)`, and their classes."""

    x: Array
    y: Array
    x_test: Array
    y_test: Array
    mean: Array  # of each channel over the training images
    deviation: Array

    def scaled(self, x: Array) -> Array:
        """Standardised images `(n, channels, height, width)`."""
        return ((x - self.mean) / self.deviation).astype(np.float32).transpose(0, 3, 1, 2)


def read_images(folder: Path | None, name: str) -> Images:
    """Read a file of images, `images/NAME.npz` of the data folder."""
    with np.load(require_file(folder, f"images/{name}.npz")) as file:
        x, y, x_test, y_test = (file[k] for k in ("x_train", "y_train", "x_test", "y_test"))
    x, x_test = (a.reshape(*a.shape[:3], -1) for a in (x, x_test))
    mean, deviation = (f((0, 1, 2), dtype=np.float64) for f in (x.mean, x.std))
    return Images(x, y, x_test, y_test, mean, deviation)


def sample(y: Array, each: int | None, seed: int) -> Array:
    """A sample of rows with `each` of every class, or all rows in random order.

    >>> np.bincount(np.repeat([0, 1], 9)[sample(np.repeat([0, 1], 9), 4, seed=0)]).tolist()
    [4, 4]
    """
    order = np.random.default_rng(seed).permutation(len(y))
    chosen = [order[y[order] == k][:each] for k in np.unique(y)]
    return np.sort(np.concatenate(chosen)) if each else order


def thinned(positive: Array, share: float, seed: int) -> Array:
    """All negative rows, and a sample of the positive ones with this share of all rows.

    >>> rows = thinned(np.repeat([True, False], [50, 90]), 0.1, seed=0)
    >>> len(rows), int((rows < 50).sum())
    (100, 10)
    """
    keep = round(share / (1 - share) * np.sum(~positive))
    rng = np.random.default_rng(seed)
    few = rng.choice(np.flatnonzero(positive), min(keep, int(positive.sum())), replace=False)
    return np.sort(np.concatenate([few, np.flatnonzero(~positive)]))


def _layer(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class _Block(nn.Module):
    """Two convolutions and a shortcut, which halve the height and width."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.second = _layer(inputs, outputs, stride=2), _layer(outputs, outputs)
        self.short = _layer(inputs, outputs, size=1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = (self.second(self.first(x).relu()) + self.short(x)).relu()
        return found


def network(channels: int) -> nn.Module:
    """A convolution, two residual blocks, the mean over the image, one logit."""
    return nn.Sequential(
        _layer(channels, WIDTH, stride=2), nn.ReLU(),
        _Block(WIDTH, 2 * WIDTH), _Block(2 * WIDTH, 4 * WIDTH),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * WIDTH, 1), nn.Flatten(0),
    )  # fmt: skip


def fit(loss: Loss, X: Array, y: Array, X_test: Array, epochs: int, seed: int) -> Array:
    """Train and return the logits of the test images; the learning rate has a cosine schedule."""
    images, labels = torch.from_numpy(X), torch.as_tensor(y, dtype=torch.float32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = network(images.shape[1])
        optimizer = torch.optim.Adam(model.parameters(), RATE)
        batches = len(y) // BATCH  # a small last batch would be a poor sample for the metric
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * batches)
        for _ in range(epochs):
            for rows in torch.randperm(len(y))[: batches * BATCH].view(batches, BATCH):
                optimizer.zero_grad()
                torch.autograd.backward(loss(model(images[rows]), labels[rows]))
                optimizer.step()
                schedule.step()
    model.eval()
    with torch.no_grad():
        logits: Array = torch.cat(
            [model(part) for part in torch.split(torch.from_numpy(X_test), 2000)]
        ).numpy()
    return logits.astype(float)
