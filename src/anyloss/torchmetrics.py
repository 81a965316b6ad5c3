"""The score of an epoch as a metric of torchmetrics, for `MetricCollection` and Lightning."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Self, get_args

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

try:
    import torchmetrics
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "anyloss.torchmetrics needs torchmetrics; install it with: pip install "
        "'anyloss[torchmetrics]'"
    ) from error

from anyloss._core.choices import Task
from anyloss._core.counts import Counts
from anyloss._core.options import Settings, shows_options_of
from anyloss._core.shapes import Layout, layout
from anyloss.metrics import Metric, MetricSpec
from anyloss.torch.batch import wide
from anyloss.torch.meter import NO_BATCH, ScoreMeter, check_same_task, count_batch, score_of

__all__ = ["Score"]

Gather = Callable[..., list[Tensor]]
TASKS: tuple[Task, ...] = get_args(Task)


@shows_options_of(ScoreMeter)
class Score(torchmetrics.Metric):
    """The metric of the hard decisions of an epoch, as a `torchmetrics.Metric`.

    It is `average(metric(counts))` for the sums of the counts of all batches, as that of
    `anyloss.torch.ScoreMeter`, whose options it has. torchmetrics keeps the sums, adds up those of
    all ranks, and saves them in a `state_dict`. So the score works in `MetricCollection`,
    `MetricTracker` and other wrappers, and in Lightning's `self.log("f1", score)`. Metrics of one
    collection that count in the same way share their counts. A parameter of the metric is a keyword
    argument, such as `Score("fbeta", beta=2)`.

    `preds` are logits by default, whatever their values are; torchmetrics itself takes values
    within 0 and 1 for probabilities (`from_logits=False`).

    Args:
        dist_sync_on_step (bool): whether the ranks exchange their counts in `forward` too, so that
            it returns the score of the batches of all ranks. Default: False.
        process_group (ProcessGroup, optional): the process group of these ranks. Default: all
            ranks.
        dist_sync_fn (callable, optional): a function that gathers a tensor of all ranks, instead of
            torchmetrics' own.
        distributed_available_fn (callable, optional): a function that decides whether there are
            other ranks, instead of torchmetrics' own.
        sync_on_compute (bool): whether the ranks exchange their counts in `compute`, which they
            must then all call. Default: True.
        compute_with_cache (bool): whether `compute` keeps its result until the next `update`.
            Default: True.

    Shape:
        - preds, target, weight: as input, target and weight in `AnyLoss`.

    Raises:
        TypeError: if an argument is unknown or has the wrong type.
        ValueError: if an option has an invalid value, the batches or the ranks differ in their
            task, number of classes or options, or `compute` is called before `update`.

    Examples:
        >>> metrics = torchmetrics.MetricCollection({"f1": Score("f1"), "mcc": Score("mcc")})
        >>> for logits, target in [([1.0, -1.0], [1, 1]), ([2.0, 3.0], [0, 1])]:
        ...     metrics.update(torch.tensor(logits), torch.tensor(target))
        >>> {name: round(score.item(), 4) for name, score in metrics.compute().items()}
        {'f1': 0.6667, 'mcc': -0.3333}
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    counts: Tensor  # tp, fn, fp and tn on the first axis, then (1, 1, classes)
    batches: Tensor  # the index of the task, the number of classes, and the digest of the options

    def __init__(
        self, metric: MetricSpec | Metric = "f1", *,
        dist_sync_on_step: bool = False, process_group: dist.ProcessGroup | None = None,
        dist_sync_fn: Gather | None = None,
        distributed_available_fn: Callable[[], bool] | None = None,
        sync_on_compute: bool = True, compute_with_cache: bool = True, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            dist_sync_on_step=dist_sync_on_step, process_group=process_group,
            dist_sync_fn=dist_sync_fn, distributed_available_fn=distributed_available_fn,
            sync_on_compute=sync_on_compute, compute_with_cache=compute_with_cache,
        )  # fmt: skip
        self.settings = ScoreMeter(metric, **options).settings
        self._digest = _digest(self.settings)
        self._read: tuple[Tensor | None, list[int]] = None, []
        # Before the first batch there are zeros of one class, which can be added to any counts.
        self.add_state("batches", torch.zeros(2 + len(self._digest), dtype=torch.int64), _merged)
        self.add_state("counts", torch.zeros(4, 1, 1, 1), "sum")

    @torch.no_grad()
    def update(self, preds: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        """Add the counts of a batch.

        Args:
            preds (Tensor): the scores: logits, or probabilities with `from_logits=False`.
            target (Tensor): the labels.
            weight (Tensor, optional): one weight per sample, or weights of the target's shape.
        """
        fresh, lay = count_batch(preds, target, weight, self.settings)
        about = [TASKS.index(lay.task), lay.classes, *self._digest]
        if about != self._about():
            self.batches = _merged(torch.stack([self.batches, self.batches.new_tensor(about)]))
        self.counts = self.counts + torch.stack(tuple(fresh))

    def compute(self) -> Tensor:
        """The metric of all batches since the last `reset`.

        Returns:
            Tensor: a scalar, or one score per class with `average=None`.
        """
        return score_of(Counts(*self.counts), self._layout(), self.settings)

    def set_dtype(self, dst_type: str | torch.dtype) -> Self:
        """Change nothing: counts are added in the type that keeps all of them."""
        return self

    def _about(self) -> list[int]:
        """The numbers in `batches`, read once, because that makes an accelerator wait."""
        if self._read[0] is not self.batches:
            self._read = self.batches, self.batches.tolist()
        return self._read[1]

    def _layout(self) -> Layout:
        """The layout of the batches. A rank without a batch has it from the others."""
        task, classes, *digest = self._about()
        if not classes:
            raise ValueError(NO_BATCH)
        if digest != self._digest:
            raise ValueError(
                f"the counts must have been made with the options of {self}; got a state that was "
                "made with others. Load it into a Score of the same options"
            )
        options = self.settings.options._replace(task=TASKS[task], class_axis=None)
        shape = (1, classes)
        target = shape[:1] if options.task == "multiclass" else shape
        return layout(shape, target, True, options, self.settings.metric)

    def _sync_dist(
        self,
        dist_sync_fn: Gather = torchmetrics.utilities.distributed.gather_all_tensors,
        process_group: Any = None,
    ) -> None:
        """Add up the counts of all ranks; those of a rank without a batch get their shape."""
        super()._sync_dist(partial(_gathered, dist_sync_fn), process_group)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings.describe()})"


