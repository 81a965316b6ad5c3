"""One class per boosting library: train by log-loss or for a metric, predict margins, save, load.

Parameters have the names of the library's own scikit-learn estimator. Nothing is printed or written
unless the parameters ask for it. A start margin is never part of a trained model: no library adds
it in prediction, so the recipe does.

To add a library, write a class with the methods of `Library`, add its version to
`adapters.LIBRARIES` and an estimator to `estimators.py`.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.constraints import Constraint
from anyloss._core.shapes import Layout
from anyloss.boosting.adapters import eval_metric, objective, require
from anyloss.boosting.blocks import SETTINGS
from anyloss.metrics import Metric
from anyloss.recipe import deadlines
from anyloss.steps import Step


class TreeData(NamedTuple):
    """Rows in any form that a library accepts, their labels, weights and start margins.

    Labels are 0 and 1, or class numbers; several labels have a matrix of 0 and 1. Margins have one
    column per class or label if there are several.
    """

    X: Any
    y: Array
    weight: Array | None = None
    margin: Array | None = None


def take(data: TreeData, at: Array) -> TreeData:
    """The rows at these positions."""
    part = data.X.iloc[at] if hasattr(data.X, "iloc") else data.X[at]
    return TreeData(part, *(None if x is None else x[at] for x in data[1:]))


class Plan(NamedTuple):
    """How to train: the library's parameters, arguments for its `fit`, and when to stop."""

    parameters: dict[str, Any]
    fit_options: dict[str, Any]
    patience: int | None = None


class Goal(NamedTuple):
    """A metric, the soft decision it is trained with, and what else it is trained under.

    Constraints are for two classes, and the layout for several classes or labels.
    """

    metric: Metric
    step: Step
    layout: Layout | None = None
    constraints: tuple[Constraint, ...] = ()

    @property
    def average(self) -> str:
        """The average, as the objectives take it."""
        return "auto" if self.layout is None else str(self.layout.average)

    def objective(self, library: str, **given: Any) -> Any:
        """The objective of one fit."""
        return objective(
            self.metric, library, step=self.step, average=self.average,
            constraints=self.constraints or None, **given,
        )  # fmt: skip


class Library(Protocol):
    """What the recipe needs of a library. A goal of None is the log-loss."""

    name: str
    suffix: str

    def known(self) -> set[str]:
        """The names of the library's parameters; it may accept others as well."""

    def rounds(self, parameters: dict[str, Any]) -> tuple[str, int]:
        """The parameter that holds the number of rounds, and its value."""

    def train(self, data: TreeData, plan: Plan, valid: TreeData | None, goal: Goal | None) -> Any:
        """A trained model; with `valid` and patience it stops early."""

    def margin(self, model: Any, X: Any) -> Array:
        """The margins of a model, without any start margin."""

    def importances(self, model: Any) -> Array:
        """The gain of each column, in the library's own measure."""

    def save(self, model: Any, path: Path) -> None:
        """Write a model in the library's own format."""

    def load(self, path: Path, parameters: dict[str, Any]) -> Any:
        """Read a model that was written by `save`."""


def _rounds(parameters: dict[str, Any], names: tuple[str, ...], default: int) -> tuple[str, int]:
    for name in names:
        if parameters.get(name) is not None:
            return name, int(parameters[name])
    return names[0], default


def _listed(x: Any) -> list[Any] | None:
    return None if x is None else [x]


class LightGBM:
    """LightGBM's `Booster`, trained by `LGBMClassifier`."""

    name, suffix = "lightgbm", ".txt"

    def known(self) -> set[str]:
        lightgbm = require(self.name)
        aliases = lightgbm.basic._ConfigAliases._get_all_param_aliases()
        return {
            *lightgbm.LGBMClassifier().get_params(),
            *(x for names in aliases.values() for x in names),
        }

    def rounds(self, parameters: dict[str, Any]) -> tuple[str, int]:
        names = (
            "n_estimators", "num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees",
            "num_round", "num_rounds", "nrounds", "num_boost_round", "max_iter",
        )  # fmt: skip
        return _rounds(parameters, names, 100)

    def train(self, data: TreeData, plan: Plan, valid: TreeData | None, goal: Goal | None) -> Any:
        lightgbm = require(self.name)
        options, parameters = dict(plan.fit_options), {"verbose": -1} | plan.parameters
        if goal is not None:
            options["eval_metric"] = eval_metric(goal.metric, self.name, average=goal.average)
            parameters |= {
                "objective": goal.objective(self.name),
                "metric": "None",
                "feature_pre_filter": False,  # no feature left would be a fatal error
            }
        if valid is not None:
            options["eval_X"], options["eval_y"] = valid.X, valid.y
            options["eval_init_score"] = _listed(valid.margin)
            options["eval_sample_weight"] = _listed(valid.weight)
            if plan.patience is not None:
                stop = lightgbm.early_stopping(plan.patience, verbose=False)
                options["callbacks"] = [*options.get("callbacks", []), stop]
        if deadlines.is_limited():
            options["callbacks"] = [*options.get("callbacks", []), lambda _: deadlines.report()]
        model = lightgbm.LGBMClassifier(**parameters)
        model.fit(data.X, data.y, sample_weight=data.weight, init_score=data.margin, **options)
        return model.booster_

    def margin(self, model: Any, X: Any) -> Array:
        return model.predict(X, raw_score=True)

    def importances(self, model: Any) -> Array:
        return model.feature_importance("gain")

    def save(self, model: Any, path: Path) -> None:
        # Written by Python, so that a full disk is an OSError, as for all other files.
        path.write_text(model.model_to_string(), encoding="utf-8", newline="\n")

    def load(self, path: Path, parameters: dict[str, Any]) -> Any:
        return require(self.name).Booster(model_file=path)


