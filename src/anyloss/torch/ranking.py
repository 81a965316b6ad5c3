"""Losses for metrics of the order of the rows: soft-set AUROC and average precision, and WMW."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from anyloss._core.counts import Counts
from anyloss._core.options import make_steps
from anyloss._core.shapes import Task, make_options
from anyloss.steps import Linear, Step
from anyloss.torch.batch import BACKENDS, Batch, check_logits, count, make_batch, make_rows
from anyloss.torch.sync import over_ranks, pooled

GRID = tuple(k / 10 for k in range(1, 10))


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """A quotient that is 0, with slope 0, where the denominator is."""
    void = denominator < BACKENDS[denominator.dtype].tiny
    return torch.where(void, 0.0, numerator / torch.where(void, 1.0, denominator))


class _CurveLoss(nn.Module, ABC):
    """One minus the area under a curve of soft counts over a grid of thresholds.

    The ranks of `torch.distributed` exchange their counts, as in `AnyLoss`.
    """

    def __init__(
        self,
        *,
        step: Step | None = None,
        thresholds: Sequence[float] = GRID,
        average: str | None = "macro",
        from_logits: bool = True,
        task: Task = "auto",
        class_axis: int | None = None,
        validate: bool = True,
        sync: bool | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.sync, self.group = sync, group
        if average not in ("macro", None):
            raise ValueError(f"average must be 'macro' or None; got {average!r}")
        self.average = average
        # From the strictest threshold down, so that the curve runs from left to right.
        grid = sorted(set(thresholds), reverse=True)
        self.steps = make_steps(Linear() if step is None else step, None, grid)
        self.options = make_options(
            from_logits=from_logits, task=task, class_axis=class_axis, validate=validate
        )

    def forward(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        batch = make_batch(input, target, weight, self.options)
        if batch.layout.task == "multiclass":
            raise ValueError(
                f"{type(self).__name__} takes labels of the shape of the scores; got class indices"
            )
        area = self.area(self._curve(batch))
        if self.average:
            area = area.mean()
        if batch.checked and not torch.isfinite(area.detach()).all():
            raise ValueError(f"weights must not overflow; the area came out as {area.tolist()}")
        return (1 - area).to(batch.scores.dtype)

    def _curve(self, batch: Batch) -> Counts:
        """The counts at each threshold: `(thresholds, classes)`."""
        backend = BACKENDS[batch.scores.dtype]
        for step in self.steps:
            step.check_dtype(str(batch.scores.dtype), backend.tiny)
        rows = make_rows(batch, backend)
        points = [count(rows, step, self.options, backend) for step in self.steps]
        cells = torch.stack([torch.cat(cells, 1)[0] for cells in zip(*points, strict=True)])
        pool = over_ranks(self.sync, self.group)
        return Counts(*(cells if pool is None else pooled(pool, 0, cells)))

    @abstractmethod
    def area(self, counts: Counts) -> Tensor:
        """The area under the curve of each column."""


def _with_ends(x: Tensor, first: float, last: Tensor | float) -> Tensor:
    row = x[:1] * 0
    return torch.cat([row + first, x, row + last])


class AUROCLoss(_CurveLoss):
    """One minus the area under the soft ROC curve (Bridging the Gap), by the trapezoid rule.

    The end points (0, 0) and (1, 1) belong to the curve. Soft counts are not a ranking: scores in
    perfect order but far from 0 and 1 still have a loss. Without rows of both classes the area is
    0 with slope 0. Columns of `(n, C)` are averaged, or have a loss each with `average=None`.

    >>> loss = AUROCLoss(from_logits=False)
    >>> loss(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0, 0, 1])).item()
    0.0
    """

    def area(self, counts: Counts) -> Tensor:
        tp, fn, fp, tn = counts
        tpr = _with_ends(_ratio(tp, tp + fn), 0.0, 1.0)
        fpr = _with_ends(_ratio(fp, fp + tn), 0.0, 1.0)
        area = ((tpr[1:] + tpr[:-1]) / 2 * (fpr[1:] - fpr[:-1])).sum(0)
        both = ((tp + fn)[0] > 0) & ((fp + tn)[0] > 0)
        return torch.where(both, area, 0.0)


class AveragePrecisionLoss(_CurveLoss):
    """One minus the soft average precision: precision summed over the steps of recall.

    The curve begins at recall 0 and ends where every row is called positive.

    >>> loss = AveragePrecisionLoss(from_logits=False)
    >>> loss(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0, 0, 1])).item()
    0.0
    """

    def area(self, counts: Counts) -> Tensor:
        tp, fn, fp, tn = counts
        positives = (tp + fn)[:1]
        share = _ratio(positives, positives + (fp + tn)[:1])
        recall = _with_ends(_ratio(tp, tp + fn), 0.0, _ratio(positives, positives))
        precision = _with_ends(_ratio(tp, tp + fp), 1.0, share)
        return ((recall[1:] - recall[:-1]) * precision[1:]).sum(0)


class WMWLoss(nn.Module):
    """The Wilcoxon-Mann-Whitney loss of Yan et al. (2003), a smooth stand-in for AUROC.

    The mean over all pairs of a positive and a negative row of `max(0, gap - (x_i - x_j))^power`,
    with `x` the probability (the authors sum; a mean does not grow with the batch). The pairs are
    held in memory. Without both classes in the batch there is no pair and the loss is 0. Each rank
    of `torch.distributed` compares its own rows.

    >>> loss = WMWLoss(gap=0.5, power=2.0, from_logits=False)
    >>> loss(torch.tensor([0.9, 0.3, 0.5]), torch.tensor([1, 0, 0])).item() < 0.006
    True
    """

    def __init__(
        self,
        gap: float = 0.3,
        power: float = 2.0,
        *,
        from_logits: bool = True,
        task: Task = "auto",
        validate: bool = True,
    ) -> None:
        super().__init__()
        if not 0 < gap <= 1:
            raise ValueError(f"gap must be greater than 0 and at most 1; got {gap!r}")
        if not 1 < power <= 8:
            raise ValueError(f"power must be greater than 1 and at most 8; got {power!r}")
        self.gap, self.power = gap, power
        self.options = make_options(from_logits=from_logits, task=task, validate=validate)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        batch = make_batch(input, target, None, self.options)
        if batch.layout.task != "binary":
            raise ValueError(f"WMWLoss takes a single column; got {batch.layout.task} input")
        x, y = batch.scores.reshape(-1), batch.target.reshape(-1)
        if batch.checked and not ((y == 0) | (y == 1)).all():
            raise ValueError("WMWLoss compares pairs and needs labels of exactly 0 or 1")
        if batch.checked:
            check_logits(x, finite=False)
        x = torch.sigmoid(x) if self.options.from_logits else x
        if batch.checked:  # fewer pairs; elsewhere a choice of rows would wait for the device
            short = (self.gap - (x[y == 1][:, None] - x[y == 0])).clamp_min(0.0)
            return (short**self.power).sum() / max(1, short.numel())
        is_pair = y[:, None] * (1 - y)
        short = (self.gap - (x[:, None] - x)).clamp_min(0.0)
        return (is_pair * short**self.power).sum() / is_pair.sum().clamp_min(1.0)
