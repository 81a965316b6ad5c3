"""The fitted classifiers as a description and arrays, which a model folder holds, and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss.decisions import Decision
from anyloss.recipe.constrained import certificate_from_json, certificate_to_json
from anyloss.recipe.folder import (
    labels_from_json,
    labels_to_json,
    metric_from_json,
    metric_to_json,
)

SEARCH = ("max_evaluations", "n_parts", "adopt")  # how a rule is found
Stored = tuple[dict[str, Any], dict[str, Array]]


def _target_of(model: Any) -> dict[str, Any]:
    """What was predicted, and what is certified."""
    positive = model.pos_label_
    return {
        "classes": labels_to_json(model.classes_),
        "positive": None if positive is None else int((model.classes_ == positive).argmax()),
        "task": {"name": model.task_, "average": model.average_},
        "certificate": certificate_to_json(model.certificate_),
    }


def _set_target(model: Any, stored: dict[str, Any]) -> None:
    model.classes_ = labels_from_json(stored["classes"])
    positive = stored["positive"]
    model.pos_label_ = None if positive is None else model.classes_[positive]
    model.task_, model.average_ = stored["task"]["name"], stored["task"]["average"]
    model.certificate_ = certificate_from_json(stored["certificate"])


@contextmanager
def _complete(path: Path | str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"{path} is not a complete model folder: {error!r}") from None


def rule_parts(model: Any) -> Stored:
    """The description and the arrays of a fitted `TunedDecisionClassifierCV`."""
    description = {
        "metric": metric_to_json(model.metric),
        "response_method": model.response_method,
        "label_thresholds": model.label_thresholds,
        "search": {x: getattr(model, x) for x in SEARCH},
        "score": model.best_score_,
        "constraints": model._check_parameters().texts,
        "confidence_level": model.confidence_level,
        **_target_of(model),
    }
    return description, {k: x for k, x in model.best_decision_._asdict().items() if x is not None}


def read_rule(
    kind: Any, stored: dict[str, Any], arrays: dict[str, Array], path: Path | str, estimator: Any
) -> Any:
    """The `TunedDecisionClassifierCV` of a fitted estimator, before that is checked."""
    with _complete(path):
        model = kind(
            estimator, metric_from_json(stored["metric"]), average=stored["task"]["average"],
            cv="prefit", refit=False, response_method=stored["response_method"],
            label_thresholds=stored["label_thresholds"], constraints=stored["constraints"],
            confidence_level=stored["confidence_level"], **stored["search"],
        )  # fmt: skip
        _set_target(model, stored)
        model.best_decision_, model.best_score_ = Decision(**arrays), stored["score"]
        model.pos_label = model.pos_label_
    return model


def network_parts(model: Any) -> Stored:
    """The description and the arrays of a fitted `AnyLossClassifier`."""
    parameters = model.get_params() | {"metric": metric_to_json(model.metric)}
    hidden, promise = model._check_parameters()
    parameters |= {"hidden_layer_sizes": list(hidden), "constraints": promise.texts}
    parameters["priors"] = None if model.priors is None else list(map(float, model.priors))
    for key, value in parameters.items():
        value = value.item() if isinstance(value, np.generic) else value
        parameters[key] = None if isinstance(value, np.random.RandomState) else value
    shares, more = model._shares_to_save()
    description = {
        "parameters": parameters,
        "shares": shares,
        "scores": {"start": model.start_score_, "held_out": model.held_out_score_},
        "columns": list(getattr(model, "feature_names_in_", [])) or None,
        **_target_of(model),
    }
    arrays = {f"layer{k}": x for k, x in enumerate(model.layers_)}
    arrays |= {"history": model.history_, "hard_history": model.hard_history_}
    return description, arrays | more


def read_network(
    kind: Any, stored: dict[str, Any], arrays: dict[str, Array], path: Path | str
) -> Any:
    """The `AnyLossClassifier` of a description and arrays."""
    with _complete(path):
        parameters = stored["parameters"]
        parameters["metric"] = metric_from_json(parameters["metric"])
        parameters["hidden_layer_sizes"] = tuple(parameters["hidden_layer_sizes"])
        model = kind(**parameters)
        _set_target(model, stored)
        model.start_score_ = stored["scores"]["start"]
        model.held_out_score_ = stored["scores"]["held_out"]
        model.history_ = arrays.pop("history")
        model.hard_history_ = arrays.pop("hard_history")
        model._shares_from_saved(stored["shares"], arrays)
        model.layers_ = [arrays[f"layer{k}"] for k in range(len(arrays))]
        columns = stored["columns"]
    model.n_iter_, model.n_features_in_ = len(model.history_), model.layers_[0].shape[1]
    if columns is not None:
        model.feature_names_in_ = np.array(columns, dtype=object)
    return model
