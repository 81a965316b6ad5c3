"""The training examples, with real processes on the loopback."""

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn
from torch.utils.data import DistributedSampler

from anyloss import best_threshold
from anyloss.torch import AnyLoss, refine

pytestmark = pytest.mark.slow("starts several processes")

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
ENVIRONMENT = os.environ | {
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # else a restart may find the addresses of the dead
    "RAY_worker_niceness": "0",  # else other processes may leave the workers no time
}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]

START = re.compile(r"rank (\d) of 2, process (\d+): epoch (\d+)")
SCORE = re.compile(r"epoch (\d+): F1 ([\d.]+)")


def run_two(*command):
    """Two ranks, started as torchrun starts them, without its agent; what the first one prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=ENVIRONMENT | given | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    return outputs[0]


def reference(shuffle):
    """F1 and the sum of the weights of one process that sees batches of 128 rows."""
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(512, 1, generator=generator) < 0.1).float()
    x = torch.randn(512, 4, generator=generator) + y
    torch.manual_seed(0)
    model, loss = nn.Linear(4, 1), AnyLoss("f1", cross_entropy=0.1)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    sampler = DistributedSampler(y, num_replicas=1, rank=0, shuffle=shuffle)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for rows in torch.tensor(list(sampler)).split(128):
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
    weights = torch.cat([p.reshape(-1) for p in model.parameters()])
    return loss.score(model(x), y).item(), weights.sum().item()


@pytest.mark.parametrize(
    ("package", "arguments", "shuffle"),
    [
        ("torchrun", [], False),
        ("accelerate", [], False),
        ("transformers", [], False),
        ("lightning", ["2"], True),  # which always shuffles what it trains on
    ],
)
def test_two_processes_train_as_one(package, arguments, shuffle):
    if package != "torchrun" and not importlib.util.find_spec(package):
        pytest.skip(f"{package} is not installed")
    output = run_two(EXAMPLES / f"train_{package}.py", *arguments)
    found = re.search(r"F1: ([\d.]+), sum of the weights: ([\d.-]+)", output)
    assert [float(x) for x in found.groups()] == pytest.approx(reference(shuffle), abs=2e-6)


@pytest.mark.parametrize("package", ["lightning", "transformers", "keras"])
def test_the_callbacks_that_refine(package):
    if not importlib.util.find_spec(package):
        pytest.skip(f"{package} is not installed")
    command = [sys.executable, EXAMPLES / f"refine_{package}.py"]
    output = subprocess.run(
        command, env=ENVIRONMENT | {"KERAS_BACKEND": "torch"}, capture_output=True, text=True,
        check=True, timeout=300,
    ).stdout  # fmt: skip
    before, after = map(float, re.search(r"F1 before: ([\d.]+), after: ([\d.]+)", output).groups())
    assert after >= before > 0.3  # the guard; equal where the start is as good on these rows
    modules = {"keras": "keras/callback.py", "transformers": "torch/trainer_callback.py"}
    module = ROOT / "src/anyloss" / modules.get(package, "torch/lightning_callback.py")
    assert len(module.read_text().splitlines()) < 100


@pytest.mark.parametrize(("package", "script"), [("ray", "ray"), ("pyspark", "spark")])
def test_two_workers_of_a_cluster_refine_as_one_process(package, script):
    if not importlib.util.find_spec(package):
        pytest.skip(f"{package} is not installed")
    paths = os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])
    spark = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    found = subprocess.run(
        [sys.executable, EXAMPLES / f"refine_{script}.py"],
        env=ENVIRONMENT | {"PYTHONPATH": paths} | spark,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, timeout=300,
    ).stdout  # fmt: skip
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(512, 1, generator=generator) < 0.1).float()
    x = torch.randn(512, 4, generator=generator) + y
    loader = [(x[k : k + 104], y[k : k + 104]) for k in range(0, 312, 104)]
    one = refine(
        nn.Linear(4, 1), loader, "f1", valid=[(x[312:], y[312:])], start_epochs=10,
        optimizer=partial(torch.optim.Adam, lr=0.05),
    )  # fmt: skip
    scores = re.search(r"F1 before: ([\d.]+), after: ([\d.]+)", found).groups()
    expected = one.start_score, one.end_score
    assert [float(score) for score in scores] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("hidden", [0, 8])
def test_the_threshold_over_partitions_is_that_of_the_undivided_rows(shards, tmp_path, hidden):
    if not importlib.util.find_spec("ray"):
        pytest.skip("ray is not installed")
    found = subprocess.run(
        [sys.executable, EXAMPLES / "parquet_ray.py", shards, tmp_path / "scores", str(hidden)],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout[-3000:]
    before, after = re.search(r"F1 before: ([\d.]+), after: ([\d.]+)", found.stdout).groups()
    assert float(after) >= float(before) > 0.5
    rows, partitions = re.search(r"(\d+) rows, (\d+) partitions", found.stdout).groups()
    assert int(rows) == 1450
    assert int(partitions) > 1
    scores = pq.read_table(tmp_path / "scores").to_pandas()
    whole = best_threshold(scores["label"], scores["score"], "f1")
    threshold, score = re.search(r"threshold (\S+), F1 (\S+)", found.stdout).groups()
    assert (float(threshold), float(score)) == whole
    decided = scores["score"] > np.float32(whole.threshold)
    assert float(score) == pytest.approx(f1_score(scores["label"], decided), abs=1e-12)


@pytest.fixture
def shards(tmp_path):
    """Three files of different sizes, in row groups of 200."""
    generator, folder = np.random.default_rng(0), tmp_path / "shards"
    folder.mkdir()
    for name, rows in (("a", 700), ("b", 300), ("c", 450)):
        y = (generator.random(rows) < 0.1).astype(int)
        x = generator.normal(size=(rows, 3)) * 5 + 3 + 8 * y[:, None]
        table = pa.table({f"x{k}": x[:, k] for k in range(3)} | {"y": y})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=200)
    return folder


def test_a_killed_worker_is_restarted_and_goes_on_from_the_checkpoint(shards, tmp_path):
    script, epochs = EXAMPLES / "distributed" / "train.py", 25
    options = ["--epochs", epochs, "--batch", 32]
    command = [*TORCHRUN, "--max-restarts=9", script, shards, tmp_path / "killed.pt", *options]
    workers, starts, scores = {}, [], {}
    with subprocess.Popen(
        [*map(str, command)], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    ) as agent:  # fmt: skip
        for line in agent.stdout:  # which may hold what two processes wrote at the same time
            for rank, process, epoch in START.findall(line):
                workers[rank] = int(process)
                starts.append(int(epoch))
            for epoch, score in SCORE.findall(line):
                scores[int(epoch)] = float(score)
                if epoch == "2" and len(starts) == 2:
                    os.kill(workers["1"], signal.SIGKILL)
    assert agent.returncode == 0
    assert starts[:2] == [0, 0]
    assert len(starts) >= 4  # a restart may fail in gloo, and be tried again
    assert all(3 <= start < epochs for start in starts[2:])
    assert sorted(scores) == list(range(epochs))
    assert scores[epochs - 1] > 0.75 > scores[0]

    run_two(script, shards, tmp_path / "undisturbed.pt", *options)
    one, other = (torch.load(tmp_path / f"{name}.pt") for name in ("killed", "undisturbed"))
    assert one["epochs"] == other["epochs"] == epochs
    torch.testing.assert_close(one["model"], other["model"], rtol=0, atol=0)


def test_the_distributed_example_is_short():
    assert len((EXAMPLES / "distributed" / "train.py").read_text().splitlines()) < 150
