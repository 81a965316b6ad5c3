"""The closed form against the plain path: every layout, option, class share and size."""

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import anyloss
from anyloss.steps import Amplified, Linear, LogitSigmoid, RaisedCosine, Uniform
from anyloss.torch import AnyLoss, BalancedAccuracyLoss, part
from anyloss.torch.batch import Batch

METRICS = ("f1", "mcc", "balanced_accuracy", "gmean", "informedness", "specificity", "npv")
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9}


def both_paths(z, y, metric, weight=None, **options):
    """Loss and gradient in closed form, and by the plain path."""
    found = []
    for served in (Batch.has_closed_form, lambda batch, step: False):
        with mock.patch.object(Batch, "has_closed_form", served):
            x = z.clone().requires_grad_()
            loss = AnyLoss(metric, **options)(x, y, weight)
            loss.sum().backward()
            found.append((loss.detach(), x.grad))
    return found


def check(z, y, metric, step, average="auto", weight=None, **options):
    (fast, fast_gradient), (plain, plain_gradient) = both_paths(
        z, y, metric, weight, step=step, average=average, **options
    )
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
def test_the_closed_form_is_the_plain_path_for_every_class_share(
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


STEPS = [
    Uniform(), Amplified(20.0), Amplified(10.0, 0.3), Linear(), RaisedCosine(0.3), Uniform(None, 0.3),
    LogitSigmoid(2.0),
]  # fmt: skip
COLUMNS = [
    ((50,), {}), ((6, 1, 5, 7), {}), ((6, 1, 5, 7), {"per_sample": True}),
    ((6, 1, 5, 7), {"per_sample": "weighted", "zero_division": 0}), ((30, 4), {}),
    ((6, 5, 3), {"task": "binary"}), ((6, 4, 5, 3), {"task": "multilabel"}),
    ((6, 4, 5, 3), {"task": "multilabel", "per_sample": True, "average": "micro"}),
    ((6, 5, 3, 4), {"task": "multilabel", "class_axis": -1, "average": None}),
    ((30, 4), {"zero_division": "skip", "smooth": 0.5, "average": "weighted"}),
]  # fmt: skip


def weights_for(z, y, per_row, g):
    """No weights, one per label, and one per sample, with samples left out."""
    yield None
    for shape in (y.shape, y.shape[:1]):
        w = torch.rand(shape, generator=g, dtype=z.dtype)
        yield w * (torch.rand(shape, generator=g) < 0.8) if per_row else w


@pytest.mark.parametrize(("shape", "options"), COLUMNS)
@pytest.mark.parametrize("step", STEPS, ids=repr)
@pytest.mark.parametrize("from_logits", [True, False])
def test_columns_of_every_layout(shape, options, step, from_logits):
    g = torch.Generator().manual_seed(0)
    z = torch.randn(shape, generator=g, dtype=torch.float64) * 2
    z = z if from_logits else z.sigmoid()
    y = (torch.rand(shape, generator=g) < 0.3).double()
    for weight in weights_for(z, y, True, g):
        for metric in ("f1", "mcc", "gmean"):
            check(z, y, metric, step, weight=weight, from_logits=from_logits, **options)
    ignored = torch.where(torch.rand(shape, generator=g) < 0.2, 255.0, y)
    check(z, ignored, "f1", step, ignore_index=255, from_logits=from_logits, **options)
    if step.is_identity:
        soft = torch.rand(shape, generator=g, dtype=torch.float64)
        for weight in weights_for(z, y, True, g):
            check(z, soft, "f1", step, weight=weight, soft_labels=True, from_logits=from_logits,
                  **options)  # fmt: skip


CLASSES = [
    ((50, 4), {}), ((50, 2), {}), ((5, 4, 6, 3), {}), ((5, 4, 6, 3), {"per_sample": True}),
    ((5, 6, 3, 4), {"class_axis": -1}), ((5, 6, 3, 4), {"class_axis": -1, "per_sample": "weighted"}),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "options"), CLASSES)
