import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anyloss
from anyloss import best_threshold
from anyloss._core.shapes import Layout
from anyloss.decisions.search import best_offsets

rows = st.integers(1, 25).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 1), min_size=n, max_size=n),
        st.lists(st.sampled_from([-3.0, -0.5, 0.0, 0.1, 0.1 + 1e-16, 2.0, 1e300]), min_size=n, max_size=n),
        st.lists(st.integers(0, 3), min_size=n, max_size=n),
    )
)  # fmt: skip


@pytest.mark.parametrize("metric", ["f1", "mcc", "balanced_accuracy", "cost", "tp - 3*fp + 1"])
@given(rows)
@settings(max_examples=300, deadline=None)
def test_exact_against_trying_every_split(metric, row):
    y, s, w = map(np.array, row)
    found = best_threshold(y, s, metric, weight=w)
    function = anyloss.metric(metric)

    def at(threshold):
        d = s > threshold
        cells = ((y == 1) & d, (y == 1) & ~d, (y == 0) & d, (y == 0) & ~d)
        return function(*(float(w @ cell) for cell in cells))

    best = max(at(t) for t in [-np.inf, *s])
    assert found.score == pytest.approx(best, abs=1e-12)
    assert at(found.threshold) == pytest.approx(best, abs=1e-12)


def test_midway_between_two_scores():
    assert best_threshold([0, 0, 1, 1], [0.1, 0.2, 0.6, 0.9], "f1") == (0.4, 1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_threshold_has_the_type_of_the_scores(dtype):
    rng = np.random.default_rng(0)
    for _ in range(300):
        y, s = rng.random(20) < 0.7, rng.random(20).astype(dtype)
        found = best_threshold(y, s, "f1")
        assert anyloss.score(y, (s > found.threshold) * 1.0, "f1") == pytest.approx(found.score)
    close = np.array([0.1, np.nextafter(dtype(0.1), dtype(1))], dtype)
    assert (close > best_threshold([0, 1], close).threshold).tolist() == [False, True]


def test_fractional_weights_leave_no_remainder():
    """0.7 + 0.1 + 0.1 + 0.4 in another order is not the same number; no cell may show it."""
    found = best_threshold([1, 0, 0, 0], [0, 0.1, 0.2, 0.3], "npv", weight=[0.7, 0.1, 0.1, 0.4])
    assert found.score == pytest.approx(0.6 / 1.3)


def test_a_million_rows_are_one_sort():
    rng = np.random.default_rng(0)
    y, s = rng.random(1_000_000) < 0.01, rng.random(1_000_000)
    assert best_threshold(y, s + y, "mcc").score > 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 0], [0.1]), "columns of one length"),
        (([], []), "at least one sample"),
        (([[1]], [[0.1]]), "columns of one length"),
        (([1, 0], [0.1, np.nan]), "finite"),
        (([1, 2], [0.1, 0.2]), r"labels must lie in \[0, 1\]; got 1.0 to 2.0"),
        (([np.nan, 1], [0.1, 0.2]), "labels"),
        (([0.1, 0.2], [1, 0]), "as if they were in the wrong order"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        best_threshold(*arguments, "f1")
    with pytest.raises(TypeError, match="must be numbers"):
        best_threshold(["a", "b"], [0.1, 0.2])
    with pytest.raises(ValueError, match="not negative"):
        best_threshold([1, 0], [0.1, 0.2], "f1", weight=[1, -1])


@pytest.mark.slow("tries many thresholds")
@pytest.mark.parametrize("multiclass", [True, False])
@pytest.mark.parametrize(
    ("metric", "average"), [("f1", "macro"), ("f1", "micro"), ("mcc", "weighted")]
)
@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_offsets_of_several_classes(multiclass, metric, average, seed):
    rng = np.random.default_rng(seed)
    n, classes = int(rng.integers(3, 12)), int(rng.integers(2, 4))
    z = rng.normal(size=(n, classes))
    z[0] = z[-1]
    y = (
        np.eye(classes)[rng.integers(0, classes, n)]
        if multiclass
        else rng.integers(0, 2, (n, classes)) * 1.0
    )
    w = rng.integers(1, 4, n).astype(float)
    chosen = anyloss.metric(metric)
    lay = Layout("multiclass" if multiclass else "multilabel", average, classes)
    offsets, reached = best_offsets(y, z, chosen, lay, weight=w)

    def at(moved):
        moved = z - moved
        predicted = np.eye(classes)[moved.argmax(1)] if multiclass else (moved > 0) * 1.0
        return anyloss.score(
            y,
            predicted,
            chosen,
            average=average,
            task="multiclass" if multiclass else "multilabel",
            weight=w,
        )

    assert at(offsets) == pytest.approx(reached, abs=1e-12)
    assert reached >= at(np.zeros(classes)) - 1e-12
    for k in range(classes):  # no single class can do better
        for cut in np.linspace(-6, 6, 121) + 0.013:
            tried = offsets.copy()
            tried[k] = cut
            assert at(tried) <= reached + 1e-12


@pytest.mark.parametrize("metric", ["f1", "mcc", "recall", "gmean"])
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_a_label_that_never_occurs_is_not_predicted(metric, order):
    rng = np.random.default_rng(0)
    z = np.column_stack([rng.normal(-5, 1, 60), rng.normal(size=60)])
    y = np.column_stack([np.zeros(60), z[:, 1] + rng.normal(size=60) > 0]).astype(float)
    z, y = z[:, order], y[:, order]
    lay = Layout("multilabel", "macro", 2)
    offsets, _ = best_offsets(y, z, anyloss.metric(metric), lay, weight=np.ones(60))
    assert offsets[order.index(0)] == 0
    assert offsets[order.index(1)] == pytest.approx(
        best_threshold(y[:, order.index(1)], z[:, order.index(1)], metric).threshold
    )
