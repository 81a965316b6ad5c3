"""The recipe for a user's own PyTorch module: every step recomputed by hand."""

import io
from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import anyloss
from anyloss.recipe.target import new_target
from anyloss.steps import Amplified
from anyloss.thresholds import best_offsets
from anyloss.torch import AnyLoss
from anyloss.torch.refined import RefinedModule
from anyloss.torch.refinement import refine

torch.set_num_threads(1)
quick = partial(refine, start_epochs=8, epochs=4, optimizer=partial(torch.optim.Adam, lr=0.05))


def blobs(n=300, classes=2, seed=0, shares=None):
    """Rows around one centre per class; the classes overlap."""
    g = torch.Generator().manual_seed(seed)
    y = torch.multinomial(torch.tensor(shares or [1.0] * classes), n, True, generator=g)
    centres = torch.randn(classes, 4, generator=torch.Generator().manual_seed(9))
    return centres[y] + torch.randn(n, 4, generator=g), y


def rare(n=400, seed=0):
    x, y = blobs(n, seed=seed, shares=[0.85, 0.15])
    return x, y.float()


def several(n=300, seed=0):
    x, _ = blobs(n, seed=seed)
    noise = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed + 1))
    return x, (x[:, :3] + noise > torch.tensor([0.5, 1.5, 2.5])).float()


def linear(out=1, seed=0):
    torch.manual_seed(seed)
    return nn.Linear(4, out)


class Given(nn.Module):
    """Logits that are given, moved by one parameter."""

    def __init__(self):
        super().__init__()
        self.move = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return x + self.move


def assert_same(one, other):
    assert one.history == pytest.approx(other.history, abs=1e-5)
    assert one.end_score == pytest.approx(other.end_score)
    for mine, yours in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, yours, atol=1e-4, rtol=1e-4)


def f1_of_plain_and_of_ensemble(seed):
    sets = [blobs(n, seed=10 * seed + n, shares=[0.92, 0.08]) for n in (1200, 1000, 4000)]
    (x, y), valid, (x_test, y_test) = [(rows, labels.float()) for rows, labels in sets]
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    plain = deepcopy(module)
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(x, y), batch_size=300, shuffle=True)
    for _ in range(15 + 8):
        for rows, labels in loader:
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(plain(rows)[:, 0], labels).backward()
            optimizer.step()
    adam = partial(torch.optim.Adam, lr=0.01)
    ensemble = refine(module, loader, valid=[valid], epochs=15, refine_epochs=8, optimizer=adam)
    assert ensemble.end_score == pytest.approx(f1_score(valid[1], ensemble.predict(valid[0])))
    predicted = plain(x_test)[:, 0].detach() > 0
    return f1_score(y_test, predicted), f1_score(y_test, ensemble.predict(x_test))


@pytest.mark.slow("trains networks")
def test_the_ensemble_beats_plain_cross_entropy_on_rows_it_did_not_see():
    plain, ours = np.array([f1_of_plain_and_of_ensemble(seed) for seed in range(6)]).T
    assert (ours > plain).sum() >= 5
    assert (ours - plain).mean() > 0.02


def test_forward_is_the_logit_of_the_mean_probability():
    x, y = rare()
    ensemble = quick(linear(), [(x, y)])
    a, b = (m(x)[:, 0].detach() - ensemble.threshold_ for m in (ensemble.started, ensemble.refined))
    assert not torch.equal(a, b)
    vote = (torch.tanh(a / 2) + torch.tanh(b / 2)) / 2
    z = ensemble(x)
    assert z.shape == (400,)
    assert torch.equal(z > 0, vote > 0)
    torch.testing.assert_close(torch.sigmoid(z), (torch.sigmoid(a) + torch.sigmoid(b)) / 2)
    assert torch.equal(ensemble.predict(x), (vote > 0).long())


def stages(first, second):
    """A function that makes the optimizer of the first stage, then that of the second."""
    makers = iter((first, second))
    return lambda parameters: next(makers)(parameters)


