"""`fit_table`: from a table to a fitted and evaluated model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from warnings import catch_warnings

import numpy as np

from anyloss import __version__
from anyloss._core.backend import Array
from anyloss._core.constraints import ConstraintSpec
from anyloss._core.explain import explain
from anyloss._core.outputs import versions
from anyloss.baselines.splits import MODELS
from anyloss.recipe.constrained import Promise, UncertifiedWarning, check_task, read_promise
from anyloss.sklearn import AnyLossClassifier
from anyloss.tabular import evaluating
from anyloss.tabular.columns import listed
from anyloss.tabular.details import details, overfitting
from anyloss.tabular.drift import column_profiles
from anyloss.tabular.encoder import TableEncoder
from anyloss.tabular.evaluating import Parts
from anyloss.tabular.intervals import score_interval
from anyloss.tabular.labels import Outcome
from anyloss.tabular.leaks import (
    GIVEN_AWAY,
    LEAK,
    given_away,
    single_column_aucs,
    twin_warning,
    twins,
)
from anyloss.tabular.messages import Message, by_level, information, stop
from anyloss.tabular.model import TableModel, decision_values
from anyloss.tabular.options import TableOptions, as_targets
from anyloss.tabular.preparing import (
    FEW,
    PreparedTable,
    fitted_encoder,
    load_table,
    without_identifiers,
)
from anyloss.tabular.promises import set_apart
from anyloss.tabular.result import Result
from anyloss.tabular.scoring import Scoring, as_columns
from anyloss.tabular.splitting import split_rows
from anyloss.tabular.trivial import maximised_by
from anyloss.thresholds import Infeasible

CANDIDATES = ("linear", "mlp", "lightgbm")
PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "lightgbm")
OnStage = Callable[[str], None]


def fit_table(
    source: Any, target: str | Sequence[str], metric: str = "f1", *, positive: str | None = None,
    average: str = "auto", model: str = "auto", test_share: float = 0.2, seed: int = 0,
    drop: Sequence[str] = (), id_column: str | None = None, group: str | None = None,
    time: str | None = None, separator: str | None = None, encoding: str | None = None,
    constraints: ConstraintSpec | None = None, confidence_level: float | None = None,
    certify_share: float = 0.2, show_rows: bool = True, verbose: bool = False,
    on_stage: OnStage | None = None,
) -> Result:  # fmt: skip
    """Fit a model to a table for a metric, and evaluate it on rows that it has not seen.

    A share of the rows is set apart for testing, with all classes in proportion. The columns are
    encoded by `TableEncoder`; columns that only number or identify the rows are not used. The model
    is trained for the metric on the other rows and evaluated on the test rows, next to the same
    model trained with cross-entropy and to trivial decisions. `Result.warnings` names what to check
    in the data.

    Args:
        source (DataFrame, Path or str): the table, or a CSV or Parquet file.
        target (str or sequence of str): the label column, with two or more classes. Several columns
            of 0 and 1 are several labels, each of which is predicted.
        metric (str): the name of a metric or a formula of `tp, fn, fp, tn`. Default: `"f1"`.
        positive (str, optional): the positive class. If there are more than two classes, it is
            separated from all others. Default: the rarer one of two classes; none of several.
        average (str): how the metric is averaged over several classes or labels: `"macro"`,
            `"micro"`, `"weighted"`, or `"multiclass"` for a metric with a form of its own.
            `"auto"`, the default, is the metric's own form if it has one, else `"macro"`.
        model (str): `"linear"`, `"mlp"` (8 hidden units), `"lightgbm"`, or `"auto"` for the best of
            them on held-out training rows. Default: `"auto"`.
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
        constraints (str or list of str, optional): constraints for two classes, such as
            `"recall >= 0.9"`. The model has the best metric among the decisions that satisfy them
            on held-out training rows.
        confidence_level (float, optional): the confidence with which the constraints shall hold on
            new data, such as 0.95. Some of the rows are then set apart before all others, and only
            used to certify the fitted model. None, the default, promises nothing.
        certify_share (float): the share of the rows that is set apart, at random. Default: 0.2.
        show_rows (bool): whether the result holds single rows of the table, those with the most
            confident errors, which the report shows. Default: True.
        verbose (bool): whether to show a progress bar with the score of held-out rows.
            Default: False.
        on_stage (callable, optional): a callback. It receives a text at the start of each stage.

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
    options = TableOptions(
        as_targets(target), metric, positive, average, seed, tuple(drop), id_column, group, time,
        separator, encoding,
    )  # fmt: skip
    if model not in ("auto", *CANDIDATES):
        raise ValueError(f"model must be one of auto, {', '.join(CANDIDATES)}; got {model!r}")
    promise = read_promise(constraints, confidence_level, certify_share)
    settings = _settings(source, options, model, test_share, promise)
    stage = on_stage or (lambda text: None)
    stage("Reading the table")
    table = load_table(source, options)
    del source
    names = _candidates(model, group is not None)
    scoring, facts = options.scoring(table.outcome), _facts(table)
    check_task(promise, table.outcome.task)
    _check_independent(promise, group, time)
    certifying = set_apart(table, promise, seed, options.positive is not None)
    encoder, parts, aucs, profiles = _encoded(table, certifying, test_share, seed)
    facts |= {"train_rows": len(parts.y), "test_rows": len(parts.y_test)}
    table.leave_out(encoder.dropped_, "constant or empty")
    facts |= {"dropped": table.dropped}
    fitted = _fitted(names, parts, table.outcome, scoring, promise, seed, verbose, stage)
    candidates = {name: float(x.held_out_score_) for name, x in fitted.items()}
    best = max(candidates, key=lambda x: candidates[x])
    found = TableModel(
        encoder, fitted[best], table.outcome, tuple(table.readings), profiles, id_column
    )
    measured, near = _evaluated(found, best, parts, aucs, scoring, promise, seed, stage, show_rows)
    found = replace(found, profile=_profile(found, profiles, measured["p_test"]))
    warnings = (
        *table.warnings, *near, *_cost_warning(metric),
        *_constant_warning(parts.y, table.outcome, scoring),
        *_warnings(parts, table.outcome, measured, aucs, table.warnings),
        *_dropped_warning(encoder),
    )  # fmt: skip
    return Result(
        model=found, model_name=best, metric=metric, average=str(scoring.layout.average),
        outcome=table.outcome, readings=found.readings, facts=facts, settings=settings,
        candidates=candidates if model == "auto" else {}, warnings=tuple(by_level(warnings)),
        constraints=tuple(promise.texts or ()), certificate=fitted[best].certificate_, **measured,
    )  # fmt: skip


