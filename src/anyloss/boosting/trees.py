"""The recipe for trees: how `recipe.skeleton` is filled in for gradient boosting.

- **Threshold.** It becomes part of the start margin. For two classes it is the mean of the exact
  best threshold of the held-out margins and of the offset at which their *soft* metric is highest.
  Several classes have an offset each, the mean of the best ones of resampled rows; several labels
  have the thresholds of `anyloss.decisions.labels`.
- **Refine.** Each member is trained for further rounds on the rows it was fitted on, from the
  *held-out* margins of these rows: trees fit their own training rows almost perfectly, so that
  their own margins would leave the metric nothing to correct. Labels are not refined.
- **Ensemble.** The margin is the mean over the members. For several classes and labels, a model of
  all rows weighs as much as the members together: of rare classes, a fifth of the rows matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss.boosting import several
from anyloss.boosting.core import hard_score, soft_score
from anyloss.boosting.libraries import Goal, Library, Plan, TreeData, take
from anyloss.decisions.labels import logit
from anyloss.decisions.search import best_decision
from anyloss.recipe import deadlines
from anyloss.recipe.skeleton import HeldOutScores, refine_members
from anyloss.recipe.target import Target, probabilities
from anyloss.thresholds import nearest_threshold

GRID, ZOOMS = 33, 3
LEAST_SHARE_OF_BEST = 0.9  # of the score at the exact threshold
START_SHARE = 0.7  # of the time of all rounds, for a limit of time


@dataclass(frozen=True)
class TreeEnsemble:
    """Models by log-loss, their refinements, the offset, and the share of the refinement.

    `start_score` is the metric of the started models on the rows that each did not see,
    `held_out_score` that of the models as they predict, and `held_out` their margins there (none in
    a model that was read from a folder). Several
    classes and labels have an offset for each column, and a model of all rows in `whole`.
    """

    started: list[Any]
    refined: list[Any]
    offset: Any
    share: float
    start_score: float
    held_out_score: float
    whole: list[Any] = field(default_factory=list)
    held_out: Array = field(default_factory=lambda: np.empty(0))

    def margin(self, library: Library, X: Any) -> Array:
        """The margins: above 0 for the positive class and for a label, highest for a class."""
        z = np.mean([library.margin(model, X) for model in self.started], axis=0)
        for model in self.whole:
            z = (z + library.margin(model, X)) / 2
        z = z - self.offset
        if not self.share:
            return z
        return z + self.share * np.mean([library.margin(x, X) for x in self.refined], axis=0)

    def importances(self, library: Library) -> Array:
        """The share of each column in the total gain of the models."""
        start = 0.5 if self.whole else 1.0
        groups = (start, self.started), (start, self.whole), (self.share, self.refined)
        total: Array = sum(
            share * np.mean([_shares(library.importances(x)) for x in models], axis=0)
            for share, models in groups
            if share and models
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
    margins of these rows. `whole` has a model of all rows, or none.
    """

    library: Library
    data: TreeData
    held: Array
    plan: Plan
    valid: TreeData | None
    models: list[Any]
    margins: Array
    whole: list[Any] = field(default_factory=list)


def start(
    library: Library, data: TreeData, held: Array, plan: Plan, valid: TreeData | None = None, *,
    with_whole: bool = False,
) -> StartedTrees:  # fmt: skip
    """The first stage of the recipe, which any number of metrics can share."""
    models = []
    for own in held:
        models.append(library.train(take(data, np.flatnonzero(~own)), plan, valid, None))
        deadlines.report(START_SHARE * len(models) / len(held))
    margins = _held_out(library, models, data.X, held)
    whole = [library.train(data, plan, valid, None)] if with_whole else []
    return StartedTrees(library, data, held, plan, valid, models, margins, whole)


def finish(started: StartedTrees, goal: Goal, refine_rounds: int) -> TreeEnsemble:
    """The other stages of the recipe: the threshold, refining for the metric, the ensemble."""
    trees = _TreeMembers(started, goal, refine_rounds)
    found = refine_members(trees)
    refined = trees.refined if found.share else []
    threshold = trees.threshold(found.share)
    offset, held_out = trees.offset + threshold, trees.mixed(found.share) - threshold
    return TreeEnsemble(started.models, refined, offset, *found, started.whole, held_out)


