"""What the three classifiers share: everything but the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from anyloss._core.backend import Array
from anyloss._core.constraints import ConstraintSpec
from anyloss._core.shapes import Layout
from anyloss.boosting import parameters, saving
from anyloss.boosting.adapters import check_several, require
from anyloss.boosting.core import hard_score, step_of
from anyloss.boosting.libraries import Goal, Library, Plan, TreeData, take
from anyloss.boosting.per_label import PerLabel
from anyloss.boosting.several import for_two_classes
from anyloss.boosting.trees import TreeEnsemble, finish, start
from anyloss.certificates import CertifiedThreshold
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.recipe.constrained import (
    Promise,
    certified,
    check_rows_given,
    check_task,
    read_promise,
    refuse_weights,
    split_rows,
    warn_if_one_sided,
)
from anyloss.recipe.folder import save_folder, unchanged_on_error
from anyloss.recipe.folds import inner_folds
from anyloss.recipe.labels import Labels, labels_of, read_target
from anyloss.recipe.priors import Rule
from anyloss.recipe.shares import SharesMixin
from anyloss.recipe.target import new_target, probabilities
from anyloss.thresholds import best_threshold


class BoostedClassifier(SharesMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The base of the three classifiers, which set `library`."""

    library: ClassVar[Library]
    _texts: bool  # whether arrays may hold texts: a category is then named for CatBoost

    def __init__(
        self,
        metric: MetricSpec | Metric = "f1",
        *,
        average: str = "auto",
        pos_label: Any = None,
        scale: float | str = "auto",
        folds: int = 5,
        repeats: int = 2,
        refine_rounds: int | None = None,
        early_stopping_rounds: int | None = None,
        random_state: Any = None,
        constraints: ConstraintSpec | None = None,
        confidence_level: float | None = None,
        certify_share: float = 0.2,
        calibrate: str | None = None,
        priors: Sequence[float] | None = None,
        **library_parameters: Any,
    ) -> None:
        self.metric = metric
        self.average = average
        self.pos_label = pos_label
        self.scale = scale
        self.folds = folds
        self.repeats = repeats
        self.refine_rounds = refine_rounds
        self.early_stopping_rounds = early_stopping_rounds
        self.random_state = random_state
        self.constraints = constraints
        self.confidence_level = confidence_level
        self.certify_share = certify_share
        self.calibrate = calibrate
        self.priors = priors
        self._library_parameters = library_parameters

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of the recipe and those of the library that were passed."""
        return {**super().get_params(deep), **self._library_parameters}

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the recipe, and pass all others to the library."""
        ours = set(self._get_param_names())
        super().set_params(**{k: v for k, v in params.items() if k in ours})
        self._library_parameters |= {k: v for k, v in params.items() if k not in ours}
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "models_")

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        eval_set: Any = None,
        certify_set: Any = None,
        **fit_options: Any,
    ) -> Self:
        """Fit the classifier. If fitting fails or is interrupted, the object stays unchanged.

        Args:
            X (array, sparse matrix or data frame): the training rows.
            y (array): their labels; a matrix of 0 and 1 for several labels.
            sample_weight (array, optional): one weight per row.
            eval_set (tuple, optional): a pair `(X, y)` for early stopping: the first stage stops
                by its log-loss, the refinement by the metric.
            certify_set (tuple, optional): a pair `(X, y)` of further rows that certify the
                constraints, in place of a share of the training rows.
            **fit_options (Any): further arguments of the library's `fit`, such as
                `categorical_feature` (LightGBM) or `cat_features` (CatBoost).

        Returns:
            self: the fitted classifier.
        """
        require(self.library.name)
        with unchanged_on_error(self):
            return self._fit(X, y, sample_weight, eval_set, certify_set, fit_options)

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, eval_set: Any, certify_set: Any,
        fit_options: dict[str, Any],
    ) -> Self:  # fmt: skip
        metric, step = find_metric(self.metric), step_of(self.scale)
        check_several(metric, self.average)
        promise = self._check_parameters()
        self._check_shares(promise)
        self._texts = "cat_features" in fit_options or "cat_features" in self._library_parameters
        X = self._check_rows(X, reset=True)
        y = self._check_labels(y, X.shape[0])
        weight = None
        refuse_weights(promise, sample_weight)
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
            X, y, weight, _ = take(TreeData(X, y, weight), np.flatnonzero(weight > 0))
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(2**31))
        tested = None
        if certify_set is not None:
            check_rows_given(promise, certify_set)
            tested = TreeData(self._check_rows(certify_set[0]), certify_set[1])
        elif promise.confidence_level is not None:
            rows, certifying = split_rows(X.shape[0], promise, seed)
            tested, (X, y, _, _) = (take(TreeData(X, y), at) for at in (certifying, rows))
        self.certificate_: CertifiedThreshold | None = None
        target = _two_classes(read_target(y, metric, self.average, self.pos_label, weight))
        check_task(promise, target.task)
        warn_if_one_sided(promise, metric, target.task, target.average)
        target, weight = self._weigh(target, weight)
        data = TreeData(X, _for_trees(target.labels, target.task), weight)
        self.classes_, self.pos_label_ = target.classes, target.positive
        self.task_, self.average_ = target.task, target.average
        if eval_set is None and self.early_stopping_rounds is not None:
            raise ValueError(
                f"early_stopping_rounds={self.early_stopping_rounds} needs validation rows: call "
                "fit(X, y, eval_set=(X_valid, y_valid))"
            )
        valid = None if eval_set is None else self._check_eval_set(eval_set)
        folds = np.random.default_rng(seed)
        held = inner_folds(
            _codes(data.X), target.labels, target.task, self.folds, self.repeats, folds
        )
        several = target.task != "binary"
        goal = Goal(for_two_classes(metric, target.average), step, None, promise.constraints)
        if several:
            columns, costs = len(target.classes), metric.cost_matrix
            goal = Goal(metric, step, Layout(target.task, target.average, columns, costs=costs))
        plan = self._plan(seed, fit_options, metric)
        refine_rounds = self.refine_rounds
        if refine_rounds is None:
            refine_rounds = max(1, self.library.rounds(plan.parameters)[1] // 3)
        started = start(self._trees, data, held, plan, valid, with_whole=several)
        found = finish(started, goal, refine_rounds)
        if promise.constraints:
            found = self._settle(promise, found, data, tested)
        self.models_ = found
        self.start_score_, self.held_out_score_ = found.start_score, found.held_out_score
        self._rule = self._fitted_rule = self._rule_of(np.zeros(target.labels.shape[1]))
        values = found.held_out.reshape(target.labels.shape)
        self._keep_held_out(values, target.labels, weight, held, seed)
        return self

    def _settle(
        self, promise: Promise, found: TreeEnsemble, data: TreeData, tested: TreeData | None
    ) -> TreeEnsemble:
        """The ensemble with the constrained threshold, or with one that further rows certify."""
        held_out, metric = (data.y, found.held_out), find_metric(self.metric)
        if tested is None:
            threshold = best_threshold(
                *held_out, metric, constraints=promise.constraints, weight=data.weight
            ).threshold
        else:
            labels = labels_of(tested.y, self.classes_, "binary", self.pos_label_, len(tested.y))
            scores = found.margin(self.library, tested.X)
            result = certified(*held_out, None, labels[:, 0], scores, metric, promise)
            self.certificate_, threshold = result, result.used_threshold
        held = found.held_out - threshold
        return replace(found, offset=found.offset + threshold, held_out=held)

    @property
    def _trees(self) -> Library:
        """The library, or for several labels one that trains a model for each."""
        return PerLabel(self.library) if self.task_ == "multilabel" else self.library

    def _plan(self, seed: int, fit_options: dict[str, Any], metric: Metric) -> Plan:
        known = {*self.library.known(), *self._get_param_names()}
        parameters.check({**self._library_parameters, **fit_options}, known, metric)
        flipped = self.task_ == "binary" and self.pos_label_ == self.classes_[0]
        given = parameters.oriented(self._library_parameters, flipped=flipped)
        if self.random_state is not None:
            given["random_state"] = seed
        return Plan(given, fit_options, self.early_stopping_rounds)

    def _check_parameters(self) -> Promise:
        promise = read_promise(self.constraints, self.confidence_level, self.certify_share)
        if promise.constraints and self.early_stopping_rounds is not None:
            raise ValueError(
                "early stopping follows the metric, which does not know the constraints; leave out "
                f"early_stopping_rounds={self.early_stopping_rounds}, or constraints="
            )
        for name, low in (
            ("folds", 2), ("repeats", 1), ("refine_rounds", 1), ("early_stopping_rounds", 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is None and name not in ("folds", "repeats"):
                continue
            if not isinstance(value, Integral) or value < low:
                raise ValueError(f"{name} must be an integer of at least {low}; got {value!r}")
        return promise

    def _check_rows(self, X: Any, reset: bool = False) -> Any:
        """Data frames as they are, everything else as an array or a CSR matrix."""
        if hasattr(X, "iloc"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        checks = {
            "accept_sparse": "csr",
            "dtype": None if self._texts else "numeric",
            "ensure_all_finite": False if self._texts else "allow-nan",
        }
        X = validate_data(self, X, reset=reset, ensure_min_samples=1 + reset, **checks)
        if issparse(X):  # the one sparse form that all libraries accept
            X = csr_matrix(X)
            X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        return X

    @staticmethod
    def _check_labels(y: Any, rows: int) -> Array:
        if y is None:
            raise ValueError("fit requires y to be passed, but the target y is None")
        y = y.toarray() if issparse(y) else np.asarray(y)
        if y.ndim != 2 or y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        missing = sum(map(_is_missing, y.ravel().tolist())) if y.dtype.kind in "fO" else 0
        if missing or len(y) != rows:
            raise ValueError(
                f"y must hold a label for each of the {rows} rows, without NaN or None; got "
                f"{len(y)} labels, {missing} of them NaN or None"
            )
        check_classification_targets(y)
        return y

    def _check_eval_set(self, eval_set: Any) -> TreeData:
        if isinstance(eval_set, list) and len(eval_set) == 1:
            eval_set = eval_set[0]
        if not isinstance(eval_set, tuple) or len(eval_set) != 2:
            raise ValueError(
                "eval_set must be one pair, fit(X, y, eval_set=(X_valid, y_valid)); got "
                f"{type(eval_set).__name__}"
            )
        X = self._check_rows(eval_set[0])
        labels = self._labels(eval_set[1], X)
        return TreeData(X, _for_trees(labels, self.task_), self._weights_of_priors(labels))

    def _labels(self, y: Any, X: Any) -> Array:
        """Labels of 0 and 1 `(rows, columns)`, for the task that was fitted."""
        y = self._check_labels(y, X.shape[0])
        found = labels_of(y, self.classes_, self.task_, self.pos_label_, X.shape[0])
        return found.astype(float)

    def _check_fitted(self) -> None:
        check_is_fitted(self)

    def _values(self, X: Any) -> Array:
        """The margins `(rows, columns)`, before they are moved to other priors."""
        check_is_fitted(self)
        margin = self.models_.margin(self._trees, self._check_rows(X))
        return margin.reshape(len(margin), -1)

    def _mean_probabilities(self, values: Array) -> Array:
        return probabilities(values, self.task_)

    def _as_scores(self, values: Array) -> Array:
        return values

    def _rule_of(self, offsets: Array) -> Rule:
        return Rule(offsets=offsets)

    @property
    def class_offsets_(self) -> Array:
        """What is subtracted from the margins for other priors: one number per column."""
        offsets: Array | None = self._rule.offsets
        assert offsets is not None
        return offsets

    def decision_function(self, X: Any) -> Array:
        """The margins.

        Two classes: one number per row, above 0 for the second of `classes_`. Several labels: one
        column per label, above 0 for those that are predicted. Several classes: one column per
        class, of which the highest is predicted.
        """
        margin = self._decide(X)
        margin = margin[:, 0] if self.task_ == "binary" else margin
        flipped = self.task_ == "binary" and self.pos_label_ != self.classes_[1]
        return -margin if flipped else margin

    def predict(self, X: Any) -> Array:
        """The class of each row; for several labels a matrix of 0 and 1."""
        decided = self.decision_function(X)
        if self.task_ == "multilabel":
            return (decided > 0).astype(int)
        if self.task_ == "multiclass":
            return self.classes_[decided.argmax(axis=1)]
        # A margin of exactly 0 predicts the negative class, as in every metric here.
        second = decided > 0 if self.pos_label_ == self.classes_[1] else decided >= 0
        return self.classes_[second.astype(int)]

    def predict_proba(self, X: Any) -> Array:
        """Probabilities that agree with `predict`, one column per class, or calibrated ones.

        Two classes and several labels: the sigmoid of the margin, and 0.5 decides. Several classes:
        the softmax of the margins, and the highest is predicted. They are calibrated if the
        classifier has `calibrate=`; `calibrated_proba` always is.
        """
        if self.calibrate is not None:
            return self.calibrated_proba(X)
        margin = self.decision_function(X)
        if self.task_ == "binary":
            margin = np.column_stack([-margin, margin])
        return probabilities(margin, self.task_)

    @property
    def feature_importances_(self) -> Array:
        """The share of each column in the gain of all trees, in the library's own measure."""
        check_is_fitted(self)
        return self.models_.importances(self._trees)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The metric of the predictions for `X`."""
        margin = self._decide(X)
        labels = self._labels(y, margin)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, margin)
        weight = self._weights_of_score(labels, sample_weight)
        metric = find_metric(self.metric)
        if self.task_ == "binary":
            metric = for_two_classes(metric, self.average_)
            return hard_score(margin[:, 0], labels[:, 0], metric, weight)
        return new_target(labels, metric, self.task_, self.average_, weight).score(margin)

    def save(self, path: Path | str) -> None:
        """Write the models to a folder of JSON and of files in the library's own format."""
        check_is_fitted(self)
        save_folder(path, type(self).__name__, *saving.parts_of(self))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a model that was written by `save`."""
        model: Self = saving.read(cls, path)
        return model


def _two_classes(target: Labels) -> Labels:
    """A mean over both of two classes as a task of one column, that of the second class."""
    if target.task != "multiclass" or len(target.classes) > 2:
        return target
    return target._replace(task="binary", labels=target.labels[:, 1:], positive=target.classes[1])


def _for_trees(labels: Array, task: str) -> Array:
    """Labels as the libraries take them: 0 and 1, class numbers, or a matrix of 0 and 1."""
    if task == "multilabel":
        return labels
    return labels[:, 0] if task == "binary" else labels.argmax(axis=1).astype(float)


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # pandas.NA has no truth value
        return True


def _codes(X: Any) -> Array:
    """Numbers that are equal for equal rows; one per row where that is not known."""
    if hasattr(X, "iloc"):
        import pandas as pd

        columns = (X.iloc[:, k] for k in range(X.shape[1]))
        return np.column_stack(
            [x if x.dtype.kind in "fiub" else pd.factorize(x)[0] for x in columns]
        )
    if X.dtype.kind in "fiub":  # an array or a CSR matrix
        return X
    return np.arange(X.shape[0])[:, None]
