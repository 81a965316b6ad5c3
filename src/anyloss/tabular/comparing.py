"""The comparison of our recipe with the usual methods on one table, over repeated folds.

The training folds overlap, so that the usual variance of a mean over folds is too small. The
intervals use the corrected variance of Nadeau and Bengio (2003), which adds the ratio of test to
training rows.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anyloss import __version__
from anyloss._core.backend import Array
from anyloss._core.journal import Journal
from anyloss.baselines.splits import MODELS, check_rarer, check_sizes, fingerprint, new_split
from anyloss.baselines.tables import methods_for, several_decisions, several_split
from anyloss.recipe.constrained import without_fit_warnings
from anyloss.recipe.folds import strata
from anyloss.tabular.evaluating import BASELINES, predictions
from anyloss.tabular.labels import Outcome
from anyloss.tabular.messages import by_level
from anyloss.tabular.options import TableOptions, as_targets
from anyloss.tabular.preparing import (
    PreparedTable,
    fitted_encoder,
    identifiers,
    load_table,
    without_identifiers,
)
from anyloss.tabular.result import Baseline, Comparison
from anyloss.tabular.scoring import Scoring, as_columns
from anyloss.tabular.splitting import row_keys, sample_rows
from anyloss.tabular.trivial import COPIES, trivial_decisions
from anyloss.tabular.usual import name_of
from anyloss.tabular.verdicts import OURS, corrected_interval

RULES = {
    "binary": "tuned threshold",
    "multiclass": "tuned decision rule",
    "multilabel": "tuned thresholds",
}
TRIVIAL = "trivial"
Unit = tuple[int, int, str]  # the repeat, the fold, and the name of a plan


def methods(task: str) -> dict[str, str]:
    """The titles of the methods, the simplest first: one that is as good is the better choice.

    >>> list(methods("multiclass").values())[-1]
    'LightGBM, tuned decision rule'
    """
    rule = RULES[task]
    smote = {"smote_tuned": f"SMOTE, {rule}"} if task == "binary" else {}
    return {**BASELINES[task], **smote, "lightgbm_tuned": f"LightGBM, {rule}"}


@without_fit_warnings()
def compare_table(
    source: Any, target: str | Sequence[str], metric: str = "f1", *, journal: Path | str,
    positive: str | float | None = None, average: str = "auto", model: str = "linear",
    folds: int = 5, repeats: int = 3, rows: int = 20_000, seed: int = 0, drop: Sequence[str] = (),
    id_column: str | None = None, group: str | None = None, time: str | None = None,
    separator: str | None = None, encoding: str | None = None, sheet: str | None = None,
    max_categories: int | None = 20,
    on_progress: Callable[[int, int, str], None] | None = None,
) -> Comparison:  # fmt: skip
    """Compare our recipe with the usual methods on a table, over repeated stratified folds.

    The methods are cross-entropy (at threshold 0.5 or by the arg-max, with a tuned threshold or
    decision rule, with class weights), SMOTE (for two classes, if imbalanced-learn is installed)
    and LightGBM (if it is installed), both with a tuned threshold or rule; and trivial decisions.
    The columns are encoded within each training fold. The interval of a difference uses the
    corrected variance for folds that share rows.

    Args:
        source (DataFrame, Path or str): the table, or a CSV, Parquet or Excel file; `"-"` is CSV
            from the standard input.
        target (str or sequence of str): the label column, or several columns of 0 and 1.
        metric (str): the name of a metric or a formula of `tp, fn, fp, tn`. Default: `"f1"`.
        journal (Path or str): a file that keeps each finished fold, so that an interrupted call
            continues from there.
        positive (str or number, optional): the positive class. Default: the rarer one of two
            classes; none of several.
        average (str): how the metric is averaged over several classes or labels, as in `fit_table`.
            Default: `"auto"`.
        model (str): `"linear"` or `"mlp"`. Default: `"linear"`.
        folds (int): the number of folds. Default: 5.
        repeats (int): how often the folds are drawn. Default: 3.
        rows (int): the largest number of rows; a larger table is sampled. Default: 20,000.
        seed (int): the seed of the folds and the models. Default: 0.
        drop (sequence of str): columns that are not used. Default: none.
        id_column (str, optional): a column that identifies the rows; it is not used.
        group (str, optional): a column of groups, such as customers, whose rows stay in one fold.
        time (str, optional): a column of dates or numbers. Each fold is trained on the rows before
            its test rows, and the folds are not repeated.
        separator (str, optional): the separator of a CSV file. Default: detected.
        encoding (str, optional): the encoding of a CSV file. Default: detected.
        sheet (str, optional): the sheet of an Excel file. Default: the only one with cells.
        max_categories (int or None): as in `fit_table`. Default: 20.
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
    options = TableOptions(
        as_targets(target), metric, positive, average, seed, tuple(drop), id_column, group, time,
        separator, encoding, sheet, max_categories,
    )  # fmt: skip
    if model not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}; got {model!r}")
    check_sizes(folds, repeats, rows)
    table = load_table(source, options)
    frame, y, groups, times = _sample(table, rows, seed)
    repeats = repeats if times is None else 1
    for labels in as_columns(y).T:
        check_rarer(labels, folds)
    scoring = options.scoring(table.outcome)
    job = _Job(frame, y, groups, times, table.outcome, scoring, model, folds, seed, max_categories)
    units: list[Unit] = [
        (r, f, x)
        for r in range(repeats)
        for f in range(folds)
        for x in _plans(model, table.outcome.task)
    ]
    settings = {
        "anyloss": __version__, "metric": metric, "average": str(job.scoring.layout.average),
        "model": model, "folds": folds, "rows": rows, "seed": seed,
        "classes": list(table.outcome.classes), "group": group, "time": time,
        "max_categories": max_categories, "data": _fingerprint(frame, y),
    }  # fmt: skip
    progress = on_progress or (lambda done, total, name: None)
    with Journal(Path(journal), settings) as kept:
        for done, unit in enumerate(units):
            progress(done, len(units), unit[2])
            if json.dumps(unit) not in kept.results:
                kept.add(json.dumps(unit), _run(job, unit))
        progress(len(units), len(units), "")
        found = [row for unit in units for row in kept.results[json.dumps(unit)]]
    ours = float(_scores(found, OURS).mean())
    compared = _baselines(found, folds, table.outcome.task)
    scores = _fold_scores(found, table.outcome.task)
    warnings = tuple(by_level(table.warnings))
    names = {title: name_of(model, x) for x, title in methods(table.outcome.task).items()}
    names = {x: names.get(x, model) for x in scores if x in names or x == OURS}
    return Comparison(metric, len(y), ours, compared, warnings, scores, folds, names)