@pytest.mark.parametrize("classes", [2, 3])
def test_validation_rows_guard_against_a_refinement_that_hurts(classes):
    x, y = rare() if classes == 2 else blobs(classes=3)
    valid = rare(seed=1) if classes == 2 else blobs(classes=3, seed=1)
    adam = partial(torch.optim.Adam, lr=0.05)
    wrong = partial(torch.optim.SGD, lr=10.0, maximize=True)  # raises the loss
    model = linear(1 if classes == 2 else 3)
    found = refine(model, [(x, y)], valid=[valid], epochs=30, optimizer=stages(adam, wrong))
    assert found.share == 0.0
    assert found.end_score == found.start_score
    z = model(valid[0]).detach().squeeze(1) - found.threshold_
    expected = (z > 0).long() if classes == 2 else z.argmax(1)
    assert torch.equal(found.predict(valid[0]), expected)
    unguarded = quick(linear(), [(rare()[0], rare()[1])])
    assert unguarded.share == 0.5


def test_a_refinement_that_helps_is_used_and_saved_with_its_share():
    x, y = rare(2000)
    valid = rare(2000, seed=1)
    weak = partial(torch.optim.SGD, lr=0.01)  # a start far from its optimum
    adam = partial(torch.optim.Adam, lr=0.05)
    found = refine(linear(), [(x, y)], valid=[valid], epochs=2, refine_epochs=60,
                   optimizer=stages(weak, adam))  # fmt: skip
    assert found.share == 1.0
    expected = f1_score(valid[1].numpy(), found.predict(valid[0]).numpy())
    assert found.end_score == pytest.approx(expected)
    assert found.end_score > found.start_score
    z = found.refined(valid[0])[:, 0] - found.threshold_
    torch.testing.assert_close(found(valid[0]), z)
    fresh = ModuleEnsemble(linear(), linear(), torch.zeros(1), "binary")
    fresh.load_state_dict(found.state_dict())
    assert fresh.share == 1.0
    assert torch.equal(fresh.predict(valid[0]), found.predict(valid[0]))


class Member(nn.Module):
    def __init__(self, column):
        super().__init__()
        self.column = column

    def forward(self, x):
        return x[:, self.column]


def test_forward_is_finite_and_keeps_the_sign_at_the_extremes():
    ensemble = ModuleEnsemble(Member(0), Member(1), torch.zeros(1), "binary")
    pairs = [[1e4, 1e4], [-1e4, -1e4], [1e4, -1e4], [1e-12, 0.0], [-1e-12, 0.0], [90.0, -50.0],
             [3e38, 3e38], [0.0, 0.0], [1e-9, 1e-9]]  # fmt: skip
    x = torch.tensor(pairs, requires_grad=True)
    z = ensemble(x)
    assert z.isfinite().all()
    assert z.sign().tolist() == [1, -1, 0, 1, -1, 1, 1, 0, 1]
    assert z[0].item() == pytest.approx(1e4)
    z.sum().backward()
    assert x.grad.isfinite().all()


def test_multiclass_forward_is_the_log_of_the_mean_probability():
    x, y = blobs(classes=3, shares=[0.7, 0.2, 0.1])
    ensemble = quick(linear(3), [(x, y)])
    members = [m(x).detach() - ensemble.threshold_ for m in (ensemble.started, ensemble.refined)]
    mean = sum(z.softmax(1) for z in members) / 2
    torch.testing.assert_close(ensemble(x).exp(), mean)
    assert torch.equal(ensemble.predict(x), mean.argmax(1))
    far = ModuleEnsemble(nn.Identity(), nn.Identity(), torch.zeros(3), "multiclass")
    assert far(torch.tensor([[1e4, -1e4, 0.0]])).isfinite().all()


def test_the_threshold_is_the_best_one_for_the_logits_of_valid():
    x, y = rare()
    x_valid, y_valid = rare(seed=5)
    module = linear()
    ensemble = quick(module, [(x, y)], "mcc", valid=[(x_valid, y_valid)])
    z = module(x_valid)[:, 0].detach().numpy()
    best = anyloss.best_threshold(y_valid.numpy(), z, "mcc")
    assert ensemble.threshold_.tolist() == [best.threshold]
    assert ensemble.start_score == best.score
    decided = (ensemble(x_valid) > 0).double().numpy()
    assert ensemble.end_score == anyloss.score(y_valid.numpy(), decided, "mcc")


def test_without_valid_the_training_rows_give_the_threshold():
    x, y = rare()
    module = linear()
    ensemble = quick(module, list(zip(x.split(100), y.split(100), strict=True)))
    best = anyloss.best_threshold(y.numpy(), module(x)[:, 0].detach().numpy(), "f1")
    assert (ensemble.threshold_.item(), ensemble.start_score) == tuple(best)


