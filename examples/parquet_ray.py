"""Ray Data and Ray Train: train for F1 on Parquet partitions, and find the threshold over all rows.

    python parquet_ray.py FOLDER SCORES [HIDDEN]

FOLDER holds Parquet files whose last column is the label, 0 or 1. A linear model, or a network with
HIDDEN units, is refined for F1 by two workers, each of which reads its part of the rows in every
epoch. They exchange counts, so that the loss is that of all rows. The score of each row is written
to the folder SCORES. The threshold is exact: each partition is reduced to its distinct scores and
labels and how often they occur, and these numbers add up to those of the undivided table.
"""

import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray.data
import ray.train
import torch
from ray.data.preprocessors import StandardScaler
from ray.train.torch import TorchTrainer, prepare_model
from torch import Tensor, nn

import anyloss
from anyloss.torch import refine

Block = dict[str, np.ndarray]


def network(columns: int, hidden: int) -> nn.Module:
    torch.manual_seed(0)
    if not hidden:
        return nn.Linear(columns, 1)
    return nn.Sequential(nn.Linear(columns, hidden), nn.ReLU(), nn.Linear(hidden, 1))


class Batches:
    """The rows of a worker in batches, read anew in each epoch."""

    def __init__(self, name: str, label: str, size: int = 256) -> None:
        self.shard, self.label, self.size = ray.train.get_dataset_shard(name), label, size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.shard.iter_torch_batches(batch_size=self.size, dtypes=torch.float32):
            y = batch.pop(self.label)
            yield torch.stack(list(batch.values()), 1), y[:, None]


def train(given: dict[str, Any]) -> None:
    """What each worker does; Ray gives all of them equally many rows."""
    loader, valid = (Batches(x, given["label"]) for x in ("train", "valid"))
    model = prepare_model(network(given["columns"], given["hidden"]))  # DDP
    adam = partial(torch.optim.Adam, lr=0.05)
    found = refine(model, loader, "f1", valid=valid, start_epochs=5, epochs=5, optimizer=adam)
    scores = {"start": found.start_score, "end": found.end_score}
    with tempfile.TemporaryDirectory() as folder:
        saved = None
        if ray.train.get_context().get_world_rank() == 0:
            torch.save(model.module.state_dict(), Path(folder) / "weights.pt")
            saved = ray.train.Checkpoint.from_directory(folder)
        ray.train.report(scores, checkpoint=saved)


def scored(block: Block, model: nn.Module, label: str) -> Block:
    """The scores of the rows of a partition, with their labels."""
    y = block.pop(label)
    rows = np.stack(list(block.values()), 1).astype(np.float32)
    with torch.no_grad():
        return {"score": model(torch.from_numpy(rows))[:, 0].numpy(), "label": y}


def counted(block: Block) -> Block:
    """The distinct scores and labels of a partition, and the number of their rows."""
    order = np.lexsort((block["label"], block["score"]))
    score, label = block["score"][order], block["label"][order]
    first = np.flatnonzero(np.r_[True, (np.diff(score) != 0) | (np.diff(label) != 0)])
    return {"score": score[first], "label": label[first], "rows": np.diff([*first, len(score)])}


def main(folder: str, out: str, hidden: int = 0) -> None:
    ray.init(num_cpus=4)  # of one small machine: two workers that train, and tasks that read
    rows = ray.data.read_parquet(folder).repartition(4)  # small files would be one partition
    *columns, label = rows.columns()
    rows = StandardScaler(columns).fit_transform(rows)
    parts = dict(zip(("train", "valid"), rows.train_test_split(0.2, seed=0), strict=True))
    with tempfile.TemporaryDirectory() as storage:
        result = TorchTrainer(
            train, train_loop_config={"label": label, "columns": len(columns), "hidden": hidden},
            scaling_config=ray.train.ScalingConfig(num_workers=2), datasets=parts,
            run_config=ray.train.RunConfig(storage_path=storage),
        ).fit()  # fmt: skip
        model = network(len(columns), hidden)
        with result.checkpoint.as_directory() as place:
            model.load_state_dict(torch.load(Path(place) / "weights.pt", weights_only=True))
    scores = rows.map_batches(partial(scored, model=model.eval(), label=label)).materialize()
    scores.write_parquet(out)
    found = scores.map_batches(counted, batch_size=None).to_pandas()
    best = anyloss.best_threshold(found.label, found.score, "f1", weight=found.rows)
    print(f"F1 before: {result.metrics['start']:.4f}, after: {result.metrics['end']:.4f}")
    print(f"{found.rows.sum()} rows, {scores.num_blocks()} partitions")
    print(f"threshold {best.threshold!r}, F1 {best.score!r}")


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
