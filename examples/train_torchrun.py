"""Plain PyTorch: `torchrun --standalone --nproc-per-node=2 examples/train_torchrun.py`."""

import torch
import torch.distributed as dist
import toy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from anyloss.torch import AnyLoss


def main() -> None:
    dist.init_process_group("gloo")  # "nccl" on GPUs
    data = toy.data()
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=128 // dist.get_world_size(), sampler=sampler)
    model = DistributedDataParallel(toy.model())
    loss = AnyLoss("f1", cross_entropy=0.1)
    optimizer = torch.optim.SGD(model.parameters(), toy.RATE)
    for _ in range(toy.EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x), y).backward()  # F1 of the samples of all processes
            optimizer.step()
    if dist.get_rank() == 0:
        toy.report(model.module)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
