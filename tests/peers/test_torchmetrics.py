"""torchmetrics beside anyloss: hard scores of one batch, of many batches, and of masks.

Published figures come from torchmetrics' tests (the path stands above each table); those of its
docstrings are in `test_torchmetrics_figures.py`. torchmetrics takes predicted classes or
probabilities; anyloss takes probabilities.
"""

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

import anyloss
from anyloss.torch import AnyLoss, ScoreMeter

pytestmark = pytest.mark.filterwarnings("ignore:dice_score metric currently:UserWarning")

DIFFERENT = [
    ("multilabel MCC", "torchmetrics adds the labels' counts: average='micro' here, not macro"),
    ("binary MCC, one class only", "torchmetrics gives 1 or -1; scikit-learn and anyloss give 0"),
    ("multiclass_accuracy(average='macro')", "the mean class recall: metric 'recall' here"),
    ("a class absent from the labels but predicted", "recall 0 there; balanced_accuracy drops it"),
    ("MeanIoU(per_class=True) of an absent class", "-1 there; 0, 1 or NaN here, by zero_division"),
]


def probabilities(preds, count=3):
    """Predicted classes as one-hot probabilities along axis 1."""
    preds = torch.tensor(preds)
    return preds if preds.is_floating_point() else one_hot(preds, count).movedim(-1, 1).double()


