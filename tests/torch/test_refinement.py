"""The recipe for a user's own PyTorch module: every step recomputed by hand."""

import io
import warnings
from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, jaccard_score
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import anyloss
from anyloss._core.shapes import Layout
from anyloss.decisions.search import best_decision, best_offsets
from anyloss.recipe.target import new_target
from anyloss.steps import Amplified
from anyloss.torch import AnyLoss, judge
from anyloss.torch.recipe import Refinement
from anyloss.torch.refined import RefinedModule
from anyloss.torch.refinement import refine

torch.set_num_threads(1)
quick = partial(refine, start_epochs=8, epochs=4, optimizer=partial(torch.optim.Adam, lr=0.05))


@pytest.fixture(autouse=True)
def best_thresholds(request, monkeypatch):
    """The best thresholds of all rows, which other libraries can confirm, without resampling."""
    if "resampled" not in request.node.name:
        monkeypatch.setattr(judge, "RESAMPLES", 0)


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


def values(refined):
    return [epoch.value for epoch in refined.history]


def assert_same(one, other):
    assert values(one) == pytest.approx(values(other), abs=1e-5)
    assert one.end_score == pytest.approx(other.end_score)
    for mine, yours in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, yours, atol=1e-4, rtol=1e-4)


def f1_of_plain_and_of_refined(seed):
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
    refined = refine(module, loader, valid=[valid], start_epochs=15, epochs=8, optimizer=adam)
    assert refined.end_score == pytest.approx(f1_score(valid[1], refined.predict(valid[0])))
    predicted = plain(x_test)[:, 0].detach() > 0
    return f1_score(y_test, predicted), f1_score(y_test, refined.predict(x_test))


@pytest.mark.slow("trains networks")
def test_refining_beats_plain_cross_entropy_on_rows_it_did_not_see():
    plain, ours = np.array([f1_of_plain_and_of_refined(seed) for seed in range(6)]).T
    assert (ours > plain).sum() >= 5
    assert (ours - plain).mean() > 0.02


def test_an_ensemble_is_the_logit_of_the_mean_probability():
    x, y = rare()
    refined = quick(linear(), [(x, y)], ensemble=True)
    a, b = (member(x)[:, 0].detach() for member in refined.members)
    assert not torch.equal(a, b)
    mean = (torch.sigmoid(a) + torch.sigmoid(b)) / 2
    assert refined(x).shape == (400,)
    torch.testing.assert_close(torch.sigmoid(refined(x) + refined.threshold_), mean)
    best = anyloss.best_threshold(y.numpy(), torch.logit(mean.double()).numpy(), "f1")
    assert refined.end_score == pytest.approx(best.score)
    assert f1_score(y, refined.predict(x)) == pytest.approx(best.score)


