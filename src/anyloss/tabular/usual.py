"""The usual methods as classifiers that can be saved: what `compare` may recommend.

They are trained by the functions of `anyloss.baselines`, as in the rows of a comparison: logistic
regression, a small network or LightGBM, by cross-entropy, with a tuned decision rule, with class
weights, or on rows that SMOTE has balanced.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from anyloss._core.backend import Array
from anyloss.baselines.boosted import SETUPS, tree_losses
from anyloss.baselines.methods import LOSSES, tuned_threshold
from anyloss.baselines.rules import Wanted, arg_max, best_rule
from anyloss.baselines.several import Columns, Estimators, trained
from anyloss.baselines.splits import MODELS, new_split
from anyloss.baselines.tables import held_rows, indicators, methods_for, several_split
from anyloss.decisions.rules import Decision
from anyloss.recipe.calibration import Calibration, calibrate, calibration_from_arrays
from anyloss.recipe.folder import load_model, save_model
from anyloss.recipe.networks import forward
from anyloss.recipe.target import probabilities
from anyloss.tabular.scoring import scoring_of

KIND = "UsualClassifier"
LEAST = 1e-9  # probabilities are kept this far from 0 and 1


class Usual(NamedTuple):
    """A model, and the method of `anyloss.baselines` that trains it."""

    model: str
    method: str


USUAL = {
    f"{word}-{model}": Usual(model, method)
    for model in (*MODELS, "lightgbm")
    for word, method in (("plain", "bce"), ("tuned", "bce_tuned"), ("weighted", "weighted"))
} | {"smote-linear": Usual("linear", "smote_tuned")}


def name_of(model: str, method: str) -> str:
    """The name with which `fit` saves a method of a comparison.

    >>> name_of("linear", "bce_tuned"), name_of("linear", "lightgbm_tuned")
    ('tuned-linear', 'tuned-lightgbm')
    """
    wanted = Usual("lightgbm", "bce_tuned") if method == "lightgbm_tuned" else Usual(model, method)
    if method == "smote_tuned":
        wanted = Usual("linear", method)  # SMOTE balances the rows of a linear model
    return next((name for name, x in USUAL.items() if x == wanted), model)


class UsualClassifier:
    """A usual method by its name, such as `"tuned-linear"`, for encoded rows.

    The classes are 0 and 1, or the numbers of the classes; several labels are a matrix.
    """

    constraints = certificate_ = None

    def __init__(
        self, name: str, metric: str, average: str, task: str, classes: int, seed: int = 0
    ) -> None:
        self.name, self.metric, self.average = name, metric, average
        self.task, self.classes, self.seed = task, classes, seed

    def fit(self, X: Array, y: Array, groups: Array | None = None) -> Self:
        """Train the method on encoded rows; the rows of a group stay in one inner fold."""
        self.mean_, self.scale_ = X.mean(axis=0), X.std(axis=0)
        self.scale_ = np.where(self.scale_ > 0, self.scale_, 1.0)
        train = self._fit_binary if self.task == "binary" else self._fit_several
        held_out, labels = train(X, y, groups)
        scoring = scoring_of(
            self.metric, self.task, 1 if self.task == "binary" else self.classes, self.average
        )
        self.held_out_score_ = scoring.score(labels, held_out)
        return self

    def calibrated_proba(self, X: Array) -> Array:
        """Calibrated probabilities, one column per class; see `AnyLossClassifier`."""
        p = self.calibration_(self._probabilities(X), self.task)
        return np.column_stack([1 - p, p]) if self.task == "binary" else p

    def _fit_binary(self, X: Array, y: Array, groups: Array | None) -> tuple[Array, Array]:
        """Train for two classes; return the decisions for held-out rows, and the labels."""
        model, method = USUAL[self.name]
        split = new_split(X, y, X[:1], MODELS.get(model, ()), self.seed, groups)
        family = method.removesuffix("_tuned")
        losses = LOSSES if model in MODELS else tree_losses(SETUPS[model])
        found = losses[family](split, split.folds)
        threshold = 0.5
        if method.endswith("_tuned"):
            threshold = tuned_threshold(split.y, found.held_out, split.folds, self.metric)
            threshold = float(np.nextafter(threshold, -np.inf))  # scikit-learn decides by >=
        self.rule_ = Decision(thresholds=np.array([threshold]))
        kept = found.model if model == "lightgbm" or MODELS[model] else found.model.estimator
        self._keep(kept if isinstance(kept, list) else [kept])
        self.calibration_ = _calibration(y[:, None], found.held_out[:, None])
        return (found.held_out > threshold).astype(float), y

    def _fit_several(self, X: Array, y: Array, groups: Array | None) -> tuple[Array, Array]:
        """Train for several classes or labels; return as `_fit_binary`."""
        model, method = USUAL[self.name]
        if self.task == "multiclass":
            y = (np.arange(self.classes) == np.asarray(y)[:, None]).astype(float)
        if method not in methods_for(model, self.task):
            kind = "several labels" if self.task == "multilabel" else "several classes"
            raise ValueError(f"the model {self.name!r} cannot be trained for {kind} (--model)")
        split = several_split(X, y, X[:1], self.task, model, self.seed, groups)
        found = trained(model, method == "weighted", Columns(y, self.task), split, split.folds)
        metric, layout = scoring_of(self.metric, self.task, self.classes, self.average)
        rows = held_rows(split)
        given, held_out = Columns(y[rows], self.task), found.held_out[rows]
        decided, several = arg_max(given, held_out), self.task == "multiclass"
        self.rule_ = Decision() if several else Decision(thresholds=np.full(self.classes, 0.5))
        if method.endswith("_tuned"):
            self.rule_ = best_rule(given, held_out, Wanted(self.metric, metric, layout))
            decided = self.rule_.decide(held_out)
        self.calibration_ = _calibration(given.y, held_out)
        kept = found.model
        self._keep(kept.models if isinstance(kept, Estimators) else kept)
        return indicators(decided, given), given.y

    def _keep(self, models: list[Any]) -> None:
        """Keep what predicts: layers of standardised rows, or LightGBM's boosters."""
        self.layers_, self.boosters_ = list[Array](), list[Any]()
        if USUAL[self.name].model == "lightgbm":
            self.boosters_ = [getattr(x, "booster_", x) for x in models]
        elif isinstance(models[0], np.ndarray):
            self.layers_ = models
        else:
            weights = np.concatenate([x.coef_ for x in models]).T
            bias = np.concatenate([x.intercept_ for x in models])
            self.layers_ = [weights[None], bias[None, None]]

    def _probabilities(self, X: Array) -> Array:
        """The probabilities `(rows, columns)`, one column for two classes."""
        rows = (X - self.mean_) / self.scale_
        if self.boosters_:
            margins = [np.asarray(x.predict(rows, raw_score=True)) for x in self.boosters_]
            z = np.column_stack(margins)
        else:
            z = forward(self.layers_, rows)[-1][0]
        return probabilities(z, self.task)

    def predict_proba(self, X: Array) -> Array:
        """Decision values from 0 to 1, one column per class.

        The threshold of two classes and of labels is moved to 0.5. Of several classes the highest
        value is predicted.
        """
        p = self._probabilities(X)
        if self.task == "multiclass":
            return p if self.rule_.gains is None else probabilities(self.rule_.values(p), self.task)
        above = p > self.rule_.thresholds
        at = np.clip(self.rule_.thresholds, LEAST, 1 - LEAST)
        p = np.clip(p, LEAST, 1 - LEAST)
        moved: Array = probabilities(np.log(p / (1 - p)) - np.log(at / (1 - at)), "multilabel")
        higher, lower = np.maximum(moved, np.nextafter(0.5, 1)), np.minimum(moved, 0.5)
        moved = np.asarray(np.where(above, higher, lower))
        return np.column_stack([1 - moved, moved]) if self.task == "binary" else moved

    def save(self, path: Path | str) -> None:
        """Write the classifier to a folder of JSON, safetensors and LightGBM's text files."""
        names = ("name", "metric", "average", "task", "classes", "seed")
        description = {
            "parameters": {x: getattr(self, x) for x in names},
            "held_out_score": self.held_out_score_,
            "calibration": self.calibration_.method,
            "trees": [x.model_to_string() for x in self.boosters_],
        }
        arrays = {k: x for k, x in self.rule_._asdict().items() if x is not None}
        arrays |= {"mean": self.mean_, "scale": self.scale_}
        arrays |= {f"layer{k}": x for k, x in enumerate(self.layers_)}
        arrays |= self.calibration_.to_arrays()
        save_model(path, KIND, description, arrays)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a classifier that was written by `save`."""
        stored, arrays = load_model(path, KIND)
        try:
            model = cls(**stored["parameters"])
            model.held_out_score_ = stored["held_out_score"]
            model.mean_, model.scale_ = arrays.pop("mean"), arrays.pop("scale")
            rule = {x: arrays.pop(x) for x in Decision._fields if x in arrays}
            model.rule_ = Decision(**rule)
            model.calibration_ = calibration_from_arrays(stored["calibration"], arrays)
            model.layers_ = [arrays[f"layer{k}"] for k in range(len(arrays))]
            model.boosters_ = [_booster(text) for text in stored["trees"]]
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a complete model folder: {error!r}") from None
        return model


def _calibration(y: Array, p: Array) -> Calibration:
    return calibrate(np.asarray(y, dtype=float), p, np.ones(len(y)))


def _booster(text: str) -> Any:
    from lightgbm import Booster

    return Booster(model_str=text)
