"""Bad input: a finite value and gradient, or an error that names what was expected and received."""

import math
import random

import pytest
import torch

import anyloss
from anyloss.steps import Amplified, Linear, LogitSigmoid, RaisedCosine, Uniform
from anyloss.torch import (
    AnyLoss,
    AUROCLoss,
    AveragePrecisionLoss,
    F1Loss,
    SurrogateFBetaLoss,
    WMWLoss,
    any_loss,
)

METRICS = sorted({function.__name__ for function in anyloss.METRICS.values()})
STEPS = [None, Amplified(73.0), Amplified(150.0), Amplified(30.0, 0.05), Linear(), RaisedCosine(0.05),
         Uniform(), LogitSigmoid(0.5), LogitSigmoid(30.0, -2.0)]  # fmt: skip
CLEAN_LOGITS = [0.0, 1.0, -1.0, 17.0, -17.0, 90.0, -90.0, 3e38, -3e38, 1e-40]
DIRTY = [math.nan, math.inf, -math.inf]


def shapes(rng):
    n, c = rng.choice([0, 1, 2, 7]), rng.choice([1, 2, 3])
    return rng.choice(
        [
            ((n,), (n,)), ((n, 1), (n, 1)), ((n, c), (n, c)), ((n, c), (n,)), ((n, c, 2), (n, c, 2)),
            ((n, c, 2), (n, 2)), ((n, 1), (n,)), ((n,), (n, 1)), ((n,), (n + 1,)), ((), ()),
            ((n, c), (n, c + 1)),
        ]
    )  # fmt: skip


def labels(rng, shape, classes, integer):
    kind = rng.random()
    if kind < 0.15:
        values = [0]
    elif kind < 0.3:
        values = [1]
    elif kind < 0.85:
        values = list(range(max(2, classes))) if integer else [0, 1]
    else:
        values = rng.choice(
            [[0, 1, 2], [-1, 0, 1], [0, 99]]
            if integer
            else [[0, 0.3, 1.0], [0, 1.5], [0, math.nan]]
        )
    data = [rng.choice(values) for _ in range(math.prod(shape))]
    return torch.tensor(data, dtype=torch.int64 if integer else torch.float32).reshape(shape)


def bad_case(seed):
    rng = random.Random(seed)
    shape, target_shape = shapes(rng)
    values = rng.sample(CLEAN_LOGITS, 4) + (rng.sample(DIRTY, 1) if rng.random() < 0.15 else [])
    dtype = rng.choice([torch.float32, torch.float64, torch.float32, torch.bfloat16, torch.int64])
    data = [rng.choice(values) for _ in range(math.prod(shape))]
    from_logits = rng.random() < 0.8
    if not from_logits:
        data = [min(max(abs(x), 0.0), 1.0) if rng.random() < 0.98 else x for x in data]
    if dtype == torch.int64:
        data = [0] * len(data)
    scores = torch.tensor(data, dtype=dtype).reshape(shape)
    if dtype != torch.int64:
        scores.requires_grad_()
    classes = shape[1] if len(shape) > 1 else 1
    target = labels(rng, target_shape, classes, integer=shape != target_shape or rng.random() < 0.3)
    weight = None
    if rng.random() < 0.3 and target_shape:
        options = [[0.0], [0.0, 1.0], [1e-30, 1.0], [1e30], [-1.0, 1.0], [math.nan, 1.0]]
        weights = rng.choice(options)
        weight = torch.tensor([rng.choice(weights) for _ in range(target_shape[0])])
    arguments = {
        "step": rng.choice(STEPS),
        "average": rng.choice(["auto", "auto", "macro", "micro", "weighted", None, "multiclass"]),
        "from_logits": from_logits,
        "per_sample": rng.choice([False] * 8 + [True, "weighted"]),
        "task": "auto"
        if rng.random() < 0.8
        else rng.choice(["binary", "multilabel", "multiclass"]),
        "class_axis": rng.choice([1] * 18 + [-1, 2]),
        "zero_division": rng.choice(["auto", "auto", "skip", 0, 1]),
        "soft_labels": rng.random() < 0.03,
        "cross_entropy": rng.choice([0.0, 0.0, 0.1]),
        "smooth": rng.choice([0.0, 0.0, 1.0]),
        "ignore_index": rng.choice([None, None, None, -1]),
    }
    return rng.choice(METRICS), scores, target, weight, arguments


