"""The parts of a loss beside the metric: default step, cross-entropy, soft labels, messages."""

import io
import os
import warnings

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import anyloss
from anyloss.steps import DEFAULT, Amplified, Hard, Uniform
from anyloss.torch import AnyLoss, AUROCLoss, ScoreMeter, accumulate, any_loss

# The default step.


@pytest.mark.parametrize("threshold", [0.01, 0.1, 0.3, 0.5, 0.8, 0.99])
def test_the_default_step_has_no_floor(threshold):
    step = DEFAULT.at(threshold)
    assert step.value([0.0, threshold, 1.0]).tolist() == pytest.approx([0.0, 0.5, 1.0], abs=1e-15)
    p = np.linspace(0, 1, 1001)
    assert (np.diff(step.value(p)) > 0).all()
    np.testing.assert_allclose(step.value(p) + step.mirror(p), 1.0, rtol=1e-14)
    middle = (p[1:] + p[:-1]) / 2
    inside = np.abs(middle - threshold) > 1e-3  # off the kink
    np.testing.assert_allclose(
        (np.diff(step.value(p)) / 1e-3)[inside], step.derivative(middle)[inside]
    )


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_perfect_and_confident_predictions_have_loss_zero(classes):
    y = torch.arange(4 * classes) % classes
    z = torch.where(F.one_hot(y, classes) == 1, 60.0, -60.0)
    assert AnyLoss("f1")(z, y).item() == pytest.approx(0.0, abs=1e-6)
    rare = (torch.arange(10_000) == 0).float()
    assert AnyLoss("f1")(torch.where(rare == 1, 60.0, -60.0), rare).item() == pytest.approx(
        0, abs=1e-6
    )


def test_a_hundred_classes_are_learned():
    """Easy Gaussians: the earlier default, Amplified(10), reached 0.58 to 0.70 here."""
    g = torch.Generator().manual_seed(0)
    centres = torch.randn(100, 20, generator=g) * 1.6
    y = torch.arange(100).repeat_interleave(50)
    x, new = (centres[y] + torch.randn(5000, 20, generator=g) for _ in range(2))
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(20, 128), torch.nn.ReLU(), torch.nn.Linear(128, 100)
    )
    optimizer, loss = torch.optim.Adam(model.parameters(), 3e-3), AnyLoss("f1")
    for _ in range(20):
        for rows in torch.randperm(5000, generator=g).split(500):
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
    assert loss.score(model(new), y).item() > 0.95


# Cross-entropy.


def test_cross_entropy_is_that_of_pytorch():
    g = torch.Generator().manual_seed(0)
    z, y = torch.randn(30, generator=g), (torch.rand(30, generator=g) < 0.3).float()
    weight = torch.rand(30, generator=g)

    def added(*given, **options):
        return any_loss(*given, cross_entropy=0.3, **options) - any_loss(*given, **options)

    assert added(z, y).item() == pytest.approx(
        0.3 * F.binary_cross_entropy_with_logits(z, y).item(), abs=1e-6
    )
    weighted = F.binary_cross_entropy_with_logits(z, y, weight, reduction="sum") / weight.sum()
    assert added(z, y, weight=weight).item() == pytest.approx(0.3 * weighted.item(), abs=1e-6)
    p = torch.sigmoid(z)
    assert added(p, y, from_logits=False).item() == pytest.approx(
        0.3 * F.binary_cross_entropy(p, y).item(), abs=1e-6
    )
    z, y = torch.randn(12, 5, generator=g), torch.randint(0, 5, (12,), generator=g)
    expected = F.cross_entropy(z, y).item()
    assert added(z, y).item() == pytest.approx(0.3 * expected, abs=1e-6)
    assert added(z.softmax(1), y, from_logits=False).item() == pytest.approx(
        0.3 * expected, abs=1e-6
    )
    y[:4] = 3
    ignored = F.cross_entropy(z, y, ignore_index=3).item()
    assert added(z, y, ignore_index=3).item() == pytest.approx(0.3 * ignored, abs=1e-6)
    soft = torch.rand(12, 5, generator=g).softmax(1)
    assert added(z, soft, task="multiclass").item() == pytest.approx(
        0.3 * F.cross_entropy(z, soft).item(), abs=1e-6
    )
    labels = (soft > 0.2).float()
    assert added(z, labels).item() == pytest.approx(
        0.3 * F.binary_cross_entropy_with_logits(z, labels).item(), abs=1e-6
    )


