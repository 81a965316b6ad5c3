"""Numbers and names as a reader wants them, and the sentences of the report."""

from __future__ import annotations

import inspect
import math
import re

from anyloss._core.formula import Formula
from anyloss.metrics import Metric
from anyloss.tabular.result import Result, Rival
from anyloss.thresholds import Threshold

ISOLATE, END = "\u2068", "\u2069"
MINUS, SPACE, NONE = "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}", "—"
# What is invisible, turns the direction of the text or cannot be written as UTF-8.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def plain(text: str, most: int) -> str:
    """Text from the user's data: in one line, not too long, nothing hidden in it.

    >>> plain("a\\nb", 9), plain("abcdef", 5), plain("a\\x00b", 9)
    ('a b', 'abcd…', 'a\ufffdb')
    """
    line = _HIDDEN.sub("\ufffd", re.sub(r"[^\S ]+", " ", text))
    return line if len(line) <= most else line[: most - 1] + "…"


def name(text: str, most: int = 60) -> str:
    """A name within a sentence, whatever direction it is read in.

    It stands between Unicode's isolates, so that an Arabic name does not turn the sentence round.
    """
    return ISOLATE + plain(text, most) + END


def number(x: float, digits: int | None = None, sign: bool = False) -> str:
    """A number to so many digits, with a true minus; a dash for what is none.

    Unless told, three digits for what is below 10, as most scores are, and fewer for more.

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
    """How many digits of a score its uncertainty leaves.

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
    """A share; only what is all or nothing is called 100 % or 0 %.

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


def called(metric: Metric) -> tuple[str, str]:
    """What a metric is called and what it means: the first line of its docstring, or the formula.

    >>> from anyloss import metric
    >>> called(metric("f1"))
    ('F1', 'the harmonic mean of precision and recall')
    >>> called(metric("tp / (tp + fn)"))
    ('The score', 'tp / (tp + fn)')
    """
    if isinstance(metric.function, Formula):
        return "The score", metric.name
    title, _, meaning = (inspect.getdoc(metric.function) or "").partition("\n")[0].partition(":")
    return title.partition(",")[0], meaning.strip().partition(". ")[0].rstrip(".")


def answer(result: Result, title: str) -> str:
    """The whole report in one sentence."""
    tp, fn, fp, _ = result.counts
    rows, digits = len(result.y_test), digits_of(result.interval)
    low, high = (number(x, digits) for x in result.interval)
    goal = f"{name(result.target)} = {name(result.positive)}"
    found = f"it finds {of(tp, tp + fn, goal)}" if tp + fn else f"none of them is {goal}"
    alarms = f"is right in {of(tp, tp + fp, 'its alarms')}" if tp + fp else "raises no alarm"
    return (
        f"{title} is {number(result.score, digits)} (95{SPACE}%: {low} to {high}) on {count(rows)} "
        f"row{'s' if rows != 1 else ''} the model had never seen: {found}"
        f"{' and ' if tp + fn else '; it '}{alarms}."
    )


def clear(rival: Rival) -> int:
    """1 if we are clearly better than a rival, -1 if it is better than us, 0 if neither is clear.

    >>> clear(Rival("a", 0.7, 0.02, (-0.01, 0.05))), clear(Rival("b", 0.6, 0.1, (0.05, 0.15)))
    (0, 1)
    """
    low, high = rival.interval
    return int(low > 0) - int(high < 0)


def difference(rival: Rival) -> str:
    """Ours minus theirs, with the interval."""
    low, high = (number(x, sign=True) for x in rival.interval)
    return f"{number(rival.difference, sign=True)} (95{SPACE}%: {low} to {high})"


def against_baselines(result: Result) -> str:
    """What the best baseline means for the reader's choice."""
    if not result.rivals:
        return "It was not compared with other ways of training."
    best = max(result.rivals, key=lambda rival: rival.score)
    rival = f"{name(best.name)} ({number(best.score)})"
    gap = f"the difference is {difference(best)}"
    return {
        1: f"That is clearly better than the best baseline, {rival}: {gap}.",
        0: f"There is no clear difference from the best baseline, {rival}: {gap}. "
        "Where that is simpler to run, it is as good a choice.",
        -1: f"The baseline {rival} is clearly better: {gap}. Use that one here.",
    }[clear(best)]


def hindsight(result: Result, best: Threshold) -> str:
    """What the best threshold for the test rows themselves says about the one that was chosen."""
    if best.score <= result.score:
        return "In hindsight no threshold would have been better for these rows."
    found = (
        f"In hindsight the best threshold for these rows is {number(best.threshold)}, with "
        f"{number(best.score)}: "
    )
    if best.score > result.interval[1]:
        return found + (
            "more than luck explains. The threshold does not suit these rows; look whether they "
            "differ from those of the training."
        )
    return found + "what luck could add, not what to expect of new rows."
