"""Every named metric: a function of the four counts of the confusion matrix, higher is better.

Each metric is its textbook formula, written with operators only (`**0.5` for a root). Inside a
metric a division by zero gives 0, with a derivative of 0 (see `_core/cell.py`). This is
scikit-learn's `zero_division=0`.

To add a metric, write its function here with its title and an example, and add one row to the table
in `tests/core/test_metrics.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.lookup import listed, metric
from anyloss._core.metric import METRICS, CostMatrix, Metric, MetricSpec
from anyloss._core.metric import named as _named

__all__ = ["METRICS", "Metric", "MetricSpec", "cost_matrix", "listed", "metric"]


@_named(
    "Accuracy",
    "acc",
    class_sums=(lambda tp, fn, fp, tn: (tp, tp + fn), lambda correct, samples: correct / samples),
)
def accuracy(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """The share of the samples that are predicted correctly.

    `(tp + tn) / (tp + fn + fp + tn)`

    Examples:
        >>> accuracy(tp=6, fn=2, fp=2, tn=90)
        0.96
    """
    return (tp + tn) / (tp + fn + fp + tn)


@_named("Precision", "ppv", "positive_predictive_value")
def precision(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """The share of the predicted positives that are positive.

    `tp / (tp + fp)`

    Examples:
        >>> precision(tp=6, fn=2, fp=2, tn=90)
        0.75
    """
    return tp / (tp + fp)


@_named("Recall", "sensitivity", "tpr", "true_positive_rate", "hit_rate", "pod")
def recall(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """The share of the positives that are predicted positive.

    `tp / (tp + fn)`

    Examples:
        >>> recall(tp=6, fn=2, fp=2, tn=90)
        0.75
    """
    return tp / (tp + fn)


@_named("Specificity", "tnr", "true_negative_rate", "selectivity")
def specificity(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """The share of the negatives that are predicted negative.

    `tn / (tn + fp)`

    Examples:
        >>> specificity(tp=6, fn=2, fp=8, tn=92)
        0.92
    """
    return tn / (tn + fp)


@_named("Negative predictive value", "negative_predictive_value")
def npv(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """The share of the predicted negatives that are negative.

    `tn / (tn + fn)`

    Examples:
        >>> npv(tp=6, fn=8, fp=2, tn=92)
        0.92
    """
    return tn / (tn + fn)


@_named("F1", "f1_score", "f_measure", "dice")
def f1(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """The harmonic mean of precision and recall.

    `2 tp / (2 tp + fp + fn)`, which is also the Dice coefficient.

    Examples:
        >>> f1(tp=6, fn=2, fp=2, tn=90)
        0.75

    References:
        L. R. Dice, "Measures of the Amount of Ecologic Association Between Species", Ecology 26(3),
        1945.
    """
    return 2 * tp / (2 * tp + fp + fn)


@_named("F-beta", "fbeta_score", "f_beta")
def fbeta(tp: Array, fn: Array, fp: Array, tn: Array, *, beta: float = 1.0) -> Array:
    """The weighted harmonic mean of precision and recall, where recall weighs beta squared.

    `(1 + beta^2) tp / ((1 + beta^2) tp + beta^2 fn + fp)`

    Examples:
        >>> fbeta(tp=6, fn=4, fp=2, tn=90, beta=2)
        0.625

    References:
        C. J. van Rijsbergen, "Information Retrieval", second edition, Butterworths, 1979.
    """
    b2 = beta**2
    return (1 + b2) * tp / ((1 + b2) * tp + b2 * fn + fp)


@_named("G-mean", "g_mean", "geometric_mean", recall_mean=0)
def gmean(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """The geometric mean of recall and specificity.

    `sqrt(tp / (tp + fn) * tn / (tn + fp))`

    Examples:
        >>> gmean(tp=64, fn=36, fp=0, tn=100)
        0.8

    References:
        M. Kubat and S. Matwin, "Addressing the Curse of Imbalanced Training Sets: One-Sided
        Selection", ICML 1997.
    """
    return (tp / (tp + fn) * tn / (tn + fp)) ** 0.5


@_named("H-mean", "h_mean", "harmonic_mean", recall_mean=-1)
def hmean(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """The harmonic mean of recall and specificity.

    `2 / (1 / recall + 1 / specificity)`

    Examples:
        >>> hmean(tp=6, fn=2, fp=5, tn=5)
        0.6
    """
    return 2 * (tp / (tp + fn)) * (tn / (tn + fp)) / (tp / (tp + fn) + tn / (tn + fp))


@_named("Balanced accuracy", "bacc", "balanced_acc", recall_mean=1)
def balanced_accuracy(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """The mean of recall and specificity.

    `(tp / (tp + fn) + tn / (tn + fp)) / 2`. A class without samples counts as 0.

    Examples:
        >>> balanced_accuracy(tp=6, fn=2, fp=0, tn=10)
        0.875

    References:
        K. H. Brodersen, C. S. Ong, K. E. Stephan and J. M. Buhmann, "The Balanced Accuracy and Its
        Posterior Distribution", ICPR 2010.
    """
    return (tp / (tp + fn) + tn / (tn + fp)) / 2


def _shares(tp: Array, fn: Array, fp: Array, tn: Array) -> tuple[Array, ...]:
    """The counts as shares of all samples: their products do not leave the range of float32."""
    samples = tp + fn + fp + tn
    return tp / samples, fn / samples, fp / samples, tn / samples


def _correlation(covariance: Array, predicted: Array, actual: Array) -> Array:
    # Two roots, not the root of a product: four factors of 1e10 samples overflow float32.
    return covariance / (predicted**0.5 * actual**0.5)


def _correlation_parts(tp: Array, fn: Array, fp: Array, tn: Array) -> tuple[Array, ...]:
    return tp * tn - fp * fn, (tp + fp) * (fn + tn), (tp + fn) * (fp + tn)


@_named(
    "Matthews correlation coefficient",
    "matthews",
    "matthews_corrcoef",
    "phi",
    class_sums=(lambda *counts: _correlation_parts(*_shares(*counts)), _correlation),
)
def mcc(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """The correlation of predictions and labels, from -1 to 1.

    `(tp tn - fp fn) / sqrt((tp + fp) (tp + fn) (tn + fp) (tn + fn))`. The form for several classes
    is Gorodkin's `R_K`.

    Examples:
        >>> mcc(tp=8, fn=2, fp=2, tn=8)
        0.6

    References:
        B. W. Matthews, "Comparison of the Predicted and Observed Secondary Structure of T4 Phage
        Lysozyme", Biochimica et Biophysica Acta 405(2), 1975.

        J. Gorodkin, "Comparing Two K-Category Assignments by a K-Category Correlation Coefficient",
        Computational Biology and Chemistry 28, 2004.
    """
    return _correlation(*_correlation_parts(tp, fn, fp, tn))


@_named("Jaccard index", "iou", "csi", "threat_score", "critical_success_index")
def jaccard(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """The true positives as a share of all samples that are positive or predicted positive.

    `tp / (tp + fn + fp)`

    Examples:
        >>> jaccard(tp=6, fn=2, fp=2, tn=90)
        0.6

    References:
        P. Jaccard, "The Distribution of the Flora in the Alpine Zone", New Phytologist 11(2), 1912.
    """
    return tp / (tp + fn + fp)


def _agreement_parts(tp: Array, fn: Array, fp: Array, tn: Array) -> tuple[Array, ...]:
    tp, fn, fp, tn = _shares(tp, fn, fp, tn)
    return tp * tn - fp * fn, (tp + fn) * (fn + tn)


@_named(
    "Cohen's kappa",
    "kappa",
    "hss",
    "heidke",
    class_sums=(_agreement_parts, lambda agreement, possible: agreement / possible),
)
def cohen_kappa(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """The agreement of predictions and labels beyond chance.

    `2 (tp tn - fp fn) / ((tp + fp) (fp + tn) + (tp + fn) (fn + tn))`, which is also the Heidke
    skill score.

    Examples:
        >>> cohen_kappa(tp=8, fn=2, fp=2, tn=8)
        0.6

    References:
        J. Cohen, "A Coefficient of Agreement for Nominal Scales", Educational and Psychological
        Measurement 20(1), 1960.
    """
    return 2 * (tp * tn - fp * fn) / ((tp + fp) * (fp + tn) + (tp + fn) * (fn + tn))


@_named("Informedness", "youden", "youden_j", "tss", "peirce", "bookmaker")
def informedness(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """Recall plus specificity minus 1.

    `tp / (tp + fn) + tn / (tn + fp) - 1`, which is also Youden's J and the true skill statistic.

    Examples:
        >>> informedness(tp=6, fn=2, fp=0, tn=10)
        0.75

    References:
        W. J. Youden, "Index for Rating Diagnostic Tests", Cancer 3(1), 1950.
    """
    return tp / (tp + fn) + tn / (tn + fp) - 1


@_named("Markedness", "delta_p")
def markedness(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """Precision plus negative predictive value minus 1.

    `tp / (tp + fp) + tn / (tn + fn) - 1`

    Examples:
        >>> markedness(tp=6, fn=0, fp=2, tn=10)
        0.75

    References:
        D. M. W. Powers, "Evaluation: From Precision, Recall and F-Measure to ROC, Informedness,
        Markedness and Correlation", Journal of Machine Learning Technologies 2(1), 2011.
    """
    return tp / (tp + fp) + tn / (tn + fn) - 1


@_named("Fowlkes-Mallows index", "fm")
def fowlkes_mallows(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """The geometric mean of precision and recall.

    `sqrt(tp / (tp + fp) * tp / (tp + fn))`

    Examples:
        >>> fowlkes_mallows(tp=6, fn=3, fp=0, tn=90) == (6 / 9) ** 0.5
        True

    References:
        E. B. Fowlkes and C. L. Mallows, "A Method for Comparing Two Hierarchical Clusterings",
        Journal of the American Statistical Association 78(383), 1983.
    """
    return (tp / (tp + fp) * tp / (tp + fn)) ** 0.5


@_named("Tversky index", "tversky_index")
def tversky(
    tp: Array, fn: Array, fp: Array, tn: Array, *, alpha: float = 0.5, beta: float = 0.5
) -> Array:
    """The Jaccard index where false positives weigh alpha and false negatives weigh beta.

    `tp / (tp + alpha fp + beta fn)`

    Examples:
        >>> tversky(tp=6, fn=2, fp=4, tn=90, alpha=0.25, beta=0.5)
        0.75

    References:
        A. Tversky, "Features of Similarity", Psychological Review 84(4), 1977.
    """
    return tp / (tp + alpha * fp + beta * fn)


@_named("P4", "p4_metric")
def p4(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """The harmonic mean of precision, recall, specificity and negative predictive value.

    `4 tp tn / (4 tp tn + (tp + tn) (fp + fn))`

    Examples:
        >>> p4(tp=8, fn=2, fp=2, tn=8)
        0.8

    References:
        M. Sitarz, "Extending F1 Metric, Probabilistic Approach", arXiv:2210.11997, 2022.
    """
    return 4 * tp * tn / (4 * tp * tn + (tp + tn) * (fp + fn))


@_named("Cost saved", "cost_score")
def cost(
    tp: Array, fn: Array, fp: Array, tn: Array, *, fn_cost: float = 1.0, fp_cost: float = 1.0
) -> Array:
    """The share of the largest possible cost that is saved, where each error has its cost.

    `1 - (fn_cost fn + fp_cost fp) / (fn_cost (tp + fn) + fp_cost (fp + tn))`. It is 1 without an
    error and 0 if every sample is predicted wrongly.

    Examples:
        >>> cost(tp=6, fn=2, fp=4, tn=88, fn_cost=10, fp_cost=1) == 1 - 24 / 172
        True
    """
    return 1 - (fn_cost * fn + fp_cost * fp) / (fn_cost * (tp + fn) + fp_cost * (fp + tn))


def cost_matrix(costs: Sequence[Sequence[float]]) -> Metric:
    """Return the metric of a matrix of costs: the share of the largest possible cost that is saved.

    `1 - (cost - least) / (most - least)`, where `cost` is the sum of the costs of the decisions,
    `least` that of correct decisions, and `most` that of the most expensive decision for each
    sample. The score is 1 if every decision is correct and 0 if every decision is the most
    expensive one for its class. Only differences to the diagonal count.

    For two classes it is `metric("cost", fn_cost=..., fp_cost=...)`, where the second class is the
    positive one. For more classes it is a metric of class indices with `average="auto"`, in scores,
    losses, objectives and classifiers. With the soft decisions `a` it is
    `1 - sum_i w_i sum_k C[y_i, k] a_ik / sum_i w_i max_k C[y_i, k]`, for costs `C` above those of
    correct decisions. What has one score per class or per sample refuses it.

    Args:
        costs (sequence of sequences of float): the costs, one row for each true class and one
            column for each predicted class, in the order of the class indices.

    Shape:
        - `costs`: `(C, C)`, with at least two classes.

    Returns:
        Metric: the metric of these costs.

    Raises:
        ValueError: if the costs are not a square matrix of finite numbers, an error costs less than
            the correct decision, or no error costs more.

    Examples:
        >>> cost_matrix([[0, 1], [5, 0]])
        metric('cost', fn_cost=5.0, fp_cost=1.0)
        >>> from anyloss import score
        >>> costs = cost_matrix([[0, 1, 4], [1, 0, 1], [4, 1, 0]])
        >>> p = [[0.9, 0.1, 0.0], [0.1, 0.2, 0.7], [0.0, 0.1, 0.9]]
        >>> score([0, 1, 2], p, costs) == 1 - 1 / (4 + 1 + 4)
        True
        >>> from anyloss import gradient
        >>> from anyloss.steps import Uniform
        >>> soft, by_decision = gradient([0, 1, 2], p, costs, Uniform())
        >>> round(soft, 4), (9 * by_decision).round(9)[2].tolist()
        (0.8889, [-4.0, -1.0, 0.0])
    """
    try:
        given = np.asarray(costs)
    except ValueError:  # rows of different lengths
        given = np.empty(0)
    square = given.ndim == 2 and given.shape[0] == given.shape[1] >= 2
    if not square or given.dtype.kind not in "iufb" or not np.isfinite(given).all():
        raise ValueError(
            "costs must be a square matrix of finite numbers, a row for each true class and a "
            f"column for each predicted class; got {costs!r}"
        )
    above = given.astype(float) - np.diag(given)[:, None]
    if (above < 0).any() or not above.any():
        raise ValueError(
            "in each row, the true class, an error must cost at least as much as the correct "
            f"decision on the diagonal, and one of them more; got {costs!r}. Write gains as "
            "negative costs"
        )
    if len(above) == 2:
        found = metric("cost", fn_cost=float(above[1, 0]), fp_cost=float(above[0, 1]))
        return replace(found, second_is_positive=True)
    matrix = CostMatrix(tuple(map(tuple, above.tolist())))
    return Metric(matrix.name, matrix)
