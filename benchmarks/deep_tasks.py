"""The tasks of `deep.py`: data, networks and metrics, fixed before anything was measured.

Only the epochs of tables and of several labels were raised once, because cross-entropy was still
improving when they ended.

Each task draws its training, validation and test rows anew for each seed. Where the classes of the
test rows have other shares than those of the training rows, weights restore the training shares, so
that rare classes are tested on as many rows as common ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from empty_masks import UNet, scenes
from torch import Tensor, nn
from torch.nn.functional import interpolate

Array = np.ndarray[Any, Any]
VALID = 0.15  # of the rows that are not test rows
WORDS = 3000
IMAGES = {"mnist": (600, 400), "cifar": (500, 200)}  # training rows of the largest class, test rows


class Goal(NamedTuple):
    """What the decisions are scored by."""

    metric: str
    average: str = "auto"
    per_sample: bool = False
    uniform: bool = False  # the classes weigh alike, whatever their shares in the training rows


class Rows(NamedTuple):
    """Inputs and labels."""

    x: Tensor
    y: Tensor


class Data(NamedTuple):
    """The rows of one seed and the network."""

    train: Rows
    valid: Rows
    test: Rows
    network: Callable[[], nn.Module]
    shares: Tensor | None = None  # of the classes in training, where those of the test rows differ
    augment: Callable[[Tensor], Tensor] | None = None


class Task(NamedTuple):
    """How the data are made, and what everyone trains with."""

    make: Callable[[int, Path], Data]
    kind: str  # "binary", "multilabel" or "multiclass"
    goals: dict[str, Goal]
    epochs: int
    batch: int = 128
    rate: float = 1e-3
    masks: bool = False
    group: str = "images"


class Batches:
    """Batches `(x, y)` or `(x, y, weight)`, in another random order in each pass."""

    def __init__(self, data: Data, size: int, seed: int, weight: Tensor | None = None) -> None:
        self.data, self.size, self.weight = data, size, weight
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        (x, y), change = self.data.train, self.data.augment
        for rows in torch.randperm(len(y), generator=self.generator).split(self.size):
            if len(rows) > 1:
                found = x[rows] if change is None else change(x[rows])
                yield (
                    (found, y[rows]) if self.weight is None else (found, y[rows], self.weight[rows])
                )


def class_weights(y: Tensor, shares: Tensor, wanted: Tensor) -> Tensor:
    """The weight of each row that turns class shares into those wanted."""
    return (wanted / shares)[y.long()]


def row_weights(data: Data, goal: Goal, part: str) -> Tensor | None:
    """The weights of the training, validation or test rows for a goal, None if all are 1."""
    if data.shares is None or goal.uniform == (part == "test"):
        return None
    even = torch.full_like(data.shares, 1 / len(data.shares))
    shares = (even, data.shares) if part == "test" else (data.shares, even)
    return class_weights(getattr(data, part).y, *shares)


def parts(x: Array, y: Array, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Training and validation rows, with the same shares of each class and at least one row."""
    valid = np.zeros(len(y), bool)
    for k in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == k))
        valid[rows[: max(1, round(VALID * len(rows)))]] = True
    return rows_of(x[~valid], y[~valid]), rows_of(x[valid], y[valid])


def rows_of(x: Array, y: Array) -> Rows:
    labels = torch.tensor(y)
    return Rows(torch.tensor(x), labels if y.dtype == np.int64 else labels.float())


def images(name: str, folder: Path) -> tuple[Array, Array, Array, Array]:
    """Images `(n, channels, height, width)` from 0 to 1 and their classes, training and test."""
    file = {"mnist": "mnist.npz", "cifar": "cifar10_subset.npz"}[name]
    with np.load(folder / "images" / file) as given:
        found = []
        for part in ("train", "test"):
            x = given[f"x_{part}"].astype(np.float32) / 255
            x = x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)
            found += [x, given[f"y_{part}"].astype(np.int64)]
    return found[0], found[1], found[2], found[3]


def flipped(x: Tensor) -> Tensor:
    """Each image mirrored with probability 1/2."""
    return torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(-1), x)


