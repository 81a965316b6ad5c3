"""The commands from a table to a model: `fit`, `predict`, `compare`, and what explains them."""

from __future__ import annotations

import argparse
import hashlib
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

METRIC = "a name (see `anyloss metrics`) or a formula such as 'tp / (tp + 0.2*fp + fn)'"


def _add_table(command: Any) -> None:
    command.add_argument("data", type=Path, help="CSV or Parquet file")
    command.add_argument("--target", required=True, help="the column of the label")
    command.add_argument("--metric", default="f1", help=METRIC)
    command.add_argument("--positive", help="the class the metric is about; default: the rarer")
    command.add_argument("--seed", type=_seed, default=0)
    command.add_argument("--drop", nargs="+", default=[], metavar="COLUMN", help="do not use these")
    command.add_argument("--id", metavar="COLUMN", help="names the rows; not learned from")
    _add_form(command)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 on; got {text!r}")
    return int(text)


def _add_form(command: Any) -> None:
    command.add_argument("--separator", help="separator of the CSV file (default: detected)")
    command.add_argument("--encoding", help="encoding of the CSV file (default: detected)")


def _table(given: argparse.Namespace) -> dict[str, Any]:
    return {
        "source": given.data, "target": given.target, "metric": given.metric,
        "positive": given.positive, "seed": given.seed, "drop": given.drop, "id_column": given.id,
        "separator": given.separator, "encoding": given.encoding,
    }  # fmt: skip


def add_fit(commands: Any) -> None:
    """Declare `anyloss fit`."""
    fit = commands.add_parser(
        "fit",
        help="from a table to a model, tested and explained",
        description="Fit a model to a table for a metric; write it to a folder, with its scores on "
        "rows it has not seen and a report to show to others.",
    )
    _add_table(fit)
    fit.add_argument("--out", type=Path, required=True, help="folder of the model")
    fit.add_argument("--model", default="auto", help="linear, mlp, lightgbm or auto")
    fit.add_argument("--test-share", type=float, default=0.2, help="of the rows; default: 0.2")
    fit.add_argument("--log-dir", type=Path, help="write scalars for TensorBoard here")
    fit.set_defaults(run=_fit)


def _fit(given: argparse.Namespace) -> None:
    options = {"model": given.model, "test_share": given.test_share}
    _run_fit(given, {**_table(given), **options}, given.log_dir)


def _run_fit(given: argparse.Namespace, table: dict[str, Any], log_dir: Path | None = None) -> None:
    from anyloss import report
    from anyloss.recipe.folder import check_place
    from anyloss.tabular import fit_table, save
    from anyloss.tabular.logs import check_logs, write_logs

    check_place(given.out)
    if given.out.exists():
        _say(f"{given.out} holds a model already; it is replaced once the new one is ready")
    if log_dir is not None:
        check_logs()
    result = fit_table(**table, verbose=True, tell=_say)
    result = replace(result, settings=result.settings | {"command": shlex.join(given.words)})
    save(result, given.out, {"report.html": lambda path: report.write(result, path)})
    if log_dir is not None:
        write_logs(result, log_dir)
    _show(result, given.out)


def _say(text: str) -> None:
    from rich.console import Console

    Console(stderr=True).print(text, style="dim", markup=False, highlight=False)


def _show(result: Any, out: Path) -> None:
    named = "" if result.settings["positive_named"] else " (the rarer class)"
    low, high = result.interval
    lines = [f"note: {text}" for text in result.warnings]
    lines += [f"model {x}: {value:.4f} on held-out rows" for x, value in result.candidates.items()]
    lines += [
        f"positive class of {result.target!r}: {result.positive}{named}",
        f"model: {result.model_name}",
        f"{result.metric} on {result.facts['test_rows']} test rows: {result.score:.4f} "
        f"(95 % from {low:.4f} to {high:.4f})",
    ]
    for rival in result.rivals:
        low, high = rival.interval
        lines.append(
            f"  against {rival.name}: {rival.score:.4f}, difference {rival.difference:+.4f} "
            f"(95 % from {low:+.4f} to {high:+.4f})"
        )
    print("\n".join([*lines, f"folder: {out}", f"report: {out / 'report.html'}"]))


def add_predict(commands: Any) -> None:
    """Declare `anyloss predict`."""
    predict = commands.add_parser(
        "predict",
        help="the classes of new rows",
        description="A class and a vote (0.5 decides) for each row of a file of any size.",
    )
    predict.add_argument("model", type=Path, help="folder that `anyloss fit` has written")
    predict.add_argument("data", type=Path, help="CSV or Parquet file")
    predict.add_argument("--out", type=Path, required=True, help=".csv or .parquet")
    predict.add_argument("--id", metavar="COLUMN", help="keep this column")
    _add_form(predict)
    predict.set_defaults(run=_predict)


def _predict(given: argparse.Namespace) -> None:
    from anyloss.tabular import load, predict_table

    model, notes = load(given.model), dict[str, list[str]]()

    def note(text: str) -> None:  # the same of later parts of the file is told once
        notes.setdefault(text.split(" (")[0], []).append(text)

    with _counter("rows") as tell:
        rows = predict_table(
            model, given.data, given.out, id_column=given.id, separator=given.separator,
            encoding=given.encoding, tell=tell, note=note,
        )  # fmt: skip
    for first, *more in notes.values():
        print(f"note: {first}" + (f", and in {len(more)} later parts of the file" if more else ""))
    print(f"{rows} rows: {given.out}")


