"""Every figure of torchmetrics' docstrings for metrics of the confusion matrix, and its top-k tests.

Source of the docstrings: torchmetrics 1.9, src/torchmetrics/functional/classification, the modules
accuracy, cohen_kappa, exact_match, f_beta, hamming, jaccard, matthews_corrcoef,
negative_predictive_value, precision_recall and specificity: 158 figures. The top-k tests have 93.
"""

import numpy as np
import pytest
import torch

import anyloss

# fmt: off
# Each data set has labels, and predictions as decisions (or classes) and as probabilities.
COLUMN = [0, 1, 0, 1, 0, 1]
COLUMNS = (COLUMN, [0, 0, 1, 1, 0, 1]), (COLUMN, [0.11, 0.22, 0.84, 0.73, 0.33, 0.92])
QUARTETS = ([1, 1, 0, 0], [0, 1, 0, 0]), ([1, 1, 0, 0], [0.35, 0.85, 0.48, 0.01])
THREE = ([2, 1, 0, 0], [2, 1, 0, 1]), ([2, 1, 0, 0], [[0.16, 0.26, 0.58], [0.22, 0.61, 0.17], [0.71, 0.09, 0.20], [0.05, 0.82, 0.13]])
LABELS = ([[0, 1, 0], [1, 0, 1]], [[0, 0, 1], [1, 0, 1]]), ([[0, 1, 0], [1, 0, 1]], [[0.11, 0.22, 0.84], [0.73, 0.33, 0.92]])
MASKS = ([[[0, 1], [1, 0], [0, 1]], [[1, 1], [0, 0], [1, 0]]],
         [[[0.59, 0.91], [0.91, 0.99], [0.63, 0.04]], [[0.38, 0.04], [0.86, 0.780], [0.45, 0.37]]])
POSITIONS = ([[[0, 1], [2, 1], [0, 2]], [[1, 1], [2, 0], [1, 2]]], [[[0, 2], [2, 0], [0, 1]], [[2, 2], [2, 1], [1, 0]]])
FOUR, SIX = ([1, 1, 2, 0], [2, 0, 2, 1]), ([0, 1, 2, 0, 1, 2], [0, 2, 1, 0, 0, 1])

