"""Matrices of costs as a metric."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix

import anyloss
from anyloss.recipe.folder import metric_from_json, metric_to_json
from anyloss.steps import Amplified, Uniform

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
    [
        [[0, 1]],
        [0, 1],
        [[0]],
        [[0, np.nan], [1, 0]],
        [["a", "b"], ["c", "d"]],
        [[[0]]],
        [[0, 1], [1]],
    ],
)
def test_what_is_not_a_matrix_of_costs(costs):
    with pytest.raises(ValueError, match="square matrix of finite numbers"):
        anyloss.cost_matrix(costs)


@pytest.mark.parametrize("costs", [[[1, 0], [0, 1]], [[0, 0], [0, 0]], [[2, 2], [3, 3]]])
def test_an_error_costs_more_than_a_correct_decision(costs):
    with pytest.raises(ValueError, match="at least as much as the correct decision"):
        anyloss.cost_matrix(costs)


def rows(n=50, seed=1):
    """Labels, logits and weights; of the third class there are few."""
    rng = np.random.default_rng(seed)
    return rng.choice(3, n, p=[0.5, 0.4, 0.1]), 2 * rng.normal(size=(n, 3)), rng.random(n)


def expected_gradient(y, z, w, costs=THREE):
    """The loss by its definition, linear in the probabilities, and its gradient by the logits."""
    p, cost = softmax(z, axis=1), w[:, None] * np.array(costs, dtype=float)[y]
    most = (w * np.max(costs, axis=1)[y]).sum()
    return (cost * p).sum() / most, p * (cost - (cost * p).sum(axis=1, keepdims=True)) / most


def test_the_gradient_is_that_of_the_definition_and_of_finite_differences():
    (y, z, w), metric = rows(), anyloss.cost_matrix(THREE)
    loss, gradient = expected_gradient(y, z, w)
    score, found = anyloss.gradient(y, z, metric, Uniform(), from_logits=True, weight=w)
    assert score == pytest.approx(1 - loss, abs=1e-14)
    np.testing.assert_allclose(found, -gradient, rtol=0, atol=1e-15)
    p = softmax(z, axis=1)  # by the decisions it is `-w C / most`
    _, found = anyloss.gradient(y, p, metric, Uniform(), weight=w)
    most = (w * np.max(THREE, axis=1)[y]).sum()
    np.testing.assert_allclose(found, -w[:, None] * np.array(THREE)[y] / most, rtol=0, atol=1e-15)
    for step in (Uniform(), Amplified(10.0)):
        _, found = anyloss.gradient(y, z, metric, step, from_logits=True, weight=w)
        for place in ((0, 0), (7, 2), (21, 1)):
            moved = [z.copy(), z.copy()]
            moved[0][place] += 1e-5
            moved[1][place] -= 1e-5
            up, down = (
                anyloss.score(y, x, metric, step, from_logits=True, weight=w) for x in moved
            )
            assert found[place] == pytest.approx((up - down) / 2e-5, abs=1e-9)


@pytest.mark.parametrize("closed_form", [True, False])
def test_the_loss_of_pytorch_with_cross_entropy(closed_form, monkeypatch):
    torch = pytest.importorskip("torch")
    from anyloss.torch import AnyLoss, ScoreMeter
    from anyloss.torch.batch import Batch

    if not closed_form:
        monkeypatch.setattr(Batch, "has_closed_form", lambda batch, step: False)
    y, z, w = map(torch.tensor, rows())
    loss = AnyLoss(anyloss.cost_matrix(THREE), step=Uniform(), cross_entropy=0.3)
    logits = z.clone().requires_grad_()
    value = loss(logits, y, w)
    value.backward()
    cost, gradient = expected_gradient(y.numpy(), z.numpy(), w.numpy())
    entropy = torch.nn.functional.cross_entropy(z, y, reduction="none") @ w / w.sum()
    assert value.item() == pytest.approx(cost + 0.3 * entropy.item(), abs=1e-14)
    of_entropy = (w[:, None] * (z.softmax(1) - torch.eye(3)[y]) / w.sum()).numpy()
    np.testing.assert_allclose(logits.grad, gradient + 0.3 * of_entropy, rtol=0, atol=1e-15)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # the costs are not rounded
        assert loss(z, y, w).item() == pytest.approx(value.item(), abs=1e-14)
    matrix = confusion_matrix(y, z.argmax(1), sample_weight=w)
    hard = 1 - (matrix * THREE).sum() / (matrix.sum(axis=1) @ np.max(THREE, axis=1))
    assert loss.score(z.float(), y, w).item() == pytest.approx(hard, abs=1e-7)  # weights as given
    meter = ScoreMeter(anyloss.cost_matrix(THREE))
    for part in (slice(0, 20), slice(20, 50)):
        meter.update(z[part], y[part], w[part])
    assert meter.compute().item() == pytest.approx(hard, abs=1e-14)


def test_parts_of_a_batch_exchange_costs_and_the_largest_costs():
    """Micro-batches of other classes: the largest possible cost is that of the whole batch."""
    torch = pytest.importorskip("torch")
    from anyloss.torch import AnyLoss, accumulate

    y, z, w = map(torch.tensor, rows())
    order = y.argsort()
    y, z, w = y[order], z[order], w[order]
    cost, gradient = expected_gradient(y.numpy(), z.numpy(), w.numpy())
    scores, found = torch.nn.Identity(), []
    loss = AnyLoss(anyloss.cost_matrix(THREE), step=Uniform())
    parts = [
        (z[rows].clone().requires_grad_(), y[rows], w[rows]) for rows in torch.arange(50).split(18)
    ]
    assert accumulate(loss, scores, parts).item() == pytest.approx(cost, abs=1e-14)
    np.testing.assert_allclose(torch.cat([x.grad for x, _, _ in parts]), gradient, atol=1e-15)
    memory = AnyLoss(anyloss.cost_matrix(THREE), step=Uniform(), memory=0.5)
    for x, label, weight in parts:
        found = memory(x, label, weight).item()
    kept = torch.cat(
        [torch.full((len(x),), 0.5**k) for k, (x, _, _) in zip((2, 1, 0), parts, strict=True)]
    )
    assert found == pytest.approx(
        expected_gradient(y.numpy(), z.numpy(), (w * kept).numpy())[0], abs=1e-14
    )


def test_the_unit_of_the_costs_does_not_matter():
    (y, z, _), large = rows(), 1e6 * np.array(THREE)
    metric, other = anyloss.cost_matrix(THREE), anyloss.cost_matrix(large)
    for each in (Uniform(), Amplified(73.0)):
        one, two = (anyloss.gradient(y, z, x, each, from_logits=True) for x in (metric, other))
        assert one[0] == pytest.approx(two[0], abs=1e-14)
        np.testing.assert_allclose(one[1], two[1], rtol=0, atol=1e-15)


def test_classifiers_of_three_classes_save_costs():
    """Costs of 10 for one error: the metric's own models pay less than those of the arg-max."""
    lightgbm = pytest.importorskip("lightgbm")
    from anyloss.boosting import LGBMAnyLossClassifier, objective
    from anyloss.sklearn import AnyLossClassifier

    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    y = np.digitize(X[:, 0] + rng.normal(size=900), [-0.5, 1.0])
    metric, train, test = anyloss.cost_matrix(THREE), slice(0, 450), slice(450, 900)

    def paid(decided):
        return (confusion_matrix(y[test], decided) * THREE).sum()

    plain = LogisticRegression().fit(X[train], y[train])
    for model in (
        AnyLossClassifier(metric),
        AnyLossClassifier(metric, hidden_layer_sizes=(4,)),
        LGBMAnyLossClassifier(metric, n_estimators=20),
    ):
        model.fit(X[train], y[train])
        assert paid(model.predict(X[test])) < 0.9 * paid(plain.predict(X[test]))
        most = np.bincount(y[test]) @ np.max(THREE, axis=1)
        share = 1 - paid(model.predict(X[test])) / most
        assert model.score(X[test], y[test]) == pytest.approx(share, abs=1e-12)
    data = lightgbm.Dataset(X[train], y[train])
    settings = {"objective": objective(metric), "num_class": 3, "verbose": -1}
    booster = lightgbm.train(settings, data, 30)
    assert paid(booster.predict(X[test]).argmax(axis=1)) < 0.9 * paid(plain.predict(X[test]))


