"""Keras beside anyloss.keras, on the backend that KERAS_BACKEND names: Dice, Tversky, F-beta, IoU.

Published figures come from Keras' own tests (keras/src/losses/losses_test.py,
keras/src/metrics/f_score_metrics_test.py and iou_metrics_test.py, at version 3.16).
"""

import numpy as np
import pytest

import anyloss
from anyloss.steps import Hard

keras = pytest.importorskip("keras")
from anyloss.keras import AnyLoss, Score  # noqa: E402

BACKEND = keras.backend.backend()

DIFFERENT = [
    ("Dice and Tversky, test_correctness", "labels of 2 and decisions of 4 and 6, not in [0, 1]"),
    ("Tversky before Keras 3.16", "alpha weighed false negatives and beta false positives"),
    ("an empty mask, nothing predicted", "loss 1 by 0/eps; zero_division=0 here, or 1 for loss 0"),
    (
        "FBetaScore(average='macro'), absent class",
        "0 in the mean: zero_division=0, not the default",
    ),
    ("IoU(target_class_ids=...)", "a choice of classes: take average=None"),
]
SWAPPED = tuple(int(x) for x in keras.__version__.split(".")[:2]) < (3, 16)

ROWS = (
    [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]],
    [[0, 1, 0, 1], [1, 0, 1, 1], [0, 1, 0, 1], [1, 0, 1, 1]],
)
MASKS = (
    [[[[1.0], [1.0]], [[0.0], [0.0]]], [[[1.0], [1.0]], [[0.0], [0.0]]]],
    [[[[0.0], [1.0]], [[0.0], [1.0]]], [[[0.4], [0.0]], [[0.0], [0.9]]]],
)
# keras/src/losses/losses_test.py: DiceTest, TverskyTest; one figure, or one per sample
LOSSES = [
    ("f1", {}, ROWS, [0.77777773]),
    ("f1", {}, MASKS, [0.5, 0.75757575]),
    ("tversky", {}, ROWS, [0.77777779]),
    ("tversky", {}, MASKS, [0.5, 0.75757575]),
    ("tversky", {"alpha": 0.2, "beta": 0.8}, ROWS, [0.76190472]),
    ("tversky", {"alpha": 0.2, "beta": 0.8}, MASKS, [0.5, 0.78494626]),
]


def float32(data):
    return [np.asarray(x, np.float32) for x in data]


def number(x):
    return keras.ops.convert_to_numpy(x)


@pytest.mark.parametrize(("metric", "parameters", "data", "figures"), LOSSES)
def test_loss_equals_the_figure_of_keras_tests(metric, parameters, data, figures):
    y, p = float32(data)
    per_sample = len(figures) > 1
    loss = AnyLoss(metric, task="binary", per_sample=per_sample, **parameters)
    assert float(loss(y, p)) == pytest.approx(np.mean(figures), abs=1e-6)
    if per_sample:
        each = [float(loss(y[i : i + 1], p[i : i + 1])) for i in range(len(y))]
        assert each == pytest.approx(figures, abs=1e-6)


def test_figures_of_the_docstring_of_dice():
    # keras/src/losses/losses.py: dice, axis=None
    assert float(AnyLoss("f1")(*float32(MASKS))) == pytest.approx(0.6164384, abs=1e-6)


THRESHOLD = [[0.7, 0.7, 0.7], [1, 0, 0], [0.9, 0.8, 0]]
PERFECT, WORST = [[1, 1, 1], [1, 0, 0], [1, 1, 0]], [[0, 0, 0], [0, 1, 0], [0, 0, 1]]
MIXED = [[0, 0, 1], [1, 1, 0], [1, 1, 1]]
# keras/src/metrics/f_score_metrics_test.py: threshold=0.66; average, figures for beta 0.5, 1, 2
LABELS = [
    *[(PERFECT, average, [1.0] * 3) for average in ("micro", "macro", "weighted")],
    *[(WORST, average, [0.0] * 3) for average in ("micro", "macro", "weighted")],
    (MIXED, None, [[0.71428573, 0.5, 0.833334], [0.8, 0.5, 0.6666667], [0.9090904, 0.5, 0.555556]]),
    (MIXED, "micro", [0.6666667] * 3),
    (MIXED, "macro", [0.6825397, 0.6555555, 0.6548822]),
    (MIXED, "weighted", [0.6825397, 0.6555555, 0.6548822]),
]


def fbeta(y, p, beta, weight=None, **options):
    score = Score(anyloss.metric("fbeta", beta=beta), **options)
    score.update_state(*float32((y, p)), sample_weight=weight)
    return number(score.result())


