"""Any metric of the confusion matrix as a PyTorch loss: `AnyLoss` and the function `any_loss`.

The argument order is that of PyTorch, `loss(input, target)`, and the scores are logits by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from anyloss._core.absent import zero_division
from anyloss._core.backend import NUMPY, Array
from anyloss._core.choices import (
    Activation,
    ClassWeights,
    Form,
    PerSample,
    Reduction,
    Task,
    ZeroDivision,
)
from anyloss._core.constraints import ConstraintSpec
from anyloss._core.counts import Counts
from anyloss._core.documents import documented, inherits_sections
from anyloss._core.gradient import Derivatives, binary_derivatives, class_derivatives
from anyloss._core.options import FunctionSettings, Settings, make_settings, shows_options_of
from anyloss._core.scoring import check_finite, whole_score
from anyloss.metrics import Metric, MetricSpec
from anyloss.steps import Step
from anyloss.torch.batch import BACKENDS, Batch, check_logits, hard_count, read_batch
from anyloss.torch.decide import Decided, all_finite, decide
from anyloss.torch.entropy import closed_entropy, has_own_gradient
from anyloss.torch.gradient import Closed, loss_gradient, with_gradient
from anyloss.torch.lagrangian import Multipliers
from anyloss.torch.memory import Monitor, RunningCounts
from anyloss.torch.plain import mean_cross_entropy, parts_of_counts, plain_loss, plain_score
from anyloss.torch.sync import Pool, once, over_ranks, refuse_join

_known_steps: set[tuple[Step, torch.dtype]] = set()  # steps that passed check_dtype


def batch_loss(batch: Batch, settings: Settings, pool: Pool | None = None) -> Tensor:
    """The loss of a batch, or of the batch together with what the pool adds to it."""
    if len(settings.steps) == 1:
        return _step_loss(batch, 0, settings, pool)
    bare = settings._replace(cross_entropy=0.0)
    losses = [_step_loss(batch, k, bare, pool) for k in range(len(settings.steps))]
    return _with_entropy(torch.stack(losses).mean(0), batch, settings, pool)


def _with_entropy(loss: Tensor, batch: Batch, settings: Settings, pool: Pool | None) -> Tensor:
    if not settings.cross_entropy:
        return loss
    return loss + settings.cross_entropy * mean_cross_entropy(batch, pool)


def _step_loss(batch: Batch, k: int, settings: Settings, pool: Pool | None) -> Tensor:
    """Decisions and counts, the exchange, the score and its derivatives, the gradient."""
    step, dtype = settings.steps[k], batch.scores.dtype
    if (step, dtype) not in _known_steps:
        step.check_dtype(str(dtype), BACKENDS[dtype].tiny)
        _known_steps.add((step, dtype))
    if not batch.has_closed_form(step):
        return _with_entropy(plain_loss(batch, k, settings, pool), batch, settings, pool)
    pool = pool and once(pool)
    wanted = batch.scores.requires_grad and torch.is_grad_enabled()
    decided = decide(batch, step, wanted)
    found, share = _derivatives(decided, batch, settings, pool, k), settings.cross_entropy
    value, entropy, factor = 1.0 - found.score, None, None
    if share and has_own_gradient(decided):
        entropy = closed_entropy(batch, decided.part, share, pool)
        value, factor = value + entropy.loss, entropy.factor

    def gradient(decided: Decided) -> Tensor:
        given = loss_gradient(decided, found, factor)
        return given if given.shape == batch.scores.shape else given.view(batch.scores.shape)

    def again() -> Tensor:
        return gradient(decide(batch, step))

    def plain(scores: Tensor) -> Tensor:
        other = batch._replace(scores=scores)
        loss = plain_loss(other, k, settings, pool)
        return loss if entropy is None else _with_entropy(loss, other, settings, pool)

    ready = [gradient(decided)] if wanted else []
    loss = with_gradient(batch.scores, Closed(value, ready, again, plain, batch.layout))
    return loss if entropy is not None else _with_entropy(loss, batch, settings, pool)


def _derivatives(
    decided: Decided, batch: Batch, settings: Settings, pool: Pool | None, k: int
) -> Derivatives:
    """The score of all that is in the pool, and its derivatives for the own samples."""
    lay, metric, smooth, factor = batch.layout, settings.metric, settings.smooth, 1.0
    counts, column = decided.counts, isinstance(decided.counts.tp, float)
    if pool is not None and not lay.per_sample:
        own = np.reshape(tuple(counts), (4, 1, 1, 1)) if column else tuple(counts)
        total, factor = pool(k, _stacked(own))
        counts = Counts(*(total.flatten().tolist() if column else _unstacked(total)))
    if column and lay.average == "binary" and zero_division(lay, hard=False) == 0:
        found = binary_derivatives(counts, metric, smooth, form=lay.form)
    else:

        def merge(total: Array, weight: Array) -> tuple[Array, Array]:
            nonlocal factor
            assert pool is not None
            both, factor = pool(k, _stacked((total, weight)))
            total, weight = _unstacked(both)
            return total, weight

        counts = Counts(*(np.reshape(x, (1, 1, 1)) for x in counts)) if column else counts
        found = class_derivatives(
            counts, metric, lay, smooth, _unstacked(decided.sample_weight),
            NUMPY if batch.scores.is_cpu else BACKENDS[torch.float64],
            merge if pool is not None and lay.per_sample and lay.reduction != "none" else None,
            of_loss=True,
        )  # fmt: skip
    if batch.checked and not (all_finite(*counts, *found[1:]) and all_finite(found.score)):
        if batch.options.from_logits:
            check_logits(decided.part.z, finite=lay.task == "multiclass")
        check_finite(counts, [*found, *counts], metric)
    if factor == 1.0:
        return found
    return Derivatives(found.score, factor * found.d_positive, factor * found.d_negative)


def _stacked(sums: Array) -> Tensor:
    """Arrays or tensors as one tensor."""
    if isinstance(sums[0], Tensor):
        return torch.stack(sums)
    return torch.from_numpy(np.stack(sums))


def _unstacked(x: Tensor | None) -> Array:
    """A tensor as the arithmetic of the counts takes it: NumPy on the CPU."""
    return x if x is None or not x.is_cpu else x.numpy()


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
        - output: a scalar, or `(C,)` with `average=None`; with `reduction="none"` `(n,)` or
          `(n, C)`.

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
        step: Step | None = None, threshold: float | Sequence[float] | None = None,
        thresholds: Sequence[float] | None = None, average: str | None = "auto",
        smooth: float = 0.0, cross_entropy: float = 0.0, from_logits: bool = True,
        activation: Activation = "auto", squared: bool = False, task: Task = "auto",
        class_axis: int | None = None, classes: Sequence[int] | None = None,
        include_background: bool = True,
        class_weights: ClassWeights | None = None, per_sample: PerSample = False,
        zero_division: ZeroDivision = "auto", form: Form = "linear",
        reduction: Reduction = "mean", top_k: int = 1, soft_labels: bool = False,
        ignore_index: int | None = None, validate: bool = True,
        sync: bool | None = None, group: dist.ProcessGroup | None = None,
        memory: float | None = None, constraints: ConstraintSpec | None = None, **params: float,
    ) -> None:  # fmt: skip
        super().__init__()
        self.settings = make_settings(
            metric, step=step, threshold=threshold, thresholds=thresholds, average=average,
            smooth=smooth, cross_entropy=cross_entropy, from_logits=from_logits,
            activation=activation, squared=squared, task=task,
            class_axis=class_axis, classes=classes, include_background=include_background,
            class_weights=class_weights, per_sample=per_sample, zero_division=zero_division,
            form=form, reduction=reduction, top_k=top_k, soft_labels=soft_labels,
            ignore_index=ignore_index, validate=validate, **params,
        )  # fmt: skip
        self.sync, self.group = sync, group
        if memory is not None and self.settings.options.by_sample:
            raise ValueError(
                "memory= needs counts over the batch and cannot be combined with "
                f"per_sample={per_sample!r} and average={average!r}; leave it out, or count over "
                "the batch"
            )
        self.memory = None if memory is None else RunningCounts(memory)
        self.constraints = None if constraints is None else Multipliers(constraints, self.settings)
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
        if self.constraints is None:
            return batch_loss(batch, self.settings, pool)
        loss = batch_loss(batch, self.constraints.applied(self.settings, batch), pool)
        if self.training and torch.is_grad_enabled():
            self.constraints.update(self.constraints.count(batch, self.settings, pool))
        return loss

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
        """The metric of the soft decisions: one minus the loss, of the form `"linear"`.

        With `memory=`, a call with gradients enabled adds the batch to the running counts. To avoid
        this, call it under `torch.no_grad`. Its arguments are those of `forward`.

        Returns:
            Tensor: a scalar, or one score per class with `average=None`.
        """
        options = self.settings.options._replace(form="linear")
        settings = self.settings._replace(cross_entropy=0.0, options=options)
        batch, pool = read_batch(input, target, weight, settings), self.pool()
        if options.reduction == "mean":
            return 1 - batch_loss(batch, settings, pool)
        scores = [plain_score(batch, k, settings, pool) for k in range(len(settings.steps))]
        return torch.stack(scores).mean(0).to(batch.scores.dtype)

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
            _, parts = parts_of_counts(
                counts, batch, self.settings, pool, k, hard=True, sample_weight=samples
            )
            scores.append(whole_score(*parts, batch.layout, True, BACKENDS[parts[0].dtype]))
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
