"""What `TunedDecisionClassifierCV.fit` was given: checked rows, weights and routed parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils import Bunch, check_random_state, column_or_1d
from sklearn.utils.metadata_routing import _raise_for_params, _routing_enabled, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    _check_y,
    _num_samples,
    check_is_fitted,
    indexable,
)

from anyloss._core.backend import Array
from anyloss.recipe.constrained import Promise, refuse_weights, split_rows
from anyloss.sklearn.folds import is_list_of_splits, of_rows, part_of, without_weight_zero


class Given(NamedTuple):
    """The training rows without those of weight 0, and the rows and labels that certify."""

    X: Array
    y: Array
    weight: Array | None
    routed: Bunch  # the parameters of the estimator's `fit` and of the splitter's `split`
    cv: Any
    certifying: tuple[Array, Array] | None


def read_rows(model: Any, X: Array, y: Array, params: dict[str, Any], promise: Promise) -> Given:
    """Check what `fit` received, and set apart the rows that certify."""
    if not _routing_enabled():
        _raise_for_params(params, model, "fit", allow=["sample_weight", "groups"])
    if y is None:
        raise ValueError(
            f"{type(model).__name__} requires y to be passed, but the target y is None"
        )
    X, y = indexable(X, y)
    checked = _check_y(y, multi_output=True)
    check_classification_targets(checked)
    if checked.ndim == 2 and checked.shape[1] == 1:
        column_or_1d(checked, warn=True)
    routed, cv = _routed(model, params), model.cv
    if is_list_of_splits(cv):
        cv = list(cv)
    weight = routed.fit.get("sample_weight")
    refuse_weights(promise, weight)
    if weight is not None:
        weight = _check_sample_weight(weight, X, ensure_non_negative=True)
        if not weight.all():
            X, y, weight, routed, cv = without_weight_zero(X, y, weight, routed, cv)
    certifying = None
    if promise.confidence_level is not None:
        seed, groups = check_random_state(model.random_state), routed.split.get("groups")
        rows, kept = split_rows(_num_samples(X), promise, seed.randint(2**31), groups)
        certifying = part_of(X, y, kept)
        X, y, routed = of_rows(X, y, rows, routed)
    return Given(X, y, weight, routed, cv, certifying)


def _routed(model: Any, params: dict[str, Any]) -> Bunch:
    if _routing_enabled():
        routed = process_routing(model, "fit", **params)
        return Bunch(fit=routed.estimator.fit, split=routed.splitter.split)
    given = {name: value for name, value in params.items() if value is not None}
    groups = {"groups": given.pop("groups")} if "groups" in given else {}
    return Bunch(fit=given, split=groups)


def classes_of_fitted(estimator: Any) -> Array | None:
    """The classes of a fitted estimator; None for several labels."""
    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        raise NotFittedError("cv='prefit' needs a fitted estimator; fit it first") from error
    known = getattr(estimator, "classes_", None)
    return None if known is None or isinstance(known, list) else np.asarray(known)
