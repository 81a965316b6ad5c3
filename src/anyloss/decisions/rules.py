"""What a decision rule is, and what a search for one returns."""

from __future__ import annotations

from typing import NamedTuple

from anyloss._core.backend import Array


class Decision(NamedTuple):
    """A decision rule: what turns the scores of a model into decisions.

    Two classes and several labels have thresholds: what is above is predicted. Several classes have
    gains and offsets: the class `argmax_k (a_k p_k + b_k)` is predicted. For a cost matrix the
    gains are a matrix `(C, C)`, and the class `argmax_k (p @ a + b)_k` is predicted.

    Attributes:
        thresholds (array or None): `(1,)` for two classes, `(labels,)` for several labels.
        gains (array or None): `(C,)` or `(C, C)` for several classes.
        offsets (array or None): `(C,)` for several classes.

    Examples:
        >>> import numpy as np
        >>> rule = Decision(gains=np.array([1.0, 2.0]), offsets=np.array([0.0, 0.1]))
        >>> rule.values(np.array([[0.75, 0.25]])).tolist(), rule.decide(np.array([[0.75, 0.25]]))
        ([[0.75, 0.6]], array([0]))
    """

    thresholds: Array = None
    gains: Array = None
    offsets: Array = None

    def values(self, scores: Array) -> Array:
        """The decision values: predicted is what is above 0, or the class of the highest."""
        if self.thresholds is not None:
            return scores - self.thresholds
        return (scores * self.gains if self.gains.ndim == 1 else scores @ self.gains) + self.offsets

    def decide(self, scores: Array) -> Array:
        """The decisions: 0 and 1 in the shape of the scores, or the number of each row's class."""
        values = self.values(scores)
        return (values > 0).astype(int) if self.thresholds is not None else values.argmax(axis=1)


class Found(NamedTuple):
    """The decision rule that a search found, and how.

    `candidates` are the rules that were compared, by name, with their scores. `mixture_score` is
    that of the random mixture of rules that Frank and Wolfe's algorithm ends with, by which it
    exceeds the best single rule of the mixture; None where there is no mixture.
    """

    decision: Decision
    score: float
    candidates: dict[str, tuple[Decision, float]]
    evaluations: int = 0
    mixture_score: float | None = None
