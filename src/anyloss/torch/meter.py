"""An epoch's true score: counts merged over batches, because a mean of batch scores is not it."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from anyloss._core.counts import Counts, score_counts
from anyloss._core.options import check_names, make_settings
from anyloss._core.shapes import Layout, Task, ZeroDivision
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.steps import Step
from anyloss.torch.batch import BACKENDS, hard_count, read_batch
from anyloss.torch.sync import exchange, ranks


class ScoreMeter:
    """Collects the hard counts of many batches; `compute` gives the metric of them all.

    The arguments are those of `AnyLoss`; of a step only its threshold matters. Counts that are
    merged know no single sample, so there is no `per_sample`, and one threshold.

    >>> meter = ScoreMeter("f1")
    >>> for logits, target in [([1.0, -1.0], [1, 1]), ([2.0, 3.0], [0, 1])]:
    ...     meter.update(torch.tensor(logits), torch.tensor(target))
    >>> round(meter.compute().item(), 4)
    0.6667
    """

    def __init__(
        self,
        metric: MetricSpec | Metric = "f1",
        *,
        step: Step | None = None,
        threshold: float | None = None,
        average: str | None = "auto",
        from_logits: bool = True,
        task: Task = "auto",
        class_axis: int | None = None,
        zero_division: ZeroDivision = "auto",
        ignore_index: int | None = None,
        validate: bool = True,
        **params: float,
    ) -> None:
        refused = [name for name in ("thresholds", "per_sample") if name in params]
        if refused:
            raise ValueError(f"ScoreMeter merges counts and takes no {refused[0]}=; got it")
        check_names(metric, params)
        self.settings = make_settings(
            find_metric(metric, **params),
            step=step,
            threshold=threshold,
            average=average,
            from_logits=from_logits,
            task=task,
            class_axis=class_axis,
            zero_division=zero_division,
            ignore_index=ignore_index,
            validate=validate,
        )
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self.counts: Counts | None = None
        self._layout: Layout | None = None

    @torch.no_grad()
    def update(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        """Count one batch."""
        batch = read_batch(input, target, weight, self.settings)
        if self._layout is not None and self._layout[:3] != batch.layout[:3]:
            raise ValueError(
                "all batches of an epoch must have one task and number of classes; had "
                f"{self._layout.task} of {self._layout.classes}, got {batch.layout.task} of "
                f"{batch.layout.classes}"
            )
        fresh, _ = hard_count(batch, self.settings.steps[0])
        self.counts = fresh if self.counts is None else self.counts + fresh
        self._layout = batch.layout

    def compute(self, *, sync: bool = False, group: dist.ProcessGroup | None = None) -> Tensor:
        """The metric of all batches since the last reset: a scalar, or one number per class.

        With `sync=True` of the batches of all ranks, which must all call; each keeps its own
        counts. A rank without a row updates with an empty batch.
        """
        if self.counts is None or self._layout is None:
            raise ValueError(
                "no batch has been counted yet; call update(input, target) first, with tensors of "
                "no rows if there are none"
            )
        counts = self.counts
        if ranks(sync, group) > 1:
            counts = Counts(*exchange(torch.stack(tuple(counts)), group))
        score: Tensor = score_counts(
            counts, self.settings.metric, self._layout, BACKENDS[counts.tp.dtype], hard=True
        )
        return score

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings.describe()})"
