"""The score as a metric of torchmetrics: its numbers, its wrappers, ranks and Lightning.

Run as a script, this file is one of two ranks: `python test_torchmetrics.py FOLDER RANK`.
"""

import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

torchmetrics = pytest.importorskip("torchmetrics")

from torchmetrics import MetricCollection, MetricTracker, classification  # noqa: E402
from torchmetrics.wrappers import BootStrapper, ClasswiseWrapper  # noqa: E402

from anyloss.torch import ScoreMeter  # noqa: E402
from anyloss.torchmetrics import Score  # noqa: E402

pytestmark = pytest.mark.xdist_group("torchmetrics")  # they share the processes of a fixture

SIZES = {"Binary": {}, "Multiclass": {"num_classes": 4}, "Multilabel": {"num_labels": 4}}
AVERAGES = ("macro", "micro", "weighted", "none")


def batches(task, seed=0, sizes=(40, 25, 35)):
    """Probabilities and labels; each class is in each batch."""
    g = torch.Generator().manual_seed(seed)
    for size in sizes:
        if task == "Multiclass":
            p = torch.rand(size, 4, generator=g) ** 3
            y = torch.cat([torch.arange(4), torch.randint(0, 4, (size - 4,), generator=g)])
            yield p / p.sum(1, keepdim=True), y
        else:
            shape = (size,) if task == "Binary" else (size, 4)
            y = (torch.rand(shape, generator=g) < 0.4).long()
            yield torch.rand(shape, generator=g), y


def references():
    """torchmetrics' metrics and ours: the task, their name and options, our metric and options."""
    columns = {
        "F1Score": "f1", "JaccardIndex": "jaccard", "Specificity": "specificity",
        "Precision": "precision", "Recall": "recall", "NegativePredictiveValue": "npv",
    }  # fmt: skip
    for name, metric in columns.items():
        yield "Binary", name, {}, metric, {}
        for task in ("Multiclass", "Multilabel"):
            for average in AVERAGES:
                yield task, name, {"average": average}, metric, {"average": average}
    for task in SIZES:
        fbeta = {"average": "macro"} if task != "Binary" else {}
        yield task, "FBetaScore", {"beta": 2.0, **fbeta}, "fbeta", {"beta": 2.0, **fbeta}
    yield "Binary", "Accuracy", {}, "accuracy", {}
    yield "Binary", "Accuracy", {"threshold": 0.7}, "accuracy", {"threshold": 0.7}
    yield "Multiclass", "Accuracy", {"average": "micro"}, "accuracy", {}
    yield "Multiclass", "Accuracy", {"average": "macro"}, "balanced_accuracy", {}
    yield "Multilabel", "Accuracy", {"average": "macro"}, "accuracy", {}
    for task in ("Binary", "Multiclass"):
        yield task, "MatthewsCorrCoef", {}, "mcc", {}
        yield task, "CohenKappa", {}, "cohen_kappa", {}
    yield "Multilabel", "MatthewsCorrCoef", {}, "mcc", {"average": "micro"}


def both(task, name, options, metric, ours):
    theirs = getattr(classification, task + name)(**SIZES[task], **options)
    return theirs, Score(metric, from_logits=False, **ours)


def close(found, expected):
    torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=2e-6)


@pytest.mark.parametrize("case", [*references()], ids=lambda case: " ".join(map(str, case)))
def test_batches_and_their_sum_have_the_scores_of_torchmetrics(case):
    theirs, ours = both(*case)
    for p, y in batches(case[0]):
        close(ours(p, y), theirs(p, y))
    close(ours.compute(), theirs.compute())
    for metric in (theirs, ours):
        metric.reset()
    for p, y in batches(case[0], seed=1):
        ours.update(preds=p, target=y)
        theirs.update(p, y)
    close(ours.compute(), theirs.compute())


OPTIONS = [
    ("Binary", {"threshold": 0.3}),
    ("Multilabel", {"average": None, "ignore_index": 0}),
    ("Multiclass", {"metric": "mcc", "ignore_index": 2}),
    ("Multiclass", {"include_background": False, "class_weights": [1.0, 2.0, 5.0]}),
    ("Multilabel", {"classes": [2, 0], "average": None}),
    ("Multilabel", {"threshold": [0.2, 0.4, 0.6, 0.8]}),
    ("Multiclass", {"top_k": 2, "average": None}),
    ("Multiclass", {"metric": "tp / (tp + 0.3*fp + 2*fn)", "average": "weighted"}),
]