def _fitted(
    names: Sequence[str], parts: Parts, outcome: Outcome, scoring: Scoring,
    promise: Promise, seed: int, verbose: bool, stage: OnStage,
) -> dict[str, Any]:  # fmt: skip
    """The fitted candidates by name, without those that satisfy no constraint on held-out rows."""
    found, failed = {}, None
    given = {"certify_set": parts.certify_set, "groups": parts.groups}
    more = {name: value for name, value in given.items() if value is not None}
    for name in names:
        stage(f"Fitting the model '{name}'")
        classifier = new_classifier(name, outcome, scoring, seed, verbose, promise)
        with catch_warnings(action="ignore", category=UncertifiedWarning):  # the result has it
            try:
                found[name] = classifier.fit(parts.X, classifier_labels(parts.y, outcome), **more)
            except Infeasible as error:
                failed = error
    if not found and failed is not None:
        raise failed
    return found


def _candidates(model: str, grouped: bool) -> Sequence[str]:
    """The models to fit: the one that is named, or all that are installed."""
    if grouped and model not in ("auto", *MODELS):
        raise ValueError(
            f"the inner folds of the model {model!r} cannot keep groups together: choose one of "
            f"{', '.join(MODELS)} (--model)"
        )
    if model != "auto":
        return (model,)
    known = tuple(MODELS) if grouped else CANDIDATES
    return [x for x in known if x in MODELS or find_spec(x) is not None]


def _evaluated(
    model: TableModel, name: str, parts: Parts, aucs: dict[str, Array], scoring: Scoring,
    promise: Promise, seed: int, stage: OnStage, show_rows: bool,
) -> tuple[dict[str, Any], list[str]]:  # fmt: skip
    """The fields of a result that describe a fitted model, and warnings about its test rows."""
    stage("Evaluating the model on the test rows")
    outcome, y_test = model.outcome, parts.y_test
    p_test = decision_values(model.classifier, parts.X_test, outcome.task)
    ours = outcome.decide(p_test)
    stage("Training the baselines")
    compared = evaluating.baselines(name, parts, ours, outcome, scoring, seed, promise)
    near = twins(parts.X, parts.X_test, seed)
    stage("Measuring the importance of the columns")
    top = sorted(aucs, key=lambda x: -aucs[x].max())[: evaluating.MOST_COLUMNS]

    def decide(X: Array) -> Array:
        return outcome.decide(decision_values(model.classifier, X, outcome.task))

    importances = evaluating.importances(
        decide, parts.X_test, y_test, model.encoder.sources(), top, scoring, seed
    )
    stage("Looking for errors and slices")
    more = details(model, parts, p_test, importances, scoring, seed, show_rows)
    score, interval = scoring.score(y_test, ours), score_interval(y_test, ours, scoring, seed)
    warnings = twin_warning(near, y_test, ours, scoring, parts.groups is not None)
    return {
        "score": score,
        "interval": interval,
        "counts": scoring.counts(y_test, ours),
        "y_test": y_test,
        "p_test": p_test,
        "curve": _curve(model.classifier),
        "baselines": compared,
        "importances": importances,
        **more,
    }, [*warnings, *overfitting(more["train_score"], score, interval)]


