"""Every metric against an outside reference: scikit-learn, torchmetrics or a published closed form."""

import math
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import sklearn
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk
from torchmetrics.functional import classification as tm

import anyloss
from anyloss._core.backend import NUMPY
from anyloss._core.cell import Cell
from anyloss._core.formula import Formula
from anyloss.metrics import listed

# Zero division: scikit-learn's zero_division=0 where it has one.
ZERO = {"zero_division": 0.0}


def recall(y, d, label=1):
    return sk.recall_score(y, d, pos_label=label, **ZERO)


def precision(y, d, label=1):
    return sk.precision_score(y, d, pos_label=label, **ZERO)


def harmonic(*values):
    return len(values) / sum(1 / v for v in values) if all(values) else 0.0


def balanced(y, d):
    """scikit-learn drops an absent class; here it counts 0, see docs/metrics.md."""
    return (recall(y, d) + recall(y, d, 0)) / 2


def kappa(y, d):
    """scikit-learn gives NaN where both have one and the same class; here it is 0."""
    if len(set(y) | set(d)) == 1:
        return 0.0
    return sk.cohen_kappa_score(y, d)


def tversky_sets(y, d):
    """Tversky (1977) on sets of row numbers, with alpha 0.3 and beta 0.7."""
    truth, found = set(np.flatnonzero(y)), set(np.flatnonzero(d))
    common = len(truth & found)
    whole = common + 0.3 * len(found - truth) + 0.7 * len(truth - found)
    return common / whole if whole else 0.0


def cost(y, d):
    errors = 5 * np.sum((y == 1) & (d == 0)) + 2 * np.sum((y == 0) & (d == 1))
    return 1 - errors / (5 * np.sum(y == 1) + 2 * np.sum(y == 0))


# name, parameters, reference(labels, decisions)
REFERENCES = [
    ("accuracy", {}, sk.accuracy_score),
    ("precision", {}, precision),
    ("recall", {}, recall),
    ("specificity", {}, lambda y, d: recall(y, d, 0)),
    ("npv", {}, lambda y, d: precision(y, d, 0)),
    ("f1", {}, lambda y, d: sk.f1_score(y, d, **ZERO)),
    ("fbeta", {"beta": 2.0}, lambda y, d: sk.fbeta_score(y, d, beta=2.0, **ZERO)),
    ("gmean", {}, lambda y, d: math.sqrt(recall(y, d) * recall(y, d, 0))),
    ("balanced_accuracy", {}, balanced),
    ("hmean", {}, lambda y, d: harmonic(recall(y, d), recall(y, d, 0))),
    ("mcc", {}, sk.matthews_corrcoef),
    ("jaccard", {}, lambda y, d: sk.jaccard_score(y, d, **ZERO)),
    ("cohen_kappa", {}, kappa),
    ("informedness", {}, lambda y, d: recall(y, d) + recall(y, d, 0) - 1),
    ("markedness", {}, lambda y, d: precision(y, d) + precision(y, d, 0) - 1),
    ("fowlkes_mallows", {}, lambda y, d: math.sqrt(precision(y, d) * recall(y, d))),
    ("tversky", {"alpha": 0.3, "beta": 0.7}, tversky_sets),
    (
        "p4",
        {},
        lambda y, d: harmonic(precision(y, d), recall(y, d), recall(y, d, 0), precision(y, d, 0)),
    ),
    ("cost", {"fn_cost": 5.0, "fp_cost": 2.0}, cost),
]
NAMES = [name for name, _, _ in REFERENCES]

columns = st.integers(1, 40).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 1), min_size=n, max_size=n),
        st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.7, 1.0]), min_size=n, max_size=n),
    )
)


def test_every_metric_has_a_reference():
    assert {function.__name__ for function in anyloss.METRICS.values()} == set(NAMES)


@pytest.mark.slow("a thousand cases each")
@pytest.mark.parametrize(("name", "params", "reference"), REFERENCES, ids=NAMES)
@pytest.mark.filterwarnings("ignore:A single label was found")
@given(columns)
@settings(max_examples=1000, deadline=None)
def test_hard_metric_equals_reference(name, params, reference, column):
    y, p = map(np.array, column)
    counts = anyloss.counts(y, p)
    with sklearn.config_context(skip_parameter_validation=True):
        expected = float(reference(y, (p > 0.5).astype(int)))
    assert anyloss.metric(name, **params)(*counts) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("mcc", tm.binary_matthews_corrcoef),
        ("specificity", tm.binary_specificity),
        ("jaccard", tm.binary_jaccard_index),
        ("cohen_kappa", tm.binary_cohen_kappa),
        ("npv", tm.binary_negative_predictive_value),
    ],
)
def test_torchmetrics_agrees(name, reference):
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, 500), rng.random(500)
    expected = reference(torch.tensor(p), torch.tensor(y)).item()
    assert anyloss.score(y, p, name) == pytest.approx(expected, abs=1e-6)


