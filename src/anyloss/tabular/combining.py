"""How the members of an automatic model are weighed, by their decisions about held-out rows.

The weights are the mean of two greedy selections, by the hard and by the soft score. On development
tables that was better than the best member, than the plain mean of all or of the best three, and
than either selection alone (`benchmarks/tried.md`, "Combining the families").
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anyloss._core.backend import Array
from anyloss.recipe.target import Target

ROUNDS = 20


def member_weights(values: Array, target: Target) -> Array:
    """The weights `(members,)` of decision values `(members, rows, columns)`.

    >>> from anyloss.recipe.target import new_target
    >>> y = np.array([1.0, 0.0, 0.0, 1.0])
    >>> right, wrong = 2 * y - 1, 1 - 2 * y
    >>> values = np.array([right, wrong])[:, :, None]
    >>> member_weights(values, new_target(y, "f1", "binary")).tolist()
    [1.0, 0.0]
    """
    hard = greedy_weights(values, target.score)
    soft = greedy_weights(values, lambda x: target.held_out(x).soft)
    return (hard + soft) / 2


def greedy_weights(values: Array, score: Callable[[Array], float]) -> Array:
    """Weights by greedy selection: the member that helps the mean most is added, again and again.

    The weights are those of the round with the best score, the first of equal ones.

    >>> values = np.array([[[1.0]], [[-0.5]]])
    >>> greedy_weights(values, lambda x: -abs(x[0, 0])).round(3).tolist()
    [0.333, 0.667]

    Reference: Caruana, Niculescu-Mizil, Crew and Ksikes, Ensemble Selection from Libraries of
    Models (2004).
    """
    times = np.zeros(len(values))
    total, best, kept = np.zeros_like(values[0]), -np.inf, times
    for k in range(1, ROUNDS + 1):
        found = [score((total + x) / k) for x in values]
        at = int(np.argmax(found))
        times, total = times + (np.arange(len(values)) == at), total + values[at]
        if found[at] > best + 1e-12:
            best, kept = found[at], times
    return kept / kept.sum()
