"""The commands for tables: `fit`, `predict`, `compare`, `export` and `demo`."""

from __future__ import annotations

import argparse
import hashlib
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from anyloss.cli.arguments import (
    FILE,
    NETWORK,
    add_command,
    add_costs,
    add_folds,
    add_force,
    add_format,
    add_model_folder,
    add_out,
    add_table,
    format_options,
    table_options,
)
from anyloss.cli.messages import print_messages
from anyloss.cli.results import print_readings, print_result


def add_fit(commands: Any) -> None:
    """Declare `anyloss fit`."""
    text = """Fit a model to a table, evaluate it and write a report. The model is trained for a
    metric, and evaluated on rows that it has not seen. The model, its scores and the report
    (report.html) are written to a folder."""
    fit = add_command(commands, "fit", _fit, text)
    add_table(fit, "--out FOLDER ")
    add_out(fit, "FOLDER", "The folder of the model. An older model in it is replaced.")
    fit.add_argument(
        "--model",
        default="auto",
        help=f"The model: linear, {NETWORK}, lightgbm, or auto for an ensemble of them, "
        "whose weights rest on held-out training rows. Also a usual method, as 'anyloss compare' "
        "names it: plain-, tuned- or weighted- before linear, mlp or lightgbm (cross-entropy; with "
        "a tuned decision; with class weights), or smote-linear. Default: auto.",
    )
    fit.add_argument(
        "--time-limit",
        type=float,
        metavar="SECONDS",
        help="The seconds for training all members of --model auto; the evaluation takes "
        "additional time. Members that would not end in time are left out, and additional ones are "
        "trained while time is left. Default: no limit, and the three usual members.",
    )
    fit.add_argument(
        "--test-share",
        type=float,
        metavar="SHARE",
        help="The share of rows to evaluate the model on. Default: 0.2.",
    )
    fit.add_argument(
        "--folds",
        type=int,
        help="Evaluate by cross-fitting in this many folds, and fit the model on all rows; 0 for "
        "one set of test rows. Default: 5 if the test rows would have fewer than 50 rows of a "
        "class and the table has at most 20,000 rows, otherwise 0.",
    )
    fit.add_argument(
        "--no-rows",
        action="store_true",
        help="Leave single rows of the table, those with the most confident errors, out of the "
        "report. Default: they are shown.",
    )
    fit.add_argument(
        "--verbose", action="store_true", help="Print how each column was read. Default: no."
    )
    fit.add_argument(
        "--constraint",
        action="append",
        metavar="CONSTRAINT",
        help="A constraint for two classes, such as 'recall >= 0.9': a metric, >= or <=, and a "
        "number. The option may be repeated; all constraints hold jointly. Default: none.",
    )
    fit.add_argument(
        "--confidence-level",
        type=float,
        metavar="LEVEL",
        help="The confidence with which the constraints shall hold on new data, such as 0.95. Some "
        "of the rows are then set apart, and only used to certify the fitted model. Default: "
        "nothing is promised.",
    )
    fit.add_argument(
        "--certify-share",
        type=float,
        metavar="SHARE",
        help="The share of rows that certify, with --confidence-level. Default: 0.2.",
    )
    add_costs(fit, "costs are not known")
    fit.add_argument(
        "--stream",
        action=argparse.BooleanOptionalAction,
        help="Whether to read a Parquet file in parts instead of holding it in memory. The score "
        "rests on all test rows; the model is fitted to a weighted sample of 100,000 training "
        "rows. Default: a file of more than 50 million cells (rows times columns) is.",
    )
    fit.add_argument(
        "--log-dir",
        type=Path,
        metavar="FOLDER",
        help="A folder for TensorBoard logs. Default: none are written.",
    )


def _fit(given: argparse.Namespace) -> None:
    if given.test_share is not None and given.folds:
        raise ValueError("--test-share is for one set of test rows, and --folds has none: name one")
    if given.certify_share is not None and given.confidence_level is None:
        raise ValueError("--certify-share sets rows apart for --confidence-level; name both")
    shares = {"test_share": given.test_share, "certify_share": given.certify_share}
    options = {
        **{name: share for name, share in shares.items() if share is not None},
        "model": given.model, "constraints": given.constraint,
        "confidence_level": given.confidence_level,
        "show_rows": not given.no_rows, "fn_cost": given.fn_cost, "fp_cost": given.fp_cost,
        "folds": given.folds, "time_limit": given.time_limit, "stream": given.stream,
    }  # fmt: skip
    _run_fit(given, {**table_options(given), **options}, given.log_dir)


