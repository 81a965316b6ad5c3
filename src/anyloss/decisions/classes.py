"""The search for the decision rule of several classes, `argmax_k (a_k p_k + b_k)`.

At given counts a metric has two derivatives per class, `d_positive` and `d_negative`, and the
expected change of the metric if a sample is predicted as class `k` is
`p_k d_positive_k + (1 - p_k) d_negative_k`. The rule with these gains and offsets is the best one
for the linear approximation of the metric, if the probabilities are calibrated. `linearised`
repeats this. For a linear metric it is the cost-sensitive arg-max, for a ratio of linear functions
Dinkelbach's algorithm, and for a concave function of the counts the algorithm of Frank and Wolfe.

`ascend` takes no probability for granted: it improves the gains and offsets in turn, each by an
exact sweep over all values that change a decision. It finds a local optimum, without a bound.

References:
    W. Dinkelbach, "On Nonlinear Fractional Programming", Management Science 13(7), 1967.

    H. Narasimhan, H. G. Ramaswamy, S. K. Tavker, D. Khurana, P. Netrapalli and S. Agarwal,
    "Consistent Multiclass Algorithms for Complex Metrics and Constraints", JMLR 25, 2024.
"""

from __future__ import annotations

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.counts import Counts
from anyloss.decisions.goals import ClassGoal, CostGoal
from anyloss.decisions.rules import Decision, Found
from anyloss.thresholds import cuts_between, middle_of_best

Goal = ClassGoal | CostGoal

LEAST_GAIN = 1e-12  # of the score, for a change to be made
SAME = 1e-11  # scores that differ by less are equal up to the rounding of long sums
LINEAR_STEPS = 20  # linear approximations, at most
TINY = 1e-12  # a probability that no gain is to raise above another


class Budget:
    """How many evaluations may be made: passes over all samples, a sweep or the score of a rule.

    >>> budget = Budget(1)
    >>> budget.take(), budget.take(), budget.spent
    (True, False, 1)
    """

    def __init__(self, most: int) -> None:
        self.most, self.spent = most, 0

    def take(self) -> bool:
        """Whether one more evaluation may be made; it is counted if so."""
        left = self.spent < self.most
        self.spent += left
        return left


def arg_max(classes: int) -> Decision:
    """The rule of a model without tuning: the class of the highest score.

    >>> arg_max(2).offsets.tolist()
    [0.0, 0.0]
    """
    return Decision(gains=np.ones(classes), offsets=np.zeros(classes))


def best_rule(goal: Goal, p: Array, max_evaluations: int = 500) -> Found:
    """The best rule that is found for probabilities `(n, C)` within a number of evaluations.

    The candidates are the arg-max, the rule of the linear approximations, and the best rule of the
    ascents that start from these and from the arg-max of `p_k / prior_k`. A step of an ascent is
    made if it is worth a sample, `1 / n`: smaller gains did not hold on new data.
    """
    least = 1 / len(p) if goal.classes > 2 else LEAST_GAIN
    budget = Budget(max_evaluations)
    plain = arg_max(goal.classes)
    starts = {"argmax": plain}
    mixture_score = None
    if isinstance(goal, CostGoal):
        starts["linear"] = goal.plug_in_rule()
    else:
        starts["linear"], mixture_score = linearised(goal, p, budget)
    priors = np.maximum(goal.positives, goal.positives[goal.positives > 0].min())
    starts["balanced"] = plain._replace(gains=priors.min() / priors)
    candidates = {}
    for name, rule in starts.items():
        if name == "argmax" or budget.take():
            candidates[name] = rule, goal.score_of(rule.decide(p))
    for name in sorted(candidates, key=lambda name: -candidates[name][1]):
        rule = ascend(goal, p, candidates[name][0], budget, least=least)[0]
        reached = goal.score_of(rule.decide(p))
        if "ascent" not in candidates or reached > candidates["ascent"][1] + LEAST_GAIN:
            candidates["ascent"] = rule, reached
    decision, score = max(candidates.values(), key=lambda each: each[1])
    return Found(decision, score, candidates, budget.spent, mixture_score)


def linearised(goal: ClassGoal, p: Array, budget: Budget) -> tuple[Decision, float]:
    """The best rule of repeated linear approximations, and the score of their random mixture.

    The counts of a mixture of rules are the mixture of their counts. Each approximation is made at
    the best mixture so far, which starts with a share of decisions by chance, so that no recall is
    0. A mixture decides by drawing one of its rules; the returned rule is the best single one.
    """
    mixture = _mixed(goal.counts(p.argmax(axis=1)), goal.by_chance(), np.array([0.1]))
    mixture = Counts(*(x[0] for x in mixture))
    best, best_score, shares = arg_max(goal.classes), -np.inf, np.linspace(0.0, 1.0, 101)
    reached = float(goal.score(mixture))
    for _ in range(LINEAR_STEPS):
        if not budget.take():
            break
        rule = goal.linear_rule(mixture)
        counts = goal.counts(rule.decide(p))
        score = float(goal.score(counts))
        if score > best_score + LEAST_GAIN:
            best, best_score = rule, score
        mixtures = _mixed(mixture, counts, shares)
        scores = goal.score(mixtures)
        top = scores.argmax()
        if scores[top] <= reached + 1e-6:
            break
        mixture, reached = Counts(*(x[top] for x in mixtures)), float(scores[top])
    return best, max(reached, best_score)


