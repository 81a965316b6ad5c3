"""The step and the share of cross-entropy for networks with several classes.

    python benchmarks/default_step_networks.py --images ../shared/data/images/mnist.npz

There are three tasks: 100 easy Gaussians (20 columns, 50 rows each), long-tailed MNIST (ten classes
of 600 to 6 images, a small convolutional network, tested with the training shares), and a tiny
transformer that must find two of 49 tokens. Every loss has the same start, batches and budget.
Prints the test score (macro F1, F1 for the transformer) of each seed, with and without 0.1
cross-entropy.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anyloss._core.backend import Array, Backend
from anyloss.steps import Amplified, Step, Uniform
from anyloss.torch import AnyLoss

Data = tuple[Tensor, Tensor, Tensor, Tensor]  # training and test samples and labels


@dataclass(frozen=True)
class Rescaled(Amplified):
    """Amplified, stretched to the range 0 to 1 for any number of classes."""

    def both(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        floor = 1 / (1 + math.exp(self.scale / 2))
        return tuple((x - floor) / (1 - 2 * floor) for x in super().both(p, q, backend))

    def multiclass(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        scale, others = self._class_scale(p), p.shape[-1] - 1
        floor = 1 / (math.exp(scale) + others)
        a = (super().multiclass(p, q, backend)[0] - floor) / (1 - (others + 1) * floor)
        return a, 1 - a


STEPS: dict[str, Step | None] = {
    "cross-entropy": None,
    "Uniform()": Uniform(),
    "Amplified(10)": Amplified(10.0),
    "Amplified(10), no floor": Rescaled(10.0),
    "Amplified(5), no floor": Rescaled(5.0),
}


def gaussians(seed: int, images: Path) -> tuple[Data, nn.Module, int]:
    g = torch.Generator().manual_seed(seed)
    centres, y = torch.randn(100, 20, generator=g) * 1.6, torch.arange(100).repeat_interleave(50)
    x, new = (centres[y] + torch.randn(len(y), 20, generator=g) for _ in range(2))
    return (x, y, new, y), nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 100)), 512


def long_tailed(seed: int, images: Path) -> tuple[Data, nn.Module, int]:
    given, rng = np.load(images), np.random.default_rng(seed)
    parts = []
    for name, most, least in (("train", 600, 6), ("test", 892, 9)):
        x, y = given[f"x_{name}"], given[f"y_{name}"]
        sizes = [int(most * (least / most) ** (k / 9)) for k in range(10)]
        rows = [rng.permutation(np.flatnonzero(y == k))[:n] for k, n in enumerate(sizes)]
        kept = np.concatenate(rows)
        parts += [torch.tensor(x[kept][:, None] / 255.0).float(), torch.tensor(y[kept]).long()]
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    return (parts[0], parts[1], parts[2], parts[3]), network, 128


class Transformer(nn.Module):
    """Two layers of BERT with random weights, and one logit."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        sizes = {"vocab_size": 50, "intermediate_size": 64, "max_position_embeddings": 16}
        self.model = BertForSequenceClassification(BertConfig(**shape, **sizes, num_labels=1))

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).logits.squeeze(1)


def tokens(seed: int, images: Path) -> tuple[Data, nn.Module, int]:
    x = torch.randint(1, 50, (1200, 12), generator=torch.Generator().manual_seed(seed))
    y = ((x == 5) | (x == 7)).any(1).float()
    return (x[:800], y[:800], x[800:], y[800:]), Transformer(), 64


TASKS: dict[str, tuple[Callable[[int, Path], tuple[Data, nn.Module, int]], int, float]] = {
    "100 Gaussians": (gaussians, 40, 1e-3),
    "long-tailed MNIST": (long_tailed, 40, 1e-3),
    "transformer": (tokens, 12, 2e-3),
}


def train(task: str, step: Step | None, share: float, seed: int, images: Path) -> float:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    make, epochs, rate = TASKS[task]
    (x, y, new, truth), model, size = make(seed, images)
    binary = y.is_floating_point()
    entropy = F.binary_cross_entropy_with_logits if binary else F.cross_entropy
    judge = AnyLoss("f1")
    loss = entropy if step is None else AnyLoss("f1", step=step, cross_entropy=share)
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(size):
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        return judge.score(model.eval()(new), truth).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=Path, required=True, help="mnist.npz")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    for task in TASKS:
        for name, step in STEPS.items():
            for share in (0.0,) if step is None else (0.0, 0.1):
                found = [
                    train(task, step, share, seed, arguments.images)
                    for seed in range(arguments.seeds)
                ]
                added = " + 0.1 cross-entropy" if share else ""
                scores = " ".join(f"{score:.3f}" for score in found)
                print(f"{task} | {name}{added} | {np.mean(found):.3f} | {scores}", flush=True)


if __name__ == "__main__":
    main()
