"""Ranks that share a batch: real processes, gloo on the loopback, against one process.

Run as a script, this file is one of these ranks: `python test_distributed.py FOLDER RANK RANKS`.
"""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from anyloss import cost_matrix
from anyloss.steps import Amplified, Linear
from anyloss.torch import (
    AnyLoss,
    AUROCLoss,
    AveragePrecisionLoss,
    ScoreMeter,
    StratifiedBatchSampler,
    accumulate,
    any_loss,
    soft_counts,
)

pytestmark = pytest.mark.xdist_group("ranks")  # they share the processes of a fixture

ROWS = 24
# The ends of the shards: uneven; the last one has no positive (of two) or no sample (of four).
ENDS = {1: (0, 24), 2: (0, 17, 24), 4: (0, 13, 18, 24, 24)}


class OwnLoss(nn.Module):
    """A loss by hand from the soft counts of all ranks."""

    def forward(self, input, target):
        tp, fn, fp, _ = soft_counts(input, target)
        return 1 - ((2 * tp + 1) / (2 * tp + fn + fp + 1)).mean()


BINARY = ("column", {})
CASES = {
    "f1": BINARY,
    "f1, three thresholds": ("column", {"thresholds": [0.3, 0.5, 0.8]}),
    "f1, weights": ("column", {"weight": True}),
    "f1, another step": ("column", {"step": Linear(), "smooth": 0.5}),
    "mcc": ("column", {"metric": "mcc", "smooth": 1.0}),
    "a formula": ("column", {"metric": "tp / (tp + 0.3*fp + 2*fn)"}),
    "two classes of a column": ("column", {"metric": "f1", "average": "macro"}),
    "probabilities": ("probabilities", {"from_logits": False}),
    "multilabel": ("labels", {}),
    "multilabel, weighted": ("labels", {"average": "weighted"}),
    "multilabel, micro, weights": ("labels", {"average": "micro", "weight": True}),
    "multiclass": ("classes", {}),
    "multiclass, weighted average": ("classes", {"average": "weighted", "weight": True}),
    "multiclass mcc": ("classes", {"metric": "mcc", "average": "multiclass"}),
    "ignored rows": ("classes", {"ignore_index": 2}),
    "balanced accuracy, a class absent on a rank": ("classes", {"metric": "balanced_accuracy"}),
    "geometric mean of recalls": ("classes", {"metric": "gmean"}),
    "cross-entropy": ("column", {"cross_entropy": 0.5, "weight": True}),
    "cross-entropy of classes": ("classes", {"cross_entropy": 0.5, "ignore_index": 2}),
    "labels skipped": ("labels", {"zero_division": "skip", "metric": "specificity"}),
    "labels, one minus the decision": ("labels", {"zero_division": 1}),
    "soft labels": ("column", {"soft_labels": True}),
    "masks, samples alike": ("masks", {"per_sample": True, "zero_division": "skip"}),
    "masks by their pixels": ("masks", {"per_sample": "weighted", "cross_entropy": 0.1}),
    "masks per sample": ("masks", {"per_sample": True, "metric": "iou", "weight": True}),
    "almost all called positive": ("high", {}),
    "chosen classes, weighed": ("classes", {"classes": [0, 2], "class_weights": [1.0, 3.0]}),
    "generalised Dice": ("labels", {"average": "micro", "class_weights": "inverse_square"}),
    "logarithm": ("classes", {"form": "log", "class_weights": "inverse"}),
    "logarithm of a column": ("column", {"form": "log", "weight": True}),
    "masks, sum": ("masks", {"per_sample": True, "reduction": "sum", "weight": True}),
    "masks, sum of logarithms": ("masks", {"per_sample": True, "reduction": "sum", "form": "log"}),
    "mean over rows": ("labels", {"average": "samples", "weight": True}),
    "squared softmax": ("labels", {"squared": True, "activation": "softmax"}),
    "squared classes": ("classes", {"squared": True, "average": "micro"}),
    "sigmoid over classes": ("classes", {"activation": "sigmoid", "weight": True}),
    "thresholds per label": ("labels", {"step": Amplified(10.0), "threshold": [0.2, 0.5, 0.8]}),
    "costs": ("classes", {"metric": cost_matrix([[0, 1, 4], [1, 0, 1], [9, 2, 0]])}),
    "costs, weights, cross-entropy": (
        "classes",
        {
            "metric": cost_matrix([[0, 1, 4], [1, 0, 1], [9, 2, 0]]),
            "cross_entropy": 0.5,
            "weight": True,
        },
    ),
    "counts of one's own": ("labels", {"loss": OwnLoss}),
    "auroc": ("labels", {"loss": AUROCLoss}),
    "average precision": ("column", {"loss": AveragePrecisionLoss, "weight": True}),
}

