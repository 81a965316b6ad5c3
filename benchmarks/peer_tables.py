"""The measurements of `peers.py` and their tables."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import torch
from empty_masks import UNet
from measure import (
    batch,
    forward_backward,
    in_new_process,
    medians,
    paired_difference,
    peak_in_gradients,
)
from peer_losses import CROSS_ENTROPY, STEPS, Kind, entries
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from anyloss.torch import F1Loss

LARGEST_QUICK = 10**6  # numbers of a case
SMALLEST_PEAK = 5 * 10**5  # numbers; the memory of fewer is lost among that of the process
SMALL = 40_000  # numbers of the batch that loads the code before memory is measured
AGREEMENT = 1e-5
LIBRARIES = ("torch", "monai", "segmentation-models-pytorch", "kornia", "keras", "numpy")


class Measured(NamedTuple):
    """What was measured of one loss in one case."""

    time: float  # ratio to cross-entropy
    peak: float | None  # in gradients
    value: float


Case = dict[tuple[Kind, str], Measured]  # by kind and owner


def shape_of(name: str) -> tuple[int, ...]:
    return tuple(int(x) for x in name.split("-")[0].split("x"))


def tensors(name: str, shape: Sequence[int]) -> list[Tensor]:
    """Input, target and weight as in a case, of a shape that may differ from that of the case."""
    logits, labels = batch(*shape, margin=10.0 if name.endswith("-fitted") else 1.5)
    return [logits, labels, torch.rand(labels.shape) + 0.5]


def peak(name: str, kind: Kind, owner: str) -> float:
    """The peak memory of one loss; runs in a process of its own."""
    shape = shape_of(name)
    (entry,) = (e for e in entries(shape, False) if (e.kind, e.owner) == (kind, owner))
    longest, small = shape.index(max(shape)), list(shape)
    small[longest] = math.ceil(SMALL * shape[longest] / math.prod(shape))
    return peak_in_gradients(entry.loss, tensors(name, small), tensors(name, shape))


def measure(name: str, quick: bool) -> Case:
    """Time, memory and value of all losses of a case."""
    shape = shape_of(name)
    data = tensors(name, shape)
    found = {(e.kind, e.owner): e.loss for e in entries(shape, compiled=not quick)}
    values = {key: loss(*data).item() for key, loss in found.items()}
    works = {key: partial(forward_backward, loss, *data) for key, loss in found.items()}
    times = medians(works, 3.0 if quick else 20.0)
    torch.compiler.reset()
    has_peak = math.prod(shape) >= SMALLEST_PEAK
    peaks = {
        key: in_new_process(peak, name, *key) for key in found if has_peak and not key[0].compiled
    }
    unit = times[CROSS_ENTROPY, "torch"]
    return {key: Measured(times[key] / unit, peaks.get(key), values[key]) for key in found}


def differing(case: Case) -> list[str]:
    """The peers whose value is not ours; they are not compared."""
    return [
        f"{owner} ({kind})"
        for (kind, owner), found in case.items()
        if (kind, "ours") in case and not abs(found.value - case[kind, "ours"].value) <= AGREEMENT
    ]


def fastest_peer(case: Case, kind: Kind) -> tuple[float, str] | None:
    """The time and the owner of the fastest peer of a kind."""
    others = differing(case)
    times = [
        (found.time, owner)
        for (own_kind, owner), found in case.items()
        if own_kind == kind and owner != "ours" and f"{owner} ({kind})" not in others
    ]
    return min(times, default=None)


def verdict(ratio: float, aim: float, enough: float | None = None) -> str:
    """An aim is narrowly met below `enough`, which is 10 % above the aim if none is given."""
    word = "passes" if ratio <= aim else "narrowly" if ratio <= (enough or 1.1 * aim) else "missed"
    return f"{ratio:.2f} {word}"


def against_peers(case: Case, kind: Kind, name: str) -> str:
    """Ours against the fastest peer; a step that no peer has for classes, against the default."""
    several = kind.step and len(shape_of(name)) > 1 and shape_of(name)[1] > 1
    peer = fastest_peer(case, kind._replace(step="") if several else kind)
    if peer is None:
        return ""
    aims = (2.0,) if several else (1.3,) if kind.metric == "MCC" else (1.0, 1.3)
    return f"{verdict(case[kind, 'ours'].time / peer[0], *aims)} ({peer[1]})"


def against_cross_entropy(case: Case, kind: Kind, name: str) -> str:
    """Ours against cross-entropy, for one column without weights or further terms."""
    numbers, *more = shape_of(name)
    aim = 2.0 if numbers == 256 else 1.0 if numbers >= 65536 else None
    if more or aim is None or kind != kind.plain():
        return ""
    return verdict(case[kind, "ours"].time, aim)


def memory(case: Case, kind: Kind, name: str) -> str:
    found = case[kind, "ours"].peak
    return "" if found is None else verdict(found, 2.0)


def matrix(head: list[str], rows: dict[tuple[str, ...], list[str]], cases: dict[str, Case]) -> str:
    """A Markdown table with one column per case, without the rows that are empty."""
    lines = [[*head, *map(title, cases)], ["---"] * (len(head) + len(cases))]
    lines += [[*names, *cells] for names, cells in rows.items() if any(cells)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def title(name: str) -> str:
    shape, *more = name.split("-")
    return " ".join([f"{int(shape):,}" if shape.isdigit() else shape, *more])


def aims(cases: dict[str, Case], judge: Callable[[Case, Kind, str], str]) -> str:
    """The verdicts on each of ours."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for kind in dict.fromkeys(k for case in cases.values() for k, owner in case if owner == "ours"):
        judged = [judge(c, kind, name) if (kind, "ours") in c else "" for name, c in cases.items()]
        rows[str(kind),] = judged
    return matrix(["ours"], rows, cases)