def _run_fit(given: argparse.Namespace, table: dict[str, Any], log_dir: Path | None = None) -> None:
    from anyloss import report
    from anyloss.recipe.folder import check_place
    from anyloss.tabular import fit_table, save
    from anyloss.tabular.logs import check_logs, write_logs

    check_place(given.out)
    if given.out.exists():
        _print_stage(f"{given.out} holds an older model, which will be replaced")
    if log_dir is not None:
        check_logs()
    result = fit_table(**table, verbose=True, on_stage=_print_stage)
    result = replace(result, settings=result.settings | {"command": shlex.join(given.command_line)})
    save(result, given.out, {"report.html": lambda path: report.write(result, path)})
    if log_dir is not None:
        write_logs(result, log_dir)
    if getattr(given, "verbose", False):
        print_readings(result.readings)
    print_result(result, given.out)


def _print_stage(text: str) -> None:
    from rich.console import Console

    Console(stderr=True).print(text, style="dim", markup=False, highlight=False)


def add_predict(commands: Any) -> None:
    """Declare `anyloss predict`."""
    text = """Predict the class of each row of a file. The output has the columns 'prediction' and
    'decision_value' (from 0 to 1; above 0.5 the prediction is the positive class), after the id
    column if there is one. Several classes or labels have a column for each of them. The file may
    be larger than the memory."""
    predict = add_command(commands, "predict", _predict, text)
    add_model_folder(predict)
    predict.add_argument("data", type=Path, help=f"The rows: {FILE}")
    add_out(predict, "FILE", "The output: .csv or .parquet.")
    predict.add_argument(
        "--id",
        metavar="COLUMN",
        help="A column to copy to the output. Default: the id column of the fit.",
    )
    predict.add_argument(
        "--allow-drift",
        action="store_true",
        help="Predict even if more than a tenth of the cells of a column cannot be read as in the "
        "training table. Default: that is an error.",
    )
    predict.add_argument(
        "--prevalence",
        type=_prevalence,
        metavar="SHARE",
        help="The share of positive rows in this file, if it is not that of the training rows: the "
        "threshold that is best there is used. 'auto' estimates it from the file. For two classes, "
        "and models that are trained for the metric. Default: that of the training rows.",
    )
    predict.add_argument(
        "--probabilities",
        action="store_true",
        help="Write calibrated probabilities too, in the column 'probability' (of several classes "
        "or labels one for each). Default: no.",
    )
    add_costs(predict, "those of the fit")
    add_force(predict)
    add_format(predict)


