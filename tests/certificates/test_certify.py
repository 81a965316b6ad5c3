"""Bounds against scipy, against enumeration of the multinomial, and in edge cases."""

import warnings
from dataclasses import replace
from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binomtest, multinomial

import anyloss
from anyloss import certify
from anyloss._core.forms import cells_of
from anyloss._core.intervals import least_value
from anyloss.certificates.bounds import find_form, lower_bounds, p_values

FULL = (True, True, True, True)


def rows(tp, fn, fp, tn):
    """Labels and decisions with these counts."""
    y = np.repeat([1, 1, 0, 0], [tp, fn, fp, tn])
    return y, np.repeat([1, 0, 1, 0], [tp, fn, fp, tn])


def limit(number, total, confidence=0.95):
    """scipy's exact one-sided limit."""
    found = binomtest(number, total, alternative="greater").proportion_ci(confidence, "exact")
    return found.low


CASES = [(6, 2, 3, 9), (40, 3, 10, 200), (5, 0, 0, 7), (1, 4, 2, 0), (0, 3, 4, 5)]


@pytest.mark.parametrize("counts", CASES)
def test_shares_are_those_of_scipy(counts):
    tp, fn, fp, tn = counts
    shares = {
        "recall": (tp, tp + fn), "precision": (tp, tp + fp), "specificity": (tn, tn + fp),
        "npv": (tn, tn + fn), "accuracy": (tp + tn, sum(counts)), "jaccard": (tp, tp + fn + fp),
        "1 - fn / (tp + fn)": (tp, tp + fn), "(tp + fp) / (tp + fn + fp + tn)": (tp + fp, sum(counts)),
    }  # fmt: skip
    for name, (number, total) in shares.items():
        found = certify(*rows(*counts), name)
        assert found.lower == pytest.approx(limit(number, total), abs=1e-9), name
        assert found.upper == pytest.approx(1 - limit(total - number, total), abs=1e-9), name
        test = binomtest(number, total, 0.4, alternative="greater").pvalue
        assert certify(*rows(*counts), f"{name} >= 0.4").p_value == pytest.approx(test), name
        test = binomtest(number, total, 0.4, alternative="less").pvalue
        assert certify(*rows(*counts), f"{name} <= 0.4").p_value == pytest.approx(test), name


@pytest.mark.parametrize("counts", CASES)
def test_f1_is_a_function_of_jaccard(counts):
    share = limit(counts[0], sum(counts[:3]))
    for name in ("f1", "fbeta", "tversky", "2 / ((tp + fn) / tp + (tp + fp) / tp)"):
        found = certify(*rows(*counts), name)
        assert found.method == "Clopper-Pearson: tp given tp + fn + fp"
        assert found.lower == pytest.approx(2 * share / (1 + share), abs=1e-9)


def test_the_method_follows_from_the_metric():
    methods = {
        "fbeta(beta=2)": "betting (Waudby-Smith and Ramdas)",
        "tp / (tp + 0.3*fp + 2*fn)": "betting (Waudby-Smith and Ramdas)",
        "cost(fn_cost=5)": "betting (Waudby-Smith and Ramdas)",
        "cost": "Clopper-Pearson: tp + tn given tp + tn + fn + fp",
        "balanced accuracy": "exact joint intervals of recall and specificity",
        "gmean": "exact joint intervals of recall and specificity",
        "sqrt(tp / (tp + fn))": "exact joint intervals of recall",
        "mcc": "exact joint intervals of recall and specificity and prevalence",
    }
    for name, method in methods.items():
        assert find_form(anyloss.metric(name), FULL).method == method, name


def all_counts(n):
    return [
        (a, b, c, n - a - b - c) for a, b, c in product(range(n + 1), repeat=3) if a + b + c <= n
    ]


POPULATIONS = [(0.25, 0.25, 0.25, 0.25), (0.5, 0.1, 0.1, 0.3), (0.05, 0.02, 0.13, 0.8), (0.6, 0, 0, 0.4),
               (0, 0, 0.3, 0.7), (0, 0.5, 0, 0.5), (1, 0, 0, 0), (0.3, 0.3, 0, 0.4)]  # fmt: skip
FAST = ["recall", "f1", "fbeta(beta=2)", "cost(fn_cost=5)", "2 - tp / (tp + fn)", "1 + fn / (tp + fn)",
        "tp / (tp + fn) * (fp + tn) / (fp + tn)"]  # fmt: skip


@pytest.mark.parametrize("name", FAST)
def test_the_coverage_by_enumeration_is_at_least_the_confidence(name):
    """Every sample of 8 rows, and every population, also those where the metric is 0/0."""
    metric, samples = anyloss.metric(name), all_counts(8)
    bounds = lower_bounds(metric, np.array(samples), 0.1)
    upper = -lower_bounds(metric, np.array(samples), 0.1, -1)
    for population in POPULATIONS:
        chance = multinomial.pmf(samples, 8, population)
        true = metric(*population)
        assert chance[bounds <= true + 1e-9].sum() >= 0.9 - 1e-9, population
        assert chance[upper >= true - 1e-9].sum() >= 0.9 - 1e-9, population


