"""Small batches: counts that remember the batches before, and a warning where none is wanted."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor, nn

from anyloss.torch.batch import Batch
from anyloss.torch.sync import CROSS_ENTROPY, Pool


class RunningCounts(nn.Module):
    """Sums that fade: before each batch, what is kept is multiplied by `keep`.

    The factor, `1 + keep + keep^2 + ...` over the batches so far, gives the gradient the size that
    it has without memory: averaged over the batches of an epoch it is that of the whole epoch, up
    to the staleness of what is remembered. The sums are saved with the module's state.

    >>> import torch
    >>> running = RunningCounts(keep=0.5)
    >>> pool = running.behind(None)
    >>> pool(0, torch.tensor([8.0])), pool(0, torch.tensor([2.0]))
    ((tensor([8.]), 1.0), (tensor([6.]), 1.5))
    """

    def __init__(self, keep: float) -> None:
        super().__init__()
        if not isinstance(keep, int | float) or not 0 < keep < 1:
            raise ValueError(
                "memory must lie strictly between 0 and 1: the share of the counts that is kept "
                f"from batch to batch, such as 0.98; got {keep!r}"
            )
        self.keep = keep
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self._kept: dict[int, tuple[Tensor, float]] = {}

    def behind(self, first: Pool | None) -> Pool:
        """The pool of these sums, after those of another pool have been added up."""

        def pool(step: int, sums: Tensor) -> tuple[Tensor, float]:
            total, factor = (sums, 1.0) if first is None else first(step, sums)
            if step == CROSS_ENTROPY:
                return total, factor
            batches = 1.0
            if step in self._kept:
                kept, before = self._kept[step]
                if kept.shape != total.shape:
                    raise ValueError(
                        f"memory= holds counts of shape {tuple(kept.shape)}; this batch has "
                        f"{tuple(total.shape)}. Use one loss per task, or memory.reset()"
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


class Watch:
    """Looks at some batches of a training, and warns of what a user would rather know early.

    Warns once if most of the first batches have no positive sample, and once if after some hundred
    batches the decisions have been one class only, though the labels were not.
    """

    BATCHES, EVERY, LAST = 20, 10, 300

    def __init__(self) -> None:
        self.batches = 0
        self.void = 0
        self.labels: set[int] = set()
        self.decisions: set[int] = set()

    def see(self, batch: Batch) -> None:
        """Look at a batch, if it is one of those that are looked at."""
        if self.batches > self.LAST:
            return
        self.batches += 1
        if self.batches <= self.BATCHES and batch.layout.task == "binary":
            self.void += not batch.target.any().item()
            if self.batches == self.BATCHES and 2 * self.void > self.BATCHES:
                self._warn_of_void()
        if self.batches % self.EVERY == 0 and len(self.decisions) < 2:
            self._compare(batch)
        if self.batches == self.LAST and len(self.decisions) == 1 and len(self.labels) > 1:
            self._warn_of_collapse()

    def _compare(self, batch: Batch) -> None:
        """Remember which classes were decided for, and which were there; two of each will do."""
        scores, target, lay = batch.scores.detach(), batch.target.detach(), batch.layout
        if lay.task == "multiclass":
            decided = scores.argmax(lay.class_axis)
            labels = target if lay.index_target else target.argmax(lay.class_axis)
        else:
            decided = scores > (0.0 if batch.options.from_logits else 0.5)
            labels = target > 0.5
        for seen, given in ((self.decisions, decided), (self.labels, labels)):
            if given.numel():
                seen.update((int(given.min()), int(given.max())))

    def _warn_of_void(self) -> None:
        warnings.warn(
            f"{self.void} of the first {self.BATCHES} batches have no positive sample: the loss of "
            "such a batch teaches little, and the mean over batches is far from the metric of the "
            "data. Use larger batches, anyloss.torch.accumulate, memory=0.98 or "
            "StratifiedBatchSampler (docs/distributed.md)",
            stacklevel=6,
        )

    def _warn_of_collapse(self) -> None:
        warnings.warn(
            f"in {self.LAST} batches every decision that was looked at was for one class, "
            f"{min(self.decisions)}: training has probably collapsed. Add more cross-entropy "
            "(cross_entropy=0.1), start from a model trained by cross-entropy, or lower the "
            "learning rate",
            stacklevel=6,
        )
