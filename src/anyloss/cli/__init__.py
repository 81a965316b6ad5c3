"""The command line: words to functions, nothing else."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from anyloss import __version__
from anyloss.cli import benchmark, models


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command of `anyloss`."""
    return run(_parser(), arguments)


def run(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> int:
    """Run what the words say; errors of the user take one line (of a formula: with the place).

    The parser sets `run`, the function; `extra`, what to install if a package is missing; and
    `goes_on`, whether a stopped command goes on where it stopped.
    """
    given = parser.parse_args(arguments)
    program = f"{parser.prog} {getattr(given, 'command', '')}".strip()
    given.words = [*parser.prog.split(), *(sys.argv[1:] if arguments is None else arguments)]
    try:
        given.run(given)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, TypeError, OSError, ImportError) as error:
        if given.debug:
            raise
        text = str(error)
        text = text if text.endswith("^") else " ".join(text.split())
        if isinstance(error, ModuleNotFoundError) and "pip install" not in text:
            text += f"; install it with: pip install 'anyloss[{given.extra}]'"
        print(f"{program}: {text}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        end = "the same command goes on from here" if given.goes_on else "nothing was written"
        print(f"\nstopped; {end}", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="anyloss", description="Train for the metric you report.")
    parser.add_argument("--version", action="version", version=f"anyloss {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for add in (
        models.add_fit, models.add_predict, models.add_compare, models.add_explain,
        models.add_metrics, models.add_demo, models.add_export,
        benchmark.add_bench,
    ):  # fmt: skip
        add(commands)
    for name, command in commands.choices.items():
        command.add_argument("--debug", action="store_true", help="show where an error came from")
        extra = "benchmark" if name == "bench" else "cli"
        command.set_defaults(extra=extra, goes_on=name in ("bench", "compare"))
    return parser
