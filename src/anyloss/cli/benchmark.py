"""The command of the benchmark: `bench`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from anyloss.cli.progress import progress

MODELS = "linear, mlp, lightgbm, xgboost, catboost; default: linear mlp"
METRICS = "names or formulas; default: f1 mcc balanced_accuracy gmean accuracy"


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
    bench.add_argument(
        "--rows",
        type=int,
        default=5000,
        help="largest number of rows of each data set (default: 5000)",
    )
    bench.add_argument("--jobs", type=int, default=2, help="processes")
    bench.set_defaults(run=_bench)


def _bench(given: argparse.Namespace) -> None:
    from rich.console import Console

    from anyloss.baselines import MODELS as KNOWN_MODELS
    from anyloss.benchmark import bundled, from_folder, from_openml, plots, protocol, summary

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
        tuple(good), tuple(given.models) or tuple(KNOWN_MODELS),
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
