"""Any metric of the confusion matrix as a PyTorch loss: `AnyLoss` and its functional twin.

The order is PyTorch's: `loss(input, target)`, logits first. Shapes and averages are those of
`anyloss.counts`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from anyloss.arithmetic import Ops
from anyloss.counts import Counts, check_finite, score_counts
from anyloss.metrics import Metric, MetricSpec
from anyloss.settings import Settings, make_settings
from anyloss.slopes import Slopes, binary_slopes, class_slopes
from anyloss.steps import Amplified, Step
from anyloss.torch.batch import FLOAT_OPS, HARD_OPS, OPS, Batch, count, hard_count, make_batch
from anyloss.torch.fast import closed_form_loss
from anyloss.torch.memory import RunningCounts, Watch
from anyloss.torch.sync import Pool, once, over_ranks, pooled


def any_loss(
    input: Tensor,
    target: Tensor,
    metric: MetricSpec | Metric = "f1",
    *,
    weight: Tensor | None = None,
    sync: bool | None = None,
    group: dist.ProcessGroup | None = None,
    **arguments: Any,
) -> Tensor:
    """The functional twin of `AnyLoss`: one minus the soft metric, with the same arguments.

    It has no `memory`, for want of a place to keep it.

    >>> logits = torch.tensor([2.0, -1.0, 0.5, -2.0])
    >>> round(any_loss(logits, torch.tensor([1, 0, 1, 0]), "f1", threshold=0.4).item(), 4)
    0.0901
    """
    settings = make_settings(metric, **arguments)
    batch = make_batch(input, target, weight, settings.options)
    return batch_loss(batch, settings, over_ranks(sync, group))


# The fast path knows the misses and the all-clears as differences of sums. Where almost every row
# is called positive, too little of these is left, and the plain path sums them themselves.
IMPRECISE = {dtype: 1e5 * torch.finfo(dtype).eps for dtype in OPS}


class _ImpreciseError(Exception):
    """The fast path's counts would lose their digits."""


_known_steps: set[tuple[Step, torch.dtype]] = set()  # whose slope has been found to fit


def batch_loss(batch: Batch, settings: Settings, pool: Pool | None = None) -> Tensor:
    """One minus the soft metric of a batch, or of all that the pool adds to it."""
    losses = [_step_loss(batch, k, settings, pool) for k in range(len(settings.steps))]
    return losses[0] if len(losses) == 1 else torch.stack(losses).mean(0)


def _step_loss(batch: Batch, k: int, settings: Settings, pool: Pool | None) -> Tensor:
    step, dtype = settings.steps[k], batch.scores.dtype
    if (step, dtype) not in _known_steps:
        step.check_dtype(str(dtype), OPS[dtype].tiny)
        _known_steps.add((step, dtype))
    if type(step) is Amplified and _fast_path_serves(batch):
        return _fast_loss(batch, step, k, settings, pool)
    return _plain_loss(batch, k, settings, pool)


def _plain_loss(batch: Batch, k: int, settings: Settings, pool: Pool | None) -> Tensor:
    ops = OPS[batch.scores.dtype]
    own = count(batch, settings.steps[k], ops)
    counts, score = _score(own, batch, settings, ops, pool, k)
    loss: Tensor = (1 - score).to(batch.scores.dtype)
    if batch.checked:
        with torch.no_grad():
            check_finite(counts, [loss, *counts], settings.metric)
    return loss


def _score(
    counts: Counts, batch: Batch, settings: Settings, ops: Ops, pool: Pool | None, k: int
) -> tuple[Counts, Tensor]:
    """The counts of all that is in the pool, and their score."""
    whole = batch.options.per_sample  # a sample is in one part of the pool as a whole
    if pool is not None and not whole:
        counts = Counts(*pooled(pool, k, torch.stack(tuple(counts))))
    score: Tensor = score_counts(counts, settings.metric, batch.layout, ops, settings.smooth)
    if pool is not None and whole:
        own = torch.stack(tuple(counts)).sum()
        sums = pooled(pool, k, torch.cat([(score * own).reshape(-1), own.reshape(1)]))
        score = (sums[:-1] / sums[-1].clamp_min(ops.tiny)).reshape(score.shape)
    return counts, score


