"""Time and memory of a loss, forward and backward, as ratios to BCE-with-logits in the same run.

    python benchmarks/loss.py            # 32 rows to 16 million, one thread
    python benchmarks/loss.py --quick    # up to a million rows

The losses take turns within one run, so that a busy machine slows all of them equally. The figure
is the ratio of the medians. Peak memory is measured in a separate process, beyond inputs and
imports.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from anyloss.torch import BalancedAccuracyLoss, F1Loss, MCCLoss

Loss = Callable[[Tensor, Tensor], Tensor]


def published_f1(logits: Tensor, y: Tensor) -> Tensor:
    """The plain formula of the paper: probabilities, amplification, four sums."""
    a = 1 / (1 + torch.exp(-73.0 * (torch.sigmoid(logits) - 0.5)))
    tp, fn, fp = (y * a).sum(), (y * (1 - a)).sum(), ((1 - y) * a).sum()
    return 1 - 2 * tp / (2 * tp + fp + fn)


def mse(logits: Tensor, y: Tensor) -> Tensor:
    return nn.functional.mse_loss(torch.sigmoid(logits), y)


LOSSES: dict[str, Loss] = {
    "BCE": binary_cross_entropy_with_logits,
    "F1": F1Loss(),
    "MCC": MCCLoss(),
    "balanced accuracy": BalancedAccuracyLoss(),
    "plain published F1": published_f1,
    "MSE": mse,
}


def batch(rows: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(rows).requires_grad_(), (torch.rand(rows) < 0.1).float()


def forward_backward(loss: Loss, logits: Tensor, y: Tensor) -> None:
    logits.grad = None
    loss(logits, y).backward()


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median time of each function; the functions take turns in random order."""
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    order = list(works)
    for _ in range(repeats):
        random.shuffle(order)
        for name in order:
            times[name].append(timed(works[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def peak_megabytes(name: str, rows: int) -> float:
    """The peak memory of a new process that runs one loss, beyond its memory before."""
    command = [sys.executable, __file__, "--peak", name, "--rows", str(rows)]
    # Freed memory is returned at once, so that reused memory is counted.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout)


def print_peak(name: str, rows: int) -> None:
    forward_backward(LOSSES[name], *batch(40_000))  # loads the code
    logits, y = batch(rows)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here (Linux)
    before = _status("VmRSS")
    forward_backward(LOSSES[name], logits, y)
    print((_status("VmHWM") - before) / 1e3)


def _status(field: str) -> int:
    """A line of the kernel's status of this process, in kB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise OSError(f"{field} is not in /proc/self/status")


def training_step_ratio(repeats: int) -> float:
    """A step of a 30-64-1 network, batch 512, Adam: F1 against BCE."""
    torch.manual_seed(0)
    x, y = torch.randn(512, 30), (torch.rand(512) < 0.1).float()

    def trainer(loss: Loss) -> Callable[[], None]:
        model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 1))
        optimizer = torch.optim.Adam(model.parameters())

        def step() -> None:
            optimizer.zero_grad()
            loss(model(x).squeeze(1), y).backward()
            optimizer.step()

        return step

    times = interleaved({name: trainer(LOSSES[name]) for name in ("BCE", "F1")}, repeats)
    return times["F1"] / times["BCE"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="up to a million rows only")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.peak:
        print_peak(arguments.peak, arguments.rows)
    else:
        run(arguments.quick)


def run(quick: bool) -> None:
    sizes = [32, 256, 4096, 65536, 2**20] + ([] if quick else [2**22, 2**24])
    time_table = Table("rows", *LOSSES, title="time, ratio to BCE")
    peak_table = Table("rows", *LOSSES, title="peak memory, ratio to BCE")
    with Progress(transient=True) as progress:
        for rows in progress.track(sizes, description="timing"):
            data = batch(rows)
            works = {k: partial(forward_backward, f, *data) for k, f in LOSSES.items()}
            times = interleaved(works, max(7, min(3000, 60_000_000 // rows)))
            time_table.add_row(f"{rows:,}", *(f"{t / times['BCE']:.2f}" for t in times.values()))
        for rows in progress.track([n for n in sizes if n >= 2**20], description="memory"):
            peaks = {name: peak_megabytes(name, rows) for name in LOSSES}
            peak_table.add_row(f"{rows:,}", *(f"{p / peaks['BCE']:.2f}" for p in peaks.values()))
    console = Console()
    console.print(time_table)
    console.print(peak_table)
    console.print(f"training step, 30-64-1, batch 512, Adam: {training_step_ratio(3000):.3f} x BCE")


if __name__ == "__main__":
    main()
