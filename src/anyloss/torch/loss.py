"""Any metric of the confusion matrix as a PyTorch loss: `AnyLoss` and its functional twin.

The order is PyTorch's: `loss(input, target)`, logits first. Shapes and averages are those of
`anyloss.counts`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from anyloss._core.counts import (
    Counts,
    averaged,
    check_finite,
    score_parts,
    whole_score,
    zero_division,
)
from anyloss._core.gradient import Slopes, binary_slopes, class_slopes
from anyloss._core.options import (
    FunctionSettings,
    Settings,
    SharedSettings,
    make_settings,
    shows_options_of,
)
from anyloss._core.shapes import PerSample, Task, ZeroDivision
from anyloss.metrics import Metric, MetricSpec
from anyloss.steps import Amplified, Step, Uniform
from anyloss.torch.batch import (
    BACKENDS,
    Batch,
    count,
    entropy_sums,
    hard_count,
    make_rows,
    read_batch,
)
from anyloss.torch.fast import closed_form_loss
from anyloss.torch.memory import RunningCounts, Watch
from anyloss.torch.sync import CROSS_ENTROPY, Pool, once, over_ranks, pooled, refuse_join


@shows_options_of(make_settings)
def any_loss(
    input: Tensor,
    target: Tensor,
    metric: MetricSpec | Metric = "f1",
    *,
    weight: Tensor | None = None,
    sync: bool | None = None,
    group: dist.ProcessGroup | None = None,
    **options: Unpack[FunctionSettings],
) -> Tensor:
    """The functional twin of `AnyLoss`: one minus the soft metric, with the same arguments.

    It has no `memory`, for want of a place to keep it.

    >>> logits = torch.tensor([2.0, -1.0, 0.5, -2.0])
    >>> round(any_loss(logits, torch.tensor([1, 0, 1, 0]), "f1", threshold=0.4).item(), 4)
    0.2209
    """
    settings = make_settings(metric, **options)
    batch = read_batch(input, target, weight, settings)
    return batch_loss(batch, settings, over_ranks(sync, group))


# The fast path knows false and true negatives as differences of sums. Where almost every row is
# predicted positive, too little of these is left, and the plain path sums them themselves.
IMPRECISE = {dtype: 1e5 * torch.finfo(dtype).eps for dtype in BACKENDS}


class _ImpreciseError(Exception):
    """The fast path's counts would lose their digits."""


_known_steps: set[tuple[Step, torch.dtype]] = set()  # whose slope has been found to fit


def batch_loss(batch: Batch, settings: Settings, pool: Pool | None = None) -> Tensor:
    """One minus the soft metric of a batch, or of all that the pool adds to it."""
    losses = [_step_loss(batch, k, settings, pool) for k in range(len(settings.steps))]
    loss = losses[0] if len(losses) == 1 else torch.stack(losses).mean(0)
    if settings.cross_entropy:
        loss = loss + settings.cross_entropy * _cross_entropy(batch, pool)
    return loss


def _step_loss(batch: Batch, k: int, settings: Settings, pool: Pool | None) -> Tensor:
    step, dtype = settings.steps[k], batch.scores.dtype
    if (step, dtype) not in _known_steps:
        step.check_dtype(str(dtype), BACKENDS[dtype].tiny)
        _known_steps.add((step, dtype))
    fast = type(step) is Amplified or (type(step) is Uniform and step.is_identity)
    if fast and _fast_path_serves(batch):
        return _fast_loss(batch, step, k, settings, pool)  # type: ignore[arg-type]
    return _plain_loss(batch, k, settings, pool)


def _plain_loss(batch: Batch, k: int, settings: Settings, pool: Pool | None) -> Tensor:
    backend = BACKENDS[batch.scores.dtype]
    rows = make_rows(batch, backend)
    own = count(rows, settings.steps[k], batch.options, backend)
    counts, score = _score(own, batch, settings, pool, k, sample_weight=rows.sample_weight)
    loss: Tensor = (1 - score).to(batch.scores.dtype)
    if batch.checked:
        with torch.no_grad():
            check_finite(counts, [loss, *counts], settings.metric)
    return loss


