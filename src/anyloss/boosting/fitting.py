"""The recipe for trees: log-loss, the threshold into the start margin, the metric, a mean.

1. **Log-loss first**, on the rows outside each of some inner folds, which are drawn twice.
2. **The threshold into the start margin.** Of all held-out margins together: the mean of the exact
   best threshold and of the offset at which their *soft* metric is highest.
3. **Then the metric**, some further rounds for each fold's model, on the rows it was fitted on.
   They start from the *held-out* margins of these rows: trees know the rows they were fitted on
   nearly by heart, so their own margins there leave the metric nothing to correct.
4. **How far to go** is chosen on the held-out rows: all the way, half way (the mean of the tuned
   and the refined model), or not at all.
5. The margin is the mean over the folds' models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss.boosting.core import hard_score, soft_score
from anyloss.boosting.libraries import Goal, Library, Plan, Rows, take
from anyloss.thresholds import best_threshold

SHARES = (1.0, 0.5, 0.0)  # of the refinement; of equals the first is taken
GRID, ZOOMS = 33, 3
KEEP = 0.9  # of the score at the exact threshold


@dataclass(frozen=True)
class Boosted:
    """Models by log-loss, their refinements, what to subtract, and how much of a refinement counts.

    `start_score` is the metric of the started models on the rows that each did not see,
    `held_out_score` that of the models as they predict.
    """

    started: list[Any]
    refined: list[Any]
    offset: float
    share: float
    start_score: float
    held_out_score: float

    def margin(self, library: Library, X: Any) -> Array:
        """Above 0 for rows of the positive class."""
        z = np.mean([library.margin(model, X) for model in self.started], axis=0) - self.offset
        if not self.share:
            return z
        return z + self.share * np.mean([library.margin(x, X) for x in self.refined], axis=0)

    def importances(self, library: Library) -> Array:
        """The share of each column in what the models have gained; refinements as they count."""
        total: Array = sum(
            share * np.mean([_shares(library.importances(x)) for x in models], axis=0)
            for share, models in ((1.0, self.started), (self.share, self.refined))
            if share
        )
        return _shares(total)


def _shares(gains: Array) -> Array:
    """Gains with the sum 1, or all 0 where nothing was gained."""
    total = float(gains.sum())
    return gains / total if total else np.zeros(len(gains))


@dataclass(frozen=True)
class Started:
    """Models by log-loss, before the metric is known, and the margins of the rows they held out."""

    models: list[Any]
    margins: Array


def fit(
    library: Library,
    rows: Rows,
    held: Array,
    goal: Goal,
    plan: Plan,
    refine_rounds: int,
    valid: Rows | None = None,
) -> Boosted:
    """Train for a metric. `held` `(members, rows)` says which rows each member does not see."""
    begun = start(library, rows, held, plan, valid)
    return finish(library, rows, held, goal, plan, refine_rounds, begun, valid)


def start(
    library: Library, rows: Rows, held: Array, plan: Plan, valid: Rows | None = None
) -> Started:
    """The first half of `fit`, which any number of metrics can share."""
    parts = (take(rows, np.flatnonzero(~own)) for own in held)
    models = [library.train(part, plan, valid, None) for part in parts]
    return Started(models, _held_out(library, models, rows.X, held))


def finish(
    library: Library,
    rows: Rows,
    held: Array,
    goal: Goal,
    plan: Plan,
    refine_rounds: int,
    begun: Started,
    valid: Rows | None = None,
) -> Boosted:
    """The second half of `fit`: the threshold into the margin, the metric, how much of it."""
    offset = best_offset(begun.margins, rows, goal)
    z = begun.margins - offset
    start_score = hard_score(z, rows.y, goal.metric, rows.weight)
    if any(np.ptp(z[own]) == 0 for own in held if own.any()):  # trees that found nothing to split
        return Boosted(begun.models, [], offset, 0.0, start_score, start_score)
    name, _ = library.rounds(plan.parameters)
    further = plan._replace(parameters=plan.parameters | {name: refine_rounds})
    refined = []
    for own, model in zip(held, begun.models, strict=True):
        part = take(rows._replace(margin=z), np.flatnonzero(~own))
        known = valid and valid._replace(margin=library.margin(model, valid.X) - offset)
        refined.append(library.train(part, further, known, goal))
    gain = _held_out(library, refined, rows.X, held)
    share = best_share(z, gain, rows, goal)
    reached = hard_score(z + share * gain, rows.y, goal.metric, rows.weight)
    return Boosted(begun.models, refined if share else [], offset, share, start_score, reached)


def _held_out(library: Library, models: Sequence[Any], X: Any, held: Array) -> Array:
    """The mean margin of each row over the models that did not see it, or over all if none."""
    judges = held | ~held.any(axis=0)
    margins = np.zeros(held.shape[1])
    for model, rows in zip(models, judges, strict=True):
        at = np.flatnonzero(rows)
        if len(at):
            margins[at] += library.margin(model, take(Rows(X, rows), at).X)
    return margins / judges.sum(axis=0)


def best_offset(z: Array, rows: Rows, goal: Goal) -> float:
    """What to subtract from margins: midway between the best threshold and the best soft one.

    The exact sweep follows the noise of a few rows, the soft metric the rows far from the
    threshold; their mean was better than either. Margins close together (few rounds, a low rate)
    are all one to the soft metric: where the mean decides all rows alike, or loses more than a
    tenth of the score, the exact threshold stands.

    >>> from anyloss import metric
    >>> from anyloss.steps import Uniform
    >>> rows, goal = Rows(None, np.array([0.0, 0.0, 1.0, 1.0])), Goal(metric("f1"), Uniform())
    >>> round(best_offset(np.array([-50.0, -10.0, 20.0, 60.0]), rows, goal))
    5
    """
    exact, reached = best_threshold(rows.y, z, goal.metric, weight=rows.weight)
    middle = (exact + _best_soft_offset(z, rows, goal)) / 2
    called = z > middle
    varied = called.any() and not called.all()
    kept = hard_score(z, rows.y, goal.metric, rows.weight, at=middle)
    return middle if varied and kept >= KEEP * reached else exact


def _best_soft_offset(z: Array, rows: Rows, goal: Goal) -> float:
    """The offset at which the soft metric is highest, by a grid that is narrowed."""
    best, low, high = 0.0, float(z.min()) - 1, float(z.max()) + 1
    for _ in range(ZOOMS):
        grid = np.linspace(low, high, GRID)
        reached = [soft_score(z - t, rows.y, goal.metric, goal.step, rows.weight) for t in grid]
        top = np.flatnonzero(np.isclose(reached, max(reached), rtol=0, atol=1e-12))
        k = int(top[len(top) // 2])
        best, low, high = (float(grid[i]) for i in (k, max(k - 1, 0), min(k + 1, GRID - 1)))
    return best


def best_share(z: Array, gain: Array, rows: Rows, goal: Goal) -> float:
    """How much of the refinement to keep, by soft and hard metric of the held-out rows."""

    def reached(share: float) -> float:
        end = z + share * gain
        soft = soft_score(end, rows.y, goal.metric, goal.step, rows.weight)
        return soft + hard_score(end, rows.y, goal.metric, rows.weight)

    return max(SHARES, key=reached)
