"""AnyLoss's Table 7: cross-entropy on resampled rows, by SMOTE or undersampling, against AnyLoss.

The paper tries the ratios 0.1, 0.2, ..., 1 of positives to negatives and keeps the one with the
highest F1. In its code only the training rows of a fold are resampled, with seed 0. The ratio is
therefore chosen on the test rows that are scored, which favours resampling. On the other hand, the
three figures of AnyLoss come from three models, and those of resampling from one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from anyloss._core.backend import Array
from papers import runs, slp
from papers.data import TABLE17
from papers.four_sets import available, missing_lines, rates
from papers.published import published_figures
from papers.text_tables import signed, text_table, truncated

SHARES = tuple(round(0.1 * k, 1) for k in range(1, 11))
SEED = 0
SAMPLERS = ("SMOTE", "undersampling")
METRICS = ("accuracy", "f1", "balanced_accuracy")
SETTINGS = {**slp.SETTINGS, "loss": "BCE", "shares": SHARES, "sampling seed": SEED}


def report(request: runs.Request) -> str:
    """Run Table 7 on the requested data sets and return the comparison as text."""
    return table7_text(*table7(request))


def resampled(X: Array, y: Array, sampler: str, share: float) -> tuple[Array, Array]:
    """The rows with `share` positives per negative: SMOTE adds positives, else negatives go.

    >>> X, y = np.arange(24.0).reshape(12, 2), np.repeat([0.0, 1.0], [10, 2])
    >>> resampled(X, y, "undersampling", 0.5)[1].mean().item()  # 2 positives, 4 negatives
    0.3333333333333333
    """
    from imblearn.over_sampling import SMOTE
    from imblearn.under_sampling import RandomUnderSampler

    kind = SMOTE if sampler == "SMOTE" else RandomUnderSampler
    found: tuple[Array, Array] = kind(sampling_strategy=share, random_state=SEED).fit_resample(X, y)
    return found


def possible(y: Array) -> list[float]:
    """The shares above that of the data, because resampling only makes positives more frequent.

    >>> possible(np.repeat([0.0, 1.0], [100, 75]))
    [0.8, 0.9, 1.0]
    """
    return [share for share in SHARES if share * (y == 0).sum() > (y == 1).sum()]


def scores(X: Array, y: Array, rate: float, sampler: str, share: float) -> list[dict[str, Any]]:
    """The mean test scores of ten perceptrons, each trained on the resampled rows of its fold."""
    found = []
    for train, test in slp.paper_folds(y):
        rows, labels = resampled(X[train], y[train], sampler, share)
        every = [(np.arange(len(labels)), test)]
        weights = slp.train(slp.with_intercept(rows), labels, every, {"BCE": rate})["BCE"]
        found.append(slp.fold_scores(weights, slp.with_intercept(X), y, every))
    means = {name: float(np.mean([fold[name] for fold in found])) for name in METRICS}
    rows = runs.score_rows({sampler: means})
    return [{**row, "share": share} for row in rows]


def table7(request: runs.Request) -> tuple[Any, dict[str, str]]:
    """Tidy: the scores of every share, with `published` at the share that is best by F1."""
    samples, missing = available(request)
    jobs = [
        runs.Job(
            name,
            partial(lambda rows: rows, rows),
            [sampler, share],
            partial(scores, rate=rates(TABLE17[name][0])["BCE"], sampler=sampler, share=share),
        )
        for name, rows in samples.items()
        for sampler in SAMPLERS
        for share in possible(rows.y)
    ]
    table = _compared(runs.run(jobs, request, SETTINGS))
    runs.write(table, request.out, SETTINGS, figures="Table 7", absent=missing)
    return table, missing


def _compared(table: Any) -> Any:
    """Add the published figures at the best share, or at the lowest of several best shares."""
    f1 = table[table["metric"] == "f1"]
    best = f1.loc[f1.groupby(["dataset", "loss"], sort=False)["ours"].idxmax()]
    keys = ["dataset", "loss", "share"]
    chosen = table.set_index(keys).index.isin(best.set_index(keys).index)
    table["published"] = [
        float(published_figures(7, TABLE17[row.dataset][0], row.metric)[row.loss]) if kept else None
        for row, kept in zip(table.itertuples(), chosen, strict=True)
    ]
    # The paper truncates its figures to three decimals and does not round them.
    same = [float(truncated(ours, 3)) for ours in table["ours"]] == table["published"]
    table["agrees"] = same.where(chosen)
    return table


def table7_text(table: Any, missing: Mapping[str, str]) -> str:
    """A line per figure with the chosen share, and the number of exact matches."""
    compared = table[table["published"].notna()]
    rows = [
        (r.dataset, r.loss, f"{r.share:g}", r.metric, f"{r.published:.3f}", f"{r.ours:.6f}",
         signed(float(truncated(r.ours, 3)) - r.published, 3))
        for r in compared.itertuples()
    ]  # fmt: skip
    header = ("data set", "resampling", "share", "metric", "published", "ours", "difference")
    parts = [
        "AnyLoss, Table 7: cross-entropy on resampled training rows, single-layer perceptron",
        "(share: positives per negative, the best of ten by F1 on the test rows, as in the paper;",
        "published figures are truncated to three decimals, and so are ours for the difference)",
        "",
        text_table(header, rows),
        "",
        *missing_lines(missing),
        f"exact matches: {int(compared['agrees'].sum())} of {len(compared)}",
    ]
    return "\n".join(parts)
