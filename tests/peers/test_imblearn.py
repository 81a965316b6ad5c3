"""imbalanced-learn beside anyloss: geometric mean, sensitivity and specificity, hard scores.

Published figures come from imblearn/metrics/tests/test_classification.py of imbalanced-learn.
Its predictions on iris are taken as the confusion matrices that they give.
"""

import numpy as np
import pytest

import anyloss

pytestmark = pytest.mark.filterwarnings("ignore:.*ill-defined")  # scikit-learn, of absent classes

DIFFERENT = [
    ("gmean, average='macro', 'weighted'", "the root of averaged rates; here a mean of roots"),
    ("specificity with sample_weight", "true negatives go unweighted there: values beyond [0, 1]"),
    ("correction=0.001", "a class recall of 0 is replaced; no function of the counts alone"),
    ("gmean, all labels of one class", "1 if right: one class has one recall; binary here: 0"),
    ("labels=[...] leaves out classes", "a choice of classes: take average=None"),
    ("specificity of a class absent everywhere", "labels= keeps it: zero_division=0 or 1 here"),
]  # fmt: skip


def from_confusion(matrix):
    """Labels and one-hot decisions with this confusion matrix (rows are labels)."""
    matrix = np.asarray(matrix)
    y, decided = np.indices(matrix.shape).reshape(2, -1).repeat(matrix.ravel(), axis=1)
    return y, decided


def score(y, decided, metric, count=None, **options):
    """The hard score of decided classes; two classes as one column."""
    y, decided = np.asarray(y), np.asarray(decided)
    count = count or int(max(y.max(), decided.max(), 1)) + 1
    p = decided.astype(float) if count == 2 else np.eye(count)[decided]
    return anyloss.score(y, p, metric, **options)


IRIS_2 = [[22, 3], [8, 17]]
IRIS_3 = [[19, 4, 1], [7, 2, 22], [1, 1, 18]]
IBA = "tp * tn / ((tp + fn) * (tn + fp))"
# test_sensitivity_specificity_score_binary, test_geometric_mean_support_binary,
# test_geometric_mean_score_prediction, test_iba_geo_mean_binary: figures within 1%
IRIS = [
    (IRIS_2, "recall", "auto", 0.68),
    (IRIS_2, "specificity", "auto", 0.88),
    (IRIS_2, "gmean", "auto", 0.77),
    (IRIS_2, IBA, "auto", 0.5948),
    (IRIS_3, "gmean", "auto", 0.36),
    (IRIS_3, "gmean", "multiclass", 0.36),
    (IRIS_3, "gmean", None, [0.82, 0.24, 0.72]),
]
# test_classification_report_imbalanced_multiclass_with_digits: one figure per class, and the mean
# weighted by support
REPORT = {
    "precision": ([0.70370, 0.28571, 0.43902], 0.46035),
    "recall": ([0.79167, 0.06452, 0.90000], 0.52000),
    "specificity": ([0.84314, 0.88636, 0.58182], 0.79132),
    "f1": ([0.74510, 0.10526, 0.59016], 0.43932),
    "gmean": ([0.81700, 0.23913, 0.72363], 0.55325),
}


@pytest.mark.parametrize(("matrix", "metric", "average", "figure"), IRIS)
def test_score_equals_the_figure_of_imbalanced_learns_tests(matrix, metric, average, figure):
    found = score(*from_confusion(matrix), metric, average=average)
    np.testing.assert_allclose(found, figure, rtol=1e-2)


@pytest.mark.parametrize("metric", REPORT)
def test_scores_of_classes_equal_the_figures_of_the_report(metric):
    classes, mean = REPORT[metric]
    y, decided = from_confusion(IRIS_3)
    np.testing.assert_allclose(score(y, decided, metric, average=None), classes, atol=1e-5)
    assert score(y, decided, metric, average="weighted") == pytest.approx(mean, abs=1e-5)


# test_geometric_mean_multiclass, without an effect of correction=
MULTICLASS = [
    ([0, 0, 1, 1], [0, 0, 1, 1], 1.0),
    ([0, 0, 0, 0], [1, 1, 1, 1], 0.0),
    ([0, 0, 1, 1], [0, 1, 1, 0], 0.5),
    ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], 1.0),
    ([0, 1, 1, 1, 1, 0], [0, 0, 1, 1, 1, 1], (0.5 * 0.75) ** 0.5),
    ([0, 1, 2, 0, 1, 2], [0, 2, 1, 0, 0, 1], 0.0),
]


@pytest.mark.parametrize(("y", "decided", "figure"), MULTICLASS)
def test_gmean_equals_the_figure_of_imbalanced_learns_tests(y, decided, figure):
    assert score(y, decided, "gmean") == pytest.approx(figure, abs=1e-9)


def test_gmean_of_each_class_equals_the_figure_of_imbalanced_learns_tests():
    # test_geometric_mean_average, average=None
    found = score([0, 1, 2, 0, 1, 2], [0, 2, 1, 0, 0, 1], "gmean", average=None)
    np.testing.assert_allclose(found, [0.8660254, 0.0, 0.0], atol=1e-6)


