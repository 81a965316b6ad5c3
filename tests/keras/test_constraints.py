"""Constraints in Keras, on the backend that KERAS_BACKEND names."""

import numpy as np
import pytest

from anyloss import metric
from anyloss._core.constraints import read_constraints
from anyloss._core.lagrangian import lagrangian

keras = pytest.importorskip("keras")

from anyloss.keras import AnyLoss, F1Loss  # noqa: E402

RNG = np.random.default_rng(2)
Y = (np.arange(2000) % 4 == 0).astype(np.float32)[:, None]
X = (RNG.normal(size=(2000, 1)) + 1.5 * Y).astype(np.float32)


def model_of(loss):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, activation="sigmoid")])
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss=loss)
    model.multipliers = loss.multipliers
    return model


def state(loss):
    return keras.ops.convert_to_numpy(loss.multipliers.value)


def test_the_loss_is_the_lagrangian_of_the_soft_counts():
    loss = AnyLoss("precision", constraints="recall >= 0.9")
    loss.multipliers.assign([[2.0], [0.5]])
    p, y = np.array([0.9, 0.4, 0.6, 0.2], np.float32), np.array([1.0, 1.0, 0.0, 0.0], np.float32)
    expected = lagrangian(metric("precision"), read_constraints("recall >= 0.9"), [2.0])
    cells = (p @ y, (1 - p) @ y, p @ (1 - y), (1 - p) @ (1 - y))
    assert float(loss(y[:, None], p[:, None])) == pytest.approx(1 - expected(*cells), abs=1e-6)
    assert state(loss).tolist() == [[2.0], [0.5]]  # no gradient, no update


def test_fit_reaches_the_known_optimum_and_evaluate_moves_nothing():
    """Precision of one score is best where recall is just enough."""
    loss = AnyLoss("precision", constraints="recall >= 0.9")
    model = model_of(loss)
    model.fit(X, Y, epochs=300, batch_size=2000, verbose=0)
    reached = (model.predict(X, verbose=0) > 0.5)[Y > 0].mean()
    assert reached == pytest.approx(0.9, abs=0.02)
    before = state(loss)
    assert before.max() > 0
    model.evaluate(X, Y, verbose=0)
    assert (state(loss) == before).all()


def test_the_multipliers_are_saved_with_the_weights_and_the_constraints_with_the_loss(tmp_path):
    loss = F1Loss(constraints=["recall >= 0.99", "specificity >= 0.99"])
    model = model_of(loss)
    model.fit(X, Y, epochs=2, verbose=0)
    model.save_weights(tmp_path / "all.weights.h5")
    again = F1Loss.from_config(loss.get_config())
    other = model_of(again)
    other.optimizer.build(other.trainable_variables)
    other.load_weights(tmp_path / "all.weights.h5")
    assert state(again).max() > 0
    assert (state(again) == state(loss)).all()


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="only JAX drops other variables")
def test_jax_refuses_multipliers_that_are_no_variable_of_the_model():
    loss = AnyLoss("precision", constraints="recall >= 0.9")
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, activation="sigmoid")])
    model.compile(loss=loss)
    with pytest.raises(ValueError, match=r"model\.multipliers = loss\.multipliers"):
        model.fit(X, Y, verbose=0)


def test_several_classes_and_bad_options_are_refused():
    loss = AnyLoss("precision", constraints="recall >= 0.9")
    with pytest.raises(ValueError, match="constraints are for two classes; got 3 columns"):
        loss([0, 1, 2], np.full((3, 3), 1 / 3, np.float32))
    with pytest.raises(ValueError, match="per_sample=True"):
        AnyLoss("precision", constraints="recall >= 0.9", per_sample=True)
    assert AnyLoss("f1").multipliers is None
