"""Any metric of the confusion matrix as a PyTorch loss: `AnyLoss` and the function `any_loss`.

The argument order is that of PyTorch, `loss(input, target)`, and the scores are logits by default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from anyloss._core.absent import zero_division
from anyloss._core.counts import Counts
from anyloss._core.documents import documented, inherits_sections
from anyloss._core.gradient import Derivatives, binary_derivatives, class_derivatives
from anyloss._core.options import FunctionSettings, Settings, make_settings, shows_options_of
from anyloss._core.scoring import averaged, check_finite, score_parts, whole_score
from anyloss._core.shapes import PerSample, Task, ZeroDivision
from anyloss.metrics import Metric, MetricSpec
from anyloss.steps import Amplified, Step, Uniform
from anyloss.torch.batch import (
    BACKENDS,
    Batch,
    count,
    entropy_sums,
    hard_count,
    make_samples,
    read_batch,
)
from anyloss.torch.fast import FastStep, closed_form_loss
from anyloss.torch.memory import Monitor, RunningCounts
from anyloss.torch.sync import CROSS_ENTROPY, Pool, once, over_ranks, pooled, refuse_join

# The fast path computes false and true negatives as differences of sums. Where almost every sample
# is predicted positive, these differences lose their digits, and the plain path sums the counts
# directly.
IMPRECISE = {dtype: 1e5 * torch.finfo(dtype).eps for dtype in BACKENDS}


class _ImpreciseError(Exception):
    """The counts of the fast path would lose their digits."""


_known_steps: set[tuple[Step, torch.dtype]] = set()  # steps that passed check_dtype


def batch_loss(batch: Batch, settings: Settings, pool: Pool | None = None) -> Tensor:
    """The loss of a batch, or of the batch together with what the pool adds to it."""
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
    samples = make_samples(batch, backend)
    own = count(samples, settings.steps[k], batch.options, backend)
    counts, score = _score(own, batch, settings, pool, k, sample_weight=samples.sample_weight)
    loss: Tensor = (1 - score).to(batch.scores.dtype)
    if batch.checked:
        with torch.no_grad():
            check_finite(counts, [loss, *counts], settings.metric)
    return loss


def _score(
    counts: Counts, batch: Batch, settings: Settings, pool: Pool | None, k: int, *,
    hard: bool = False, sample_weight: Tensor | None = None,
) -> tuple[Counts, Tensor]:  # fmt: skip
    """The counts of all parts of the pool, and their score."""
    # Counts are double, but their derivatives must fit into the type of the scores.
    lay, backend = batch.layout, BACKENDS[counts.tp.dtype if hard else batch.scores.dtype]
    if pool is not None and not lay.per_sample:
        counts = Counts(*pooled(pool, k, torch.stack(tuple(counts))))
    smooth = 0.0 if hard else settings.smooth
    found = averaged(settings.metric, counts, lay, backend, smooth=smooth, hard=hard)
    parts = score_parts(found, counts, lay, backend, sample_weight)
    if pool is not None and lay.per_sample:  # each sample is in exactly one part of the pool
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
            "input must hold finite numbers where cross_entropy is added; got a cross-entropy of "
            f"{loss.item()}"
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
    batch: Batch, step: FastStep, k: int, settings: Settings, pool: Pool | None
) -> Tensor:
    z, y = batch.scores, batch.target
    if batch.layout.task == "binary" and z.ndim > 1:
        z, y = z.reshape(-1), y.reshape(-1)
    imprecise = IMPRECISE[z.dtype]
    pool = pool and once(pool)

    def evaluate(counts: Counts) -> Derivatives:
        tp, fn, fp, tn = counts
        lost = (fn + tn < imprecise * z.shape[0]) | (tn < imprecise * (fp + tn))
        # In each class, a count that is a difference must exceed the rounding error.
        least = imprecise / 100
        lost |= ((tp < least * fn) | (fn < least * tp)) & (tp + fn > 0)
        lost |= (fp < least * tn) & (fp + tn > 0)
        if lost if z.ndim == 1 else lost.any():
            raise _ImpreciseError  # before the exchange, which each rank makes once on either path
        if pool is None:
            return _derivatives(counts, batch, settings)
        own = torch.tensor(np.stack(tuple(counts)).reshape(4, 1, 1, -1))
        total, factor = pool(k, own)
        counts = Counts(*(total.flatten().tolist() if z.ndim == 1 else total.numpy()))
        score, d_positive, d_negative = _derivatives(counts, batch, settings)
        return Derivatives(score, factor * d_positive, factor * d_negative)

    def plain(scores: Tensor) -> Tensor:
        return _plain_loss(batch._replace(scores=scores, target=y), k, settings, pool)

    try:
        return closed_form_loss(z, y, step, evaluate, plain)
    except _ImpreciseError:
        return plain(z)


def _derivatives(counts: Counts, batch: Batch, settings: Settings) -> Derivatives:
    """The score and its derivatives: floats for a column, else arrays over the classes."""
    lay = batch.layout
    if lay.average == "binary" and zero_division(lay, hard=False) == 0:
        derivatives = binary_derivatives(counts, settings.metric, settings.smooth)
        score, d_positive, d_negative = derivatives
        if math.isfinite(score + d_positive + d_negative + counts.tn):
            return derivatives
    else:
        arrays = Counts(*(np.asarray(x).reshape(1, 1, -1) for x in counts))
        derivatives = class_derivatives(arrays, settings.metric, lay, settings.smooth)
        if lay.task == "binary":
            derivatives = Derivatives(*(x.item() for x in derivatives))
    if batch.checked:
        check_finite(counts, [*derivatives, *counts], settings.metric)
    return derivatives


@documented
class AnyLoss(nn.Module):
    """One minus a soft metric of the confusion matrix, a loss that trains for this metric.

    `loss = 1 - metric(tp, fn, fp, tn) + cross_entropy * CE`, where CE is the mean cross-entropy.
    The counts are soft: with the soft decisions `a = step(p)` and the labels `y`, they are
    `tp = sum(y a)`, `fn = sum(y (1 - a))`, `fp = sum((1 - y) a)` and `tn = sum((1 - y) (1 - a))`.

    `loss(input, target, weight=None)` is the loss to minimise. `loss.score(input, target)` is the
    metric of the hard decisions, and `loss.soft_score(input, target)` that of the soft decisions.

    The AnyLoss paper uses the step `Amplified(73.0)`. It is computed here so that it learns in
    float32 as well.

    Args:

    Shape:
        - input: `(n,)` or `(n, 1, ...)` for binary decisions (any shape with `task="binary"`),
          `(n, C, ...)` for several classes or labels. Further axes, such as those of an image, are
          counted as more samples.
        - target: the shape of the input, or class indices without the class axis.
        - weight: `(n,)` or the shape of the target.
        - output: a scalar, or `(C,)` with `average=None`.

    Raises:
        TypeError: if an argument is unknown or has the wrong type.
        ValueError: if an option has an invalid value, the shapes do not match or have two readings,
            or the values are out of range (with `validate=True`).

    Examples:
        >>> logits = torch.tensor([2.0, -1.0, 0.5, -2.0], requires_grad=True)
        >>> target = torch.tensor([1.0, 0.0, 1.0, 0.0])
        >>> loss = AnyLoss("f1", cross_entropy=0.1)
        >>> loss(logits, target).backward()
        >>> loss.score(logits, target).item()
        1.0
        >>> round(AnyLoss("f1").soft_score(logits, target).item(), 4)
        0.7726

    References:
        D. Han, N. Moniz and N. V. Chawla, "AnyLoss: Transforming Classification Metrics into Loss
        Functions", KDD 2024.

        N. Tsoi, K. Candon, D. Li, Y. Milkessa and M. Vázquez, "Bridging the Gap: Unifying the
        Training and Evaluation of Neural Network Binary Classifiers", NeurIPS 2022.
    """

    def __init__(
        self, metric: MetricSpec | Metric = "f1", *,
        step: Step | None = None, threshold: float | None = None,
        thresholds: Sequence[float] | None = None, average: str | None = "auto",
        smooth: float = 0.0, cross_entropy: float = 0.0, from_logits: bool = True,
        task: Task = "auto", class_axis: int | None = None, per_sample: PerSample = False,
        zero_division: ZeroDivision = "auto", soft_labels: bool = False,
        ignore_index: int | None = None, validate: bool = True,
        sync: bool | None = None, group: dist.ProcessGroup | None = None,
        memory: float | None = None, **params: float,
    ) -> None:  # fmt: skip
        super().__init__()
        self.settings = make_settings(
            metric, step=step, threshold=threshold, thresholds=thresholds, average=average,
            smooth=smooth, cross_entropy=cross_entropy, from_logits=from_logits, task=task,
            class_axis=class_axis, per_sample=per_sample, zero_division=zero_division,
            soft_labels=soft_labels, ignore_index=ignore_index, validate=validate, **params,
        )  # fmt: skip
        self.sync, self.group = sync, group
        if memory is not None and self.settings.options.per_sample:
            raise ValueError(
                "memory= needs counts over the batch and cannot be combined with "
                f"per_sample={self.settings.options.per_sample!r}; leave out one of the two"
            )
        self.memory = None if memory is None else RunningCounts(memory)
        self._monitor, self._join_refused = Monitor(), False

    def forward(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss of a batch.

        Args:
            input (Tensor): the scores: logits, or probabilities with `from_logits=False`.
            target (Tensor): the labels.
            weight (Tensor, optional): one weight per sample, or weights of the target's shape. A
                weight of 2 equals the sample twice.

        Returns:
            Tensor: a scalar, or one loss per class with `average=None`.
        """
        batch = read_batch(input, target, weight, self.settings)
        pool = self.pool()
        if pool is None and batch.checked and torch.is_grad_enabled():
            self._monitor.observe(batch)
        return batch_loss(batch, self.settings, pool)

    def pool(self) -> Pool | None:
        """The pool that adds the counts of other ranks and earlier batches, or None."""
        pool = over_ranks(self.sync, self.group)
        if pool is not None and not (self._join_refused or torch.compiler.is_compiling()):
            refuse_join()
            self._join_refused = True
        if self.memory is not None and torch.is_grad_enabled():
            pool = self.memory.after(pool)
        return pool

    def soft_score(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The metric of the soft decisions: one minus the loss without cross-entropy.

        With `memory=`, a call with gradients enabled adds the batch to the running counts. To avoid
        this, call it under `torch.no_grad`. Its arguments are those of `forward`.

        Returns:
            Tensor: a scalar, or one score per class with `average=None`.
        """
        batch = read_batch(input, target, weight, self.settings)
        return 1 - batch_loss(batch, self.settings._replace(cross_entropy=0.0), self.pool())

    @torch.no_grad()
    def score(
        self, input: Tensor, target: Tensor, weight: Tensor | None = None, *,
        sync: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """The metric of the hard decisions, in double precision.

        It equals scikit-learn's function of the same name (docs/metrics.md).

        Args:
            input (Tensor): the scores, as in `forward`.
            target (Tensor): the labels.
            weight (Tensor, optional): the weights.
            sync (bool, optional): whether to score the samples of all ranks, which must then all
                make the call. Default: the `sync` of the loss, where None means False.

        Returns:
            Tensor: a scalar, or one score per class with `average=None`.
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


@inherits_sections(AnyLoss)
@shows_options_of(make_settings)
def any_loss(
    input: Tensor, target: Tensor, metric: MetricSpec | Metric = "f1", *,
    weight: Tensor | None = None, sync: bool | None = None,
    group: dist.ProcessGroup | None = None, **options: Unpack[FunctionSettings],
) -> Tensor:  # fmt: skip
    """The loss `AnyLoss` as a function: one minus a soft metric of the confusion matrix.

    It keeps no state, so it has no `memory`. A parameter of a metric, such as `beta=2` for
    `"fbeta"`, is a keyword argument as well.

    Args:
        input (Tensor): the scores: logits, or probabilities with `from_logits=False`.
        target (Tensor): the labels.

    Returns:
        Tensor: the loss, a scalar, or one loss per class with `average=None`.

    Examples:
        >>> logits = torch.tensor([2.0, -1.0, 0.5, -2.0])
        >>> round(any_loss(logits, torch.tensor([1, 0, 1, 0]), "f1", threshold=0.4).item(), 4)
        0.2209
    """
    settings = make_settings(metric, **options)
    batch = read_batch(input, target, weight, settings)
    return batch_loss(batch, settings, over_ranks(sync, group))