def test_cross_entropy_of_parts_is_that_of_the_whole():
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(20, 3, generator=g).double(), torch.randint(0, 2, (20, 1), generator=g)
    weight = torch.rand(20, generator=g).double()
    whole, parts = torch.nn.Linear(3, 1).double(), torch.nn.Linear(3, 1).double()
    parts.load_state_dict(whole.state_dict())
    loss = AnyLoss("mcc", cross_entropy=0.5, memory=0.9)
    other = AnyLoss("mcc", cross_entropy=0.5, memory=0.9)
    for _ in range(2):  # the second batch remembers the counts of the first, not its entropy
        for each in (whole, parts):
            each.zero_grad()
        value = loss(whole(x), y, weight)
        value.backward()
        cut = zip(x.split([3, 9, 8]), y.split([3, 9, 8]), weight.split([3, 9, 8]), strict=True)
        torch.testing.assert_close(accumulate(other, parts, list(cut)), value.detach())
        torch.testing.assert_close(parts.weight.grad, whole.weight.grad)


def test_cross_entropy_is_the_same_in_every_front_end():
    jax = pytest.importorskip("jax")
    keras = pytest.importorskip("keras")
    from anyloss.jax import any_loss as jax_loss
    from anyloss.keras import AnyLoss as KerasLoss

    rng = np.random.default_rng(0)
    z, index = rng.normal(size=(9, 4)).astype(np.float32), rng.integers(0, 4, 9)
    labels, weight = rng.integers(0, 2, (9, 4)), rng.random(9).astype(np.float32)
    given = {"cross_entropy": 0.7}
    for y in (index, labels):
        expected = any_loss(
            torch.tensor(z), torch.tensor(y), "f1", weight=torch.tensor(weight), **given
        ).item()
        ours = jax.jit(lambda logits, y=y: jax_loss(logits, y, "f1", weight=weight, **given))(z)
        assert ours.item() == pytest.approx(expected, abs=1e-5)
        loss = KerasLoss("f1", from_logits=True, **given)
        assert float(loss(y, z, weight)) == pytest.approx(expected, abs=1e-5)
        p = np.asarray(jax.nn.softmax(z) if y is index else jax.nn.sigmoid(z))
        loss = KerasLoss("f1", **given)
        assert float(loss(y, p, weight)) == pytest.approx(expected, abs=1e-5)
    assert keras.backend.backend() == os.environ["KERAS_BACKEND"]


def test_scores_exclude_cross_entropy():
    loss = AnyLoss("f1", cross_entropy=0.1)
    z, y = torch.randn(10), torch.ones(10)
    torch.testing.assert_close(loss.soft_score(z, y), AnyLoss("f1").soft_score(z, y))
    with pytest.raises(ValueError, match="cross_entropy must be a number >= 0; got -1"):
        AnyLoss("f1", cross_entropy=-1)
    with pytest.raises(ValueError, match="got average=None, which gives one per class"):
        AnyLoss("f1", cross_entropy=0.1, average=None)
    with pytest.raises(ValueError, match="finite numbers where cross_entropy is added"):
        AnyLoss("f1", cross_entropy=0.1)(torch.tensor([torch.inf, 0.0]), torch.tensor([0.0, 1.0]))


