"""Options of the losses beside MONAI, and their gradients in closed form, plain and numeric."""

import math
from unittest import mock

import pytest
import torch

from anyloss.torch import AnyLoss, ScoreMeter, accumulate, any_loss
from anyloss.torch.batch import Batch

GENERATOR = torch.Generator().manual_seed(5)
LOGITS = torch.randn(4, 3, 6, 5, generator=GENERATOR, dtype=torch.float64) * 2
CLASSES = torch.randint(0, 3, (4, 6, 5), generator=GENERATOR)
LABELS = torch.randint(0, 2, (4, 3, 6, 5), generator=GENERATOR).double()
WEIGHTS = [1.0, 3.0, 0.5]
EXACT = {"smooth_nr": 0.0, "smooth_dr": 0.0}


def value_and_gradient(loss, *more):
    z = LOGITS.clone().requires_grad_()
    value = loss(z, *more)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    return value.detach(), gradient


def assert_equal(ours, theirs, factor=1.0, tolerance=1e-9):
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine * factor, other, rtol=0, atol=tolerance)


MONAI = [  # options of MONAI's DiceLoss, ours, and the factor between a sum and a mean
    ({"weight": WEIGHTS}, {"class_weights": WEIGHTS}, sum(WEIGHTS) / 3),
    ({"include_background": False}, {"include_background": False}, 1.0),
    (
        {"include_background": False, "weight": [1.0, 2.0]},
        {"include_background": False, "class_weights": [1.0, 2.0]},
        1.5,
    ),
    ({"reduction": "sum"}, {"reduction": "sum"}, 3.0),  # over the classes as well
    ({"jaccard": True, "weight": WEIGHTS}, {"class_weights": WEIGHTS}, sum(WEIGHTS) / 3),
]


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(("theirs", "ours", "factor"), MONAI)
def test_dice_with_options_is_that_of_monai(theirs, ours, factor, batch):
    losses = pytest.importorskip("monai.losses")
    if batch and "reduction" in ours:
        pytest.skip("one loss per class")
    reference = losses.DiceLoss(softmax=True, to_onehot_y=True, batch=batch, **EXACT, **theirs)
    metric = "jaccard" if theirs.get("jaccard") else "f1"
    found = value_and_gradient(AnyLoss(metric, per_sample=not batch, **ours), CLASSES)
    assert_equal(found, value_and_gradient(reference, CLASSES[:, None]), factor)


def test_one_loss_per_sample_and_class_is_that_of_monai():
    losses = pytest.importorskip("monai.losses")
    reference = losses.DiceLoss(sigmoid=True, reduction="none", **EXACT)
    given = {"task": "multilabel", "per_sample": True, "reduction": "none"}
    value, gradient = value_and_gradient(reference, LABELS)
    found = value_and_gradient(AnyLoss("f1", average=None, **given), LABELS)
    assert_equal(found, (value[..., 0, 0], gradient))
    found = value_and_gradient(AnyLoss("f1", **given), LABELS)
    assert_equal(found, (value[..., 0, 0].mean(1), gradient / 3))


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize(("theirs", "ours"), [("square", "inverse_square"), ("simple", "inverse")])
def test_generalised_dice_is_that_of_monai(theirs, ours, background, batch):
    losses = pytest.importorskip("monai.losses")
    reference = losses.GeneralizedDiceLoss(
        softmax=True, to_onehot_y=True, batch=batch, w_type=theirs,
        include_background=background, **EXACT,
    )  # fmt: skip
    target = CLASSES.clone()
    target[target == 2] = 1  # class 2 is absent and has the largest weight of the others
    for y in (CLASSES, target):
        loss = AnyLoss(
            "f1", average="micro", class_weights=ours, include_background=background,
            per_sample=not batch,
        )  # fmt: skip
        expected = value_and_gradient(reference, y[:, None])  # its weights are float32
        assert_equal(value_and_gradient(loss, y), expected, tolerance=1e-8)


def test_tversky_without_background_is_that_of_monai():
    losses = pytest.importorskip("monai.losses")
    reference = losses.TverskyLoss(
        sigmoid=True, alpha=0.3, beta=0.7, include_background=False, **EXACT
    )
    given = {"task": "multilabel", "per_sample": True, "include_background": False}
    found = value_and_gradient(AnyLoss("tversky", alpha=0.3, beta=0.7, **given), LABELS)
    assert_equal(found, value_and_gradient(reference, LABELS))


