"""Chosen and weighed classes, and reductions over samples, against scikit-learn."""

import re

import numpy as np
import pytest
from sklearn.metrics import f1_score, jaccard_score, recall_score, top_k_accuracy_score

import anyloss
from anyloss import score
from anyloss.steps import Hard, Uniform

RNG = np.random.default_rng(3)
SCORES = RNG.dirichlet(np.ones(5), 60)
CLASSES = RNG.integers(0, 4, 60)  # class 4 is absent from the labels
PREDICTED = SCORES.argmax(1)
LABELS = RNG.integers(0, 2, (60, 5))
REFERENCES = {"f1": f1_score, "jaccard": jaccard_score, "recall": recall_score}


@pytest.mark.parametrize("metric", REFERENCES)
@pytest.mark.parametrize("classes", [[0], [1, 3], [3, 1], [4, 0, 2]], ids=repr)
@pytest.mark.parametrize("average", ["macro", "micro", "weighted", None])
def test_chosen_classes_are_scikit_learns_labels(metric, classes, average):
    given = {"labels": classes, "average": average, "zero_division": 0}
    expected = REFERENCES[metric](CLASSES, PREDICTED, **given)
    found = score(CLASSES, SCORES, metric, classes=classes, average=average)
    assert found == pytest.approx(expected, abs=1e-12)
    expected = REFERENCES[metric](LABELS, SCORES > 0.5, **given)
    found = score(LABELS, SCORES, metric, classes=classes, average=average)
    assert found == pytest.approx(expected, abs=1e-12)


def test_chosen_classes_that_are_absent_count_as_in_scikit_learn():
    truth, scores = np.zeros(4, int), np.eye(4)[[0, 0, 0, 1]]
    expected = f1_score(truth, scores.argmax(1), labels=[0, 3], average="macro", zero_division=0)
    assert score(truth, scores, classes=[0, 3]) == expected
    expected = f1_score(
        truth, scores.argmax(1), labels=[0, 3], average="macro", zero_division=np.nan
    )
    assert score(truth, scores, classes=[0, 3], zero_division="skip") == expected


@pytest.mark.parametrize("average", ["auto", "macro", "micro", "weighted", None])
def test_without_background_the_classes_from_one_on_count(average):
    found = score(CLASSES, SCORES, include_background=False, average=average)
    named = "macro" if average == "auto" else average
    expected = f1_score(CLASSES, PREDICTED, labels=[1, 2, 3, 4], average=named, zero_division=0)
    assert found == pytest.approx(expected, abs=1e-12)


def test_class_weights_are_those_of_a_weighted_mean():
    each = f1_score(CLASSES, PREDICTED, labels=range(5), average=None, zero_division=0)
    weights = [1.0, 2.0, 0.0, 4.0, 0.5]
    options = {"class_weights": weights, "zero_division": 0}
    found = score(CLASSES, SCORES, average="macro", **options)
    assert found == pytest.approx(np.average(each, weights=weights), abs=1e-12)
    support = np.bincount(CLASSES, minlength=5) * weights
    found = score(CLASSES, SCORES, average="weighted", **options)
    assert found == pytest.approx(np.average(each, weights=support), abs=1e-12)
    found = score(CLASSES, SCORES, classes=[3, 0], class_weights=np.array([1, 3]), average="macro")
    assert found == pytest.approx(np.average(each[[3, 0]], weights=[1, 3]), abs=1e-12)


def test_class_weights_multiply_the_counts_of_a_micro_average():
    """As scikit-learn does with one sample per label and this weight."""
    weights = np.array([1.0, 2.0, 0.0, 4.0, 0.5])
    expected = f1_score(
        LABELS.ravel(), SCORES.ravel() > 0.5, sample_weight=np.tile(weights, len(LABELS))
    )
    found = score(LABELS, SCORES, average="micro", class_weights=weights)
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("name", "power"), [("inverse", 1), ("inverse_square", 2)])
def test_computed_weights_are_those_of_the_rarity_of_a_class(name, power):
    positives = np.array([19, 18, 13, 10, 0.0])
    assert np.bincount(CLASSES, minlength=5).tolist() == positives.tolist()
    weights = np.where(positives > 0, 1 / np.maximum(positives, 1) ** power, 1 / 10**power)
    for average in ("macro", "micro", "weighted"):
        found = score(CLASSES, SCORES, average=average, class_weights=name)
        expected = score(CLASSES, SCORES, average=average, class_weights=weights)
        assert found == pytest.approx(expected, abs=1e-12)
    perfect = np.eye(5)[CLASSES]
    assert score(CLASSES, perfect, average="micro", class_weights=name) == 1.0


