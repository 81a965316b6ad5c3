"""Optax beside anyloss.jax: the Dice losses of optax.losses, with alpha and beta.

Published inputs come from optax/losses/_segmentation_test.py. Its smoothing is one term in the
ratio, so the generated inputs run with `smooth=0.0`, or with a formula metric for `smooth=1`.
"""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
from anyloss.jax import any_loss  # noqa: E402

DIFFERENT = [
    ("smooth=1, the default", "one term in the ratio, not one per cell: a formula expresses it"),
    ("class_weights=", "class losses times weights over C: class_weights= times their mean"),
    ("multiclass_generalized_dice_loss", "class_weights of 1/frequency**2, as above"),
    ("apply_softmax=False, sums not 1", "refused by optax; anyloss takes them with task='multilabel'"),
]  # fmt: skip
SMOOTH = "(tp + 1) / (tp + {alpha}*fp + {beta}*fn + 1)"


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def compiled(function):
    """Compiled as a whole and without optimisation: much faster than operation by operation."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def dice_loss():
    return pytest.importorskip("optax.losses").dice_loss


# optax/losses/_segmentation_test.py: test_dice_loss_weighting_parameters; its manual calculation
PROBABILITIES, TARGETS = [[[0.1, 0.9], [0.8, 0.2]]], [[[0.0, 1.0], [1.0, 0.0]]]
WEIGHTED = [(0.3, 0.7, 0.07516691255532498), (0.5, 0.5, 0.075046904315197)]


@pytest.mark.parametrize(("alpha", "beta", "figure"), WEIGHTED)
def test_a_formula_with_smoothing_equals_the_figure_of_optax_tests(alpha, beta, figure):
    options = {"task": "multiclass", "class_axis": -1, "average": "macro", "from_logits": False}

    def found(p, y):
        named = any_loss(p, y, "tversky", alpha=alpha, beta=beta, smooth=1.0, **options)
        return any_loss(p, y, SMOOTH.format(alpha=alpha, beta=beta), **options), named

    formula, named = compiled(found)(np.array(PROBABILITIES), np.array(TARGETS))
    assert float(formula) == pytest.approx(figure, abs=1e-9)
    assert abs(float(named) - figure) > 1e-3


GRID = np.array([[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]]])[..., None]
INDICES = np.array([[[0, 1, 2], [1, 0, 2], [2, 2, 1]]])


@pytest.mark.parametrize(("sign", "low", "high"), [(1.0, 0.0, 0.01), (-1.0, 0.7, 1.0)])
def test_right_and_wrong_masks_are_within_the_bounds_of_optax_tests(sign, low, high):
    # optax/losses/_segmentation_test.py: test_perfect_overlap_binary, test_no_overlap_binary
    loss = compiled(lambda z, y: any_loss(z, y, "f1", class_axis=-1))
    assert low < float(loss(sign * np.where(GRID > 0, 10.0, -10.0), GRID)) < high


def test_right_classes_are_within_the_bounds_of_optax_tests():
    # optax/losses/_segmentation_test.py: test_perfect_overlap_multiclass, below 0.01
    loss = compiled(lambda z, y: any_loss(z, y, "f1", class_axis=-1, average="macro"))
    assert 0.0 < float(loss(np.where(np.eye(3)[INDICES] > 0, 10.0, -10.0), INDICES)) < 0.01


def generated(task, seed, absent=False):
    rng = np.random.default_rng(seed)
    shape = (3, 5, 6, 1) if task == "binary" else (3, 5, 6, 4)
    z = rng.normal(size=shape)
    if task == "binary":
        return z, (rng.random(shape) < 0.4).astype(float)
    return z, np.eye(4)[rng.integers(0, 3 if absent else 4, shape[:-1])]


def assert_same(ours, theirs, batches, within=1e-9):
    """Values and gradients agree."""
    ours, theirs = (compiled(jax.value_and_grad(loss)) for loss in (ours, theirs))
    for z, y in batches:
        found, expected = ours(z, y), theirs(z, y)
        assert float(found[0]) == pytest.approx(float(expected[0]), abs=within)
        assert np.abs(expected[1]).max() > 1e-4
        np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=within)


TVERSKY = {"alpha": 0.3, "beta": 0.7}


def options_of(task, per_sample=True):
    average = "auto" if task == "binary" else "macro"
    return {"task": task, "average": average, "class_axis": -1, "per_sample": per_sample}


def batches(task):
    """Six batches; in half of those with several classes, the last class is absent."""
    return [generated(task, seed, absent=seed % 2 == 1) for seed in range(6)]


@pytest.mark.parametrize("task", ["binary", "multiclass"])
@pytest.mark.parametrize("per_sample", [True, False])
def test_values_and_gradients_equal_optax_without_smoothing(task, per_sample):
    theirs, options = dice_loss(), options_of(task, per_sample)
    axis = None if per_sample else (0, 1, 2)
    assert_same(
        lambda z, y: any_loss(z, y, "tversky", zero_division=0, **TVERSKY, **options),
        lambda z, y: theirs(z, y, smooth=0.0, axis=axis, **TVERSKY).mean(),
        batches(task),
    )


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_values_and_gradients_equal_optax_with_its_smoothing(task):
    theirs, formula = dice_loss(), SMOOTH.format(**TVERSKY)
    assert_same(
        lambda z, y: any_loss(z, y, formula, **options_of(task)),
        lambda z, y: theirs(z, y, **TVERSKY).mean(),
        batches(task),
    )


@pytest.mark.parametrize(("metric", "coefficient"), [("jaccard", 1.0), ("f1", 0.5)])
def test_jaccard_and_dice_are_optax_with_coefficients_one_and_one_half(metric, coefficient):
    theirs, both = dice_loss(), {"alpha": coefficient, "beta": coefficient}
    assert_same(
        lambda z, y: any_loss(z, y, metric, zero_division=0, **options_of("multiclass")),
        lambda z, y: theirs(z, y, smooth=0.0, **both).mean(),
        batches("multiclass"),
    )


def test_binary_dice_loss_of_masks_without_a_channel_equals_optax():
    losses = pytest.importorskip("optax.losses")
    assert_same(
        lambda z, y: any_loss(z, y, "f1", task="binary", per_sample=True),
        lambda z, y: losses.binary_dice_loss(z, y, smooth=0.0).mean(),
        [[x[..., 0] for x in generated("binary", seed)] for seed in range(4)],
    )


def test_class_weights_and_the_background_are_choices_among_the_class_losses():
    theirs, (z, y) = dice_loss(), generated("multiclass", 0)
    weights = np.array([1.0, 2.0, 0.5, 0.1])

    def found(z, y):
        options, pooled = (
            {"task": "multiclass", "class_axis": -1},
            {"smooth": 0.0, "axis": (0, 1, 2)},
        )
        return (
            any_loss(z, y, "f1", average=None, **options),
            any_loss(z, y, "f1", average="macro", **options),
            theirs(z, y, class_weights=weights, **pooled),
            theirs(z, y, ignore_background=True, **pooled),
        )

    losses, mean, weighted, foreground = (np.asarray(x) for x in compiled(found)(z, y))
    assert (losses * weights).mean() == pytest.approx(weighted, abs=1e-9)
    assert losses[1:].mean() == pytest.approx(foreground, abs=1e-9)
    assert abs(mean - weighted) > 1e-3
    assert abs(mean - foreground) > 1e-3


def test_generalised_dice_differs():
    losses, (z, y) = pytest.importorskip("optax.losses"), generated("multiclass", 0)
    theirs = compiled(lambda z, y: losses.multiclass_generalized_dice_loss(z, y, smooth=0.0))(z, y)
    ours = compiled(lambda z, y: any_loss(z, y, "f1", **options_of("multiclass")))(z, y)
    assert abs(float(ours) - float(theirs)) > 1e-4
