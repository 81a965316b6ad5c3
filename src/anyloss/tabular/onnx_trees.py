"""The trees of a LightGBM ensemble as one ONNX operator.

The margin is linear in the leaves: a mean over the members, a share of their refinements and an
offset. So all trees of all members become one `TreeEnsemble` whose leaves are weighted. Splits and
leaves stay doubles, as in LightGBM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from anyloss._core.backend import Array

DOMAIN, VERSION = "ai.onnx.ml", 5  # since then splits may be doubles
AT_MOST = 0  # the mode of a split: the value is at most the threshold
SUM = 1  # how the leaves of the trees are combined


class Trees:
    """The nodes and the leaves of all trees, and what is added to each column."""

    def __init__(self, columns: int) -> None:
        self.constant = np.zeros(columns)
        self.nodes: list[list[Any]] = []  # feature, threshold, NaN, then the branches
        self.leaves: list[tuple[float, int]] = []  # weight, column
        self.roots: list[int] = []

    def add(self, tree: dict[str, Any], factor: float, column: int) -> None:
        """Add a tree as LightGBM describes it, with its leaves multiplied by a factor."""
        if "leaf_value" in tree:  # a tree without a split
            self.constant[column] += factor * tree["leaf_value"]
            return
        self.roots.append(len(self.nodes))
        self._node(tree, factor, column)

    def _node(self, tree: dict[str, Any], factor: float, column: int) -> int:
        """Add a node and all below it, and return its place."""
        if tree["decision_type"] != "<=":
            raise ValueError(
                "trees with LightGBM's own categories cannot be exported to ONNX; got a split by "
                f"{tree['decision_type']!r}"
            )
        at, threshold = len(self.nodes), float(tree["threshold"])
        left_if_nan = tree["default_left"] if tree["missing_type"] == "NaN" else threshold >= 0
        self.nodes.append([tree["split_feature"], threshold, int(left_if_nan)])
        for branch in (tree["left_child"], tree["right_child"]):
            if leaf := "leaf_value" in branch:
                place = len(self.leaves)
                self.leaves.append((factor * branch["leaf_value"], column))
            else:
                place = self._node(branch, factor, column)
            self.nodes[at] += [place, int(leaf)]
        return at

    def attributes(self) -> dict[str, Any]:
        """The attributes of the operator `TreeEnsemble`."""
        from onnx import numpy_helper

        features, thresholds, nan, true, true_leaf, false, false_leaf = zip(
            *self.nodes, strict=True
        )
        weights, columns = zip(*self.leaves, strict=True)
        return {
            "nodes_featureids": features,
            "nodes_splits": numpy_helper.from_array(np.array(thresholds)),
            "nodes_modes": numpy_helper.from_array(np.full(len(features), AT_MOST, np.uint8)),
            "nodes_missing_value_tracks_true": nan,
            "nodes_truenodeids": true,
            "nodes_trueleafs": true_leaf,
            "nodes_falsenodeids": false,
            "nodes_falseleafs": false_leaf,
            "leaf_weights": numpy_helper.from_array(np.array(weights)),
            "leaf_targetids": columns,
            "tree_roots": self.roots,
            "n_targets": len(self.constant),
            "aggregate_function": SUM,
        }


def trees_of(classifier: Any) -> Trees:
    """The trees of a fitted `LGBMAnyLossClassifier`, whose sum is its margin."""
    found, labels = classifier.models_, classifier.task_ == "multilabel"
    columns = 1 if classifier.task_ == "binary" else len(classifier.classes_)
    trees = Trees(columns)
    trees.constant -= np.asarray(found.offset) + classifier.class_offsets_
    start = 0.5 if found.whole else 1.0
    for share, members in (
        (start, found.started),
        (start, found.whole),
        (found.share, found.refined),
    ):
        for member in members:
            for k, model in enumerate(member if labels else [member]):
                _add(trees, model, share / len(members), k if labels else None)
    return trees


def _add(trees: Trees, model: Any, factor: float, label: int | None) -> None:
    """Add a booster, or the constant margin of a label without one."""
    if isinstance(model, float):
        trees.constant[label] += factor * model
        return
    for tree, column in _dumped(model):
        trees.add(tree, factor, column if label is None else label)


def _dumped(model: Any) -> Iterator[tuple[dict[str, Any], int]]:
    """The trees of a booster, and the column of each."""
    described = model.dump_model()
    for k, each in enumerate(described["tree_info"]):
        yield each["tree_structure"], k % described["num_tree_per_iteration"]


def margin(graph: Any, rows: str, classifier: Any) -> str:
    """Add the margins `(rows, columns)` of encoded rows to a graph."""
    trees = trees_of(classifier)
    constant: Array = trees.constant[None]
    if not trees.roots:  # nothing but constants
        number = graph.add("Shape", rows, start=0, end=1)
        shape = graph.add("Concat", number, graph.constant(np.array([len(trees.constant)])), axis=0)
        return str(graph.add("Expand", graph.constant(constant), shape))
    found = graph.add("TreeEnsemble", rows, domain=DOMAIN, **trees.attributes())
    return str(graph.add("Add", found, graph.constant(constant)))