class _Job(NamedTuple):
    """What is the same for all units of work."""

    frame: Any
    y: Array
    groups: Array | None
    times: Array | None
    outcome: Outcome
    scoring: Scoring
    model: str
    folds: int
    seed: int
    max_categories: int | None


def _plans(model: str, task: str) -> dict[str, tuple[str, str, dict[str, str]]]:
    """What is trained together: the model, the family, and the names of its methods here."""
    plans = {
        "bce": (model, "bce", {"bce": "bce", "bce_tuned": "bce_tuned"}),
        "weighted": (model, "weighted", {"weighted": "weighted"}),
        OURS: (model, "anyloss", {"anyloss": OURS}),
        TRIVIAL: ("", TRIVIAL, {}),
    }
    if task != "binary" and "weighted" not in methods_for(model, task):
        del plans["weighted"]
    if task == "binary" and find_spec("imblearn") is not None:
        plans["smote"] = (model, "smote", {"smote_tuned": "smote_tuned"})
    if find_spec("lightgbm") is not None:
        plans["lightgbm"] = ("lightgbm", "bce", {"bce_tuned": "lightgbm_tuned"})
    return plans


def _sample(
    table: PreparedTable, rows: int, seed: int
) -> tuple[Any, Array, Array | None, Array | None]:
    """The sampled rows without identifiers, their labels, groups and times."""
    keep = sample_rows(table.y, rows, seed, table.outcome.task)
    groups, times = (None if x is None else x[keep] for x in (table.groups, table.times))
    return without_identifiers(table, table.frame.iloc[keep]), table.y[keep], groups, times


