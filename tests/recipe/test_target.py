"""Thresholds and offsets of a target that are averaged over resampled rows."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from anyloss.decisions.search import best_decision
from anyloss.recipe.target import Resampled, new_target


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


def test_offsets_are_moved_towards_those_trained_by_how_much_the_resamples_vary():
    """By hand: the variance of the offsets around those trained is what the resamples leave."""
    draws = np.array([[1.0, 3.0, np.nan], [2.0, 9.0, np.nan], [3.0, 6.0, 4.0]])
    trained = np.array([0.0, 1.0, 7.0])
    found = Resampled(np.array([2.5, 5.0, 4.0]), draws, relative=False)
    np.testing.assert_allclose(found.mean, [2.0, 6.0, 4.0])
    spread = np.mean([2.0**2 - 1.0, 5.0**2 - 9.0])  # the third class has one resample only
    expected = [2 * spread / (spread + 1), 1 + 5 * spread / (spread + 9), 7.0]
    np.testing.assert_allclose(found.towards(trained), expected)
    np.testing.assert_allclose(found.towards(np.array([1.5, 5.0, 4.0])), [1.5, 5.0, 4.0])
    assert [each[0] for each in found.rules(trained)] == [expected[0], 2.0, 2.5]
    single = Resampled(np.array([2.5]), draws[:1, :1], relative=False)
    assert single.towards(trained[:1]) == single.mean  # one resample shows no variance


def test_only_differences_of_the_offsets_of_classes_count():
    rng = np.random.default_rng(0)
    draws, best = rng.normal(size=(15, 4)), rng.normal(size=4)
    trained = rng.normal(size=4) + 2
    one = Resampled(best, draws, relative=True).towards(trained)
    moves = rng.normal(size=(15, 1))
    other = Resampled(best, draws + moves, relative=True).towards(trained + 5)
    np.testing.assert_allclose(one - one[0], other - other[0])


def test_with_many_rows_the_resamples_decide():
    for n, least, most in ((100, 0.0, 0.9), (20_000, 0.98, 1.0)):
        z, y = rows(n)
        found = new_target(y, "f1", "binary").resampled_offsets(z)
        trained = found.mean - 1.0
        assert least <= (found.towards(trained) - trained).item() <= most


def test_a_label_that_no_row_has_gets_the_offset_it_was_trained_at():
    z, y = np.random.default_rng(0).normal(size=(100, 2)), np.zeros((100, 2))
    y[:, 0] = z[:, 0] > 0.5
    found = new_target(y, "f1", "multilabel").resampled_offsets(z)
    assert found.towards(np.array([0.0, 0.25]))[1] == 0.25


def test_offsets_of_labels_are_those_of_the_shrunk_decision_rule():
    """Of the meta-estimator, whose rule is between a label's own threshold and a shared one."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 3))
    y = (z + 0.5 * rng.normal(size=z.shape) > [0.0, 1.0, 9.0]).astype(float)
    target = new_target(y, "f1", "multilabel")
    rule = {
        sharing: best_decision(
            y, z, target.metric, target.layout, weight=np.ones(200), sharing=sharing,
            probabilities=False,
        ).decision.thresholds
        for sharing in ("per_label", "shared", "shrunk")
    }  # fmt: skip
    share = y.sum(0) / (y.sum(0) + 10)  # ten positives weigh as much as the shared threshold
    expected = share * rule["per_label"] + (1 - share) * rule["shared"]
    found = target.steady_offsets(z)
    np.testing.assert_allclose(found, expected)
    assert found[2] == rule["shared"][2]  # no row has this label
    np.testing.assert_array_equal(target.refined_offsets(z, np.ones(3)), [found])


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_other_offsets_are_those_of_resamples(task):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 1 if task == "binary" else 3))
    y = np.eye(3)[z.argmax(1)] if task == "multiclass" else (z > 0.5).astype(float)
    target, trained = new_target(y, "f1", task), np.zeros(z.shape[1])
    found = target.resampled_offsets(z)
    np.testing.assert_array_equal(target.steady_offsets(z), found.mean)
    np.testing.assert_array_equal(target.refined_offsets(z, trained), found.rules(trained))