@pytest.mark.parametrize(("task", "options"), OPTIONS)
def test_it_gives_the_numbers_of_the_meter_weights_included(task, options):
    score, meter = (each(from_logits=False, **options) for each in (Score, ScoreMeter))
    for p, y in batches(task):
        weight = torch.rand(len(p))
        score.update(p, y, weight)
        meter.update(p, y, weight)
    torch.testing.assert_close(score.compute(), meter.compute(), rtol=0, atol=0)


def test_it_has_every_option_of_the_meter():
    ours, meters = (inspect.signature(each).parameters for each in (Score, ScoreMeter))
    assert {name for name in meters if name != "params"} < ours.keys()
    assert "Default: a step" in Score.__doc__  # the text of the meter, not that of the losses
    with pytest.raises(ValueError, match="takes no per_sample="):
        Score(per_sample=True)
    with pytest.raises(TypeError, match="did you mean 'from_logits'"):
        Score(from_logit=True)
    assert repr(Score("mcc", threshold=0.3)) == repr(ScoreMeter("mcc", threshold=0.3)).replace(
        "ScoreMeter", "Score"
    )


def test_a_collection_shares_counts_where_they_are_equal_and_only_there():
    options = {"from_logits": False}
    given = {
        "f1": Score("f1", **options),
        "mcc": Score("mcc", **options),
        "classes": Score("f1", average=None, zero_division=0, **options),
        "ignored": Score("f1", ignore_index=7, **options),
        "theirs": classification.MulticlassF1Score(4),
    }
    metrics = MetricCollection(given)
    expected = {name: metric.clone() for name, metric in given.items()}
    for p, y in batches("Multiclass"):
        metrics.update(p, y)
        for metric in expected.values():
            metric.update(p, y)
    groups = [set(group) for group in metrics.compute_groups.values()]
    assert {"f1", "mcc", "classes"} in groups
    assert {"ignored"} in groups
    for name, score in metrics.compute().items():
        torch.testing.assert_close(score, expected[name].compute(), rtol=0, atol=1e-12)
    metrics.reset()
    for p, y in batches("Multiclass", seed=1):
        found = metrics(p, y)
    close(found["f1"], found["theirs"])
    close(metrics.compute()["f1"], metrics.compute()["theirs"])


def test_two_thresholds_that_the_first_batch_does_not_tell_apart_stay_two():
    """torchmetrics' own metrics become one, which then counts with the first threshold."""
    p, y = torch.tensor([0.1, 0.9, 0.8]), torch.tensor([0, 1, 0])
    for task, extra in (("binary", ()), ("multilabel", (1,))):  # a threshold, and one per label
        metrics = MetricCollection(
            {
                f"at_{t}": Score(
                    "f1", threshold=[t / 10] if extra else t / 10, from_logits=False, task=task
                )
                for t in (5, 7)
            }
        )
        metrics.update(p.reshape(3, *extra), y.reshape(3, *extra))
        metrics.update(torch.tensor([0.6]).reshape(1, *extra), torch.ones(1, *extra))
        found = metrics.compute()
        assert found["at_5"].item() == pytest.approx(4 / 5)
        assert found["at_7"].item() == pytest.approx(2 / 4)


def test_a_copy_a_pickle_and_a_state_go_on():
    first, *others = batches("Multilabel")
    score = Score("f1", from_logits=False)
    score.update(*first)
    score.persistent(True)
    loaded = Score("f1", from_logits=False)
    loaded.load_state_dict(score.state_dict())
    assert sorted(score.state_dict()) == ["batches", "counts"]
    resumed = [score, score.clone(), pickle.loads(pickle.dumps(score)), loaded]
    assert resumed[3]._update_count == 0
    for metric in resumed:
        for batch in others:
            metric.update(*batch)
    whole = Score("f1", from_logits=False)
    for batch in batches("Multilabel"):
        whole.update(*batch)
    for metric in resumed:
        torch.testing.assert_close(metric.compute(), whole.compute(), rtol=0, atol=0)
    assert Score("f1").state_dict() == {}


