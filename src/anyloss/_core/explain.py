"""What one more true positive or false positive is worth, and the threshold that follows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anyloss._core.counts import Counts
from anyloss._core.documents import documented
from anyloss._core.gradient import binary_derivatives
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric


@dataclass(frozen=True)
class Explanation:
    """How a metric changes at given counts; the result of `anyloss.explain`.

    Attributes:
        metric (str): the name of the metric.
        counts (Counts): the counts.
        score (float): the metric of the counts.
        true_positive (float): the change of the score per further true positive (`tp + 1`,
            `fn - 1`): the derivative, which one whole sample follows closely if the counts are not
            small.
        false_positive (float): the same per further false positive (`fp + 1`, `tn - 1`).
        threshold (float or None): the probability above which it pays to predict a sample positive:
            0 if it always pays, 1 if it never pays, and None if the metric rewards mistakes.

    Examples:
        >>> from anyloss import explain
        >>> print(explain("f1", tp=80, fn=20, fp=30, tn=870).words())
        f1 of tp=80, fn=20, fp=30, tn=870: 0.761905
        one more true positive (tp + 1, fn - 1): about +0.005896
        one more false positive (fp + 1, tn - 1): about -0.003628
        a true positive is worth 1.63 false positives
        threshold: predict positive if the probability is above 0.3810 (it must be calibrated)
    """

    metric: str
    counts: Counts
    score: float
    true_positive: float
    false_positive: float
    threshold: float | None

    def words(self) -> str:
        """The explanation as a text of a few lines."""
        cells = ", ".join(f"{name}={value:g}" for name, value in vars(self.counts).items())
        lines = [
            f"{self.metric} of {cells}: {self.score:.6f}",
            f"one more true positive (tp + 1, fn - 1): about {self.true_positive:+.6f}",
            f"one more false positive (fp + 1, tn - 1): about {self.false_positive:+.6f}",
        ]
        if self.true_positive > 0 > self.false_positive:
            ratio = self.true_positive / -self.false_positive
            lines.append(f"a true positive is worth {ratio:.2f} false positives")
        return "\n".join([*lines, f"threshold: {self._rule()}"])

    def _rule(self) -> str:
        if self.threshold is None:
            return "none, because mistakes raise this metric; write a cost as 1 - cost"
        if self.threshold == 0.0:
            return "0; predict every sample positive"
        if self.threshold == 1.0:
            return "1; predict no sample positive"
        return (
            f"predict positive if the probability is above {self.threshold:.4f} (it must be "
            "calibrated)"
        )


@documented
def explain(
    metric: MetricSpec | Metric = "f1", *, tp: float, fn: float, fp: float, tn: float
) -> Explanation:
    """Explain what one more true positive or false positive is worth to a metric.

    Near the given counts a metric is linear: predicting a positive sample as positive adds
    `d_positive` to the score (one more true positive, one false negative less), and predicting a
    negative sample as positive adds `d_negative` (one more false positive). For a sample that is
    positive with probability `p` this is `p d_positive + (1 - p) d_negative`, which is above 0 for
    `p > -d_negative / (d_positive - d_negative)`. For F1 this threshold is half of F1.

    The threshold is the best one for calibrated probabilities if the counts are those that it
    gives; otherwise it shows the direction of the best one. Where both derivatives are 0 (such as
    those of MCC without a predicted positive), the differences that one whole sample makes are used
    instead.

    Args:
        tp (float): the true positives.
        fn (float): the false negatives.
        fp (float): the false positives.
        tn (float): the true negatives.

    Returns:
        Explanation: `score`, `true_positive`, `false_positive` and `threshold` as numbers; its
        method `words()` gives them as text.

    Raises:
        ValueError: if a count is negative or not finite, all counts are 0, or the metric is
            unknown.
        TypeError: if the metric is not a name, a formula or a function.

    Examples:
        >>> found = explain("f1", tp=80, fn=20, fp=30, tn=870)
        >>> round(found.score, 4), round(found.threshold, 4)
        (0.7619, 0.381)
    """
    chosen, cells = find_metric(metric), Counts(*(float(x) for x in (tp, fn, fp, tn)))
    if not all(math.isfinite(x) and x >= 0 for x in cells) or not sum(cells):
        raise ValueError(
            f"counts must be finite numbers >= 0, and one of them above 0; got {vars(cells)}"
        )
    score, d_positive, d_negative = binary_derivatives(cells, chosen)
    if not d_positive and not d_negative:
        one_tp, one_fp = min(1.0, cells.fn), min(1.0, cells.tn)
        d_positive = chosen(cells.tp + one_tp, cells.fn - one_tp, cells.fp, cells.tn) - score
        d_negative = chosen(cells.tp, cells.fn, cells.fp + one_fp, cells.tn - one_fp) - score
    threshold = _threshold(d_positive, d_negative)
    return Explanation(chosen.name, cells, score, d_positive, d_negative, threshold)


def _threshold(d_positive: float, d_negative: float) -> float | None:
    """The probability above which predicting a sample positive raises the score."""
    if d_positive < 0 or d_negative > 0:
        return None
    if d_negative < 0:
        return -d_negative / (d_positive - d_negative)
    return 0.0 if d_positive > 0 else 1.0