@pytest.mark.parametrize("step", [Uniform(), Amplified(20.0), Amplified(73.0)], ids=repr)
@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("average", ["auto", "macro", "micro", "weighted"])
def test_classes_of_every_layout(shape, options, step, from_logits, average):
    g = torch.Generator().manual_seed(0)
    axis = options.get("class_axis", 1) % len(shape)
    z = torch.randn(shape, generator=g, dtype=torch.float64) * 2
    z = z if from_logits else z.softmax(axis)
    rows = [size for k, size in enumerate(shape) if k != axis]
    y = torch.randint(0, shape[axis] - 1, rows, generator=g)  # the last class is absent
    one_hot = torch.nn.functional.one_hot(y, shape[axis]).double().movedim(-1, axis)
    same = {"average": average, "from_logits": from_logits, **options}
    for metric in ("f1", "mcc", "balanced_accuracy", "gmean"):
        for weight in weights_for(z, y, True, g):
            check(z, y, metric, step, weight=weight, **same)
        check(z, one_hot, metric, step, task="multiclass", **same)
        check(z, one_hot, metric, step, task="multiclass", weight=torch.rand(shape[0]).double(),
              **same)  # fmt: skip
        check(z, torch.where(torch.rand(rows, generator=g) < 0.2, -100, y), metric, step,
              ignore_index=-100, **same)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("step", [Uniform(), Amplified(73.0)], ids=repr)
@pytest.mark.parametrize("sure", [2.0, 12.0, 40.0])
def test_sure_rows_of_several_classes_keep_their_digits(sure, step, dtype):
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, 5, (400,), generator=g)
    guess = torch.where(torch.rand(400, generator=g) < 0.2, (y + 1) % 5, y)  # some are wrong
    z = sure * torch.nn.functional.one_hot(guess, 5) + 0.1 * torch.randn(400, 5, generator=g)
    x = z.to(dtype).requires_grad_()
    loss = AnyLoss("f1", step=step)(x, y)
    loss.backward()
    exact, expected = anyloss.gradient(y, x.detach().double(), "f1", step, from_logits=True)
    assert loss.item() == pytest.approx(1 - exact, abs=1e-6)
    scale = abs(expected).max()
    torch.testing.assert_close(
        x.grad.double(), -torch.tensor(expected), rtol=2e-3, atol=1e-4 * scale
    )


def test_samples_of_weight_zero_may_hold_anything():
    z, y = torch.randn(40, 3, dtype=torch.float64), torch.randint(0, 3, (40,))
    weight = torch.ones(40, dtype=torch.float64)
    weight[30:] = 0
    for bad in (torch.nan, torch.inf, -torch.inf):
        dirty = z.clone()
        dirty[30:] = bad
        labels = y.clone()
        labels[35:] = 77
        ours, plain = (AnyLoss("f1")(x, t, w) for x, t, w in (
            (dirty, labels, weight), (z[:30], y[:30], None)))  # fmt: skip
        torch.testing.assert_close(ours, plain)
        column = AnyLoss("f1")(dirty[:, 0], (labels > 1).double(), weight)
        torch.testing.assert_close(column, AnyLoss("f1")(z[:30, 0], (y[:30] > 1).double()))


