import csv
import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anyloss
from anyloss._core.step import STEPS as REGISTERED
from anyloss.steps import (
    DEFAULT,
    Amplified,
    Hard,
    Linear,
    LogitSigmoid,
    RaisedCosine,
    Uniform,
    register,
)

THRESHOLDS = [0.01, 0.3, 0.5, 0.9]
STEPS = [
    *(Amplified(scale, t) for scale in (1.0, 10.0, 73.0) for t in THRESHOLDS),
    *(Linear(delta, t) for delta in (0.05, 0.2, 0.45) for t in THRESHOLDS),
    *(RaisedCosine(delta, t) for delta in (0.02, 0.1, 0.6) for t in THRESHOLDS),
    *(Uniform(delta, t) for delta in (0.05, 0.5, 1.0) for t in THRESHOLDS),
]
LOGIT_STEPS = [LogitSigmoid(), LogitSigmoid(4.0, -1.0)]
P = np.linspace(0, 1, 2001)


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_a_step_is_a_cdf_through_one_half_at_its_threshold(step):
    a, b = step.value(P), step.mirror(P)
    assert (np.diff(a) >= -1e-15).all()
    assert a.min() >= 0
    assert a.max() <= 1
    np.testing.assert_allclose(a + b, 1, atol=1e-15)
    assert step.value(step.threshold) == pytest.approx(0.5, abs=1e-12)
    moved = step.at(0.4)
    assert moved.value(0.4) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize("step", STEPS + LOGIT_STEPS, ids=repr)
