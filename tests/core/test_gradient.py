"""The closed-form gradient against finite differences, for metrics, steps and averages."""

import numpy as np
import pytest

import anyloss
from anyloss import gradient, score
from anyloss._core.counts import column_counts
from anyloss._core.gradient import binary_derivatives, column_decisions
from anyloss.steps import DEFAULT, Amplified, Hard, Linear, LogitSigmoid, RaisedCosine, Uniform

STEPS = [Amplified(10.0), Amplified(20.0, 0.3), Linear(), Linear(0.1, 0.7), RaisedCosine(0.45),
         Uniform(), Uniform(0.45, 0.6), LogitSigmoid(2.0, 0.5)]  # fmt: skip
METRICS = sorted({function.__name__ for function in anyloss.METRICS.values()})


def numeric(y, x, h=1e-6, **options):
    """Central differences of the score (its sum, for one score per class)."""
    grad = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        grad[i] = (np.sum(score(y, up, **options)) - np.sum(score(y, down, **options))) / (2 * h)
    return grad


def check(y, x, step=DEFAULT, **options):
    options["step"] = step
    value, grad = gradient(y, x, **options)
    np.testing.assert_allclose(value, score(y, x, **options), rtol=1e-12)
    expected = numeric(y, x, **options)
    np.testing.assert_allclose(grad, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def column(seed=0, n=12):
    rng = np.random.default_rng(seed)
    return (rng.random(n) < 0.4).astype(float), rng.normal(size=n)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_metric(metric, weighted):
    y, z = column()
    weight = np.random.default_rng(1).random(12) if weighted else None
    check(y, z, metric=metric, step=Amplified(6.0), from_logits=True, weight=weight)


@pytest.mark.parametrize("step", STEPS, ids=repr)
@pytest.mark.parametrize("metric", ["f1", "mcc"])
@pytest.mark.parametrize("from_logits", [True, False])
def test_every_step(step, metric, from_logits):
    y, z = column()
    x = z if from_logits else 1 / (1 + np.exp(-z))
    check(y, x, metric=metric, step=step, from_logits=from_logits, smooth=0.1)


@pytest.mark.parametrize("average", ["binary", "macro", "micro", "weighted", None, "multiclass"])
def test_binary_averages(average):
    y, z = column()
    for metric in ("mcc", "accuracy"):
        check(y, z, metric=metric, average=average, from_logits=True)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", None])
@pytest.mark.parametrize("metric", ["f1", "mcc"])
def test_multilabel_averages(average, metric):
    rng = np.random.default_rng(0)
    y, z = (rng.random((9, 3)) < 0.4).astype(float), rng.normal(size=(9, 3))
    check(y, z, metric=metric, average=average, from_logits=True)
    y, z = (rng.random((2, 3, 2, 2)) < 0.4).astype(float), rng.normal(size=(2, 3, 2, 2))
    for per_sample in (True, False, "weighted"):
        for zero_division in ("auto", "skip", 0, 1):
            check(
                y, z, metric=metric, average=average, from_logits=True, task="multilabel",
                per_sample=per_sample, zero_division=zero_division,
            )  # fmt: skip


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", None, "multiclass"])
@pytest.mark.parametrize("step", [Amplified(6.0), Uniform()], ids=repr)
@pytest.mark.parametrize("from_logits", [True, False])
def test_multiclass_averages(average, step, from_logits):
    rng = np.random.default_rng(0)
    y, x = rng.integers(0, 4, 10), rng.normal(size=(10, 4))
    if not from_logits:
        x = rng.dirichlet(np.full(4, 5.0), 10)
    weight = rng.random(10)
    for metric in ("mcc", "cohen_kappa", "accuracy", "balanced_accuracy", "gmean", "hmean"):
        check(
            y, x, metric=metric, step=step, average=average, from_logits=from_logits, weight=weight
        )


def test_two_class_indices():
    rng = np.random.default_rng(0)
    check(rng.integers(0, 2, 10), rng.normal(size=(10, 2)), metric="f1", from_logits=True)


def test_hard_decisions_have_no_gradient():
    y, z = column()
    assert not gradient(y, z, "f1", Hard(), from_logits=True)[1].any()
    index = np.array([0, 2])
    assert not gradient(index, np.eye(3)[:2], "f1", Hard(), from_logits=True)[1].any()


def test_nothing_is_infinite_at_the_ends():
    y, p = np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.0, 0.0])
    for step in [*STEPS, LogitSigmoid(0.5)]:
        for metric in METRICS:
            value, grad = gradient(y, p, metric, step)
            assert np.isfinite(value)
            assert np.isfinite(grad).all()


def test_a_sure_and_wrong_row_keeps_its_gradient():
    """In float64 the plain formula is exactly 1 from a logit of 37 on, with no gradient."""
    _, grad = gradient([0, 1], [60.0, -1.0], "f1", Amplified(73.0), from_logits=True)
    assert grad[0] < 0
    index = np.array([0, 1, 1])
    _, grad = gradient(index, [[0.0, 60.0, 0], [0, 1, 0], [0, 1, 0]], "f1", from_logits=True)
    assert grad[0, 0] > 0 > grad[0, 1]


def test_derivatives_of_the_textbook():
    """F1 = 2tp / (n+ + soft positives): both derivatives by hand."""
    found = binary_derivatives(anyloss.Counts(80.0, 20.0, 30.0, 870.0), anyloss.metric("f1"))
    assert found.score == pytest.approx(160 / 210)
    assert pytest.approx((2 * 210 - 160) / 210**2) == found.d_positive
    assert pytest.approx(-160 / 210**2) == found.d_negative


@pytest.mark.parametrize("step", [Uniform(), Amplified(10.0), Amplified(73.0, 0.3)], ids=repr)
def test_the_short_form_for_a_column(step):
    y, z = column(n=40)
    a, derivative, factor = column_decisions(z, step)
    counts = column_counts(a, y)
    expected = anyloss.counts(y, z, step, from_logits=True)
    np.testing.assert_allclose(tuple(counts), tuple(expected), rtol=1e-12)
    score, d_positive, d_negative = binary_derivatives(counts, anyloss.metric("mcc"))
    value, grad = gradient(y, z, "mcc", step, from_logits=True)
    assert score == pytest.approx(value, rel=1e-12)
    ours = factor * derivative * (y * d_positive + (1 - y) * d_negative)
    np.testing.assert_allclose(ours, grad, rtol=1e-9, atol=1e-18)
