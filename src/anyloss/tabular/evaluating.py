"""The evaluation of a model on its test rows: baselines and the importance of the columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from anyloss._core.backend import Array
from anyloss.baselines.boosted import BOOSTED
from anyloss.baselines.methods import FAMILIES, Predictions, Split
from anyloss.baselines.splits import INNER, MODELS, new_split, splitter
from anyloss.baselines.tables import methods_for, several_decisions, several_split
from anyloss.metrics import Metric
from anyloss.recipe.constrained import Promise, certified
from anyloss.recipe.folds import strata, thinned
from anyloss.tabular.intervals import difference_interval
from anyloss.tabular.result import Baseline, Importance
from anyloss.tabular.scoring import Scoring, as_columns
from anyloss.tabular.splitting import sample_rows
from anyloss.tabular.trivial import COPIES, Trivial
from anyloss.tabular.usual import USUAL
from anyloss.tabular.verdicts import OURS
from anyloss.thresholds import nearest_threshold

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
OURS_TITLE = "trained for the metric (anyloss)"
BASELINE_ROWS, BASELINE_RARER = 100_000, 2_000  # as many rows as our own recipe uses
SHUFFLED_CELLS, SHUFFLES = 2_500_000, 5
MOST_COLUMNS = 50


class Weighted(NamedTuple):
    """Encoded rows with their labels, with weights under which they represent all rows."""

    X: Array
    y: Array
    weight: Array | None
    groups: Array | None


class Parts(NamedTuple):
    """The encoded training rows and test rows, with their labels, and the rows that certify."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array
    certify_set: tuple[Array, Array] | None = None
    groups: Array | None = None  # of the training rows
    weighted: Weighted | None = None  # the rows to fit to, if they are not the training rows

    @property
    def to_fit(self) -> Weighted:
        """The rows that a model is fitted to."""
        return self.weighted or Weighted(self.X, self.y, None, self.groups)


class HeldOut(NamedTuple):
    """Encoded test rows, the source column of each encoded column, and what decides them."""

    decide: Callable[[Array], Array]
    X: Array
    sources: Array


def baseline_decisions(
    model: str, parts: Parts, task: str, scoring: Scoring, seed: int, promise: Promise = Promise()
) -> list[tuple[str, Array]]:
    """The names and decisions of the same model, trained with cross-entropy, for the test rows.

    A larger table is sampled: 100,000 rows, or as many as hold 2,000 rows of the rarest class.
    Under constraints the only baseline is one that aims at them.
    """
    X, y, X_test, y_test, certify_set, groups, _ = parts
    if len(y) > (most := enough_rows(y, task)):
        rows = sample_rows(y, most, seed, task)
        X, y = X[rows], y[rows]
        groups = None if groups is None else groups[rows]
    if promise.constraints:
        given = Parts(X, y, X_test, y_test, certify_set, groups)
        return list(constrained_decisions(model, given, scoring.metric, promise, seed))
    titles = {**BASELINES[task], OURS: OURS_TITLE}
    every = _decisions(model, X, y, X_test, groups, task, scoring, seed)
    return [(titles[method], theirs) for method, theirs in every]


def enough_rows(y: Array, task: str) -> int:
    """The size of a sample: 100,000 rows, or as many as hold 2,000 rows of the rarest class."""
    sizes = np.unique(strata(as_columns(y), task), return_counts=True)[1]
    return max(BASELINE_ROWS, round(BASELINE_RARER * len(y) / int(sizes.min())))


def compared(
    y: Array, ours: Array, named: Sequence[tuple[str, Array]], trivial: Sequence[Trivial],
    scoring: Scoring, seed: int, promise: Promise = Promise(), groups: Array | None = None,
    weight: float = 1,
) -> tuple[Baseline, ...]:  # fmt: skip
    """The scores of other decisions for the test rows, and of trivial ones, against ours.

    Under constraints, trivial decisions that violate them are left out. Each row stands for
    `weight` rows.
    """

    def reached(labels: Array, decided: Array, copies: int = 1) -> float:
        return scoring.score(labels, decided, np.full(len(labels), weight / copies))

    found, mine = [], reached(y, ours)
    for name, theirs in named:
        score = reached(y, theirs)
        interval = difference_interval(y, ours, theirs, scoring, seed, groups=groups, weight=weight)
        found.append(Baseline(name, score, mine - score, interval))
    for each in trivial:
        copies = COPIES if each.random else 1
        labels, own = (np.concatenate([x] * copies) for x in (y, ours))
        theirs = each.decide(len(labels))
        cells = scoring.counts(labels, theirs)
        if not all(x.holds(x.metric(*cells)) for x in promise.constraints):
            continue
        score = reached(labels, theirs, copies)
        together = None if groups is None else np.concatenate([groups] * copies)
        interval = difference_interval(labels, own, theirs, scoring, seed, copies, together, weight)
        found.append(Baseline(each.name, score, mine - score, interval, trivial=True))
    return tuple(found)


