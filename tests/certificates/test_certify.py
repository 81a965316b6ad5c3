"""Bounds against scipy, against enumeration of the multinomial, and in edge cases."""

from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, multinomial

import anyloss
from anyloss import certify
from anyloss._core.forms import cells_of
from anyloss._core.intervals import least_value
from anyloss.certificates.bounds import find_form, lower_bound, p_value

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
    bounds = np.array([lower_bound(metric, np.array(c), 0.1) for c in samples])
    upper = np.array([-lower_bound(metric, np.array(c), 0.1, -1) for c in samples])
    for population in POPULATIONS:
        chance = multinomial.pmf(samples, 8, population)
        true = metric(*population)
        assert chance[bounds <= true + 1e-9].sum() >= 0.9 - 1e-9, population
        assert chance[upper >= true - 1e-9].sum() >= 0.9 - 1e-9, population


@pytest.mark.parametrize(
    "name",
    [
        "balanced accuracy",
        "gmean",
        pytest.param("mcc", marks=pytest.mark.slow("halves many boxes")),
    ],
)
def test_the_coverage_of_regions_by_enumeration(name):
    metric, samples = anyloss.metric(name), all_counts(4)
    bounds = np.array([lower_bound(metric, np.array(c), 0.1) for c in samples])
    for population in POPULATIONS:
        chance = multinomial.pmf(samples, 4, population)
        assert chance[bounds <= metric(*population) + 1e-9].sum() >= 0.9 - 1e-9, population


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
@settings(max_examples=100, deadline=None)
def test_the_p_value_and_the_bound_agree(cells):
    cells = np.array(cells)
    for name in ("f1", "fbeta(beta=2)"):
        metric = anyloss.metric(name)
        bound = lower_bound(metric, cells, 0.05)
        assert p_value(metric, cells, bound - 1e-6) <= 0.05
        if bound < 0.9995:  # a bound by betting is one of 2,000 values
            assert p_value(metric, cells, bound + 1e-6 + (name != "f1") / 2000) >= 0.05


def test_the_p_value_of_a_region_is_where_its_bound_meets_the_value():
    y, d = rows(30, 5, 8, 157)
    found = certify(y, d, "balanced accuracy >= 0.8")
    below = certify(y, d, "balanced accuracy", confidence_level=1 - 1.02 * found.p_value)
    above = certify(y, d, "balanced accuracy", confidence_level=1 - 0.98 * found.p_value)
    assert above.lower <= 0.8 <= below.lower


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