def image_network(channels: int, outputs: int) -> nn.Module:
    widths = (16, 32) if channels == 1 else (16, 32, 64)
    layers: list[nn.Module] = []
    for before, after in zip((channels, *widths), widths, strict=False):
        layers += [nn.Conv2d(before, after, 3, 2, 1), nn.ReLU()]
    inside = widths[-1] * (49 if channels == 1 else 16)
    layers += [nn.Flatten(), nn.Dropout(0.3), nn.Linear(inside, 64), nn.ReLU(), nn.Dropout(0.3)]
    return nn.Sequential(*layers, *head(64, outputs))


def head(inputs: int, outputs: int) -> list[nn.Module]:
    """The last layer; a single output is a column `(n,)`."""
    return [nn.Linear(inputs, outputs), *([nn.Flatten(0)] if outputs == 1 else [])]


def long_tailed(seed: int, folder: Path, name: str) -> Data:
    """Ten classes with a hundredth of the images in the rarest; the seed orders the classes."""
    rng = np.random.default_rng(seed)
    x, y, new, truth = images(name, folder)
    most, tests = IMAGES[name]
    sizes = np.round(most * 0.01 ** (np.arange(10) / 9)).astype(int)
    order = rng.permutation(10)
    kept = np.concatenate(
        [rng.permutation(np.flatnonzero(y == k))[:n] for k, n in zip(order, sizes, strict=True)]
    )
    tested = np.concatenate([np.flatnonzero(truth == k)[:tests] for k in range(10)])
    shares = torch.tensor(np.bincount(y[kept], minlength=10) / len(kept)).float()
    return Data(
        *parts(x[kept], y[kept], rng), rows_of(new[tested], truth[tested]),
        partial(image_network, x.shape[1], 10), shares, flipped if name == "cifar" else None,
    )  # fmt: skip


def one_against_rest(seed: int, folder: Path, name: str, positives: int | None) -> Data:
    """The class with the seed's number against the rest, with all or some of its images."""
    rng = np.random.default_rng(seed)
    x, classes, new, truth = images(name, folder)
    y, truth = (found == seed % 10 for found in (classes, truth))
    kept = np.arange(len(y))
    if positives is not None:
        rest = rng.permutation(np.flatnonzero(~y))[: 66 * positives]
        kept = np.concatenate([rng.permutation(np.flatnonzero(y))[:positives], rest])
        some = rng.permutation(np.flatnonzero(~truth))[: truth.sum()]
        tested = np.concatenate([np.flatnonzero(truth), some])
        new, truth = new[tested], truth[tested]
    share = y[kept].mean()
    shares = None if positives is None else torch.tensor([1 - share, share]).float()
    return Data(
        *parts(x[kept], y[kept], rng), rows_of(new, truth),
        partial(image_network, x.shape[1], 1), shares, flipped if name == "cifar" else None,
    )  # fmt: skip


def two_layers(inputs: int, outputs: int, hidden: int, dropout: float) -> nn.Module:
    first = [nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*first, *head(hidden, outputs))


def multilabel(seed: int, folder: Path, name: str) -> Data:
    rng = np.random.default_rng(seed)
    with np.load(folder / "multilabel" / f"{name}.npz") as given:
        x, y = given["X"].astype(np.float32), given["Y"].astype(np.float32)
    order = rng.permutation(len(y))
    test, valid, train = np.split(
        order, [round(0.35 * len(y)), round((0.35 + VALID * 0.65) * len(y))]
    )
    if not ((x == 0) | (x == 1)).all():
        x = scaled(x, train)
    found = [Rows(torch.tensor(x[rows]), torch.tensor(y[rows])) for rows in (train, valid, test)]
    return Data(*found, partial(two_layers, x.shape[1], y.shape[1], 64, 0.3))


def scaled(x: Array, train: Array) -> Array:
    """The columns with mean 0 and deviation 1 in the training rows, and no far outliers."""
    found = (x - x[train].mean(0)) / np.maximum(x[train].std(0), 1e-6)
    return np.clip(found, -5, 5).astype(np.float32)


