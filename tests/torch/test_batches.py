"""Several batches in one process: accumulation, running counts, the sampler, the warnings."""

import copy
import io
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from anyloss.steps import Amplified, RaisedCosine
from anyloss.torch import AnyLoss, F1Loss, StratifiedBatchSampler, accumulate
from anyloss.torch.batch import Batch


def rows(n=60, seed=0, share=0.3):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return x, (torch.rand(n, 1, generator=generator) < share).double()


def gradient_of(model):
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


def split(*tensors, into=4):
    return list(zip(*(t.tensor_split(into) for t in tensors), strict=True))


def net(*layers):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), *layers, nn.Linear(6, 1)).double()


# --- accumulate --------------------------------------------------------------------------------


def test_dropout_uses_the_same_masks_in_both_passes():
    """The returned loss equals that of a plain pass with the same masks."""
    x, y = rows()
    model, loss = net(nn.Dropout(0.5)), AnyLoss("mcc")
    torch.manual_seed(11)
    value = accumulate(loss, model, split(x, y))
    after = torch.rand(1)
    torch.manual_seed(11)
    outputs = torch.cat([model(part) for part, _ in split(x, y)])  # the same masks, in one graph
    assert torch.rand(1) == after
    found, expected = gradient_of(model), loss(outputs, y)
    model.zero_grad()
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), abs=1e-14)
    torch.testing.assert_close(found, gradient_of(model), rtol=1e-12, atol=1e-14)


def test_the_statistics_of_batch_norm_are_updated_once():
    x, y = rows()
    model = net(nn.BatchNorm1d(6))
    twin = copy.deepcopy(model)
    accumulate(F1Loss(), model, split(x, y))
    for part, _ in split(x, y):
        twin(part)
    for mine, plain in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(mine, plain, rtol=0, atol=0)


def test_the_mean_over_micro_batches_has_another_gradient():
    x, y = rows(n=200, share=0.05)
    gradients = []
    for way in ("whole", "accumulated", "mean"):
        model = net(nn.ReLU())
        if way == "whole":
            F1Loss()(model(x), y).backward()
        elif way == "accumulated":
            accumulate(F1Loss(), model, split(x, y, into=10))
        else:
            for part, target in split(x, y, into=10):
                (F1Loss()(model(part), target) / 10).backward()
        gradients.append(gradient_of(model))
    whole, accumulated, mean = gradients
    torch.testing.assert_close(accumulated, whole, rtol=1e-12, atol=1e-15)
    assert (mean - whole).norm() > 0.05 * whole.norm()


def test_weights_and_another_backward():
    x, y = rows()
    weight = torch.rand(60, dtype=torch.float64)
    model = net()
    accumulate(F1Loss(), model, split(x, y, weight), backward=lambda part: (8 * part).backward())
    found = gradient_of(model)
    model.zero_grad()
    (8 * F1Loss()(model(x), y, weight)).backward()
    torch.testing.assert_close(found, gradient_of(model), rtol=1e-12, atol=1e-14)


def test_accumulation_and_memory_together():
    plain, parted = F1Loss(memory=0.5), F1Loss(memory=0.5)
    for seed in (0, 1):
        x, y = rows(seed=seed)
        one, two = net(), net()
        plain(one(x), y).backward()
        accumulate(parted, two, split(x, y))
        torch.testing.assert_close(gradient_of(two), gradient_of(one), rtol=1e-12, atol=1e-14)


def test_what_accumulate_refuses():
    with pytest.raises(ValueError, match="at least one"):
        accumulate(F1Loss(), net(), [])
    with pytest.raises(ValueError, match="average=None"):
        accumulate(F1Loss(average=None), net(), split(*rows()))


# --- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [None, RaisedCosine(0.4)], ids=repr)
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("closed_form", [True, False])
def test_running_counts_by_hand(step, columns, closed_form, monkeypatch):
    """The loss of a batch is that of all samples so far, with weights that decrease by age."""
    if not closed_form:
        monkeypatch.setattr(Batch, "has_closed_form", lambda batch, step: False)
    keep, losses = 0.7, []
    loss, plain = F1Loss(memory=keep, step=step), F1Loss(step=step)
    generator = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(4):
        z = torch.randn(9, columns, generator=generator, dtype=torch.float64).requires_grad_()
        batches.append((z, torch.randint(0, 2, (9, columns), generator=generator)))
        losses.append(loss(*batches[-1]))
    losses[-1].backward()
    faded = [keep**age for age in (3, 2, 1, 0)]
    z = torch.cat([z.detach() for z, _ in batches]).requires_grad_()
    weight = torch.tensor(faded, dtype=torch.float64).repeat_interleave(9)
    expected = plain(z, torch.cat([y for _, y in batches]), weight)
    expected.backward()
    assert losses[-1].item() == pytest.approx(expected.item(), abs=1e-14)
    torch.testing.assert_close(batches[-1][0].grad, sum(faded) * z.grad[-9:], rtol=1e-12, atol=0)


def test_memory_gives_the_epochs_gradient_on_average():
    """At fixed weights it is much closer to the gradient of all samples than the mean over batches."""
    x, y = rows(n=6400, share=0.01)
    x[:, :1] += 2.5 * y
    model = nn.Linear(4, 1).double()
    model.load_state_dict(
        {"weight": torch.tensor([[2.0, 0.1, 0.1, 0.1]]), "bias": torch.tensor([-4])}
    )
    sharp = {"step": Amplified(10.0)}
    F1Loss(**sharp)(model(x), y).backward()
    whole = gradient_of(model)
    errors = {}
    for memory in (None, 0.98):
        loss = F1Loss(memory=memory, **sharp)
        for _ in range(2 if memory else 1):  # the first pass fills the memory
            model.zero_grad()
            with warnings.catch_warnings(action="ignore", category=UserWarning):
                for part, target in split(x, y, into=100):
                    (loss(model(part), target) / 100).backward()
        errors[memory] = ((gradient_of(model) - whole).norm() / whole.norm()).item()
    assert errors[0.98] < 0.01
    assert errors[None] > 0.5


