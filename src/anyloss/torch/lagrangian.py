"""Training under constraints in PyTorch: the multipliers, as a part of the loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anyloss._core.backend import Array
from anyloss._core.constraints import ConstraintSpec, read_constraints
from anyloss._core.counts import class_counts
from anyloss._core.lagrangian import check_constrained, check_two_classes, lagrangian, moved
from anyloss._core.options import Settings
from anyloss.torch.batch import BACKENDS, Batch, hard_count, wide
from anyloss.torch.sync import Pool


class Multipliers(nn.Module):
    """The multipliers of constraints, which follow the hard counts of the batches.

    The buffer `state` `(2, constraints)` has the multipliers of the next loss, and the running sums
    behind them. It is saved with the loss, and equal on all ranks, because the ranks exchange their
    counts.

    >>> from anyloss._core.options import make_settings
    >>> found = Multipliers("recall >= 0.9", make_settings("precision"))
    >>> found.update(torch.tensor([5.0, 5.0, 0.0, 10.0]))
    >>> [round(x, 4) for x in found.state[0].tolist()]
    [1.72]
    """

    state: Tensor

    def __init__(self, constraints: ConstraintSpec, settings: Settings) -> None:
        super().__init__()
        check_constrained(settings)
        self.constraints = read_constraints(constraints)
        self.index = len(settings.steps)  # of the hard counts in a pool, after those of the steps
        self.register_buffer("state", torch.zeros(2, len(self.constraints)))

    def applied(self, settings: Settings, batch: Batch) -> Settings:
        """The settings with the Lagrangian in place of the metric."""
        check_two_classes(batch.layout)
        if self.state.device != batch.scores.device:
            self.state = self.state.to(batch.scores.device)
        # A copy, because the state moves before a backward pass may need its values.
        now = self.state[0].to(wide(batch.scores), copy=True)
        numbers: list[Array] = now.tolist() if batch.checked else list(now.unbind())
        return settings._replace(metric=lagrangian(settings.metric, self.constraints, numbers))

    @torch.no_grad()
    def count(self, batch: Batch, settings: Settings, pool: Pool | None) -> Tensor:
        """The hard counts of all parts of the pool: true positives, ... in their order."""
        counts, _ = hard_count(batch, settings.steps[0])
        counts = class_counts(counts, batch.layout, BACKENDS[counts.tp.dtype])
        own = torch.stack(tuple(counts))
        return (own if pool is None else pool(self.index, own)[0]).flatten()

    @torch.no_grad()
    def update(self, counts: Tensor) -> None:
        """Move the multipliers after a batch, given its hard counts."""
        sums, backend = self.state[1].unbind(), BACKENDS[counts.dtype]
        found = moved(sums, self.constraints, counts.unbind(), backend)
        self.state.copy_(torch.stack([torch.stack(row) for row in found]))

    def extra_repr(self) -> str:
        return ", ".join(repr(str(x)) for x in self.constraints)
