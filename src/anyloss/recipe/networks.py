"""Feed-forward networks in NumPy: several members of one shape, trained side by side.

`layers` is a list of weights `(members, inputs, outputs)` and biases `(members, 1, outputs)` in
turn; without hidden layers it is one linear model per member. All members have the same input, so
the first layer, which is most of the work, is one matrix product for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from anyloss._core.backend import Array

Layers = list[Array]


def new_layers(sizes: Sequence[int], members: int, rng: np.random.Generator) -> Layers:
    """Random layers (Glorot's uniform range); zeros where there is no hidden layer.

    >>> [x.shape for x in new_layers([4, 8, 1], members=5, rng=np.random.default_rng(0))]
    [(5, 4, 8), (5, 1, 8), (5, 8, 1), (5, 1, 1)]
    """
    layers = []
    for inputs, outputs in pairwise(sizes):
        bound = np.sqrt(6 / (inputs + outputs)) if len(sizes) > 2 else 0.0
        layers.append(rng.uniform(-bound, bound, (members, inputs, outputs)))
        layers.append(rng.uniform(-bound, bound, (members, 1, outputs)))
    return layers


def forward(layers: Layers, X: Array, values: list[Array] | None = None) -> list[Array]:
    """The output of each layer, `(members, rows, outputs)`; the last are the logits.

    `values` of an earlier call with the same shapes are overwritten, because new memory at every
    step would cost more than the arithmetic. In memory the rows come first, then the members.
    """
    members, rows = len(layers[0]), X.shape[0]
    if values is None:
        values = [np.empty((rows, members, x.shape[2])).swapaxes(0, 1) for x in layers[::2]]
    weights, first = _side_by_side(layers[0]), _side_by_side(values[0])
    if isinstance(X, np.ndarray):
        np.matmul(X, weights, out=first)
    else:  # sparse
        first[...] = X @ weights
    values[0] += layers[1]
    for k in range(1, len(values)):
        np.maximum(values[k - 1], 0.0, out=values[k - 1])
        np.matmul(values[k - 1], layers[2 * k], out=values[k])
        values[k] += layers[2 * k + 1]
    return values


def _side_by_side(x: Array) -> Array:
    """`(members, n, outputs)` as `(n, members * outputs)`."""
    return x.swapaxes(0, 1).reshape(x.shape[1], -1)


def backward(layers: Layers, X: Array, values: list[Array], gradient: Array) -> Layers:
    """The gradients of all layers from that of the logits; overwrites the hidden `values`."""
    members, inputs, outputs = layers[0].shape
    found: Layers = []
    for k in range(len(values) - 1, 0, -1):
        before = values[k - 1]
        found = [before.swapaxes(1, 2) @ gradient, gradient.sum(axis=1, keepdims=True), *found]
        active = before > 0
        gradient = np.matmul(gradient, layers[2 * k].swapaxes(1, 2), out=before)
        gradient *= active
    first = (X.T @ _side_by_side(gradient)).reshape(inputs, members, outputs).swapaxes(0, 1)
    return [first, gradient.sum(axis=1, keepdims=True), *found]


class Adam:
    """Adam (Kingma and Ba 2015) with an L2 penalty on the weights; changes the layers in place."""

    def __init__(self, layers: Layers, rate: float, penalty: float = 0.0) -> None:
        self.layers, self.rate, self.penalty = layers, rate, penalty
        self.first = [np.zeros_like(x) for x in layers]
        self.second = [np.zeros_like(x) for x in layers]
        self.steps = 0

    def step(self, gradients: Layers) -> None:
        """Make one step of descent."""
        self.steps += 1
        of_first, of_second = 1 - 0.9**self.steps, 1 - 0.999**self.steps
        for k, (layer, gradient) in enumerate(zip(self.layers, gradients, strict=True)):
            if k % 2 == 0:
                gradient = gradient + self.penalty * layer
            self.first[k] += 0.1 * (gradient - self.first[k])
            self.second[k] += 0.001 * (gradient**2 - self.second[k])
            size = np.sqrt(self.second[k] / of_second) + 1e-8
            layer -= self.rate / of_first * self.first[k] / size
