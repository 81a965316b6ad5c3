"""How a model is judged: on one set of test rows, or by cross-fitting if these would be too few.

With cross-fitting, each row is predicted by a model that was fitted without the row's fold, and the
decisions for all rows are scored together. The model that is kept is fitted on all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from anyloss._core.backend import Array
from anyloss.recipe.constrained import Promise
from anyloss.recipe.folds import thinned
from anyloss.tabular import evaluating
from anyloss.tabular.classifiers import AUTO, OnStage, fit_automatic, fit_candidates
from anyloss.tabular.encoder import TableEncoder
from anyloss.tabular.encodings import Means
from anyloss.tabular.evaluating import BASELINE_ROWS, HeldOut, Parts, Weighted
from anyloss.tabular.intervals import score_interval
from anyloss.tabular.leaks import twin_warning, twins
from anyloss.tabular.model import calibrated_values, decision_values
from anyloss.tabular.preparing import (
    PreparedTable,
    fitted_encoder,
    identifiers,
    without_identifiers,
)
from anyloss.tabular.scoring import Scoring, as_columns
from anyloss.tabular.splitting import Plan, copied_rows, copies_warning
from anyloss.tabular.trivial import trivial_decisions
from anyloss.tabular.usual import USUAL


class Work(NamedTuple):
    """What is the same for all fits: the table, the models and their goal."""

    table: PreparedTable
    certifying: Array  # which rows certify, and take no other part
    names: Sequence[str]  # the models, of which the best is kept; none for an ensemble of all
    scoring: Scoring
    promise: Promise
    seed: int
    max_categories: int | None
    verbose: bool
    stage: OnStage
    seconds: float | None = None  # the limit of time of one fit of the ensemble
    costs: bool = False  # whether test rows need calibrated probabilities


class Fitted(NamedTuple):
    """An encoder and a classifier on some rows: an ensemble, or the best of the candidates."""

    encoder: TableEncoder
    name: str
    classifier: Any
    candidates: dict[str, float]  # the scores of all models on held-out rows
    parts: Parts
    train: Any  # the training rows that are held in memory, without columns that are not used
    y: Array  # the labels of all training rows
    like: str  # the model whose baselines it is compared with


class Judged(NamedTuple):
    """The decisions of a model for the test rows of one split, and of baselines for some."""

    rows: Array  # their places in the table
    values: Array
    kept: Array  # the numbers of the test rows that all else is about; all of a table in memory
    others: list[tuple[str, Array]]
    near: Array
    tested: HeldOut
    probabilities: Array | None = None


def fit_rows(work: Work, train: Array, test: Array, fold: str = "") -> Fitted:
    """Encode the training rows, fit the candidates, and keep the best; `fold` names a fold."""
    table, certifying = work.table, np.flatnonzero(work.certifying)
    rows, tested = (table.sampled(np.flatnonzero(x), work.seed) for x in (train, test))
    frame = table.take(rows)
    found = identifiers(frame) if fold else []  # in the fewer rows of a fold, texts repeat less
    frame = frame.drop(columns=found) if fold else without_identifiers(table, frame)
    y = table.y[rows]
    groups = None if table.groups is None else table.groups[rows]
    encoder, X = fitted_encoder(frame, y, groups, work.max_categories)
    empty = np.empty((0, X.shape[1]))
    X_test = encoder.transform(table.take(tested)) if len(tested) else empty
    parts = Parts(X, y, X_test, table.y[tested], groups=groups)
    if len(rows) < train.sum() and not _needs_alike(work):
        parts = parts._replace(weighted=_weighted(work, np.flatnonzero(train), rows, X, encoder))
    if len(certifying):
        given = encoder.transform(table.take(certifying))
        parts = parts._replace(certify_set=(given, table.y[certifying]))
    kept = frame.drop(columns=encoder.dropped_)  # which copies no values
    verbose = work.verbose and not fold

    def on_fit(name: str) -> None:
        work.stage(f"{fold}Fitting the model '{name}'")

    labels = table.y[train]
    if not work.names:
        model = fit_automatic(
            parts, table.outcome, work.scoring, work.seed, work.seconds, verbose, on_fit
        )
        return Fitted(
            encoder, AUTO, model, model.scores_, parts, kept, labels, model.leading_family
        )
    fits = fit_candidates(
        work.names, parts, table.outcome, work.scoring, work.promise, work.seed, verbose, on_fit
    )
    scores = {name: float(x.held_out_score_) for name, x in fits.items()}
    best = max(scores, key=lambda x: scores[x])
    return Fitted(encoder, best, fits[best], scores, parts, kept, labels, best)


def _needs_alike(work: Work) -> bool:
    """Whether rows must count alike: for a certificate, and for the usual methods."""
    return work.promise.confidence_level is not None or any(x in USUAL for x in work.names)


def _weighted(work: Work, train: Array, known: Array, X: Array, encoder: TableEncoder) -> Weighted:
    """A sample of the training rows, the rarer classes first, with weights.

    It is the sample that `AnyLossClassifier` draws from all of them. The `known` rows are encoded
    as `X`; the others had no part in the encoder.
    """
    table, task = work.table, work.table.outcome.task
    seed = check_random_state(work.seed).randint(2**31)
    drawn, weight = thinned(as_columns(table.y[train]), None, task, BASELINE_ROWS, seed)
    rows = train[drawn]
    fresh = ~np.isin(rows, known)
    encoded = np.empty((len(rows), X.shape[1]))
    encoded[~fresh] = X[np.searchsorted(known, rows[~fresh])]
    encoded[fresh] = encoder.transform(table.take(rows[fresh]))
    return Weighted(
        encoded, table.y[rows], weight, None if table.groups is None else table.groups[rows]
    )


def judge(work: Work, fitted: Fitted, model: str, test: Array, fold: str = "") -> Judged:
    """The decisions for the test rows, and those of the baselines of `model`."""
    outcome, parts = work.table.outcome, fitted.parts

    def decide(X: Array) -> Array:
        return outcome.decide(decision_values(fitted.classifier, X, outcome.task))

    rows = np.flatnonzero(test)
    kept: Array = np.searchsorted(rows, work.table.sampled(rows, work.seed))
    values = decision_values(fitted.classifier, parts.X_test, outcome.task)
    if len(kept) < len(rows):
        encoded = (fitted.encoder.transform(x) for x in work.table.parts(rows))
        found = (decision_values(fitted.classifier, X, outcome.task) for X in encoded)
        values = np.concatenate(list(found))
    work.stage(f"{fold}Training the baselines")
    others = evaluating.baseline_decisions(
        model, parts, outcome.task, work.scoring, work.seed, work.promise
    )
    means = any(isinstance(x, Means) for x in fitted.encoder.columns_.values())
    plain = fitted.encoder.transform(fitted.train) if means else parts.X  # as test rows are encoded
    near = twins(plain, parts.X_test, work.seed)
    tested = HeldOut(decide, parts.X_test, fitted.encoder.sources())
    p = calibrated_values(fitted.classifier, parts.X_test) if work.costs else None
    return Judged(rows, values, kept, others, near, tested, p)


def judge_all(work: Work, plan: Plan, fitted: Fitted) -> list[Judged]:
    """Judge the fitted model on its test rows, or cross-fit models like it."""
    if not plan.crossed:
        work.stage("Evaluating the model on the test rows")
        return [judge(work, fitted, fitted.like, plan.splits[0][1])]
    found, fits = [], len(fitted.candidates) * len(plan.splits)
    work.stage(f"The score rests on {plan.words}: {fits} more models are fitted, besides baselines")
    for k, (train, test) in enumerate(plan.splits):
        fold = f"Fold {k + 1} of {len(plan.splits)}: "
        found.append(judge(work, fit_rows(work, train, test, fold), fitted.like, test, fold))
    return found


def measured(
    work: Work, found: list[Judged], top: list[str], y_train: Array
) -> tuple[dict[str, Any], list[str]]:
    """The fields of a result that describe the decisions, and warnings about near-copies."""
    table, scoring, seed = work.table, work.scoring, work.seed
    y = np.concatenate([table.y[x.rows] for x in found])
    values = np.concatenate([x.values for x in found])
    ours = table.outcome.decide(values)
    named = [
        (name, np.concatenate([x.others[k][1] for x in found]))
        for k, (name, _) in enumerate(found[0].others)
    ]
    trivial = trivial_decisions(y_train, table.outcome, scoring, seed)
    rows, kept = np.concatenate([x.rows for x in found]), kept_rows(found)
    groups = dependent_rows(table, rows)
    some = y[kept], ours[kept]
    compared = evaluating.compared(
        *some, named, trivial, scoring, seed, work.promise,
        None if groups is None else groups[kept], len(y) / len(kept),
    )  # fmt: skip
    work.stage("Measuring the importance of the columns")
    tested, near = [x.tested for x in found], np.concatenate([x.near for x in found])
    return {
        "score": scoring.score(y, ours),
        "interval": score_interval(y, ours, scoring, seed, groups),
        "counts": scoring.counts(y, ours),
        "y_test": y,
        "p_test": values,
        "baselines": compared,
        "importances": evaluating.importances(tested, some[0], top, scoring, seed),
    }, [
        *twin_warning(near, *some, scoring, table.groups is not None),
        *(copies_warning(groups) if table.groups is None else []),
        *_latest_warning(work, found, scoring.score(y, ours)),
    ]


def dependent_rows(table: PreparedTable, rows: Array) -> Array | None:
    """The groups of rows, or the copies among them, which intervals draw together."""
    if table.groups is not None:
        return table.groups[rows]
    return copied_rows(table.keys[rows], table.y[rows])


def kept_rows(found: list[Judged]) -> Array:
    """The numbers, among the test rows of all splits, of those that are held in memory."""
    starts = np.cumsum([0, *(len(x.rows) for x in found)])
    return np.concatenate([x.kept + start for x, start in zip(found, starts, strict=False)])


def _latest_warning(work: Work, found: list[Judged], whole: float) -> list[str]:
    """A warning if the latest of several periods has clearly another score than all of them."""
    if work.table.times is None or len(found) < 2:
        return []
    y, decided = work.table.y[found[-1].rows], work.table.outcome.decide(found[-1].values)
    low, high = score_interval(y, decided, work.scoring, work.seed)
    if low <= whole <= high:
        return []
    score = work.scoring.score(y, decided)
    return [
        f"the latest of the {len(found)} periods has a score of {score:.3f} (95 % interval: "
        f"{low:.3f} to {high:.3f}), and all of them {whole:.3f}: the past may no longer hold"
    ]
