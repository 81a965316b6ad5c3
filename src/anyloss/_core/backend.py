"""Backends: the few functions that a framework lends to the core, and functions built from them.

They keep the digits of confident predictions: a probability and its mirror `1 - p` are both
computed directly, and neither is one minus the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = Any  # a float, a NumPy array or a framework's tensor; the core does not distinguish them


class Backend(NamedTuple):
    """The functions that a front-end lends to the core, and the smallest normal number."""

    sigmoid: Callable[[Array], Array]  # only ever called with arguments <= 0
    exp: Callable[[Array], Array]
    log: Callable[[Array], Array]
    sin: Callable[[Array], Array]
    where: Callable[[Array, Array, Array], Array]
    argmax: Callable[[Array], Array]  # over the class axis, which stays with length 1
    one_hot: Callable[[Array, int], Array]  # such indices and a number C to booleans, C per index
    sum: Callable[[Array, int], Array]  # over one axis, which stays with length 1
    concat: Callable[[list[Array]], Array]  # along the class axis
    array: Callable[[list[Any], Array], Array]  # numbers, nested or not, with the type of an array
    constant: Callable[[Array], Array]  # the same numbers, as a constant for the gradient
    product: Callable[[Array, Array], Array]  # the class axis times a matrix
    tiny: float
    class_axis: int = -1  # of scores and decisions; counts always have the classes last
    # In place of the function of this name below, where a framework is slow at it.
    mirrored_sigmoid: Callable[[Array], tuple[Array, Array]] | None = None


def _sigmoid(x: Array) -> Array:
    e = np.exp(x)
    return e / (1 + e)


NUMPY = Backend(
    sigmoid=_sigmoid,
    exp=np.exp,
    log=np.log,
    sin=np.sin,
    where=np.where,
    argmax=lambda x: np.argmax(x, axis=-1, keepdims=True),
    one_hot=lambda index, classes: index == np.arange(classes),
    sum=lambda x, axis: np.add.reduce(x, axis=axis, keepdims=True),
    concat=lambda parts: np.concatenate(parts, axis=-1),
    array=lambda numbers, like: np.asarray(numbers, like.dtype),
    constant=lambda x: x,
    product=np.matmul,
    tiny=float(np.finfo(np.float64).tiny),
)

# Python's own floats: the arithmetic of a single set of counts, without NumPy's cost per call.
FLOATS = NUMPY._replace(where=lambda condition, yes, no: yes if condition else no)


def mirrored_sigmoid(z: Array, backend: Backend) -> tuple[Array, Array]:
    """`sigmoid(z)` and `sigmoid(-z)`, both accurate, with accurate derivatives.

    Only the smaller one comes from the sigmoid function; `1 - s` loses nothing while `s <= 1/2`. An
    autodiff framework computes the derivative as `s (1 - s)`, which is 0 for `s` rounded to 1.

    >>> p, q = mirrored_sigmoid(np.array([0.0, 40.0]), NUMPY)
    >>> bool(q[1] == np.exp(-40.0)), float(p[0])
    (True, 0.5)
    """
    if backend.mirrored_sigmoid is not None:
        return backend.mirrored_sigmoid(z)
    positive = z >= 0
    small = backend.sigmoid(backend.where(positive, -z, z))
    large = 1 - small
    return backend.where(positive, large, small), backend.where(positive, small, large)


def top(x: Array, backend: Backend) -> Array:
    """True at the largest entry of the class axis; at the first one, where several are equal."""
    return backend.one_hot(backend.argmax(x), x.shape[backend.class_axis])


def mirrored_softmax(z: Array, backend: Backend) -> tuple[Array, Array]:
    """The softmax over the class axis and its mirror `1 - p`, stable like `mirrored_sigmoid`.

    The entries are taken relative to the largest one of each row. The usual gradient of the softmax
    subtracts nearly equal numbers for confident predictions, and vanishes.

    >>> p, q = mirrored_softmax(np.array([[0.0, 50.0]]), NUMPY)
    >>> bool(np.isclose(q[0, 1], np.exp(-50.0), rtol=1e-12))
    True
    """
    first, axis = top(z, backend), backend.class_axis
    peak = backend.sum(backend.where(first, z, 0.0), axis)
    relative = backend.where(first, 1.0, backend.exp(z - peak))
    rest = backend.sum(backend.where(first, 0.0, relative), axis)
    share = 1 / (1 + rest)
    p = relative * share
    return p, backend.where(first, rest * share, 1 - p)


def softmax_back(g: Array, p: Array, backend: Backend) -> Array:
    """The gradient with respect to `z` from that with respect to `p = softmax(z)`, `g`.

    >>> softmax_back(np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]]), NUMPY).tolist()
    [[0.25, -0.25]]
    """
    axis = backend.class_axis
    relative = g - backend.sum(backend.where(top(p, backend), g, 0.0), axis)
    return p * (relative - backend.sum(p * relative, axis))
