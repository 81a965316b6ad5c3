"""What the shapes mean: the task and the class axis, given or from the shapes, in every front-end."""

import os

import numpy as np
import pytest
import torch

import anyloss
from anyloss.steps import Uniform
from anyloss.torch import AnyLoss, AUROCLoss, ScoreMeter, SurrogateFBetaLoss, WMWLoss, any_loss

tm = pytest.importorskip("torchmetrics.functional.classification")

RNG = np.random.default_rng(5)
MASKS = (RNG.random((4, 6, 6)) < 0.3).astype(int)
SCORES = RNG.normal(size=(4, 6, 6))


def in_numpy(y, z, metric="f1", **options):
    return anyloss.score(y, z, metric, from_logits=True, **options)


def in_torch(y, z, metric="f1", **options):
    return AnyLoss(metric, **options).score(torch.tensor(z), torch.tensor(y)).item()


def in_meter(y, z, metric="f1", **options):
    meter = ScoreMeter(metric, **options)
    for k in range(len(y)):
        meter.update(torch.tensor(z[k : k + 1]), torch.tensor(y[k : k + 1]))
    return meter.compute().item()


def in_jax(y, z, metric="f1", **options):
    jax = pytest.importorskip("jax")
    from anyloss.jax import score

    with jax.enable_x64(True):
        return score(z, y, metric, **options).item()


def in_keras(y, z, metric="f1", **options):
    pytest.importorskip("keras")
    from anyloss.keras import Score

    meter = Score(metric, from_logits=True, **options)
    meter.update_state(y, z.astype(np.float32))
    return float(meter.result())


FRONT_ENDS = [
    in_numpy,
    in_torch,
    in_meter,
    in_jax,
    pytest.param(in_keras, id=f"keras-{os.environ['KERAS_BACKEND']}"),
]


@pytest.mark.parametrize("score", FRONT_ENDS)
def test_masks_are_binary_with_task_binary(score):
    expected = tm.binary_f1_score(torch.tensor(SCORES), torch.tensor(MASKS)).item()
    assert score(MASKS, SCORES, task="binary") == pytest.approx(expected, abs=1e-6)
    perfect = np.where(MASKS == 1, 9.0, -9.0)
    assert score(MASKS, perfect, task="binary") == 1.0
    assert score(MASKS[:, None], perfect[:, None], task="binary") == 1.0


@pytest.mark.parametrize("score", FRONT_ENDS)
def test_three_axes_of_one_shape_are_not_guessed(score):
    with pytest.raises(ValueError, match="two readings: task='binary'.*or task='multilabel', 6 la"):
        score(MASKS, SCORES)
    with pytest.raises(ValueError, match="for one-hot labels of 6 classes write task='multiclass'"):
        score(MASKS, SCORES)


@pytest.mark.parametrize("score", FRONT_ENDS)
def test_the_class_axis_may_lie_anywhere(score):
    z = RNG.normal(size=(2, 3, 4, 5))
    y = (RNG.random((2, 3, 4, 5)) < 0.4).astype(int)
    index = RNG.integers(0, 3, (2, 4, 5))
    for axis in (1, 2, 3, -1):
        moved, labels = np.moveaxis(z, 1, axis), np.moveaxis(y, 1, axis)
        flat = in_numpy(np.moveaxis(y, 1, -1).reshape(-1, 3), np.moveaxis(z, 1, -1).reshape(-1, 3))
        ours = score(labels, moved, task="multilabel", class_axis=axis)
        assert ours == pytest.approx(flat, abs=1e-6)
        flat = in_numpy(index.reshape(-1), np.moveaxis(z, 1, -1).reshape(-1, 3), "mcc")
        assert score(index, moved, "mcc", class_axis=axis) == pytest.approx(flat, abs=1e-6)


@pytest.mark.parametrize("score", FRONT_ENDS)
def test_one_decision_per_token(score):
    """A batch of sequences (B, T): five labels per row, unless the task is binary."""
    y, z = MASKS[:, :, 0], SCORES[:, :, 0]
    expected = tm.binary_f1_score(torch.tensor(z).flatten(), torch.tensor(y).flatten()).item()
    assert score(y, z, task="binary") == pytest.approx(expected, abs=1e-6)
    labels = tm.multilabel_f1_score(torch.tensor(z), torch.tensor(y), num_labels=6).item()
    assert score(y, z) == pytest.approx(labels, abs=1e-6)


def test_tokens_with_the_classes_last_raise_an_error_that_names_class_axis():
    z, y = torch.randn(2, 5, 7), torch.randint(0, 7, (2, 5))
    with pytest.raises(ValueError, match=r"class_axis=-1, or move it to axis 1.*movedim\(-1, 1\)"):
        AnyLoss("f1")(z, y)
    one, other = AnyLoss("f1", class_axis=-1)(z, y), AnyLoss("f1")(z.movedim(-1, 1), y)
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(one, AnyLoss("f1")(z.reshape(10, 7), y.reshape(10)))