OPTIONS = [
    {"class_weights": WEIGHTS},
    {"class_weights": WEIGHTS, "average": "micro"},
    {"class_weights": "inverse_square", "average": "micro"},
    {"class_weights": "inverse", "average": "weighted", "classes": [2, 0]},
    {"classes": [1], "average": None},
    {"include_background": False, "form": "log"},
    {"form": "log", "average": "micro"},
    {"form": "log", "per_sample": True, "zero_division": 1},
    {"per_sample": True, "reduction": "sum", "class_weights": "inverse"},
    {"per_sample": True, "reduction": "sum", "form": "log"},
    {"per_sample": True, "reduction": "none"},
    {"per_sample": True, "reduction": "none", "average": None, "classes": [2, 1]},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("task", ["multilabel", "multiclass"])
def test_closed_form_plain_path_and_finite_differences_agree(task, options):
    y = LABELS if task == "multilabel" else CLASSES
    weight = torch.arange(4.0, dtype=torch.float64)
    loss = AnyLoss("f1", task=task, **options)
    found = value_and_gradient(loss, y, weight)
    with mock.patch.object(Batch, "has_closed_form", return_value=False):
        assert_equal(found, value_and_gradient(loss, y, weight))
    z = LOGITS[:, :, :2, :2].clone().requires_grad_()
    small = y[..., :2, :2]
    assert torch.autograd.gradcheck(lambda z: loss(z, small, weight), z)


@pytest.mark.parametrize(
    ("metric", "options"),
    [
        ("f1", {}),
        ("recall", {"threshold": 0.3}),
        ("balanced_accuracy", {"zero_division": 1}),
        ("f1", {"average": "macro", "class_weights": [1.0, 2.0]}),
    ],
)
def test_the_logarithm_of_a_column_has_the_gradient_of_finite_differences(metric, options):
    z, y = LOGITS[:, 0].reshape(-1)[:20].clone(), (CLASSES.reshape(-1)[:20] > 0).double()
    loss = AnyLoss(metric, form="log", **options)
    assert torch.autograd.gradcheck(lambda z: loss(z, y), z.requires_grad_())
    if "average" not in options:
        expected = -math.log(AnyLoss(metric, **options).soft_score(z, y).item())
        assert loss(z, y).item() == pytest.approx(expected, abs=1e-12)
        assert loss.soft_score(z, y).item() == pytest.approx(math.exp(-expected), abs=1e-12)


def test_the_logarithm_of_multiclass_forms_is_that_of_the_score():
    for metric in ("accuracy", "balanced_accuracy", "gmean"):
        loss, score = AnyLoss(metric, form="log"), AnyLoss(metric).soft_score(LOGITS, CLASSES)
        assert loss(LOGITS, CLASSES).item() == pytest.approx(-math.log(score.item()), abs=1e-12)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("average", ["binary", "macro"])
def test_a_score_of_zero_has_the_loss_of_the_bound_and_a_gradient(closed, average):
    """SMP bounds the score at 1e-7 as well; its gradient vanishes there."""
    z = torch.tensor([-40.0, -41.0, -50.0], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    loss = AnyLoss("recall", form="log", average=average)
    with mock.patch.object(Batch, "has_closed_form", return_value=closed):
        value = loss(z, y)
        value.backward()
    share = 1.0 if average == "binary" else 0.5
    assert value.item() == pytest.approx(-math.log(1e-7) * share, abs=1e-9)
    p = 1 / (1 + math.exp(40))
    assert z.grad[0].item() == pytest.approx(-share * p / 1e-7, rel=1e-6)


def test_metrics_below_zero_have_no_logarithm():
    for metric in ("mcc", "cohen_kappa", "informedness", "tp - fp"):
        with pytest.raises(ValueError, match="is negative where all decisions are wrong"):
            AnyLoss(metric, form="log")


def test_cross_entropy_needs_a_mean_and_accumulation_one_number():
    with pytest.raises(ValueError, match="cross_entropy is a mean .*; got reduction='sum'"):
        AnyLoss(cross_entropy=0.1, per_sample=True, reduction="sum")
    loss = AnyLoss(per_sample=True, reduction="none")
    with pytest.raises(ValueError, match="got average='auto' and reduction='none'"):
        accumulate(loss, torch.nn.Linear(2, 1), [(torch.ones(2, 2), torch.ones(2, 1))])


def test_weights_of_samples_multiply_losses_that_are_not_averaged():
    weight = torch.tensor([2.0, 0.0, 1.0, 0.5], dtype=torch.float64)
    given = {"per_sample": True, "task": "multilabel"}
    each = any_loss(LOGITS, LABELS, **given, reduction="none")
    weighed = any_loss(LOGITS, LABELS, **given, reduction="none", weight=weight)
    torch.testing.assert_close(weighed, each * weight)
    total = any_loss(LOGITS, LABELS, **given, reduction="sum", weight=weight)
    torch.testing.assert_close(total, weighed.sum())
    mean = any_loss(LOGITS, LABELS, **given, weight=weight)
    torch.testing.assert_close(mean, total / weight.sum())
    loss = AnyLoss(**given, reduction="none")
    torch.testing.assert_close(loss.soft_score(LOGITS, LABELS), 1 - each)
    torch.testing.assert_close(
        loss.score(LOGITS, LABELS).mean(), AnyLoss(**given).score(LOGITS, LABELS)
    )


def test_memory_weighs_the_classes_by_all_that_it_remembers():
    """Two batches with a memory near 1 have the weights of both together."""
    given = {"average": "micro", "class_weights": "inverse_square"}
    loss = AnyLoss(**given, memory=1 - 1e-12)
    loss(LOGITS[:2], CLASSES[:2])
    second = loss(LOGITS[2:], CLASSES[2:])
    torch.testing.assert_close(second, any_loss(LOGITS, CLASSES, **given))


def test_the_meter_has_the_options_of_the_score():
    given = {"classes": [2, 0], "class_weights": [1.0, 2.0], "average": "macro"}
    meter = ScoreMeter("jaccard", **given)
    for k in (0, 2):
        meter.update(LOGITS[k : k + 2], CLASSES[k : k + 2])
    expected = AnyLoss("jaccard", **given).score(LOGITS, CLASSES)
    torch.testing.assert_close(meter.compute(), expected)


@pytest.mark.filterwarnings("ignore")
def test_compiled_losses_have_the_options():
    options = {"average": "micro", "class_weights": "inverse_square", "include_background": False}
    loss = AnyLoss(**options, form="log")
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(LOGITS, CLASSES), loss(LOGITS, CLASSES))