def test_cross_entropy_of_impossible_and_certain_outputs_is_that_of_pytorch():
    p, y = torch.tensor([0.0, 1.0, 0.3, 1.0, 0.0]), torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    for dtype in (torch.float32, torch.float64):
        given = {"from_logits": False}
        added = any_loss(p.to(dtype), y, cross_entropy=1.0, **given) - any_loss(
            p.to(dtype), y, **given
        )
        assert added.item() == pytest.approx(F.binary_cross_entropy(p, y).item(), rel=1e-6)
    z, index = torch.tensor([[-torch.inf, 1.0, 2.0], [0.0, 1.0, 2.0]]), torch.tensor([1, 2])
    given = {"validate": False}
    added = any_loss(z, index, cross_entropy=1.0, **given) - any_loss(z, index, **given)
    assert added.item() == pytest.approx(F.cross_entropy(z, index).item(), rel=1e-6)


def test_a_class_without_weight_leaves_the_other_classes_of_its_row_alone():
    z = torch.tensor([[-3.0, -2.0, -5.0], [-2.0, -4.0, -6.0], [-1.0, -2.0, -3.0]])
    y, weight = torch.eye(3)[[1, 0, 0]], torch.ones(3, 3)
    weight[:, 2] = 0.0
    loss = AnyLoss("f1", task="multiclass", cross_entropy=1.0)
    almost = weight.clamp_min(1e-30)
    torch.testing.assert_close(loss(z, y, weight), loss(z, y, almost))
    assert AnyLoss("accuracy", task="multiclass").score(z, y, weight).item() == 1.0


# Soft labels.


def test_soft_labels_are_best_where_the_probability_equals_them():
    rng = np.random.default_rng(0)
    q = rng.random(40)
    for metric in ("f1", "jaccard", "accuracy"):
        best = anyloss.score(q, q, metric, Uniform(), soft_labels=True)
        assert best == pytest.approx(1.0, abs=1e-12)
        for _ in range(20):
            other = np.clip(q + rng.normal(size=40) * 0.1, 0, 1)
            assert anyloss.score(q, other, metric, Uniform(), soft_labels=True) < best
    q, p = rng.random(30), rng.random(30)
    tp = (p + q - np.abs(p - q)).sum() / 2  # MONAI's soft_label, the Dice semimetric losses
    dice = anyloss.score(q, p, "f1", Uniform(), soft_labels=True)
    assert dice == pytest.approx(2 * tp / (p.sum() + q.sum()), abs=1e-12)


def test_soft_labels_have_the_gradient_of_finite_differences():
    rng = np.random.default_rng(1)
    for shape, given in (((12,), {}), ((12, 3), {"task": "multiclass"}), ((12, 3), {})):
        z, q = rng.normal(size=shape), rng.random(shape)
        if given:
            q = q / q.sum(1, keepdims=True)
        given = {"soft_labels": True, "from_logits": True, **given}
        _, gradient = anyloss.gradient(q, z, "mcc", **given)
        loss, target = AnyLoss("mcc", **given), torch.tensor(q)
        x = torch.tensor(z, requires_grad=True)
        assert torch.autograd.gradcheck(loss, (x, target))
        loss(x, target).backward()
        np.testing.assert_allclose(x.grad, -gradient, rtol=1e-9, atol=1e-15)


def test_distilling_a_teacher_ends_at_the_teacher():
    torch.manual_seed(0)
    q = torch.rand(50)
    z = torch.zeros(50, requires_grad=True)
    optimizer, loss = torch.optim.Adam([z], 0.05), AnyLoss("f1", soft_labels=True)
    for k in range(600):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - k / 600)
        optimizer.zero_grad()
        loss(z, q).backward()
        optimizer.step()
    assert (torch.sigmoid(z) - q).abs().max() < 0.02