def test_the_objective_of_boosting_has_the_exact_gradient():
    pytest.importorskip("lightgbm")
    from anyloss.boosting import objective

    y, z, w = rows()
    _, gradient = expected_gradient(y, z, w)
    found, curvature = objective(anyloss.cost_matrix(THREE))(y, z, w)
    np.testing.assert_allclose(found, w.sum() * gradient, rtol=0, atol=1e-14)  # of n (1 - score)
    assert curvature.min() > 0


def test_where_it_cannot_be_used():
    torch = pytest.importorskip("torch")
    from anyloss.torch import AnyLoss

    metric = anyloss.cost_matrix(THREE)
    two = AnyLoss(anyloss.cost_matrix([[0, 1], [5, 0]]))
    z, y = torch.tensor([0.0, 0.0]), torch.tensor([0.0, 1.0])
    assert two(z, y).item() == pytest.approx(0.5)  # half of each error: (5 + 1) / 2 of 6
    for option in (
        {"per_sample": True}, {"squared": True}, {"soft_labels": True}, {"average": "macro"},
        {"average": None}, {"class_weights": [1, 1, 2]}, {"activation": "sigmoid"},
        {"classes": [0, 1]}, {"top_k": 2},
    ):  # fmt: skip
        (name,) = option
        with pytest.raises(ValueError, match=f"over all samples and classes.*got {name}="):
            AnyLoss(metric, **option)
        if name != "top_k":
            with pytest.raises(ValueError, match=f"over all samples and classes.*got {name}="):
                anyloss.gradient([0, 1, 2], np.eye(3), metric, from_logits=True, **option)
    with pytest.raises(ValueError, match=r"the counts of a cost matrix are costs; got smooth=1.0"):
        AnyLoss(metric, smooth=1.0)
    with pytest.raises(ValueError, match=r"the counts of a cost matrix are costs; got smooth=1.0"):
        anyloss.gradient([0, 1, 2], np.eye(3), metric, smooth=1.0)
    with pytest.raises(ValueError, match="a function of every true and predicted class"):
        metric(tp=1.0, fn=1.0, fp=1.0, tn=1.0)
    with pytest.raises(ValueError, match="got a multilabel task of 3 columns"):
        AnyLoss(metric)(torch.zeros(2, 3), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="needs class indices, scores of 3 columns"):
        anyloss.score([0, 1], [0.2, 0.8], metric)
    with pytest.raises(ValueError, match="got a multiclass task of 4 columns"):
        anyloss.score([0, 1, 2, 3], np.eye(4), metric)
    with pytest.raises(ValueError, match="top_k=2"):
        anyloss.score([0, 1, 2], np.eye(3), metric, top_k=2)


def test_it_is_saved_as_json():
    for costs in (THREE, [[0, 1], [5, 0]]):
        metric = anyloss.cost_matrix(costs)
        assert metric_from_json(metric_to_json(metric)) == metric
    assert repr(anyloss.cost_matrix(THREE)) == "cost_matrix([[0, 1, 4], [1, 0, 1], [10, 1, 0]])"
    assert hash(metric) == hash(anyloss.cost_matrix(costs))
