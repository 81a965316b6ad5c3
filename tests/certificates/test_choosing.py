"""Choosing and certifying a threshold."""

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from anyloss import certify
from anyloss._core.constraints import read_constraints
from anyloss.certificates import certified_threshold
from anyloss.certificates.choosing import rows_needed


def draw(rng, n):
    y = rng.random(n) < 0.3
    return y.astype(int), rng.normal(size=n) + 2 * y


def test_a_certified_threshold_violates_its_constraint_at_most_as_often_as_promised():
    """The true recall of a threshold is known: 1 - Phi(threshold - 2)."""
    rng, wrong, none = np.random.default_rng(0), 0, 0
    for _ in range(200):
        found = certified_threshold(*draw(rng, 300), *draw(rng, 200), "precision", constraints="recall >= 0.9",
                                    confidence_level=0.8)  # fmt: skip
        none += found.threshold is None
        wrong += found.threshold is not None and norm.sf(found.threshold - 2) < 0.9
    assert none < 150
    assert binomtest(wrong, 200, 0.2, alternative="greater").pvalue > 0.01


def test_the_certificate_is_that_of_the_chosen_threshold():
    rng = np.random.default_rng(1)
    tuning, (y, s) = draw(rng, 2000), draw(rng, 2000)
    constraints = ["recall >= 0.85", "specificity >= 0.7"]
    found = certified_threshold(*tuning, y, s, "f1", constraints=constraints)
    assert found.certificate == certify(y, s > found.threshold, constraints)
    assert found.certificate.holds
    assert found.threshold in found.tested
    assert found.words().startswith("threshold ")


def test_nothing_certified_gives_the_first_candidate_and_the_rows_needed():
    rng = np.random.default_rng(2)
    tuning, (y, s) = draw(rng, 400), draw(rng, 20)
    found = certified_threshold(*tuning, y, s, constraints="recall >= 0.9")
    assert found.threshold is None
    assert len(found.tested) == 1
    assert found.certificate == certify(y, s > found.tested[0], "recall >= 0.9")
    assert found.rows_needed > 20
    assert f"about {found.rows_needed} certifying rows would be needed" in found.words()
    assert np.isfinite(found.uncertified_threshold)


def test_a_constraint_that_no_threshold_satisfies():
    found = certified_threshold([0, 1] * 20, [0.5] * 40, [0, 1] * 20, [0.5] * 40,
                                constraints="precision >= 0.9")  # fmt: skip
    assert found.threshold is None
    assert found.rows_needed is None
    assert "no number of rows would be enough" in found.words()


def test_the_rows_needed_are_those_of_an_exact_binomial():
    """Without a false negative, 0.9^n <= 0.05 needs 29 positives, half of the rows."""
    (constraint,) = read_constraints("recall >= 0.9")
    assert rows_needed((constraint,), np.array([5, 0, 0, 5]), 0.95) in (57, 58)


def test_bad_input():
    with pytest.raises(ValueError, match="candidates must be an integer of at least 1"):
        certified_threshold([1], [1.0], [1], [1.0], constraints="recall >= 0.5", candidates=0)
    with pytest.raises(ValueError, match="one length"):
        certified_threshold([1], [1.0], [1, 0], [1.0], constraints="recall >= 0.5")
    with pytest.raises(ValueError, match="labels must be 0 and 1; got 0.5"):
        certified_threshold([0.5], [1.0], [1], [1.0], constraints="recall >= 0.5")
    with pytest.raises(ValueError, match="from 0.5 to below 1"):
        certified_threshold([1], [1.0], [1], [1.0], constraints="recall >= 0.5", confidence_level=1)


def test_ties_and_one_class_give_a_threshold_or_say_that_there_is_none():
    tied = certified_threshold(
        [0, 1] * 50, [0.5] * 100, [0, 1] * 50, [0.5] * 100, "precision", constraints="recall >= 0.9"
    )
    assert tied.threshold < 0.5  # all positive is the only way
    assert tied.certificate.holds
    for label in (0, 1):
        y, scores = [label] * 60, np.linspace(0, 1, 60)
        found = certified_threshold(y, scores, y, scores, "f1", constraints="recall >= 0.8")
        assert (found.threshold is None) == (label == 0)  # without a positive nothing is known


def test_candidates_are_dense_where_the_test_is_decided():
    """Of 2000 rows the recall of neighbouring candidates differs by a thirtieth of the room."""
    rng = np.random.default_rng(4)
    y = rng.random(4000) < 0.3
    s = y + rng.normal(size=4000)
    found = certified_threshold(
        y[:2000], s[:2000], y[2000:], s[2000:], "precision", constraints="recall >= 0.8"
    )
    recalls = [certify(y[:2000], s[:2000] > t, "recall").score for t in found.tested]
    assert np.abs(np.diff(np.sort(recalls))).max() < 1.5 * 0.2 / 29
    assert found.threshold == found.tested[-2]  # the last one has failed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"constraints": None}, "at least one"),
        ({"constraints": "recall >= 0.5", "candidates": 2.5}, "an integer of at least 1; got 2.5"),
    ],
)
def test_what_certified_threshold_refuses(given, message):
    y, scores = [0, 1] * 5, [0.25, 0.75] * 5
    with pytest.raises(ValueError, match=message):
        certified_threshold(y, scores, y, scores, **given)
