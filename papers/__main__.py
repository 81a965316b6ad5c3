"""The papers' experiments on the command line: `python -m papers table17`, in a clone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from anyloss.cli import run
from anyloss.cli.progress import progress

# The names of `papers.REPORTS`, which is slow to import.
EXPERIMENTS = (
    "table1", "table6", "table7", "table8", "table9", "table10", "table12", "table13", "table15",
    "table16", "table17", "table18", "figure2", "figure3", "figure4", "figure5",
    "gap-table1", "gap-table2", "gap-table4", "surrogate-paths", "surrogate-images",
)  # fmt: skip
# Those on the four imbalanced data sets, which accept --dataset.
FOUR_SETS = ("table6", "table7", "table8", "table9", "table12", "table17", "table18", "figure5")
# What --quick runs without --data and with it.
QUICK_WITHOUT_DATA = ("table1", "table17", "surrogate-paths")
QUICK = (
    *QUICK_WITHOUT_DATA, "table15", "table10", "gap-table1", "gap-table2", "gap-table4",
    "surrogate-images",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the experiments; an error of the user is reported in one line."""
    return run(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m papers",
        description="Run the experiments of the papers with our own code, and print the published "
        "figures, our figures and the differences. A run can be stopped at any time; the same "
        "command continues it.",
    )
    parser.add_argument(
        "experiment", nargs="?", choices=EXPERIMENTS, metavar="NAME",
        help="The experiment, such as table17. --list shows all of them.",
    )  # fmt: skip
    parser.add_argument(
        "--list",
        action="store_true",
        help="List the experiments with the data they need.",
    )
    parser.add_argument(
        "--quick", action="store_true",
        help="Run a small version, or without NAME several of them in under 2 minutes.",
    )  # fmt: skip
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER",
        help="The data folder. --list shows what it should hold.",
    )  # fmt: skip
    parser.add_argument(
        "--dataset", action="append", default=[], metavar="NAME",
        help="One of the four imbalanced data sets. Repeat the option for several.",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="FILE.csv", help="The results. Default: reproduce-NAME.csv."
    )
    parser.add_argument("--debug", action="store_true", help="Show the traceback of an error.")
    parser.set_defaults(run=_reproduce, extra="papers", resumable=True)
    return parser


def _reproduce(given: argparse.Namespace) -> None:
    if given.list or not (given.experiment or given.quick):
        from papers.experiment_list import experiment_list

        print(experiment_list(given.data))
        return
    from papers import reproduce

    if given.dataset and given.experiment not in FOUR_SETS:
        names = ", ".join(FOUR_SETS)
        raise ValueError(
            f"--dataset can be used with {names} only; got {given.experiment or '--quick'}"
        )
    if given.out and not given.experiment:
        raise ValueError("--out needs the name of an experiment; got --quick alone")
    quick = QUICK if given.data else QUICK_WITHOUT_DATA
    for name in [given.experiment] if given.experiment else quick:
        out = given.out or Path(f"reproduce-{name}.csv")
        with progress("data sets", stderr=True) as on_progress:
            text = reproduce(name, given.dataset, given.data, out, given.quick, on_progress)
        print(f"{text}\nresults: {out}\n")


if __name__ == "__main__":
    sys.exit(main())