# One column: its score, and that of each sample. Classes and labels: macro, each class, and both of
# each sample (multidim_average="samplewise").
FIGURES = {
    "accuracy": (0.6667, [0.3333, 0.1667],  # of classes: their recall
        (0.8333, [0.5, 1.0, 1.0], [0.5, 0.2778], [[1.0, 0.0, 0.5], [0.0, 0.3333, 0.5]]),
        (0.6667, [1.0, 0.5, 0.5], [0.3333, 0.1667], [[0.5, 0.5, 0.0], [0.0, 0.0, 0.5]])),
    "hamming": (0.3333, [0.6667, 0.8333],  # one minus the accuracy
        (0.1667, [0.5, 0.0, 0.0], [0.5, 0.7222], [[0.0, 1.0, 0.5], [1.0, 0.6667, 0.5]]),
        (0.3333, [0.0, 0.5, 0.5], [0.6667, 0.8333], [[0.5, 0.5, 1.0], [1.0, 1.0, 0.5]])),
    "fbeta(beta=2)": (0.6667, [0.5882, 0.0],
        (0.7963, [0.5556, 0.8333, 1.0], [0.4697, 0.2706], [[0.9091, 0.0, 0.5], [0.0, 0.3571, 0.4545]]),
        (0.6111, [1.0, 0.0, 0.8333], [0.5556, 0.0], [[0.8333, 0.8333, 0.0], [0.0, 0.0, 0.0]])),
    "f1": (0.6667, [0.5, 0.0],
        (0.7778, [0.6667, 0.6667, 1.0], [0.4333, 0.2667], [[0.8, 0.0, 0.5], [0.0, 0.4, 0.4]]),
        (0.5556, [1.0, 0.0, 0.6667], [0.4444, 0.0], [[0.6667, 0.6667, 0.0], [0.0, 0.0, 0.0]])),
    "npv": (0.6667, [0.0, 0.25],
        (0.8889, [0.6667, 1.0, 1.0], [0.7833, 0.6556], [[1.0, 0.6, 0.75], [0.8, 0.5, 0.6667]]),
        (0.5, [1.0, 0.5, 0.0], [0.0, 0.1667], [[0.0, 0.0, 0.0], [0.0, 0.0, 0.5]])),
    "precision": (0.6667, [0.4, 0.0],
        (0.8333, [1.0, 0.5, 1.0], [0.3889, 0.2778], [[0.6667, 0.0, 0.5], [0.0, 0.5, 0.3333]]),
        (0.5, [1.0, 0.0, 0.5], [0.3333, 0.0], [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])),
    "recall": (0.6667, [0.6667, 0.0],
        (0.8333, [0.5, 1.0, 1.0], [0.5, 0.2778], [[1.0, 0.0, 0.5], [0.0, 0.3333, 0.5]]),
        (0.6667, [1.0, 0.0, 1.0], [0.6667, 0.0], [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])),
    "specificity": (0.6667, [0.0, 0.3333],
        (0.8889, [1.0, 0.6667, 1.0], [0.75, 0.6556], [[0.75, 0.75, 0.75], [0.8, 0.6667, 0.5]]),
        (0.6667, [1.0, 1.0, 0.0], [0.0, 0.3333], [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])),
}
# The rest of them: data, metric, options, figure.
OTHERS = [
    *[(data, "cohen_kappa", {}, 0.5) for data in QUARTETS],
    *[(data, "cohen_kappa", {"average": "multiclass"}, 0.6364) for data in THREE],
    *[(data, "jaccard", {}, 0.5) for data in QUARTETS], *[(data, "jaccard", {"average": "macro"}, 0.6667) for data in THREE],
    *[(data, "jaccard", {"task": "multilabel"}, 0.5) for data in LABELS],
    *[(data, "mcc", {}, 0.5774) for data in QUARTETS], *[(data, "mcc", {"average": "multiclass"}, 0.7) for data in THREE],
    *[(data, "mcc", {"task": "multilabel", "average": "micro"}, 0.3333) for data in LABELS],
    (QUARTETS[0], "cohen_kappa", {"task": "multiclass"}, 0.5), (QUARTETS[0], "mcc", {"task": "multiclass"}, 0.5774),
    (([0, 1, 2, 3], [0, 2, 1, 3]), "accuracy", {"task": "multiclass"}, 0.5),
    (([[0, 1], [1, 1]], [[0, 1], [0, 1]]), "hamming", {"task": "binary"}, 0.25),
    (SIX, "fbeta(beta=0.5)", {"average": "micro"}, 0.3333), (SIX, "f1", {"average": "micro"}, 0.3333),
    (FOUR, "npv", {"average": "macro"}, 0.6667), (FOUR, "npv", {"average": "micro"}, 0.625),
    (FOUR, "precision", {"average": "macro"}, 0.1667), (FOUR, "precision", {"average": "micro"}, 0.25),
    (FOUR, "recall", {"average": "macro"}, 0.3333), (FOUR, "recall", {"average": "micro"}, 0.25),
    (FOUR, "specificity", {"average": "macro"}, 0.6111), (FOUR, "specificity", {"average": "micro"}, 0.625),
]
# fmt: on


def score(data, metric, **options):
    """The score; torchmetrics' decisions and classes become probabilities."""
    y, p = map(np.array, data)
    task = options.get("task", "multiclass" if y.max() > 1 else "binary")
    if task == "multiclass" and p.dtype.kind == "i":
        p = np.moveaxis(np.eye(max(y.max(), p.max()) + 1)[p], -1, 1)
    if metric == "hamming":
        return 1 - score(data, "accuracy", **options)
    if (metric, task) == ("accuracy", "multiclass") and "average" in options:
        metric = "recall"  # torchmetrics' averages of the accuracy are those of the recall
    return anyloss.score(y, p.astype(float), metric, **{**options, "task": task})


