"""From a table to a fitted model and what is known about it."""

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
from anyloss._core.counts import Counts, counts
from anyloss._core.explain import explain
from anyloss._core.outputs import versions
from anyloss.baselines.splits import MODELS
from anyloss.metrics import metric as find_metric
from anyloss.sklearn import AnyLossClassifier
from anyloss.tabular import judging
from anyloss.tabular.encoder import TableEncoder, some
from anyloss.tabular.model import TableModel, votes_of
from anyloss.tabular.preparing import (
    FEW,
    LEAK,
    Task,
    alone,
    fitted_encoder,
    prepare,
    split_rows,
    without_identifiers,
)
from anyloss.tabular.reading import read_table
from anyloss.tabular.result import Result

CANDIDATES = ("linear", "mlp", "lightgbm")
PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "lightgbm")
Tell = Callable[[str], None]


class Parts(NamedTuple):
    """Rows to learn from and to test on, encoded."""

    encoder: TableEncoder
    X: Array
    y: Array
    X_test: Array
    y_test: Array


def fit_table(
    source: Any,
    target: str,
    metric: str = "f1",
    *,
    positive: str | None = None,
    model: str = "auto",
    test_share: float = 0.2,
    seed: int = 0,
    drop: Sequence[str] = (),
    id_column: str | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    verbose: bool = False,
    tell: Tell = lambda stage: None,
) -> Result:
    """Fit a model to a table for a metric, and judge it on rows it has not seen.

    Args:
        source: a data frame, or a CSV or Parquet file.
        target: the column of the label; two classes, or `positive` names one against the rest.
        metric: a name or a formula of tp, fn, fp and tn.
        positive: the class that the metric is about; default: the rarer one.
        model: "linear", "mlp", "lightgbm", or "auto": the best on held-out rows of the training.
        test_share: the share of rows that is only tested on.
        drop, id_column: columns that are not learned from.
        separator, encoding: those of a CSV file, if the detected ones are wrong.
        verbose: show a progress bar with the metric of held-out decisions.
        tell: a callback that receives a text about each stage.

    >>> from sklearn.datasets import load_breast_cancer
    >>> frame = load_breast_cancer(as_frame=True).frame
    >>> result = fit_table(frame, "target", "f1", model="linear")
    >>> result.positive, result.score > 0.9, len(result.rivals)
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
    tell("reading")
    if isinstance(source, str | Path):
        source = read_table(source, label=target, separator=separator, encoding=encoding)
    task = prepare(source, target, positive=positive, drop=drop, id_column=id_column)
    del source
    facts = _facts(task)
    parts, orders = _encoded(task, test_share, seed)
    facts |= {"train_rows": len(parts.y), "test_rows": len(parts.y_test)}
    facts |= {"dropped": task.dropped + parts.encoder.dropped_}
    fitted, candidates = _fit(model, parts, metric, seed, verbose, tell)
    name = max(candidates, key=lambda x: candidates[x])
    names = (task.target, task.positive, task.negative)
    return Result(
        model=TableModel(parts.encoder, fitted[name], *names, id_column), model_name=name,
        metric=metric, target=task.target, positive=task.positive, negative=task.negative,
        candidates=candidates if model == "auto" else {}, facts=facts, settings=settings,
        **_judged(task, parts, orders, fitted[name], name, metric, seed, tell),
    )  # fmt: skip


def _judged(
    task: Task,
    parts: Parts,
    orders: dict[str, float],
    classifier: Any,
    name: str,
    metric: str,
    seed: int,
    tell: Tell,
) -> dict[str, Any]:
    """The result of a fitted classifier."""
    tell("testing")
    p_test = votes_of(classifier, parts.X_test)
    cells = counts(parts.y_test, p_test)
    tell("comparing with cross-entropy")
    rows = (parts.X, parts.y, parts.X_test, parts.y_test)
    rivals = judging.rivals(name, *rows, p_test > 0.5, metric, seed)
    tell("shuffling columns")
    top = sorted(orders, key=lambda x: -orders[x])[: judging.MOST_COLUMNS]
    shuffled = judging.importances(
        partial(votes_of, classifier), parts.X_test, parts.y_test, parts.encoder.sources(), top,
        metric, seed,
    )  # fmt: skip
    return {
        "score": float(find_metric(metric)(*cells)),
        "interval": judging.score_interval(cells, metric, seed),
        "counts": cells,
        "y_test": parts.y_test,
        "p_test": p_test,
        "curve": _curve(classifier),
        "rivals": rivals,
        "importances": shuffled,
        "warnings": (*task.warnings, *_cost(metric), *_warnings(parts, cells, orders)),
    }


def _settings(source: Any, target: str, metric: str, options: dict[str, Any]) -> dict[str, Any]:
    """What is needed to do it again."""
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


def _facts(task: Task) -> dict[str, Any]:
    numbers = task.frame.select_dtypes(["number", "bool"]).shape[1]
    return {
        "rows": len(task.y),
        "positives": int(task.y.sum()),
        "columns": task.frame.shape[1],
        "numbers": numbers,
        "texts": task.frame.shape[1] - numbers,
        "missing": float(task.frame.isna().to_numpy().mean()),
    }


def _encoded(task: Task, share: float, seed: int) -> tuple[Parts, dict[str, float]]:
    """The two parts of the rows, and how well each column alone orders those to learn from."""
    test, twins = split_rows(task.frame, task.y, share, seed)
    train, rest = task.frame[~test], task.frame[test]
    if twins:
        task.warnings.append(
            f"test rows that stand among the training rows too: {twins} of {len(rest)}; the score "
            "is that much too good"
        )
    encoder = fitted_encoder(train := without_identifiers(task, train))
    y, y_test = task.y[~test], task.y[test]
    usable = train[list(encoder.columns_)]
    parts = Parts(encoder, encoder.transform(train), y, encoder.transform(rest), y_test)
    return parts, alone(usable, y, seed)


def _fit(
    model: str, parts: Parts, metric: str, seed: int, verbose: bool, tell: Tell
) -> tuple[dict[str, Any], dict[str, float]]:
    """The classifiers that were asked for, and their scores on rows held out of the training."""
    names: Sequence[str] = (model,)
    if model == "auto":
        names = [x for x in CANDIDATES if x in MODELS or find_spec(x) is not None]
    fitted = {}
    for name in names:
        tell(f"fitting: {name}")
        fitted[name] = new_classifier(name, metric, seed, verbose).fit(parts.X, parts.y)
    return fitted, {name: float(x.held_out_score_) for name, x in fitted.items()}


def new_classifier(model: str, metric: str, seed: int = 0, verbose: bool = False) -> Any:
    """The classifier of a name; labels are 0 and 1."""
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
    """Step, soft and hard score of each check; trees have none."""
    if not isinstance(classifier, AnyLossClassifier):
        return np.empty((0, 3))
    checks, soft = classifier.hard_history_, classifier.history_
    at = np.minimum(checks[:, 0].astype(int), len(soft) - 1)
    return np.column_stack([checks[:, 0], soft[at], checks[:, 1]])


def _cost(metric: str) -> list[str]:
    """A warning if the metric rewards mistakes.

    >>> _cost("f1"), len(_cost("fn / (tp + fn)"))
    ([], 1)
    """
    if explain(metric, tp=30, fn=20, fp=10, tn=40).threshold is not None:
        return []
    return [f"{metric} rises with mistakes; it is maximised all the same: write a cost as 1 - cost"]


def _warnings(parts: Parts, cells: Counts, orders: dict[str, float]) -> list[str]:
    told = []
    for y, what in ((parts.y, "to learn from"), (parts.y_test, "to test on")):
        if y.sum() < FEW:
            rows = "row" if y.sum() == 1 else "rows"
            told.append(f"only {int(y.sum())} positive {rows} {what}: too few to be sure")
    if not cells.fn and not cells.fp:
        told.append("no mistake on the test rows: the interval cannot tell how rare mistakes are")
    told += [
        f"column {name!r} alone nearly gives the label (AUC {auc:.3f}): is it known beforehand?"
        for name, auc in orders.items()
        if auc > LEAK
    ]
    if parts.encoder.dropped_:
        told.append(
            f"left out, for there is one value only or none: {some(parts.encoder.dropped_)}"
        )
    return told
