"""`benchmarks/deep.py`: the losses of peers have their published values, and a run can be stopped."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import ttest_rel
from sklearn.metrics import f1_score, jaccard_score
from sklearn.utils.class_weight import compute_sample_weight

FOLDER = Path(__file__).parents[2] / "benchmarks"
COMMAND = [sys.executable, str(FOLDER / "deep.py")]


@pytest.fixture(scope="module")
def methods():
    sys.path.insert(0, str(FOLDER))
    try:
        import deep_methods

        yield deep_methods
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture
def masks():
    torch.manual_seed(0)
    return torch.randn(3, 4, 8, 8), torch.randint(0, 4, (3, 8, 8))


def test_dice_tversky_and_focal_have_the_values_of_monai(methods, masks):
    from monai.losses import DiceCELoss, DiceLoss, FocalLoss, TverskyLoss

    z, y = masks
    labels = methods.Labels("multiclass", torch.bincount(y.flatten()).float())
    options = {"softmax": True, "to_onehot_y": True, "batch": True}
    for ours, theirs in (
        (methods.soft_dice, DiceLoss(**options)),
        (methods.dice_and_cross_entropy, DiceCELoss(**options)),
        (methods.tversky, TverskyLoss(**options, alpha=0.3, beta=0.7)),
    ):
        expected = theirs(z, y[:, None]).item()
        assert ours(labels)(z, y, 0.0).item() == pytest.approx(expected, abs=1e-6)
    one = methods.Labels("binary", torch.ones(2, 1))
    column, truth = z[:, :1], (y[:, None] == 1).float()
    expected = FocalLoss(gamma=2.0)(column, truth).item()
    assert methods.focal(one)(column, truth, 0.0).item() == pytest.approx(expected, abs=1e-6)


def test_weighted_cross_entropy_weighs_as_scikit_learn_does(methods):
    y = torch.tensor([0, 0, 0, 1, 2, 2])
    z = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    labels = methods.Labels("multiclass", torch.bincount(y).float())
    rows = torch.nn.functional.cross_entropy(z, y, reduction="none")
    expected = (torch.tensor(compute_sample_weight("balanced", y.numpy())) * rows).mean().item()
    assert methods.weighted_cross_entropy(labels)(z, y, 0.0).item() == pytest.approx(expected)
    binary = methods.Labels("binary", torch.tensor([[4.0], [2.0]]))
    column, truth = z[:, 0], (y == 2).float()
    rows = torch.nn.functional.binary_cross_entropy_with_logits(column, truth, reduction="none")
    expected = (torch.tensor(compute_sample_weight("balanced", truth.numpy())) * rows).mean().item()
    found = methods.weighted_cross_entropy(binary)(column, truth, 0.0).item()
    assert found == pytest.approx(expected)


def test_lovasz_is_the_jaccard_loss_of_certain_decisions(methods, masks):
    z, y = masks
    certain = 1000.0 * torch.nn.functional.one_hot(z.argmax(1), 4).movedim(-1, 1)
    labels = methods.Labels("multiclass", torch.ones(4))
    expected = 1 - jaccard_score(y.flatten(), z.argmax(1).flatten(), average="macro")
    assert methods.lovasz(labels)(certain, y, 0.0).item() == pytest.approx(expected, abs=1e-5)


def test_ldam_of_two_classes_is_that_of_their_difference(methods):
    g = torch.Generator().manual_seed(0)
    z, y = torch.randn(9, 2, generator=g), torch.tensor([0, 1, 0] * 3)
    counts = torch.tensor([6.0, 3.0])
    several = methods.ldam(methods.Labels("multiclass", counts))
    one = methods.ldam(methods.Labels("binary", counts[:, None]))
    for passed in (0.0, 0.9):
        expected = several(z, y, passed).item()
        assert one(z[:, 1] - z[:, 0], y.float(), passed).item() == pytest.approx(expected)


def test_scores_have_the_training_shares_of_the_classes(methods):
    """The weighted test score is scikit-learn's with the same weights."""
    import deep_tasks as tasks

    g = torch.Generator().manual_seed(0)
    y, z = torch.arange(3).repeat(50), torch.randn(150, 3, generator=g)
    rows = tasks.Rows(torch.zeros(150, 1), y)
    data = tasks.Data(rows, rows, rows, torch.nn.Identity, torch.tensor([0.7, 0.2, 0.1]))
    task, goal = tasks.TASKS["mnist-lt"], tasks.Goal("f1", "macro")
    score, column, _ = methods.judge(task, data, goal, "test", z)
    weight = np.array([0.7, 0.2, 0.1])[y] * 3
    expected = f1_score(y, z.argmax(1), average="macro", sample_weight=weight)
    assert score(column) == pytest.approx(expected)
    assert methods.row_weights(data, goal._replace(uniform=True), "test") is None


def test_intervals_are_those_of_the_paired_t_test(methods):
    import deep_summary as summary

    a, b = np.random.default_rng(0).random((2, 5))
    cells = {("a", "tuned"): dict(enumerate(a)), ("b", "tuned"): dict(enumerate(b))}
    found = summary.difference(cells, ("a", "tuned"), ("b", "tuned"))
    expected = ttest_rel(a, b).confidence_interval()
    assert found[1:3] == pytest.approx((expected.low, expected.high))


def write_data(folder):
    """A few multilabel rows and tables; the other files are absent."""
    rng = np.random.default_rng(0)
    (folder / "multilabel").mkdir()
    x = rng.normal(size=(120, 5)).astype(np.float32)
    np.savez(folder / "multilabel" / "birds.npz", X=x, Y=(x[:, :3] > 0.5).astype(np.uint8))


@pytest.mark.slow("starts several processes")
def test_a_run_goes_on_where_it_was_stopped(tmp_path):
    write_data(tmp_path)
    journal = tmp_path / "journal.jsonl"
    names = ["--methods", "cross-entropy", "loss + 0.1 CE", "refine"]
    command = [*COMMAND, "--data", str(tmp_path), "--journal", str(journal), "--quick"]
    command += ["--tasks", "birds", "mnist-lt", *names]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "mnist-lt is left out" in first.stderr
    lines = journal.read_bytes().splitlines(keepends=True)
    assert [json.loads(x)["unit"] for x in lines[1:]] == [f"birds | {x} | 0" for x in names[1:]]
    journal.write_bytes(b"".join(lines[:3]) + lines[3][:20])
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "birds | refine | 0" in again.stderr
    assert "birds | cross-entropy | 0" not in again.stderr
    assert again.stdout == first.stdout
    assert "| refine |" in again.stdout
    other = subprocess.run(
        [*COMMAND, "--journal", str(journal), "--tables"], capture_output=True, text=True
    )
    assert "was written with" in other.stderr
