"""The Trainer of Hugging Face Transformers, with `compute_loss_func`.

    torchrun --standalone --nproc-per-node=2 examples/train_transformers.py

Two settings matter. `average_tokens_across_devices` multiplies a loss by the number of processes,
which is meant for sums over tokens, so it is off. `gradient_accumulation_steps` adds up the
gradients of parts of a batch, so it must be 1 (docs/distributed.md).
"""

import os
import tempfile

import toy
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments

from anyloss.torch import AnyLoss


class Model(nn.Module):
    """A stand-in for a model of Transformers: it takes keyword arguments and returns logits."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = toy.model()

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return {"logits": self.linear(inputs)}


LOSS = AnyLoss("f1", cross_entropy=0.1)


def f1_loss(
    outputs: dict[str, Tensor], labels: Tensor, num_items_in_batch: object = None
) -> Tensor:
    return LOSS(outputs["logits"], labels)  # F1 of the samples of all processes


def main() -> None:
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            use_cpu=True,
            average_tokens_across_devices=False,
            ddp_find_unused_parameters=False,
            per_device_train_batch_size=128 // processes,
            num_train_epochs=toy.EPOCHS,
            learning_rate=toy.RATE,
            lr_scheduler_type="constant",
            optim="sgd",
            max_grad_norm=0.0,
            train_sampling_strategy="sequential",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_strategy="no",
        )
        rows = [{"inputs": x, "labels": y} for x, y in toy.data()]
        model = Model()
        trainer = Trainer(model, arguments, train_dataset=rows, compute_loss_func=f1_loss)
        trainer.train()
        if trainer.is_world_process_zero():
            toy.report(model.linear)


if __name__ == "__main__":
    main()
