"""scikit-learn classifiers that are trained, or decide, for a metric of the confusion matrix."""

from anyloss.decisions import Decision
from anyloss.recipe.priors import estimate_priors
from anyloss.sklearn.classifier import AnyLossClassifier
from anyloss.sklearn.tuned import TunedDecisionClassifierCV

__all__ = ["AnyLossClassifier", "Decision", "TunedDecisionClassifierCV", "estimate_priors"]
