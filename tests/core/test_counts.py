"""Shapes, averages and weights of the counts, against scikit-learn."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

import anyloss
from anyloss import counts, score
from anyloss.steps import Amplified, Hard, Linear, LogitSigmoid, RaisedCosine, Uniform

ZERO = {"zero_division": 0.0}
AVERAGED = {
    "f1": sk.f1_score,
    "jaccard": sk.jaccard_score,
    "precision": sk.precision_score,
    "recall": sk.recall_score,
}


def cases(kind):
    """Random scores, labels and weights: classes may be absent, scores may tie."""

    @st.composite
    def draw_case(draw):
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        n, classes = draw(st.integers(1, 20)), draw(st.integers(2, 5))
        weight = rng.integers(0, 3, n) if draw(st.booleans()) else None
        if weight is not None:
            weight[0] += 1  # scikit-learn refuses weights that are all zero
        if kind == "binary":
            return rng.integers(0, 2, n), rng.integers(0, 5, n) / 4, weight
        if kind == "multilabel":
            return rng.integers(0, 2, (n, classes)), rng.integers(0, 5, (n, classes)) / 4, weight
        return rng.integers(0, classes, n), rng.dirichlet(np.ones(classes), n), weight

    return draw_case()


@pytest.mark.slow("a thousand cases each")
@pytest.mark.parametrize("average", ["macro", "micro", "weighted", None])
@pytest.mark.parametrize("kind", ["binary", "multilabel", "multiclass"])
@given(st.data())
@settings(max_examples=1000, deadline=None)
def test_averages_equal_scikit_learn(kind, average, data):
    y, p, weight = data.draw(cases(kind))
    name = data.draw(st.sampled_from(sorted(AVERAGED)))
    if kind == "binary":
        decided, labels = (p > 0.5).astype(int), [0, 1]
    elif kind == "multilabel":
        decided, labels = (p > 0.5).astype(int), None
    else:
        decided, labels = p.argmax(1), range(p.shape[1])
    labels = labels if average is None else None  # averages run over labels and predictions
    rows = slice(None) if weight is None else weight > 0  # a row of weight 0 is no row
    expected = AVERAGED[name](
        y[rows], decided[rows], average=average, labels=labels,
        sample_weight=None if weight is None else weight[rows], **ZERO,
    )  # fmt: skip
    ours = score(y, p, name, average=average, weight=weight)
    np.testing.assert_allclose(ours, expected, atol=1e-12)


@pytest.mark.slow("a thousand cases each")
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("mcc", sk.matthews_corrcoef),
        # undefined with one class only: 0 here
        ("cohen_kappa", partial(sk.cohen_kappa_score, replace_undefined_by=0.0)),
        ("accuracy", sk.accuracy_score),
    ],
)
@pytest.mark.parametrize("kind", ["binary", "multiclass"])
@pytest.mark.filterwarnings("ignore:A single label was found")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@given(st.data())
@settings(max_examples=1000, deadline=None)
def test_multiclass_forms_equal_scikit_learn(kind, name, reference, data):
    y, p, weight = data.draw(cases(kind))
    decided = (p > 0.5).astype(int) if kind == "binary" else p.argmax(1)
    expected = reference(y, decided, sample_weight=weight)
    assert score(y, p, name, average="multiclass", weight=weight) == pytest.approx(
        expected, abs=1e-12
    )


def test_multilabel_confusion_matrix():
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, (50, 4)), rng.random((50, 4))
    tp, fn, fp, tn = counts(y, p)
    matrix = sk.multilabel_confusion_matrix(y, p > 0.5)
    np.testing.assert_array_equal(matrix[:, 1, 1], tp)
    np.testing.assert_array_equal(matrix[:, 1, 0], fn)
    np.testing.assert_array_equal(matrix[:, 0, 1], fp)
    np.testing.assert_array_equal(matrix[:, 0, 0], tn)


STEPS = [Amplified(10.0), Linear(0.1, 0.3), RaisedCosine(0.3), Uniform(), LogitSigmoid(2.0), Hard()]


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_weight_two_is_the_row_twice_and_weight_zero_is_no_row(step):
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, 30), rng.random(30)
    weight = rng.integers(0, 3, 30)
    weighted = counts(y, p, step, weight=weight)
    repeated = counts(np.repeat(y, weight), np.repeat(p, weight), step)
    np.testing.assert_allclose(list(weighted), list(repeated), rtol=1e-12)
    # whatever stands in a row of weight 0
    y, p = y.astype(float), p.copy()
    y[weight == 0], p[weight == 0] = np.nan, 7.0
    np.testing.assert_allclose(list(counts(y, p, step, weight=weight)), list(repeated), rtol=1e-12)


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_counts_merge_by_addition(step):
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, 30), rng.random(30)
    merged = counts(y[:10], p[:10], step) + counts(y[10:], p[10:], step)
    np.testing.assert_allclose(list(merged), list(counts(y, p, step)), rtol=1e-12)


def test_soft_labels_are_split_between_the_classes():
    soft = counts([0.25, 1.0], [0.9, 0.2], Uniform())
    np.testing.assert_allclose(list(soft), [0.225 + 0.2, 0.025 + 0.8, 0.675, 0.075])


def test_logits_and_probabilities_agree():
    rng = np.random.default_rng(0)
    y, z = rng.integers(0, 2, 30), rng.normal(size=30) * 3
    for step in STEPS:
        np.testing.assert_allclose(
            list(counts(y, z, step, from_logits=True)),
            list(counts(y, 1 / (1 + np.exp(-z)), step)),
            rtol=1e-9,
        )


def test_two_classes_are_the_binary_step_exactly():
    rng = np.random.default_rng(0)
    y, z = rng.integers(0, 2, 40), rng.normal(size=(40, 2)) * 4
    for step in (Amplified(10.0), Amplified(73.0), Uniform(), Hard()):
        two = counts(y, z, step, from_logits=True)
        one = counts(y, z[:, 1] - z[:, 0], step, from_logits=True)
        np.testing.assert_allclose([x[1] for x in two], list(one), rtol=1e-9)


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_a_sure_row_counts_as_sure_for_any_number_of_classes(classes):
    p = np.eye(classes)[:1]
    soft = counts([0], p, Amplified(10.0))
    assert soft.tp[0] == pytest.approx(1 / (1 + np.exp(-5)), rel=1e-12)


def test_segmentation_is_pooled_or_per_sample():
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, (3, 2, 4, 5)), rng.random((3, 2, 4, 5))
    pooled = counts(y, p, task="multilabel")
    flat = counts(y.transpose(0, 2, 3, 1).reshape(-1, 2), p.transpose(0, 2, 3, 1).reshape(-1, 2))
    np.testing.assert_array_equal(list(pooled), list(flat))
    single = counts(y, p, task="multilabel", per_sample=True)
    assert single.tp.shape == (3, 2)
    for i in range(3):
        np.testing.assert_array_equal(
            [x[i] for x in single], list(counts(y[i : i + 1], p[i : i + 1], task="multilabel"))
        )
    by_hand = np.mean(
        [score(y[i : i + 1], p[i : i + 1], "iou", task="multilabel") for i in range(3)]
    )
    ours = score(y, p, "iou", task="multilabel", per_sample=True)
    assert ours == pytest.approx(by_hand)
    # class indices and row weights with trailing dimensions
    index = rng.integers(0, 2, (3, 4, 5))
    one_hot = np.stack([index == 0, index == 1], 1).astype(float)
    p[:, 1] = 1 - p[:, 0]
    a = counts(index, p, weight=[1, 2, 0])
    b = counts(one_hot, p, task="multiclass", weight=[1, 2, 0])
    c = counts(index, p, weight=np.broadcast_to(np.array([1, 2, 0])[:, None, None], (3, 4, 5)))
    np.testing.assert_array_equal(list(a), list(b))
    np.testing.assert_array_equal(list(a), list(c))
    assert a.tp.sum() + a.fn.sum() == 60


def test_a_row_of_weight_zero_may_hold_anything_in_every_column():
    y = np.array([[1.0, 0.0], [np.nan, 1.0], [0.0, 1.0]])
    p = np.array([[0.9, 0.2], [np.nan, 7.0], [0.4, 0.8]])
    kept = counts(y[::2], p[::2])
    np.testing.assert_array_equal(list(counts(y, p, weight=[1, 0, 1])), list(kept))


def test_samples_weigh_in_the_mean_over_samples():
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, (3, 1, 4, 5)), rng.random((3, 1, 4, 5))
    apart = [score(y[i : i + 1], p[i : i + 1], "iou") for i in range(3)]
    for weight in ([1, 9, 1], [1, 1, 0], [0, 0, 0]):
        expected = np.dot(apart, weight) / max(1, sum(weight))
        ours = score(y, p, "iou", per_sample=True, weight=weight)
        assert ours == pytest.approx(expected, abs=1e-12)
    y[2] = 255
    without = score(y, p, "iou", per_sample=True, ignore_index=255)
    assert without == pytest.approx(np.mean(apart[:2]), abs=1e-12)


def test_ignored_rows():
    y, p = np.array([1, 0, -1, 1]), np.array([0.9, 0.8, 0.7, 0.1])
    assert counts(y, p, ignore_index=-1) == counts(y[y >= 0], p[y >= 0])
    with pytest.raises(ValueError, match="and one-hot labels have none"):
        counts(np.eye(3), np.eye(3), task="multiclass", ignore_index=0)
    with pytest.raises(ValueError, match="sums over the classes of one-hot labels"):
        counts(np.ones((2, 3)), np.eye(3)[:2], task="multiclass")
    index, scores = np.array([2, 0, 255]), np.eye(3)
    tp = counts(index, scores, ignore_index=255).tp
    np.testing.assert_array_equal(tp, [0, 0, 0])


def test_smoothing_is_added_to_each_soft_cell():
    expected = anyloss.metric("mcc")(
        *(x + 1 for x in counts([1, 0, 0], [0.7, 0.6, 0.2], Uniform()))
    )
    assert score([1, 0, 0], [0.7, 0.6, 0.2], "mcc", Uniform(), smooth=1.0) == expected
    assert score([1, 0, 0], [0.7, 0.6, 0.2], "f1", smooth=1.0) == 2 / 3  # the true metric has none
    with pytest.raises(ValueError, match="smooth must be a number >= 0; got -5.0"):
        score([1, 0], [0.9, 0.4], smooth=-5.0)


def test_monai_value():
    p = 1 / (1 + np.exp(-np.array([1.0, -1, -1, 1])))
    assert 1 - score([1, 0, 1, 1], p, "f1", Uniform()) == pytest.approx(0.307576, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (([1, 0], [[0.1], [0.2]]), {}, ValueError, r"shape of the scores, \(2, 1\); got \(2,\)"),
        (([[1], [0]], [0.1, 0.2]), {}, ValueError, "Nothing is broadcast"),
        (([1.0, 0.0], [[0.1, 0.9], [0.5, 0.5]]), {}, TypeError, "must be integers"),
        (([1, 3], [[0.1, 0.9], [0.5, 0.5]]), {}, ValueError, r"labels must lie in \[0, 1\]"),
        ((["a", "b"], [0.1, 0.2]), {}, TypeError, "must be numbers"),
        ((1, 0.5), {}, ValueError, "at least one axis"),
        (([0.1, 0.2], [1, 0]), {}, ValueError, "labels come first .* got .* of type int64"),
        (([0.1, 0.2], [True, False]), {}, ValueError, "of type bool, as if"),
        (([1, 0], [0.1, 1.2]), {}, ValueError, "from_logits=True for logits"),
        (([1, 0], [0.1, np.nan]), {}, ValueError, "no NaN"),
        (([1, np.nan], [0.1, 0.2]), {}, ValueError, "labels"),
        (([1, 0], [0.1, 0.2]), {"weight": [1]}, ValueError, "weight must have shape"),
        (([1, 0], [0.1, 0.2]), {"weight": [1, -1]}, ValueError, "weights must lie in"),
        (([1, 0], [0.1, 0.2]), {"per_sample": True}, ValueError, "per_sample"),
        (([1, 0], [0.1, 0.2]), {"task": "multiclass"}, ValueError, "C > 1"),
        (
            ([0, 1], [[0.1, 0.9], [0.5, 0.5]]),
            {"step": Linear()},
            ValueError,
            "for several classes the step must be",
        ),
        (
            ([0, 1], np.eye(2)),
            {"step": Amplified(9.0, 0.4)},
            ValueError,
            "for several classes the step must be",
        ),
        (
            ([0, 1], np.eye(2)),
            {"step": Uniform(0.3)},
            ValueError,
            "for several classes the step must be",
        ),
        (([0], [[-np.inf, 0.0]]), {"from_logits": True}, ValueError, "logits must lie in"),
        (
            ([0, 1], np.eye(2)),
            {"step": Hard(0.3)},
            ValueError,
            "for several classes the step must be",
        ),
        (([1, 0], [0.1, 0.2]), {"step": 0.3}, TypeError, "one of anyloss.steps; got float"),
        (([1, 0], [0.1, 0.2]), {"step": Hard}, TypeError, "got the class Hard"),
    ],
)
def test_bad_input(arguments, options, error, message):
    with pytest.raises(error, match=message):
        counts(*arguments, **options)


def test_bad_averages():
    with pytest.raises(ValueError, match="average must be one of"):
        score([1, 0], [0.1, 0.2], average="mean")
    with pytest.raises(ValueError, match="needs a single column or two classes; got 3"):
        score([[1, 0, 1]], [[0.1, 0.2, 0.3]], average="binary")
    with pytest.raises(ValueError, match="needs one class per sample"):
        score([[1, 0, 1]], [[0.1, 0.2, 0.3]], "mcc", average="multiclass")
    with pytest.raises(ValueError, match=r"multiclass form \(accuracy, mcc, cohen_k"):
        score([1, 0], [0.1, 0.2], "f1", average="multiclass")


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
def test_what_is_too_large_is_refused():
    with pytest.raises(ValueError, match="metric 'mcc' is not finite for the counts"):
        score([0, 1, 1], [0.2, 0.7, 0.3], "mcc", weight=[1e160] * 3)
    with pytest.raises(ValueError, match="metric 'mcc' is not finite for the counts"):
        anyloss.best_threshold([0, 1, 1], [0.2, 0.7, 0.3], "mcc", weight=[1e160] * 3)
