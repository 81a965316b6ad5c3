"""Batches too small for the metric: 64 rows of a data set with 1 % positives.

    python benchmarks/small_batches.py            # five seeds, some minutes
    python benchmarks/small_batches.py --seeds 2

The model, the F1 loss and the number of epochs are the same; only the batches differ. The others
should reach the score of the full batch. Scores are those of the test half at the threshold 0.5.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from anyloss.torch import F1Loss, StratifiedBatchSampler

ROWS = 64
EPOCHS = 6
DIABETES = Path(__file__).parents[2] / "shared" / "data" / "tabular" / "diabetes_100k.csv.gz"


class HalvedData(NamedTuple):
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    hidden: int  # units of the hidden layer; 0 is a linear model


def synthetic(seed: int) -> HalvedData:
    """Two overlapping clouds in eight dimensions, 1 % of 80,000 rows positive; a linear model."""
    generator = np.random.default_rng(seed)
    y = generator.random(80_000) < 0.01
    x = generator.normal(size=(len(y), 8)) + y[:, None] * generator.normal(size=8) * 1.2
    return halves(x, y, generator, hidden=0)


def diabetes(seed: int) -> HalvedData:
    """A real data set of 100,000 people, its positives thinned to 1 %; a small network."""
    import pandas as pd

    generator = np.random.default_rng(seed)
    frame = pd.read_csv(DIABETES)
    y = frame.pop("y").to_numpy() == 1
    positives = generator.permutation(np.flatnonzero(y))
    kept = np.concatenate([np.flatnonzero(~y), positives[: (~y).sum() // 99]])
    return halves(frame.to_numpy(float)[kept], y[kept], generator, hidden=16)


def halves(x: np.ndarray, y: np.ndarray, generator: np.random.Generator, hidden: int) -> HalvedData:
    order = generator.permutation(len(y))
    train, test = order[::2], order[1::2]
    x = (x - x[train].mean(0)) / x[train].std(0)
    parts = (x[train], y[train], x[test], y[test])
    return HalvedData(*(torch.tensor(part, dtype=torch.float32) for part in parts), hidden)


def shuffled(labels: Tensor, seed: int) -> Iterable[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(len(labels), generator=generator).split(ROWS)


def stratified(labels: Tensor, seed: int) -> Iterable[list[int]]:
    sampler = StratifiedBatchSampler(labels, ROWS, seed=seed)
    while True:
        yield from sampler


def test_f1(
    split: HalvedData, seed: int, batches: Iterable, steps: int, rate: float, **given
) -> float:
    torch.manual_seed(seed)
    columns = split.x.shape[1]
    hidden = [nn.Linear(columns, split.hidden), nn.ReLU()] if split.hidden else []
    model = nn.Sequential(*hidden, nn.Linear(split.hidden or columns, 1))
    loss, optimizer = F1Loss(**given), torch.optim.Adam(model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _, batch in zip(range(steps), batches, strict=False):
        optimizer.zero_grad()
        loss(model(split.x[batch]).squeeze(1), split.y[batch]).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return loss.score(model(split.x_test).squeeze(1), split.y_test).item()


def methods(split: HalvedData, seed: int) -> dict[str, float]:
    steps = EPOCHS * len(split.y) // ROWS
    small = {"steps": steps, "rate": 0.003}
    whole = iter(lambda: slice(None), None)
    return {
        "full batch": test_f1(split, seed, whole, steps=400, rate=0.03),
        "64 rows, naive": test_f1(split, seed, shuffled(split.y, seed), **small),
        "stratified": test_f1(split, seed, stratified(split.y, seed), **small),
        "memory 0.98": test_f1(split, seed, shuffled(split.y, seed), **small, memory=0.98),
        "stratified, memory 0.98": test_f1(
            split, seed, stratified(split.y, seed), **small, memory=0.98
        ),
        "stratified, memory 0.995": test_f1(
            split, seed, stratified(split.y, seed), **small, memory=0.995
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    warnings.filterwarnings("ignore", message=".*have no positive sample")
    for data in (synthetic, diabetes) if DIABETES.exists() else (synthetic,):
        runs = [methods(data(seed), seed) for seed in track(range(seeds), data.__name__)]
        table = Table(
            "batches", "mean test F1", "minus full batch", "worst seed", title=data.__name__
        )
        for name in runs[0]:
            gaps = [run[name] - run["full batch"] for run in runs]
            table.add_row(
                name,
                f"{statistics.mean(run[name] for run in runs):.4f}",
                f"{statistics.mean(gaps):+.4f}",
                f"{min(gaps):+.4f}",
            )
        Console().print(table)


if __name__ == "__main__":
    main()
