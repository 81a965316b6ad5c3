"""The score of an epoch: counts are merged over batches, because a mean of batch scores differs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from anyloss._core.choices import Activation, ClassWeights, Task, ZeroDivision
from anyloss._core.counts import Counts
from anyloss._core.documents import documented
from anyloss._core.options import Settings, check_merged, check_names, make_settings
from anyloss._core.scoring import score_counts
from anyloss._core.shapes import Layout
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.steps import Step
from anyloss.torch.batch import BACKENDS, hard_count, read_batch
from anyloss.torch.sync import exchange, ranks

NO_BATCH = (
    "compute() needs at least one batch; got no batch. Call update(input, target) first, with "
    "empty tensors if there are no samples"
)


def count_batch(
    input: Tensor, target: Tensor, weight: Tensor | None, settings: Settings
) -> tuple[Counts, Layout]:
    """The counts of the hard decisions of a batch, and the meaning of its shapes."""
    batch = read_batch(input, target, weight, settings)
    return hard_count(batch, settings.steps[0])[0], batch.layout


def check_same_task(given: Sequence[tuple[str, int]]) -> None:
    """Refuse to merge the counts of batches that differ in their task or number of classes."""
    (task, classes), *others = given
    for other, number in others:
        if (other, number) != (task, classes):
            raise ValueError(
                f"all batches must have one task and number of classes; expected {task} with "
                f"{classes}, got {other} with {number}. Call reset() before another task"
            )


def score_of(counts: Counts, lay: Layout, settings: Settings) -> Tensor:
    """The score of merged counts."""
    score: Tensor = score_counts(counts, settings.metric, lay, BACKENDS[counts.tp.dtype], hard=True)
    return score


@documented
class ScoreMeter:
    """A meter that adds up the hard counts of batches, and computes the metric of all of them.

    `compute` returns `average(metric(counts))` for the sums of the counts of all batches. The mean
    of the scores of the batches would be another number. The counts of single samples are not
    kept, so there is no `per_sample`, and there is one threshold.

    Args:
        step (Step, optional): a step, of which only the threshold has an effect. Default: a step
            with the threshold 0.5.
        threshold (float or sequence of float, optional): the threshold of the decisions, instead of
            `step`, or one threshold for each label. Default: 0.5.

    Shape:
        - input, target, weight: as in `AnyLoss`.

    Raises:
        TypeError: if an argument is unknown or has the wrong type.
        ValueError: if an option has an invalid value, the batches differ in their task or number of
            classes, or `compute` is called before `update`.

    Examples:
        >>> meter = ScoreMeter("f1")
        >>> for logits, target in [([1.0, -1.0], [1, 1]), ([2.0, 3.0], [0, 1])]:
        ...     meter.update(torch.tensor(logits), torch.tensor(target))
        >>> round(meter.compute().item(), 4)
        0.6667
    """

    def __init__(
        self, metric: MetricSpec | Metric = "f1", *,
        step: Step | None = None, threshold: float | Sequence[float] | None = None,
        average: str | None = "auto",
        from_logits: bool = True, activation: Activation = "auto", task: Task = "auto",
        class_axis: int | None = None,
        classes: Sequence[int] | None = None, include_background: bool = True,
        class_weights: ClassWeights | None = None,
        zero_division: ZeroDivision = "auto", top_k: int = 1, ignore_index: int | None = None,
        validate: bool = True, **params: float,
    ) -> None:  # fmt: skip
        check_merged("ScoreMeter", params, average)
        check_names(metric, params)
        self.settings = make_settings(
            find_metric(metric, **params), step=step, threshold=threshold, average=average,
            from_logits=from_logits, activation=activation, task=task, class_axis=class_axis,
            classes=classes, include_background=include_background, class_weights=class_weights,
            zero_division=zero_division, top_k=top_k, ignore_index=ignore_index, validate=validate,
        )  # fmt: skip
        self.reset()

    def reset(self) -> None:
        """Remove the counts of all batches."""
        self.counts: Counts | None = None
        self._layout: Layout | None = None

    @torch.no_grad()
    def update(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        """Add the counts of a batch.

        Args:
            input (Tensor): the scores: logits, or probabilities with `from_logits=False`.
            target (Tensor): the labels.
            weight (Tensor, optional): one weight per sample, or weights of the target's shape.
        """
        fresh, lay = count_batch(input, target, weight, self.settings)
        if self._layout is not None:
            check_same_task([(x.task, x.classes) for x in (self._layout, lay)])
        self.counts = fresh if self.counts is None else self.counts + fresh
        self._layout = lay

    def compute(self, *, sync: bool = False, group: dist.ProcessGroup | None = None) -> Tensor:
        """The metric of all batches since the last `reset`.

        Args:
            sync (bool): whether to add up the counts of all ranks, which must then all make the
                call. Each rank keeps its own counts. A rank without samples calls `update` with an
                empty batch first. Default: False.
            group (ProcessGroup, optional): the process group of these ranks. Default: all ranks.

        Returns:
            Tensor: a scalar, or one score per class with `average=None`.
        """
        if self.counts is None or self._layout is None:
            raise ValueError(NO_BATCH)
        counts = self.counts
        if ranks(sync, group) > 1:
            counts = Counts(*exchange(torch.stack(tuple(counts)), group))
        return score_of(counts, self._layout, self.settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings.describe()})"
