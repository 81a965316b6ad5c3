"""Losses for ranking metrics: soft AUROC, soft average precision, and the WMW loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from anyloss._core.choices import Task, make_options
from anyloss._core.counts import Counts
from anyloss._core.documents import documented, inherits_sections
from anyloss._core.options import make_steps
from anyloss.steps import Linear, Step
from anyloss.torch.batch import BACKENDS, Batch, check_logits, count, make_batch, make_samples
from anyloss.torch.sync import over_ranks, pooled

GRID = tuple(k / 10 for k in range(1, 10))


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """A quotient that is 0, with derivative 0, where the denominator is 0."""
    void = denominator < BACKENDS[denominator.dtype].tiny
    return torch.where(void, 0.0, numerator / torch.where(void, 1.0, denominator))


@documented
class _CurveLoss(nn.Module, ABC):
    """One minus the area under a curve of soft counts over a grid of thresholds.

    Args:
        step (Step, optional): the smooth approximation of "is the probability above the
            threshold?", a step with a threshold. Default: `Linear()`.
        thresholds (sequence of float): the thresholds of the points of the curve. Default: 0.1,
            0.2, ..., 0.9.
        average (str or None): `"macro"` for the mean over the columns of `(n, C)`, or None for one
            loss per column. Default: `"macro"`.

    Shape:
        - input: `(n,)`, or `(n, C)` with one label per column.
        - target: the shape of the input, with values in [0, 1].
        - weight: `(n,)` or the shape of the input.
        - output: a scalar, or `(C,)` with `average=None`.

    Raises:
        ValueError: if an option has an invalid value, the step has no threshold, the shapes do not
            match, or the target holds class indices.
    """

    def __init__(
        self, *, step: Step | None = None, thresholds: Sequence[float] = GRID,
        average: str | None = "macro", from_logits: bool = True, task: Task = "auto",
        class_axis: int | None = None, validate: bool = True,
        sync: bool | None = None, group: dist.ProcessGroup | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.sync, self.group = sync, group
        if average not in ("macro", None):
            raise ValueError(f"average must be 'macro' or None; got {average!r}")
        self.average = average
        # The thresholds decrease, so that the curve runs from left to right.
        grid = sorted(set(thresholds), reverse=True)
        self.steps = make_steps(Linear() if step is None else step, None, grid)
        self.options = make_options(
            from_logits=from_logits, task=task, class_axis=class_axis, validate=validate
        )

    def forward(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss of a batch: a scalar, or one loss per column with `average=None`."""
        batch = make_batch(input, target, weight, self.options)
        if batch.layout.task == "multiclass":
            raise ValueError(
                f"the target of {type(self).__name__} must hold labels of the shape of the scores; "
                "got class indices. Convert them with torch.nn.functional.one_hot"
            )
        area = self.area(self._curve(batch))
        if self.average:
            area = area.mean()
        if batch.checked and not torch.isfinite(area.detach()).all():
            raise ValueError(
                f"the area under the curve is not finite: {area.tolist()}; use smaller weights"
            )
        return (1 - area).to(batch.scores.dtype)

    def _curve(self, batch: Batch) -> Counts:
        """The counts at each threshold, of shape `(thresholds, classes)`."""
        backend = BACKENDS[batch.scores.dtype]
        for step in self.steps:
            step.check_dtype(str(batch.scores.dtype), backend.tiny)
        samples = make_samples(batch, backend)
        points = [count(samples, step, self.options, backend) for step in self.steps]
        cells = torch.stack([torch.cat(cells, 1)[0] for cells in zip(*points, strict=True)])
        pool = over_ranks(self.sync, self.group)
        return Counts(*(cells if pool is None else pooled(pool, 0, cells)))

    @abstractmethod
    def area(self, counts: Counts) -> Tensor:
        """The area under the curve of each column."""


def _with_ends(x: Tensor, first: float, last: Tensor | float) -> Tensor:
    row = x[:1] * 0
    return torch.cat([row + first, x, row + last])


@inherits_sections(_CurveLoss)
class AUROCLoss(_CurveLoss):
    """One minus the area under the soft ROC curve.

    The soft true positive rate `tp / (tp + fn)` and the soft false positive rate `fp / (fp + tn)`
    are computed at each threshold. The area under the points and the end points (0, 0) and (1, 1)
    follows from the trapezoid rule.

    Soft counts are not a ranking: scores in perfect order that are far from 0 and 1 still have a
    loss above 0. If a class is absent from the batch, the area is 0 and its gradient is 0. The
    ranks of `torch.distributed` exchange their counts, as in `AnyLoss`.

    Examples:
        >>> loss = AUROCLoss(from_logits=False)
        >>> loss(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0, 0, 1])).item()
        0.0
        >>> round(loss(torch.tensor([0.6, 0.4]), torch.tensor([1, 0])).item(), 2)
        0.34

    References:
        N. Tsoi, K. Candon, D. Li, Y. Milkessa and M. Vázquez, "Bridging the Gap: Unifying the
        Training and Evaluation of Neural Network Binary Classifiers", NeurIPS 2022. Their curve
        has no end points, so that a perfect classifier has loss 1 there.
    """

    def area(self, counts: Counts) -> Tensor:
        tp, fn, fp, tn = counts
        tpr = _with_ends(_ratio(tp, tp + fn), 0.0, 1.0)
        fpr = _with_ends(_ratio(fp, fp + tn), 0.0, 1.0)
        area = ((tpr[1:] + tpr[:-1]) / 2 * (fpr[1:] - fpr[:-1])).sum(0)
        both = ((tp + fn)[0] > 0) & ((fp + tn)[0] > 0)
        return torch.where(both, area, 0.0)


