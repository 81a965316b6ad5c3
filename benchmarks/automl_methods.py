"""One fit of one method of `automl.py`, in the environment of the method.

    python automl_methods.py METHOD METRIC SECONDS SEED ROWS.npz OUT.json

`ROWS.npz` has `X`, `y` and `X_test`; `OUT.json` gets the decisions for `X_test`, the seconds of the
fit without imports, and the versions of the libraries. The methods know nothing of the test labels.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from importlib.metadata import version
from typing import Any

import numpy as np

Array = np.ndarray
THREADS, INNER = 2, 5
NAMES = {"f1": "f1", "mcc": "matthews_corrcoef", "balanced_accuracy": "balanced_accuracy"}


def values_at(y: Array, p: Array, metric: str) -> tuple[Array, Array]:
    """The metric at each threshold between two neighbouring scores, and the thresholds."""
    order = np.argsort(-p, kind="stable")
    y, p = y[order], p[order]
    last = np.append(np.flatnonzero(np.diff(p)), len(p) - 1)
    tp, fp = np.cumsum(y)[last].astype(float), np.cumsum(1 - y)[last].astype(float)
    fn, tn = y.sum() - tp, (1 - y).sum() - fp
    thresholds = (p[last] + np.append(p[last[:-1] + 1], p[-1] - 1e-9)) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        if metric == "f1":
            found = 2 * tp / (2 * tp + fp + fn)
        elif metric == "mcc":
            found = (tp * tn - fp * fn) / np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
        else:
            found = (tp / (tp + fn) + tn / (tn + fp)) / 2
    return np.nan_to_num(found), thresholds


def best_threshold(y: Array, p: Array, metric: str) -> float:
    values, thresholds = values_at(y, p, metric)
    return float(thresholds[values.argmax()])


def folds_of(y: Array, seed: int) -> list[tuple[Array, Array]]:
    from sklearn.model_selection import StratifiedKFold

    return list(StratifiedKFold(INNER, shuffle=True, random_state=seed).split(y[:, None], y))


def autogluon(
    preset: str, X: Array, y: Array, X_test: Array, metric: str, seconds: float, seed: int
) -> Array:
    """AutoGluon chooses the threshold and the seeds of its models itself.

    If no model of its test for stacking ends in time, it raises an AssertionError; it is then
    fitted again without that test, with all of the time.
    """
    import pandas as pd
    from autogluon.tabular import TabularPredictor

    names = [f"x{k}" for k in range(X.shape[1])]
    table = pd.DataFrame(X, columns=names).assign(y=y)
    with tempfile.TemporaryDirectory() as folder:
        given = {"presets": preset, "time_limit": seconds, "num_cpus": THREADS}
        given["calibrate_decision_threshold"] = True

        def predictor_of(name: str) -> Any:
            return TabularPredictor(
                "y", problem_type="binary", eval_metric=metric, path=f"{folder}/{name}", verbosity=1
            )

        try:
            predictor = predictor_of("first").fit(table, **given)
        except AssertionError:
            predictor = predictor_of("second").fit(table, dynamic_stacking=False, **given)
        return predictor.predict(pd.DataFrame(X_test, columns=names)).to_numpy()


def flaml(X: Array, y: Array, X_test: Array, metric: str, seconds: float, seed: int) -> Array:
    """FLAML has no threshold: it searches with the metric at the best threshold of validation rows.

    The search gets 80 % of the time. The threshold is then the best one for the out-of-fold scores
    of the model that was found, which is fitted on all rows.
    """
    from flaml import AutoML
    from sklearn.base import clone

    def loss(
        X_val: Any, y_val: Any, estimator: Any, labels: Any, X_train: Any, y_train: Any,
        weight_val: Any = None, weight_train: Any = None, *more: Any,
    ) -> tuple[float, dict[str, float]]:  # fmt: skip
        p = estimator.predict_proba(X_val)[:, 1]
        found = 1 - float(values_at(np.asarray(y_val), p, metric)[0].max())
        return found, {"loss": found}

    search = AutoML()
    search.fit(
        X, y, task="classification", metric=loss, time_budget=0.8 * seconds, n_jobs=THREADS,
        seed=seed, verbose=0,
    )  # fmt: skip
    model = search.model.estimator
    p = np.zeros(len(y))
    for train, held in folds_of(y, seed):
        p[held] = clone(model).fit(X[train], y[train]).predict_proba(X[held])[:, 1]
    return search.predict_proba(X_test)[:, 1] > best_threshold(y, p, metric)


def optuna_lightgbm(
    X: Array, y: Array, X_test: Array, metric: str, seconds: float, seed: int
) -> Array:
    """LightGBM tuned by Optuna (TPE) for the out-of-fold metric at its best threshold.

    The search ends after 90 % of the time, also within a trial; the best trial's model is then
    fitted on all rows, with the threshold of its out-of-fold scores.
    """
    import optuna
    from lightgbm import LGBMClassifier

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    end, folds = time.monotonic() + 0.9 * seconds, folds_of(y, seed)

    def model_of(trial: Any) -> Any:
        return LGBMClassifier(
            n_estimators=trial.suggest_int("n_estimators", 20, 500, log=True),
            learning_rate=trial.suggest_float("learning_rate", 0.01, 0.3, log=True),
            num_leaves=trial.suggest_int("num_leaves", 4, 128, log=True),
            min_child_samples=trial.suggest_int("min_child_samples", 2, 100, log=True),
            subsample=trial.suggest_float("subsample", 0.5, 1.0), subsample_freq=1,
            colsample_bytree=trial.suggest_float("colsample_bytree", 0.3, 1.0),
            reg_alpha=trial.suggest_float("reg_alpha", 1e-4, 10, log=True),
            reg_lambda=trial.suggest_float("reg_lambda", 1e-4, 10, log=True),
            scale_pos_weight=trial.suggest_float(
                "scale_pos_weight", 1, max(1.01, (1 - y.mean()) / y.mean()), log=True
            ),
            n_jobs=THREADS, random_state=seed, verbose=-1,
        )  # fmt: skip

    def objective(trial: Any) -> float:
        p, model = np.zeros(len(y)), model_of(trial)
        for train, held in folds:
            p[held] = model.fit(X[train], y[train]).predict_proba(X[held])[:, 1]
            if time.monotonic() > end and trial.number:
                raise optuna.TrialPruned
        trial.set_user_attr("threshold", best_threshold(y, p, metric))
        return float(values_at(y, p, metric)[0].max())

    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True)
    )
    study.optimize(objective, timeout=end - time.monotonic())
    best = study.best_trial
    model = model_of(optuna.trial.FixedTrial(best.params)).fit(X, y)
    return model.predict_proba(X_test)[:, 1] > best.user_attrs["threshold"]


def forest(X: Array, y: Array, X_test: Array, metric: str, seconds: float, seed: int) -> Array:
    """scikit-learn's `TunedThresholdClassifierCV` around a random forest of 200 trees."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import TunedThresholdClassifierCV

    trees = RandomForestClassifier(200, n_jobs=THREADS, random_state=seed)
    model = TunedThresholdClassifierCV(trees, scoring=NAMES[metric], random_state=seed)
    return model.fit(X, y).predict(X_test)


