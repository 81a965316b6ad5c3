"""How a classifier is trained for a metric, without scikit-learn.

The published loss on its own, from a cold start, loses to cross-entropy with a tuned threshold.
This is what wins, in the order of the steps:

1. **Cross-entropy first**, on each of some inner training folds: logistic regression by L-BFGS, or
   a network by Adam, stopped early, its classes weighted halfway to balance.
2. **The threshold into the bias.** The logits of all held-out rows together give the exact best
   threshold for the metric (one per class if there are several); it is subtracted from the biases.
3. **Then the metric.** Adam on `1 - metric` of the soft counts, from that start: each fold's model
   is refined on the rows it was fitted on. The soft decision is the probability itself; how sharp
   it should be, the weights learn, so no scale has to be chosen.
4. **All of them vote.** The decision is the mean probability over the models of all folds, as they
   started (threshold in the bias) and as they were refined. Refined networks vote only where
   held-out rows gain by it.

`fit` does that in NumPy, with all folds trained side by side; `fit_module` does it for a PyTorch
module and DataLoader of your own: one module, in batches, and there under a sharper step with a
little class-weighted cross-entropy, because a batch has few positives.

What was measured, and what did not help, is in `benchmarks/README.md`.
"""

from typing import Any

from anyloss.recipe.fitting import (
    START_STEPS,
    Fit,
    OnStep,
    Start,
    descend,
    finish,
    fit,
    ignore,
    start,
    vote,
)
from anyloss.recipe.folds import thinned

__all__ = [
    "START_STEPS",
    "Fit",
    "OnStep",
    "Start",
    "descend",
    "finish",
    "fit",
    "fit_module",
    "ignore",
    "start",
    "thinned",
    "vote",
]


def __getattr__(name: str) -> Any:
    """`fit_module` needs PyTorch, so it is imported when it is asked for."""
    if name == "fit_module":
        from anyloss.recipe.module import fit_module

        return fit_module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
