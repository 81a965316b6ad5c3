"""The PyTorch losses: closed form, autograd and finite differences, and the uses of PyTorch."""

import copy
import io
import shutil

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import anyloss
from anyloss.steps import DEFAULT, Amplified, Hard, Linear, LogitSigmoid, RaisedCosine, Uniform
from anyloss.torch import (
    AccuracyLoss,
    AnyLoss,
    BalancedAccuracyLoss,
    F1Loss,
    FBetaLoss,
    GeometricMeanLoss,
    MCCLoss,
    ScoreMeter,
    any_loss,
    gradient,
)
from anyloss.torch import loss as loss_module
from anyloss.torch import part as part_module
from anyloss.torch.batch import Batch

METRICS = sorted({function.__name__ for function in anyloss.METRICS.values()})
STEPS = [Amplified(10.0), Amplified(20.0, 0.3), Linear(), Linear(0.1, 0.7), RaisedCosine(0.45),
         Uniform(), Uniform(0.45, 0.6), LogitSigmoid(2.0, 0.5)]  # fmt: skip


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def column(n=14, seed=0, dtype=torch.float64):
    g = generator(seed)
    z = torch.randn(n, generator=g, dtype=dtype).requires_grad_()
    return z, (torch.rand(n, generator=g) < 0.4).to(dtype)


def gradient_of(loss, z, *rest):
    (grad,) = torch.autograd.grad(loss(z, *rest).sum(), z)
    return grad


@pytest.fixture
def plain_path(monkeypatch):
    """Switch the closed form off."""
    return lambda: monkeypatch.setattr(Batch, "has_closed_form", lambda batch, step: False)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("fast", [True, False])
def test_every_metric_first_and_second_order(metric, fast, plain_path):
    if not fast:
        plain_path()
    z, y = column()
    loss = AnyLoss(metric, step=Amplified(6.0))
    assert gradcheck(lambda x: loss(x, y), (z,))
    assert gradgradcheck(lambda x: loss(x, y), (z,))


@pytest.mark.parametrize("step", STEPS, ids=repr)
@pytest.mark.parametrize("metric", ["f1", "mcc"])
@pytest.mark.parametrize("from_logits", [True, False])
def test_every_step_first_and_second_order(step, metric, from_logits):
    z, y = column()
    if not from_logits:
        z = torch.sigmoid(z.detach()).requires_grad_()
    loss = AnyLoss(metric, step=step, from_logits=from_logits)
    assert gradcheck(lambda x: loss(x, y), (z,))
    assert gradgradcheck(lambda x: loss(x, y), (z,))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("step", [DEFAULT, Amplified(73.0, 0.3), Linear()], ids=repr)
def test_closed_form_equals_autograd(metric, step, plain_path):
    z, y = column(200)
    score, expected = anyloss.gradient(y, z.detach(), metric, step, from_logits=True)
    for _ in ("fast", "plain"):
        loss = AnyLoss(metric, step=step)
        assert loss(z, y).item() == pytest.approx(1 - score, rel=1e-12)
        torch.testing.assert_close(
            gradient_of(loss, z, y), -torch.tensor(expected), rtol=1e-9, atol=1e-15
        )
        plain_path()


SHAPES = {
    "multilabel": ((9, 3), (9, 3)),
    "multiclass": ((9, 4), (9,)),
    "two classes": ((9, 2), (9,)),
    "segmentation": ((2, 3, 4, 2), (2, 3, 4, 2), {"task": "multilabel"}),
    "class map": ((2, 3, 4, 2), (2, 4, 2)),
    "binary map": ((2, 1, 4, 2), (2, 1, 4, 2)),
    "masks": ((3, 4, 2), (3, 4, 2), {"task": "binary"}),
    "channels last": ((2, 4, 2, 3), (2, 4, 2, 3), {"task": "multilabel", "class_axis": -1}),
    "class map, channels last": ((2, 4, 2, 3), (2, 4, 2), {"class_axis": 3}),
    "classes in the middle": ((2, 4, 3, 5), (2, 4, 5), {"class_axis": 2}),
    "column": ((9, 1), (9, 1)),
}


