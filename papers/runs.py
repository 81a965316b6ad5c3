"""Running a model on many data sets. A run can be resumed, and its settings are recorded."""

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
from papers.data import LabelledData

# Receives the number of finished jobs, the number of all jobs and the name of the next job.
ProgressCallback = Callable[[int, int, str], None]
LIBRARIES = ("numpy", "torch", "scikit-learn", "pandas")


def no_progress(done: int, total: int, name: str) -> None:
    """The callback that does nothing."""


class Request(NamedTuple):
    """The arguments of a paper experiment."""

    out: Path  # the CSV file of results
    folder: Path | None = None  # the data folder
    datasets: tuple[str, ...] = ()  # names; none means all, or those of a quick run
    quick: bool = False
    on_progress: ProgressCallback = no_progress


class Job(NamedTuple):
    """One data set and the work on it. `key` identifies the work in the journal, as JSON."""

    name: str
    read: Callable[[], LabelledData]
    key: Any
    work: Callable[[Array, Array], list[dict[str, Any]]]


def slp_job(name: str, read: Callable[[], LabelledData], rates: Mapping[str, float]) -> Job:
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


def run(jobs: Sequence[Job], request: Request, settings: Mapping[str, Any] = slp.SETTINGS) -> Any:
    """Run the jobs and return their rows as a table, with the data set as its first column.

    A job is identified by its name, its key and its data. Jobs that the journal beside the output
    already has are not run again.
    """
    import pandas as pd

    check_output(request.out)
    rows: list[dict[str, Any]] = []
    header = {"anyloss": __version__, **settings}
    with Journal(request.out.with_suffix(".journal.jsonl"), header) as journal:
        for done, job in enumerate(jobs):
            request.on_progress(done, len(jobs), job.name)
            X, y = job.read()
            key = json.dumps([job.name, job.key, fingerprint(X, y)])
            if key not in journal.results:
                journal.add(key, [{"dataset": job.name, **row} for row in job.work(X, y)])
            rows += journal.results[key]
    request.on_progress(len(jobs), len(jobs), "")
    return pd.DataFrame(rows)


def write(table: Any, out: Path, settings: Mapping[str, Any] = slp.SETTINGS, **more: Any) -> None:
    """Write the table, and beside it a JSON file with seed, settings and versions."""
    check_output(out)
    record = {"anyloss": __version__, **settings, **more, "versions": versions(LIBRARIES)}
    write_table(table, out)
    out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