def test_a_state_of_other_options_is_refused():
    score, other = Score("f1"), Score("f1", threshold=0.3)
    score.update(torch.tensor([1.0]), torch.tensor([1]))
    score.persistent(True)
    other.load_state_dict(score.state_dict())
    with pytest.warns(UserWarning, match="before the ``update``"), pytest.raises(
        ValueError, match="made with the options of Score"
    ):  # fmt: skip
        other.compute()


def test_states_are_merged():
    parts = [Score("f1", from_logits=False) for _ in range(4)]  # the last has no batch
    whole = Score("f1", from_logits=False)
    for part, batch in zip(parts, batches("Multiclass"), strict=False):
        part.update(*batch)
        whole.update(*batch)
    for part in parts[:-1]:
        parts[-1].merge_state(part)
    parts[0].merge_state(Score("f1", from_logits=False).metric_state)
    with pytest.warns(UserWarning, match="before the ``update``"):
        assert parts[-1].compute() == whole.compute()
    other = Score("f1", threshold=0.2, from_logits=False, task="binary")
    other.update(torch.rand(3), torch.ones(3))
    with pytest.raises(ValueError, match="expected binary with 1, got multiclass with 4"):
        parts[1].merge_state(other)


def test_batches_of_another_task_are_refused_in_update_and_in_forward():
    for way in ("update", "forward"):
        score = Score("f1", from_logits=False)
        score(*next(batches("Multiclass")))
        with pytest.raises(ValueError, match="expected multiclass with 4, got multilabel with 4"):
            getattr(score, way)(*next(batches("Multilabel")))
    with pytest.warns(UserWarning, match="before the ``update``"), pytest.raises(
        ValueError, match="needs at least one batch"
    ):  # fmt: skip
        Score("f1").compute()


def test_wrappers():
    p, y = next(batches("Multiclass"))
    tracker = MetricTracker(Score("f1", from_logits=False), maximize=True)
    for k in (1, 2):
        tracker.increment()
        tracker.update(p, y if k == 1 else p.argmax(1))
    assert tracker.best_metric(return_step=True) == (1.0, 1)
    torch.manual_seed(0)
    resampled = BootStrapper(Score("f1", from_logits=False), num_bootstraps=20)
    resampled.update(p, y)
    found = resampled.compute()
    theirs = torchmetrics.functional.classification.multiclass_f1_score(p, y, 4)
    assert abs(found["mean"] - theirs) < 3 * found["std"]
    classwise = ClasswiseWrapper(Score("f1", average=None, from_logits=False))
    assert sorted(classwise(p, y)) == [f"score_{k}" for k in range(4)]


def test_it_moves_and_keeps_its_counts_in_double():
    score = Score("f1")
    score.to("meta")
    assert (score.counts.device.type, score.batches.device.type) == ("meta", "meta")
    score = Score("f1").half()
    score.update(torch.tensor([1.0, 2.0]), torch.tensor([1, 0]))
    assert score.counts.dtype == torch.float64
    score.reset()
    assert score.counts.shape == (4, 1, 1, 1)


@pytest.mark.slow("trains with Lightning")
@pytest.mark.filterwarnings("ignore")  # of Lightning: workers, logging intervals
def test_lightning_logs_the_score_of_each_epoch():
    lightning = pytest.importorskip("lightning")
    y = (torch.rand(100, generator=torch.Generator().manual_seed(0)) < 0.4).long()
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(1)) + y[:, None]
    logged = []

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = torch.nn.Linear(3, 1)
            self.score, self.theirs = Score("f1"), classification.BinaryF1Score()

        def training_step(self, batch, index):
            logits = self.model(batch[0])[:, 0]
            self.log("batch", self.score(logits, batch[1]))
            self.theirs.update(logits.sigmoid(), batch[1])
            self.log("f1", self.score, on_step=False, on_epoch=True)
            self.log("theirs", self.theirs, on_step=False, on_epoch=True)
            return torch.nn.functional.binary_cross_entropy_with_logits(logits, batch[1].float())

        def on_train_epoch_start(self):
            assert not self.score.update_called  # Lightning resets what it logs

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1.0)

    class Keep(lightning.Callback):
        def on_train_epoch_end(self, trainer, module):
            logged.append([float(trainer.callback_metrics[name]) for name in ("f1", "theirs")])

    torch.manual_seed(0)
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=3, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[Keep()],
    )  # fmt: skip
    data = torch.utils.data.TensorDataset(x, y)
    trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=32))
    assert len(logged) == 3
    assert logged[0] != logged[2]
    for ours, theirs in logged:
        assert ours == pytest.approx(theirs, abs=1e-6)


