"""The baselines and our methods for several classes and for several labels.

All methods of a model share its scores of the test rows and of the held-out rows of five inner
folds: the arg-max (labels: 0.5), offsets of the log-probabilities (labels: a threshold each) by a
coordinate search, logit adjustment, the rules of two other packages where they are installed, and
our decision rule. `anyloss` is our recipe, `unrefined` its ensemble before it is refined.

References:
    A. K. Menon et al., "Long-Tail Learning via Logit Adjustment", ICLR 2021.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.choices import resolve_average
from anyloss._core.shapes import Layout
from anyloss.baselines.boosted import ROUNDS, SETUPS, Setup
from anyloss.baselines.methods import (
    C,
    Family,
    Folds,
    Predict,
    Predictions,
    Split,
    Train,
    Trained,
    fit_all_and_folds,
    held_out_mask,
    networks,
)
from anyloss.boosting import trees
from anyloss.boosting.core import step_of
from anyloss.boosting.libraries import Goal, TreeData
from anyloss.boosting.per_label import PerLabel
from anyloss.decisions.search import best_decision, best_offsets
from anyloss.metrics import Metric
from anyloss.metrics import metric as find_metric
from anyloss.recipe import numpy_models
from anyloss.recipe.target import probabilities

HIDDEN: dict[str, tuple[int, ...]] = {"linear": (), "mlp": (8,), "mlp32": (32,)}
MODELS = (*HIDDEN, "lightgbm")
AVERAGES = ("macro", "micro", "weighted")
TINY = 1e-12


class Aim(NamedTuple):
    """A metric of several classes or labels, and its average."""

    metric: Metric
    average: str


def read_aim(name: str) -> Aim:
    """The metric and the average of a name such as `macro_f1`; without an average it is "auto".

    >>> read_aim("micro_f1").average, read_aim("mcc").average
    ('micro', 'auto')
    """
    average, _, rest = name.partition("_")
    if average in AVERAGES:
        return Aim(find_metric(rest), average)
    return Aim(find_metric(name), "auto")


class Columns(NamedTuple):
    """The training labels of a split in columns of 0 and 1, and their task."""

    y: Array
    task: str

    def layout(self, aim: Aim) -> Layout:
        classes, own_form = self.y.shape[1], aim.metric.has_own_form
        average = resolve_average(aim.average, self.task, classes, own_form)
        return Layout(self.task, average, classes)

    def decide(self, values: Array) -> Array:
        """Class numbers from scores, or 0 and 1 from scores above 0."""
        return values.argmax(axis=1) if self.task == "multiclass" else (values > 0).astype(int)


def columns_of(y: Array) -> Columns:
    """Class numbers as one-hot columns; a matrix of labels as it is."""
    if y.ndim == 2:
        return Columns(y.astype(float), "multilabel")
    return Columns((y[:, None] == np.arange(y.max() + 1)).astype(float), "multiclass")


def _each_label(train: Callable[[Array, Array], Predict], X: Array, y: Array) -> Predict:
    """A model per label; a label that is the same in all rows has its own value."""
    models = [
        train(X, column) if column.min() < column.max() else partial(_constant, float(column[0]))
        for column in y.T
    ]
    return lambda rows: np.column_stack([model(rows) for model in models])


def _constant(value: float, rows: Array) -> Array:
    return np.full(len(rows), value)


def _logistic(balanced: bool, X: Array, y: Array, split: Split) -> Predict:
    """scikit-learn's logistic regression: multinomial, or one per label."""
    from sklearn.linear_model import LogisticRegression

    def train(X: Array, y: Array) -> Any:
        weight = "balanced" if balanced else None
        return LogisticRegression(C=C, max_iter=1000, class_weight=weight).fit(X, y)

    if y.ndim == 2:
        return _each_label(lambda X, y: _second(train(X, y)), X, y)
    return train(X, y).predict_proba  # type: ignore[no-any-return]


def _second(model: Any) -> Predict:
    return lambda rows: model.predict_proba(rows)[:, 1]


