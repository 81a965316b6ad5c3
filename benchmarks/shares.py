"""Probabilities and other class shares: how well decisions survive a change.

    python benchmarks/shares.py FOLDER shares.jsonl          # goes on where it stopped
    python benchmarks/shares.py FOLDER shares.jsonl --tables
    python benchmarks/shares.py FOLDER shares-trees.jsonl --trees --most 20    # LightGBM

FOLDER has an `index.csv` of sets with two classes. Of each set with 40 positives among at most
2,000 rows, the halves of one stratified split train and test in turn. Test rows are weighted to
other shares of positives. The regret is the best score that a threshold reaches on these weighted
rows (chosen with their labels), minus the score of the threshold that a method finds without them.
With `--trees`, LightGBM takes the place of the linear models, with half of its trees.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import anyloss
from anyloss.benchmark.datasets import from_folder, load
from anyloss.boosting import LGBMAnyLossClassifier
from anyloss.sklearn import AnyLossClassifier

PREVALENCES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
METRICS = ("f1", "mcc")
ROWS, POSITIVES, BINS = 2000, 40, 10
NAMES = {False: "logistic regression", True: "LightGBM"}
TREES = {"n_estimators": 50, "n_jobs": 1, "verbose": -1}


def ours(metric: str, trees: bool, **given: Any) -> Any:
    """Our classifier."""
    kind = LGBMAnyLossClassifier if trees else AnyLossClassifier
    return kind(metric, pos_label=1, random_state=0, **given, **(TREES if trees else {}))


def usual(trees: bool) -> Any:
    """The model that an expert would take instead."""
    if trees:
        return LGBMClassifier(random_state=0, **TREES)
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))


def regrets(X: Any, y: Any, train: Any, test: Any, trees: bool) -> Iterator[dict[str, Any]]:
    """For each metric and prevalence, the best score and those of the methods."""
    expert = usual(trees)
    held = cross_val_predict(expert, X[train], y[train], cv=5, method="predict_proba")[:, 1]
    new = expert.fit(X[train], y[train]).predict_proba(X[test])[:, 1]
    for metric in METRICS:
        model = ours(metric, trees).fit(X[train], y[train])
        values = model.decision_function(X[test])
        for share in PREVALENCES:
            weight = weights(y[test], share)
            best = anyloss.best_threshold(y[test], values, metric, weight=weight).score
            other = model.with_priors([1 - share, share])
            kept = rows_of_share(y[test], share)
            guessed = model.with_priors(model.estimate_priors(X[test][kept]))
            tuned = anyloss.best_threshold(y[train], held, metric, weight=weights(y[train], share))
            decisions = {
                "unchanged": values > 0,
                "with_priors": other.decision_function(X[test]) > 0,
                "estimated shares": guessed.decision_function(X[test]) > 0,
                f"{NAMES[trees]}, threshold tuned on weighted rows": new > tuned.threshold,
            }
            if share in (0.02, 0.1, 0.5) and not trees:
                again = ours(metric, trees, priors=(1 - share, share))
                trained = again.fit(X[train], y[train]).decision_function(X[test])
                decisions["fitted with priors"] = trained > 0
            scores = {
                name: float(anyloss.score(y[test], x.astype(float), metric, weight=weight))
                for name, x in decisions.items()
            }
            estimate = float(model.estimate_priors(X[test][kept])[1])
            yield {
                "metric": metric, "share": share, "best": best, "scores": scores,
                "estimate": estimate, "present": float(y[test][kept].mean()),
            }  # fmt: skip


def weights(y: Any, share: float) -> Any:
    return np.where(y == 1, share / y.mean(), (1 - share) / (1 - y.mean()))


def rows_of_share(y: Any, share: float) -> Any:
    """Rows drawn without replacement that have this share of positives, as many as possible."""
    rng, places = np.random.default_rng(0), [np.flatnonzero(y == k) for k in (0, 1)]
    total = min(len(places[0]) / (1 - share), len(places[1]) / share)
    numbers = [max(1, round(total * s)) for s in (1 - share, share)]
    return np.concatenate([rng.permutation(x)[:n] for x, n in zip(places, numbers, strict=True)])


def calibration(X: Any, y: Any, train: Any, test: Any, trees: bool) -> dict[str, Any]:
    """The Brier score and the calibration error of probabilities."""
    plain, centred = usual(trees), ours("f1", trees)
    models = {
        "ours, not calibrated": centred,
        "ours, calibrate='auto'": ours("f1", trees, calibrate="auto"),
        NAMES[trees]: plain,
        f"CalibratedClassifierCV, {NAMES[trees]}": CalibratedClassifierCV(plain),
    }
    if trees:
        models["CalibratedClassifierCV, LightGBM, isotonic"] = CalibratedClassifierCV(
            plain, method="isotonic"
        )
    else:
        models |= {
            f"CalibratedClassifierCV, ours, {x}": CalibratedClassifierCV(centred, method=x)
            for x in ("sigmoid", "isotonic")
        }
    found = {}
    for name, model in models.items():
        p = model.fit(X[train], y[train]).predict_proba(X[test])[:, 1]
        found[name] = [float(brier_score_loss(y[test], p)), calibration_error(y[test], p)]
    share = y[train].mean()  # one bin
    errors = float(np.mean((y[test] - share) ** 2)), float(abs(y[test].mean() - share))
    found["the share of positives"] = list(errors)
    return found


def calibration_error(y: Any, p: Any) -> float:
    """The mean distance between the share and the mean probability, in bins of equal size."""
    parts = np.array_split(np.argsort(p, kind="stable"), BINS)
    return float(sum(len(x) * abs(y[x].mean() - p[x].mean()) for x in parts) / len(y))


def run(folder: Path, journal: Path, trees: bool, most: int | None) -> None:
    done = set()
    if journal.exists():
        done = {(x["set"], x["half"]) for x in map(json.loads, journal.open())}
    sets = 0
    for dataset in from_folder(folder):
        X, y = load(dataset, ROWS)
        if y.ndim > 1 or y.sum() < POSITIVES:
            continue
        sets += 1
        if most is not None and sets > most:
            break
        halves = StratifiedKFold(2, shuffle=True, random_state=7).split(X, y)
        for half, (train, test) in enumerate(halves):
            if (dataset.name, half) in done:
                continue
            start = time.process_time()
            found = {
                "set": dataset.name, "half": half,
                "regrets": list(regrets(X, y, train, test, trees)),
                "calibration": calibration(X, y, train, test, trees),
                "seconds": time.process_time() - start,
            }  # fmt: skip
            with journal.open("a") as out:
                out.write(json.dumps(found) + "\n")


def tables(journal: Path) -> None:
    rows = [json.loads(line) for line in journal.open()]
    print(f"{len({x['set'] for x in rows})} sets, {len(rows)} halves\n")
    regret, errors = defaultdict(list), []
    for row in rows:
        for x in row["regrets"]:
            errors.append(abs(x["estimate"] - x["present"]))
            for name, score in x["scores"].items():
                regret[name, x["metric"]].append(x["best"] - score)
                if "fitted with priors" in x["scores"]:
                    regret[name, x["metric"] + ", same three shares"].append(x["best"] - score)
    columns = sorted({metric for _, metric in regret})
    print("| mean regret |", " | ".join(columns), "|\n| ---", "| ---" * len(columns), "|")
    for name in dict.fromkeys(name for name, _ in regret):
        cells = [regret.get((name, x)) for x in columns]
        print("|", name, "|", " | ".join("" if not c else f"{np.mean(c):.4f}" for c in cells), "|")
    print(f"\nmean error of the estimated share: {np.mean(errors):.4f}\n")
    print("| probabilities | Brier score | calibration error |\n| --- | --- | --- |")
    for name in rows[0]["calibration"]:
        brier, error = np.mean([x["calibration"][name] for x in rows], axis=0)
        print(f"| {name} | {brier:.4f} | {error:.4f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("journal", type=Path)
    parser.add_argument("--tables", action="store_true", help="print the tables of the journal")
    parser.add_argument("--trees", action="store_true", help="LightGBM instead of linear models")
    parser.add_argument("--most", type=int, help="the first sets only")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    if given.tables:
        tables(given.journal)
    else:
        run(given.folder, given.journal, given.trees, given.most)