def constrained_decisions(
    model: str, parts: Parts, metric: Metric, promise: Promise, seed: int
) -> Iterator[tuple[str, Array]]:
    """Cross-entropy with the best threshold under constraints, certified as ours is."""
    if model in MODELS:
        name, estimator = (
            "logistic regression",
            make_pipeline(StandardScaler(), LogisticRegression()),
        )
    else:
        from lightgbm import LGBMClassifier

        name = "LightGBM"
        estimator = LGBMClassifier(verbose=-1, n_jobs=1, deterministic=True, force_col_wise=True)
    X, y, X_test, _, certify_set, groups, _ = parts
    folds = splitter(y, INNER, seed, groups)
    p = cross_val_predict(estimator, X, y, groups=groups, cv=folds, method="predict_proba")
    held_out = p[:, 1]
    fitted = estimator.fit(X, y)
    if certify_set is None:
        threshold = nearest_threshold(y, held_out, metric, promise.constraints).threshold
        kind = "constrained threshold"
    else:
        rows, labels = certify_set
        scores = fitted.predict_proba(rows)[:, 1]
        found = certified(y, held_out, None, labels, scores, metric, promise)
        threshold = found.used_threshold
        kind = "uncertified threshold" if found.threshold is None else "certified threshold"
    yield f"{name}, {kind}", (fitted.predict_proba(X_test)[:, 1] > threshold).astype(float)


def _decisions(
    model: str, X: Array, y: Array, X_test: Array, groups: Array | None, task: str,
    scoring: Scoring, seed: int,
) -> Iterator[tuple[str, Array]]:  # fmt: skip
    """The name of each method of cross-entropy, and its decisions on the test rows."""
    usual = USUAL.get(model)
    model = model if usual is None else usual.model
    if task != "binary":
        split = several_split(X, y, X_test, task, model, seed, groups)
        methods = [*methods_for(model, task), *([OURS] if usual and model in MODELS else [])]
        methods = [x for x in methods if usual is None or x != usual.method]
        yield from several_decisions(model, split, methods, *scoring)
        return
    wanted = {"bce": ["bce", "bce_tuned"], "weighted": ["weighted"]}
    if usual is not None:
        wanted = {x: [y for y in names if y != usual.method] for x, names in wanted.items()}
        wanted[OURS] = [OURS]
    split_of_two = new_split(X, y, X_test, MODELS.get(model, ()), seed, groups)
    for each in predictions(model, wanted, split_of_two, scoring.metric.name):
        yield each.method, each.decision.astype(float)


def predictions(
    model: str, wanted: Mapping[str, Sequence[str]], split: Split, metric: str
) -> Iterator[Predictions]:
    """The predictions of these methods (by family) for the test rows; no other is trained."""
    for family, methods in wanted.items():
        left = set(methods)
        if not left:
            continue
        for each in BOOSTED.get(model, FAMILIES)[family](split, [metric]):
            if each.method in left:
                left.discard(each.method)
                yield each
            if not left:
                break


def importances(
    tests: Sequence[HeldOut], y: Array, columns: list[str], scoring: Scoring, seed: int
) -> tuple[Importance, ...]:
    """How much the score drops when a column is shuffled, the most influential column first.

    The labels `y` are those of all test rows, one set after the other. Large tables are sampled,
    with weights that represent all rows.
    """
    width = max(x.X.shape[1] for x in tests)
    most, weight = max(500, SHUFFLED_CELLS // width // SHUFFLES), np.ones(len(y))
    sets = [x.X for x in tests]
    if len(y) > most:
        rows, weight = thinned(as_columns(y), None, scoring.layout.task, most, seed)
        ends = np.cumsum([0, *map(len, sets)])
        sets = [
            x[rows[(rows >= a) & (rows < b)] - a]
            for x, (a, b) in zip(sets, pairwise(ends), strict=True)
        ]
        y = y[rows]

    def reached() -> float:
        decided = [x.decide(rows) for x, rows in zip(tests, sets, strict=True) if len(rows)]
        return scoring.score(y, np.concatenate(decided), weight)

    rng, whole, found = np.random.default_rng(seed), reached(), []
    sets = [x.copy() for x in sets]
    for column in columns:
        places = [np.flatnonzero(x.sources == column) for x in tests]
        kept = [x[:, at].copy() for x, at in zip(sets, places, strict=True)]
        drops = []
        for _ in range(SHUFFLES):
            for x, at, cells in zip(sets, places, kept, strict=True):
                x[:, at] = cells[rng.permutation(len(x))]
            drops.append(whole - reached())
        for x, at, cells in zip(sets, places, kept, strict=True):
            x[:, at] = cells
        found.append(Importance(column, float(np.mean(drops)), float(np.std(drops, ddof=1))))
    return tuple(sorted(found, key=lambda x: -x.drop))
