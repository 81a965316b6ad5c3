"""Averages over several classes and labels against the outside reference, absent classes included.

The table that these tests hold is in docs/metrics.md.
"""

import math
import warnings

import numpy as np
import pytest
import torch
from imblearn.metrics import geometric_mean_score, specificity_score
from scipy.stats import hmean
from sklearn import metrics as sk

import anyloss
from anyloss.torch import AnyLoss, ScoreMeter

CASES = 1000
ZERO = {"average": "macro", "zero_division": 0}


def quietly(function, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(function(*arguments, **options))


def kappa(y, d):
    value = quietly(sk.cohen_kappa_score, y, d)
    return 0.0 if math.isnan(value) else value  # scikit-learn's NaN: one class everywhere


SEVERAL_CLASSES = {
    "accuracy": sk.accuracy_score,
    "mcc": sk.matthews_corrcoef,
    "cohen_kappa": kappa,
    "balanced_accuracy": sk.balanced_accuracy_score,
    "gmean": lambda y, d: geometric_mean_score(y, d, average="multiclass"),
    "hmean": lambda y, d: hmean(sk.recall_score(y, d, average=None, zero_division=0)),
    "precision": lambda y, d: sk.precision_score(y, d, **ZERO),
    "recall": lambda y, d: sk.recall_score(y, d, **ZERO),
    "f1": lambda y, d: sk.f1_score(y, d, **ZERO),
    "fbeta": lambda y, d: sk.fbeta_score(y, d, beta=1.0, **ZERO),
    "jaccard": lambda y, d: sk.jaccard_score(y, d, **ZERO),
    "specificity": lambda y, d: specificity_score(y, d, average="macro"),
}
SEVERAL_LABELS = {
    "precision": lambda y, d: sk.precision_score(y, d, **ZERO),
    "recall": lambda y, d: sk.recall_score(y, d, **ZERO),
    "f1": lambda y, d: sk.f1_score(y, d, **ZERO),
    "fbeta": lambda y, d: sk.fbeta_score(y, d, beta=1.0, **ZERO),
    "jaccard": lambda y, d: sk.jaccard_score(y, d, **ZERO),
    "mcc": lambda y, d: np.mean(
        [sk.matthews_corrcoef(*pair) for pair in zip(y.T, d.T, strict=True)]
    ),
    "accuracy": lambda y, d: np.mean(
        [sk.accuracy_score(*pair) for pair in zip(y.T, d.T, strict=True)]
    ),
    "cohen_kappa": lambda y, d: np.mean([kappa(*pair) for pair in zip(y.T, d.T, strict=True)]),
}
NAMES = sorted({function.__name__ for function in anyloss.METRICS.values()})


def class_cases(seed, cases=CASES):
    """Labels, decisions and a number of classes of which some are absent from either or both."""
    rng = np.random.default_rng(seed)
    for _ in range(cases):
        classes, n = rng.integers(3, 8), rng.integers(1, 25)
        present = rng.permutation(classes)[: rng.integers(1, classes + 1)]
        predicted = rng.permutation(classes)[: rng.integers(1, classes + 1)]
        y, d = rng.choice(present, n), rng.choice(predicted, n)
        yield np.where(rng.random(n) < 0.4, y, d) if rng.random() < 0.5 else y, d, int(classes)


def label_cases(seed, cases=CASES):
    rng = np.random.default_rng(seed)
    for _ in range(cases):
        shape = (rng.integers(1, 20), rng.integers(2, 6))
        rate, other = rng.random((2, shape[1])) * (rng.random((2, shape[1])) < 0.7)
        yield (rng.random(shape) < rate).astype(int), (rng.random(shape) < other).astype(int)


def by_class(name, y, d, kept):
    """The mean over some classes of the binary metric, from scikit-learn's confusion matrices."""
    cells = sk.multilabel_confusion_matrix(y, d, labels=kept).reshape(-1, 4).astype(float)
    tn, fp, fn, tp = cells.T
    return np.mean(anyloss.metric(name)(tp, fn, fp, tn))


@pytest.mark.slow("a thousand cases each")
@pytest.mark.parametrize("name", NAMES)
def test_several_classes_equal_the_reference(name):
    for y, d, classes in class_cases(len(name)):
        reference = SEVERAL_CLASSES.get(name)
        if reference is None:
            expected = by_class(name, y, d, sorted(set(y) | set(d)))
        else:
            expected = quietly(reference, y, d)
        ours = anyloss.score(y, np.eye(classes)[d], name)
        assert ours == pytest.approx(expected, abs=1e-12), (name, y, d)


@pytest.mark.slow("a thousand cases each")
@pytest.mark.parametrize("name", NAMES)
def test_several_labels_equal_the_reference(name):
    for y, d in label_cases(len(name)):
        reference = SEVERAL_LABELS.get(name)
        if reference is None:
            tn, fp, fn, tp = sk.multilabel_confusion_matrix(y, d).reshape(-1, 4).T.astype(float)
            expected = np.mean(anyloss.metric(name)(tp, fn, fp, tn))
        else:
            expected = quietly(reference, y, d)
        assert anyloss.score(y, d, name) == pytest.approx(expected, abs=1e-12), (name, y, d)


@pytest.mark.parametrize("name", ["precision", "recall", "f1", "jaccard"])
@pytest.mark.parametrize("average", ["macro", "weighted", "micro", None])
@pytest.mark.parametrize(("ours", "theirs"), [(0, 0), (1, 1), ("skip", np.nan)])
def test_zero_division_is_that_of_scikit_learn(name, average, ours, theirs):
    reference = getattr(sk, f"{name}_score")
    if name == "jaccard" and ours == "skip":
        pytest.skip("scikit-learn's jaccard_score takes no nan")
    for y, d, classes in class_cases(7, 200):
        given = {"average": average, "zero_division": theirs, "labels": range(classes)}
        expected = reference(y, d, **given)
        found = anyloss.score(y, np.eye(classes)[d], name, average=average, zero_division=ours)
        np.testing.assert_allclose(found, expected, atol=1e-12)
    for y, d in label_cases(7, 200):
        expected = reference(y, d, average=average, zero_division=theirs)
        found = anyloss.score(y, d, name, average=average, zero_division=ours)
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_cases_that_were_wrong():
    """Two of six classes absent; two of ten present; accuracy at chance of a thousand classes."""
    rng = np.random.default_rng(0)
    y, d = rng.integers(0, 4, 20), rng.integers(0, 4, 20)
    z, target = torch.eye(6)[torch.tensor(d)] * 9, torch.tensor(y)
    expected = sk.f1_score(y, d, average="macro")
    assert AnyLoss("f1").score(z, target).item() == pytest.approx(expected, abs=1e-12)
    meter = ScoreMeter("f1")
    meter.update(z, target)
    assert meter.compute().item() == pytest.approx(expected, abs=1e-12)
    two = torch.tensor([3, 3, 8, 8])
    assert AnyLoss("jaccard").score(torch.eye(10)[two], two).item() == 1.0
    y, d = rng.integers(0, 1000, 3000), rng.integers(0, 1000, 3000)
    correct = np.mean(y == d)
    assert anyloss.score(y, np.eye(1000)[d], "accuracy") == pytest.approx(correct, abs=1e-12)


# What the loss does with a class for which a perfect decision would give 0/0.


def soft_f1(y, p):
    return 2 * (y * p).sum() / (y.sum() + p.sum())


def test_skipped_classes_leave_the_mean_of_the_loss():
    rng = np.random.default_rng(1)
    y, p = rng.integers(0, 3, 12), rng.dirichlet(np.ones(5), 12)
    of_class = [soft_f1(y == c, p[:, c]) for c in range(5)]
    given = {"step": anyloss.steps.Uniform()}
    assert anyloss.score(y, p, "f1", **given) == pytest.approx(np.mean(of_class[:3]))
    zero = anyloss.score(y, p, "f1", zero_division=0, **given)
    assert zero == pytest.approx(np.mean([*of_class[:3], 0, 0]))
    one = anyloss.score(y, p, "f1", zero_division=1, **given)
    punished = [1 - p[:, c].mean() for c in (3, 4)]
    assert one == pytest.approx(np.mean([*of_class[:3], *punished]))


def test_nothing_left_is_loss_zero_with_a_graph():
    z = torch.randn(6, 4, requires_grad=True)
    loss = AnyLoss("f1", task="multilabel", zero_division="skip")
    value = loss(z, torch.zeros(6, 4))
    value.backward()
    assert value.item() == 0.0
    assert torch.equal(z.grad, torch.zeros(6, 4))
    assert math.isnan(loss.score(z, torch.zeros(6, 4)).item()) == bool((z <= 0).all())


def test_a_label_that_is_ignored_everywhere_has_nothing_to_punish():
    z = torch.tensor([[2.0, -9.0], [-2.0, -9.0]])
    y = torch.tensor([[1.0, 255.0], [0.0, 255.0]])
    loss = AnyLoss("f1", average=None, ignore_index=255, zero_division=1)
    assert loss(z, y)[1].item() == 0.0
    assert loss.score(z, y).tolist() == [1.0, 1.0]


def test_a_mask_without_a_positive_pixel_punishes_false_positives():
    """Per sample: the mean of Dice, and one minus the mean decision for the empty mask."""
    g = torch.Generator().manual_seed(0)
    z = torch.randn(3, 1, 4, 4, generator=g, dtype=torch.float64).requires_grad_()
    y = (torch.rand(3, 1, 4, 4, generator=g) < 0.4).double()
    y[1] = 0
    p = torch.sigmoid(z.detach()).numpy()
    expected = np.mean([soft_f1(y[0].numpy(), p[0]), 1 - p[1].mean(), soft_f1(y[2].numpy(), p[2])])
    loss = AnyLoss("f1", per_sample=True)
    value = loss(z, y)
    assert value.item() == pytest.approx(1 - expected, abs=1e-12)
    value.backward()
    assert (z.grad[1] > 0).all()
    skipped = AnyLoss("f1", per_sample=True, zero_division="skip")(z, y)
    without = AnyLoss("f1", per_sample=True)(z[[0, 2]], y[[0, 2]])
    torch.testing.assert_close(skipped, without)
    zero = AnyLoss("f1", per_sample=True, zero_division=0).soft_score(z, y).item()
    assert zero == pytest.approx((2 * (1 - without.item())) / 3, abs=1e-12)


def test_samples_weigh_alike_or_by_their_valid_pixels():
    g = torch.Generator().manual_seed(3)
    z, y = torch.randn(2, 1, 4, 4, generator=g), torch.ones(2, 1, 4, 4, dtype=torch.long)
    y[0, 0, :2, :2] = 0
    y[1, 0, :, 1:] = 9  # a quarter of the second sample is valid
    apart = [AnyLoss("iou", ignore_index=9)(z[i : i + 1], y[i : i + 1]).item() for i in (0, 1)]
    alike = AnyLoss("iou", ignore_index=9, per_sample=True)(z, y).item()
    assert alike == pytest.approx(np.mean(apart), abs=1e-6)
    weighted = AnyLoss("iou", ignore_index=9, per_sample="weighted")(z, y).item()
    assert weighted == pytest.approx(np.average(apart, weights=[16, 4]), abs=1e-6)
    given = AnyLoss("iou", ignore_index=9, per_sample=True)(z, y, torch.tensor([2.0, 1.0])).item()
    assert given == pytest.approx(np.average(apart, weights=[2, 1]), abs=1e-6)


def test_a_class_that_a_remembered_batch_had_is_not_skipped():
    """The counts of the batch and of the remembered batches decide together."""
    g = torch.Generator().manual_seed(0)
    z = torch.randn(12, 3, generator=g, dtype=torch.float64)
    y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 0, 1, 0, 1])  # the second half has no class 2
    loss = AnyLoss("f1", memory=0.5)
    loss(z[:6].requires_grad_(), y[:6])
    weight = torch.tensor([0.5] * 6 + [1.0] * 6).double()
    expected = AnyLoss("f1")(z, y, weight)
    torch.testing.assert_close(loss(z[6:].requires_grad_(), y[6:]), expected)
    assert abs(AnyLoss("f1")(z[6:], y[6:]) - expected) > 1e-3
