"""Small batches: counts that remember the batches before, and a warning where none is wanted."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from anyloss.torch.sync import Pool


class RunningCounts(nn.Module):
    """Sums that fade: before each batch, what is kept is multiplied by `keep`.

    The factor, `1 + keep + keep^2 + ...` over the batches so far, gives the gradient the size that
    it has without memory: averaged over the batches of an epoch it is that of the whole epoch, up
    to the staleness of what is remembered. The sums are saved with the module's state.

    >>> running = RunningCounts(keep=0.5)
    >>> pool = running.behind(None)
    >>> pool(0, torch.tensor([8.0])), pool(0, torch.tensor([2.0]))
    ((tensor([8.]), 1.0), (tensor([6.]), 1.5))
    """

    def __init__(self, keep: float) -> None:
        super().__init__()
        if not 0 < keep < 1:
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
    """Looks at the first batches, and warns once if most of them have no positive row."""

    BATCHES = 20

    def __init__(self) -> None:
        self.left = self.BATCHES
        self.void = 0

    def see(self, target: Tensor) -> None:
        """Look at the labels of a batch, if it is one of the first to be trained on."""
        if self.left == 0 or not torch.is_grad_enabled():
            return
        self.left -= 1
        self.void += not target.any().item()
        if self.left == 0 and 2 * self.void > self.BATCHES:
            warnings.warn(
                f"{self.void} of the first {self.BATCHES} batches have no positive row: the loss "
                "of such a batch teaches little, and the mean over batches is far from the metric "
                "of the data. Use larger batches, anyloss.torch.accumulate, memory=0.98 or "
                "StratifiedBatchSampler (docs/distributed.md)",
                stacklevel=5,
            )
