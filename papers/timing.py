"""AnyLoss's Table 8: the learning time of the losses as a ratio to that of BCE, in one run.

The losses take turns, one epoch of Adam steps on batches of a twentieth of the rows at a time, for
several rounds. The figure is the median processor time of a loss divided by that of BCE. The losses
are those of this package and not the authors' Keras losses, so that only their order can be
compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anyloss._core.backend import Array
from anyloss.torch import AnyLoss
from papers import network_training, runs, slp
from papers.data import TABLE17, LabelledData
from papers.four_networks import LOSSES
from papers.four_sets import available, missing_lines
from papers.published import published_figures
from papers.text_tables import signed, text_table

ROUNDS, QUICK_ROUNDS = 15, 5
RATE = 0.005  # the same for all losses, as in the paper
BATCHES = network_training.BATCHES
SETTINGS = {"model": "timing of SLP and MLP", "rate": RATE, "batches per epoch": BATCHES}
MEANS = {"MSE": ("MSE",), "S_mean": ("S_A", "S_F", "S_B"), "L_mean": slp.LOSSES[2:]}

Loss = Callable[[Tensor, Tensor], Tensor]


def report(request: runs.Request) -> str:
    """Run Table 8 on the requested data sets and return the comparison as text."""
    return table8_text(*table8(request))


def loss_function(name: str) -> Loss:
    """A loss by its name in the paper, as a user of PyTorch would make it."""
    if name == "MSE":
        return nn.MSELoss()
    if name == "BCE":
        return nn.BCEWithLogitsLoss()
    spec = network_training.loss_spec(name, RATE)
    return AnyLoss(network_training.AIMED[spec.aim], step=spec.step)


def _network(columns: int, structure: str) -> nn.Module:
    """A perceptron (SLP), or the paper's network (MLP)."""
    if structure == "SLP":
        return nn.Linear(columns, 1)
    hidden = network_training.HIDDEN
    return nn.Sequential(
        nn.Linear(columns, hidden), nn.BatchNorm1d(hidden), nn.Sigmoid(), nn.Linear(hidden, 1)
    )


def epoch_times(X: Array, y: Array, structure: str, rounds: int) -> dict[str, float]:
    """The median processor time of an epoch per loss, after one epoch of warming up."""
    order = np.random.default_rng(network_training.SEED).permutation(len(y))
    parts = [
        [torch.from_numpy(x[rows].astype(np.float32)) for x in (X, y)]
        for rows in np.array_split(order, BATCHES)
    ]
    trainers = {name: _trainer(X.shape[1], structure, name) for name in LOSSES}
    taken: dict[str, list[float]] = {name: [] for name in LOSSES}
    with slp.one_thread():
        for _ in range(rounds + 1):
            for name, step in trainers.items():
                start = time.process_time()
                for rows, labels in parts:
                    step(rows, labels)
                taken[name].append(time.process_time() - start)
    return {name: float(np.median(times[1:])) for name, times in taken.items()}


def _trainer(columns: int, structure: str, name: str) -> Callable[[Tensor, Tensor], None]:
    """The function that makes one training step of a new network with the loss of this name."""
    net, loss = _network(columns, structure), loss_function(name)
    adam = torch.optim.Adam(net.parameters(), RATE)

    def step(rows: Tensor, labels: Tensor) -> None:
        adam.zero_grad()
        loss(net(rows)[:, 0], labels).backward()  # type: ignore[no-untyped-call]
        adam.step()

    return step


def _rows(X: Array, y: Array, rounds: int) -> list[dict[str, Any]]:
    """The ratios to BCE of both structures as rows."""
    rows = []
    for structure in ("SLP", "MLP"):
        times = epoch_times(X, y, structure, rounds)
        rows += [
            {"structure": structure, "loss": name, "ours": value / times["BCE"]}
            for name, value in times.items()
        ]
    return rows


def table8(request: runs.Request) -> tuple[Any, dict[str, str]]:
    """Tidy: the ratio of every loss, and why other data sets are not available."""
    samples, missing = available(request)
    rounds = QUICK_ROUNDS if request.quick else ROUNDS
    jobs = [
        runs.Job(name, partial(LabelledData, *rows), rounds, partial(_rows, rounds=rounds))
        for name, rows in samples.items()
    ]
    table = runs.run(jobs, request, SETTINGS)
    runs.write(table, request.out, SETTINGS, figures="Table 8", rounds=rounds, absent=missing)
    return table, missing


def _means(table: Any) -> Iterator[tuple[str, str, str, float, float]]:
    """Yield data set, structure, column of the paper, published figure and our figure."""
    for (dataset, structure), group in table.groupby(["dataset", "structure"], sort=False):
        ratio = group.set_index("loss")["ours"]
        published = published_figures(8, TABLE17[dataset][0], "time", structure)
        for name, losses in MEANS.items():
            yield dataset, structure, name, float(published[name]), ratio[list(losses)].mean()


def table8_text(table: Any, missing: Mapping[str, str]) -> str:
    """A line per figure, and the number of cases with the paper's order."""
    found = list(_means(table))
    rows = [
        (*names, f"{published:.3f}", f"{ours:.3f}", signed(ours - published, 3))
        for *names, published, ours in found
    ]
    cases = {(dataset, structure) for dataset, structure, *_ in found}
    ours = {(dataset, structure, name): x for dataset, structure, name, _, x in found}
    same = sum(ours[*case, "L_mean"] < ours[*case, "S_mean"] for case in cases)
    header = ("data set", "structure", "loss", "published", "ours", "difference")
    return "\n".join(
        [
            "AnyLoss, Table 8: learning time, as a ratio to BCE's in the same run",
            "(S_mean: score-oriented losses; L_mean: AnyLoss; all losses are of this package)",
            "",
            text_table(header, rows),
            "",
            *missing_lines(missing),
            f"AnyLoss is faster than the score-oriented losses in {same} of {len(cases)} cases",
        ]
    )