REGIONS = ["balanced accuracy", "gmean", "mcc", "kappa", "p4", "markedness"]


@pytest.mark.parametrize("name", REGIONS)
def test_the_coverage_of_regions_by_enumeration(name):
    metric, samples = anyloss.metric(name), all_counts(5)
    bounds = lower_bounds(metric, np.array(samples), 0.1)
    upper = -lower_bounds(metric, np.array(samples), 0.1, -1)
    value = 0.2
    values = p_values(metric, np.array(samples), value)
    for population in POPULATIONS:
        chance, true = multinomial.pmf(samples, 5, population), metric(*population)
        assert chance[bounds <= true + 1e-9].sum() >= 0.9 - 1e-9, population
        assert chance[upper >= true - 1e-9].sum() >= 0.9 - 1e-9, population
        for alpha in (0.05, 0.1, 0.5) if true < value else ():
            assert chance[values <= alpha].sum() <= alpha + 1e-9, population


@pytest.mark.parametrize("name", REGIONS)
def test_the_bound_of_a_region_is_the_least_value_over_its_box(name):
    """Against a grid of the whole box, which knows nothing of directions."""
    metric, form = anyloss.metric(name), find_form(anyloss.metric(name), FULL)
    whole = replace(form, proved=(0, 0, 0), floor=-np.inf)
    for cells in ((80, 20, 25, 875), (8, 2, 3, 87), (2, 1, 1, 46), (5, 3, 0, 12)):
        cells = np.array([cells])
        (box,) = whole._boxes(cells, np.array([0.05]))
        grid = np.stack(np.meshgrid(*(np.linspace(*side, 25) for side in box))).reshape(3, -1)
        least = metric(*cells_of(*grid)).min()
        (found,) = form.lower(cells, 0.05)
        assert found <= least + 1e-12, cells
        assert found == pytest.approx(least, abs=2e-3), cells


def test_bounds_of_regions_beside_a_minimum_by_scipy():
    """Both are the minimum over prevalence, at the limits of recall and specificity."""
    form = find_form(anyloss.metric("mcc"), FULL)
    (box,) = form._boxes(np.array([[80, 20, 25, 875]]), np.array([0.05]))
    needed = 1 - 0.95 * (1 - 0.95 ** (1 / 3))  # nearly all of a third of the error
    assert box[:2, 0] == pytest.approx([limit(80, 100, needed), limit(875, 900, needed)])
    found = minimize_scalar(
        lambda p: anyloss.metric("mcc")(*cells_of(box[0, 0], box[1, 0], p)),
        bounds=box[2],
        method="bounded",
    )
    ends = [anyloss.metric("mcc")(*cells_of(box[0, 0], box[1, 0], p)) for p in box[2]]
    (bound,) = form.lower(np.array([[80, 20, 25, 875]]), 0.05)
    assert bound == pytest.approx(min(found.fun, *ends), abs=1e-5)


@pytest.mark.parametrize(
    "name", ["sqrt(tp/(tp+fn)) + sqrt(tn/(tn+fp))", "1/(tp/(tp+fn))", "(tp*tn)/(fp*fn)", "mcc"]
)
def test_odd_counts_give_bounds_around_the_score_without_a_warning(name):
    with warnings.catch_warnings(action="error"):
        for cells in ((1, 0, 0, 0), (5, 0, 0, 7), (0, 0, 3, 4), (3, 1, 2, 10**12)):
            found = certify([1, 1, 0, 0], [1, 0, 1, 0], name, frequency=cells)
            assert found.lower <= found.score + 1e-9, cells
            assert found.score <= found.upper + 1e-9, cells


def test_no_bound_leaves_the_range_of_its_metric():
    for name, low in (("mcc", -1), ("kappa", -1), ("p4", 0), ("markedness", -1), ("fm", 0)):
        for cells in ((4, 1, 0, 45), (0, 1, 0, 49), (8, 2, 3, 987), (0, 5, 5, 0), (3, 0, 0, 0)):
            for confidence in (0.95, 1 - 1e-12):  # the range of kappa is not proved from below
                found = certify(*rows(*cells), name, confidence_level=confidence)
                assert (
                    low - 2e-5 * (name == "kappa") <= found.lower <= found.score <= found.upper <= 1
                ), (name, cells)