def _mixed(first: Counts, second: Counts, shares: Array) -> Counts:
    """Counts `(shares, C)` if each sample is decided by the second rule with the given chance."""
    pairs = zip(first, second, strict=True)
    return Counts(*(np.outer(1 - shares, x) + np.outer(shares, y) for x, y in pairs))


def ascend(
    goal: Goal, scores: Array, start: Decision, budget: Budget, *,
    with_gains: bool = True, least: float = LEAST_GAIN,
) -> tuple[Decision, float]:  # fmt: skip
    """Improve offsets and gains in turn, each exactly, until none improves the score by `least`.

    >>> from anyloss import metric
    >>> from anyloss._core.shapes import Layout
    >>> lay = Layout("multiclass", "macro", 3)
    >>> goal = ClassGoal(np.arange(3), np.ones(3), metric("recall"), lay)
    >>> scores = np.array([[3, 2, 2], [3, 2.75, 0], [3, 0, 2.75]])
    >>> rule, score = ascend(goal, scores, arg_max(3), Budget(9), with_gains=False)
    >>> rule.offsets.tolist(), score
    ([-0.625, 0.0, 0.0], 1.0)
    """
    state = _Values(scores, start)
    best, improved = goal.score_of(state.first), True
    sweeps = [_offsets, _gains] if with_gains and np.ndim(start.gains) == 1 else [_offsets]
    while improved:
        improved = False
        for k in range(goal.classes):
            for sweep in sweeps:
                if not budget.take():
                    return state.decision, best
                other, highest = state.others(k)
                found = sweep(goal, state, k, other, highest)
                if found is None or found[0] <= best + least:
                    continue
                _, gain, offset = found
                moved = state.moved(k, gain, offset)
                first = (moved > highest) | ((moved == highest) & (k < other))  # as the arg-max
                decided = np.where(first, k, other)
                reached = goal.score_of(decided)
                if reached > best + least:
                    state.replace(k, gain, offset)
                    best, improved = reached, True
    return state.decision, best


Move = tuple[float, float, float]  # the score that it reaches, the gain and the offset


def _offsets(goal: Goal, state: _Values, k: int, other: Array, highest: Array) -> Move | None:
    """The best offset of class `k`, while all else remains."""
    lead = state.values[:, k] - highest
    order = np.argsort(lead)
    cuts, first = cuts_between(lead[order])
    cuts[0], cuts[-1] = cuts[0] - 1.0, cuts[-1] + 1.0  # far enough for any rounding
    scores = goal.along(k, other, order, first, np.empty(0, dtype=int))
    at = middle_of_best(scores, SAME)
    return scores[at], *state.weights(k, offset=-cuts[at])


def _gains(goal: Goal, state: _Values, k: int, other: Array, highest: Array) -> Move | None:
    """The best gain of class `k`, while all else remains.

    Class `k` is predicted where its gain is above `(highest - offset) / p`.
    """
    offset = state.offsets[k]
    p, needed = state.scores[:, k], highest - offset
    rows = np.flatnonzero((p > TINY) & (needed > 0))
    if not len(rows):
        return None
    lead = -needed[rows] / p[rows]
    order = np.argsort(lead)
    cuts, first = cuts_between(lead[order])
    cuts[0], cuts[-1] = cuts[0] * 2, cuts[-1] / 2
    scores = goal.along(k, other, rows[order], first, np.flatnonzero(needed < 0))
    at = middle_of_best(scores, SAME)
    return scores[at], -cuts[at], offset


class _Values:
    """The decision values `(n, C)` of a rule, with the two highest of each row kept up to date."""

    def __init__(self, scores: Array, decision: Decision) -> None:
        self.scores, self.values = scores, decision.values(scores)
        self.gains, self.offsets = decision.gains.copy(), decision.offsets.copy()
        self.first, self.second = _two_highest(self.values)

    @property
    def decision(self) -> Decision:
        return Decision(gains=self.gains, offsets=self.offsets)

    def others(self, k: int) -> tuple[Array, Array]:
        """The best class of each row except `k`, and its decision value."""
        other = np.where(self.first == k, self.second, self.first)
        return other, self.values[np.arange(len(other)), other]

    def weights(self, k: int, *, offset: float = 0.0) -> tuple[float, float]:
        """The gain of class `k` (1 under a matrix of gains), and its offset plus a change."""
        return self.gains[k] if self.gains.ndim == 1 else 1.0, self.offsets[k] + offset

    def moved(self, k: int, gain: float, offset: float) -> Array:
        """The decision values of class `k` under another gain and offset."""
        if self.gains.ndim == 1:
            return self.scores[:, k] * gain + offset
        return self.scores @ self.gains[:, k] + offset

    def replace(self, k: int, gain: float, offset: float) -> None:
        """Give class `k` another gain and offset."""
        column = self.moved(k, gain, offset)
        if self.gains.ndim == 1:
            self.gains[k] = gain
        self.offsets[k] = offset
        second = self.values[np.arange(len(column)), self.second]
        changed = np.flatnonzero((self.first == k) | (self.second == k) | (column >= second))
        self.values[:, k] = column
        self.first[changed], self.second[changed] = _two_highest(self.values[changed])


def _two_highest(values: Array) -> tuple[Array, Array]:
    """The classes of the highest and the second highest value of each row."""
    first = values.argmax(axis=1)
    rest = values.copy()
    rest[np.arange(len(rest)), first] = -np.inf
    return first, rest.argmax(axis=1)
