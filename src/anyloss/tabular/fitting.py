"""`fit_table`: from a table to a fitted and evaluated model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from anyloss import __version__
from anyloss._core.backend import Array
from anyloss._core.constraints import ConstraintSpec
from anyloss._core.outputs import versions
from anyloss.recipe.constrained import Promise, check_task, read_promise, without_fit_warnings
from anyloss.tabular.cautions import (
    constant_warning,
    cost_warning,
    dropped_warning,
    leak_warnings,
    row_warnings,
)
from anyloss.tabular.classifiers import AUTO, OnStage, candidates, training_curve
from anyloss.tabular.details import details, overfitting
from anyloss.tabular.drift import column_profiles
from anyloss.tabular.evaluating import MOST_COLUMNS
from anyloss.tabular.judging import (
    Fitted,
    Work,
    dependent_rows,
    fit_rows,
    judge_all,
    kept_rows,
    measured,
)
from anyloss.tabular.labels import Outcome
from anyloss.tabular.leaks import given_away, single_column_aucs
from anyloss.tabular.messages import by_level, information
from anyloss.tabular.model import TableModel
from anyloss.tabular.options import TableOptions, as_targets
from anyloss.tabular.preparing import PreparedTable
from anyloss.tabular.promises import set_apart
from anyloss.tabular.result import Result
from anyloss.tabular.row_costs import (
    RowCosts,
    check_costs,
    check_unambiguous,
    decisions_of_least_cost,
    paid_message,
    read_costs,
    summaries,
)
from anyloss.tabular.scoring import as_columns
from anyloss.tabular.splitting import Plan, plan_splits
from anyloss.tabular.streaming import bounded, open_table, size_advice

PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "lightgbm")


@without_fit_warnings()
def fit_table(
    source: Any, target: str | Sequence[str], metric: str = "f1", *,
    positive: str | float | None = None, average: str = "auto", model: str = "auto",
    test_share: float = 0.2, seed: int = 0,
    drop: Sequence[str] = (), id_column: str | None = None, group: str | None = None,
    time: str | None = None, separator: str | None = None, encoding: str | None = None,
    sheet: str | None = None, max_categories: int | None = 20, folds: int | None = None,
    constraints: ConstraintSpec | None = None, confidence_level: float | None = None,
    certify_share: float = 0.2, fn_cost: str | float | None = None,
    fp_cost: str | float | None = None, show_rows: bool = True, verbose: bool = False,
    stream: bool | None = None, time_limit: float | None = None, on_stage: OnStage | None = None,
) -> Result:  # fmt: skip
    """Fit a model to a table for a metric, and evaluate it on rows that it has not seen.

    A share of the rows is set apart for testing, with all classes in proportion. The columns are
    encoded by `TableEncoder`; columns that only number or identify the rows are not used. The model
    is trained for the metric on the other rows and evaluated on the test rows, next to the same
    model trained with cross-entropy and to trivial decisions. If the test rows would have fewer
    than 50 rows of a class, the model is fitted on all rows, and evaluated by cross-fitting: each
    row is predicted by a model of the same kind that was fitted without the row's fold.
    `Result.warnings` names what to check in the data.

    Args:
        source (DataFrame, Path or str): the table, or a CSV, Parquet or Excel file; `"-"` is CSV
            from the standard input.
        target (str or sequence of str): the label column, with two or more classes. Several columns
            of 0 and 1 are several labels, each of which is predicted.
        metric (str): the name of a metric or a formula of `tp, fn, fp, tn`. Default: `"f1"`.
        positive (str or number, optional): the positive class. If there are more than two classes,
            it is separated from all others. Default: the rarer one of two classes; none of several.
        average (str): how the metric is averaged over several classes or labels: `"macro"`,
            `"micro"`, `"weighted"`, or `"multiclass"` for a metric with a form of its own.
            `"auto"`, the default, is the metric's own form if it has one, else `"macro"`.
        model (str): `"linear"`, `"mlp"` (8 hidden units), `"lightgbm"`, or `"auto"` for an ensemble
            of them, whose weights rest on held-out training rows (under constraints: the best of
            them). Also a usual method, as `compare_table` names it: the
            same models with cross-entropy (`"plain-linear"`), with a tuned threshold or decision
            rule (`"tuned-linear"`), with class weights (`"weighted-linear"`), or on rows that SMOTE
            has balanced (`"smote-linear"`). Default: `"auto"`.
        test_share (float): the share of test rows. Default: 0.2.
        seed (int): the seed of the split and of the training. Default: 0.
        drop (sequence of str): columns that are not used. Default: none.
        id_column (str, optional): a column that identifies the rows. It is not a feature, and
            `predict_table` copies it to its output.
        group (str, optional): a column of groups, such as customers, whose rows stay together: all
            of them are training rows or all are test rows, and the same in the inner folds.
        time (str, optional): a column of dates or numbers. The latest rows are the test rows.
        separator (str, optional): the separator of a CSV file. Default: detected.
        encoding (str, optional): the encoding of a CSV file. Default: detected.
        sheet (str, optional): the sheet of an Excel file. Default: the only one with cells.
        max_categories (int or None): text columns with more values are encoded by the mean label of
            each value, others by one column per value; None for no limit. Default: 20.
        folds (int, optional): the number of folds for cross-fitting; 0 for one set of test rows.
            Default: 5 if the test rows would have fewer than 50 rows of a class and the table has
            at most 20,000 rows, otherwise 0.
        constraints (str or list of str, optional): constraints for two classes, such as
            `"recall >= 0.9"`. The model has the best metric among the decisions that satisfy them
            on held-out training rows.
        confidence_level (float, optional): the confidence with which the constraints shall hold on
            new data, such as 0.95. Some of the rows are then set apart before all others, and only
            used to certify the fitted model. None, the default, promises nothing.
        certify_share (float): the share of the rows that is set apart, at random. Default: 0.2.
        fn_cost (str or float, optional): what a false negative costs: a column with the cost of
            each row, or a number. With both costs the model decides each row by its least expected
            cost, and `Result.costs` has what the test rows cost. Default: costs are not known.
        fp_cost (str or float, optional): what a false positive costs: a column or a number.
        show_rows (bool): whether the result holds single rows of the table, those with the most
            confident errors, which the report shows. Default: True.
        verbose (bool): whether to show a progress bar with the score of held-out rows.
            Default: False.
        stream (bool, optional): whether a Parquet file is read in parts, again and again, instead
            of being held in memory. The score rests on all test rows all the same, while the model
            is fitted to a weighted sample of 100,000 training rows, and baselines, importances and
            slices rest on a sample of the test rows. Default: with more than 50 million cells (rows
            times columns).
        on_stage (callable, optional): a callback. It receives a text at the start of each stage.
        time_limit (float, optional): with `model="auto"`, the seconds for training all models,
            those of cross-fitting included; the baselines and the evaluation come on top. Members
            that are not predicted to end in time are left out, and further ones (a network with 32
            units, extra trees, XGBoost) are added as long as there is time. Default: no limit, and
            no further members.

    Shape:
        - `source`: `(n, d + 1)`, the features and the label, with at least 10 rows of each class.
        - `y_test` and `p_test` of the result: `(n_test,)`, or `(n_test, classes)`.
        - `curve` of the result: `(checks, 3)`.

    Returns:
        Result: the model, its decisions on the test rows, its score with an interval, the baselines
        and the importance of each column.

    Raises:
        ValueError: if the table, a column or an option cannot be used, or no threshold satisfies
            the constraints on held-out rows.

    Examples:
        >>> from sklearn.datasets import load_breast_cancer, load_wine
        >>> frame = load_breast_cancer(as_frame=True).frame
        >>> result = fit_table(frame, "target", "f1", model="linear")
        >>> result.outcome.positive, result.score > 0.9, len(result.baselines)
        ('0', True, 5)
        >>> result = fit_table(load_wine(as_frame=True).frame, "target", "f1", model="linear")
        >>> result.outcome.classes, result.average, result.score > 0.9
        (('0', '1', '2'), 'macro', True)
    """
    costs = read_costs(fn_cost, fp_cost)
    options = TableOptions(
        as_targets(target), metric, positive, average, seed, tuple(drop), id_column, group, time,
        separator, encoding, sheet, max_categories, tuple(costs.columns()) if costs else (),
    )  # fmt: skip
    promise = read_promise(constraints, confidence_level, certify_share)
    ensemble = model == AUTO and not promise.constraints
    names = () if ensemble else candidates(model, group is not None, bool(promise.constraints))
    _check_time_limit(time_limit, ensemble)
    settings = _settings(
        source, options, model, test_share, folds, promise, time_limit, stream, costs
    )
    stage = on_stage or (lambda text: None)
    stage(f"Reading the table{size_advice(source)}")
    table = open_table(source, options, stream)
    del source
    outcome, scoring = table.outcome, options.scoring(table.outcome)
    facts = _facts(table)
    check_task(promise, outcome.task)
    check_costs(costs, outcome, promise.constraints)
    known = (*options.targets, *table.dropped, *(x.name for x in table.readings))
    check_unambiguous((fn_cost, fp_cost), known)
    _check_independent(promise, group, time)
    promise, folds = bounded(table, promise, folds, costs is not None)
    paid = None if costs is None else costs.of(table.costs)
    certifying, caveat = set_apart(table, promise, seed, options.positive is not None)
    plan = plan_splits(
        table.keys, table.y, ~certifying, test_share, folds, seed, outcome.task, table.groups,
        table.times,
    )  # fmt: skip
    work = Work(
        table, certifying, names, scoring, promise, seed, max_categories, verbose, stage,
        _seconds_of_a_fit(table, plan, time_limit), paid is not None,
    )  # fmt: skip
    fitted, aucs = _fit(work, plan)
    profiles = column_profiles(fitted.train)
    top = sorted(aucs, key=lambda x: -aucs[x].max())[:MOST_COLUMNS]
    judged = judge_all(work, plan, fitted)
    facts |= _evaluation_facts(plan, fitted, len(kept_rows(judged)))
    facts["dropped"] = table.dropped
    found, near = measured(work, judged, top, fitted.y)
    found["curve"] = training_curve(fitted.classifier)
    rows, decided = np.concatenate([x.rows for x in judged]), outcome.decide(found["p_test"])
    if paid is not None:
        p = np.concatenate([np.asarray(x.probabilities) for x in judged])
        there = tuple(x[rows] if x.ndim else x for x in paid)
        groups = dependent_rows(table, rows)
        found["costs"] = summaries(found["y_test"], p, decided, there, metric, groups)
        decided = decisions_of_least_cost(p, there)
        table.warnings.append(paid_message(metric))
    kept = TableModel(
        fitted.encoder, fitted.classifier, outcome, tuple(table.readings),
        _profile(outcome, profiles, decided), id_column, costs, caveat,
    )  # fmt: skip
    stage("Looking for errors and slices")
    train, take = (fitted.train, fitted.parts.y), lambda x: table.take(rows[x])
    found |= details(kept, train, take, kept_rows(judged), found, scoring, seed, show_rows)
    near += overfitting(found["train_score"], found["score"], found["interval"])
    warnings = [*table.warnings, *near, *cost_warning(metric)]
    if not promise.constraints and paid is None:
        warnings += constant_warning(fitted.y, outcome, scoring)
    warnings += row_warnings(
        fitted.y, found["y_test"], found["counts"], outcome, aucs, table.warnings
    )
    warnings += dropped_warning(fitted.encoder)
    return Result(
        model=kept, model_name=fitted.name, metric=metric, average=str(scoring.layout.average),
        outcome=outcome, readings=kept.readings, facts=facts, settings=settings,
        candidates=fitted.candidates if model == AUTO else {}, warnings=tuple(by_level(warnings)),
        constraints=tuple(promise.texts or ()), certificate=fitted.classifier.certificate_,
        weights=getattr(fitted.classifier, "weights_", {}), **found,
    )  # fmt: skip


def _seconds_of_a_fit(table: PreparedTable, plan: Plan, limit: float | None) -> float | None:
    """The limit of time of each fit; a message if there are several."""
    fits = 1 + plan.crossed * len(plan.splits)
    if limit is not None and fits > 1:
        table.warnings.append(
            information(
                f"the limit of time is divided among {fits} fits, that of all rows and those of "
                f"the folds, {limit / fits:.3g} s each, so that the members of a fold may differ "
                "from those that are kept"
            )
        )
    return None if limit is None else limit / fits


def _fit(work: Work, plan: Plan) -> tuple[Fitted, dict[str, Array]]:
    """The model that is kept, and the AUC of each column alone; the table gets warnings."""
    table = work.table
    train, test = plan.splits[0]
    if plan.copies:
        rows = int(sum(x.sum() for _, x in plan.splits))
        table.warnings.append(
            f"{plan.copies} of {rows} test rows are copies of training rows, so the score may be "
            "too high"
        )
    if plan.crossed:
        train, test = ~work.certifying, train & ~train
    fitted = fit_rows(work, train, test)
    table.warnings.extend(_sample_message(fitted))
    y, task = fitted.parts.y, table.outcome.task
    table.leave_out(fitted.encoder.dropped_, "constant or empty")
    table.encoded(fitted.encoder.in_words())
    found = given_away(fitted.train, y, work.seed)
    table.warnings.extend(leak_warnings(found, table.outcome))
    return fitted, single_column_aucs(fitted.train, y, work.seed, task)


def _sample_message(fitted: Fitted) -> list[str]:
    """A message if the model is fitted to some of the training rows."""
    used, rows = fitted.parts.to_fit, len(fitted.y)
    if len(used.y) == rows:
        return []
    how = "in proportion to the classes"
    if used.weight is not None:
        how = "the rarer classes first, with weights that restore their shares"
    return [information(f"the model is fitted to {len(used.y)} of {rows} training rows: {how}")]


def _evaluation_facts(plan: Plan, fitted: Fitted, compared: int) -> dict[str, Any]:
    """What the score rests on: the rows, the folds and the number of fits."""
    folds, words = len(plan.splits) if plan.crossed else 0, plan.words
    tested = int(sum(test.sum() for _, test in plan.splits))
    if compared < tested:
        words += f"; baselines, importances and slices on {compared} of them, drawn at random"
    return {
        "train_rows": len(fitted.y),
        "fitted_rows": len(fitted.parts.to_fit.y),
        "test_rows": tested,
        "compared_rows": compared,
        "folds": folds,
        "fits": len(fitted.candidates) * (folds + 1),
        "left_out": getattr(fitted.classifier, "skipped_", {}),
        "evaluation": words,
    }


def _settings(
    source: Any, options: TableOptions, model: str, test_share: float, folds: int | None,
    promise: Promise, time_limit: float | None, stream: bool | None, costs: RowCosts | None,
) -> dict[str, Any]:  # fmt: skip
    """What is needed to repeat the fit."""
    place = str(source) if isinstance(source, str | Path) else None
    targets = options.targets[0] if len(options.targets) == 1 else list(options.targets)
    words = ["frame" if place is None else repr(place), repr(targets), repr(options.metric)]
    given = {"model": model, "test_share": test_share, "seed": options.seed} | options.changed()
    wanted = {"folds": folds, "time_limit": time_limit, "stream": stream}
    given |= {name: value for name, value in wanted.items() if value is not None}
    if promise.constraints:
        given |= {"constraints": promise.texts, "confidence_level": promise.confidence_level}
        given |= {"certify_share": promise.certify_share}
    if costs is not None:
        given |= {"fn_cost": costs.fn, "fp_cost": costs.fp}
    words += [f"{name}={value!r}" for name, value in given.items()]
    return {
        "command": f"fit_table({', '.join(words)})",
        "source": place or "a data frame",
        "seed": options.seed,
        "test_share": test_share,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"anyloss": __version__} | versions(PACKAGES),
        "positive_named": options.positive is not None,
    }


def _facts(table: PreparedTable) -> dict[str, Any]:
    used = [reading for reading in table.readings if reading.name in table.frame]
    kinds = [reading.kind for reading in used]
    return {
        "rows": len(table.y),
        "positives": table.y.sum(axis=0)
        .astype(int)
        .tolist(),  # a number for each of several classes
        "columns": table.frame.shape[1],
        "numbers": kinds.count("numbers"),
        "dates": kinds.count("dates"),
        "texts": kinds.count("text"),
        "missing": sum(x.gaps + x.unread for x in used) / (len(table.y) * len(used)),
    }


def _check_time_limit(seconds: float | None, ensemble: bool) -> None:
    """Refuse a limit of time that is not a positive number, and one for a single model."""
    if seconds is not None and not ensemble:
        raise ValueError(
            "a limit of time is for the automatic model without constraints (--time-limit): leave "
            "out the limit, or fit --model auto without constraints"
        )
    number = isinstance(seconds, Real) and 0 < float(seconds) < math.inf
    if seconds is not None and not number:
        raise ValueError(
            "the limit of time must be a positive number of seconds; got "
            f"{seconds!r} (--time-limit)"
        )


def _check_independent(promise: Promise, group: str | None, time: str | None) -> None:
    """Refuse a certificate for rows that depend on each other or on the time."""
    if promise.confidence_level is not None and (group is not None or time is not None):
        raise ValueError(
            "a certificate needs independent rows of one population: rows of a group depend on "
            "each other, and later rows may differ from earlier ones. Leave out the confidence "
            "level (--confidence-level), or the groups and the time (--group, --time)"
        )


def _profile(outcome: Outcome, profiles: dict[str, Any], decided: Array) -> dict[str, Any]:
    """What a new table is compared with: the columns, and the shares of the predictions."""
    predicted = as_columns(decided).mean(axis=0).tolist()
    classes = [outcome.positive] if outcome.task == "binary" else list(outcome.classes)
    return {"columns": profiles, "predicted": predicted, "classes": classes}
