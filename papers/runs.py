"""Running a model on many data sets: resumable, with a record of how it was done."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from anyloss import __version__
from anyloss._core.backend import Array
from anyloss._core.journal import Journal
from anyloss._core.outputs import check_output, versions, write_table
from anyloss.baselines.splits import fingerprint
from papers import slp
from papers.data import Rows

Told = Callable[[int, int, str], None]  # how many are done, of how many, and the last one's name
LIBRARIES = ("numpy", "torch", "scikit-learn", "pandas")


def silent(done: int, total: int, name: str) -> None:
    """Tell nobody."""


class Request(NamedTuple):
    """What is asked for: where results go, where data are, which sets, and who is told."""

    out: Path
    folder: Path | None = None
    datasets: tuple[str, ...] = ()
    quick: bool = False
    told: Told = silent


class Job(NamedTuple):
    """A data set, what is done with it, and how to know that again: something JSON can tell."""

    name: str
    read: Callable[[], Rows]
    key: Any
    work: Callable[[Array, Array], list[dict[str, Any]]]


def slp_job(name: str, read: Callable[[], Rows], rates: Mapping[str, float]) -> Job:
    """Train the single-layer perceptron with these learning rates."""
    return Job(name, read, dict(rates), lambda X, y: score_rows(slp.scores(X, y, rates)))


def score_rows(found: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Scores by loss and metric as rows.

    >>> score_rows({"BCE": {"f1": 0.5}})
    [{'loss': 'BCE', 'metric': 'f1', 'ours': 0.5}]
    """
    return [
        {"loss": loss, "metric": metric, "ours": value}
        for loss, values in found.items()
        for metric, value in values.items()
    ]


def run(
    jobs: Sequence[Job],
    out: Path,
    told: Told = silent,
    settings: Mapping[str, Any] = slp.SETTINGS,
) -> Any:
    """The rows of all jobs as a table, with their data set before them.

    What the journal beside `out` holds is not run again; a job is known by its name, its key and
    its data.
    """
    import pandas as pd

    check_output(out)
    rows: list[dict[str, Any]] = []
    header = {"anyloss": __version__, **settings}
    with Journal(out.with_suffix(".journal.jsonl"), header) as journal:
        for done, job in enumerate(jobs):
            told(done, len(jobs), job.name)
            X, y = job.read()
            key = json.dumps([job.name, job.key, fingerprint(X, y)])
            if key not in journal.results:
                journal.add(key, [{"dataset": job.name, **row} for row in job.work(X, y)])
            rows += journal.results[key]
    told(len(jobs), len(jobs), "")
    return pd.DataFrame(rows)


def write(table: Any, out: Path, settings: Mapping[str, Any] = slp.SETTINGS, **more: Any) -> None:
    """The tidy table, and beside it, as JSON, seed, settings and versions."""
    check_output(out)
    record = {"anyloss": __version__, **settings, **more, "versions": versions(LIBRARIES)}
    write_table(table, out)
    out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
