"""Kornia beside anyloss: Dice and Tversky losses of masks with several classes, and the mean IoU.

Published figures come from kornia's own tests (the path stands above each case). Kornia counts
within each sample and takes the mean over samples: `per_sample=True` here.
"""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from anyloss.torch import AnyLoss, any_loss

DIFFERENT = [
    ("a sample whose pixels are all ignored", "loss 1 in kornia's mean; here it leaves the mean"),
    ("macro Dice before kornia 0.9", "absent classes had loss 1: zero_division=0; now 'skip'"),
    ("Tversky before kornia 0.9", "a micro average; now macro over the classes present"),
    ("weight= with macro", "a weighted mean of class losses: take average=None and weigh them"),
    ("mean_iou of an absent class", "1, from eps/eps, always in the mean: zero_division=1"),
    ("micro Dice with non-binary weights in kornia's test", "an older formula; see the test below"),
]
SKIP = {"task": "multiclass", "per_sample": True, "zero_division": "skip"}


def two_classes(shape):
    """Logits 10 against 1: class 0 on three pixels, class 1 on the fourth."""
    z = torch.tensor([[10.0, 10.0, 10.0, 1.0], [1.0, 1.0, 1.0, 10.0]], dtype=torch.float64)
    return z.reshape(1, 2, *shape), torch.zeros(1, *shape, dtype=torch.int64)


HIGH, LOW = math.e**10 / (math.e + math.e**10), math.e / (math.e + math.e**10)
INSIDE = 3 * HIGH + LOW


def test_micro_dice_equals_the_figure_of_kornias_tests():
    # kornia tests/losses/test_dice.py: test_averaging_micro (with labels of the batch's length)
    z, y = two_classes((4, 1))
    assert any_loss(z, y, "f1", average="micro", **SKIP).item() == pytest.approx(
        1 - 2 * INSIDE / 8, abs=1e-9
    )


def test_macro_dice_equals_the_figure_of_kornias_tests_with_the_absent_class_at_zero():
    # kornia tests/losses/test_dice.py: test_averaging_macro, of versions before 0.9
    z, y = two_classes((1, 4))
    losses = 1 - 2 * INSIDE / (4 + INSIDE), 1.0
    for zero_division, figure in ((0, sum(losses) / 2), ("skip", losses[0])):
        options = {**SKIP, "zero_division": zero_division}
        loss = any_loss(z, y, "f1", average="macro", **options)
        assert loss.item() == pytest.approx(figure, abs=1e-9)


@pytest.mark.parametrize("metric", ["f1", "tversky"])
@pytest.mark.parametrize("average", ["micro", "macro"])
def test_confident_masks_of_one_class_have_almost_no_loss(metric, average):
    # kornia tests/losses/test_dice.py and test_tversky.py: test_all_zeros, figure 0 within 1e-3
    z = torch.tensor([10.0, 1.0, 1.0], dtype=torch.float64).reshape(1, 3, 1, 1).repeat(2, 1, 1, 2)
    loss = any_loss(z, torch.zeros(2, 1, 2, dtype=torch.int64), metric, average=average, **SKIP)
    assert loss.item() == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("ignore_index", [-100, 255])
@pytest.mark.parametrize("metric", ["f1", "tversky"])
def test_ignored_pixels_leave_the_counts(metric, ignore_index):
    # kornia tests/losses/test_dice.py and test_tversky.py: test_ignore_index, figures 1/2 and 1/2
    # (Tversky was a micro average before kornia 0.9)
    z = torch.zeros(2, 2, 1, 4, dtype=torch.float64)
    z[:, 0, :, 0], z[:, 1, :, 1:] = 100.0, 100.0
    y = torch.zeros(2, 1, 4, dtype=torch.int64)
    y[..., 2:] = ignore_index
    loss = any_loss(z, y, metric, average="micro", ignore_index=ignore_index, **SKIP)
    assert loss.item() == pytest.approx(0.5, abs=1e-9)


