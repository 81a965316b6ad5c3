"""What a comparison means: the interval of a difference over folds, and which method to use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import t as student

from anyloss._core.backend import Array
from anyloss.costs import CostSummary
from anyloss.tabular.messages import STOP, Message, by_level, information, stop
from anyloss.tabular.result import Baseline, Comparison, Result
from anyloss.tabular.row_costs import PER_ROW

LEVEL = 0.95
ROPE = 0.01  # a difference of mean scores that does not matter
MOST_REPEATS = 1000
OURS = "anyloss"


def best_trivial(baselines: Sequence[Baseline]) -> Baseline | None:
    """The trivial decision with the highest score."""
    trivial = [x for x in baselines if x.trivial]
    return max(trivial, key=lambda x: x.score) if trivial else None


def is_useless(baselines: Sequence[Baseline]) -> bool:
    """Whether a model is not clearly better than the best trivial decision.

    >>> is_useless([Baseline("always 'yes'", 0.5, 0.02, (-0.01, 0.05), trivial=True)])
    True
    """
    best = best_trivial(baselines)
    return best is not None and best.interval[0] <= 0


def headline(baselines: Sequence[Baseline]) -> str:
    """What to do with a model, in one sentence, from what it was compared with."""
    trivial, others = best_trivial(baselines), [x for x in baselines if not x.trivial]
    if trivial is not None and is_useless(baselines):
        return (
            "Do not rely on this model: it is not clearly better than a decision that ignores the "
            f"columns, {trivial.name} ({trivial.score:.3f})."
        )
    if not others:
        return "The model was not compared with baselines."
    best = max(others, key=lambda x: x.score)
    if best.interval[1] < 0:
        return f"Use the baseline {best.name}: it is clearly better than this model."
    unclear = [x for x in others if x.interval[0] <= 0]
    if not unclear:
        return "Use this model: it is clearly better than all baselines."
    best = max(unclear, key=lambda x: x.score)
    return (
        f"Use the simpler one of this model and the baseline {best.name}: there is no clear "
        "difference between them on these test rows."
    )


def advice(result: Result) -> Message:
    """What to do with a model, from its promise, its messages and what it was compared with."""
    stops = [x for x in by_level(result.warnings) if x.level == STOP]
    found = result.certificate
    if found is not None and found.threshold is None:
        wanted = " and ".join(result.constraints)
        return stop(f"Do not rely on {wanted}: the certifying rows do not show that it holds.")
    if is_useless(result.baselines) and not result.costs:
        return stop(headline(result.baselines))
    if stops:
        return stop(f"Do not rely on this model: {stops[0]}.")
    if result.costs:
        return savings_advice(result.costs[PER_ROW])
    return information(headline(result.baselines))


def savings_advice(found: CostSummary) -> Message:
    """What to do with a model whose rows are decided by their costs.

    >>> savings_advice(CostSummary(2.0, 2.0, 0.5, 4.0, (0.4, 0.6)))[:42]
    'Use this model: deciding each row by its c'
    """
    if not found.constant:
        return information("Use no model: a constant decision costs nothing on the test rows.")
    low, high = found.interval
    saved = f"{found.savings:.3f} of the cost (95 % interval: {low:.3f} to {high:.3f})"
    if low <= 0:
        return stop(
            "Do not rely on this model: deciding each row by its cost does not clearly save "
            f"anything against deciding all alike: {saved}."
        )
    return information(
        "Use this model: deciding each row by its cost is clearly better than deciding all alike. "
        f"It saves {saved}."
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


def repeats_needed(differences: Array, folds: int) -> int | None:
    """How often the folds must be drawn until the mean difference is clear, if it stays as it is.

    None if no number of repeats is enough, because all of them share the same rows.

    >>> repeats_needed(np.array([0.1, -0.04] * 5), folds=5)
    >>> repeats_needed(np.array([0.10, 0.02, 0.08, -0.02, 0.07]), folds=5)
    16
    """
    mean, variance = float(differences.mean()), float(differences.var(ddof=1))
    n = folds * np.arange(1, MOST_REPEATS + 1)
    width = student.ppf((1 + LEVEL) / 2, n - 1) * np.sqrt((1 / n + 1 / (folds - 1)) * variance)
    enough = np.flatnonzero(width < abs(mean))
    return int(enough[0]) + 1 if len(enough) else None


def recommendation(found: Comparison) -> str:
    """Which method to use, by the mean scores and the intervals of their differences.

    It is the method with the best mean, or the simplest one that is within 0.01 of it and not
    clearly worse. If a simpler one is further away and not clearly worse, the folds cannot decide.
    """
    usable = {x: scores for x, scores in found.scores.items() if x not in found.trivial}
    means = {name: float(np.mean(x)) for name, x in found.scores.items()}
    best = max(usable, key=lambda x: means[x])
    trivial = max(found.trivial, key=lambda x: means[x], default=None)
    if trivial is not None and not _clear(found, best, trivial):
        return (
            f"Recommendation: none. No method is clearly better than the trivial decision "
            f"{trivial} ({_difference(found, best, trivial)})."
        )
    simpler = list(usable)[: list(usable).index(best)]  # the simplest first, ours last
    for name in simpler:
        if means[best] - means[name] <= ROPE and not _clear(found, best, name):
            return (
                f"Recommendation: use {name}. It is simpler than {best}, which has the best mean, "
                f"and as good ({_difference(found, best, name)}).{_how(found, name)}"
            )
    text = f"Recommendation: use {best}, which has the best mean score, {means[best]:.4f}."
    text += _how(found, best)
    for name in simpler:
        if not _clear(found, best, name):
            gain = np.subtract(found.scores[best], found.scores[name])
            repeats = repeats_needed(gain, found.folds)
            more = (
                f"about {repeats} repeats would decide"
                if repeats
                else "only more rows would decide"
            )
            return (
                f"{text} These folds cannot decide whether it is better than {name}, which is "
                f"simpler ({_difference(found, best, name)}): {more}."
            )
    return text


def _how(found: Comparison, name: str) -> str:
    """How the model of a method is fitted and saved."""
    return f" 'anyloss fit --model {found.names[name]}' saves it." if name in found.names else ""


def _clear(found: Comparison, better: str, other: str) -> bool:
    gain = np.subtract(found.scores[better], found.scores[other])
    return corrected_interval(gain, found.folds)[0] > 0


def _difference(found: Comparison, better: str, other: str) -> str:
    gain = np.subtract(found.scores[better], found.scores[other])
    low, high = corrected_interval(gain, found.folds)
    return f"difference {gain.mean():+.4f}, 95 % interval: {low:+.4f} to {high:+.4f}"