@pytest.mark.parametrize(("y", "average", "figures"), LABELS)
def test_fbeta_of_labels_equals_the_figure_of_keras_tests(y, average, figures):
    for beta, figure in zip((0.5, 1.0, 2.0), figures, strict=True):
        found = fbeta(y, THRESHOLD, beta, average=average, step=Hard(0.66))
        np.testing.assert_allclose(found, figure, atol=2e-6)


ONE_HOT = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0], [1, 0, 0], [0, 0, 1]]
ARGMAX = [[0.9, 0.1, 0], [0.2, 0.6, 0.2], [0, 0, 1], [0.4, 0.3, 0.3], [0, 0.9, 0.1], [0, 0, 1]]
EQUAL, SOME, HALF = [1.0] * 6, [1.0, 0.0, 1.0, 1.0, 0.0, 1.0], [0.5, 1.0, 1.0, 1.0, 0.5, 1.0]
# keras/src/metrics/f_score_metrics_test.py: threshold=None (the largest); weights, figures as above
CLASSES = [
    (None, EQUAL, [[0.909091, 0.555556, 1.0], [0.8, 0.666667, 1.0], [0.714286, 0.833333, 1.0]]),
    (None, SOME, [[1.0, 0.0, 1.0]] * 3),
    (None, HALF, [[0.9375, 0.714286, 1.0], [0.857143, 0.8, 1.0], [0.789474, 0.909091, 1.0]]),
    ("micro", EQUAL, [0.833333] * 3),
    ("micro", SOME, [1.0] * 3),
    ("micro", HALF, [0.9] * 3),
    ("macro", EQUAL, [0.821549, 0.822222, 0.849206]),
    ("macro", SOME, [0.666667] * 3),
    ("macro", HALF, [0.883929, 0.885714, 0.899522]),
    ("weighted", EQUAL, [0.880471, 0.844444, 0.829365]),
    ("weighted", SOME, [1.0] * 3),
    ("weighted", HALF, [0.917857, 0.902857, 0.897608]),
]


@pytest.mark.parametrize(("average", "weight", "figures"), CLASSES)
def test_fbeta_of_weighted_classes_equals_the_figure_of_keras_tests(average, weight, figures):
    options = {"average": average, "task": "multiclass", "zero_division": 0}
    for beta, figure in zip((0.5, 1.0, 2.0), figures, strict=True):
        found = fbeta(ONE_HOT, ARGMAX, beta, np.asarray(weight, np.float32), **options)
        np.testing.assert_allclose(found, figure, atol=2e-6)


PAIRS = ([0, 0, 1, 1], [0, 1, 0, 1])
WEIGHTS = [0.2, 0.3, 0.4, 0.1]
# keras/src/metrics/iou_metrics_test.py: IoUTest, MeanIoU of two classes
IOU = [(PAIRS, None, (1 / 3 + 1 / 3) / 2), (PAIRS, WEIGHTS, (0.1 / 0.8 + 0.2 / 0.9) / 2), (([1], [1]), None, 1.0)]  # fmt: skip


@pytest.mark.parametrize(("data", "weight", "figure"), IOU)
def test_mean_iou_equals_the_figure_of_keras_tests(data, weight, figure):
    y, decided = np.array(data[0]), np.eye(2, dtype=np.float32)[data[1]]
    score = Score("iou", task="multiclass", average="macro")
    score.update_state(y, decided, sample_weight=None if weight is None else np.array(weight))
    assert float(score.result()) == pytest.approx(figure, abs=1e-6)


def with_gradient(loss):
    """A function of (y, p) that gives the loss and its gradient, on any backend."""

    def torch_version(y, p):
        import torch

        p = torch.tensor(p, requires_grad=True)
        value = loss(y, p)
        return value.item(), torch.autograd.grad(value, p)[0].numpy()

    def tensorflow_version(y, p):
        import tensorflow as tf

        p = tf.Variable(p)
        with tf.GradientTape() as tape:
            value = loss(y, p)
        return float(value), tape.gradient(value, p).numpy()

    if BACKEND == "jax":
        import jax

        fast = {"xla_backend_optimization_level": 0}
        return jax.jit(jax.value_and_grad(loss, argnums=1), compiler_options=fast)
    return torch_version if BACKEND == "torch" else tensorflow_version


