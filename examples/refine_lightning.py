"""Lightning: ten epochs of cross-entropy, then ten for F1, and the better weights at the end."""

import lightning
import torch
import toy
from torch import Tensor, nn
from torch.utils.data import DataLoader

from anyloss.torch.lightning_callback import RefineCallback


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = toy.model()
        self.criterion = nn.BCEWithLogitsLoss()

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        x, y = batch
        return self.criterion(self(x), y)  # that of the callback from its epoch on

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        """The callback scores the validation loader, which needs no step of its own."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), toy.RATE)


def main() -> None:
    callback = RefineCallback("f1", at_epoch=10)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=20,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train, valid = torch.utils.data.random_split(
        toy.data(), [312, 200], torch.Generator().manual_seed(0)
    )
    trainer.fit(Module(), DataLoader(train, 104, shuffle=True), DataLoader(valid, 200))
    refined = callback.refined
    print(f"F1 before: {refined.start_score:.4f}, after: {refined.end_score:.4f}")


if __name__ == "__main__":
    main()
