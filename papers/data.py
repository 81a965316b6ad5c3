"""The data sets of AnyLoss's Table 17, from public tables, prepared as by its authors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from anyloss._core.backend import Array


class LabelledData(NamedTuple):
    """The features of a data set, ready for training, and its labels 0.0 and 1.0."""

    X: Array
    y: Array


def standardised(X: Any) -> Array:
    """Columns with mean 0 and sample standard deviation 1 over all rows.

    The test rows take part in it. That is the published protocol, and not good practice.

    >>> standardised([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]).tolist()
    [[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    """
    table = pd.DataFrame(X)
    deviation = table.std().replace(0.0, 1.0)  # a constant column becomes 0
    return np.asarray((table - table.mean()) / deviation, dtype=float)


def random_rows(folder: Path | None = None) -> LabelledData:
    """#1: made by scikit-learn and rotated by a PCA, not standardised."""
    from sklearn.datasets import make_classification
    from sklearn.decomposition import PCA

    X, y = make_classification(
        10_000, weights=[0.9, 0.1], class_sep=1.2, n_features=5, n_informative=3, n_redundant=1,
        n_clusters_per_class=1, random_state=0,
    )  # fmt: skip
    return LabelledData(PCA(2).fit_transform(X), y.astype(float))


def breast_cancer(folder: Path | None = None) -> LabelledData:
    """#3: all 357 benign rows of scikit-learn's table, and 36 of the malignant (positive) ones."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    return undersampled(found.data, found.target == 0, 36)


def undersampled(X: Any, positive: Any, keep: int) -> LabelledData:
    """All rows standardised; then all negatives, followed by a sample of the positives."""
    table = pd.DataFrame(standardised(X))
    chosen = table[positive].sample(n=keep, random_state=100)
    rest = table[~positive]
    y = np.repeat([0.0, 1.0], [len(rest), keep])
    return LabelledData(np.concatenate([rest.to_numpy(), chosen.to_numpy()]), y)


def diabetes(folder: Path | None) -> LabelledData:
    """#4: 100,000 rows of the file `diabetes_100k`, categories numbered as they appear."""
    return read_standardised(require_file(folder, "tabular/diabetes_100k.csv.gz"))


def require_file(folder: Path | None, file: str) -> Path:
    """The path of a file of the data folder, which must exist."""
    path = folder and folder / file
    if path is None or not path.exists():
        reason = "give its folder as --data FOLDER" if path is None else f"it is not in {folder}"
        raise FileNotFoundError(f"the file {file} is needed; {reason}")
    return path


def read_standardised(path: Path) -> LabelledData:
    """A file of numbers with a last column y, standardised."""
    X, y = read_samples(path)
    return LabelledData(standardised(X), y)


def read_samples(path: Path) -> LabelledData:
    """A file of numbers with a last column y."""
    table = pd.read_csv(path)
    return LabelledData(
        table.drop(columns="y").to_numpy(dtype=float), table["y"].to_numpy(dtype=float)
    )


def credit_card_2023(folder: Path | None) -> LabelledData:
    """#2: not available here."""
    raise FileNotFoundError("Credit Card Fraud 2023 (568,630 rows, Kaggle) is not available here")


# By the name on the command line: the name in published.csv, and the function that makes the data.
TABLE17: dict[str, tuple[str, Callable[[Path | None], LabelledData]]] = {
    "random": ("random_10000", random_rows),
    "credit-card-2023": ("creditcard_2023", credit_card_2023),
    "breast-cancer": ("breast_cancer_393", breast_cancer),
    "diabetes": ("diabetes_100k", diabetes),
}