def _fast_path_serves(batch: Batch) -> bool:
    lay, scores = batch.layout, batch.scores
    return (
        batch.eager
        and scores.is_cpu
        and batch.options.from_logits
        and not batch.options.per_sample
        and not batch.masked
        and not batch.target.requires_grad
        and (
            (lay.kind == "binary" and lay.average is not None)
            or (lay.kind == "multilabel" and scores.ndim == 2)
        )
    )


def _fast_loss(
    batch: Batch, step: Amplified, k: int, settings: Settings, pool: Pool | None
) -> Tensor:
    z, y = batch.scores, batch.target
    if batch.layout.kind == "binary" and z.ndim > 1:
        z, y = z.reshape(-1), y.reshape(-1)
    negligible = IMPRECISE[z.dtype] * z.shape[0]
    pool = pool and once(pool)

    def evaluate(counts: Counts) -> Slopes:
        negative = counts.fn + counts.tn
        if (negative if z.ndim == 1 else negative.min()) < negligible:
            raise _ImpreciseError  # before the exchange: a rank comes there once, on either path
        if pool is None:
            return _slopes(counts, batch, settings)
        own = torch.tensor(np.stack(tuple(counts)).reshape(4, 1, 1, -1))
        total, factor = pool(k, own)
        counts = Counts(*(total.flatten().tolist() if z.ndim == 1 else total.numpy()))
        score, A, B = _slopes(counts, batch, settings)
        return Slopes(score, factor * A, factor * B)

    def plain(scores: Tensor) -> Tensor:
        return _plain_loss(batch._replace(scores=scores, target=y), k, settings, pool)

    try:
        return closed_form_loss(z, y, step, evaluate, plain)
    except _ImpreciseError:
        return plain(z)


def _slopes(counts: Counts, batch: Batch, settings: Settings) -> Slopes:
    """The slopes of the fast path's counts: floats for a column, else arrays."""
    lay, ops = batch.layout, FLOAT_OPS[batch.scores.dtype]
    if lay.average == "binary":
        slopes = binary_slopes(counts, settings.metric, settings.smooth, ops)
        if math.isfinite(slopes.score + slopes.A + slopes.B + counts.tn):
            return slopes
    else:
        arrays = Counts(*(np.asarray(x).reshape(1, 1, -1) for x in counts))
        slopes = class_slopes(arrays, settings.metric, lay, settings.smooth)
        if lay.kind == "binary":
            slopes = Slopes(*(x.item() for x in slopes))
    if batch.checked:
        check_finite(counts, [*slopes, *counts], settings.metric)
    return slopes


