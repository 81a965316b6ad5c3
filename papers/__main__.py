"""The papers' experiments on the command line: `python -m papers table17`, from the project."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from anyloss.cli import run
from anyloss.cli.progress import progress

TABLES = (
    "table1", "table6", "table7", "table8", "table9", "table10", "table12", "table13", "table15",
    "table16", "table17", "table18", "figure2", "figure3", "figure4", "figure5",
    "gap-table1", "gap-table2", "gap-table4", "surrogate-paths", "surrogate-images",
)  # fmt: skip
# Those of the four imbalanced sets, which take --dataset.
FOUR_SETS = ("table6", "table7", "table8", "table9", "table12", "table17", "table18", "figure5")
NO_DATA = ("table1", "table17", "surrogate-paths")  # what --quick alone runs; with --data also:
QUICK = (
    *NO_DATA, "table15", "table10", "gap-table1", "gap-table2", "gap-table4", "surrogate-images",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the experiments; an error of the user is reported in one line."""
    return run(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m papers",
        description="The papers' tables from our own code: published figure, ours, difference. "
        "Stop it at any moment: the same command goes on where it stopped.",
    )
    parser.add_argument("table", nargs="?", choices=TABLES, help="one of them")
    parser.add_argument("--list", action="store_true", help="what there is, what it needs")
    parser.add_argument("--quick", action="store_true", help="a small version, under 2 minutes")
    parser.add_argument("--data", type=Path, help="folder with index.csv, tabular/ and paper/")
    parser.add_argument(
        "--dataset", action="append", default=[], help="of the four imbalanced sets; again for more"
    )
    parser.add_argument("--out", type=Path, help=".csv; default: reproduce-TABLE.csv")
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    parser.set_defaults(run=_reproduce, extra="papers", goes_on=True)
    return parser


def _reproduce(given: argparse.Namespace) -> None:
    if given.list or not (given.table or given.quick):
        from papers.listing import listing

        print(listing(given.data))
        return
    from papers import reproduce

    if given.dataset and given.table not in FOUR_SETS:
        names = ", ".join(FOUR_SETS)
        raise ValueError(f"--dataset is for {names}; got it with {given.table or '--quick'}")
    if given.out and not given.table:
        raise ValueError("--out needs the name of a table; got --quick alone")
    quick = QUICK if given.data else NO_DATA
    tables = [given.table] if given.table else quick
    for table in tables:
        out = given.out or Path(f"reproduce-{table}.csv")
        with progress("data sets", stderr=True) as told:
            text = reproduce(table, given.dataset, given.data, out, given.quick, told)
        print(f"{text}\nresults: {out}\n")


if __name__ == "__main__":
    sys.exit(main())
