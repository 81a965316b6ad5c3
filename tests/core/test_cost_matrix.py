"""Matrices of costs as a metric."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

import anyloss
from anyloss.recipe.folder import metric_from_json, metric_to_json
from anyloss.steps import Uniform

THREE = [[0, 1, 4], [1, 0, 1], [10, 1, 0]]


def test_two_classes_are_the_metric_cost():
    """Only differences to the diagonal count: costs of -1 and 2 for correct decisions are moved."""
    metric = anyloss.cost_matrix([[-1, 0], [7, 2]])
    assert metric == anyloss.cost_matrix([[0, 1], [5, 0]])
    cost = anyloss.metric("cost", fn_cost=5, fp_cost=1)
    assert metric == replace(cost, second_is_positive=True)  # whichever class is rarer
    assert metric(tp=6, fn=2, fp=4, tn=88) == 1 - (5 * 2 + 4) / (5 * 8 + 92)


def test_the_score_of_three_classes_against_scikit_learns_confusion_matrix():
    rng = np.random.default_rng(0)
    y, p, w = rng.integers(0, 3, 50), rng.dirichlet(np.ones(3), 50), rng.random(50)
    costs = np.array(THREE)
    matrix = confusion_matrix(y, p.argmax(axis=1), sample_weight=w)
    expected = 1 - (matrix * costs).sum() / (matrix.sum(axis=1) @ costs.max(axis=1))
    metric = anyloss.cost_matrix(THREE)
    assert anyloss.score(y, p, metric, weight=w) == pytest.approx(expected, abs=1e-12)
    moved = anyloss.cost_matrix(costs + np.array([[3], [-2], [5]]))  # of a whole row
    assert anyloss.score(y, p, moved, weight=w) == pytest.approx(expected, abs=1e-12)
    soft = 1 - (p * costs[y]).sum() / costs.max(axis=1)[y].sum()
    assert anyloss.score(y, p, metric, Uniform()) == pytest.approx(soft, abs=1e-12)
    assert anyloss.score(y, np.eye(3)[y], metric) == 1
    assert anyloss.score(y, np.eye(3)[costs.argmax(axis=1)[y]], metric) == 0


@pytest.mark.parametrize(
    "costs",
    [[[0, 1]], [0, 1], [[0]], [[0, np.nan], [1, 0]], [["a", "b"], ["c", "d"]], [[[0]]]],
)
def test_what_is_not_a_matrix_of_costs(costs):
    with pytest.raises(ValueError, match="square matrix of finite numbers"):
        anyloss.cost_matrix(costs)


@pytest.mark.parametrize("costs", [[[1, 0], [0, 1]], [[0, 0], [0, 0]], [[2, 2], [3, 3]]])
def test_an_error_costs_more_than_a_correct_decision(costs):
    with pytest.raises(ValueError, match="at least as much as the correct decision"):
        anyloss.cost_matrix(costs)


def test_where_it_cannot_be_used():
    torch = pytest.importorskip("torch")
    from anyloss.torch import AnyLoss

    metric = anyloss.cost_matrix(THREE)
    with pytest.raises(ValueError, match="cost matrix of 3 classes needs the counts of every"):
        AnyLoss(metric)
    two = AnyLoss(anyloss.cost_matrix([[0, 1], [5, 0]]))
    z, y = torch.tensor([0.0, 0.0]), torch.tensor([0.0, 1.0])
    assert two(z, y).item() == pytest.approx(0.5)  # half of each error: (5 + 1) / 2 of 6
    with pytest.raises(ValueError, match="for anyloss.score and"):
        anyloss.gradient([0, 1, 2], np.eye(3), metric)
    with pytest.raises(ValueError, match="needs class indices, scores of 3 columns"):
        anyloss.score([0, 1], [0.2, 0.8], metric)
    with pytest.raises(ValueError, match="got a multiclass task of 4 columns"):
        anyloss.score([0, 1, 2, 3], np.eye(4), metric)
    with pytest.raises(ValueError, match="average='macro'"):
        anyloss.score([0, 1, 2], np.eye(3), metric, average="macro")
    with pytest.raises(ValueError, match="top_k=2"):
        anyloss.score([0, 1, 2], np.eye(3), metric, top_k=2)


def test_it_is_saved_as_json():
    for costs in (THREE, [[0, 1], [5, 0]]):
        metric = anyloss.cost_matrix(costs)
        assert metric_from_json(metric_to_json(metric)) == metric
    assert repr(anyloss.cost_matrix(THREE)) == "cost_matrix([[0, 1, 4], [1, 0, 1], [10, 1, 0]])"
    assert hash(metric) == hash(anyloss.cost_matrix(costs))