def table(seed: int, folder: Path, name: str) -> Data:
    import pandas as pd

    rng = np.random.default_rng(seed)
    frame = pd.read_csv(folder / "tabular" / f"{name}.csv.gz")
    y = frame.pop("y").to_numpy() == 1
    x, order = frame.to_numpy(np.float32), rng.permutation(len(y))
    chosen, tested = order[: round(0.6 * len(y))], order[round(0.6 * len(y)) :]
    x = scaled(x, chosen)
    return Data(
        *parts(x[chosen], y[chosen], rng), rows_of(x[tested], y[tested]),
        partial(two_layers, x.shape[1], 1, 64, 0.1),
    )  # fmt: skip


def reviews(seed: int, folder: Path, linear: bool) -> Data:
    """Film reviews, of which one in ten is positive: TF-IDF, or the first 200 known words."""
    import pandas as pd
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

    rng = np.random.default_rng(seed)
    frame = pd.read_csv(folder / "reviews.csv").query("source == 'imdb'")
    texts, y = frame["text"].str.replace("<br />", " "), frame["label"].to_numpy() == 1
    both = [rng.permutation(np.flatnonzero(y == k)) for k in (False, True)]
    kept = np.concatenate([both[0][:3600], both[1][:400]])
    tested = np.concatenate([both[0][3600:5600], both[1][400:2400]])
    if linear:
        found = TfidfVectorizer(max_features=WORDS, sublinear_tf=True, dtype=np.float32)
        fitted = found.fit(texts.iloc[kept])
        x, new = (fitted.transform(texts.iloc[rows]).toarray() for rows in (kept, tested))
        network: Callable[[], nn.Module] = linear_network
    else:
        known = CountVectorizer(max_features=WORDS).fit(texts.iloc[kept])
        x, new = (words(texts.iloc[rows], known) for rows in (kept, tested))
        network = WordNetwork
    train, valid = parts(x, y[kept], rng)
    shares = torch.tensor([0.9, 0.1])
    return Data(train, valid, rows_of(new, y[tested]), network, shares)


def linear_network() -> nn.Module:
    return nn.Sequential(*head(WORDS, 1))


class WordNetwork(nn.Sequential):
    """The mean of the embeddings of the words, and a linear layer."""

    def __init__(self) -> None:
        super().__init__(
            nn.EmbeddingBag(WORDS + 1, 32, mode="mean", padding_idx=0),
            nn.Dropout(0.3),
            *head(32, 1),
        )


def words(texts: Any, known: Any) -> Array:
    """The numbers of the first 200 known words of each text, filled up with 0."""
    read, found = known.build_analyzer(), np.zeros((len(texts), 200), np.int64)
    for row, text in zip(found, texts, strict=True):
        numbers = [1 + known.vocabulary_[x] for x in read(text) if x in known.vocabulary_][:200]
        row[: len(numbers)] = numbers
    return found


