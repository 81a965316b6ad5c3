"""The members that an automatic model may have: their settings, their order and their cost."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss.recipe.target import probabilities
from anyloss.sklearn import AnyLossClassifier

FEW_CELLS = 100_000  # for which threads cost more time than they save


class Goal(NamedTuple):
    """What every member is trained for."""

    metric: str
    average: str
    task: str
    options: Mapping[str, Any] = {}  # constraints and the confidence level


class Entry(NamedTuple):
    """A member: its library, its settings, and the member by which its time is predicted."""

    name: str
    library: str
    settings: Mapping[str, Any] = {}
    like: str = ""
    factor: float = 1.0  # of the time of that member

    @property
    def family(self) -> str:
        """The one of the three families that it belongs to."""
        return self.like or self.name


# The cheap ones first: with a limit of time, the later ones are left out. The three families are
# fitted in any case, the others if there is a limit of time that leaves room for them.
FAMILIES = (
    Entry("linear", "numpy", {"hidden_layer_sizes": ()}),
    Entry("lightgbm", "lightgbm"),
    Entry("mlp", "numpy", {"hidden_layer_sizes": (8,)}),
)
FURTHER = (
    Entry("mlp32", "numpy", {"hidden_layer_sizes": (32,)}, "mlp", 2.5),
    Entry(
        "lightgbm-extra", "lightgbm",
        {"n_estimators": 200, "learning_rate": 0.07, "extra_trees": True, "min_child_samples": 5,
         "colsample_bytree": 0.6}, "lightgbm", 1.5,
    ),
    Entry(
        "xgboost", "xgboost",
        {"n_estimators": 150, "learning_rate": 0.07, "max_depth": 4, "subsample": 0.8,
         "colsample_bytree": 0.7, "min_child_weight": 2}, "lightgbm", 2.0,
    ),
)  # fmt: skip
ENTRIES = {entry.name: entry for entry in (*FAMILIES, *FURTHER)}


def portfolio(*, limited: bool, grouped: bool = False) -> list[Entry]:
    """The members that can be fitted here; trees cannot keep groups together.

    >>> [entry.name for entry in portfolio(limited=True, grouped=True)]
    ['linear', 'mlp', 'mlp32']
    """
    every = (*FAMILIES, *FURTHER) if limited else FAMILIES
    if grouped:
        return [x for x in every if x.library == "numpy"]
    return [x for x in every if x.library == "numpy" or find_spec(x.library) is not None]


def new_member(
    entry: Entry, goal: Goal, seed: int, *, threads: int | None = None, verbose: bool = False,
    changed: Mapping[str, Any] = {},
) -> Any:  # fmt: skip
    """A classifier of this entry, for classes 0 and 1, numbers of classes or a matrix of labels.

    `threads` are those of trees, None for all; `changed` are further parameters of the recipe.
    """
    given = {
        "average": goal.average, "pos_label": 1 if goal.task == "binary" else None,
        "random_state": seed, **goal.options, **entry.settings, **changed,
    }  # fmt: skip
    if entry.library == "numpy":
        return AnyLossClassifier(goal.metric, verbose=verbose, **given)
    if entry.library == "xgboost":
        from anyloss.boosting import XGBAnyLossClassifier

        return XGBAnyLossClassifier(goal.metric, n_jobs=threads, **given)
    from anyloss.boosting import LGBMAnyLossClassifier

    return LGBMAnyLossClassifier(
        goal.metric, verbose=-1, deterministic=True, force_col_wise=True, n_jobs=threads or 0,
        **given,
    )  # fmt: skip


def member_type(name: str) -> Any:
    """The class of a classifier that a model folder names."""
    if name == "AnyLossClassifier":
        return AnyLossClassifier
    from anyloss import boosting

    if name not in ("LGBMAnyLossClassifier", "XGBAnyLossClassifier"):
        raise KeyError(name)
    return getattr(boosting, name)


def member_values(classifier: Any, X: Array, task: str) -> Array:
    """Decision values `(rows, columns)`: above 0 for a prediction; the highest of several classes.

    Those of two classes and of labels are between -1 and 1.
    """
    p: Array = classifier.predict_proba(X)
    if task == "multiclass":
        return p
    return 2 * (p[:, 1:] if task == "binary" else p) - 1


def held_out_values(classifier: Any, task: str) -> Array:
    """The same of the training rows, each by the members of the recipe that have not seen it."""
    if isinstance(classifier, AnyLossClassifier):
        return classifier._held_out_values
    margins = classifier.models_.held_out
    p = probabilities(margins.reshape(len(margins), -1), classifier.task_)
    if task != "multiclass":
        return 2 * p - 1
    return np.hstack([1 - p, p]) if classifier.task_ == "binary" else p
