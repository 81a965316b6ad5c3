"""The callbacks of Lightning and of the Hugging Face Trainer do what `refine` does."""

import warnings
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from anyloss.torch import refine

lightning = pytest.importorskip("lightning")
transformers = pytest.importorskip("transformers")

from anyloss.torch.lightning_callback import RefineCallback as LightningCallback  # noqa: E402
from anyloss.torch.trainer_callback import RefineCallback as TrainerCallback  # noqa: E402

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore::Warning:lightning", "ignore::Warning:transformers")
SGD = partial(torch.optim.SGD, lr=0.5)


def rare(n=300, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=g) < 0.15).float()
    return torch.randn(n, 4, generator=g) + 1.2 * y[:, None], y[:, None]


def trained():
    """A network with a batch norm, after some cross-entropy."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 1))
    x, y = rare()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(x), y).backward()
        optimizer.step()
    return model


def loaders():
    return DataLoader(TensorDataset(*rare()), 100), DataLoader(TensorDataset(*rare(seed=1)), 150)


def assert_same(refined, expected):
    scores = refined.share, refined.start_score, refined.end_score
    assert scores == pytest.approx((expected.share, expected.start_score, expected.end_score))
    both = zip(refined.state_dict().values(), expected.state_dict().values(), strict=True)
    for mine, yours in both:
        torch.testing.assert_close(mine, yours, atol=1e-5, rtol=1e-4)


class Module(lightning.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.criterion = nn.BCEWithLogitsLoss(pos_weight=torch.ones(1))
        self.seen = []

    def forward(self, x):
        return self.model(x)

    def training_step(self, batch, index):
        x, y = batch
        self.seen.append("forward" in vars(self.criterion))  # that of the callback
        return self.criterion(self(x), y)

    def validation_step(self, batch, index):
        pass

    def configure_optimizers(self):
        return SGD(self.parameters())


def fit(module, epochs, callback, folder=None, **options):
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=epochs, callbacks=[callback], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=folder,
    )  # fmt: skip
    with warnings.catch_warnings(action="ignore"):  # of the number of workers
        trainer.fit(module, *loaders(), **options)
    return trainer


def renamed(refined):
    """The module within the LightningModule as the only member."""
    found = deepcopy(refined)
    found.members[0] = found.members[0].model
    return found


def test_lightning_refines_a_trained_module_as_refine_does(tmp_path):
    train, valid = loaders()
    expected = refine(trained(), train, "f1", valid=valid, epochs=4, optimizer=SGD)
    module, callback = Module(trained()), LightningCallback("f1")
    fit(module, 4, callback, tmp_path)
    assert_same(renamed(callback.refined), expected)
    assert callback.refined.members[0] is module
    assert "forward" not in vars(module.criterion)
    assert set(module.seen) == {True}


def test_lightning_switches_at_an_epoch_and_goes_on_from_a_checkpoint(tmp_path):
    module, callback = Module(trained()), LightningCallback("f1", at_epoch=2)
    fit(module, 5, callback, tmp_path)
    assert module.seen == [False] * 6 + [True] * 9

    class Save(LightningCallback):
        """Saves after the fourth epoch, as ModelCheckpoint does."""

        def on_train_epoch_end(self, trainer, pl_module):
            super().on_train_epoch_end(trainer, pl_module)
            if trainer.current_epoch == 3:
                trainer.save_checkpoint(tmp_path / "last.ckpt")

    fit(Module(trained()), 4, Save("f1", at_epoch=2), tmp_path)
    resumed, again = Module(trained()), Save("f1", at_epoch=2)
    fit(resumed, 5, again, tmp_path, ckpt_path=tmp_path / "last.ckpt")
    assert resumed.seen == [True] * 3
    assert_same(renamed(again.refined), renamed(callback.refined))


def test_lightning_restores_the_criterion_after_an_error(tmp_path):
    class Failing(Module):
        fails = True

        def training_step(self, batch, index):
            if self.fails:
                raise RuntimeError("out of memory")
            return super().training_step(batch, index)

    module, callback = Failing(trained()), LightningCallback("f1")
    with pytest.raises(RuntimeError, match="out of memory"):
        fit(module, 1, callback, tmp_path)
    assert "forward" not in vars(module.criterion)
    assert callback.state_dict()["kept"]  # what a checkpoint after the error holds
    module.fails = False
    fit(module, 4, callback, tmp_path)  # it begins anew
    train, valid = loaders()
    expected = refine(trained(), train, "f1", valid=valid, epochs=4, optimizer=SGD)
    assert_same(renamed(callback.refined), expected)


def test_the_criterion_must_be_a_module():
    module = Module(trained())
    with pytest.raises(TypeError, match="seen must be a Module.*got"):
        fit(module, 1, LightningCallback("f1", criterion="seen"))


class Model(nn.Module):
    """Like a model of Transformers: it takes keyword arguments and returns a dict."""

    def __init__(self):
        super().__init__()
        self.model = trained()

    def forward(self, inputs, labels=None):
        return {"logits": self.model(inputs)}


@pytest.mark.parametrize("at_epoch", [0, 2])
def test_the_trainer_refines_as_refine_does(at_epoch, tmp_path):
    train, valid = loaders()
    same = partial(
        refine, trained(), train, "f1", valid=valid, start="cross-entropy", optimizer=SGD
    )
    expected = same(epochs=5 - at_epoch, start_epochs=at_epoch)
    arguments = transformers.TrainingArguments(
        tmp_path, use_cpu=True, average_tokens_across_devices=False, num_train_epochs=5,
        per_device_train_batch_size=100, learning_rate=0.5, lr_scheduler_type="constant",
        optim="sgd", max_grad_norm=0.0, train_sampling_strategy="sequential", save_strategy="no",
        report_to="none", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    rows = [{"inputs": x, "labels": y} for x, y in zip(*rare(), strict=True)]
    batches = [{"inputs": x, "labels": y} for x, y in valid]
    callback, model = TrainerCallback("f1", valid=batches, at_epoch=at_epoch), Model()
    with warnings.catch_warnings(action="ignore"):
        transformers.Trainer(
            model, arguments, train_dataset=rows, compute_loss_func=callback.loss,
            callbacks=[callback],
        ).train()  # fmt: skip
    assert_same(renamed(callback.refined), expected)
    assert callback.refined.members[0] is model
