"""What a certified constraint costs: precision at certified recall, recall at certified precision.

    python benchmarks/constraints_value.py DATA JOURNAL        # runs, resumable; about an hour
    python benchmarks/constraints_value.py DATA JOURNAL --tables

The population is a real table, so that the truth is known exactly: each run draws 3,000 rows from
it with replacement, and the metric and the constraint of its decisions are those of the whole
table. Tables: all of the folder with at least 4,000 rows and 5 % positives that are not generated,
the largest of each family; of a table with more than 20,000 rows, 20,000 random ones. All methods
see the same rows. Those with a certificate train on the same 2,400 of them and certify on the same
600, with 95 % confidence; the others train on all. A run that certifies nothing scores as "all
positive" (a constraint on recall) or "none positive" (on precision). MAPIE runs in an environment
that the script makes, Cooper from a folder.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import venv
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.stats import binomtest, bootstrap, wilcoxon
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import anyloss
from anyloss._core.constraints import read_constraints
from anyloss._core.journal import Journal
from anyloss.benchmark.datasets import from_folder, load
from anyloss.recipe.constrained import Promise, split_rows
from anyloss.sklearn import AnyLossClassifier, TunedDecisionClassifierCV

GOALS = [
    ("precision", "recall >= 0.8"),
    ("precision", "recall >= 0.9"),
    ("recall", "precision >= 0.7"),
]
CONFIDENCE, ROWS, MOST_ROWS = 0.95, 3000, 20_000
PACKAGES = {"mapie": "mapie==1.6.*", "cooper": "cooper-optim==1.0.*"}
SLOW = ("Cooper",)  # on the first draw only
GENERATED = ("random",)  # families of made data

# One line of certifying scores and labels in, one line with the best threshold or null out.
MAPIE = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from mapie.risk_control import BinaryClassificationController
for line in sys.stdin:
    given = json.loads(line)
    grid = np.arange(100) / 100
    if given["risk"] == "precision":
        grid = grid[::-1]  # from the safest threshold on
    controller = BinaryClassificationController(
        lambda s: np.column_stack([1 - s[:, 0], s[:, 0]]), risk=given["risk"],
        target_level=given["level"], confidence_level=given["confidence"],
        best_predict_param_choice=given["metric"], list_predict_params=grid,
        fwer_method=given["fwer"],
    )
    controller.calibrate(np.array(given["scores"])[:, None], np.array(given["y"]))
    best = controller.best_predict_param
    print(json.dumps(None if best is None else float(best)), flush=True)
"""

Decisions = np.ndarray | None
Method = Callable[["Run"], Decisions]


class Run:
    """The rows of one run: those that were drawn, the whole table, and the goal."""

    def __init__(self, X: np.ndarray, y: np.ndarray, goal: tuple[str, str], seed: int) -> None:
        rng = np.random.default_rng([seed, len(y)])
        rows = rng.choice(len(y), ROWS)
        self.X, self.y, self.population, self.seed = X[rows], y[rows], X, seed
        self.metric, self.constraint = goal
        number = np.random.RandomState(seed).randint(2**31)  # as the classifiers draw it
        self.training, self.certifying = split_rows(
            ROWS, Promise(confidence_level=CONFIDENCE), number
        )

    def given(self, certified: bool) -> dict[str, object]:
        """The arguments of a classifier."""
        return {
            "constraints": self.constraint, "pos_label": 1, "random_state": self.seed,
            "confidence_level": CONFIDENCE if certified else None,
        }  # fmt: skip


def ours(run: Run, certified: bool = True) -> Decisions:
    return _predicted(AnyLossClassifier(run.metric, **run.given(certified)), run)


def tuned(run: Run, certified: bool = True) -> Decisions:
    given = run.given(certified)
    return _predicted(TunedDecisionClassifierCV(_logistic(), run.metric, **given), run)


def _logistic() -> object:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def _predicted(model: object, run: Run) -> Decisions:
    with warnings.catch_warnings(action="ignore"):
        try:
            model.fit(run.X, run.y)
        except ValueError as error:
            if "no threshold satisfies" not in str(error):
                raise
            return None
    found = model.certificate_
    return None if found is not None and found.threshold is None else model.predict(run.population)