# test_sensitivity_specificity_extra_labels: labels 0 and 4 are absent
EXTRA = [
    (None, [1.0, 0.67, 1.0, 1.0, 1.0]),
    ("macro", np.mean([1.0, 0.67, 1.0, 1.0, 1.0])),
    ("micro", 15 / 16),
]


@pytest.mark.parametrize(("average", "figure"), EXTRA)
def test_specificity_with_extra_labels_equals_the_figure(average, figure):
    found = score([1, 3, 3, 2], [1, 1, 3, 2], "specificity", 5, average=average, zero_division=0)
    np.testing.assert_allclose(found, figure, rtol=1e-2)


def generated(classes, seed, present=None, predicted=None):
    rng = np.random.default_rng(seed)
    y, weight = rng.integers(0, present or classes, 80), rng.integers(1, 5, 80).astype(float)
    guess = rng.integers(0, predicted or present or classes, 80)
    return y, np.where(rng.random(80) < 0.5, y, guess), weight


# classes, classes present, classes predicted: the others are absent
SIZES = [(2, 2, 2), (3, 3, 3), (5, 5, 5), (5, 3, 3), (5, 3, 5)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("classes", "present", "predicted"), SIZES)
def test_gmean_equals_imbalanced_learns_also_with_absent_classes(
    classes, present, predicted, weighted
):
    metrics = pytest.importorskip("imblearn.metrics")
    for seed in range(5):
        y, decided, weight = generated(classes, seed, present, predicted)
        w = weight if weighted else None
        theirs = metrics.geometric_mean_score(y, decided, sample_weight=w)
        assert (theirs > 0) == (predicted == present)
        assert score(y, decided, "gmean", classes, weight=w) == pytest.approx(theirs, abs=1e-9)


def repeated(y, decided, weight):
    """Each sample as often as its weight."""
    return np.repeat(y, weight.astype(int)), np.repeat(decided, weight.astype(int))


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", None])
@pytest.mark.parametrize(("classes", "present", "predicted"), SIZES[1:])
def test_rates_equal_imbalanced_learns_and_weights_equal_repetition(
    classes, present, predicted, average
):
    metrics = pytest.importorskip("imblearn.metrics")
    pairs = {"recall": metrics.sensitivity_score, "specificity": metrics.specificity_score}
    if average is None:
        pairs["gmean"] = metrics.geometric_mean_score
    for seed in range(3):
        y, decided, weight = generated(classes, seed, present, predicted)
        for metric, function in pairs.items():
            options = {"average": average, "zero_division": 0}
            for w, data in ((None, (y, decided)), (weight, repeated(y, decided, weight))):
                theirs = function(*data, labels=[*range(classes)], average=average)
                found = score(y, decided, metric, classes, weight=w, **options)
                np.testing.assert_allclose(found, theirs, atol=1e-9)


def test_weighted_specificity_exceeds_one_there():
    metrics = pytest.importorskip("imblearn.metrics")
    y, decided, weight = generated(3, 0)
    theirs = metrics.specificity_score(y, decided, average=None, sample_weight=weight)
    assert theirs.max() > 1.0
    ours = score(y, decided, "specificity", average=None, weight=weight)
    assert ours.max() <= 1.0


def test_binary_sensitivity_and_specificity_equal_imbalanced_learns():
    metrics = pytest.importorskip("imblearn.metrics")
    for seed in range(5):
        y, decided, _ = generated(2, seed)
        theirs = metrics.sensitivity_score(y, decided), metrics.specificity_score(y, decided)
        ours = score(y, decided, "recall"), score(y, decided, "specificity")
        assert ours == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
def test_averages_of_gmean_are_roots_of_averaged_rates_there(average):
    metrics = pytest.importorskip("imblearn.metrics")
    y, decided = [0, 1, 2, 0, 1, 2], [0, 2, 1, 0, 0, 1]  # test_geometric_mean_average, 0.471
    theirs = metrics.geometric_mean_score(y, decided, average=average)
    rates = [score(y, decided, name, average=average) for name in ("recall", "specificity")]
    assert theirs == pytest.approx(0.471, rel=1e-2)
    assert np.prod(rates) ** 0.5 == pytest.approx(theirs, abs=1e-9)
    difference = abs(score(y, decided, "gmean", average=average) - theirs)
    assert difference < 1e-9 if average == "micro" else difference > 0.1


def test_a_correction_is_not_part_of_the_score():
    metrics = pytest.importorskip("imblearn.metrics")
    y, decided = [0, 1, 2, 0, 1, 2], [0, 2, 1, 0, 0, 1]
    theirs = metrics.geometric_mean_score(y, decided, correction=0.001)
    assert theirs == pytest.approx((0.001**2) ** (1 / 3), rel=1e-2)
    assert score(y, decided, "gmean") == 0.0


def test_gmean_of_one_class_only_is_zero_in_one_column_and_one_in_several():
    metrics = pytest.importorskip("imblearn.metrics")
    y = [0, 0, 0, 0]  # test_geometric_mean_multiclass: 1 with any correction
    assert metrics.geometric_mean_score(y, y) == pytest.approx(1.0)
    assert score(y, y, "gmean", 3) == pytest.approx(1.0)
    assert score(y, y, "gmean") == 0.0