def _digest(settings: Settings) -> list[int]:
    """Eight small numbers that differ for options under which batches are counted differently.

    In a `MetricCollection`, metrics with equal states share them from the first batch on. Without
    the digest, two thresholds between which the first batch has no score would be taken for one.
    """
    options = settings.options._replace(average="auto", zero_division="auto", validate=True)
    text = repr((settings.steps[0].hard(), options))
    return list(hashlib.sha256(text.encode()).digest()[:8])


def _merged(batches: Tensor) -> Tensor:
    """What is known of the batches of several parts, `(parts, numbers)`; 0 is not known."""
    known = [row for row in batches.tolist() if any(row)]
    check_same_task([(TASKS[task], classes) for task, classes, *_ in known] or [("", 0)])
    if any(row != known[0] for row in known):
        raise ValueError(
            "all parts must be counted with the same options (threshold, ignore_index and others); "
            f"got {len({tuple(row) for row in known})} different ones"
        )
    return batches.amax(0)


def _gathered(gather: Gather, x: Tensor, **options: Any) -> list[Tensor]:
    """The tensors of all ranks, in one type and shape: zeros are added as classes."""
    found = gather(x.to(wide(x)) if x.is_floating_point() else x, **options)
    most = max(each.shape[-1] for each in found)
    return [pad(each, (0, most - each.shape[-1])) for each in found]