def anyloss_auto(
    X: Array, y: Array, X_test: Array, metric: str, seconds: float, seed: int
) -> Array:
    """`model="auto"` with `time_limit=`."""
    from anyloss.tabular.automatic import AutoClassifier

    model = AutoClassifier(metric, seed=seed, time_limit=seconds)
    return model.fit(X, y).predict(X_test)


METHODS = {
    "autogluon_medium": lambda *given: autogluon("medium_quality", *given),
    "autogluon_best": lambda *given: autogluon("best_quality", *given),
    "flaml": flaml,
    "optuna_lightgbm": optuna_lightgbm,
    "forest_tuned": forest,
    "forest_again": lambda *given: forest(*given[:-1], given[-1] + 1),  # the null row
    "anyloss_auto": anyloss_auto,
}
LIBRARIES = {
    "autogluon_medium": ["autogluon.tabular", "lightgbm", "catboost", "xgboost-cpu"],
    "autogluon_best": ["autogluon.tabular", "lightgbm", "catboost", "xgboost-cpu"],
    "flaml": ["flaml", "lightgbm", "xgboost-cpu", "catboost"],
    "optuna_lightgbm": ["optuna", "lightgbm"],
    "forest_tuned": ["scikit-learn"],
    "forest_again": ["scikit-learn"],
    "anyloss_auto": ["anyloss", "lightgbm"],
}


def main() -> None:
    method, metric, seconds, seed, rows, out = sys.argv[1:]
    with np.load(rows) as given:
        X, y, X_test = given["X"], given["y"], given["X_test"]
    start = time.monotonic()
    decided = METHODS[method](X, y, X_test, metric, float(seconds), int(seed))
    found = {
        "decisions": np.asarray(decided).astype(int).tolist(),
        "seconds": round(time.monotonic() - start, 2),
        "versions": {name: version(name) for name in LIBRARIES[method]},
    }
    with open(out, "w", encoding="utf-8") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
