"""One metric, one step, one average: the same value and gradient in every front-end.

The closed form in NumPy is the reference. Keras runs on the backend that KERAS_BACKEND names; the
Makefile runs this file once per backend.
"""

import os

import numpy as np
import pytest

import anyloss
from anyloss.steps import Amplified, Hard, Linear, LogitSigmoid, RaisedCosine, Uniform

RNG = np.random.default_rng(7)
ROWS, CLASSES = 40, 4
LOGITS = {
    "binary": RNG.normal(size=ROWS) * 2,
    "multilabel": RNG.normal(size=(ROWS, CLASSES)) * 2,
    "multiclass": RNG.normal(size=(ROWS, CLASSES)) * 2,
}
LABELS = {
    "binary": RNG.integers(0, 2, ROWS),
    "multilabel": RNG.integers(0, 2, (ROWS, CLASSES)),
    "multiclass": RNG.integers(0, CLASSES, ROWS),
}
WEIGHT = RNG.integers(0, 3, ROWS) / 2

METRICS = sorted({function.__name__ for function in anyloss.METRICS.values()})
STEPS = (
    Amplified(10.0), Amplified(73.0), Amplified(5.0, threshold=0.3), Linear(), RaisedCosine(0.4),
    Uniform(), Uniform(0.3), LogitSigmoid(2.0, 0.5), Hard(),
)  # fmt: skip
AVERAGES = {
    "binary": ("binary", "macro", "micro", "weighted", None),
    "multilabel": ("macro", "micro", "weighted", None),
    "multiclass": ("macro", "micro", "weighted", "multiclass", None),
}


def cases():
    step = Amplified(10.0)
    for name in METRICS:
        yield f"{name}", "binary", name, {"step": step}
    for each in STEPS:
        for name in ("f1", "mcc"):
            yield f"{name}-{each}", "binary", name, {"step": each}
    for kind, averages in AVERAGES.items():
        for average in averages:
            for name in ("accuracy" if average == "multiclass" else "f1", "mcc"):
                yield f"{name}-{kind}-{average}", kind, name, {"step": step, "average": average}
    for kind in AVERAGES:
        yield f"weights-{kind}", kind, "f1", {"step": step, "weight": WEIGHT}
        yield f"smooth-{kind}", kind, "mcc", {"step": step, "smooth": 0.5}
    for each in (step, LogitSigmoid(2.0, 0.5)):
        yield f"probabilities-{each}", "binary", "f1", {"step": each, "from_logits": False}
    yield "formula", "binary", "tp / (tp + 0.3*fp + 2*fn)", {"step": step}
    yield "ignored", "multiclass", "f1", {"step": step, "ignore_index": 2}


CASES = list(cases())


def in_torch(z, y, metric, arguments):
    torch = pytest.importorskip("torch")
    from anyloss.torch import any_loss

    given = dict(arguments)
    if "weight" in given:
        given["weight"] = torch.tensor(given["weight"])
    logits = torch.tensor(z, requires_grad=True)
    loss = any_loss(logits, torch.tensor(y), metric, **given)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    return loss.detach().numpy(), gradient.numpy()


def in_jax(z, y, metric, arguments):
    jax = pytest.importorskip("jax")
    from anyloss.jax import any_loss

    def loss(logits):
        return any_loss(logits, y, metric, **arguments)

    with jax.enable_x64(z.dtype == np.float64):
        return np.asarray(loss(z)), np.asarray(jax.jit(jax.grad(lambda x: loss(x).sum()))(z))


def in_keras(z, y, metric, arguments):
    keras = pytest.importorskip("keras")
    from anyloss.keras import AnyLoss

    given = dict(arguments)
    weight = given.pop("weight", None)
    criterion = AnyLoss(
        metric, dtype=str(z.dtype), reduction="none", **{"from_logits": True} | given
    )

    def loss(logits):
        return criterion(y, logits, weight)

    if keras.backend.backend() == "torch":
        import torch

        logits = torch.tensor(z, requires_grad=True)
        value = loss(logits)
        (gradient,) = torch.autograd.grad(value.sum(), logits)
        return value.detach().numpy(), gradient.numpy()
    if keras.backend.backend() == "jax":
        import jax

        with jax.enable_x64(z.dtype == np.float64):
            gradient = jax.jit(jax.grad(lambda x: loss(x).sum()))(z)
            return np.asarray(loss(z)), np.asarray(gradient)
    import tensorflow as tf

    logits = tf.convert_to_tensor(z)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = loss(logits)
        total = tf.reduce_sum(value)
    gradient = tape.gradient(total, logits)
    return value.numpy(), np.zeros_like(z) if gradient is None else gradient.numpy()


FRONT_ENDS = {
    "torch": in_torch,
    "jax": in_jax,
    f"keras-{os.environ['KERAS_BACKEND']}": in_keras,
}


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-10), (np.float32, 1e-6)])
@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("case", CASES, ids=[name for name, *_ in CASES])
def test_the_value_and_the_gradient_are_those_of_the_closed_form(case, front_end, dtype, tolerance):
    _, kind, metric, arguments = case
    z, y = LOGITS[kind].astype(dtype), LABELS[kind]
    if not arguments.get("from_logits", True):
        z = 1 / (1 + np.exp(-z))
    score, slope = anyloss.gradient(y, z.astype(float), metric, **{"from_logits": True} | arguments)
    value, gradient = FRONT_ENDS[front_end](z, y, metric, arguments)
    assert value.dtype == gradient.dtype == dtype
    assert value == pytest.approx(1 - np.asarray(score), rel=0, abs=tolerance)
    assert gradient == pytest.approx(-slope, rel=0, abs=tolerance * max(1e-2, abs(slope).max()))