def _every_round(xgboost: Any) -> Any:
    """A callback of XGBoost that keeps the limit of time."""

    class Report(xgboost.callback.TrainingCallback):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            deadlines.report()
            return False

    return Report()


class XGBoost:
    """XGBoost's `XGBClassifier`."""

    name, suffix = "xgboost", ".ubj"

    def known(self) -> set[str]:
        native = {"alpha", "eta", "lambda", "min_split_loss", "nthread", "seed"}
        return {*require(self.name).XGBClassifier().get_params(), *native}

    def rounds(self, parameters: dict[str, Any]) -> tuple[str, int]:
        return _rounds(parameters, ("n_estimators",), 100)

    def train(self, data: TreeData, plan: Plan, valid: TreeData | None, goal: Goal | None) -> Any:
        xgboost = require(self.name)
        parameters = {"verbosity": 0} | plan.parameters
        if isinstance(parameters.get("monotone_constraints"), list | np.ndarray):  # tuples only
            parameters["monotone_constraints"] = tuple(map(int, parameters["monotone_constraints"]))
        if goal is not None:
            parameters |= {
                "objective": goal.objective(self.name),
                "eval_metric": eval_metric(goal.metric, self.name, average=goal.average),
                "disable_default_eval_metric": True,
                "base_score": 0.5,  # margin 0; of several classes a margin that all of them have
            }
        options = {"verbose": False} | plan.fit_options
        if valid is not None:
            parameters["early_stopping_rounds"] = plan.patience
            options["eval_set"] = [(valid.X, valid.y)]
            options["base_margin_eval_set"] = _listed(valid.margin)
            options["sample_weight_eval_set"] = _listed(valid.weight)
        if deadlines.is_limited():
            parameters["callbacks"] = [*(parameters.get("callbacks") or []), _every_round(xgboost)]
        model = xgboost.XGBClassifier(**parameters)
        model.fit(data.X, data.y, sample_weight=data.weight, base_margin=data.margin, **options)
        return model.set_params(callbacks=plan.parameters.get("callbacks"))

    def margin(self, model: Any, X: Any) -> Array:
        return model.predict(X, output_margin=True).astype(float)

    def importances(self, model: Any) -> Array:
        return np.nan_to_num(model.feature_importances_)  # NaN for a model without a split

    def save(self, model: Any, path: Path) -> None:
        model.save_model(path)

    def load(self, path: Path, parameters: dict[str, Any]) -> Any:
        model = require(self.name).XGBClassifier(**parameters)
        model.load_model(path)
        return model


class CatBoost:
    """CatBoost's own model class. For a metric it is trained with plain settings; see `blocks`."""

    name, suffix = "catboost", ".cbm"
    LOUDNESS: ClassVar = ("verbose", "logging_level", "silent", "verbose_eval")
    SAMPLING: ClassVar = ("subsample", "bagging_temperature", "mvs_reg", "sampling_frequency",
                          "sampling_unit")  # fmt: skip

    def known(self) -> set[str]:
        return set(inspect.signature(require(self.name).CatBoostClassifier).parameters)

    def rounds(self, parameters: dict[str, Any]) -> tuple[str, int]:
        names = ("n_estimators", "iterations", "num_boost_round", "num_trees")
        return _rounds(parameters, names, 1000)

    def train(self, data: TreeData, plan: Plan, valid: TreeData | None, goal: Goal | None) -> Any:
        catboost = require(self.name)
        parameters = {"allow_writing_files": False} | plan.parameters
        if not any(name in parameters for name in self.LOUDNESS):
            parameters["logging_level"] = "Silent"
        classes = int(data.y.max()) + 1
        if goal is None:
            parameters["loss_function"] = "Logloss" if classes == 2 else "MultiClass"
        else:
            # CatBoost keeps this order (see SETTINGS), so it should be random.
            data = take(data, np.random.default_rng(0).permutation(len(data.y)))
            margin = 0.0 if data.margin is None else data.margin
            both = goal.objective(
                self.name, y_true=data.y, margin=margin, sample_weight=data.weight
            )
            parameters = {k: v for k, v in parameters.items() if k not in self.SAMPLING}
            if classes > 2:
                parameters["classes_count"] = classes
            parameters |= {"loss_function": both, "eval_metric": both, **SETTINGS}
        options = dict(plan.fit_options)
        categories = options.pop("cat_features", parameters.pop("cat_features", None))

        def pool(data: TreeData) -> Any:
            return catboost.Pool(
                data.X,
                data.y,
                weight=data.weight,
                baseline=data.margin,
                cat_features=categories,
            )

        if valid is not None:
            options |= {"eval_set": pool(valid), "early_stopping_rounds": plan.patience}
        try:
            return catboost.CatBoost(parameters).fit(pool(data), **options)
        except catboost.CatBoostError as error:
            if "All features are either constant or ignored" not in str(error):
                raise
            raise ValueError(
                "CatBoost needs a column with more than one value among the rows that it is "
                "trained on, which are those of one fold; got constant columns only"
            ) from None

    def margin(self, model: Any, X: Any) -> Array:
        return np.asarray(model.predict(X, prediction_type="RawFormulaVal"))

    def importances(self, model: Any) -> Array:
        return np.asarray(model.get_feature_importance())

    def save(self, model: Any, path: Path) -> None:
        model.save_model(str(path))

    def load(self, path: Path, parameters: dict[str, Any]) -> Any:
        return require(self.name).CatBoost().load_model(str(path))
