"""Labelled rows for `refine`: what a loader gives, their class sums, weights and logits.

A row is what counts once: a sample, or a pixel of a map.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from anyloss._core.shapes import Layout
from anyloss.recipe.priors import factors as prior_factors
from anyloss.recipe.priors import read_priors
from anyloss.torch.batch import read_batch
from anyloss.torch.loss import AnyLoss
from anyloss.torch.refined import call, mode
from anyloss.torch.snapshots import inner
from anyloss.torch.sync import exchange, ranks


class Rows(NamedTuple):
    """Logits, labels and weights of the batches of this rank; None if all weigh alike."""

    z: Tensor
    y: Tensor
    weight: Tensor | None


class Labels(NamedTuple):
    """How labels are read, and the weight of each class in all rows of all ranks.

    `sums` has the axes `(2, classes)`: of the rows without and with the label.
    """

    layout: Layout
    axes: int  # of the logits
    ignore_index: int | None
    sums: Tensor
    batches: int = 0  # of this rank

    def read(self, batch: Any) -> tuple[Tensor, Tensor | None]:
        """The labels of a batch in the shape that the logits need, and its weights."""
        check_batch(batch)
        y = torch.as_tensor(batch[1])
        if self.axes == 1 and y.shape[1:] == (1,):
            y = y.squeeze(1)
        elif self.axes > 2 and self.layout.task == "binary" and y.ndim == self.axes - 1:
            y = y.unsqueeze(1)
        y = y if y.is_floating_point() else y.long()
        return y, torch.as_tensor(batch[2]) if len(batch) == 3 else None

    def full_weight(self, y: Tensor, weight: Tensor | None) -> Tensor:
        """One weight for each label; 0 where it does not count."""
        kind = weight.dtype if weight is not None and weight.is_floating_point() else torch.float32
        found = torch.ones(y.shape, dtype=kind, device=y.device)
        if weight is not None:
            found = found * weight.reshape(*weight.shape, *[1] * (y.ndim - weight.ndim)).to(found)
        return found if self.ignore_index is None else found * (y != self.ignore_index)

    def of_class(self, y: Tensor, values: Tensor) -> Tensor:
        """The value `(2, classes)` of each label."""
        values = values.to(y.device)
        if self.layout.index_target:
            return values[1][y.clamp(0, self.layout.classes - 1)]
        if self.layout.task == "multilabel":
            negative, positive = values.reshape(2, -1, *[1] * (y.ndim - 2))
        else:
            negative, positive = values
        return torch.where(y == 1, positive, negative)

    def class_sums(self, y: Tensor, weight: Tensor | None) -> Tensor:
        """The weight of each class among these labels, `(2, classes)`."""
        w, classes = self.full_weight(y, weight).double(), self.layout.classes
        if self.layout.index_target:
            chosen = y.clamp(0, classes - 1).flatten()
            positive = torch.bincount(chosen, w.flatten(), minlength=classes)
            return torch.stack([w.sum() - positive, positive])
        if self.layout.task == "multilabel":
            w, y = (x.movedim(1, -1).reshape(-1, classes) for x in (w, y))
        else:
            w, y = w.reshape(-1, 1), y.reshape(-1, 1)
        return torch.stack([(w * (y != 1)).sum(0), (w * (y == 1)).sum(0)])

    def to_priors(self, priors: Sequence[float] | None) -> Tensor | None:
        """Factors `(2, classes)` of the weights that give the classes these shares."""
        if priors is None:
            return None
        task = self.layout.task
        classes = 2 if task == "binary" else self.layout.classes
        if task == "multilabel" or self.layout.per_sample:
            what = "labels per row" if task == "multilabel" else "per_sample"
            raise ValueError(
                "priors are the shares of classes that exclude each other, counted over all rows; "
                f"got priors with {what}. Pass weights in the loader instead"
            )
        seen = self.sums[:, 0] if task == "binary" else self.sums[1]
        shares = (seen / seen.sum()).double().cpu().numpy()
        factors = torch.from_numpy(
            prior_factors(read_priors(priors, classes, zero=True), shares)
        ).to(seen.device)
        return factors[:, None] if task == "binary" else factors.expand(2, -1)

    def weigh(self, y: Tensor, weight: Tensor | None, factors: Tensor | None) -> Tensor | None:
        """The weights, multiplied by the factors of `to_priors`."""
        if factors is None:
            return weight
        return self.full_weight(y, weight) * self.of_class(y, factors).to(torch.float32)


def batches(loader: Iterable[Any]) -> Iterator[Any]:
    """The batches of one pass; an error without any."""
    empty = True
    for batch in () if isinstance(loader, Iterator) else loader:
        empty = False
        yield batch
    if empty:
        raise ValueError(
            f"no batch in {loader!r}; pass a DataLoader or a list, which can be read many times"
        )


def read_labels(model: nn.Module, loader: Iterable[Any], loss: AnyLoss) -> Labels:
    """One pass over the labels, checked; the model sees the first batch only."""
    found, options, number = None, loss.settings.options, 0
    for batch in batches(loader):
        number += 1
        if found is None:
            found = _first_labels(model, batch, loss)
            sums = found.sums
        y, w = found.read(batch)
        _check_labels(y, w, found)
        sums = sums + found.class_sums(y, w).cpu()
    assert found is not None
    if ranks(True, None) > 1:
        device = next(model.parameters()).device
        sums = exchange(sums.to(device), None).cpu()
    if not ((sums > 0).sum(0) == 2).any():
        raise ValueError(
            "the labels of a loader (0 and 1, or class indices) must be of more than one class; "
            f"got one class, or weights of 0: {sums[1].tolist()} positives per class"
        )
    if found.layout.task == "multilabel" and options.ignore_index is not None:
        raise ValueError(
            "ignore_index is for classes and masks; got it with several labels per row. Pass "
            "weights in the loader instead"
        )
    return found._replace(sums=sums, batches=number)


def _first_labels(model: nn.Module, batch: Any, loss: AnyLoss) -> Labels:
    """What the shapes of the first batch mean."""
    check_batch(batch)
    with torch.no_grad(), mode(model, training=False):
        z = call(inner(model), batch[0])
    check_finite(z)
    guess = Layout("binary" if z.ndim < 2 or z.shape[1] == 1 else "multiclass", None, 1)
    found = Labels(guess, z.ndim, loss.settings.options.ignore_index, torch.zeros(2, 1))
    y, w = found.read(batch)
    lay = read_batch(z, y.to(z.device), None if w is None else w.to(z), loss.settings).layout
    if lay.task == "multiclass" and not lay.index_target:
        raise ValueError(
            "the labels of several classes must be class indices; got one-hot labels of shape "
            f"{tuple(y.shape)}. Pass y.argmax(1)"
        )
    return found._replace(layout=lay, sums=torch.zeros(2, lay.classes).double())


def check_batch(batch: Any) -> None:
    """Refuse a batch that is no pair or triple."""
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        raise TypeError(f"batches must be (x, y) or (x, y, weight); got {type(batch).__name__}")


def _check_labels(y: Tensor, weight: Tensor | None, labels: Labels) -> None:
    allowed = [y.shape[:1]] if labels.layout.task == "multilabel" else [y.shape[:1], y.shape]
    if weight is not None and weight.shape not in allowed:
        raise ValueError(
            "weights must have the shape (n,), or that of masks or class indices; got "
            f"{tuple(weight.shape)} for labels of shape {tuple(y.shape)}"
        )
    counts = labels.full_weight(y, weight)
    if not (counts >= 0).all():
        raise ValueError(f"weights must be at least 0; got {counts.min().item()}")
    seen, top = y[counts > 0], labels.layout.classes - 1 if labels.layout.index_target else 1
    if not ((seen >= 0) & (seen <= top) & (seen == seen.round())).all():
        raise ValueError(
            "labels must be 0 or 1, or class indices below the number of classes; got "
            f"{seen.min().item()} to {seen.max().item()}"
        )


class NotFiniteError(ValueError):
    """Logits are not finite."""


def check_finite(z: Tensor) -> None:
    """Refuse logits that are not finite."""
    if not z.isfinite().all():
        raise NotFiniteError("logits must be finite; got NaN or inf: check x and the learning rate")


@torch.no_grad()
def collect(model: nn.Module, loader: Iterable[Any], labels: Labels) -> Rows:
    """One pass in eval mode: the rows that count, `(rows,)` or `(rows, classes)`.

    With `per_sample` they stay in their maps, `(samples, classes, positions)`.
    """
    parts = []
    with mode(model, training=False):
        for batch in batches(loader):
            y, w = labels.read(batch)
            z = call(inner(model), batch[0])
            y, w = y.to(z.device), None if w is None else w.to(z)
            parts.append(_maps(z, y, w) if labels.layout.per_sample else _flat(z, y, w, labels))
    shapes = {tuple(part.z.shape[1:]) for part in parts}
    if len(shapes) > 1:
        raise ValueError(
            "with per_sample all maps must have one size, so that they can be kept together; got "
            f"{sorted(shapes)} classes and positions. Pad them, and write ignore_index"
        )
    z, y = (torch.cat([part[k] for part in parts]) for k in (0, 1))  # type: ignore[misc]
    check_finite(z)
    weights = [part.weight for part in parts if part.weight is not None]
    return Rows(z, y, torch.cat(weights) if weights else None)


def _maps(z: Tensor, y: Tensor, w: Tensor | None) -> Rows:
    """The positions of each map in one axis."""
    positions = z.ndim - 2  # the last axes
    if w is not None and w.ndim > 1:
        w = w.flatten(w.ndim - positions)
    return Rows(z.flatten(2), y.flatten(y.ndim - positions), w)


def _flat(z: Tensor, y: Tensor, w: Tensor | None, labels: Labels) -> Rows:
    """The rows that count, out of any shape."""
    lay = labels.layout
    weight = None if w is None and labels.ignore_index is None else labels.full_weight(y, w)
    if lay.task == "multilabel":
        weight = None if weight is None else weight.movedim(1, -1).reshape(-1, lay.classes)[:, 0]
        y = y.movedim(1, -1).reshape(-1, lay.classes)
    else:
        weight, y = None if weight is None else weight.flatten(), y.flatten()
    z = z.flatten() if lay.classes == 1 else z.movedim(1, -1).reshape(-1, lay.classes)
    if weight is None:
        return Rows(z, y, None)
    keep = weight > 0  # weight 0 equals no row
    return Rows(z[keep], y[keep], weight[keep])


def gather(x: Tensor) -> Tensor:
    """The rows of all ranks, in their order. All ranks must call this."""
    size = ranks(True, None)
    if size == 1:
        return x
    lengths = [torch.zeros((), dtype=torch.int64, device=x.device) for _ in range(size)]
    dist.all_gather(lengths, torch.tensor(len(x), device=x.device))
    longest = max(int(n) for n in lengths)
    padded = torch.cat([x, x.new_zeros(longest - len(x), *x.shape[1:])])
    found = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(found, padded)
    return torch.cat([each[: int(n)] for each, n in zip(found, lengths, strict=True)])
