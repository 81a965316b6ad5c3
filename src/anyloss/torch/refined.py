"""The module that `refine` returns: one or two members, and a threshold of their logits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Epoch(NamedTuple):
    """What an epoch of `refine` reached; `on_epoch` receives it, and `history` holds all of them.

    Attributes:
        stage (str): `"cross-entropy"` for the start, `"metric"` for the refinement.
        number (int): the number of the epoch within its stage, from 1.
        value (float): the mean over the batches of the cross-entropy, or of the soft score.
        score (float): the metric of the validation rows at the threshold that is trained at; NaN
            during the start and without validation rows.

    Examples:
        >>> Epoch("metric", 1, 0.61, 0.58).score
        0.58
    """

    stage: str
    number: int
    value: float
    score: float


class RefinedModule(nn.Module):
    """A module whose logits have the decision threshold at 0.

    With two members the logit is that of their mean probability (for several classes, its
    logarithm).

    Attributes:
        members (ModuleList): the model, or the started and the refined model.
        threshold_ (Tensor): what is subtracted from the logits, one number per class if there are
            several.
        task (str): `"binary"`, `"multilabel"` or `"multiclass"`.
        share (float): how much of the refinement is used: 1 (the refined weights), 0.5 (the mean
            with the start) or 0 (the start).
        start_score (float): the metric of the start with its best threshold.
        end_score (float): the metric of this module, on the same rows.
        scored_on (str): which rows these are: `"validation rows"`, or `"training rows"` if there
            were no others; scores of training rows are optimistic.
        history (list of Epoch): what each epoch reached.

    Examples:
        >>> refined = RefinedModule([nn.Identity()], torch.tensor([2.0]), "binary")
        >>> refined.predict(torch.tensor([1.0, 3.0]))
        tensor([0, 1])
    """

    def __init__(self, members: Sequence[nn.Module], threshold: Tensor, task: str) -> None:
        super().__init__()
        self.members, self.task = nn.ModuleList(members), task
        self.threshold_: Tensor = nn.Buffer(threshold)
        self.share, self.start_score, self.end_score = 1.0, math.nan, math.nan
        self.scored_on, self.history = "validation rows", list[Epoch]()

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """The logits minus the threshold, `(n,)`, `(n, C)` or `(n, C, ...)`.

        Its arguments are those of the model.
        """
        logits = [logits_of(each(*inputs, **named)) for each in self.members]
        return shifted(mean_logit(logits, self.task), self.threshold_)

    def predict(self, x: Any) -> Tensor:
        """Decisions in eval mode: 0 or 1, or for several classes their indices.

        `x` is what the loader gives: a tensor, a tuple `model(*x)` or a dict `model(**x)`.
        """
        with torch.no_grad(), mode(self, training=False):
            z = call(self, x)
        return z.argmax(1) if self.task == "multiclass" else z.gt(0).long()


def call(module: nn.Module, x: Any) -> Tensor:
    """The logits of `module(x)`, `module(*x)` for a tuple, or `module(**x)` for a dict."""
    device = next(module.parameters(), torch.empty(0)).device

    def moved(part: Any) -> Any:
        return part.to(device) if isinstance(part, Tensor) else part

    if isinstance(x, Mapping):
        return logits_of(module(**{name: moved(part) for name, part in x.items()}))
    return logits_of(module(*(moved(part) for part in (x if isinstance(x, tuple | list) else [x]))))


def logits_of(output: Any) -> Tensor:
    """The output of a model in float32 or wider; a single column becomes `(n,)`.

    Of an output with `logits`, such as those of Hugging Face models, these are taken.

    >>> logits_of({"logits": torch.zeros(2, 1)})
    tensor([0., 0.])
    """
    z = output["logits"] if isinstance(output, Mapping) and "logits" in output else output
    if not isinstance(z, Tensor) or not z.is_floating_point():
        raise TypeError(f"model(x) must return logits, a float tensor; got {type(z).__name__}")
    z = z.flatten() if z.shape[1:] in ((), (1,)) else z
    return z.to(torch.promote_types(z.dtype, torch.float32))


def shifted(z: Tensor, threshold: Tensor) -> Tensor:
    """Logits minus the threshold of their class, which is axis 1.

    >>> shifted(torch.ones(1, 2, 1, 1), torch.tensor([1.0, 3.0])).flatten()
    tensor([ 0., -2.])
    """
    return z - (threshold.reshape(-1, *[1] * (z.ndim - 2)) if z.ndim > 2 else threshold)


def mean_logit(logits: Sequence[Tensor], task: str) -> Tensor:
    """The logit of the mean probability of one or two members; for several classes, its log."""
    if len(logits) == 1:
        return logits[0]
    a, b = logits
    if task == "multiclass":
        return torch.logaddexp(a.log_softmax(1), b.log_softmax(1)).sub(math.log(2))
    high, low = (torch.logaddexp(F.logsigmoid(s * a), F.logsigmoid(s * b)) for s in (1, -1))
    middle = a / 2 + b / 2  # has the right sign, also where rounding loses the difference
    return torch.where((high - low) * middle > 0, high - low, middle * 1e-7)


@contextmanager
def mode(module: nn.Module, training: bool, fixed: Sequence[nn.Module] = ()) -> Iterator[None]:
    """Train or eval mode, with `fixed` modules in eval mode; the modes are restored at the end."""
    before = [(part, part.training) for part in module.modules()]
    module.train(training)
    for part in fixed:
        part.eval()
    try:
        yield
    finally:
        for part, was in before:
            part.training = was