def weighted_case():
    """Class 0 all right, class 1 never predicted, class 2 partly right."""
    z = torch.zeros(4, 3, 1, 4, dtype=torch.float64)
    z[:, 0, :, 0], z[:, 2, :, 1:] = 100.0, 100.0
    return z, torch.tensor([0, 1, 2, 2]).expand(4, 1, 4)


def test_class_weights_of_macro_dice_are_weights_of_the_class_losses():
    # kornia tests/losses/test_dice.py: test_weight, figures 0, 1, 1/5 and 0.7
    z, y = weighted_case()
    losses = any_loss(z, y, "f1", task="multiclass", average=None)
    np.testing.assert_allclose(losses.numpy(), [0.0, 1.0, 0.2], atol=1e-9)
    weights = torch.tensor([0.3, 0.7, 0.0], dtype=torch.float64)
    assert (losses * weights).sum().item() == pytest.approx(0.7, abs=1e-9)


@pytest.mark.parametrize(
    ("weights", "figure"), [([1.0, 0, 0], 0.0), ([0, 1.0, 0], 1.0), ([0, 0, 1.0], 0.2)]
)
def test_class_weights_of_micro_dice_are_weights_of_the_pixels(weights, figure):
    # kornia tests/losses/test_dice.py: test_weight
    z, y = weighted_case()
    assert weighted_micro(z, y, torch.tensor(weights)).item() == pytest.approx(figure, abs=1e-9)


def weighted_micro(z, y, weights):
    """Dice of all classes together, with one weight per class, as decisions of several labels."""
    target = one_hot(y, z.shape[1]).movedim(-1, 1).to(z.dtype)
    w = weights.to(z.dtype).reshape(1, -1, 1, 1).expand_as(z)
    options = {"task": "multilabel", "average": "micro", "per_sample": True}
    return any_loss(z.softmax(1), target, "f1", weight=w, from_logits=False, **options)


# kornia tests/metrics/test_mean_iou.py: predicted, actual, classes, IoU of each class
QUARTERS = [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]
MEAN_IOU = [
    ([1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0], 2, [1.0, 1.0]),
    ([1, 1, 1, 1, 0, 0, 0, 1], [1, 1, 1, 1, 0, 0, 0, 0], 2, [0.75, 0.80]),
    (QUARTERS, QUARTERS, 4, [1.0, 1.0, 1.0, 1.0]),
    ([[3, 3, 2, 2], [3, 3, 2, 2], *QUARTERS[2:]], [[0] * 4, [0] * 4, *QUARTERS[2:]], 4, [0.0, 1.0, 0.5, 0.5]),
]  # fmt: skip


@pytest.mark.parametrize(("predicted", "actual", "count", "figures"), MEAN_IOU)
def test_hard_iou_of_each_class_equals_the_figure_of_kornias_tests(
    predicted, actual, count, figures
):
    p = one_hot(torch.tensor([predicted]), count).movedim(-1, 1).double()
    options = {"task": "multiclass", "average": None, "zero_division": 1, "from_logits": False}
    options["class_axis"] = 1  # as many classes as pixels in a row
    score = AnyLoss("iou", **options).score(p, torch.tensor([actual]))
    np.testing.assert_allclose(np.asarray(score), figures, atol=1e-6)


def generated(seed, count=4, present=4):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(3, count, 5, 6, generator=g, dtype=torch.float64)
    return z, torch.randint(0, present, (3, 5, 6), generator=g)


def assert_same(ours, theirs, z, y, within=1e-9):
    """Values and gradients agree."""
    found = []
    for loss in (ours, theirs):
        z = z.detach().requires_grad_()
        value = loss(z, y)
        found += [(value.item(), torch.autograd.grad(value, z)[0])]
    assert found[0][0] == pytest.approx(found[1][0], abs=within)
    assert found[1][1].abs().max() > 1e-4
    torch.testing.assert_close(found[0][1], found[1][1], rtol=0, atol=within)


