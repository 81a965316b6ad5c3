"""Costs that differ from row to row: savings beside empulse's CSLogit on the tables it ships.

    python benchmarks/instance_costs.py costs.jsonl             # goes on where it stopped
    python benchmarks/instance_costs.py costs.jsonl --tables

empulse lives in `.venv-empulse`, which the first run creates; the benchmark runs there. Of each
table at most `--rows` rows are drawn, and split into five stratified folds. Texts are one-hot. The
savings are `1 - cost / cost of the better constant decision` of the test rows, with the costs of
all four outcomes (`empulse.metrics.savings_score`). The null has shuffled training labels.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import venv
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".venv-empulse"
PYTHON = ENVIRONMENT / "bin" / "python"
LIBRARIES = ["empulse==0.13.1", "pandas", "lightgbm"]
TABLES = ("churn_tv_subscriptions", "credit_scoring_pakdd", "upsell_bank_telemarketing",
          "vub_credit_scoring")  # fmt: skip
FOLDS = 5


def install() -> None:
    """Create the environment, unless it is there."""
    done = ENVIRONMENT / "installed"
    if done.exists():
        return
    if not PYTHON.exists():
        venv.create(ENVIRONMENT, with_pip=True, symlinks=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--editable", f"{ROOT}[sklearn]", *LIBRARIES], check=True)
    done.touch()


class Rows(NamedTuple):
    """Rows with the costs of the outcomes of each."""

    X: Any
    y: Any
    tp: Any
    fn: Any
    fp: Any
    tn: Any

    def take(self, at: Any) -> Rows:
        """Some of the rows."""
        return Rows(*(x[at] for x in self))

    @property
    def costs(self) -> tuple[Any, Any]:
        """What a wrong decision costs more than the right one: false negatives, false positives."""
        return self.fn - self.tp, self.fp - self.tn


def load(name: str, most: int) -> Rows:
    """A table of empulse of at most so many rows, with its own costs."""
    import numpy as np
    import pandas as pd
    from empulse import datasets
    from sympy import lambdify, sympify

    found = getattr(datasets, f"load_{name}")(backend="pandas")
    X = pd.get_dummies(found.data, dtype=float).to_numpy(float)
    y = np.asarray(found.target).astype(int)
    given = dict(found.cost_matrix._defaults) | dict(found.instance_costs)
    costs = []
    for outcome in ("tp", "fn", "fp", "tn"):
        formula = sympify(getattr(found.cost_matrix, f"{outcome}_cost"))
        names = sorted(map(str, formula.free_symbols))
        values = lambdify(names, formula, "numpy")(*(np.asarray(given[x], float) for x in names))
        costs.append(np.broadcast_to(np.asarray(values, float), y.shape))
    keep = np.sort(np.random.default_rng(0).permutation(len(y))[:most])
    return Rows(X[keep], y[keep], *(x[keep] for x in costs))


def per_row(p: Any, rows: Rows) -> Any:
    """The decision of least expected cost for calibrated probabilities."""
    fn, fp = rows.costs
    return (p * fn > (1 - p) * fp).astype(int)


def methods(with_trees: bool) -> dict[str, Callable[[Rows, Rows], Any]]:
    """What decides the test rows, by its name."""
    import numpy as np
    from empulse.models import CSLogitClassifier, CSThresholdClassifier
    from lightgbm import LGBMClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from anyloss.boosting import LGBMAnyLossClassifier
    from anyloss.sklearn import AnyLossClassifier

    def cslogit(train: Rows, test: Rows) -> Any:
        scale = StandardScaler().fit(train.X)
        costs = {f"{x}_cost": getattr(train, x) for x in ("tp", "fn", "fp", "tn")}
        model = CSLogitClassifier().fit(scale.transform(train.X), train.y, **costs)
        return (model.predict_proba(scale.transform(test.X))[:, 1] > 0.5).astype(int)

    def threshold(train: Rows, test: Rows) -> Any:
        model = CSThresholdClassifier(make_pipeline(StandardScaler(), LogisticRegression()))
        model.fit(train.X, train.y)
        costs = {f"{x}_cost": getattr(test, x) for x in ("tp", "fn", "fp", "tn")}
        return model.predict(test.X, **costs)

    def weighted(model: Any) -> Callable[[Rows, Rows], Any]:
        def decide(train: Rows, test: Rows) -> Any:
            weight = np.where(train.y == 1, *train.costs)
            model.fit(train.X, train.y, sample_weight=weight / weight.mean())
            return model.predict(test.X)

        return decide

    def calibrated(model: Any) -> Callable[[Rows, Rows], Any]:
        def decide(train: Rows, test: Rows) -> Any:
            model.fit(train.X, train.y)
            return per_row(model.calibrated_proba(test.X)[:, 1], test)

        return decide

    def plain(model: Any) -> Callable[[Rows, Rows], Any]:
        def decide(train: Rows, test: Rows) -> Any:
            return per_row(model.fit(train.X, train.y).predict_proba(test.X)[:, 1], test)

        return decide

    def null(train: Rows, test: Rows) -> Any:
        shuffled = np.random.default_rng(0).permutation(train.y)
        model = make_pipeline(StandardScaler(), LogisticRegression())
        return per_row(model.fit(train.X, shuffled).predict_proba(test.X)[:, 1], test)

    linear = {"pos_label": 1, "random_state": 0}
    found = {
        "CSLogit": cslogit,
        "CSThreshold, logistic regression": threshold,
        "logistic regression, per row": plain(
            make_pipeline(StandardScaler(), LogisticRegression())
        ),
        "ours, linear, weighted accuracy": weighted(AnyLossClassifier("accuracy", **linear)),
        "ours, linear, F1, calibrated, per row": calibrated(AnyLossClassifier("f1", **linear)),
        "null": null,
    }
    if not with_trees:
        return found
    trees = {"n_jobs": 1, "verbose": -1, "random_state": 0}
    ours = {
        metric: LGBMAnyLossClassifier(metric, pos_label=1, **trees) for metric in ("accuracy", "f1")
    }
    return found | {
        "LightGBM, per row": plain(LGBMClassifier(**trees)),
        "ours, LightGBM, weighted accuracy": weighted(ours["accuracy"]),
        "ours, LightGBM, calibrated, per row": calibrated(ours["f1"]),
    }


def run(journal: Path, names: list[str], most: int, trees: bool) -> None:
    """Score each method on each fold; finished ones are in the journal."""
    from empulse.metrics import savings_score
    from sklearn.model_selection import StratifiedKFold

    done = set()
    if journal.exists():
        done = {tuple(json.loads(x)[:3]) for x in journal.read_text().splitlines()}
    loaded = {name: load(name, most) for name in names}
    for k in range(FOLDS):  # an interrupted run has the same folds of all tables
        for name, rows in loaded.items():
            folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(rows.X, rows.y)
            train, test = list(folds)[k]
            for method, decide in methods(trees).items():
                if (name, k, method) in done:
                    continue
                start, new = time.process_time(), rows.take(test)
                decided = decide(rows.take(train), new)
                costs = {f"{x}_cost": getattr(new, x) for x in ("tp", "fn", "fp", "tn")}
                saved = float(savings_score(new.y, decided, **costs))
                row = [name, k, method, saved, time.process_time() - start]
                with journal.open("a") as out:
                    out.write(json.dumps(row) + "\n")


def tables(journal: Path) -> None:
    """Print the mean savings of each method on each table."""
    found, seconds = defaultdict(list), defaultdict(list)
    for name, _, method, saved, took in map(json.loads, journal.open()):
        found[method, name].append(saved)
        seconds[method].append(took)
    names = list(dict.fromkeys(name for _, name in found))
    print("| |", " | ".join(names), "| mean | seconds |\n| ---", "| ---" * (len(names) + 2), "|")
    for method in seconds:
        means = [sum(x) / len(x) for x in (found[method, name] for name in names) if x]
        mean, took = sum(means) / len(means), sum(seconds[method]) / len(seconds[method])
        print(
            f"| {method} |", " | ".join(f"{x:.4f}" for x in means), f"| {mean:.4f} | {took:.1f} |"
        )


def main() -> None:
    """Read the arguments, and run in the environment or print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("journal", type=Path)
    parser.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--rows", type=int, default=2000, help="of each table. Default: 2,000")
    parser.add_argument("--trees", action="store_true", help="LightGBM as well")
    parser.add_argument("--tables", action="store_true", help="print the tables of the journal")
    given = parser.parse_args()
    if given.tables:
        tables(given.journal)
        return
    if Path(sys.prefix) != ENVIRONMENT:
        install()
        os.execve(PYTHON, [str(PYTHON), *sys.argv], os.environ | {"OMP_NUM_THREADS": "1"})
    warnings.filterwarnings("ignore")
    run(given.journal, given.only, given.rows, given.trees)


if __name__ == "__main__":
    main()
