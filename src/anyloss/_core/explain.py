"""What one decision more is worth to a metric, and the threshold that follows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anyloss._core.counts import Counts
from anyloss._core.gradient import binary_slopes
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric


@dataclass(frozen=True)
class Explanation:
    """The metric of some counts, and what it gains by one hit more, or one false alarm more.

    `threshold` is the probability above which calling a row positive pays: 0 where every call
    does, 1 where none does. None where the metric rewards mistakes, as a cost would.
    """

    metric: str
    counts: Counts
    score: float
    hit: float
    alarm: float
    threshold: float | None

    def words(self) -> str:
        """The same in words."""
        cells = ", ".join(f"{name}={value:g}" for name, value in vars(self.counts).items())
        lines = [
            f"{self.metric} of {cells}: {self.score:.6f}",
            f"one positive row more that is found (tp + 1, fn - 1): {self.hit:+.6f}",
            f"one false alarm more (fp + 1, tn - 1): {self.alarm:+.6f}",
        ]
        if self.hit > 0 > self.alarm:
            lines.append(f"a hit is worth {self.hit / -self.alarm:.2f} false alarms")
        if self.threshold is None:
            above = "none; mistakes are rewarded. A metric is maximised: write a cost as 1 - cost"
        elif self.threshold in (0.0, 1.0):
            above = "0; call every row" if self.threshold == 0.0 else "1; to call a row never pays"
        else:
            above = f"call a row positive if its probability is above {self.threshold:.4f}"
            above += " (probabilities must be calibrated)"
        return "\n".join([*lines, f"threshold: {above}"])


def explain(
    metric: MetricSpec | Metric = "f1", *, tp: float, fn: float, fp: float, tn: float
) -> Explanation:
    """What one decision more is worth to a metric at these counts, and the threshold it implies.

    Near the counts a metric is linear: a positive row that is called adds A (a hit more, a miss
    less), a negative one adds B (a false alarm more). A row that is positive with probability p
    adds p A + (1 - p) B when it is called, which is above 0 for p > -B / (A - B). For F1 that is
    half of F1, the known rule. Once the counts are those that this threshold gives, it is the best
    one for calibrated probabilities; away from there it tells the direction. In a corner where both
    are 0 (MCC, and nothing is called yet) they are the differences that a whole row makes.

    >>> found = explain("f1", tp=80, fn=20, fp=30, tn=870)
    >>> round(found.score, 4), round(found.threshold, 4)
    (0.7619, 0.381)
    """
    chosen, cells = find_metric(metric), Counts(*(float(x) for x in (tp, fn, fp, tn)))
    if not all(math.isfinite(x) and x >= 0 for x in cells) or not sum(cells):
        raise ValueError(
            f"counts must be numbers from 0 on, and one of them above 0; got {vars(cells)}"
        )
    score, A, B = binary_slopes(cells, chosen)
    if not A and not B:  # in a corner, such as nothing called, slopes say nothing; a row does
        found, alarm = min(1.0, cells.fn), min(1.0, cells.tn)
        A = chosen(cells.tp + found, cells.fn - found, cells.fp, cells.tn) - score
        B = chosen(cells.tp, cells.fn, cells.fp + alarm, cells.tn - alarm) - score
    threshold = None if A < 0 or B > 0 else -B / (A - B) if B < 0 else 1.0 - (A > 0)
    return Explanation(chosen.name, cells, score, A, B, threshold)
