"""Constraints in PyTorch: the Lagrangian, its multipliers, and a problem with a known optimum."""

import copy

import numpy as np
import pytest
import torch

from anyloss import metric
from anyloss.steps import Amplified
from anyloss.torch import AnyLoss, F1Loss, accumulate

CONSTRAINTS = ["recall >= 0.9", "fp / (fp + tn) <= 0.2"]


def batch(rows=60, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(rows, generator=generator) < 0.3).to(dtype)
    return torch.randn(rows, generator=generator, dtype=dtype) + y, y


def with_state(loss, *now):
    loss.constraints.state.copy_(torch.tensor([now, [0.0] * len(now)]))
    return loss


def by_hand(z, y, multipliers):
    """The loss in NumPy, from soft counts and the formula of the Lagrangian."""
    p = 1 / (1 + np.exp(-z))
    cells = (p @ y, (1 - p) @ y, p @ (1 - y), (1 - p) @ (1 - y))
    recall, alarms = cells[0] / (cells[0] + cells[1]), cells[2] / (cells[2] + cells[3])
    first, second = multipliers
    total = metric("precision")(*cells) + first * (recall - 0.9) - second * (alarms - 0.2)
    return 1 - total / (1 + first + second)


def test_the_loss_is_the_lagrangian_and_its_gradient_agrees_with_finite_differences():
    z, y = batch()
    loss = with_state(AnyLoss("precision", constraints=CONSTRAINTS), 0.75, 2.5)
    z.requires_grad_()
    value = loss(z, y)
    value.backward()
    x, labels = z.detach().numpy(), y.numpy()
    assert value.item() == pytest.approx(by_hand(x, labels, (0.75, 2.5)), rel=1e-12)
    steps = 1e-6 * np.eye(len(x))
    expected = [
        (by_hand(x + d, labels, (0.75, 2.5)) - by_hand(x - d, labels, (0.75, 2.5))) / 2e-6
        for d in steps
    ]
    np.testing.assert_allclose(z.grad.numpy(), expected, atol=1e-9)


@pytest.mark.parametrize(
    "options", [{}, {"step": Amplified(10.0)}, {"cross_entropy": 0.3}, {"smooth": 1.0}]
)
def test_the_closed_form_agrees_with_the_plain_path(options):
    z, y = batch()
    weight = torch.linspace(0.5, 2.0, len(z), dtype=torch.float64)
    loss = with_state(AnyLoss("f1", constraints=CONSTRAINTS, **options), 0.5, 1.5)
    loss.eval()
    closed = z.clone().requires_grad_()
    loss(closed, y, weight).backward()
    plain = torch.func.grad(lambda x: loss(x, y, weight))(z)
    torch.testing.assert_close(closed.grad, plain, rtol=1e-10, atol=1e-14)
    assert torch.autograd.gradcheck(lambda x: loss(x, y), z.requires_grad_())


def test_the_multipliers_follow_the_hard_decisions():
    z, y = torch.tensor([3.0, -3.0, -3.0, 3.0, -3.0]), torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])
    loss = AnyLoss("precision", constraints=CONSTRAINTS)
    loss(z, y)
    violation = torch.tensor([0.9 - 1 / 3, 0.5 - 0.2])
    torch.testing.assert_close(
        loss.constraints.state, torch.stack([4.3 * violation, 0.3 * violation])
    )
    with torch.no_grad():
        loss(z, y)
    loss.eval()
    loss(z, y)
    torch.testing.assert_close(loss.constraints.state[1], 0.3 * violation)
    loss.train()
    loss(torch.tensor([3.0, -3.0]), torch.tensor([1.0, 0.0]))  # both hold, with room
    assert loss.constraints.state[0].tolist() == [0.0, 0.0]
    assert 0 < loss.constraints.state[1].max() < 0.3 * violation.max()


def test_a_batch_without_a_positive_moves_no_multiplier_of_recall():
    loss = with_state(AnyLoss("precision", constraints="recall >= 0.9"), 0.0)
    loss.constraints.state[1] = 0.5
    loss(torch.zeros(3), torch.zeros(3))
    assert loss.constraints.state.flatten().tolist() == [0.5, 0.5]


