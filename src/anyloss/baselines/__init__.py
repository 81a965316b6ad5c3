"""Baselines: what an expert would do instead, shared by everything that compares."""

from anyloss.baselines.boosted import BOOSTED
from anyloss.baselines.methods import FAMILIES, Outcome, Split, tuned_threshold
from anyloss.baselines.splits import MODELS, new_split

__all__ = ["BOOSTED", "FAMILIES", "MODELS", "Outcome", "Split", "new_split", "tuned_threshold"]
