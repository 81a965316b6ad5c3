"""The commands about metrics: `metrics` and `explain`."""

from __future__ import annotations

import argparse
from typing import Any

from anyloss.cli.arguments import METRIC, add_command

COUNTS = {
    "tp": "true positives",
    "fn": "false negatives",
    "fp": "false positives",
    "tn": "true negatives",
}


def add_explain(commands: Any) -> None:
    """Declare `anyloss explain`."""
    text = """Show how much one more true or false positive changes a metric. The command also
    shows the threshold for calibrated probabilities that follows at these counts."""
    explain = add_command(commands, "explain", _explain, text)
    explain.add_argument("--metric", default="f1", help=f"The metric: {METRIC}")
    for name, meaning in COUNTS.items():
        explain.add_argument(
            f"--{name}", type=float, required=True, metavar="N", help=f"The number of {meaning}."
        )


def _explain(given: argparse.Namespace) -> None:
    from anyloss import explain

    print(explain(given.metric, tp=given.tp, fn=given.fn, fp=given.fp, tn=given.tn).words())


def add_metrics(commands: Any) -> None:
    """Declare `anyloss metrics`."""
    text = "List the named metrics with their formulas and their other names."
    add_command(commands, "metrics", _metrics, text)


def _metrics(given: argparse.Namespace) -> None:
    from anyloss.metrics import listed

    for each in listed():
        also = f"   (also {', '.join(each.aliases)})" if each.aliases else ""
        print(f"{each.name:<32}{each.title}: {each.formula}{also}")
