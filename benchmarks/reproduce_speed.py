"""The time of training all folds and losses at once, compared with the plain loop.

    python benchmarks/reproduce_speed.py

The plain loop is the paper's protocol in plain NumPy, with one fold and one loss at a time and the
formulas of the paper. Both train the same 80 models (ten folds, eight losses) on one thread, in
turns, and the weights must agree. Prints the median ratio of processor time per data set, and the
seconds of a full run of 1,000 epochs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits, load_wine
from threadpoolctl import threadpool_limits

from papers import slp
from papers.data import Samples, breast_cancer, random_rows, standardised
from papers.many_sets import RATES

TURNS = 5


def one_class(load: Callable[[], Any], label: int) -> Samples:
    found = load()
    return Samples(standardised(found.data), (found.target == label).astype(float))


SETS = {  # a function that makes the data set, and the number of epochs
    "wine, class 2 or not": (partial(one_class, load_wine, 2), 300),
    "breast cancer (#3)": (breast_cancer, 200),
    "digits, 8 or not": (partial(one_class, load_digits, 8), 50),
    "random (#1)": (random_rows, 20),
}


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def metric_derivatives(
    loss: str, tp: float, fn: float, fp: float, tn: float
) -> tuple[float, float]:
    positives, negatives = tp + fn, fp + tn
    if loss == "L_A":
        return 1 / (positives + negatives), -1 / (positives + negatives)
    if loss == "L_B":
        return 1 / (2 * positives), -1 / (2 * negatives)
    if loss == "L_G":
        recall, specificity = tp / positives, tn / negatives
        root = 2 / np.sqrt(recall * specificity)  # 2 as in equation 19; the derivative has 1/2
        return root * specificity / positives, -root * recall / negatives
    b2 = slp.BETAS[loss] ** 2
    below = (1 + b2) * tp + b2 * fn + fp
    return (1 + b2) * (b2 * positives + fp) / below**2, -(1 + b2) * tp / below**2


def plain(X: np.ndarray, y: np.ndarray, loss: str, rate: float, epochs: int) -> np.ndarray:
    """The weights of one model, trained by the formulas of the paper."""
    w = np.zeros(X.shape[1])
    for _ in range(epochs):
        z = X @ w
        if loss == "MSE":
            g = X.T @ (z - (2 * y - 1)) / len(y)
        elif loss == "BCE":
            g = X.T @ (sigmoid(z) - y) / len(y)
        else:
            p = sigmoid(z)
            a = sigmoid(slp.SCALE * (p - 0.5))
            cells = (y * a, y * (1 - a), (1 - y) * a, (1 - y) * (1 - a))
            d_positive, d_negative = metric_derivatives(loss, *(np.sum(x) for x in cells))
            per_sample = y * d_positive + (1 - y) * d_negative
            g = -X.T @ (per_sample * slp.SCALE * a * (1 - a) * p * (1 - p))
        w -= rate * g
    return w


def one_by_one(X: np.ndarray, y: np.ndarray, folds: slp.Folds, epochs: int) -> dict:
    return {
        loss: np.array([plain(X[rows], y[rows], loss, rate, epochs) for rows, _ in folds])
        for loss, rate in RATES.items()
    }


def measure(rows: Samples, epochs: int) -> tuple[float, float]:
    """The median ratio of the times, and our milliseconds per epoch."""
    X, y = slp.with_intercept(rows.X), rows.y
    folds = slp.paper_folds(y)
    times = []
    for _ in range(TURNS):
        start = time.process_time()
        theirs = one_by_one(X, y, folds, epochs)
        middle = time.process_time()
        ours = slp.train(X, y, folds, RATES, epochs)
        times.append((middle - start, time.process_time() - middle))
        for loss in RATES:
            np.testing.assert_allclose(ours[loss], theirs[loss], rtol=1e-7, atol=1e-9)
    slow, fast = np.array(times).T
    return float(np.median(slow / fast)), float(np.median(fast)) / epochs * 1000


def main() -> None:
    table = Table("data set", "rows", "columns", "plain / ours", "ours, s for 1,000 epochs")
    with threadpool_limits(1):
        for name, (make, epochs) in SETS.items():
            rows = make()
            ratio, seconds = measure(rows, epochs)
            shape = (f"{x:,}" for x in rows.X.shape)
            table.add_row(name, *shape, f"{ratio:.1f}", f"{seconds:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
