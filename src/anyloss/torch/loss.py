"""Any metric of the confusion matrix as a PyTorch loss: `AnyLoss` and its functional twin.

The order is PyTorch's: `loss(input, target)`, logits first. Shapes and averages are those of
`anyloss.counts`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anyloss.counts import Counts, check_finite, score_counts
from anyloss.metrics import Metric, MetricSpec
from anyloss.settings import Settings, make_settings
from anyloss.slopes import Slopes, binary_slopes, class_slopes
from anyloss.steps import Amplified, Step
from anyloss.torch.batch import FLOAT_OPS, HARD_OPS, OPS, Batch, count, make_batch
from anyloss.torch.fast import closed_form_loss


def any_loss(
    input: Tensor,
    target: Tensor,
    metric: MetricSpec | Metric = "f1",
    *,
    weight: Tensor | None = None,
    **arguments: Any,
) -> Tensor:
    """The functional twin of `AnyLoss`: one minus the soft metric, with the same arguments.

    >>> logits = torch.tensor([2.0, -1.0, 0.5, -2.0])
    >>> round(any_loss(logits, torch.tensor([1, 0, 1, 0]), "f1", threshold=0.4).item(), 4)
    0.0901
    """
    settings = make_settings(metric, **arguments)
    return _loss(make_batch(input, target, weight, settings.options), settings)


# The fast path knows the misses and the all-clears as differences of sums. Where almost every row
# is called positive, too little of these is left, and the plain path sums them themselves.
IMPRECISE = {dtype: 1e5 * torch.finfo(dtype).eps for dtype in OPS}


class _ImpreciseError(Exception):
    """The fast path's counts would lose their digits."""


_known_steps: set[tuple[Step, torch.dtype]] = set()  # whose slope has been found to fit


def _loss(batch: Batch, settings: Settings) -> Tensor:
    losses = [_step_loss(batch, step, settings) for step in settings.steps]
    return losses[0] if len(losses) == 1 else torch.stack(losses).mean(0)


def _step_loss(batch: Batch, step: Step, settings: Settings) -> Tensor:
    dtype = batch.scores.dtype
    if (step, dtype) not in _known_steps:
        step.check_dtype(str(dtype), OPS[dtype].tiny)
        _known_steps.add((step, dtype))
    if type(step) is Amplified and _fast_path_serves(batch):
        return _fast_loss(batch, step, settings)
    return _plain_loss(batch, step, settings)


def _plain_loss(batch: Batch, step: Step, settings: Settings) -> Tensor:
    ops = OPS[batch.scores.dtype]
    counts = count(batch, step, ops)
    score = score_counts(counts, settings.metric, batch.layout, ops, settings.smooth)
    loss: Tensor = (1 - score).to(batch.scores.dtype)
    if batch.checked:
        with torch.no_grad():
            check_finite(counts, [loss, *counts], settings.metric)
    return loss


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


def _fast_loss(batch: Batch, step: Amplified, settings: Settings) -> Tensor:
    lay, z, y = batch.layout, batch.scores, batch.target
    if lay.kind == "binary" and z.ndim > 1:
        z, y = z.reshape(-1), y.reshape(-1)

    negligible = IMPRECISE[z.dtype] * z.shape[0]

    def evaluate(counts: Counts) -> Slopes:
        negative = counts.fn + counts.tn
        if (negative if z.ndim == 1 else negative.min()) < negligible:
            raise _ImpreciseError
        if lay.average == "binary":
            slopes = binary_slopes(counts, settings.metric, settings.smooth, FLOAT_OPS[z.dtype])
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

    def plain(scores: Tensor) -> Tensor:
        return _plain_loss(batch._replace(scores=scores, target=y), step, settings)

    try:
        return closed_form_loss(z, y, step, evaluate, plain)
    except _ImpreciseError:
        return plain(z)


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

    def __init__(self, metric: MetricSpec | Metric = "f1", **arguments: Any) -> None:
        super().__init__()
        self.settings = make_settings(metric, **arguments)

    def forward(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        return _loss(make_batch(input, target, weight, self.settings.options), self.settings)

    def soft_score(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The soft metric that is trained: one minus the loss."""
        return 1 - self.forward(input, target, weight)

    @torch.no_grad()
    def score(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The true metric of the hard decisions, in double precision."""
        batch = make_batch(input, target, weight, self.settings.options)
        ops = HARD_OPS[batch.scores.dtype]
        scores = [
            score_counts(count(batch, step.hard(), ops), self.settings.metric, batch.layout, ops)
            for step in self.settings.steps
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
