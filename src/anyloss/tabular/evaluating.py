"""The evaluation of a model on its test rows: baselines and the importance of the columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss.baselines.boosted import BOOSTED
from anyloss.baselines.methods import FAMILIES, Predictions, Split
from anyloss.baselines.several import methods_for, several_decisions, several_split
from anyloss.baselines.splits import MODELS, new_split
from anyloss.recipe.folds import strata, thinned
from anyloss.tabular.intervals import difference_interval
from anyloss.tabular.labels import Outcome
from anyloss.tabular.result import Baseline, Importance
from anyloss.tabular.scoring import Scoring, as_columns
from anyloss.tabular.splitting import sample_rows
from anyloss.tabular.trivial import COPIES, trivial_decisions

WEIGHTED = "class-weighted cross-entropy"
BASELINES = {
    "binary": {
        "bce": "cross-entropy, threshold 0.5",
        "bce_tuned": "cross-entropy, tuned threshold",
        "weighted": WEIGHTED,
    },
    "multiclass": {
        "bce": "cross-entropy, arg-max",
        "bce_tuned": "cross-entropy, tuned decision rule",
        "weighted": WEIGHTED,
    },
    "multilabel": {
        "bce": "cross-entropy, threshold 0.5",
        "bce_tuned": "cross-entropy, tuned thresholds",
        "weighted": WEIGHTED,
    },
}
BASELINE_ROWS, BASELINE_RARER = 100_000, 2_000  # as many rows as our own recipe uses
SHUFFLED_CELLS, SHUFFLES = 2_500_000, 5
MOST_COLUMNS = 50


class Parts(NamedTuple):
    """The encoded training rows and test rows, with their labels."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array
    groups: Array | None = None  # of the training rows


def baselines(
    model: str, parts: Parts, ours: Array, outcome: Outcome, scoring: Scoring, seed: int
) -> tuple[Baseline, ...]:
    """The same model trained with cross-entropy, and trivial decisions, against our decisions.

    A larger table is sampled: 100,000 rows, or as many as hold 2,000 rows of the rarest class.
    """
    X, y, X_test, y_test, groups = parts
    task, mine = outcome.task, scoring.score(y_test, ours)
    rarest = np.bincount(strata(as_columns(y), task)).min() / len(y)
    if len(y) > (most := max(BASELINE_ROWS, round(BASELINE_RARER / rarest))):
        rows = sample_rows(y, most, seed, task)
        X, y = X[rows], y[rows]
        groups = None if groups is None else groups[rows]
    found = []
    for method, theirs in _decisions(model, X, y, X_test, groups, task, scoring, seed):
        score = scoring.score(y_test, theirs)
        interval = difference_interval(y_test, ours, theirs, scoring, seed)
        found.append(Baseline(BASELINES[task][method], score, mine - score, interval))
    for each in trivial_decisions(parts.y, outcome, scoring, seed):
        copies = COPIES if each.random else 1
        labels, own = (np.concatenate([x] * copies) for x in (y_test, ours))
        theirs = each.decide(len(labels))
        score = scoring.score(labels, theirs)
        interval = difference_interval(labels, own, theirs, scoring, seed, copies)
        found.append(Baseline(each.name, score, mine - score, interval, trivial=True))
    return tuple(found)


def _decisions(
    model: str, X: Array, y: Array, X_test: Array, groups: Array | None, task: str,
    scoring: Scoring, seed: int,
) -> Iterator[tuple[str, Array]]:  # fmt: skip
    """The name of each method of cross-entropy, and its decisions on the test rows."""
    if task != "binary":
        split = several_split(X, y, X_test, task, model, seed, groups)
        yield from several_decisions(split, methods_for(model, task), *scoring)
        return
    wanted = {"bce": ("bce", "bce_tuned"), "weighted": ("weighted",)}
    split_of_two = new_split(X, y, X_test, MODELS.get(model, ()), seed, groups)
    for each in predictions(model, wanted, split_of_two, scoring.metric.name):
        yield each.method, each.decision.astype(float)


def predictions(
    model: str, wanted: Mapping[str, Sequence[str]], split: Split, metric: str
) -> Iterator[Predictions]:
    """The predictions of these methods (by family) for the test rows; no other is trained."""
    for family, methods in wanted.items():
        left = set(methods)
        for each in BOOSTED.get(model, FAMILIES)[family](split, [metric]):
            if each.method in left:
                left.discard(each.method)
                yield each
            if not left:
                break


def importances(
    decide: Callable[[Array], Array], X: Array, y: Array, sources: Array, columns: list[str],
    scoring: Scoring, seed: int,
) -> tuple[Importance, ...]:  # fmt: skip
    """How much the score drops when a column is shuffled, the most influential column first.

    `decide` returns the decisions of encoded rows, and `sources` holds the source column of each
    encoded column. A large table is sampled, with weights that represent all rows.
    """
    most = max(500, SHUFFLED_CELLS // X.shape[1] // SHUFFLES)
    weight = np.ones(len(y))
    if len(y) > most:
        rows, weight = thinned(as_columns(y), None, scoring.layout.task, most, seed)
        X, y = X[rows], y[rows]

    def reached(X: Array) -> float:
        return scoring.score(y, decide(X), weight)

    rng, whole, found = np.random.default_rng(seed), reached(X), []
    for column in columns:
        at = np.flatnonzero(sources == column)
        kept, drops = X[:, at].copy(), []
        for _ in range(SHUFFLES):
            X[:, at] = kept[rng.permutation(len(y))]
            drops.append(whole - reached(X))
        X[:, at] = kept
        found.append(Importance(column, float(np.mean(drops)), float(np.std(drops, ddof=1))))
    return tuple(sorted(found, key=lambda x: -x.drop))
