"""The model folder: `model.json` describes the model, other files hold its numbers.

The numbers are in `arrays.safetensors`, or in a library's own files, which the description lists.
No file can run code when it is read. A folder is written to a temporary place and then moved. Its
description holds the SHA-256 of each file and of itself, so that a changed folder is refused.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.formula import Formula
from anyloss._core.outputs import NotWritten, target_of
from anyloss.metrics import METRICS, Metric, MetricSpec, cost_matrix
from anyloss.metrics import metric as find_metric

VERSION = 2
DESCRIPTION, ARRAYS = "model.json", "arrays.safetensors"
Writer = Callable[[Path], Any]


@contextmanager
def unchanged_on_error(model: Any) -> Iterator[None]:
    """Restore the attributes of a model if the block fails or is interrupted."""
    before = dict(vars(model))
    try:
        yield
    except BaseException:
        model.__dict__.clear()
        model.__dict__.update(before)
        raise


def save_model(
    path: Path | str, kind: str, description: dict[str, Any], arrays: dict[str, Array]
) -> None:
    """Write a model folder of arrays."""
    save_folder(path, kind, description, {ARRAYS: array_writer(arrays)})


def array_writer(arrays: Mapping[str, Array]) -> Writer:
    """What writes arrays to a file."""
    from safetensors.numpy import save

    whole = {key: np.ascontiguousarray(value) for key, value in arrays.items()}
    # Written by Python, so that a full disk is an OSError.
    return lambda file: file.write_bytes(save(whole))


def save_folder(
    path: Path | str,
    kind: str,
    description: dict[str, Any],
    files: Mapping[str, Writer],
    extras: Mapping[str, Writer] | None = None,
) -> None:
    """Write a model folder. It replaces an older model folder, but nothing else.

    `files` are the names of files (or folders) and the functions that write them. `extras` lie
    beside the model, such as its report; the model can be loaded without them.
    """
    path, extras = target_of(Path(path)), extras or {}
    _refuse_other(path)
    about = {"anyloss": VERSION, "kind": kind, **description, "extras": sorted(extras)}
    temporary = _beside(path)
    try:
        for name, write in files.items():
            write(temporary / name)
        about["files"] = {name: _digest_of_file(temporary / name) for name in _all_files(temporary)}
        for name, write in extras.items():
            write(temporary / name)
        about["seal"] = _seal(about)
        text = json.dumps(about, indent=2, allow_nan=False)
        (temporary / DESCRIPTION).write_text(text + "\n", encoding="utf-8")
        _move(temporary, path)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError | NotWritten):  # the latter for a file of the folder
            raise NotWritten(path, error) from None
        raise


def check_place(path: Path) -> None:
    """Raise an error if a path is taken by something other than a model folder, or not writable.

    >>> check_place(Path("/"))
    Traceback (most recent call last):
        ...
    ValueError: / exists and is not a model folder; choose another path
    """
    path = target_of(path)
    _refuse_other(path)
    _beside(path).rmdir()


def _refuse_other(path: Path) -> None:
    if path.exists() and not _is_model_folder(path):
        raise ValueError(f"{path} exists and is not a model folder; choose another path")


def _beside(path: Path) -> Path:
    """A new hidden folder next to `path`, whose mode follows the umask."""
    place = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir()
    except OSError as error:
        raise NotWritten(path, error) from None
    return place


def _move(temporary: Path, path: Path) -> None:
    """Move a folder to its path, so that no incomplete folder is ever visible there."""
    if not path.exists():
        temporary.rename(path)
        return
    old = _beside(path)
    try:
        path.rename(old / path.name)
        temporary.rename(path)
    except BaseException:  # also an interrupt between the two
        if not path.exists():
            (old / path.name).rename(path)
        old.rmdir()  # empty: the older model is never deleted here
        raise
    shutil.rmtree(old, ignore_errors=True)


def _all_files(folder: Path) -> list[str]:
    return sorted(x.relative_to(folder).as_posix() for x in folder.rglob("*") if x.is_file())


def _digest_of_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _seal(about: dict[str, Any]) -> str:
    """The SHA-256 of a description without its seal."""
    rest = {key: value for key, value in about.items() if key != "seal"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _is_model_folder(path: Path) -> bool:
    """Whether a folder holds a model and no other files."""
    try:
        stored = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
        return set(_all_files(path)) <= {DESCRIPTION, *stored["files"], *stored["extras"]}
    except (OSError, ValueError, TypeError, KeyError):
        return False


def load_model(path: Path | str, kind: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read a model folder: its description and its arrays."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    description = load_description(path, kind)
    _require_file(Path(path), ARRAYS)
    try:
        return description, load_file(Path(path) / ARRAYS)
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read and may be damaged: {error}") from None


def load_description(path: Path | str, kind: str) -> dict[str, Any]:
    """Read `model.json`, and check that it and its files are unchanged."""
    path = Path(path)
    _require_file(path, DESCRIPTION)
    try:
        about = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read and may be damaged: {error}") from None
    if not isinstance(about, dict) or about.get("anyloss") != VERSION:
        raise ValueError(
            f"{path} is not a model folder of version {VERSION}: fit the model and save it again"
        )
    if about.get("kind") != kind:
        raise ValueError(
            f"{path} holds a model of kind {about.get('kind')!r}, not {kind!r}; load it with the "
            "class or function of that name"
        )
    if about.get("seal") != _seal(about):
        raise _changed(path, DESCRIPTION)
    for name, digest in about["files"].items():
        _require_file(path, name)
        if _digest_of_file(path / name) != digest:
            raise _changed(path, name)
    return about


def _changed(path: Path, name: str) -> ValueError:
    return ValueError(
        f"{path}: {name} was changed since it was saved, or may be damaged; fit the model and save "
        "it again"
    )


def _require_file(path: Path, name: str) -> None:
    if not (path / name).is_file():
        raise ValueError(f"{path} is not a model folder: it has no {name}")


def metric_to_json(spec: MetricSpec | Metric) -> str | dict[str, Any]:
    """A metric as JSON: a name or formula, a name with its parameters, or a matrix of costs.

    >>> metric_to_json(find_metric("fbeta", beta=2))
    {'name': 'fbeta', 'params': {'beta': 2}}
    """
    if isinstance(spec, str):
        return spec
    chosen = find_metric(spec)
    if chosen.cost_matrix is not None:
        return {"costs": [list(row) for row in chosen.cost_matrix.costs]}
    if chosen.second_is_positive:
        return {"costs": [[0.0, chosen.params["fp_cost"]], [chosen.params["fn_cost"], 0.0]]}
    formula = isinstance(chosen.function, Formula)
    if not formula and METRICS.get(chosen.name) is not chosen.function:
        raise ValueError(
            f"the metric {chosen.name!r} is a function and cannot be saved; write it as a formula "
            "such as 'tp / (tp + 0.3*fp + 2*fn)'"
        )
    params = {key: np.asarray(value).item() for key, value in chosen.params.items()}
    return {"name": chosen.name, "params": params}


def metric_from_json(stored: Any) -> str | Metric:
    """The inverse of `metric_to_json`."""
    if isinstance(stored, str):
        return stored
    if "costs" in stored:
        return cost_matrix(stored["costs"])
    return find_metric(stored["name"], **stored["params"])


def labels_to_json(labels: Array) -> dict[str, Any]:
    """Class labels (numbers, booleans or text) as JSON.

    >>> labels_from_json(labels_to_json(np.array(["a", "b"])))
    array(['a', 'b'], dtype='<U1')
    """
    labels = np.asarray(labels)
    values = labels.tolist()
    if labels.dtype.kind not in "iufbUO" or not all(
        isinstance(x, int | float | bool | str) for x in values
    ):
        raise ValueError(f"class labels must be numbers or text to be saved; got {labels.dtype}")
    return {"dtype": labels.dtype.str if labels.dtype.kind != "O" else "O", "values": values}


def labels_from_json(stored: dict[str, Any]) -> Array:
    """The inverse of `labels_to_json`."""
    kind = np.dtype(stored["dtype"])
    if kind.kind not in "iufbUO":
        raise ValueError(f"class labels must be numbers or text; got {stored['dtype']!r}")
    return np.array(stored["values"], dtype=kind)
