"""What a table of several classes or labels is compared with: the decisions of each method.

The models and rules are those of the benchmark. The inner folds are those of our recipe, which
keep groups together and need no minimum of rows in a class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.shapes import Layout
from anyloss.baselines.methods import C, Split
from anyloss.baselines.rules import Wanted, arg_max, decision_rule
from anyloss.baselines.several import HIDDEN, Columns, has_weights, trained
from anyloss.baselines.splits import INNER, scaled
from anyloss.metrics import Metric
from anyloss.recipe import numpy_models
from anyloss.recipe.folds import inner_folds


def several_split(
    X: Array, y: Array, test: Array, task: str, model: str, seed: int,
    groups: Array | None = None,
) -> Split:  # fmt: skip
    """The split that every method receives, with labels `(n, classes)` of 0 and 1."""
    rows, at = scaled(X, test)
    held = inner_folds(rows, y, task, INNER, 1, np.random.default_rng(seed), groups)
    folds = [(np.flatnonzero(~each), np.flatnonzero(each)) for each in held]
    return Split(rows, y, at, folds, [], HIDDEN.get(model, ()), seed, groups)


def methods_for(model: str, task: str) -> tuple[str, ...]:
    """The baselines of a model."""
    return ("bce", "bce_tuned", *(("weighted",) if has_weights(model, task) else ()))


def several_decisions(
    model: str, split: Split, methods: Sequence[str], metric: Metric, lay: Layout
) -> Iterator[tuple[str, Array]]:
    """The name and the decisions `(test rows, classes)` of 0 and 1 of each method.

    The tuned one is decided by the rule of `TunedDecisionClassifierCV`.
    """
    given, network = Columns(split.y, lay.task), bool(split.hidden)
    if "bce" in methods or "bce_tuned" in methods:
        folds = split.folds if network or "bce_tuned" in methods else []
        found = trained(model, False, given, split, folds)
        if "bce" in methods:
            yield "bce", indicators(arg_max(given, found.test), given)
        if "bce_tuned" in methods:
            held = held_rows(split)
            part, wanted = given._replace(y=given.y[held]), Wanted(metric.name, metric, lay)
            tuned = decision_rule(part, found.held_out[held], found.test, wanted)
            yield "bce_tuned", indicators(tuned, given)
    if "weighted" in methods:
        found = trained(model, True, given, split, split.folds if network else [])
        yield "weighted", indicators(arg_max(given, found.test), given)
    if "anyloss" in methods:
        ours = numpy_models.fit(
            split.X, split.y, metric, task=lay.task, average=lay.average,
            groups=split.groups, hidden=split.hidden, C=C, seed=split.seed,
        )  # fmt: skip
        yield "anyloss", indicators(given.decide(ours.decide(split.test)), given)


def held_rows(split: Split) -> Array:
    """The rows that an inner fold holds out; the only row of a class is never held out."""
    return np.unique(np.concatenate([rows for _, rows in split.folds]))


def indicators(decided: Array, given: Columns) -> Array:
    """Class numbers as one-hot columns; decisions about labels as they are.

    >>> indicators(np.array([1]), Columns(np.eye(2), "multiclass")).tolist()
    [[0.0, 1.0]]
    """
    if given.task == "multiclass":
        decided = np.arange(given.y.shape[1]) == decided[:, None]
    return decided.astype(float)
