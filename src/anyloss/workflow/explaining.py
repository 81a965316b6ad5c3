"""What one decision more is worth to a metric, and the threshold that follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anyloss.counts import Counts
from anyloss.metrics import metric as find_metric
from anyloss.slopes import binary_slopes


@dataclass(frozen=True)
class Explanation:
    """The metric of some counts, and what it gains by one more positive called, or false alarm.

    `threshold` is the probability above which calling a row positive pays; None where no threshold
    does it, because calling more rows positive helps (or harms) whatever they are.
    """

    score: float
    hit: float
    alarm: float
    threshold: float | None


def explain(metric: str, *, tp: float, fn: float, fp: float, tn: float) -> Explanation:
    """The slopes of a metric at these counts, and the threshold that they imply.

    Near the counts a metric is linear: a positive row that is called adds A (a hit more, a miss
    less), a negative one adds B (a false alarm more). A row that is positive with probability p
    then adds p A + (1 - p) B when it is called: more than nothing for p above -B / (A - B). For F1
    that is half of it, the known rule. It is the best threshold for calibrated probabilities once
    the counts are those it gives; away from there it tells the direction.

    >>> found = explain("f1", tp=80, fn=20, fp=30, tn=870)
    >>> round(found.score, 4), round(found.threshold, 4)
    (0.7619, 0.381)
    """
    cells = {"tp": tp, "fn": fn, "fp": fp, "tn": tn}
    for name, value in cells.items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be a number from 0 on; got {value}")
    if not sum(cells.values()):
        raise ValueError("expected counts of at least one row; all four are 0")
    score, A, B = binary_slopes(
        Counts(**{k: float(x) for k, x in cells.items()}), find_metric(metric)
    )
    threshold = -B / (A - B) if A > 0 > B else 0.0 if A > 0 == B else 1.0 if A == 0 > B else None
    return Explanation(float(score), float(A), float(B), threshold)


def explained(metric: str, cells: Counts, found: Explanation) -> str:
    """The same in words."""
    lines = [
        f"{metric} of tp={cells.tp:g}, fn={cells.fn:g}, fp={cells.fp:g}, tn={cells.tn:g}: "
        f"{found.score:.6f}",
        f"one positive more that is found (tp + 1, fn - 1): {found.hit:+.6f}",
        f"one false alarm more (fp + 1, tn - 1): {found.alarm:+.6f}",
    ]
    if found.alarm and found.hit:
        lines.append(f"a hit is worth {abs(found.hit / found.alarm):.2f} false alarms")
    if found.threshold is None:
        lines.append("threshold: none; a row's probability does not tell whether to call it")
    else:
        lines.append(
            f"threshold: call a row positive if its (calibrated) probability is above "
            f"{found.threshold:.4f}"
        )
    return "\n".join(lines)
