"""Batches that have the class proportions of the data set, on every rank."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch.distributed as dist
from torch.utils.data import Sampler

from anyloss._core.backend import Array


class StratifiedBatchSampler(Sampler[list[int]]):
    """A batch sampler whose batches have the class proportions of the data set.

    It is the `batch_sampler` of a `torch.utils.data.DataLoader`. In each epoch the samples of every
    class are shuffled and spread evenly over the epoch, so that each batch has its share of every
    class, up to one sample. Every sample occurs once per epoch, and the batches differ by at most
    one sample in size. With `drop_last=True` all batches have exactly `batch_size` samples, and
    each epoch leaves out some samples.

    Under `torch.distributed` the ranks divide one common order among themselves, and each rank has
    the same number of batches. Each iteration over the sampler is a new epoch; `set_epoch` sets its
    number when a run is resumed.

    Args:
        labels (array): the label of each sample of the data set.
        batch_size (int): the largest number of samples per batch and rank.
        drop_last (bool): whether to leave out samples so that every batch is full. Default: False.
        seed (int): the seed of the order, the same on every rank. Default: 0.
        num_replicas (int, optional): the number of ranks. Default: that of `torch.distributed`,
            or 1 if it is not initialised.
        rank (int, optional): the number of this rank. Default: that of `torch.distributed`, or 0.

    Shape:
        - labels: `(n,)` for classes, or `(n, C)` for several labels, of which each combination is a
          class.

    Raises:
        ValueError: if `batch_size` or `rank` is out of its range, or there are too few samples for
            one batch on each rank.

    Examples:
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
        if num_replicas is None:
            num_replicas = dist.get_world_size() if initialised else 1
        if num_replicas < 1:
            raise ValueError(f"num_replicas must be at least 1; got {num_replicas!r}")
        self.num_replicas = num_replicas
        self.rank = (dist.get_rank() if initialised else 0) if rank is None else rank
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; got {batch_size!r}")
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(
                f"rank must be in 0 to {self.num_replicas - 1} (num_replicas - 1); got {self.rank}"
            )
        _, classes = np.unique(np.asarray(labels), axis=0, return_inverse=True)
        self._classes = classes.reshape(-1)
        self.batch_size, self.drop_last = batch_size, drop_last
        self.seed, self.epoch = seed, 0
        samples, per_step = len(self._classes), batch_size * self.num_replicas
        self._batches = samples // per_step if drop_last else -(-samples // per_step)
        if self._batches == 0 or samples < self._batches * self.num_replicas:
            raise ValueError(
                f"{samples} samples are too few for batches of {batch_size} on {self.num_replicas} "
                "ranks; use smaller batches or fewer ranks"
            )

    def __len__(self) -> int:
        return self._batches

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch, when a run is resumed.

        Args:
            epoch (int): the number of the epoch, from 0. With the seed it decides the order.
        """
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order()
        self.epoch += 1
        parts = self._batches * self.num_replicas
        used = parts * self.batch_size if self.drop_last else len(order)
        for part in range(self.rank, parts, self.num_replicas):
            yield order[used * part // parts : used * (part + 1) // parts].tolist()

    def _order(self) -> Array:
        """All samples; the k-th of the n samples of a class has the position (k + offset) / n."""
        generator = np.random.default_rng([self.seed, self.epoch])
        counts = np.bincount(self._classes)
        shuffled = generator.permutation(len(self._classes))
        by_class = shuffled[np.argsort(self._classes[shuffled], kind="stable")]
        classes = self._classes[by_class]
        number = np.arange(len(by_class)) - (np.cumsum(counts) - counts)[classes]
        offsets = generator.random(len(counts))
        return by_class[np.argsort((number + offsets[classes]) / counts[classes], kind="stable")]