@pytest.mark.parametrize("case", ["all classes", "absent classes", "two classes", "ignored pixels"])
@pytest.mark.parametrize("average", ["micro", "macro"])
def test_values_and_gradients_equal_kornias_dice(average, case):
    kornia = pytest.importorskip("kornia")
    ours = AnyLoss("f1", average=average, ignore_index=-100, **SKIP)

    def theirs(z, y):
        return kornia.losses.dice_loss(z, y, average=average, eps=0.0)

    for seed in range(5):
        assert_same(ours, theirs, *pixels(case, seed))


def pixels(case, seed):
    count, present = {"two classes": (2, 2), "absent classes": (4, 2)}.get(case, (4, 4))
    z, y = generated(seed, count, present)
    if case == "absent classes":
        y[0, 0, 0] = 3  # present in one sample only
    if case == "ignored pixels":
        y[:, 1, 1:4] = -100
    return z, y


@pytest.mark.parametrize("case", ["all classes", "absent classes", "two classes", "ignored pixels"])
@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 0.5), (0.3, 0.7), (1.0, 1.0)])
def test_values_and_gradients_equal_kornias_tversky(alpha, beta, case):
    kornia = pytest.importorskip("kornia")
    parameters = {"alpha": alpha, "beta": beta}
    ours = AnyLoss("tversky", average="macro", ignore_index=-100, **SKIP, **parameters)

    def theirs(z, y):
        return kornia.losses.tversky_loss(z, y, eps=0.0, **parameters)

    for seed in range(4):
        assert_same(ours, theirs, *pixels(case, seed))


def test_weighted_micro_dice_equals_kornias():
    kornia = pytest.importorskip("kornia")
    weights = torch.tensor([0.3, 0.7, 0.1, 2.0], dtype=torch.float64)
    for seed in range(3):
        assert_same(
            lambda z, y: weighted_micro(z, y, weights),
            lambda z, y: kornia.losses.dice_loss(z, y, weight=weights, eps=0.0),
            *generated(seed),
        )


@pytest.mark.parametrize("present", [4, 2])
def test_hard_iou_per_sample_equals_kornias_mean_iou(present):
    metrics = pytest.importorskip("kornia.metrics")
    options = {"task": "multiclass", "average": "macro", "per_sample": True, "zero_division": 1}
    for seed in range(4):
        z, y = generated(seed, present=present)
        z[:, 3] -= 9.0 if present == 2 else 0.0  # class 3 is neither present nor predicted
        theirs = metrics.mean_iou(z.argmax(1), y, 4).mean()
        score = AnyLoss("jaccard", **options).score(z, y)
        assert float(score) == pytest.approx(theirs.item(), abs=1e-5)


def test_a_fully_ignored_sample_leaves_the_mean_here_and_has_loss_one_in_kornia():
    kornia = pytest.importorskip("kornia")
    z, y = generated(0)
    y[1] = -100
    ours = any_loss(z, y, "f1", average="macro", ignore_index=-100, **SKIP).item()
    theirs = kornia.losses.dice_loss(z, y, average="macro", eps=0.0).item()
    assert theirs == pytest.approx((2 * ours + 1) / 3, abs=1e-9)
    assert abs(ours - theirs) > 1e-3


def test_the_weighted_micro_figure_of_kornias_test_suite_is_an_older_formula():
    # kornia tests/losses/test_dice.py: test_weight squares the weighted tp; 0.8615...
    z, y = weighted_case()
    ours = weighted_micro(z, y, torch.tensor([0.3, 0.7, 0.0], dtype=z.dtype)).item()
    assert ours == pytest.approx(1 - 2 * 0.3 / (0.3 * 2 + 0.7), abs=1e-9)
    assert abs(ours - (1 - 2 * 0.3**2 / (0.3 * 2 + 0.7))) > 0.1
