"""MONAI beside anyloss: Dice, Jaccard, Tversky, MCC, generalised Dice, and the hard metrics.

Published figures come from MONAI's own tests (the path stands above each table). The generated
inputs run MONAI beside anyloss, with MONAI's smoothing off unless a formula expresses it.
"""

from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from anyloss.torch import AnyLoss, any_loss

DIFFERENT = [
    ("DiceLoss(weight=...)", "class losses times weights over C; class_weights is a weighted mean"),
    ("smooth_nr != smooth_dr or large", "not smooth= (each cell): a formula metric expresses it"),
    ("MaskedDiceLoss before MONAI 1.6", "masked logits became 0, counted as p = 0.5; now a weight"),
    ("MCCLoss of one class, not perfect", "1, by 0/0: zero_division=0 here; perfect is 0: 1 here"),
    ("DiceMetric(ignore_empty=True)", "leaves out predicted but absent classes; the hard score 0"),
]

# fmt: off
ZERO = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
MASK_A = ([[[[1.0, -1.0], [-1.0, 1.0]]]], [[[[1.0, 0.0], [1.0, 1.0]]]])
MASK_B = (MASK_A[0] * 2, [[[[1.0, 1.0], [1.0, 1.0]]], [[[1.0, 0.0], [1.0, 0.0]]]])
SOFT = ([[[[0.3, 0.4], [0.7, 0.9]]], [[[1.0, 0.1], [0.5, 0.3]]]],) * 2
LINES = ([[[-1.0, 0.0, 1.0], [1.0, 0.0, -1.0]], ZERO], [[1, 0, 0], [1, 1, 0]])
PERFECT = ([[[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]], [[0, 0, 1], [0, 1, 0]])
CHECKS = ([[[[1.0, 0.0], [0.0, 1.0]]]], [[[[0.0, 1.0], [1.0, 0.0]]]])
STEEP = ([[[0.0, 10.0, 10.0, 10.0], [10.0, 0.0, 0.0, 0.0]]], [[1, 1, 0, 0]])
OFF = {"from_logits": False}
SIGMOID = {"task": "multilabel", "average": "macro"}
SOFTMAX = {"task": "multiclass", "average": "macro"}

# data, metric, options, per_sample, figure; MONAI's smoothing moves its figures by less than 1e-4
PUBLISHED = [
    # MONAI tests/losses/test_dice_loss.py; reduction="sum" adds 2 samples x 2 classes
    (MASK_A, "f1", {}, True, 0.307576), (MASK_B, "f1", {}, True, 0.416657),
    (SOFT, "f1", {**OFF, "soft_labels": True}, True, 0.0), (SOFT, "f1", OFF, True, 0.307773),
    (PERFECT, "f1", {**SOFTMAX, **OFF}, True, 0.0), (LINES, "f1", SIGMOID, True, 0.435050),
    (LINES, "f1", SOFTMAX, True, 0.383713), (LINES, "f1", SOFTMAX, True, 1.534853 / 4),
    (MASK_A, "jaccard", {}, True, 0.470451),
    # MONAI tests/losses/test_tversky_loss.py
    (MASK_A, "tversky", {}, True, 0.307576), (MASK_B, "tversky", {}, True, 0.416657),
    (SOFT, "tversky", {**OFF, "soft_labels": True}, True, 0.0), (SOFT, "tversky", OFF, True, 0.307773),
    (PERFECT, "tversky", {**SOFTMAX, **OFF}, True, 0.0), (LINES, "tversky", SIGMOID, True, 0.435050),
    (LINES, "tversky", SIGMOID, False, 0.422979), (LINES, "tversky", SIGMOID, True, 1.74013 / 4),
    (LINES, "tversky", SOFTMAX, True, 0.383713), (MASK_A, "tversky", {"alpha": 0.3, "beta": 0.7}, True, 0.3589),
    (MASK_A, "tversky", {"alpha": 0.7, "beta": 0.3}, True, 0.247366),
    # MONAI tests/losses/test_mcc_loss.py
    (MASK_A, "mcc", {}, True, 0.733197), (MASK_B, "mcc", {"zero_division": 0}, True, 1.0),
    ((CHECKS[0], CHECKS[0]), "mcc", OFF, True, 0.0), (CHECKS, "mcc", OFF, True, 2.0),
    (PERFECT, "mcc", {**SOFTMAX, **OFF}, True, 0.0), (LINES, "mcc", SIGMOID, True, 0.836617),
    (LINES, "mcc", SIGMOID, False, 0.845961), (LINES, "mcc", SIGMOID, True, 3.346468 / 4),
    (LINES, "mcc", SOFTMAX, True, 0.730736),
    (([[[[0.0] * 3] * 3]],) * 2, "mcc", {**OFF, "zero_division": 1}, True, 0.0),
    (([[[[1.0] * 3] * 3]],) * 2, "mcc", {**OFF, "zero_division": 1}, True, 0.0),
    # MONAI tests/losses/test_generalized_dice_loss.py: one channel, so the class weights cancel
    (MASK_B, "f1", {}, True, 0.416597), (SOFT, "f1", OFF, True, 0.307748),
]
# fmt: on


def tensors(data, task=None):
    """Doubles; integer targets become one-hot masks for several labels."""
    z, y = torch.tensor(data[0], dtype=torch.float64), torch.tensor(data[1])
    if y.is_floating_point():
        return z, y.double()
    return z, (one_hot(y, z.shape[1]).movedim(-1, 1).double() if task == "multilabel" else y)


@pytest.mark.parametrize(("data", "metric", "options", "per_sample", "figure"), PUBLISHED)
def test_loss_equals_the_figure_of_monais_tests(data, metric, options, per_sample, figure):
    z, y = tensors(data, options.get("task"))
    loss = AnyLoss(metric, per_sample=per_sample, **options)
    assert loss(z, y).item() == pytest.approx(figure, abs=1e-4)


# fmt: off
TANH = {"from_logits": False, "validate": False}  # decisions outside [0, 1]
DICE = "(2*tp + 1e-4) / (2*tp + fp + fn + 1e-4)"
NO_NUMERATOR = "2*tp / (2*tp + fp + fn + 1e-4)"
MASK_C = ([[[[1.0, 0.0], [-1.0, 1.0]]], MASK_A[0][0]], MASK_B[1])
LABELS = {"task": "multilabel", "average": "macro"}
SQUARES = {"average": "micro", "class_weights": "inverse_square"}
# MONAI tests/losses, as above: other activations, squares, one class, class weights, sums.
# data, activation, metric, options, per_sample, figure
MORE = [
    (MASK_A, None, "f1", {"squared": True}, True, 0.178337),
    (PERFECT, None, "f1", {**SOFTMAX, **OFF, "include_background": False}, True, 0.0),
    (PERFECT, None, "tversky", {**SOFTMAX, **OFF, "include_background": False}, True, 0.0),
    (PERFECT, None, "tp / (tp + fp/2 + fn/2 + 1e-3)", {**SOFTMAX, **OFF, "include_background": False}, True, 0.000999),
    (PERFECT, None, "f1", {**LABELS, **OFF, **SQUARES, "include_background": False}, True, 0.0),
    (MASK_B, "tanh", DICE, TANH, True, 0.999963), (MASK_C, "tanh", DICE, TANH, False, 0.774718),
    (MASK_C, "tanh", NO_NUMERATOR, TANH, False, 0.774733), (MASK_C, "tanh", NO_NUMERATOR, TANH, True, 0.840058),
    (LINES, "log_softmax", DICE, {**TANH, **LABELS}, True, -8.522593),
    (LINES, "log_softmax", DICE, {**TANH, **LABELS, "class_weights": [0, 1]}, True, -8.268515 * 2),
    (MASK_B, "tanh", "(tp + 1e-4) / (tp + fp/2 + fn/2 + 1e-4)", TANH, True, 0.999963),
    (MASK_B, "tanh", "tp / (tp + fp/2 + fn/2 + 1e-3)", TANH, False, 0.999963),
    (LINES, "log_softmax", "(tp + 1e-4) / (tp + fp/2 + fn/2 + 1e-4)", {**TANH, **LABELS}, True, -8.533317),
    (LINES, "log_softmax", DICE, {**TANH, **LABELS, **SQUARES}, True, -0.097833),
    (LINES, None, "f1", {**SOFTMAX, "reduction": "sum"}, True, 1.534853 / 2),
    (LINES, None, "tversky", {**SIGMOID, "reduction": "sum"}, True, 1.74013 / 2),
    (LINES, None, "f1", {**SIGMOID, **SQUARES}, True, 0.469964),
    (LINES, None, "f1", {**SOFTMAX, **SQUARES}, True, 0.414507),
    (LINES, None, "f1", {**SOFTMAX, **SQUARES, "reduction": "sum"}, True, 0.829015),
    (STEEP, None, "f1", {**SOFTMAX, "average": "micro", "class_weights": "inverse"}, True, 0.250023),
]
# fmt: on


@pytest.mark.parametrize(("data", "activation", "metric", "options", "per_sample", "figure"), MORE)
def test_options_of_monai_by_their_figures(data, activation, metric, options, per_sample, figure):
    z, y = tensors(data, options.get("task"))
    if activation is not None:
        z = torch.tanh(z) if activation == "tanh" else torch.log_softmax(z, 1)
    loss = AnyLoss(metric, per_sample=per_sample, **options)
    assert loss(z, y).item() == pytest.approx(figure, rel=1e-4, abs=1e-4)


# Reduction "none": one sample at a time, without an average. Paths as above.
EACH = [
    ("f1", "multilabel", [[0.296529, 0.415136], [0.599976, 0.428559]]),
    ("tversky", "multiclass", [[0.210961, 0.295339], [0.599952, 0.428547]]),
    ("mcc", "multiclass", [[0.461472, 0.461472], [1.0, 1.0]]),
]


@pytest.mark.parametrize(("metric", "task", "figures"), EACH)
def test_losses_of_each_sample_and_class_equal_monais_figures(metric, task, figures):
    z, y = tensors(LINES, task)
    each = any_loss(z, y, metric, task=task, average=None, per_sample=True, reduction="none")
    np.testing.assert_allclose(each.numpy(), figures, atol=1e-4)


def test_generalised_dice_of_each_sample_equals_monais_figures():
    z, y = tensors(LINES, "multiclass")
    loss = AnyLoss("f1", task="multiclass", per_sample=True, reduction="none", **SQUARES)
    np.testing.assert_allclose(loss(z, y).numpy(), [0.273476, 0.555539], atol=1e-4)


def volumes(y, w_type, batch):
    """MONAI's class weights: a power of the volume, per sample or pooled; absent as the largest."""
    axes = [0, *range(2, y.ndim)] if batch else list(range(2, y.ndim))
    w = y.sum(axes, keepdim=True) ** {"square": -2.0, "simple": -1.0, "uniform": 0.0}[w_type]
    w[w.isinf()] = 0.0
    return torch.where(w > 0, w, w.amax(1, keepdim=True)).expand_as(y).clone()


# MONAI tests/losses/test_generalized_dice_loss.py, two channels; "sum" adds two samples
GENERALISED = [
    (LINES, "sigmoid", "square", 0.469964),
    (LINES, "softmax", "square", 0.414507),
    (LINES, "softmax", "square", 0.829015 / 2),
    (LINES, "softmax", "square", (0.273476 + 0.555539) / 2),
    (STEEP, "softmax", "simple", 0.250023),
]


@pytest.mark.parametrize(("data", "act", "w_type", "figure"), GENERALISED)
def test_generalised_dice_is_the_micro_average_with_weights(data, act, w_type, figure):
    z, y = tensors(data, "multilabel")
    p = z.sigmoid() if act == "sigmoid" else z.softmax(1)
    loss = AnyLoss("f1", task="multilabel", average="micro", per_sample=True, **OFF)
    value = loss(p, y, volumes(y, w_type, batch=False))
    assert value.item() == pytest.approx(figure, abs=1e-4)


# MONAI tests/losses/test_generalized_dice_loss.py: the smoothing is added after the weights, and
# class_weights= gives a single class the weight 1, so the weights are those of the samples here.
SMOOTHED = [
    (MASK_B, torch.sigmoid, 0.416597),
    (SOFT, torch.nn.Identity(), 0.307748),
    (MASK_B, torch.tanh, 0.99970),
]


@pytest.mark.parametrize(("data", "act", "figure"), SMOOTHED)
def test_generalised_dice_of_one_class_with_its_smoothing(data, act, figure):
    z, y = tensors(data)
    loss = AnyLoss(DICE, average="micro", task="multilabel", per_sample=True, **TANH)
    value = loss(act(z), y, volumes(y, "square", batch=False))
    assert value.item() == pytest.approx(figure, rel=1e-5)


def test_generalised_dice_of_an_absent_class_is_that_of_its_smoothing():
    p, y = tensors((PERFECT[0], [[0, 0, 0], [0, 0, 0]]), "multilabel")
    weight = torch.ones_like(y)
    weight[:, 1:] = volumes(y[:, 1:], "square", batch=False)
    loss = AnyLoss(
        DICE, average="micro", task="multilabel", per_sample=True, include_background=False, **OFF
    )
    assert loss(p, y, weight).item() == pytest.approx(0.0, abs=1e-7)


def generated(task, seed, absent=False):
    g = torch.Generator().manual_seed(seed)
    channels = 1 if task == "binary" else 4
    z = torch.randn(3, channels, 5, 6, generator=g, dtype=torch.float64)
    if task != "multiclass":
        y = (torch.rand(3, channels, 5, 6, generator=g) < 0.4).double()
        if absent:
            y[:, channels - 1] = 0
        return z, y
    return z, torch.randint(0, 3 if absent else 4, (3, 5, 6), generator=g)


def monai_loss(name, task, **options):
    losses = pytest.importorskip("monai.losses")
    options = {"smooth_nr": 0.0, "smooth_dr": 0.0, **options}
    options["softmax" if task == "multiclass" else "sigmoid"] = True
    loss = getattr(losses, name)(to_onehot_y=task == "multiclass", **options)
    return lambda z, y, **more: loss(z, y[:, None].double() if task == "multiclass" else y, **more)


def assert_same(ours, theirs, z, y, within=1e-9):
    """Values and gradients agree."""
    for loss in (ours, theirs):
        z = z.detach().requires_grad_()
        value = loss(z, y)
        (gradient,) = torch.autograd.grad(value, z)
        if loss is ours:
            first = value.detach(), gradient
    assert first[0].item() == pytest.approx(value.item(), abs=within)
    assert gradient.abs().max() > 1e-4
    torch.testing.assert_close(first[1], gradient, rtol=0, atol=within)


PAIRS = [
    ("f1", {}, "DiceLoss", {}),
    ("jaccard", {}, "DiceLoss", {"jaccard": True}),
    ("tversky", {"alpha": 0.3, "beta": 0.7}, "TverskyLoss", {"alpha": 0.3, "beta": 0.7}),
    ("mcc", {}, "MCCLoss", {}),
]
TASKS = ["binary", "multilabel", "multiclass"]


@pytest.mark.parametrize("per_sample", [True, False])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("metric", "parameters", "name", "options"), PAIRS)
def test_values_and_gradients_equal_monais(metric, parameters, name, options, task, per_sample):
    average = "auto" if task == "binary" else "macro"
    ours = AnyLoss(metric, task=task, average=average, per_sample=per_sample, **parameters)
    theirs = monai_loss(name, task, batch=not per_sample, **options)
    for seed in range(4):
        assert_same(ours, theirs, *generated(task, seed))


