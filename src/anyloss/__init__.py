"""Train for the metric you report: any metric of the confusion matrix as a differentiable loss.

This package needs NumPy only. Front-ends are imported by name: `anyloss.torch`, ...
"""

from anyloss import steps
from anyloss._core.counts import Counts, counts, score
from anyloss._core.explain import explain
from anyloss._core.gradient import gradient
from anyloss.metrics import METRICS, Metric, metric
from anyloss.steps import scale_range
from anyloss.thresholds import Threshold, best_threshold

__version__ = "0.1.0"

__all__ = [
    "METRICS",
    "Counts",
    "Metric",
    "Threshold",
    "best_threshold",
    "counts",
    "explain",
    "gradient",
    "metric",
    "scale_range",
    "score",
    "steps",
]