def _settings(
    source: Any, options: TableOptions, model: str, test_share: float, promise: Promise
) -> dict[str, Any]:
    """What is needed to repeat the fit."""
    place = str(source) if isinstance(source, str | Path) else None
    targets = options.targets[0] if len(options.targets) == 1 else list(options.targets)
    words = ["frame" if place is None else repr(place), repr(targets), repr(options.metric)]
    given = {"model": model, "test_share": test_share, "seed": options.seed} | options.changed()
    if promise.constraints:
        given |= {"constraints": promise.texts, "confidence_level": promise.confidence_level}
        given |= {"certify_share": promise.certify_share}
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
    kinds = [reading.kind for reading in table.readings if reading.name in table.frame]
    return {
        "rows": len(table.y),
        "positives": table.y.sum(axis=0)
        .astype(int)
        .tolist(),  # a number for each of several classes
        "columns": table.frame.shape[1],
        "numbers": kinds.count("numbers"),
        "dates": kinds.count("dates"),
        "texts": kinds.count("text"),
        "missing": float(table.frame.isna().to_numpy().mean()),
    }


def _encoded(
    table: PreparedTable, certifying: Array, test_share: float, seed: int
) -> tuple[TableEncoder, Parts, dict[str, Array], dict[str, Any]]:
    """The encoder, the encoded rows, the AUCs of each column alone, and the columns' profiles."""
    task, frame, labels = table.outcome.task, table.frame[~certifying], table.y[~certifying]
    groups, times = (None if x is None else x[~certifying] for x in (table.groups, table.times))
    test, copies = split_rows(frame, labels, test_share, seed, task, groups, times)
    train, rest = frame[~test], frame[test]
    if copies:
        table.warnings.append(
            f"{copies} of {len(rest)} test rows are copies of training rows, so the score may be "
            "too high"
        )
    encoder = fitted_encoder(train := without_identifiers(table, train))
    y, y_test = labels[~test], labels[test]
    usable = train[list(encoder.columns_)]
    groups = None if groups is None else groups[~test]
    table.warnings.extend(_leak_warnings(given_away(usable, y, seed), table.outcome))
    parts = Parts(
        encoder.transform(train), y, encoder.transform(rest), y_test, groups=groups,
        frame_test=rest[list(encoder.columns_)],
    )  # fmt: skip
    if certifying.any():
        rows = encoder.transform(table.frame[certifying])
        parts = parts._replace(certify_set=(rows, table.y[certifying]))
    return encoder, parts, single_column_aucs(usable, y, seed, task), column_profiles(usable)


def _check_independent(promise: Promise, group: str | None, time: str | None) -> None:
    """Refuse a certificate for rows that depend on each other or on the time."""
    if promise.confidence_level is not None and (group is not None or time is not None):
        raise ValueError(
            "a certificate needs independent rows of one population: rows of a group depend on "
            "each other, and later rows may differ from earlier ones. Leave out the confidence "
            "level (--confidence-level), or the groups and the time (--group, --time)"
        )


def _profile(model: TableModel, profiles: dict[str, Any], p_test: Array) -> dict[str, Any]:
    """What a new table is compared with: the columns, and the shares of the predictions."""
    outcome = model.outcome
    predicted = as_columns(outcome.decide(p_test)).mean(axis=0).tolist()
    classes = [outcome.positive] if outcome.task == "binary" else list(outcome.classes)
    return {"columns": profiles, "predicted": predicted, "classes": classes}