CONSTRAINED = {"constraints": ["recall >= 0.9", "precision >= 0.5"], "memory": 0.5}

ACCUMULATED = (
    "cross-entropy",
    "masks, samples alike",
    "f1",
    "f1, weights",
    "masks per sample",
    "f1, three thresholds",
    "generalised Dice",
    "masks, sum",
    "chosen classes, weighed",
    "logarithm",
    "mean over rows",
    "squared softmax",
    "sigmoid over classes",
    "thresholds per label",
    "costs",
    "costs, weights, cross-entropy",
)


class Net(nn.Module):
    """A linear layer whose output has the shape that a case needs."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(1)
        self.kind = kind
        self.layer = nn.Linear(
            5, 3 if kind in ("labels", "classes") else 4 if kind == "masks" else 1
        )

    def forward(self, x):
        z = self.layer(x)
        if self.kind == "masks":
            return z.reshape(-1, 2, 2).unsqueeze(1)
        if self.kind in ("labels", "classes"):
            return z
        z = z.squeeze(1)
        return torch.sigmoid(z) if self.kind == "probabilities" else z + 40 * (self.kind == "high")


def data(kind, dtype=torch.float64):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(ROWS, 5, generator=generator, dtype=torch.float64)
    weight = torch.rand(ROWS, generator=generator, dtype=torch.float64)
    shape = {"labels": (ROWS, 3), "masks": (ROWS, 1, 2, 2)}.get(kind, (ROWS,))
    y = (torch.rand(shape, generator=generator) < 0.4).to(dtype)
    if kind == "classes":
        y = torch.randint(0, 3, (ROWS,), generator=generator)
    elif kind != "masks":
        y[15:] = 0  # only the first shards have positives
    return x.to(dtype), y, weight.to(dtype)


def shard(rank, ranks, *tensors):
    first, last = ENDS[ranks][rank], ENDS[ranks][rank + 1]
    return [t[first:last] for t in tensors]


def criterion(arguments):
    given = {name: value for name, value in arguments.items() if name not in ("weight", "loss")}
    return arguments.get("loss", AnyLoss)(**given)


def gradient(case, rank, ranks, dtype=torch.float64, wrap=DistributedDataParallel, backend=None):
    """The loss and the model's gradient, averaged over the ranks as the wrapper does it."""
    kind, arguments = CASES[case]
    x, y, weight = shard(rank, ranks, *data(kind, dtype))
    model = Net(kind).to(dtype)
    model = model if ranks == 1 else wrap(model)
    loss = criterion(arguments)
    if backend:
        loss = torch.compile(loss, backend=backend, fullgraph=True)
    value = loss(model(x), y, *([weight] if arguments.get("weight") else []))
    value.backward()
    return torch.cat([value.detach().reshape(1), *(flat(p.grad) for p in model.parameters())])


def flat(x):
    return (x.full_tensor() if hasattr(x, "full_tensor") else x).reshape(-1)