@pytest.mark.parametrize("task", ["multilabel", "multiclass"])
@pytest.mark.parametrize(("metric", "parameters", "name", "options"), PAIRS)
def test_absent_classes_count_as_zero_as_in_monai(metric, parameters, name, options, task):
    smooth = {"smooth_dr": 1e-9} if name == "MCCLoss" else {}  # MONAI is 0/0 otherwise
    ours = AnyLoss(metric, task=task, average="macro", zero_division=0, **parameters)
    theirs = monai_loss(name, task, batch=True, **options, **smooth)
    for seed in range(4):
        assert_same(ours, theirs, *generated(task, seed, absent=True))


@pytest.mark.parametrize("per_sample", [True, False])
@pytest.mark.parametrize("absent", [True, False])
def test_monais_smoothing_is_a_formula(per_sample, absent):
    formula = "(2*tp + 1) / (2*tp + fp + fn + 2)"
    ours = AnyLoss(formula, task="multilabel", average="macro", per_sample=per_sample)
    theirs = monai_loss("DiceLoss", "multilabel", batch=not per_sample, smooth_nr=1, smooth_dr=2)
    for seed in range(4):
        assert_same(ours, theirs, *generated("multilabel", seed, absent))


@pytest.mark.parametrize("soft_labels", [True, False])
@pytest.mark.parametrize("per_sample", [True, False])
@pytest.mark.parametrize(("metric", "parameters", "name", "options"), PAIRS[:3])
def test_soft_targets_equal_monais(metric, parameters, name, options, per_sample, soft_labels):
    shared = {"per_sample": per_sample, "soft_labels": soft_labels, **parameters}
    theirs = monai_loss(name, "x", batch=not per_sample, soft_label=soft_labels, **options)
    for task in ("binary", "multilabel"):
        ours = AnyLoss(metric, task=task, average="auto" if task == "binary" else "macro", **shared)
        for seed in range(3):
            z, _ = generated(task, seed)
            y = torch.rand(z.shape, generator=torch.Generator().manual_seed(9), dtype=z.dtype)
            assert_same(ours, theirs, z, y)


