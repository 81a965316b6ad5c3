"""Interval and exact arithmetic on metrics: sound for any formula."""

import random

import numpy as np
import pytest

import anyloss
from anyloss._core.forms import cells_of, dependencies, is_of_shares, linear_fraction
from anyloss._core.formula import Formula
from anyloss._core.intervals import evaluate, least_value
from anyloss._core.metric import evaluate as metric_value

FULL = (True, True, True, True)


def expression(rng, depth):
    """A random formula."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(["tp", "fn", "fp", "tn", "tp + fn", "tp + fp", "0.5", "2"])
    one, two = expression(rng, depth - 1), expression(rng, depth - 1)
    kind = rng.choice("++--**//sp")
    if kind == "s":
        return f"sqrt({one})"
    if kind == "p":
        return f"({one})**{rng.choice(['2', '3', '-1', '1.5', '-0.5'])}"
    return f"({one}) {kind} ({two})"


def formulas(number, seed=0):
    rng, found = random.Random(seed), []
    while len(found) < number:
        text = expression(rng, 3)
        try:
            found.append(Formula(text))
        except ValueError:  # no count in it, or a division by zero
            continue
    return found


def box(rng):
    found = np.sort(rng.choice([0.0, 0.1, 0.35, 0.5, 0.8, 1.0], (3, 2)), axis=1)
    return np.sort(found + rng.uniform(-0.02, 0.02, (3, 2)), axis=1).clip(0, 1)


def test_an_interval_contains_the_values_of_its_box():
    rng = np.random.default_rng(0)
    for formula in formulas(400):
        sides = box(rng)
        points = rng.uniform(sides[:, 0], sides[:, 1], (200, 3)).T
        points[:, :8] = [[side[k >> j & 1] for k in range(8)] for j, side in enumerate(sides)]
        with np.errstate(all="ignore"):
            values = np.broadcast_to(metric_value(formula, *cells_of(*points), {}), 200)
        values = values[np.isfinite(values)]
        low, high = (float(x[0]) for x in evaluate(formula, sides[None]).value)
        margin = 1e-9 * (1 + abs(values))
        assert (values >= low - margin).all(), formula
        assert (values <= high + margin).all(), formula


def test_the_least_value_is_never_above_a_value_of_the_box():
    rng = np.random.default_rng(1)
    for formula in formulas(60, seed=1):
        sides = np.sort(rng.uniform(0.05, 0.95, (3, 2)), axis=1)
        points = rng.uniform(sides[:, 0], sides[:, 1], (500, 3)).T
        with np.errstate(all="ignore"):
            values = np.broadcast_to(metric_value(formula, *cells_of(*points), {}), 500)
        least = values[np.isfinite(values)].min(initial=np.inf)
        assert least_value(formula, sides) <= least + 1e-9 * (1 + abs(least)), formula


@pytest.mark.parametrize(
    "name", ["f1", "cost(fn_cost=3)", "accuracy", "npv", "tversky(alpha=0.3, beta=0.7)"]
)
def test_the_coefficients_of_a_ratio_give_the_metric(name):
    a, b = linear_fraction(anyloss.metric(name), FULL)
    for cells in np.random.default_rng(0).integers(1, 50, (20, 4)):
        ratio = float(sum(map(np.multiply, a, cells)) / sum(map(np.multiply, b, cells)))
        assert ratio == pytest.approx(anyloss.metric(name)(*cells))


def test_what_is_no_ratio_of_sums_is_not_taken_for_one():
    for name in (
        "mcc",
        "gmean",
        "balanced accuracy",
        "kappa",
        "p4",
        "markedness",
        "tp*tp / (tp*tp + fn*fn)",
    ):
        assert linear_fraction(anyloss.metric(name), FULL) is None, name
    assert dependencies(anyloss.metric("mcc"), FULL) == [True, True, True]
    assert dependencies(anyloss.metric("informedness"), FULL) == [True, True, False]
    assert dependencies(anyloss.metric("sqrt(tn / (tn + fp))"), FULL) == [False, True, False]
    assert not is_of_shares(anyloss.metric("(tp + 1) / (tp + fn + 1)"))
    assert is_of_shares(anyloss.metric("fm"))
