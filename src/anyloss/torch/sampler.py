"""Batches with the class share of the data set, on every rank."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch.distributed as dist
from torch.utils.data import Sampler

from anyloss._core.backend import Array


class StratifiedBatchSampler(Sampler[list[int]]):
    """Batches of row numbers, each with the share of every class that the data set has.

    For `DataLoader(data, batch_sampler=...)`. In each epoch every class is shuffled and spread
    evenly over the epoch, so that any stretch of rows holds its share, up to one row. All
    rows come once: those that do not fill a batch are shared out, and batches differ by at most
    one row in size. With `drop_last=True` all have exactly `batch_size` rows, and a few others are
    left out of each epoch.

    Under `torch.distributed` each rank gets batches of its own, `batch_size` rows each and equally
    many, from one common order. Each pass over the sampler is a new epoch; `set_epoch` says which
    one, for a run that is resumed.

    Args:
        labels: one per row of the data set: classes, or rows of several labels `(n, C)`, of which
            each combination is a class.
        batch_size: rows per batch and rank, at the most.
        drop_last: leave out rows so that every batch is full.
        seed: the same on every rank.
        num_replicas: the number of ranks; by default what `torch.distributed` says, else 1.
        rank: of this process; likewise.

    >>> labels = np.array([0] * 9 + [1] * 3)
    >>> for batch in StratifiedBatchSampler(labels, batch_size=4):
    ...     print(labels[batch].sum())
    1
    1
    1
    """

    def __init__(
        self,
        labels: Array,
        batch_size: int,
        *,
        drop_last: bool = False,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        initialised = dist.is_available() and dist.is_initialized()
        self.num_replicas = num_replicas or (dist.get_world_size() if initialised else 1)
        self.rank = (dist.get_rank() if initialised else 0) if rank is None else rank
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; got {batch_size!r}")
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(
                f"rank must lie in 0 to {self.num_replicas - 1} (num_replicas - 1); got {self.rank}"
            )
        _, classes = np.unique(np.asarray(labels), axis=0, return_inverse=True)
        self._classes = classes.reshape(-1)
        self.batch_size, self.drop_last = batch_size, drop_last
        self.seed, self.epoch = seed, 0
        rows, per_step = len(self._classes), batch_size * self.num_replicas
        self._batches = rows // per_step if drop_last else -(-rows // per_step)
        if self._batches == 0 or rows < self._batches * self.num_replicas:
            raise ValueError(
                f"{rows} rows are too few for batches of {batch_size} on {self.num_replicas} ranks"
            )

    def __len__(self) -> int:
        return self._batches

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next pass is."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order()
        self.epoch += 1
        parts = self._batches * self.num_replicas
        used = parts * self.batch_size if self.drop_last else len(order)
        for part in range(self.rank, parts, self.num_replicas):
            yield order[used * part // parts : used * (part + 1) // parts].tolist()

    def _order(self) -> Array:
        """All rows, each class evenly spread: the k-th of n rows comes at (k + offset) / n."""
        generator = np.random.default_rng([self.seed, self.epoch])
        counts = np.bincount(self._classes)
        shuffled = generator.permutation(len(self._classes))
        by_class = shuffled[np.argsort(self._classes[shuffled], kind="stable")]
        classes = self._classes[by_class]
        number = np.arange(len(by_class)) - (np.cumsum(counts) - counts)[classes]
        offsets = generator.random(len(counts))
        return by_class[np.argsort((number + offsets[classes]) / counts[classes], kind="stable")]
