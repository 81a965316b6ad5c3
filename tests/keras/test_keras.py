"""Keras on the backend that KERAS_BACKEND names. Values and gradients are in test_agreement."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from sklearn.metrics import f1_score, matthews_corrcoef

import anyloss
from anyloss.steps import Amplified, Linear, LogitSigmoid, Uniform

keras = pytest.importorskip("keras")
from keras import ops  # noqa: E402

from anyloss.keras import (  # noqa: E402
    AccuracyLoss,
    AnyLoss,
    ApproximationFunction,
    BalancedAccuracyLoss,
    F1Loss,
    FBetaLoss,
    GeometricMeanLoss,
    MCCLoss,
    Score,
)

BACKEND = keras.backend.backend()
OTHERS = [
    name
    for name in ("torch", "jax", "tensorflow")
    if name != BACKEND and importlib.util.find_spec(name)
]
RNG = np.random.default_rng(5)
P = RNG.random(60).astype(np.float32)
Y = (RNG.random(60) < 0.3).astype(np.float32)


def soft(y, p, metric="f1", step=None, **arguments):
    """One minus the soft score of the core."""
    return 1 - anyloss.score(y, p.astype(float), metric, step or Uniform(), **arguments)


def small_model(*losses, units=(8,), activation="sigmoid", outputs=1, **options):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(n, activation="relu") for n in units]
    model = keras.Sequential(
        [keras.Input((4,)), *layers, keras.layers.Dense(outputs, activation=activation)]
    )
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=losses[0], **options)
    return model


X = RNG.normal(size=(200, 4)).astype(np.float32)
TARGET = (X[:, 0] + 0.3 * RNG.normal(size=200) > 1.0).astype(np.float32)


@pytest.mark.parametrize(
    ("loss", "metric", "params"),
    [
        (AccuracyLoss, "accuracy", {}),
        (F1Loss, "f1", {}),
        (lambda *scale: FBetaLoss(2.0, *scale), "fbeta", {"beta": 2.0}),
        (GeometricMeanLoss, "gmean", {}),
        (BalancedAccuracyLoss, "balanced_accuracy", {}),
        (MCCLoss, "mcc", {}),
    ],
)
def test_the_named_losses_take_the_scale_first(loss, metric, params):
    chosen = anyloss.metric(metric, **params)
    assert float(loss()(Y, P)) == pytest.approx(soft(Y, P, chosen), abs=1e-6)
    sharp = soft(Y, P, chosen, Amplified(73.0))
    assert float(loss(73.0)(Y, P)) == pytest.approx(sharp, abs=1e-6)


def test_scale_and_metric_by_position_or_by_name():
    expected = soft(Y, P, "mcc", Amplified(20.0))
    for loss in (
        AnyLoss(20.0, metric="mcc"),
        AnyLoss("mcc", amplifying_scale=20.0),
        AnyLoss("mcc", step=Amplified(20.0)),
    ):
        assert float(loss(Y, P)) == pytest.approx(expected, abs=1e-6)
    with pytest.raises(
        TypeError, match="metric must be given once; got it twice, as 'mcc' and as 'f1'"
    ):
        AnyLoss("mcc", metric="f1")
    with pytest.raises(ValueError, match="amplifying_scale cannot be combined with step=; got"):
        AnyLoss(20.0, step=Linear())


def test_options_of_the_core():
    at_three = soft(Y, P, step=Amplified(73.0, threshold=0.3))
    assert float(F1Loss(73.0, threshold=0.3)(Y, P)) == pytest.approx(at_three, abs=1e-6)
    several = [soft(Y, P, step=Linear(threshold=t)) for t in (0.2, 0.6)]
    both = F1Loss(step=Linear(), thresholds=[0.2, 0.6])
    assert float(both(Y, P)) == pytest.approx(np.mean(several), abs=1e-6)
    assert float(F1Loss(smooth=2.0)(Y, P)) == pytest.approx(soft(Y, P, smooth=2.0), abs=1e-6)


@pytest.mark.parametrize("y_shape", [(60,), (60, 1)])
@pytest.mark.parametrize("p_shape", [(60,), (60, 1)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_labels_are_matched_row_by_row(y_shape, p_shape, dtype):
    y, p = Y.reshape(y_shape).astype(dtype), P.reshape(p_shape)
    assert float(F1Loss()(y, p)) == pytest.approx(soft(Y, P), abs=1e-6)
    meter = Score("f1")
    meter.update_state(y, p)
    assert float(meter.result()) == pytest.approx(f1_score(Y, P > 0.5), abs=1e-6)


def test_the_class_axis_is_the_last_one():
    """Pictures of Keras: (n, height, width, classes), with labels or class indices."""
    p = RNG.random((2, 5, 6, 3)).astype(np.float32)
    p /= p.sum(-1, keepdims=True)
    y = RNG.integers(0, 3, (2, 5, 6))
    flat = soft(y.ravel(), p.reshape(-1, 3), "f1")
    assert float(F1Loss()(y, p)) == pytest.approx(flat, abs=1e-6)
    assert float(F1Loss()(y[..., None], p)) == pytest.approx(flat, abs=1e-6)
    one_hot = np.eye(3)[y]
    assert float(F1Loss(task="multiclass")(one_hot, p)) == pytest.approx(flat, abs=1e-6)
    labels = soft(one_hot.reshape(-1, 3), p.reshape(-1, 3))
    assert float(F1Loss(task="multilabel")(one_hot, p)) == pytest.approx(labels, abs=1e-6)
    given = {"task": "multilabel", "per_sample": True}
    each = soft(one_hot.transpose(0, 3, 1, 2), p.transpose(0, 3, 1, 2), **given)
    assert float(F1Loss(**given)(one_hot, p)) == pytest.approx(each, abs=1e-6)
    mask = one_hot[..., :1]
    binary = soft(mask.ravel(), p[..., 0].ravel())
    assert float(F1Loss()(mask[..., 0], p[..., :1])) == pytest.approx(binary, abs=1e-6)


def test_average_none_is_one_loss_per_class():
    y, p = (RNG.random((40, 3)) < 0.4).astype(np.float32), RNG.random((40, 3))
    expected = soft(y, p, average=None)
    found = ops.convert_to_numpy(F1Loss(average=None, reduction="none")(y, p))
    assert found == pytest.approx(expected, abs=1e-6)
    assert float(F1Loss(average=None)(y, p)) == pytest.approx(expected.mean(), abs=1e-6)
    assert float(F1Loss(average=None, reduction="sum")(y, p)) == pytest.approx(
        expected.sum(), abs=1e-5
    )


@pytest.mark.parametrize("shape", [(60,), (60, 1)])
def test_sample_weights_weigh_in_the_counts(shape):
    weight = RNG.integers(0, 3, 60)
    twice = np.repeat(np.arange(60), weight)
    expected = soft(Y[twice], P[twice])
    found = F1Loss()(Y, P[:, None], sample_weight=weight.reshape(shape))
    assert float(found) == pytest.approx(expected, abs=1e-6)
    constant = F1Loss()(Y, P[:, None], sample_weight=np.full(shape, 3.0))
    assert float(constant) == pytest.approx(soft(Y, P), abs=1e-6)
    meter = Score("f1")
    meter.update_state(Y, P[:, None], sample_weight=weight.reshape(shape))
    assert float(meter.result()) == pytest.approx(f1_score(Y[twice], P[twice] > 0.5), abs=1e-6)


def test_class_weights_reach_the_counts_through_fit():
    model = small_model(F1Loss())
    p = model.predict(X, verbose=0)[:, 0]
    weighted = soft(TARGET, p, weight=np.where(TARGET == 1, 5.0, 1.0))
    history = model.fit(
        X, TARGET, batch_size=200, epochs=1, class_weight={0: 1.0, 1: 5.0}, verbose=0
    )
    assert history.history["loss"][0] == pytest.approx(weighted, abs=1e-5)
    assert abs(weighted - soft(TARGET, p)) > 0.01


def test_masked_steps_do_not_count():
    """A sequence model with a Masking layer: masked steps are not counted."""
    x = RNG.normal(size=(8, 5, 4)).astype(np.float32)
    x[::2, 3:] = 0.0
    y = (RNG.random((8, 5)) < 0.4).astype(np.float32)
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((5, 4)),
            keras.layers.Masking(),
            keras.layers.SimpleRNN(6, return_sequences=True),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(loss=F1Loss(), metrics=[Score("f1")])
    keep = np.ones((8, 5), bool)
    keep[::2, 3:] = False
    p = ops.convert_to_numpy(model(x))[..., 0]
    found = model.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(soft(y[keep], p[keep]), abs=1e-5)
    assert found["f1"] == pytest.approx(f1_score(y[keep], p[keep] > 0.5), abs=1e-6)


def test_the_score_of_an_epoch_is_that_of_all_samples():
    model = small_model(F1Loss(), metrics=[Score("f1"), Score("mcc", threshold=0.3, name="m")])
    history = model.fit(
        X, TARGET, epochs=2, batch_size=16, validation_data=(X, TARGET), verbose=0
    ).history
    p = model.predict(X, verbose=0)[:, 0]
    assert history["val_f1"][-1] == pytest.approx(f1_score(TARGET, p > 0.5), abs=1e-6)
    assert history["val_m"][-1] == pytest.approx(matthews_corrcoef(TARGET, p > 0.3), abs=1e-6)
    parts = [f1_score(TARGET[k : k + 16], p[k : k + 16] > 0.5) for k in range(0, 200, 16)]
    assert abs(np.mean(parts) - history["val_f1"][-1]) > 1e-3


def test_a_score_of_several_classes_and_before_the_first_batch():
    meter = Score("f1", average=None)
    assert float(meter.result()) == 0
    y, p = RNG.integers(0, 3, 50), RNG.random((50, 3))
    p /= p.sum(1, keepdims=True)
    for part in (slice(20), slice(20, 50)):
        meter.update_state(y[part], p[part])
    expected = f1_score(y, p.argmax(1), average=None)
    assert ops.convert_to_numpy(meter.result()) == pytest.approx(expected, abs=1e-6)
    meter.reset_state()
    assert ops.convert_to_numpy(meter.result()) == pytest.approx(np.zeros(3))
    with pytest.raises(ValueError, match="one task and number of classes"):
        meter.update_state(y[:5], np.full((5, 4), 0.25))


class PaperFBeta(AnyLoss):
    """As in the paper's Keras code: its own constructor, and `call` from the confusion matrix."""

    def __init__(self, beta=1.0, amplifying_scale=73.0, **kwargs):
        super().__init__(amplifying_scale, **kwargs)
        self.beta_squared = beta**2

    def call(self, y_true, y_pred):
        _tn, fn, fp, tp = self.compute_confusion_matrix(y_true, y_pred)
        numerator = (1.0 + self.beta_squared) * tp
        return 1.0 - numerator / (numerator + self.beta_squared * fn + fp)