def generated(task, seed):
    rng = np.random.default_rng(seed)
    shape = (3, 4, 5, 1) if task == "binary" else (3, 4, 5, 4)
    p = rng.random(shape).astype(np.float32)
    if task == "multiclass":
        y = np.eye(4, dtype=np.float32)[rng.integers(0, 4, shape[:-1])]
        return y, p / p.sum(-1, keepdims=True)
    return (rng.random(shape) < 0.4).astype(np.float32), p


# task, per_sample, the axes that Keras sums over
AXES = [
    ("binary", False, None),
    ("binary", True, (1, 2, 3)),
    ("multilabel", False, (0, 1, 2)),
    ("multilabel", True, (1, 2)),
    ("multiclass", False, (0, 1, 2)),
    ("multiclass", True, (1, 2)),
]


@pytest.mark.parametrize(("alpha", "beta"), [(None, None), (0.3, 0.7)])
@pytest.mark.parametrize(("task", "per_sample", "axis"), AXES)
def test_values_and_gradients_equal_keras(task, per_sample, axis, alpha, beta):
    average = "auto" if task == "binary" else "macro"
    options = {"task": task, "average": average, "per_sample": per_sample, "zero_division": 0}
    if alpha is None:
        ours, theirs = AnyLoss("f1", **options), keras.losses.Dice(axis=axis)
    else:
        ours = AnyLoss("tversky", alpha=alpha, beta=beta, **options)
        alpha, beta = (beta, alpha) if SWAPPED else (alpha, beta)
        theirs = keras.losses.Tversky(alpha=alpha, beta=beta, axis=axis)
    ours, theirs = with_gradient(ours), with_gradient(theirs)
    for seed in range(3):
        y, p = generated(task, seed)
        found, expected = ours(y, p), theirs(y, p)
        assert float(found[0]) == pytest.approx(float(expected[0]), abs=1e-6)
        assert np.abs(expected[1]).max() > 1e-4
        np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("average", ["micro", "macro", "weighted", None])
@pytest.mark.parametrize(("task", "threshold"), [("multilabel", 0.5), ("multiclass", None)])
def test_scores_of_many_batches_equal_keras_fbeta(task, threshold, average):
    for beta in (0.5, 1.0, 2.0):
        theirs = keras.metrics.FBetaScore(average=average, beta=beta, threshold=threshold)
        ours = Score(anyloss.metric("fbeta", beta=beta), average=average, task=task)
        for seed in range(3):
            y, p = (x.reshape(-1, 4) for x in generated(task, seed))
            theirs.update_state(y, p)
            ours.update_state(y, p)
        np.testing.assert_allclose(number(ours.result()), number(theirs.result()), atol=2e-6)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # Keras on JAX
@pytest.mark.parametrize("count", [4, 6])
def test_scores_of_many_batches_equal_keras_mean_iou(count):
    theirs = keras.metrics.MeanIoU(num_classes=count, sparse_y_pred=False)
    ours = Score("jaccard", average="macro", task="multiclass")
    for seed in range(3):
        y, p = generated("multiclass", seed)
        y, p = y.argmax(-1), np.pad(p, [(0, 0)] * 3 + [(0, count - 4)])  # classes 4, 5 are absent
        theirs.update_state(y, p)
        ours.update_state(y, p)
    assert float(ours.result()) == pytest.approx(float(theirs.result()), abs=1e-6)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # Keras on JAX
def test_binary_iou_at_a_threshold_equals_keras():
    theirs = keras.metrics.BinaryIoU(target_class_ids=[1], threshold=0.3)
    ours = Score("iou", step=Hard(0.3), task="binary")
    for seed in range(3):
        y, p = generated("binary", seed)
        theirs.update_state(y, p)
        ours.update_state(y, p)
    assert float(ours.result()) == pytest.approx(float(theirs.result()), abs=1e-6)


def test_decisions_outside_zero_and_one_are_refused():
    # keras/src/losses/losses_test.py: DiceTest.test_correctness, -0.55555546
    y, p = float32(([[1, 2], [1, 2]], [[4, 1], [6, 1]]))
    with pytest.raises(ValueError, match="0"):
        AnyLoss("f1", task="binary")(y, p)


def test_an_empty_mask_has_the_loss_of_zero_division():
    y = p = np.zeros((1, 4), np.float32)
    assert float(keras.losses.Dice()(y, p)) == pytest.approx(1.0)
    for zero_division, loss in ((0, 1.0), (1, 0.0)):
        ours = AnyLoss("f1", task="binary", zero_division=zero_division)
        assert float(ours(y, p)) == pytest.approx(loss, abs=1e-6)