def _score(
    counts: Counts,
    batch: Batch,
    settings: Settings,
    pool: Pool | None,
    k: int,
    *,
    hard: bool = False,
    sample_weight: Tensor | None = None,
) -> tuple[Counts, Tensor]:
    """The counts of all that is in the pool, and their score."""
    # Counts are double; a derivative must fit into the type of the scores all the same.
    lay, backend = batch.layout, BACKENDS[counts.tp.dtype if hard else batch.scores.dtype]
    if pool is not None and not lay.per_sample:
        counts = Counts(*pooled(pool, k, torch.stack(tuple(counts))))
    smooth = 0.0 if hard else settings.smooth
    found = averaged(settings.metric, counts, lay, backend, smooth=smooth, hard=hard)
    parts = score_parts(found, counts, lay, backend, sample_weight)
    if pool is not None and lay.per_sample:  # a sample is in one part of the pool as a whole
        parts = tuple(pooled(pool, k, torch.stack(parts)))
    return counts, whole_score(*parts, lay, hard, backend)


def _cross_entropy(batch: Batch, pool: Pool | None) -> Tensor:
    """The mean cross-entropy over the weight of all parts of the pool."""
    sums = entropy_sums(batch)
    if pool is not None:
        sums = pooled(pool, CROSS_ENTROPY, sums)
    loss: Tensor = sums[0] / sums[1].detach().clamp_min(BACKENDS[sums.dtype].tiny)
    if batch.checked and not torch.isfinite(loss.detach()):
        raise ValueError(
            "input must hold finite numbers where cross_entropy is added; the cross-entropy came "
            f"out as {loss.item()}"
        )
    return loss


def _fast_path_serves(batch: Batch) -> bool:
    lay, scores = batch.layout, batch.scores
    return (
        batch.eager
        and scores.is_cpu
        and batch.options.from_logits
        and not batch.options.per_sample
        and not batch.options.soft_labels
        and not batch.masked
        and not batch.target.requires_grad
        and (
            (lay.task == "binary" and lay.average is not None)
            or (lay.task == "multilabel" and scores.ndim == 2)
        )
    )


def _fast_loss(
    batch: Batch, step: Amplified | Uniform, k: int, settings: Settings, pool: Pool | None
) -> Tensor:
    z, y = batch.scores, batch.target
    if batch.layout.task == "binary" and z.ndim > 1:
        z, y = z.reshape(-1), y.reshape(-1)
    imprecise = IMPRECISE[z.dtype]
    pool = pool and once(pool)

    def evaluate(counts: Counts) -> Slopes:
        tp, fn, fp, tn = counts
        lost = (fn + tn < imprecise * z.shape[0]) | (tn < imprecise * (fp + tn))
        # Of either class, a cell that is a difference must be more than rounding.
        least = imprecise / 100
        lost |= ((tp < least * fn) | (fn < least * tp)) & (tp + fn > 0)
        lost |= (fp < least * tn) & (fp + tn > 0)
        if lost if z.ndim == 1 else lost.any():
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
    lay = batch.layout
    if lay.average == "binary" and zero_division(lay, hard=False) == 0:
        slopes = binary_slopes(counts, settings.metric, settings.smooth)
        if math.isfinite(slopes.score + slopes.A + slopes.B + counts.tn):
            return slopes
    else:
        arrays = Counts(*(np.asarray(x).reshape(1, 1, -1) for x in counts))
        slopes = class_slopes(arrays, settings.metric, lay, settings.smooth)
        if lay.task == "binary":
            slopes = Slopes(*(x.item() for x in slopes))
    if batch.checked:
        check_finite(counts, [*slopes, *counts], settings.metric)
    return slopes


