"""Which weights of a network are used: the guard of the recipe, for any framework.

A network keeps its start and its refined state. The refined weights are used, with the first of
several decision rules that is not worse than the start on the held-out rows; if there is none, the
mean with the weights of the start, and else the start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from anyloss.recipe.skeleton import HeldOutScores


class Candidate(NamedTuple):
    """Weights with their thresholds, and their scores on the held-out rows."""

    weights: Any
    threshold: Any
    scores: HeldOutScores


class Selection:
    """The start, and the refined candidate: the newest one, or the best one so far.

    >>> start, end = (Candidate(None, 0.0, HeldOutScores(each, 0.5)) for each in (0.7, 0.8))
    >>> selection = Selection(start)
    >>> selection.choose([(1.0, end)])[0], selection.choose([])[0]
    (1.0, 0.0)
    """

    def __init__(self, start: Candidate, refined: Candidate | None = None, waited: int = 0) -> None:
        self.start, self.refined, self.waited = start, refined, waited

    def offer(self, found: Candidate, only_better: bool = False) -> None:
        """Keep a refined candidate; `waited` counts those since the best."""
        better = self.refined is None or found.scores > self.refined.scores
        self.waited = 0 if better else self.waited + 1
        if better or not only_better:
            self.refined = found

    def choose(self, tried: Iterable[tuple[float, Candidate]]) -> tuple[float, Candidate]:
        """The first of the candidates, with their shares of the refinement, that is not worse than
        the start on the held-out rows, or else the start. Those after it are not made.
        """
        least = self.start.scores.hard
        found = (each for each in tried if each[1].scores.hard >= least)
        return next(found, (0.0, self.start))
