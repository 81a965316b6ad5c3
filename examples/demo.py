"""Train one small network for F1 and one with cross-entropy, and compare their scores.

The data are the handwritten digits of scikit-learn. They are made imbalanced by keeping one in
three of the threes, and difficult by keeping only the middle rows of each image. Run it with
`make demo`.
"""

from __future__ import annotations

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from anyloss import best_threshold
from anyloss.torch import AnyLoss, F1Loss

EPOCHS = 150
FOLDS = 5


def imbalanced() -> tuple[Tensor, Tensor]:
    digits = load_digits()
    three = digits.target == 3
    keep = ~three
    keep[np.flatnonzero(three)[::3]] = True
    x = torch.tensor(digits.data[keep][:, 16:32], dtype=torch.float32)
    return x, torch.tensor(three[keep], dtype=torch.float32)


def train(criterion: nn.Module, x: Tensor, y: Tensor, progress: Progress, name: str) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(x.shape[1], 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in progress.track(range(EPOCHS), description=f"training: {name}"):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    return model


def main() -> None:
    x, y = imbalanced()
    console = Console()
    console.print(
        f"Task: find the threes among {len(y)} partly hidden digits ({int(y.sum())} are threes)."
    )
    losses = {"cross-entropy": nn.BCEWithLogitsLoss(), "F1": F1Loss(cross_entropy=0.1)}
    logits = {name: torch.zeros_like(y) for name in losses}
    tuned = torch.zeros_like(y)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(x, y)
    with Progress(console=console, transient=True) as progress:
        for fold, (train_rows, test_rows) in enumerate(folds, 1):
            scaler = StandardScaler().fit(x[train_rows].numpy())
            scaled = torch.tensor(scaler.transform(x.numpy()), dtype=torch.float32)
            for name, criterion in losses.items():
                label = f"{name}, fold {fold} of {FOLDS}"
                model = train(criterion, scaled[train_rows], y[train_rows], progress, label)
                with torch.no_grad():
                    z = model(scaled)
                logits[name][test_rows] = z[test_rows]
                if name == "cross-entropy":
                    best = best_threshold(y[train_rows], z[train_rows], "f1")
                    tuned[test_rows] = z[test_rows] - best.threshold

    f1 = AnyLoss("f1")
    table = Table("trained with", "hard F1", "soft F1", title="Scores on the test folds")
    for name, z in {**logits, "cross-entropy, threshold tuned": tuned}.items():
        table.add_row(name, f"{f1.score(z, y):.3f}", f"{f1.soft_score(z, y):.3f}")
    console.print(table)
    console.print(
        "Hard F1 is the metric of the decisions. Soft F1 is its differentiable approximation.\n"
        "If the classes are easy to separate, all three models have similar scores."
    )


if __name__ == "__main__":
    main()