def _boosted(setup: Setup, balanced: bool, X: Array, y: Array, split: Split) -> Predict:
    """Log-loss trees: of all classes together, or for each label."""
    library, plan = setup.library, setup.plan(split.seed)

    def train(X: Array, y: Array) -> Predict:
        weight = class_weights(y) if balanced else None
        model = library.train(TreeData(X, y.astype(float), weight), plan, None, None)
        task = "binary" if y.max() == 1 else "multiclass"
        return lambda rows: probabilities(library.margin(model, rows), task)

    return _each_label(train, X, y) if y.ndim == 2 else train(X, y)


def class_weights(y: Array) -> Array:
    """Weights that give all classes the same total weight, with mean 1.

    >>> class_weights(np.array([0, 0, 0, 1])).round(3).tolist()
    [0.667, 0.667, 0.667, 2.0]
    """
    sizes = np.bincount(y.astype(int))
    return (len(y) / (len(sizes) * np.maximum(sizes, 1)))[y.astype(int)]


def _trained(model: str, balanced: bool, split: Split, folds: Folds) -> Trained:
    """The scores of a model for test rows and held-out rows."""
    if HIDDEN.get(model):
        given = columns_of(split.y)
        weight = class_weights(split.y) if balanced else np.ones(len(split.y))
        return networks(given.y, weight, given.task, split, folds)
    train: Train = partial(_logistic, balanced)
    if model in SETUPS:
        train = partial(_boosted, SETUPS[model], balanced)
    return fit_all_and_folds(train, split, folds)


Rule = Callable[[Columns, Array, Array, str], "Array | None"]  # decisions, from held-out and test


def _plain(given: Columns, held_out: Array, test: Array, metric: str) -> Array:
    return given.decide(test if given.task == "multiclass" else test - 0.5)


def _tuned(given: Columns, held_out: Array, test: Array, metric: str) -> Array:
    """An offset of the log-probability of each class, or a threshold of each label.

    They are improved in turn on the held-out rows, each by an exact sweep, until none improves.
    """
    aim, weight = read_aim(metric), np.ones(len(held_out))
    if given.task == "multiclass":
        held_out, test = (np.log(np.maximum(p, TINY)) for p in (held_out, test))
    lay = given.layout(aim)
    offsets, _ = best_offsets(given.y, held_out, aim.metric, lay, weight=weight)
    return given.decide(test - offsets)


def _decision(given: Columns, held_out: Array, test: Array, metric: str) -> Array:
    """The decision rule of `TunedDecisionClassifierCV`."""
    aim, weight = read_aim(metric), np.ones(len(held_out))
    found = best_decision(given.y, held_out, aim.metric, given.layout(aim), weight=weight)
    return found.decision.decide(test)


def _logit_adjusted(given: Columns, held_out: Array, test: Array, metric: str) -> Array | None:
    """Post-hoc logit adjustment: the arg-max of `p_k / prior_k`."""
    return given.decide(test / given.y.mean(axis=0)) if given.task == "multiclass" else None


def _xcolumns(given: Columns, held_out: Array, test: Array, metric: str) -> Array | None:
    """Frank and Wolfe's algorithm of the package xcolumns, which has no MCC."""
    names = {
        "macro_f1": "macro_f1_score", "micro_f1": "micro_f1_score",
        "balanced_accuracy": "macro_recall",
    }  # fmt: skip
    if find_spec("xcolumns") is None or metric not in names:
        return None
    from xcolumns import frank_wolfe

    of_counts = getattr(frank_wolfe, f"{names[metric]}_on_conf_matrix")
    k = 1 if given.task == "multiclass" else 0
    found = frank_wolfe.find_classifier_using_fw(given.y, held_out, of_counts, k, seed=0)
    decided = np.asarray(found.predict(test, seed=0))
    return decided.argmax(axis=1) if k else (decided > 0).astype(int)


def _cutoffs(given: Columns, held_out: Array, test: Array, metric: str) -> Array | None:
    """The thresholds of the package optimal-classification-cutoffs, for F1 and several classes.

    The class with the largest lead over its threshold is predicted.
    """
    if find_spec("optimal_cutoffs") is None or (given.task, metric) != ("multiclass", "macro_f1"):
        return None
    from optimal_cutoffs import get_optimal_multiclass_thresholds

    label = given.y.argmax(axis=1)
    found = get_optimal_multiclass_thresholds(
        label, held_out, metric="f1", average="macro", method="coord_ascent"
    )
    return given.decide(test - np.asarray(found.thresholds))


