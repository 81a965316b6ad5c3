"""The automatic model: an ensemble over families of models, within a limit of time.

Each member is trained for the metric by its own recipe. The members decide together, by the
weighted mean of their decision values; the weights rest on rows that each member has not seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import _check_sample_weight

from anyloss._core.backend import Array
from anyloss.recipe.deadlines import Clock, Deadline, OutOfTime
from anyloss.recipe.folder import ARRAYS, array_writer, load_model, save_folder
from anyloss.recipe.folds import thinned
from anyloss.recipe.priors import Rule
from anyloss.recipe.shares import DecisionShares
from anyloss.recipe.target import Target, new_target
from anyloss.tabular.combining import member_weights
from anyloss.tabular.portfolio import (
    ENTRIES,
    FEW_CELLS,
    Entry,
    Goal,
    held_out_values,
    member_type,
    member_values,
    new_member,
    portfolio,
)

KIND = "AutoClassifier"
MOST_ROWS = 100_000  # that a linear model or a network is fitted on, and all with a limit of time
LEAST_ROWS = 5_000  # that the linear model is fitted on if nothing else ends in time
TRAINING = 0.95  # the share of the limit for training; the rest is for the weights


class Member(NamedTuple):
    """A fitted member, its weight, and its own score on held-out training rows."""

    name: str
    classifier: Any
    weight: float
    score: float


class _Rows(NamedTuple):
    """Training rows, labels as classifiers take them, weights and groups."""

    X: Array
    y: Array
    weight: Array | None = None
    groups: Array | None = None

    def given(self, *, trees: bool) -> dict[str, Array]:
        found = {"sample_weight": self.weight} | ({} if trees else {"groups": self.groups})
        return {name: x for name, x in found.items() if x is not None}


class AutoClassifier(DecisionShares):
    """An ensemble over linear models, networks and boosted trees for encoded rows.

    The classes are 0 and 1, or the numbers of the classes; several labels are a matrix. Without a
    limit of time the members are a linear model, a network with 8 hidden units and LightGBM if it
    is installed. With `time_limit` further members follow as long as they are predicted to end in
    time: by the time of a similar member before they start, and by their own progress then. Trees
    are then trained beside the others in a second thread, unless `jobs` is 1, and tables of more
    than 100,000 cells have one set of inner folds, not two. A linear model of at most 5,000 rows is
    fitted first, however short the limit, and used if nothing else ends in time.

    Attributes:
        members_ (list of Member): the members that have a weight, with their held-out scores.
        scores_ (dict): the held-out scores of all that were fitted, by name.
        skipped_ (dict): why members were left out, by name.
        held_out_score_ (float): the score of the ensemble on held-out training rows, on which the
            weights were chosen.
    """

    constraints = certificate_ = priors = calibrate = pos_label = None
    folds = 5  # for the choice of the calibration

    def __init__(
        self, metric: str = "f1", average: str = "auto", task: str = "binary", seed: int = 0, *,
        time_limit: float | None = None, jobs: int = 2, verbose: bool = False,
        on_fit: Callable[[str], None] | None = None, clock: Clock = monotonic,
    ) -> None:  # fmt: skip
        self.metric, self.average, self.task, self.seed = metric, average, task, seed
        self.time_limit, self.jobs, self.verbose = time_limit, jobs, verbose
        self.on_fit, self.clock = on_fit or (lambda name: None), clock
        self.task_, self.pos_label_ = task, 1 if task == "binary" else None
        self._rule = self._fitted_rule = Rule()

    def fit(
        self, X: Array, y: Array, groups: Array | None = None, sample_weight: Array | None = None
    ) -> Self:
        """Fit as many members as the limit of time allows, and weigh them."""
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
            if not (used := sample_weight > 0).all():
                groups = None if groups is None else groups[used]
                X, y, sample_weight = X[used], y[used], sample_weight[used]
        limit = self.time_limit
        deadline = None if limit is None else Deadline(TRAINING * limit, self.clock)
        every = _Rows(X, y, sample_weight, groups)
        whole = new_target(
            _columns(y, self.task), self.metric, self.task, self.average, sample_weight
        )
        few, target, at = _at_most(MOST_ROWS, every, whole, self.seed)
        self.skipped_: dict[str, str] = {}
        self._seconds: dict[str, float] = {}  # that members take
        entries = portfolio(limited=limit is not None, grouped=groups is not None)
        if deadline is not None and len(y) > LEAST_ROWS:  # used if nothing else ends in time
            least, *sample = _at_most(LEAST_ROWS, every, whole, self.seed)
            spare = self._fit_member(ENTRIES["linear"], least, None)
        fitted = self._fit_members(entries, every if deadline is None else few, few, deadline)
        if not fitted:
            target, at = sample
            self.skipped_["linear, all rows"] = self.skipped_.pop("linear")
            fitted = {"linear": spare}
        values = [held_out_values(x, self.task) for x in fitted.values()]
        values = [x if len(x) == len(target.y) else x[at] for x in values]
        self._combine(fitted, np.array(values), target)
        return self

    def _fit_members(
        self, entries: list[Entry], for_trees: _Rows, for_others: _Rows, deadline: Deadline | None
    ) -> dict[str, Any]:
        """The fitted members by name; with a limit of time, trees beside the others."""

        def lane(trees: bool) -> dict[str, Any]:
            mine = [x for x in entries if (x.library != "numpy") == trees]
            rows, found = for_trees if trees else for_others, {}
            for entry in mine:
                found[entry.name] = self._fit_member(entry, rows, deadline)
            return found

        if self.jobs == 1 or deadline is None:
            found = lane(trees=False) | lane(trees=True)
        else:
            with ThreadPoolExecutor(2) as pool:
                lanes = [pool.submit(lane, trees) for trees in (False, True)]
                try:
                    for each in as_completed(lanes):
                        each.result()
                except BaseException:  # such as Ctrl-C
                    deadline.end = -math.inf  # the other lane gives up as soon as it can
                    raise
            found = lanes[0].result() | lanes[1].result()
        return {x.name: found[x.name] for x in entries if found[x.name] is not None}

    def _fit_member(self, entry: Entry, rows: _Rows, deadline: Deadline | None) -> Any:
        """A fitted classifier; None if it is not predicted to end in time, or does not."""
        if entry == ENTRIES["linear"] and len(rows.y) <= LEAST_ROWS:
            deadline = None  # it is what is fitted if nothing else ends in time
        predicted = entry.factor * self._seconds.get(entry.like, 0.0)
        if deadline is not None and predicted > deadline.left():
            about = f"it would take about {max(1.0, predicted):.0f} s"
            self.skipped_[entry.name] = about if predicted else "no time was left"
            return None
        self.on_fit(entry.name)
        start, cells = self.clock(), rows.X.size
        many = self.time_limit is not None and cells > FEW_CELLS
        classifier = new_member(
            entry, Goal(self.metric, self.average, self.task), self.seed,
            threads=1 if deadline is not None or cells <= FEW_CELLS else None,
            verbose=self.verbose, changed={"repeats": 1 if many else 2},
        )  # fmt: skip
        given = rows.given(trees=entry.library != "numpy")
        try:
            with nullcontext() if deadline is None else deadline.hold():
                classifier.fit(rows.X, rows.y, **given)
        except OutOfTime as error:
            self.skipped_[entry.name] = f"it would take {max(1.0, error.seconds):.0f} s or more"
            self._seconds[entry.name] = error.seconds
            return None
        self._seconds[entry.name] = self.clock() - start
        return classifier

    def _combine(self, fitted: Mapping[str, Any], values: Array, target: Target) -> None:
        weights = member_weights(values, target)
        scored = zip(fitted.items(), weights, values, strict=True)
        every = [Member(*each, float(weight), target.score(own)) for each, weight, own in scored]
        self.scores_ = {x.name: x.score for x in every}
        self.members_ = [x for x in every if x.weight > 0]
        together = np.tensordot(weights, values, axes=1)
        self.held_out_score_ = target.score(together)
        self.average_, self.classes_ = target.layout.average, np.arange(max(2, target.y.shape[1]))
        held = np.arange(self.folds)[:, None] == np.arange(len(together)) % self.folds
        self._keep_held_out(together, target.y, target.weight, held, self.seed)

    def _check_fitted(self) -> None:
        if not hasattr(self, "members_"):
            raise NotFittedError("this AutoClassifier is not fitted yet; call fit first")

    @property
    def weights_(self) -> dict[str, float]:
        """The weights of all that were fitted, which sum to 1, by name."""
        return dict.fromkeys(self.scores_, 0.0) | {x.name: x.weight for x in self.members_}

    @property
    def leading_family(self) -> str:
        """The installed family with the highest weight: `"linear"`, `"mlp"` or `"lightgbm"`."""
        total = {entry.name: 0.0 for entry in portfolio(limited=False)}
        for x in self.members_:
            if (family := ENTRIES[x.name].family) in total:  # not those of XGBoost alone
                total[family] += x.weight
        return max(total, key=lambda name: total[name])

    def _values(self, X: Array) -> Array:
        """The decision values of the ensemble `(rows, columns)`."""
        parts = (x.weight * member_values(x.classifier, X, self.task) for x in self.members_)
        total: Array = sum(parts)
        return total

    def predict_proba(self, X: Array) -> Array:
        """Decision values from 0 to 1, one column per class: 0.5 decides, or the highest."""
        p = self._mean_probabilities(self._decide(X))
        return np.column_stack([1 - p, p]) if self.task == "binary" else p

    def predict(self, X: Array) -> Array:
        """The class of each row; for several labels a matrix of 0 and 1."""
        values = self._decide(X)
        if self.task == "multiclass":
            return values.argmax(axis=1)
        decided = (values > 0).astype(int)
        return decided[:, 0] if self.task == "binary" else decided

    def save(self, path: Path | str) -> None:
        """Write the ensemble to a folder, with a folder for each member."""
        names = ("metric", "average", "task", "seed", "time_limit")
        shares, arrays = self._shares_to_save()
        description = {
            "parameters": {x: getattr(self, x) for x in names},
            "held_out_score": self.held_out_score_,
            "shares": shares,
            "target": {"average": self.average_, "classes": len(self.classes_)},
            "skipped": self.skipped_,
            "scores": self.scores_,
            "members": [
                {"name": x.name, "kind": type(x.classifier).__name__, "weight": x.weight,
                 "score": x.score}
                for x in self.members_
            ],
        }  # fmt: skip
        writers = {x.name: x.classifier.save for x in self.members_}
        save_folder(path, KIND, description, {ARRAYS: array_writer(arrays), **writers})

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read an ensemble that was written by `save`."""
        stored, arrays = load_model(path, KIND)
        try:
            model = cls(**stored["parameters"])
            model.held_out_score_, model.scores_ = stored["held_out_score"], stored["scores"]
            model.skipped_, model.average_ = stored["skipped"], stored["target"]["average"]
            model.classes_ = np.arange(stored["target"]["classes"])
            model._shares_from_saved(stored["shares"], arrays)
            model.members_ = [
                Member(
                    x["name"], member_type(x["kind"]).load(Path(path) / x["name"]), x["weight"],
                    x["score"],
                )
                for x in stored["members"]
            ]  # fmt: skip
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a complete model folder: {error!r}") from None
        return model


def _at_most(most: int, rows: _Rows, target: Target, seed: int) -> tuple[_Rows, Target, Array]:
    """A weighted sample of very many rows, its target, and which rows it has."""
    if len(rows.y) <= most:
        return rows, target, np.arange(len(rows.y))
    at, weight = thinned(target.y, rows.weight, target.layout.task, most, seed)
    groups = None if rows.groups is None else rows.groups[at]
    return (
        _Rows(rows.X[at], rows.y[at], weight, groups),
        target._replace(y=target.y[at], weight=weight),
        at,
    )


def _columns(y: Array, task: str) -> Array:
    """Labels of 0 and 1 `(rows, columns)`, one-hot for several classes."""
    if task == "multiclass":
        return (np.arange(int(y.max()) + 1) == y[:, None]).astype(float)
    return y.reshape(len(y), -1).astype(float)