def test_a_subclass_with_its_own_call():
    expected = soft(Y, P, anyloss.metric("fbeta", beta=2), Amplified(73.0))
    assert float(PaperFBeta(2.0)(Y, P[:, None])) == pytest.approx(expected, abs=1e-6)
    weight = RNG.random(60)
    weighted = soft(Y, P, anyloss.metric("fbeta", beta=2), Amplified(73.0), weight=weight)
    found = PaperFBeta(2.0)(Y, P[:, None], sample_weight=weight)
    assert float(found) == pytest.approx(weighted, abs=1e-6)
    nothing = PaperFBeta(2.0)(np.zeros(4), np.zeros((4, 1)))
    assert np.isfinite(float(nothing))


def test_the_confusion_matrix_in_the_order_of_the_document():
    found = F1Loss(73.0).compute_confusion_matrix(Y, P[:, None])
    cells = anyloss.counts(Y, P.astype(float), Amplified(73.0))
    expected = [cells.tn, cells.fn, cells.fp, cells.tp]
    assert [float(x) for x in found] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_the_layer_approximates_decisions():
    layer = ApproximationFunction(73.0)
    expected = 1 / (1 + np.exp(-73 * (P.astype(float) - 0.5)))
    assert ops.convert_to_numpy(layer(P)) == pytest.approx(expected, abs=1e-5)
    again = ApproximationFunction.from_config(layer.get_config())
    assert again.step == Amplified(73.0)
    assert ApproximationFunction().step == Amplified(10.0)