def fully_sharded(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def accumulated(case, rank, ranks, wrap=DistributedDataParallel):
    """Each rank's shard in micro-batches of at most four rows; equally many on each rank."""
    kind, arguments = CASES[case]
    tensors = data(kind) if arguments.get("weight") else data(kind)[:2]
    model = Net(kind).double()
    model = model if ranks == 1 else wrap(model)
    parts = list(zip(*(t.tensor_split(5) for t in shard(rank, ranks, *tensors)), strict=True))
    value = accumulate(criterion(arguments), model, parts)
    return torch.cat([value.reshape(1), *(flat(p.grad) for p in model.parameters())])


def trained(rank, ranks, dtype, **given):
    """The weights after 100 steps over batches of 24 rows, and the multipliers if there are any."""
    x, y, _ = data("column", dtype)
    model = Net("column").to(dtype)
    model = model if ranks == 1 else DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss = AnyLoss("f1", **given)
    for step in range(100):
        order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(step))
        mine, target = shard(rank, ranks, x[order], y[order])
        optimizer.zero_grad()
        loss(model(mine), target).backward()
        optimizer.step()
    return torch.cat([flat(p.detach()) for p in [*model.parameters(), *loss.buffers()]])


def scores(rank, ranks):
    """The hard score of all samples; without sync no rank waits for another."""
    x, y, weight = data("classes")
    own = shard(rank, ranks, x, y, weight)
    net, loss, meter = Net("classes").double(), AnyLoss("f1"), ScoreMeter("f1")
    with torch.no_grad():
        outputs = net(own[0])
    meter.update(outputs, *own[1:])
    if rank == 0:
        loss.score(outputs, *own[1:])
        meter.compute()
        with torch.no_grad():
            loss(outputs, *own[1:])
    masks, images, sample_weight = shard(rank, ranks, *data("masks"))
    with torch.no_grad():
        z = Net("masks").double()(masks)
    both = [
        loss.score(outputs, *own[1:], sync=True),
        AnyLoss("f1", sync=True).score(outputs, *own[1:]),
        meter.compute(sync=True),
        AnyLoss("iou", per_sample=True).score(z, images, sample_weight, sync=True),
    ]
    return torch.stack(both)


def any_loss_gradient(z, y, **given):
    z = z.clone().requires_grad_()
    any_loss(z, y, **given).backward()
    return z.grad


def own_rows(rank, ranks):
    """The gradient by the own logits without an exchange, and with the first two ranks only."""
    x, y, _ = shard(rank, ranks, *data("column"))
    choices = ({"sync": False}, {"group": dist.new_group([0, 1])})
    if rank < 2:
        return [any_loss_gradient(x[:, 0], y, **given) for given in choices]
    with pytest.raises(ValueError, match="a process group that this rank is a member of"):
        any_loss_gradient(x[:, 0], y, **choices[1])
    return []


def run(rank, ranks):
    results = {case: gradient(case, rank, ranks) for case in CASES}
    results["float32"] = gradient("f1", rank, ranks, torch.float32)
    results["float32, multilabel"] = gradient("multilabel", rank, ranks, torch.float32)
    for case in ACCUMULATED:
        results[f"accumulated: {case}"] = accumulated(case, rank, ranks)
    if ranks == 2:
        with warnings.catch_warnings(action="ignore"):  # of torch, within torch
            results["compiled"] = gradient("multilabel", rank, ranks, backend="aot_eager")
        results["fsdp"] = gradient("f1, weights", rank, ranks, wrap=fully_sharded)
        results["fsdp, accumulated"] = accumulated("f1, weights", rank, ranks, fully_sharded)
    if ranks > 1:
        results["own rows"] = own_rows(rank, ranks)
    results["trained"] = trained(rank, ranks, torch.float64)
    results["trained, memory"] = trained(rank, ranks, torch.float64, memory=0.8)
    results["trained, constraint"] = trained(rank, ranks, torch.float64, **CONSTRAINED)
    results["trained, float32"] = trained(rank, ranks, torch.float32)
    results["scores"] = scores(rank, ranks)
    results["batches"] = list(StratifiedBatchSampler([0] * 20 + [1] * 5, 3))
    return results


@pytest.fixture(scope="module")
def one():
    return run(0, 1)