class AnyLoss(nn.Module):
    """One minus a soft metric of the confusion matrix: train for the metric you report.

    `loss(input, target, weight=None)` is a scalar to minimise (one loss per class with
    `average=None`); `loss.score(input, target)` is the true metric of the hard decisions and
    `loss.soft_score(input, target)` the soft one.

    Args:
        metric: a name (`"f1"`, see `anyloss.METRICS`), a formula (`"tp / (tp + 0.3*fp + 2*fn)"`)
            or a function of `tp, fn, fp, tn`. Higher is better: write a cost as `1 - cost`.
        step: the soft stand-in for "above the threshold?", from `anyloss.steps`. The default,
            `Amplified(scale=10)`, was chosen by measurement (benchmarks/README.md): sharper steps
            such as the paper's scale 73 leave most rows without a gradient, softer ones blur the
            decision. `Amplified(73.0)` is available and, computed stably, learns in float32 too.
        threshold: short for the default step at this threshold.
        thresholds: the mean over the step at each of these thresholds, in `score` as well.
        average: `"auto"` is `"binary"` for one column or two classes, else `"macro"`; also
            `"micro"`, `"weighted"`, `"multiclass"` (a genuine multiclass form) and None.
        smooth: added to each soft cell; never in `score`.
        from_logits: whether `input` holds logits (the default) or probabilities.
        per_sample: count within each sample of `(n, C, ...)` and average by the samples' weights,
            instead of pooling.
        multiclass: read a target of the input's shape as one-hot.
        ignore_index: rows with this label do not count.
        validate: check values (labels, weights, NaN). Only on the CPU and in eager mode: on an
            accelerator it would wait for the device. Types and shapes are always checked.
        sync: whether the ranks of `torch.distributed` exchange their counts, so that each gets the
            loss of the undivided batch, and the gradients that DDP or FSDP average are its
            gradient. By default they do while gradients are enabled; `True` is always, also in
            `score`, and then all ranks must call. See docs/distributed.md.
        group: the process group of these ranks; by default all.
        memory: for batches too small for the metric: each batch is counted together with those
            before it, which fade by this factor per batch, such as 0.98.
        **params: parameters of the metric, such as `beta=2` for `"fbeta"`.

    A little cross-entropy steadies the start of training, where a batch metric is flat:

    >>> logits = torch.tensor([2.0, -1.0, 0.5, -2.0], requires_grad=True)
    >>> target = torch.tensor([1.0, 0.0, 1.0, 0.0])
    >>> loss = AnyLoss("f1")
    >>> bce = nn.functional.binary_cross_entropy_with_logits(logits, target)
    >>> (loss(logits, target) + 0.1 * bce).backward()
    >>> loss.score(logits, target).item()
    1.0
    >>> round(loss.soft_score(logits, target).item(), 4)
    0.9066
    """

    def __init__(
        self,
        metric: MetricSpec | Metric = "f1",
        *,
        sync: bool | None = None,
        group: dist.ProcessGroup | None = None,
        memory: float | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__()
        self.settings = make_settings(metric, **arguments)
        self.sync, self.group = sync, group
        if memory is not None and self.settings.options.per_sample:
            raise ValueError("per_sample=True is a mean over samples and takes no memory=")
        self.memory = None if memory is None else RunningCounts(memory)
        self._watch = Watch()

    def forward(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        batch = make_batch(input, target, weight, self.settings.options)
        pool = self.pool()
        if pool is None and batch.checked and batch.layout.kind == "binary":
            self._watch.see(batch.target)
        return batch_loss(batch, self.settings, pool)

    def pool(self) -> Pool | None:
        """What this batch is counted together with: the other ranks' rows, the batches before."""
        pool = over_ranks(self.sync, self.group)
        if self.memory is not None and torch.is_grad_enabled():
            pool = self.memory.behind(pool)
        return pool

    def soft_score(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The soft metric that is trained: one minus the loss.

        Beside `memory=` a call with gradients is a batch more; to look only, use `torch.no_grad`.
        """
        return 1 - self.forward(input, target, weight)

    @torch.no_grad()
    def score(
        self,
        input: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        sync: bool | None = None,
    ) -> Tensor:
        """The true metric of the hard decisions, in double precision.

        Of the rows of all ranks with `sync=True`, here or in the constructor; all must then call.
        """
        batch = make_batch(input, target, weight, self.settings.options)
        ops, settings = HARD_OPS[batch.scores.dtype], self.settings._replace(smooth=0.0)
        pool = over_ranks(self.sync if sync is None else sync, self.group)
        scores = [
            _score(hard_count(batch, step), batch, settings, ops, pool, k)[1]
            for k, step in enumerate(settings.steps)
        ]
        return torch.stack(scores).mean(0)

    def extra_repr(self) -> str:
        return f"{self.settings.metric!r}, {', '.join(map(repr, self.settings.steps))}"


class AccuracyLoss(AnyLoss):
    """`AnyLoss("accuracy")`."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__("accuracy", **arguments)


class F1Loss(AnyLoss):
    """`AnyLoss("f1")`.

    >>> F1Loss()(torch.tensor([9.0, -9.0]), torch.tensor([1, 0])).item() < 0.01
    True
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__("f1", **arguments)


class FBetaLoss(AnyLoss):
    """`AnyLoss("fbeta", beta=beta)`: recall counts `beta` times as much as precision."""

    def __init__(self, beta: float = 1.0, **arguments: Any) -> None:
        super().__init__("fbeta", beta=beta, **arguments)


class GeometricMeanLoss(AnyLoss):
    """`AnyLoss("gmean")`: the root of recall times specificity."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__("gmean", **arguments)


class BalancedAccuracyLoss(AnyLoss):
    """`AnyLoss("balanced_accuracy")`."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__("balanced_accuracy", **arguments)


class MCCLoss(AnyLoss):
    """`AnyLoss("mcc")`: between 0 (perfect) and 2 (every decision wrong)."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__("mcc", **arguments)
