"""JAX: transformations, devices, half precision, bad input. Values are in test_agreement."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from sklearn.metrics import f1_score, matthews_corrcoef

import anyloss
from anyloss.steps import Amplified, Linear, Uniform

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, PartitionSpec  # noqa: E402

from anyloss.jax import (  # noqa: E402
    any_loss,
    new_multipliers,
    score,
    soft_score,
    update_multipliers,
)

RNG = np.random.default_rng(3)
Z = RNG.normal(size=64).astype(np.float32)
Y = (RNG.random(64) < 0.3).astype(np.int32)
P = PartitionSpec


def test_jit_and_vmap_give_the_plain_values():
    plain = float(any_loss(Z, Y, "mcc"))
    assert jax.jit(partial(any_loss, metric="mcc"))(Z, Y) == pytest.approx(plain, abs=1e-6)
    pairs = jax.vmap(partial(any_loss, metric="mcc"))(Z.reshape(4, 16), Y.reshape(4, 16))
    for k in range(4):
        one = float(any_loss(Z.reshape(4, 16)[k], Y.reshape(4, 16)[k], "mcc"))
        assert pairs[k] == pytest.approx(one, abs=1e-6)


def test_vmap_over_models_gives_each_its_gradient():
    X = RNG.normal(size=(64, 3)).astype(np.float32)
    models = RNG.normal(size=(5, 3)).astype(np.float32)
    gradient = jax.grad(lambda w: any_loss(X @ w, Y))
    together = jax.vmap(gradient)(models)
    for k in range(5):
        assert np.asarray(together[k]) == pytest.approx(np.asarray(gradient(models[k])), abs=1e-6)


def test_the_hard_score_is_scikit_learns():
    assert score(Z, Y, "f1") == pytest.approx(f1_score(Y, Z > 0), abs=1e-6)
    assert score(Z, Y, "mcc") == pytest.approx(matthews_corrcoef(Y, Z > 0), abs=1e-6)
    high = f1_score(Y, 1 / (1 + np.exp(-Z)) > 0.7)
    assert score(Z, Y, threshold=0.7, smooth=3.0) == pytest.approx(high, abs=1e-6)


def test_the_mean_over_thresholds():
    given = [0.2, 0.5, 0.8]
    each = [any_loss(Z, Y, step=Linear(threshold=t)) for t in given]
    whole = any_loss(Z, Y, step=Linear(), thresholds=given)
    assert whole == pytest.approx(np.mean(each), abs=1e-6)


@pytest.mark.parametrize("metric", ["f1", "mcc"])
def test_samples_split_over_two_devices_give_the_loss_of_the_whole_batch(metric):
    """Uneven parts of the positives: the mean of two part losses would be another number."""
    assert jax.device_count() >= 2
    rng, order = (
        np.random.default_rng(0),
        np.argsort(-Y),
    )  # nearly all positives on the first device
    X = rng.normal(size=(64, 3)).astype(np.float32)[order]
    y, w = Y[order], rng.normal(size=3).astype(np.float32)
    mesh = Mesh(np.array(jax.devices()[:2]), ("rows",))

    def loss(w, X, y, axis_name=None):
        return any_loss(X @ w, y, metric, axis_name=axis_name)

    split = jax.shard_map(
        partial(jax.value_and_grad(loss), axis_name="rows"),
        mesh=mesh,
        in_specs=(P(), P("rows"), P("rows")),
        out_specs=(P(), P()),
    )
    value, gradient = jax.jit(split)(w, X, y)
    expected, expected_gradient = jax.value_and_grad(loss)(w, X, y)
    assert value == pytest.approx(float(expected), abs=1e-6)
    assert np.asarray(gradient) == pytest.approx(np.asarray(expected_gradient), abs=1e-6)
    halves = [float(loss(w, X[part], y[part])) for part in (slice(32), slice(32, 64))]
    assert abs(np.mean(halves) - float(expected)) > 0.01


@pytest.mark.parametrize("average", ["auto", None])
def test_whole_samples_split_over_two_devices(average):
    z = RNG.normal(size=(8, 2, 30)).astype(np.float32)
    y = (RNG.random((8, 2, 30)) < 0.3).astype(np.int32)
    weight = RNG.random(8).astype(np.float32)
    mesh = Mesh(np.array(jax.devices()[:2]), ("samples",))

    def loss(z, y, weight, axis_name=None):
        given = {"per_sample": True, "average": average, "axis_name": axis_name}
        given |= {"task": "multilabel", "cross_entropy": 0.0 if average is None else 0.5}
        return any_loss(z, y, "f1", weight=weight, **given)

    split = jax.shard_map(
        partial(loss, axis_name="samples"),
        mesh=mesh,
        in_specs=(P("samples"), P("samples"), P("samples")),
        out_specs=P(),
    )
    expected = np.asarray(loss(z, y, weight))
    assert np.asarray(jax.jit(split)(z, y, weight)) == pytest.approx(expected, abs=1e-6)
    expected_gradient = jax.jit(jax.grad(lambda z: loss(z, y, weight).sum()))(z)
    found = jax.jit(jax.grad(lambda z: split(z, y, weight).sum()))(z)
    assert np.asarray(found) == pytest.approx(np.asarray(expected_gradient), abs=1e-6)


def test_bfloat16_is_counted_in_float32():
    z = jnp.zeros(1001, jnp.bfloat16) + 20
    y = jnp.ones(1001, jnp.int32)
    assert soft_score(z, y, "tp / 1001", step=Amplified(73.0)) == pytest.approx(1, abs=1e-6)
    half = jnp.asarray(Z, jnp.bfloat16)
    value, gradient = jax.value_and_grad(any_loss)(half, Y)
    wide = half.astype(jnp.float32)
    expected, expected_gradient = jax.value_and_grad(any_loss)(wide, Y)
    assert value.dtype == jnp.float32
    assert gradient.dtype == jnp.bfloat16
    assert value == pytest.approx(float(expected), abs=1e-6)
    rounded = np.asarray(gradient.astype(jnp.float32))
    assert rounded == pytest.approx(np.asarray(expected_gradient), rel=2**-8)


@pytest.mark.slow("ten million rows")
def test_ten_million_samples_are_summed_correctly():
    z = RNG.normal(size=10_000_000).astype(np.float32)
    y = (RNG.random(10_000_000) < 0.01).astype(np.int8)
    expected = anyloss.score(y, z, "f1", Uniform(), from_logits=True)
    assert jax.jit(soft_score)(z, y) == pytest.approx(expected, abs=1e-6)


def test_a_confident_sample_keeps_its_gradient_in_float32():
    z, y = jnp.array([12.0, -12.0, 0.0]), jnp.array([0, 1, 1])
    gradient = jax.grad(partial(any_loss, step=Amplified(73.0)))(z, y)
    expected = -anyloss.gradient(y, z, "f1", Amplified(73.0), from_logits=True)[1]
    assert (np.asarray(gradient) != 0).all()
    assert np.asarray(gradient) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("y", [np.zeros(8, int), np.ones(8, int)])
@pytest.mark.parametrize("metric", ["f1", "mcc", "gmean", "p4"])
def test_a_batch_of_one_class_is_finite(y, metric):
    for z in (np.zeros(8), np.full(8, 200.0), np.full(8, -200.0)):
        value, gradient = jax.value_and_grad(partial(any_loss, metric=metric))(jnp.asarray(z), y)
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()


def test_values_are_checked_outside_of_transformations_only():
    wrong = np.full(64, 2)
    with pytest.raises(ValueError, match="labels must lie in"):
        any_loss(Z, wrong)
    with pytest.raises(ValueError, match="logits must lie in"):
        any_loss(np.full(64, np.nan, np.float32), Y)
    assert np.isfinite(any_loss(Z, wrong, validate=False))
    assert np.isfinite(jax.jit(any_loss)(Z, wrong))


@pytest.mark.parametrize(
    ("logits", "labels", "arguments", "error", "match"),
    [
        (Z[:, None], Y, {}, ValueError, "labels must have the shape of the scores"),
        (Z, Y, {"metric": "f1_scor"}, ValueError, "did you mean"),
        (Z, Y, {"average": "mean"}, ValueError, "average must be one of"),
        (Z, Y, {"step": "soft"}, TypeError, "step must be one of"),
        (Z, Y, {"weight": np.ones(5)}, ValueError, "weight must have shape"),
        (Z, Y, {"weight": -np.ones(64)}, ValueError, "weights must lie in"),
        (Z, Y, {"bta": 2}, TypeError, "unknown argument"),
        (Y, Y, {}, TypeError, "floating-point scores; got int32"),
        (Z + 0j, Y, {}, TypeError, "real numbers"),
        ("text", Y, {}, TypeError, "logits must be an array of numbers; got str"),
        (Z, Y, {"step": Amplified(400.0)}, ValueError, "scale must be at most"),
        (Z * 0 + 0.5, Y, {"from_logits": False, "metric": lambda tp, fn, fp, tn: tp + 1e30 * fp * 1e30},
         ValueError, "finite"),
    ],
)  # fmt: skip
def test_errors_name_what_was_expected(logits, labels, arguments, error, match):
    with pytest.raises(error, match=match):
        any_loss(logits, labels, **arguments)


def test_an_optax_loop_learns_f1():
    """The loop of docs/jax.md, on scikit-learn's breast cancer data made rare."""
    optax = pytest.importorskip("optax")
    from sklearn.datasets import load_breast_cancer

    X, benign = load_breast_cancer(return_X_y=True)
    keep = np.flatnonzero((benign == 1) | (np.arange(len(X)) % 8 == 0))
    X = ((X - X[keep].mean(0)) / X[keep].std(0))[keep].astype(np.float32)
    y = 1 - benign[keep]
    assert 0.03 < y.mean() < 0.1
    optimizer = optax.adam(0.05)

    @jax.jit
    def step(w, state):
        value, gradient = jax.value_and_grad(lambda w: any_loss(X @ w[1:] + w[0], y, "f1"))(w)
        change, state = optimizer.update(gradient, state)
        return optax.apply_updates(w, change), state, value

    w = jnp.zeros(31)
    state, losses = optimizer.init(w), []
    for _ in range(300):
        w, state, value = step(w, state)
        losses.append(float(value))
    assert losses[0] > 0.8
    assert losses[-1] < 0.1
    assert f1_score(y, np.asarray(X @ w[1:] + w[0]) > 0) > 0.95


