"""Spark's TorchDistributor: `refine` on two processes, each with its part of every batch."""

from functools import partial

import torch
import torch.distributed as dist
import toy
from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession
from torch.nn.parallel import DistributedDataParallel

from anyloss.torch import refine


def train() -> tuple[float, float]:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, y = toy.data().tensors
    loader = [(x[k + rank : k + 104 : ranks], y[k + rank : k + 104 : ranks]) for k in (0, 104, 208)]
    valid = [(x[312 + rank :: ranks], y[312 + rank :: ranks])]
    adam = partial(torch.optim.Adam, lr=0.05)
    model = DistributedDataParallel(toy.model())
    refined = refine(model, loader, "f1", valid=valid, start_epochs=10, epochs=10, optimizer=adam)
    dist.destroy_process_group()
    return refined.start_score, refined.end_score


def main() -> None:
    session = SparkSession.builder.master("local[2]").getOrCreate()
    distributor = TorchDistributor(num_processes=2, local_mode=True, use_gpu=False)
    before, after = distributor.run(train)
    print(f"F1 before: {before:.4f}, after: {after:.4f}")
    session.stop()


if __name__ == "__main__":
    main()