def _folds(job: _Job, seed: int) -> list[tuple[Array, Array]]:
    """The training rows and test rows of each fold."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, TimeSeriesSplit

    if job.times is not None:
        order = np.argsort(job.times, kind="stable")
        return [(order[a], order[b]) for a, b in TimeSeriesSplit(job.folds).split(order)]
    kind = StratifiedKFold if job.groups is None else StratifiedGroupKFold
    outer = kind(job.folds, shuffle=True, random_state=seed)
    return list(outer.split(job.y, strata(as_columns(job.y), job.outcome.task), job.groups))


def _fingerprint(frame: Any, y: Array) -> str:
    return fingerprint(row_keys(frame), y) + f"{zlib.crc32(json.dumps(list(frame)).encode()):08x}"


def _run(job: _Job, unit: Unit) -> list[dict[str, Any]]:
    repeat, fold, plan = unit
    frame, y, task, seed = job.frame, job.y, job.outcome.task, job.seed * 1000 + repeat
    train, test = _folds(job, seed)[fold]
    groups = None if job.groups is None else job.groups[train]
    trained, family, names = _plans(job.model, task)[plan]
    if family == TRIVIAL:
        return list(_trivial(job, test))
    frame = frame.drop(columns=identifiers(frame.iloc[train]))  # in fewer rows, texts repeat less
    encoder, X = fitted_encoder(frame.iloc[train], y[train], groups, job.max_categories)
    X_test = encoder.transform(frame.iloc[test])
    if task == "binary":
        split = new_split(X, y[train], X_test, MODELS.get(trained, ()), seed + fold, groups)
        each = predictions(trained, {family: list(names)}, split, job.scoring.metric.name)
        decided = iter([(x.method, x.decision.astype(float)) for x in each])
    else:
        rows = several_split(X, y[train], X_test, task, trained, seed + fold, groups)
        decided = several_decisions(trained, rows, list(names), *job.scoring)
    return [
        {"method": names[method], "score": job.scoring.score(y[test], x)} for method, x in decided
    ]


def _trivial(job: _Job, test: Array) -> Iterator[dict[str, Any]]:
    """The scores of trivial decisions; those of random ones are means over copies of the rows.

    They are chosen on all rows, so that they are the same ones in all folds.
    """
    for k, each in enumerate(trivial_decisions(job.y, job.outcome, job.scoring, job.seed)):
        y = np.concatenate([job.y[test]] * (COPIES if each.random else 1))
        score = job.scoring.score(y, each.decide(len(y)))
        yield {"method": f"{TRIVIAL} {k}", "title": each.name, "score": score}


def _scores(found: list[dict[str, Any]], method: str) -> Array:
    return np.array([row["score"] for row in found if row["method"] == method])


def _fold_scores(found: list[dict[str, Any]], task: str) -> dict[str, tuple[float, ...]]:
    """The scores of each method by its title, the simplest first, ours last, then trivial ones."""
    titles = {**methods(task), OURS: OURS}
    titles |= {x["method"]: x["title"] for x in found if x["method"].startswith(TRIVIAL)}
    scores = {title: _scores(found, method) for method, title in titles.items()}
    return {title: tuple(x.tolist()) for title, x in scores.items() if len(x)}


def _baselines(found: list[dict[str, Any]], folds: int, task: str) -> tuple[Baseline, ...]:
    compared = []
    trivial = {x["method"]: x["title"] for x in found if x["method"].startswith(TRIVIAL)}
    for method, title in {**methods(task), **trivial}.items():
        if len(scores := _scores(found, method)):
            gain = _scores(found, OURS) - scores
            interval = corrected_interval(gain, folds)
            means = float(scores.mean()), float(gain.mean())
            compared.append(Baseline(title, *means, interval, method in trivial))
    return tuple(compared)
