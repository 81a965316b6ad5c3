"""The closed form on the CPU against the plain path: every class share, every size."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anyloss.steps import Amplified, Uniform
from anyloss.torch import AnyLoss, BalancedAccuracyLoss

METRICS = ("f1", "mcc", "balanced_accuracy", "gmean", "informedness", "specificity", "npv")
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9}


def both_paths(z, y, metric, step, average="auto"):
    """Loss and gradient on the fast path, and with weights of one on the plain path."""
    found = []
    for weight in (None, torch.ones(len(z), dtype=z.dtype)):
        x = z.clone().requires_grad_()
        loss = AnyLoss(metric, step=step, average=average)(x, y, weight)
        loss.backward()
        found.append((loss.detach(), x.grad))
    return found


def check(z, y, metric, step, average="auto"):
    (fast, fast_gradient), (plain, plain_gradient) = both_paths(z, y, metric, step, average)
    tolerance = TOLERANCE[z.dtype]
    torch.testing.assert_close(fast, plain, rtol=0, atol=tolerance)
    size = max(plain_gradient.abs().max().item(), 0.01 / len(z))  # below, a loss that is flat
    torch.testing.assert_close(
        fast_gradient, plain_gradient, rtol=10 * tolerance, atol=10 * tolerance * size
    )


shares = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1), st.floats(-7, 0).map(np.exp))


@given(
    n=st.one_of(st.integers(1, 40), st.sampled_from([1000, 40_000, 300_000])),
    share=shares,
    few_negatives=st.booleans(),
    metric=st.sampled_from(METRICS),
    step=st.sampled_from([Uniform(), Amplified(10.0), Amplified(73.0), Amplified(10.0, 0.2)]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    shift=st.sampled_from([-6.0, -1.0, 0.0, 1.0, 6.0]),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=400, deadline=None, derandomize=True)
def test_the_fast_path_is_the_plain_path_for_every_class_share(
    n, share, few_negatives, metric, step, dtype, shift, seed
):
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=g) < share).to(dtype)
    y = 1 - y if few_negatives else y
    check(torch.randn(n, generator=g, dtype=dtype) * 2 + shift, y, metric, step)


@pytest.mark.parametrize("step", [Uniform(), Amplified(10.0)], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("positive", [0, 3, 10**6 - 3, 10**6])
def test_three_samples_in_a_million(positive, dtype, step):
    g = torch.Generator().manual_seed(0)
    z, y = torch.randn(10**6, generator=g, dtype=dtype), torch.zeros(10**6, dtype=dtype)
    y[torch.randperm(10**6, generator=g)[:positive]] = 1
    for metric in ("balanced_accuracy", "mcc", "f1"):
        check(z, y, metric, step)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("step", [Uniform(), Amplified(10.0)], ids=repr)
def test_labels_of_every_share(average, step):
    for seed, n in enumerate((1, 7, 500, 60_000)):
        g = torch.Generator().manual_seed(seed)
        share = torch.tensor([0.0, 1e-3, 0.5, 0.999, 1.0])
        y = (torch.rand(n, 5, generator=g) < share).float()
        for metric in ("balanced_accuracy", "mcc", "specificity"):
            check(torch.randn(n, 5, generator=g), y, metric, step, average)


def test_a_batch_without_negatives_that_was_off_by_one_half():
    torch.manual_seed(94)
    z, y = torch.randn(8), torch.ones(8)
    loss = BalancedAccuracyLoss(step=Amplified(10.0))
    assert loss(z, y).item() == pytest.approx(0.6916, abs=1e-4)
    torch.testing.assert_close(loss(z, y), loss(z, y, torch.ones(8)))


def test_the_gradient_may_be_edited_by_the_caller():
    torch.manual_seed(0)
    for n in (50, 50_000):  # both sizes of the closed form
        z = torch.randn(n, requires_grad=True)
        loss = AnyLoss("f1")(z, (torch.rand(n) < 0.3).float())
        (first,) = torch.autograd.grad(loss, z, retain_graph=True)
        kept = first.clone()
        first.mul_(1000.0)
        (second,) = torch.autograd.grad(loss, z, retain_graph=True)
        assert torch.equal(second, kept)
        (third,) = torch.autograd.grad(2 * loss, z)
        torch.testing.assert_close(third, 2 * kept)


def test_small_uniform_weights_do_not_switch_a_metric_off():
    torch.manual_seed(0)
    z, y = torch.randn(64), (torch.rand(64) < 0.4).float()
    for size in (1e-21, 1e-30):
        weight = torch.full((64,), size)
        for metric in ("mcc", "cohen_kappa", "p4", "f1", "gmean"):
            x = z.clone().requires_grad_()
            loss = AnyLoss(metric)(x, y, weight)
            loss.backward()
            torch.testing.assert_close(loss.detach(), AnyLoss(metric)(z, y))
            assert x.grad.isfinite().all()
            assert x.grad.abs().max() > 1e-5


@pytest.mark.parametrize("metric", ["fn / (fn + fp)", "1 - fp / (fp + fn)", "gmean", "f1", "mcc"])
@pytest.mark.parametrize("logits", [(18.0, -19.0), (16.0, -16.0), (-20.0, 0.0)])
def test_cells_that_are_differences_are_not_lost_in_rounding(metric, logits):
    g = torch.Generator().manual_seed(0)
    for n, share in ((50, 0.6), (1000, 0.5), (40_000, 0.6)):
        y = (torch.arange(n) < n * share).float()
        z = torch.where(y > 0, *logits) + 0.3 * torch.randn(n, generator=g)
        check(z, y, metric, Uniform())
        double = AnyLoss(metric)(z.double(), y.double())
        torch.testing.assert_close(AnyLoss(metric)(z, y), double.float(), rtol=1e-4, atol=1e-6)
