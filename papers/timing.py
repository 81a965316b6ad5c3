"""AnyLoss's Table 8: the learning time of the losses as a ratio to that of BCE, in one run.

One epoch of Adam steps on batches of a twentieth of the rows, for each loss in turn and again and
again; the median of its processor time over that of BCE. The losses are the package's own, so
that the ratios tell of it and not of the authors' Keras: what can be compared is the order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anyloss._core.backend import Array
from anyloss.torch import AnyLoss
from papers import networks, runs, slp
from papers.data import TABLE17, Rows
from papers.four_networks import LOSSES
from papers.four_sets import asked, at_hand, not_at_hand
from papers.published import figures
from papers.text import columns, signed

ROUNDS, QUICK_ROUNDS = 15, 5
RATE = 0.005  # the paper gives all losses the same one
SETTINGS = {"model": "timing of SLP and MLP", "rate": RATE, "batches per epoch": networks.BATCHES}
MEANS = {"MSE": ("MSE",), "S_mean": ("S_A", "S_F", "S_B"), "L_mean": slp.LOSSES[2:]}

Loss = Callable[[Tensor, Tensor], Tensor]


def report(request: runs.Request) -> str:
    """Table 8 of the sets asked for, run and told; breast cancer alone if quick."""
    names = asked(request)
    rounds = QUICK_ROUNDS if request.quick else ROUNDS
    return table8_text(*table8(names, request.folder, request.out, rounds, request.told))


def loss_function(name: str) -> Loss:
    """The loss of a name of the paper, as a user of PyTorch would take it."""
    if name == "MSE":
        return nn.MSELoss()
    if name == "BCE":
        return nn.BCEWithLogitsLoss()
    goal = networks.goal(name, RATE)
    return AnyLoss(networks.AIMED[goal.aim], step=goal.step)


def _network(columns: int, structure: str) -> nn.Module:
    if structure == "SLP":
        return nn.Linear(columns, 1)
    hidden = networks.HIDDEN
    return nn.Sequential(
        nn.Linear(columns, hidden), nn.BatchNorm1d(hidden), nn.Sigmoid(), nn.Linear(hidden, 1)
    )


def epoch_times(X: Array, y: Array, structure: str, rounds: int) -> dict[str, float]:
    """The median processor time of an epoch per loss, after one epoch to warm up."""
    order = np.random.default_rng(networks.SEED).permutation(len(y))
    parts = [
        [torch.from_numpy(x[rows].astype(np.float32)) for x in (X, y)]
        for rows in np.array_split(order, networks.BATCHES)
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
    """A network, and the function that makes one step with it."""
    net, loss = _network(columns, structure), loss_function(name)
    adam = torch.optim.Adam(net.parameters(), RATE)

    def step(rows: Tensor, labels: Tensor) -> None:
        adam.zero_grad()
        loss(net(rows)[:, 0], labels).backward()  # type: ignore[no-untyped-call]
        adam.step()

    return step


def _rows(X: Array, y: Array, rounds: int) -> list[dict[str, Any]]:
    rows = []
    for structure in ("SLP", "MLP"):
        times = epoch_times(X, y, structure, rounds)
        rows += [
            {"structure": structure, "loss": name, "ours": value / times["BCE"]}
            for name, value in times.items()
        ]
    return rows


def table8(
    names: Sequence[str] = (),
    folder: Path | None = None,
    out: Path = Path("reproduce-table8.csv"),
    rounds: int = ROUNDS,
    told: runs.Told = runs.silent,
) -> tuple[Any, dict[str, str]]:
    """Tidy: the ratio of every loss, and why other data sets are not at hand."""
    there, absent = at_hand(names, folder)
    jobs = [
        runs.Job(name, partial(Rows, *rows), rounds, partial(_rows, rounds=rounds))
        for name, rows in there.items()
    ]
    table = runs.run(jobs, out, told, SETTINGS)
    runs.write(table, out, SETTINGS, figures="Table 8", rounds=rounds, absent=absent)
    return table, absent


def _means(table: Any) -> Iterator[tuple[str, str, str, float, float]]:
    """Data set, structure, column of the paper, published and ours."""
    for (dataset, structure), group in table.groupby(["dataset", "structure"], sort=False):
        ratio = group.set_index("loss")["ours"]
        published = figures(8, TABLE17[dataset][0], "time", structure)
        for name, losses in MEANS.items():
            yield dataset, structure, name, float(published[name]), ratio[list(losses)].mean()


def table8_text(table: Any, absent: Mapping[str, str]) -> str:
    """A line per figure; at the end in how many cases the paper's order is found."""
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
            "(S_mean: score-oriented losses; L_mean: AnyLoss; times are those of this package)",
            "",
            columns(header, rows),
            "",
            *not_at_hand(absent),
            f"AnyLoss is faster than the score-oriented losses in {same} of {len(cases)} cases",
        ]
    )
