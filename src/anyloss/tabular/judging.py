"""How a model is judged: on one set of test rows, or by cross-fitting if these would be too few.

With cross-fitting, each row is predicted by a model that was fitted without the row's fold, and the
decisions for all rows are scored together. The model that is kept is fitted on all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss.recipe.constrained import Promise
from anyloss.tabular import evaluating
from anyloss.tabular.classifiers import OnStage, fit_candidates
from anyloss.tabular.encoder import TableEncoder
from anyloss.tabular.encodings import Means
from anyloss.tabular.evaluating import HeldOut, Parts
from anyloss.tabular.intervals import score_interval
from anyloss.tabular.leaks import twin_warning, twins
from anyloss.tabular.model import decision_values
from anyloss.tabular.preparing import (
    PreparedTable,
    fitted_encoder,
    identifiers,
    without_identifiers,
)
from anyloss.tabular.scoring import Scoring
from anyloss.tabular.splitting import Plan
from anyloss.tabular.trivial import trivial_decisions


class Work(NamedTuple):
    """What is the same for all fits: the table, the models and their goal."""

    table: PreparedTable
    certifying: Array  # which rows certify, and take no other part
    names: Sequence[str]  # the models
    scoring: Scoring
    promise: Promise
    seed: int
    max_categories: int | None
    verbose: bool
    stage: OnStage


class Fitted(NamedTuple):
    """An encoder and the best classifier on some rows, with the other candidates' scores."""

    encoder: TableEncoder
    name: str
    classifier: Any
    candidates: dict[str, float]
    parts: Parts
    train: Any  # the training rows, without columns that are not used


class Judged(NamedTuple):
    """The decisions of a model and of the baselines for the test rows of one split."""

    rows: Array  # their places in the table
    values: Array
    others: list[tuple[str, Array]]
    near: Array
    tested: HeldOut


def fit_rows(work: Work, train: Array, test: Array, fold: str = "") -> Fitted:
    """Encode the training rows, fit the candidates, and keep the best; `fold` names a fold."""
    table, certifying = work.table, work.certifying
    frame = table.frame[train]
    found = identifiers(frame) if fold else []  # in the fewer rows of a fold, texts repeat less
    frame = frame.drop(columns=found) if fold else without_identifiers(table, frame)
    y = table.y[train]
    groups = None if table.groups is None else table.groups[train]
    encoder, X = fitted_encoder(frame, y, groups, work.max_categories)
    empty = np.empty((0, X.shape[1]))
    X_test = encoder.transform(table.frame[test]) if test.any() else empty
    parts = Parts(X, y, X_test, table.y[test], groups=groups)
    if certifying.any():
        rows = encoder.transform(table.frame[certifying])
        parts = parts._replace(certify_set=(rows, table.y[certifying]))
    fits = fit_candidates(
        work.names, parts, table.outcome, work.scoring, work.promise, work.seed,
        work.verbose and not fold, lambda name: work.stage(f"{fold}Fitting the model '{name}'"),
    )  # fmt: skip
    scores = {name: float(x.held_out_score_) for name, x in fits.items()}
    best = max(scores, key=lambda x: scores[x])
    return Fitted(encoder, best, fits[best], scores, parts, frame[list(encoder.columns_)])


def judge(work: Work, fitted: Fitted, model: str, test: Array, fold: str = "") -> Judged:
    """The decisions for the test rows, and those of the baselines of `model`."""
    outcome, parts = work.table.outcome, fitted.parts

    def decide(X: Array) -> Array:
        return outcome.decide(decision_values(fitted.classifier, X, outcome.task))

    values = decision_values(fitted.classifier, parts.X_test, outcome.task)
    work.stage(f"{fold}Training the baselines")
    others = evaluating.baseline_decisions(
        model, parts, outcome.task, work.scoring, work.seed, work.promise
    )
    means = any(isinstance(x, Means) for x in fitted.encoder.columns_.values())
    plain = fitted.encoder.transform(fitted.train) if means else parts.X  # as test rows are encoded
    near = twins(plain, parts.X_test, work.seed)
    tested = HeldOut(decide, parts.X_test, fitted.encoder.sources())
    return Judged(np.flatnonzero(test), values, others, near, tested)


def judge_all(work: Work, plan: Plan, fitted: Fitted) -> list[Judged]:
    """Judge the fitted model on its test rows, or cross-fit models like it."""
    if not plan.crossed:
        work.stage("Evaluating the model on the test rows")
        return [judge(work, fitted, fitted.name, plan.splits[0][1])]
    found, fits = [], len(work.names) * len(plan.splits)
    work.stage(f"The score rests on {plan.words}: {fits} more models are fitted, besides baselines")
    for k, (train, test) in enumerate(plan.splits):
        fold = f"Fold {k + 1} of {len(plan.splits)}: "
        found.append(judge(work, fit_rows(work, train, test, fold), fitted.name, test, fold))
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
    rows = np.concatenate([x.rows for x in found])
    groups = None if table.groups is None else table.groups[rows]
    compared = evaluating.compared(y, ours, named, trivial, scoring, seed, work.promise, groups)
    work.stage("Measuring the importance of the columns")
    near = np.concatenate([x.near for x in found])
    return {
        "score": scoring.score(y, ours),
        "interval": score_interval(y, ours, scoring, seed, groups),
        "counts": scoring.counts(y, ours),
        "y_test": y,
        "p_test": values,
        "baselines": compared,
        "importances": evaluating.importances([x.tested for x in found], y, top, scoring, seed),
    }, [
        *twin_warning(near, y, ours, scoring, table.groups is not None),
        *_latest_warning(work, found, scoring.score(y, ours)),
    ]


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
