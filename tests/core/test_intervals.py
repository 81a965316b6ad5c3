"""Interval and exact arithmetic on metrics, and proofs of directions: right for any formula."""

import random

import numpy as np
import pytest

import anyloss
from anyloss._core.forms import (
    SUPPORTS,
    cells_of,
    dependencies,
    fixed_quantities,
    is_of_shares,
    linear_fraction,
)
from anyloss._core.formula import Formula
from anyloss._core.intervals import evaluate, least_value, least_values
from anyloss._core.metric import evaluate as metric_value
from anyloss._core.monotone import trend

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


def test_searches_side_by_side_are_those_alone():
    rng = np.random.default_rng(3)
    boxes = np.sort(rng.uniform(0.02, 0.98, (12, 3, 2)), axis=2)
    for name in ("mcc", "kappa", "sqrt(tp*tn) / (tp + tn)"):
        metric = anyloss.metric(name)
        alone = np.array([least_value(metric, x) for x in boxes])
        np.testing.assert_allclose(least_values(metric, boxes), alone, atol=2e-5)
        for value in (-0.3, 0.1, 0.3):
            reached = least_values(metric, boxes, enough=value) >= value
            clear = abs(alone - value) > 2e-5
            np.testing.assert_array_equal(reached[clear], (alone >= value)[clear])


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


FREE = [None, None, None]
NAMED = ["mcc", "kappa", "p4", "gmean", "hmean", "balanced accuracy", "informedness", "markedness", "fm"]  # fmt: skip


def values(function, points):
    with np.errstate(all="ignore"):
        found = metric_value(function, *cells_of(*points), {})
    return np.broadcast_to(np.asarray(found, dtype=float), points.shape[1])


def inside(rng, fixed, number=400):
    """Points inside the cube, many of them near its faces."""
    found = rng.beta(0.5, 0.5, (3, number)).clip(1e-4, 1 - 1e-4)
    for k, value in enumerate(fixed):
        found[k] = found[k] if value is None else value
    return found


@pytest.mark.parametrize("name", NAMED)
def test_recall_and_specificity_raise_the_usual_metrics(name):
    metric = anyloss.metric(name)
    assert trend(metric, FREE)[0][:2] == (1, 1)
    assert trend(lambda **cells: -metric(**cells), FREE)[0][:2] == (-1, -1)


def check(function, fixed, rng):
    """Every direction and the floor against values at random points; the number of statements."""
    (found, floor), points = trend(function, fixed), inside(rng, fixed)
    base = values(function, points)
    margin = 1e-9 * (1 + abs(base))
    for axis, sign in enumerate(found):
        if fixed[axis] is None and sign:
            higher = points.copy()
            higher[axis] += (1 - higher[axis]) * rng.uniform(0, 1, points.shape[1])
            change = sign * (values(function, higher) - base)
            usable = np.isfinite(change)
            assert (change >= -margin)[usable].all(), (function, axis)
    assert (base >= floor - margin)[np.isfinite(base)].all(), function
    return sum(map(abs, found))


@pytest.mark.parametrize(
    "name", [*NAMED, "precision", "npv", "f1", "cost", "sqrt(tp*tn) / (tp + tn)"]
)
def test_directions_and_floors_agree_with_values_whichever_cells_are_possible(name):
    rng, metric = np.random.default_rng(0), anyloss.metric(name)
    for support in SUPPORTS:
        fixed = fixed_quantities(support)
        check(lambda **x: metric(**x), fixed, rng)
        check(lambda **x: -1 * metric(**x), fixed, rng)


def test_random_formulas():
    rng = np.random.default_rng(1)
    assert sum(check(formula, FREE, rng) for formula in formulas(150, seed=2)) > 50


def test_floors_of_the_usual_metrics():
    floors = {"mcc": -1, "kappa": -np.inf, "p4": 0, "gmean": 0, "balanced accuracy": 0, "fm": 0}
    for name, least in floors.items():  # the least kappa depends on the prevalence
        metric = anyloss.metric(name)
        assert trend(metric, FREE)[1] == least, name
        assert trend(lambda m=metric, **x: -m(**x), FREE)[1] == -1, name


def test_a_floor_is_a_limit_and_not_a_value_where_a_cell_does_not_occur():
    """Inside the cube the first is 0; without a tp it is 1, as 0/0 is 0. The others cancel."""
    assert trend(anyloss.metric("1 - tp / tp"), FREE)[1] == 0
    found, floor = trend(anyloss.metric("(1/tp**2 + tp/(tp + fn)) - 1/tp**2"), FREE)
    assert (found[0], floor) == (1, 0)
    assert trend(anyloss.metric("1/tp**2 - tn - 1/tp**2"), FREE)[1] == -1


def test_what_is_not_covered_is_left_unproved():
    for formula in ("sqrt(tp / (tp + fn)) + tn / (tn + fp)", "1 / (tp - fn)", "sqrt(tp - fn)"):
        assert trend(anyloss.metric(formula), FREE) == ((0, 0, 0), -np.inf), formula
    long = "(tp + fp)**8 / (tp + fn)**8 + tn**8 / (tn + fn)**8"
    assert trend(anyloss.metric(long), FREE) == ((0, 0, 0), -np.inf)