def test_the_example_of_the_document_runs():
    X_train, X_val, y_train, y_val = X[:150], X[150:], TARGET[:150], TARGET[150:]
    keras.utils.set_random_seed(0)
    with pytest.warns(UserWarning, match="input_shape"):  # as the document writes it
        model = keras.Sequential(
            [
                keras.layers.Dense(64, activation="relu", input_shape=(X_train.shape[1],)),
                keras.layers.Dense(32, activation="relu"),
                keras.layers.Dense(1, activation="sigmoid"),
            ]
        )
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate=0.001), loss=F1Loss(), metrics=["accuracy"]
    )
    stop = keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True)
    history = model.fit(
        X_train, y_train, validation_data=(X_val, y_val), epochs=8, batch_size=32,
        callbacks=[stop], verbose=0,
    )  # fmt: skip
    assert history.history["loss"][-1] < history.history["loss"][0] - 0.1
    assert np.isfinite(history.history["val_loss"]).all()


def rare_digits():
    """Threes among half-hidden digits, one in three of them kept: about 4 % positives."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    digits = load_digits()
    three = digits.target == 3
    keep = ~three
    keep[np.flatnonzero(three)[::3]] = True
    x, y = digits.data[keep][:, 16:32].astype(np.float32), three[keep].astype(np.float32)
    a, b, y_a, y_b = train_test_split(x, y, test_size=0.4, stratify=y, random_state=0)
    scaler = StandardScaler().fit(a)
    return scaler.transform(a), scaler.transform(b), y_a, y_b


def test_training_for_f1_beats_cross_entropy_at_one_half():
    x, x_val, y, y_val = rare_digits()
    scores = {}
    for name, loss in (("bce", "binary_crossentropy"), ("f1", F1Loss())):
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [
                keras.Input((16,)),
                keras.layers.Dense(16, activation="relu"),
                keras.layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss, metrics=[Score("f1")])
        model.fit(x, y, epochs=30, batch_size=256, verbose=0)
        p = model.predict(x_val, verbose=0)[:, 0]
        scores[name] = f1_score(y_val, p > 0.5)
    print(BACKEND, scores)
    assert scores["f1"] > scores["bce"] + 0.05


@pytest.mark.slow("compiles a model")
@pytest.mark.filterwarnings("ignore")  # of PyTorch's compiler
@pytest.mark.parametrize("compiled", [False, True])
def test_compiled_and_plain_training_agree(compiled):
    if BACKEND == "torch" and compiled and not shutil.which("g++"):
        pytest.skip("PyTorch compiles with g++, which is not here")
    model = small_model(MCCLoss(), jit_compile=compiled, metrics=[Score("mcc")])
    history = model.fit(X, TARGET, epochs=3, batch_size=50, shuffle=False, verbose=0).history
    plain = small_model(MCCLoss(), run_eagerly=True, metrics=[Score("mcc")])
    expected = plain.fit(X, TARGET, epochs=3, batch_size=50, shuffle=False, verbose=0).history
    assert history["loss"] == pytest.approx(expected["loss"], abs=1e-4)
    assert history["mcc"] == pytest.approx(expected["mcc"], abs=1e-4)


def test_mixed_precision_counts_in_float32():
    p = P.astype(np.float16)
    many_p, many_y = np.tile(p, 200), np.tile(Y, 200)  # 12,000 rows: float16 could not count them
    expected = soft(many_y, many_p.astype(np.float32))
    found = F1Loss(dtype="mixed_float16")(many_y, many_p[:, None])
    assert float(found) == pytest.approx(expected, abs=1e-5)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = small_model(F1Loss(), metrics=[Score("f1")])
        history = model.fit(X, TARGET, epochs=15, batch_size=50, verbose=0).history
    finally:
        keras.config.set_dtype_policy("float32")
    assert history["loss"][-1] < history["loss"][0] - 0.1


@keras.saving.register_keras_serializable(package="tests")
def own_metric(tp, fn, fp, tn):
    return tp / (tp + 3 * fn + fp)


@pytest.mark.parametrize(
    "loss",
    [
        F1Loss(),
        FBetaLoss(2.0, 30.0, threshold=0.4),
        MCCLoss(step=Linear(0.1), smooth=0.5),
        AnyLoss("tp / (tp + 0.3*fp + 2*fn)", thresholds=[0.2, 0.8]),
        AnyLoss(metric=own_metric, step=LogitSigmoid(3.0)),
        AnyLoss(anyloss.metric("fbeta", beta=3)),
        F1Loss(np.float32(20.0), thresholds=np.array([0.3, 0.5])),
    ],
)
def test_a_loss_comes_back_from_its_config(loss):
    config = json.loads(json.dumps(keras.losses.serialize(loss)))
    again = keras.losses.deserialize(config)
    assert type(again) is type(loss)
    assert repr(again.settings) == repr(loss.settings)
    assert float(again(Y, P)) == float(loss(Y, P))


def test_a_score_comes_back_from_its_config():
    meter = Score("fbeta", beta=2.0, threshold=0.3, name="mine")
    again = keras.metrics.deserialize(json.loads(json.dumps(keras.metrics.serialize(meter))))
    assert again.name == "mine"
    assert repr(again.settings) == repr(meter.settings)


@pytest.mark.slow("starts other backends")
@pytest.mark.parametrize("other", OTHERS)
def test_a_saved_model_loads_on_another_backend(other, tmp_path):
    model = small_model(FBetaLoss(2.0, 30.0), metrics=[Score("f1")])
    model.fit(X, TARGET, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "data.npz", X=X, y=TARGET)
    mine = model.evaluate(X, TARGET, batch_size=50, verbose=0)
    code = """
