"""Train for the metric you report: any metric of the confusion matrix as a differentiable loss.

`import anyloss` needs NumPy only; `certify` needs SciPy too. Import a front-end by its name:
`anyloss.torch`, `anyloss.keras`, `anyloss.jax`, `anyloss.sklearn`, `anyloss.boosting`,
`anyloss.tabular`.
"""

from anyloss import steps
from anyloss._core.counts import Counts
from anyloss._core.explain import explain
from anyloss._core.functions import counts, gradient, score
from anyloss.certificates import Certificate, certify
from anyloss.metrics import METRICS, Metric, cost_matrix, metric
from anyloss.steps import scale_range
from anyloss.thresholds import Threshold, best_threshold

__version__ = "0.2.0"

__all__ = [
    "METRICS",
    "Certificate",
    "Counts",
    "Metric",
    "Threshold",
    "best_threshold",
    "certify",
    "cost_matrix",
    "counts",
    "explain",
    "gradient",
    "metric",
    "scale_range",
    "score",
    "steps",
]
