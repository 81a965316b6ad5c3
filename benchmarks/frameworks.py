"""Time of the JAX and Keras losses, forward and backward, as ratios to cross-entropy in one run.

    python benchmarks/frameworks.py            # JAX, Keras on JAX, Keras on PyTorch
    python benchmarks/frameworks.py jax        # one of them: jax, keras-jax, keras-torch

JAX runs `jit(value_and_grad(loss))`; PyTorch runs eagerly, as Keras does. Each part has a process
and one thread of its own. The losses take turns in random order, and the figure is the ratio of the
medians of the processor time, which other processes disturb less than the clock.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from anyloss.steps import Amplified

PARTS = ("jax", "keras-jax", "keras-torch")
PLAIN = {"F1": {"metric": "f1"}, "MCC": {"metric": "mcc"}}
STEEP = {f"{k}, L = 73": v | {"step": Amplified(73.0)} for k, v in PLAIN.items()}
OURS: dict[str, dict[str, Any]] = PLAIN | STEEP

Array = Any  # of NumPy, JAX or PyTorch
Loss = Callable[[Array, Array], Array]  # of logits and labels
Case = tuple[str, tuple[int, ...], int | None, dict[str, Loss]]  # name, shape, class axis, losses


def batch(shape: tuple[int, ...], class_axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Random logits, with class indices or with labels of which a tenth is positive."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=shape).astype(np.float32)
    if class_axis is None:
        return logits, (rng.random(shape) < 0.1).astype(np.float32)
    return logits, rng.integers(shape[class_axis], size=np.delete(shape, class_axis))


def jax_cases() -> Iterator[Case]:
    import jax
    import optax

    from anyloss.jax import any_loss

    def bce(z: Array, y: Array) -> Array:
        return optax.sigmoid_binary_cross_entropy(z, y).mean()

    def ce(z: Array, y: Array) -> Array:
        return optax.softmax_cross_entropy_with_integer_labels(z, y, axis=1).mean()

    def dice(z: Array, y: Array, axes: tuple[int, ...]) -> Array:
        p = jax.nn.sigmoid(z)
        return 1 - (2 * (p * y).sum(axes) / (p.sum(axes) + y.sum(axes))).mean()

    def class_dice(z: Array, y: Array, axes: tuple[int, ...]) -> Array:
        p, y = jax.nn.softmax(z, 1), jax.nn.one_hot(y, z.shape[1], axis=1)
        return 1 - (2 * (p * y).sum(axes) / (p.sum(axes) + y.sum(axes))).mean()

    def ours(**options: Any) -> dict[str, Loss]:
        return {name: partial(any_loss, **given, **options) for name, given in OURS.items()}

    for n in (256, 65536, 2**20):
        yield f"({n:,},)", (n,), None, {"CE": bce, "Dice": partial(dice, axes=(0,)), **ours()}
    masks = (8, 1, 256, 256)
    pooled = {"CE": bce, "Dice": partial(dice, axes=(0, 1, 2, 3)), **ours()}
    yield "masks 8x1x256x256", masks, None, pooled
    each = {"CE": bce, "Dice": partial(dice, axes=(1, 2, 3)), **ours(per_sample=True)}
    yield "masks, per sample", masks, None, each
    for name, shape in (("4,096 x 10 classes", (4096, 10)), ("2x21x128x128", (2, 21, 128, 128))):
        axes = tuple(k for k in range(len(shape)) if k != 1)
        yield name, shape, 1, {"CE": ce, "Dice": partial(class_dice, axes=axes), **ours()}


def keras_cases() -> Iterator[Case]:
    import keras
    from keras import losses, ops

    from anyloss.keras import AnyLoss

    def peers(**options: Any) -> dict[str, Loss]:
        """Keras' own losses of probabilities."""
        both = losses.Dice(**options), losses.Tversky(**options)
        return {
            type(loss).__name__: lambda z, y, loss=loss: loss(y, ops.sigmoid(z)) for loss in both
        }

    def class_peers(axis: tuple[int, ...]) -> dict[str, Loss]:
        both = losses.Dice(axis=axis), losses.Tversky(axis=axis)
        return {
            type(loss).__name__: lambda z, y, loss=loss: loss(
                ops.one_hot(y, z.shape[-1]), ops.softmax(z)
            )
            for loss in both
        }

    def ours(**options: Any) -> dict[str, Loss]:
        made = {k: AnyLoss(**given, from_logits=True, **options) for k, given in OURS.items()}
        return {name: lambda z, y, loss=loss: loss(y, z) for name, loss in made.items()}

    def first(loss: keras.losses.Loss) -> dict[str, Loss]:
        return {"CE": lambda z, y: loss(y, z)}

    bce = first(losses.BinaryCrossentropy(from_logits=True))
    for n in (256, 65536, 2**20):
        yield f"({n:,}, 1)", (n, 1), None, bce | peers() | ours()
    masks = (8, 256, 256, 1)
    yield "masks 8x256x256x1", masks, None, bce | peers() | ours(task="binary")
    each = peers(axis=(1, 2, 3)) | ours(task="binary", per_sample=True)
    yield "masks, per sample", masks, None, bce | each
    ce = first(losses.SparseCategoricalCrossentropy(from_logits=True))
    for name, shape in (("4,096 x 10 classes", (4096, 10)), ("2x128x128x21", (2, 128, 128, 21))):
        axes = tuple(range(len(shape) - 1))
        yield name, shape, -1, ce | class_peers(axes) | ours()


