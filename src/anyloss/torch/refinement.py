"""The recipe for a PyTorch module: `refine`, its training loop."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from anyloss._core.choices import PerSample, Task
from anyloss._progress import stage_progress
from anyloss.metrics import Metric, MetricSpec
from anyloss.steps import Step
from anyloss.torch.checkpoints import Checkpoint, is_first_rank
from anyloss.torch.loss import AnyLoss
from anyloss.torch.recipe import Refinement
from anyloss.torch.refined import Epoch, RefinedModule
from anyloss.torch.rows import NotFiniteError
from anyloss.torch.snapshots import is_split
from anyloss.torch.sync import ranks
from anyloss.torch.training import (
    Loss,
    MakeOptimizer,
    MakeScheduler,
    Stage,
    Training,
    in_groups,
    only,
)

OnEpoch = Callable[[Epoch], None]
ShowEpoch = Callable[[str, int, int, float], None]


def refine(
    model: nn.Module, loader: Iterable[Any], metric: MetricSpec | Metric = "f1", *,
    valid: Iterable[Any] | None = None, average: str | None = "auto",
    priors: Sequence[float] | None = None, task: Task = "auto", per_sample: PerSample = False,
    ignore_index: int | None = None,
    start: Literal["logit-adjusted", "cross-entropy"] = "logit-adjusted", start_epochs: int = 0,
    epochs: int = 10, step: Step | None = None, cross_entropy: float = 1.0,
    optimizer: MakeOptimizer | None = None, scheduler: MakeScheduler | None = None,
    autocast: torch.dtype | None = None, max_norm: float | None = None, ema: float | None = None,
    parameters: Iterable[Tensor] | Iterable[dict[str, Any]] | None = None,
    ensemble: bool = False, patience: int | None = None,
    checkpoint: str | Path | None = None, progress: bool = False,
    on_epoch: OnEpoch | None = None,
) -> RefinedModule:  # fmt: skip
    """Train a model further for a metric, with a guard by the validation rows.

    The model is trained in place, from the weights that it has: for `1 - metric` of the soft
    counts, at the tuned threshold of its start, plus `cross_entropy` times the logit-adjusted
    cross-entropy. The counts are running sums over the batches of about an epoch, at most fifty
    (not with `per_sample`). The weights of the last epoch are used, with a threshold between the
    one they were trained at and the mean of the best ones of resampled validation rows, closer to
    the former the more these vary. The thresholds of several labels are shrunk towards a shared
    one, the more the fewer positives they have.

    The result is never worse on the validation rows than the start with its tuned threshold: where
    it would be, the mean of the resamples is used, or the best threshold of all rows (for several
    labels neither), then the mean of the weights with those of the start (batch norms are estimated
    again over a pass of `loader`), and else the start.

    With an initialised process group the ranks exchange counts, validation rows and decisions, so
    that the result is that of one process with all rows. The model is wrapped in DDP or FSDP2
    before, and all ranks have equally many batches in `loader` (under FSDP2 also in `valid`).

    Without validation rows the mean is used, unless the start is better on the training rows,
    because training rows cannot show that refining went too far.

    Args:
        model (Module): returns logits, or an output that has `logits`. At the end it has the
            weights that were chosen.
        loader (iterable): gives `(x, y)` or `(x, y, weight)` anew in each pass, in large batches. A
            tuple or dict `x` is passed on as `model(*x)` or `model(**x)`.
        metric (str, callable or Metric): a name, a formula or a function of `tp, fn, fp, tn`.
            Default: `"f1"`.
        valid (iterable, optional): validation batches for the thresholds, the scores and the choice
            of the result. Their logits are kept on the device of the model. By default `loader` is
            used, which is optimistic.
        average (str): how several classes or labels are combined, as in `AnyLoss`.
        priors (sequence of float, optional): the shares of the classes where the model will be
            used, if they are not those of the rows. All counts are weighted to them: in training,
            for the thresholds, and in the scores.
        task (str): what the shapes mean if they have two readings, as in `AnyLoss`.
        per_sample (bool or str): whether the metric is computed for each map and averaged, as in
            `AnyLoss`, and not from the counts of all pixels. Default: False.
        ignore_index (int, optional): the label of positions that do not count.
        start (str): the loss of the start: `"logit-adjusted"`, the cross-entropy of the logits plus
            the logarithms of the shares of the classes, also called balanced softmax; or
            `"cross-entropy"`, the plain one. Default: `"logit-adjusted"`.
        start_epochs (int): the epochs of the start, for a model that is not trained yet.
            Default: 0.
        epochs (int): the epochs for the metric, at most. Default: 10.
        step (Step, optional): the step of the soft decisions. Default: `Uniform()`.
        cross_entropy (float): the factor of the logit-adjusted cross-entropy. Default: 1.
        optimizer (callable, optional): makes an optimizer from parameters or parameter groups, anew
            for the start and the metric. Default: Adam with a learning rate of 0.001.
        scheduler (callable, optional): makes a scheduler from the optimizer; `step()` is called
            after each epoch.
        autocast (dtype, optional): the type in which the model computes, such as `torch.bfloat16`.
            With `torch.float16` the gradients are scaled.
        max_norm (float, optional): the largest norm of the gradient; a larger one is clipped.
        ema (float, optional): the decay of a running average of the weights, such as 0.999, which
            is judged and kept instead of the weights.
        parameters (iterable, optional): the parameters, or parameter groups, that are trained for
            the metric, such as `model.head.parameters()`. The others, and their batch norms, stay
            as they are. Default: all that require a gradient.
        ensemble (bool): whether the mean of the probabilities of the started and the refined model
            is preferred, which takes twice the time to predict. Default: False.
        patience (int, optional): stop after so many epochs without a better score of the
            validation rows, and use the weights of the best epoch instead of the last.
        checkpoint (path, optional): a file that holds the state after each epoch. If it exists,
            the work goes on from there, and gives the same result where the loader is
            deterministic given PyTorch's random numbers. All ranks must be able to read it.
        progress (bool): whether to show a progress bar (needs rich). Default: False.
        on_epoch (callable, optional): receives an `Epoch` after each epoch.

    Shape:
        - logits: `(n,)`, `(n, 1)` or `(n, 1, ...)` for two classes, `(n, C)` or `(n, C, ...)` for
          several classes or labels.
        - `y`: the shape of the logits, for two classes also without their axis 1; or class indices
          without the class axis.
        - `weight`: `(n,)`, or the shape of masks or class indices.

    Returns:
        RefinedModule: the model with the threshold, the scores and `predict`.

    Raises:
        ValueError: if there is no batch or no parameter to train, if an option, labels, weights or
            logits are out of range, if `valid` has another task than `loader`, or if `checkpoint`
            was written with other settings.
        TypeError: if a batch is no pair or triple, `model` returns no float tensor, or `optimizer`
            is an optimizer instead of a function that makes one.

    Examples:
        >>> x = torch.linspace(-3, 3, 200)[:, None]
        >>> refined = refine(nn.Linear(1, 1), [(x, x > 1)], start_epochs=20,
        ...                  optimizer=torch.optim.Rprop)
        >>> refined.predict(x[::99])
        tensor([0, 0, 1])
    """
    how = Training(optimizer or partial(torch.optim.Adam, lr=1e-3), scheduler, autocast, max_norm)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}")
    _check(how, start, start_epochs, epochs, ema, patience, valid)
    everything = [p for p in model.parameters() if p.requires_grad]
    groups = _groups(everything, parameters)
    if ensemble and is_split(model):
        raise ValueError(
            "ensemble=True copies the model, and a model that is split over ranks cannot be "
            "copied; got both. Use ensemble=False"
        )
    loss = AnyLoss(
        metric, step=step, average=average, task=task, per_sample=per_sample,
        ignore_index=ignore_index,
    )  # fmt: skip
    core = Refinement(
        model, loader, valid, loss, cross_entropy=cross_entropy, priors=priors,
        parameters=None if parameters is None else in_groups(groups),
    )  # fmt: skip
    settings = {
        "loss": loss, "cross_entropy": cross_entropy, "priors": priors, "start": start,
        "start_epochs": start_epochs, "epochs": epochs, "autocast": autocast,
        "max_norm": max_norm, "ema": ema, "patience": patience,
        "parameters": len(in_groups(groups)), "ranks": ranks(True, None),
    }  # fmt: skip
    if checkpoint is not None:
        settings |= how.in_words(groups)
    file = Checkpoint(checkpoint, model, settings)
    plain = partial(core.start_loss, start == "logit-adjusted")
    with stage_progress(progress and is_first_rank()) as show:
        loop = _Loop(core, file, on_epoch, show)
        if core.selection is None:
            if start_epochs:
                loop.train("cross-entropy", Stage(model, everything, how), plain, start_epochs)
            core.begin()
        stage = Stage(model, groups, how, ema=ema, fixed=core.fixed_norms)
        with only(model, stage.parameters):
            loop.train("metric", stage, core.loss, epochs, patience)
    return core.finish(ensemble)


class _Loop:
    """The epochs of both stages: they are reported, saved, and continued from what was saved."""

    def __init__(
        self, core: Refinement, file: Checkpoint, on_epoch: OnEpoch | None, show: ShowEpoch
    ) -> None:
        self.core, self.file, self.on_epoch, self.show = core, file, on_epoch, show
        self.saved = file.load()
        if self.saved is not None:
            core.load_state_dict(self.saved["core"])

    def train(
        self, name: str, stage: Stage, loss: Loss, epochs: int, patience: int | None = None
    ) -> None:
        core, loader = self.core, self.core.loader
        if self.saved is not None and core.history[-1].stage == name:
            stage.load_state_dict(self.saved["stage"])
        others = sum(each.stage != name for each in core.history)
        for number in range(len(core.history) - others + 1, epochs + 1):
            if patience is not None and core.selection and core.selection.waited >= patience:
                return
            try:
                value = stage.epoch(loader, core.labels, loss, others + number)
                score = math.nan
                if name == "metric":
                    with stage.average.applied() if stage.average else nullcontext():
                        score = core.end_epoch(only_better=patience is not None)
            except NotFiniteError:
                if name != "metric" or ranks(True, None) > 1:
                    raise
                warnings.warn(
                    f"the logits are no longer finite in epoch {number} of the refinement, which "
                    "ends here; what was best before is used. Use a lower learning rate "
                    "(optimizer=) or max_norm=1.0",
                    UserWarning,
                    stacklevel=3,
                )
                return
            core.history.append(Epoch(name, number, value, score))
            self.file.save(core=core, stage=stage)
            self.show(name, number, epochs, value if math.isnan(score) else score)
            if self.on_epoch is not None:
                self.on_epoch(core.history[-1])


def _groups(everything: Sequence[Tensor], parameters: Iterable[Any] | None) -> list[Any]:
    """The parameters, or parameter groups, that are trained for the metric; checked."""
    if parameters is None:
        groups = list[Any](everything)
    else:  # what can be read more than once
        groups = [
            each if isinstance(each, Tensor) else each | {"params": in_groups([each])}
            for each in parameters
        ]
    if not groups:
        raise ValueError("the model has no parameter to train (requires_grad=True)")
    if not {id(p) for p in in_groups(groups)} <= {id(p) for p in everything}:
        raise ValueError(
            "parameters must be those of the model that require a gradient; got others. Take them "
            "from the model that is passed"
        )
    return groups


def _check(
    how: Training, start: str, start_epochs: int, epochs: int, ema: float | None,
    patience: int | None, valid: Any,
) -> None:  # fmt: skip
    if start not in ("logit-adjusted", "cross-entropy"):
        raise ValueError(f"start must be 'logit-adjusted' or 'cross-entropy'; got {start!r}")
    for name, given in (("start_epochs", start_epochs), ("epochs", epochs)):
        if not isinstance(given, Integral) or given < 0:
            raise ValueError(f"{name} must be an integer of at least 0; got {given!r}")
    if isinstance(how.optimizer, torch.optim.Optimizer):
        raise TypeError(
            "optimizer must be a function or class that makes an optimizer from parameters, such "
            f"as torch.optim.{type(how.optimizer).__name__}; got an instance of it"
        )
    for name, maker in (("optimizer", how.optimizer), ("scheduler", how.scheduler)):
        if maker is not None and not callable(maker):
            raise TypeError(f"{name} must be a function or class that makes one; got {maker!r}")
    if ema is not None and not (isinstance(ema, Real) and 0 <= ema < 1):
        raise ValueError(f"ema must be a decay of at least 0 and below 1; got {ema!r}")
    if how.max_norm is not None and not (isinstance(how.max_norm, Real) and how.max_norm > 0):
        raise ValueError(f"max_norm must be a number above 0; got {how.max_norm!r}")
    if not isinstance(how.autocast, torch.dtype | None):
        raise TypeError(f"autocast must be a type such as torch.bfloat16; got {how.autocast!r}")
    if patience is not None and (
        valid is None or not isinstance(patience, Integral) or patience < 1
    ):
        raise ValueError(
            "patience must be an integer of at least 1 and needs validation rows; got "
            f"patience={patience!r} and {'no ' if valid is None else ''}valid"
        )
