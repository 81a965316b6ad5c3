"""Commands and the arguments that several of them share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

METRIC = (
    "a name (see 'anyloss metrics') or a formula, such as 'tp / (tp + 0.2*fp + fn)'. Default: f1."
)
FILE = "a CSV, Parquet or Excel (.xlsx) file, or - for CSV from the standard input."
NETWORK = "mlp (a network with 8 hidden units)"


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], None], text: str
) -> argparse.ArgumentParser:
    """Declare a command with the text of its help, whose first sentence is the summary."""
    summary = text.partition(". ")[0].rstrip(".") + "."
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=" ".join(summary.split()), description=text, add_help=False
    )
    add_help(command)
    command.set_defaults(run=run)
    return command


def add_help(parser: argparse.ArgumentParser) -> None:
    """Declare `--help`, with a text in the style of the other options."""
    parser.add_argument("-h", "--help", action="help", help="Show this help and exit.")


def add_table(command: argparse.ArgumentParser, needed: str = "") -> None:
    """Declare the arguments of the commands that train on a table; `needed` is for the usage."""
    command.usage = f"{command.prog} data --target COLUMN [COLUMN ...] {needed}[options]"
    command.add_argument("data", type=Path, help=f"The table, before the options: {FILE}")
    command.add_argument(
        "--target",
        required=True,
        nargs="+",
        metavar="COLUMN",
        help="The label column, with two or more classes. Several columns of 0 and 1 are several "
        "labels, each of which is predicted.",
    )
    command.add_argument("--metric", default="f1", help=f"The metric to train for: {METRIC}")
    command.add_argument(
        "--positive",
        metavar="CLASS",
        help="The positive class. If there are more than two classes, it is separated from all "
        "others. Default: the rarer one of two classes; none of several.",
    )
    command.add_argument(
        "--average",
        default="auto",
        help="How the metric is averaged over several classes or labels: macro, micro, weighted, "
        "or multiclass for a metric with a form of its own, such as mcc. Default: auto, which is "
        "the metric's own form if it has one, else macro.",
    )
    command.add_argument(
        "--seed", type=_seed, default=0, help="The seed of all random choices. Default: 0."
    )
    command.add_argument(
        "--drop",
        nargs="+",
        default=[],
        metavar="COLUMN",
        help="Columns that are not used. Default: none.",
    )
    command.add_argument(
        "--id",
        metavar="COLUMN",
        help="A column that identifies the rows. It is not used as a feature. Default: none.",
    )
    command.add_argument(
        "--group",
        metavar="COLUMN",
        help="A column of groups, such as customers or patients, whose rows stay together. It is "
        "not used as a feature. Default: none.",
    )
    command.add_argument(
        "--time",
        metavar="COLUMN",
        help="A column of dates or numbers. The model is trained on the earlier rows and tested on "
        "the later ones. It is not used as a feature. Default: none.",
    )
    command.add_argument(
        "--max-categories",
        type=int,
        default=20,
        metavar="N",
        help="A text column with up to N values becomes one column for each value; one with more "
        "becomes the mean label of each value. Default: 20.",
    )
    add_format(command)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected an integer of at least 0; got {text!r}")
    return int(text)


def add_format(command: argparse.ArgumentParser) -> None:
    """Declare the arguments about the format of a CSV file."""
    command.add_argument(
        "--separator", metavar="CHARACTER", help="The separator of a CSV file. Default: detected."
    )
    command.add_argument(
        "--encoding", help="The encoding of a CSV file, such as latin-1. Default: detected."
    )
    command.add_argument(
        "--sheet",
        metavar="NAME",
        help="The sheet of an Excel file. Default: the only one with cells.",
    )


def add_model_folder(command: argparse.ArgumentParser) -> None:
    """Declare the model folder that a command reads."""
    command.add_argument("model", type=Path, help="The model folder, written by 'anyloss fit'.")


def add_out(
    command: argparse.ArgumentParser, metavar: str, text: str, default: Path | None = None
) -> None:
    """Declare `--out`, which is required if it has no default."""
    command.add_argument(
        "--out", type=Path, default=default, required=default is None, metavar=metavar, help=text
    )


def add_force(command: argparse.ArgumentParser) -> None:
    """Declare `--force`, without which a command refuses an output that exists."""
    command.add_argument(
        "--force",
        action="store_true",
        help="Overwrite the output if it exists. Default: an existing output is an error.",
    )


def add_costs(command: argparse.ArgumentParser, default: str) -> None:
    """Declare the costs of errors."""
    for name, error in (("fn", "false negative"), ("fp", "false positive")):
        command.add_argument(
            f"--{name}-cost",
            metavar="COST",
            help=f"What a {error} costs: a column with the cost of each row, or a number. With "
            f"both costs each row is decided by its least expected cost. Default: {default}.",
        )


def add_folds(command: argparse.ArgumentParser, repeats: int, rows: int, of: str) -> None:
    """Declare the arguments of a comparison over repeated folds, with these defaults."""
    command.add_argument("--folds", type=int, default=5, help="The number of folds. Default: 5.")
    command.add_argument(
        "--repeats",
        type=int,
        default=repeats,
        help=f"How often the folds are drawn. Default: {repeats}.",
    )
    command.add_argument(
        "--rows",
        type=int,
        default=rows,
        help=f"The largest number of rows of {of}; a larger one is sampled. Default: {rows}.",
    )


def format_options(given: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `add_format` as keyword arguments."""
    return {"separator": given.separator, "encoding": given.encoding, "sheet": given.sheet}


def table_options(given: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `add_table` as keyword arguments of `anyloss.tabular`."""
    return {
        "source": given.data, "target": given.target, "metric": given.metric,
        "positive": given.positive, "average": given.average, "seed": given.seed,
        "drop": given.drop, "id_column": given.id, "group": given.group, "time": given.time,
        "max_categories": given.max_categories, **format_options(given),
    }  # fmt: skip
