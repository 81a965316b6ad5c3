"""`fit_table`: from a table to a fitted and evaluated model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anyloss import __version__
from anyloss._core.backend import Array
from anyloss._core.counts import Counts
from anyloss._core.explain import explain
from anyloss._core.functions import counts
from anyloss._core.outputs import versions
from anyloss.baselines.splits import MODELS
from anyloss.metrics import metric as find_metric
from anyloss.sklearn import AnyLossClassifier
from anyloss.tabular import evaluating
from anyloss.tabular.columns import listed
from anyloss.tabular.encoder import TableEncoder
from anyloss.tabular.model import TableModel, decision_values
from anyloss.tabular.preparing import (
    FEW,
    LEAK,
    PreparedTable,
    fitted_encoder,
    prepare_table,
    single_column_aucs,
    split_rows,
    without_identifiers,
)
from anyloss.tabular.reading import read_table
from anyloss.tabular.result import Result

CANDIDATES = ("linear", "mlp", "lightgbm")
PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "lightgbm")
OnStage = Callable[[str], None]


class Parts(NamedTuple):
    """The encoded training rows and test rows."""

    encoder: TableEncoder
    X: Array
    y: Array
    X_test: Array
    y_test: Array


def fit_table(
    source: Any, target: str, metric: str = "f1", *, positive: str | None = None,
    model: str = "auto", test_share: float = 0.2, seed: int = 0, drop: Sequence[str] = (),
    id_column: str | None = None, separator: str | None = None, encoding: str | None = None,
    verbose: bool = False, on_stage: OnStage | None = None,
) -> Result:  # fmt: skip
    """Fit a model to a table for a metric, and evaluate it on rows that it has not seen.

    A share of the rows is set apart for testing, with both classes in proportion. The columns are
    encoded by `TableEncoder`; columns that only number or identify the rows are not used. The model
    is trained for the metric on the other rows and evaluated on the test rows, next to the same
    model trained with cross-entropy. `Result.warnings` names what to check in the data.

    Args:
        source (DataFrame, Path or str): the table, or a CSV or Parquet file.
        target (str): the label column, with two classes. With more than two, `positive` names the
            one to separate from the others.
        metric (str): the name of a metric or a formula of `tp, fn, fp, tn`. Default: `"f1"`.
        positive (str, optional): the positive class. Default: the rarer one of two classes.
        model (str): `"linear"`, `"mlp"` (8 hidden units), `"lightgbm"`, or `"auto"` for the best of
            them on held-out training rows. Default: `"auto"`.
        test_share (float): the share of test rows. Default: 0.2.
        seed (int): the seed of the split and of the training. Default: 0.
        drop (sequence of str): columns that are not used. Default: none.
        id_column (str, optional): a column that identifies the rows. It is not a feature, and
            `predict_table` copies it to its output.
        separator (str, optional): the separator of a CSV file. Default: detected.
        encoding (str, optional): the encoding of a CSV file. Default: detected.
        verbose (bool): whether to show a progress bar with the score of held-out rows.
            Default: False.
        on_stage (callable, optional): a callback. It receives a text at the start of each stage.

    Shape:
        - `source`: `(n, d + 1)`, the features and the label, with at least 10 rows of each class.
        - `y_test` and `p_test` of the result: `(n_test,)`.
        - `curve` of the result: `(checks, 3)`.

    Returns:
        Result: the model, its decisions on the test rows, its score with an interval, the baselines
        and the importance of each column.

    Raises:
        ValueError: if the table, a column or an option cannot be used.

    Examples:
        >>> from sklearn.datasets import load_breast_cancer
        >>> frame = load_breast_cancer(as_frame=True).frame
        >>> result = fit_table(frame, "target", "f1", model="linear")
        >>> result.positive, result.score > 0.9, len(result.baselines)
        ('0', True, 3)
    """
    find_metric(metric)
    if model not in ("auto", *CANDIDATES):
        raise ValueError(f"model must be one of auto, {', '.join(CANDIDATES)}; got {model!r}")
    options = {
        "positive": positive, "model": model, "test_share": test_share, "seed": seed,
        "drop": list(drop), "id_column": id_column, "separator": separator, "encoding": encoding,
    }  # fmt: skip
    settings = _settings(source, target, metric, options)
    stage = on_stage or (lambda text: None)
    stage("Reading the table")
    if isinstance(source, str | Path):
        source = read_table(source, label=target, separator=separator, encoding=encoding)
    table = prepare_table(source, target, positive=positive, drop=drop, id_column=id_column)
    del source
    facts = _facts(table)
    parts, aucs = _encoded(table, test_share, seed)
    facts |= {"train_rows": len(parts.y), "test_rows": len(parts.y_test)}
    facts |= {"dropped": table.dropped + parts.encoder.dropped_}
    fitted, candidates = _fit(model, parts, metric, seed, verbose, stage)
    name = max(candidates, key=lambda x: candidates[x])
    names = (table.target, table.positive, table.negative)
    return Result(
        model=TableModel(parts.encoder, fitted[name], *names, id_column), model_name=name,
        metric=metric, target=table.target, positive=table.positive, negative=table.negative,
        candidates=candidates if model == "auto" else {}, facts=facts, settings=settings,
        **_evaluated(table, parts, aucs, fitted[name], name, metric, seed, stage),
    )  # fmt: skip


def _evaluated(
    table: PreparedTable, parts: Parts, aucs: dict[str, float], classifier: Any, name: str,
    metric: str, seed: int, stage: OnStage,
) -> dict[str, Any]:  # fmt: skip
    """The fields of a result that describe a fitted classifier."""
    stage("Evaluating the model on the test rows")
    p_test = decision_values(classifier, parts.X_test)
    cells = counts(parts.y_test, p_test)
    stage("Training the baselines")
    rows = (parts.X, parts.y, parts.X_test, parts.y_test)
    baselines = evaluating.baselines(name, *rows, p_test > 0.5, metric, seed)
    stage("Measuring the importance of the columns")
    top = sorted(aucs, key=lambda x: -aucs[x])[: evaluating.MOST_COLUMNS]
    importances = evaluating.importances(
        partial(decision_values, classifier), parts.X_test, parts.y_test, parts.encoder.sources(),
        top, metric, seed,
    )  # fmt: skip
    return {
        "score": float(find_metric(metric)(*cells)),
        "interval": evaluating.score_interval(cells, metric, seed),
        "counts": cells,
        "y_test": parts.y_test,
        "p_test": p_test,
        "curve": _curve(classifier),
        "baselines": baselines,
        "importances": importances,
        "warnings": (*table.warnings, *_cost_warning(metric), *_warnings(parts, cells, aucs)),
    }


def _settings(source: Any, target: str, metric: str, options: dict[str, Any]) -> dict[str, Any]:
    """What is needed to repeat the fit."""
    place = str(source) if isinstance(source, str | Path) else None
    words = ["frame" if place is None else repr(place), repr(target), repr(metric)]
    words += [f"{name}={value!r}" for name, value in options.items() if value not in (None, [])]
    return {
        "command": f"fit_table({', '.join(words)})",
        "source": place or "a data frame",
        "seed": options["seed"],
        "test_share": options["test_share"],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"anyloss": __version__} | versions(PACKAGES),
        "positive_named": options["positive"] is not None,
    }


def _facts(table: PreparedTable) -> dict[str, Any]:
    numbers = table.frame.select_dtypes(["number", "bool"]).shape[1]
    return {
        "rows": len(table.y),
        "positives": int(table.y.sum()),
        "columns": table.frame.shape[1],
        "numbers": numbers,
        "texts": table.frame.shape[1] - numbers,
        "missing": float(table.frame.isna().to_numpy().mean()),
    }


def _encoded(table: PreparedTable, test_share: float, seed: int) -> tuple[Parts, dict[str, float]]:
    """The encoded training rows and test rows, and the AUC of each column alone."""
    test, copies = split_rows(table.frame, table.y, test_share, seed)
    train, rest = table.frame[~test], table.frame[test]
    if copies:
        table.warnings.append(
            f"{copies} of {len(rest)} test rows are copies of training rows, so the score may be "
            "too high"
        )
    encoder = fitted_encoder(train := without_identifiers(table, train))
    y, y_test = table.y[~test], table.y[test]
    usable = train[list(encoder.columns_)]
    parts = Parts(encoder, encoder.transform(train), y, encoder.transform(rest), y_test)
    return parts, single_column_aucs(usable, y, seed)


def _fit(
    model: str, parts: Parts, metric: str, seed: int, verbose: bool, stage: OnStage
) -> tuple[dict[str, Any], dict[str, float]]:
    """The fitted classifiers by name, and their scores on held-out training rows."""
    names: Sequence[str] = (model,)
    if model == "auto":
        names = [x for x in CANDIDATES if x in MODELS or find_spec(x) is not None]
    fitted = {}
    for name in names:
        stage(f"Fitting the model '{name}'")
        fitted[name] = new_classifier(name, metric, seed, verbose).fit(parts.X, parts.y)
    return fitted, {name: float(x.held_out_score_) for name, x in fitted.items()}


def new_classifier(model: str, metric: str, seed: int = 0, verbose: bool = False) -> Any:
    """A new classifier of the labels 0 and 1, by its name."""
    if model in MODELS:
        return AnyLossClassifier(
            metric, MODELS[model], pos_label=1, random_state=seed, verbose=verbose
        )
    from anyloss.boosting import LGBMAnyLossClassifier

    return LGBMAnyLossClassifier(
        metric, pos_label=1, random_state=seed, verbose=-1, deterministic=True,
        force_col_wise=True, n_jobs=0,
    )  # fmt: skip


def _curve(classifier: Any) -> Array:
    """The step, the soft score and the hard score of each check; none for trees."""
    if not isinstance(classifier, AnyLossClassifier):
        return np.empty((0, 3))
    checks, soft = classifier.hard_history_, classifier.history_
    at = np.minimum(checks[:, 0].astype(int), len(soft) - 1)
    return np.column_stack([checks[:, 0], soft[at], checks[:, 1]])


def _cost_warning(metric: str) -> list[str]:
    """A warning if the metric increases with mistakes.

    >>> _cost_warning("f1"), len(_cost_warning("fn / (tp + fn)"))
    ([], 1)
    """
    if explain(metric, tp=30, fn=20, fp=10, tn=40).threshold is not None:
        return []
    return [
        f"{metric} increases with mistakes, but the training maximises it: write a cost as 1 - cost"
    ]


def _warnings(parts: Parts, cells: Counts, aucs: dict[str, float]) -> list[str]:
    warnings = []
    for y, which, what in (
        (parts.y, "training rows", "the model"),
        (parts.y_test, "test rows", "the score"),
    ):
        if (positives := int(y.sum())) < FEW:
            warnings.append(
                f"only {positives} of the {which} {'is' if positives == 1 else 'are'} positive, so "
                f"{what} is uncertain"
            )
    if not cells.fn and not cells.fp:
        warnings.append(
            "the model makes no mistake on the test rows, so the interval cannot show how rare "
            "mistakes are"
        )
    warnings += [
        f"column {name!r} alone nearly determines the label (AUC {auc:.3f}): check that its value "
        "is known before the label"
        for name, auc in aucs.items()
        if auc > LEAK
    ]
    if parts.encoder.dropped_:
        warnings.append(
            f"columns that are constant or empty are not used: {listed(parts.encoder.dropped_)}"
        )
    return warnings