@pytest.mark.parametrize("size", [1e-20, 1e-30, 1e20])
@pytest.mark.parametrize("metric", ["f1", "mcc", "p4"])
def test_the_unit_of_the_weights_does_not_matter_in_float32(size, metric):
    z, y = jnp.array([1.0, -1.0, 0.5, -2.0]), jnp.array([1, 0, 0, 1])
    plain = jax.grad(lambda z: any_loss(z, y, metric))(z)
    ours = jax.grad(lambda z: any_loss(z, y, metric, weight=jnp.full(4, size)))(z)
    assert np.asarray(ours) == pytest.approx(np.asarray(plain), rel=1e-4)


@pytest.mark.parametrize("step", [Uniform(), Amplified(10.0)], ids=repr)
@pytest.mark.parametrize("shape", [(6,), (6, 1), (3, 4)])
def test_the_second_derivatives_are_those_of_the_gradient(shape, step):
    """`jax.hessian` against finite differences of the closed-form gradient in NumPy."""
    rng = np.random.default_rng(0)
    z, several = rng.normal(size=shape), shape[-1] > 1 and len(shape) > 1
    y = rng.integers(shape[-1], size=3) if several else rng.integers(2, size=shape)
    with jax.enable_x64(True):
        found = jax.hessian(partial(any_loss, step=step))(z, y)
    found, h = np.asarray(found).reshape(z.size, z.size), 1e-5
    for k in range(z.size):
        change = h * np.eye(z.size)[k].reshape(shape)
        (_, above), (_, below) = (
            anyloss.gradient(y, z + sign * change, "f1", step, from_logits=True) for sign in (1, -1)
        )
        assert found[k] == pytest.approx(-(above - below).ravel() / (2 * h), abs=1e-8)