@pytest.mark.parametrize(
    ("shape", "target", "options", "message"),
    [
        ((4,), (4,), {"task": "multilabel"}, r"needs scores of shape \(n, C, ...\)"),
        ((4, 1), (4, 1), {"task": "multiclass"}, "C > 1"),
        ((4, 3), (4,), {"task": "binary"}, "Class indices are for task='multiclass'"),
        ((4, 3), (4,), {"task": "multilabel"}, "labels must have the shape of the scores"),
        ((4, 3), (4, 3), {"class_axis": 0}, "other than the first one"),
        ((4, 3), (4, 3), {"class_axis": 2}, "class_axis must be an axis"),
        ((4, 3), (4, 3), {"task": "labels"}, "task must be one of 'auto', 'binary'"),
        ((4, 3), (4, 3), {"zero_division": 0.5}, "zero_division must be one of"),
        ((4, 3), (4, 3), {"per_sample": True}, "per_sample counts within each sample"),
        ((4, 1), (4,), {}, "Nothing is broadcast"),
    ],
)
def test_what_is_refused(shape, target, options, message):
    with pytest.raises(ValueError, match=message):
        any_loss(torch.zeros(shape), torch.zeros(target, dtype=torch.long), "f1", **options)


def test_the_task_never_follows_from_values():
    """One-hot labels of two axes stay labels of their own until the task is named."""
    torch.manual_seed(0)
    z, one_hot = torch.randn(6, 3), torch.eye(3)[torch.tensor([0, 1, 2, 0, 1, 2])]
    labels = any_loss(z, one_hot, "f1", task="multilabel")
    torch.testing.assert_close(any_loss(z, one_hot, "f1"), labels)
    classes = any_loss(z, one_hot, "f1", task="multiclass")
    torch.testing.assert_close(any_loss(z, one_hot.argmax(1), "f1"), classes)
    assert abs(labels - classes) > 1e-3


def test_the_task_is_an_argument_of_the_ranking_losses():
    z, y = torch.tensor(SCORES), torch.tensor(MASKS)
    flat = AUROCLoss()(z.flatten(), y.flatten())
    torch.testing.assert_close(AUROCLoss(task="binary")(z, y), flat)
    torch.testing.assert_close(WMWLoss(task="binary")(z, y), WMWLoss()(z.flatten(), y.flatten()))
    surrogate = SurrogateFBetaLoss(positive_share=0.3)
    torch.testing.assert_close(surrogate(z, y), surrogate(z.flatten(), y.flatten()))
    with pytest.raises(ValueError, match="two readings"):
        AUROCLoss()(z, y)


@pytest.mark.parametrize(
    ("shape", "weight_shape"),
    [((4, 6), (4,)), ((4, 6), (4, 1)), ((4, 6), (4, 6)), ((1, 4), (1, 4)), ((3, 5, 2), (3, 5))],
)
@pytest.mark.parametrize("per_sample", [False, True])
def test_weights_of_binary_masks_in_keras(shape, weight_shape, per_sample):
    """Weights were spread over a number of columns that a binary task does not have."""
    pytest.importorskip("keras")
    from anyloss.keras import AnyLoss as KerasLoss

    rng = np.random.default_rng(2)
    y, p = rng.integers(0, 2, shape), rng.random(shape).astype(np.float32)
    weight = rng.integers(0, 3, weight_shape).astype(np.float32)
    given = {"task": "binary", "per_sample": per_sample}
    ours = float(KerasLoss("f1", **given)(y, p, weight))
    if weight_shape in ((4,), (4, 1)):
        weight = weight.reshape(-1)  # of whole samples
    else:
        weight = np.broadcast_to(
            weight.reshape(weight.shape + (1,) * (p.ndim - weight.ndim)), shape
        )
    assert ours == pytest.approx(
        1 - anyloss.score(y, p, "f1", Uniform(), weight=weight, **given), abs=1e-6
    )


@pytest.mark.parametrize("score", FRONT_ENDS[:2] + FRONT_ENDS[3:4])
def test_classes_first_or_last_is_not_guessed(score):
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(2, 3, 3)), rng.integers(0, 3, (2, 3))
    with pytest.raises(
        ValueError, match="two readings: class_axis=1.*or class_axis=-1, they come la"
    ):
        score(y, z)
    first, last = score(y, z, class_axis=1), score(y, z, class_axis=-1)
    assert first == pytest.approx(score(y, np.moveaxis(z, 1, -1), class_axis=-1), abs=1e-6)
    assert abs(first - last) > 1e-3


def test_one_hot_labels_of_keras_give_the_numbers_of_keras():
    """keras.metrics takes the arg-max of one-hot labels; so does task="multiclass"."""
    keras = pytest.importorskip("keras")
    from anyloss.keras import AnyLoss as KerasLoss
    from anyloss.keras import Score

    index = RNG.integers(0, 10, 60)
    p = RNG.dirichlet(np.ones(10), 60)
    one_hot = np.eye(10)[index]
    theirs = keras.metrics.F1Score(average="macro")
    theirs.update_state(one_hot, p)
    ours = Score("f1", task="multiclass", average="macro", zero_division=0)
    ours.update_state(one_hot, p)
    assert float(ours.result()) == pytest.approx(float(theirs.result()), abs=1e-6)
    accuracy, reference = Score("accuracy", task="multiclass"), keras.metrics.CategoricalAccuracy()
    for meter in (accuracy, reference):
        meter.update_state(one_hot, p)
    assert float(accuracy.result()) == pytest.approx(float(reference.result()), abs=1e-6)
    loss = float(KerasLoss("f1", task="multiclass")(one_hot, p))
    assert loss == pytest.approx(1 - anyloss.score(index, p, "f1", Uniform()), abs=1e-6)
