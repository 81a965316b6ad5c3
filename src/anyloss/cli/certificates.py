"""The command `certify`: what the metric of predictions is on new data."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from anyloss.cli.arguments import FILE, METRIC, add_command, add_format, format_options


def add_certify(commands: Any) -> None:
    """Declare `anyloss certify`."""
    text = """Bound a metric of predictions on new data. The file has a column of labels and a
    column of decisions, of any model. Its rows must be independent, and must have taken no part in
    training or choosing the model. The bound holds with the stated confidence for any number of
    rows. With --constraint, the command tests constraints instead."""
    certify = add_command(commands, "certify", _certify, text)
    certify.add_argument("data", type=Path, help=f"The predictions: {FILE}")
    certify.add_argument("--label", required=True, metavar="COLUMN", help="The column of labels.")
    certify.add_argument(
        "--decision", required=True, metavar="COLUMN", help="The column of decisions."
    )
    certify.add_argument("--metric", default="f1", help=f"The metric: {METRIC}")
    certify.add_argument(
        "--constraint",
        action="append",
        metavar="CONSTRAINT",
        help="A constraint to test, such as 'recall >= 0.9', in place of the metric. The option "
        "may be repeated; all constraints are tested jointly. Default: none.",
    )
    certify.add_argument(
        "--positive", metavar="CLASS", help="The positive class. Default: 1, for labels 0 and 1."
    )
    certify.add_argument(
        "--confidence-level",
        type=float,
        default=0.95,
        metavar="LEVEL",
        help="The confidence. Default: 0.95.",
    )
    certify.add_argument(
        "--group",
        metavar="COLUMN",
        help="A column of groups, such as patients. One random row of each group is used. "
        "Default: none.",
    )
    add_format(certify)


def _certify(given: argparse.Namespace) -> None:
    from anyloss import certify

    frame = _table(given)
    for name in filter(None, (given.label, given.decision, given.group)):
        if name not in frame:
            raise ValueError(f"no column {name!r} in {given.data}; it has {list(frame.columns)}")
    found = certify(
        _read(frame, given.label, given.positive),
        _read(frame, given.decision, given.positive),
        given.constraint or given.metric,
        confidence_level=given.confidence_level,
        groups=None if given.group is None else frame[given.group].astype(str).to_numpy(),
    )
    print(found.words())
    print(f"method: {found.method}")


def _table(given: argparse.Namespace) -> Any:
    """The predictions; classes are read as they are written, such as "None" or "01"."""
    from anyloss.tabular.reading import read_parts
    from anyloss.tabular.sources import local_file

    names = [given.label, given.decision] if given.positive else []
    with local_file(given.data) as file:
        return next(read_parts(file, None, names=names, texts=names, **format_options(given)))


def _read(frame: Any, name: str, positive: str | None) -> Any:
    """A column as 0 and 1; every row must have a value."""
    column = frame[name]
    if column.isna().any():
        raise ValueError(
            f"column {name!r} must have a value in every row; got {int(column.isna().sum())} "
            "missing ones. Remove these rows"
        )
    if positive is None:
        if column.dtype.kind not in "biuf":
            raise ValueError(
                f"column {name!r} must have the values 0 and 1; got {column.iloc[0]!r}. Name the "
                "positive class with --positive"
            )
        return column.to_numpy()
    texts = column.astype(str)
    if positive not in set(texts) and texts.nunique() > 1:
        raise ValueError(
            f"column {name!r} has no class {positive!r}; it has {sorted(set(texts))[:5]}"
        )
    return (texts == positive).to_numpy()
