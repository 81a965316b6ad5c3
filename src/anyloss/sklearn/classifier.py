"""A scikit-learn classifier that is trained for a metric of the confusion matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from anyloss._core.backend import Array
from anyloss._core.constraints import ConstraintSpec
from anyloss._progress import stage_progress
from anyloss.certificates import CertifiedThreshold
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.recipe import Ensemble
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
from anyloss.recipe.features import standardise
from anyloss.recipe.folder import load_model, save_model, unchanged_on_error
from anyloss.recipe.folds import thinned
from anyloss.recipe.labels import labels_of, read_target
from anyloss.recipe.networks import Layers, forward
from anyloss.recipe.numpy_models import Started, finish, start
from anyloss.recipe.priors import Rule
from anyloss.recipe.shares import DecisionShares
from anyloss.recipe.target import decision_values, new_target
from anyloss.sklearn import saving
from anyloss.sklearn.checks import check_average_of, check_integers
from anyloss.thresholds import best_threshold

KIND = "AnyLossClassifier"


class AnyLossClassifier(DecisionShares, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear model or a network that is trained for a metric of the confusion matrix.

    It starts from cross-entropy with the best threshold for the metric, refines this start for
    `1 - metric` of the soft counts, and predicts by the mean probability of an ensemble over inner
    folds (see `anyloss.recipe.skeleton`). Columns are standardised inside. The target has two
    classes, several classes, or several labels per row (a matrix of 0 and 1; each label then has a
    threshold of its own).

    `predict_proba` is centred so that 0.5 is the decision (for several classes: the highest). With
    `calibrate="auto"` it gives calibrated probabilities instead, and the decisions stay the same.

    Args:
        metric (str, callable or Metric): a name, a formula or a function of `tp, fn, fp, tn`.
            Default: `"f1"`.
        hidden_layer_sizes (sequence of int): the units of each hidden layer; none, the default, for
            a linear model.
        average (str): how several classes or labels are combined: `"macro"`, `"micro"`,
            `"weighted"`, or `"multiclass"` for a metric with a multiclass form. `"auto"`, the
            default, is the metric's own form if it has one (accuracy, MCC, kappa and others, as
            in scikit-learn), else `"macro"`. For two classes it is the metric of `pos_label`.
        pos_label (Any): the positive one of two classes. Default: the class that is rarer in the
            training data, or by the `priors` (the second one if both are equally frequent); see
            `pos_label_`.
        C (float): the inverse strength of the L2 penalty of the start, as in
            `LogisticRegression`. Default: 1.
        folds (int): the number of inner folds. Default: 5.
        repeats (int): how often inner folds are drawn. Each fold gives up to two members of the
            ensemble. Default: 2.
        max_iter (int): the number of refining steps. Default: 300.
        max_rows (int or None): the largest number of rows to fit on. From a larger table this
            many rows are drawn, the rarer class first, and weighted to represent all. None means
            no limit. Default: 100,000.
        early_stopping (bool): whether to stop refining when the soft score of the held-out rows
            has not risen for `n_iter_no_change` steps, and to keep the best. Default: False.
        n_iter_no_change (int): the number of steps for `early_stopping`. Default: 20.
        warm_start (bool): whether to start from the models of the last `fit`, if they have the
            same shape. Default: False.
        random_state (int, RandomState or None): the seed of folds and networks. The same seed
            gives exactly the same model.
        verbose (bool): whether to show a progress bar. Default: False.
        constraints (str or list of str, optional): constraints for two classes, such as
            `"recall >= 0.9"`, each a metric (a name or a formula), `>=` or `<=`, and a number. The
            metric is then the best one among the decisions that satisfy them on held-out rows.
        confidence_level (float, optional): the confidence with which the constraints shall hold on
            new data, such as 0.95. Some of the rows are then set apart, and only used to certify
            the fitted model. None, the default, promises nothing about new data.
        certify_share (float): the share of the rows that is set apart, at random. Default: 0.2.
        calibrate (str, optional): how `predict_proba` is calibrated on held-out rows: by Platt's
            `"sigmoid"`, by `"isotonic"` regression, or by the one with the lower Brier score on
            rows it was not fitted to (`"auto"`). None, the default, does not calibrate it; then
            `calibrated_proba` is calibrated as by `"auto"`.
        priors (sequence of float, optional): the shares of `classes_` where the classifier will be
            used, if they are not those of the training rows. The rows are weighted to these shares,
            also those of `score`. A fitted classifier is moved by `with_priors`.

    Attributes:
        classes_ (array): the classes, or the numbers of the labels.
        pos_label_ (Any): the positive class; None unless the task is binary.
        task_ (str): `"binary"`, `"multilabel"` or `"multiclass"`.
        average_ (str): the average that is used.
        layers_ (list of array): the weights and biases of all members, for unscaled columns.
        coef_ (array): the weights of a linear model.
        n_iter_ (int): the number of refining steps.
        history_ (array): the mean soft score before each refining step.
        hard_history_ (array): rows of a step and the held-out metric before it.
        start_score_ (float): the held-out metric of the start. The threshold was tuned on the
            same rows, so it is optimistic.
        held_out_score_ (float): the held-out metric of the ensemble, on the same rows. After
            `with_priors` they are weighted to the new shares.
        threshold_ (float): the threshold of the mean decision values of the members under
            constraints or other priors, before it is moved to 0; otherwise 0.
        class_factors_ (array or None): what the values of several classes are multiplied by for
            other priors.
        calibration_method_ (str): how `calibrated_proba` is calibrated.
        class_shares_ (array or None): the class shares that decisions and calibrated probabilities
            are for; None for several labels.
        certificate_ (CertifiedThreshold or None): with a confidence level, what is certified, on
            how many rows. Its `threshold` is None if nothing could be certified; predictions then
            use its `uncertified_threshold`.
        n_features_in_ (int): the number of columns.
        feature_names_in_ (array): their names, if `X` was a data frame.

    Shape:
        - `X`: `(n, columns)`, an array or a SciPy sparse matrix. A sparse matrix is never made
          dense, and gives the same numbers.
        - `y`: `(n,)`, or `(n, labels)` for several labels.

    Raises:
        ValueError: by `fit`, if a parameter is out of range, `X` or `y` contain NaN, `y` has one
            class only, no threshold satisfies the constraints, or a certificate is wanted for
            weighted rows.

    Examples:
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = AnyLossClassifier(metric="f1").fit(X, y)
        >>> int(model.pos_label_), model.score(X, y) > 0.97
        (0, True)
    """

    _seed: int
    _started: Layers

    def __init__(
        self,
        metric: MetricSpec | Metric = "f1",
        hidden_layer_sizes: Any = (),
        *,
        average: str = "auto",
        pos_label: Any = None,
        C: float = 1.0,
        folds: int = 5,
        repeats: int = 2,
        max_iter: int = 300,
        max_rows: int | None = 100_000,
        early_stopping: bool = False,
        n_iter_no_change: int = 20,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: bool = False,
        constraints: ConstraintSpec | None = None,
        confidence_level: float | None = None,
        certify_share: float = 0.2,
        calibrate: str | None = None,
        priors: Sequence[float] | None = None,
    ) -> None:
        self.metric = metric
        self.hidden_layer_sizes = hidden_layer_sizes
        self.average = average
        self.pos_label = pos_label
        self.C = C
        self.folds = folds
        self.repeats = repeats
        self.max_iter = max_iter
        self.max_rows = max_rows
        self.early_stopping = early_stopping
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.constraints = constraints
        self.confidence_level = confidence_level
        self.certify_share = certify_share
        self.calibrate = calibrate
        self.priors = priors

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "layers_")

    def fit(
        self, X: Array, y: Array, sample_weight: Array | None = None,
        groups: Array | None = None, *, certify_set: tuple[Array, Array] | None = None,
    ) -> Self:  # fmt: skip
        """Fit the classifier. If fitting fails or is interrupted, the object stays unchanged.

        Args:
            X (array or sparse matrix): the training rows.
            y (array): their labels.
            sample_weight (array, optional): one weight per row.
            groups (array, optional): the group of each row, such as a customer. The rows of a group
                are held out together in the inner folds.
            certify_set (tuple, optional): a pair `(X, y)` of further rows that certify the
                constraints, in place of a share of the training rows. They must be independent of
                these, and have had no part in any choice. With `groups` it is needed.

        Returns:
            self: the fitted classifier.
        """
        with unchanged_on_error(self):
            return self._fit(X, y, sample_weight, groups, certify_set)

    def _fit(
        self, X: Array, y: Array, sample_weight: Array | None, groups: Array | None,
        certify_set: tuple[Array, Array] | None,
    ) -> Self:  # fmt: skip
        metric = find_metric(self.metric)
        hidden, promise = self._check_parameters()
        self._check_shares(promise)
        with _hint_for_text():
            X, y = validate_data(
                self, X, y, accept_sparse="csr", dtype=np.float64, ensure_min_samples=2,
                multi_output=True,
            )  # fmt: skip
        check_classification_targets(y)
        refuse_weights(promise, sample_weight)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        if groups is not None:
            check_consistent_length(X, groups)
            groups = np.unique(np.asarray(groups), return_inverse=True)[1]
            if promise.confidence_level is not None and certify_set is None:
                raise ValueError(
                    "a certificate needs independent rows, and rows of one group are not: pass "
                    "certify_set=(X, y) with one row of each of further groups, or leave out "
                    "confidence_level="
                )
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
            present = sample_weight > 0
            X, y, sample_weight = X[present], y[present], sample_weight[present]
            groups = None if groups is None else groups[present]
        fresh = check_random_state(self.random_state).randint(2**31)
        if certify_set is not None:
            check_rows_given(promise, certify_set)
            X_new = self._check_rows(certify_set[0])
            certify_set = X_new, certify_set[1]
        elif promise.confidence_level is not None:
            rows, certifying = split_rows(X.shape[0], promise, fresh)
            certify_set = X[certifying], y[certifying]
            X, y = X[rows], y[rows]
        target = read_target(y, self.metric, self.average, self.pos_label, sample_weight)
        check_task(promise, target.task)
        warn_if_one_sided(promise, metric, target.task, target.average)
        target, sample_weight = self._weigh(target, sample_weight)
        labels = target.labels
        initial = self._initial_layers([X.shape[1], *hidden, labels.shape[1]])
        # A warm start keeps the folds; new folds would score models on rows that they have seen.
        seed: int = fresh if initial is None else self._seed
        if self.max_rows is not None and X.shape[0] > self.max_rows:
            rows, sample_weight = thinned(labels, sample_weight, target.task, self.max_rows, seed)
            X, labels = X[rows], labels[rows]
            groups = None if groups is None else groups[rows]
        X, into_columns = standardise(X, sample_weight)
        with stage_progress(self.verbose) as on_step, threadpool_limits(1, user_api="blas"):
            started = start(
                X, labels, task=target.task, weight=sample_weight, groups=groups, hidden=hidden,
                C=self.C, folds=self.folds, repeats=self.repeats, initial=initial, seed=seed,
                on_step=on_step,
            )  # fmt: skip
            found = finish(
                started, self.metric, average=target.average, steps=self.max_iter,
                patience=self.n_iter_no_change if self.early_stopping else None,
                on_step=on_step, constraints=promise.constraints,
            )  # fmt: skip
        self.classes_, self.pos_label_ = target.classes, target.positive
        self.task_, self.average_ = target.task, target.average
        self._seed = seed
        self._started = [x[: self.folds * self.repeats] for x in found.layers]
        self.layers_ = into_columns(found.layers)
        self.n_iter_, self.history_ = len(found.history), found.history
        self.hard_history_ = found.checks
        self.start_score_, self.held_out_score_ = found.start_score, found.held_out_score
        self._keep_held_out(found.held_out, started.y, started.weight, started.held, seed)
        self._settle(promise, started, found, certify_set)
        return self

    def _settle(
        self, promise: Promise, started: Started, found: Ensemble,
        certify_set: tuple[Array, Array] | None,
    ) -> None:  # fmt: skip
        """Set the threshold: the constrained one of held-out rows, or one that is certified."""
        self._rule = self._fitted_rule = Rule()
        self.certificate_: CertifiedThreshold | None = None
        if not promise.constraints:
            return
        held_out, metric = (started.y[:, 0], found.held_out[:, 0]), find_metric(self.metric)
        if certify_set is None:
            best = best_threshold(
                *held_out, metric, constraints=promise.constraints, weight=started.weight
            )
            self._rule = self._fitted_rule = Rule(best.threshold)
            return
        scores = self._decide_rows(certify_set[0])[:, 0]
        labels = labels_of(certify_set[1], self.classes_, self.task_, self.pos_label_, len(scores))[
            :, 0
        ]
        tested = certified(*held_out, started.weight, labels, scores, metric, promise)
        self.certificate_, self._rule = tested, Rule(tested.used_threshold)
        self._fitted_rule = self._rule

    def _check_parameters(self) -> tuple[tuple[int, ...], Promise]:
        """Check the ranges of all parameters; return the sizes of the hidden layers."""
        promise = read_promise(self.constraints, self.confidence_level, self.certify_share)
        if self.warm_start and promise.confidence_level is not None:
            raise ValueError(
                "warm_start=True starts from models that may have seen the rows that certify; "
                f"leave it out, or confidence_level={self.confidence_level}"
            )
        if not isinstance(self.C, Real) or not 0 < self.C < np.inf:
            raise ValueError(f"C must be a positive number; got {self.C!r}")
        check_integers(self, folds=2, repeats=1, max_iter=1, n_iter_no_change=1)
        if self.max_rows is not None:
            check_integers(self, max_rows=100)
        check_average_of(self)
        sizes = self.hidden_layer_sizes
        sizes = tuple(sizes) if np.ndim(sizes) == 1 else (sizes,)
        if not all(isinstance(x, Integral) and int(x) > 0 for x in sizes):
            raise ValueError(
                "hidden_layer_sizes must be positive integers, such as (8,) or (32, 16), or () "
                f"for a linear model; got {self.hidden_layer_sizes!r}"
            )
        return tuple(int(x) for x in sizes), promise

    def _initial_layers(self, sizes: list[int]) -> Layers | None:
        """The started members of the last fit, for a warm start of the same shape."""
        if not self.warm_start or not hasattr(self, "_started"):
            return None
        shapes = [x.shape for x in self._started]
        members = self.folds * self.repeats
        wanted = [s for a, b in pairwise(sizes) for s in ((members, a, b), (members, 1, b))]
        return self._started if shapes == wanted else None

    @property
    def coef_(self) -> Array:
        """The weights of a linear model: one row per member, and per class if there are several.

        A network has no `coef_`; see `layers_`.
        """
        if len(self.layers_) > 2:
            raise AttributeError("a network has no coef_; its weights are in layers_")
        weights = self.layers_[0].swapaxes(1, 2)
        return weights[:, 0] if self.task_ == "binary" else weights

    @property
    def threshold_(self) -> float:
        """The threshold under constraints or other priors, before it is moved to 0."""
        return self._rule.threshold

    @property
    def class_factors_(self) -> Array | None:
        """What the values of several classes are multiplied by for other priors."""
        return self._rule.factors

    def _check_fitted(self) -> None:
        check_is_fitted(self)

    def _check_rows(self, X: Array) -> Array:
        return validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)

    def _values(self, X: Array) -> Array:
        check_is_fitted(self)
        return self._decide_rows(self._check_rows(X))

    def _decide_rows(self, X: Array) -> Array:
        """The decision values of checked rows, before the threshold."""
        with threadpool_limits(1, user_api="blas"):
            return decision_values(forward(self.layers_, X)[-1], self.task_)

    def decision_function(self, X: Array) -> Array:
        """The decision values of the ensemble.

        Two classes: one number per row, above 0 for the second of `classes_`. Several labels: one
        column per label, above 0 for those that are predicted. Several classes: one column per
        class, of which the highest is predicted.
        """
        values = self._decide(X)
        if self.task_ == "multiclass" and values.shape[1] == 2:
            return values[:, 1] - values[:, 0]
        if self.task_ != "binary":
            return values
        return values[:, 0] if self.pos_label_ == self.classes_[1] else -values[:, 0]

    def predict(self, X: Array) -> Array:
        """The predicted class of each row; for several labels a matrix of 0 and 1."""
        decision = self.decision_function(X)
        if self.task_ == "binary" and self.pos_label_ == self.classes_[0]:
            # A decision value of exactly 0 predicts the negative class, as in every metric here.
            return self.classes_[(decision >= 0).astype(int)]
        if self.task_ == "multilabel":
            return (decision > 0).astype(int)
        if decision.ndim == 1:
            return self.classes_[(decision > 0).astype(int)]
        return self.classes_[decision.argmax(axis=1)]

    def predict_proba(self, X: Array) -> Array:
        """The decision values moved to 0 .. 1, one column per class, or calibrated probabilities.

        They are calibrated if the classifier has `calibrate=`; `calibrated_proba` always is.
        """
        check_is_fitted(self)
        if self.calibrate is not None:
            return self.calibrated_proba(X)
        if self.task_ == "multiclass":
            return self._decide(X)
        decision = self.decision_function(X)
        second = (1 + decision) / 2
        return second if self.task_ == "multilabel" else np.column_stack([1 - second, second])

    def score(self, X: Array, y: Array, sample_weight: Array | None = None) -> float:
        """The metric of the predictions for `X`."""
        decision = self._decide(X)
        labels = labels_of(y, self.classes_, self.task_, self.pos_label_, len(decision))
        weight = self._weights_of_score(labels, sample_weight)
        target = new_target(labels, self.metric, self.task_, self.average_, weight)
        return target.score(decision)

    def save(self, path: Path | str) -> None:
        """Write the fitted model to a folder of JSON and safetensors files."""
        check_is_fitted(self)
        save_model(path, KIND, *saving.network_parts(self))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a model that was written by `save`."""
        model: Self = saving.read_network(cls, *load_model(path, KIND), path)
        return model


@contextmanager
def _hint_for_text() -> Iterator[None]:
    """Add to errors about text the estimator that accepts it."""
    try:
        yield
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        hint = "for columns of text use anyloss.tabular.for_tables(AnyLossClassifier(...))"
        raise ValueError(f"{error}; {hint}") from None
