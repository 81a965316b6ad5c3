"""Ray Train: `refine` on two workers, each with its part of every batch."""

from functools import partial

import ray.train
import torch
import toy
from ray.train.torch import TorchTrainer, prepare_model
from torch import Tensor

from anyloss.torch import refine

Batches = list[tuple[Tensor, Tensor]]


def parts(rank: int, ranks: int) -> tuple[Batches, Batches]:
    """The batches of a worker, and its validation rows."""
    x, y = toy.data().tensors
    train = [(x[k : k + 104], y[k : k + 104]) for k in range(0, 312, 104)]
    mine = [(rows[rank::ranks], labels[rank::ranks]) for rows, labels in train]
    return mine, [(x[312:][rank::ranks], y[312:][rank::ranks])]


def train() -> None:
    context = ray.train.get_context()
    loader, valid = parts(context.get_world_rank(), context.get_world_size())
    model = prepare_model(toy.model())  # DDP
    adam = partial(torch.optim.Adam, lr=0.05)
    refined = refine(model, loader, "f1", valid=valid, start_epochs=10, epochs=10, optimizer=adam)
    ray.train.report({"f1": refined.end_score})
    if context.get_world_rank() == 0:
        print(f"F1 before: {refined.start_score:.4f}, after: {refined.end_score:.4f}")


def main() -> None:
    TorchTrainer(train, scaling_config=ray.train.ScalingConfig(num_workers=2)).fit()


if __name__ == "__main__":
    main()
