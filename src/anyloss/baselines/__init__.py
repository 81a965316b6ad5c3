"""Baselines: what an expert would do instead. Everything that compares methods uses them.

A method is trained on the training rows of a `Split` and returns `Predictions` for its test rows.
`FAMILIES` has the methods of linear models and networks, `BOOSTED` those of trees.
docs/add_a_baseline.md explains how to add one.
"""

from anyloss.baselines.boosted import BOOSTED
from anyloss.baselines.methods import FAMILIES, Predictions, Split, tuned_threshold
from anyloss.baselines.splits import MODELS, new_split

__all__ = ["BOOSTED", "FAMILIES", "MODELS", "Predictions", "Split", "new_split", "tuned_threshold"]