# torchmetrics tests/unittests/classification: f_beta, jaccard, matthews_corrcoef (test_corner_case*)
CORNERS = [
    *[("f1", [2, 1, 0, 0], [2, 1, 0, 1], n, "macro", 0.77777779) for n in range(3, 9)],
    ("jaccard", [0, 1, 0, 0], [0, 1, 0, 1], 3, None, [2 / 3, 0.5, 0.0]),
    ("jaccard", [0, 1, 0, 0], [0, 1, 0, 1], 3, "macro", 0.5833333),
    ("jaccard", [0, 1], [0, 1], 10, "macro", 1.0),
    ("jaccard", [0, 1], [0, 1], 10, None, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
    ("mcc", [0, 0, 0], [0, 1, 2], 3, "multiclass", 0.0),
]


@pytest.mark.parametrize(("metric", "target", "preds", "count", "average", "figure"), CORNERS)
def test_score_with_absent_classes_equals_the_figure(metric, target, preds, count, average, figure):
    p = probabilities(preds, count).numpy()
    score = anyloss.score(np.array(target), p, metric, average=average)
    np.testing.assert_allclose(score, figure, atol=1e-7)


# torchmetrics tests/unittests/classification (test_corner*): accuracy, negative_predictive_value,
# precision_recall, specificity
@pytest.mark.parametrize(
    ("metric", "figures"),
    [
        ("recall", [0, 1, 1]),
        ("precision", [0, 1, 1]),
        ("specificity", [1, 1, 1]),
        ("npv", [1, 1, 1]),
    ],
)
def test_score_with_an_ignored_class_equals_the_figure(metric, figures):
    y = np.array([0, 1, 2, 0, 1, 2])
    found = anyloss.score(y, np.eye(3)[y], metric, average=None, ignore_index=0)
    np.testing.assert_allclose(found, figures, atol=1e-9)
    assert anyloss.score(y, np.eye(3)[y], metric, average="macro", ignore_index=0) == 1.0


@pytest.mark.parametrize("metric", ["f1", "jaccard", "precision", "recall", "specificity"])
@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
def test_scores_with_ignored_samples_equal_torchmetrics(task, metric):
    functional = pytest.importorskip("torchmetrics.functional.classification")
    count = {"multilabel": {"num_labels": 4}, "multiclass": {"num_classes": 4}}.get(task, {})
    for seed in range(3):
        p, y = generated(task, seed)
        y[torch.rand(y.shape, generator=torch.Generator().manual_seed(seed)) < 0.2] = -1
        function = getattr(functional, f"{task}_{FUNCTIONS[metric][0]}")
        theirs = function(p, y, ignore_index=-1, **count).item()
        average = "auto" if task == "binary" else "macro"
        options = {"average": average, "ignore_index": -1, "from_logits": False}
        found = AnyLoss(metric, task=task, **options).score(p, y)
        assert float(found) == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize(
    ("confusion", "zero_division", "figure"),
    [([4, 0, 0, 0], 0, 0.0), ([4, 0, 0, 0], 1, 1.0), ([2, 1, 1, 1], 0, 1 / 3)],
)
def test_jaccard_without_positives_follows_zero_division(confusion, zero_division, figure):
    # torchmetrics tests/unittests/classification/test_jaccard.py: tn, fp, fn, tp
    y, p = np.repeat([0, 0, 1, 1], confusion), np.repeat([0.0, 1.0, 0.0, 1.0], confusion)
    score = anyloss.score(y, p, "jaccard", zero_division=zero_division)
    assert score == pytest.approx(figure, abs=1e-9)


def missing():
    """Masks of three samples; classes 0 and 2 are empty, the third sample is empty."""
    y, p = np.zeros((2, 3, 4, 10, 10))
    y[0, 1, :4, :4], p[0, 1, :2, :2] = 1, 1
    y[0, 3, 4:, 4:], p[0, 3, 8:, 8:] = 1, 1
    p[1, 3, :2, :2] = 1
    return y, p


# torchmetrics tests/unittests/segmentation/test_dice.py: test_samples_with_missing_classes
MISSING = [
    ("micro", True, 0.1333),
    ("macro", True, 0.15),
    ("weighted", True, 0.1308),
    (None, True, [np.nan, 0.4, np.nan, 0.1]),
    ("micro", False, 0.25),
    ("macro", False, 0.2909),
    ("weighted", False, 0.2490),
    (None, False, [np.nan, 0.4, np.nan, 0.1818]),
]


@pytest.mark.parametrize(("average", "per_sample", "figure"), MISSING)
def test_dice_of_samples_with_missing_classes_equals_the_figure(average, per_sample, figure):
    options = {"task": "multilabel", "zero_division": "skip"}
    score = anyloss.score(*missing(), "f1", average=average, per_sample=per_sample, **options)
    np.testing.assert_allclose(score, figure, atol=1e-4)


@pytest.mark.parametrize("average", ["micro", "macro", "weighted", None])
@pytest.mark.parametrize("per_sample", [True, False])
def test_dice_of_empty_masks_is_undefined(average, per_sample):
    # torchmetrics tests/unittests/segmentation/test_dice.py: test_corner_case_zero_denominator
    y = np.zeros((4, 3, 8, 8))
    options = {"task": "multilabel", "zero_division": "skip", "per_sample": per_sample}
    assert np.isnan(anyloss.score(y, y, "f1", average=average, **options)).all()


def test_mean_iou_leaves_out_absent_classes():
    # torchmetrics tests/unittests/segmentation/test_mean_iou.py: test_mean_iou_absent_class, 1.0
    y = torch.tensor([[0, 1], [1, 0]])
    loss = AnyLoss(
        "iou", per_sample=True, zero_division="skip", from_logits=False, task="multiclass"
    )
    assert loss.score(one_hot(y, 3).movedim(-1, 1).double(), y).item() == pytest.approx(1.0)


# fmt: off
FUNCTIONS = {
    "f1": ("f1_score", {}), "fbeta(beta=2)": ("fbeta_score", {"beta": 2.0}), "jaccard": ("jaccard_index", {}),
    "precision": ("precision", {}), "recall": ("recall", {}), "specificity": ("specificity", {}),
    "npv": ("negative_predictive_value", {}), "accuracy": ("accuracy", {}), "mcc": ("matthews_corrcoef", {}),
    "cohen_kappa": ("cohen_kappa", {}),
}
# fmt: on


def generated(task, seed, present=4):
    g = torch.Generator().manual_seed(seed)
    if task == "binary":
        return torch.rand(60, generator=g), (torch.rand(60, generator=g) < 0.3).long()
    p = torch.rand(60, 4, generator=g)
    if task == "multilabel":
        return p, (torch.rand(60, 4, generator=g) < 0.3).long()
    p[:, 3] *= 0.0 if present < 4 else 1.0  # the fourth class is neither present nor predicted
    return p / p.sum(1, keepdim=True), torch.randint(0, present, (60,), generator=g)


def cases():
    for metric in FUNCTIONS:
        own = metric in ("mcc", "cohen_kappa")
        yield metric, "binary", "auto", 4
        if metric != "cohen_kappa":
            for average in ["micro"] if own else ["macro", "micro", "weighted", None]:
                yield metric, "multilabel", average, 4
        if metric == "accuracy":
            yield metric, "multiclass", "multiclass", 4
        elif own:
            yield metric, "multiclass", "multiclass", 4
            yield metric, "multiclass", "multiclass", 3
        else:
            for average in ["macro", "micro", "weighted", None]:
                yield metric, "multiclass", average, 4
            yield metric, "multiclass", "macro", 3


@pytest.mark.parametrize(("metric", "task", "average", "present"), [*cases()])
def test_scores_of_one_batch_and_of_many_equal_torchmetrics(metric, task, average, present):
    functional = pytest.importorskip("torchmetrics.functional.classification")
    name, options = FUNCTIONS[metric]
    options = dict(options)
    if task != "binary":
        options["num_labels" if task == "multilabel" else "num_classes"] = 4
        if metric not in ("mcc", "cohen_kappa"):
            options["average"] = "micro" if average == "multiclass" else average
    for seed in range(3):
        p, y = generated(task, seed, present)
        theirs = getattr(functional, f"{task}_{name}")(p, y, **options).numpy()
        ours = anyloss.score(y.numpy(), p.numpy(), metric, average=average)
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
        meter = ScoreMeter(metric, average=average, from_logits=False)
        for part, target in zip(p.split(25), y.split(25), strict=True):
            meter.update(part, target)
        np.testing.assert_allclose(meter.compute().numpy(), theirs, atol=1e-6)


@pytest.mark.parametrize("level", ["samplewise", "global"])
@pytest.mark.parametrize("average", ["macro", "micro"])
def test_dice_of_generated_masks_equals_torchmetrics(average, level):
    segmentation = pytest.importorskip("torchmetrics.functional.segmentation")
    for seed in range(4):
        g = torch.Generator().manual_seed(seed)
        p, y = torch.randint(0, 2, (2, 3, 4, 6, 6), generator=g)
        p[0, 1], y[0, 1] = 0, 0
        theirs = segmentation.dice_score(p, y, 4, average=average, aggregation_level=level).mean()
        options = {"task": "multilabel", "average": average, "zero_division": "skip"}
        ours = AnyLoss("f1", per_sample=level == "samplewise", from_logits=False, **options)
        assert ours.score(p.double(), y).item() == pytest.approx(theirs.item(), abs=1e-6)


def test_multilabel_mcc_is_a_micro_average_there():
    functional = pytest.importorskip("torchmetrics.functional.classification")
    p, y = generated("multilabel", 0)
    theirs = functional.multilabel_matthews_corrcoef(p, y, 4).item()
    assert abs(anyloss.score(y.numpy(), p.numpy(), "mcc", average="macro") - theirs) > 1e-3


# torchmetrics tests/unittests/classification/test_matthews_corrcoef.py: test_corner_cases
@pytest.mark.parametrize("task", ["binary", "multilabel"])
@pytest.mark.parametrize(("p", "y", "theirs"), [(0, 0, 1), (1, 1, 1), (0, 1, -1), (1, 0, -1)])
def test_mcc_of_one_class_is_zero_as_in_scikit_learn(p, y, theirs, task):
    metrics = pytest.importorskip("torchmetrics.functional.classification")
    shape, options = ((10,), {}) if task == "binary" else ((10, 5), {"num_labels": 5})
    p, y = torch.full(shape, float(p)), torch.full(shape, y)
    assert getattr(metrics, f"{task}_matthews_corrcoef")(p, y, **options).item() == theirs
    average = "auto" if task == "binary" else "micro"
    assert anyloss.score(y.numpy(), p.numpy(), "mcc", average=average) == 0.0


@pytest.mark.parametrize(("p", "y"), [([0] * 10, [0, 1] * 5), ([1, 0] * 5, [0] * 10)])
def test_mcc_of_one_class_in_labels_or_decisions_is_the_figure(p, y):
    assert anyloss.score(np.array(y), np.array(p, dtype=float), "mcc") == 0.0  # torchmetrics: 0


def test_a_class_that_is_predicted_but_absent_counts_in_macro_recall_only():
    functional = pytest.importorskip("torchmetrics.functional.classification")
    p, y = probabilities([0, 1, 2, 2]), torch.tensor([0, 1, 1, 0])
    theirs = functional.multiclass_accuracy(p, y, 3, average="macro").item()
    assert anyloss.score(y.numpy(), p.numpy(), "recall", average="macro") == pytest.approx(theirs)
    assert anyloss.score(y.numpy(), p.numpy(), "balanced_accuracy") == pytest.approx(0.5)
    assert theirs == pytest.approx(1 / 3)
