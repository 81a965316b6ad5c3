"""The command line: words to functions, nothing else."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from anyloss import __version__
from anyloss.cli import models, studies

GOES_ON = ("bench", "compare", "reproduce")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors of the user are told in one line (of a formula: with the place)."""
    given = _parser().parse_args(arguments)
    given.words = ["anyloss", *(sys.argv[1:] if arguments is None else arguments)]
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
            extra = "studies" if given.command in ("bench", "reproduce") else "cli"
            text += f"; install it with: pip install 'anyloss[{extra}]'"
        print(f"anyloss {given.command}: {text}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        goes_on = given.command in GOES_ON
        end = "the same command goes on from here" if goes_on else "nothing was written"
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
        studies.add_bench, studies.add_reproduce,
    ):  # fmt: skip
        add(commands)
    for command in commands.choices.values():
        command.add_argument("--debug", action="store_true", help="show where an error came from")
    return parser
