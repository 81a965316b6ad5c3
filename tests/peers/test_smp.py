"""segmentation_models.pytorch (SMP) beside anyloss: Dice, Jaccard, Tversky and MCC losses.

SMP needs torchvision and is not installed here. The published figures come from its
tests/test_losses.py. The other figures were computed once with the loss modules of SMP
(segmentation_models_pytorch/losses, commit 5006616) on the inputs that `logits`, `masks` and
`classes` below make from sines, so that no random generator is involved.
"""

import pytest
import torch

from anyloss.torch import AnyLoss, any_loss

DIFFERENT = [
    ("absent class, multiclass or multilabel", "SMP's class loss is 0 and stays in the mean"),
    ("smooth > 0 (Dice, Jaccard, Tversky)", "one term in the ratio, not one per cell: a formula"),
    ("gamma of TverskyLoss", "a power of the mean loss: apply it outside"),
]

FLAT = [
    # SMP tests/test_losses.py: test_soft_jaccard_score, test_soft_dice_score, test_soft_tversky_score
    ("jaccard", [1, 1, 1, 1], [1, 1, 1, 1], 1.0),
    ("jaccard", [0, 1, 1, 0], [0, 1, 1, 0], 1.0),
    ("jaccard", [1, 1, 1, 1], [1, 1, 0, 0], 0.5),
    ("f1", [1, 1, 1, 1], [1, 1, 1, 1], 1.0),
    ("f1", [0, 1, 1, 0], [0, 1, 1, 0], 1.0),
    ("f1", [1, 1, 1, 1], [1, 1, 0, 0], 2 / 3),
    ("tversky", [1, 1, 1, 1], [1, 1, 1, 1], 1.0),
    ("tversky", [0, 1, 1, 0], [0, 1, 1, 0], 1.0),
    ("tversky", [1, 1, 1, 1], [1, 1, 0, 0], 2 / 3),
]