def work(loss: Loss, logits: np.ndarray, labels: np.ndarray, framework: str) -> Callable[[], Any]:
    """The forward and backward pass of a loss, as the framework runs it."""
    if framework == "jax":
        import jax

        run, given = jax.jit(jax.value_and_grad(loss)), jax.device_put((logits, labels))
        return lambda: jax.block_until_ready(run(*given))
    import torch

    torch.set_num_threads(1)
    z, y = torch.from_numpy(logits).requires_grad_(), torch.from_numpy(labels)

    def forward_backward() -> None:
        z.grad = None
        loss(z, y).backward()

    return forward_backward


def training_steps() -> dict[str, Callable[[], Any]]:
    """Steps of Keras' own train function: a 30-64-1 network, batches of 512, Adam."""
    import keras

    from anyloss.keras import AnyLoss

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(512, 30)).astype("float32"), (rng.random((512, 1)) < 0.1) * 1.0
    bce = keras.losses.BinaryCrossentropy(from_logits=True)
    steps = {}
    for name, loss in (
        ("CE", bce),
        *((k, AnyLoss(**v, from_logits=True)) for k, v in OURS.items()),
    ):
        layers = [keras.Input((30,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("adam", loss)
        steps[name] = partial(model.train_on_batch, x, y)
    return steps


def medians(works: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median processor time of each function; the functions take turns in random order."""
    for run in works.values():  # the first calls compile
        run(), run()
    times: dict[str, list[float]] = {name: [] for name in works}
    order = list(works)
    for _ in range(repeats):
        random.shuffle(order)
        for name in order:
            start = time.process_time()
            works[name]()
            times[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def run_part(part: str) -> None:
    framework = part.removeprefix("keras-")
    table, names = Table(title=f"{part}: time, ratio to cross-entropy"), []

    def add(case: str, works: dict[str, Callable[[], Any]], repeats: int) -> None:
        times = medians(works, repeats)
        cells = [f"{times[k] / times['CE']:.2f}" if k in times else "" for k in names]
        table.add_row(case, *cells)

    for case, shape, class_axis, losses in jax_cases() if part == "jax" else keras_cases():
        if not names:
            names = [name for name in losses if name != "CE"]
            for name in ("", *names):
                table.add_column(name)
        data = batch(shape, class_axis)
        works = {name: work(loss, *data, framework) for name, loss in losses.items()}
        add(case, works, max(21, min(1000, 20_000_000 // data[0].size)))
    if part != "jax":
        add("training step", training_steps(), 300)
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", nargs="?", choices=PARTS, help="default: all of them")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        run_part(arguments.part)
        return
    threads = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    for part in PARTS if arguments.part is None else (arguments.part,):
        own = {"KERAS_BACKEND": part.removeprefix("keras-"), "XLA_FLAGS": threads}
        command = [sys.executable, __file__, part, "--here"]
        subprocess.run(command, check=True, env=os.environ | own | {"OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
