"""The training recipe: one skeleton, which each family of models fills in.

The published loss, trained from random weights, is worse than cross-entropy with a tuned threshold.
This recipe is better than both. Its stages are:

1. **Start.** Each member is trained by cross-entropy, on all samples but those of one inner fold.
2. **Threshold.** The held-out logits of all members give the best threshold for the metric (one per
   class if there are several). It is subtracted from the bias.
3. **Refine.** Each member is trained further for `1 - metric` of the soft counts, from that start.
4. **Keep, half or drop.** The held-out samples decide how much of the refinement is used: the
   refined members (1), the mean of the started and the refined members (0.5), or the started
   members (0).
5. **Ensemble.** The decision is the mean probability (for trees: the mean margin) over the members.

`recipe.numpy_models` fills it in for linear models and networks in NumPy, `boosting.trees` for
gradient boosting. Modules of PyTorch and Keras share `recipe.selection` instead, since they are
trained in loops of their own, `torch.refine` and the callbacks.

The families differ in one rule, which shares are tried, because one rule for all measured worse
(`benchmarks/tried.md`, "Keep, half or drop"). Linear models use 0.5 always, since they hardly
overfit. Networks try 0.5 and 0, and so do linear models of at least as many columns as samples,
such as those of texts. Trees try 1, 0.5 and 0. Modules use the first of 1, 0.5 and 0 that does not
lower the metric of the validation rows; without validation rows the first of 0.5 and 0 that does
not lower that of the training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class HeldOutScores(NamedTuple):
    """The metric of held-out samples: of the hard decisions, and of the soft counts."""

    hard: float
    soft: float


class Members(Protocol):
    """The started members of an ensemble, as each family of models provides them."""

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of the refinement that are tried. Of equally good ones the first is used."""

    def move_threshold(self) -> float:
        """Subtract the best threshold from the bias; the held-out score with it."""

    def refine(self) -> None:
        """Train the members further for the metric."""

    def held_out(self, share: float) -> HeldOutScores:
        """The scores of the held-out samples with this share of the refinement."""


class Outcome(NamedTuple):
    """How much of the refinement is used, and the held-out scores before and after it."""

    share: float
    start_score: float
    held_out_score: float


def refine_members(members: Members) -> Outcome:
    """Run stages 2 to 4 of the recipe. The hard and the soft score decide together.

    The hard score is the metric that users report, but it is noisy on few samples. The soft score
    uses every sample.
    """
    start_score = members.move_threshold()
    members.refine()
    found = {share: members.held_out(share) for share in members.shares}
    share = best_share(found)
    return Outcome(share, start_score, found[share].hard)


def best_share(found: Mapping[float, HeldOutScores]) -> float:
    """The share with the best sum of the hard and the soft score; the first of equal ones.

    >>> best_share({0.5: HeldOutScores(0.8, 0.6), 0.0: HeldOutScores(0.8, 0.5)})
    0.5
    """
    return max(found, key=lambda share: sum(found[share]))
