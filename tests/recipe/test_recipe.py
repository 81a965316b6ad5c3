"""The recipe in NumPy: every part against an outside reference."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    log_loss,
    matthews_corrcoef,
    recall_score,
)
from sklearn.utils.class_weight import compute_sample_weight

import anyloss
from anyloss.recipe import fit, numpy_models
from anyloss.recipe.folds import inner_folds, thinned
from anyloss.recipe.networks import backward, forward, new_layers
from anyloss.recipe.target import (
    cross_entropy,
    new_target,
    probabilities,
    soft_metric,
)
from anyloss.steps import Uniform

TASKS = ("binary", "multilabel", "multiclass")


def labels(task, n, rng):
    if task == "multiclass":
        return np.eye(3)[rng.integers(0, 3, n)]
    return (rng.random((n, 1 if task == "binary" else 3)) < 0.4).astype(float)


def derivative_of(function, x, k, h=1e-6):
    up, down = x.copy(), x.copy()
    up.flat[k] += h
    down.flat[k] -= h
    return (function(up) - function(down)) / (2 * h)


@pytest.mark.parametrize("hidden", [(), (4,), (5, 3)])
def test_backward_is_the_derivative_of_forward(hidden):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(7, 3))
    layers = [x + rng.normal(size=x.shape) for x in new_layers([3, *hidden, 2], 4, rng)]
    weight = rng.normal(size=(4, 7, 2))
    values = forward(layers, X)
    assert values[-1].shape == (4, 7, 2)
    found = backward(layers, X, values, weight)
    for k, layer in enumerate(layers):

        def total(changed, k=k):
            return (forward([*layers[:k], changed, *layers[k + 1 :]], X)[-1] * weight).sum()

        numeric = [derivative_of(total, layer, j) for j in range(layer.size)]
        np.testing.assert_allclose(found[k].ravel(), numeric, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("task", TASKS)
def test_gradients_by_finite_differences(task):
    rng = np.random.default_rng(1)
    y = labels(task, 9, rng)
    target = new_target(y, "f1", task, weight=rng.random(9) + 0.5)
    z = rng.normal(size=(2, *y.shape))
    weight = target.weight * (rng.random((2, 9)) < 0.8)
    soft = soft_metric(target, weight)
    scores, grad = soft(z)
    if task != "multiclass":
        for k in range(2):  # the core's soft score under the step that is p itself
            one, column = (y[:, 0], z[k, :, 0]) if task == "binary" else (y, z[k])
            expected, slope = anyloss.gradient(
                one, column, "f1", Uniform(), weight=weight[k], from_logits=True
            )
            assert scores[k] == pytest.approx(expected, abs=1e-12)
            np.testing.assert_allclose(grad[k].ravel(), slope.ravel(), atol=1e-12)
    numeric = [derivative_of(lambda x: soft(x)[0].sum(), z, k) for k in range(z.size)]
    np.testing.assert_allclose(grad.ravel(), numeric, rtol=1e-6, atol=1e-9)
    numeric = [
        derivative_of(lambda x: cross_entropy(x, y, task).sum(), z, k) for k in range(z.size)
    ]
    np.testing.assert_allclose((probabilities(z, task) - y).ravel(), numeric, atol=1e-8)


def test_cross_entropy_is_scikit_learns():
    rng = np.random.default_rng(2)
    y, z = labels("multiclass", 20, rng), rng.normal(size=(20, 3))
    expected = log_loss(y.argmax(1), probabilities(z, "multiclass"))
    assert cross_entropy(z, y, "multiclass").mean() == pytest.approx(expected)


def test_folds_are_stratified_and_keep_twins_together():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(50, 2)), 2, axis=0)
    y = np.repeat((np.arange(50) % 5 == 0).astype(float), 2)[:, None]
    held = inner_folds(X, y, "binary", 5, 2, rng)
    assert held.shape == (10, 100)
    np.testing.assert_array_equal(held.sum(axis=0), 2)  # each row once a repeat
    np.testing.assert_array_equal(held[:, ::2], held[:, 1::2])
    np.testing.assert_array_equal(held @ y[:, 0], 4)  # four of twenty positives each
    alone = inner_folds(X, (np.arange(100) == 7).astype(float)[:, None], "binary", 5, 1, rng)
    assert not alone[:, 7].any()


@pytest.mark.parametrize("classes", [2, 3])
def test_the_linear_start_is_logistic_regression(classes):
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    y = y if classes == 3 else (y == 1).astype(int)
    target = np.eye(3)[y] if classes == 3 else y[:, None]
    task = "multiclass" if classes == 3 else "binary"
    started = numpy_models.start(X, target, task=task, C=0.5, repeats=1)
    for k, held in enumerate(started.held):
        model = LogisticRegression(C=0.5, tol=1e-10, max_iter=5000).fit(X[~held], y[~held])
        ours = probabilities(forward(started.layers, X)[-1][k], task)
        np.testing.assert_allclose(
            ours if classes == 3 else ours[:, 0],
            model.predict_proba(X) if classes == 3 else model.predict_proba(X)[:, 1],
            atol=5e-4,
        )


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_a_network_starts_with_classes_halfway_to_balance(task):
    X, y = load_iris(return_X_y=True)
    X, y = X[:120] - X.mean(0), y[:120]  # 50, 50 and 20
    target = np.eye(3)[y] if task == "multiclass" else (y == 2).astype(float)[:, None]
    lift = compute_sample_weight("balanced", y if task == "multiclass" else y == 2) ** 0.5
    started = numpy_models.start(X, target, task=task, hidden=(4,), repeats=1)
    plain = numpy_models.Started(
        new_layers([4, 4, target.shape[1]], 5, after_folds(X, target, task)), X, target,
        lift / lift.mean(), task, started.held,
    )  # fmt: skip
    for a, b in zip(started.layers, numpy_models.train_cross_entropy(plain)[0], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    np.testing.assert_array_equal(started.weight, 1.0)


def after_folds(X, y, task):
    """The random numbers as `start` has them when it makes its first layers."""
    rng = np.random.default_rng(0)
    inner_folds(X, y, task, 5, 1, rng)
    return rng


@pytest.mark.parametrize("hidden", [(), (6,)])
def test_several_classes_and_labels(hidden):
    X, y = load_digits(return_X_y=True)
    X, y = X[:600] / 16, y[:600]
    found = fit(X, np.eye(10)[y], "f1", task="multiclass", hidden=hidden, repeats=1, steps=30)
    predicted = found.decide(X).argmax(axis=1)
    assert f1_score(y, predicted, average="macro") > 0.9
    assert 0.8 < found.held_out_score < 1
    X, Y = make_multilabel_classification(300, n_classes=4, random_state=0)
    X = (X - X.mean(0)) / X.std(0)
    bold, wary = (
        fit(X, Y, metric, task="multilabel", hidden=hidden, average="micro", steps=30)
        for metric in ("recall", "specificity")
    )
    ours, other = (recall_score(Y, f.decide(X) > 0, average="micro") for f in (bold, wary))
    assert ours > 0.99
    assert other < 0.5


@pytest.mark.parametrize(
    ("metric", "reference"), [("mcc", matthews_corrcoef), ("accuracy", accuracy_score)]
)
def test_the_multiclass_form_is_scikit_learns(metric, reference):
    y = load_iris().target
    target = new_target(np.eye(3)[y], metric, "multiclass", "multiclass")
    decision = np.random.default_rng(0).normal(size=(150, 3))
    assert target.score(decision) == pytest.approx(reference(y, decision.argmax(1)))


def test_early_stopping_keeps_the_best_and_stops():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 30))
    y = (X[:, 0] + rng.normal(size=120) > 1).astype(float)
    whole = fit(X, y, steps=150)
    short = fit(X, y, steps=150, patience=5)
    assert len(whole.history) == 150
    assert len(short.history) < 150
    np.testing.assert_array_equal(short.history, whole.history[: len(short.history)])
    best = len(short.history) - 5  # the step after which nothing rose for five
    until = fit(X, y, steps=best)
    for stopped, expected in zip(short.layers, until.layers, strict=True):
        np.testing.assert_array_equal(stopped, expected)


def test_the_same_seed_gives_the_same_bits_and_begin_is_a_start():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    y = (X[:, 0] ** 2 > 1).astype(float)
    first, second = (fit(X, y, hidden=(4,), steps=5, seed=3) for _ in range(2))
    for a, b in zip(first.layers, second.layers, strict=True):
        np.testing.assert_array_equal(a, b)
    started = numpy_models.start(X, y, hidden=(4,), seed=3)
    again = numpy_models.start(X, y, hidden=(4,), seed=3, initial=started.layers)

    def loss(found):
        each = cross_entropy(forward(found.layers, X)[-1], y[:, None], "binary")
        return (each * found.held).sum()

    assert loss(again) <= loss(started)


def test_what_cannot_be_trained_for():
    with pytest.raises(ValueError, match="training needs one number"):
        new_target(np.eye(3), "f1", "multiclass", None)
    with pytest.raises(ValueError, match="multiclass form"):
        new_target(np.eye(3), "f1", "multiclass", "multiclass")


def test_a_column_and_two_classes_stand_for_each_other():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(150, 3))
    y = (X[:, 0] + rng.normal(size=150) > 1).astype(float)
    found = fit(X, y, "f1", average="macro", steps=20)
    other = fit(X, y, "f1", steps=20)
    reached, plain = (f1_score(y, f.decide(X)[:, 0] > 0, average="macro") for f in (found, other))
    assert reached >= plain
    z = rng.normal(size=(150, 2))
    pair = new_target(np.column_stack([1 - y, y]), "f1", "multiclass", "binary")
    offsets, best = pair.offsets(z)
    assert offsets[0] == 0
    assert f1_score(y, (z - offsets).argmax(1)) == pytest.approx(best)
    single = new_target(y, "f1", "binary", "macro")
    offsets, best = single.offsets(z[:, 1:])
    assert f1_score(y, z[:, 1] > offsets[0], average="macro") == pytest.approx(best)


def test_some_rows_stand_for_very_many():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40_000, 3))
    y = (X[:, 0] + rng.normal(size=40_000) > 3).astype(float)  # 1.7 %
    predicted, weight = X[:, 0] > 1.5, rng.uniform(0.5, 1.5, 40_000)
    expected = f1_score(y, predicted, sample_weight=weight)
    found = []
    for seed in range(20):
        rows, share = thinned(y[:, None], weight, "binary", 4_000, seed)
        assert len(rows) == len(np.unique(rows)) == 4_000
        assert y[rows].sum() == y.sum()  # all of the rare class
        np.testing.assert_allclose([share @ y[rows], share.sum()], [weight @ y, weight.sum()])
        found.append(f1_score(y[rows], predicted[rows], sample_weight=share))
    assert np.mean(found) == pytest.approx(expected, abs=4 * np.std(found) / 20**0.5)
    assert np.std(found) < 0.02
    classes = np.eye(3)[rng.choice(3, 1_000, p=[0.9, 0.08, 0.02])]
    rows, share = thinned(classes, None, "multiclass", 300, 0)
    kept = np.bincount(classes[rows].argmax(axis=1))
    sizes = classes.sum(axis=0)
    second = min(sizes[1], (300 - sizes[2]) // 2)
    assert kept.tolist() == [300 - second - sizes[2], second, sizes[2]]
    np.testing.assert_allclose(share @ classes[rows], classes.sum(axis=0))


@pytest.mark.parametrize("task", TASKS)
def test_the_metric_is_watched_while_refining(task):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 4))
    y = labels(task, 200, rng)
    y[:, 0] = X[:, 0] > 0.5 if task != "multiclass" else y[:, 0]
    received = []
    started = numpy_models.start(X, y, task=task)
    found = numpy_models.finish(
        started, "f1", steps=25, on_step=lambda *news: received.append(news)
    )
    assert found.checks[:, 0].tolist() == [0, 10, 20, 25]
    assert received == [("metric", int(k), 25, score) for k, score in found.checks]
    refined = [x[10:] for x in found.layers]
    p = probabilities(forward(refined, X)[-1], task)
    held_out = (started.held[..., None] * p).sum(axis=0) / started.held.sum(axis=0)[:, None]
    if task == "multiclass":
        ours = f1_score(y.argmax(axis=1), held_out.argmax(axis=1), average="macro")
    else:
        average = "macro" if task == "multilabel" else "binary"
        ours = f1_score(y, held_out > 0.5, average=average)
    assert found.checks[-1, 1] == pytest.approx(ours, abs=1e-12)


def test_a_network_is_refined_only_where_that_helps_on_held_out_rows():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 6))
    clear = (X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=150) > 1).astype(float)
    chosen = []
    for y in (clear, rng.permutation(clear)):
        started = numpy_models.start(X, y, hidden=(8,), folds=3, repeats=1)
        found = numpy_models.finish(started, "f1", steps=80)
        target = new_target(y, "f1", "binary")
        layers = [x[:3] for x in found.layers]
        z = forward(layers, X)[-1][..., 0]
        p = (started.held * (1 + np.tanh(z / 2)) / 2).sum(axis=0)
        expected = anyloss.score(y, p, "f1") + anyloss.score(y, p, "f1", step=Uniform())
        assert sum(target.held_out(2 * p[:, None] - 1)) == pytest.approx(expected)
        chosen.append(len(found.layers[0]))
        if chosen[-1] == 3:
            assert found.held_out_score == pytest.approx(anyloss.score(y, p, "f1"))
    assert chosen == [6, 3]