def digit_masks(seed: int, folder: Path) -> Data:
    """One digit or none (three in ten images) on pieces of digits."""
    rng = np.random.default_rng(seed)
    x, _, new, _ = images("mnist", folder)

    def drawn(digits: Array, n: int) -> Rows:
        both = [scenes(digits, k, empty, rng) for k, empty in ((n * 7 // 10, 0), (n * 3 // 10, 1))]
        return Rows(*(torch.cat(found) for found in zip(*both, strict=True)))

    digits = x[rng.permutation(len(x))[:3000], 0]
    return Data(drawn(digits, 300), drawn(digits, 60), drawn(new[:3000, 0], 300), UNet)


def class_masks(seed: int, folder: Path) -> Data:
    """One to three digits of four classes, the rarest one in twenty, on dark photographs."""
    rng = np.random.default_rng(seed)
    digits, names, new, truth = images("mnist", folder)
    photos, _, behind, _ = images("cifar", folder)
    kept = names < 4
    train, valid = (photo_scenes(digits[kept], names[kept], photos, n, rng) for n in (300, 60))
    kept = truth < 4
    test = photo_scenes(new[kept], truth[kept], behind, 300, rng)
    return Data(train, valid, test, partial(UNet, channels=3, classes=5))


def photo_scenes(
    digits: Array, names: Array, photos: Array, n: int, rng: np.random.Generator
) -> Rows:
    """Photographs of 64 x 64 pixels with digits of 20 to 40 pixels, and the class of each pixel."""
    chosen = torch.tensor(photos[rng.integers(len(photos), size=n)])
    x = 0.6 * interpolate(chosen, size=(64, 64), mode="bilinear")
    y = torch.zeros(n, 64, 64, dtype=torch.long)
    for i in range(n):
        for name in rng.choice(4, size=rng.integers(1, 4), p=[0.5, 0.3, 0.15, 0.05]):
            digit = torch.tensor(digits[rng.choice(np.flatnonzero(names == name))])[None]
            size = int(rng.integers(20, 41))
            drawn = interpolate(digit, size=(size, size), mode="bilinear")[0, 0]
            r, c = rng.integers(0, 65 - size, 2)
            place = (slice(r, r + size), slice(c, c + size))
            x[(i, slice(None), *place)] *= 1 - drawn
            x[(i, slice(None), *place)] += drawn
            y[(i, *place)][drawn > 0.5] = int(name) + 1
    return Rows(x, y)


F1 = Goal("f1")
MACRO = {"macro-F1": Goal("f1", "macro")}
TAIL = {**MACRO, "macro-F1, uniform priors": Goal("f1", "macro", uniform=True)}
LABELS = {"epochs": 120, "batch": 64, "group": "several labels"}
MASKS = {"epochs": 16, "batch": 8, "rate": 3e-3, "masks": True, "group": "segmentation"}
# Tables: all that were measured (not generated) with 8,000 to 20,000 rows, 1 to 10 % of them
# positive, one of each family.
TASKS = {
    "mnist-lt": Task(partial(long_tailed, name="mnist"), "multiclass", TAIL, 30),
    "mnist-lt, batch 1024": Task(
        partial(long_tailed, name="mnist"), "multiclass", MACRO, 48, 1024, 3e-3
    ),
    "cifar-lt": Task(partial(long_tailed, name="cifar"), "multiclass", TAIL, 40),
    "mnist, one of ten": Task(
        partial(one_against_rest, name="mnist", positives=60), "binary", {"F1": F1}, 24
    ),
    "cifar, one of ten": Task(
        partial(one_against_rest, name="cifar", positives=None), "binary",
        {"F1": F1, "MCC": Goal("mcc")}, 12,
    ),
    "birds": Task(partial(multilabel, name="birds"), "multilabel", MACRO, **LABELS),
    "corel5k": Task(
        partial(multilabel, name="corel5k"), "multilabel", MACRO, **LABELS | {"epochs": 40}
    ),
    "enron": Task(
        partial(multilabel, name="enron"), "multilabel",
        {**MACRO, "micro-F1": Goal("f1", "micro")}, **LABELS,
    ),
    "foodtruck": Task(partial(multilabel, name="foodtruck"), "multilabel", MACRO, **LABELS),
    "medical": Task(partial(multilabel, name="medical"), "multilabel", MACRO, **LABELS),
    "reviews, linear": Task(
        partial(reviews, linear=True), "binary", {"F1": F1}, 20, rate=1e-2, group="text"
    ),
    "reviews, words": Task(
        partial(reviews, linear=False), "binary", {"F1": F1}, 20, rate=3e-3, group="text"
    ),
    "coil2000": Task(partial(table, name="coil2000"), "binary", {"F1": F1}, 50, group="tables"),
    "creditcard": Task(
        partial(table, name="creditcard_492"), "binary", {"F1": F1, "MCC": Goal("mcc")}, 50,
        group="tables",
    ),
    "mammography": Task(
        partial(table, name="mammography"), "binary", {"F1": F1, "MCC": Goal("mcc")}, 50,
        group="tables",
    ),
    "mammography, batch 1024": Task(
        partial(table, name="mammography"), "binary", {"F1": F1}, 100, 1024, 3e-3, group="tables"
    ),
    "pendigits": Task(partial(table, name="pendigits_9"), "binary", {"F1": F1}, 50, group="tables"),
    "digit masks": Task(
        digit_masks, "binary", {"F1, pooled": F1, "F1 per image": Goal("f1", per_sample=True)},
        **MASKS,
    ),
    "class masks": Task(class_masks, "multiclass", MACRO, **MASKS),
}  # fmt: skip
