"""Accelerate: `torchrun --standalone --nproc-per-node=2 examples/train_accelerate.py`.

`accelerate launch` can start it as well.
"""

import torch
import toy
from accelerate import Accelerator
from torch.utils.data import DataLoader

from anyloss.torch import AnyLoss


def main() -> None:
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(toy.data(), batch_size=128 // accelerator.num_processes)
    model = toy.model()
    optimizer = torch.optim.SGD(model.parameters(), toy.RATE)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    loss = AnyLoss("f1", cross_entropy=0.1)
    for _ in range(toy.EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(loss(model(x), y))  # F1 of the samples of all processes
            optimizer.step()
    if accelerator.is_main_process:
        toy.report(accelerator.unwrap_model(model))
    accelerator.end_training()


if __name__ == "__main__":
    main()
