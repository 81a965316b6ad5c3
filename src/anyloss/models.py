"""The model folder: `model.json` says what it is, other files hold the numbers.

The numbers are in `arrays.safetensors`, or in a library's own files, which the description lists.
None can run code when it is read. A folder is written aside and then moved into place.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from anyloss.arithmetic import Array
from anyloss.metrics import METRICS, Metric, MetricSpec
from anyloss.metrics import metric as find_metric

VERSION = 1
DESCRIPTION, ARRAYS = "model.json", "arrays.safetensors"


@contextmanager
def unchanged_on_error(model: Any) -> Iterator[None]:
    """If what is done here fails, or is stopped, the model is left as it was before."""
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
    from safetensors.numpy import save_file

    whole = {key: np.ascontiguousarray(value) for key, value in arrays.items()}
    save_folder(path, kind, description, {ARRAYS: lambda file: save_file(whole, file)})


def save_folder(
    path: Path | str,
    kind: str,
    description: dict[str, Any],
    files: Mapping[str, Callable[[Path], None]],
) -> None:
    """Write a model folder; an older model folder at that place is replaced, nothing else is.

    `files` are their names and the functions that write them.
    """
    path = Path(path)
    if path.exists() and not _is_model_folder(path):
        raise ValueError(f"{path} exists and is not a model folder; choose another path")
    if set(files) != {ARRAYS}:
        description = description | {"files": sorted(files)}
    text = json.dumps({"anyloss": VERSION, "kind": kind, **description}, indent=2, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        (aside / DESCRIPTION).write_text(text + "\n", encoding="utf-8")
        for name, write in files.items():
            write(aside / name)
        aside.chmod(0o755)
        if path.exists():
            shutil.rmtree(path)
        aside.rename(path)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _is_model_folder(path: Path) -> bool:
    """Whether a folder holds a model and nothing else."""
    names = {x.name for x in path.iterdir()}
    if names == {DESCRIPTION, ARRAYS}:
        return True
    try:
        stored = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
        return bool(names == {DESCRIPTION, *stored["files"]})
    except (OSError, ValueError, TypeError, KeyError):
        return False


def load_model(path: Path | str, kind: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read a model folder: its description and its arrays."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    description = load_description(path, kind, [ARRAYS])
    try:
        return description, load_file(Path(path) / ARRAYS)
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read, it may be damaged: {error}") from None


def load_description(path: Path | str, kind: str, files: list[str] | None = None) -> dict[str, Any]:
    """Read `model.json`; the files it lists, or those named here, must be there."""
    path = Path(path)
    _require_file(path, DESCRIPTION)
    try:
        description = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read, it may be damaged: {error}") from None
    if not isinstance(description, dict) or description.get("anyloss") != VERSION:
        raise ValueError(f"{path} is not a model folder of version {VERSION}")
    if description.get("kind") != kind:
        raise ValueError(f"{path} holds a model of kind {description.get('kind')!r}, not {kind!r}")
    for name in description.get("files", []) if files is None else files:
        _require_file(path, name)
    return description


def _require_file(path: Path, name: str) -> None:
    if not (path / name).is_file():
        raise ValueError(f"{path} is not a model folder: it has no {name}")


def metric_to_json(spec: MetricSpec | Metric) -> str | dict[str, Any]:
    """A name or formula as it is, a complete metric with its parameters.

    >>> metric_to_json(find_metric("fbeta", beta=2))
    {'name': 'fbeta', 'params': {'beta': 2}}
    """
    if isinstance(spec, str):
        return spec
    chosen = find_metric(spec)
    formula = isinstance(spec, Metric) and not chosen.name.isidentifier()
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
    return find_metric(stored["name"], **stored["params"])


def labels_to_json(labels: Array) -> dict[str, Any]:
    """Class labels: numbers, booleans or text.

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
