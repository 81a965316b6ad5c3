"""The score of a mask without a positive pixel in a loss per image, measured on empty images.

    python benchmarks/empty_masks.py --images ../shared/data/images/mnist.npz --seeds 5

Images of 64 x 64 pixels with digits on clutter, of which a given share has no digit, are segmented
by a small U-Net. It is trained for Dice per image with each value of `zero_division`, and for Dice
pooled over the batch. Prints the mean Dice of the test images with a digit, the share of empty test
images that stay empty, and the mean of both, which is Dice per image if a correctly empty mask has
score 1.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from anyloss.torch import AnyLoss

SIZE, TRAIN, TEST, EPOCHS, BATCH = 64, 600, 400, 12, 16
LOSSES = {
    "per image, skip": {"per_sample": True, "zero_division": "skip"},
    "per image, 0": {"per_sample": True, "zero_division": 0},
    "per image, 1": {"per_sample": True, "zero_division": 1},
    "pooled": {},
}


class UNet(nn.Module):
    """A U-Net with two levels of eight and sixteen channels."""

    def __init__(self, channels: int = 1, classes: int = 1) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(channels, 8, 3, padding=1), nn.ReLU())
        self.inner = nn.Sequential(
            nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=4),
        )  # fmt: skip
        last = nn.Conv2d(8, classes, 1)
        self.out = nn.Sequential(nn.Conv2d(24, 8, 3, padding=1), nn.ReLU(), last)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down(x)
        return self.out(torch.cat([first, self.inner(first)], 1))


def scenes(
    digits: np.ndarray, n: int, empty: float, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Images with pieces of digits as clutter and mostly one whole digit, which is the mask."""
    x = np.zeros((n, 1, SIZE, SIZE), np.float32)
    y = np.zeros_like(x)
    for i in range(n):
        for _ in range(12):
            r, c, k = (
                rng.integers(0, SIZE - 9),
                rng.integers(0, SIZE - 9),
                rng.integers(len(digits)),
            )
            a, b = rng.integers(0, 19, 2)
            x[i, 0, r : r + 9, c : c + 9] = np.maximum(
                x[i, 0, r : r + 9, c : c + 9], digits[k, a : a + 9, b : b + 9]
            )
        if rng.random() >= empty:
            r, c, k = (
                rng.integers(0, SIZE - 28),
                rng.integers(0, SIZE - 28),
                rng.integers(len(digits)),
            )
            place = (i, 0, slice(r, r + 28), slice(c, c + 28))
            x[place] = np.maximum(x[place], digits[k])
            y[place] = digits[k] > 0.5
    return torch.tensor(x + rng.normal(0, 0.1, x.shape).astype(np.float32)), torch.tensor(y)


def train(job: tuple[Path, float, int, str]) -> tuple[float, float]:
    """Dice of the test images with a digit, and the share of empty ones that stay empty."""
    images, empty, seed, name = job
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    digits = np.load(images)["x_train"][seed * 5000 : seed * 5000 + 5000].astype(np.float32) / 255
    x, y = scenes(digits, TRAIN, empty, rng)
    new, truth = scenes(digits, TEST, 0.5, rng)
    torch.manual_seed(seed)
    model, loss = UNet(), AnyLoss("f1", cross_entropy=0.1, **LOSSES[name])
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(EPOCHS):
        for rows in torch.randperm(TRAIN).split(BATCH):
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        decided = (model(new) > 0).double()
    has = truth.amax((1, 2, 3)) > 0
    dice = AnyLoss("f1", per_sample=True).score(decided[has] * 2 - 1, truth[has]).item()
    return dice, (decided[~has].amax((1, 2, 3)) == 0).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=Path, required=True, help="mnist.npz with x_train")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    table = Table(
        "empty in training", "loss", "Dice with a digit", "empty stays empty", "mean of both"
    )
    for empty in (0.2, 0.5, 0.8):
        for name in LOSSES:
            jobs = [(arguments.images, empty, seed, name) for seed in range(arguments.seeds)]
            with ProcessPoolExecutor(2) as pool:
                found = np.array(list(pool.map(train, jobs)))
            mean, both = found.mean(0), found.mean(1)
            spread = both.std(ddof=1) if len(both) > 1 else float("nan")
            cells = [*(f"{m:.3f}" for m in mean), f"{both.mean():.3f} +- {spread:.3f}"]
            table.add_row(f"{empty:.0%}", name, *cells)
            print(f"{empty:.0%} {name}: {' '.join(cells)}", flush=True)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
