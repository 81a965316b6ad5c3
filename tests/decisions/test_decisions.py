"""The decision rules against brute force, scikit-learn's scores and rules by hand."""

from itertools import product

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.metrics import balanced_accuracy_score, f1_score

import anyloss
from anyloss._core.backend import NUMPY
from anyloss._core.counts import Counts
from anyloss._core.scoring import averaged
from anyloss._core.shapes import Layout
from anyloss.decisions.classes import Budget, arg_max, ascend, best_rule, linearised
from anyloss.decisions.goals import ClassGoal, CostGoal, class_parts
from anyloss.decisions.labels import Labels
from anyloss.decisions.search import best_decision

NAMES = sorted({function.__name__ for function in anyloss.METRICS.values()})
OWN_FORMS = [name for name in NAMES if anyloss.metric(name).has_own_form]
EVERY_AVERAGE = [
    (name, average) for name in NAMES for average in ("macro", "micro", "weighted")
] + [(name, "multiclass") for name in OWN_FORMS]


def calibrated(n, classes, seed, spread=1.5, rare=0.7):
    """Probabilities, and labels that are drawn from them: they are calibrated."""
    rng = np.random.default_rng(seed)
    z = spread * rng.normal(size=(n, classes)) - rare * np.arange(classes)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    return p, (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)


def goal_of(label, metric, average, classes, weight=None):
    weight = np.ones(len(label)) if weight is None else weight
    return ClassGoal(label, weight, anyloss.metric(metric), Layout("multiclass", average, classes))


@pytest.mark.parametrize(("metric", "average"), EVERY_AVERAGE)
def test_the_parts_of_the_classes_give_the_averaged_score(metric, average):
    rng = np.random.default_rng(0)
    lay, chosen = Layout("multiclass", average, 4), anyloss.metric(metric)
    parts, combine = class_parts(chosen, lay)
    for seed in range(20):
        label, predicted = rng.integers(0, 2 + seed % 3, (2, 12))  # some classes are absent
        goal = goal_of(label, metric, average, 4)
        counts = goal.counts(predicted)
        expected = averaged(chosen, counts, lay, NUMPY, hard=True).score.value
        found = combine(*(np.asarray(x).sum(axis=-1) for x in parts(counts)))
        assert float(found) == pytest.approx(float(expected[0]), abs=1e-12)


@pytest.mark.parametrize(("metric", "average"), EVERY_AVERAGE)
def test_a_sweep_scores_every_step_as_if_it_was_counted_anew(metric, average):
    rng = np.random.default_rng(1)
    n, k = 15, 1
    for _ in range(5):
        label, other = rng.integers(0, 4, n), rng.choice([0, 2, 3], n)
        goal = goal_of(label, metric, average, 4, weight=rng.random(n) + 0.1)
        order = rng.permutation(n)[:11]
        always = np.setdiff1d(np.arange(n), order)[:2]
        found = goal.along(k, other, order, np.arange(12), always)
        for left in range(12):
            predicted = other.copy()
            predicted[order[left:]] = predicted[always] = k
            # A root makes 1e-9 of the rounding of fractional weights.
            assert found[left] == pytest.approx(goal.score_of(predicted), abs=1e-8)


def brute_force(goal, p, grid):
    """The best score of all rules whose gains and offsets lie on a grid; class 0 is the unit."""
    best = -np.inf
    for a1, a2, b1, b2 in product(
        grid, grid, (-0.3, -0.1, 0.0, 0.1, 0.3), (-0.3, -0.1, 0.0, 0.1, 0.3)
    ):
        values = p * [1, a1, a2] + [0, b1, b2]
        best = max(best, goal.score_of(values.argmax(axis=1)))
    return best


@pytest.mark.parametrize(
    ("metric", "average"),
    [("f1", "macro"), ("gmean", "multiclass"), ("mcc", "multiclass"), ("accuracy", "multiclass")],
)
@pytest.mark.parametrize("seed", range(3))
def test_three_classes_against_brute_force_on_a_grid(metric, average, seed):
    p, label = calibrated(40, 3, seed)
    goal = goal_of(label, metric, average, 3)
    found = best_rule(goal, p)
    assert found.score == pytest.approx(goal.score_of(found.decision.decide(p)), abs=1e-12)
    # The ascent makes no step that is worth less than a sample.
    assert found.score >= brute_force(goal, p, np.geomspace(0.1, 10, 9)) - 1.5 / 40


def test_two_classes_are_exact():
    p, label = calibrated(200, 2, 0)
    goal = goal_of(label, "f1", "macro", 2)
    every = [f1_score(label, p[:, 1] > t, average="macro") for t in [-1, *p[:, 1]]]
    assert best_rule(goal, p).score == pytest.approx(max(every), abs=1e-12)


def test_a_linear_metric_is_the_cost_sensitive_arg_max():
    p, label = calibrated(3000, 4, 0)
    goal = goal_of(label, "balanced_accuracy", "multiclass", 4)
    rule, mixture_score = linearised(goal, p, Budget(20))
    by_hand = (p / np.bincount(label)).argmax(axis=1)
    np.testing.assert_array_equal(rule.decide(p), by_hand)
    assert mixture_score == pytest.approx(balanced_accuracy_score(label, by_hand))
    accuracy = goal_of(label, "accuracy", "multiclass", 4)
    np.testing.assert_array_equal(
        linearised(accuracy, p, Budget(20))[0].decide(p), p.argmax(axis=1)
    )


def test_dinkelbachs_algorithm_for_a_ratio_of_linear_functions():
    """Micro-averaged Jaccard is a growing function of accuracy: the arg-max is its best rule."""
    p, label = calibrated(3000, 4, 1)
    rule, _ = linearised(goal_of(label, "jaccard", "micro", 4), p, Budget(20))
    np.testing.assert_array_equal(rule.decide(p), p.argmax(axis=1))