@pytest.mark.parametrize(
    ("metric", "average"), [("f1", "auto"), ("mcc", "multiclass"), ("f1", "micro")]
)
def test_multiclass(metric, average):
    x, y = blobs(400, 3, shares=[0.7, 0.2, 0.1])
    module = linear(3)
    ensemble = quick(module, [(x, y)], metric, average=average)
    offsets, score = best_offsets(
        np.eye(3)[y.numpy()], module(x).detach().numpy(), anyloss.metric(metric),
        average="macro" if average == "auto" else average, multiclass=True, weight=np.ones(400),
    )  # fmt: skip
    np.testing.assert_allclose(ensemble.threshold_, offsets, rtol=1e-6)
    assert ensemble.start_score == pytest.approx(score)
    decided = np.eye(3)[ensemble.predict(x).numpy()]
    reached = anyloss.score(y.numpy(), decided, metric, average=average)
    assert ensemble.end_score == pytest.approx(reached)
    if (metric, average) == ("f1", "auto"):
        macro = partial(f1_score, y, average="macro")
        assert reached == pytest.approx(macro(ensemble.predict(x)))
        assert reached > macro(module(x).argmax(1)) + 0.02


def test_multilabel():
    x, y = several()
    module = linear(3)
    ensemble = quick(module, [(x, y)])
    logits = module(x).detach().numpy()
    for k in range(3):
        best = anyloss.best_threshold(y[:, k].numpy(), logits[:, k], "f1")
        assert ensemble.threshold_[k].item() == pytest.approx(best.threshold, rel=1e-5)
    assert ensemble.predict(x).shape == (300, 3)
    reached = f1_score(y, ensemble.predict(x), average="macro")
    assert ensemble.end_score == pytest.approx(reached)
    assert reached > f1_score(y, module(x).detach() > 0, average="macro") + 0.02


