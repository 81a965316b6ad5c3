"""The tables of `deep.py`: scores, differences within a seed, and which aims are met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from deep_methods import METHODS
from scipy.stats import t as student

Key = tuple[str, str]  # a method and its decision rule
Scores = dict[str, dict[Key, dict[int, float]]]  # by task and metric, by key, by seed

ADJUSTED = ("cross-entropy", "adjusted")
RULES = {
    "tuned": "tuned on the validation rows",
    "averaged": "averaged over resamples of the validation rows",
    "shrunk": "of labels, shrunk towards a shared threshold",
    "untuned": "as trained (threshold 0.5, arg-max)",
}
FITTED = "fitted"  # as the thresholds of refine are fitted, by the last one of these that exists
FITTED_BY = ("tuned", "averaged", "shrunk")  # for masks, for one column and classes, for labels
BASELINES = [*((name, FITTED) for name, x in METHODS.items() if not x.ours), ADJUSTED]
TUNED = [(name, "tuned") for name, _ in BASELINES[:-1]]
REFINED = [(name, FITTED) for name in METHODS if name.startswith("refine")]
SCRATCH = [name for name, x in METHODS.items() if x.ours and not name.startswith("refine")]
OURS = [*REFINED, *((name, rule) for name in SCRATCH for rule in ("untuned", FITTED))]
DOCUMENTED = "loss + 0.1 CE, memory"
STARTS = {
    "refine": "cross-entropy",
    "refine, weighted start": "weighted cross-entropy",
    "refine, balanced softmax start": "balanced softmax",
}


class Difference(NamedTuple):
    """The mean difference of two methods over seeds or tasks, with a 95 % interval."""

    mean: float
    low: float
    high: float
    number: int  # of seeds or tasks

    def __str__(self) -> str:
        if self.number < 2:
            return f"{self.mean:+.3f} (1)"
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def title(key: Key) -> str:
    name, rule = key
    if key == ADJUSTED:
        return "post-hoc logit adjustment"
    return f"{name}, fitted" if name in SCRATCH and rule == FITTED else name


def with_fitted(found: Scores) -> Scores:
    """The scores with one more rule, as the thresholds of refine are fitted."""
    return {
        task: cells
        | {(name, FITTED): x for by in FITTED_BY for (name, rule), x in cells.items() if rule == by}
        for task, cells in found.items()
    }


def difference(cells: dict[Key, dict[int, float]], one: Key, other: Key) -> Difference | None:
    """How much `one` is above `other`, None without a seed that has both.

    >>> found = {("a", "tuned"): {0: 0.75, 1: 1.0}, ("b", "tuned"): {0: 0.5, 1: 0.5}}
    >>> str(difference(found, ("a", "tuned"), ("b", "tuned")))
    '+0.375 [-1.213, +1.963]'
    """
    both = sorted(cells.get(one, {}).keys() & cells.get(other, {}).keys())
    if not both:
        return None
    return interval(np.array([cells[one][seed] - cells[other][seed] for seed in both]))


def interval(found: np.ndarray) -> Difference:
    """The mean of differences with a 95 % interval (t)."""
    mean, n = float(found.mean()), len(found)
    if n < 2:
        return Difference(mean, np.nan, np.nan, n)
    half = float(student.ppf(0.975, n - 1) * found.std(ddof=1) / np.sqrt(n))
    return Difference(mean, mean - half, mean + half, n)


def differences(found: Scores, one: Key, other: Key) -> dict[str, Difference]:
    pairs = {task: difference(cells, one, other) for task, cells in found.items()}
    return {task: x for task, x in pairs.items() if x is not None}


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def tables(found: Scores, groups: dict[str, str]) -> str:
    """All tables as Markdown; `groups` has the group of each task."""
    found = with_fitted(found)
    parts = ["## The aims\n", aims(found)]
    parts += ["## Ours against each baseline, fitted rule\n", summary(found, BASELINES)]
    parts += ["## Ours against each baseline, tuned rule\n", summary(found, TUNED)]
    parts += ["## Other decision rules against the tuned rule\n", rule_table(found)]
    for group in dict.fromkeys(groups.values()):
        part = {task: cells for task, cells in found.items() if groups[task] == group}
        for rule, words in RULES.items():
            keys = [(name, rule) for name in METHODS] + [ADJUSTED] * (rule == "tuned")
            if any(key in cells for key in keys for cells in part.values()):
                parts += [f"## Scores, {group}: {words}\n", score_table(part, keys)]
    parts += [x for task, cells in found.items() for x in (f"## {task}\n", task_table(cells))]
    return "\n".join(parts)


def score_table(found: Scores, keys: list[Key]) -> str:
    """The mean and deviation over the seeds; the best mean of a task in bold."""
    rows = []
    best = {
        task: max((np.mean(list(cells[k].values())) for k in keys if k in cells), default=np.nan)
        for task, cells in found.items()
    }
    for key in keys:
        row = [cell(found[task].get(key), best[task]) for task in found]
        rows += [[title(key), *row]] if any(row) else []
    return markdown(["method", *found], rows)


def cell(scores: dict[int, float] | None, best: float) -> str:
    if not scores:
        return ""
    values = np.array(list(scores.values()))
    mean = f"**{values.mean():.3f}**" if values.mean() >= best else f"{values.mean():.3f}"
    spread = f" ± {values.std(ddof=1):.3f}" if len(values) > 1 else ""
    return f"{mean}{spread} ({len(values)})"


def task_table(cells: dict[Key, dict[int, float]]) -> str:
    """Each of ours minus each baseline on one task, over the seeds."""
    ours, others = ([k for k in keys if k in cells] for keys in (OURS, BASELINES))
    rows = [
        [title(one), *(str(difference(cells, one, other) or "") for other in others)]
        for one in ours
    ]
    return markdown(["ours minus", *map(title, others)], rows)


def summary(found: Scores, baselines: list[Key]) -> str:
    """Each of ours minus each baseline, over the tasks."""
    rows = [
        [title(one), *(over_tasks(differences(found, one, other)) for other in baselines)]
        for one in OURS
    ]
    return markdown(["ours minus", *map(title, baselines)], [row for row in rows if any(row[1:])])


def over_tasks(pairs: Mapping[str, Difference]) -> str:
    """The mean difference with its interval over the tasks, and how many are clear."""
    if not pairs:
        return ""
    above, below = (sum(x.low > 0 for x in pairs.values()), sum(x.high < 0 for x in pairs.values()))
    mean = interval(np.array([x.mean for x in pairs.values()]))
    return f"{mean}; {above} above, {below} below of {len(pairs)}"


def rule_table(found: Scores) -> str:
    """Each decision rule minus the tuned one, over the tasks."""
    others = [rule for rule in RULES if rule != "tuned"]
    rows = [
        [name, *(over_tasks(differences(found, (name, x), (name, "tuned"))) for x in others)]
        for name in METHODS
    ]
    return markdown(["method", *(RULES[x] for x in others)], [row for row in rows if any(row[1:])])


def aims(found: Scores) -> str:
    """Which aims are met, and where they are missed."""
    parts = [finished(found)]
    for one in REFINED:
        means = {
            title(other): float(np.mean([x.mean for x in pairs.values()]))
            for other in BASELINES
            if (pairs := differences(found, one, other))
        }
        missed = [f"{name} ({mean:+.3f})" for name, mean in means.items() if mean <= 0]
        done = sum(one in cells for cells in found.values())
        aim = f"{title(one)} ({done} tasks) is ahead of every baseline on average"
        parts.append(verdict(aim, missed, len(means)))
    for name, start in STARTS.items():
        parts.append(
            never_below(
                f"{name} is on no task clearly below {start} with its better rule",
                {t: difference(x, (name, FITTED), best_rule(x, start)) for t, x in found.items()},
            )
        )
    for rule, words in (("untuned", "as trained"), (FITTED, "with the fitted rule")):
        aim = f"{DOCUMENTED}, {words}, is on no task clearly below cross-entropy, fitted rule"
        pairs = differences(found, (DOCUMENTED, rule), ("cross-entropy", FITTED))
        parts.append(never_below(aim, dict(pairs)))
    return "\n".join(parts) + "\n"


def never_below(aim: str, pairs: Mapping[str, Difference | None]) -> str:
    """The verdict on the tasks with an interval."""
    judged = {task: x for task, x in pairs.items() if x and x.number > 1}
    return verdict(aim, [f"{task} {x}" for task, x in judged.items() if x.high < 0], len(judged))


def best_rule(cells: dict[Key, dict[int, float]], name: str) -> Key:
    """The decision rule with the higher mean score."""
    rules = [key for key in cells if key[0] == name and key != ADJUSTED]
    return max(rules, key=lambda key: np.mean(list(cells[key].values())), default=(name, "tuned"))


def verdict(aim: str, missed: list[str], judged: int) -> str:
    if not judged:
        return f"- {aim}: not measured yet."
    return f"- {aim}: " + (f"**missed** by {'; '.join(missed)}." if missed else f"met ({judged}).")


def finished(found: Scores) -> str:
    """How many seeds of each task are finished: of every baseline, and of some of ours."""
    if not found:
        return "Nothing is finished yet.\n"
    ours = [*REFINED, (DOCUMENTED, "untuned")]
    rows = []
    for task, cells in found.items():
        baselines = [len(cells[key]) for key in BASELINES if key in cells]
        counts = [min(baselines, default=0), *(len(cells.get(key, {})) for key in ours)]
        rows.append([task, *map(str, counts)])
    head = ["finished seeds", "every baseline", *(name for name, _ in ours)]
    return f"{len(found)} scores.\n\n" + markdown(head, rows)