@inherits_sections(_CurveLoss)
class AveragePrecisionLoss(_CurveLoss):
    """One minus the soft average precision.

    The average precision is `sum_k (recall_k - recall_{k-1}) precision_k` over the thresholds in
    decreasing order, with soft counts at each threshold. The curve starts at recall 0 and ends
    where every sample is predicted positive. If the batch has no positive sample, the average
    precision is 0 and its gradient is 0. The ranks of `torch.distributed` exchange their counts,
    as in `AnyLoss`.

    Examples:
        >>> loss = AveragePrecisionLoss(from_logits=False)
        >>> loss(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0, 0, 1])).item()
        0.0

    References:
        The soft counts over a grid of thresholds are those of N. Tsoi, K. Candon, D. Li, Y.
        Milkessa and M. Vázquez, "Bridging the Gap: Unifying the Training and Evaluation of Neural
        Network Binary Classifiers", NeurIPS 2022; the sum is that of scikit-learn's
        `average_precision_score`.
    """

    def area(self, counts: Counts) -> Tensor:
        tp, fn, fp, tn = counts
        positives = (tp + fn)[:1]
        share = _ratio(positives, positives + (fp + tn)[:1])
        recall = _with_ends(_ratio(tp, tp + fn), 0.0, _ratio(positives, positives))
        precision = _with_ends(_ratio(tp, tp + fp), 1.0, share)
        return ((recall[1:] - recall[:-1]) * precision[1:]).sum(0)


@documented
class WMWLoss(nn.Module):
    """The Wilcoxon-Mann-Whitney loss of pairs, a smooth approximation of one minus AUROC.

    The loss is the mean of `max(0, gap - (x_i - x_j))^power` over all pairs of a positive sample i
    and a negative sample j, with `x` the probability. (The authors sum over the pairs; a mean does
    not grow with the batch.)

    All pairs are held in memory. If a class is absent from the batch, there is no pair and the
    loss is 0. Each rank of `torch.distributed` compares its own samples only.

    Args:
        gap (float): the difference of probabilities above which a pair has no loss, in (0, 1]. The
            authors use 0.2 to 0.7. Default: 0.3.
        power (float): the exponent, in (1, 8]. The authors use 2 and 3. Default: 2.

    Shape:
        - input: `(n,)` or `(n, 1)`, or any shape with `task="binary"`.
        - target: the shape of the input, with values 0 and 1.
        - output: a scalar.

    Raises:
        ValueError: if `gap` or `power` is out of its range, there is more than one column, or a
            label is not exactly 0 or 1.

    Examples:
        >>> loss = WMWLoss(gap=0.5, power=2.0, from_logits=False)
        >>> round(loss(torch.tensor([0.9, 0.3, 0.5]), torch.tensor([1, 0, 0])).item(), 4)
        0.005

    References:
        L. Yan, R. Dodier, M. C. Mozer and R. Wolniewicz, "Optimizing Classifier Performance via an
        Approximation to the Wilcoxon-Mann-Whitney Statistic", ICML 2003.
    """

    def __init__(
        self, gap: float = 0.3, power: float = 2.0, *,
        from_logits: bool = True, task: Task = "auto", validate: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if not 0 < gap <= 1:
            raise ValueError(f"gap must be greater than 0 and at most 1; got {gap!r}")
        if not 1 < power <= 8:
            raise ValueError(f"power must be greater than 1 and at most 8; got {power!r}")
        self.gap, self.power = gap, power
        self.options = make_options(from_logits=from_logits, task=task, validate=validate)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of a batch, a scalar."""
        batch = make_batch(input, target, None, self.options)
        if batch.layout.task != "binary":
            raise ValueError(
                "the input of WMWLoss must be a single column, (n,) or (n, 1); got "
                f"{batch.layout.task} input"
            )
        x, y = batch.scores.reshape(-1), batch.target.reshape(-1)
        if batch.checked and not ((y == 0) | (y == 1)).all():
            raise ValueError("the target of WMWLoss must hold labels of exactly 0 or 1")
        if batch.checked:
            check_logits(x, finite=False)
        x = torch.sigmoid(x) if self.options.from_logits else x
        if batch.checked:  # fewer pairs; on an accelerator, selecting samples would synchronise
            short = (self.gap - (x[y == 1][:, None] - x[y == 0])).clamp_min(0.0)
            return (short**self.power).sum() / max(1, short.numel())
        is_pair = y[:, None] * (1 - y)
        short = (self.gap - (x[:, None] - x)).clamp_min(0.0)
        return (is_pair * short**self.power).sum() / is_pair.sum().clamp_min(1.0)
