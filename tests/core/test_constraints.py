"""Constraints as text, and the best threshold under constraints."""

import random
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_curve

import anyloss
from anyloss import best_threshold
from anyloss._core.constraints import read_constraints


@pytest.mark.parametrize(
    ("text", "metric", "at_least", "value"),
    [
        ("recall >= 0.9", "recall", True, 0.9),
        ("  tpr>=.9 ", "recall", True, 0.9),
        ("balanced accuracy <= 1e-1", "balanced accuracy", False, 0.1),
        ("fbeta(beta=2) >= 0.5", "fbeta(beta=2)", True, 0.5),
        ("fp / (fp + tn) <= 0.2", "fp / (fp + tn)", False, 0.2),
        ("mcc >= -0.25", "mcc", True, -0.25),
    ],
)
def test_a_constraint_is_a_metric_a_sign_and_a_number(text, metric, at_least, value):
    (found,) = read_constraints(text)
    cells = {"tp": 6, "fn": 2, "fp": 5, "tn": 8}
    assert found.metric(**cells) == anyloss.metric(metric)(**cells)
    assert (found.at_least, found.value) == (at_least, value)


@pytest.mark.parametrize(
    ("text", "message", "caret"),
    [
        ("recall", "got no >= or <=", 6),
        ("recall > 0.9", "got '>'", 7),
        ("recall => 0.9", "got '=>'", 7),
        ("recall ≥ 0.9", "got '≥'", 7),
        ("tp + >= 0.9", "not well formed", 4),
        ("recall == 0.9", "got '=='", 7),
        ("0.8 <= recall <= 0.9", "got '<='; write two constraints as a list", 14),
        ("0.9 <= recall", "got 'recall' in place of the number", 7),
        ("recall >= 90%", "got '90%' in place of the number", 10),
        ("recall >= nan", "got 'nan' in place of the number", 10),
        ("recall >=", "got '' in place of the number", 9),
        (">= 0.9", "got '' in place of the metric", 0),
        ("recalls >= 0.9", "did you mean 'recall'", 0),
        ("tp / (tp + fnn) >= 0.9", "unknown name 'fnn'", 11),
        ("  tp / (tp + ) >= 0.9", "not well formed", 13),
        ("tp ^ 2 >= 0.9", "a power is written", 3),
    ],
)
def test_a_bad_constraint_shows_its_line_and_the_place(text, message, caret):
    with pytest.raises(ValueError, match=".") as error:
        read_constraints(text)
    first, line, mark = str(error.value).split("\n")
    assert message in first
    assert line == f"    {text}"
    assert mark == f"    {' ' * caret}^"


def test_bad_types():
    for spec in (3, ["recall >= 0.9", 4], {"recall": 0.9}):
        with pytest.raises(TypeError, match="a text such as 'recall >= 0.9'"):
            read_constraints(spec)
    with pytest.raises(ValueError, match="at least one"):
        read_constraints([])


def test_ten_thousand_generated_texts_give_a_constraint_or_a_clear_error():
    rng = random.Random(0)
    words = [
        *"()+-*/.<>=!%^ ",
        "recall",
        "tp",
        "fn",
        "f1",
        ">=",
        "<=",
        "0.9",
        "1e9",
        "sqrt(",
        "nan",
    ]
    for _ in range(10_000):
        text = "".join(
            rng.choice([*words, rng.choice(string.printable)]) for _ in range(rng.randint(1, 8))
        )
        try:
            (found,) = read_constraints(text)
        except ValueError:
            continue
        assert np.isfinite(found.value)


rows = st.integers(2, 30).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 1), min_size=n, max_size=n),
        st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.8]), min_size=n, max_size=n),
        st.sampled_from([["recall >= 0.6"], ["recall >= 0.6", "specificity >= 0.5"], ["fp / (fp + tn) <= 0.3"]]),
    )
)  # fmt: skip


@given(rows)
@settings(max_examples=300, deadline=None)
def test_exact_against_trying_every_split(row):
    y, s, texts = np.array(row[0]), np.array(row[1]), row[2]

    def cells(threshold):
        d = s > threshold
        return [int(x.sum()) for x in ((y == 1) & d, (y == 1) & ~d, (y == 0) & d, (y == 0) & ~d)]

    def holds(tp, fn, fp, tn):
        recall, fpr = tp / max(tp + fn, 1), fp / max(fp + tn, 1)
        specificity = tn / max(fp + tn, 1)
        checks = {"recall >= 0.6": recall >= 0.6, "specificity >= 0.5": specificity >= 0.5}
        return all((checks | {"fp / (fp + tn) <= 0.3": fpr <= 0.3})[x] for x in texts)

    found = [cells(t) for t in [-1.0, *s] if holds(*cells(t))]
    if not found:
        with pytest.raises(ValueError, match="no threshold satisfies"):
            best_threshold(y, s, "f1", constraints=texts)
        return
    best = best_threshold(y, s, "f1", constraints=texts)
    assert holds(*cells(best.threshold))
    assert best.score == pytest.approx(max(2 * a / max(2 * a + b + c, 1) for a, b, c, _ in found))


def test_precision_at_recall_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    y = rng.random(500) < 0.3
    s = rng.normal(size=500) + y
    precision, recall, _ = precision_recall_curve(y, s)
    found = best_threshold(y, s, "precision", constraints="recall >= 0.9")
    assert found.score == pytest.approx(precision[recall >= 0.9].max())
    assert best_threshold(y, s, "precision") == best_threshold(y, s, "precision", constraints=None)


def test_an_infeasible_constraint_names_the_best_reachable_value():
    y, s = [0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4]
    with pytest.raises(ValueError, match=r"satisfies 'jaccard >= 0.9'; the highest .* is 0.666667"):
        best_threshold(y, s, "f1", constraints="jaccard >= 0.9")
    joint = ["recall >= 0.9", "specificity >= 0.8"]
    with pytest.raises(ValueError, match=r"together with 'recall >= 0.9'; the highest .* is 0.5\."):
        best_threshold(y, s, "f1", constraints=joint)
    with pytest.raises(ValueError, match=r"the lowest value that these scores reach is 0.333333"):
        best_threshold(
            y, s, "f1", constraints="1 - jaccard <= 0.1".replace("jaccard", "tp/(tp+fn+fp)")
        )