def test_the_density_is_the_derivative(step):
    x = np.linspace(-6, 6, 301) if step.on_logit else np.linspace(0.003, 0.997, 301)
    h = 1e-6
    numeric = (step.value(x + h) - step.value(x - h)) / (2 * h)
    kinks = np.abs(np.diff(step.derivative(x), prepend=0, append=0)) > 1e-3
    smooth = ~(kinks[1:] | kinks[:-1])
    np.testing.assert_allclose(step.derivative(x)[smooth], numeric[smooth], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_mirror_is_the_step_of_the_mirrored_argument(step):
    mirrored = step.at(1 - step.threshold)
    np.testing.assert_allclose(step.mirror(P), mirrored.value(1 - P), rtol=1e-9, atol=1e-15)


@given(st.sampled_from(STEPS), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=2000, deadline=None)
def test_lipschitz_constants_of_bridging_the_gap(step, p, q):
    """Theorem 4.1: the linear step's constant is its largest derivative; scale / 4 for the sigmoid."""
    constant = {
        Amplified: lambda s: s.scale / 4,
        Linear: lambda s: max(s.derivatives()),
        RaisedCosine: lambda s: 1 / s.delta,
        Uniform: lambda s: 1 / (2 * s.delta),
    }[type(step)](step)
    assert abs(step.value(p) - step.value(q)) <= constant * abs(p - q) + 1e-12
    assert step.derivative(p) <= constant + 1e-12


@pytest.mark.parametrize(
    "sharpening",
    [
        [Amplified(10.0 * 4**k) for k in range(6)],
        [RaisedCosine(0.4 / 4**k) for k in range(6)],
        [Uniform(0.4 / 4**k) for k in range(6)],
        [LogitSigmoid(4.0**k) for k in range(6)],
    ],
    ids=["Amplified", "RaisedCosine", "Uniform", "LogitSigmoid"],
)
@pytest.mark.parametrize("metric", ["f1", "mcc", "gmean"])
def test_soft_metric_becomes_hard_as_the_step_sharpens(sharpening, metric):
    rng = np.random.default_rng(1)
    y = rng.random(400) < 0.3
    p = np.clip(0.5 + 0.3 * (y - 0.5) + rng.normal(0, 0.2, 400), 0.01, 0.99)
    p += 0.005 * np.sign(p - 0.5)  # nothing exactly at the threshold
    p = np.clip(p, 0.001, 0.999)
    hard = anyloss.score(y, p, metric)
    gaps = [abs(anyloss.score(y, p, metric, step) - hard) for step in sharpening]
    assert gaps[-1] < 1e-3
    assert gaps[-1] < gaps[0]
    assert all(later < earlier + 0.01 for earlier, later in pairwise(gaps))


def test_soft_counts_converge_like_the_law_of_large_numbers():
    """Bridging the Gap, section 4.2: soft F1 of Beta draws with the means u, v of the hard rates."""
    rng = np.random.default_rng(0)
    n, r, u, v = 400_000, 0.2, 0.7, 0.1
    y = rng.random(n) < r
    soft = np.where(y, rng.beta(7 * u, 7 * (1 - u), n), rng.beta(5 * v, 5 * (1 - v), n))
    hard = rng.random(n) < np.where(y, u, v)
    limit = 2 * r * u / (r + r * u + v - r * v)
    assert anyloss.score(y, soft, "f1", Uniform()) == pytest.approx(limit, abs=5e-3)
    assert anyloss.score(y, hard.astype(float), "f1") == pytest.approx(limit, abs=5e-3)


def test_outside_values():
    np.testing.assert_allclose(
        RaisedCosine(0.1).value([0.45, 0.55]), [0.0908451, 0.9091549], atol=5e-8
    )
    for step in (Amplified(), Linear(), RaisedCosine(), Uniform(), LogitSigmoid(), DEFAULT):
        y, p = [1, 0, 0], [0.5, 0.5, 0.5]
        for beta, expected in ((1, 0.4), (2, 0.45454547), (3, 0.4761905)):
            score = anyloss.score(y, p, anyloss.metric("fbeta", beta=beta), step)
            assert score == pytest.approx(expected, abs=5e-8)


def test_the_linear_step_is_the_published_one():
    """Equation 5 of Bridging the Gap, written out."""
    for t in THRESHOLDS:
        d, m = 0.2, min(t, 1 - t)
        m1, m2, m3 = d / (t - m / 2), (1 - 2 * d) / m, d / (1 - t - m / 2)
        published = np.where(
            t - m / 2 > P,
            P * m1,
            np.where(t + m / 2 < P, P * m3 + (1 - d - m3 * (t + m / 2)), P * m2 + 0.5 - m2 * t),
        )
        np.testing.assert_allclose(Linear(d, t).value(P), published, atol=1e-12)


def test_amplified_stays_awake_where_the_plain_formula_falls_silent():
    p = np.float32(0.999)
    plain = np.float32(1) / (np.float32(1) + np.exp(np.float32(-73) * (p - np.float32(0.5))))
    assert plain == 1
    assert Amplified(73.0).mirror(0.999) == pytest.approx(math.exp(-73 * 0.499), rel=1e-9)


# Table 1 of AnyLoss: level, minimum (rounded up), maximum (rounded down), in float64.
TABLE_1 = """0.1,5.50,91.84
0.01,9.38,74.97
0.001,13.85,73.62
1e-14,64.48,73.47
1e-15,69.08,73.47
1e-16,73.69,73.47"""


@pytest.mark.parametrize("row", list(csv.reader(TABLE_1.splitlines())), ids=lambda row: row[0])
def test_scale_range_is_table_1(row):
    level, low, high = row
    least, most = anyloss.scale_range(float(level))
    assert Decimal(least).quantize(Decimal("0.01"), ROUND_CEILING) == Decimal(low)
    assert Decimal(most).quantize(Decimal("0.01"), ROUND_FLOOR) == Decimal(high)


def test_scale_range_for_other_types():
    for dtype, most in (("float32", 33.27), ("float16", 15.25), ("bfloat16", 11.09)):
        assert anyloss.scale_range(1e-15, dtype)[1] == pytest.approx(most, abs=0.005)
    assert anyloss.scale_range(0.01, np.float32) == anyloss.scale_range(0.01, "float32")
    assert anyloss.scale_range(0.01, np.dtype("float32")) == anyloss.scale_range(0.01, "float32")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Amplified(0.0), "scale must be a positive number; got 0.0"),
        (lambda: Amplified(math.nan), "scale"),
        (lambda: Amplified(10.0, 1.0), "threshold must be strictly between 0 and 1; got 1.0"),
        (lambda: Linear(0.5), "delta must be strictly between 0 and 0.5"),
        (lambda: RaisedCosine(0.0), "delta must be greater than 0"),
        (lambda: Uniform(2.0), "delta must be greater than 0"),
        (lambda: LogitSigmoid(-1.0), "scale must be a positive number"),
        (lambda: LogitSigmoid(1.0, math.inf), "offset"),
        (lambda: Hard(0.0), "threshold"),
        (lambda: LogitSigmoid().at(0.3), "has no threshold; use a step with"),
        (lambda: anyloss.scale_range(0.7), "level must be strictly between 0 and 0.5"),
        (lambda: anyloss.scale_range(0.1, "int8"), "dtype must be one of float64"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_hard_versions():
    assert Linear(threshold=0.3).hard() == Hard(0.3)
    assert LogitSigmoid(2.0, 0.0).hard() == Hard(0.5)
    assert LogitSigmoid(2.0, 1.0).hard().threshold == pytest.approx(1 / (1 + math.e))
    np.testing.assert_array_equal(Hard(0.3).derivative(P), 0)


def test_register_takes_steps_only():
    with pytest.raises(TypeError, match="a subclass of anyloss.steps.Step; got <class 'int'>"):
        register(int)
    with pytest.raises(TypeError, match="a subclass of anyloss.steps.Step; got Hard"):
        register(Hard())


def test_the_guide_to_a_new_step(capsys, monkeypatch):
    """The code of docs/add_a_step.md runs, and its step has the properties of all others."""
    monkeypatch.setitem(REGISTERED, "Triangular", None)  # removed after the test
    namespace = {}
    guide = Path(__file__).parents[2] / "docs" / "add_a_step.md"
    for block in re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL):
        exec(compile(block, guide.name, "exec"), namespace)  # our own text
    printed = re.findall(r": ([\d.]+)", capsys.readouterr().out)
    assert [float(x) for x in printed] == [0, 0]
    assert REGISTERED["Triangular"] is namespace["Triangular"]
    for delta in (0.05, 0.3, 1.0):
        for threshold in THRESHOLDS:
            step = namespace["Triangular"](delta, threshold)
            test_a_step_is_a_cdf_through_one_half_at_its_threshold(step)
            test_mirror_is_the_step_of_the_mirrored_argument(step)
            test_the_density_is_the_derivative(step)
