"""Intervals and folds where rows are not independent, or one set of test rows cannot be drawn."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import matthews_corrcoef

from anyloss.tabular import fit_table
from anyloss.tabular.intervals import difference_interval, score_interval
from anyloss.tabular.scoring import scoring_of
from anyloss.tabular.splitting import plan_splits, row_keys

MCC = scoring_of("mcc", "binary", 1)


def test_the_interval_of_groups_is_that_of_resampled_groups():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), rng.integers(1, 20, 30))
    y = (rng.random(30) < 0.5)[groups].astype(float)
    decided = np.where(rng.random(len(y)) < 0.7, y, 1 - y)
    rows = [np.flatnonzero(groups == k) for k in range(30)]
    draws = []
    for _ in range(2000):
        at = np.concatenate([rows[k] for k in rng.integers(0, 30, 30)])
        draws.append(matthews_corrcoef(y[at], decided[at]))
    expected = np.quantile(draws, [0.025, 0.975])
    assert score_interval(y, decided, MCC, groups=groups) == pytest.approx(expected, abs=0.03)
    single = score_interval(y, decided, MCC, groups=np.arange(len(y)))
    assert single == pytest.approx(score_interval(y, decided, MCC), abs=0.02)


def test_random_decisions_in_several_copies_keep_their_groups():
    rng = np.random.default_rng(0)
    y, groups = np.repeat([0.0, 1.0] * 20, 5), np.repeat(np.arange(40), 5)
    ours, theirs = np.tile(y, 3), (rng.random(600) < 0.5).astype(float)
    low, high = difference_interval(np.tile(y, 3), ours, theirs, MCC, 0, 3, np.tile(groups, 3))
    assert 0.7 < low < high < 1.3


def test_labels_that_are_random_by_group_are_not_recommended():
    """Of 12 tables of noise, about one interval in twenty may exclude 0."""
    excluded = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        group = np.repeat(np.arange(40), 10)
        frame = pd.DataFrame(rng.normal(size=(40, 4))[group] + 0.01 * rng.normal(size=(400, 4)))
        frame = frame.add_prefix("x").assign(g=group, y=rng.permutation([0, 1] * 20)[group])
        found = fit_table(frame, "y", "mcc", model="linear", group="g", seed=seed, folds=0)
        excluded += not found.interval[0] <= 0 <= found.interval[1]
    assert excluded <= 3


def test_folds_serve_where_one_set_of_test_rows_cannot_be_drawn():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=400)})
    years, every = np.repeat([2020.0, 2021.0, 2022.0, 2023.0], 100), np.ones(400, dtype=bool)
    y = (rng.random(400) < 0.4).astype(float)
    plan = plan_splits(row_keys(frame), y, every, 0.2, None, 0, "binary", None, years)
    assert plan.crossed
    assert len(plan.splits) == 3
    plan = plan_splits(row_keys(frame), y, every, 0.99, 5, 0, "binary", None, None)
    assert len(plan.splits) == 5
    with pytest.raises(ValueError, match="test_share 0.99 leaves too few training rows"):
        plan_splits(row_keys(frame), y, every, 0.99, 0, 0, "binary", None, None)
    plan = plan_splits(row_keys(frame), y, every, 0.3, 5, 0, "binary", None, years)
    assert "5 folds were wanted" in plan.words