@pytest.mark.parametrize("metric", ["gmean", "hmean"])
def test_frank_wolfe_on_calibrated_probabilities(metric):
    """It finds the best gains of a fine grid, and a single rule loses little to the mixture."""
    p, label = calibrated(20_000, 3, 2)
    goal = goal_of(label, metric, "multiclass", 3)
    rule, mixture_score = linearised(goal, p, Budget(20))
    score = goal.score_of(rule.decide(p))
    grid = np.geomspace(0.5, 20, 40)
    best = max(goal.score_of((p * [1, a, b]).argmax(axis=1)) for a, b in product(grid, grid))
    assert score == pytest.approx(best, abs=0.003)
    assert abs(mixture_score - score) < 0.002


def test_gains_and_offsets_beat_offsets_for_macro_f1():
    """The best rule for macro-F1 has both: offsets alone miss it on calibrated probabilities."""
    p, label = calibrated(5000, 4, 3, rare=1.2)
    goal = goal_of(label, "f1", "macro", 4)
    both = ascend(goal, p, arg_max(4), Budget(500))[1]
    offsets = ascend(goal, p, arg_max(4), Budget(500), with_gains=False)[1]
    assert both > offsets > goal.score_of(p.argmax(axis=1))


@pytest.mark.parametrize("most", [1, 2, 7, 60])
def test_the_budget_is_kept(most, monkeypatch):
    p, label = calibrated(300, 5, 0)
    goal = goal_of(label, "f1", "macro", 5)
    passes = []
    for name in ("along", "linear_rule"):
        function = getattr(ClassGoal, name)
        monkeypatch.setattr(
            ClassGoal, name, lambda *given, f=function: (passes.append(f), f(*given))[1]
        )
    found = best_rule(goal, p, most)
    assert len(passes) <= found.evaluations <= most
    assert found.score >= goal.score_of(p.argmax(axis=1))


def test_costs_of_three_classes():
    costs = [[0, 1, 4], [1, 0, 1], [10, 1, 0]]
    p, label = calibrated(4000, 3, 0)
    metric = anyloss.cost_matrix(costs)
    goal = CostGoal(label, np.ones(len(label)), metric.cost_matrix)
    by_hand = (p @ np.array(costs)).argmin(axis=1)  # the lowest expected cost
    np.testing.assert_array_equal(goal.plug_in_rule().decide(p), by_hand)
    paid = np.array(costs)[label, by_hand].sum() / np.max(costs, axis=1)[label].sum()
    assert goal.score_of(by_hand) == pytest.approx(1 - paid, abs=1e-12)
    lay = Layout("multiclass", "multiclass", 3)
    found = best_decision(np.eye(3)[label], p, metric, lay, weight=np.ones(len(p)))
    assert found.score >= 1 - paid
    order, other = np.arange(50)[::-1], np.zeros(4000, dtype=int)
    along = goal.along(2, other, order, np.arange(51), np.empty(0, dtype=int))
    for left in (0, 20, 50):
        predicted = np.zeros(4000, dtype=int)
        predicted[order[left:]] = 2
        assert along[left] == pytest.approx(goal.score_of(predicted), abs=1e-12)


def labels_of_three(n, seed):
    rng = np.random.default_rng(seed)
    s = np.round(rng.random((n, 3)), 2)
    return s, (rng.random((n, 3)) < s * [0.9, 0.5, 0.2]).astype(float)


@pytest.mark.parametrize(
    ("metric", "average"),
    [("f1", "macro"), ("f1", "micro"), ("jaccard", "micro"), ("mcc", "weighted")],
)
@pytest.mark.parametrize("seed", range(3))
def test_thresholds_of_labels_against_brute_force(metric, average, seed):
    s, y = labels_of_three(14, seed)
    labels = Labels(y, s, np.ones(14), anyloss.metric(metric), Layout("multilabel", average, 3))

    def scored(t):
        return anyloss.score(y, (s > t) * 1.0, metric, average=average, task="multilabel")

    shared = labels.shared()
    assert scored(shared) == pytest.approx(max(scored(t) for t in [-1, *s.ravel()]), abs=1e-12)
    own = labels.per_label(np.full(3, shared))
    assert scored(own) == pytest.approx(labels.score(own), abs=1e-12)
    every = product(*([-1, *np.unique(s[:, k])] for k in range(3)))
    assert scored(own) == pytest.approx(max(scored(np.array(t)) for t in every), abs=1e-12)


def test_shrunk_thresholds_lie_between_and_rare_labels_near_the_shared_one():
    s, y = labels_of_three(500, 0)
    y[:, 2] = 0.0
    labels = Labels(y, s, np.ones(500), anyloss.metric("f1"), Layout("multilabel", "macro", 3))
    own = np.array([0.2, 0.8, 0.9])
    positives = y.sum(axis=0)
    by_hand = (positives * own + 10 * 0.5) / (positives + 10)
    np.testing.assert_allclose(labels.shrunk(own, 0.5, probabilities=False), by_hand)
    logits = positives * logit(own) / (positives + 10)
    np.testing.assert_allclose(labels.shrunk(own, 0.5, probabilities=True), expit(logits))
    assert by_hand[2] == 0.5  # a label without a positive


def test_counts_of_many_classes_are_those_of_scikit_learn():
    p, label = calibrated(500, 6, 0)
    rule = best_rule(goal_of(label, "f1", "macro", 6), p)
    expected = f1_score(label, rule.decision.decide(p), average="macro")
    assert rule.score == pytest.approx(expected, abs=1e-12)
    assert isinstance(goal_of(label, "f1", "macro", 6).by_chance(), Counts)