def two_columns(module):
    """The same model with one logit per class, that of class 0 always 0."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.column = deepcopy(module)

        def forward(self, x):
            z = self.column(x)
            return torch.cat([torch.zeros_like(z), z], dim=1)

    return Two()


@pytest.mark.parametrize("average", ["auto", "binary", "macro", "micro", "weighted"])
def test_one_column_and_two_classes_are_the_same(average):
    x, y = rare()
    module = linear()
    two = quick(two_columns(module), [(x, y.long())], average=average)
    one = quick(module, [(x, y)], average=average)
    assert one.history == pytest.approx(two.history, abs=1e-5)
    assert one.start_score == pytest.approx(two.start_score)
    assert one.end_score == pytest.approx(two.end_score)
    assert one.threshold_.item() == pytest.approx(torch.diff(two.threshold_).item(), rel=1e-4)
    assert (one.predict(x) == two.predict(x)).float().mean() > 0.99


def test_the_threshold_of_one_column_is_best_for_its_macro_average():
    x, y = rare(80)
    z = x[:, 0] - 1
    ensemble = refine(Given(), [(z, y)], average="macro", start=False, refine_epochs=0)
    cuts = np.unique(z.numpy())
    best = max(f1_score(y.numpy(), z.numpy() > cut, average="macro") for cut in cuts)
    assert ensemble.start_score == ensemble.end_score == pytest.approx(best)
    assert f1_score(y.numpy(), ensemble.predict(z).numpy(), average="macro") == pytest.approx(best)


@pytest.mark.parametrize("kind", ["binary", "multiclass", "multilabel"])
def test_weight_two_is_the_row_twice_and_weight_zero_no_row(kind):
    make = {"binary": rare, "multiclass": partial(blobs, classes=3), "multilabel": several}[kind]
    x, y = make(200)
    module = linear(1 if kind == "binary" else 3)
    weight = torch.tensor([0.0, 1.0, 2.0, 1.0]).repeat(50)
    often = weight.long()
    weighted = quick(deepcopy(module), [(x, y, weight)])
    repeated = quick(module, [(x.repeat_interleave(often, 0), y.repeat_interleave(often, 0))])
    assert_same(weighted, repeated)
    assert weighted.start_score == pytest.approx(repeated.start_score)


@pytest.mark.parametrize("kind", ["binary", "multiclass", "multilabel"])
def test_every_class_has_the_same_part_of_the_cross_entropy(kind):
    y = {
        "binary": np.array([[1.0], [0], [0], [0], [0]]),
        "multiclass": np.eye(4)[[0, 0, 0, 1, 2]],
        "multilabel": np.array([[1.0, 0], [0, 1], [1, 1], [0, 1], [0, 0]]),
    }[kind]
    weight = np.array([1.0, 2, 1, 0.5, 3])
    task = new_target(y, "f1", kind, weight=weight)
    negative, positive = _balance(task).numpy()
    if kind == "multiclass":
        rows = (y * positive).sum(axis=1, keepdims=True)
    else:
        rows = np.where(y == 1, positive, negative) / y.shape[1]
    part = (rows * weight[:, None] * y).sum(axis=0) / weight.sum()  # of each class
    present = y.any(axis=0)
    each = 1 / present.sum() if kind == "multiclass" else 0.5 / y.shape[1]
    np.testing.assert_allclose(part[present], each)


def test_the_start_is_plain_cross_entropy_in_place():
    x, y = rare()
    module = linear()
    plain = deepcopy(module)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    for _ in range(3):
        for rows, labels in zip(x.split(150), y.split(150), strict=True):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(plain(rows)[:, 0], labels).backward()
            optimizer.step()
    batches = list(zip(x.split(150), y.split(150), strict=True))
    ensemble = refine(module, batches, optimizer=lambda p: torch.optim.SGD(p, lr=0.5), epochs=3)
    for mine, yours in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, yours)
    assert torch.equal(ensemble.started.weight, module.weight)
    assert ensemble.started is not module


def test_the_class_shares_are_those_of_all_batches_and_the_history_is_the_soft_score():
    x, y = rare()
    module = linear()
    before = deepcopy(module.state_dict())
    batches = list(zip(x.split(200), y.split(200), strict=True))
    told = []
    ensemble = refine(
        module, batches, "f1", start=False, refine_epochs=1, scale=7.0, cross_entropy=0.3,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.5), on_epoch=lambda *news: told.append(news),
    )  # fmt: skip
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    hand, scores = deepcopy(module), []
    loss, positives = AnyLoss("f1", step=Amplified(7.0)), y.sum()
    each = torch.where(y == 1, 200 / positives, 200 / (400 - positives))
    optimizer = torch.optim.SGD(hand.parameters(), lr=0.5)
    for rows, labels, share in zip(x.split(200), y.split(200), each.split(200), strict=True):
        optimizer.zero_grad()
        z = hand(rows)[:, 0] - ensemble.threshold_
        scores.append(loss.soft_score(z, labels).item())
        entropy = F.binary_cross_entropy_with_logits(z, labels, share)
        (loss(z, labels) + 0.3 * entropy).backward()
        optimizer.step()
    torch.testing.assert_close(ensemble.refined.weight, hand.weight)
    torch.testing.assert_close(ensemble.refined.bias, hand.bias)
    assert ensemble.history == pytest.approx([np.mean(scores)])
    assert told == [("metric", 1, ensemble.history[0])]


def test_on_epoch_is_told_both_stages():
    x, y = rare()
    told = []
    ensemble = quick(linear(), [(x, y)], epochs=2, on_epoch=lambda *news: told.append(news))
    assert [news[:2] for news in told] == [
        ("cross-entropy", 1), ("cross-entropy", 2), *(("metric", k) for k in (1, 2, 3, 4)),
    ]  # fmt: skip
    start = F.binary_cross_entropy_with_logits(linear()(x)[:, 0], y).item()
    assert told[0][2] == pytest.approx(start)
    assert told[1][2] < start
    assert [news[2] for news in told[2:]] == ensemble.history
    assert ensemble.history[-1] > ensemble.history[0]


class Named(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, left, right):
        return self.inner(torch.cat([left, right], dim=1))


def test_inputs_of_several_tensors():
    x, y = rare()
    left, right = x[:, :2], x[:, 2:]
    plain = quick(linear(), [(x, y)])
    for many in ((left, right), [left, right], {"right": right, "left": left}):
        ensemble = quick(Named(linear()), [(many, y)])
        assert_same(ensemble, plain)
        assert torch.equal(ensemble.predict(many), plain.predict(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.uint8])
def test_one_column_comes_in_any_of_its_shapes(dtype):
    x, y = rare()
    expected = quick(linear(), [(x, y)])
    for labels in (y, y[:, None]):
        for module in (linear(), nn.Sequential(linear(), nn.Flatten(0))):
            assert_same(quick(module, [(x, labels.to(dtype))]), expected)


def test_a_last_batch_of_one_row_is_matched():
    class Squeezed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = linear()

        def forward(self, x):
            return self.inner(x).squeeze()

    x, y = rare(201)
    batches = list(zip(x.split(100), y.split(100), strict=True))
    assert_same(quick(Squeezed(), batches), quick(linear(), batches))


def test_small_and_large_types_of_floats():
    x, y = rare()
    for dtype, found in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        ensemble = quick(linear().to(dtype), [(x.to(dtype), y)])
        assert ensemble.threshold_.dtype == ensemble(x.to(dtype)).dtype == found
        expected = f1_score(y.numpy(), ensemble.predict(x.to(dtype)).numpy())
        assert ensemble.end_score == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_state_dict_round_trip(kind):
    x, y = rare() if kind == "binary" else blobs(classes=3)
    out = 1 if kind == "binary" else 3
    ensemble = quick(linear(out), [(x, y)])
    file = io.BytesIO()
    torch.save(ensemble.state_dict(), file)
    file.seek(0)
    fresh = ModuleEnsemble(linear(out, 1), linear(out, 2), torch.zeros(out), kind)
    assert not torch.equal(fresh(x), ensemble(x))
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(fresh(x), ensemble(x))
    assert torch.equal(fresh.predict(x), ensemble.predict(x))


def test_modes_are_right_while_working_and_restored_afterwards():
    x, y = rare()
    seen = []

    class Spy(nn.Module):
        def forward(self, x):
            seen.append((self.training, torch.is_grad_enabled()))
            return x

    torch.manual_seed(0)
    module = nn.Sequential(Spy(), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1)).eval()
    module[2].train()
    before = deepcopy(module.state_dict())
    ensemble = quick(module, [(x, y)], epochs=2, refine_epochs=1, start=False)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    assert [part.training for part in module] == [False, False, True, False]
    score, train = (False, False), (True, True)
    assert seen == [score, train, score]
    assert not any(part.training for part in ensemble.modules())
    assert ensemble.refined[1].num_batches_tracked == 1
    ensemble.train()
    ensemble.started.eval()
    assert torch.equal(ensemble.predict(x), ensemble.predict(x))
    assert ensemble.training
    assert ensemble.refined[2].training
    assert not ensemble.started[2].training


def test_the_mode_is_restored_after_an_error():
    x, y = rare()
    module = linear().eval()
    with pytest.raises(ZeroDivisionError):
        quick(module, [(x, y)], on_epoch=lambda *news: 1 / 0)
    assert not module.training


def test_the_optimizer_is_made_twice_from_what_may_be_trained():
    x, y = rare()
    module = nn.Sequential(linear(4), nn.Linear(4, 1))
    module[0].requires_grad_(False)
    frozen, made = module[0].weight.clone(), []

    def optimizer(parameters):
        made.append(parameters)
        return torch.optim.Adam(parameters, lr=0.05)

    ensemble = refine(module, [(x, y)], epochs=2, refine_epochs=2, optimizer=optimizer)
    assert [len(parameters) for parameters in made] == [2, 2]
    assert made[0][0] is module[1].weight
    assert made[1][0] is ensemble.refined[1].weight
    assert torch.equal(ensemble.refined[0].weight, frozen)
    assert not torch.equal(ensemble.refined[1].weight, module[1].weight)


def test_refining_for_no_epochs_is_the_start_with_its_threshold():
    x, y = rare()
    ensemble = quick(linear(), [(x, y)], refine_epochs=0)
    assert ensemble.history == []
    assert ensemble.end_score == ensemble.start_score
    z = ensemble.started(x)[:, 0] - ensemble.threshold_
    assert torch.equal(ensemble.predict(x) == 1, z > 0)
    torch.testing.assert_close(ensemble(x), z)


class Once:
    """Gives its batches in the first pass only."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        found, self.batches = self.batches, []
        return iter(found)


