"""The comparison of our recipe with the usual methods on one table, over repeated folds.

The training folds overlap, so that the usual variance of a mean over folds is too small. The
intervals use the corrected variance of Nadeau and Bengio (2003), which adds the ratio of test to
training rows.
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
from anyloss._core.functions import score
from anyloss._core.journal import Journal
from anyloss.baselines.splits import MODELS, check_rarer, check_sizes, fingerprint, new_split
from anyloss.metrics import metric as find_metric
from anyloss.tabular.evaluating import BASELINES, predictions
from anyloss.tabular.preparing import (
    PreparedTable,
    fitted_encoder,
    identifiers,
    prepare_table,
    sample_rows,
    without_identifiers,
)
from anyloss.tabular.reading import read_table
from anyloss.tabular.result import Baseline

OURS = "anyloss"
# The simplest first: one that is as good as our recipe is the better choice.
METHODS = {
    **BASELINES,
    "smote_tuned": "SMOTE, tuned threshold",
    "lightgbm_tuned": "LightGBM, tuned threshold",
}
LEVEL = 0.95
Unit = tuple[int, int, str]  # the repeat, the fold, and the name of a plan


@dataclass(frozen=True)
class Comparison:
    """Our recipe and the usual methods on the same folds of a table.

    `compare_table` returns it.

    Attributes:
        metric (str): the metric of the scores.
        rows (int): the number of rows that were used.
        score (float): the mean score of our recipe over the test folds.
        baselines (tuple of Baseline): the mean scores of the usual methods, the simplest first.
            Their intervals use the corrected variance for folds that share rows.
        warnings (tuple of str): what a reader should know about the data.

    Examples:
        >>> other = Baseline("cross-entropy, tuned threshold", 0.70, 0.02, (-0.01, 0.05))
        >>> found = Comparison("f1", 300, 0.72, (other,), ())
        >>> [each.name for each in found.baselines if each.interval[0] <= 0]
        ['cross-entropy, tuned threshold']
    """

    metric: str
    rows: int
    score: float
    baselines: tuple[Baseline, ...]
    warnings: tuple[str, ...]


def compare_table(
    source: Any, target: str, metric: str = "f1", *, journal: Path | str,
    positive: str | None = None, model: str = "linear", folds: int = 5, repeats: int = 3,
    rows: int = 20_000, seed: int = 0, drop: Sequence[str] = (), id_column: str | None = None,
    separator: str | None = None, encoding: str | None = None,
    on_progress: Callable[[int, int, str], None] | None = None,
) -> Comparison:  # fmt: skip
    """Compare our recipe with the usual methods on a table, over repeated stratified folds.

    The methods are cross-entropy (at threshold 0.5, with a tuned threshold, with class weights),
    SMOTE (if imbalanced-learn is installed) and LightGBM (if it is installed), both with a tuned
    threshold. The columns are encoded within each training fold. The interval of a difference uses
    the corrected variance for folds that share rows.

    Args:
        source (DataFrame, Path or str): the table, or a CSV or Parquet file.
        target (str): the label column.
        metric (str): the name of a metric or a formula of `tp, fn, fp, tn`. Default: `"f1"`.
        journal (Path or str): a file that keeps each finished fold, so that an interrupted call
            continues from there.
        positive (str, optional): the positive class. Default: the rarer one of two classes.
        model (str): `"linear"` or `"mlp"`. Default: `"linear"`.
        folds (int): the number of folds. Default: 5.
        repeats (int): how often the folds are drawn. Default: 3.
        rows (int): the largest number of rows; a larger table is sampled. Default: 20,000.
        seed (int): the seed of the folds and the models. Default: 0.
        drop (sequence of str): columns that are not used. Default: none.
        id_column (str, optional): a column that identifies the rows; it is not used.
        separator (str, optional): the separator of a CSV file. Default: detected.
        encoding (str, optional): the encoding of a CSV file. Default: detected.
        on_progress (callable, optional): a callback. It receives the number of finished units of
            work, their total number, and the name of the next one.

    Shape:
        - `source`: `(n, d + 1)`, the features and the label, with at least 10 rows of each class.

    Returns:
        Comparison: the mean score of our recipe, and of each other method with its difference.

    Raises:
        ValueError: if the table or an option cannot be used, or if the journal belongs to another
            comparison.

    Examples:
        >>> import tempfile
        >>> from sklearn.datasets import load_breast_cancer
        >>> frame = load_breast_cancer(as_frame=True).frame[["mean area", "mean texture", "target"]]
        >>> journal = Path(tempfile.mkdtemp()) / "journal.jsonl"
        >>> found = compare_table(frame, "target", "f1", journal=journal, folds=2, repeats=1)
        >>> found.rows, found.baselines[0].name
        (569, 'cross-entropy, threshold 0.5')

    References:
        C. Nadeau, Y. Bengio. Inference for the Generalization Error. Machine Learning 52, 2003.
    """
    find_metric(metric)
    if model not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}; got {model!r}")
    check_sizes(folds, repeats, rows)
    if isinstance(source, str | Path):
        source = read_table(source, label=target, separator=separator, encoding=encoding)
    table = prepare_table(source, target, positive=positive, drop=drop, id_column=id_column)
    frame, y = _sample(table, rows, seed)
    check_rarer(y, folds)
    units: list[Unit] = [
        (r, f, x) for r in range(repeats) for f in range(folds) for x in _plans(model)
    ]
    settings = {
        "anyloss": __version__, "metric": metric, "model": model, "folds": folds, "rows": rows,
        "seed": seed, "positive": table.positive, "data": _fingerprint(frame, y),
    }  # fmt: skip
    progress = on_progress or (lambda done, total, name: None)
    with Journal(Path(journal), settings) as kept:
        for done, unit in enumerate(units):
            progress(done, len(units), unit[2])
            if json.dumps(unit) not in kept.results:
                kept.add(json.dumps(unit), _run(frame, y, metric, model, folds, seed, unit))
        progress(len(units), len(units), "")
        found = [row for unit in units for row in kept.results[json.dumps(unit)]]
    ours = float(_scores(found, OURS).mean())
    return Comparison(metric, len(y), ours, _baselines(found, folds), tuple(table.warnings))


def _plans(model: str) -> dict[str, tuple[str, str, dict[str, str]]]:
    """What is trained together: the model, the family, and the names of its methods here."""
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


def _sample(table: PreparedTable, rows: int, seed: int) -> tuple[Any, Array]:
    """The sampled rows without identifiers, and their labels."""
    keep = sample_rows(table.y, rows, seed)
    return without_identifiers(table, table.frame.iloc[keep]), table.y[keep]


def _fingerprint(frame: Any, y: Array) -> str:
    import pandas as pd

    rows = pd.util.hash_pandas_object(frame, index=False).to_numpy()
    return fingerprint(rows, y) + f"{zlib.crc32(json.dumps(list(frame)).encode()):08x}"


def _run(
    frame: Any, y: Array, metric: str, model: str, folds: int, seed: int, unit: Unit
) -> list[dict[str, Any]]:
    from sklearn.model_selection import StratifiedKFold

    repeat, fold, plan = unit
    seed = seed * 1000 + repeat
    outer = StratifiedKFold(folds, shuffle=True, random_state=seed)
    train, test = list(outer.split(y, y))[fold]
    frame = frame.drop(columns=identifiers(frame.iloc[train]))  # in fewer rows, texts repeat less
    encoder = fitted_encoder(frame.iloc[train])
    X, X_test = (encoder.transform(frame.iloc[at]) for at in (train, test))
    trained, family, names = _plans(model)[plan]
    split = new_split(X, y[train], X_test, MODELS.get(trained, ()), seed + fold)
    return [
        {
            "method": names[each.method],
            "score": float(score(y[test], each.decision.astype(float), metric)),
        }
        for each in predictions(trained, {family: list(names)}, split, metric)
    ]


def _scores(found: list[dict[str, Any]], method: str) -> Array:
    return np.array([row["score"] for row in found if row["method"] == method])


def _baselines(found: list[dict[str, Any]], folds: int) -> tuple[Baseline, ...]:
    compared = []
    for method, title in METHODS.items():
        if len(scores := _scores(found, method)):
            gain = _scores(found, OURS) - scores
            interval = corrected_interval(gain, folds)
            compared.append(Baseline(title, float(scores.mean()), float(gain.mean()), interval))
    return tuple(compared)


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


def recommendation(found: Comparison) -> str:
    """Which method to use: a better one, else a simpler one that is as good, else our recipe."""
    better = [x for x in found.baselines if x.interval[1] < 0]
    if better:
        best = max(better, key=lambda x: x.score)
        return (
            f"Recommendation: use {best.name}. It is better than anyloss on this table "
            f"({_difference(best)})."
        )
    for other in found.baselines:
        if other.interval[0] <= 0:
            return (
                f"Recommendation: use {other.name}. It is simpler than anyloss, and these folds "
                f"show no clear difference ({_difference(other)})."
            )
    return (
        "Recommendation: use anyloss. It is better than each of the other methods on this table, "
        f"with a mean score of {found.score:.4f}."
    )


def _difference(baseline: Baseline) -> str:
    low, high = baseline.interval
    return (
        f"anyloss minus this method: {baseline.difference:+.4f}, 95 % interval: {low:+.4f} to "
        f"{high:+.4f}"
    )