def new_classifier(
    model: str, outcome: Outcome, scoring: Scoring, seed: int = 0, verbose: bool = False,
    promise: Promise = Promise(),
) -> Any:  # fmt: skip
    """A new classifier by its name, for the labels of `classifier_labels`."""
    given: dict[str, Any] = {
        "constraints": promise.texts,
        "confidence_level": promise.confidence_level,
    }
    positive = 1 if outcome.task == "binary" else None
    metric, average = scoring.metric.name, str(scoring.layout.average)
    if model in MODELS:
        return AnyLossClassifier(
            metric, MODELS[model], average=average, pos_label=positive, random_state=seed,
            verbose=verbose, **given,
        )  # fmt: skip
    from anyloss.boosting import LGBMAnyLossClassifier

    return LGBMAnyLossClassifier(
        metric, average=average, pos_label=positive, random_state=seed, verbose=-1,
        deterministic=True, force_col_wise=True, n_jobs=0, **given,
    )  # fmt: skip


def classifier_labels(y: Array, outcome: Outcome) -> Array:
    """The labels as classifiers take them: 0 and 1, or the numbers of the classes."""
    return y.argmax(axis=1) if outcome.task == "multiclass" else y


def _curve(classifier: Any) -> Array:
    """The step, the soft score and the hard score of each check; none for trees."""
    if not isinstance(classifier, AnyLossClassifier):
        return np.empty((0, 3))
    checks, soft = classifier.hard_history_, classifier.history_
    at = np.minimum(checks[:, 0].astype(int), len(soft) - 1)
    return np.column_stack([checks[:, 0], soft[at], checks[:, 1]])


def _cost_warning(metric: str) -> list[Message]:
    """A warning if the metric increases with mistakes.

    >>> _cost_warning("f1"), len(_cost_warning("fn / (tp + fn)"))
    ([], 1)
    """
    if explain(metric, tp=30, fn=20, fp=10, tn=40).threshold is not None:
        return []
    return [
        stop(
            f"{metric} increases with mistakes, but the training maximises it: write a cost as "
            "1 - cost"
        )
    ]


def _constant_warning(y: Array, outcome: Outcome, scoring: Scoring) -> list[Message]:
    """A warning if a constant decision has the score of perfect decisions."""
    constant = maximised_by(y, outcome, scoring)
    if constant is None:
        return []
    return [
        stop(
            f"{scoring.metric.name} is as high as it can be for the decision {constant}: use a "
            "metric that counts both kinds of mistakes, such as f1 or mcc, or a constraint on the "
            "other kind"
        )
    ]


def _warnings(
    parts: Parts, outcome: Outcome, measured: dict[str, Any], aucs: dict[str, Array],
    known: list[str],
) -> list[str]:  # fmt: skip
    warnings, cells = [], measured["counts"]
    for y, which, what in (
        (parts.y, "training rows", "the model"),
        (parts.y_test, "test rows", "the score"),
    ):
        positives = as_columns(y).sum(axis=0).astype(int)
        k, fewest = int(positives.argmin()), int(positives.min())
        if fewest < FEW:
            kind = (
                "positive"
                if outcome.task == "binary"
                else f"of the rarest class {outcome.classes[k]!r}"
            )
            warnings.append(
                f"only {fewest} of the {which} {'is' if fewest == 1 else 'are'} {kind}, so {what} "
                "is uncertain"
            )
    if not np.any(cells.fn) and not np.any(cells.fp):
        warnings.append(
            "the model makes no mistake on the test rows, so the interval cannot show how rare "
            "mistakes are"
        )
    for name, auc in aucs.items():
        if auc.max() > LEAK and not any(f"column {name!r} alone" in x for x in known):
            label = "the label" if outcome.task == "binary" else repr(outcome.classes[auc.argmax()])
            warnings.append(
                f"column {name!r} alone nearly determines {label} (AUC {auc.max():.3f}): check "
                "that its value is known before the label"
            )
    return warnings


def _leak_warnings(found: dict[str, Array], outcome: Outcome) -> list[str]:
    """Warnings about columns whose values identify most rows of a class."""
    warnings = []
    for name, shares in found.items():
        k = int(shares.argmax())
        if shares[k] >= GIVEN_AWAY:
            rows = (
                "positive rows" if outcome.task == "binary" else f"rows of {outcome.classes[k]!r}"
            )
            warnings.append(
                f"column {name!r} alone identifies {shares[k]:.0%} of the {rows}: check that its "
                "value is known before the label"
            )
    return warnings


def _dropped_warning(encoder: TableEncoder) -> list[Message]:
    if not encoder.dropped_:
        return []
    return [
        information(f"columns that are constant or empty are not used: {listed(encoder.dropped_)}")
    ]
