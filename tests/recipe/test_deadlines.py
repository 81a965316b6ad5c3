"""A limit of time: what is predicted from the share of the work that is done."""

import numpy as np
import pytest

from anyloss.boosting import LGBMAnyLossClassifier, XGBAnyLossClassifier
from anyloss.recipe import deadlines
from anyloss.recipe.deadlines import Deadline, OutOfTime
from anyloss.sklearn import AnyLossClassifier


class Clock:
    """A clock that goes on by `step` seconds with each look at it."""

    def __init__(self, step=0.0):
        self.now, self.step = 100.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def test_nothing_is_limited_outside_of_a_block():
    deadlines.report(0.5)
    assert not deadlines.is_limited()
    with Deadline(1.0).hold():
        assert deadlines.is_limited()
    assert not deadlines.is_limited()


@pytest.mark.parametrize(
    ("seconds", "done", "needed"),
    [
        (4.0, 0.5, None),  # 8 s in all, of 10
        (6.0, 0.5, 12.0),  # 12 s in all, of 10
        (6.0, 0.05, None),  # too early to predict
        (10.0, 0.0, 10.0),  # the end, whatever is done
    ],
)
def test_the_end_is_predicted_from_the_share_that_is_done(seconds, done, needed):
    clock = Clock()
    with Deadline(10.0, clock).hold():
        clock.now += seconds
        if needed is None:
            deadlines.report(done)
            return
        with pytest.raises(OutOfTime) as error:
            deadlines.report(done)
    assert error.value.seconds == pytest.approx(needed)


@pytest.mark.parametrize(
    "model",
    [
        AnyLossClassifier("f1"),
        AnyLossClassifier("f1", (8,)),
        LGBMAnyLossClassifier("f1", n_estimators=20, n_jobs=1),
        XGBAnyLossClassifier("f1", n_estimators=20, n_jobs=1),
    ],
    ids=["linear", "network", "lightgbm", "xgboost"],
)
def test_each_recipe_is_given_up_within_its_training(model):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = (X[:, 0] + rng.normal(size=120) > 1).astype(int)
    clock = Clock(step=1.0)
    with pytest.raises(OutOfTime), Deadline(15.0, clock).hold():
        model.fit(X, y)
    assert clock.now <= 100 + 1 + 1 + 15 + 1  # no look after the end
    assert not hasattr(model, "classes_")  # the model stays unchanged