def test_the_least_value_over_a_box_against_a_grid():
    rng = np.random.default_rng(0)
    for name in (
        "mcc",
        "kappa",
        "p4",
        "gmean",
        "hmean",
        "markedness",
        "fm",
        "sqrt(tp*tn) / (tp + tn)",
    ):
        for _ in range(2):
            box = np.sort(rng.uniform(0.05, 0.95, (3, 2)))
            grid = np.stack(np.meshgrid(*(np.linspace(*side, 15) for side in box))).reshape(3, -1)
            least = anyloss.metric(name)(*cells_of(*grid)).min()
            found = least_value(anyloss.metric(name), box)
            assert found <= least + 1e-12
            assert found == pytest.approx(least, abs=5e-3), name


counts = st.tuples(*[st.integers(0, 30)] * 4).filter(any)


@given(counts)
@settings(max_examples=100, deadline=None)
def test_relabelling_the_classes_swaps_recall_and_specificity(cells):
    y, d = rows(*cells)
    for one, other in (("recall", "specificity"), ("precision", "npv"), ("accuracy", "accuracy")):
        first, second = certify(y, d, one), certify(1 - y, 1 - d, other)
        assert (first.lower, first.upper) == pytest.approx((second.lower, second.upper))


@given(counts)
@settings(max_examples=15, deadline=None)
def test_relabelling_the_classes_leaves_symmetric_metrics_alone(cells):
    y, d = rows(*cells)
    for name in ("mcc", "kappa", "p4", "balanced accuracy"):
        first, second = certify(y, d, name), certify(1 - y, 1 - d, name)
        found = [(x.lower, x.upper) for x in (first, second)]
        assert found[0] == pytest.approx(found[1], abs=2e-5), name
        assert first.lower <= first.score <= first.upper


@given(counts)
@settings(max_examples=100, deadline=None)
def test_the_p_value_and_the_bound_agree(cells):
    cells = np.array(cells)
    for name in ("f1", "fbeta(beta=2)"):
        metric = anyloss.metric(name)
        (bound,) = lower_bounds(metric, cells[None], 0.05)
        assert p_values(metric, cells[None], bound - 1e-6) <= 0.05
        if bound < 0.9995:  # a bound by betting is one of 2,000 values
            assert p_values(metric, cells[None], bound + 1e-6 + (name != "f1") / 2000) >= 0.05


@pytest.mark.parametrize("name", REGIONS)
def test_the_p_value_of_a_region_is_where_its_bound_meets_the_value(name):
    y, d = rows(30, 5, 8, 157)
    value = certify(y, d, name).lower - 0.03
    found = certify(y, d, f"{name} >= {value}")
    assert found.p_value < 0.05
    below = certify(y, d, name, confidence_level=1 - 1.01 * found.p_value)
    above = certify(y, d, name, confidence_level=1 - 0.99 * found.p_value)
    assert above.lower <= value <= below.lower + 1e-5


def test_samples_side_by_side_have_their_own_p_values():
    cells = np.array([(30, 5, 8, 157), (30, 0, 8, 162), (0, 3, 4, 5), (300, 50, 80, 1570)])
    for name in (*REGIONS, "f1", "fbeta(beta=2)"):
        metric = anyloss.metric(name)
        alone = [p_values(metric, row[None], 0.55)[0] for row in cells]
        np.testing.assert_allclose(p_values(metric, cells, 0.55), alone, rtol=0.01)


def test_one_class_alone():
    none = certify([0] * 20, [0] * 20, "recall")
    assert (none.lower, none.upper, none.score) == (0, 1, 0)
    assert certify([0] * 20, [0] * 20, "f1").lower == 0
    assert certify([0] * 20, [0] * 20, "specificity").lower == pytest.approx(0.05 ** (1 / 20))
    assert certify([1] * 20, [1] * 20, "balanced accuracy").lower < 0.5
    assert not certify([0] * 20, [0] * 20, "recall >= 0.1").holds
    assert certify([0] * 20, [0] * 20, "recall >= 0").holds


def test_joint_constraints_take_the_largest_p_value():
    y, d = rows(57, 3, 10, 130)
    one, two = (certify(y, d, x).p_value for x in ("recall >= 0.85", "specificity >= 0.85"))
    both = certify(y, d, ["recall >= 0.85", "specificity >= 0.85"])
    assert both.p_value == max(one, two)
    assert both.holds
    assert both.statement == "recall >= 0.85 and specificity >= 0.85"
    assert "holds on new data of the same kind with 95 % confidence (200 rows" in both.words()