class Mapie:
    """MAPIE in an environment of its own, which stays open."""

    def __init__(self, folder: Path) -> None:
        python = folder / "bin" / "python"
        if not python.exists():
            venv.create(folder, with_pip=True)
            subprocess.run([python, "-m", "pip", "install", "-q", PACKAGES["mapie"]], check=True)
        self.process = subprocess.Popen(
            [python, "-c", MAPIE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def decide(self, run: Run, fwer: str) -> Decisions:
        (constraint,) = read_constraints(run.constraint)
        model = _logistic().fit(run.X[run.training], run.y[run.training])
        given = {
            "risk": constraint.metric.name, "level": constraint.value, "confidence": CONFIDENCE,
            "metric": run.metric, "fwer": fwer, "y": run.y[run.certifying].tolist(),
            "scores": model.predict_proba(run.X[run.certifying])[:, 1].tolist(),
        }  # fmt: skip
        self.process.stdin.write(json.dumps(given) + "\n")
        self.process.stdin.flush()
        threshold = json.loads(self.process.stdout.readline())
        scores = model.predict_proba(run.population)[:, 1]
        return None if threshold is None else (scores >= threshold).astype(int)


def with_cooper(folder: Path) -> Method:
    """A linear model trained by Cooper on all rows: soft counts, strict violations by hard ones."""
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
        subprocess.run([*pip, folder, PACKAGES["cooper"]], check=True)
    sys.path.append(str(folder))
    import cooper
    import torch

    class Problem(cooper.ConstrainedMinimizationProblem):
        def __init__(self, level: float, recall_first: bool) -> None:
            super().__init__()
            self.level, self.recall_first = level, recall_first
            multiplier = cooper.multipliers.DenseMultiplier(num_constraints=1)
            self.constraint = cooper.Constraint(
                constraint_type=cooper.ConstraintType.INEQUALITY, multiplier=multiplier
            )

        def compute_cmp_state(
            self, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor
        ) -> cooper.CMPState:
            z = model(x)[:, 0]
            loss, soft = self.parts(torch.sigmoid(z), y)
            _, hard = self.parts((z > 0).float(), y)
            state = cooper.ConstraintState(
                violation=soft.reshape(1), strict_violation=hard.reshape(1)
            )
            return cooper.CMPState(loss=loss, observed_constraints={self.constraint: state})

        def parts(self, a: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            """The objective and the violation: false positives or false negatives."""
            recall = (a * y).sum() / y.sum()
            false = (a * (1 - y)).sum() / (1 - y).sum()
            if not self.recall_first:  # precision subject to recall
                return false, self.level - recall
            share = y.mean()
            wanted = self.level / (1 - self.level) * (1 - share) / share
            return 1 - recall, wanted * false - recall

    def train(run: Run) -> Decisions:
        (constraint,) = read_constraints(run.constraint)
        scaler = StandardScaler().fit(run.X)
        x, new = (
            torch.tensor(scaler.transform(a), dtype=torch.float32) for a in (run.X, run.population)
        )
        y = torch.tensor(run.y, dtype=torch.float32)
        torch.manual_seed(run.seed)
        model = torch.nn.Linear(x.shape[1], 1)
        problem = Problem(constraint.value, run.metric == "recall")
        both = cooper.optim.SimultaneousOptimizer(
            problem,
            torch.optim.Adam(model.parameters(), lr=0.05),
            cooper.optim.nuPI(problem.dual_parameters(), lr=0.3, Kp=4.0 / 0.3, maximize=True),
        )
        for _ in range(500):
            both.roll({"model": model, "x": x, "y": y})
        with torch.no_grad():
            return (model(new)[:, 0] > 0).numpy().astype(int)

    return train


def methods(folder: Path) -> dict[str, Method]:
    """All methods by name, the certified ones first."""
    mapie = Mapie(folder / "mapie")
    return {
        "AnyLossClassifier, certified": ours,
        "cross-entropy + our certificate": tuned,
        "cross-entropy + MAPIE": lambda run: mapie.decide(run, "bonferroni_holm"),
        "cross-entropy + MAPIE, fixed sequence": lambda run: mapie.decide(run, "fixed_sequence"),
        "AnyLossClassifier, aimed at": lambda run: ours(run, certified=False),
        "cross-entropy + naive threshold": lambda run: tuned(run, certified=False),
        "Cooper": with_cooper(folder / "cooper"),
    }


def outcome(decisions: Decisions, y: np.ndarray, run: Run) -> dict[str, object]:
    """The metric and the constraint on the population; without decisions, those of the null."""
    (constraint,) = read_constraints(run.constraint)
    null = constraint.metric.name == "recall"  # all positive, or none
    shown = np.full(len(y), float(null)) if decisions is None else decisions.astype(float)
    value = float(anyloss.score(y, shown, constraint.metric))
    return {
        "score": float(anyloss.score(y, shown, run.metric)),
        "value": value,
        "decided": decisions is not None,
        "violated": decisions is not None and not bool(constraint.holds(value)),
    }


def chosen(data: Path) -> list[str]:
    """The names of the tables, by the rule of this module's first lines."""
    import pandas as pd

    table = pd.read_csv(data / "index.csv")
    table = table[(table.kind == "tabular") & (table.n >= 4000) & (table.pos_share >= 0.05)]
    table = table[~table.family.isin(GENERATED)].sort_values("n", ascending=False)
    return sorted(table.drop_duplicates("family").name)


def run_all(data: Path, path: Path, seeds: int) -> None:
    """All runs, seed by seed, so that a stopped run has whole seeds; finished ones are skipped."""
    names = chosen(data)
    sets = {x.name: x for x in from_folder(data) if x.name in names}
    settings = {"tables": names, "rows": ROWS, "goals": GOALS, "confidence": CONFIDENCE}
    with Journal(path, settings) as journal:
        every = methods(path.parent / "environments")
        for seed in range(1, seeds + 1):  # draw 0 was seen while the candidates were spaced
            for name in names:
                unit = f"{name}/{seed}"
                if unit in journal.results:
                    continue
                X, y = load(sets[name], MOST_ROWS)
                used = {k: x for k, x in every.items() if seed == 1 or k not in SLOW}
                journal.add(unit, list(one_table(name, X, y, seed, used)))


def one_table(
    name: str, X: np.ndarray, y: np.ndarray, seed: int, every: dict[str, Method]
) -> Iterator[dict[str, object]]:
    """The results of all goals and methods on one draw of a table."""
    for goal in GOALS:
        run = Run(X, y, goal, seed)
        for method, decide in {**every, "null": lambda run: None}.items():
            start = time.perf_counter()
            found = outcome(decide(run), y, run)
            seconds = round(time.perf_counter() - start, 3)
            yield {"table": name, "goal": goal, "method": method, "seconds": seconds, **found}


def tables(data: Path, path: Path) -> None:
    """The means over the tables, and ours beside cross-entropy with the same certificate."""
    with Journal(path, json.loads(path.open().readline())) as journal:
        rows = [row for unit in journal.results.values() for row in unit]
    seeds = len({unit.split("/")[1] for unit in journal.results})
    print(f"{len({x['table'] for x in rows})} tables, up to {seeds} draws of each\n")
    for goal in GOALS:
        print(f"\n{goal[0]} subject to {goal[1]}\n")
        print(
            "| method | score | decided | violated | 95 % interval | p-value of 'more than 5 %' |"
        )
        print("| --- | --- | --- | --- | --- | --- |")
        mine = [x for x in rows if x["goal"] == list(goal)]
        for method in dict.fromkeys(x["method"] for x in mine):
            own = [x for x in mine if x["method"] == method]
            by_table = _by_table(own)
            broken = sum(x["violated"] for x in own)
            p = binomtest(broken, len(own), 1 - CONFIDENCE, alternative="greater").pvalue
            low, high = binomtest(broken, len(own)).proportion_ci()
            print(
                f"| {method} | {np.mean(list(by_table.values())):.4f} "
                f"| {np.mean([x['decided'] for x in own]):.3f} | {broken} of {len(own)} "
                f"| {low:.3f} to {high:.3f} | {p:.2g} |"
            )
        first, second = (
            _by_table([x for x in mine if x["method"] == method])
            for method in ("AnyLossClassifier, certified", "cross-entropy + our certificate")
        )
        gaps = np.array([first[k] - second[k] for k in first])
        low, high = bootstrap((gaps,), np.mean, rng=np.random.default_rng(0)).confidence_interval
        print(
            f"\nours minus cross-entropy + our certificate: {gaps.mean():+.4f} (95 % interval over "
            f"tables: {low:+.4f} to {high:+.4f}); better on {(gaps > 0).sum()}, "
            f"worse on {(gaps < 0).sum()} of {len(gaps)} tables; Wilcoxon "
            f"p = {wilcoxon(gaps).pvalue:.3g}"
        )
        print("by table: " + ", ".join(f"{k} {first[k] - second[k]:+.3f}" for k in first))


def _by_table(rows: list[dict[str, object]]) -> dict[str, float]:
    names = dict.fromkeys(x["table"] for x in rows)
    return {k: float(np.mean([x["score"] for x in rows if x["table"] == k])) for k in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="The folder of tables with its index.csv.")
    parser.add_argument("journal", type=Path, help="The file of finished runs.")
    parser.add_argument("--seeds", type=int, default=20, help="Draws of each table.")
    parser.add_argument("--tables", action="store_true", help="Print the tables of the journal.")
    given = parser.parse_args()
    if given.tables:
        tables(given.data, given.journal)
    else:
        run_all(given.data, given.journal, given.seeds)


if __name__ == "__main__":
    main()
