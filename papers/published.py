"""The figures that the papers and their authors published.

The figures of AnyLoss's Table 1 and of its four imbalanced data sets are in `published.csv`, which
names its source. The scores behind Tables 15 and 16 (102 data sets x 8 losses x 6 metrics) and the
other printed tables are read from `paper/` of a data folder.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

SCORES_FILE, TABLES_FILE = "anyloss_102_scores.csv", "tables.csv"


@lru_cache(maxsize=1)
def _figures() -> Any:
    with files(__package__).joinpath("published.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file, comment="#", dtype=str, keep_default_na=False)


def published_figures(
    table: int, dataset: str, metric: str, structure: str = "SLP"
) -> dict[str, str]:
    """The printed figures of a table of AnyLoss by loss, as text with their trailing zeros.

    >>> published_figures(17, "random_10000", "accuracy")["MSE"]
    '0.898000'
    >>> published_figures(18, "breast_cancer_393", "f1", "MLP")["L_F1"]
    '1.000000'
    >>> published_figures(1, "1e-15", "max", "")
    {'': '73.47'}
    """
    found = _figures()
    keys = {"table": str(table), "dataset": dataset, "structure": structure, "metric": metric}
    for column, value in keys.items():
        found = found[found[column] == value]
    return dict(zip(found["loss"], found["value"], strict=True))


def levels() -> list[str]:
    """The accuracy levels of Table 1.

    >>> levels()
    ['0.1', '0.01', '0.001', '1e-14', '1e-15', '1e-16']
    """
    found = _figures()
    return list(found.loc[found["table"] == "1", "dataset"].unique())


def authors_scores(folder: Path, structure: str = "SLP") -> Any:
    """The authors' scores of a structure, SLP or MLP: table14, loss, metric and score."""
    scores = _read(folder, SCORES_FILE, ["table14", "structure", "loss", "metric", "score"])
    return scores[scores["structure"] == structure].drop(columns="structure")


def anyloss_table(folder: Path, table: int, structure: str = "SLP") -> Any:
    """The figures of a printed table of AnyLoss for a structure."""
    found = printed_table(folder, "AnyLoss", table)
    return found[found["structure"] == structure]


def printed_table(folder: Path, paper: str, table: int) -> Any:
    """All figures of a table of `paper`, "AnyLoss" or "Bridging the Gap"."""
    found = _read(folder, TABLES_FILE, ["source", "table", "dataset", "structure", "loss"])
    of_paper = found["source"].str.startswith(paper)
    return found[of_paper & (found["table"].astype(str) == str(table))]


def _read(folder: Path, name: str, columns: list[str]) -> Any:
    path = folder / "paper" / name
    if not path.exists():
        raise FileNotFoundError(f"the published figures must be in {path}; there is no such file")
    table = pd.read_csv(path)
    missing = [column for column in columns if column not in table]
    if missing:
        raise ValueError(f"{path} must have the columns {missing}; got {list(table)}")
    return table