RULES: dict[str, Rule] = {
    "bce": _plain,
    "bce_tuned": _tuned,
    "tuned_decision": _decision,
    "logit_adjusted": _logit_adjusted,
    "xcolumns": _xcolumns,
    "cutoffs": _cutoffs,
}
WEIGHTED_RULES: dict[str, Rule] = {"weighted": _plain, "weighted_tuned": _tuned}


def _with_rules(
    model: str, rules: dict[str, Rule], split: Split, metrics: Sequence[str]
) -> Iterator[Predictions]:
    """One model with every rule. With "bce_tuned", the method "null" repeats it on other folds."""
    given, balanced = columns_of(split.y), rules is WEIGHTED_RULES
    found = _trained(model, balanced, split, split.folds)
    yield from _decided(rules, found, given, metrics)
    if "bce_tuned" in rules:
        again = _trained(model, balanced, split, split.other_folds)
        yield from _decided({"null": _tuned}, again, given, metrics)


def _decided(
    rules: dict[str, Rule], found: Trained, given: Columns, metrics: Sequence[str]
) -> Iterator[Predictions]:
    for metric in metrics:
        for name, rule in rules.items():
            begin = time.perf_counter()
            decided = rule(given, found.held_out, found.test, metric)
            if decided is None:
                continue
            fits = found.seconds if rule in (_plain, _logit_adjusted) else found.with_folds
            seconds = fits + time.perf_counter() - begin
            yield Predictions(name, metric, decided, found.test, seconds)


def _anyloss(model: str, split: Split, metrics: Sequence[str]) -> Iterator[Predictions]:
    """The recipe of `AnyLossClassifier`; all metrics share its start."""
    given = columns_of(split.y)
    begin = time.perf_counter()
    initial = numpy_models.start(
        split.X, given.y, task=given.task, hidden=HIDDEN[model], C=C, seed=split.seed
    )
    shared, members = time.perf_counter() - begin, len(initial.held)
    for metric in metrics:
        aim, begin = read_aim(metric), time.perf_counter()
        found = numpy_models.finish(initial, aim.metric, average=aim.average)
        seconds = shared + time.perf_counter() - begin
        start = replace(found, layers=[x[:members] for x in found.layers])
        for name, ensemble, cost in (("anyloss", found, seconds), ("unrefined", start, shared)):
            values = ensemble.decide(split.test)
            p = values if given.task == "multiclass" else (1 + values) / 2
            yield Predictions(name, metric, given.decide(values), p, cost)


def _anyloss_trees(setup: Setup, split: Split, metrics: Sequence[str]) -> Iterator[Predictions]:
    """The recipe of the boosting classifiers; all metrics share its start."""
    given, library = columns_of(split.y), setup.library
    if given.task == "multilabel":
        library = PerLabel(library)
    held = held_out_mask([*split.folds, *split.other_folds], len(split.y))
    begin = time.perf_counter()
    data = TreeData(split.X, split.y.astype(float))
    started = trees.start(library, data, held, setup.plan(split.seed), with_whole=True)
    shared = time.perf_counter() - begin
    for metric in metrics:
        aim, begin = read_aim(metric), time.perf_counter()
        goal = Goal(aim.metric, step_of("auto"), given.layout(aim))
        found = trees.finish(started, goal, ROUNDS // 3)
        seconds = shared + time.perf_counter() - begin
        unrefined = replace(found, share=0.0)
        for name, ensemble, cost in (("anyloss", found, seconds), ("unrefined", unrefined, shared)):
            z = ensemble.margin(library, split.test)
            p = probabilities(z, given.task)
            yield Predictions(name, metric, given.decide(z), p, cost)


def families(model: str, task: str) -> dict[str, Family]:
    """The families of methods of a model for several classes or labels.

    >>> list(families("mlp", "multilabel"))
    ['bce', 'anyloss']
    """
    ours = partial(_anyloss, model)
    if model in SETUPS:
        ours = partial(_anyloss_trees, SETUPS[model])
    found: dict[str, Family] = {"bce": partial(_with_rules, model, RULES)}
    if task == "multiclass" or not HIDDEN.get(model):  # networks have one weight per row
        found["weighted"] = partial(_with_rules, model, WEIGHTED_RULES)
    return found | {"anyloss": ours}
