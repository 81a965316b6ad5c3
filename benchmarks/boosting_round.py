"""The time of a boosting round, as a ratio to that with log-loss as a Python objective.

    python benchmarks/boosting_round.py [rows]

The library's own training runs with our objective and with log-loss written as a Python function,
which is the lowest cost of the same interface. Each has one thread, 20 columns and 100,000 rows (or
the given number), and they take turns in one run. Prints the median ratio per library and scale.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import catboost
import lightgbm
import numpy as np
import xgboost
from rich.console import Console
from rich.progress import track
from rich.table import Table

from anyloss.boosting import objective
from anyloss.boosting.blocks import SETTINGS

ROUNDS, TURNS = 20, 7
SCALES = ("auto", 10)


def log_loss(margins: np.ndarray, data: object) -> tuple[np.ndarray, np.ndarray]:
    p = 1 / (1 + np.exp(-margins))
    return p - data.get_label(), p * (1 - p)  # type: ignore[attr-defined]


class BlockLogLoss:
    """Log-loss for CatBoost, with a metric that takes no time."""

    no_jit = True

    def calc_ders_range(self, margins, y, weight):  # type: ignore[no-untyped-def]
        p = 1 / (1 + np.exp(-margins))
        return list(zip((y - p).tolist(), (p * (p - 1)).tolist(), strict=True))

    def is_max_optimal(self):  # type: ignore[no-untyped-def]
        return True

    def evaluate(self, margins, y, weight):  # type: ignore[no-untyped-def]
        return 0.0, 1.0

    def get_final_error(self, error, weight):  # type: ignore[no-untyped-def]
        return error


def with_lightgbm(X: np.ndarray, y: np.ndarray) -> tuple[Callable[[object], None], list[object]]:
    data = lightgbm.Dataset(X, y).construct()
    params = {"num_threads": 1, "verbose": -1}

    def run(f: object) -> None:
        lightgbm.train(params | {"objective": f}, data, ROUNDS)

    return run, [log_loss, *(objective("f1", "lightgbm", scale=s) for s in SCALES)]


def with_xgboost(X: np.ndarray, y: np.ndarray) -> tuple[Callable[[object], None], list[object]]:
    data = xgboost.DMatrix(X, y)
    params = {"nthread": 1, "base_score": 0.0}

    def run(f: object) -> None:
        xgboost.train(params, data, ROUNDS, obj=f)

    return run, [log_loss, *(objective("f1", "xgboost", scale=s) for s in SCALES)]


def with_catboost(X: np.ndarray, y: np.ndarray) -> tuple[Callable[[object], None], list[object]]:
    data = catboost.Pool(X, y)
    params = SETTINGS | {
        "iterations": ROUNDS, "thread_count": 1, "logging_level": "Silent",
        "allow_writing_files": False,
    }  # fmt: skip

    def run(f: object) -> None:
        both = {"loss_function": f, "eval_metric": f}
        catboost.CatBoost(params | both).fit(data)

    return run, [BlockLogLoss(), *(objective("f1", "catboost", scale=s, y_true=y) for s in SCALES)]


def seconds(run: Callable[[object], None], f: object) -> float:
    start = time.perf_counter()
    run(f)
    return time.perf_counter() - start


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 20))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=rows) > 2).astype(float)
    table = Table("library", "log-loss, ms a round", *(f"scale {s}: ratio" for s in SCALES))
    for name, build in (
        ("LightGBM", with_lightgbm), ("XGBoost", with_xgboost), ("CatBoost", with_catboost),
    ):  # fmt: skip
        run, objectives = build(X, y)
        turns = range(TURNS if name != "CatBoost" else 3)
        times = np.array([[seconds(run, f) for f in objectives] for _ in track(turns, name)])
        ratios = np.median(times[:, 1:] / times[:, :1], axis=0)
        each = 1000 * np.median(times[:, 0]) / ROUNDS
        table.add_row(name, f"{each:.1f}", *(f"{ratio:.2f}" for ratio in ratios))
    Console().print(table)


if __name__ == "__main__":
    main()
