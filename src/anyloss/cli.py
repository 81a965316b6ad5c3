"""The command line: words to functions, nothing else."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from anyloss import __version__

MODELS = "linear, mlp, lightgbm, xgboost, catboost"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors of the user are told in one line."""
    given = _parser().parse_args(arguments)
    try:
        given.run(given)
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"anyloss {given.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="anyloss", description="Train for the metric you report.")
    parser.add_argument("--version", action="version", version=f"anyloss {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
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
    bench.add_argument("--models", nargs="+", default=["linear", "mlp"], help=MODELS)
    bench.add_argument(
        "--metrics",
        nargs="+",
        default=["f1", "mcc", "balanced_accuracy", "gmean", "accuracy"],
        help="any names or formulas",
    )
    bench.add_argument("--methods", nargs="+", default=[], help="default: all that fit the metric")
    bench.add_argument("--folds", type=int, default=5)
    bench.add_argument("--repeats", type=int, default=5)
    bench.add_argument("--rows", type=int, default=5000, help="at most so many rows of each set")
    bench.add_argument("--jobs", type=int, default=2, help="processes")
    bench.set_defaults(run=_bench)
    return parser


def _bench(given: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

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
        tuple(good), tuple(given.models), tuple(given.metrics), tuple(given.methods),
        given.folds, given.repeats, given.rows,
    )  # fmt: skip
    with Progress(
        *Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn(),
        console=console,
    ) as bar:  # fmt: skip
        task = bar.add_task("units")
        protocol.run(
            study, given.out, jobs=given.jobs,
            on_unit=lambda done, total, name: bar.update(task, completed=done, total=total),
        )  # fmt: skip
    results, seconds = protocol.read_results(given.out)
    if "anyloss" in set(results["method"]) and results["method"].nunique() > 1:
        summary.print_tables(results, seconds, console)
        picture = given.out.with_suffix(".svg")
        plots.winning_probabilities(results, picture)
        console.print(f"picture: {picture}", markup=False)
    console.print(f"results: {given.out}", markup=False)
