"""The recipe for linear models against logistic regression with a tuned threshold.

    python benchmarks/recipe.py --data ../shared/data/tabular --metric f1 --metric mcc

For every data set and metric, the same five outer folds (times --repeats): `AnyLossClassifier`,
scikit-learn's `TunedThresholdClassifierCV(LogisticRegression())`, the same again with other inner
folds (the null: what noise alone wins and loses), and logistic regression at 0.5. Prints mean
scores, wins, draws and losses against the tuned threshold (rope 0.01), the Bayesian sign test and
the ratio of fitting times. Without --data: scikit-learn's own breast cancer and digits.
"""

from __future__ import annotations

import argparse
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from default_step import Data, bundled, from_folder
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import (
    RepeatedStratifiedKFold,
    StratifiedKFold,
    TunedThresholdClassifierCV,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from anyloss import metric as find_metric
from anyloss import score
from anyloss.sklearn import AnyLossClassifier

METHODS = ("tuned threshold", "null", "at 0.5", "anyloss")
SCORERS = {"f1": "f1", "mcc": "matthews_corrcoef", "balanced_accuracy": "balanced_accuracy"}
ROPE = 0.01


def hard(y: np.ndarray, decision: np.ndarray, name: str) -> float:
    return float(score(y, decision.astype(float), name))


def fit_all(x: np.ndarray, y: np.ndarray, name: str, seed: int) -> list[tuple[object, float]]:
    logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    scoring = SCORERS.get(name) or make_scorer(hard, name=find_metric(name))

    def tuned(inner: int) -> TunedThresholdClassifierCV:
        folds = StratifiedKFold(min(5, int(y.sum())), shuffle=True, random_state=inner)
        return TunedThresholdClassifierCV(logistic, scoring=scoring, cv=folds)

    ours = AnyLossClassifier(name, pos_label=1, random_state=seed)
    fitted = []
    for model in (tuned(seed), tuned(seed + 1000), logistic, ours):
        start = time.perf_counter()
        model.fit(x, y)
        fitted.append((model, time.perf_counter() - start))
    return fitted


def study(task: tuple[Data, str, int]) -> tuple[np.ndarray, np.ndarray] | None:
    """Mean test score and fitting time of each method on one data set."""
    warnings.simplefilter("ignore")
    (_, x, y), name, repeats = task
    y = y.astype(int)
    if min(y.sum(), len(y) - y.sum()) < 10:
        return None
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=repeats, random_state=1)
    scores, times = [], []
    for seed, (rows, test) in enumerate(folds.split(x, y)):
        fitted = fit_all(x[rows], y[rows], name, seed)
        scores.append([hard(y[test], model.predict(x[test]), name) for model, _ in fitted])
        times.append([seconds for _, seconds in fitted])
    return np.mean(scores, axis=0), np.median(times, axis=0)


def sign_test(difference: np.ndarray) -> np.ndarray:
    """Bayesian sign test (Benavoli et al. 2017): probabilities of losing, drawing and winning."""
    counts = [
        (difference < -ROPE).sum(),
        (np.abs(difference) <= ROPE).sum() + 1,
        (difference > ROPE).sum(),
    ]
    draws = np.random.default_rng(0).dirichlet(np.array(counts) + 1e-6, 100_000)
    return np.bincount(draws.argmax(1), minlength=3) / len(draws)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of CSV files with a last column y")
    parser.add_argument("--metric", action="append", help="default: f1 and mcc")
    parser.add_argument("--rows", type=int, default=2000, help="at most so many rows of each")
    parser.add_argument("--repeats", type=int, default=1, help="of the five outer folds")
    arguments = parser.parse_args()
    sets = list(from_folder(arguments.data, 1, arguments.rows) if arguments.data else bundled())
    console = Console(width=120)
    for name in arguments.metric or ("f1", "mcc"):
        tasks = [(data, name, arguments.repeats) for data in sets]
        with Progress(transient=True) as progress, ProcessPoolExecutor(2) as pool:
            work = progress.track(pool.map(study, tasks), total=len(tasks), description=name)
            results = [result for result in work if result is not None]
        scores, times = (np.array(part) for part in zip(*results, strict=True))
        table = Table(
            "method",
            "mean",
            "difference",
            "win/draw/lose",
            "P(lose)",
            "time",
            title=f"{name}, {len(scores)} sets",
        )
        for k, method in enumerate(METHODS):
            gap = scores[:, k] - scores[:, 0]
            counts = (gap > ROPE).sum(), (np.abs(gap) <= ROPE).sum(), (gap < -ROPE).sum()
            ratio = np.median(times[:, k] / times[:, 0])
            table.add_row(
                method,
                f"{scores[:, k].mean():.4f}",
                f"{gap.mean():+.4f}",
                "/".join(map(str, counts)),
                f"{sign_test(gap)[0]:.4f}",
                f"{ratio:.2f} x",
            )
        console.print(table)


if __name__ == "__main__":
    main()
