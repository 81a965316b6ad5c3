"""Trivial decisions, which do not look at the features: what any model must beat."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.counts import Counts
from anyloss.tabular.labels import Outcome
from anyloss.tabular.scoring import Scoring, as_columns

COPIES = 20  # of each row, over which random decisions are averaged
RATES = np.linspace(0, 1, 101)


class Trivial(NamedTuple):
    """A name, and a function from a number of rows to decisions; random ones differ by row."""

    name: str
    decide: Callable[[int], Array]
    random: bool = False


def trivial_decisions(y: Array, outcome: Outcome, scoring: Scoring, seed: int) -> list[Trivial]:
    """The trivial decisions for an outcome, chosen on the labels `y`.

    >>> from anyloss.tabular.scoring import scoring_of
    >>> outcome = Outcome("binary", ("left",), ("no", "yes"))
    >>> y = np.repeat([1.0, 0.0], [3, 7])
    >>> [x.name for x in trivial_decisions(y, outcome, scoring_of("gmean", "binary", 1), seed=0)]
    ["always 'yes'", "always 'no'", "at random, 'yes' with probability 0.50"]
    """
    make = {"binary": _binary, "multiclass": _multiclass, "multilabel": _multilabel}
    return list(make[outcome.task](y, outcome, scoring, seed))


def maximised_by(y: Array, outcome: Outcome, scoring: Scoring) -> str | None:
    """The constant decision with the score of perfect decisions; None if there is none.

    >>> from anyloss.tabular.scoring import scoring_of
    >>> outcome = Outcome("binary", ("left",), ("no", "yes"))
    >>> y = np.repeat([1.0, 0.0], [3, 7])
    >>> [maximised_by(y, outcome, scoring_of(x, "binary", 1)) for x in ("recall", "f1")]
    ["always 'yes'", None]
    """
    perfect = scoring.score(y, y)
    for each in trivial_decisions(y, outcome, scoring, 0):
        if not each.random and scoring.score(y, each.decide(len(y))) >= perfect - 1e-12:
            return each.name
    return None


def _rng(seed: int) -> np.random.Generator:
    """A generator of its own: simulated labels may come from one of the same seed."""
    return np.random.default_rng((seed, COPIES))


def _constant(decision: Array) -> Callable[[int], Array]:
    return lambda rows: np.broadcast_to(decision, (rows, *np.shape(decision))).astype(float)


def _expected(y: Array, rate: Array, scoring: Scoring) -> Array:
    """The scores of the expected counts at rates `(candidates, classes)` of predicting a class."""
    y = as_columns(y)
    positives, negatives = y.sum(axis=0), (1 - y).sum(axis=0)
    return scoring.of_counts(
        Counts(positives * rate, positives * (1 - rate), negatives * rate, negatives * (1 - rate))
    )


def _binary(y: Array, outcome: Outcome, scoring: Scoring, seed: int) -> Iterator[Trivial]:
    yield Trivial(f"always {outcome.positive!r}", _constant(np.float64(1)))
    yield Trivial(f"always {outcome.negative!r}", _constant(np.float64(0)))
    scores = _expected(y, RATES[:, None], scoring)
    rate = float(RATES[scores.argmax()])
    if scores.max() > max(scores[0], scores[-1]) + 1e-9:  # else it is one of the constant decisions
        name = f"at random, {outcome.positive!r} with probability {rate:.2f}"
        yield Trivial(name, lambda n: (_rng(seed).random(n) < rate).astype(float), True)


def _multiclass(y: Array, outcome: Outcome, scoring: Scoring, seed: int) -> Iterator[Trivial]:
    classes, share = len(outcome.classes), y.mean(axis=0)
    best = int(_expected(y, np.eye(classes), scoring).argmax())
    yield Trivial(f"always {outcome.classes[best]!r}", _constant(np.eye(classes)[best]))
    shares = {
        "by the shares of the classes": share,
        "all classes alike": np.ones(classes) / classes,
    }
    scores = _expected(y, np.stack(list(shares.values())), scoring)
    name, p = list(shares.items())[int(scores[1] > scores[0] + 1e-9)]

    def draw(rows: int) -> Array:
        drawn = _rng(seed).choice(classes, rows, p=p)
        return (drawn[:, None] == np.arange(classes)).astype(float)

    yield Trivial(f"at random, {name}", draw, True)


def _multilabel(y: Array, outcome: Outcome, scoring: Scoring, seed: int) -> Iterator[Trivial]:
    labels, share = len(outcome.classes), y.mean(axis=0)
    order = np.argsort(-share, kind="stable")
    most = np.tri(labels + 1, labels, -1)[:, np.argsort(order)]  # row k: the k most frequent labels
    yield Trivial("no label", _constant(most[0]))
    yield Trivial("every label", _constant(most[-1]))
    best = int(_expected(y, most, scoring).argmax())
    if 0 < best < labels:
        name = "the most frequent label" if best == 1 else f"the {best} most frequent labels"
        yield Trivial(f"{name} for every row", _constant(most[best]))
    yield Trivial(
        "at random, by the shares of the labels",
        lambda n: (_rng(seed).random((n, labels)) < share).astype(float),
        True,
    )
