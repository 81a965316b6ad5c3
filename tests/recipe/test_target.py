"""Thresholds and offsets of a target that are averaged over resampled rows."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from anyloss.recipe.target import new_target


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 1))
    return z, (rng.random(n) < 1 / (1 + np.exp(2 - 2 * z[:, 0]))).astype(float)


def test_averaged_offsets_are_the_mean_of_the_best_thresholds_of_draws():
    """The same draws by repeating rows, with each threshold between two logits tried."""
    z, y = rows(80)
    order = np.lexsort((z[:, 0], y))
    z, y, rng, found = z[order], y[order], np.random.default_rng(0), []
    for _ in range(5):
        points = 80 * rng.random(rng.poisson(80))
        drawn = np.sort(points.astype(int))
        column, truth = z[drawn, 0], y[drawn]
        values = np.unique(column)
        cuts = np.append(values[:1] - 1, (values[1:] + values[:-1]) / 2)
        scores = [f1_score(truth, column > cut) for cut in cuts]
        found.append(scores)
        target = new_target(truth, "f1", "binary")
        at = target.offsets(column[:, None])[0]
        assert f1_score(truth, column > at) == pytest.approx(max(scores))
        found[-1] = at.item()
    averaged = new_target(y, "f1", "binary").averaged_offsets(z, resamples=5)
    assert averaged.item() == pytest.approx(np.mean(found), rel=1e-12)


@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
def test_averaged_offsets_do_not_depend_on_the_order_and_count_a_weight_of_two_twice(task):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(150, 1 if task == "binary" else 3))
    k = rng.integers(0, 3, 150)
    y = (k == 0).astype(float) if task == "binary" else np.eye(3)[k]
    z[np.arange(150), 0 if task == "binary" else k] += 1.0
    weight = rng.integers(0, 3, 150).astype(float)
    expected = new_target(y, "f1", task, weight=weight).averaged_offsets(z)
    order = rng.permutation(150)
    moved = new_target(y[order], "f1", task, weight=weight[order]).averaged_offsets(z[order])
    np.testing.assert_allclose(moved, expected)
    again = np.repeat(np.arange(150), weight.astype(int))
    repeated = new_target(y[again], "f1", task).averaged_offsets(z[again])
    np.testing.assert_allclose(repeated, expected)


def test_averaged_offsets_vary_less_than_the_best_ones():
    best, averaged = [], []
    for seed in range(30):
        z, y = rows(seed=seed)
        target = new_target(y, "f1", "binary")
        best.append(target.offsets(z)[0].item())
        averaged.append(target.averaged_offsets(z).item())
    assert np.std(averaged) < 0.85 * np.std(best)


def test_a_class_that_no_draw_has_gets_its_best_offset():
    z, y = np.arange(8.0)[:, None], np.zeros(8)
    target = new_target(y, "f1", "binary")
    assert target.averaged_offsets(z) == target.offsets(z)[0]
