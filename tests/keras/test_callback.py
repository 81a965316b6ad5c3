"""The recipe within Keras's `fit`, on the backend of the tests: its loss and its choice by hand."""

import keras
import numpy as np
import pytest
from sklearn.metrics import f1_score

from anyloss.keras import AnyLoss, RefineCallback
from anyloss.recipe.target import new_target


def rows(n=300, seed=0, classes=2):
    g = np.random.default_rng(seed)
    y = g.choice(classes, n, p=[0.85, 0.15] if classes == 2 else [0.6, 0.3, 0.1])
    centres = np.random.default_rng(9).normal(size=(classes, 4))
    return (centres[y] + g.normal(size=(n, 4))).astype("float32"), y


def network(out, from_logits):
    keras.utils.set_random_seed(0)
    end = None if from_logits else "sigmoid" if out == 1 else "softmax"
    layers = [keras.Input((4,)), keras.layers.Dense(6, "relu"), keras.layers.Dense(out, end)]
    return keras.Sequential(layers)


def fit(kind, from_logits=False, rate=0.02, at_epoch=10, epochs=16, **options):
    classes = 3 if kind == "classes" else 2
    (x, y), (x_valid, y_valid) = rows(classes=classes), rows(seed=1, classes=classes)
    if kind == "labels":
        y, y_valid = (np.stack([a == 1, b[:, 0] > 0.5], 1) for a, b in ((y, x), (y_valid, x_valid)))
    if kind == "classes":
        start = keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
    else:
        start = keras.losses.BinaryCrossentropy(from_logits=from_logits)
    y, y_valid = (each.astype("int32" if kind == "classes" else "float32") for each in (y, y_valid))
    out = {"column": 1, "labels": 2, "classes": 3}[kind]
    model = network(out, from_logits)
    if kind == "labels" and not from_logits:
        model.layers[-1].activation = keras.activations.sigmoid
    callback = RefineCallback(
        "f1", validation_data=(x_valid, y_valid), start_loss=start, at_epoch=at_epoch,
        from_logits=from_logits, **options,
    )  # fmt: skip
    model.compile(keras.optimizers.Adam(rate), loss=callback.loss)
    history = model.fit(
        x, y, batch_size=300, epochs=epochs, callbacks=[callback], verbose=0, shuffle=False
    )
    return model, callback, history.history["loss"], (x, y), (x_valid, y_valid)


@pytest.mark.parametrize("from_logits", [False, True])
@pytest.mark.parametrize("kind", ["column", "labels", "classes"])
def test_the_result_is_never_worse_than_the_start(kind, from_logits):
    _, callback, losses, _, (x, y) = fit(kind, from_logits)
    values = callback.decision_values(x)
    decided = values.argmax(1) if kind == "classes" else (values > 0).squeeze()
    average = "binary" if kind == "column" else "macro"
    assert callback.end_score == pytest.approx(f1_score(y, decided, average=average))
    assert callback.end_score >= callback.start_score > 0.3
    assert len(losses) == 16


def test_the_start_loss_and_the_callback_agree_about_logits():
    start = keras.losses.BinaryCrossentropy(from_logits=True)
    data = (np.zeros((2, 1)), np.zeros(2))
    with pytest.raises(ValueError, match="start_loss with from_logits=True and from_logits=False"):
        RefineCallback("f1", validation_data=data, start_loss=start)


def test_the_loss_is_switched_in_compiled_functions_too():
    model, callback, losses, (x, y), (x_valid, y_valid) = fit(
        "column", from_logits=True, rate=0.0, at_epoch=2, epochs=4, cross_entropy=0.3
    )
    z, z_valid = (model.predict(each, verbose=0)[:, 0] for each in (x, x_valid))
    softplus = np.logaddexp(0, z)
    assert losses[:2] == pytest.approx([np.mean(softplus - y * z)] * 2, rel=1e-5)
    target = new_target(y_valid, "f1", "binary")
    at = target.averaged_offsets(z_valid.astype(float)[:, None]).item()
    assert callback.start_score == pytest.approx(f1_score(y_valid, z_valid > at))
    metric = AnyLoss("f1", from_logits=True)
    share = y_valid.mean()
    moved = z + np.log(share / (1 - share))
    entropy = np.mean(np.logaddexp(0, moved) - y * moved)
    expected = float(metric(y, (z - at).astype("float32"))) + 0.3 * entropy
    assert losses[2:] == pytest.approx([expected] * 2, rel=1e-4)
    assert callback.share in (0.0, 0.5, 1.0)


def test_a_refinement_that_hurts_is_dropped():
    (x, y), valid = rows(), rows(seed=1)
    model = network(1, True)
    start = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss=start)
    model.fit(x, y, epochs=10, verbose=0)
    before = model.get_weights()
    callback = RefineCallback("f1", validation_data=valid, start_loss=start, from_logits=True)
    callback.loss.factor = -10.0  # raises the cross-entropy
    model.compile(keras.optimizers.SGD(0.1), loss=callback.loss)
    model.fit(x, y, epochs=3, callbacks=[callback], verbose=0)
    assert callback.share == 0.0
    for mine, yours in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, yours)


def test_weights_count_and_maps_are_refused():
    x, y = rows()
    weight = np.where(y == 1, 2.0, 1.0)
    start = keras.losses.BinaryCrossentropy(from_logits=True)
    model = network(1, True)
    callback = RefineCallback(
        "f1", validation_data=(x, y, weight), start_loss=start, from_logits=True
    )
    model.compile("adam", loss=callback.loss)
    model.fit(x, y, sample_weight=weight, epochs=2, callbacks=[callback], verbose=0)
    decided = callback.decision_values(x)[:, 0] > 0
    assert callback.end_score == pytest.approx(f1_score(y, decided, sample_weight=weight))
    maps = keras.Sequential([keras.Input((3, 3, 1)), keras.layers.Conv2D(1, 1)])
    image = np.random.default_rng(0).normal(size=(8, 3, 3, 1)).astype("float32")
    callback = RefineCallback(
        "f1", validation_data=(image, image > 0), start_loss=start, from_logits=True
    )
    maps.compile("sgd", loss=callback.loss)
    with pytest.raises(ValueError, match="shape"):
        maps.fit(image, image > 0, callbacks=[callback], verbose=0)