def _prevalence(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number or 'auto'; got {text!r}") from None


def _predict(given: argparse.Namespace) -> None:
    from anyloss._core.outputs import check_new, check_output
    from anyloss.tabular import estimate_prevalence, load, predict_table
    from anyloss.tabular.promises import promise_in_words
    from anyloss.tabular.row_costs import read_costs

    check_output(given.out, (".csv", ".parquet"))
    check_new(given.out, given.force)
    model, warnings = load(given.model), dict[str, list[str]]()
    if given.prevalence == "auto":
        given.prevalence = estimate_prevalence(model, given.data, **format_options(given))
        print(f"estimated share of {model.outcome.positive}: {given.prevalence:.4g}")
    if given.prevalence is not None:
        model = model.with_prevalence(given.prevalence)
    if (costs := read_costs(given.fn_cost, given.fp_cost)) is not None:
        model = model.with_costs(costs)

    def keep(text: str) -> None:  # a warning may occur in each part of the file
        warnings.setdefault(text.split(" (")[0], []).append(text)

    with _counter("rows") as on_rows:
        rows = predict_table(
            model, given.data, given.out, id_column=given.id, allow_drift=given.allow_drift,
            probabilities=given.probabilities, on_rows=on_rows, on_warning=keep,
            **format_options(given),
        )  # fmt: skip
    print_messages(
        first + (f", and in {len(more)} more parts of the file" if more else "")
        for first, *more in warnings.values()
    )
    if promise := promise_in_words(model.classifier):
        print(f"the model is {promise}")
        if model.caveat:
            print_messages([model.caveat])
    print(f"Wrote {rows} predictions to {given.out}")


@contextmanager
def _counter(label: str) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    text = TextColumn("{task.description} {task.completed:,.0f}")
    with Progress(SpinnerColumn(), text, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done: bar.update(task, completed=done)


def add_compare(commands: Any) -> None:
    """Declare `anyloss compare`."""
    text = """Compare anyloss with the usual methods on a table. These are cross-entropy (threshold
    0.5, tuned threshold, class weights), SMOTE and LightGBM, if they are installed, and trivial
    decisions. All methods are trained and tested on the same repeated folds, and one of them is
    recommended. An interrupted command continues where it stopped if it is run again."""
    compare = add_command(commands, "compare", _compare, text)
    add_table(compare)
    compare.add_argument(
        "--model", default="linear", help=f"The model: linear or {NETWORK}. Default: linear."
    )
    add_folds(compare, repeats=3, rows=20_000, of="the table")
    compare.add_argument(
        "--journal",
        type=Path,
        metavar="FILE",
        help="The file that keeps the finished folds. Default: NAME-compare-KEY.jsonl in the "
        "current folder.",
    )


def _compare(given: argparse.Namespace) -> None:
    from anyloss.cli.progress import progress
    from anyloss.tabular.comparing import compare_table
    from anyloss.tabular.verdicts import OURS, recommendation

    table = table_options(given)
    options = (table, given.model, given.folds, given.repeats, given.rows)
    key = hashlib.sha256(repr(options).encode()).hexdigest()[:8]  # one journal per comparison
    name = "table" if given.data == Path("-") else given.data.name.split(".")[0]
    journal = given.journal or Path(f"{name}-compare-{key}.jsonl")
    with progress("folds x methods", stderr=True) as on_progress:
        found = compare_table(
            **table, journal=journal, model=given.model, folds=given.folds,
            repeats=given.repeats, rows=given.rows, on_progress=on_progress,
        )  # fmt: skip
    print_messages(found.warnings)
    repeats = 1 if given.time else given.repeats  # periods are not repeated
    folds = f"{repeats} x {given.folds} folds (repeats x folds)"
    print(f"Mean {found.metric} over {folds} of {found.rows} rows")
    width = max(32, *(len(x.name) + 2 for x in found.baselines))
    head = f"{'method':<{width}}{'score':>8}{'anyloss - method':>19}   {'95 % interval':<20}"
    print(f"{head}  fit --model")
    for each in found.baselines:
        low, high = each.interval
        difference = f"{each.difference:>+19.4f}   {f'{low:+.4f} to {high:+.4f}':<20}"
        name = found.names.get(each.name, "")
        print(f"{each.name:<{width}}{each.score:>8.4f}{difference}  {name}".rstrip())
    print(f"{OURS:<{width}}{found.score:>8.4f}{'':>44}{found.names[OURS]}")
    print(recommendation(found))


def add_demo(commands: Any) -> None:
    """Declare `anyloss demo`."""
    text = """Fit a model to a data set of scikit-learn. A linear model is trained for F1 on the
    breast cancer data (malignant or benign), and written to a folder with its report."""
    demo = add_command(commands, "demo", _demo, text)
    text = "The folder of the model. Default: anyloss-demo."
    add_out(demo, "FOLDER", text, Path("anyloss-demo"))


def _demo(given: argparse.Namespace) -> None:
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer(as_frame=True)
    frame = found.data.assign(diagnosis=found.target_names[found.target])
    _run_fit(given, {"source": frame, "target": "diagnosis", "metric": "f1", "model": "linear"})


def add_export(commands: Any) -> None:
    """Declare `anyloss export`."""
    text = """Convert a model folder to ONNX. The model becomes one graph, from the columns of the
    table to the label and the decision value. Single models that are trained for the metric can be
    exported: linear models, networks and LightGBM. The command needs the package onnx."""
    export = add_command(commands, "export", _export, text)
    add_model_folder(export)
    export.add_argument("out", type=Path, help="The output: .onnx.")
    add_force(export)


def _export(given: argparse.Namespace) -> None:
    from anyloss._core.outputs import check_new
    from anyloss.tabular import load
    from anyloss.tabular.onnx import export

    check_new(given.out, given.force)
    export(load(given.model), given.out)
    print(f"Wrote the ONNX model to {given.out}")