def test_outside_values():
    # Jaccard 1/2 and Dice 2/3 of four positive decisions, two of them right.
    cells = {"tp": 2, "fn": 0, "fp": 2, "tn": 0}
    assert anyloss.metric("jaccard")(**cells) == 0.5
    assert anyloss.metric("dice")(**cells) == pytest.approx(2 / 3, abs=1e-15)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("dice", "f1"), ("csi", "jaccard"), ("iou", "jaccard"), ("youden", "informedness"),
        ("tss", "informedness"), ("hss", "cohen_kappa"), ("sensitivity", "recall"),
        ("ppv", "precision"), ("Balanced Accuracy", "balanced_accuracy"), ("G-mean", "gmean"),
        ("F1", "f1"), ("matthews_corrcoef", "mcc"),
    ],
)  # fmt: skip
def test_aliases(alias, name):
    assert anyloss.metric(alias).name == name


@pytest.mark.parametrize("name", NAMES)
def test_empty_counts_are_finite_for_floats_arrays_and_cells(name):
    function = anyloss.METRICS[name]
    zero = function(tp=0, fn=0, fp=0, tn=0)
    assert math.isfinite(zero)
    arrays = function(tp=np.zeros(3), fn=np.zeros(3), fp=np.zeros(3), tn=np.zeros(3))
    np.testing.assert_array_equal(arrays, np.full(3, zero))
    cells = [Cell(np.zeros(2), 1.0, 0.0, NUMPY) for _ in range(4)]
    result = function(*cells)
    assert np.isfinite(result.value).all()
    assert np.isfinite(result.d_positive).all()


def test_functions_and_pickles():
    mine = anyloss.metric(lambda tp, fn, fp, tn: tp / (tp + fn + 3 * fp))
    assert mine(tp=6, fn=0, fp=2, tn=9) == 0.5
    for spec in ("f1", "tp / (tp + fp)", "sqrt(tp) / (tp + 1)"):
        copy = pickle.loads(pickle.dumps(anyloss.metric(spec)))
        cells = {"tp": 3, "fn": 1, "fp": 2, "tn": 4}
        assert copy(**cells) == anyloss.metric(spec)(**cells)
    assert anyloss.metric(mine) is mine


def test_a_numpy_number_on_the_left():
    mine = anyloss.metric(lambda tp, fn, fp, tn: np.float64(2) * tp / (np.float64(1) + tp))
    assert anyloss.gradient([1, 0], [0.5, 0.5], mine)[0] == pytest.approx(2 * 0.5 / 1.5)


def test_a_constant_metric_has_no_gradient():
    score, gradient = anyloss.gradient([1, 0], [0.5, 0.5], lambda tp, fn, fp, tn: 0.25)
    assert score == 0.25
    np.testing.assert_array_equal(gradient, [0, 0])