def trained(model, x, y, epochs=60):
    """The model after cross-entropy."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(epochs):
        z = model(x)
        optimizer.zero_grad()
        loss = F.cross_entropy(z, y) if z.shape[1] > 1 else None
        (F.binary_cross_entropy_with_logits(z[:, 0], y) if loss is None else loss).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_validation_rows_guard_against_a_refinement_that_hurts(classes, ensemble):
    x, y = rare() if classes == 2 else blobs(classes=3)
    valid = rare(seed=1) if classes == 2 else blobs(classes=3, seed=1)
    model = trained(linear(1 if classes == 2 else 3), x, y)
    before = deepcopy(model.state_dict())
    wrong = partial(torch.optim.SGD, lr=1000.0, maximize=True)  # raises the loss
    found = refine(model, [(x, y)], valid=[valid], optimizer=wrong, ensemble=ensemble)
    assert found.share == 0.0
    assert found.end_score == found.start_score
    assert len(found.members) == 1
    assert found.members[0] is model
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    z = model(valid[0]).detach().squeeze(1) - found.threshold_
    expected = (z > 0).long() if classes == 2 else z.argmax(1)
    assert torch.equal(found.predict(valid[0]), expected)


def test_without_validation_rows_the_mean_is_used_unless_the_start_is_better():
    x, y = rare()
    assert quick(linear(), [(x, y)]).share == 0.5
    wrong = partial(torch.optim.SGD, lr=1000.0, maximize=True)
    assert refine(trained(linear(), x, y), [(x, y)], optimizer=wrong).share == 0.0


def test_a_refinement_that_helps_is_used_and_can_be_saved():
    x, y = rare(2000)
    valid = rare(2000, seed=1)
    model = trained(linear(), x, y, epochs=1)  # a start far from its optimum
    adam = partial(torch.optim.Adam, lr=0.05)
    found = refine(model, [(x, y)], valid=[valid], epochs=60, optimizer=adam)
    assert found.share == 1.0
    expected = f1_score(valid[1].numpy(), found.predict(valid[0]).numpy())
    assert found.end_score == pytest.approx(expected)
    assert found.end_score > found.start_score
    torch.testing.assert_close(found(valid[0]), model(valid[0])[:, 0] - found.threshold_)
    file = io.BytesIO()
    torch.save(found.state_dict(), file)
    file.seek(0)
    fresh = RefinedModule([linear()], torch.zeros(1), "binary")
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(fresh.predict(valid[0]), found.predict(valid[0]))


class Member(nn.Module):
    def __init__(self, column):
        super().__init__()
        self.column = column

    def forward(self, x):
        return x[:, self.column]


def test_forward_is_finite_and_keeps_the_sign_at_the_extremes():
    pair = RefinedModule([Member(0), Member(1)], torch.zeros(1), "binary")
    pairs = [[1e4, 1e4], [-1e4, -1e4], [1e4, -1e4], [1e-12, 0.0], [-1e-12, 0.0], [90.0, -50.0],
             [3e38, 3e38], [0.0, 0.0], [1e-9, 1e-9]]  # fmt: skip
    x = torch.tensor(pairs, requires_grad=True)
    z = pair(x)
    assert z.isfinite().all()
    assert z.sign().tolist() == [1, -1, 0, 1, -1, 1, 1, 0, 1]
    assert z[0].item() == pytest.approx(1e4)
    z.sum().backward()
    assert x.grad.isfinite().all()


def test_a_multiclass_ensemble_is_the_log_of_the_mean_probability():
    x, y = blobs(classes=3, shares=[0.7, 0.2, 0.1])
    refined = quick(linear(3), [(x, y)], ensemble=True, epochs=20)
    assert refined.share == 0.5
    mean = sum(member(x).detach().softmax(1) for member in refined.members) / 2
    torch.testing.assert_close((refined(x) + refined.threshold_).exp(), mean)
    expected = (mean.log() - refined.threshold_).argmax(1)
    assert torch.equal(refined.predict(x), expected)
    far = RefinedModule([nn.Identity(), nn.Identity()], torch.zeros(3), "multiclass")
    assert far(torch.tensor([[1e4, -1e4, 0.0]])).isfinite().all()


def test_the_thresholds_are_the_best_ones_for_the_logits_of_valid():
    x, y = rare()
    x_valid, y_valid = rare(seed=5)
    module = trained(linear(), x, y)
    best = partial(anyloss.best_threshold, y_valid.numpy(), metric="mcc")
    start = best(y_score=module(x_valid)[:, 0].detach().numpy())
    refined = quick(module, [(x, y)], "mcc", start_epochs=0, valid=[(x_valid, y_valid)])
    end = best(y_score=module(x_valid)[:, 0].detach().numpy())
    assert refined.start_score == pytest.approx(start.score)
    assert refined.end_score == pytest.approx(end.score)
    assert refined.threshold_.tolist() == [end.threshold]
    decided = (refined(x_valid) > 0).double().numpy()
    assert refined.end_score == pytest.approx(anyloss.score(y_valid.numpy(), decided, "mcc"))


def test_without_valid_the_training_rows_give_the_threshold():
    x, y = rare()
    module = linear()
    refined = quick(module, list(zip(x.split(100), y.split(100), strict=True)))
    best = anyloss.best_threshold(y.numpy(), module(x)[:, 0].detach().numpy(), "f1")
    assert refined.threshold_.item() == best.threshold
    assert refined.end_score == pytest.approx(best.score)
    assert refined.scored_on == "training rows"


def test_a_shuffled_loader_gives_the_scores_of_its_rows():
    x, y = rare()
    loader = DataLoader(TensorDataset(x, y), batch_size=100, shuffle=True)
    for ensemble in (False, True):
        refined = quick(linear(), loader, ensemble=ensemble)
        assert refined.end_score == pytest.approx(f1_score(y, refined.predict(x)))


@pytest.mark.parametrize(
    ("metric", "average"), [("f1", "auto"), ("mcc", "multiclass"), ("f1", "micro")]
)
def test_multiclass(metric, average):
    x, y = blobs(400, 3, shares=[0.7, 0.2, 0.1])
    module = linear(3)
    refined = quick(module, [(x, y)], metric, average=average)
    lay = Layout("multiclass", "macro" if average == "auto" else average, 3)
    logits = module(x).detach().numpy()
    offsets, score = best_offsets(
        np.eye(3)[y.numpy()], logits, anyloss.metric(metric), lay, weight=np.ones(400)
    )
    np.testing.assert_allclose(refined.threshold_, offsets, rtol=1e-6)
    assert refined.end_score == pytest.approx(score)
    decided = np.eye(3)[refined.predict(x).numpy()]
    reached = anyloss.score(y.numpy(), decided, metric, average=average)
    assert refined.end_score == pytest.approx(reached)
    if (metric, average) == ("f1", "auto"):
        macro = partial(f1_score, y, average="macro")
        assert reached == pytest.approx(macro(refined.predict(x)))


def test_multilabel():
    x, y = several()
    module = linear(3)
    refined = quick(module, [(x, y)])
    logits = module(x).detach().double().numpy()
    shared = best_decision(
        y.numpy(), logits, anyloss.metric("f1"), Layout("multilabel", "macro", 3),
        weight=np.ones(300), sharing="shared", probabilities=False,
    ).decision.thresholds  # fmt: skip
    for k, positives in enumerate(y.sum(0).tolist()):
        own = anyloss.best_threshold(y[:, k].numpy(), logits[:, k], "f1").threshold
        expected = (positives * own + 10 * shared[k]) / (positives + 10)
        assert refined.threshold_[k].item() == pytest.approx(expected, rel=1e-4)
    assert refined.predict(x).shape == (300, 3)
    reached = f1_score(y, refined.predict(x), average="macro")
    assert refined.end_score == pytest.approx(reached)


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
    assert values(one) == pytest.approx(values(two), abs=1e-5)
    assert one.start_score == pytest.approx(two.start_score)
    assert one.end_score == pytest.approx(two.end_score)
    assert one.threshold_.item() == pytest.approx(torch.diff(two.threshold_).item(), rel=1e-4)
    assert (one.predict(x) == two.predict(x)).float().mean() > 0.99


def test_the_threshold_of_one_column_is_best_for_its_macro_average():
    x, y = rare(80)
    z = x[:, 0] - 1
    refined = refine(Given(), [(z, y)], average="macro", epochs=0)
    cuts = np.unique(z.numpy())
    best = max(f1_score(y.numpy(), z.numpy() > cut, average="macro") for cut in cuts)
    assert refined.start_score == refined.end_score == pytest.approx(best)
    assert f1_score(y.numpy(), refined.predict(z).numpy(), average="macro") == pytest.approx(best)


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
def test_equal_logits_are_best_for_the_adjusted_cross_entropy_of_rows_that_tell_nothing(kind):
    y = {
        "binary": torch.tensor([1.0, 0, 0, 0, 0]),
        "multiclass": torch.tensor([0, 0, 0, 1, 2]),
        "multilabel": torch.tensor([[1.0, 0], [0, 1], [1, 1], [0, 1], [0, 0]]),
    }[kind]
    weight, columns = torch.tensor([1.0, 2, 1, 0.5, 3]), {"binary": 1, "multilabel": 2}.get(kind, 3)
    batch = (torch.zeros(5, 4), y, weight)
    core = Refinement(linear(columns), [batch], None, AnyLoss("f1"))
    z = torch.zeros(5, columns, requires_grad=True)
    read = core.labels.read(batch)
    entropy = core.start_loss(True, z.squeeze(1), *read)[0]
    w = weight / weight.sum()
    if kind == "multiclass":
        shares = torch.stack([w[y == k].sum() for k in range(3)])
        expected = -(shares * shares.log()).sum()
    else:
        shares = (w[:, None] * y.reshape(5, -1)).sum(0)
        each = -(shares * shares.log() + (1 - shares) * (1 - shares).log())
        expected = each.sum() / len(each)
    assert entropy.item() == pytest.approx(expected.item())
    (slope,) = torch.autograd.grad(entropy, z)
    torch.testing.assert_close(slope.sum(0), torch.zeros(columns), atol=1e-7, rtol=0)


def test_an_absent_class_counts_as_the_rarest_one_and_a_constant_label_as_even():
    y = torch.tensor([0, 0, 0, 1])
    core = Refinement(linear(3), [(torch.zeros(4, 4), y)], None, AnyLoss("f1"))
    torch.testing.assert_close(core.log_shares.exp(), torch.tensor([3.0, 1, 1]).double() / 4)
    y = torch.tensor([[1.0, 1, 0], [1, 0, 0], [1, 0, 0]])
    core = Refinement(linear(3), [(torch.zeros(3, 4), y)], None, AnyLoss("f1"))
    torch.testing.assert_close(core.log_shares.exp(), torch.tensor([1, 0.5, 1]).double())


@pytest.mark.parametrize("start", ["cross-entropy", "logit-adjusted"])
def test_the_start_is_cross_entropy_in_place(start):
    x, y = rare()
    module = linear()
    plain = deepcopy(module)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    shift = torch.log(y.sum() / (400 - y.sum())) if start == "logit-adjusted" else 0.0
    for _ in range(3):
        for rows, labels in zip(x.split(150), y.split(150), strict=True):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(plain(rows)[:, 0] + shift, labels).backward()
            optimizer.step()
    batches = list(zip(x.split(150), y.split(150), strict=True))
    sgd = partial(torch.optim.SGD, lr=0.5)
    refined = refine(module, batches, optimizer=sgd, start=start, start_epochs=3, epochs=0)
    assert refined.members[0] is module
    for mine, yours in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, yours)


def test_the_class_shares_are_those_of_all_batches_and_the_history_is_the_soft_score():
    x, y = rare()
    module = trained(linear(), x, y)
    hand, scores, received = deepcopy(module), [], []
    at = anyloss.best_threshold(y.numpy(), module(x)[:, 0].detach().numpy(), "f1").threshold
    batches = list(zip(x.split(200), y.split(200), strict=True))
    refined = refine(
        module, batches, "f1", epochs=1, step=Amplified(7.0), cross_entropy=0.3, ensemble=True,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.05), on_epoch=received.append,
    )  # fmt: skip
    loss, positives = AnyLoss("f1", step=Amplified(7.0), memory=0.5), y.sum()
    shift = torch.log(positives / (400 - positives))
    optimizer = torch.optim.SGD(hand.parameters(), lr=0.05)
    for rows, labels in zip(x.split(200), y.split(200), strict=True):
        optimizer.zero_grad()
        z = hand(rows)[:, 0]
        missing = loss(
            z - at, labels
        )  # of the counts so far, half of them kept in each of two batches
        scores.append(1 - missing.item())
        entropy = F.binary_cross_entropy_with_logits(z + shift, labels)
        (missing + 0.3 * entropy).backward()
        optimizer.step()
    assert refined.share == 0.5
    torch.testing.assert_close(refined.members[1].weight, hand.weight)
    torch.testing.assert_close(refined.members[1].bias, hand.bias)
    assert values(refined) == pytest.approx([np.mean(scores)])
    assert received == refined.history
    assert received[0][:2] == ("metric", 1)


def test_on_epoch_receives_both_stages():
    x, y = rare()
    received = []
    model, valid, starts = linear(), rare(seed=1), []

    def on_epoch(epoch):
        received.append(epoch)
        starts.append(model(valid[0])[:, 0].detach())

    refined = quick(
        model, [(x, y)], start="cross-entropy", start_epochs=2, valid=[valid], on_epoch=on_epoch
    )
    assert [each[:2] for each in received] == [
        ("cross-entropy", 1), ("cross-entropy", 2), *(("metric", k) for k in (1, 2, 3, 4)),
    ]  # fmt: skip
    start = F.binary_cross_entropy_with_logits(linear()(x)[:, 0], y).item()
    assert received[0].value == pytest.approx(start)
    assert received[1].value < start
    assert received == refined.history
    assert received[-1].value > received[2].value
    assert np.isnan(received[0].score)
    at = anyloss.best_threshold(valid[1].numpy(), starts[1].numpy(), "f1").threshold
    scores = [f1_score(valid[1], z > at) for z in starts[2:]]  # at the threshold of the start
    assert [each.score for each in received[2:]] == pytest.approx(scores)


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
        refined = quick(Named(linear()), [(many, y)])
        assert_same(refined, plain)
        assert torch.equal(refined.predict(many), plain.predict(x))


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
        refined = quick(linear().to(dtype), [(x.to(dtype), y)])
        assert refined.threshold_.dtype == refined(x.to(dtype)).dtype == found
        expected = f1_score(y.numpy(), refined.predict(x.to(dtype)).numpy())
        assert refined.end_score == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_state_dict_round_trip(kind):
    x, y = rare() if kind == "binary" else blobs(classes=3)
    out = 1 if kind == "binary" else 3
    refined = quick(linear(out), [(x, y)], ensemble=True, epochs=20)
    file = io.BytesIO()
    torch.save(refined.state_dict(), file)
    file.seek(0)
    fresh = RefinedModule([linear(out, 1), linear(out, 2)], torch.zeros(out), kind)
    assert not torch.equal(fresh(x), refined(x))
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(fresh(x), refined(x))
    assert torch.equal(fresh.predict(x), refined.predict(x))


def test_modes_are_right_while_working_and_restored_afterwards():
    x, y = rare()
    seen = []

    class Spy(nn.Module):
        def forward(self, x):
            seen.append((self.training, torch.is_grad_enabled()))
            return x

    torch.manual_seed(0)
    module = nn.Sequential(Spy(), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1)).eval()
    trained(module, x, y)
    seen.clear()
    module[2].train()
    modes = [part.training for part in module]

    def check(epoch):
        assert [part.training for part in module] == modes

    refined = refine(module, [(x, y)], epochs=1, on_epoch=check)
    score, train = (False, False), (True, True)
    # The first batch for its shapes, the start, an epoch, the statistics, the mean.
    assert seen == [score, score, train, score, score]
    assert not any(part.training for part in refined.modules())
    refined.train()
    refined.members[0][2].eval()
    assert torch.equal(refined.predict(x), refined.predict(x))
    assert refined.training
    assert refined.members[0][1].training
    assert not refined.members[0][2].training


def test_the_statistics_of_batch_norms_are_those_of_the_mean_weights():
    x, y = rare()
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1))
    batches = list(zip(x.split(200), y.split(200), strict=True))
    refined = quick(module, batches)
    assert refined.share == 0.5
    hidden = [module[0](rows).detach() for rows in x.split(200)]
    mean = sum(each.mean(0) for each in hidden) / 2
    variance = sum(each.var(0) for each in hidden) / 2
    torch.testing.assert_close(module[1].running_mean, mean)
    torch.testing.assert_close(module[1].running_var, variance)
    assert module[1].momentum == 0.1


def test_the_mode_is_restored_after_an_error():
    x, y = rare()
    module = linear().eval()
    with pytest.raises(ZeroDivisionError):
        quick(module, [(x, y)], on_epoch=lambda epoch: 1 / 0)
    assert not module.training


def test_the_optimizer_is_made_twice_from_what_may_be_trained():
    x, y = rare()
    module = nn.Sequential(linear(4), nn.Linear(4, 1))
    module[0].requires_grad_(False)
    frozen, made = module[0].weight.clone(), []

    def optimizer(parameters):
        made.append(parameters)
        return torch.optim.Adam(parameters, lr=0.05)

    refine(module, [(x, y)], start_epochs=9, epochs=2, optimizer=optimizer)
    assert [len(parameters) for parameters in made] == [2, 2]
    assert made[0][0] is made[1][0] is module[1].weight
    assert torch.equal(module[0].weight, frozen)


def test_refining_for_no_epochs_is_the_start_with_its_threshold():
    x, y = rare()
    module = trained(linear(), x, y)
    refined = refine(module, [(x, y)], epochs=0)
    assert refined.history == []
    assert refined.share == 0.0
    assert refined.end_score == refined.start_score
    torch.testing.assert_close(refined(x), module(x)[:, 0] - refined.threshold_)


def test_an_untrained_start_is_a_warning():
    x, y = rare()
    backwards = trained(linear(), x, 1 - y)
    with pytest.warns(UserWarning, match="no better than a constant .* start_epochs=20"):
        refine(backwards, [(x, y)], epochs=0)


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_instead_of_logits_are_a_warning(classes):
    x, y = rare() if classes == 2 else blobs(classes=3)
    module = trained(linear(1 if classes == 2 else 3), x, y)
    end = nn.Sigmoid() if classes == 2 else nn.Softmax(1)
    with pytest.warns(UserWarning, match="looks like probabilities.* Remove the sigmoid"):
        refine(nn.Sequential(module, end), [(x, y)], epochs=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refine(module, [(x, y)], epochs=0)


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
    ([(X, Y * 2)], {}, ValueError, r"labels in the target must lie in \[0, 1\].*got 0.0 to 2.0"),
    ([(X, Y * 2 - 1)], {}, ValueError, r"labels in the target must lie in \[0, 1\].*got -1.0"),
    ([(X, Y * 0.5)], {}, ValueError, r"labels must be 0 or 1.*got 0.0 to 0.5"),
    (
        [(X, Y * 0)],
        {},
        ValueError,
        r"labels .* more than one class; got one class, or .*: \[0.0\] positives",
    ),
    ([(X, Y, 1 - Y)], {}, ValueError, "labels .* more than one class"),
    (
        [(X, Y)],
        {"valid": [(X, Y * 0 + 1)]},
        ValueError,
        r"labels .* more than one class; got one class, or .*: \[40.0\] positives",
    ),
    ([(X, Y[:30])], {}, ValueError, r"shape of the scores, \(40,\); got \(30,\)"),
    ([(X, torch.eye(2)[Y.long()])], {}, ValueError, r"shape of the scores, \(40,\); got \(40, 2\)"),
    ([(X, Y, Y[:, None])], {}, ValueError, r"weight must have shape \(40,\); got \(40, 1\)"),
    ([(X, Y, Y - 1)], {}, ValueError, "weights must lie in"),
    ([(X, Y)], {"metric": "f2x"}, ValueError, "f2x"),
    ([(X, Y)], {"average": "mean"}, ValueError, "average must be one of"),
    ([(X, Y)], {"average": None}, ValueError, "training needs one number"),
    (
        [(X, Y)],
        {"priors": [0.5]},
        ValueError,
        r"2 shares that sum to 1, at least two above 0; got \[0.5\]",
    ),
    (
        [(X, Y)],
        {"optimizer": torch.optim.SGD([torch.ones(1)])},
        TypeError,
        "such as torch.optim.SGD",
    ),
    ([(X, Y)], {"epochs": -1}, ValueError, "epochs must be an integer of at least 0; got -1"),
]


@pytest.mark.parametrize(("loader", "options", "error", "message"), BAD)
def test_errors_before_anything_is_trained(loader, options, error, message):
    module = linear()
    with pytest.raises(error, match=message):
        quick(module, loader, **options)
    assert torch.equal(module.weight, linear().weight)


WRONG = [
    (linear(3), X, THREE + 1, ValueError, r"class indices .* must lie in \[0, 2\]; got 1 to 3"),
    (linear(3), X, THREE.float(), TypeError, "must be integers"),
    (linear(3), X, THREE * 0, ValueError, "more than one class"),
    (linear(3), X, torch.zeros(40, 3), ValueError, "more than one class"),
    (linear(3), X, torch.zeros(40, 2), ValueError, r"class indices of shape \(40,\)"),
    (linear(3), X[:, None], THREE, ValueError, r"shape of the scores, \(40, 1, 3\)"),
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
    found = refine(nn.Linear(1, 1), [batch], start_epochs=20, optimizer=torch.optim.Rprop)
    assert found.predict(x[::99]).tolist() == [0, 0, 1]


@pytest.mark.parametrize("classes", [2, 3])
def test_priors_are_weights_of_the_metric_that_give_the_classes_these_shares(classes):
    x, y = rare() if classes == 2 else blobs(400, 3)
    valid = rare(seed=1) if classes == 2 else blobs(400, 3, seed=1)
    priors = [0.6, 0.4] if classes == 2 else [0.1, 0.2, 0.7]

    def weights(labels):
        seen = np.bincount(labels.long(), minlength=classes) / len(labels)
        return torch.tensor(np.array(priors) / seen)[labels.long()].float()

    out = 1 if classes == 2 else 3
    bare = partial(quick, cross_entropy=0.0, start="cross-entropy")
    by_weight = bare(linear(out), [(x, y, weights(y))], valid=[(*valid, weights(valid[1]))])
    by_priors = bare(linear(out), [(x, y)], valid=[valid], priors=priors)
    assert_same(by_priors, by_weight)
    expected = f1_score(
        valid[1], by_priors.predict(valid[0]), sample_weight=weights(valid[1]),
        average="binary" if classes == 2 else "macro",
    )  # fmt: skip
    assert by_priors.end_score == pytest.approx(expected)
    assert by_priors.end_score != pytest.approx(
        bare(linear(out), [(x, y)], valid=[valid]).end_score
    )


def test_priors_and_weights_multiply():
    x, y = rare()
    half = torch.tensor([1.0, 0.0]).repeat(200)
    both = quick(linear(), [(x, y, half)], priors=[0.5, 0.5])
    assert_same(both, quick(linear(), [(x[::2], y[::2])], priors=[0.5, 0.5]))


PRIORS = [
    (linear(3), THREE, [0.5, 0.5], "3 shares that sum to 1"),
    (linear(3), THREE, [0.5, 0.6, -0.1], "3 shares that sum to 1"),
    (linear(3), THREE, [1, 0, 0], r"at least two above 0; got \[1.0, 0.0, 0.0\]"),
    (linear(3), THREE, "abc", "at least two above 0; got 'abc'"),
    (linear(4), THREE, [0.1, 0.2, 0.3, 0.4], "a class with a prior above 0 must be among the rows"),
    (linear(3), torch.eye(3)[THREE], [0.2, 0.3, 0.5], "exclude each other.*labels per row"),
]


@pytest.mark.parametrize(("module", "y", "priors", "message"), PRIORS)
def test_errors_of_priors(module, y, priors, message):
    with pytest.raises(ValueError, match=message):
        quick(module, [(X, y)], priors=priors)


# Segmentation: a convolution of one pixel is a linear model of its channels.
class Pixels(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, x):
        return self.linear(x.movedim(1, -1)).movedim(-1, 1)


def maps(kind, n=6, size=8, seed=0):
    x, y = rare(n * size * size, seed) if kind == "masks" else blobs(n * size**2, 3, seed)
    return x.reshape(n, size, size, 4).movedim(-1, 1), y.reshape(n, size, size)


@pytest.mark.parametrize("kind", ["masks", "classes"])
def test_maps_are_the_table_of_their_pixels(kind):
    (x, y), (x_valid, y_valid) = maps(kind), maps(kind, seed=1)
    out = 1 if kind == "masks" else 3

    def table(images, labels):
        return images.movedim(1, -1).reshape(-1, 4), labels.flatten()

    pixels = quick(Pixels(linear(out)), [(x, y)], "iou", valid=[(x_valid, y_valid)])
    rows = quick(linear(out), [table(x, y)], "iou", valid=[table(x_valid, y_valid)])
    assert_same(pixels, rows)
    found = pixels.predict(x_valid).flatten()
    assert torch.equal(found, rows.predict(table(x_valid, y_valid)[0]))
    average = "binary" if kind == "masks" else "macro"
    expected = jaccard_score(y_valid.flatten(), found, average=average)
    assert pixels.end_score == pytest.approx(expected)
    if kind == "masks":  # with the channel of the logits as well
        same = quick(
            Pixels(linear()), [(x, y[:, None])], "iou", valid=[(x_valid, y_valid[:, None])]
        )
        assert_same(same, pixels)


@pytest.mark.parametrize("kind", ["masks", "classes"])
@pytest.mark.parametrize("per_sample", [False, True])
def test_ignored_pixels_do_not_count(kind, per_sample):
    (x, y), (x_valid, y_valid) = maps(kind), maps(kind, seed=1)
    out = 1 if kind == "masks" else 3
    found = []
    for junk in (0.0, 1e3):
        for images, labels in ((x, y), (x_valid, y_valid)):
            images[..., :3] = junk
            labels[..., :3] = 255
        model = Pixels(linear(out))
        options = {"ignore_index": 255, "per_sample": per_sample, "valid": [(x_valid, y_valid)]}
        found.append(quick(model, [(x, y)], "iou", **options))
    assert_same(*found)
    cut = quick(
        Pixels(linear(out)), [(x[..., 3:], y[..., 3:])], "iou", per_sample=per_sample,
        valid=[(x_valid[..., 3:], y_valid[..., 3:])],
    )  # fmt: skip
    assert_same(found[0], cut)


def test_priors_are_of_all_pixels():
    x, y = maps("masks")
    with pytest.raises(ValueError, match="counted over all rows; got priors with per_sample"):
        quick(Pixels(linear()), [(x, y)], per_sample=True, priors=[0.5, 0.5])
    refined = quick(Pixels(linear()), [(x, y)], priors=[0.5, 0.5])
    weight = torch.where(y == 1, 0.5 / y.mean(), 0.5 / (1 - y.mean())).flatten()
    decided = refined.predict(x).flatten()
    assert refined.end_score == pytest.approx(f1_score(y.flatten(), decided, sample_weight=weight))


def test_one_hot_labels_and_ignored_labels_are_refused():
    x, y = maps("classes")
    one_hot = F.one_hot(y, 3).movedim(-1, 1)
    with pytest.raises(ValueError, match="must be class indices; got one-hot.*argmax"):
        quick(Pixels(linear(3)), [(x, one_hot)], task="multiclass")
    with pytest.raises(ValueError, match="ignore_index is for classes and masks"):
        quick(Pixels(linear(3)), [(x, one_hot)], task="multilabel", ignore_index=255)
    batches = [(x[:3], y[:3], torch.ones(3)), (x[3:], y[3:], torch.ones(3, 8))]
    with pytest.raises(ValueError, match="weights must have the shape"):
        quick(Pixels(linear(3)), batches)


def test_maps_can_be_scored_one_by_one():
    (x, y), (x_valid, y_valid) = maps("masks"), maps("masks", seed=1)
    model = trained(linear(), x.movedim(1, -1).reshape(-1, 4), y.flatten())
    refined = quick(
        Pixels(model), [(x, y)], "f1", start_epochs=0, valid=[(x_valid, y_valid)], per_sample=True
    )
    decided = refined.predict(x_valid)[:, 0]
    each = [
        f1_score(mask.flatten(), found.flatten())
        for mask, found in zip(y_valid, decided, strict=True)
    ]
    assert refined.end_score == pytest.approx(np.mean(each))
    assert refined.end_score >= refined.start_score


def test_the_threshold_of_single_maps_is_close_to_the_best_of_all():
    x, y = maps("masks", n=20)
    z = x[:, :1] - 1
    refined = refine(Given(), [(z, y)], "f1", epochs=0, per_sample=True)

    def mean_f1(cut):
        pairs = zip(y.flatten(1), z.flatten(1), strict=True)
        return np.mean([f1_score(mask, each > cut) for mask, each in pairs])

    best = max(mean_f1(cut) for cut in np.linspace(-2, 3, 200))
    assert refined.start_score > best - 0.003
    assert refined.start_score == pytest.approx(mean_f1(refined.threshold_.item()))


@pytest.mark.parametrize("kind", ["masks", "classes"])
@pytest.mark.parametrize("per_sample", [False, True])
def test_many_pixels_are_sampled_for_the_thresholds_only(kind, per_sample, monkeypatch):
    (x, y), (x_valid, y_valid) = maps(kind), maps(kind, n=20, size=16, seed=1)
    options = {"valid": [(x_valid, y_valid)], "per_sample": per_sample, "metric": "iou"}
    out = 1 if kind == "masks" else 3
    full = quick(Pixels(linear(out)), [(x, y)], **options)
    monkeypatch.setattr(judge, "TUNED_NUMBERS", 3000)
    part = quick(Pixels(linear(out)), [(x, y)], **options)
    assert not torch.equal(part.threshold_, full.threshold_)
    assert part.end_score == pytest.approx(full.end_score, abs=0.03)
    pairs = zip(y_valid, part.predict(x_valid).reshape(y_valid.shape), strict=True)
    pairs = list(pairs) if per_sample else [(y_valid, part.predict(x_valid))]
    average = "binary" if kind == "masks" else "macro"
    each = [
        jaccard_score(mask.flatten(), found.flatten(), average=average) for mask, found in pairs
    ]
    assert part.end_score == pytest.approx(np.mean(each))


def test_labels_of_maps_need_their_task():
    x, y = maps("masks")
    labels = torch.stack([y, 1 - y], 1)
    with pytest.raises(ValueError, match="two readings.*task='multilabel'"):
        quick(Pixels(linear(2)), [(x, labels)])
    refined = quick(Pixels(linear(2)), [(x, labels)], task="multilabel")
    flat = [each.movedim(1, -1).reshape(-1, 2) for each in (labels, refined.predict(x))]
    assert refined.end_score == pytest.approx(f1_score(*flat, average="macro"))


def test_maps_of_several_sizes():
    x, y = maps("masks")
    pairs = [(x[:3], y[:3]), (x[3:, :, :4], y[3:, :4])]
    refined = quick(Pixels(linear()), pairs)
    found = torch.cat([refined.predict(images).flatten() for images, _ in pairs])
    truth = torch.cat([masks.flatten() for _, masks in pairs])
    assert refined.end_score == pytest.approx(f1_score(truth, found))
    with pytest.raises(ValueError, match="all maps must have one size.*ignore_index"):
        quick(Pixels(linear()), pairs, per_sample=True)


def test_the_threshold_of_resampled_rows_is_used():
    x, y = rare()
    refined = quick(linear(), [(x, y)], valid=[(x, y)])
    logits = refined.members[0](x).detach().double().numpy()
    start = quick(linear(), [(x, y)], valid=[(x, y)], epochs=0)
    target = new_target(y.numpy(), "f1", "binary")
    found, trained = target.resampled_offsets(logits), start.threshold_.double().numpy()
    averaged = target.averaged_offsets(start.members[0](x).detach().double().numpy())
    assert trained == pytest.approx(averaged, rel=1e-5)
    assert refined.share == 1.0
    assert refined.threshold_.item() == pytest.approx(found.towards(trained).item(), rel=1e-5)
    assert refined.end_score == pytest.approx(f1_score(y, refined.predict(x)))
    assert refined.end_score >= refined.start_score