@pytest.fixture(
    scope="module",
    params=[2, pytest.param(4, marks=pytest.mark.slow("four processes on two cores"))],
)
def many(request, tmp_path_factory):
    """The results of each rank."""
    folder, ranks = tmp_path_factory.mktemp("ranks"), request.param
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder), str(rank), str(ranks)], env=environment
        )
        for rank in range(ranks)
    ]
    assert [process.wait(timeout=300) for process in processes] == [0] * ranks
    return [torch.load(folder / f"{rank}.pt") for rank in range(ranks)]


def assert_all_close(many, expected, name, tolerance):
    for results in many:
        torch.testing.assert_close(results[name], expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_that_of_the_undivided_batch(case, one, many):
    assert one[case][1:].abs().max() > (0 if "almost" in case else 1e-4)
    assert_all_close(many, one[case], case, 1e-12)


@pytest.mark.parametrize("name", ["float32", "float32, multilabel"])
def test_in_single_precision(name, one, many):
    assert_all_close(many, one[name], name, 1e-6)


@pytest.mark.parametrize("case", ACCUMULATED)
def test_accumulation_equals_the_undivided_batch(case, one, many):
    assert_all_close([one, *many], one[case], f"accumulated: {case}", 1e-12)


@pytest.mark.parametrize("many", [2], indirect=True)
def test_fsdp_and_a_compiled_loss(one, many):
    assert_all_close(many, one["multilabel"], "compiled", 1e-12)
    assert_all_close(many, one["f1, weights"], "fsdp", 1e-12)
    assert_all_close(many, one["f1, weights"], "fsdp, accumulated", 1e-12)


def test_the_same_model_after_100_steps(one, many):
    assert_all_close(many, one["trained"], "trained", 1e-9)
    assert_all_close(many, one["trained, memory"], "trained, memory", 1e-9)
    assert one["trained, constraint"][-4:].max() > 0.1
    assert_all_close(many, one["trained, constraint"], "trained, constraint", 1e-6)  # float32
    assert_all_close(many, one["trained, float32"], "trained, float32", 1e-6)


def test_scores_of_all_ranks_when_asked(one, many):
    from sklearn.metrics import f1_score  # here, so that the ranks do not import it

    x, y, weight = data("classes")
    decisions = Net("classes").double()(x).argmax(1)
    expected = f1_score(y, decisions, average="macro", sample_weight=weight)
    assert one["scores"][:3].tolist() == pytest.approx([expected] * 3)
    assert_all_close(many, one["scores"], "scores", 1e-12)


def test_without_sync_and_with_a_group(many):
    x, y, _ = data("column")
    ends = ENDS[len(many)]
    for rank in (0, 1):
        own, grouped = many[rank]["own rows"]
        alone = slice(ends[rank], ends[rank + 1])
        expected = any_loss_gradient(x[alone, 0], y[alone])
        torch.testing.assert_close(own, expected, rtol=1e-12, atol=1e-12)
        both = any_loss_gradient(x[: ends[2], 0], y[: ends[2]])
        torch.testing.assert_close(grouped, 2 * both[alone], rtol=1e-12, atol=1e-12)


def joined(rank):
    """Train within DDP's join(), where one rank has one batch less than the other."""
    torch.manual_seed(0)
    model, loss = DistributedDataParallel(nn.Linear(2, 1)), AnyLoss("f1")
    with model.join():
        for _ in range(2 + rank):
            loss(model(torch.randn(4, 2)), torch.ones(4, 1)).backward()


def test_join_is_refused_with_an_error(tmp_path):
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(tmp_path), str(rank), "2", "join"],
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        errors = process.communicate(timeout=120)[1]
        assert process.returncode == 1, errors  # not a signal
        assert "RuntimeError: the ranks exchange the counts of every batch, and under DDP" in errors


def test_the_sampler_finds_its_rank(many):
    batches = [batch for results in many for batch in results["batches"]]
    assert sorted(row for batch in batches for row in batch) == list(range(25))
    assert len({len(results["batches"]) for results in many}) == 1


if __name__ == "__main__":
    folder, rank, ranks = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("error")
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks
    )
    if "join" in sys.argv:
        joined(rank)
    else:
        torch.save(run(rank, ranks), folder / f"{rank}.pt")
    dist.destroy_process_group()
