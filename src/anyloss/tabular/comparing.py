"""Is the recipe worth it on this table? Ours against the usual ways, on repeated folds.

Folds share rows, so the spread of the differences is larger than it looks; the interval takes the
variance of Nadeau and Bengio (Inference for the Generalization Error, 2003), which counts in the
share of test rows.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from anyloss import __version__
from anyloss._core.backend import Array
from anyloss._core.counts import score
from anyloss._core.journal import Journal
from anyloss.baselines.splits import MODELS, check_rarer, check_sizes, fingerprint, new_split
from anyloss.metrics import metric as find_metric
from anyloss.tabular.judging import RIVALS, outcomes
from anyloss.tabular.preparing import (
    Task,
    fitted_encoder,
    identifiers,
    prepare,
    sample_rows,
    without_identifiers,
)
from anyloss.tabular.reading import read_table

OURS = "anyloss"
# Simplest first: who is as good as ours and comes before it is the better choice.
METHODS = {
    **RIVALS,
    "smote_tuned": "SMOTE, tuned threshold",
    "lightgbm_tuned": "LightGBM, tuned threshold",
    OURS: "anyloss",
}
LEVEL = 0.95
Unit = tuple[int, int, str]  # repeat, fold, what is trained


@dataclass(frozen=True)
class Contest:
    """A method on all folds; the difference is ours minus theirs, with its 95 % interval."""

    method: str
    score: float
    difference: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Comparison:
    """All methods on the same folds, simplest first and ours last; and what was noticed."""

    metric: str
    rows: int
    contests: tuple[Contest, ...]
    warnings: tuple[str, ...]


def compare_table(
    source: Any,
    target: str,
    metric: str = "f1",
    *,
    journal: Path | str,
    positive: str | None = None,
    model: str = "linear",
    folds: int = 5,
    repeats: int = 3,
    rows: int = 20_000,
    seed: int = 0,
    drop: Sequence[str] = (),
    id_column: str | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    tell: Callable[[int, int, str], None] = lambda done, total, name: None,
) -> Comparison:
    """Mean scores of the methods on repeated stratified folds, with the uncertainty of the gain.

    The columns are encoded within each training fold. Of more than `rows` rows so many are drawn.
    Each finished fold is kept in the `journal`, a file: a stopped run goes on from there. `tell` is
    told how many folds are done, of how many, and by which methods.
    """
    find_metric(metric)
    if model not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}; got {model!r}")
    check_sizes(folds, repeats, rows)
    if isinstance(source, str | Path):
        source = read_table(source, label=target, separator=separator, encoding=encoding)
    task = prepare(source, target, positive=positive, drop=drop, id_column=id_column)
    frame, y = _sample(task, rows, seed)
    check_rarer(y, folds)
    units: list[Unit] = [
        (r, f, x) for r in range(repeats) for f in range(folds) for x in _plans(model)
    ]
    settings = {
        "anyloss": __version__, "metric": metric, "model": model, "folds": folds, "rows": rows,
        "seed": seed, "positive": task.positive, "data": _fingerprint(frame, y),
    }  # fmt: skip
    with Journal(Path(journal), settings) as kept:
        for done, unit in enumerate(units):
            tell(done, len(units), unit[2])
            if json.dumps(unit) not in kept.results:
                kept.add(json.dumps(unit), _run(frame, y, metric, model, folds, seed, unit))
        tell(len(units), len(units), "")
        found = [row for unit in units for row in kept.results[json.dumps(unit)]]
    return Comparison(metric, len(y), _contests(found, folds), tuple(task.warnings))


def _plans(model: str) -> dict[str, tuple[str, str, dict[str, str]]]:
    """What is trained together: the model, the family, its methods and their names here."""
    plans = {
        "bce": (model, "bce", {"bce": "bce", "bce_tuned": "bce_tuned"}),
        "weighted": (model, "weighted", {"weighted": "weighted"}),
        OURS: (model, "anyloss", {"anyloss": OURS}),
    }
    if find_spec("imblearn") is not None:
        plans["smote"] = (model, "smote", {"smote_tuned": "smote_tuned"})
    if find_spec("lightgbm") is not None:
        plans["lightgbm"] = ("lightgbm", "bce", {"bce_tuned": "lightgbm_tuned"})
    return plans


def _sample(task: Task, rows: int, seed: int) -> tuple[Any, Array]:
    """The rows to compare on, without columns that only name them."""
    keep = sample_rows(task.y, rows, seed)
    return without_identifiers(task, task.frame.iloc[keep]), task.y[keep]


def _fingerprint(frame: Any, y: Array) -> str:
    import pandas as pd

    rows = pd.util.hash_pandas_object(frame, index=False).to_numpy()
    return fingerprint(rows, y) + f"{zlib.crc32(json.dumps(list(frame)).encode()):08x}"


def _run(
    frame: Any, y: Array, metric: str, model: str, folds: int, seed: int, unit: Unit
) -> list[dict[str, Any]]:
    from sklearn.model_selection import StratifiedKFold

    repeat, fold, what = unit
    seed = seed * 1000 + repeat
    outer = StratifiedKFold(folds, shuffle=True, random_state=seed)
    train, test = list(outer.split(y, y))[fold]
    frame = frame.drop(columns=identifiers(frame.iloc[train]))  # fewer rows repeat less
    encoder = fitted_encoder(frame.iloc[train])
    X, X_test = (encoder.transform(frame.iloc[at]) for at in (train, test))
    trained, family, names = _plans(model)[what]
    split = new_split(X, y[train], X_test, MODELS.get(trained, ()), seed + fold)
    return [
        {
            "method": names[outcome.method],
            "score": float(score(y[test], outcome.decision.astype(float), metric)),
        }
        for outcome in outcomes(trained, {family: list(names)}, split, metric)
    ]


def _contests(found: list[dict[str, Any]], folds: int) -> tuple[Contest, ...]:
    scores = {
        name: np.array([row["score"] for row in found if row["method"] == name])
        for name in METHODS
        if any(row["method"] == name for row in found)
    }
    gains = {name: scores[OURS] - theirs for name, theirs in scores.items()}
    return tuple(
        Contest(
            name, float(scores[name].mean()), float(gain.mean()), corrected_interval(gain, folds)
        )
        for name, gain in gains.items()
    )


def corrected_interval(differences: Array, folds: int) -> tuple[float, float]:
    """The 95 % interval of a mean difference over repeated folds, with the corrected variance.

    >>> low, high = corrected_interval(np.array([0.1, 0.2, 0.3, 0.2, 0.2]), folds=5)
    >>> round(low, 4), round(high, 4)
    (0.0683, 0.3317)
    """
    n = len(differences)
    error = np.sqrt((1 / n + 1 / (folds - 1)) * differences.var(ddof=1))
    width = float(student.ppf((1 + LEVEL) / 2, n - 1) * error)
    mean = float(differences.mean())
    return mean - width, mean + width


def verdict(contests: Sequence[Contest]) -> str:
    """The answer in plain words: who is better, or simpler and as good, if there is one."""
    *others, ours = contests
    better = [x for x in others if x.interval[1] < 0]
    if better:
        best = max(better, key=lambda x: x.score)
        return f"{METHODS[best.method]} is better than anyloss here {_told(best)}: take it."
    for other in others:
        if other.interval[0] <= 0:
            return (
                f"{METHODS[other.method]} is as good as anyloss, as far as these folds can tell "
                f"{_told(other)}: it is simpler, take it."
            )
    return f"anyloss is better than each of the others here: {ours.score:.4f} on average."


def _told(contest: Contest) -> str:
    low, high = contest.interval
    return f"(difference {contest.difference:+.4f}, 95 % from {low:+.4f} to {high:+.4f})"
