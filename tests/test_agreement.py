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
# Pictures of 3 x 2 pixels: masks, labels and classes along the second axis; some are absent.
LOGITS |= {"masks": RNG.normal(size=(6, 3, 2)), "maps": RNG.normal(size=(6, 4, 3, 2))}
LOGITS |= {
    "class maps": LOGITS["maps"],
    "teacher": LOGITS["multiclass"],
    "rare": LOGITS["multiclass"],
    "sparse": LOGITS["multilabel"],
}
LABELS |= {
    "masks": RNG.integers(0, 2, (6, 3, 2)) * np.array([1, 1, 0, 1, 0, 1])[:, None, None],
    "maps": RNG.integers(0, 2, (6, 4, 3, 2)) * np.array([1, 0, 1, 1])[:, None, None],
    "class maps": RNG.integers(0, 3, (6, 3, 2)),
    "teacher": RNG.dirichlet(np.ones(CLASSES), ROWS),
    "rare": RNG.integers(1, 3, ROWS),  # two classes of four are absent
    "sparse": RNG.random((ROWS, CLASSES)) < 0.2,  # rows without a label
}

# The costs of four classes; every decision for a sample of the third class is free.
COSTS = anyloss.cost_matrix([[0, 1, 4, 2], [1, 0, 1, 0], [0, 0, 0, 0], [10, 1, 3, 0]])
METRICS = sorted({function.__name__ for function in anyloss.METRICS.values()})
STEPS = (
    Amplified(10.0), Amplified(73.0), Amplified(5.0, threshold=0.3), Linear(), RaisedCosine(0.4),
    Uniform(), Uniform(0.3), LogitSigmoid(2.0, 0.5), Hard(),
)  # fmt: skip
CLASS_OPTIONS = {
    "chosen": {"classes": [2, 0]},
    "no-background": {"include_background": False},
    "weighed": {"class_weights": [1, 2, 0, 3]},
    "weighed-and-chosen": {"class_weights": [2, 3], "classes": [1, 3]},
    "inverse": {"class_weights": "inverse"},
    "inverse-square": {"class_weights": "inverse_square", "include_background": False},
}
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
    for zero_division in ("auto", "skip", 0, 1):
        given = {"step": Uniform(), "zero_division": zero_division}
        for name in ("f1", "balanced_accuracy", "gmean", "hmean", "mcc"):
            yield f"{name}-rare-{zero_division}", "rare", name, given
        for average in ("weighted", None, "micro"):
            yield f"rare-{average}-{zero_division}", "rare", "f1", given | {"average": average}
        for per_sample in (True, "weighted"):
            masks = given | {"per_sample": per_sample, "task": "binary"}
            yield f"masks-{per_sample}-{zero_division}", "masks", "f1", masks
            labels = given | {"per_sample": per_sample, "task": "multilabel"}
            yield f"maps-{per_sample}-{zero_division}", "maps", "jaccard", labels
            classes = given | {"per_sample": per_sample}
            yield f"class-maps-{per_sample}-{zero_division}", "class maps", "f1", classes
        yield f"maps-pooled-{zero_division}", "maps", "f1", given | {"task": "multilabel"}
    for each in (1, 2, 3, -1):
        moved = {"step": Uniform(), "class_axis": each}
        yield f"axis-{each}-labels", "maps", "mcc", moved | {"task": "multilabel"}
        yield f"axis-{each}-classes", "class maps", "mcc", moved
    yield "default", "multiclass", "f1", {}
    yield "threshold", "binary", "f1", {"step": Uniform(threshold=0.2)}
    yield "task-one-hot", "teacher", "f1", {"task": "multiclass"}
    yield "soft-labels", "teacher", "f1", {"task": "multiclass", "soft_labels": True}
    yield "soft-labels-of-columns", "teacher", "mcc", {"task": "multilabel", "soft_labels": True}
    yield "formula", "binary", "tp / (tp + 0.3*fp + 2*fn)", {"step": step}
    yield "ignored", "multiclass", "f1", {"step": step, "ignore_index": 2}
    for name, given in CLASS_OPTIONS.items():
        for average in ("macro", "micro", "weighted"):
            for kind in ("multilabel", "multiclass", "rare"):
                yield f"{name}-{kind}-{average}", kind, "f1", given | {"average": average}
        task = {"task": "multilabel", "per_sample": True, "average": "micro"}
        yield f"{name}-maps", "maps", "jaccard", given | task
    for kind in ("binary", "multilabel", "multiclass"):
        for each in (Uniform(), Amplified(10.0), Hard()):
            yield f"squared-{kind}-{each}", kind, "f1", {"step": each, "squared": True}
    yield "squared-maps", "class maps", "jaccard", {"squared": True, "per_sample": True}
    for each in STEPS:
        softmax = {"step": each, "activation": "softmax"}
        yield f"softmax-{each}", "multilabel", "f1", softmax
    yield "softmax-squared", "multilabel", "f1", {"squared": True, "activation": "softmax"}
    for each in (Uniform(), Amplified(10.0), Hard()):
        yield f"sigmoid-{each}", "multiclass", "f1", {"step": each, "activation": "sigmoid"}
    for zero_division in ("auto", "skip", 0, 1):
        samples = {"average": "samples", "zero_division": zero_division}
        yield f"samples-{zero_division}", "sparse", "f1", samples | {"task": "multilabel"}
    yield "samples-maps", "maps", "jaccard", {"average": "samples", "task": "multilabel"}
    yield "samples-chosen", "multilabel", "f1", {"average": "samples", "classes": [0, 3]}
    yield "samples-weights", "multilabel", "f1", {"average": "samples", "weight": WEIGHT}
    for each in (Uniform(), Amplified(10.0), RaisedCosine(0.4)):
        thresholds = {"step": each, "threshold": [0.3, 0.5, 0.6, 0.8]}
        yield f"thresholds-{each}", "multilabel", "f1", thresholds
    yield "thresholds-maps", "maps", "f1", thresholds | {"task": "multilabel", "per_sample": True}
    for each in (Uniform(), Amplified(10.0), Hard()):
        yield f"costs-{each}", "multiclass", COSTS, {"step": each}
    yield "costs-weights", "multiclass", COSTS, {"weight": WEIGHT}
    yield "costs-ignored", "multiclass", COSTS, {"ignore_index": 3}
    yield "costs-shares", "teacher", COSTS, {"task": "multiclass"}
    for each in (1, 2, -1):
        yield f"costs-maps-{each}", "class maps", COSTS, {"class_axis": each}
    yield "chosen-none", "multilabel", "f1", {"classes": [3, 1], "average": None}
    yield "chosen-none-classes", "multiclass", "f1", {"classes": [3, 1], "average": None}
    yield "weighed-column", "binary", "f1", {"class_weights": [1, 3], "average": "macro"}