@pytest.mark.parametrize("per_sample", [True, False])
@pytest.mark.parametrize("name", ["DiceLoss", "TverskyLoss"])
def test_ignore_index_equals_monais(name, per_sample):
    ours = AnyLoss(
        "f1", task="multiclass", average="macro", per_sample=per_sample, ignore_index=255
    )
    theirs = monai_loss(name, "multiclass", batch=not per_sample, ignore_index=255)
    for seed in range(3):
        z, y = generated("multiclass", seed)
        y[:, 0, :2] = 255
        assert_same(ours, theirs, z, y)


@pytest.mark.parametrize("w_type", ["square", "simple", "uniform"])
@pytest.mark.parametrize("per_sample", [True, False])
def test_generalised_dice_equals_the_weighted_micro_average(w_type, per_sample):
    theirs = monai_loss("GeneralizedDiceLoss", "x", w_type=w_type, batch=not per_sample)
    loss = AnyLoss("f1", task="multilabel", average="micro", per_sample=per_sample)
    for seed in range(3):
        z, y = generated("multilabel", seed)
        w = volumes(y, w_type, not per_sample)
        assert_same(lambda z, y, w=w: loss(z, y, w), theirs, z, y)


# MONAI tests/metrics/test_compute_confusion_matrix.py: reduction "mean", per sample
# fmt: off
Y_PRED = [[[[0, 1], [0, 0]], [[0, 0], [1, 1]], [[1, 0], [0, 0]]], [[[0, 0], [0, 1]], [[1, 0], [0, 0]], [[0, 1], [1, 0]]]]
Y = [[[[0, 0], [0, 1]], [[1, 0], [1, 0]], [[0, 1], [0, 0]]], [[[0, 0], [0, 1]], [[1, 1], [0, 0]], [[0, 0], [1, 0]]]]
HARD = {"recall": 0.5, "specificity": 0.75, "precision": 0.5, "npv": 0.75, "jaccard": 0.3889, "f1": 0.4722,
        "accuracy": 0.6667, "balanced_accuracy": 0.625, "mcc": 0.2480, "fowlkes_mallows": 0.4857,
        "informedness": 0.25, "markedness": 0.25,
        # better when lower: no named metrics, but formulas
        "fn / (fn + tp)": 0.5, "fp / (fp + tn)": 0.25, "fp / (fp + tp)": 0.5, "fn / (fn + tn)": 0.25,
        "(sqrt(tp/(tp+fn) * fp/(fp+tn)) - fp/(fp+tn)) / (tp/(tp+fn) - fp/(fp+tn))": 0.5610}