class AnyLoss(nn.Module):
    """One minus a soft metric of the confusion matrix: train for the metric you report.

    `loss = 1 - score(soft counts) + cross_entropy * CE`. `loss(input, target, weight=None)` is a
    scalar to minimise (one loss per class with `average=None`); `loss.score(input, target)` is the
    true metric of the hard decisions and `loss.soft_score(input, target)` the soft one.

    Args:
        metric: a name (`"f1"`, see `anyloss.METRICS`), a formula (`"tp / (tp + 0.3*fp + 2*fn)"`)
            or a function of `tp, fn, fp, tn`. Higher is better: write a cost as `1 - cost`.
        step: the smooth approximation of "above the threshold?", from `anyloss.steps`. The
            default, `Uniform()`, is the probability itself: perfect, confident predictions have
            loss 0, and many classes train (benchmarks/README.md). The papers' step is
            `Amplified(73.0)`; computed stably, it learns in float32 too.
        threshold: short for the default step at this threshold.
        thresholds: the mean over the step at each of these thresholds, in `score` as well.
        average: over several classes or labels: `"macro"`, `"micro"`, `"weighted"`,
            `"multiclass"` (the metric's own form for several classes) or None for one score per
            class. `"auto"` is `"binary"` for one column and for two classes; for several classes
            the metric's own form where it has one (accuracy, MCC, kappa, balanced accuracy,
            G-mean, H-mean), else `"macro"`; for several labels `"macro"`.
        smooth: a number that is added to each soft cell; never in `score`.
        cross_entropy: how much of the mean cross-entropy is added. 0.1 keeps the first steps of a
            network from a collapse to one class; with 0, the default, the loss is the metric.
        from_logits: whether `input` holds logits (the default) or probabilities.
        task: `"binary"` (every number is a decision of its own: a column, masks, tokens),
            `"multilabel"` (one label per entry of the class axis) or `"multiclass"` (class indices
            without the class axis, or one-hot labels). `"auto"` follows from the shapes, and
            raises where they have two readings.
        class_axis: the axis of the classes or labels in `input`; -1 for channels last. None is 1,
            as in PyTorch, and raises where class indices would fit the last axis too.
        per_sample: count within each sample of `(n, C, ...)` instead of pooling, and average over
            the samples, which weigh alike; `"weighted"`: by their number of valid pixels.
        zero_division: what a class does (per sample: a mask) for which a perfect decision would
            give 0/0, such as a class without a positive sample under F1. `"skip"` takes it out
            of the mean, 0 counts it as 0, 1 scores one minus the mean soft decision, so that false
            positives cost. `"auto"`: `"skip"` for several classes, 1 per sample, else 0. In
            `score` these are scikit-learn's nan, 0 and 1, and `"auto"` its default.
        soft_labels: labels between 0 and 1 (a teacher's probabilities) are matched, not rounded:
            the loss is smallest where the probability equals the label.
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

    >>> logits = torch.tensor([2.0, -1.0, 0.5, -2.0], requires_grad=True)
    >>> target = torch.tensor([1.0, 0.0, 1.0, 0.0])
    >>> loss = AnyLoss("f1", cross_entropy=0.1)
    >>> loss(logits, target).backward()
    >>> loss.score(logits, target).item()
    1.0
    >>> round(AnyLoss("f1").soft_score(logits, target).item(), 4)
    0.7726
    """

    def __init__(
        self,
        metric: MetricSpec | Metric = "f1",
        *,
        step: Step | None = None,
        threshold: float | None = None,
        thresholds: Sequence[float] | None = None,
        average: str | None = "auto",
        smooth: float = 0.0,
        cross_entropy: float = 0.0,
        from_logits: bool = True,
        task: Task = "auto",
        class_axis: int | None = None,
        per_sample: PerSample = False,
        zero_division: ZeroDivision = "auto",
        soft_labels: bool = False,
        ignore_index: int | None = None,
        validate: bool = True,
        sync: bool | None = None,
        group: dist.ProcessGroup | None = None,
        memory: float | None = None,
        **params: float,
    ) -> None:
        super().__init__()
        self.settings = make_settings(
            metric,
            step=step,
            threshold=threshold,
            thresholds=thresholds,
            average=average,
            smooth=smooth,
            cross_entropy=cross_entropy,
            from_logits=from_logits,
            task=task,
            class_axis=class_axis,
            per_sample=per_sample,
            zero_division=zero_division,
            soft_labels=soft_labels,
            ignore_index=ignore_index,
            validate=validate,
            **params,
        )
        self.sync, self.group = sync, group
        if memory is not None and self.settings.options.per_sample:
            raise ValueError("per_sample=True is a mean over samples and takes no memory=")
        self.memory = None if memory is None else RunningCounts(memory)
        self._watch, self._join_refused = Watch(), False

    def forward(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        batch = read_batch(input, target, weight, self.settings)
        pool = self.pool()
        if pool is None and batch.checked and torch.is_grad_enabled():
            self._watch.see(batch)
        return batch_loss(batch, self.settings, pool)

    def pool(self) -> Pool | None:
        """What this batch is counted together with: the other ranks' rows, the batches before."""
        pool = over_ranks(self.sync, self.group)
        if pool is not None and not (self._join_refused or torch.compiler.is_compiling()):
            refuse_join()
            self._join_refused = True
        if self.memory is not None and torch.is_grad_enabled():
            pool = self.memory.behind(pool)
        return pool

    def soft_score(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The soft metric that is trained: one minus the loss without cross-entropy.

        Beside `memory=` a call with gradients is a batch more; to look only, use `torch.no_grad`.
        """
        batch = read_batch(input, target, weight, self.settings)
        return 1 - batch_loss(batch, self.settings._replace(cross_entropy=0.0), self.pool())

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

        It equals scikit-learn's function of the same name (docs/metrics.md). With `sync=True`, here
        or in the constructor, it is that of the rows of all ranks, which must then all call.
        """
        batch = read_batch(input, target, weight, self.settings)
        pool = over_ranks(self.sync if sync is None else sync, self.group)
        scores = []
        for k, step in enumerate(self.settings.steps):
            counts, samples = hard_count(batch, step)
            _, score = _score(
                counts, batch, self.settings, pool, k, hard=True, sample_weight=samples
            )
            scores.append(score)
        return torch.stack(scores).mean(0)

    def extra_repr(self) -> str:
        given = {"sync": self.sync, "group": self.group}
        more = [f"{name}={value!r}" for name, value in given.items() if value is not None]
        return ", ".join([self.settings.describe(), *more])


class LossSettings(SharedSettings, total=False):
    """The arguments of the named losses: those of `AnyLoss` but for the metric."""

    sync: bool | None
    group: dist.ProcessGroup | None
    memory: float | None


@shows_options_of(AnyLoss)
class AccuracyLoss(AnyLoss):
    """`AnyLoss("accuracy")`."""

    def __init__(self, **settings: Unpack[LossSettings]) -> None:
        super().__init__("accuracy", **settings)


@shows_options_of(AnyLoss)
class F1Loss(AnyLoss):
    """`AnyLoss("f1")`.

    >>> F1Loss()(torch.tensor([9.0, -9.0]), torch.tensor([1, 0])).item() < 0.01
    True
    """

    def __init__(self, **settings: Unpack[LossSettings]) -> None:
        super().__init__("f1", **settings)


@shows_options_of(AnyLoss)
class FBetaLoss(AnyLoss):
    """`AnyLoss("fbeta", beta=beta)`: recall counts `beta` times as much as precision."""

    def __init__(self, beta: float = 1.0, **settings: Unpack[LossSettings]) -> None:
        super().__init__("fbeta", beta=beta, **settings)


@shows_options_of(AnyLoss)
class GeometricMeanLoss(AnyLoss):
    """`AnyLoss("gmean")`: the root of recall times specificity."""

    def __init__(self, **settings: Unpack[LossSettings]) -> None:
        super().__init__("gmean", **settings)


@shows_options_of(AnyLoss)
class BalancedAccuracyLoss(AnyLoss):
    """`AnyLoss("balanced_accuracy")`."""

    def __init__(self, **settings: Unpack[LossSettings]) -> None:
        super().__init__("balanced_accuracy", **settings)


@shows_options_of(AnyLoss)
class MCCLoss(AnyLoss):
    """`AnyLoss("mcc")`: between 0 (perfect) and 2 (every decision wrong)."""

    def __init__(self, **settings: Unpack[LossSettings]) -> None:
        super().__init__("mcc", **settings)
