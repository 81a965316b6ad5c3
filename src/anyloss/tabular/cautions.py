"""Warnings about a metric, the rows and the columns, for the reader of a result."""

from __future__ import annotations

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.counts import Counts
from anyloss._core.explain import explain
from anyloss.recipe.constrained import one_sided
from anyloss.tabular.columns import listed
from anyloss.tabular.encoder import TableEncoder
from anyloss.tabular.labels import Outcome
from anyloss.tabular.leaks import CERTAIN, GIVEN_AWAY, LEAK
from anyloss.tabular.messages import Message, information, stop
from anyloss.tabular.scoring import Scoring, as_columns
from anyloss.tabular.splitting import FEW
from anyloss.tabular.trivial import maximised_by


def cost_warning(metric: str) -> list[Message]:
    """A warning if the metric increases with mistakes.

    >>> cost_warning("f1"), len(cost_warning("fn / (tp + fn)"))
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


def constant_warning(y: Array, outcome: Outcome, scoring: Scoring) -> list[Message]:
    """A warning if a decision that is constant, or nearly so, has the score of perfect ones."""
    constant = maximised_by(y, outcome, scoring)
    if constant is None:
        ignored = one_sided(scoring.metric, outcome.task, scoring.layout.average)
        return [] if ignored is None else [stop(f"{scoring.metric.name} {ignored}")]
    return [
        stop(
            f"{scoring.metric.name} is as high as it can be for the decision {constant}: use a "
            "metric that counts both kinds of mistakes, such as f1 or mcc, or a constraint on the "
            "other kind"
        )
    ]


def row_warnings(
    y_train: Array, y_test: Array, cells: Counts, outcome: Outcome, aucs: dict[str, Array],
    known: list[str],
) -> list[str]:  # fmt: skip
    """Warnings about few positive rows, no mistakes, and columns that nearly give the label."""
    warnings = []
    for y, which, what in (
        (y_train, "training rows", "the model"),
        (y_test, "test rows", "the score"),
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
            text = f"column {name!r} alone nearly determines {label} (AUC {auc.max():.3f})"
            warnings.append(_leak(text, name, certain=bool(auc.min() > CERTAIN)))
    return warnings


def leak_warnings(found: dict[str, Array], outcome: Outcome) -> list[str]:
    """Warnings about columns whose values identify most rows of a class."""
    warnings = []
    for name, shares in found.items():
        k = int(shares.argmax())
        if shares[k] >= GIVEN_AWAY:
            rows = (
                "positive rows" if outcome.task == "binary" else f"rows of {outcome.classes[k]!r}"
            )
            text = f"column {name!r} alone identifies {shares[k]:.0%} of the {rows}"
            every = np.sort(shares)[1:] if len(shares) > 2 else shares  # all but the largest class
            warnings.append(_leak(text, name, certain=bool(every.min() > CERTAIN)))
    return warnings


def _leak(text: str, name: str, certain: bool) -> str:
    """A warning about a column that may contain the label; if it is certain, do not go on."""
    text += ": check that its value is known before the label"
    return stop(f"{text}, and leave it out if it is not (--drop {name})") if certain else text


def dropped_warning(encoder: TableEncoder) -> list[Message]:
    """A warning that names constant and empty columns."""
    if not encoder.dropped_:
        return []
    return [
        information(f"columns that are constant or empty are not used: {listed(encoder.dropped_)}")
    ]
