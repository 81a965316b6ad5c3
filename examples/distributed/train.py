"""Train for F1 from Parquet shards that need not fit into memory, and resume after a crash.

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # or a restart may find outdated addresses
    torchrun --standalone --nproc-per-node=2 --max-restarts=9 train.py SHARDS CHECKPOINT

SHARDS is a folder of Parquet files whose last column is the label, 0 or 1. Each process reads its
own row groups, one at a time. The processes exchange four numbers per step, so that the loss is the
F1 of all their samples. After each epoch the state is saved to CHECKPOINT. When a process dies,
torchrun restarts all processes, and they continue from the checkpoint. On several machines, write
`--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT` instead of `--standalone`.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from anyloss.torch import AnyLoss, ScoreMeter


class RowGroup(NamedTuple):
    path: Path
    number: int
    rows: int

    def read(self) -> tuple[Tensor, Tensor]:
        table = pq.ParquetFile(self.path).read_row_group(self.number)
        columns = [torch.tensor(column.to_numpy(), dtype=torch.float32) for column in table.columns]
        return torch.stack(columns[:-1], 1), columns[-1]


def row_groups(folder: Path) -> list[RowGroup]:
    """All row groups of all files; only their sizes are read."""
    found = []
    for path in sorted(folder.glob("*.parquet")):
        metadata = pq.ParquetFile(path).metadata
        sizes = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
        found += [RowGroup(path, k, rows) for k, rows in enumerate(sizes)]
    if not found:
        raise FileNotFoundError(f"{folder} must hold *.parquet files with rows; found none")
    return found


def batches(groups: list[RowGroup], size: int, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of this process in an epoch, as many as every other process has.

    A process that has read all its rows continues with empty batches, because the other processes
    wait for its counts.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    order = random.Random(epoch).sample(groups, len(groups))
    steps = [sum(-(-group.rows // size) for group in order[k::ranks]) for k in range(ranks)]
    generator = torch.Generator().manual_seed(epoch)
    for group in order[rank::ranks]:
        x, y = group.read()
        for rows in torch.randperm(len(y), generator=generator).split(size):
            yield x[rows], y[rows]
    features = len(pq.ParquetFile(groups[0].path).schema_arrow) - 1
    for _ in range(max(steps) - steps[rank]):
        yield torch.zeros(0, features), torch.zeros(0)


class Network(nn.Module):
    """A small network that scales its input by the first row group's means and deviations."""

    def __init__(self, sample: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", sample.mean(0))
        self.register_buffer("deviation", sample.std(0).clamp_min(1e-6))
        self.layers = nn.Sequential(nn.Linear(sample.shape[1], 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers((x - self.mean) / self.deviation).squeeze(1)


def train(arguments: argparse.Namespace) -> None:
    groups = row_groups(arguments.shards)
    torch.manual_seed(arguments.seed)
    network = Network(groups[0].read()[0])
    model = DistributedDataParallel(network)
    loss, optimizer = AnyLoss("f1"), torch.optim.Adam(network.parameters(), arguments.rate)
    first = 0
    if arguments.checkpoint.exists():
        state = torch.load(arguments.checkpoint, weights_only=True)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epochs"]
    rank, ranks = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {ranks}, process {os.getpid()}: epoch {first}", flush=True)

    for epoch in range(first, arguments.epochs):
        meter = ScoreMeter("f1")
        for x, y in batches(groups, arguments.batch, epoch):
            optimizer.zero_grad()
            logits = model(x)
            loss(logits, y).backward()
            optimizer.step()
            meter.update(logits.detach(), y)
        score = meter.compute(sync=True)
        if rank == 0:
            state = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}
            save(state | {"epochs": epoch + 1}, arguments.checkpoint)
            print(f"epoch {epoch}: F1 {score:.4f} while training", flush=True)


def save(state: dict, path: Path) -> None:
    """Write a new file and then replace the old one, so that a crash leaves a complete file."""
    fresh = path.with_suffix(".part")
    torch.save(state, fresh)
    fresh.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shards", type=Path, help="a folder of Parquet files")
    parser.add_argument("checkpoint", type=Path, help="the file of the saved state")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=512, help="rows per process")
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    # A process that waits for a dead one stops after this time, and torchrun restarts all of them.
    patience = timedelta(seconds=60)
    dist.init_process_group("gloo", timeout=patience)  # "nccl", and a device, on GPUs
    train(parser.parse_args())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
