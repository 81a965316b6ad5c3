import numpy as np
import pytest
import torch

from anyloss._core.backend import FLOATS, NUMPY, mirrored_sigmoid, mirrored_softmax
from anyloss._core.cell import Cell
from anyloss.torch.batch import BACKENDS


def test_operators_and_their_derivatives_against_finite_differences():
    def f(x, y):
        return (
            (2 * x - y / 3 + 1) ** 2 / (x * y + 0.5) - (3 - x) * (-y) + 1 / x - (+y) ** 0.5 + x**1.5
        )

    def at(x, y):
        return f(Cell(x), Cell(y)).value

    x, y, h = 1.3, 0.7, 1e-6
    result = f(Cell(x, 1.0, 0.0), Cell(y, 0.0, 1.0))
    assert result.value == pytest.approx(f(x, y), rel=1e-15)
    assert pytest.approx((at(x + h, y) - at(x - h, y)) / (2 * h), rel=1e-8) == result.d_positive
    assert pytest.approx((at(x, y + h) - at(x, y - h)) / (2 * h), rel=1e-8) == result.d_negative


def test_division_by_zero_is_zero_with_derivative_zero():
    for backend, zero, one in ((FLOATS, 0.0, 1.0), (NUMPY, np.zeros(2), np.ones(2))):
        for top in (zero, one):
            result = Cell(top, one, one, backend) / Cell(zero, one, one, backend)
            assert np.all(result.value == 0)
            assert np.all(result.d_positive == 0)
        root = Cell(zero, one, one, backend) ** 0.5
        assert np.all(root.value == 0)
        assert np.all(root.d_positive == 0)


def test_division_by_zero_under_autograd():
    x = torch.zeros(3, requires_grad=True)
    backend = BACKENDS[torch.float32]
    result = (
        Cell(x, backend=backend) / Cell(x, backend=backend)
        + Cell(x, backend=backend) ** 0.5
        + 1 / Cell(x, backend=backend)
    ).value
    (grad,) = torch.autograd.grad(result.sum(), x)
    assert result.tolist() == [0, 0, 0]
    assert grad.tolist() == [0, 0, 0]


def test_whole_exponents_below_one():
    assert (Cell(-2.0, 1.0, 0.0) ** -1).value == -0.5
    assert (Cell(-2.0, 1.0, 0.0) ** -1).d_positive == -0.25
    assert (Cell(-2.0) ** -2).value == 0.25
    assert (Cell(0.0, 1.0, 0.0) ** 0).value == 1.0
    assert (Cell(0.0) ** -1).value == 0.0


def test_a_cell_as_exponent_is_refused():
    with pytest.raises(TypeError, match="exponent"):
        Cell(1.0) ** Cell(2.0)


@pytest.mark.parametrize("z", [-200.0, -40.0, -1.0, 0.0, 1e-9, 3.0, 40.0, 200.0])
def test_autograd_of_the_mirrored_sigmoid_is_exact_far_out(z):
    x = torch.tensor(z, dtype=torch.float64, requires_grad=True)
    p, q = mirrored_sigmoid(x, BACKENDS[torch.float64])
    e = np.exp(-abs(z))
    derivative = e / (1 + e) ** 2
    assert torch.autograd.grad(p, x, retain_graph=True)[0].item() == pytest.approx(
        derivative, rel=1e-12
    )
    assert torch.autograd.grad(q, x)[0].item() == pytest.approx(-derivative, rel=1e-12)


def test_softmax_equals_torch_and_keeps_its_gradient_when_sure():
    z = torch.randn(20, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p, q = mirrored_softmax(z, BACKENDS[torch.float64])
    torch.testing.assert_close(p, torch.softmax(z, -1))
    torch.testing.assert_close(p + q, torch.ones_like(p))
    x = torch.tensor([[0.0, 30.0, 1.0]], requires_grad=True)
    (grad,) = torch.autograd.grad(mirrored_softmax(x, BACKENDS[torch.float32])[0][0, 1], x)
    assert grad[0, 0].item() == pytest.approx(-np.exp(-30), rel=1e-5)
    # all equal: the arg-max is taken once, and every class has its gradient
    x = torch.zeros(1, 4, requires_grad=True)
    (grad,) = torch.autograd.grad(mirrored_softmax(x, BACKENDS[torch.float32])[0][0, 2], x)
    torch.testing.assert_close(grad, torch.tensor([[-1, -1, 3, -1]]) / 16)
