"""AUROC, average precision, WMW and the surrogate F-beta, against references."""

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from torch.autograd import gradcheck

from anyloss.steps import Amplified, Linear, LogitSigmoid
from anyloss.torch import AUROCLoss, AveragePrecisionLoss, SurrogateFBetaLoss, WMWLoss


def data(n=60, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=g) < 0.4).double()
    return (y + torch.randn(n, generator=g, dtype=torch.float64)).requires_grad_(), y


@pytest.mark.parametrize("loss", [AUROCLoss, AveragePrecisionLoss])
def test_confident_scores_in_the_right_order_have_no_loss(loss):
    p, y = torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.tensor([0, 1, 0, 1])
    assert loss(step=Linear(), from_logits=False)(p, y).item() == 0.0
    assert loss(step=Linear(), from_logits=False)(1 - p, y).item() > 0.4


def test_soft_counts_are_not_a_ranking():
    loss = AUROCLoss(from_logits=False)(torch.tensor([0.6, 0.4]), torch.tensor([1, 0]))
    assert loss.item() == pytest.approx(0.34, abs=0.005)


def test_one_class_only_has_no_gradient():
    for label in (0, 1):
        z = torch.randn(20, generator=torch.Generator().manual_seed(0)).requires_grad_()
        loss = AUROCLoss()(z, torch.full((20,), label))
        (grad,) = torch.autograd.grad(loss, z)
        assert loss.item() == 1.0
        assert not grad.any()


def test_sharp_steps_on_a_fine_grid_approach_the_true_areas():
    z, y = data(400)
    p = torch.sigmoid(z.detach())
    grid = np.linspace(0.002, 0.998, 500)
    sharp = {"step": Amplified(600.0), "thresholds": grid, "from_logits": False}
    auroc, precision = sk.roc_auc_score(y, p), sk.average_precision_score(y, p)
    assert 1 - AUROCLoss(**sharp)(p, y).item() == pytest.approx(auroc, abs=0.005)
    assert 1 - AveragePrecisionLoss(**sharp)(p, y).item() == pytest.approx(precision, abs=0.02)


@pytest.mark.parametrize(
    "loss",
    [AUROCLoss(), AveragePrecisionLoss(), AUROCLoss(step=Amplified(10.0)), WMWLoss(),
     WMWLoss(0.7, 3.0), SurrogateFBetaLoss(positive_share=0.2), SurrogateFBetaLoss(2.0, positive_share=0.2)],
    ids=lambda loss: type(loss).__name__,
)  # fmt: skip
def test_gradients(loss):
    z, y = data(15)
    assert gradcheck(lambda x: loss(x, y), (z,))


def test_weights_and_columns():
    z, y = data(40)
    z = z.detach()
    weight = torch.randint(0, 3, (40,), generator=torch.Generator().manual_seed(1))
    for loss in (AUROCLoss(), AveragePrecisionLoss()):
        torch.testing.assert_close(
            loss(z, y, weight.double()),
            loss(z.repeat_interleave(weight), y.repeat_interleave(weight)),
        )
        columns = loss(z.reshape(20, 2), y.reshape(20, 2))
        apart = [loss(z.reshape(20, 2)[:, k], y.reshape(20, 2)[:, k]) for k in (0, 1)]
        torch.testing.assert_close(columns, torch.stack(apart).mean())


def test_wmw_by_hand():
    x, y = [0.9, 0.3, 0.5, 0.35], [1, 0, 0, 1]
    pairs = [max(0.0, 0.5 - (x[i] - x[j])) ** 3 for i in (0, 3) for j in (1, 2)]
    loss = WMWLoss(0.5, 3.0, from_logits=False)(torch.tensor(x), torch.tensor(y))
    assert loss.item() == pytest.approx(np.mean(pairs), rel=1e-6)
    unchecked = WMWLoss(0.5, 3.0, from_logits=False, validate=False)
    assert unchecked(torch.tensor(x), torch.tensor(y)).item() == pytest.approx(loss.item())
    with pytest.raises(ValueError, match="exactly 0 or 1"):
        WMWLoss()(torch.ones(2), torch.tensor([0.5, 1.0]))


def test_surrogate_by_hand():
    z, y = data(30)
    p, k = torch.sigmoid(z.detach()), 4 * 0.2 / 0.8
    expected = (-y * torch.log(p) + (1 - y) * torch.log(k + p)).mean()
    loss = SurrogateFBetaLoss(2.0, positive_share=0.2)
    torch.testing.assert_close(loss(z, y).detach(), expected)
    same = SurrogateFBetaLoss(2.0, positive_share=0.2, from_logits=False)(p, y)
    torch.testing.assert_close(same, expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AUROCLoss(thresholds=[]), "at least one"),
        (lambda: AUROCLoss(step=LogitSigmoid()), "no threshold"),
        (lambda: WMWLoss(gap=0.0), "gap must be greater than 0"),
        (lambda: WMWLoss(power=1.0), "power must be greater than 1"),
        (lambda: SurrogateFBetaLoss(0.0, positive_share=0.1), "beta must be a positive number"),
        (lambda: SurrogateFBetaLoss(positive_share=0.0), "share of positives in the training set"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