@pytest.mark.parametrize("average", ["auto", "macro", "micro", "weighted", None, "multiclass"])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("weighted", [False, True])
def test_shapes_averages_and_weights_equal_numpy(shapes, average, weighted):
    shape, target_shape, given = (*shapes, {})[:3]
    columns = shape[given.get("class_axis", 1)] if len(shape) > 1 else 1
    labels = shape == target_shape and columns > 1 and given.get("task") != "binary"
    if average == "multiclass" and labels:
        average = "macro"  # multilabel has no multiclass form
    g = generator()
    z = torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_()
    classes = 2 if target_shape == shape else columns
    y = torch.randint(0, classes, target_shape, generator=g)
    weight = torch.rand(shape[0], generator=g, dtype=torch.float64) if weighted else None
    for per_sample in {False, len(shape) > 2}:
        options = {"average": average, "per_sample": per_sample, **given}
        loss = AnyLoss("mcc", **options)
        score, expected = anyloss.gradient(
            y, z.detach(), "mcc", from_logits=True, weight=weight, **options
        )
        np.testing.assert_allclose(loss(z, y, weight).detach(), 1 - score, rtol=1e-11)
        torch.testing.assert_close(
            gradient_of(loss, z, y, weight), -torch.tensor(expected), rtol=1e-9, atol=1e-14
        )
        hard = anyloss.score(y, z.detach(), "mcc", from_logits=True, weight=weight, **options)
        np.testing.assert_allclose(loss.score(z, y, weight), hard, rtol=1e-12)


def test_losses_per_class_may_be_weighted():
    z = torch.randn(20, 3, generator=generator(), dtype=torch.float64).requires_grad_()
    y = torch.rand(20, 3, generator=generator(1)) < 0.4
    loss = AnyLoss("f1", average=None)(z, y)
    assert loss.shape == (3,)
    (grad,) = torch.autograd.grad(loss @ torch.tensor([1.0, 0.0, 2.0], dtype=z.dtype), z)
    assert not grad[:, 1].any()
    for k, factor in ((0, 1.0), (2, 2.0)):
        column = z[:, k].detach().clone().requires_grad_()
        (alone,) = torch.autograd.grad(AnyLoss("f1")(column, y[:, k]), column)
        torch.testing.assert_close(grad[:, k], factor * alone)


