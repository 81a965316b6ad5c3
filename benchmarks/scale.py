"""Time and memory by the number of rows, and the bytes that the ranks exchange.

    python benchmarks/scale.py            # ten thousand rows to 100 million: 3 GB, minutes
    python benchmarks/scale.py --quick    # up to ten million

Time is processor time per row on one thread, as a ratio to that of a million rows in the same run.
Memory is the peak beyond the inputs, in sizes of one gradient.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from functools import partial

import torch
from measure import batch, forward_backward, in_new_process, peak_in_gradients
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from anyloss.torch import AnyLoss
from anyloss.torch.batch import make_batch
from anyloss.torch.loss import batch_loss

LOSS = AnyLoss("f1")
BASE = 1_000_000


def count(logits: Tensor, y: Tensor) -> None:
    with torch.no_grad():
        LOSS(logits, y)


WORKS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "soft counts": count,
    "true score": LOSS.score,
    "gradient": partial(forward_backward, LOSS),
}


def times_per_row(sizes: list[int]) -> dict[tuple[str, int], float]:
    """The lowest processor time per row of each function, with the sizes in random order."""
    data = {rows: batch(rows) for rows in sizes}
    best: dict[tuple[str, int], float] = {}
    turns = [(rows, turn) for rows in sizes for turn in range(max(3, min(50, 10**7 // rows)))]
    random.Random(0).shuffle(turns)
    for rows, _ in track(turns, "timing"):
        for name, work in WORKS.items():
            start = time.process_time()
            work(*data[rows])
            spent = (time.process_time() - start) / rows
            best[name, rows] = min(spent, best.get((name, rows), spent))
    return best


def peak(rows: int) -> float:
    """The peak memory of the gradient; runs in a process of its own."""
    return peak_in_gradients(LOSS, [*batch(40_000)], [*batch(rows)])


def bytes_exchanged(classes: int, **given: object) -> int:
    """The bytes that one rank sends to the others in one step."""
    loss, sent = AnyLoss("f1", **given), []

    def record(step: int, sums: Tensor) -> tuple[Tensor, float]:
        sent.append(sums.nbytes)
        return sums, 1.0

    rows = make_batch(
        torch.zeros(64, classes), torch.zeros(64, classes), None, loss.settings.options
    )
    batch_loss(rows, loss.settings, record)
    return sum(sent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="up to ten million rows")
    sizes = [10**k for k in range(4, 8 if parser.parse_args().quick else 9)]
    torch.set_num_threads(1)
    peaks = {rows: in_new_process(peak, rows) for rows in track(sizes, "memory") if rows >= BASE}
    times = times_per_row(sizes)
    table = Table("rows", *(f"{name}, per row" for name in WORKS), "peak, in gradients")
    for rows in sizes:
        ratios = [f"{times[name, rows] / times[name, BASE]:.2f}" for name in WORKS]
        table.add_row(f"{rows:,}", *ratios, f"{peaks[rows]:.2f}" if rows in peaks else "")
    console = Console()
    console.print(table)
    for classes in (1, 10, 1000):
        console.print(f"{classes} classes: {bytes_exchanged(classes):,} bytes per step and rank")
    console.print(f"1 class, three thresholds: {bytes_exchanged(1, thresholds=[0.2, 0.5, 0.8])}")


if __name__ == "__main__":
    main()
