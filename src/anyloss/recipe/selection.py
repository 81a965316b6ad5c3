"""Which weights of a network are used: the guard of the recipe, for any framework.

A network keeps its start and its best refined state. At the end the held-out rows decide between
the refined weights, their mean with those of the start, and the start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from anyloss.recipe.skeleton import HeldOutScores, best_share


class Candidate(NamedTuple):
    """Weights with their thresholds, and their scores on the held-out rows."""

    weights: Any
    threshold: Any
    scores: HeldOutScores


class Selection:
    """The start, and the best refined candidate so far.

    >>> start, end = (Candidate(None, 0.0, HeldOutScores(each, 0.5)) for each in (0.7, 0.8))
    >>> selection = Selection(start)
    >>> selection.offer(end)
    >>> selection.choose(lambda start, best: start)[0]
    1.0
    """

    def __init__(self, start: Candidate, best: Candidate | None = None, waited: int = 0) -> None:
        self.start, self.best, self.waited = start, best, waited

    def offer(self, found: Candidate) -> None:
        """Keep a refined candidate if it is the best; `waited` counts those since the best."""
        better = self.best is None or found.scores > self.best.scores
        self.best, self.waited = (found, 0) if better else (self.best, self.waited + 1)

    def choose(
        self, mean: Callable[[Candidate, Candidate], Candidate], guarded: bool = True
    ) -> tuple[float, Candidate]:
        """The share of the refinement that is used, and the candidate with this share.

        `mean` makes a candidate from the start and the best one. None of those that are used is
        worse than the start. If no held-out rows guard the choice, the refined weights are not used
        alone.
        """
        tried = {0.0: self.start}
        if self.best is not None:
            tried = (
                ({1.0: self.best} if guarded else {}) | {0.5: mean(self.start, self.best)} | tried
            )
        least = self.start.scores.hard
        allowed = {k: each.scores for k, each in tried.items() if each.scores.hard >= least}
        share = best_share(allowed)
        return share, tried[share]
