"""The time of a fit, as a ratio to that of scikit-learn's tuned threshold in the same run.

    python benchmarks/fit_time.py

On data sets of scikit-learn, `AnyLossClassifier` is compared with `TunedThresholdClassifierCV` with
logistic regression and, for 8 hidden units, with `MLPClassifier`, scored by scikit-learn's own
functions, on one thread and in turns. Prints the median ratio per data set.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import StratifiedKFold, TunedThresholdClassifierCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from anyloss.benchmark.datasets import bundled, load
from anyloss.sklearn import AnyLossClassifier

SETS = ("breast_cancer", "digits_3", "digits_8", "wine_1", "iris_1")
SCORERS = {"f1": "f1", "mcc": "matthews_corrcoef", "balanced_accuracy": "balanced_accuracy"}
MODELS = {
    "linear": ((), lambda: LogisticRegression(max_iter=1000)),
    "8 hidden": ((8,), lambda: MLPClassifier((8,), random_state=0)),
}


def seconds(model: object, X: np.ndarray, y: np.ndarray) -> float:
    start = time.perf_counter()
    model.fit(X, y)  # type: ignore[attr-defined]
    return time.perf_counter() - start


def ratio(X: np.ndarray, y: np.ndarray, name: str, metric: str, turns: int) -> float:
    hidden, baseline = MODELS[name]
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    scoring = get_scorer(SCORERS[metric])
    found = []
    for seed in range(turns):
        theirs = TunedThresholdClassifierCV(
            make_pipeline(StandardScaler(), baseline()), scoring=scoring, cv=folds
        )
        ours = AnyLossClassifier(metric, hidden, pos_label=1, random_state=seed)
        times = [seconds(model, X, y) for model in (theirs, ours)]
        found.append(times[1] / times[0])
    return float(np.median(found))


def main() -> None:
    warnings.simplefilter("ignore")
    table = Table("data set", *(f"{model}, {metric}" for model in MODELS for metric in SCORERS))
    sets = [dataset for dataset in bundled() if dataset.name in SETS]
    columns = []
    with threadpool_limits(1):
        for dataset in track(sets, transient=True):
            X, y = load(dataset, 5000)
            cells = [ratio(X, y, model, metric, 3) for model in MODELS for metric in SCORERS]
            columns.append(cells)
            table.add_row(dataset.name, *(f"{cell:.2f}" for cell in cells))
    table.add_row("median", *(f"{cell:.2f}" for cell in np.median(columns, axis=0)))
    Console().print(table)


if __name__ == "__main__":
    main()
