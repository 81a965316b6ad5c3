"""The format of numbers and names, and the sentences of the report."""

from __future__ import annotations

import math
import re

from anyloss.metrics import Metric
from anyloss.tabular.details import overfitting
from anyloss.tabular.result import Baseline, Result
from anyloss.thresholds import Threshold

ISOLATE, END = "\u2068", "\u2069"
AVERAGED = {
    "macro": "as a mean over the {}, which weigh alike",
    "micro": "of the counts of all {} together",
    "weighted": "as a mean over the {}, weighted by their rows",
}
MINUS, SPACE, NONE = "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}", "—"
# Characters that are invisible, change the direction of the text or cannot be written as UTF-8.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def plain(text: str, most: int) -> str:
    """Text from the user's data on one line, shortened, without hidden characters.

    >>> plain("a\\nb", 9), plain("abcdef", 5), plain("a\\x00b", 9)
    ('a b', 'abcd…', 'a\ufffdb')
    """
    line = _HIDDEN.sub("\ufffd", re.sub(r"[^\S ]+", " ", text))
    return line if len(line) <= most else line[: most - 1] + "…"


def name(text: str, most: int = 60) -> str:
    """A name within a sentence.

    It is enclosed in Unicode isolates, so that a name that is read from right to left does not
    change the direction of the sentence.
    """
    return ISOLATE + plain(text, most) + END


def number(x: float, digits: int | None = None, sign: bool = False) -> str:
    """A number with so many decimals and a typographic minus, or a dash if it is not finite.

    By default it has three decimals below 10, as most scores do, and fewer for larger numbers.

    >>> number(0.7114), number(0.05, 2, sign=True), number(-1e-9), number(float("nan"))
    ('0.711', '+0.05', '0.000', '—')
    >>> number(1.5), number(15), number(15000)
    ('1.500', '15.00', '15,000')
    """
    if not math.isfinite(x):
        return NONE
    if digits is None:
        digits = max(0, 3 - math.floor(math.log10(max(abs(x), 1.0))))
    rounded = round(x, digits) + 0.0  # no negative zero
    return f"{rounded:{'+' if sign else ''},.{digits}f}".replace("-", MINUS)


def digits_of(interval: tuple[float, float]) -> int:
    """The number of decimals of a score that its uncertainty justifies.

    >>> digits_of((0.66, 0.75)), digits_of((0.971, 0.978)), digits_of((1500, 1600))
    (2, 3, 0)
    """
    width = interval[1] - interval[0]
    if not (math.isfinite(width) and width > 0):
        return 3
    return min(max(math.ceil(-math.log10(width / 5)), 2 if width < 5 else 0), 5)


def count(x: float) -> str:
    """A number of rows.

    >>> count(1234.0)
    '1,234'
    """
    return f"{round(x):,}"


def percent(part: float, whole: float) -> str:
    """A share in percent; only exact shares of 0 and 1 are shown as 0 % and 100 %.

    >>> percent(71, 100), percent(1, 3000), percent(2999, 3000), percent(0, 0)
    ('71\\xa0%', '0.1\\xa0%', '99.9\\xa0%', '—')
    """
    if not whole:
        return NONE
    share = 100 * part / whole
    if 0 < share < 1 or 99 < share < 100:
        return f"{min(max(share, 0.1), 99.9):.1f}{SPACE}%"
    return f"{share:.0f}{SPACE}%"


def of(part: float, whole: float, what: str) -> str:
    """A share of something, with the counts behind it.

    >>> of(71, 100, "the rows")
    '71\\xa0% of the rows (71 of 100)'
    """
    return f"{percent(part, whole)} of {what} ({count(part)} of {count(whole)})"


def title_and_meaning(
    metric: Metric, average: str = "binary", each: str = "classes"
) -> tuple[str, str]:
    """The title of a metric and its meaning in words, or its formula; with its average, if any.

    >>> from anyloss import metric
    >>> title_and_meaning(metric("f1"))
    ('F1', 'the harmonic mean of precision and recall')
    >>> title_and_meaning(metric("tp / (tp + fn)"))
    ('The score', 'tp / (tp + fn)')
    >>> title_and_meaning(metric("f1"), "macro")[0]
    'Macro F1'
    """
    named = metric.is_named
    title, meaning = (metric.title, metric.meaning) if named else ("The score", metric.name)
    if average not in AVERAGED:
        return title, meaning
    title = f"{average.capitalize()} {title}" if named else f"The {average} score"
    return title, f"{meaning}, {AVERAGED[average].format(each)}"