X, Y = rare(40)
THREE = blobs(40, 3)[1]
BAD = [
    ([], {}, ValueError, "no batch in .*DataLoader or a list"),
    ((batch for batch in [(X, Y)]), {}, ValueError, "no batch in <generator.*many times"),
    (Once([(X, Y)]), {}, ValueError, "no batch in .*Once"),
    ([(X, Y)], {"valid": []}, ValueError, "no batch"),
    ([X], {}, TypeError, r"\(x, y\) or \(x, y, weight\); got Tensor"),
    ([(X,)], {}, TypeError, r"\(x, y\) or \(x, y, weight\); got tuple"),
    ([(X * np.nan, Y)], {}, ValueError, "logits must be finite; got NaN or inf: check x"),
    ([(X * np.inf, Y)], {}, ValueError, "logits must be finite"),
    ([(X, Y * 2)], {}, ValueError, r"labels must lie in \[0, 1\].*got 0.0 to 2.0"),
    ([(X, Y * 2 - 1)], {}, ValueError, r"labels must lie in \[0, 1\].*got -1.0"),
    ([(X, Y * 0.5)], {}, ValueError, r"labels must be 0 or 1 .*got \[0.  0.5\]"),
    ([(X, Y * 0)], {}, ValueError, r"labels .* more than one class; got \[0.\]"),
    ([(X, Y, 1 - Y)], {}, ValueError, "labels .* more than one class"),
    (
        [(X, Y)],
        {"valid": [(X, Y * 0 + 1)]},
        ValueError,
        r"labels .* more than one class; got \[1.\]",
    ),
    ([(X, Y[:30])], {}, ValueError, r"shape of the scores, \(40,\); got \(30,\)"),
    ([(X, torch.eye(2)[Y.long()])], {}, ValueError, r"shape of the scores, \(40,\); got \(40, 2\)"),
    ([(X, Y, Y[:, None])], {}, ValueError, r"weights \(n,\); got \(40,\), \(40, 1\)"),
    ([(X, Y, Y - 1)], {}, ValueError, "weights must lie in"),
    ([(X, Y)], {"metric": "f2x"}, ValueError, "f2x"),
    ([(X, Y)], {"average": "mean"}, ValueError, "average must be one of"),
    ([(X, Y)], {"average": None}, ValueError, "training needs one number"),
    ([(X, Y)], {"scale": -1.0}, ValueError, "scale"),
    (
        [(X, Y)],
        {"optimizer": torch.optim.SGD([torch.ones(1)])},
        TypeError,
        "such as torch.optim.SGD",
    ),
    ([(X, Y)], {"epochs": -1}, ValueError, "epochs and refine_epochs must be at least 0; got -1"),
]