CASES = list(cases())


def in_torch(z, y, metric, arguments):
    torch = pytest.importorskip("torch")
    from anyloss.torch import any_loss

    given = dict(arguments)
    if "weight" in given:
        given["weight"] = torch.tensor(given["weight"])
    logits = torch.tensor(z, requires_grad=True)
    y = y.astype(z.dtype) if y.dtype.kind == "f" else y
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
    given.setdefault("class_axis", 1)  # Keras has the classes last
    of_samples = given.get("per_sample") or given.get("average") == "samples"
    given.setdefault("reduction", "mean" if of_samples else "none")
    criterion = AnyLoss(metric, dtype=str(z.dtype), **{"from_logits": True} | given)

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


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (np.float64, 1e-10),
        pytest.param(np.float32, 1e-6, marks=pytest.mark.slow("all cases a second time")),
    ],
)
@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("case", CASES, ids=[name for name, *_ in CASES])
def test_the_value_and_the_gradient_are_those_of_the_closed_form(case, front_end, dtype, tolerance):
    _, kind, metric, arguments = case
    z, y = LOGITS[kind].astype(dtype), LABELS[kind]
    if (axis := arguments.get("class_axis", 1)) != 1:
        z, y = (np.moveaxis(x, 1, axis) if x.ndim == 4 else x for x in (z, y))
    if not arguments.get("from_logits", True):
        z = 1 / (1 + np.exp(-z))
    score, derivative = anyloss.gradient(
        y, z.astype(float), metric, **{"from_logits": True} | arguments
    )
    value, gradient = FRONT_ENDS[front_end](z, y, metric, arguments)
    assert value.dtype == gradient.dtype == dtype
    assert value == pytest.approx(1 - np.asarray(score), rel=0, abs=tolerance)
    assert gradient == pytest.approx(
        -derivative, rel=0, abs=tolerance * max(1e-2, abs(derivative).max())
    )


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("reduction", ["sum", "none"])
@pytest.mark.parametrize("kind", ["masks", "maps", "class maps"])
def test_the_losses_of_the_samples_are_summed_or_returned(kind, reduction, front_end):
    task = {"masks": "binary", "maps": "multilabel"}.get(kind, "auto")
    given = {"per_sample": True, "task": task, "reduction": reduction}
    z, y = LOGITS[kind], LABELS[kind]
    scores, derivative = anyloss.gradient(y, z, "f1", from_logits=True, **given)
    value, gradient = FRONT_ENDS[front_end](z, y, "f1", given)
    assert value == pytest.approx(6 - scores if reduction == "sum" else 1 - scores, abs=1e-10)
    assert gradient == pytest.approx(-derivative, abs=1e-10)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("kind", ["binary", "multilabel", "multiclass", "rare", "masks"])
def test_the_logarithmic_loss_is_the_mean_of_those_of_the_classes(kind, front_end):
    """By the gradients of the single scores: `d -log(s) = -ds / s`."""
    z, y = LOGITS[kind], LABELS[kind]
    given = {"per_sample": True, "task": "binary"} if kind == "masks" else {}
    average = None if z.ndim == 2 else "auto"
    one = {"masks": {"reduction": "none"}}.get(kind, {"average": average, "zero_division": "skip"})
    scores, _ = anyloss.gradient(y, z, "f1", from_logits=True, **given | one)
    scores = np.atleast_1d(scores)
    present = np.isin(np.arange(scores.size), y) if kind == "rare" else np.ones(scores.size, bool)
    expected, derivative = -np.log(scores[present]).mean(), 0.0
    for k in np.flatnonzero(present):
        if kind == "masks":
            each = np.where(np.arange(len(z)) == k, 1.0, 0.0)
            _, found = anyloss.gradient(y, z, "f1", from_logits=True, weight=each, **given)
        elif average is None:
            own = {"classes": [k], "average": "macro", "zero_division": "skip"}
            _, found = anyloss.gradient(y, z, "f1", from_logits=True, **own)
        else:
            _, found = anyloss.gradient(y, z, "f1", from_logits=True)
        derivative = derivative - found / scores[k] / present.sum()
    value, gradient = FRONT_ENDS[front_end](z, y, "f1", given | {"form": "log"})
    assert value == pytest.approx(expected, abs=1e-10)
    assert gradient == pytest.approx(derivative, abs=1e-9)
