"""Decisions for any classifier: a meta-estimator that tunes its decision rule for a metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from anyloss._core.backend import Array
from anyloss._core.constraints import ConstraintSpec
from anyloss._core.functions import score as core_score
from anyloss._core.scoring import check_average
from anyloss._core.shapes import Layout
from anyloss.certificates import CertifiedThreshold
from anyloss.decisions import Decision, Found
from anyloss.decisions.averaging import ADOPTIONS, Adopt
from anyloss.decisions.labels import SHARINGS, Sharing
from anyloss.decisions.search import best_decision
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.recipe.constrained import (
    Promise,
    certified,
    check_task,
    read_promise,
    warn_if_one_sided,
)
from anyloss.recipe.folder import load_model, save_model, unchanged_on_error
from anyloss.recipe.labels import Labels, labels_of, read_target
from anyloss.sklearn import saving
from anyloss.sklearn.checks import check_average_of, check_integers
from anyloss.sklearn.folds import fitted, is_list_of_splits, out_of_fold, splitter
from anyloss.sklearn.given import Given, classes_of_fitted, read_rows
from anyloss.sklearn.responses import Responses, Wanted, responses
from anyloss.thresholds import sweep

KIND = "TunedDecisionClassifierCV"
METHODS = ("predict_proba", "decision_function")


def _estimator_has(name: str) -> Any:
    """Whether the wrapped estimator, fitted or not, has a method."""

    def check(self: Any) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), name)
        return True

    return check


class TunedDecisionClassifierCV(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Any classifier, with the decision rule that is best for a metric.

    The scores of rows that the estimator was not fitted on, from all folds together, decide the
    rule; the estimator is then fitted on all rows. Two classes have one threshold, found by an
    exact sweep. Several labels have a threshold each. Several classes have gains and offsets: the
    class `argmax_k (a_k p_k + b_k)` is predicted. docs/decisions.md explains how they are found and
    what is guaranteed.

    scikit-learn's `TunedThresholdClassifierCV` is for two classes and takes a scorer; this class is
    also for several classes and labels, and takes a metric of the confusion matrix. Further
    differences: `best_score_` is the score of all held-out rows together, not a mean over folds;
    every threshold is tried, not 100 of them; `pos_label` is the rarer class by default;
    `decision_function` returns decision values that agree with `predict`; and `score` is the
    metric. `predict_proba` is that of the estimator in both.

    Args:
        estimator (estimator): a classifier with `predict_proba` or `decision_function`.
        metric (str, callable or Metric): a name, a formula or a function of `tp, fn, fp, tn`, or a
            matrix of costs (`anyloss.cost_matrix`). Default: `"f1"`.
        average (str): how several classes or labels are combined: `"macro"`, `"micro"`,
            `"weighted"`, or `"multiclass"` for a metric with a multiclass form. `"auto"`, the
            default, is the metric's own form if it has one, else `"macro"`. For two classes it is
            the metric of `pos_label`.
        pos_label (Any): the positive one of two classes. Default: the rarer class of `y`.
        cv (int, float, cross-validator, iterable or "prefit"): how rows are held out: the number of
            folds, the share of a single held-out part, or what scikit-learn's `cv` takes.
            `"prefit"`: the estimator is fitted, and all rows given to `fit` are held out.
            Default: 5.
        refit (bool): whether the estimator is fitted on all rows; False keeps that of a single
            split. `cv="prefit"` does not refit. Default: True.
        n_jobs (int or None): the number of folds that are fitted at the same time.
        response_method (str): `"predict_proba"`, `"decision_function"`, or the first of the two
            that the estimator has (`"auto"`, the default).
        label_thresholds (str): the thresholds of several labels: `"per_label"`, `"shared"` (one for
            all), or `"shrunk"`, the default: between the two, and the nearer to the shared one the
            fewer positives a label has.
        max_evaluations (int): how often the rows may be passed over in the search for several
            classes. Default: 500.
        n_parts (int): several classes have a mean of rules: the best one of all held-out rows, and
            the best ones without each of this many parts of them. It depends less on single rows
            than the best rule does. 1 is the best rule alone, as two classes, costs, and more
            classes than `max_evaluations` suffices for (20 by default) have it. Default: 5.
        adopt (str): when the mean rule of several classes replaces the arg-max: `"best"`, the
            default, if it is not worse on the held-out rows; `"clear"`, if the rules that it
            consists of are better by more than a standard error on the parts that they left out.
            "clear" is for models whose arg-max is hard to beat, such as boosted trees on few rows.
        store_cv_results (bool): whether to keep what was compared in `cv_results_`. Default: False.
        random_state (int, RandomState or None): the seed of the held-out part if `cv` is a share,
            and of the rows that certify.
        constraints (str or list of str, optional): constraints for two classes, such as
            `"recall >= 0.9"`, each a metric (a name or a formula), `>=` or `<=`, and a number. The
            rule is then the best one among those that satisfy them on held-out rows.
        confidence_level (float, optional): the confidence with which the constraints shall hold on
            new data, such as 0.95. Some of the rows are then set apart, and only used to certify
            the classifier, which is fitted on the others. None, the default, promises nothing.
        certify_share (float): the share of the rows that is set apart, at random. With `groups`, it
            is the share of the groups, one random row of each is used, and no other row of it
            trains. Default: 0.2.

    Attributes:
        best_decision_ (Decision): the decision rule, with `thresholds`, or `gains` and `offsets`.
        best_score_ (float): the metric of the held-out rows under this rule. The rule was chosen on
            the same rows, so it is optimistic.
        cv_results_ (dict): for two classes all `thresholds` and their `scores`; otherwise the names
            (`rules`), `decisions` and `scores` of the rules that were compared, the number of
            `evaluations`, and the `mixture_score` of the random mixture of rules that the linear
            approximations end with (None for labels and costs).
        certificate_ (CertifiedThreshold or None): with a confidence level, what is certified, on
            how many rows. Its `threshold` is None if nothing could be certified; predictions then
            use its `uncertified_threshold`. It is about `estimator_` as it is: a classifier that is
            fitted again has no certificate.
        estimator_ (estimator): the fitted classifier.
        classes_ (array): the classes, or the numbers of the labels.
        pos_label_ (Any): the positive class; None unless the task is binary.
        task_ (str): `"binary"`, `"multilabel"` or `"multiclass"`.
        average_ (str): the average that is used.
        n_features_in_ (int): the number of columns, if the estimator has it.
        feature_names_in_ (array): their names, if the estimator has them.

    Shape:
        - `X`: whatever the estimator takes.
        - `y`: `(n,)`, or `(n, labels)` of 0 and 1 for several labels.

    Raises:
        ValueError: by `fit`, if a parameter is out of range, `y` has one class only, the scores do
            not fit the classes, no threshold satisfies the constraints, or a certificate is wanted
            for weighted rows.
        NotFittedError: by `fit`, if `cv="prefit"` and the estimator is not fitted.

    Examples:
        >>> from sklearn.datasets import load_wine
        >>> from sklearn.naive_bayes import GaussianNB
        >>> X, y = load_wine(return_X_y=True)
        >>> model = TunedDecisionClassifierCV(GaussianNB(), "f1").fit(X[:, :2], y)
        >>> model.average_, model.best_decision_.gains.shape, model.best_score_ > 0.8
        ('macro', (3,), True)
    """

    def __init__(
        self,
        estimator: Any,
        metric: MetricSpec | Metric = "f1",
        *,
        average: str = "auto",
        pos_label: Any = None,
        cv: Any = 5,
        refit: bool = True,
        n_jobs: int | None = None,
        response_method: Literal["auto", "predict_proba", "decision_function"] = "auto",
        label_thresholds: Sharing = "shrunk",
        max_evaluations: int = 500,
        n_parts: int = 5,
        adopt: Adopt = "best",
        store_cv_results: bool = False,
        random_state: Any = None,
        constraints: ConstraintSpec | None = None,
        confidence_level: float | None = None,
        certify_share: float = 0.2,
    ) -> None:
        self.estimator = estimator
        self.metric = metric
        self.average = average
        self.pos_label = pos_label
        self.cv = cv
        self.refit = refit
        self.n_jobs = n_jobs
        self.response_method = response_method
        self.label_thresholds = label_thresholds
        self.max_evaluations = max_evaluations
        self.n_parts = n_parts
        self.adopt = adopt
        self.store_cv_results = store_cv_results
        self.random_state = random_state
        self.constraints = constraints
        self.confidence_level = confidence_level
        self.certify_share = certify_share

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags.sparse = inner.input_tags.sparse
        if inner.classifier_tags is not None:
            tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
            tags.classifier_tags.multi_label = inner.classifier_tags.multi_label
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_decision_")

    def get_metadata_routing(self) -> MetadataRouter:
        """Route `fit`'s metadata to the estimator's `fit` and to the splitter."""
        to_fit = MethodMapping().add(callee="fit", caller="fit")
        to_split = MethodMapping().add(callee="split", caller="fit")
        return (
            MetadataRouter(owner=self)
            .add(estimator=self.estimator, method_mapping=to_fit)
            .add(splitter=self.cv, method_mapping=to_split)
        )

    def fit(self, X: Array, y: Array, **params: Any) -> Self:
        """Tune the decision rule. If fitting fails or is interrupted, the object stays unchanged.

        Args:
            X (array, sparse matrix or data frame): the training rows.
            y (array): their labels.
            **params: `sample_weight` goes to the estimator and weighs the rows in the metric (for
                several classes, a weight of 2 may give another rule than the row twice), and
                `groups` goes to the splitter. With metadata routing enabled, these and others go
                where they are requested; the weights of the estimator weigh in the metric too.

        Returns:
            self: the fitted classifier.
        """
        with unchanged_on_error(self):
            return self._fit(X, y, params)

    def _fit(self, X: Array, y: Array, params: dict[str, Any]) -> Self:
        promise = self._check_parameters()
        for name in ("cv_results_", "n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                delattr(self, name)  # of an earlier fit
        given = read_rows(self, X, y, params, promise)
        prefit = isinstance(self.cv, str) and self.cv == "prefit"
        known = classes_of_fitted(self.estimator) if prefit else None
        target = read_target(
            given.y, self.metric, self.average, self.pos_label, given.weight, known
        )
        metric = find_metric(self.metric)
        check_average(metric, target.average)
        check_task(promise, target.task)
        warn_if_one_sided(promise, metric, target.task, target.average)
        wanted = Wanted(self._methods(), target.task, target.classes, target.positive)
        if prefit:
            self.estimator_ = self.estimator
            rows = np.arange(_num_samples(given.X))
            held_out = responses(self.estimator, given.X, wanted)
        else:
            rows, held_out = self._fit_estimator(given, wanted)
        weight = np.ones(len(rows)) if given.weight is None else given.weight[rows]
        self._tune(target, target.labels[rows], held_out, weight, promise)
        self.certificate_: CertifiedThreshold | None = None
        if given.certifying is not None:
            self._certify(target.labels[rows, 0], held_out.scores[:, 0], given.certifying, promise)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def _fit_estimator(self, given: Given, wanted: Wanted) -> tuple[Array, Responses]:
        """Fit the estimator; return the held-out rows and their scores."""
        X, y, fit_params = given.X, given.y, given.routed.fit
        found = splitter(given.cv, y, wanted.task, self.random_state)
        splits = list(found.split(X, y, **given.routed.split))
        if not splits:
            raise ValueError("cv must give at least one split; got none (a used generator?)")
        if not self.refit and len(splits) > 1:
            raise ValueError(
                f"refit=False keeps the estimator of a single split; got {len(splits)} splits. "
                "Use refit=True, or a share such as cv=0.2"
            )
        held_out = out_of_fold(self.estimator, X, y, splits, fit_params, wanted, n_jobs=self.n_jobs)
        train = None if self.refit else splits[0][0]
        self.estimator_ = fitted(clone(self.estimator), X, y, train, fit_params)
        return held_out

    def _certify(
        self, y: Array, scores: Array, given: tuple[Array, Array], promise: Promise
    ) -> None:
        """Test the candidates of held-out scores on the rows that were set apart; keep the best."""
        X, classes = given
        new = self._scores(X)[:, 0]
        labels = labels_of(classes, self.classes_, self.task_, self.pos_label_, len(new))[:, 0]
        metric = find_metric(self.metric)
        found = certified(y, scores, None, labels, new, metric, promise)
        self.certificate_, threshold = found, found.used_threshold
        self.best_decision_ = Decision(thresholds=np.array([threshold]))
        self.best_score_ = float(core_score(y, (scores > threshold) * 1.0, metric))

    def _tune(
        self, target: Labels, y: Array, held_out: Responses, weight: Array, promise: Promise
    ) -> None:
        """Find the rule for held-out scores, and keep it."""
        metric = find_metric(self.metric)
        lay = Layout(target.task, target.average, y.shape[1])
        found = best_decision(
            y, held_out.scores, metric, lay, weight=weight, sharing=self.label_thresholds,
            probabilities=held_out.probabilities, max_evaluations=self.max_evaluations,
            parts=self.n_parts, adopt=self.adopt,
            constraints=promise.constraints, required=promise.confidence_level is None,
        )  # fmt: skip
        self.classes_, self.pos_label_ = target.classes, target.positive
        self.task_, self.average_ = target.task, target.average
        self.best_decision_, self.best_score_ = found.decision, found.score
        if self.store_cv_results:
            self.cv_results_ = (
                _all_thresholds(y[:, 0], held_out.scores[:, 0], weight, metric)
                if target.task == "binary"
                else _compared(found)
            )

    def _check_parameters(self) -> Promise:
        find_metric(self.metric)
        check_average_of(self)
        for name, allowed in (
            ("response_method", ["auto", *METHODS]), ("label_thresholds", list(SHARINGS)),
            ("adopt", list(ADOPTIONS)), ("refit", [True, False]),
        ):  # fmt: skip
            value = getattr(self, name)
            if not any(value is x or value == x for x in allowed):
                raise ValueError(f"{name} must be one of {allowed}; got {value!r}")
        check_integers(self, max_evaluations=1, n_parts=1)
        if isinstance(self.cv, str) and self.cv != "prefit":
            raise ValueError(
                "cv must be a number of folds, a share, a cross-validator, splits or 'prefit'; got "
                f"{self.cv!r}"
            )
        promise = read_promise(self.constraints, self.confidence_level, self.certify_share)
        if promise.confidence_level is not None and is_list_of_splits(self.cv):
            raise ValueError(
                "with confidence_level=, some rows are set apart before the splits, so that cv "
                "cannot be a list of splits; pass a number of folds or a cross-validator"
            )
        return promise

    def _methods(self) -> list[str]:
        return list(METHODS) if self.response_method == "auto" else [self.response_method]

    def _scores(self, X: Array) -> Array:
        check_is_fitted(self)
        wanted = Wanted(self._methods(), self.task_, self.classes_, self.pos_label_)
        return responses(self.estimator_, X, wanted).scores

    def predict(self, X: Array) -> Array:
        """The predicted class of each row; for several labels a matrix of 0 and 1."""
        scores = self._scores(X)
        decided = self.best_decision_.decide(scores)
        if self.task_ == "multilabel":
            return decided
        if self.task_ == "multiclass":
            return self.classes_[decided]
        positive = self.classes_ == self.pos_label_
        return np.where(decided[:, 0] == 1, self.classes_[positive], self.classes_[~positive])

    def decision_function(self, X: Array) -> Array:
        """The decision values, which agree with `predict`.

        Two classes: one number per row, above 0 for the second of `classes_` (not below 0, if the
        first one is positive). Several labels: one column per label, above 0 for those that are
        predicted. Several classes: one column per class, of which the highest is predicted.
        """
        scores = self._scores(X)
        values = self.best_decision_.values(scores)
        if self.task_ == "multiclass" and values.shape[1] == 2:
            return values[:, 1] - values[:, 0]
        if self.task_ != "binary":
            return values
        return values[:, 0] if self.pos_label_ == self.classes_[1] else -values[:, 0]

    @available_if(_estimator_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Array) -> Array:
        """The probabilities of the estimator, unchanged."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @available_if(_estimator_has("predict_log_proba"))  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Array) -> Array:
        """The logarithms of the estimator's probabilities, unchanged."""
        check_is_fitted(self)
        return self.estimator_.predict_log_proba(X)

    def score(self, X: Array, y: Array, sample_weight: Array | None = None) -> float:
        """The metric of the predictions for `X`."""
        scores = self._scores(X)
        labels = labels_of(y, self.classes_, self.task_, self.pos_label_, len(scores)) * 1.0
        decided = self.best_decision_.decide(scores)
        if self.task_ == "multiclass":
            decided = np.arange(len(self.classes_)) == decided[:, None]
        one = self.task_ == "binary"
        return float(
            core_score(
                labels[:, 0] if one else labels,
                decided[:, 0] * 1.0 if one else decided * 1.0,
                find_metric(self.metric),
                average=self.average_,
                weight=sample_weight,
                task=self.task_,  # type: ignore[arg-type]
            )
        )

    def save(self, path: Path | str) -> None:
        """Write the decision rule, without the estimator, to a folder of JSON and safetensors."""
        check_is_fitted(self)
        save_model(path, KIND, *saving.rule_parts(self))

    @classmethod
    def load(cls, path: Path | str, *, estimator: Any = None) -> Self:
        """Read a rule that was written by `save`, for the fitted estimator that it was tuned for.

        The estimator is not in the folder: there is no way to save any estimator without pickle.
        The loaded classifier has `cv="prefit"`.
        """
        if estimator is None:
            raise ValueError(
                f"{path} holds the decision rule and not the estimator, which only its own library "
                "can save; pass the fitted one, as in load(path, estimator=model)"
            )
        model: Self = saving.read_rule(cls, *load_model(path, KIND), path, estimator)
        known = classes_of_fitted(estimator)
        given, wanted = None if known is None else known.tolist(), model.classes_.tolist()
        if model.task_ != "multilabel" and given != wanted:
            raise ValueError(
                f"the rule is for an estimator of the classes {wanted}; got one of {given}"
            )
        model.estimator_ = estimator
        return model


def _all_thresholds(y: Array, s: Array, weight: Array, metric: Metric) -> dict[str, Any]:
    cuts, counts = sweep(y, np.asarray(s, dtype=float), weight)
    return {"thresholds": cuts, "scores": np.broadcast_to(metric(*counts), cuts.shape)}


def _compared(found: Found) -> dict[str, Any]:
    decisions, scores = zip(*found.candidates.values(), strict=True)
    return {
        "rules": list(found.candidates),
        "decisions": list(decisions),
        "scores": np.array(scores),
        "evaluations": found.evaluations,
        "mixture_score": found.mixture_score,
    }
