"""Certificates: how often they are wrong, and how far below the truth they lie.

    python benchmarks/constraints.py                            # about ten minutes on one core
    python benchmarks/constraints.py --quick                    # a minute
    python benchmarks/constraints.py --mapie ENVIRONMENT/bin/python   # beside MAPIE's p-values

The truth is simulated: a population of four cells with a known metric. Coverage: the share of
samples whose bound lies above the truth, against the promise of 5 %. Tightness: the mean of truth
minus bound, beside the percentile bootstrap with its own share of wrong bounds. Bets: the bound of
F-beta and costs by betting beside that of Hoeffding and Bentkus. What a certified constraint costs
on real tables is measured by `constraints_value.py`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import numpy as np
from scipy.special import betainc
from scipy.stats import binomtest

import anyloss
from anyloss.certificates.bounds import form_of, lower_bounds

ALPHA = 0.05
CLOSED = ["recall", "precision", "f1", "jaccard"]
OTHERS = ["fbeta(beta=2)", "tp / (tp + 0.3*fp + 2*fn)", "balanced accuracy", "mcc"]
ROWS, POSITIVES = [50, 200, 1000, 5000], [0.01, 0.1, 0.5]
BETS = ["fbeta(beta=2)", "fbeta(beta=0.5)", "cost(fn_cost=10)", "cost(fn_cost=100)"]


def population(positives: float) -> np.ndarray:
    """Recall 0.8 and a false positive for about every four positives."""
    fp = min(0.25 * positives, 0.1)
    return np.array([0.8 * positives, 0.2 * positives, fp, 1 - positives - fp])


def bounds(name: str, samples: np.ndarray) -> np.ndarray:
    """The lower bound of each sample of counts; equal counts have equal bounds."""
    kinds, place = np.unique(samples, axis=0, return_inverse=True)
    return lower_bounds(anyloss.metric(name), kinds, ALPHA)[place.ravel()]


def bootstrap(name: str, samples: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The 5 % quantile of 500 resamples of each sample."""
    metric, found = anyloss.metric(name), []
    for row in samples:
        again = rng.multinomial(row.sum(), row / row.sum(), size=500)
        found.append(np.quantile(metric(*again.T.astype(float)), ALPHA))
    return np.array(found)


