"""The commands of the studies: `bench` and `reproduce`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from anyloss.cli.progress import progress

MODELS = "linear, mlp, lightgbm, xgboost, catboost; default: linear mlp"
METRICS = "names or formulas; default: f1 mcc balanced_accuracy gmean accuracy"
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


def add_bench(commands: Any) -> None:
    """Declare `anyloss bench`."""
    bench = commands.add_parser(
        "bench",
        help="compare the recipe with its rivals on real data",
        description="Data sets x methods x metrics x repeated folds. Stop it at any moment: the "
        "same command goes on where it stopped.",
    )
    bench.add_argument("--data", type=Path, help="folder of CSV or Parquet files, last column y")
    bench.add_argument("--openml", nargs="+", default=[], help="data sets of OpenML by name")
    bench.add_argument("--datasets", nargs="+", help="only the sets of these names")
    bench.add_argument("--out", type=Path, default=Path("bench.csv"), help=".csv or .parquet")
    bench.add_argument("--models", nargs="+", default=[], help=MODELS)
    bench.add_argument("--metrics", nargs="+", default=[], help=METRICS)
    bench.add_argument("--methods", nargs="+", default=[], help="default: all that fit the metric")
    bench.add_argument("--folds", type=int, default=5)
    bench.add_argument("--repeats", type=int, default=5)
    bench.add_argument("--rows", type=int, default=5000, help="at most so many rows of each set")
    bench.add_argument("--jobs", type=int, default=2, help="processes")
    bench.set_defaults(run=_bench)


def add_reproduce(commands: Any) -> None:
    """Declare `anyloss reproduce`."""
    reproduce = commands.add_parser(
        "reproduce",
        help="run the papers' experiments: published figure, ours, difference",
        description="The papers' tables from our own code. Stop it at any moment: the same command "
        "goes on where it stopped.",
    )
    reproduce.add_argument("table", nargs="?", choices=TABLES, help="one of them")
    reproduce.add_argument("--list", action="store_true", help="what there is, what it needs")
    reproduce.add_argument("--quick", action="store_true", help="a small version, under 2 minutes")
    reproduce.add_argument("--data", type=Path, help="folder with index.csv, tabular/ and paper/")
    reproduce.add_argument(
        "--dataset", action="append", default=[], help="of the four imbalanced sets; again for more"
    )
    reproduce.add_argument("--out", type=Path, help=".csv; default: reproduce-TABLE.csv")
    reproduce.set_defaults(run=_reproduce)


def _reproduce(given: argparse.Namespace) -> None:
    if given.list or not (given.table or given.quick):
        from anyloss.studies.reproduce.listing import listing

        print(listing())
        return
    from anyloss.studies.reproduce import reproduce

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


def _bench(given: argparse.Namespace) -> None:
    from rich.console import Console

    from anyloss.studies import bundled, from_folder, from_openml, plots, protocol, summary

    console = Console()
    found = from_folder(given.data) if given.data else [] if given.openml else bundled()
    found += [from_openml(name) for name in given.openml]
    if given.datasets:
        unknown = sorted(set(given.datasets) - {dataset.name for dataset in found})
        if unknown:
            names = ", ".join(dataset.name for dataset in found)
            raise ValueError(f"no data set is called {', '.join(unknown)}; there are {names}")
        found = [dataset for dataset in found if dataset.name in given.datasets]
    good, problems = protocol.usable(found, given.rows, given.folds)
    for problem in problems:
        console.print(f"left out: {problem}", style="yellow", markup=False)
    study = protocol.Study(
        tuple(good), tuple(given.models) or tuple(protocol.MODELS),
        tuple(given.metrics) or protocol.METRICS, tuple(given.methods),
        given.folds, given.repeats, given.rows,
    )  # fmt: skip
    with progress("units") as told:
        protocol.run(study, given.out, jobs=given.jobs, on_unit=told)
    console.print(f"results: {given.out}", markup=False)
    results, seconds = protocol.read_results(given.out)
    if "anyloss" in set(results["method"]) and results["method"].nunique() > 1:
        summary.print_tables(results, seconds, console)
        tables = given.out.with_suffix(".md")
        tables.write_text(summary.to_markdown(results, seconds), encoding="utf-8")
        console.print(f"tables: {tables}", markup=False)
        picture = given.out.with_suffix(".svg")
        plots.winning_probabilities(results, picture)
        console.print(f"picture: {picture}", markup=False)