def test_the_state_is_saved_and_a_loss_without_constraints_has_none():
    z, y = batch()
    assert list(AnyLoss("f1").state_dict()) == []
    loss, other = (F1Loss(constraints=CONSTRAINTS, memory=0.9) for _ in range(2))
    for seed in range(3):
        loss(*batch(seed=seed))
    other.load_state_dict(loss.state_dict())
    assert other.constraints.state[0].max() > 0
    for each in (loss, other):
        each(z, y)
    assert torch.equal(loss.constraints.state, other.constraints.state)
    assert "recall >= 0.9" in repr(loss)
    assert torch.equal(copy.deepcopy(loss)(z, y), loss(z, y))


def test_memory_counts_the_hard_decisions_of_earlier_batches_too():
    loss = AnyLoss("precision", constraints="recall >= 0.9", memory=0.5)
    y = torch.ones(4)
    loss(torch.tensor([1.0, 1.0, -1.0, -1.0]), y)  # 2 of 4
    before = loss.constraints.state[1].item()
    loss(torch.tensor([1.0, 1.0, 1.0, -1.0]), y)  # with half of the first batch, 4 of 6
    assert loss.constraints.state[1].item() - before == pytest.approx(0.3 * (0.9 - 4 / 6))


@pytest.mark.parametrize("memory", [None, 0.5])
def test_accumulate_equals_the_whole_batch(memory):
    torch.manual_seed(0)
    x, y = torch.randn(50, 4, dtype=torch.float64), batch(50)[1][:, None]
    whole, parts = (AnyLoss("precision", constraints=CONSTRAINTS, memory=memory) for _ in range(2))
    first = torch.nn.Linear(4, 1).double()
    second = copy.deepcopy(first)
    for _ in range(3):
        value = whole(first(x), y)
        value.backward()
        pieces = list(zip(x.split(20), y.split(20), strict=True))
        assert accumulate(parts, second, pieces).item() == pytest.approx(value.item(), rel=1e-12)
        torch.testing.assert_close(first.weight.grad, second.weight.grad)
        torch.testing.assert_close(whole.constraints.state, parts.constraints.state)
    assert whole.constraints.state.max() > 0


def test_a_compiled_loss_moves_its_multipliers():
    z, y = batch(dtype=torch.float32)
    loss, other = (AnyLoss("precision", constraints=CONSTRAINTS) for _ in range(2))
    compiled = torch.compile(other, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(z.requires_grad_(), y), loss(z, y))
    torch.testing.assert_close(other.constraints.state, loss.constraints.state)


def train(loss, x, y, steps=400, lr=0.05):
    model = torch.nn.Linear(x.shape[1], 1)
    torch.manual_seed(0)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        return model(x) > 0


@pytest.mark.parametrize("target", [0.8, 0.9, 0.95])
def test_the_known_optimum_of_one_score(target):
    """Precision falls as the threshold is lowered, so it is best where recall is just enough."""
    generator = torch.Generator().manual_seed(1)
    y = (torch.arange(4000) % 4 == 0).float()[:, None]
    x = torch.randn(4000, 1, generator=generator) + 1.5 * y
    decisions = train(AnyLoss("precision", constraints=f"recall >= {target}"), x, y)
    recall = decisions[y > 0].float().mean().item()
    assert recall == pytest.approx(target, abs=0.015)
    free = train(AnyLoss("precision"), x, y)
    assert free[y > 0].float().mean().item() < target - 0.2  # without it, recall is far from it


def test_a_constraint_that_cannot_hold_leaves_the_loss_finite():
    z, y = batch()
    loss = AnyLoss("precision", constraints=["recall >= 0.9", "specificity >= 2"])
    z.requires_grad_()
    for _ in range(2000):
        value = loss(z, y)
    value.backward()
    assert 0 < value.item() < 3
    assert torch.isfinite(z.grad).all()
    assert torch.isfinite(loss.constraints.state).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thresholds": [0.3, 0.5]}, "thresholds of 2 numbers"),
        ({"per_sample": True}, "per_sample=True"),
        ({"average": "macro"}, "average='macro'"),
        ({"form": "log"}, "form='log'"),
        ({"constraints": "recall > 0.9"}, "got '>'"),
        ({"constraints": "foo >= 0.9"}, "foo"),
        ({"constraints": []}, "at least one"),
    ],
)
def test_options_that_have_no_constraints_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AnyLoss("precision", **{"constraints": "recall >= 0.9"} | options)


def test_several_classes_are_refused():
    loss = AnyLoss("precision", constraints="recall >= 0.9")
    with pytest.raises(ValueError, match=r"constraints are for two classes; got 3 columns"):
        loss(torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2]))
    two = loss(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([1, 0]))
    assert torch.isfinite(two)