def test_soft_labels_refuse_another_step():
    for step in (Amplified(10.0), Uniform(threshold=0.3)):
        with pytest.raises(ValueError, match=r"no other step or threshold than Uniform\(\)"):
            AnyLoss("f1", soft_labels=True, step=step)
    hard = anyloss.score([0.2, 0.9], [0.7, 0.8], "f1", Hard(0.6), soft_labels=True)
    assert hard == anyloss.score([0.2, 0.9], [0.7, 0.8], "f1", Hard(0.6))


# Compiled, traced and fake tensors.


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("column", {"cross_entropy": 0.1}),
        ("labels", {}),
        ("labels", {"zero_division": 1, "average": "weighted"}),
        ("classes", {"cross_entropy": 0.1}),
        ("classes", {"metric": "gmean"}),
        ("classes", {"metric": "hmean", "zero_division": 0}),
        ("classes", {"metric": "mcc", "ignore_index": 2}),
        ("teacher", {"task": "multiclass", "soft_labels": True}),
        ("labels", {"task": "binary", "per_sample": True}),
    ],
)
def test_a_compiled_loss_is_the_same_without_a_graph_break(kind, options):
    torch.compiler.reset()
    g = torch.Generator().manual_seed(0)
    shape = (8,) if kind == "column" else (8, 4)
    z = torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_()
    y = (torch.rand(shape, generator=g) < 0.4).double()
    if kind == "classes":
        y = torch.randint(0, 3, (8,), generator=g)  # one class of four is absent
    if kind == "teacher":
        y = torch.rand(shape, generator=g).double().softmax(1)
    loss = AnyLoss(**options)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(z, y), loss(z, y))
    (ours,) = torch.autograd.grad(compiled(z, y), z)
    (theirs,) = torch.autograd.grad(loss(z, y), z)
    torch.testing.assert_close(ours, theirs)


def test_fake_and_meta_tensors_pass_through():
    with FakeTensorMode():
        z = torch.randn(6, 3, requires_grad=True)
        for loss in (AnyLoss("f1"), AnyLoss("mcc", cross_entropy=0.1, ignore_index=2)):
            value = loss(z, torch.zeros(6, dtype=torch.long))
            value.backward()
            assert (value.shape, z.grad.shape) == ((), (6, 3))
            assert loss.score(z, torch.zeros(6, dtype=torch.long)).shape == ()
    z = torch.randn(6, device="meta", requires_grad=True)
    AnyLoss("f1")(z, torch.ones(6, device="meta")).backward()
    assert z.grad.shape == (6,)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript-based ONNX export")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_traced_loss_is_right_for_another_batch_size():
    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.loss = torch.nn.Linear(3, 1), AnyLoss("mcc", cross_entropy=0.2)

        def forward(self, x, y):
            return self.loss(self.layer(x).squeeze(1), y)

    model, x, y = Both(), torch.randn(8, 3), torch.tensor([0.0, 1, 0, 1, 1, 0, 0, 1])
    traced = torch.jit.trace(model, (x, y))
    for n in (8, 5):
        torch.testing.assert_close(traced(x[:n], y[:n]), model(x[:n], y[:n]))
    file = io.BytesIO()
    torch.onnx.export(model, (x, y), file, dynamo=False)
    assert file.getvalue()


# Errors, warnings and repr.