class _TreeMembers:
    """The models of all inner folds, as the skeleton of the recipe uses them."""

    def __init__(self, started: StartedTrees, goal: Goal, refine_rounds: int) -> None:
        self.started, self.goal, self.refine_rounds = started, goal, refine_rounds
        self.judge = _judge(started.data, goal)
        self.refined: list[Any] = []

    @property
    def shares(self) -> tuple[float, ...]:
        return (1.0, 0.5, 0.0) if self.refined else (0.0,)

    def move_threshold(self) -> float:
        self.offset = self.judge.offset(self.started.margins)
        self.margins = self.started.margins - self.offset
        return self.held_out(0.0).hard

    def refine(self) -> None:
        started, library, plan = self.started, self.started.library, self.started.plan
        if any(not np.ptp(self.margins[own], axis=0).any() for own in started.held if own.any()):
            return  # trees without a split have nothing to refine
        if self.goal.layout is not None and self.goal.layout.task == "multilabel":
            return
        name, _ = library.rounds(plan.parameters)
        further = plan._replace(parameters=plan.parameters | {name: self.refine_rounds})
        data, valid = started.data._replace(margin=self.margins), started.valid
        for own, model in zip(started.held, started.models, strict=True):
            part = take(data, np.flatnonzero(~own))
            known = valid and valid._replace(margin=library.margin(model, valid.X) - self.offset)
            self.refined.append(library.train(part, further, known, self.goal))
            share = len(self.refined) / len(started.models)
            deadlines.report(START_SHARE + (1 - START_SHARE) * share)
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
        return self.judge.held_out(self.mixed(share) - self.threshold(share))


class _TwoClasses:
    """The offset and the scores of margins `(rows,)`."""

    def __init__(self, data: TreeData, goal: Goal) -> None:
        self.data, self.goal = data, goal

    def offset(self, z: Array) -> float:
        return best_offset(z, self.data, self.goal)

    def held_out(self, z: Array) -> HeldOutScores:
        data, goal = self.data, self.goal
        return HeldOutScores(
            hard_score(z, data.y, goal.metric, data.weight),
            soft_score(z, data.y, goal.metric, goal.step, data.weight),
        )


class _SeveralColumns:
    """The offsets and the scores of margins `(rows, columns)` of several classes or labels."""

    def __init__(self, data: TreeData, goal: Goal) -> None:
        assert goal.layout is not None
        y, weight, lay = data.y, data.weight, goal.layout
        if lay.task == "multiclass":
            y = (y[:, None] == np.arange(lay.classes)).astype(float)
        weight = np.ones(len(y)) if weight is None else weight
        self.target, self.step = Target(y, weight, goal.metric, lay), goal.step

    def offset(self, z: Array) -> Array:
        y, weight, metric, lay, _ = self.target
        if lay.task == "multiclass":
            return self.target.averaged_offsets(z)
        found = best_decision(y, probabilities(z, lay.task), metric, lay, weight=weight)
        return logit(found.decision.thresholds)

    def held_out(self, z: Array) -> HeldOutScores:
        y, weight, metric, lay, _ = self.target
        soft = several.soft_score(z, y, metric, lay, self.step, weight)
        return HeldOutScores(self.target.score(z), soft)


def _judge(data: TreeData, goal: Goal) -> _TwoClasses | _SeveralColumns:
    return (_TwoClasses if goal.layout is None else _SeveralColumns)(data, goal)


def _held_out(library: Library, models: Sequence[Any], X: Any, held: Array) -> Array:
    """The mean margin of each row over the models that did not see it, or over all if none."""
    judges = held | ~held.any(axis=0)
    margins = None
    for model, rows in zip(models, judges, strict=True):
        at = np.flatnonzero(rows)
        if len(at):
            found = library.margin(model, take(TreeData(X, rows), at).X)
            if margins is None:
                margins = np.zeros((held.shape[1], *found.shape[1:]))
            margins[at] += found
    assert margins is not None  # a row that no model holds out is judged by all
    return (margins.T / judges.sum(axis=0)).T


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
