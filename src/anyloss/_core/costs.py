"""A matrix of costs as labels and weights, under which the usual counts are costs.

With the costs `C` above those of correct decisions and the largest cost of each row,
`most_c = max_k C_ck`, a sample of class `c` has the label `1 - C_ck / most_c` for class `k`, and
its weight is multiplied by `most_c`. Then the false positives of class `k` are the costs of the
decisions for it, `fp_k = sum_i w_i C_{y_i k} a_ik`, the counts of each class sum to the largest
possible cost, and the score is `1 - sum_k fp_k / sum_i w_i most_{y_i}`. All that follows, such as
the exchange of counts and the gradient, is as for any other metric.
"""

from __future__ import annotations

from anyloss._core.backend import Array, Backend
from anyloss._core.choices import Options
from anyloss._core.metric import CostMatrix, Metric


def cost_labels(
    y: Array, weight: Array | None, costs: CostMatrix, backend: Backend, like: Array
) -> tuple[Array, Array]:
    """Labels and weights under which false positives are costs, from those of the classes.

    Labels are one-hot, or shares of the classes. The unit of the costs is that of
    `CostMatrix.largest`. The result has the type of the array `like`.

    >>> from anyloss._core.backend import NUMPY
    >>> import numpy as np
    >>> eye, costs = np.eye(2), CostMatrix(((0.0, 1.0), (4.0, 0.0)))
    >>> y, weight = cost_labels(eye, None, costs, NUMPY, like=eye)
    >>> y.tolist(), weight.tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [[0.25], [1.0]])
    """
    most = backend.product(y, backend.array(costs.largest, like))
    free = most < backend.tiny  # every decision for such a sample costs the same
    saved = backend.product(y, backend.array(costs.savings, like))
    saved = backend.where(free, 1.0, saved / backend.where(free, 1.0, most))
    return saved, most if weight is None else most * weight


def check_costs(chosen: Metric, task: str, average: str | None, classes: int) -> None:
    """Refuse a matrix of costs for another number of classes, or with an average."""
    if chosen.second_is_positive and task == "multiclass" and classes != 2:
        raise ValueError(
            f"a cost matrix of 2 classes needs two classes; got {classes}. Pass a row and a column "
            "for each class"
        )
    if chosen.cost_matrix is None:
        return
    size = len(chosen.cost_matrix.costs)
    if task != "multiclass" or average != "multiclass" or classes != size:
        raise ValueError(
            f"a cost matrix of {size} classes needs class indices, scores of {size} columns "
            f"and average='auto'; got a {task} task of {classes} columns and average={average!r}"
        )


def check_cost_options(chosen: Metric, options: Options, smooth: float) -> None:
    """Refuse the options that a matrix of costs does not have."""
    if chosen.cost_matrix is None:
        return
    if smooth:
        raise ValueError(
            "smooth= is a number of samples, and the counts of a cost matrix are costs; got "
            f"smooth={smooth!r}. Leave it out"
        )
    usual = Options()
    names = ("average", "per_sample", "squared", "soft_labels", "activation", "top_k")
    options = options._replace(average="auto") if options.average == "multiclass" else options
    given = [
        f"{x}={getattr(options, x)!r}" for x in names if getattr(options, x) != getattr(usual, x)
    ]
    given += options.of_classes
    if given:
        raise ValueError(
            "a cost matrix is for the one decision of each sample, over all samples and classes, "
            f"and has no other average and way to count; got {given[0]}. Leave it out"
        )