def docstrings():
    """The figures of the table above, each for decisions and for probabilities."""
    each = {"per_sample": True, "reduction": "none"}
    for metric, (one, samples, classes, labels) in FIGURES.items():
        for data in COLUMNS:
            yield data, metric, {}, one
        yield MASKS, metric, {"task": "binary", "zero_division": 0, **each}, samples
        for task, sets, figures in (("multiclass", THREE, classes), ("multilabel", LABELS, labels)):
            inner = POSITIONS if task == "multiclass" else MASKS
            absent = {"zero_division": 0} if task == "multilabel" else {}
            for k, average in enumerate(("macro", None)):
                options = {"task": task, "average": average, **absent}
                for data in sets:
                    yield data, metric, options, figures[k]
                yield inner, metric, {**options, **each}, figures[2 + k]
    yield from OTHERS


@pytest.mark.parametrize(("data", "metric", "options", "figure"), [*docstrings()])
def test_the_score_is_the_figure_of_the_docstring(data, metric, options, figure):
    found = score(data, metric, **options)
    assert np.shape(found) == np.shape(figure)
    np.testing.assert_allclose(found, figure, atol=1e-4)


def test_all_figures_of_the_docstrings_are_here():
    exact_match, top_k = 7, 1
    assert len([*docstrings()]) + exact_match + top_k == 158


def test_exact_match_is_an_accuracy_of_one():
    """The seven figures of exact_match: no score of the counts, but one comparison of its samples."""
    each = {"per_sample": True, "reduction": "none"}
    data = (POSITIONS[0], [POSITIONS[0][0], POSITIONS[1][1]])
    matches = score(data, "accuracy", task="multiclass", **each) == 1
    assert matches.tolist() == [True, False]  # and their mean, 0.5, twice each
    for data in LABELS:
        rows = score(data, "accuracy", task="multilabel", average="samples", reduction="none")
        assert (rows == 1).mean() == 0.5
    labels = score(MASKS, "accuracy", task="multilabel", **each, average=None)
    assert (labels == 1).all(axis=1).tolist() == [False, False]


# torchmetrics tests/unittests/classification: test_top_k of accuracy, f_beta,
# negative_predictive_value, precision_recall and specificity, test_top_k_with_ignore_index of
# accuracy; and the docstring of accuracy.
# fmt: off
K_1 = ([0, 1, 2], [[0.35, 0.4, 0.25], [0.1, 0.5, 0.4], [0.2, 0.1, 0.7]])
K_2 = ([0, 0, 2], [[0.9, 0.1, 0.0]] * 3)
K_3 = ([0, 1, 2, 0], [[0.1, 0.2, 0.7], [0.4, 0.4, 0.2], [0.3, 0.3, 0.4], [0.3, 0.3, 0.4]])
K_DOCSTRING = ([0, 1, 2], [[0.1, 0.9, 0.0], [0.3, 0.1, 0.6], [0.2, 0.5, 0.3]])
ONES = [1.0, 1.0, 1.0]
# data, metric, average, and the figure of each k from 1 on
TOP_K = [
    (K_1, "accuracy", "micro", [2 / 3, 1.0]), (K_2, "accuracy", "macro", [1 / 2, 1 / 2]),
    (K_1, "f1", "micro", [2 / 3, 1.0]), (K_1, "fbeta(beta=2)", "micro", [2 / 3, 1.0]),
    (K_3, "f1", "micro", [0.25, 0.75, 1.0]), (K_3, "fbeta(beta=2)", "micro", [0.25, 0.75, 1.0]),
    (K_3, "f1", "macro", [0.1667, 0.7778, 1.0]), (K_3, "fbeta(beta=2)", "macro", [0.2381, 0.7963, 1.0]),
    (K_3, "f1", "weighted", [0.1250, 0.7500, 1.0]), (K_3, "fbeta(beta=2)", "weighted", [0.1786, 0.7361, 1.0]),
    (K_3, "f1", None, [[0.0, 0.0, 0.5], [0.6667, 1.0, 0.6667], ONES]),
    (K_3, "fbeta(beta=2)", None, [[0.0, 0.0, 0.7143], [0.5556, 1.0, 0.8333], ONES]),
    (K_1, "npv", "micro", [5 / 6, 1.0]), (K_1, "specificity", "micro", [5 / 6, 1.0]),
    (K_1, "precision", "micro", [2 / 3, 1.0, 1.0]), (K_1, "recall", "micro", [2 / 3, 1.0, 1.0]),
    (K_2, "precision", "macro", [1 / 3, 1 / 3, 1.0]), (K_2, "recall", "macro", [1 / 2, 1 / 2, 1.0]),
    (K_3, "precision", "macro", [0.1111, 0.8333, 1.0]), (K_3, "recall", "macro", [0.3333, 0.8333, 1.0]),
    (K_3, "precision", "micro", [0.25, 0.75, 1.0]), (K_3, "recall", "micro", [0.25, 0.75, 1.0]),
    (K_3, "precision", "weighted", [0.0833, 0.8750, 1.0]), (K_3, "recall", "weighted", [0.25, 0.75, 1.0]),
    (K_3, "precision", None, [[0.0, 0.0, 0.3333], [1.0, 1.0, 0.5], ONES]),
    (K_3, "recall", None, [[0.0, 0.0, 1.0], [0.5, 1.0, 1.0], ONES]),
    (K_3, "specificity", "macro", [0.6111, 0.8889, 1.0]), (K_3, "specificity", "micro", [0.625, 0.875, 1.0]),
    (K_3, "specificity", "weighted", [0.5833, 0.9167, 1.0]),
    (K_3, "specificity", None, [[0.5, 1.0, 0.3333], [1.0, 1.0, 0.6667], ONES]),
]
# fmt: on