import json, numpy as np, keras, anyloss.keras
data = np.load("data.npz")
model = keras.saving.load_model("model.keras")
found = model.evaluate(data["X"], data["y"], batch_size=50, verbose=0)
print(json.dumps([keras.backend.backend(), type(model.loss).__name__, *found]))
"""
    environment = os.environ | {"KERAS_BACKEND": other}
    printed = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True,
        capture_output=True, text=True,
    ).stdout  # fmt: skip
    backend, name, *found = json.loads(printed.splitlines()[-1])
    assert (backend, name) == (other, "FBetaLoss")
    assert found == pytest.approx(mine, abs=1e-5)


@pytest.mark.slow("starts another backend")
@pytest.mark.skipif(BACKEND != "jax" and "jax" not in OTHERS, reason="JAX is not installed")
def test_on_jax_no_torch_is_imported():
    code = "import sys, anyloss.keras; print('torch' in sys.modules, 'jax' in sys.modules)"
    environment = os.environ | {"KERAS_BACKEND": "jax"}
    printed = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert printed.split() == ["False", "True"]


@pytest.mark.skipif("tensorflow" in (BACKEND, *OTHERS), reason="TensorFlow is installed")
def test_a_missing_backend_is_named():
    environment = os.environ | {"KERAS_BACKEND": "tensorflow"}
    code = [sys.executable, "-c", "import anyloss.keras"]
    failed = subprocess.run(code, env=environment, capture_output=True, text=True)
    assert "KERAS_BACKEND names" in failed.stderr
    assert failed.stderr.strip().endswith("missing: tensorflow")


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: F1Loss()(Y[:50], P), ValueError, "labels must have the shape of the scores"),
        (lambda: F1Loss()(Y, np.full((60, 3), 1 / 3)[:, :, None]), ValueError, "labels must have"),
        (lambda: F1Loss()(Y * 2, P), ValueError, "labels must lie in"),
        (lambda: F1Loss()(Y, P * 3), ValueError, "from_logits=True for logits"),
        (lambda: F1Loss()(Y + 0.5, np.full((60, 3), 1 / 3)), ValueError, "whole numbers; got"),
        (lambda: F1Loss()(Y + 5, np.full((60, 3), 1 / 3)), ValueError, "labels must lie in"),
        (lambda: F1Loss()(Y, P, np.ones(50)), ValueError, "weights and masks must have"),
        (lambda: F1Loss()(Y, P, -np.ones(60)), ValueError, "weights must lie in"),
        (lambda: F1Loss()(Y, P * np.nan), ValueError, "NaN"),
        (lambda: AnyLoss("f1_scor"), ValueError, "did you mean"),
        (lambda: F1Loss(average="mean"), ValueError, "average must be one of"),
        (lambda: F1Loss(-1.0), ValueError, "scale must be a positive number"),
        (lambda: F1Loss(scale=3.0), TypeError, "unknown argument 'scale'"),
        (lambda: F1Loss(400.0)(Y, P), ValueError, "scale must be at most"),
        (lambda: F1Loss(73.0, threshold=0.3, thresholds=[0.2]), ValueError, "cannot be combined with step= or thresholds="),
        (lambda: F1Loss(reduction="all"), ValueError, "reduction"),
        (lambda: AnyLoss(lambda tp, fn, fp, tn: tp + 1e39 * fp)(Y, keras.Variable(P)),
         ValueError, "is not finite for the counts"),
        (lambda: Score("f1", thresholds=[0.2, 0.4]), ValueError, "merges the counts of batches"),
        (lambda: AnyLoss.from_config({"step": {"class_name": "os", "config": {}}}),
         ValueError, "a saved step must be one of"),
        (lambda: F1Loss(thresholds=[0.2, 0.4]).compute_confusion_matrix(Y, P),
         ValueError, "takes no thresholds="),
    ],
)  # fmt: skip
def test_errors_name_what_was_expected(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_a_score_in_half_precision_counts_in_float32():
    meter = Score("f1", dtype="float16")
    for _ in range(50):
        meter.update_state(np.tile(Y, 5), np.tile(P, 5))  # 15,000 rows
    assert float(meter.result()) == pytest.approx(f1_score(Y, P > 0.5), abs=1e-6)


def test_values_are_not_checked_without_validate():
    assert np.isfinite(float(F1Loss(validate=False)(Y * 2, P)))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # within torch.func
@pytest.mark.skipif(BACKEND != "torch", reason="the derivative is PyTorch's there")
@pytest.mark.parametrize("step", [None, Amplified(10.0), LogitSigmoid(2.0)], ids=repr)
def test_the_own_derivative_on_pytorch(step):
    """Against finite differences, once and twice, and in `torch.func`."""
    import torch

    z = torch.tensor(RNG.normal(size=12), requires_grad=True)
    y = torch.tensor(RNG.random(12) < 0.4, dtype=torch.float64)
    loss = AnyLoss("mcc", step=step, from_logits=True, dtype="float64", validate=False)
    assert torch.autograd.gradcheck(lambda z: loss(y, z), z)
    assert torch.autograd.gradgradcheck(lambda z: loss(y, z), z)
    once = torch.autograd.functional.hessian(lambda z: loss(y, z), z.detach())
    torch.testing.assert_close(torch.func.hessian(lambda z: loss(y, z))(z.detach()), once)