def test_frequencies_are_rows_and_groups_count_once():
    y, d = [1, 1, 0, 0], [1, 0, 1, 0]
    assert certify(y, d, "mcc", frequency=[30, 5, 8, 157]) == certify(*rows(30, 5, 8, 157), "mcc")
    found = certify(y * 5, d * 5, "accuracy", groups=["a", "b", "c", "d"] * 5)
    assert found == certify(y, d, "accuracy")
    mixed = [
        certify([1] * 6, [1, 0] * 3, "recall", groups=[1, 1, 2, 2, 3, 3], random_state=k)
        for k in range(20)
    ]
    assert {x.rows for x in mixed} == {3}
    assert len({x.score for x in mixed}) > 1
    again = certify([1] * 6, [1, 0] * 3, "recall", groups=[1, 1, 2, 2, 3, 3], random_state=7)
    assert again == mixed[7]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([1, 0], [1]), {}, "one length"),
        (([], []), {}, "at least one row"),
        (([1, 2], [1, 0]), {}, "labels must be 0 and 1; got 2; several classes"),
        (([1, 0], [0.7, 0]), {}, "decisions must be 0 and 1; got 0.7; apply a threshold"),
        (([1, np.nan], [1, 0]), {}, "got nan"),
        (([[1, 0]], [[1, 0]]), {}, "one column"),
        (([1, 0], [1, 0]), {"confidence_level": 95}, "from 0.5 to below 1; got 95"),
        (([1, 0], [1, 0]), {"frequency": [0.5, 1]}, "Weights have no certificate"),
        (([1, 0], [1, 0]), {"frequency": [0, 0]}, "frequencies of 0 only"),
        (([1, 0], [1, 0]), {"groups": [1]}, "one entry per row"),
        (([1, 0], [1, 0]), {"groups": [1, 2], "frequency": [1, 1]}, "exclude each other"),
        (([1, 0], [1, 0], "tp - fp"), {}, "does not change if all counts are tripled"),
        (([1, 0], [1, 0], "recall > 0.5"), {}, "got '>'"),
    ],
)
def test_bad_input(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        certify(*arguments, **options)


def test_bad_types():
    with pytest.raises(TypeError, match="labels must be the numbers 0 and 1"):
        certify(["yes"], [1])
    with pytest.raises(TypeError, match="unexpected keyword argument 'weight'"):
        certify([1], [1], weight=[2])


def test_repeated_rows_counted_as_independent_would_break_the_promise():
    """Five copies of each row as a frequency: a 95 % bound is wrong in far more than 5 %."""
    wrong = sum(
        comb(20, k) * 0.8**k * 0.2 ** (20 - k) for k in range(21) if limit(5 * k, 100) > 0.8
    )
    right = sum(comb(20, k) * 0.8**k * 0.2 ** (20 - k) for k in range(21) if limit(k, 20) > 0.8)
    assert right <= 0.05 < 0.15 < wrong


def test_ten_thousand_generated_inputs_give_a_certificate_or_a_clear_error():
    rng = np.random.default_rng(0)
    odd = [0, 1, 1, 0, 2, -1, 0.5, np.nan, np.inf, "a", None, True]
    specs = [
        "f1",
        "recall >= 0.5",
        "recall >> 1",
        "tp",
        "tp / (tp + fn)",
        ["f1 >= 0.2", "npv <= 1"],
        [],
        3,
        None,
    ]

    def column():
        return [
            odd[k]
            for k in rng.integers(0, 2 if rng.random() < 0.7 else len(odd), rng.integers(0, 5))
        ]

    made = 0
    for _ in range(10_000):
        extra = {name: column() for name in ("frequency", "groups") if rng.random() < 0.15}
        level = rng.choice([0.95, 0.95, 0.5, 1.0, -1.0, np.nan])
        try:
            found = certify(
                column(), column(), specs[rng.integers(len(specs))], confidence_level=level, **extra
            )
        except (ValueError, TypeError) as error:
            if not isinstance(error, TypeError) or "not supported between" not in str(error):
                continue
            raise
        made += 1
        assert found.lower <= found.upper or np.isnan(found.lower)
    assert made > 100


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"frequency": np.full(3000, 2**52)}, "one whole number"),
        ({"groups": np.array(["a", None] * 1500, dtype=object)}, "got 1500 missing"),
        ({"groups": np.array([1.0, np.nan] * 1500)}, "got 1500 missing"),
    ],
)
def test_frequencies_beyond_all_counts_and_missing_groups(given, message):
    with pytest.raises(ValueError, match=message):
        certify([0, 1] * 1500, [0, 1] * 1500, "f1", **given)


def test_a_confidence_of_numpy_and_hints_for_labels():
    expected = certify([0, 1, 1], [0, 1, 1], confidence_level=float(np.float32(0.95)))
    assert certify([0, 1, 1], [0, 1, 1], confidence_level=np.float32(0.95)).lower == expected.lower
    with pytest.raises(ValueError, match="got nan; remove the rows"):
        certify([0, 1, np.nan], [0, 1, 1])
    with pytest.raises(ValueError, match="got -1; write -1 and 1 as 0 and 1"):
        certify([-1, 1, 1], [0, 1, 1])
