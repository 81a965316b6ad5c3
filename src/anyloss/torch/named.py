"""The named losses: `AnyLoss` of one metric each.

The decorator completes their docstrings at import with a formula, the options, and the sections of
`AnyLoss`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar, Unpack

import torch.distributed as dist

from anyloss._core.choices import Reduction
from anyloss._core.constraints import ConstraintSpec
from anyloss._core.documents import describes_loss, inherits_sections
from anyloss._core.options import SharedSettings, shows_options_of
from anyloss.torch.loss import AnyLoss

Named = TypeVar("Named", bound=Callable[..., AnyLoss])


def _named(own: Named) -> Named:
    """Document a loss of a fixed metric."""
    return inherits_sections(AnyLoss)(shows_options_of(AnyLoss)(describes_loss(own)))


class LossSettings(SharedSettings, total=False):
    """The options of the named losses: those of `AnyLoss` without the metric."""

    reduction: Reduction
    sync: bool | None
    group: dist.ProcessGroup | None
    memory: float | None
    constraints: ConstraintSpec | None


class _NamedLoss(AnyLoss):
    """A loss whose class determines its metric."""

    _metric: ClassVar[str]

    def __init__(self, **settings: Unpack[LossSettings]) -> None:
        super().__init__(self._metric, **settings)


@_named
class AccuracyLoss(_NamedLoss):
    """One minus the soft accuracy, `AnyLoss("accuracy")`.

    Examples:
        >>> import torch
        >>> loss = AccuracyLoss(from_logits=False)
        >>> round(loss(torch.tensor([0.9, 0.2]), torch.tensor([1, 0])).item(), 4)
        0.15
    """

    _metric = "accuracy"


@_named
class F1Loss(_NamedLoss):
    """One minus the soft F1 score, `AnyLoss("f1")`.

    Examples:
        >>> import torch
        >>> loss = F1Loss(from_logits=False)
        >>> round(loss(torch.tensor([0.9, 0.2]), torch.tensor([1, 0])).item(), 4)
        0.1429
    """

    _metric = "f1"


@_named
class FBetaLoss(AnyLoss):
    """One minus the soft F-beta score, `AnyLoss("fbeta", beta=beta)`.

    Examples:
        >>> import torch
        >>> loss = FBetaLoss(beta=2.0, from_logits=False)
        >>> round(loss(torch.tensor([0.9, 0.2]), torch.tensor([1, 0])).item(), 4)
        0.1176
    """

    def __init__(self, beta: float = 1.0, **settings: Unpack[LossSettings]) -> None:
        super().__init__("fbeta", beta=beta, **settings)


@_named
class GeometricMeanLoss(_NamedLoss):
    """One minus the soft geometric mean of recall and specificity, `AnyLoss("gmean")`.

    Examples:
        >>> import torch
        >>> loss = GeometricMeanLoss(from_logits=False)
        >>> round(loss(torch.tensor([0.9, 0.2]), torch.tensor([1, 0])).item(), 4)
        0.1515
    """

    _metric = "gmean"


@_named
class BalancedAccuracyLoss(_NamedLoss):
    """One minus the soft balanced accuracy, `AnyLoss("balanced_accuracy")`.

    Examples:
        >>> import torch
        >>> loss = BalancedAccuracyLoss(from_logits=False)
        >>> round(loss(torch.tensor([0.9, 0.2]), torch.tensor([1, 0])).item(), 4)
        0.15
    """

    _metric = "balanced_accuracy"


@_named
class MCCLoss(_NamedLoss):
    """One minus the soft Matthews correlation coefficient, `AnyLoss("mcc")`.

    Examples:
        >>> import torch
        >>> loss = MCCLoss(from_logits=False)
        >>> round(loss(torch.tensor([0.9, 0.2]), torch.tensor([1, 0])).item(), 4)
        0.2965
    """

    _metric = "mcc"