def test_the_error_for_a_misspelt_option_names_the_nearest_one():
    for make in (AnyLoss, ScoreMeter):
        with pytest.raises(TypeError, match="unknown argument 'avergae'; did you mean 'average'?"):
            make("f1", avergae="macro")
    with pytest.raises(TypeError, match="unknown argument 'bta'; did you mean 'beta'?"):
        AnyLoss("fbeta", bta=2)
    with pytest.raises(
        TypeError, match="unknown argument 'zzz'; known are: metric, step, threshold"
    ):
        AnyLoss("f1", zzz=2)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"cross_entropy": "0.1"}, ValueError, "cross_entropy must be a number >= 0; got '0.1'"),
        ({"smooth": None}, ValueError, "smooth must be a number >= 0; got None"),
        ({"memory": "0.9"}, ValueError, "memory must be strictly between 0 and 1"),
        ({"thresholds": np.float32(0.5)}, TypeError, "thresholds must be a sequence of numbers"),
        ({"thresholds": "0.5"}, TypeError, "thresholds must be a sequence of numbers"),
        ({"zero_division": np.nan}, ValueError, "scikit-learn's nan is 'skip' here"),
        ({"zero_division": True}, ValueError, "zero_division must be one of"),
        ({"ignore_index": True}, TypeError, "ignore_index must be a whole number or None"),
        ({"weight": 2.0}, TypeError, "pass weights with the batch"),
        ({"amplifying_scale": 73.0}, TypeError, r"write step=Amplified\(scale\)"),
    ],
)
def test_options_of_the_wrong_kind_are_refused_by_name(options, error, message):
    with pytest.raises(error, match=message):
        AnyLoss("f1", **options)


def test_numbers_of_numpy_are_numbers():
    z, y = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 7])
    given = {"class_axis": np.int64(1), "ignore_index": np.int64(7), "zero_division": np.float64(1)}
    plain = AnyLoss("f1", class_axis=1, ignore_index=7, zero_division=1)(z, y)
    torch.testing.assert_close(AnyLoss("f1", **given)(z, y), plain)
    wide = AnyLoss("f1", ignore_index=7)(z, y.to(torch.uint16))
    torch.testing.assert_close(wide, AnyLoss("f1", ignore_index=7)(z, y))
    with pytest.raises(ValueError, match="weight must have shape"):
        AnyLoss("f1", ignore_index=7).score(z, y, torch.tensor(2.0))


def test_a_meter_takes_indices_and_one_hot_labels_of_one_task():
    z, y = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    meter = ScoreMeter("f1", task="multiclass")
    meter.update(z[:3], y[:3])
    meter.update(z[3:], F.one_hot(y[3:], 3))
    torch.testing.assert_close(meter.compute(), AnyLoss("f1").score(z, y))


def test_repr_shows_what_differs_from_the_default():
    assert repr(AnyLoss("f1")) == "AnyLoss(metric('f1'), Uniform(delta=None, threshold=0.5))"
    loss = AnyLoss("f1", average="macro", cross_entropy=0.1, task="multiclass", ignore_index=9)
    assert repr(loss) == (
        "AnyLoss(metric('f1'), Uniform(delta=None, threshold=0.5), cross_entropy=0.1, "
        "average='macro', task='multiclass', ignore_index=9)"
    )
    meter = ScoreMeter("fbeta", beta=2, threshold=0.3)
    assert repr(meter) == "ScoreMeter(metric('fbeta', beta=2), Uniform(delta=None, threshold=0.3))"


def test_average_none_may_be_written_as_a_word():
    z, y = torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 0])
    assert torch.equal(AnyLoss("f1", average="none")(z, y), AnyLoss("f1", average=None)(z, y))


def test_a_collapse_to_one_class_is_warned_of_once():
    g = torch.Generator().manual_seed(0)
    loss, y = AnyLoss("f1"), (torch.rand(32, generator=g) < 0.5).float()
    z = torch.rand(32, generator=g).requires_grad_()  # every decision positive
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(700):
            loss(z, y)
    assert len(seen) == 1
    assert "every inspected decision was for one class, 1" in str(seen[0].message)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        healthy, several = AnyLoss("f1"), AnyLoss("f1")
        rows = torch.randn(8, 3, generator=g)
        for _ in range(700):
            healthy(z - 0.5, y)
            several(rows, torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]))


def test_accumulate_refuses_a_ranking_loss_by_name():
    with pytest.raises(TypeError, match="loss must be an AnyLoss, .* got AUROCLoss"):
        accumulate(AUROCLoss(), torch.nn.Linear(2, 1), [])
