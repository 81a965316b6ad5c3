"""Train one small network for F1 and one with cross-entropy, and show both scores side by side.

The data ship with scikit-learn: handwritten digits, made imbalanced by keeping one in three of the
threes, and hard by showing only the middle rows of each picture. Run it with `make demo`.
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
    console.print(f"Is it a three? {len(y)} half-hidden digits, {int(y.sum())} of them threes.")
    losses = {"cross-entropy": nn.BCEWithLogitsLoss(), "F1": F1Loss(cross_entropy=0.1)}
    logits = {name: torch.zeros_like(y) for name in losses}
    tuned = torch.zeros_like(y)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(x, y)
    with Progress(console=console, transient=True) as progress:
        for fold, (rows, test) in enumerate(folds, 1):
            scaler = StandardScaler().fit(x[rows].numpy())
            scaled = torch.tensor(scaler.transform(x.numpy()), dtype=torch.float32)
            for name, criterion in losses.items():
                label = f"{name}, fold {fold} of {FOLDS}"
                model = train(criterion, scaled[rows], y[rows], progress, label)
                with torch.no_grad():
                    z = model(scaled)
                logits[name][test] = z[test]
                if name == "cross-entropy":
                    tuned[test] = z[test] - best_threshold(y[rows], z[rows], "f1").threshold

    f1 = AnyLoss("f1")  # hard score: what you report; soft score: what is trained
    table = Table("trained with", "hard F1", "soft F1", title="Scores on rows not trained on")
    for name, z in {**logits, "cross-entropy, threshold tuned": tuned}.items():
        table.add_row(name, f"{f1.score(z, y):.3f}", f"{f1.soft_score(z, y):.3f}")
    console.print(table)
    console.print(
        "Hard F1 counts decisions; soft F1 is the differentiable stand-in that is trained.\n"
        "Where the classes are easy to separate, all three come out alike."
    )


if __name__ == "__main__":
    main()