def test_scores_of_single_samples_are_scikit_learns():
    masks, scores = RNG.integers(0, 2, (6, 1, 5, 5)), RNG.random((6, 1, 5, 5))
    each = [f1_score(y.ravel(), p.ravel() > 0.5) for y, p in zip(masks, scores, strict=True)]
    given = {"per_sample": True}
    assert score(masks, scores, reduction="none", **given) == pytest.approx(each, abs=1e-12)
    assert score(masks, scores, reduction="sum", **given) == pytest.approx(sum(each), abs=1e-12)
    weight = np.arange(6.0)
    found = score(masks, scores, reduction="sum", weight=weight, **given)
    assert found == pytest.approx(weight @ each, abs=1e-12)
    found = score(masks, scores, average=None, reduction="none", task="multilabel", **given)
    assert found == pytest.approx(np.reshape(each, (6, 1)), abs=1e-12)


@pytest.mark.parametrize("metric", REFERENCES)
@pytest.mark.parametrize("rare", [False, True])
def test_the_mean_over_rows_is_scikit_learns_average_of_samples(metric, rare):
    labels = LABELS * (RNG.random(LABELS.shape) < 0.3) if rare else LABELS
    decisions = SCORES > 0.3
    given = {"average": "samples", "zero_division": 0}
    expected = REFERENCES[metric](labels, decisions, **given)
    found = score(labels, SCORES, metric, Hard(0.3), average="samples")
    assert found == pytest.approx(expected, abs=1e-12)
    same = score(
        labels[..., None], SCORES[..., None], metric, Hard(0.3), average="micro",
        per_sample=True, zero_division=0, task="multilabel",
    )  # fmt: skip
    assert found == pytest.approx(same, abs=1e-12)
    expected = REFERENCES[metric](labels, decisions, labels=[1, 4], **given)
    found = score(labels, SCORES, metric, Hard(0.3), average="samples", classes=[1, 4])
    assert found == pytest.approx(expected, abs=1e-12)


THRESHOLDS = [0.1, 0.2, 0.3, 0.4, 0.15]


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", "samples", None])
def test_one_threshold_per_label_is_that_of_scikit_learns_decisions(average):
    expected = f1_score(LABELS, np.array(THRESHOLDS) < SCORES, average=average, zero_division=0)
    found = score(LABELS, SCORES, average=average, threshold=THRESHOLDS)
    assert found == pytest.approx(expected, abs=1e-12)
    tp, fn, fp, _ = anyloss.counts(LABELS, SCORES, threshold=np.array(THRESHOLDS))
    assert 2 * (tp / (2 * tp + fn + fp)) == pytest.approx(
        f1_score(LABELS, np.array(THRESHOLDS) < SCORES, average=None), abs=1e-12
    )


def test_thresholds_per_label_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="one per label, 5; got 2 numbers"):
        score(LABELS, SCORES, threshold=[0.3, 0.5])
    with pytest.raises(ValueError, match="needs labels that do not exclude each other"):
        score(CLASSES, SCORES, threshold=THRESHOLDS)
    with pytest.raises(ValueError, match="must have at least one number; got none"):
        score(LABELS, SCORES, threshold=[])
    with pytest.raises(TypeError, match="threshold must be a sequence; got 'low'"):
        score(LABELS, SCORES, threshold="low")