def coverage(quick: bool) -> None:
    """The tables of wrong bounds and of gaps, and one test over all cases."""
    rng, wrong, drawn, values = np.random.default_rng(0), 0, 0, list[float]()
    print("| metric | rows | positives | wrong | mean gap | bootstrap wrong | bootstrap gap |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in [*CLOSED, *OTHERS]:
        for rows in ROWS[:2] if quick else ROWS:
            for positives in POSITIVES:
                p = population(positives)
                samples = rng.multinomial(rows, p, size=draws(name, quick))
                true, found = float(anyloss.metric(name)(*p)), bounds(name, samples)
                some = samples[:200]
                other = bootstrap(name, some, rng)
                above, others = found > true + 1e-9, other > true + 1e-9
                wrong, drawn = wrong + above.sum(), drawn + len(found)
                values.append(_too_many(int(above.sum()), len(found)))
                gap = true - found.mean()
                print(
                    f"| {name} | {rows} | {100 * positives:g} % | {above.mean():.4f} | {gap:.4f} "
                    f"| {others.mean():.3f} | {true - other.mean():.4f} |",
                    flush=True,
                )
    print(f"\nAll cases: {wrong} of {drawn} bounds wrong ({wrong / drawn:.4f}; promise {ALPHA})")
    print(f"p-value of 'too many are wrong', all bounds: {_too_many(int(wrong), drawn):.3g}")
    print(f"of the worst case, times the cases: {min(1.0, min(values) * len(values)):.3g}")


def _too_many(wrong: int, drawn: int) -> float:
    """The p-value of "more bounds are wrong than promised"."""
    return float(binomtest(wrong, drawn, ALPHA, alternative="greater").pvalue)


def draws(name: str, quick: bool) -> int:
    if quick:
        return 200 if name in CLOSED else 20
    return 10_000 if name in CLOSED else 1000


def hoeffding_bentkus(name: str, counts: np.ndarray) -> float:
    """The largest of 400 values that Hoeffding and Bentkus reject, in order."""
    form = form_of(anyloss.metric(name), 1, (True, True, True, True))
    keep = np.array(form.b) > 0
    a, b, n = np.array(form.a)[keep], np.array(form.b)[keep], counts[keep]
    last, total = 0.0, n.sum()
    for value in np.linspace(0, 1, 401)[1:] if total else []:
        x = a - value * b
        low, width = x.min(), np.ptp(x)
        null, mean = -low / width, (x @ n / total - low) / width
        if mean <= null:
            break
        rest = (1 - mean) * np.log((1 - mean) / (1 - null)) if mean < 1 else 0.0
        hoeffding = np.exp(-total * (mean * np.log(mean / null) + rest))
        k = np.ceil(total * mean - 1e-9)
        if min(hoeffding, np.e * betainc(k, total - k + 1, null)) > ALPHA:
            break
        last = float(value)
    return last


def bets(quick: bool) -> None:
    """The mean gap of both tests of a ratio of sums."""
    rng = np.random.default_rng(1)
    print("| metric | rows | positives | betting | Hoeffding-Bentkus |")
    print("| --- | --- | --- | --- | --- |")
    every = []
    for name in BETS:
        for rows in ROWS[:2] if quick else ROWS:
            for positives in POSITIVES:
                p = population(positives)
                samples = rng.multinomial(rows, p, size=20 if quick else 100)
                true = float(anyloss.metric(name)(*p))
                ours = true - bounds(name, samples).mean()
                other = true - np.mean([hoeffding_bentkus(name, x) for x in samples])
                every.append((ours, other))
                print(f"| {name} | {rows} | {100 * positives:g} % | {ours:.4f} | {other:.4f} |")
    print("| mean | | | {:.4f} | {:.4f} |".format(*np.mean(every, axis=0)))


MAPIE = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value
found, grid = [], np.linspace(0.001, 0.999, 999)
for k, n in json.load(sys.stdin):
    if not n:
        found.append(0.0)
        continue
    p = compute_hoeffding_bentkus_p_value(np.array([1 - k / n]), n, 1 - grid, True).ravel()
    rejected = p <= 0.05
    found.append(float(grid[rejected].max()) if rejected.any() else 0.0)
print(json.dumps(found))
"""


def beside_mapie(python: Path, quick: bool) -> None:
    """The mean gap of recall and precision, beside the bound that MAPIE's p-values imply."""
    rng = np.random.default_rng(2)
    print("| metric | rows | positives | ours | MAPIE |")
    print("| --- | --- | --- | --- | --- |")
    for name, other in (("recall", 1), ("precision", 2)):
        for rows in ROWS[:2] if quick else ROWS:
            for positives in POSITIVES:
                p = population(positives)
                samples = rng.multinomial(rows, p, size=200)
                pairs = [(int(x[0]), int(x[0] + x[other])) for x in samples]
                run = subprocess.run(
                    [python, "-c", MAPIE], input=json.dumps(pairs), text=True, check=True,
                    capture_output=True,
                )  # fmt: skip
                true = float(anyloss.metric(name)(*p))
                ours = true - bounds(name, samples).mean()
                theirs = true - np.mean(json.loads(run.stdout))
                print(f"| {name} | {rows} | {100 * positives:g} % | {ours:.4f} | {theirs:.4f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="Fewer rows and samples.")
    parser.add_argument("--mapie", type=Path, help="The Python of an environment with MAPIE.")
    given = parser.parse_args()
    coverage(given.quick)
    bets(given.quick)
    if given.mapie:
        beside_mapie(given.mapie, given.quick)


if __name__ == "__main__":
    main()