CASES = {
    "binary": ("Binary", "F1Score", {}, "f1", {}),
    "macro": ("Multiclass", "F1Score", {"average": "macro"}, "f1", {"average": "macro"}),
    "none": ("Multilabel", "JaccardIndex", {"average": "none"}, "jaccard", {"average": None}),
    "mcc": ("Multiclass", "MatthewsCorrCoef", {}, "mcc", {}),
}


def run(rank):
    """The synchronised scores of this rank, theirs and ours; the second rank has fewer batches."""
    found = {}
    for name, case in CASES.items():
        theirs, ours = both(*case)
        for k, batch in enumerate(batches(case[0])):
            if k % 2 == rank:
                theirs.update(*batch)
                ours.update(*batch)
        found[name] = torch.stack([theirs.compute().double(), ours.compute()])
        ours.update(*batch)  # the own counts are back after the exchange
        found[f"{name}, own"] = ours.counts
        empty, step = Score(case[3], from_logits=False, **case[4]), both(*case)[1]
        if rank == 0:
            for batch in batches(case[0]):
                empty.update(*batch)
        found[f"{name}, one rank without a batch"] = empty.compute()
        step.dist_sync_on_step = True
        found[f"{name}, step"] = step(*list(batches(case[0]))[rank])
        empty.sync()  # the other way to exchange
        found[f"{name}, sync"] = empty.counts
        empty.unsync()
    collection = MetricCollection([Score("f1", from_logits=False)])
    collection.add_metrics({"mcc": Score("mcc", from_logits=False)})
    collection.update(*list(batches("Binary"))[rank])
    found["collection"] = torch.stack(list(collection.compute().values()))
    mixed = Score("f1", from_logits=False)
    mixed.update(*next(batches(["Multiclass", "Multilabel"][rank])))
    with pytest.raises(ValueError, match="expected multiclass with 4, got multilabel with 4"):
        mixed.compute()
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen([sys.executable, __file__, str(folder), str(rank)], env=environment)
        for rank in (0, 1)
    ]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_have_the_score_of_all_batches(ranks, name):
    case = CASES[name]
    theirs, ours = both(*case)
    all_batches = list(batches(case[0]))
    for batch in all_batches:
        theirs.update(*batch)
        ours.update(*batch)
    step = both(*case)[0]
    for batch in all_batches[:2]:
        step.update(*batch)
    own = Score(case[3], from_logits=False, **case[4])
    for rank, found in enumerate(ranks):
        close(found[name][0], theirs.compute())
        torch.testing.assert_close(found[name][1], ours.compute(), rtol=0, atol=1e-12)
        without = found[f"{name}, one rank without a batch"]
        torch.testing.assert_close(without, ours.compute(), rtol=0, atol=1e-12)
        torch.testing.assert_close(found[f"{name}, sync"], ours.counts, rtol=0, atol=0)
        close(found[f"{name}, step"], step.compute())
        own.reset()
        for batch in [*all_batches[rank::2], all_batches[-1]]:
            own.update(*batch)
        torch.testing.assert_close(found[f"{name}, own"], own.counts, rtol=0, atol=0)


def test_a_collection_of_two_ranks(ranks):
    expected = []
    for name in ("F1Score", "MatthewsCorrCoef"):
        metric = getattr(classification, f"Binary{name}")()
        for batch in list(batches("Binary"))[:2]:
            metric.update(*batch)
        expected.append(metric.compute())
    for found in ranks:
        close(found["collection"], torch.stack(expected))


if __name__ == "__main__":
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.save(run(rank), folder / f"{rank}.pt")
    dist.destroy_process_group()


def test_another_type_changes_no_count():
    score = Score("f1").set_dtype(torch.float16)
    score.update(torch.tensor([1.0, -1.0]), torch.tensor([1, 1]))
    assert score.compute().item() == pytest.approx(2 / 3)
