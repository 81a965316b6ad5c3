"""The protocol: data sets x models x metrics x methods x repeated stratified folds.

Every method sees the same outer folds, the same scaled rows (the scaler knows the training fold
only) and the same network. Rivals tune their threshold on five inner folds and predict with one
model fitted on all rows, as scikit-learn does it; ours draws inner folds of its own, twice, and
lets their models vote, with and ("unrefined") without training for the metric.

A unit is one family of methods on one fold; its result depends on nothing but its name and its
data, so units may run in any order, on any number of processes, and be resumed after a kill.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anyloss import __version__
from anyloss._core.counts import score
from anyloss._core.journal import Journal
from anyloss._core.outputs import check_output, write_table
from anyloss.baselines.boosted import BOOSTED
from anyloss.baselines.methods import FAMILIES, Family, Outcome, Split, families_for
from anyloss.baselines.splits import (
    INNER,
    MODELS,
    check_rarer,
    check_sizes,
    fingerprint,
    new_split,
)
from anyloss.benchmark.datasets import Dataset, load
from anyloss.metrics import metric as find_metric

METRICS = ("f1", "mcc", "balanced_accuracy", "gmean", "accuracy")
KEYS = ["dataset", "model", "metric", "method", "repeat", "fold"]


@dataclass(frozen=True)
class Study:
    """What is compared on what; `families` limits the methods (default: see `families_for`)."""

    datasets: tuple[Dataset, ...]
    models: tuple[str, ...] = tuple(MODELS)
    metrics: tuple[str, ...] = METRICS
    families: tuple[str, ...] = ()
    folds: int = 5
    repeats: int = 5
    rows: int = 5000

    def __post_init__(self) -> None:
        for what, given, known in (
            ("models", self.models, (*MODELS, *BOOSTED)),
            ("methods", self.families, {x: x for model in self.models for x in _families(model)}),
        ):
            wrong = [x for x in given if x not in known]
            if wrong:
                raise ValueError(f"{what} must be among {', '.join(known)}; got {wrong}")
        for metric in self.metrics:
            find_metric(metric)
        names = tuple(dataset.name for dataset in self.datasets)
        for what, given in (
            ("data sets", names),
            ("models", self.models),
            ("metrics", self.metrics),
            ("methods", self.families),
        ):
            twice = sorted({x for x in given if given.count(x) > 1})
            if twice or not (given or what == "methods"):
                raise ValueError(
                    f"a study needs {what}, each of them once; got {', '.join(twice) or 'none'}"
                    f"{' more than once' if twice else ''}"
                )
        check_sizes(self.folds, self.repeats, self.rows)


class Unit(NamedTuple):
    """A family of methods on one fold of one data set."""

    dataset: Dataset
    model: str
    family: str
    metrics: tuple[str, ...]
    repeat: int
    fold: int

    def key(self, fingerprint: str) -> str:
        """Its name in the journal; the fingerprint is that of the data."""
        place = (self.dataset.name, fingerprint, self.repeat, self.fold)
        return json.dumps((*place, self.model, self.family, self.metrics))


def units(study: Study) -> Iterator[Unit]:
    """All units of a study, data set by data set."""
    for dataset in study.datasets:
        for model in study.models:
            known = _families(model)
            for family in study.families or known:
                metrics = tuple(
                    metric
                    for metric in study.metrics
                    if family in (known if study.families else _usual(model, metric))
                )
                if not metrics:
                    continue
                for repeat in range(study.repeats):
                    for fold in range(study.folds):
                        yield Unit(dataset, model, family, metrics, repeat, fold)


def _families(model: str) -> dict[str, Family]:
    """The methods there are for a model."""
    return BOOSTED.get(model, FAMILIES)


def _usual(model: str, metric: str) -> tuple[str, ...]:
    """The methods a model is compared by unless others are asked for."""
    return tuple(BOOSTED[model]) if model in BOOSTED else families_for(model, metric)


def run_unit(unit: Unit, folds: int, rows: int) -> list[dict[str, Any]]:
    """Fit and judge the methods of a unit: one row per method and metric."""
    X, y = load(unit.dataset, rows)
    split, truth = _split(X, y, unit, folds)
    about = {
        "dataset": unit.dataset.name,
        "family": unit.dataset.family,
        "rows": len(y),
        "features": X.shape[1],
        "positives": int(y.sum()),
        "model": unit.model,
    }
    outcomes = _families(unit.model)[unit.family](split, unit.metrics)
    return [about | _judge(outcome, truth, unit) for outcome in outcomes]


def _judge(outcome: Outcome, truth: Any, unit: Unit) -> dict[str, Any]:
    return {
        "metric": outcome.metric,
        "method": outcome.method,
        "repeat": unit.repeat,
        "fold": unit.fold,
        "score": float(score(truth, outcome.decision.astype(float), outcome.metric)),
        "brier": float(np.mean((outcome.probability - truth) ** 2)),
        "collapsed": not bool(outcome.decision.any()),
        "seconds": outcome.seconds,
    }


def _split(X: Any, y: Any, unit: Unit, folds: int) -> tuple[Split, Any]:
    """The outer fold of a unit, scaled, and the labels of its test rows."""
    from sklearn.model_selection import StratifiedKFold

    place = f"{unit.dataset.name} {unit.repeat}"
    seed = zlib.crc32(place.encode()) % 2**30
    outer = StratifiedKFold(folds, shuffle=True, random_state=seed)
    train, test = list(outer.split(X, y))[unit.fold]
    hidden = MODELS.get(unit.model, ())
    return new_split(X[train], y[train], X[test], hidden, seed + unit.fold), y[test]


def usable(datasets: Sequence[Dataset], rows: int, folds: int) -> tuple[list[Dataset], list[str]]:
    """The data sets that can be split, and what is wrong with the others."""
    check_sizes(folds, 1, rows)
    good, problems = [], []
    for dataset in datasets:
        try:
            check_rarer(load(dataset, rows)[1], folds)
        except (ValueError, TypeError, KeyError, OSError, ImportError) as error:
            text = str(error)
            named = text if text.startswith(dataset.name) else f"{dataset.name}: {text}"
            problems.append(named)
        else:
            good.append(dataset)
    return good, problems


def run(
    study: Study,
    out: Path | str,
    *,
    jobs: int = 2,
    on_unit: Callable[[int, int, str], None] = lambda done, total, name: None,
) -> Any:
    """Run what the journal beside `out` does not hold yet; write and return the tidy results.

    `out` ends in .csv or .parquet. The fitting times, which no run can repeat, go to a second file
    (`...-seconds`), so that `out` is the same after any number of kills. `on_unit` is told how many
    units are done, of how many, and the name of the last one.
    """
    out = Path(out)
    check_output(out, (".csv", ".parquet"))
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1; got {jobs}")
    settings = {"anyloss": __version__, "folds": study.folds, "rows": study.rows, "inner": INNER}
    prints = {dataset: fingerprint(*load(dataset, study.rows)) for dataset in study.datasets}
    wanted = {unit.key(prints[unit.dataset]): unit for unit in units(study)}
    with Journal(out.with_suffix(".journal.jsonl"), settings) as journal:
        todo = {key: unit for key, unit in wanted.items() if key not in journal.results}
        done = len(wanted) - len(todo)
        on_unit(done, len(wanted), "")
        for key, rows in _finished(todo, study, jobs):
            journal.add(key, rows)
            done += 1
            on_unit(done, len(wanted), key)
        return write_results([row for key in wanted for row in journal.results[key]], out)


def _finished(
    todo: dict[str, Unit], study: Study, jobs: int
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The results of the units as they come."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker)
    try:
        running = {
            pool.submit(run_unit, unit, study.folds, study.rows): key for key, unit in todo.items()
        }
        for future in as_completed(running):
            key = running.pop(future)
            try:
                yield key, future.result()
            except (ValueError, TypeError, ArithmeticError) as error:
                raise ValueError(f"the unit {key} failed: {error}") from error
    except BrokenProcessPool:
        raise OSError(
            "a worker process was ended, perhaps for want of memory; the same command goes on from "
            "here, and fewer jobs need less memory"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """One thread per process, no warnings of convergence, and an end when the parent is killed."""
    import warnings

    from threadpoolctl import threadpool_limits

    os.environ["OMP_NUM_THREADS"] = "1"
    threadpool_limits(1)
    warnings.simplefilter("ignore")
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def write_results(rows: list[dict[str, Any]], out: Path) -> Any:
    """The tidy file, sorted, and the times beside it; each put in place in one move."""
    import pandas as pd

    table = pd.DataFrame(rows).sort_values(KEYS, ignore_index=True)
    results = table.drop(columns="seconds")
    write_table(table[[*KEYS, "seconds"]], _times(out))
    write_table(results, out)
    return results


def _times(out: Path) -> Path:
    return out.with_name(f"{out.stem}-seconds{out.suffix}")


def read_results(out: Path | str) -> tuple[Any, Any]:
    """The tidy results and the fitting times that `run` has written."""
    import pandas as pd

    out = Path(out)
    times = _times(out)
    if out.suffix == ".csv":  # "null" is a method, not a gap
        return tuple(pd.read_csv(p, keep_default_na=False) for p in (out, times))
    return pd.read_parquet(out), pd.read_parquet(times)
