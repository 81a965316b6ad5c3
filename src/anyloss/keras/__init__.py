"""The Keras front-end: metrics of the confusion matrix as losses, on any backend of Keras 3.

The order is Keras's, `(y_true, y_pred)`; predictions are probabilities unless `from_logits=True`.
The class axis is the last one, as everywhere in Keras, and labels of shape `(n,)` are matched row
by row with predictions of shape `(n, 1)`. Sample weights, class weights and masks weigh in the
counts.
"""

try:
    import keras as _keras  # noqa: F401  # for the hint below; the rooms import it themselves
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "anyloss.keras needs Keras 3 (pip install 'anyloss[keras]') and the backend that the "
        "variable KERAS_BACKEND names: torch, jax or tensorflow, its default; "
        f"missing: {error.name}"
    ) from error

from anyloss.keras.loss import (
    AccuracyLoss,
    AnyLoss,
    ApproximationFunction,
    BalancedAccuracyLoss,
    F1Loss,
    FBetaLoss,
    GeometricMeanLoss,
    MCCLoss,
)
from anyloss.keras.score import Score

__all__ = [
    "AccuracyLoss",
    "AnyLoss",
    "ApproximationFunction",
    "BalancedAccuracyLoss",
    "F1Loss",
    "FBetaLoss",
    "GeometricMeanLoss",
    "MCCLoss",
    "Score",
]