@pytest.mark.parametrize("step", [DEFAULT, Amplified(73.0), Amplified(40.0, 0.2)], ids=repr)
@pytest.mark.parametrize("shape", [(200_001,), (50_001, 7), (20_000,), (3,), (5, 3)])
def test_blocks_equal_the_plain_path(step, shape, plain_path):
    z = (4 * torch.randn(shape, generator=generator(), dtype=torch.float64)).requires_grad_()
    y = (torch.rand(shape, generator=generator(1)) < 0.1).double()
    loss = AnyLoss("mcc", step=step)
    value, grad = loss(z, y), gradient_of(loss, z, y)
    plain_path()
    torch.testing.assert_close(value, loss(z, y), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(grad, gradient_of(loss, z, y), rtol=1e-9, atol=1e-16)


@pytest.mark.slow("ten million rows")
def test_ten_million_rows_are_counted_right():
    n = 10_000_000
    z = torch.randn(n, generator=generator())
    y = (torch.rand(n, generator=generator(1)) < 0.01).float()
    loss = AnyLoss("f1")
    a = torch.sigmoid(z.double())
    exact = 1 - 2 * (a @ y.double()) / (a.sum() + y.double().sum())
    assert loss(z, y).item() == pytest.approx(exact.item(), rel=1e-6)
    assert loss.score(z, y).item() == pytest.approx(sk.f1_score(y, z > 0), abs=1e-12)
    plain = AnyLoss("f1")(z, y, torch.ones(n))
    assert plain.item() == pytest.approx(exact.item(), rel=1e-6)


def test_scale_73_learns_in_float32_where_the_plain_formula_has_no_gradient():
    z = torch.tensor([3.0, -1.0, 2.0, -2.0, 9.0], requires_grad=True)
    y = torch.tensor([0.0, 0.0, 1.0, 1.0, 0.0])

    def plainly(x):
        a = torch.sigmoid(73 * (torch.sigmoid(x) - 0.5))
        return 1 - 2 * (a * y).sum() / (a.sum() + y.sum())

    silent = gradient_of(plainly, z)
    assert silent[0] == 0
    ours = gradient_of(AnyLoss("f1", step=Amplified(73.0)), z, y)
    exact = gradient_of(
        AnyLoss("f1", step=Amplified(73.0)), z.detach().double().requires_grad_(), y
    )
    torch.testing.assert_close(ours.double(), exact, rtol=1e-4, atol=0.0)
    assert (ours != 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_counted_in_float32(dtype):
    """1001 ones sum to 1000 in bfloat16, and 100,000 overflow float16."""
    z = torch.full((100_000,), 20.0, dtype=dtype, requires_grad=True)
    y = torch.zeros(100_000)
    y[:1001] = 1
    loss = AnyLoss("precision", step=Uniform())(z, y)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(1 - 1001 / 100_000, rel=1e-6)
    loss.backward()
    assert z.grad.dtype == dtype
    small = torch.randn(64, generator=generator())
    y = (torch.rand(64, generator=generator(1)) < 0.3).float()
    expected = F1Loss()(small.to(dtype).float(), y)
    torch.testing.assert_close(F1Loss()(small.to(dtype), y), expected)


def test_autocast():
    model, x = nn.Linear(5, 1), torch.randn(40, 5, generator=generator())
    y = (x[:, 0] > 1).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = model(x).squeeze(1)
        loss = F1Loss()(z, y)
    assert z.dtype == torch.bfloat16
    loss.backward()
    assert torch.isfinite(model.weight.grad).all()
    torch.testing.assert_close(loss, F1Loss()(z.float(), y))


@pytest.mark.parametrize("metric", ["f1", "mcc", "tp / (tp + 0.3*fp + 2*fn)"])
@pytest.mark.parametrize("step", [DEFAULT, Linear(), LogitSigmoid()], ids=repr)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compile_in_one_graph(metric, step):
    torch._dynamo.reset()
    z, y = column(64, dtype=torch.float32)
    loss = AnyLoss(metric, step=step)
    compiled = torch.compile(lambda a, b: loss(a, b), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(z, y), loss(z, y))
    torch.testing.assert_close(gradient_of(compiled, z, y), gradient_of(loss, z, y))


@pytest.mark.slow("compiles")
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compile_with_inductor():
    torch._dynamo.reset()
    z, y = column(64, dtype=torch.float32)
    loss = AnyLoss("mcc", step=Amplified(73.0))
    compiled = torch.compile(lambda a, b: loss(a, b), fullgraph=True)
    torch.testing.assert_close(compiled(z, y), loss(z, y))
    torch.testing.assert_close(gradient_of(compiled, z, y), gradient_of(loss, z, y))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compile_multiclass_with_weights():
    torch._dynamo.reset()
    z = torch.randn(30, 4, generator=generator(), requires_grad=True)
    y, w = torch.randint(0, 4, (30,), generator=generator()), torch.rand(30, generator=generator())
    loss = AnyLoss("mcc", average="multiclass", ignore_index=3)
    compiled = torch.compile(lambda a, b, c: loss(a, b, c), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(z, y, w), loss(z, y, w))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, within torch
def test_torch_func():
    z, y = column(12)
    expected = gradient_of(AnyLoss("mcc"), z, y)
    z = z.detach()
    loss = AnyLoss("mcc")
    torch.testing.assert_close(torch.func.grad(loss)(z, y), expected)
    batch_z, batch_y = torch.stack([z, z.flip(0)]), torch.stack([y, y.flip(0)])
    many = torch.func.vmap(torch.func.grad(loss))(batch_z, batch_y)
    torch.testing.assert_close(many, torch.stack([expected, expected.flip(0)]))
    _, tangent = torch.func.jvp(lambda x: loss(x, y), (z,), (torch.ones_like(z),))
    torch.testing.assert_close(tangent, expected.sum())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(z, torch.ones_like(z))
        out = torch.autograd.forward_ad.unpack_dual(loss(dual, y)).tangent
    torch.testing.assert_close(out, expected.sum())
    hessian = torch.func.hessian(lambda x: loss(x, y))(z)
    torch.testing.assert_close(hessian, hessian.T)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, within torch
def test_hessian_by_double_backward_of_the_closed_form():
    z, y = column(10)
    loss = AnyLoss("f1")
    (grad,) = torch.autograd.grad(loss(z, y), z, create_graph=True)
    (second,) = torch.autograd.grad(grad.square().sum(), z)
    hessian = torch.func.hessian(lambda x: loss(x, y))(z.detach())
    torch.testing.assert_close(second, 2 * hessian @ grad.detach())


def test_backward_twice_and_with_a_factor():
    z, y = column(10)
    loss = AnyLoss("f1")(z, y)
    (first,) = torch.autograd.grad(loss, z, retain_graph=True)
    (second,) = torch.autograd.grad(3 * loss, z, retain_graph=True)
    torch.testing.assert_close(second, 3 * first)
    loss.backward(retain_graph=True)
    z.grad.mul_(0)  # what the user does to .grad must not reach the graph
    loss.backward()
    torch.testing.assert_close(z.grad, first)


def test_export_of_a_trained_model():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
    x = torch.randn(50, 4, generator=generator())
    y = (x[:, 0] > 0.8).float()
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(20):
        optimizer.zero_grad()
        F1Loss()(model(x).squeeze(1), y).backward()
        optimizer.step()
    exported = torch.export.export(model, (x,))
    torch.testing.assert_close(exported.module()(x), model(x))


def test_strided_inputs_and_all_kinds_of_labels():
    z = torch.randn(40, 2, generator=generator(), dtype=torch.float64)
    y = torch.rand(40, 2, generator=generator(1)) < 0.3
    loss = AnyLoss("f1")
    expected = loss(z[:, 1].contiguous(), y[:, 1].double())
    for labels in (y, y.long(), y.to(torch.uint8), y.float(), y.double()):
        torch.testing.assert_close(loss(z[:, 1], labels[:, 1]), expected)
        torch.testing.assert_close(loss(z[:, 1:], labels[:, 1:]), expected)
    torch.testing.assert_close(loss(z.T, y.T), loss(z.T.contiguous(), y.T.contiguous()))
    z = z[:, 1].requires_grad_()
    assert gradcheck(lambda x: loss(x, torch.full((40,), 0.3, dtype=x.dtype)), (z,))
    weight = torch.rand(40, generator=generator(), dtype=torch.float64).requires_grad_()
    target = torch.rand(40, generator=generator(), dtype=torch.float64).requires_grad_()
    assert gradcheck(loss, (z, target, weight))
    assert gradcheck(loss, (z, target))


def test_one_hot_targets():
    z = torch.randn(20, 3, generator=generator())
    index = torch.randint(0, 3, (20,), generator=generator())
    one_hot = nn.functional.one_hot(index, 3)
    for average in ("macro", "multiclass"):
        torch.testing.assert_close(
            AnyLoss("mcc", average=average, task="multiclass")(z, one_hot),
            AnyLoss("mcc", average=average)(z, index),
        )


@pytest.mark.parametrize(
    ("average", "reference"),
    [("macro", "macro"), ("micro", "micro"), ("weighted", "weighted"), (None, None)],
)
def test_score_equals_scikit_learn(average, reference):
    z = torch.randn(100, 4, generator=generator())
    y = torch.randint(0, 4, (100,), generator=generator())
    ours = AnyLoss("f1", average=average).score(z, y)
    np.testing.assert_allclose(ours, sk.f1_score(y, z.argmax(1), average=reference), atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_score_in_blocks_of_rows(monkeypatch, weighted):
    z = torch.randn(101, 4, generator=generator())
    y = torch.randint(0, 4, (101,), generator=generator())
    weight = torch.rand(101, generator=generator()) if weighted else None
    expected = sk.f1_score(y, z.argmax(1), average="macro", sample_weight=weight)
    monkeypatch.setattr("anyloss.torch.batch.BLOCK", 80)
    assert AnyLoss("f1").score(z, y, weight).item() == pytest.approx(expected, abs=1e-7)
    if weighted:
        with pytest.raises(ValueError, match=r"weight must have shape \(101,\); got \(200,\)"):
            AnyLoss("f1").score(z, y, torch.ones(200))


def test_thresholds():
    z, y = column(30)
    grid = [0.1, 0.5, 0.9]
    loss = AnyLoss("f1", thresholds=grid)
    single = torch.stack([AnyLoss("f1", threshold=t)(z, y) for t in grid])
    torch.testing.assert_close(loss(z, y), single.mean())
    assert gradcheck(lambda x: loss(x, y), (z,))
    p = torch.sigmoid(z.detach())
    expected = np.mean([sk.f1_score(y.numpy(), p.numpy() > t) for t in grid])
    assert loss.score(z, y).item() == pytest.approx(expected, abs=1e-12)
    assert AnyLoss("f1", threshold=0.3).settings.steps == (DEFAULT.at(0.3),)
    linear = AnyLoss("f1", step=Linear(), thresholds=grid)
    torch.testing.assert_close(
        linear(z, y),
        torch.stack([AnyLoss("f1", step=Linear(threshold=t))(z, y) for t in grid]).mean(),
    )


def test_named_losses_and_the_function():
    z, y = column(30)
    pairs = [
        (AccuracyLoss(), AnyLoss("accuracy")),
        (F1Loss(), AnyLoss("f1")),
        (FBetaLoss(2.0), AnyLoss("fbeta", beta=2.0)),
        (GeometricMeanLoss(), AnyLoss("gmean")),
        (BalancedAccuracyLoss(threshold=0.3), AnyLoss("balanced_accuracy", threshold=0.3)),
        (MCCLoss(step=Linear()), AnyLoss("mcc", step=Linear())),
    ]
    for named, general in pairs:
        torch.testing.assert_close(named(z, y), general(z, y))
    torch.testing.assert_close(any_loss(z, y, "fbeta", beta=2.0), FBetaLoss(2.0)(z, y))
    weight = torch.rand(30, generator=generator())
    torch.testing.assert_close(
        any_loss(z, y, metric="mcc", weight=weight, step=Linear()),
        MCCLoss(step=Linear())(z, y, weight),
    )
    torch.testing.assert_close(F1Loss().soft_score(z, y), 1 - F1Loss()(z, y))
    assert "f1" in repr(F1Loss())


def test_a_loss_can_be_copied_and_saved():
    z, y = column(10)
    loss = AnyLoss("sqrt(tp/(tp+fn) * tn/(tn+fp))")
    torch.testing.assert_close(copy.deepcopy(loss)(z, y), GeometricMeanLoss()(z, y))
    buffer = io.BytesIO()
    torch.save(loss, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)  # our own bytes
    torch.testing.assert_close(loaded(z, y), loss(z, y))


def test_a_negative_ignore_index_with_unsigned_labels():
    meter = ScoreMeter("accuracy", average="micro", ignore_index=-100)
    meter.update(torch.zeros(2, 200), torch.tensor([156, 3], dtype=torch.uint8))
    assert (meter.counts.tp + meter.counts.fn).sum() == 2


def test_ignored_and_zero_weight_samples_do_not_count():
    z = torch.tensor([0.3, float("nan"), -2.0, 1.0], requires_grad=True)
    y = torch.tensor([1.0, -1.0, 0.0, 0.0])
    keep = y >= 0
    expected = F1Loss()(z.detach()[keep], y[keep])
    for loss in (AnyLoss("f1", ignore_index=-1)(z, y), F1Loss()(z, y, keep.float())):
        torch.testing.assert_close(loss, expected)
        (grad,) = torch.autograd.grad(loss, z)
        assert grad[1] == 0
        assert torch.isfinite(grad).all()


def test_smoothing_is_in_the_loss_only():
    z, y = column(10)
    torch.testing.assert_close(AnyLoss("f1", smooth=1.0).score(z, y), AnyLoss("f1").score(z, y))
    expected = anyloss.score(y, z.detach(), "f1", DEFAULT, from_logits=True, smooth=1.0)
    assert AnyLoss("f1", smooth=1.0).soft_score(z, y).item() == pytest.approx(expected, rel=1e-12)


def test_monai_value():
    z = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    y = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    loss = AnyLoss("f1", step=Uniform(), average="micro")
    assert loss(z, y).item() == pytest.approx(0.307576, abs=1e-6)


def test_meter_is_the_score_of_the_whole_epoch():
    z = torch.randn(100, 3, generator=generator())
    y = torch.randint(0, 3, (100,), generator=generator())
    weight = torch.rand(100, generator=generator())
    meter = ScoreMeter("f1", average="macro")
    for part in torch.arange(100).split(7):
        meter.update(z[part], y[part], weight[part])
    expected = sk.f1_score(y, z.argmax(1), average="macro", sample_weight=weight)
    assert meter.compute().item() == pytest.approx(expected, abs=1e-6)
    meter.reset()
    with pytest.raises(ValueError, match="no batch"):
        meter.compute()
    meter.update(z, y)
    with pytest.raises(ValueError, match="one task and number of classes"):
        meter.update(z[:, :2], y.clamp_max(1))
    with pytest.raises(ValueError, match="takes no thresholds="):
        ScoreMeter("f1", thresholds=[0.1, 0.2])
    binary = ScoreMeter("mcc", threshold=0.3)
    binary.update(z[:, 0], y == 0)
    expected = sk.matthews_corrcoef(y == 0, torch.sigmoid(z[:, 0]) > 0.3)
    assert binary.compute().item() == pytest.approx(expected, abs=1e-12)


def test_training_for_f1_beats_bce_at_one_half():
    """A small imbalanced problem, on which the loss of a metric improves this metric."""
    g = generator(3)
    x = torch.randn(4000, 6, generator=g)
    y = (x[:, 0] + 0.5 * x[:, 1] ** 2 + torch.randn(4000, generator=g) > 2.6).float()

    def train(criterion):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(200):
            optimizer.zero_grad()
            criterion(model(x[:2000]).squeeze(1), y[:2000]).backward()
            optimizer.step()
        return F1Loss().score(model(x[2000:]).squeeze(1), y[2000:]).item()

    assert train(F1Loss()) > train(nn.BCEWithLogitsLoss()) + 0.02


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("metric", ["npv", "markedness", "gmean", "mcc"])
def test_almost_all_predicted_positive_keeps_its_digits(metric, dtype):
    z = (3 + 5 * torch.rand(1000, generator=generator())).to(dtype).requires_grad_()
    y = (torch.rand(1000, generator=generator(1)) < 0.3).to(dtype)
    loss = AnyLoss(metric, step=Amplified(73.0))
    exact, expected = anyloss.gradient(
        y, z.detach().double(), metric, Amplified(73.0), from_logits=True
    )
    assert loss(z, y).item() == pytest.approx(1 - exact, rel=1e-4)
    ours = gradient_of(loss, z, y).double()
    torch.testing.assert_close(
        ours, -torch.tensor(expected), rtol=2e-3, atol=1e-4 * abs(expected).max()
    )


def test_scoring_in_inference_mode_does_not_spoil_training():
    for shape in ((40_000,), (100, 5)):
        z, y = torch.randn(shape, generator=generator()), torch.ones(shape)
        y[0] = 0
        part_module._kept.__dict__.clear()
        with torch.inference_mode():
            F1Loss()(z, y)
        F1Loss()(z.requires_grad_(), y).backward()
        assert torch.isfinite(z.grad).all()


def test_batched_gradients():
    z, y = column(8)
    loss = AnyLoss("f1")(z, y)
    expected = gradient_of(AnyLoss("f1"), z, y)
    scales = torch.tensor([1.0, 3.0], dtype=z.dtype)
    (many,) = torch.autograd.grad(loss, z, scales, is_grads_batched=True)
    torch.testing.assert_close(many, scales[:, None] * expected)


def test_the_closed_form_serves_all_but_vectors_and_other_gradients(monkeypatch):
    calls = []
    monkeypatch.setattr(
        loss_module, "with_gradient", lambda *rest: calls.append(1) or gradient.with_gradient(*rest)
    )
    z, y = column(10)
    pair, labels = z.reshape(5, 2), y.reshape(5, 2)
    F1Loss()(z, y)
    F1Loss(average="macro")(z, y, torch.ones(10, dtype=z.dtype))
    AnyLoss("f1", average=None)(pair, labels)
    AnyLoss("f1", step=Linear())(z, y)
    AnyLoss("f1", soft_labels=True)(z, 0.3 * y)
    AnyLoss("mcc")(pair, labels[:, 0].long())
    AnyLoss("f1", per_sample=True)(z.reshape(2, 1, 5), y.reshape(2, 1, 5))
    with torch.no_grad():
        assert not F1Loss()(z, y).requires_grad
    AnyLoss("f1", squared=True)(pair, labels[:, 0].long())
    AnyLoss("f1", threshold=[0.2, 0.6])(pair, labels)
    AnyLoss("f1", activation="sigmoid")(pair, labels[:, 0].long())
    AnyLoss("f1", activation="softmax")(pair, labels)
    AnyLoss("f1", per_sample=True, reduction="none")(z.reshape(2, 1, 5), y.reshape(2, 1, 5))
    AnyLoss("f1", average=None, classes=[1])(pair, labels)
    assert len(calls) == 14
    AnyLoss("f1", average=None)(pair, labels[:, 0].long())
    AnyLoss("f1")(z, y.clone().requires_grad_())
    torch.func.grad(F1Loss())(z.detach(), y)
    assert len(calls) == 14


def test_hard_step_as_a_loss_has_no_gradient():
    z, y = column(10)
    loss = AnyLoss("f1", step=Hard())(z, y)
    expected = sk.f1_score(y.numpy(), z.detach().numpy() > 0)
    assert 1 - loss.item() == pytest.approx(expected, abs=1e-12)
    (grad,) = torch.autograd.grad(loss, z)
    assert not grad.any()
