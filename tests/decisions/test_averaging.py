"""The mean of the rules of several parts of the samples."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.metrics import f1_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

import anyloss
from anyloss._core.shapes import Layout
from anyloss.decisions.averaging import clearly_better, mean_rule, parts_of
from anyloss.decisions.classes import best_rule
from anyloss.decisions.goals import ClassGoal
from anyloss.decisions.search import best_decision
from anyloss.sklearn import TunedDecisionClassifierCV

F1 = anyloss.metric("f1")


def drawn(n, classes, seed, skew=1.0):
    """Calibrated probabilities of classes of different sizes, and labels that they draw."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * 1.5 - skew * np.arange(classes)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return p, (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=classes - 1)


def found_for(p, label, **given):
    lay = Layout("multiclass", "macro", p.shape[1])
    return best_decision(np.eye(p.shape[1])[label], p, F1, lay, weight=np.ones(len(p)), **given)


def best_alone(p, label, most):
    lay = Layout("multiclass", "macro", p.shape[1])
    return best_rule(ClassGoal(label, np.ones(len(p)), F1, lay), p, most)


def test_the_mean_of_six_rules_by_hand():
    p, label = drawn(300, 4, 0)
    part = parts_of(label, p, 5)
    assert np.bincount(part).tolist() == [60] * 5
    rules = [best_alone(p, label, 83)]
    rules += [best_alone(p[part != k], label[part != k], 83) for k in range(5)]
    expected = mean_rule([rule.decision for rule in rules])
    found = found_for(p, label)
    np.testing.assert_allclose(found.decision.gains, expected.gains, rtol=1e-12)
    np.testing.assert_allclose(found.decision.offsets, expected.offsets, rtol=1e-12, atol=1e-15)
    assert found.evaluations == sum(rule.evaluations for rule in rules) <= 500
    reached = f1_score(label, found.decision.decide(p), average="macro")
    assert found.score == pytest.approx(reached, abs=1e-12)


def test_the_parts_are_alike_and_keep_equal_samples_together():
    p, label = drawn(500, 3, 1)
    part = parts_of(np.tile(label, 2), np.tile(p, (2, 1)), 5)
    np.testing.assert_array_equal(part[:500], part[500:])
    for k in range(3):
        sizes = np.bincount(part[:500][label == k], minlength=5)
        assert np.ptp(sizes) <= 1
    alone = np.append(label, 3)  # the only sample of a class is in every search
    assert parts_of(alone, np.vstack([p, p[:1]]), 5)[-1] == -1


@pytest.mark.parametrize("seed", range(10))
def test_the_arg_max_is_kept_where_the_mean_is_worse(seed):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, 60)
    p = rng.dirichlet([1, 1, 1], 60) + 2 * np.eye(3)[label] * (rng.random((60, 1)) < 0.9)
    found = found_for(p / p.sum(axis=1, keepdims=True), label)
    plain, mean = found.candidates["argmax"][1], found.candidates["mean"][1]
    assert found.score == max(plain, mean)


def test_one_part_and_too_few_evaluations_are_the_best_rule_alone():
    p, label = drawn(300, 4, 2)
    for given, most in (({"parts": 1}, 500), ({"max_evaluations": 95}, 95)):
        found, alone = found_for(p, label, **given), best_alone(p, label, most)
        np.testing.assert_array_equal(found.decision.gains, alone.decision.gains)
        assert "mean" not in found.candidates
    assert "mean" in found_for(p, label, max_evaluations=96).candidates  # 6 x 4 x 4 classes


def test_the_standard_error_of_a_gain_is_that_of_a_mean():
    rng = np.random.default_rng(0)
    label, lay = rng.integers(0, 3, 400), Layout("multiclass", "multiclass", 3)

    def goal_of(rows):
        return ClassGoal(label[rows], np.ones(rows.sum()), anyloss.metric("accuracy"), lay)

    wrong = (label + 1) % 3
    for better, worse, clear in ((30, 20, True), (30, 28, False), (20, 30, False)):
        decided, other = label.copy(), label.copy()
        other[:better], decided[better : better + worse] = wrong[:better], wrong[better:][:worse]
        error = np.std((decided == label) * 1.0 - (other == label), ddof=1) / 20
        assert ((better - worse) / 400 > error) == clear  # by the textbook
        assert clearly_better(goal_of, decided, other) == clear


def test_a_clear_gain_is_adopted_and_an_unclear_one_is_not():
    p, label = drawn(2000, 3, 0, skew=1.5)
    assert found_for(p, label, adopt="clear").score > found_for(p, label).candidates["argmax"][1]
    adopted = {"best": 0, "clear": 0}
    for seed in range(10):  # probabilities without information
        rng = np.random.default_rng(seed)
        p, label = rng.dirichlet([1, 1, 1], 90), rng.integers(0, 3, 90)
        for adopt in adopted:
            found = found_for(p, label, adopt=adopt)
            adopted[adopt] += found.decision is found.candidates["mean"][0]
    assert adopted["clear"] <= 4 < 8 <= adopted["best"]


def test_it_is_better_on_new_rows_than_the_best_rule():
    gains = []
    for seed in range(40):
        p, label = drawn(150, 4, seed)
        new, truth = drawn(20_000, 4, 1000 + seed)
        mean, best = (found_for(p, label, parts=k).decision for k in (5, 1))
        gains.append(
            f1_score(truth, mean.decide(new), average="macro")
            - f1_score(truth, best.decide(new), average="macro")
        )
    assert np.mean(gains) > 2 * np.std(gains) / np.sqrt(len(gains)) > 0


def test_the_classifier_has_the_parts_as_a_parameter():
    X, y = load_wine(return_X_y=True)
    X = X[:, :2]
    rules = {}
    for parts in (1, 5):
        model = TunedDecisionClassifierCV(GaussianNB(), n_parts=parts, store_cv_results=True)
        rules[parts] = model.fit(X, y).cv_results_["rules"]
    assert rules == {
        1: ["argmax", "linear", "balanced", "ascent"],
        5: ["argmax", "linear", "balanced", "ascent", "mean"],
    }
    with pytest.raises(ValueError, match="n_parts must be an integer of at least 1; got 0"):
        TunedDecisionClassifierCV(GaussianNB(), n_parts=0).fit(X, y)


@pytest.mark.parametrize("y", [np.arange(60) % 2, np.arange(120).reshape(60, 2) % 3 % 2])
def test_a_clear_gain_needs_several_classes(y):
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = KNeighborsClassifier(3)
    with pytest.raises(ValueError, match="more than two classes.* got 2 (classes|labels)"):
        TunedDecisionClassifierCV(model, "f1", adopt="clear").fit(X, y)
