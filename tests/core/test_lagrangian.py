"""The Lagrangian of a metric and the rule of its multipliers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyloss import METRICS, metric
from anyloss._core.constraints import read_constraints
from anyloss._core.counts import Counts
from anyloss._core.gradient import binary_derivatives
from anyloss._core.lagrangian import GAIN, RATE, lagrangian, moved
from anyloss.thresholds import best_threshold, nearest_threshold

WANTED = ["recall >= 0.9", "fp / (fp + tn) <= 0.2"]
cells = st.tuples(*[st.floats(0.5, 500.0)] * 4)


@pytest.mark.parametrize("name", sorted({x for x in METRICS if x not in ("cost",)}))
@settings(max_examples=5, deadline=None)
@given(counts=cells, multipliers=st.tuples(*[st.floats(0.0, 50.0)] * 2))
def test_its_two_derivatives_are_those_of_finite_differences(name, counts, multipliers):
    found = lagrangian(metric(name), read_constraints(WANTED), multipliers)
    tp, fn, fp, tn = counts
    d = 1e-5 * min(counts)
    positive = found(tp + d, fn - d, fp, tn) - found(tp - d, fn + d, fp, tn)
    negative = found(tp, fn, fp + d, tn - d) - found(tp, fn, fp - d, tn + d)
    score, *both = binary_derivatives(Counts(*counts), found)
    assert score == pytest.approx(found(*counts))
    scale = 1e-6 * (1 + max(map(abs, both)))
    assert both == pytest.approx([positive / (2 * d), negative / (2 * d)], rel=1e-4, abs=scale)


@given(counts=cells)
def test_it_is_the_metric_without_multipliers_and_the_constraint_with_large_ones(counts):
    required = read_constraints("recall >= 0.9")
    assert lagrangian(metric("f1"), required, [0.0])(*counts) == metric("f1")(*counts)
    alone = metric("recall")(*counts) - 0.9
    assert lagrangian(metric("f1"), required, [1e12])(*counts) == pytest.approx(alone, abs=1e-9)


@given(counts=cells, sums=st.floats(0.0, 5.0))
def test_multipliers_rise_with_a_violation_and_fall_with_room(counts, sums):
    (now,), (after,) = moved([sums], read_constraints("precision >= 0.5"), np.array(counts))
    violation = 0.5 - counts[0] / (counts[0] + counts[2])
    assert after == pytest.approx(max(sums + RATE * violation, 0.0))
    assert now == pytest.approx(max(after + GAIN * violation, 0.0))


def test_a_constraint_of_0_over_0_says_nothing():
    now, sums = moved([0.7], read_constraints("precision >= 0.5"), np.array([0.0, 3.0, 0.0, 9.0]))
    assert (now, sums) == ([0.7], [0.7])


def test_relabelling_the_classes_swaps_recall_and_specificity():
    one = lagrangian(metric("accuracy"), read_constraints("recall >= 0.9"), [2.0])
    two = lagrangian(metric("accuracy"), read_constraints("specificity >= 0.9"), [2.0])
    a, b = (
        binary_derivatives(Counts(*x), y) for x, y in (((5, 3, 2, 9), one), ((9, 2, 3, 5), two))
    )
    assert a.score == pytest.approx(b.score)
    # A positive decision for one class is a negative one for the other.
    assert (a.d_positive, a.d_negative) == pytest.approx((-b.d_negative, -b.d_positive))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=12),
    st.floats(0.0, 1.2),
)
def test_the_nearest_threshold_against_trying_every_split(rows, level):
    y, s = (np.array(x, dtype=float) for x in zip(*rows, strict=True))
    (required,) = read_constraints(f"precision >= {level!r}")
    found = nearest_threshold(y, s, metric("recall"), (required,))
    every = []
    for cut in [-1.0, *np.unique(s)]:
        decided = s > cut
        counts = (
            (y * decided).sum(), (y * ~decided).sum(), ((1 - y) * decided).sum(),
            ((1 - y) * ~decided).sum(),
        )  # fmt: skip
        excess = float(required.excess(required.metric(*counts)))
        every.append(
            (min(excess if excess < -1e-12 else 0.0, 0.0), float(metric("recall")(*counts)))
        )
    assert found.score == pytest.approx(max(every)[1])
    if max(every)[0] == 0:
        best = best_threshold(y, s, "recall", constraints=[required])
        assert found == best
