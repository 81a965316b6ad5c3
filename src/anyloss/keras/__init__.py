"""The Keras front-end: metrics of the confusion matrix as losses, on any backend of Keras 3.

The argument order is that of Keras, `(y_true, y_pred)`, and predictions are probabilities unless
`from_logits=True`. The class axis is the last one, and labels of shape `(n,)` are matched with
predictions of shape `(n, 1)` sample by sample. Sample weights, class weights and masks are weights
in the counts.
"""

from typing import TYPE_CHECKING, Any

try:
    import keras as _keras  # noqa: F401  # for the hint below
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "anyloss.keras needs Keras 3 (pip install 'anyloss[keras]') and the backend that the "
        "environment variable KERAS_BACKEND names: torch, jax or tensorflow (the default); "
        f"missing: {error.name}"
    ) from error

from anyloss.keras.loss import AnyLoss, ApproximationFunction
from anyloss.keras.named import (
    AccuracyLoss,
    BalancedAccuracyLoss,
    F1Loss,
    FBetaLoss,
    GeometricMeanLoss,
    MCCLoss,
)
from anyloss.keras.score import Score

if TYPE_CHECKING:
    from anyloss.keras.callback import RefineCallback

__all__ = [
    "AccuracyLoss",
    "AnyLoss",
    "ApproximationFunction",
    "BalancedAccuracyLoss",
    "F1Loss",
    "FBetaLoss",
    "GeometricMeanLoss",
    "MCCLoss",
    "RefineCallback",
    "Score",
]


def __getattr__(name: str) -> Any:
    """`RefineCallback` needs SciPy, so it is imported when it is first used."""
    if name == "RefineCallback":
        from anyloss.keras.callback import RefineCallback

        return RefineCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
