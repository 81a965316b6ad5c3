"""`refine` on several ranks: real processes, gloo on the loopback, against one process.

Run as a script, this file is one of these ranks: `python test_refine_ranks.py FOLDER RANK RANKS`.
"""

import os
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from anyloss.torch import refine

torch.set_num_threads(1)
pytestmark = pytest.mark.xdist_group("refine ranks")  # they share the processes of a fixture
ROWS = 240


def data(kind, seed=0):
    g = torch.Generator().manual_seed(seed)
    if kind == "maps":
        x = torch.randn(24, 4, 6, 6, generator=g, dtype=torch.float64)
        y = (x[:, 0] + torch.randn(24, 6, 6, generator=g) > 1).double()
        return x, y, torch.rand(24, generator=g, dtype=torch.float64)
    y = torch.multinomial(torch.tensor([0.6, 0.25, 0.15]), ROWS, True, generator=g)
    centres = torch.randn(3, 4, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    x = centres[y] + torch.randn(ROWS, 4, generator=g, dtype=torch.float64)
    if kind in ("column", "norms"):
        y = (y == 2).double()
    if kind == "labels":
        y = torch.stack([y == 0, y > 0, x[:, 0] > 1], 1).double()
    return x, y, torch.rand(ROWS, generator=g, dtype=torch.float64)


class Pixels(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, x):
        return self.linear(x.movedim(1, -1)).movedim(-1, 1)


def model(kind):
    torch.manual_seed(0)
    if kind == "maps":
        return Pixels().double()
    layers = [nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3 if kind in ("classes", "labels") else 1)]
    if kind == "norms":
        layers.insert(1, nn.BatchNorm1d(5))
    return nn.Sequential(*layers).double()


def batches(kind, rank, ranks, seed=0, weighted=True):
    """Each batch, or the part of it of this rank: unequal parts of batches and of validation."""
    tensors = data(kind, seed)[: 3 if weighted else 2]
    size, found = len(tensors[0]) // 3, []
    for part in zip(*(t.split(size) for t in tensors), strict=True):
        ends = [0, size // 3, size] if ranks == 2 else [0, size]
        found.append(tuple(t[ends[rank] : ends[rank + 1]] for t in part))
    return found


CASES = {
    "column": {},
    "classes": {"priors": [0.2, 0.3, 0.5]},
    "labels": {"ema": 0.8},
    "maps": {"per_sample": True},
    "ensemble": {"ensemble": True, "max_norm": 0.1},
    "no valid": {"valid": None},
    "start": {"start": "logit-adjusted", "start_epochs": 4},
    "uneven": {},  # the second rank has one batch of validation rows less
}


def refined(case, rank, ranks, wrap=DistributedDataParallel, **more):
    kind = case if case in ("classes", "labels", "maps", "norms") else "column"
    net = model(kind)
    net = net if ranks == 1 else wrap(net)
    options = {
        "valid": batches(kind, rank, ranks, 1),
        "start_epochs": 12, "epochs": 4, "optimizer": partial(torch.optim.Adam, lr=0.02),
    } | CASES.get(case, {}) | more  # fmt: skip
    if case == "uneven":
        last = options["valid"].pop()
        options["valid"] += [] if rank else [tuple(t[:26] for t in last)]
    found = refine(net, batches(kind, rank, ranks), "f1", **options)
    state = {name: whole(x) for name, x in found.state_dict().items()}
    scores = [found.share, found.start_score, found.end_score]
    return {
        "state": {name.replace("module.", ""): x for name, x in state.items()},
        "scores": torch.tensor(scores), "history": torch.tensor([x[2:] for x in found.history]),
    }  # fmt: skip


def whole(x):
    return (x.full_tensor() if hasattr(x, "full_tensor") else x).detach().clone()


def fully_sharded(net):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    return fully_shard(net, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


class Stop(Exception):
    pass


def resumed(rank, ranks, folder, wrap):
    """Stopped after each of the first epochs of each stage."""
    file = Path(folder) / f"{wrap.__name__}.pt"
    for stage, epoch in (("cross-entropy", 3), ("metric", 2)):

        def stop(found, at=(stage, epoch)):
            if found[:2] == at:
                raise Stop

        with pytest.raises(Stop):
            refined("column", rank, ranks, wrap, checkpoint=file, on_epoch=stop)
        dist.barrier()
    found = refined("column", rank, ranks, wrap, checkpoint=file)
    assert len(list(Path(folder).glob(f"{wrap.__name__}*"))) == 1
    return found


def run(rank, ranks, folder):
    results = {case: refined(case, rank, ranks) for case in CASES}
    if ranks == 2:
        results["norms"] = refined("norms", rank, ranks)
        results["fsdp"] = refined("column", rank, ranks, fully_sharded)
        with pytest.raises(ValueError, match="ensemble=True copies the model, and .* split"):
            refined("column", rank, ranks, fully_sharded, ensemble=True)
        results["resumed"] = resumed(rank, ranks, folder, DistributedDataParallel)
        results["fsdp, resumed"] = resumed(rank, ranks, folder, fully_sharded)
    return results


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen([sys.executable, __file__, str(folder), str(rank), "2"], env=environment)
        for rank in range(2)
    ]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def assert_close(found, expected, tolerance=1e-9):
    for part in expected:
        torch.testing.assert_close(
            found[part], expected[part], rtol=tolerance, atol=tolerance, equal_nan=True
        )


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_refine_as_one_process(case, two):
    one = refined(case, 0, 1)
    for found in two:
        assert_close(found[case], one)


def test_batch_norms_are_the_same_on_all_ranks(two):
    assert_close(two[0]["norms"], two[1]["norms"], 0)


def test_fsdp_and_checkpoints(two):
    one = refined("column", 0, 1)
    for found in two:
        assert_close(found["resumed"], found["column"], 0)
        assert_close(found["fsdp"], one)
        assert_close(found["fsdp, resumed"], found["fsdp"], 1e-12)


if __name__ == "__main__":
    folder, rank, ranks = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("error")
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks
    )
    torch.save(run(rank, ranks, folder), folder / f"{rank}.pt")
    dist.destroy_process_group()