def double(values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(("metric", "y_true", "y_pred", "score"), FLAT)
def test_soft_score_of_a_vector_equals_smps_figure(metric, y_true, y_pred, score):
    loss = any_loss(double(y_pred), double(y_true), metric, from_logits=False)
    assert 1 - loss.item() == pytest.approx(score, abs=1e-9)


# SMP tests/test_losses.py: test_soft_jaccard_score_2, the mean over rows
ROWS = [
    ([[1, 1, 0, 0], [0, 0, 1, 1]], [[1, 1, 0, 0], [0, 0, 1, 1]], 1.0),
    ([[1, 1, 0, 0], [0, 0, 1, 1]], [[0, 0, 1, 0], [0, 1, 0, 0]], 0.0),
    ([[1, 1, 0, 0], [0, 0, 0, 1]], [[1, 1, 0, 0], [0, 0, 0, 0]], 0.5),
]


@pytest.mark.parametrize(("y_true", "y_pred", "score"), ROWS)
def test_soft_score_per_row_equals_smps_figure(y_true, y_pred, score):
    options = {"task": "binary", "per_sample": True, "from_logits": False}
    loss = any_loss(double(y_pred), double(y_true), "jaccard", **options)
    assert 1 - loss.item() == pytest.approx(score, abs=1e-9)
    loss = any_loss(double(y_pred).T, double(y_true).T, "jaccard", from_logits=False)
    assert 1 - loss.item() == pytest.approx(score, abs=1e-9)  # the rows as columns of labels


# SMP tests/test_losses.py: test_dice_loss_binary, test_tversky_loss_binary, test_binary_jaccard_loss
BINARY = [
    ([1.0, 1.0, 1.0], [1, 1, 1], 0.0),
    ([1.0, 0.0, 1.0], [1, 0, 1], 0.0),
    ([0.0, 0.0, 0.0], [0, 0, 0], 0.0),
    ([1.0, 1.0, 1.0], [0, 0, 0], 0.0),
    ([1.0, 0.0, 1.0], [0, 1, 0], 1.0),
    ([0.0, 0.0, 0.0], [1, 1, 1], 1.0),
    ([1.0], [1], 0.0),
]


@pytest.mark.parametrize("metric", ["f1", "tversky", "jaccard"])
@pytest.mark.parametrize(("y_pred", "y_true", "figure"), BINARY)
def test_binary_loss_equals_smps_figure(metric, y_pred, y_true, figure):
    z, y = double(y_pred).view(1, 1, 1, -1), double(y_true).view(1, 1, 1, -1)
    loss = any_loss(z, y, metric, from_logits=False, zero_division="skip")
    assert loss.item() == pytest.approx(figure, abs=1e-9)


FIRST = [[[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]]
THIRD = [[[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]]
MIDDLE = [[[0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0]]]
LEFT = [[[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]]
OTHER = [[[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]]]
# SMP tests/test_losses.py: test_multiclass_jaccard_loss, test_multilabel_jaccard_loss
SEVERAL = [
    ("multiclass", FIRST, [[0, 0, 1, 1]], 0.0),
    ("multiclass", FIRST, [[1, 1, 0, 0]], 1.0),
    ("multiclass", THIRD, [[1, 1, 0, 0]], 1 - 1 / 3),
    ("multilabel", FIRST, FIRST, 0.0),
    ("multilabel", FIRST, OTHER, 1.0),
    ("multilabel", MIDDLE, LEFT, 1 - 1 / 3),
]


@pytest.mark.parametrize(("task", "y_pred", "y_true", "figure"), SEVERAL)
def test_jaccard_loss_of_several_classes_equals_smps_figure(task, y_pred, y_true, figure):
    loss = AnyLoss("jaccard", task=task, average="macro", from_logits=False)
    y = torch.tensor(y_true)
    assert loss(double(y_pred), y).item() == pytest.approx(figure, abs=1e-9)


NONE, ALL = [[[0.0] * 4] * 2], [[[1.0] * 4] * 2]
# SMP tests/test_losses.py: test_binary_mcc_loss; SMP's eps is added to each cell, as smooth is
MCC = [
    (FIRST, FIRST, 0.0),
    (FIRST, OTHER, 2.0),
    (MIDDLE, LEFT, 1.0),
    (NONE, LEFT, 1.0),
    (NONE, ALL, 1.5),
    (ALL, ALL, 0.5),
]


@pytest.mark.parametrize(("y_pred", "y_true", "figure"), MCC)
def test_mcc_loss_equals_smps_figure(y_pred, y_true, figure):
    loss = AnyLoss("mcc", task="binary", from_logits=False, smooth=1e-5)
    assert loss(double(y_pred), double(y_true)).item() == pytest.approx(figure, abs=2e-5)


def logits(*shape):
    return (2 * torch.sin(1.7 * torch.arange(torch.Size(shape).numel()).double())).reshape(shape)


def masks(*shape):
    return (torch.cos(2.3 * torch.arange(torch.Size(shape).numel())) > 0.2).double().reshape(shape)


def classes(count, *shape):
    numbers = torch.arange(torch.Size(shape).numel())
    return (numbers * numbers // 3 % count).reshape(shape)


def assert_figures(loss, z, y, figures, within=2e-8):
    """Value, two entries and the norm of the gradient."""
    z = z.requires_grad_()
    value = loss(z, y)
    (gradient,) = torch.autograd.grad(value, z)
    found = [value, gradient.flatten()[0], gradient.flatten()[7], gradient.norm()]
    assert [x.item() for x in found] == pytest.approx(figures, abs=within)


PARAMETERS = {"f1": {}, "jaccard": {}, "tversky": {"alpha": 0.3, "beta": 0.7}, "mcc": {}}
COMPUTED = [
    ("f1", "binary", [0.514380261, -0.009900876, 0.002215113, 0.030959373]),
    ("f1", "multilabel", [0.501912604, -0.003122349, 0.000750818, 0.018288786]),
    ("f1", "multiclass", [0.679399462, -0.003508742, 0.001068368, 0.029932984]),
    ("jaccard", "binary", [0.679327741, -0.008634431, 0.001931772, 0.026999285]),
    ("jaccard", "multilabel", [0.668301767, -0.002822782, 0.000678783, 0.016202703]),
    ("jaccard", "multiclass", [0.807230467, -0.002698177, 0.000751018, 0.021430391]),
    ("tversky", "binary", [0.502736018, -0.011391933, 0.001393569, 0.034070739]),
    ("tversky", "multilabel", [0.488726358, -0.003603181, 0.000466299, 0.020295238]),
    ("tversky", "multiclass", [0.674748936, -0.003326531, 0.001153315, 0.030760654]),
]


@pytest.mark.parametrize(("metric", "task", "figures"), COMPUTED)
def test_value_and_gradient_equal_smps(metric, task, figures):
    shape = (2, 1, 4, 5) if task == "binary" else (2, 3, 4, 5)
    y = classes(3, 2, 4, 5) if task == "multiclass" else masks(*shape)
    average = "auto" if task == "binary" else "macro"
    loss = AnyLoss(metric, task=task, average=average, **PARAMETERS[metric])
    assert_figures(loss, logits(*shape), y, figures)


@pytest.mark.parametrize(
    ("smooth", "figures"),
    [
        (1e-5, [0.982174296, -0.013822896, 0.007887224, 0.055838172]),
        (0.5, [0.983085541, -0.013101219, 0.007547978, 0.053166759]),
    ],
)
def test_mcc_with_smooth_in_each_cell_equals_smps_with_eps(smooth, figures):
    loss = AnyLoss("mcc", task="binary", smooth=smooth)
    assert_figures(loss, logits(2, 1, 4, 5), masks(2, 1, 4, 5), figures)


IGNORED = [
    ("f1", [0.667616994, 0.0, 0.001150885, 0.03187191]),
    ("jaccard", [0.799377085, 0.0, 0.000826793, 0.023055502]),
    ("tversky", [0.662614827, 0.0, 0.001254554, 0.032558298]),
]


@pytest.mark.parametrize(("metric", "figures"), IGNORED)
def test_ignore_index_equals_smps(metric, figures):
    y = classes(3, 2, 4, 5)
    y[:, 0, :2] = 255
    options = {"task": "multiclass", "average": "macro", **PARAMETERS[metric]}
    assert_figures(AnyLoss(metric, ignore_index=255, **options), logits(2, 3, 4, 5), y, figures)


@pytest.mark.parametrize(
    ("task", "channels", "figures"),
    [
        ("binary", 1, [0.497696689, 0.0, 0.002504818, 0.031713837]),
        ("multilabel", 3, [0.509575528, 0.0, 0.000837189, 0.019326286]),
    ],
)
def test_ignore_index_in_masks_equals_smps(task, channels, figures):
    y = masks(2, channels, 4, 5)
    y[:, :, 0, :2] = 255
    loss = AnyLoss("f1", task=task, ignore_index=255)
    assert_figures(loss, logits(2, channels, 4, 5), y, figures)


SOFT = [
    ("f1", [0.376532332, -0.003005778, 0.000963205, 0.017296006]),
    ("jaccard", [0.54705972, -0.003200508, 0.001025607, 0.018246401]),
    ("tversky", [0.349922599, -0.003658093, 0.000621581, 0.019167379]),
]


@pytest.mark.parametrize(("metric", "figures"), SOFT)
def test_soft_labels_equal_smps_targets_between_zero_and_one(metric, figures):
    options = {"task": "multilabel", "average": "macro", **PARAMETERS[metric]}
    y = 0.7 * masks(2, 3, 4, 5) + 0.1
    assert_figures(AnyLoss(metric, soft_labels=True, **options), logits(2, 3, 4, 5), y, figures)


SMOOTHED = [
    ("(tp + 1) / (tp + 0.5*fp + 0.5*fn + 1)", [0.47661505, -0.002925865, 0.000747401, 0.01721138]),
    ("(tp + 1) / (tp + fp + fn + 1)", [0.645501008, -0.002730298, 0.000697444, 0.015777287]),
    ("(tp + 1) / (tp + 0.3*fp + 0.7*fn + 1)", [0.463469704, -0.003399057, 0.000463403, 0.019113878]),
]  # fmt: skip


@pytest.mark.parametrize(("formula", "figures"), SMOOTHED)
def test_smps_smoothing_is_a_formula_and_not_smooth(formula, figures):
    loss = AnyLoss(formula, task="multilabel", average="macro")
    assert_figures(loss, logits(2, 3, 4, 5), masks(2, 3, 4, 5), figures)
    named = any_loss(logits(2, 3, 4, 5), masks(2, 3, 4, 5), "f1", task="multilabel", smooth=1.0)
    assert abs(named.item() - figures[0]) > 1e-3


ABSENT = [
    ("f1", [0.539845182, -0.001098949, 0.000404565, 0.025035626]),
    ("jaccard", [0.626513148, -0.000803133, 0.00025623, 0.016992958]),
    ("tversky", [0.546138937, -0.001013876, 0.000395711, 0.025346976]),
]


@pytest.mark.parametrize(("metric", "figures"), ABSENT)
def test_smp_keeps_absent_classes_in_the_mean_with_loss_zero(metric, figures):
    options = {"task": "multiclass", "average": "macro", "zero_division": "skip"}
    loss = AnyLoss(metric, **options, **PARAMETERS[metric])
    four = logits(2, 4, 4, 5), classes(3, 2, 4, 5)  # the fourth class is absent
    assert_figures(lambda z, y: loss(z, y) * 3 / 4, *four, figures)
    assert abs(loss(*four).item() - figures[0]) > 0.1


LOGARITHM = {"f1": 0.697191161, "jaccard": 1.103906975, "tversky": 0.670952276}


@pytest.mark.parametrize(("metric", "figure"), LOGARITHM.items())
def test_log_loss_is_the_logarithmic_form(metric, figure):
    options = {"task": "multilabel", "form": "log", **PARAMETERS[metric]}
    loss = any_loss(logits(2, 3, 4, 5), masks(2, 3, 4, 5), metric, **options)
    assert loss.item() == pytest.approx(figure, abs=1e-8)


def test_gamma_is_a_power_of_the_loss():
    loss = AnyLoss("f1", task="multilabel")
    figures = [0.251916262, -0.003134293, 0.00075369, 0.018358744]
    z, y = logits(2, 3, 4, 5), masks(2, 3, 4, 5)
    assert_figures(lambda z, y: loss(z, y) ** 2, z, y, figures)
