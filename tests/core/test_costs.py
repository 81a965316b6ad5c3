"""Costs of single rows: against sums over the rows, and the definition of scikit-learn's weights."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from anyloss.costs import cost_summary, cost_weights, least_cost


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return p, (rng.random(n) < p).astype(int), 20 * rng.random(n), 5 * rng.random(n)


def test_the_summary_is_the_sum_over_the_rows():
    p, y, fn, fp = rows()
    decided = (p > 0.3).astype(int)
    total = sum(
        f if a and not d else g if d and not a else 0.0
        for a, d, f, g in zip(y, decided, fn, fp, strict=True)
    )
    found = cost_summary(y, decided, fn_cost=fn, fp_cost=fp)
    assert found.total == pytest.approx(total)
    assert found.per_1000 == pytest.approx(5 * total)
    constants = [cost_summary(y, np.full(200, k), fn_cost=fn, fp_cost=fp) for k in (0, 1)]
    assert found.constant == pytest.approx(min(x.total for x in constants))
    assert max(x.savings for x in constants) == pytest.approx(0)
    assert found.savings == pytest.approx(1 - total / found.constant)
    assert cost_summary(y, y, fn_cost=fn, fp_cost=fp).savings == 1


def test_the_interval_of_savings_is_that_of_resampled_rows():
    p, y, fn, fp = rows()
    decided, rng = (p > 0.3).astype(int), np.random.default_rng(1)
    drawn = []
    for _ in range(2000):
        at = rng.integers(0, 200, 200)
        drawn.append(cost_summary(y[at], decided[at], fn_cost=fn[at], fp_cost=fp[at]).savings)
    found = cost_summary(y, decided, fn_cost=fn, fp_cost=fp)
    assert found.interval[1] - found.interval[0] == pytest.approx(
        np.diff(np.quantile(drawn, [0.025, 0.975]))[0], rel=0.15
    )
    many = {"fn_cost": np.tile(fn, 8), "fp_cost": np.tile(fp, 8), "groups": np.tile(range(200), 8)}
    copied = cost_summary(np.tile(y, 8), np.tile(decided, 8), **many)
    assert copied.interval == pytest.approx(found.interval)
    assert np.isnan(cost_summary([0, 0], [1, 0], fn_cost=1, fp_cost=1).interval).all()


def test_no_other_decision_has_a_lower_expected_cost():
    p, _, fn, fp = rows()
    decided = least_cost(p, fn_cost=fn, fp_cost=fp)
    expected = np.where(decided, (1 - p) * fp, p * fn)
    assert expected == pytest.approx(np.minimum(p * fn, (1 - p) * fp))
    assert decided.tolist() == (p > fp / (fn + fp)).astype(int).tolist()


def test_a_threshold_per_row_costs_less_than_one_for_all():
    p, y, fn, fp = rows(20_000)
    own = cost_summary(y, least_cost(p, fn_cost=fn, fp_cost=fp), fn_cost=fn, fp_cost=fp)
    shared = max(
        cost_summary(y, (p > t).astype(int), fn_cost=fn, fp_cost=fp).savings
        for t in np.linspace(0, 1, 101)
    )
    assert own.savings > shared + 0.02


def test_the_accuracy_of_weighted_rows_is_the_cost_that_is_saved():
    p, y, fn, fp = rows()
    decided = (p > 0.4).astype(int)
    weight = cost_weights(y, fn_cost=fn, fp_cost=fp)
    assert weight.mean() == pytest.approx(1)
    possible = np.where(y == 1, fn, fp).sum()
    total = cost_summary(y, decided, fn_cost=fn, fp_cost=fp).total
    assert accuracy_score(y, decided, sample_weight=weight) == pytest.approx(1 - total / possible)


def test_what_is_refused():
    for costs in (-1, np.nan, np.inf, [1.0], [[1.0, 2.0]]):
        with pytest.raises(ValueError, match="fn_cost must be a number of at least 0, or one for"):
            cost_weights([0, 1], fn_cost=costs, fp_cost=1)
    with pytest.raises(ValueError, match="must be one 0 or 1 for each row"):
        cost_weights([0, 2], fn_cost=1, fp_cost=1)
    with pytest.raises(ValueError, match="must cost more than 0"):
        cost_weights([0, 1], fn_cost=0, fp_cost=0)
    with pytest.raises(ValueError, match="one number from 0 to 1"):
        least_cost([0.5, 1.5], fn_cost=1, fp_cost=1)
    with pytest.raises(
        ValueError, match="as many decisions as labels, and at least one; got 1 and 2"
    ):
        cost_summary([0, 1], [1], fn_cost=1, fp_cost=1)
    assert np.isnan(cost_summary([0, 1], [0, 1], fn_cost=0, fp_cost=1).savings)


def test_wrong_values_are_named():
    with pytest.raises(ValueError, match="from 0 to 1 for each row; got 1.4"):
        least_cost([0.2, 1.4], fn_cost=3, fp_cost=1)
    with pytest.raises(ValueError, match="from 0 to 1 for each row; got nan"):
        least_cost([0.2, np.nan], fn_cost=3, fp_cost=1)
    with pytest.raises(ValueError, match=r"one 0 or 1 for each row; got \['a', 'b'\]"):
        cost_summary(["a", "b"], [0, 1], fn_cost=3, fp_cost=1)
