"""The mean of the rules of several parts of the samples, for several classes.

The best rule of few samples follows single ones. Five further searches each leave out a fifth of
the samples, and the rules of all six are averaged: what depends on single samples is averaged out,
what all rules share remains. The left-out samples show what a rule is worth on new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from anyloss._core.backend import Array
from anyloss.decisions.classes import Goal, best_rule
from anyloss.decisions.rules import Decision, Found

GoalOf = Callable[[Array], Goal]  # the goal of the samples at a mask
Adopt = Literal["best", "clear"]
ADOPTIONS: tuple[Adopt, ...] = ("best", "clear")
HALVES = 50  # random halves of the samples, for a standard error
PER_CLASS = 4  # evaluations of a search for each class, at least: two rounds of the ascent


def averaged_rule(
    goal_of: GoalOf, label: Array, p: Array, max_evaluations: int, parts: int, adopt: Adopt
) -> Found | None:
    """The mean rule for probabilities `(n, C)`; None if the evaluations are too few for it.

    The arg-max is kept if it is better for all samples together. With "clear" it is also kept
    unless the rules are better by more than a standard error on the samples that they left out.
    """
    each = max_evaluations // (parts + 1)
    if each < PER_CLASS * p.shape[1]:
        return None
    goal = goal_of(np.ones(len(p), dtype=bool))
    whole, left_out = best_rule(goal, p, each), parts_of(label, p, parts)
    masks = [left_out != k for k in range(parts)]
    found = [whole, *(best_rule(goal_of(rows), p[rows], each) for rows in masks)]
    mean = mean_rule([x.decision for x in found])
    reached, plain = goal.score_of(mean.decide(p)), whole.candidates["argmax"]
    kept = reached >= plain[1]
    if kept and adopt == "clear":
        decided = p.argmax(axis=1)
        for k, each_part in enumerate(found[1:]):
            decided[left_out == k] = each_part.decision.decide(p[left_out == k])
        kept = clearly_better(goal_of, decided, p.argmax(axis=1))
    return whole._replace(
        decision=mean if kept else plain[0],
        score=reached if kept else plain[1],
        candidates=whole.candidates | {"mean": (mean, reached)},
        evaluations=sum(x.evaluations for x in found),
    )


def clearly_better(goal_of: GoalOf, decided: Array, other: Array) -> bool:
    """Whether decisions score more than others by more than the standard error of the gain.

    The variance of the gain is the mean squared change of the gain in random halves of the samples
    (the delete-half jackknife). The halves are the same in every call.
    """
    n, rng = len(decided), np.random.default_rng(0)

    def gain(rows: Array) -> float:
        goal = goal_of(rows)
        return goal.score_of(decided[rows]) - goal.score_of(other[rows])

    whole = gain(np.ones(n, dtype=bool))
    halves = [gain(rng.permutation(n) < n / 2) for _ in range(HALVES)]
    return bool(whole > np.sqrt(np.mean((np.array(halves) - whole) ** 2)))


def mean_rule(rules: Sequence[Decision]) -> Decision:
    """The mean of gains and offsets; a rule counts the same whatever its scale.

    >>> two = [Decision(gains=np.array(a), offsets=np.zeros(2)) for a in ([1.0, 1.0], [2.0, 6.0])]
    >>> mean_rule(two).gains.tolist()
    [0.75, 1.25]
    """
    units = [np.abs(rule.gains).mean() or 1.0 for rule in rules]
    pairs = list(zip(rules, units, strict=True))
    return Decision(
        gains=np.mean([rule.gains / unit for rule, unit in pairs], axis=0),
        offsets=np.mean([rule.offsets / unit for rule, unit in pairs], axis=0),
    )


def parts_of(label: Array, p: Array, parts: int) -> Array:
    """The part of each sample, the same for equal samples; -1 for the only one of a class.

    Within a class, samples in the order of its probability go to the parts in turn, so that the
    parts are alike. Nothing is random.

    >>> parts_of(np.array([0, 0, 0, 1]), np.array([[0.9], [0.8], [0.9], [0.5]]), 2).tolist()
    [1, 0, 1, -1]
    """
    part, dealt = np.full(len(label), -1), 0
    for k in np.unique(label):
        rows = np.flatnonzero(label == k)
        order = np.column_stack([p[rows, min(k, p.shape[1] - 1)], p[rows]])
        distinct, number = np.unique(order, axis=0, return_inverse=True)
        if len(distinct) > 1:
            part[rows] = (number.reshape(-1) + dealt) % parts
            dealt += len(distinct)
    return part
