"""Options of the losses beside MONAI, and their gradients in closed form, plain and numeric."""

import math
from unittest import mock

import pytest
import torch

import anyloss
from anyloss.steps import Amplified, Linear, Uniform
from anyloss.torch import AnyLoss, ScoreMeter, accumulate, any_loss, soft_counts
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
    ({"squared_pred": True}, {"squared": True}, 1.0),
    ({"squared_pred": True, "jaccard": True}, {"squared": True}, 1.0),
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
    expected = value_and_gradient(reference, CLASSES[:, None])
    tolerance = 3e-8 if "squared" in ours else 1e-9  # norms of float32 labels, squared
    assert_equal(found, expected, factor, tolerance)


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
    {"squared": True, "per_sample": True},
    {"squared": True, "class_weights": "inverse", "form": "log"},
    {"per_sample": True, "reduction": "none"},
    {"per_sample": True, "reduction": "none", "average": None, "classes": [2, 1]},
    {"per_sample": True, "reduction": "none", "form": "log", "squared": True},
    {"activation": "softmax", "squared": True},
    {"activation": "sigmoid", "average": None},
    {"activation": "sigmoid", "per_sample": True, "reduction": "none", "ignore_index": 1},
    {"activation": "softmax", "step": Amplified(10.0)},
    {"activation": "sigmoid", "step": Amplified(10.0)},
    {"average": None, "squared": True, "step": Amplified(10.0)},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("task", ["multilabel", "multiclass"])
def test_closed_form_plain_path_and_finite_differences_agree(task, options):
    y = LABELS if task == "multilabel" else CLASSES
    weight = torch.arange(4.0, dtype=torch.float64)
    if task == "multilabel" and "ignore_index" in options:
        options = options | {"ignore_index": 255}
    loss = AnyLoss("f1", task=task, **options)
    found = value_and_gradient(loss, y, weight)
    with mock.patch.object(Batch, "has_closed_form", return_value=False):
        assert_equal(found, value_and_gradient(loss, y, weight))
    z = LOGITS[:, :, :2, :2].clone().requires_grad_()
    small = y[..., :2, :2]
    assert torch.autograd.gradcheck(lambda z: loss(z, small, weight), z)


@pytest.mark.parametrize("step", [Uniform(), Amplified(10.0), Linear()])
def test_thresholds_per_label_have_the_gradient_of_finite_differences(step):
    loss = AnyLoss("f1", task="multilabel", step=step, threshold=[0.2, 0.5, 0.8])
    z = LOGITS[:, :, :2, :2].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, LABELS[..., :2, :2]), z)


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


def test_a_softmax_over_labels_is_that_of_monai():
    losses = pytest.importorskip("monai.losses")
    reference = losses.DiceLoss(softmax=True, **EXACT)
    given = {"task": "multilabel", "per_sample": True}
    found = value_and_gradient(AnyLoss("f1", activation="softmax", **given), LABELS)
    assert_equal(found, value_and_gradient(reference, LABELS))


def test_a_sigmoid_over_classes_is_that_of_monai():
    losses = pytest.importorskip("monai.losses")
    reference = losses.DiceLoss(sigmoid=True, to_onehot_y=True, batch=True, **EXACT)
    found = value_and_gradient(AnyLoss("f1", activation="sigmoid"), CLASSES)
    assert_equal(found, value_and_gradient(reference, CLASSES[:, None]))
    same = AnyLoss("f1", activation="softmax")(LOGITS, CLASSES)  # what the task has anyway
    torch.testing.assert_close(same, AnyLoss("f1")(LOGITS, CLASSES))


def test_squared_accuracy_is_one_minus_the_brier_score():
    p, y = torch.sigmoid(LOGITS[:, 0]), LABELS[:, 0]
    loss = any_loss(LOGITS[:, 0], y, "accuracy", squared=True, task="binary")
    torch.testing.assert_close(loss, ((p - y) ** 2).mean())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "softmax", "from_logits": False}, "have no activation"),
        ({"activation": "softmax", "cross_entropy": 0.1}, "has the activation of the task"),
        ({"activation": "tanh"}, "one of 'auto', 'sigmoid', 'softmax'; got 'tanh'"),
        ({"squared": True, "soft_labels": True}, "two ways to count"),
        ({"average": "samples", "memory": 0.9}, "needs counts over the batch"),
    ],
)
def test_options_that_exclude_each_other_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AnyLoss("f1", **options)