@pytest.mark.parametrize("block", range(10))
def test_ten_thousand_cases(block):
    finite = refused = unclear = 0
    for seed in range(1000 * block, 1000 * (block + 1)):
        metric, scores, target, weight, arguments = bad_case(seed)
        try:
            loss = any_loss(scores, target, metric, weight=weight, **arguments)
        except (ValueError, TypeError) as error:
            refused += "must" in str(error) or "needs" in str(error) or "takes" in str(error)
            unclear += "got" not in str(error) and "came out" not in str(error)
            continue
        assert torch.isfinite(loss).all(), seed
        loss.sum().backward()
        assert torch.isfinite(scores.grad).all(), (seed, metric, arguments, scores, scores.grad)
        finite += 1
    assert finite > 100
    assert refused > 250
    assert not unclear


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: F1Loss()([1.0], torch.ones(1)), TypeError, "input must be a tensor; got list"),
        (lambda: F1Loss()(torch.ones(1), [1.0]), TypeError, "target must be a tensor; got list"),
        (lambda: F1Loss()(torch.ones(1), torch.ones(1), [1.0]), TypeError, "weight must be a tensor"),
        (lambda: F1Loss()(torch.ones(2).long(), torch.ones(2)), TypeError, "got torch.int64"),
        (lambda: F1Loss()(torch.ones(2), torch.ones(2) * 1j), TypeError, "real numbers"),
        (
            lambda: F1Loss()(torch.ones(2), torch.ones(2, device="meta")),
            ValueError,
            "on the device of the input, cpu; got meta",
        ),
        (lambda: F1Loss()(torch.ones(3, 1), torch.ones(3)), ValueError, r"got \(3,\)"),
        (lambda: F1Loss()(torch.ones(3), torch.ones(3, 1)), ValueError, r"got \(3, 1\)"),
        (lambda: F1Loss()(torch.ones(2), torch.tensor([0.0, 2.0])), ValueError, "got 0.0 to 2.0"),
        (lambda: F1Loss()(torch.ones(2), torch.tensor([0.0, math.nan])), ValueError, "got nan"),
        (lambda: F1Loss()(torch.tensor([math.nan, 1.0]), torch.ones(2)), ValueError, "NaN|not NaN"),
        (
            lambda: AnyLoss("recall")(torch.tensor([1.0, math.nan]), torch.tensor([1, 0])),
            ValueError,
            "NaN|not NaN",
        ),
        (
            lambda: F1Loss(step=Linear())(torch.tensor([math.nan, 1.0]), torch.ones(2)),
            ValueError,
            "NaN|not NaN",
        ),
        (
            lambda: F1Loss(from_logits=False)(torch.tensor([1.3, 0.1]), torch.ones(2)),
            ValueError,
            r"probabilities in the input \(from_logits=False\)",
        ),
        (lambda: F1Loss()(torch.ones(2, 3), torch.tensor([0, 3])), ValueError, "class indices"),
        (lambda: F1Loss()(torch.ones(2), torch.ones(2), torch.ones(3)), ValueError, "weight must have"),
        (
            lambda: F1Loss()(torch.ones(2), torch.ones(2), torch.tensor([1.0, -1.0])),
            ValueError,
            "weights must lie in",
        ),
        (lambda: F1Loss(step="linear"), TypeError, "step must be one of anyloss.steps; got str"),
        (lambda: F1Loss(step=Linear(), threshold=0.3), ValueError, "cannot be combined with step= or thresholds="),
        (lambda: F1Loss(thresholds=[0.3], threshold=0.3), ValueError, "cannot be combined with step= or thresholds="),
        (lambda: F1Loss(thresholds=[]), ValueError, "at least one number"),
        (lambda: F1Loss(step=LogitSigmoid(), thresholds=[0.3]), ValueError, "no threshold"),
        (lambda: F1Loss(smooth=-1.0), ValueError, "smooth must be a number >= 0; got -1.0"),
        (lambda: AnyLoss("f1", average="multiclass"), ValueError, "multiclass form"),
        (lambda: AnyLoss("f1", stpe=3), TypeError, "unknown argument 'stpe'"),
        (lambda: AnyLoss("f1", average="mean"), ValueError, "average must be one of"),
        (lambda: AnyLoss("f1", ignore_index=0.5), TypeError, "whole number"),
        (lambda: AnyLoss("f1", thresholds=0.5), TypeError, "sequence of numbers"),
        (lambda: F1Loss()(torch.ones(2, 0), torch.ones(2, 0)), ValueError, "at least one column"),
        (lambda: AUROCLoss(step=Amplified(1e6))(torch.ones(2), torch.ones(2)), ValueError, "at most"),
        (lambda: Amplified("73"), TypeError, "scale must be a number"),
        (lambda: AUROCLoss(step="linear"), TypeError, "step must be one of"),
        (lambda: AnyLoss(task="multiclass")(torch.ones(2, 3), torch.ones(2, 3)), ValueError, "one-hot"),
        (
            lambda: AnyLoss(from_logits=False)(torch.full((2, 3), 0.9), torch.tensor([0, 1])),
            ValueError,
            "class probabilities",
        ),
        (
            lambda: AnyLoss(task="multiclass", ignore_index=0)(torch.ones(2, 3), torch.eye(3)[:2]),
            ValueError,
            "one-hot labels have none",
        ),
        (
            lambda: F1Loss()(torch.tensor([[math.inf, 1.0]]), torch.tensor([0])),
            ValueError,
            "finite logits for several classes",
        ),
        (
            lambda: F1Loss(step=Amplified(200.0))(torch.ones(2), torch.ones(2)),
            ValueError,
            "scale must be at most 174.7 for torch.float32",
        ),
    ],
)  # fmt: skip
def test_errors_name_what_was_expected(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_large_scale_is_fine_in_float64():
    z = torch.tensor([3.0, -3.0], dtype=torch.float64, requires_grad=True)
    loss = AnyLoss("balanced_accuracy", step=Amplified(1000.0))(z, torch.tensor([0, 1]))
    (grad,) = torch.autograd.grad(loss, z)
    assert (grad != 0).all()


def test_an_infinite_metric_is_refused_where_it_happens():
    wild = anyloss.metric("(tp * 1e50) ** 6 / 1e90 / 1e90 / 1e90")
    z, y = torch.full((1000,), 4.0), torch.ones(1000)
    for step in (Linear(), None):
        with pytest.raises(ValueError, match="not finite"):
            AnyLoss(wild, step=step)(z, y)


def test_validation_can_be_left_out():
    z, y = torch.tensor([0.3, -0.2]), torch.tensor([3.0, 0.0])
    assert math.isfinite(F1Loss(validate=False)(z, y).item())
    assert math.isnan(F1Loss(validate=False)(torch.tensor([math.nan]), torch.ones(1)).item())


def test_sync_is_a_truth_value():
    with pytest.raises(TypeError, match="sync must be True, False or None; got 'yes'"):
        F1Loss(sync="yes")(torch.ones(2), torch.tensor([0.0, 1.0]))


OTHERS = [
    AUROCLoss(),
    AveragePrecisionLoss(),
    WMWLoss(),
    SurrogateFBetaLoss(positive_share=0.1),
]


@pytest.mark.parametrize("loss", OTHERS, ids=lambda loss: type(loss).__name__)
def test_the_other_losses_stay_finite(loss):
    rng = random.Random(0)
    for _ in range(300):
        n = rng.choice([1, 2, 9])
        z = torch.tensor([rng.choice(CLEAN_LOGITS) for _ in range(n)], requires_grad=True)
        y = torch.tensor([rng.choice(rng.choice([[0], [1], [0, 1]])) for _ in range(n)])
        value = loss(z, y)
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(z.grad).all()
    with pytest.raises(ValueError, match="Nothing is broadcast"):
        loss(torch.ones(3, 1), torch.ones(3))
    with pytest.raises(ValueError, match="labels in the target"):
        loss(torch.ones(2), torch.tensor([0.0, 7.0]))
    with pytest.raises(ValueError, match="NaN|finite"):
        loss(torch.tensor([math.nan, 1.0]), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="single column|shape of the scores"):
        loss(torch.ones(2, 3), torch.tensor([0, 1]))
