"""Support for small batches: running counts over batches, and warnings about collapse."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor, nn

from anyloss.torch.batch import Batch
from anyloss.torch.sync import CROSS_ENTROPY, Pool


class RunningCounts(nn.Module):
    """Running sums: before each batch, the sums so far are multiplied by `keep`.

    The factor of the gradient is `1 + keep + keep^2 + ...` over the batches so far. It gives the
    gradient the size that it has without memory: averaged over the batches of an epoch it is the
    gradient of the whole epoch, except that the remembered sums come from earlier weights. The
    sums are saved with the state of the module.

    >>> import torch
    >>> running = RunningCounts(keep=0.5)
    >>> pool = running.after(None)
    >>> pool(0, torch.tensor([8.0])), pool(0, torch.tensor([2.0]))
    ((tensor([8.]), 1.0), (tensor([6.]), 1.5))
    """

    def __init__(self, keep: float) -> None:
        super().__init__()
        if not isinstance(keep, int | float) or not 0 < keep < 1:
            raise ValueError(
                "memory must be strictly between 0 and 1, the share of the counts that is kept "
                f"from batch to batch, such as 0.98; got {keep!r}"
            )
        self.keep = keep
        self.reset()

    def reset(self) -> None:
        """Remove the counts of all batches."""
        self._kept: dict[int, tuple[Tensor, float]] = {}

    def after(self, first: Pool | None) -> Pool:
        """The pool of these running sums, applied to the sums of another pool."""

        def pool(step: int, sums: Tensor) -> tuple[Tensor, float]:
            total, factor = (sums, 1.0) if first is None else first(step, sums)
            if step == CROSS_ENTROPY:
                return total, factor
            batches = 1.0
            if step in self._kept:
                kept, before = self._kept[step]
                if kept.shape != total.shape:
                    raise ValueError(
                        f"memory= expects counts of shape {tuple(kept.shape)}, as in the batches "
                        f"before; got {tuple(total.shape)}. Use one loss per task, or call "
                        "loss.memory.reset()"
                    )
                total = total + self.keep * kept.to(total.device)
                batches += self.keep * before
            self._kept[step] = (total, batches)
            return total, factor * batches

        return pool

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "sums": [sums for sums, _ in self._kept.values()],
            "batches": [batches for _, batches in self._kept.values()],
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._kept = dict(enumerate(zip(state["sums"], state["batches"], strict=True)))

    def extra_repr(self) -> str:
        return f"keep={self.keep}"


class Monitor:
    """Inspects the first batches of a training, and warns of batches that train badly.

    It warns once if most of the first batches have no positive sample, and once if after
    some hundred batches all decisions have been for one class, although the labels were not.
    """

    BATCHES, EVERY, LAST = 20, 10, 300

    def __init__(self) -> None:
        self.batches = 0
        self.without_positives = 0
        self.labels: set[int] = set()
        self.decisions: set[int] = set()

    def observe(self, batch: Batch) -> None:
        """Count a batch, inspect it if its turn has come, and warn where that is due."""
        if self.batches > self.LAST:
            return
        self.batches += 1
        if self.batches <= self.BATCHES and batch.layout.task == "binary":
            self.without_positives += not (batch.target.numel() and batch.target.max().item() > 0)
            if self.batches == self.BATCHES and 2 * self.without_positives > self.BATCHES:
                self._warn_of_missing_positives()
        if self.batches % self.EVERY == 0 and len(self.decisions) < 2:
            self._collect_classes(batch)
        if self.batches == self.LAST and len(self.decisions) == 1 and len(self.labels) > 1:
            self._warn_of_collapse()

    def _collect_classes(self, batch: Batch) -> None:
        """Add the lowest and highest class of the decisions and of the labels to those so far."""
        scores, target, lay = batch.scores.detach(), batch.target.detach(), batch.layout
        if lay.task == "multiclass":
            decisions = scores.argmax(lay.class_axis)
            labels = target if lay.index_target else target.argmax(lay.class_axis)
        else:
            decisions = scores > (0.0 if batch.options.from_logits else 0.5)
            labels = target > 0.5
        for classes, found in ((self.decisions, decisions), (self.labels, labels)):
            if found.numel():
                classes.update((int(found.min()), int(found.max())))

    def _warn_of_missing_positives(self) -> None:
        warnings.warn(
            f"{self.without_positives} of the first {self.BATCHES} batches have no positive "
            "sample. The loss of such a batch has little or no gradient, and the mean over batches "
            "differs from the metric of the whole data. Use larger batches, "
            "anyloss.torch.accumulate, memory=0.98 or StratifiedBatchSampler (docs/distributed.md)",
            stacklevel=6,
        )

    def _warn_of_collapse(self) -> None:
        warnings.warn(
            f"in {self.LAST} batches every inspected decision was for one class, "
            f"{min(self.decisions)}: training has probably collapsed. Add more cross-entropy "
            "(cross_entropy=0.1), start from a model that was trained with cross-entropy, or lower "
            "the learning rate",
            stacklevel=6,
        )