@pytest.mark.parametrize("top_k", [1, 2, 3, 4])
def test_top_k_accuracy_is_scikit_learns(top_k):
    expected = top_k_accuracy_score(CLASSES, SCORES, k=top_k, labels=range(5))
    assert score(CLASSES, SCORES, "accuracy", top_k=top_k) == pytest.approx(expected, abs=1e-12)
    one_hot = np.eye(5)[CLASSES]
    found = score(one_hot, SCORES, "accuracy", top_k=top_k, task="multiclass")
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"top_k": 0}, "at least 1; got 0"),
        ({"top_k": 6}, "got top_k=6, task='multiclass' and 5 columns"),
        ({"top_k": 2, "step": Uniform()}, "is for the hard decisions of classes"),
        ({"top_k": 2, "y_true": LABELS}, "got top_k=2, task='multilabel'"),
    ],
)
def test_a_top_k_that_does_not_fit_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        score(**{"y_true": CLASSES, "y_score": SCORES} | given)


def test_the_gradient_is_that_of_finite_differences():
    for given in (
        {"average": "micro", "class_weights": "inverse_square", "classes": [0, 1, 3]},
        {"average": "weighted", "class_weights": [1, 2, 3, 4, 5]},
        {"average": "macro", "include_background": False},
    ):
        _, gradient = anyloss.gradient(LABELS, SCORES, "jaccard", **given)
        for at in ((0, 0), (3, 2), (7, 4)):
            h = np.zeros_like(SCORES)
            h[at] = 1e-6
            both = [
                anyloss.gradient(LABELS, SCORES + s * h, "jaccard", **given)[0] for s in (1, -1)
            ]
            assert gradient[at] == pytest.approx((both[0] - both[1]) / 2e-6, abs=1e-8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": [1], "include_background": False}, "both choose the classes that count"),
        ({"classes": [1, 1]}, "must name each class once"),
        ({"classes": []}, "sequence of class numbers from 0 on"),
        ({"classes": [0.5]}, "sequence of class numbers from 0 on"),
        ({"classes": [5]}, r"must leave classes from 0 to 4; got [5]"),
        ({"class_weights": [1, 2]}, "one number for each class that counts, 5; got 2"),
        ({"class_weights": [1, 2, 3], "classes": [0, 1]}, "each class that counts, 2; got 3"),
        ({"class_weights": "balanced"}, "'inverse' or 'inverse_square'; got 'balanced'"),
        ({"class_weights": [1, 2, 3, 4, -1]}, "must be finite numbers >= 0"),
        ({"class_weights": [0] * 5}, "not all of them 0"),
        ({"class_weights": [1] * 5, "average": None}, "average=None, which has none"),
        ({"metric": "mcc", "average": "multiclass", "classes": [1]}, "a formula of its own"),
        ({"reduction": "sum"}, "needs per_sample=True; got per_sample=False"),
        ({"reduction": "all"}, "must be one of 'mean', 'sum', 'none'; got 'all'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        score(CLASSES, SCORES, **options)


def test_a_binary_task_has_no_classes_to_choose():
    for given in ({"classes": [1]}, {"include_background": False}, {"class_weights": [1, 2]}):
        with pytest.raises(ValueError, match="scores the positive class alone"):
            score([0, 1], [0.2, 0.7], **given)
    assert score([0, 1], [0.6, 0.7], average="macro", classes=[0]) == 0.0
    with pytest.raises(TypeError, match="class_weights must be a sequence; got 3"):
        score(CLASSES, SCORES, class_weights=3)


def test_two_classes_without_background_are_the_positive_class():
    truth, scores = CLASSES > 1, SCORES[:, :2] / SCORES[:, :2].sum(1, keepdims=True)
    found = score(truth.astype(int), scores, include_background=False)
    assert found == f1_score(truth, scores.argmax(1))


@pytest.mark.parametrize(
    "metric",
    ["precision", "specificity", anyloss.metric("fbeta", beta=0.5), "tp / (tp + fp)"],
    ids=str,
)
def test_squared_decisions_are_for_metrics_that_they_keep_at_most_1(metric):
    """The false positives of squared decisions may be negative."""
    with pytest.raises(ValueError, match="squared=True needs a metric .* reaches"):
        anyloss.score([1, 1, 0], [0.01, 0.02, 0.01], metric, Uniform(), squared=True)
    for allowed in ("f1", "jaccard", "accuracy", "(2*tp + 1) / (2*tp + fp + fn + 1)"):
        assert anyloss.score([1, 1, 0], [0.01, 0.02, 0.01], allowed, Uniform(), squared=True) <= 1
