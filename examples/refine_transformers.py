"""The Hugging Face Trainer: five epochs of cross-entropy, then five for F1.

The model is a tiny one with random weights, which needs no download.
"""

import tempfile

import torch
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

from anyloss.torch.trainer_callback import RefineCallback


def texts(rows: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Twelve tokens each; the rare class has more of the high ones."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(rows, generator=generator) < 0.15).long()
    tokens = torch.randint(0, 60, (rows, 12), generator=generator)
    high = torch.rand(rows, 12, generator=generator) < 0.6 * labels[:, None]
    tokens = torch.where(high, 40 + tokens % 20, tokens)
    return [{"input_ids": x, "labels": y} for x, y in zip(tokens, labels, strict=True)]


def main() -> None:
    set_seed(0)
    config = BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=12,
    )
    valid = DataLoader(texts(400, 1), 200, collate_fn=default_data_collator)
    callback = RefineCallback("f1", valid=valid, at_epoch=5)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            use_cpu=True,
            average_tokens_across_devices=False,
            per_device_train_batch_size=64,
            num_train_epochs=10,
            learning_rate=0.003,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_strategy="no",
        )
        Trainer(
            BertForSequenceClassification(config),
            arguments,
            train_dataset=texts(800, 0),
            compute_loss_func=callback.loss,
            callbacks=[callback],
        ).train()
    refined = callback.refined
    print(f"F1 before: {refined.start_score:.4f}, after: {refined.end_score:.4f}")


if __name__ == "__main__":
    main()