def answer(result: Result, title: str) -> str:
    """The summary of the report in two sentences."""
    tp, fn, fp, _ = result.counts
    goal = f"{name(result.outcome.target)} = {name(result.outcome.positive)}"
    recall = f"The model finds {of(tp, tp + fn, f'the rows with {goal}')}"
    precision = f"{of(tp, tp + fp, 'the positive predictions')} are correct"
    return (
        f"{_score(result, title)} "
        f"{recall if tp + fn else f'No test row has {goal}'}, and "
        f"{precision if tp + fp else 'the model predicts no row as positive'}."
    )


def answer_of_several(result: Result, title: str, right: int) -> str:
    """The same for several classes or labels; `right` rows have no wrong decision."""
    found = of(right, len(result.y_test), "the rows")
    labels = "all labels of" if result.outcome.task == "multilabel" else "the class of"
    return f"{_score(result, title)} The model predicts {labels} {found} correctly."


def _score(result: Result, title: str) -> str:
    rows, digits = len(result.y_test), digits_of(result.interval)
    low, high = (number(x, digits) for x in result.interval)
    found = f"{count(rows)} test row{'s' if rows != 1 else ''} that the model has not seen"
    if result.facts["folds"]:
        found = f"{count(rows)} rows, each decided by a model of this kind that has not seen it"
    return (
        f"{title} is {number(result.score, digits)} (95{SPACE}% interval: {low} to {high}) on "
        f"{found}."
    )


def training_gap(result: Result) -> str:
    """Whether the score of the training rows is far above that of the test rows."""
    if overfitting(result.train_score, result.score, result.interval):
        return "far above the test rows: the model overfits"
    if result.train_score > result.interval[1]:
        return "somewhat above the test rows"
    return "within the interval of the test rows, or below"


def clear(baseline: Baseline) -> int:
    """1 if the model is clearly better than a baseline, -1 if it is clearly worse, otherwise 0.

    >>> better, same = ((0.05, 0.15), (-0.01, 0.05))
    >>> clear(Baseline("a", 0.7, 0.02, same)), clear(Baseline("b", 0.6, 0.1, better))
    (0, 1)
    """
    low, high = baseline.interval
    return int(low > 0) - int(high < 0)


def difference(baseline: Baseline) -> str:
    """The score of the model minus that of a baseline, with the interval."""
    low, high = (number(x, sign=True) for x in baseline.interval)
    return f"{number(baseline.difference, sign=True)} (95{SPACE}% interval: {low} to {high})"


def against_baselines(result: Result) -> str:
    """What the best baseline means for the choice of a model."""
    if not result.baselines:
        return "The model was not compared with baselines."
    trained = [x for x in result.baselines if not x.trivial]
    best = max(trained or result.baselines, key=lambda baseline: baseline.score)
    title = f"{name(best.name)} ({number(best.score)})"
    gap = f"the difference is {difference(best)}"
    return {
        1: f"The model is clearly better than the best baseline, {title}: {gap}.",
        0: f"There is no clear difference from the best baseline, {title}: {gap}. "
        "If the baseline is simpler to run, it is as good a choice.",
        -1: f"The baseline {title} is clearly better: {gap}. Use the baseline.",
    }[clear(best)]


def hindsight(result: Result, best: Threshold) -> str:
    """How the model's threshold compares with the best threshold for the test rows."""
    if result.constraints:
        return "It satisfies the constraints; thresholds that do not may have a higher score."
    if best.score <= result.score:
        return "No other threshold is better on the test rows."
    found = (
        f"In hindsight, the best threshold for the test rows is {number(best.threshold)}, with a "
        f"score of {number(best.score)}. "
    )
    if best.score > result.interval[1]:
        return found + (
            f"That is above the 95{SPACE}% interval of the score: the threshold of the model does "
            "not suit the test rows. Check whether they differ from the training rows."
        )
    return found + (
        f"That is within the 95{SPACE}% interval of the score: the gain may be due to chance, and "
        "should not be expected on new rows."
    )
