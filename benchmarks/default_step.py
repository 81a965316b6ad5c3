"""The choice of the default step: training from random weights with each step.

    python benchmarks/default_step.py --data ../shared/data --every 2

The data sets are those of `anyloss bench`. Every step has two-fold cross-validation, full-batch
Adam, and the same start, budget and folds, with a linear model and one with 8 hidden units. Prints
the mean test score at threshold 0.5 and the mean rank of each step, the best first.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from torch import nn

from anyloss.benchmark import bundled, from_folder, usable
from anyloss.benchmark.datasets import load
from anyloss.steps import Amplified, Linear, LogitSigmoid, RaisedCosine, Step, Uniform
from anyloss.torch import AnyLoss

STEPS: list[Step] = [
    Amplified(3.0),
    Amplified(5.0),
    Amplified(10.0),
    Amplified(20.0),
    Amplified(73.0),
    Linear(0.2),
    RaisedCosine(0.1),
    RaisedCosine(0.4),
    Uniform(0.5),
    LogitSigmoid(3.0),
]
METRICS = ("f1", "mcc", "balanced_accuracy")
Data = tuple[str, np.ndarray, np.ndarray]


def train(x: torch.Tensor, y: torch.Tensor, loss: AnyLoss, hidden: int) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(x.shape[1], hidden), nn.ReLU()] if hidden else []
    model = nn.Sequential(*layers, nn.Linear(hidden or x.shape[1], 1), nn.Flatten(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(200):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    return model


def test_scores(data: Data) -> np.ndarray:
    """The test scores of one data set: hidden units x metrics x steps."""
    torch.set_num_threads(1)
    _, x, y = data
    scores = np.zeros((2, len(METRICS), len(STEPS)))
    target = torch.tensor(y, dtype=torch.float32)
    for rows, test in StratifiedKFold(2, shuffle=True, random_state=0).split(x, y):
        scaled = torch.tensor(StandardScaler().fit(x[rows]).transform(x), dtype=torch.float32)
        for h, hidden in enumerate((0, 8)):
            for m, metric in enumerate(METRICS):
                for s, step in enumerate(STEPS):
                    loss = AnyLoss(metric, step=step)
                    model = train(scaled[rows], target[rows], loss, hidden)
                    with torch.no_grad():
                        scores[h, m, s] += loss.score(model(scaled[test]), target[test]).item() / 2
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of CSV files with a last column y")
    parser.add_argument("--every", type=int, default=1, help="use every k-th data set")
    parser.add_argument(
        "--rows", type=int, default=2000, help="largest number of rows of each data set"
    )
    arguments = parser.parse_args()
    found = from_folder(arguments.data) if arguments.data else bundled()
    found, _ = usable(found[:: arguments.every], arguments.rows, folds=2)
    sets = [(each.name, *load(each, arguments.rows)) for each in found]
    with Progress(transient=True) as progress, ProcessPoolExecutor(2) as pool:
        results = np.stack(
            list(
                progress.track(pool.map(test_scores, sets), total=len(sets), description="training")
            )
        )
    ranks = (-results).argsort(-1).argsort(-1) + 1
    table = Table("step", "all: mean", "rank", *(f"{m}{h}" for h in ("", " (8)") for m in METRICS))
    for s in np.argsort(-results.mean((0, 1, 2))):
        cells = results[..., s].mean(0).ravel()
        table.add_row(
            repr(STEPS[s]),
            f"{results[..., s].mean():.4f}",
            f"{ranks[..., s].mean():.2f}",
            *(f"{cell:.3f}" for cell in cells),
        )
    Console(width=160).print(f"{len(sets)} data sets", table)


if __name__ == "__main__":
    main()