@pytest.mark.parametrize("options", [{}, {"per_sample": True}, {"step": Amplified(20.0)}])
def test_blocks_and_inputs_in_any_memory_layout(options, monkeypatch):
    g = torch.Generator().manual_seed(0)
    z = torch.randn(4, 3, 8, 6, generator=g, dtype=torch.float64)
    y = torch.randint(0, 3, (4, 8, 6), generator=g)
    masks = (torch.rand(4, 1, 8, 6, generator=g) < 0.4).double()

    def found(z, y):
        x = z.clone(memory_format=torch.preserve_format).requires_grad_()
        loss = AnyLoss("f1", **options)(x, y)
        loss.backward()
        return loss.detach(), x.grad

    expected = [found(z, y), found(z[:, :1], masks)]
    monkeypatch.setattr(part, "BLOCK", 50)
    layouts = [
        lambda x: x, lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
        lambda x: torch.cat([x, x], 1)[:, : x.shape[1]],
    ]  # fmt: skip
    for arrange in layouts:
        kept = arrange(z).clone()
        for (loss, grad), case in zip(
            expected, (found(arrange(z), y), found(arrange(z[:, :1]), masks)), strict=True
        ):
            torch.testing.assert_close(case[0], loss, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(case[1], grad, rtol=1e-9, atol=1e-15)
        assert torch.equal(arrange(z), kept)


def test_accelerators_are_never_waited_for():
    """`meta` tensors hold no values: whatever would look at one raises an error."""
    for shape, target, options in (
        ((64,), (64,), {}), ((8, 1, 4, 4), (8, 1, 4, 4), {"per_sample": True}),
        ((64, 5), (64,), {}), ((64, 5), (64,), {"step": Amplified(20.0)}),
        ((64, 5), (64, 5), {"average": "micro"}), ((64,), (64,), {"ignore_index": 255}),
    ):  # fmt: skip
        z = torch.empty(shape, device="meta", requires_grad=True)
        integer = len(target) < len(shape)
        y = torch.empty(target, device="meta", dtype=torch.int64 if integer else torch.float32)
        for weight in (None, torch.empty(shape[0], device="meta")):
            loss = AnyLoss("mcc" if integer else "f1", **options)(z, y, weight)
            loss.backward()
            assert loss.device.type == z.grad.device.type == "meta"
            assert z.grad.shape == z.shape


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


ENTROPY_CASES = {
    "column": ((300,), {}),
    "many rows": ((300_000,), {}),
    "thresholds": ((50,), {"thresholds": [0.3, 0.6]}),
    "masks": ((6, 1, 9, 9), {"per_sample": True, "zero_division": 1}),
    "labels": ((200, 4), {}),
    "soft labels": ((200,), {"soft_labels": True}),
    "classes": ((200, 4), {"task": "multiclass"}),
    "class maps": ((3, 4, 8, 8), {"task": "multiclass", "step": Amplified(20.0)}),
    "squared": ((200, 4), {"task": "multiclass", "squared": True}),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ENTROPY_CASES)
def test_the_cross_entropy_in_closed_form_is_that_of_autodiff(name, weighted):
    shape, options = ENTROPY_CASES[name]
    torch.manual_seed(0)
    for dtype, spread in ((torch.float64, 3.0), (torch.float32, 2.0), (torch.float32, 30.0)):
        z = spread * torch.randn(shape, dtype=dtype)
        y = (torch.rand(shape) < 0.2).to(dtype)
        if options.get("task") == "multiclass":
            y = torch.randint(0, shape[1], (shape[0], *shape[2:]))
        elif options.get("soft_labels"):
            y = torch.rand(shape, dtype=dtype)
        weight = torch.rand(shape[0], dtype=dtype) if weighted else None
        check(z, y, "f1", weight=weight, cross_entropy=0.4, **({"step": None} | options))


def test_the_cross_entropy_can_be_differentiated_twice_and_called_twice():
    torch.manual_seed(0)
    y, classes = torch.tensor([1.0, 0.0, 0.0, 1.0]), torch.tensor([0, 2, 1, 1])
    loss = AnyLoss("f1", cross_entropy=0.4)
    for shape, labels in (((4,), y), ((4, 3), classes)):
        z = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        labels = labels.double() if labels.is_floating_point() else labels
        assert torch.autograd.gradcheck(lambda z, y=labels: loss(z, y), z)
        assert torch.autograd.gradgradcheck(lambda z, y=labels: loss(z, y), z)
        value = loss(z, labels)
        first = torch.autograd.grad(value, z, retain_graph=True)[0].clone()
        second = torch.autograd.grad(3 * value, z)[0]
        torch.testing.assert_close(second, 3 * first)


def test_the_cross_entropy_leaves_out_what_has_no_weight():
    z, y = torch.tensor([1.0, -2.0, torch.inf, 0.5]), torch.tensor([1.0, 0.0, 0.0, 0.0])
    weight = torch.tensor([1.0, 2.0, 0.0, 1.0])
    keep = [0, 1, 3]
    (fast, gradient), _ = both_paths(z, y, "f1", weight, cross_entropy=0.5)
    (rest, expected), _ = both_paths(z[keep], y[keep], "f1", weight[keep], cross_entropy=0.5)
    torch.testing.assert_close(fast, rest)
    torch.testing.assert_close(gradient[keep], expected)
    assert gradient[2] == 0
    nothing = AnyLoss("f1", cross_entropy=0.5)(z[keep].requires_grad_(), y[keep], 0 * weight[keep])
    nothing.backward()
    with pytest.raises(ValueError, match="finite numbers where cross_entropy is added"):
        AnyLoss("f1", cross_entropy=0.5)(z, y)
