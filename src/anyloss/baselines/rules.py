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
from typing import NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.choices import resolve_average
from anyloss._core.shapes import Layout
from anyloss.baselines.boosted import ROUNDS, SETUPS, Setup
from anyloss.baselines.methods import (
    C,
    Family,
    Predictions,
    Split,
    Trained,
    held_out_mask,
)
from anyloss.baselines.several import HIDDEN, Columns, columns_of, has_weights, trained
from anyloss.boosting import trees
from anyloss.boosting.core import step_of
from anyloss.boosting.libraries import Goal, TreeData
from anyloss.boosting.per_label import PerLabel
from anyloss.decisions.rules import Decision
from anyloss.decisions.search import best_decision, best_offsets
from anyloss.metrics import Metric
from anyloss.metrics import metric as find_metric
from anyloss.recipe import numpy_models
from anyloss.recipe.target import probabilities

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


class Wanted(NamedTuple):
    """What a rule decides for: a metric, its name with the average, and its layout."""

    name: str
    metric: Metric
    layout: Layout


def wanted_for(name: str, given: Columns) -> Wanted:
    """What a name such as `macro_f1` means for these labels."""
    aim, classes = read_aim(name), given.y.shape[1]
    average = resolve_average(aim.average, given.task, classes, aim.metric.has_own_form)
    return Wanted(name, aim.metric, Layout(given.task, average, classes))


Rule = Callable[[Columns, Array, Array, Wanted], "Array | None"]  # from held-out and test rows


def arg_max(given: Columns, test: Array) -> Array:
    """The class of the highest probability, or the labels above 0.5."""
    return given.decide(test if given.task == "multiclass" else test - 0.5)


def _plain(given: Columns, held_out: Array, test: Array, wanted: Wanted) -> Array:
    return arg_max(given, test)


def _tuned(given: Columns, held_out: Array, test: Array, wanted: Wanted) -> Array:
    """An offset of the log-probability of each class, or a threshold of each label.

    They are improved in turn on the held-out rows, each by an exact sweep, until none improves.
    """
    if given.task == "multiclass":
        held_out, test = (np.log(np.maximum(p, TINY)) for p in (held_out, test))
    weight = np.ones(len(held_out))
    offsets, _ = best_offsets(given.y, held_out, wanted.metric, wanted.layout, weight=weight)
    return given.decide(test - offsets)


def decision_rule(given: Columns, held_out: Array, test: Array, wanted: Wanted) -> Array:
    """The decisions of the rule of `TunedDecisionClassifierCV`."""
    return best_rule(given, held_out, wanted).decide(test)


def best_rule(given: Columns, held_out: Array, wanted: Wanted) -> Decision:
    """The rule of `TunedDecisionClassifierCV` for held-out rows."""
    weight = np.ones(len(held_out))
    return best_decision(given.y, held_out, wanted.metric, wanted.layout, weight=weight).decision


def _logit_adjusted(given: Columns, held_out: Array, test: Array, wanted: Wanted) -> Array | None:
    """Post-hoc logit adjustment: the arg-max of `p_k / prior_k`."""
    return given.decide(test / given.y.mean(axis=0)) if given.task == "multiclass" else None


def _xcolumns(given: Columns, held_out: Array, test: Array, wanted: Wanted) -> Array | None:
    """Frank and Wolfe's algorithm of the package xcolumns, which has no MCC."""
    names = {
        "macro_f1": "macro_f1_score", "micro_f1": "micro_f1_score",
        "balanced_accuracy": "macro_recall",
    }  # fmt: skip
    if find_spec("xcolumns") is None or wanted.name not in names:
        return None
    from xcolumns import frank_wolfe

    of_counts = getattr(frank_wolfe, f"{names[wanted.name]}_on_conf_matrix")
    k = 1 if given.task == "multiclass" else 0
    found = frank_wolfe.find_classifier_using_fw(given.y, held_out, of_counts, k, seed=0)
    decided = np.asarray(found.predict(test, seed=0))
    return decided.argmax(axis=1) if k else (decided > 0).astype(int)


def _cutoffs(given: Columns, held_out: Array, test: Array, wanted: Wanted) -> Array | None:
    """The thresholds of the package optimal-classification-cutoffs, for F1 and several classes.

    The class with the largest lead over its threshold is predicted.
    """
    if find_spec("optimal_cutoffs") is None or given.task != "multiclass":
        return None
    if wanted.name != "macro_f1":
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
    "tuned_decision": decision_rule,
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
    found = trained(model, balanced, given, split, split.folds)
    yield from _decided(rules, found, given, metrics)
    if "bce_tuned" in rules:
        again = trained(model, balanced, given, split, split.other_folds)
        yield from _decided({"null": _tuned}, again, given, metrics)


def _decided(
    rules: dict[str, Rule], found: Trained, given: Columns, metrics: Sequence[str]
) -> Iterator[Predictions]:
    for metric in metrics:
        wanted = wanted_for(metric, given)
        for name, rule in rules.items():
            begin = time.perf_counter()
            decided = rule(given, found.held_out, found.test, wanted)
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
        wanted, begin = wanted_for(metric, given), time.perf_counter()
        goal = Goal(wanted.metric, step_of("auto"), wanted.layout)
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
    if has_weights(model, task):
        found["weighted"] = partial(_with_rules, model, WEIGHTED_RULES)
    return found | {"anyloss": ours}