def test_options_that_do_not_fit_the_task_are_refused():
    column, labels = LOGITS[:, 0, 0], LABELS[:, 0, 0]
    with pytest.raises(ValueError, match="is over several classes or labels"):
        any_loss(column, labels, task="binary", activation="softmax")
    with pytest.raises(ValueError, match="needs task='multilabel'; got a multiclass task"):
        any_loss(LOGITS, CLASSES, average="samples")
    with pytest.raises(ValueError, match="keeps no samples; got average='samples'"):
        ScoreMeter("f1", average="samples")


COUNTED = [  # shape of the labels, options, shape of the counts
    (LABELS[:, 0], {"task": "binary"}, ()),
    (LABELS[:, 0], {"task": "binary", "per_sample": True}, (4,)),
    (LABELS, {"task": "multilabel"}, (3,)),
    (CLASSES, {"per_sample": True, "squared": True}, (4, 3)),
]


@pytest.mark.parametrize(("y", "options", "shape"), COUNTED)
def test_soft_counts_are_those_of_numpy_and_of_the_loss(y, options, shape):
    z = LOGITS[:, 0] if options.get("task") == "binary" else LOGITS
    weight = torch.arange(4.0, dtype=torch.float64)
    found = soft_counts(z, y, weight, **options)
    expected = anyloss.counts(
        y.numpy(), z.numpy(), Uniform(), from_logits=True, weight=weight.numpy(), **options
    )
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.shape == shape
        torch.testing.assert_close(mine, torch.as_tensor(theirs, dtype=torch.float64))
    x = z.clone().requires_grad_()
    tp, fn, fp, _ = soft_counts(x, y, **options)
    (gradient,) = torch.autograd.grad((1 - 2 * tp / (2 * tp + fp + fn)).mean(), x)
    x = z.clone().requires_grad_()
    average = "binary" if options.get("task") == "binary" else "macro"
    (own,) = torch.autograd.grad(any_loss(x, y, average=average, **options), x)
    torch.testing.assert_close(gradient, own, rtol=0, atol=1e-9)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", None])
@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_top_k_is_that_of_torchmetrics(top_k, average):
    functional = pytest.importorskip("torchmetrics.functional.classification")
    z, y = LOGITS.movedim(1, -1).reshape(-1, 3)[:50], CLASSES.reshape(-1)[:50]
    given = {"num_classes": 3, "top_k": top_k, "average": average}
    meter = ScoreMeter("f1", top_k=top_k, average=average)
    for part in (slice(0, 20), slice(20, 50)):
        meter.update(z[part], y[part])
    expected = functional.multiclass_f1_score(z, y, **given).double()
    torch.testing.assert_close(meter.compute(), expected, rtol=0, atol=1e-6)
    found = AnyLoss("f1", top_k=top_k, average=average).score(z, y)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(any_loss(z, y, top_k=top_k), any_loss(z, y))


def test_thresholds_per_label_count_in_the_loss_the_score_and_the_meter():
    functional = pytest.importorskip("torchmetrics.functional.classification")
    z, y, thresholds = LOGITS[:, :, 0, 0], LABELS[:, :, 0, 0], [0.2, 0.5, 0.8]
    shifted = torch.sigmoid(z) > torch.tensor(thresholds)
    expected = functional.multilabel_f1_score(shifted.double(), y.long(), num_labels=3).double()
    meter = ScoreMeter("f1", threshold=thresholds)
    meter.update(z, y)
    torch.testing.assert_close(meter.compute(), expected, rtol=0, atol=1e-6)
    loss = AnyLoss("f1", step=Amplified(10.0), threshold=torch.tensor(thresholds))
    torch.testing.assert_close(loss.score(z, y), expected, rtol=0, atol=1e-6)
    assert torch.autograd.gradcheck(lambda z: loss(z, y), z.clone().requires_grad_())
    each = [
        any_loss(z[:, k], y[:, k], step=Amplified(10.0, thresholds[k]), zero_division=0)
        for k in range(3)
    ]
    torch.testing.assert_close(loss(z, y), torch.stack(each).mean())
    with pytest.raises(ValueError, match="cannot be combined with thresholds="):
        AnyLoss(threshold=thresholds, thresholds=[0.3])


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


@pytest.mark.parametrize(
    "given",
    [
        {"average": "micro", "class_weights": "inverse_square"},
        {"classes": [2, 0], "class_weights": [1.0, 3.0], "form": "log"},
        {"squared": True, "include_background": False},
        {"activation": "sigmoid", "step": Amplified(10.0)},
    ],
    ids=str,
)
def test_memory_counts_two_batches_as_one(given):
    """Two batches with a memory near 1 have the loss of both together."""
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
