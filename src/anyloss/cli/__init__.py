"""The command line: each command calls a function of the library."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from anyloss import __version__
from anyloss._core.install import install_command
from anyloss.cli import benchmark, certificates, metrics, tables
from anyloss.cli.arguments import add_help


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command of `anyloss`, and return its exit code."""
    return run(_parser(), arguments)


def run(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; an error of the user is printed without traceback.

    The parser sets `run` (the function), `extra` (the extra to install if a package is missing),
    `resumable` (whether an interrupted command continues if it is run again) and `debug`.
    """
    given = parser.parse_args(arguments)
    program = f"{parser.prog} {getattr(given, 'command', '')}".strip()
    given.command_line = [*parser.prog.split(), *(sys.argv[1:] if arguments is None else arguments)]
    try:
        given.run(given)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, TypeError, OSError, ImportError) as error:
        if given.debug:
            raise
        text = str(error)
        # An error in a formula has several lines and ends with a mark below the place.
        text = text if text.endswith("^") else " ".join(text.split())
        if isinstance(error, ModuleNotFoundError) and "pip install" not in text:
            text += f"; install it with: {install_command(given.extra)}"
        print(f"{program}: error: {text}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        end = "Run the command again to continue." if given.resumable else "Nothing was written."
        print(f"\nInterrupted. {end}", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="anyloss",
        description="Train for the metric you report.",
        epilog="Run 'anyloss COMMAND --help' for the options of a command.",
        add_help=False,
    )
    add_help(parser)
    parser.add_argument(
        "--version",
        action="version",
        version=f"anyloss {__version__}",
        help="Show the version and exit.",
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", title="commands"
    )
    for add in (
        tables.add_fit, tables.add_predict, tables.add_compare, certificates.add_certify,
        metrics.add_explain, metrics.add_metrics, tables.add_demo, tables.add_export,
        benchmark.add_bench,
    ):  # fmt: skip
        add(commands)
    for name, command in commands.choices.items():
        text = "Show the traceback of an error. Default: its message only."
        command.add_argument("--debug", action="store_true", help=text)
        extra = "benchmark" if name == "bench" else "cli"
        command.set_defaults(extra=extra, resumable=name in ("bench", "compare"))
    return parser
