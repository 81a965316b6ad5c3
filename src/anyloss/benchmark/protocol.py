"""The protocol: data sets x models x metrics x methods x repeated stratified folds.

Every method receives the same outer folds, the same scaled rows (the scaler is fitted on the
training fold only) and the same network. The baselines tune their threshold on five inner folds
and predict with one model that is fitted on all training rows, as in scikit-learn. Our method
draws its own inner folds, twice, and predicts with the ensemble of their models, with training for
the metric ("anyloss") and without ("unrefined").

A unit is one family of methods on one fold. Its result depends only on its name and its data, so
that units can run in any order, on any number of processes, and can be resumed after a kill.
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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from anyloss import __version__
from anyloss._core.journal import Journal
from anyloss._core.outputs import check_output, write_table
from anyloss.baselines import rules, several
from anyloss.baselines.boosted import BOOSTED
from anyloss.baselines.methods import FAMILIES, Family, Split, families_for
from anyloss.baselines.splits import (
    INNER,
    MODELS,
    check_rarer,
    check_sizes,
    fingerprint,
    new_split,
    splitter,
)
from anyloss.benchmark.datasets import Dataset, load
from anyloss.benchmark.scoring import scores_of_several, scores_of_two, size_of
from anyloss.metrics import metric as find_metric

METRICS = ("f1", "mcc", "balanced_accuracy", "gmean", "accuracy")
DEFAULTS = {  # the models and metrics of each task
    "binary": (tuple(MODELS), METRICS),
    "multiclass": (several.MODELS, ("macro_f1", "mcc", "balanced_accuracy")),
    "multilabel": (several.MODELS, ("macro_f1", "micro_f1")),
}
KEYS = ["dataset", "model", "metric", "method", "repeat", "fold"]


@dataclass(frozen=True)
class Benchmark:
    """A comparison of our method with baselines on several data sets.

    `run` runs it. Every combination of data set, model, metric, method and fold gives one score. A
    family is a group of methods that are fitted together.

    Args:
        datasets (tuple of Dataset): the data sets, from `from_folder`, `bundled` or `from_openml`,
            or else from `several_classes` or `labels_from_folder`: all have the same task. Use
            `usable` to leave out those that cannot be split.
        models (tuple of str): `"linear"`, `"mlp"` (8 hidden units), `"lightgbm"`, `"xgboost"` or
            `"catboost"`; for several classes or labels `"linear"`, `"mlp"`, `"mlp32"` or
            `"lightgbm"`. Default: `("linear", "mlp")`.
        metrics (tuple of str): names or formulas of metrics; for several classes or labels also
            with an average, such as `"macro_f1"`. Default: F1, MCC, balanced accuracy, G-mean and
            accuracy.
        families (tuple of str): the families of methods. `"bce"`, `"weighted"` (class weights),
            `"focal"`, `"smote"`, `"undersampling"`, `"mse"` and `"surrogate_fbeta"` are scored at
            0.5 and with a tuned threshold. `"sol"`, `"heaviside"`, `"sigmoid_f1"` and
            `"published"` (AnyLoss with L = 73) train a soft metric from random weights.
            `"anyloss"` is our method, with and without refinement. Trees have `"bce"`,
            `"weighted"`, `"blend"` (two models) and `"anyloss"`. By default trees have all of
            theirs, the linear model has all with F1 and MCC, and everything else has `"bce"`,
            `"weighted"`, `"published"` and `"anyloss"`. Several classes and labels have `"bce"`
            (with every decision rule), `"weighted"` and `"anyloss"`.
        folds (int): the number of outer folds. Default: 5.
        repeats (int): how often the outer folds are drawn. Default: 5.
        rows (int): the largest number of rows of a data set; of a larger one a sample is used.
            Default: 5000.

    Raises:
        ValueError: if a model, method or metric is unknown, if a data set, model, metric or method
            occurs twice, if there is no data set, model or metric, if the data sets have different
            tasks, or if there are fewer than 2 folds, 1 repeat or 50 rows.

    Examples:
        >>> from anyloss.benchmark import Benchmark, bundled
        >>> datasets = tuple(bundled()[:3])
        >>> benchmark = Benchmark(datasets, models=("linear",), metrics=("f1", "mcc"), repeats=1)
        >>> len(benchmark.datasets), benchmark.folds
        (3, 5)
    """

    datasets: tuple[Dataset, ...]
    models: tuple[str, ...] = tuple(MODELS)
    metrics: tuple[str, ...] = METRICS
    families: tuple[str, ...] = ()
    folds: int = 5
    repeats: int = 5
    rows: int = 5000

    def __post_init__(self) -> None:
        tasks = sorted({dataset.task for dataset in self.datasets})
        if len(tasks) > 1:
            raise ValueError(f"all data sets must have the same task; got {', '.join(tasks)}")
        models = (*MODELS, *BOOSTED) if self.task == "binary" else several.MODELS
        known = [model for model in self.models if model in models]
        methods = {x: x for model in known for x in self.methods(model)}
        for what, given, allowed in (
            ("models", self.models, models), ("methods", self.families, methods)
        ):  # fmt: skip
            wrong = [x for x in given if x not in allowed]
            if wrong:
                raise ValueError(f"{what} must be among {', '.join(allowed)}; got {wrong}")
        for metric in self.metrics:
            find_metric(metric) if self.task == "binary" else rules.read_aim(metric)
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
                    f"a benchmark needs {what}, each of them once; got "
                    f"{', '.join(twice) or 'none'}{' more than once' if twice else ''}"
                )
        check_sizes(self.folds, self.repeats, self.rows)

    @property
    def task(self) -> str:
        """The task of the data sets: `"binary"`, `"multiclass"` or `"multilabel"`."""
        return self.datasets[0].task if self.datasets else "binary"

    def methods(self, model: str) -> dict[str, Family]:
        """All families of methods of a model."""
        return _families(model, self.task)


class Unit(NamedTuple):
    """A family of methods on one fold of one data set."""

    dataset: Dataset
    model: str
    family: str
    metrics: tuple[str, ...]
    repeat: int
    fold: int

    def key(self, fingerprint: str) -> str:
        """The name of the unit in the journal, which includes the fingerprint of the data."""
        place = (self.dataset.name, fingerprint, self.repeat, self.fold)
        return json.dumps((*place, self.model, self.family, self.metrics))


def units(benchmark: Benchmark) -> Iterator[Unit]:
    """All units of a benchmark, data set by data set."""
    for dataset in benchmark.datasets:
        for model in benchmark.models:
            known = benchmark.methods(model)
            for family in benchmark.families or known:
                metrics = tuple(
                    metric
                    for metric in benchmark.metrics
                    if family in (known if benchmark.families else _usual(benchmark, model, metric))
                )
                if not metrics:
                    continue
                for repeat in range(benchmark.repeats):
                    for fold in range(benchmark.folds):
                        yield Unit(dataset, model, family, metrics, repeat, fold)


def _families(model: str, task: str) -> dict[str, Family]:
    """All families of methods of a model for a task."""
    if task != "binary":
        return rules.families(model, task)
    return BOOSTED.get(model, FAMILIES)


def _usual(benchmark: Benchmark, model: str, metric: str) -> tuple[str, ...]:
    """The families of methods that are run by default for a model and a metric."""
    if model in BOOSTED or benchmark.task != "binary":
        return tuple(benchmark.methods(model))
    return families_for(model, metric)


def run_unit(unit: Unit, folds: int, rows: int) -> list[dict[str, Any]]:
    """Fit and score the methods of a unit: one row per method and metric."""
    X, y = load(unit.dataset, rows)
    split, truth = _split(X, y, unit, folds)
    task = unit.dataset.task
    about = {
        "dataset": unit.dataset.name,
        "family": unit.dataset.family,
        "rows": len(y),
        "features": X.shape[1],
        **size_of(y, task),
        "model": unit.model,
    }
    predictions = _families(unit.model, task)[unit.family](split, unit.metrics)
    place = {"repeat": unit.repeat, "fold": unit.fold}
    scores = scores_of_two if task == "binary" else partial(scores_of_several, task)
    return [
        about | {"metric": each.metric, "method": each.method} | place | scores(each, truth)
        for each in predictions
    ]


def _split(X: Any, y: Any, unit: Unit, folds: int) -> tuple[Split, Any]:
    """The scaled outer fold of a unit, and the labels of its test rows."""
    place = f"{unit.dataset.name} {unit.repeat}"
    seed = zlib.crc32(place.encode()) % 2**30
    train, test = list(splitter(y, folds, seed).split(X, y))[unit.fold]
    known = MODELS if unit.dataset.task == "binary" else several.HIDDEN
    hidden = known.get(unit.model, ())
    return new_split(X[train], y[train], X[test], hidden, seed + unit.fold), y[test]


def usable(datasets: Sequence[Dataset], rows: int, folds: int) -> tuple[list[Dataset], list[str]]:
    """Read the data sets and return those that can be split, and the problems of the others.

    A data set can be split if its features are finite numbers, its labels are those of its task,
    and the rarest class has enough rows for the outer folds and their inner folds.

    Args:
        datasets (sequence of Dataset): the data sets to read.
        rows (int): the largest number of rows of a data set, as in `Benchmark`.
        folds (int): the number of outer folds, as in `Benchmark`.

    Returns:
        tuple: the list of usable data sets, and a list of messages, one for each data set that is
        left out, which start with its name.

    Raises:
        ValueError: if `folds` is below 2 or `rows` below 50.

    Examples:
        >>> from anyloss.benchmark import bundled, usable
        >>> good, problems = usable(bundled()[:2], rows=300, folds=5)
        >>> [dataset.name for dataset in good], problems
        (['breast_cancer', 'digits_0'], [])
    """
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
    benchmark: Benchmark,
    out: Path | str,
    *,
    jobs: int = 2,
    on_unit: Callable[[int, int, str], None] = lambda done, total, name: None,
) -> Any:
    """Run a benchmark, or the rest of one that was stopped, and write its results.

    Finished units are kept in a journal beside `out` and are not run again. The fitting times,
    which differ from run to run, go to a second file (`NAME-seconds`), so that `out` is the same
    after any number of interruptions. The work is done in new processes, which import the script
    again, so a script must call `run` under `if __name__ == "__main__":`.

    Args:
        benchmark (Benchmark): what to run.
        out (Path or str): the file of results, `.csv` or `.parquet`.
        jobs (int): the number of processes. Default: 2.
        on_unit (callable): a callback that receives the number of finished units, the number of all
            units and the name of the last finished unit. Default: no callback.

    Returns:
        pandas.DataFrame: one row per data set, model, metric, method, repeat and fold, with the
        columns `dataset`, `family`, `rows`, `features`, `positives` (several: `classes`), `model`,
        `metric`, `method`, `repeat`, `fold`, `score`, `brier` and `collapsed` (no test row was
        predicted positive; several: all that was predicted is one class or label).

    Raises:
        ValueError: if `out` has another suffix, `jobs` is below 1, the journal has other settings,
            or a method fails on a data set.
        OSError: if a process was killed, for example because memory ran out.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from anyloss.benchmark import bundled
        >>> small = Benchmark(
        ...     tuple(bundled()[:1]), models=("linear",), metrics=("f1",),
        ...     families=("undersampling",), folds=2, repeats=1, rows=200,
        ... )
        >>> results = run(small, Path(tempfile.mkdtemp()) / "results.csv", jobs=1)
        >>> results["method"].unique().tolist()
        ['undersampling', 'undersampling_tuned']
    """
    out = Path(out)
    check_output(out, (".csv", ".parquet"))
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1; got {jobs}")
    folds, rows = benchmark.folds, benchmark.rows
    settings = {"anyloss": __version__, "folds": folds, "rows": rows, "inner": INNER}
    prints = {dataset: fingerprint(*load(dataset, rows)) for dataset in benchmark.datasets}
    wanted = {unit.key(prints[unit.dataset]): unit for unit in units(benchmark)}
    with Journal(out.with_suffix(".journal.jsonl"), settings) as journal:
        todo = {key: unit for key, unit in wanted.items() if key not in journal.results}
        done = len(wanted) - len(todo)
        on_unit(done, len(wanted), "")
        for key, scores in _finished(todo, benchmark, jobs):
            journal.add(key, scores)
            done += 1
            on_unit(done, len(wanted), key)
        return write_results([row for key in wanted for row in journal.results[key]], out)


def _finished(
    todo: dict[str, Unit], benchmark: Benchmark, jobs: int
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The results of the units in the order in which they are finished."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker)
    try:
        running = {
            pool.submit(run_unit, unit, benchmark.folds, benchmark.rows): key
            for key, unit in todo.items()
        }
        for future in as_completed(running):
            key = running.pop(future)
            try:
                yield key, future.result()
            except (ValueError, TypeError, ArithmeticError) as error:
                raise ValueError(f"the unit {key} failed: {error}") from error
    except BrokenProcessPool:
        raise OSError(
            "a worker process was killed, perhaps because memory ran out. Run the same command "
            "again to continue, with fewer jobs if memory is short"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """Set up a worker: one thread, no convergence warnings, and an exit if the parent is killed."""
    import warnings

    from threadpoolctl import threadpool_limits

    os.environ["OMP_NUM_THREADS"] = "1"
    threadpool_limits(1)
    warnings.simplefilter("ignore")
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: Any) -> None:
    """Exit as soon as the parent process has ended."""
    parent.join()
    os._exit(1)


def write_results(rows: list[dict[str, Any]], out: Path) -> Any:
    """Write the sorted results and, in a second file, the fitting times; return the results."""
    import pandas as pd

    table = pd.DataFrame(rows).sort_values(KEYS, ignore_index=True)
    results = table.drop(columns="seconds")
    write_table(table[[*KEYS, "seconds"]], _times(out))
    write_table(results, out)
    return results


def _times(out: Path) -> Path:
    """The file of the fitting times."""
    return out.with_name(f"{out.stem}-seconds{out.suffix}")


def read_results(out: Path | str) -> tuple[Any, Any]:
    """Read the results and the fitting times that `run` has written.

    The fitting times are in a second file beside `out`, `NAME-seconds`.

    Args:
        out (Path or str): the file of results, as given to `run`.

    Returns:
        tuple of pandas.DataFrame: the results, as `run` returns them, and the fitting times, one
        row per result with the column `seconds`.

    Raises:
        FileNotFoundError: if one of the two files is missing.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from anyloss.benchmark import read_results
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "bench.csv").write_text("dataset,method,score\\niris_0,null,1.0\\n")
        >>> _ = (folder / "bench-seconds.csv").write_text("method,seconds\\nnull,0.1\\n")
        >>> results, seconds = read_results(folder / "bench.csv")
        >>> results["score"].item(), seconds["seconds"].item()
        (1.0, 0.1)
    """
    import pandas as pd

    out = Path(out)
    times = _times(out)
    if out.suffix.lower() == ".csv":  # "null" is a method, not a missing value
        return tuple(pd.read_csv(p, keep_default_na=False) for p in (out, times))
    return pd.read_parquet(out), pd.read_parquet(times)
