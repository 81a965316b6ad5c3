"""`refine` within the Trainer of Hugging Face Transformers: a callback with its loss function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor
from transformers import TrainerCallback

from anyloss._core.choices import PerSample, Task
from anyloss.metrics import Metric, MetricSpec
from anyloss.steps import Step
from anyloss.torch.loss import AnyLoss
from anyloss.torch.recipe import Refinement
from anyloss.torch.refined import RefinedModule, logits_of


class Pairs:
    """Batches of the Trainer, dicts with labels, as pairs of inputs and labels."""

    def __init__(self, loader: Iterable[Mapping[str, Any]]) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Tensor]]:
        for batch in self.loader:
            yield {name: x for name, x in batch.items() if name != "labels"}, batch["labels"]


class RefineCallback(TrainerCallback):
    """A callback of the Hugging Face Trainer that trains for a metric from some epoch on.

    It is passed twice, `Trainer(..., compute_loss_func=callback.loss, callbacks=[callback])`. Its
    loss is the cross-entropy before `at_epoch` and that of `refine` from then on. After each epoch
    the validation batches are scored, and at the end the model gets the refined weights, or if they
    are worse than the start on these batches, their mean with those of the start, or the start.
    `average_tokens_across_devices` must be off and `gradient_accumulation_steps` 1, as for every
    loss of counts.

    Args:
        metric (str, callable or Metric): a name, a formula or a function of `tp, fn, fp, tn`.
        valid (iterable): validation batches, dicts with `labels`, such as a DataLoader gives them.
        at_epoch (int): the epochs of cross-entropy; 0 for a trained model. Default: 0.
        average (str): how several classes or labels are combined, as in `AnyLoss`.
        priors (sequence of float, optional): the class shares where the model will be used.
        task (str): what the shapes mean if they have two readings, as in `AnyLoss`.
        per_sample (bool or str): whether the metric is computed for each map. Default: False.
        ignore_index (int, optional): the label of positions that do not count.
        step (Step, optional): the step of the soft decisions. Default: `Uniform()`.
        cross_entropy (float): the factor of the logit-adjusted cross-entropy. Default: 1.

    Raises:
        ValueError: if an option, labels or logits are out of range.

    Examples:
        >>> callback = RefineCallback("f1", valid=[], at_epoch=3)
        ... # then Trainer(..., compute_loss_func=callback.loss, callbacks=[callback]).train(), and
        ... # callback.refined is a RefinedModule
    """

    core: Refinement
    refined: RefinedModule

    def __init__(
        self, metric: MetricSpec | Metric = "f1", *, valid: Iterable[Mapping[str, Any]],
        at_epoch: int = 0, average: str | None = "auto", priors: Sequence[float] | None = None,
        task: Task = "auto", per_sample: PerSample = False, ignore_index: int | None = None,
        step: Step | None = None, cross_entropy: float = 1.0,
    ) -> None:  # fmt: skip
        self.metric_loss = AnyLoss(
            metric, step=step, average=average, task=task,
            per_sample=per_sample, ignore_index=ignore_index,
        )  # fmt: skip
        self.valid, self.at_epoch = Pairs(valid), at_epoch
        self.options: dict[str, Any] = {"priors": priors, "cross_entropy": cross_entropy}

    def loss(self, outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        """The loss of a batch, for `compute_loss_func`."""
        if self.core.selection is not None:
            return self.core.criterion(outputs, labels)
        return self.core.start_loss(
            False, logits_of(outputs), *self.core.labels.read((None, labels))
        )[0]

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        loader = Pairs(given["train_dataloader"])
        self.core = Refinement(given["model"], loader, self.valid, self.metric_loss, **self.options)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if self.core.selection is None and state.epoch >= self.at_epoch:
            self.core.begin("choose a later at_epoch")

    def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if self.core.selection is not None:
            self.core.end_epoch()

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if self.core.selection is not None:
            self.refined = self.core.finish()
