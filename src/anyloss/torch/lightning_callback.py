"""`refine` within Lightning's Trainer: a callback that switches the criterion to the metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lightning
from torch import nn

from anyloss._core.choices import PerSample, Task
from anyloss.metrics import Metric, MetricSpec
from anyloss.steps import Step
from anyloss.torch.loss import AnyLoss
from anyloss.torch.recipe import Refinement
from anyloss.torch.refined import RefinedModule


class RefineCallback(lightning.Callback):
    """A callback of Lightning that trains for a metric from some epoch on, as `refine` does.

    The module's `forward` returns logits, and its `training_step` calls the criterion, an attribute
    of the module. From `at_epoch` on this is the loss for the metric. After each epoch the
    validation loader of the Trainer is scored, and at the end the module gets the refined weights,
    or if they are worse than the start on the validation rows, their mean with those of the start,
    or the start. All else is the user's. Lightning's checkpoints hold the state.

    Args:
        metric (str, callable or Metric): a name, a formula or a function of `tp, fn, fp, tn`.
        at_epoch (int): the first epoch for the metric; 0 for a trained module. Default: 0.
        criterion (str): the name of the attribute, a Module called as `criterion(logits, y)`.
        average (str): how several classes or labels are combined, as in `AnyLoss`.
        priors (sequence of float, optional): the class shares where the module will be used.
        task (str): what the shapes mean if they have two readings, as in `AnyLoss`.
        per_sample (bool or str): whether the metric is computed for each map. Default: False.
        ignore_index (int, optional): the label of positions that do not count.
        step (Step, optional): the step of the soft decisions. Default: `Uniform()`.
        cross_entropy (float): the factor of the logit-adjusted cross-entropy. Default: 1.

    Raises:
        TypeError: if the criterion is no Module.
        ValueError: if an option, labels or logits are out of range.

    Examples:
        >>> callback = RefineCallback("f1", at_epoch=10, criterion="loss")
        >>> trainer = lightning.Trainer(max_epochs=20, callbacks=[callback], logger=False)
        ... # then trainer.fit(module, loader, valid), and callback.refined is a RefinedModule
    """

    refined: RefinedModule

    def __init__(
        self, metric: MetricSpec | Metric = "f1", *, at_epoch: int = 0,
        criterion: str = "criterion", average: str | None = "auto",
        priors: Sequence[float] | None = None, task: Task = "auto", per_sample: PerSample = False,
        ignore_index: int | None = None, step: Step | None = None, cross_entropy: float = 1.0,
    ) -> None:  # fmt: skip
        self.loss = AnyLoss(
            metric, step=step, average=average, task=task,
            per_sample=per_sample, ignore_index=ignore_index,
        )  # fmt: skip
        self.at_epoch, self.criterion = at_epoch, criterion
        self.options: dict[str, Any] = {"priors": priors, "cross_entropy": cross_entropy}
        self.core: Refinement | None = None
        self.saved = self.last = dict[str, Any]()  # to go on from, and of a fit that has ended

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if self.core is not None or trainer.current_epoch < self.at_epoch:
            return
        if not isinstance(found := getattr(pl_module, self.criterion), nn.Module):
            raise TypeError(f"{self.criterion} must be a Module, a loss of logits; got {found}")
        self.core = Refinement(
            pl_module, trainer.train_dataloader, trainer.val_dataloaders, self.loss, **self.options
        )
        found.forward = self.core.criterion
        if self.saved:
            self.core.load_state_dict(self.saved)
        else:
            self.core.begin("choose a later at_epoch")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self.core is not None:
            self.core.end_epoch()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.core is not None:
            self.refined = self.core.finish()
            self.on_exception(trainer, pl_module)

    def on_exception(self, trainer: Any, pl_module: Any, exception: Any = None) -> None:
        if self.core is not None:
            del getattr(pl_module, self.criterion).forward  # that of its class is back
            self.last, self.core, self.saved = self.core.state_dict(), None, {}

    def state_dict(self) -> dict[str, Any]:
        return self.last if self.core is None else self.core.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.saved = state_dict