@pytest.mark.parametrize(("loader", "options", "error", "message"), BAD)
def test_errors_before_anything_is_trained(loader, options, error, message):
    module = linear()
    with pytest.raises(error, match=message):
        quick(module, loader, **options)
    assert torch.equal(module.weight, linear().weight)


WRONG = [
    (linear(3), X, THREE + 1, ValueError, r"labels must lie in \[0, 2\].*got 1 to 3"),
    (linear(3), X, THREE.float(), TypeError, "must be integers"),
    (linear(3), X, THREE * 0, ValueError, r"more than one class; got \[0\]"),
    (linear(3), X, torch.zeros(40, 3), ValueError, "more than one class"),
    (linear(3), X, torch.zeros(40, 2), ValueError, r"class indices of shape \(40,\)"),
    (linear(3), X[:, None], THREE, ValueError, r"logits \(n,\) or \(n, C\).*got \(40, 1, 3\)"),
    (nn.LSTM(4, 1), X, Y, TypeError, "model.x. must return logits, a float tensor; got tuple"),
]


@pytest.mark.parametrize(("module", "x", "y", "error", "message"), WRONG)
def test_errors_of_several_classes_and_shapes(module, x, y, error, message):
    with pytest.raises(error, match=message):
        quick(module, [(x, y)])


def test_valid_must_be_labelled_like_the_loader():
    with pytest.raises(
        ValueError, match="valid must have the task and classes of loader.*multiclass.*multilabel"
    ):
        quick(linear(3), [(X, THREE)], valid=[(X, torch.eye(3)[THREE])])


def test_a_start_that_diverges_is_an_error():
    with pytest.raises(ValueError, match="finite.*learning rate"):
        quick(linear(), [(X, Y)], optimizer=lambda p: torch.optim.SGD(p, lr=float("inf")))


def test_a_frozen_module_is_refused_and_weights_may_be_arrays():
    x = torch.linspace(-3, 3, 200)[:, None]
    batch = (x, x[:, 0] > 1, np.ones(200))
    with pytest.raises(ValueError, match="no parameter to train"):
        refine(nn.Linear(1, 1).requires_grad_(False), [batch])
    found = refine(nn.Linear(1, 1), [batch], optimizer=torch.optim.Rprop)
    assert found.predict(x[::99]).tolist() == [0, 0, 1]
