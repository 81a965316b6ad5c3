"""The mean of the rules of several parts of the samples, for several classes.

The best rule of few samples follows single ones. Five further searches each leave out a fifth of
the samples, and the rules of all six are averaged: what depends on single samples is averaged out,
what all rules share remains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from anyloss._core.backend import Array
from anyloss.decisions.classes import Goal, best_rule
from anyloss.decisions.rules import Decision, Found

PER_CLASS = 4  # evaluations of a search for each class, at least: two rounds of the ascent


def averaged_rule(
    goal_of: Callable[[Array], Goal], label: Array, p: Array, max_evaluations: int, parts: int
) -> Found | None:
    """The mean rule for probabilities `(n, C)`; None if the evaluations are too few for it.

    `goal_of` returns the goal of the samples at a mask. The arg-max is kept if it is better for all
    samples together.
    """
    goal, each = goal_of(np.ones(len(p), dtype=bool)), max_evaluations // (parts + 1)
    if each < PER_CLASS * goal.classes:
        return None
    whole, left_out = best_rule(goal, p, each), parts_of(label, p, parts)
    masks = [left_out != k for k in range(parts)]
    found = [whole, *(best_rule(goal_of(rows), p[rows], each) for rows in masks)]
    mean = mean_rule([x.decision for x in found])
    reached, plain = goal.score_of(mean.decide(p)), whole.candidates["argmax"]
    return whole._replace(
        decision=mean if reached >= plain[1] else plain[0],
        score=max(reached, plain[1]),
        candidates=whole.candidates | {"mean": (mean, reached)},
        evaluations=sum(x.evaluations for x in found),
    )


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