@dataclass(frozen=True)
class Sharper(Amplified):
    """A step of one's own for several classes, `p^2 / sum(p^2)`."""

    def multiclass(self, p, q, backend):
        a = p * p / backend.sum(p * p, backend.class_axis)
        return a, 1 - a


@pytest.mark.parametrize("step", [Uniform(), Amplified(10.0), Sharper()], ids=repr)
@pytest.mark.parametrize("per_sample", [False, True])
def test_the_class_axis_may_be_anywhere(step, per_sample):
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(4, 5, 2, 3)).astype(np.float32), rng.integers(3, size=(4, 5, 2))
    w = rng.random((4, 5, 2))
    expected = anyloss.score(
        y, z, "f1", step, from_logits=True, class_axis=-1, weight=w, per_sample=per_sample
    )
    for axis in (1, 2, 3):
        moved = np.moveaxis(z, -1, axis)
        found = any_loss(moved, y, weight=w, step=step, class_axis=axis, per_sample=per_sample)
        assert found == pytest.approx(1 - expected, abs=1e-6)


@pytest.mark.parametrize("weight", [(4,), (4, 1, 5), None])
@pytest.mark.parametrize("per_sample", [False, True])
def test_binary_scores_of_any_shape(weight, per_sample):
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(4, 1, 5)).astype(np.float32), rng.integers(2, size=(4, 1, 5))
    w = None if weight is None else rng.random(weight) * (rng.random(weight) < 0.8)
    given = {"weight": w, "per_sample": per_sample}
    expected, gradient = anyloss.gradient(y, z, "f1", from_logits=True, **given)
    found, ours = jax.value_and_grad(partial(any_loss, **given))(z, y)
    assert found == pytest.approx(1 - expected, abs=1e-6)
    assert np.asarray(ours) == pytest.approx(-gradient, abs=1e-6)


