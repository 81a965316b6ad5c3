"""The data sets of AnyLoss's Table 17 as its authors prepared them, from public tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from anyloss._core.backend import Array


class Rows(NamedTuple):
    """Features, ready for training, and labels 0.0 and 1.0."""

    X: Array
    y: Array


def standardised(X: Any) -> Array:
    """Columns with mean 0 and sample standard deviation 1 over all rows, as the authors did.

    Test rows take part in it: that is the published protocol, not good practice.

    >>> standardised([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]).tolist()
    [[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    """
    table = pd.DataFrame(X)
    deviation = table.std().replace(0.0, 1.0)  # a level column stays level
    return np.asarray((table - table.mean()) / deviation, dtype=float)


def random_rows(folder: Path | None = None) -> Rows:
    """#1: made by scikit-learn, then turned by a PCA; not standardised."""
    from sklearn.datasets import make_classification
    from sklearn.decomposition import PCA

    X, y = make_classification(
        10_000, weights=[0.9, 0.1], class_sep=1.2, n_features=5, n_informative=3, n_redundant=1,
        n_clusters_per_class=1, random_state=0,
    )  # fmt: skip
    return Rows(PCA(2).fit_transform(X), y.astype(float))


def breast_cancer(folder: Path | None = None) -> Rows:
    """#3: all 357 benign rows of scikit-learn's table and 36 of the malignant ones (positive)."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    return undersampled(found.data, found.target == 0, 36)


def undersampled(X: Any, positive: Any, keep: int) -> Rows:
    """All rows standardised; then the negatives, followed by a sample of the positives."""
    table = pd.DataFrame(standardised(X))
    chosen = table[positive].sample(n=keep, random_state=100)
    rest = table[~positive]
    y = np.repeat([0.0, 1.0], [len(rest), keep])
    return Rows(np.concatenate([rest.to_numpy(), chosen.to_numpy()]), y)


def diabetes(folder: Path | None) -> Rows:
    """#4: 100,000 rows of the file `diabetes_100k`, categories numbered as they appear."""
    return read_rows(at_hand(folder, "tabular/diabetes_100k.csv.gz"))


def at_hand(folder: Path | None, file: str) -> Path:
    """The path of a file of the data folder, which must be there."""
    path = folder and folder / file
    if path is None or not path.exists():
        where = "give --data FOLDER" if path is None else f"no {path}"
        raise FileNotFoundError(f"needs the file {file}: {where}")
    return path


def read_rows(path: Path) -> Rows:
    """A file of numbers with a last column y, standardised."""
    X, y = read_numbers(path)
    return Rows(standardised(X), y)


def read_numbers(path: Path) -> Rows:
    """A file of numbers with a last column y, as they are."""
    table = pd.read_csv(path)
    return Rows(table.drop(columns="y").to_numpy(dtype=float), table["y"].to_numpy(dtype=float))


def credit_card_2023(folder: Path | None) -> Rows:
    """#2: not to be had here."""
    raise FileNotFoundError("Credit Card Fraud 2023 (568,630 rows, Kaggle) is not at hand")


# The name on the command line: the name in the file of published figures, and who makes the rows.
TABLE17: dict[str, tuple[str, Callable[[Path | None], Rows]]] = {
    "random": ("random_10000", random_rows),
    "credit-card-2023": ("creditcard_2023", credit_card_2023),
    "breast-cancer": ("breast_cancer_393", breast_cancer),
    "diabetes": ("diabetes_100k", diabetes),
}
