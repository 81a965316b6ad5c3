"""Running the perceptron on many data sets: resumable, with a record of how it was done."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from anyloss import __version__
from anyloss.studies.datasets import fingerprint
from anyloss.studies.journal import Journal
from anyloss.studies.outputs import check_output, write_table
from anyloss.studies.reproduce import slp
from anyloss.studies.reproduce.data import Rows

Told = Callable[[int, int, str], None]  # how many are done, of how many, and the last one's name


def silent(done: int, total: int, name: str) -> None:
    """Tell nobody."""


class Request(NamedTuple):
    """What is asked for: where results go, where data are, which sets, and who is told."""

    out: Path
    folder: Path | None = None
    datasets: tuple[str, ...] = ()
    quick: bool = False
    told: Told = silent


LIBRARIES = ("numpy", "torch", "scikit-learn", "pandas")


class Job(NamedTuple):
    """A data set to train on, and the learning rates of the losses."""

    name: str
    read: Callable[[], Rows]
    rates: Mapping[str, float]


def settings() -> dict[str, Any]:
    """What the scores depend on, beside data and learning rates."""
    return {
        "anyloss": __version__,
        "model": "single-layer perceptron",
        "folds": slp.FOLDS,
        "seed": slp.SEED,
        "epochs": slp.EPOCHS,
        "scale": slp.SCALE,
        "factors": slp.FACTORS,
    }


def run(jobs: Sequence[Job], out: Path, told: Told = silent) -> Any:
    """The scores of the jobs as a table: dataset, loss, metric, ours.

    What the journal beside `out` holds is not run again; a job is known by its name, its learning
    rates and its data.
    """
    import pandas as pd

    check_output(out)
    rows: list[dict[str, Any]] = []
    with Journal(out.with_suffix(".journal.jsonl"), settings()) as journal:
        for done, job in enumerate(jobs):
            told(done, len(jobs), job.name)
            X, y = job.read()
            key = json.dumps([job.name, dict(job.rates), fingerprint(X, y)])
            if key not in journal.results:
                journal.add(key, _rows(job, slp.scores(X, y, job.rates)))
            rows += journal.results[key]
    told(len(jobs), len(jobs), "")
    return pd.DataFrame(rows, columns=["dataset", "loss", "metric", "ours"])


def _rows(job: Job, found: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    return [
        {"dataset": job.name, "loss": loss, "metric": metric, "ours": value}
        for loss, values in found.items()
        for metric, value in values.items()
    ]


def write(table: Any, out: Path, **more: Any) -> None:
    """The tidy table, and beside it, as JSON, seed, settings and versions."""
    check_output(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    record = settings() | more
    record["versions"] = {"python": platform.python_version()} | {x: version(x) for x in LIBRARIES}
    write_table(table, out)
    out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