def test_the_lagrangian_and_its_gradient_agree_with_pytorch():
    torch = pytest.importorskip("torch")
    from anyloss.torch import AnyLoss

    constraints = ["recall >= 0.9", "fp / (fp + tn) <= 0.2"]
    state = jnp.array([[0.75, 2.5], [0.0, 0.0]])
    found, gradient = jax.value_and_grad(
        lambda z: any_loss(z, Y, "precision", constraints=constraints, multipliers=state)
    )(Z)
    loss = AnyLoss("precision", constraints=constraints)
    loss.constraints.state.copy_(torch.tensor(state.tolist()))
    z = torch.tensor(Z, requires_grad=True)
    value = loss(z, torch.tensor(Y))
    value.backward()
    assert float(found) == pytest.approx(value.item(), abs=1e-6)
    assert np.asarray(gradient) == pytest.approx(z.grad.numpy(), abs=1e-7)
    moved = jax.jit(update_multipliers, static_argnames="constraints")(
        state, Z, Y, constraints=tuple(constraints)
    )
    assert np.asarray(moved) == pytest.approx(loss.constraints.state.numpy(), abs=1e-6)


def test_a_jitted_training_under_a_constraint_reaches_the_known_optimum():
    """Precision of one score is best where recall is just enough."""
    y = (np.arange(2000) % 4 == 0).astype(np.float32)
    x = (np.random.default_rng(2).normal(size=2000) + 1.5 * y).astype(np.float32)

    @jax.jit
    def step(weights, state):
        def loss(w):
            return any_loss(
                w[0] * x + w[1], y, "precision", constraints="recall >= 0.9", multipliers=state
            )

        logits = weights[0] * x + weights[1]
        state = update_multipliers(state, logits, y, "recall >= 0.9")
        return weights - 0.3 * jax.grad(loss)(weights), state

    weights, state = jnp.array([1.0, 0.0]), new_multipliers("recall >= 0.9")
    for _ in range(600):
        weights, state = step(weights, state)
    assert (weights[0] * x + weights[1] > 0)[y > 0].mean() == pytest.approx(0.9, abs=0.02)


def test_multipliers_of_samples_on_two_devices_are_those_of_the_whole_batch():
    mesh = Mesh(np.array(jax.devices()[:2]), "samples")
    state = new_multipliers("recall >= 0.9")
    split = jax.shard_map(
        partial(update_multipliers, constraints="recall >= 0.9", axis_name="samples"),
        mesh=mesh, in_specs=(P(), P("samples"), P("samples")), out_specs=P(),
    )  # fmt: skip
    whole = update_multipliers(state, Z, Y, "recall >= 0.9")
    assert np.asarray(split(state, Z, Y)) == pytest.approx(np.asarray(whole), abs=1e-6)
    assert whole[0, 0] > 0


def test_constraints_and_multipliers_belong_together():
    state = new_multipliers("recall >= 0.9")
    with pytest.raises(ValueError, match="got no multipliers"):
        any_loss(Z, Y, constraints="recall >= 0.9")
    with pytest.raises(ValueError, match="got no constraints"):
        any_loss(Z, Y, multipliers=state)
    with pytest.raises(ValueError, match=r"must have the shape \(2, 2\)"):
        any_loss(Z, Y, constraints=["recall >= 0.9", "npv >= 0.5"], multipliers=state)
    with pytest.raises(ValueError, match="constraints are for two classes"):
        any_loss(
            np.zeros((4, 3)), np.array([0, 1, 2, 0]), constraints="npv >= 1", multipliers=state
        )
