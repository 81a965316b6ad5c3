"""The recipe for trees: how `recipe.skeleton` is filled in for gradient boosting.

- **Threshold.** It becomes part of the start margin. It is the mean of the exact best threshold of
  the held-out margins and of the offset at which their *soft* metric is highest.
- **Refine.** Each member is trained for further rounds on the rows it was fitted on, from the
  *held-out* margins of these rows: trees fit their own training rows almost perfectly, so that
  their own margins would leave the metric nothing to correct.
- **Ensemble.** The margin is the mean over the members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss.boosting.core import hard_score, soft_score
from anyloss.boosting.libraries import Goal, Library, Plan, TreeData, take
from anyloss.recipe.skeleton import HeldOutScores, refine_members
from anyloss.thresholds import nearest_threshold

GRID, ZOOMS = 33, 3
LEAST_SHARE_OF_BEST = 0.9  # of the score at the exact threshold


@dataclass(frozen=True)
class TreeEnsemble:
    """Models by log-loss, their refinements, the offset, and the share of the refinement.

    `start_score` is the metric of the started models on the rows that each did not see,
    `held_out_score` that of the models as they predict, and `held_out` their margins there.
    """

    started: list[Any]
    refined: list[Any]
    offset: float
    share: float
    start_score: float
    held_out_score: float
    held_out: Array | None = None

    def margin(self, library: Library, X: Any) -> Array:
        """The margins, above 0 for the positive class."""
        z = np.mean([library.margin(model, X) for model in self.started], axis=0) - self.offset
        if not self.share:
            return z
        return z + self.share * np.mean([library.margin(x, X) for x in self.refined], axis=0)

    def importances(self, library: Library) -> Array:
        """The share of each column in the total gain of the models."""
        total: Array = sum(
            share * np.mean([_shares(library.importances(x)) for x in models], axis=0)
            for share, models in ((1.0, self.started), (self.share, self.refined))
            if share
        )
        return _shares(total)


def _shares(gains: Array) -> Array:
    """Gains divided by their sum, or all 0 if nothing was gained."""
    total = float(gains.sum())
    return gains / total if total else np.zeros(len(gains))


@dataclass(frozen=True)
class StartedTrees:
    """Models trained by log-loss, before the metric is known, and all that they were trained on.

    `held` `(members, rows)` marks the rows that each member did not see, `margins` are the mean
    margins of these rows.
    """

    library: Library
    data: TreeData
    held: Array
    plan: Plan
    valid: TreeData | None
    models: list[Any]
    margins: Array


def start(
    library: Library, data: TreeData, held: Array, plan: Plan, valid: TreeData | None = None
) -> StartedTrees:
    """The first stage of the recipe, which any number of metrics can share."""
    parts = (take(data, np.flatnonzero(~own)) for own in held)
    models = [library.train(part, plan, valid, None) for part in parts]
    margins = _held_out(library, models, data.X, held)
    return StartedTrees(library, data, held, plan, valid, models, margins)


def finish(started: StartedTrees, goal: Goal, refine_rounds: int) -> TreeEnsemble:
    """The other stages of the recipe: the threshold, refining for the metric, the ensemble."""
    trees = _TreeMembers(started, goal, refine_rounds)
    found = refine_members(trees)
    refined = trees.refined if found.share else []
    threshold = trees.threshold(found.share)
    offset, held_out = trees.offset + threshold, trees.mixed(found.share) - threshold
    return TreeEnsemble(started.models, refined, offset, *found, held_out)


class _TreeMembers:
    """The models of all inner folds, as the skeleton of the recipe uses them."""

    def __init__(self, started: StartedTrees, goal: Goal, refine_rounds: int) -> None:
        self.started, self.goal, self.refine_rounds = started, goal, refine_rounds
        self.refined: list[Any] = []

    @property
    def shares(self) -> tuple[float, ...]:
        return (1.0, 0.5, 0.0) if self.refined else (0.0,)

    def move_threshold(self) -> float:
        self.offset = best_offset(self.started.margins, self.started.data, self.goal)
        self.margins = self.started.margins - self.offset
        return self.held_out(0.0).hard

    def refine(self) -> None:
        started, library, plan = self.started, self.started.library, self.started.plan
        if any(np.ptp(self.margins[own]) == 0 for own in started.held if own.any()):
            return  # trees without a split have nothing to refine
        name, _ = library.rounds(plan.parameters)
        further = plan._replace(parameters=plan.parameters | {name: self.refine_rounds})
        data, valid = started.data._replace(margin=self.margins), started.valid
        for own, model in zip(started.held, started.models, strict=True):
            part = take(data, np.flatnonzero(~own))
            known = valid and valid._replace(margin=library.margin(model, valid.X) - self.offset)
            self.refined.append(library.train(part, further, known, self.goal))
        self.gain = _held_out(library, self.refined, data.X, started.held)

    def mixed(self, share: float) -> Array:
        """The margins of the held-out rows with this share of the refinement."""
        return self.margins + share * self.gain if share else self.margins

    def threshold(self, share: float) -> float:
        """The threshold of these margins under constraints; 0 without constraints."""
        data, goal = self.started.data, self.goal
        if not goal.constraints:
            return 0.0
        return nearest_threshold(
            data.y, self.mixed(share), goal.metric, goal.constraints, data.weight
        ).threshold

    def held_out(self, share: float) -> HeldOutScores:
        data, goal = self.started.data, self.goal
        z = self.mixed(share) - self.threshold(share)
        return HeldOutScores(
            hard_score(z, data.y, goal.metric, data.weight),
            soft_score(z, data.y, goal.metric, goal.step, data.weight),
        )


def _held_out(library: Library, models: Sequence[Any], X: Any, held: Array) -> Array:
    """The mean margin of each row over the models that did not see it, or over all if none."""
    judges = held | ~held.any(axis=0)
    margins = np.zeros(held.shape[1])
    for model, rows in zip(models, judges, strict=True):
        at = np.flatnonzero(rows)
        if len(at):
            margins[at] += library.margin(model, take(TreeData(X, rows), at).X)
    return margins / judges.sum(axis=0)


def best_offset(z: Array, data: TreeData, goal: Goal) -> float:
    """The offset of margins: midway between the exact best threshold and the best soft one.

    The exact threshold follows the noise of a few rows, the soft metric the rows far from the
    threshold; their mean was better than either. Where margins are close together (few rounds, a
    low learning rate), the soft metric cannot distinguish thresholds: if the mean predicts only one
    class, or loses more than a tenth of the score, the exact threshold is used. It is used under
    constraints too, which the mean may violate.

    >>> from anyloss import metric
    >>> from anyloss.steps import Uniform
    >>> data, goal = TreeData(None, np.array([0.0, 0.0, 1.0, 1.0])), Goal(metric("f1"), Uniform())
    >>> round(best_offset(np.array([-50.0, -10.0, 20.0, 60.0]), data, goal))
    5
    """
    exact, best = nearest_threshold(data.y, z, goal.metric, goal.constraints, data.weight)
    if goal.constraints:
        return exact
    middle = (exact + _best_soft_offset(z, data, goal)) / 2
    predicted = z > middle
    both = predicted.any() and not predicted.all()
    reached = hard_score(z, data.y, goal.metric, data.weight, at=middle)
    return middle if both and reached >= LEAST_SHARE_OF_BEST * best else exact


def _best_soft_offset(z: Array, data: TreeData, goal: Goal) -> float:
    """The offset at which the soft metric is highest, by a grid that is narrowed."""
    best, low, high = 0.0, float(z.min()) - 1, float(z.max()) + 1
    for _ in range(ZOOMS):
        grid = np.linspace(low, high, GRID)
        reached = [soft_score(z - t, data.y, goal.metric, goal.step, data.weight) for t in grid]
        top = np.flatnonzero(np.isclose(reached, max(reached), rtol=0, atol=1e-12))
        k = int(top[len(top) // 2])
        best, low, high = (float(grid[i]) for i in (k, max(k - 1, 0), min(k + 1, GRID - 1)))
    return best