def figures(
    cases: dict[str, Case], figure: Callable[[Measured], float | None], only: Kind | None = None
) -> str:
    """One figure of all losses or of those of one kind; losses of a kind stand together."""
    losses = {loss for case in cases.values() for loss in case if only in (None, loss[0])}
    rows = {}
    for kind, owner in sorted(losses, key=lambda loss: (loss[0], loss[1] != "ours", loss[1])):
        found = [case.get((kind, owner)) for case in cases.values()]
        values = [None if x is None else figure(x) for x in found]
        rows[str(kind), owner] = ["" if x is None else f"{x:.2f}" for x in values]
    return matrix(["loss", "of"], rows, cases)


def machine() -> str:
    """The date, the machine and the versions."""
    processor = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.processor(),
    )  # fmt: skip
    versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return (
        f"{date.today()}, {os.cpu_count()} cores of {processor} of which one thread is used, "
        f"Python {platform.python_version()}, {versions}. The default step is {STEPS['']!r}."
    )


def training_steps(quick: bool) -> str:
    """Steps with F1 beside the same steps with cross-entropy, in pairs."""

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 1))

    tasks = {
        "30-64-1 network, batch 512": (network, (512, 30), (512, 1), 3000),
        "U-Net, 256 x 256, batch 4": (UNet, (4, 1, 256, 256), (4, 1, 256, 256), 100),
    }
    lines = ["| training step | F1 against cross-entropy | 95 % interval |", "| --- | --- | --- |"]
    for name, (model, inputs, outputs, pairs) in tasks.items():
        x, (_, y) = torch.randn(inputs), batch(*outputs)
        steps = [trainer(model, f, x, y) for f in (binary_cross_entropy_with_logits, F1Loss())]
        middle, low, high = paired_difference(*steps, pairs // 5 if quick else pairs)
        lines.append(f"| {name} | {middle:+.1%} | {low:+.1%} to {high:+.1%} |")
    return "\n".join(lines) + "\n"


def trainer(
    model: Callable[[], nn.Module], loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor
) -> Callable[[], None]:
    torch.manual_seed(0)
    module = model()
    # At rate 0 all steps do the same work; the time of a loss may depend on its inputs.
    optimizer = torch.optim.Adam(module.parameters(), lr=0.0)

    def step() -> None:
        optimizer.zero_grad()
        loss(module(x), y).backward()
        optimizer.step()

    return step


JUDGES = {
    "against the fastest peer": against_peers,
    "against cross-entropy": against_cross_entropy,
    "peak memory, in gradients": memory,
}
FIGURES = {
    "time, as a ratio to cross-entropy": attrgetter("time"),
    "peak memory, in gradients": attrgetter("peak"),
}


def print_group(group: str, cases: dict[str, Case]) -> None:
    for what, judge in JUDGES.items():
        print_part(f"{group}: ours {what}", aims(cases, judge))
    for what, figure in FIGURES.items():
        print_part(f"{group}: {what}", figures(cases, figure))
    others = [f"{name}: {who}" for name, case in cases.items() for who in differing(case)]
    print(f"Losses that differ from ours by more than {AGREEMENT}: {'; '.join(others) or 'none'}.")
    print(flush=True)


def print_part(title: str, text: str) -> None:
    if text.count("\n") > 2:  # more than a head
        print(f"## {title[0].upper()}{title[1:]}\n\n{text}")


def summary(cases: dict[str, Case]) -> str:
    """How many aims are reached, and those that are missed."""
    lines = ["| ours | passes | narrowly | missed |", "| --- | --- | --- | --- |"]
    missed = []
    for what, judge in JUDGES.items():
        words = []
        for name, case in cases.items():
            found = {k: judge(case, k, name).split() for k, owner in case if owner == "ours"}
            words += [text[1] for text in found.values() if text]
            over = [f"{k} {text[0]}" for k, text in found.items() if "missed" in text]
            missed += [f"- {what}, {title(name)}: {'; '.join(over)}"] * bool(over)
        counts = [str(words.count(word)) for word in ("passes", "narrowly", "missed")]
        lines.append(f"| {what} | {' | '.join(counts)} |")
    return "\n".join([*lines, "", "Missed:", "", *missed]) + "\n"


def run(groups: dict[str, list[str]], quick: bool) -> None:
    """Measure the cases and print the tables."""
    torch.set_num_threads(1)
    print(f"# Our losses beside those of other libraries\n\nMeasured on {machine()}\n", flush=True)
    every: dict[str, Case] = {}
    for group, names in groups.items():
        cases = {}
        for name in track(names, group, console=Console(stderr=True)):
            if not quick or math.prod(shape_of(name)) <= LARGEST_QUICK:
                cases[name] = measure(name, quick)
        if cases:
            print_group(group, cases)
        every |= cases
    print_part(
        "F1 in all cases: time, as a ratio to cross-entropy",
        figures(every, attrgetter("time"), Kind("F1")),
    )
    print(f"## Training steps\n\n{training_steps(quick)}")
    print(f"## Summary\n\n{summary(every)}")
