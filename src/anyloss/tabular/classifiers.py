"""The classifiers of a table by their names: trained for the metric, or in a usual way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss.baselines.splits import MODELS
from anyloss.recipe.constrained import Promise
from anyloss.sklearn import AnyLossClassifier
from anyloss.tabular.automatic import AutoClassifier
from anyloss.tabular.evaluating import Parts
from anyloss.tabular.labels import Outcome
from anyloss.tabular.portfolio import ENTRIES, FAMILIES, Goal, new_member
from anyloss.tabular.scoring import Scoring
from anyloss.tabular.usual import USUAL, UsualClassifier
from anyloss.thresholds import Infeasible

AUTO = "auto"
CANDIDATES = tuple(entry.name for entry in FAMILIES)
OnStage = Callable[[str], None]


def candidates(model: str, grouped: bool, constrained: bool = False) -> Sequence[str]:
    """The models to fit: the one that is named, or all that are installed."""
    if model not in ("auto", *CANDIDATES, *USUAL):
        known = ", ".join(("auto", *CANDIDATES, *USUAL))
        raise ValueError(f"model must be one of {known}; got {model!r}")
    if constrained and model in USUAL:
        raise ValueError(
            f"the model {model!r} knows no constraints: choose one of {', '.join(CANDIDATES)}, "
            "which are trained for the metric under constraints (--model)"
        )
    if grouped and model == "lightgbm":
        raise ValueError(
            f"the inner folds of the model {model!r} cannot keep groups together: choose one of "
            f"{', '.join((*MODELS, *USUAL))} (--model)"
        )
    if model != "auto":
        return (model,)
    every = tuple(MODELS) if grouped else CANDIDATES
    return [x for x in every if x in MODELS or find_spec(x) is not None]


def fit_candidates(
    names: Sequence[str], parts: Parts, outcome: Outcome, scoring: Scoring, promise: Promise,
    seed: int, verbose: bool, on_fit: OnStage,
) -> dict[str, Any]:  # fmt: skip
    """The fitted candidates by name, without those that satisfy no constraint on held-out rows."""
    found, failed = {}, None
    X, y, weight, groups = parts.to_fit
    given = {"certify_set": parts.certify_set, "groups": groups, "sample_weight": weight}
    more = {name: value for name, value in given.items() if value is not None}
    for name in names:
        on_fit(name)
        classifier = new_classifier(name, outcome, scoring, seed, verbose, promise)
        try:
            found[name] = classifier.fit(X, classifier_labels(y, outcome), **more)
        except Infeasible as error:
            failed = error
    if not found and failed is not None:
        raise failed
    return found


def new_classifier(
    model: str, outcome: Outcome, scoring: Scoring, seed: int = 0, verbose: bool = False,
    promise: Promise = Promise(),
) -> Any:  # fmt: skip
    """A new classifier by its name, for the labels of `classifier_labels`."""
    metric, average = scoring.metric.name, str(scoring.layout.average)
    if model in USUAL:
        return UsualClassifier(model, metric, average, outcome.task, len(outcome.classes), seed)
    given = {"constraints": promise.texts, "confidence_level": promise.confidence_level}
    goal = Goal(metric, average, outcome.task, given)
    return new_member(ENTRIES[model], goal, seed, verbose=verbose)


def fit_automatic(
    parts: Parts, outcome: Outcome, scoring: Scoring, seed: int, time_limit: float | None,
    verbose: bool, on_fit: OnStage,
) -> AutoClassifier:  # fmt: skip
    """The ensemble over all families."""
    metric, average = scoring.metric.name, str(scoring.layout.average)
    model = AutoClassifier(
        metric, average, outcome.task, seed, time_limit=time_limit, verbose=verbose, on_fit=on_fit
    )
    X, y, weight, groups = parts.to_fit
    return model.fit(X, classifier_labels(y, outcome), groups, weight)


def classifier_labels(y: Array, outcome: Outcome) -> Array:
    """The labels as classifiers take them: 0 and 1, or the numbers of the classes."""
    return y.argmax(axis=1) if outcome.task == "multiclass" else y


def training_curve(classifier: Any) -> Array:
    """The step, the soft score and the hard score of each check; none for other models."""
    if not isinstance(classifier, AnyLossClassifier):
        return np.empty((0, 3))
    checks, soft = classifier.hard_history_, classifier.history_
    at = np.minimum(checks[:, 0].astype(int), len(soft) - 1)
    return np.column_stack([checks[:, 0], soft[at], checks[:, 1]])
