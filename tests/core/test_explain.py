"""What one more true positive or false positive is worth, and the threshold that follows."""

import re

import numpy as np
import pytest

import anyloss


@pytest.mark.parametrize(
    "name", ["f1", "fbeta(beta=2)", "mcc", "balanced_accuracy", "accuracy", "jaccard", "gmean"]
)
def test_the_threshold_is_the_best_one_for_calibrated_scores(name):
    rng = np.random.default_rng(0)
    p = rng.beta(0.7, 3, 400_000)
    y = (rng.random(len(p)) < p).astype(int)
    best = anyloss.best_threshold(y, p, name)
    cells = anyloss.counts(y, (p > best.threshold).astype(float))
    found = anyloss.explain(name, **vars(cells))
    assert found.score == pytest.approx(best.score)
    assert found.threshold == pytest.approx(best.threshold, abs=0.02)


@pytest.mark.parametrize(
    ("metric", "cells"),
    [
        ("mcc", (0, 20, 0, 980)),
        ("gmean", (0, 20, 5, 975)),
        ("precision", (0, 20, 0, 980)),
        ("mcc", (20, 0, 980, 0)),
    ],
)
def test_where_the_derivatives_are_zero_a_whole_sample_counts(metric, cells):
    tp, fn, fp, tn = cells
    found, chosen = anyloss.explain(metric, tp=tp, fn=fn, fp=fp, tn=tn), anyloss.metric(metric)
    if fn:
        assert found.true_positive == chosen(tp + 1, fn - 1, fp, tn) - chosen(*cells)
        assert found.true_positive > 0.2
        assert found.threshold < 0.1
    else:
        assert (found.true_positive, found.false_positive, found.threshold) == (0.0, 0.0, 1.0)


def f1(tp, fn, fp):
    return 2 * tp / (2 * tp + fn + fp)


def test_the_derivatives_of_f1():
    found = anyloss.explain("f1", tp=80, fn=20, fp=30, tn=870)
    steps = [f1(80 + h, 20 - h, 30 + a) - f1(80, 20, 30) for h, a in ((1e-4, 0), (0, 1e-4))]
    expected = np.array(steps) / 1e-4
    assert (found.true_positive, found.false_positive) == pytest.approx(expected, rel=1e-3)
    assert found.threshold == pytest.approx(found.score / 2)
    assert "a true positive is worth 1.63 false positives" in found.words()
    assert "above 0.3810" in found.words()


@pytest.mark.parametrize(
    ("spec", "threshold", "words"),
    [
        ("recall", 0.0, "threshold: 0; predict every sample positive"),
        ("specificity", 1.0, "threshold: 1; predict no sample positive"),
        ("fn / (tp + fn)", None, "threshold: none, .* write a cost as 1 - cost"),
    ],
)
def test_a_threshold_in_words(spec, threshold, words):
    for cells in ((80, 20, 30, 870), (8, 2, 3, 87)):
        found = anyloss.explain(spec, **dict(zip(("tp", "fn", "fp", "tn"), cells, strict=True)))
        assert found.threshold == threshold
        assert re.search(words, found.words())


@pytest.mark.parametrize(
    "bad", [{"tp": -1}, {"tp": float("nan")}, {"tp": 0, "fn": 0, "fp": 0, "tn": 0}]
)
def test_bad_counts(bad):
    with pytest.raises(ValueError, match="counts must be finite numbers >= 0"):
        anyloss.explain("f1", **({"tp": 1, "fn": 1, "fp": 1, "tn": 1} | bad))
