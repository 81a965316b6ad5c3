"""Our losses and those of other libraries that compute the same: what `peers.py` measures."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import keras
import torch
from kornia.losses import dice_loss, tversky_loss
from monai.losses import DiceCELoss, DiceLoss, MCCLoss, TverskyLoss
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot

from anyloss.steps import DEFAULT, Amplified, Uniform
from anyloss.torch import AnyLoss

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # input, target, weight
ALPHA, BETA = 0.3, 0.7  # of Tversky: the weights of false positives and false negatives
SHARE = 0.1  # of cross-entropy
STEPS = {"": DEFAULT, "Amplified(73)": Amplified(73.0)}
if Uniform() != DEFAULT:
    STEPS["Uniform"] = Uniform()
METRICS = {"F1": "f1", "MCC": "mcc", "Tversky": "tversky"}


class Kind(NamedTuple):
    """What a loss computes. Losses of the same kind have the same value."""

    metric: str
    step: str = ""  # the default step if empty
    per_sample: bool = False
    weighted: bool = False
    cross_entropy: bool = False
    compiled: bool = False

    def plain(self) -> Kind:
        """The kind of the same metric and step without further options."""
        return Kind(self.metric, self.step)

    def __str__(self) -> str:
        words = [self.metric + (f" + {SHARE} CE" if self.cross_entropy else ""), self.step]
        words += [
            x.replace("_", " ") for x in ("per_sample", "weighted", "compiled") if getattr(self, x)
        ]
        return ", ".join(filter(None, words))


class Entry(NamedTuple):
    """A loss of a kind and whose it is: "ours" or the name of a peer."""

    kind: Kind
    owner: str
    loss: Loss


CROSS_ENTROPY = Kind("cross-entropy")


def entries(shape: tuple[int, ...], compiled: bool) -> list[Entry]:
    """All losses for inputs of a shape."""
    several = len(shape) > 1 and shape[1] > 1
    found = [*our_losses(len(shape) > 2, several, compiled)]
    found += class_peers(len(shape), shape[1]) if several else column_peers(len(shape))
    if compiled:
        (dice,) = (e for e in found if e.kind == Kind("F1") and e.owner == "soft Dice")
        found.append(Entry(Kind("F1", compiled=True), "soft Dice", compiled_loss(dice.loss)))
    return found


def our_losses(samples: bool, several: bool, compiled: bool) -> list[Entry]:
    kinds = [Kind(metric, step) for metric in METRICS for step in STEPS]
    kinds += [kind._replace(per_sample=True) for kind in kinds if samples]
    kinds += [Kind(metric, weighted=True) for metric in METRICS]
    kinds += [Kind("F1", "Amplified(73)", weighted=True)]
    kinds += [Kind("F1", per_sample=True, weighted=True)] * samples
    kinds += [Kind("F1", cross_entropy=True), Kind("F1", weighted=True, cross_entropy=True)]
    kinds += [Kind("F1", per_sample=True, cross_entropy=True)] * samples
    kinds += [Kind("MCC of all classes")] * several
    if compiled:
        kinds += [Kind(metric, compiled=True) for metric in METRICS]
        kinds += [Kind("F1", "Amplified(73)", compiled=True)]
    return [Entry(kind, "ours", our_loss(kind, several)) for kind in kinds]


def our_loss(kind: Kind, several: bool) -> Loss:
    own_form = kind.metric == "MCC of all classes"
    parameters = {"alpha": ALPHA, "beta": BETA} if kind.metric == "Tversky" else {}
    module = AnyLoss(
        METRICS["MCC" if own_form else kind.metric],
        step=STEPS[kind.step],
        average="macro" if several and not own_form else "auto",
        per_sample=kind.per_sample,
        cross_entropy=SHARE * kind.cross_entropy,
        **parameters,
    )

    def loss(z: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return module(z, y, w) if kind.weighted else module(z, y)

    return compiled_loss(loss) if kind.compiled else loss


def compiled_loss(loss: Loss) -> Loss:
    """The loss in one graph; a graph break is an error."""
    return torch.compile(loss, fullgraph=True, dynamic=False)


def soft_dice(p: Tensor, y: Tensor, axes: tuple[int, ...]) -> Tensor:
    return (1 - 2 * (p * y).sum(axes) / (p.sum(axes) + y.sum(axes))).mean()


def weighted_soft_dice(p: Tensor, y: Tensor, w: Tensor, axes: tuple[int, ...]) -> Tensor:
    wp, wy = w * p, w * y
    return (1 - 2 * (wp * y).sum(axes) / (wp.sum(axes) + wy.sum(axes))).mean()


def published_f1(z: Tensor, y: Tensor) -> Tensor:
    """The formula of the AnyLoss paper as it is printed."""
    a = 1 / (1 + torch.exp(-73.0 * (torch.sigmoid(z) - 0.5)))
    tp, fn, fp = (y * a).sum(), (y * (1 - a)).sum(), ((1 - y) * a).sum()
    return 1 - 2 * tp / (2 * tp + fp + fn)


class Form(NamedTuple):
    """How the peers take inputs of one task."""

    prepared: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # probabilities, one-hot labels
    spread: Callable[[Tensor], Tensor]  # weights with the axes of the one-hot labels
    cross_entropy: Callable[[Tensor, Tensor], Tensor]
    taken: Callable[[Callable[..., Tensor]], Loss]  # a module of MONAI as a loss
    monai: dict[str, bool]


def column_peers(ndim: int) -> list[Entry]:
    """Peers for `(n,)` and `(n, 1, ...)`. They expect masks, so a column is seen as one."""
    smp = smp_losses()
    smp_mcc = smp.MCCLoss(eps=0.0)
    bce = binary_cross_entropy_with_logits

    def seen(x: Tensor) -> Tensor:
        return x.view(1, 1, -1) if ndim == 1 else x

    def taken(module: Callable[..., Tensor]) -> Loss:
        return lambda z, y, w: module(seen(z), seen(y))

    form = Form(lambda z, y: (z.sigmoid(), y), lambda w: w, bce, taken, {"sigmoid": True})
    found = [
        Entry(CROSS_ENTROPY, "torch", lambda z, y, w: bce(z, y)),
        Entry(CROSS_ENTROPY._replace(weighted=True), "torch", lambda z, y, w: bce(z, y, w)),
        Entry(Kind("F1"), "smp", taken(smp.DiceLoss("binary"))),
        Entry(Kind("Tversky"), "smp", taken(smp.TverskyLoss("binary", alpha=ALPHA, beta=BETA))),
        Entry(Kind("MCC"), "smp", lambda z, y, w: smp_mcc(z.sigmoid(), y)),
        Entry(Kind("F1", "Amplified(73)"), "formula", lambda z, y, w: published_f1(z, y)),
        *common_peers(form, False, tuple(range(ndim))),
    ]
    return found + (common_peers(form, True, tuple(range(1, ndim))) if ndim > 2 else [])


def class_peers(ndim: int, classes: int) -> list[Entry]:
    """Peers for `(n, C, ...)` with class indices."""
    smp = smp_losses()

    def prepared(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return z.softmax(1), one_hot(y, classes).movedim(-1, 1).to(z.dtype)

    def taken(module: Callable[..., Tensor]) -> Loss:
        return lambda z, y, w: module(z, y.unsqueeze(1))

    def weighted_entropy(z: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return (w * cross_entropy(z, y, reduction="none")).mean()

    dice = smp.DiceLoss("multiclass")
    tversky = smp.TverskyLoss("multiclass", alpha=ALPHA, beta=BETA)
    options = {"softmax": True, "to_onehot_y": True}
    form = Form(prepared, lambda w: w.unsqueeze(1), cross_entropy, taken, options)
    found = [
        Entry(CROSS_ENTROPY, "torch", lambda z, y, w: cross_entropy(z, y)),
        Entry(CROSS_ENTROPY._replace(weighted=True), "torch", weighted_entropy),
        Entry(Kind("F1"), "smp", lambda z, y, w: dice(z, y)),
        Entry(Kind("Tversky"), "smp", lambda z, y, w: tversky(z, y)),
        *kornia_entries(ndim),
        *common_peers(form, False, (0, *range(2, ndim))),
    ]
    return found + (common_peers(form, True, tuple(range(2, ndim))) if ndim > 2 else [])


def common_peers(form: Form, per_sample: bool, axes: tuple[int, ...]) -> list[Entry]:
    """What exists for columns and for classes; the sums are over `axes`."""
    options = {**form.monai, "batch": not per_sample, "smooth_nr": 0.0, "smooth_dr": 0.0}
    weights = {"alpha": ALPHA, "beta": BETA}

    def plain(z: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return soft_dice(*form.prepared(z, y), axes)

    def mixed(z: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return plain(z, y, w) + SHARE * form.cross_entropy(z, y)

    def weighted(z: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return weighted_soft_dice(*form.prepared(z, y), form.spread(w), axes)

    f1 = Kind("F1", per_sample=per_sample)
    both, tversky = f1._replace(cross_entropy=True), f1._replace(metric="Tversky")
    return [
        Entry(f1, "soft Dice", plain),
        Entry(both, "soft Dice", mixed),
        Entry(f1._replace(weighted=True), "soft Dice", weighted),
        Entry(f1, "MONAI", form.taken(DiceLoss(**options))),
        Entry(both, "MONAI", form.taken(DiceCELoss(**options, lambda_ce=SHARE))),
        Entry(tversky, "MONAI", form.taken(TverskyLoss(**options, **weights))),
        Entry(f1._replace(metric="MCC"), "MONAI", form.taken(MCCLoss(**options))),
        *keras_entries(f1, axes, form.prepared),
    ]


def keras_entries(
    f1: Kind, axes: tuple[int, ...], prepared: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
) -> list[Entry]:
    """Dice and Tversky of Keras, which take probabilities and one-hot labels."""
    # Before Keras 3.16 `alpha` weighed the false negatives.
    dice = keras.losses.Dice(axis=axes)
    tversky = keras.losses.Tversky(alpha=BETA, beta=ALPHA, axis=axes)
    return [
        Entry(f1, "Keras", lambda z, y, w: dice(*reversed(prepared(z, y)))),
        Entry(
            f1._replace(metric="Tversky"), "Keras",
            lambda z, y, w: tversky(*reversed(prepared(z, y))),
        ),
    ]  # fmt: skip


def kornia_entries(ndim: int) -> list[Entry]:
    """Dice and Tversky of kornia, per sample; rows are seen as the pixels of one sample."""

    def seen(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (z.T[None, :, None], y[None, None]) if ndim == 2 else (z, y)

    f1 = Kind("F1", per_sample=ndim > 2)
    return [
        Entry(f1, "kornia", lambda z, y, w: dice_loss(*seen(z, y), average="macro", eps=0.0)),
        Entry(
            f1._replace(metric="Tversky"), "kornia",
            lambda z, y, w: tversky_loss(*seen(z, y), alpha=ALPHA, beta=BETA, eps=0.0),
        ),
    ]  # fmt: skip


def smp_losses() -> ModuleType:
    """The losses of segmentation_models.pytorch without its encoders, which need torchvision."""
    name = "segmentation_models_pytorch"
    if name not in sys.modules:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = spec.submodule_search_locations
    return importlib.import_module(f"{name}.losses")
