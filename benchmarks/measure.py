"""What the scripts share: batches, processor time of functions that take turns, peak memory."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

Work = Callable[[], object]
Key = TypeVar("Key")
# What a new process has imported before it is measured; names that are not installed are skipped.
PRELOAD = ["anyloss.torch", "monai.losses", "kornia.losses", "keras"]


def batch(*shape: int, margin: float = 1.5) -> tuple[Tensor, Tensor]:
    """Normal logits, moved by a margin to the side of their labels.

    A tenth of the labels is positive; with an axis 1 longer than 1 they are class indices.
    """
    torch.manual_seed(0)
    logits = torch.randn(shape)
    if len(shape) > 1 and shape[1] > 1:
        labels = torch.randint(shape[1], (shape[0], *shape[2:]))
        logits.scatter_add_(1, labels.unsqueeze(1), torch.tensor(margin).expand(shape))
    else:
        labels = (torch.rand(shape) < 0.1).float()
        logits.add_(labels, alpha=2 * margin).sub_(margin)
    return logits.requires_grad_(), labels


def forward_backward(loss: Callable[..., Tensor], logits: Tensor, *rest: Tensor) -> None:
    logits.grad = None
    loss(logits, *rest).backward()


def timed(work: Work) -> float:
    """The processor time of this thread."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def medians(works: dict[Key, Work], seconds: float) -> dict[Key, float]:
    """The median time of each function; all take turns in random order for about `seconds`."""
    for work in works.values():  # the first call loads or compiles the code
        work()
    turn = sum(timed(work) for work in works.values())
    times: dict[Key, list[float]] = {name: [] for name in works}
    order = list(works)
    for _ in range(max(9, min(2000, int(seconds / turn)))):
        random.shuffle(order)
        for name in order:
            times[name].append(timed(works[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def paired_difference(base: Work, other: Work, pairs: int) -> tuple[float, float, float]:
    """The median of `other - base` over that of `base`, with a 95 % bootstrap interval."""
    both = [base, other]
    for work in both * 3:
        work()
    times = np.empty((pairs, 2))
    for pair in times:
        for k in random.sample((0, 1), 2):
            pair[k] = timed(both[k])

    def ratio(rows: np.ndarray) -> np.ndarray:
        return np.median(rows[..., 1] - rows[..., 0], -1) / np.median(rows[..., 0], -1)

    drawn = times[np.random.default_rng(0).integers(pairs, size=(2000, pairs))]
    low, high = np.quantile(ratio(drawn), [0.025, 0.975])
    return float(ratio(times)), float(low), float(high)


def in_new_process(function: Callable[..., float], *arguments: object) -> float:
    """The result of a function in a process of its own, forked from one that has only imported."""
    # Freed memory is returned at once, so that memory that is reused is counted. It holds for the
    # processes that start from here on.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def peak_in_gradients(
    loss: Callable[..., Tensor], small: list[Tensor], full: list[Tensor]
) -> float:
    """The peak memory of a loss beyond its inputs, in sizes of one gradient (Linux).

    Call it by `in_new_process`. A smaller batch loads the code before. The scratch memory that a
    loss keeps from call to call is counted as far as it grows with the batch.
    """
    forward_backward(loss, *small)
    small[0].grad = None
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _status()
    forward_backward(loss, *full)
    after = _status()
    code = after["RssFile"] - before["RssFile"]  # libraries' pages that were not needed before
    return (after["VmHWM"] - before["VmRSS"] - code) / full[0].nbytes


def _status() -> dict[str, int]:
    """The memory of this process by the kernel's names, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {
        line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines if line.endswith("kB")
    }
