"""The PyTorch front-end: metrics of the confusion matrix as losses, and their neighbours."""

try:
    import torch as _torch  # noqa: F401  # for the hint below; the rooms import it themselves
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "anyloss.torch needs PyTorch; install it with: pip install 'anyloss[torch]'"
    ) from error

from anyloss.torch.accumulation import accumulate
from anyloss.torch.loss import (
    AccuracyLoss,
    AnyLoss,
    BalancedAccuracyLoss,
    F1Loss,
    FBetaLoss,
    GeometricMeanLoss,
    MCCLoss,
    any_loss,
)
from anyloss.torch.meter import ScoreMeter
from anyloss.torch.ranking import AUROCLoss, AveragePrecisionLoss, WMWLoss
from anyloss.torch.sampler import StratifiedBatchSampler
from anyloss.torch.surrogate import SurrogateFBetaLoss

__all__ = [
    "AUROCLoss",
    "AccuracyLoss",
    "AnyLoss",
    "AveragePrecisionLoss",
    "BalancedAccuracyLoss",
    "F1Loss",
    "FBetaLoss",
    "GeometricMeanLoss",
    "MCCLoss",
    "ScoreMeter",
    "StratifiedBatchSampler",
    "SurrogateFBetaLoss",
    "WMWLoss",
    "accumulate",
    "any_loss",
]
