"""Lightning, which starts the other processes itself: `python examples/train_lightning.py 2`."""

import sys

import lightning
import torch
import toy
from torch import Tensor
from torch.utils.data import DataLoader

from anyloss.torch import AnyLoss
from anyloss.torchmetrics import Score


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = toy.model()
        self.loss = AnyLoss("f1", cross_entropy=0.1)
        self.score = Score("f1")

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        x, y = batch
        logits = self.model(x)
        self.score.update(logits, y)
        self.log("f1", self.score, on_step=False, on_epoch=True)  # that of all processes
        return self.loss(logits, y)  # F1 of the samples of all processes

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), toy.RATE)


def main() -> None:
    devices = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=devices,
        strategy="ddp",
        max_epochs=toy.EPOCHS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Module()
    trainer.fit(module, DataLoader(toy.data(), batch_size=128 // devices))
    if trainer.is_global_zero:
        toy.report(module.model)


if __name__ == "__main__":
    main()
