"""The boosting classifiers in a folder: a description, and models in the library's own format."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from anyloss.boosting import parameters
from anyloss.boosting.libraries import Library
from anyloss.boosting.trees import TreeEnsemble
from anyloss.recipe.constrained import certificate_from_json, certificate_to_json
from anyloss.recipe.folder import (
    ARRAYS,
    Writer,
    array_writer,
    labels_from_json,
    labels_to_json,
    load_model,
    metric_from_json,
    metric_to_json,
)


def parts_of(model: Any) -> tuple[dict[str, Any], dict[str, Writer]]:
    """The description of a fitted classifier, and the files of its models with their writers."""
    found, given = model.models_, model.get_params() | {"metric": None}
    missing = [key for key, x in given.items() if isinstance(x, float) and math.isnan(x)]
    parameters_given = {  # the default of `missing` in XGBoost is NaN
        key: parameters.to_json(key, x) for key, x in given.items() if key not in missing
    }
    positive = model.pos_label_
    shares, arrays = model._shares_to_save()
    description = {
        "parameters": {
            **parameters_given,
            "metric": metric_to_json(model.metric),
            "constraints": model._check_parameters().texts,
        },
        "certificate": certificate_to_json(model.certificate_),
        "shares": shares,
        "classes": labels_to_json(model.classes_),
        "positive": None if positive is None else int((model.classes_ == positive).argmax()),
        "task": {"name": model.task_, "average": model.average_},
        "members": {
            kind: _constants(members, model.task_) for kind, members in _kinds(found).items()
        },
        "margin": {"offset": parameters.to_json("offset", found.offset), "share": found.share},
        "scores": {"start": model.start_score_, "held_out": model.held_out_score_},
        "columns": {
            "count": model.n_features_in_,
            "names": list(getattr(model, "feature_names_in_", [])) or None,
            "texts": model._texts,
        },
    }
    files: dict[str, Writer] = {ARRAYS: array_writer(arrays)}
    for kind, members in _kinds(found).items():
        for k, member in enumerate(members):
            for end, x in _files(member, model.task_, model.library.suffix).items():
                files[f"{kind}-{k}{end}"] = partial(model.library.save, x)
    return description, files


def _kinds(found: TreeEnsemble) -> dict[str, list[Any]]:
    return {"start": found.started, "refined": found.refined, "whole": found.whole}


def _files(member: Any, task: str, suffix: str) -> dict[str, Any]:
    """The models of the library that a member consists of, by the end of their file's name."""
    if task != "multilabel":
        return {suffix: member}
    return {f"-{k}{suffix}": x for k, x in enumerate(member) if not isinstance(x, float)}


def _constants(members: list[Any], task: str) -> list[Any]:
    """For each member None, or the margins of the labels that have no model."""
    if task != "multilabel":
        return [None] * len(members)
    return [[x if isinstance(x, float) else None for x in member] for member in members]


def read(kind: Any, path: Path | str) -> Any:
    """Read a classifier of a class from a folder."""
    stored, arrays = load_model(path, kind.__name__)
    try:
        stored["parameters"]["metric"] = metric_from_json(stored["parameters"]["metric"])
        model = kind(**stored["parameters"])
        scores = stored["scores"]["start"], stored["scores"]["held_out"]
        model.task_, model.average_ = stored["task"]["name"], stored["task"]["average"]
        members, offset = stored["members"], stored["margin"]["offset"]
        started, refined, whole = (
            _members(model.library, path, name, members[name], model._library_parameters)
            for name in ("start", "refined", "whole")
        )
        offset = np.array(offset) if isinstance(offset, list) else offset
        share = stored["margin"]["share"]
        model.models_ = TreeEnsemble(started, refined, offset, share, *scores, whole)
        model.classes_ = labels_from_json(stored["classes"])
        positive = stored["positive"]
        model.pos_label_ = None if positive is None else model.classes_[positive]
        names, model.n_features_in_ = stored["columns"]["names"], stored["columns"]["count"]
        model._texts = stored["columns"]["texts"]
        model.certificate_ = certificate_from_json(stored["certificate"])
        model._shares_from_saved(stored["shares"], arrays)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"{path} is not a complete model folder: {error!r}") from None
    model.start_score_, model.held_out_score_ = scores
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    return model


def _members(
    library: Library, path: Path | str, kind: str, members: list[Any], given: dict[str, Any]
) -> list[Any]:
    def load(end: str) -> Any:
        return library.load(Path(path) / f"{kind}-{end}{library.suffix}", given)

    def member(k: int, constants: list[Any] | None) -> Any:
        if constants is None:
            return load(f"{k}")
        return [load(f"{k}-{j}") if x is None else x for j, x in enumerate(constants)]

    try:
        return [member(k, constants) for k, constants in enumerate(members)]
    except Exception as error:  # each library has its own
        raise ValueError(f"{path} cannot be read, it may be damaged: {error}") from None