@contextmanager
def _counter(what: str) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    text = TextColumn("{task.description} {task.completed:,.0f}")
    with Progress(SpinnerColumn(), text, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done: bar.update(task, completed=done)


def add_compare(commands: Any) -> None:
    """Declare `anyloss compare`."""
    compare = commands.add_parser(
        "compare",
        help="is it worth it on this table? against the usual ways",
        description="Our recipe against cross-entropy (at 0.5, tuned, class-weighted), SMOTE and "
        "LightGBM on repeated folds. Stop it at any moment: the same command goes on where it "
        "stopped.",
    )
    _add_table(compare)
    compare.add_argument("--model", default="linear", help="linear or mlp")
    compare.add_argument("--folds", type=int, default=5)
    compare.add_argument("--repeats", type=int, default=3)
    compare.add_argument(
        "--rows",
        type=int,
        default=20_000,
        help="largest number of rows to compare on (default: 20000)",
    )
    compare.add_argument("--journal", type=Path, help="default: NAME-compare-KEY.jsonl, here")
    compare.set_defaults(run=_compare)


def _compare(given: argparse.Namespace) -> None:
    from anyloss.cli.progress import progress
    from anyloss.tabular.comparing import METHODS, compare_table, verdict

    asked = (_table(given), given.model, given.folds, given.repeats, given.rows)
    key = hashlib.sha256(repr(asked).encode()).hexdigest()[:8]  # a journal for each question
    journal = given.journal or Path(f"{given.data.name.split('.')[0]}-compare-{key}.jsonl")
    with progress("folds x methods", stderr=True) as tell:
        found = compare_table(
            **_table(given), journal=journal, model=given.model, folds=given.folds,
            repeats=given.repeats, rows=given.rows, tell=tell,
        )  # fmt: skip
    for text in found.warnings:
        print(f"note: {text}")
    print(f"{found.metric} on {found.rows} rows, {given.repeats} x {given.folds} folds")
    print(f"{'method':<32}{'score':>8}{'ours - theirs':>15}   95 % interval")
    for contest in found.contests:
        line = f"{METHODS[contest.method]:<32}{contest.score:>8.4f}"
        if contest.method != "anyloss":
            low, high = contest.interval
            line += f"{contest.difference:>+15.4f}   {low:+.4f} to {high:+.4f}"
        print(line)
    print(verdict(found.contests))


def add_explain(commands: Any) -> None:
    """Declare `anyloss explain`."""
    explain = commands.add_parser(
        "explain",
        help="what one hit or false alarm more is worth to a metric",
        description="The slopes of a metric at these counts, and the threshold they imply.",
    )
    explain.add_argument("--metric", default="f1", help=METRIC)
    for cell, what in (("tp", "hits"), ("fn", "misses"), ("fp", "false alarms"), ("tn", "rest")):
        explain.add_argument(f"--{cell}", type=float, required=True, help=what)
    explain.set_defaults(run=_explain)


def _explain(given: argparse.Namespace) -> None:
    from anyloss._core.explain import explain

    print(explain(given.metric, tp=given.tp, fn=given.fn, fp=given.fp, tn=given.tn).words())


def add_metrics(commands: Any) -> None:
    """Declare `anyloss metrics`."""
    metrics = commands.add_parser("metrics", help="the metrics there are, with their formulas")
    metrics.set_defaults(run=_metrics)


def _metrics(given: argparse.Namespace) -> None:
    from anyloss.metrics import listed

    for name, formula, aliases in listed():
        print(f"{name:<32}{formula}" + (f"   (also {', '.join(aliases)})" if aliases else ""))


def add_demo(commands: Any) -> None:
    """Declare `anyloss demo`."""
    demo = commands.add_parser(
        "demo",
        help="fit on real data that comes with scikit-learn",
        description="Malignant or benign? Fits a linear model for F1 to the breast cancer data.",
    )
    demo.add_argument("--out", type=Path, default=Path("anyloss-demo"), help="folder of the model")
    demo.set_defaults(run=_demo)


def _demo(given: argparse.Namespace) -> None:
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer(as_frame=True)
    frame = found.data.assign(diagnosis=found.target_names[found.target])
    _run_fit(given, {"source": frame, "target": "diagnosis", "metric": "f1", "model": "linear"})


def add_export(commands: Any) -> None:
    """Declare `anyloss export`."""
    export = commands.add_parser(
        "export",
        help="a model folder as ONNX",
        description="Columns to class and vote as one ONNX graph; needs the package onnx.",
    )
    export.add_argument("model", type=Path, help="folder that `anyloss fit` has written")
    export.add_argument("out", type=Path, help=".onnx")
    export.set_defaults(run=_export)


def _export(given: argparse.Namespace) -> None:
    from anyloss.tabular import load
    from anyloss.tabular.onnx import export

    export(load(given.model), given.out)
    print(f"ONNX: {given.out}")
