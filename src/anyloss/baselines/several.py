"""The baselines and our method for several classes or several labels.

Cross-entropy is decided by the arg-max (several labels: at 0.5), by a decision rule that is tuned
on out-of-fold scores, or trained with balanced class weights. The linear model is scikit-learn's
logistic regression, one per label if there are several; trees are LightGBM's own classifier;
networks have the size of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.shapes import Layout
from anyloss.baselines.methods import C
from anyloss.baselines.splits import INNER, MODELS
from anyloss.decisions.rules import Decision
from anyloss.decisions.search import best_decision
from anyloss.metrics import Metric
from anyloss.recipe import numpy_models
from anyloss.recipe.folds import inner_folds
from anyloss.recipe.networks import Layers, forward, new_layers
from anyloss.recipe.target import probabilities


class SeveralSplit(NamedTuple):
    """Standardised training and test rows, labels `(n, classes)` of 0 and 1, and inner folds."""

    X: Array
    y: Array
    test: Array
    task: str
    model: str  # "linear", "mlp" or "lightgbm"
    held: Array  # (folds, n): which rows each inner fold holds out
    seed: int
    groups: Array | None = None


def several_split(
    X: Array, y: Array, test: Array, task: str, model: str, seed: int,
    groups: Array | None = None,
) -> SeveralSplit:  # fmt: skip
    """The split that every method receives; the scaler is fitted on the training rows only."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(X)
    rows, rng = scaler.transform(X), np.random.default_rng(seed)
    held = inner_folds(rows, y, task, INNER, 1, rng, groups)
    return SeveralSplit(rows, y, scaler.transform(test), task, model, held, seed, groups)


def methods_for(model: str, task: str) -> tuple[str, ...]:
    """The baselines of a model: networks of several labels have no class weights."""
    weighted = () if model == "mlp" and task == "multilabel" else ("weighted",)
    return ("bce", "bce_tuned", *weighted)


def several_decisions(
    split: SeveralSplit, methods: Sequence[str], metric: Metric, lay: Layout
) -> Iterator[tuple[str, Array]]:
    """The name and the decisions `(test rows, classes)` of 0 and 1 of each method."""
    if "bce" in methods or "bce_tuned" in methods:
        test, held_out, _ = cross_entropy(split, False, with_folds="bce_tuned" in methods)
        if "bce" in methods:
            yield "bce", decided(test, split.task)
        if "bce_tuned" in methods:
            rule = tuned_rule(split, held_out, metric, lay)
            yield "bce_tuned", rule_decisions(rule, test, split.task)
    if "weighted" in methods:
        test, _, _ = cross_entropy(split, True, with_folds=False)
        yield "weighted", decided(test, split.task)
    if "anyloss" in methods:
        found = numpy_models.fit(
            split.X, split.y, metric, task=split.task, average=lay.average,
            groups=split.groups, hidden=MODELS[split.model], C=C, seed=split.seed,
        )  # fmt: skip
        values = found.decide(split.test)
        p = values if split.task == "multiclass" else (1 + values) / 2
        yield "anyloss", decided(p, split.task)


def decided(p: Array, task: str) -> Array:
    """The decisions of probabilities: the class with the highest, or the labels above 0.5.

    >>> decided(np.array([[0.2, 0.5, 0.3]]), "multiclass").tolist()
    [[0.0, 1.0, 0.0]]
    """
    if task == "multiclass":
        return (np.arange(p.shape[1]) == p.argmax(axis=1)[:, None]).astype(float)
    return (p > 0.5).astype(float)


def tuned_rule(split: SeveralSplit, held_out: Array, metric: Metric, lay: Layout) -> Decision:
    """The rule that is best for the held-out rows."""
    rows = split.held.any(axis=0)  # the only row of a class is never held out
    weight = np.ones(int(rows.sum()))
    return best_decision(split.y[rows], held_out[rows], metric, lay, weight=weight).decision


def rule_decisions(rule: Decision, p: Array, task: str) -> Array:
    """The decisions `(rows, classes)` of 0 and 1 by a rule."""
    found = rule.decide(p)
    if task == "multiclass":
        found = np.arange(p.shape[1]) == found[:, None]
    return found.astype(float)


def cross_entropy(
    split: SeveralSplit, balanced: bool, with_folds: bool
) -> tuple[Array, Array, list[Any]]:
    """The probabilities of the test rows and, with the inner folds, of the held-out rows.

    The third is what predicts the test rows: estimators, one for each of several labels, or the
    layers of a network.
    """
    if split.model == "mlp":
        return _networks(split, balanced)
    held_out, classes = np.zeros(split.y.shape), split.y.shape[1]
    for held in split.held if with_folds else ():
        models = _fitted(split, ~held, balanced)
        held_out[held] = _predicted(models, split.X[held], split.task, classes)
    models = _fitted(split, np.ones(len(split.y), dtype=bool), balanced)
    return _predicted(models, split.test, split.task, classes), held_out, models


def _fitted(split: SeveralSplit, rows: Array, balanced: bool) -> list[Any]:
    """Linear models or trees, trained by cross-entropy on some of the training rows.

    There is one, or one for each of several labels; a label without both values is a number.
    """
    X, y = split.X[rows], split.y[rows]
    if split.task == "multiclass":
        return [_estimator(split, balanced).fit(X, y.argmax(axis=1))]
    return [
        _estimator(split, balanced).fit(X, labels.astype(int)) if np.ptp(labels) else labels[0]
        for labels in y.T
    ]


def _predicted(models: list[Any], at: Array, task: str, classes: int) -> Array:
    """The probabilities `(rows, classes)` of fitted models."""
    if task == "multiclass":
        found = np.zeros((len(at), classes))
        found[:, models[0].classes_] = models[0].predict_proba(at)
        return found
    return np.column_stack(
        [x.predict_proba(at)[:, 1] if hasattr(x, "fit") else np.full(len(at), x) for x in models]
    )


def _estimator(split: SeveralSplit, balanced: bool) -> Any:
    weight = "balanced" if balanced else None
    if split.model == "lightgbm":
        from lightgbm import LGBMClassifier

        from anyloss.baselines.boosted import SETUPS

        plan = SETUPS["lightgbm"].plan(split.seed)
        return LGBMClassifier(**plan.parameters, class_weight=weight, verbose=-1)
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=C, max_iter=1000, class_weight=weight)


def _networks(split: SeveralSplit, balanced: bool) -> tuple[Array, Array, list[Any]]:
    """Networks that are trained as at the start of our recipe.

    The networks of the inner folds stop early. The network on all training rows takes their mean
    number of steps.
    """
    X, y, rng = split.X, split.y, np.random.default_rng(split.seed)
    weight = np.ones(len(y))
    if balanced:
        weight = y @ (len(y) / np.maximum(y.sum(axis=0), 1) / y.shape[1])
    sizes = [X.shape[1], *MODELS[split.model], y.shape[1]]

    def trained(held: Array, steps: int) -> tuple[Layers, Array]:
        layers = new_layers(sizes, len(held), rng)
        initial = numpy_models.Started(layers, X, y, weight, split.task, held, C)
        return numpy_models.train_cross_entropy(initial, steps=steps)

    layers, stopped = trained(split.held, numpy_models.START_STEPS)
    held_out = (forward(layers, X)[-1] * split.held[..., None]).sum(axis=0)
    layers, _ = trained(np.zeros((1, len(y)), dtype=bool), round(stopped.mean()))
    test = forward(layers, split.test)[-1][0]
    return probabilities(test, split.task), probabilities(held_out, split.task), layers
