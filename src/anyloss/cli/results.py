"""What `fit` prints: the advice, the messages, the score and what it is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anyloss.cli.messages import print_messages


def print_readings(readings: Any) -> None:
    """Print one line for each column: its type, values and gaps, and whether it is used."""
    for each in readings:
        rule = f" ({each.rule})" if each.rule else ""
        extent = f", {each.low} to {each.high}" if each.low else ""
        use = f"; encoded: {each.encoding}" if each.encoding else ""
        use = use if each.use == "used" else f"; not used: {each.use}"
        print(
            f"column {each.name!r}: {each.kind}{rule}{extent}, {each.levels} distinct, "
            f"{each.gaps + each.unread} of {each.rows} missing, such as {each.example!r}{use}"
        )


def print_result(result: Any, out: Path) -> None:
    """Print the advice, the messages, the score, what is promised, and the baselines."""
    from anyloss.tabular.columns import listed
    from anyloss.tabular.messages import STOP
    from anyloss.tabular.verdicts import advice

    first = advice(result)
    print(f"{STOP}: {first}" if first.level == STOP else first)
    print_messages(x for x in result.warnings if x not in first)
    rarer = "" if result.settings["positive_named"] else " (the rarer class)"
    low, high = result.interval
    for name, value in result.candidates.items():
        weight = f", weight {result.weights[name]:.2f}" if result.weights else ""
        print(f"candidate {name}: {value:.4f} on held-out training rows{weight}")
    for name, why in result.facts["left_out"].items():
        print(f"left out {name}: {why}")
    print(f"model: {result.model_name}")
    outcome, average = result.outcome, ""
    if outcome.task == "binary":
        print(f"positive class: {outcome.target} = {outcome.positive}{rarer}")
    else:
        kind = "labels" if outcome.task == "multilabel" else f"classes of {outcome.target}"
        print(f"{len(outcome.classes)} {kind}: {listed(outcome.classes)}")
        average = f" ({result.average})"
    print(
        f"{result.metric}{average} on {result.facts['test_rows']} test rows: {result.score:.4f} "
        f"(95 % interval: {low:.4f} to {high:.4f})"
    )
    print(f"the score rests on {result.facts['evaluation']}")
    print(f"on the training rows: {result.train_score:.4f}")
    _print_promise(result)
    _print_costs(result)
    _print_classes(result)
    print("baselines on the same rows (difference: model minus baseline):")
    for each in result.baselines:
        low, high = each.interval
        print(
            f"  {each.name}: {each.score:.4f} (difference {each.difference:+.4f}, 95 % interval: "
            f"{low:+.4f} to {high:+.4f})"
        )
    print(f"Wrote the model to {out}")
    print(f"Wrote the report to {out / 'report.html'}")


def _print_promise(result: Any) -> None:
    """Print what is promised about new data, and the constraints on the test rows."""
    from anyloss.tabular.promises import constraint_scores, promise_in_words

    if not result.constraints:
        return
    print(promise_in_words(result.model.classifier))
    for text, value, holds in constraint_scores(result):
        print(f"  {text} on the test rows: {value:.4f} ({'holds' if holds else 'violated'})")


def _print_costs(result: Any) -> None:
    """Print what the test rows cost, if costs are known."""
    for name, found in result.costs.items():
        print(
            f"{name}: the errors cost {found.total:,.2f}, {found.per_1000:,.2f} per 1,000 rows, "
            + (_savings(found) if found.constant else "and a constant decision costs nothing")
        )


def _savings(found: Any) -> str:
    low, high = found.interval
    return f"savings {found.savings:.4f} (95 % interval: {low:.4f} to {high:.4f})"


def _print_classes(result: Any) -> None:
    """Print precision, recall and F1 of each class, if there are several."""
    from anyloss.report.classes import class_rows

    if result.outcome.task == "binary":
        return
    width = max(12, *(len(x) for x in result.outcome.classes)) + 2
    print(f"{'class':<{width}}{'precision':>10}{'recall':>8}{'f1':>8}{'always':>8}{'rows':>8}")
    for name, precision, recall, f1, always, support in class_rows(result):
        scores = f"{precision:>10.3f}{recall:>8.3f}{f1:>8.3f}{always:>8.3f}"
        print(f"{name:<{width}}{scores}{support:>8.0f}")
    print("always: the F1 of predicting the class for every row")
