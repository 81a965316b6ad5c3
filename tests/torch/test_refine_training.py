"""How `refine` trains: options against a loop by hand, and checkpoints against a whole run.

Run as a script, this file is a run that is killed: `python test_refine_training.py FOLDER KIND`.
"""

import io
import math
import os
import signal
import subprocess
import sys
import time
from copy import deepcopy
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from anyloss.torch import AnyLoss, Epoch, refine

torch.set_num_threads(1)
adam = partial(torch.optim.Adam, lr=0.02)


def rare(n=400, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=g) < 0.15).float()
    return torch.randn(n, 4, generator=g) + 1.2 * y[:, None], y


def network(seed=0):
    """A network with batch norms, after some cross-entropy."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.1), nn.Linear(6, 1)
    )
    x, y = rare()
    optimizer = adam(model.parameters())
    for _ in range(30):
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(x)[:, 0], y).backward()
        optimizer.step()
    return model


def loader(seed=0):
    return DataLoader(TensorDataset(*rare()), batch_size=100, shuffle=True)


def by_hand(epochs, step, after_epoch=lambda k: None):
    """The refined weights of the recipe in a plain loop; `step` updates the model."""
    x, y = rare()
    model = network().eval()
    at = refine(deepcopy(model), [(x, y)], epochs=0).threshold_
    shift = torch.log(y.sum() / (400 - y.sum()))
    loss = AnyLoss("f1", memory=0.75)  # the counts of an epoch, which has four batches
    torch.manual_seed(1)
    model.train()
    for k in range(epochs):
        for rows in torch.arange(400).split(100):
            z = model(x[rows]).squeeze(1)
            entropy = F.binary_cross_entropy_with_logits(z + shift, y[rows])
            step(model, loss(z - at, y[rows]) + entropy)
        after_epoch(k)
    return model.state_dict()


def refined_weights(**options):
    """The weights after the last refining epoch."""
    x, y = rare()
    model, kept = network(), []
    batches = list(zip(x.split(100), y.split(100), strict=True))
    torch.manual_seed(1)
    refine(
        model, batches, on_epoch=lambda epoch: kept.append(deepcopy(model.state_dict())), **options
    )
    return kept[-1]


def assert_weights(found, expected):
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-5, rtol=1e-5)


def test_optimizer_scheduler_and_clipping():
    made = {}

    def step(model, loss):
        if not made:
            made["optimizer"] = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
            made["scheduler"] = torch.optim.lr_scheduler.ExponentialLR(made["optimizer"], 0.5)
        made["optimizer"].zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        made["optimizer"].step()

    expected = by_hand(3, step, lambda k: made["scheduler"].step())
    found = refined_weights(
        epochs=3, optimizer=partial(torch.optim.SGD, lr=1.0, momentum=0.9), max_norm=0.05,
        scheduler=partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5),
    )  # fmt: skip
    assert_weights(found, expected)


def test_parameter_groups_and_frozen_layers():
    before = network()
    frozen = deepcopy(before.state_dict())
    x, y = rare()
    rates = []

    def optimizer(groups):
        found = torch.optim.SGD(groups, lr=0.5)
        rates.append([group["lr"] for group in found.param_groups])
        return found

    model = network()
    groups = [{"params": model[4].weight}, {"params": iter([model[4].bias]), "lr": 0.1}]
    found = refine(model, [(x, y)], optimizer=optimizer, parameters=groups, valid=[rare(seed=1)])
    assert rates == [[0.5, 0.1]]
    assert len(found.history) == 10
    for name, value in model.state_dict().items():
        same = torch.equal(value, frozen[name])
        assert same == (not name.startswith("4.") or found.share == 0.0)
    assert all(p.requires_grad for p in model.parameters())
    plain = network()
    head = refine(plain, [(x, y)], optimizer=optimizer, parameters=plain[4].parameters())
    assert torch.equal(plain[0].weight, frozen["0.weight"])
    assert head.share == 0.5


def test_the_running_average_is_judged_and_kept():
    seen = []

    def step(model, loss):
        if not seen:
            seen.append(torch.optim.SGD(model.parameters(), lr=0.5))
            seen.append([p.detach().clone() for p in model.parameters()])
        seen[0].zero_grad()
        loss.backward()
        seen[0].step()
        seen[1] = [
            0.9 * a + 0.1 * p.detach() for a, p in zip(seen[1], model.parameters(), strict=True)
        ]

    by_hand(2, step)
    x, y = rare()
    batches = list(zip(x.split(100), y.split(100), strict=True))
    model = network()
    torch.manual_seed(1)
    found = refine(
        model, batches, epochs=2, ema=0.9, optimizer=partial(torch.optim.SGD, lr=0.5), ensemble=True
    )
    assert found.share == 0.5
    for mine, yours in zip(found.members[1].parameters(), seen[1], strict=True):
        torch.testing.assert_close(mine.detach(), yours, atol=1e-5, rtol=1e-5)


def test_early_stopping_keeps_the_best_epoch():
    x, y = rare()
    valid, states = rare(seed=1), []
    model = network()
    found = refine(
        model, [(x, y)], valid=[valid], epochs=50, patience=3, optimizer=adam,
        on_epoch=lambda epoch: states.append(deepcopy(model.state_dict())),
    )  # fmt: skip
    scores = [epoch.score for epoch in found.history]
    assert 3 < len(scores) < 50
    best = scores.index(max(scores))
    assert len(scores) >= best + 1 + 3
    assert found.share == 1.0
    best = [state for state, score in zip(states, scores, strict=True) if score == max(scores)]
    kept = model.state_dict()
    assert any(all(torch.equal(kept[name], state[name]) for name in kept) for state in best)
    assert found.end_score >= found.start_score


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    seen = set()

    class Spy(nn.Linear):
        def forward(self, x):
            z = super().forward(x)
            seen.add((self.training, z.dtype))
            return z

    torch.manual_seed(0)
    x, y = rare()
    model = Spy(4, 1)
    found = refine(model, [(x, y)], start_epochs=30, autocast=dtype, optimizer=adam)
    assert seen >= {(True, dtype), (False, torch.float32)}
    assert model.weight.dtype == found(x).dtype == torch.float32
    torch.manual_seed(0)
    full = refine(Spy(4, 1), [(x, y)], start_epochs=30, optimizer=adam)
    assert found.end_score == pytest.approx(full.end_score, abs=0.05)


def test_the_progress_bar(capsys):
    x, y = rare()
    refine(network(), [(x, y)], epochs=2, progress=True)
    shown = capsys.readouterr()
    assert "metric 2 of 2" in shown.err
    assert not shown.out


def test_samplers_receive_the_epoch():
    seen = []

    class Sampler(list):
        def set_epoch(self, epoch):
            seen.append(epoch)

    data = TensorDataset(*rare())
    batches = DataLoader(data, batch_size=100, sampler=Sampler(range(400)))
    refine(network(), batches, start_epochs=2, epochs=2)
    assert seen == [1, 2, 3, 4]


def test_a_compiled_model():
    x, y = rare()
    model = torch.compile(network(), backend="eager")
    found = refine(model, [(x, y)], epochs=2)
    torch.manual_seed(0)
    assert found.end_score >= found.start_score


WRONG = [
    ({"start": "random"}, "start must be 'logit-adjusted' or 'cross-entropy'; got 'random'"),
    ({"cross_entropy": -1}, "cross_entropy must be a number >= 0; got -1"),
    ({"cross_entropy": float("nan")}, "cross_entropy must be a number >= 0; got nan"),
    ({"epochs": 1.5}, "epochs must be an integer of at least 0; got 1.5"),
    ({"start_epochs": "2"}, "start_epochs must be an integer of at least 0; got '2'"),
    ({"ema": 1.0}, "ema must be a decay of at least 0 and below 1; got 1.0"),
    ({"max_norm": 0.0}, "max_norm must be a number above 0; got 0.0"),
    ({"ema": "x"}, "ema must be a decay of at least 0 and below 1; got 'x'"),
    ({"patience": 3}, "patience .* needs validation rows; got patience=3 and no valid"),
    ({"patience": 0, "valid": [rare()]}, "patience must be an integer of at least 1"),
    ({"patience": 1.5, "valid": [rare()]}, "patience must be an integer .* got patience=1.5"),
    ({"parameters": []}, "no parameter to train"),
    ({"parameters": network().parameters()}, "parameters must be those of the model"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        refine(network(), [rare()], **options)


def test_what_is_no_model_and_no_checkpoint(tmp_path):
    with pytest.raises(TypeError, match="model must be a torch.nn.Module; got function"):
        refine(lambda x: x, [rare()])
    other = io.BytesIO()
    torch.save(torch.ones(2), other)
    for content in (b"xx", b"", other.getvalue()):
        (tmp_path / "bad.pt").write_bytes(content)
        with pytest.raises(ValueError, match="bad.pt is not a checkpoint that refine has written"):
            refine(network(), [rare()], checkpoint=tmp_path / "bad.pt")


def test_autocast_is_a_type():
    with pytest.raises(
        TypeError, match="autocast must be a type such as torch.bfloat16; got 'bf16'"
    ):
        refine(network(), [rare()], autocast="bf16")


KINDS = {
    "start": {"start_epochs": 6, "epochs": 2},
    "metric": {"epochs": 8, "ema": 0.9, "max_norm": 1.0},
    "half precision": {"epochs": 8, "autocast": torch.float16},
    "early stopping": {"epochs": 30, "patience": 2},
}


def run(kind, checkpoint=None, on_epoch=None):
    options = {
        "optimizer": adam, "valid": [rare(seed=1)],
        "scheduler": partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.9),
    } | KINDS[kind]  # fmt: skip
    model = network()
    torch.manual_seed(5)
    return refine(model, loader(), checkpoint=checkpoint, on_epoch=on_epoch, **options)


def assert_equal(one, other):
    assert [epoch[:3] for epoch in one.history] == [epoch[:3] for epoch in other.history]
    scores = zip(one.history, other.history, strict=True)
    assert all(a.score == b.score or math.isnan(a.score + b.score) for a, b in scores)
    assert (one.share, one.start_score, one.end_score) == (
        other.share,
        other.start_score,
        other.end_score,
    )
    for mine, yours in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(mine, yours)


class Stop(Exception):
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_goes_on_to_the_same_bits(kind, tmp_path):
    whole = run(kind)
    file, seen = tmp_path / "state.pt", []

    def stop(epoch):
        seen.append(epoch[:2])
        raise Stop

    for _ in whole.history:  # stopped after every epoch
        with pytest.raises(Stop):
            run(kind, file, stop)
    assert seen == [epoch[:2] for epoch in whole.history]
    assert_equal(run(kind, file), whole)
    assert_equal(run(kind, file), whole)  # a finished run, too
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


def test_other_settings_than_those_of_the_checkpoint_are_an_error(tmp_path):
    file, x_y = tmp_path / "state.pt", rare()
    refine(network(), [x_y], epochs=1, checkpoint=file)
    before = file.read_bytes()
    for options, name in (
        ({"epochs": 2}, "epochs=1; got epochs=2"), ({"metric": "mcc"}, "loss=.*'f1'.*; got loss=.*'mcc'"),
        ({"priors": [0.5, 0.5]}, "priors=None; got"), ({"ema": 0.9}, "ema=None"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"was written with {name}"):
            refine(network(), [x_y], **({"epochs": 1, "checkpoint": file} | options))
    sgd, model = partial(torch.optim.SGD, lr=0.1), network()
    weights = deepcopy(model.state_dict())
    for options, name in (
        ({"optimizer": sgd}, r"optimizer=Adam\(lr=0.001.*; got optimizer=SGD\(lr=0.1"),
        ({"optimizer": partial(torch.optim.Adam, lr=0.1)}, "optimizer=Adam.*got optimizer=Adam"),
        ({"scheduler": partial(torch.optim.lr_scheduler.StepLR, step_size=1)}, "scheduler=None; "),
    ):
        with pytest.raises(ValueError, match=f"was written with {name}"):
            refine(model, [x_y], **({"epochs": 1, "checkpoint": file} | options))
    torch.testing.assert_close(model.state_dict(), weights, rtol=0, atol=0)
    assert file.read_bytes() == before


@pytest.mark.parametrize("epoch", [1, 4])
def test_a_killed_run_loses_at_most_an_epoch(epoch, tmp_path):
    command = [sys.executable, __file__, str(tmp_path), "metric"]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in killed.stdout:
        if line.split()[0] == str(epoch):
            os.kill(killed.pid, signal.SIGKILL)
            break
    killed.stdout.close()
    assert killed.wait(timeout=60) == -signal.SIGKILL
    saved = torch.load(tmp_path / "state.pt", weights_only=True)["core"]["history"]
    assert len(saved) >= epoch
    seen: list[Epoch] = []
    resumed = run("metric", tmp_path / "state.pt", seen.append)
    assert len(seen) == 8 - len(saved)
    assert_equal(resumed, run("metric"))


if __name__ == "__main__":

    def report(epoch):
        print(epoch.number, flush=True)
        time.sleep(0.2)  # so that the kill comes within an epoch or while writing

    run(sys.argv[2], Path(sys.argv[1]) / "state.pt", report)


def test_a_refinement_that_diverges_leaves_the_start():
    torch.manual_seed(0)
    x = torch.randn(200, 2)
    batches = [(x, (x[:, 0] > 1).float())]
    model = torch.nn.Linear(2, 1)
    refine(model, batches, valid=batches, start_epochs=50, epochs=0)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    with pytest.warns(UserWarning, match="no longer finite in epoch 1 of the refinement"):
        found = refine(
            model, batches, valid=batches, epochs=5,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=math.inf),
        )  # fmt: skip
    assert (found.share, found.end_score) == (0, found.start_score)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
