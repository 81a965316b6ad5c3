"""torchmetrics beside anyloss: hard scores of one batch, of many batches, and of masks.

Published figures come from torchmetrics' docstrings and tests (the path stands above each table).
torchmetrics takes predicted classes or probabilities; anyloss takes probabilities.
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

# torchmetrics src/torchmetrics/functional/classification/*.py, examples of the docstrings
# fmt: off
BINARY = ([0, 1, 0, 1, 0, 1], [0.11, 0.22, 0.84, 0.73, 0.33, 0.92])
QUARTET = ([1, 1, 0, 0], [0.35, 0.85, 0.48, 0.01])
THREE = ([2, 1, 0, 0], [[0.16, 0.26, 0.58], [0.22, 0.61, 0.17], [0.71, 0.09, 0.20], [0.05, 0.82, 0.13]])
LABELS = ([[0, 1, 0], [1, 0, 1]], [[0.11, 0.22, 0.84], [0.73, 0.33, 0.92]])
MASKS = ([[[0, 1], [1, 0], [0, 1]], [[1, 1], [0, 0], [1, 0]]],
         [[[0.59, 0.91], [0.91, 0.99], [0.63, 0.04]], [[0.38, 0.04], [0.86, 0.780], [0.45, 0.37]]])
CLASSES = ([[[0, 1], [2, 1], [0, 2]], [[1, 1], [2, 0], [1, 2]]], [[[0, 2], [2, 0], [0, 1]], [[2, 2], [2, 1], [1, 0]]])
FOUR = ([1, 1, 2, 0], [2, 0, 2, 1])
F2 = "fbeta(beta=2)"
DOCSTRINGS = [
    (QUARTET, "jaccard", "auto", 0.5), (THREE, "jaccard", "macro", 0.6667), (LABELS, "jaccard", "macro", 0.5),
    (BINARY, F2, "auto", 0.6667), (THREE, F2, "macro", 0.7963), (THREE, F2, None, [0.5556, 0.8333, 1.0]),
    (LABELS, F2, "macro", 0.6111), (LABELS, F2, None, [1.0, 0.0, 0.8333]),
    (BINARY, "f1", "auto", 0.6667), (THREE, "f1", "macro", 0.7778), (THREE, "f1", None, [0.6667, 0.6667, 1.0]),
    (LABELS, "f1", "macro", 0.5556),
    (QUARTET, "mcc", "auto", 0.5774), (THREE, "mcc", "multiclass", 0.7), (LABELS, "mcc", "micro", 0.3333),
    (QUARTET, "cohen_kappa", "auto", 0.5), (THREE, "cohen_kappa", "multiclass", 0.6364),
    (BINARY, "accuracy", "auto", 0.6667), (THREE, "recall", "macro", 0.8333), (THREE, "recall", None, [0.5, 1, 1]),
    (LABELS, "accuracy", "macro", 0.6667), (LABELS, "accuracy", None, [1.0, 0.5, 0.5]),
    (BINARY, "specificity", "auto", 0.6667), (THREE, "specificity", "macro", 0.8889),
    (THREE, "specificity", None, [1.0, 0.6667, 1.0]), (LABELS, "specificity", "macro", 0.6667),
    (LABELS, "specificity", None, [1.0, 1.0, 0.0]),
    (FOUR, "specificity", "macro", 0.6111), (FOUR, "specificity", "micro", 0.625),
    (BINARY, "precision", "auto", 0.6667), (THREE, "precision", "macro", 0.8333),
    (THREE, "precision", None, [1.0, 0.5, 1.0]), (LABELS, "precision", "macro", 0.5),
    (LABELS, "precision", None, [1.0, 0.0, 0.5]),
    (BINARY, "npv", "auto", 0.6667), (THREE, "npv", "macro", 0.8889), (THREE, "npv", None, [0.6667, 1, 1]),
    (LABELS, "npv", "macro", 0.5), (LABELS, "npv", None, [1.0, 0.5, 0.0]),
    (FOUR, "npv", "macro", 0.6667), (FOUR, "npv", "micro", 0.625),
]
SAMPLEWISE = [  # multidim_average="samplewise": the mean of the two figures
    (MASKS, "binary", F2, [0.5882, 0.0]), (MASKS, "binary", "f1", [0.5, 0.0]),
    (MASKS, "binary", "accuracy", [0.3333, 0.1667]), (MASKS, "binary", "specificity", [0.0, 0.3333]),
    (MASKS, "binary", "precision", [0.4, 0.0]), (MASKS, "binary", "recall", [0.6667, 0.0]),
    (MASKS, "binary", "npv", [0.0, 0.25]),
    (MASKS, "multilabel", F2, [0.5556, 0.0]), (MASKS, "multilabel", "accuracy", [0.3333, 0.1667]),
    (MASKS, "multilabel", "specificity", [0.0, 0.3333]), (MASKS, "multilabel", "precision", [0.3333, 0.0]),
    (MASKS, "multilabel", "npv", [0.0, 0.1667]),
    (CLASSES, "multiclass", F2, [0.4697, 0.2706]), (CLASSES, "multiclass", "recall", [0.5, 0.2778]),
    (CLASSES, "multiclass", "specificity", [0.75, 0.6556]), (CLASSES, "multiclass", "precision", [0.3889, 0.2778]),
    (CLASSES, "multiclass", "npv", [0.7833, 0.6556]),
]
# fmt: on


def probabilities(preds, count=3):
    """Predicted classes as one-hot probabilities along axis 1."""
    preds = torch.tensor(preds)
    return preds if preds.is_floating_point() else one_hot(preds, count).movedim(-1, 1).double()


@pytest.mark.parametrize(("data", "metric", "average", "figure"), DOCSTRINGS)
def test_score_equals_the_figure_of_the_docstring(data, metric, average, figure):
    score = anyloss.score(
        np.array(data[0]), probabilities(data[1]).numpy(), metric, average=average
    )
    np.testing.assert_allclose(score, figure, atol=1e-4)


@pytest.mark.parametrize(("data", "task", "metric", "figures"), SAMPLEWISE)
def test_score_per_sample_equals_the_figure_of_the_docstring(data, task, metric, figures):
    average = "auto" if task == "binary" else "macro"
    options = {"task": task, "average": average, "per_sample": True, "zero_division": 0}
    if task == "multiclass":
        options["zero_division"] = "auto"
    score = anyloss.score(np.array(data[0]), probabilities(data[1]).numpy(), metric, **options)
    assert score == pytest.approx(np.mean(figures), abs=1e-4)


# torchmetrics tests/unittests/classification: f_beta, jaccard, matthews_corrcoef (test_corner_case*)
CORNERS = [
    *[("f1", [2, 1, 0, 0], [2, 1, 0, 1], n, "macro", 0.77777779) for n in range(3, 9)],
    ("jaccard", [0, 1], [0, 1], 10, "macro", 1.0),
    ("jaccard", [0, 1], [0, 1], 10, None, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
    ("mcc", [0, 0, 0], [0, 1, 2], 3, "multiclass", 0.0),
]


@pytest.mark.parametrize(("metric", "target", "preds", "count", "average", "figure"), CORNERS)
def test_score_with_absent_classes_equals_the_figure(metric, target, preds, count, average, figure):
    p = probabilities(preds, count).numpy()
    score = anyloss.score(np.array(target), p, metric, average=average)
    np.testing.assert_allclose(score, figure, atol=1e-7)


# torchmetrics tests/unittests/classification: accuracy, precision_recall, specificity (test_corner*)
@pytest.mark.parametrize(
    ("metric", "figures"),
    [("recall", [0, 1, 1]), ("precision", [0, 1, 1]), ("specificity", [1, 1, 1])],
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
    "f1": ("f1_score", {}), F2: ("fbeta_score", {"beta": 2.0}), "jaccard": ("jaccard_index", {}),
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
@pytest.mark.parametrize(("p", "y", "theirs"), [(0, 0, 1), (1, 1, 1), (0, 1, -1), (1, 0, -1)])
def test_mcc_of_one_class_is_zero_as_in_scikit_learn(p, y, theirs):
    metrics = pytest.importorskip("torchmetrics.functional.classification")
    p, y = torch.full((10,), float(p)), torch.full((10,), y)
    assert metrics.binary_matthews_corrcoef(p, y).item() == theirs
    assert anyloss.score(y.numpy(), p.numpy(), "mcc") == 0.0


def test_a_class_that_is_predicted_but_absent_counts_in_macro_recall_only():
    functional = pytest.importorskip("torchmetrics.functional.classification")
    p, y = probabilities([0, 1, 2, 2]), torch.tensor([0, 1, 1, 0])
    theirs = functional.multiclass_accuracy(p, y, 3, average="macro").item()
    assert anyloss.score(y.numpy(), p.numpy(), "recall", average="macro") == pytest.approx(theirs)
    assert anyloss.score(y.numpy(), p.numpy(), "balanced_accuracy") == pytest.approx(0.5)
    assert theirs == pytest.approx(1 / 3)