# fmt: on


@pytest.mark.parametrize(("metric", "figure"), HARD.items())
def test_hard_score_equals_the_figure_of_monais_confusion_matrix_tests(metric, figure):
    loss = AnyLoss(metric, task="multilabel", average="macro", per_sample=True, **OFF)
    score = loss.score(torch.tensor(Y_PRED).double(), torch.tensor(Y).double())
    assert float(score) == pytest.approx(figure, abs=1e-4)


@pytest.mark.parametrize("metric", ["f1", "jaccard"])
def test_hard_score_with_empty_masks_equals_monais_without_ignore_empty(metric):
    metrics = pytest.importorskip("monai.metrics")
    function = metrics.compute_dice if metric == "f1" else metrics.compute_iou
    for seed in range(4):
        z, y = generated("multilabel", seed, absent=True)
        z[0, -1] = -1.0  # empty in both: scores 1
        theirs = function((z > 0).double(), y, ignore_empty=False).mean()
        loss = AnyLoss(metric, task="multilabel", average="macro", per_sample=True, zero_division=1)
        assert float(loss.score(z, y)) == pytest.approx(theirs.item(), abs=1e-6)


def test_a_mask_is_a_weight():
    loss = AnyLoss("f1", per_sample=True, **SIGMOID)
    for seed in range(3):
        z, y = generated("multilabel", seed)
        w = (torch.rand(3, 1, 5, 6, generator=torch.Generator().manual_seed(seed)) < 0.6).double()
        theirs = monai_loss("MaskedDiceLoss", "x")
        assert_same(lambda z, y, w=w: loss(z, y, w.expand_as(z)), partial(theirs, mask=w), z, y)


def test_squared_and_class_weighted_losses_differ():
    z, y = generated("multilabel", 0)
    ours = any_loss(z, y, "f1", per_sample=True, **SIGMOID).item()
    for option in ({"squared_pred": True}, {"weight": (0, 1, 1, 2)}):
        assert abs(monai_loss("DiceLoss", "x", **option)(z, y).item() - ours) > 1e-3


def test_decisions_outside_zero_and_one_are_refused():
    z, y = generated("binary", 0)
    with pytest.raises(ValueError, match="0"):
        any_loss(z.tanh(), y, "f1", task="binary", from_logits=False)


def test_dice_metric_leaves_out_absent_classes_and_the_hard_score_does_not():
    metrics = pytest.importorskip("monai.metrics")
    z, y = generated("multilabel", 0, absent=True)
    metric = metrics.DiceMetric(ignore_empty=True)
    metric((z > 0).double(), y)
    loss = AnyLoss("f1", task="multilabel", average="macro", per_sample=True, zero_division="skip")
    assert float(loss.score(z, y)) == pytest.approx(metric.aggregate().item() * 3 / 4, abs=1e-6)