@pytest.mark.parametrize(("data", "metric", "average", "figures"), TOP_K)
def test_the_score_of_the_highest_k_is_the_figure(data, metric, average, figures):
    for k, figure in enumerate(figures, 1):
        found = score(data, metric, average=average, top_k=k)
        np.testing.assert_allclose(found, figure, atol=1e-4)


def test_the_accuracy_of_the_highest_k_of_generated_scores_is_the_figure():
    found = score(K_DOCSTRING, "accuracy", average="micro", top_k=2)
    assert found == pytest.approx(0.6667, abs=1e-4)
    # The tests name the seeds of their scores, which are no probabilities.
    p, y = torch.rand(512, 10, generator=torch.Generator().manual_seed(42)), torch.arange(512) % 10
    options = {"task": "multiclass", "top_k": 5, "from_logits": True}
    for rows, average, figure in (
        (512, "macro", 0.5175), (512, "micro", 0.5176), (1, "macro", 1.0), (1, "micro", 1.0),
    ):  # fmt: skip
        found = score((y[:rows], p[:rows]), "accuracy", average=average, **options)
        assert found == pytest.approx(figure, abs=1e-4)
    p = torch.rand(2, 10, 50, generator=torch.Generator().manual_seed(42))
    y = torch.randint(10, (2, 50), generator=torch.Generator().manual_seed(42))
    found = score((y, p), "accuracy", average="micro", **options)
    assert found == pytest.approx(0.42, abs=1e-4)
    p = [[[0.0, 0.1, 0.5, 0.4], [0.0, 0.2, 0.7, 0.1]], [[0.0, 0.4, 0.3, 0.3], [1.0, 0.0, 0.0, 0.0]]]
    data = ([[3, 2], [1, 0]], np.swapaxes(p, 1, 2))
    for k, figure in enumerate([0.6667, 1.0, 1.0, 1.0], 1):
        found = score(data, "accuracy", average="micro", top_k=k, ignore_index=0)
        assert found == pytest.approx(figure, abs=1e-4)


def test_all_figures_of_the_top_k_tests_are_here():
    assert sum(len(figures) for *_, figures in TOP_K) + 5 + 4 == 93
