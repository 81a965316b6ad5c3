"""The PyTorch front-end: metrics of the confusion matrix as losses, and what training needs."""

from typing import TYPE_CHECKING, Any

try:
    import torch as _torch  # noqa: F401  # for the hint below
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "anyloss.torch needs PyTorch; install it with: pip install 'anyloss[torch]'"
    ) from error

from anyloss.torch.accumulation import accumulate
from anyloss.torch.counting import soft_counts
from anyloss.torch.loss import AnyLoss, any_loss
from anyloss.torch.meter import ScoreMeter
from anyloss.torch.named import (
    AccuracyLoss,
    BalancedAccuracyLoss,
    F1Loss,
    FBetaLoss,
    GeometricMeanLoss,
    MCCLoss,
)
from anyloss.torch.ranking import AUROCLoss, AveragePrecisionLoss, WMWLoss
from anyloss.torch.sampler import StratifiedBatchSampler
from anyloss.torch.surrogate import SurrogateFBetaLoss

if TYPE_CHECKING:
    from anyloss.torch.refined import Epoch, RefinedModule
    from anyloss.torch.refinement import refine

__all__ = [
    "AUROCLoss",
    "AccuracyLoss",
    "AnyLoss",
    "AveragePrecisionLoss",
    "BalancedAccuracyLoss",
    "Epoch",
    "F1Loss",
    "FBetaLoss",
    "GeometricMeanLoss",
    "MCCLoss",
    "RefinedModule",
    "ScoreMeter",
    "StratifiedBatchSampler",
    "SurrogateFBetaLoss",
    "WMWLoss",
    "accumulate",
    "any_loss",
    "refine",
    "soft_counts",
]


def __getattr__(name: str) -> Any:
    """`refine` needs SciPy, so it is imported when it is first used."""
    if name in ("Epoch", "RefinedModule", "refine"):
        from anyloss.torch import refinement

        return getattr(refinement, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
