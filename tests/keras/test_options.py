"""Options of the Keras losses and of `Score` that test_agreement does not cover."""

import json

import numpy as np
import pytest

import anyloss

keras = pytest.importorskip("keras")
from anyloss.keras import AnyLoss, F1Loss, Score  # noqa: E402

RNG = np.random.default_rng(2)
P = RNG.dirichlet(np.ones(4), 30).astype("float32")
CLASSES, LABELS = RNG.integers(0, 4, 30), RNG.integers(0, 2, (30, 4))

SCORES = [
    (CLASSES, {"classes": [2, 0]}),
    (CLASSES, {"include_background": False, "average": "micro"}),
    (CLASSES, {"class_weights": "inverse_square", "average": "micro"}),
    (CLASSES, {"top_k": 2}),
    (LABELS, {"threshold": [0.1, 0.2, 0.3, 0.4]}),
    (LABELS, {"class_weights": np.array([1, 2, 3, 4]), "average": "macro"}),
]


@pytest.mark.parametrize(("y", "options"), SCORES)
def test_the_score_of_an_epoch_has_the_options(y, options):
    score = Score("f1", **options)
    for part in (slice(0, 10), slice(10, 30)):
        score.update_state(y[part], P[part])
    assert float(score.result()) == pytest.approx(anyloss.score(y, P, "f1", **options), abs=1e-6)


LOSSES = [
    {"class_weights": np.array([1, 2, 3, 4]), "average": "micro"},
    {"class_weights": "inverse", "classes": (1, 2), "form": "log"},
    {"threshold": [0.1, 0.2, 0.3, 0.4], "squared": True},
    {"average": "samples", "reduction": "sum"},
    {"activation": "softmax", "from_logits": True},
    {"top_k": 2, "include_background": False},
]


@pytest.mark.parametrize("options", LOSSES, ids=str)
def test_options_are_saved(options):
    loss = F1Loss(**options)
    again = F1Loss.from_config(json.loads(json.dumps(loss.get_config())))
    assert again.settings == loss.settings
    assert again.reduction == loss.reduction


@pytest.mark.parametrize("kind", [AnyLoss, Score])
def test_a_matrix_of_costs_is_saved(kind):
    costs = anyloss.cost_matrix(RNG.integers(0, 9, (4, 4)) + 9 * (1 - np.eye(4)))
    given = kind(costs)
    again = kind.from_config(json.loads(json.dumps(given.get_config())))
    assert again.settings == given.settings
    expected = anyloss.score(CLASSES, P, costs)
    if kind is Score:
        again.update_state(CLASSES, P)
        assert float(again.result()) == pytest.approx(expected, abs=1e-6)
    else:
        assert float(again(CLASSES, P)) == pytest.approx(float(given(CLASSES, P)))


def test_the_reduction_is_over_samples():
    y, p = LABELS.reshape(5, 6, 4), P.reshape(5, 6, 4)
    given = {"task": "multilabel", "per_sample": True}
    each = 1 - anyloss.score(
        y, p, "f1", anyloss.steps.Uniform(), class_axis=-1, reduction="none", **given
    )
    found = {
        name: np.asarray(keras.ops.convert_to_numpy(AnyLoss("f1", reduction=name, **given)(y, p)))
        for name in (None, "sum", "sum_over_batch_size", "mean")
    }
    assert found[None] == pytest.approx(each, abs=1e-6)
    assert found["sum"] == pytest.approx(each.sum(), abs=1e-5)
    assert found["mean"] == found["sum_over_batch_size"] == pytest.approx(each.mean(), abs=1e-6)


def test_the_confusion_matrix_of_a_batch_has_no_samples():
    with pytest.raises(ValueError, match="takes no thresholds= and no per_sample="):
        AnyLoss("f1", average="samples").compute_confusion_matrix(LABELS, P)
    with pytest.raises(ValueError, match="keeps no samples; got average='samples'"):
        Score("f1", average="samples")