def test_memory_is_saved_and_does_not_change_without_gradients():
    x, y = rows()
    z = x[:, :1].clone().requires_grad_()
    loss = F1Loss(memory=0.9, thresholds=[0.3, 0.6])
    loss(z, y)
    with torch.no_grad():
        assert loss(z, y) == F1Loss(thresholds=[0.3, 0.6])(z, y)
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    again = F1Loss(memory=0.9, thresholds=[0.3, 0.6])
    again.load_state_dict(torch.load(file))
    assert again(z[:9], y[:9]) == loss(z[:9], y[:9])
    loss.memory.reset()
    assert loss(z[:9], y[:9]) == F1Loss(thresholds=[0.3, 0.6])(z[:9], y[:9])
    assert list(F1Loss().state_dict()) == []


def test_a_second_derivative_remembers_the_batch_once():
    x, y = rows()
    z = x[:, 0].clone().requires_grad_()
    loss = F1Loss(memory=0.5)
    (gradient,) = torch.autograd.grad(loss(z, y[:, 0]), z, create_graph=True)
    gradient.pow(2).sum().backward()
    (kept, batches), *_ = loss.memory._kept.values()
    assert (kept.sum().item(), batches) == (pytest.approx(60), 1.0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_memory_under_compile():
    x, y = rows()
    torch._dynamo.reset()
    loss, plain = F1Loss(memory=0.5), F1Loss(memory=0.5)
    compiled = torch.compile(lambda z, y: loss(z, y), backend="aot_eager", fullgraph=True)
    z = x[:, :1].clone().requires_grad_()
    for _ in range(3):
        found, expected = compiled(z, y), plain(z, y)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_what_memory_refuses():
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        F1Loss(memory=1.0)
    with pytest.raises(ValueError, match="per_sample"):
        F1Loss(memory=0.9, per_sample=True)
    loss = F1Loss(memory=0.9)
    loss(torch.zeros(4, 3), torch.zeros(4, 3))
    with pytest.raises(ValueError, match="counts of shape"):
        loss(torch.zeros(4, 2), torch.zeros(4, 2))


# --- the warning -------------------------------------------------------------------------------


def test_one_warning_when_most_batches_have_no_positive():
    void, good = torch.zeros(8), torch.ones(8)
    loss = F1Loss()
    for _ in range(9):
        loss(void, good)
    for _ in range(10):
        loss(void, void)
    with torch.no_grad():
        loss(void, void)
    with pytest.warns(UserWarning, match="11 of the first 20 batches have no positive") as caught:
        loss(void, void)
    assert caught[0].filename == __file__
    for _ in range(40):
        loss(void, void)  # a second warning would be an error here


def test_no_warning_when_half_have_one_or_with_memory():
    for loss, odd in ((F1Loss(), torch.ones(8)), (F1Loss(memory=0.9), torch.zeros(8))):
        for k in range(40):
            loss(torch.zeros(8), odd if k % 2 else torch.zeros(8))


# --- the sampler -------------------------------------------------------------------------------


LABELS = np.random.default_rng(0).permutation([0] * 700 + [1] * 240 + [2] * 63)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("size", [10, 64])
def test_every_batch_has_the_share_of_every_class(ranks, size):
    samplers = [
        StratifiedBatchSampler(LABELS, size, num_replicas=ranks, rank=rank) for rank in range(ranks)
    ]
    batches = [list(sampler) for sampler in samplers]
    assert sorted(row for own in batches for batch in own for row in batch) == list(range(1003))
    assert {len(own) for own in batches} == {len(samplers[0])}
    sizes = {len(batch) for own in batches for batch in own}
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= size
    for batch in (batch for own in batches for batch in own):
        found = np.bincount(LABELS[batch], minlength=3)
        share = np.bincount(LABELS) / 1003 * len(batch)
        assert (np.abs(found - share) < 1.5).all()


def test_full_batches_on_request():
    sampler = StratifiedBatchSampler(LABELS, 64, drop_last=True)
    assert [len(batch) for batch in sampler] == [64] * 15 == [64] * len(sampler)


def test_epochs_and_seeds():
    first, second = (StratifiedBatchSampler(LABELS, 50, seed=seed) for seed in (1, 1))
    one, two = list(first), list(first)
    assert one != two
    second.set_epoch(1)
    assert list(second) == two
    assert list(StratifiedBatchSampler(LABELS, 50, seed=2)) != one


def test_combinations_of_labels_and_a_loader():
    labels = torch.tensor([[0, 1], [1, 1], [0, 0], [0, 0]]).repeat(25, 1)
    data = torch.utils.data.TensorDataset(labels)
    loader = torch.utils.data.DataLoader(data, batch_sampler=StratifiedBatchSampler(labels, 20))
    for (batch,) in loader:
        assert (batch.sum(0) - torch.tensor([5, 10])).abs().max() <= 1


def test_what_the_sampler_refuses():
    with pytest.raises(ValueError, match="batch_size"):
        StratifiedBatchSampler(LABELS, 0)
    with pytest.raises(ValueError, match="rank must be in 0 to 1"):
        StratifiedBatchSampler(LABELS, 8, num_replicas=2, rank=2)
    with pytest.raises(ValueError, match="2 samples are too few"):
        StratifiedBatchSampler([0, 1], 8, num_replicas=4, rank=0)
