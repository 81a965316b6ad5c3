"""The H-mean of Narasimhan et al. (JMLR 25, 2024) on ten 70/30 splits: theirs beside ours.

    .venv/bin/python benchmarks/hmean.py --splits 10

The linear models are scikit-learn's logistic regression (the arg-max, balanced class weights, and
the decision rule of `TunedDecisionClassifierCV`) and `AnyLossClassifier`. README.md has the
figures, their date, and how the data differ.
"""

import argparse
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import anyloss
from anyloss.benchmark.several import read_classes
from anyloss.sklearn import AnyLossClassifier, TunedDecisionClassifierCV

PUBLISHED = {  # logistic regression, balanced, Frank-Wolfe
    "satimage": (0.721, 0.827, 0.829),
    "page-blocks": (0.584, 0.871, 0.883),
    "abalone": (0.000, 0.108, 0.193),
}
RINGS = sorted(map(str, [*range(1, 28), 29]))  # the classes of abalone, in the order of their names


def table(name):
    """The features and classes; the rings of abalone become the twelve classes 4 or fewer to 15."""
    X, y = read_classes(name)
    return (X, np.clip(np.array(RINGS, dtype=int)[y], 4, 15) - 4) if name == "abalone" else (X, y)


def linear(**given):
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, **given))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--sets", nargs="+", default=[*PUBLISHED], help="Default: all.")
    parser.add_argument("--models", nargs="+", default=[], help="Default: all.")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    models = {
        "logistic regression": linear(),
        "balanced": linear(class_weight="balanced"),
        "TunedDecisionClassifierCV": TunedDecisionClassifierCV(linear(), "hmean"),
        "AnyLossClassifier": AnyLossClassifier("hmean", random_state=0),
    }
    models = {name: models[name] for name in given.models or models}
    print("set | rows, classes | published |", " | ".join(models))
    for name in given.sets:
        X, y = table(name)
        classes = int(y.max()) + 1
        found = {kind: [] for kind in models}
        for seed in range(given.splits):
            split = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
            train, test, y_train, y_test = split
            for kind, model in models.items():
                decided = np.eye(classes)[model.fit(train, y_train).predict(test)]
                form = {"average": "multiclass", "task": "multiclass"}
                found[kind].append(anyloss.score(np.eye(classes)[y_test], decided, "hmean", **form))
        cells = (f"{np.mean(x):.3f} ± {np.std(x):.3f}" for x in found.values())
        print(f"{name} | {len(y)}, {classes} | {PUBLISHED[name]} |", " | ".join(cells), flush=True)


if __name__ == "__main__":
    main()