@pytest.mark.parametrize(
    ("spec", "params", "error", "message"),
    [
        ("f1x", {}, ValueError, "did you mean 'f1'"),
        ("f2", {}, ValueError, "'fbeta\\(beta=2\\)'"),
        ("f0.5", {}, ValueError, "'fbeta\\(beta=0.5\\)'"),
        ("fbeta(2)", {}, ValueError, "by name, as in 'fbeta\\(beta=2\\)'"),
        ("fbeta(beta=2, beta=3)", {}, ValueError, "written once"),
        ("f1()", {}, ValueError, "has no parentheses, as in 'f1'"),
        ("roc-auc", {}, ValueError, "AUROCLoss"),
        ("qqqqqq", {}, ValueError, "known: "),
        (3, {}, TypeError, "got int"),
        ("f1", {"beta": 2.0}, TypeError, "unknown argument 'beta'; .* 'f1' are: none"),
        ("cost", {"stpe": 2.0}, TypeError, "are: fn_cost, fp_cost"),
        ("fbeta", {"beta": -1.0}, ValueError, "beta of metric 'fbeta' must be a number >= 0"),
        ("fbeta", {"beta": float("nan")}, ValueError, "must be a number >= 0"),
        (lambda tp, fn, fp, tn: "high", {}, TypeError, "must return a number"),
        (lambda tp, fn, fp, tn: float("nan"), {}, ValueError, "finite"),
        (lambda tp, fn, fp, tn: np.sqrt(tp), {}, TypeError, "for a root"),
        (lambda tp, fn, fp, tn: tp / (tp + fp) if tp + fp else 1.0, {}, TypeError, "cannot branch"),
        (
            lambda tp, fn, fp, tn: 0.0 if tp == 0 else tp / (tp + fp),
            {},
            TypeError,
            "0 / 0 is already 0",
        ),
        (lambda tp, fn, fp, tn: tp * (fp != 0), {}, TypeError, "cannot compare"),
        (lambda tp, fn, fp, tn, k: tp, {"k": float("inf")}, ValueError, "k .* a finite number"),
        (lambda tp: tp, {}, TypeError, "a function of tp, fn, fp, tn"),
        (lambda tp, fn, fp, tn: tp**fn, {}, TypeError, "exponent"),
        (anyloss.metric("f1"), {"beta": 1.0}, TypeError, "complete"),
    ],
)
def test_bad_specs(spec, params, error, message):
    with pytest.raises(error, match=message):
        anyloss.metric(spec, **params)


def test_a_callable_without_a_hash_is_refused():
    class Gain:
        __hash__ = None

        def __call__(self, tp, fn, fp, tn):
            return tp - fp

    with pytest.raises(TypeError, match="a metric must be hashable; got Gain, .*frozen=True"):
        anyloss.metric(Gain())


def test_equal_metrics_are_one_key():
    for spec in ("f1", "tp - fp", "F-beta (beta=2)"):
        one, two = anyloss.metric(spec), anyloss.metric(spec)
        assert one == two
        assert {one: 1}[two] == 1
    assert anyloss.metric("tp-fp").function == anyloss.metric("tp - fp").function
    assert anyloss.metric("tp - fp") != anyloss.metric("tp - fn")


def test_parameters_of_a_function_are_its_own_affair():
    found = anyloss.metric(lambda tp, fn, fp, tn, k: tp + k * fp, k=-1.0)
    assert found(tp=5, fn=0, fp=2, tn=0) == 3


def test_the_parameters_that_are_listed_are_the_defaults():
    names = [each.name for each in listed() if "(" in each.name]
    assert "tversky(alpha=0.5, beta=0.5)" in names
    cells = {"tp": 6.0, "fn": 2.0, "fp": 3.0, "tn": 9.0}
    for name in names:
        assert anyloss.metric(name)(**cells) == anyloss.metric(name.split("(")[0])(**cells)


def test_the_formulas_that_are_listed_are_the_metrics():
    rng = np.random.default_rng(0)
    for name, _, text, aliases in listed():
        for word, value in re.findall(r"(\w+)=([\d.]+)", name):
            text = re.sub(rf"\b{word}\b", value, text)
        for tp, fn, fp, tn in rng.integers(1, 100, (5, 4)).astype(float):
            cells = {"tp": tp, "fn": fn, "fp": fp, "tn": tn}
            assert Formula(text)(**cells) == pytest.approx(anyloss.metric(name)(**cells), rel=1e-12)
        assert all(anyloss.metric(x) == anyloss.metric(name.split("(")[0]) for x in aliases)


def test_titles_and_meanings():
    found = anyloss.metric("sensitivity")
    assert (found.title, found.meaning) == (
        "Recall",
        "the share of the positives that are predicted positive",
    )
    titles = [each.title for each in listed()]
    assert len(set(titles)) == len(titles) == len(NAMES)
    assert all(anyloss.metric(name).meaning for name in NAMES)
    formula = anyloss.metric("tp / (tp + fn)")
    assert (formula.title, formula.meaning) == ("tp / (tp + fn)", "")


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_is_documented(name):
    """One sentence, the formula, an example."""
    lines = anyloss.METRICS[name].__doc__.split("\n")
    assert lines[0].endswith(".")
    assert lines[2].strip().startswith("`")
    assert "    Examples:" in lines


def test_the_document_lists_every_metric():
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    for name, title, formula, aliases in listed():
        assert f"| `{name}` | {title} | `{formula}` | {', '.join(aliases)} |" in text
