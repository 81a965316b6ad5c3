"""The named losses: `AnyLoss` of one metric each.

The decorator completes their docstrings at import with a formula, the options, and the sections of
`AnyLoss`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, Unpack

from anyloss._core.documents import describes_loss, inherits_sections
from anyloss._core.options import shows_options_of
from anyloss.keras.config import KerasSettings, register
from anyloss.keras.loss import AnyLoss

Named = TypeVar("Named", bound=Callable[..., AnyLoss])


def _named(own: Named) -> Named:
    """Document a loss of a fixed metric, and register it with Keras."""
    shown = inherits_sections(AnyLoss)(shows_options_of(AnyLoss, "metric")(describes_loss(own)))
    registered: Named = register(shown)
    return registered


class _NamedLoss(AnyLoss):
    """A loss whose class determines its metric."""

    _metric: ClassVar[str]

    def __init__(
        self, amplifying_scale: float | None = None, **settings: Unpack[KerasSettings]
    ) -> None:
        super().__init__(amplifying_scale, metric=self._metric, **settings)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the loss, as Keras saves them."""
        config = super().get_config()
        del config["metric"]
        return config


@_named
class AccuracyLoss(_NamedLoss):
    """One minus the soft accuracy, `AnyLoss("accuracy")`.

    Examples:
        >>> round(float(AccuracyLoss()([1, 0], [[0.9], [0.2]])), 4)
        0.15
    """

    _metric = "accuracy"


@_named
class F1Loss(_NamedLoss):
    """One minus the soft F1 score, `AnyLoss("f1")`.

    Examples:
        >>> round(float(F1Loss()([1, 0], [[0.9], [0.2]])), 4)
        0.1429
        >>> round(float(F1Loss(73.0)([1, 0], [[0.9], [0.2]])), 4)  # with the scale of the paper
        0.0
    """

    _metric = "f1"


@_named
class FBetaLoss(_NamedLoss):
    """One minus the soft F-beta score, `AnyLoss("fbeta", beta=beta)`.

    Examples:
        >>> round(float(FBetaLoss(beta=2.0)([1, 0], [[0.9], [0.2]])), 4)
        0.1176
    """

    _metric = "fbeta"

    def __init__(
        self, beta: float = 1.0, amplifying_scale: float | None = None,
        **settings: Unpack[KerasSettings],
    ) -> None:  # fmt: skip
        AnyLoss.__init__(self, amplifying_scale, metric=self._metric, beta=beta, **settings)


@_named
class GeometricMeanLoss(_NamedLoss):
    """One minus the soft geometric mean of recall and specificity, `AnyLoss("gmean")`.

    Examples:
        >>> round(float(GeometricMeanLoss()([1, 0], [[0.9], [0.2]])), 4)
        0.1515
    """

    _metric = "gmean"


@_named
class BalancedAccuracyLoss(_NamedLoss):
    """One minus the soft balanced accuracy, `AnyLoss("balanced_accuracy")`.

    Examples:
        >>> round(float(BalancedAccuracyLoss()([1, 0], [[0.9], [0.2]])), 4)
        0.15
    """

    _metric = "balanced_accuracy"


@_named
class MCCLoss(_NamedLoss):
    """One minus the soft Matthews correlation coefficient, `AnyLoss("mcc")`.

    Examples:
        >>> round(float(MCCLoss()([1, 0], [[0.9], [0.2]])), 4)
        0.2965
    """

    _metric = "mcc"
