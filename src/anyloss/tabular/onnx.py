"""The model of a table as one ONNX graph.

Each column is an input of shape `(rows, 1)`: numbers are doubles, with NaN for a missing value, and
text is a string, with the empty string for a missing value. The outputs are `label`, and
`decision_value`, above 0.5 for the positive class, both of the shape `(rows,)`. For several classes
`decision_value` has the shape `(rows, classes)` and is highest for the label. For several labels
both have this shape, and `label` is 0 or 1. The property "classes" of the file names the columns.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from anyloss._core.outputs import check_output, replacing
from anyloss.sklearn import AnyLossClassifier
from anyloss.tabular.encodings import Dates, Means, Numbers, Texts
from anyloss.tabular.model import TableModel
from anyloss.tabular.onnx_trees import DOMAIN, VERSION, margin

OPSET = 21  # Equal takes strings since 19
LABEL, VALUE = "label", "decision_value"  # the outputs


class Graph:
    """A list of nodes and constants that grows."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        from onnx import helper

        out = out or f"/{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [out], **attributes))
        return out

    def constant(self, values: Any) -> str:
        """Add a constant of numbers or texts, and return its name."""
        from onnx import numpy_helper

        name = f"/constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name


def export(model: TableModel, path: Path | str) -> None:
    """Write a model that is trained for the metric, with its encoder, as an ONNX file."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "export needs onnx; install it with: pip install 'anyloss[onnx]'"
        ) from None
    path = Path(path)
    check_output(path, (".onnx",))
    trees = type(model.classifier).__name__ == "LGBMAnyLossClassifier"
    if not trees and not isinstance(model.classifier, AnyLossClassifier):
        raise ValueError(
            "only a single model that is trained for the metric can be exported to ONNX, no "
            "ensemble over families (--model auto) and no usual method: fit with --model linear, "
            "mlp or lightgbm"
        )
    if model.costs is not None:
        raise ValueError(
            "a model with costs decides each row by its costs, and the ONNX file would decide for "
            "the metric: fit without them (--fn-cost, --fp-cost), and compare the probabilities "
            "with the costs of a row where the model is used"
        )
    if dates := model.columns(Dates):
        raise ValueError(
            f"columns of dates cannot be exported to ONNX; got {dates}: fit without them (--drop)"
        )
    taken = [name for name in (LABEL, VALUE) if name in model.columns()]
    if taken:
        raise ValueError(f"a column must not have the name of an output; got {taken}: rename it")
    graph = Graph()
    task = model.outcome.task
    rows = _encoded(graph, model)
    if trees:
        value = _of_trees(graph, rows, model.classifier, task)
    else:
        value = _decision_value(graph, rows, model.classifier, task)
    classes = graph.constant(np.array(model.outcome.classes, dtype=object))
    if task == "multiclass":
        graph.add("Gather", classes, graph.add("ArgMax", value, axis=1, keepdims=0), out=LABEL)
    else:
        above = graph.add("Greater", value, graph.constant(np.array(0.5)))
        number = graph.add("Cast", above, to=_type("INT64"), out=LABEL * (task == "multilabel"))
        if task == "binary":
            graph.add("Gather", classes, number, out=LABEL)
    whole = _onnx_model(graph, model)
    with replacing(path) as part:
        onnx.save(whole, str(part))


def _encoded(graph: Graph, model: TableModel) -> str:
    """The encoded columns in the order of `TableEncoder`: numbers, missing indicators, texts."""
    numbers, gaps, texts = list[str](), list[str](), list[str]()
    for name, kept in model.encoder.columns_.items():
        if isinstance(kept, Numbers):
            empty = graph.add("IsNaN", name)
            numbers.append(graph.add("Where", empty, graph.constant([[kept.median]]), name))
            if kept.gaps:
                gaps.append(graph.add("Cast", empty, to=_type("DOUBLE")))
        elif isinstance(kept, Texts):
            texts += _one_hot(graph, name, kept)
        elif isinstance(kept, Means):
            texts.append(_mean_label(graph, name, kept))
    return graph.add("Concat", *numbers, *gaps, *texts, axis=1)


def _one_hot(graph: Graph, name: str, kept: Texts) -> list[str]:
    values = np.array([["" if value is None else value for value in kept.values]], dtype=object)
    same = graph.add("Equal", name, graph.constant(values))
    found = [graph.add("Cast", same, to=_type("DOUBLE"))]
    if kept.rare:  # all values without a column of their own
        total = graph.add("ReduceSum", *found, graph.constant(np.array([1])), keepdims=1)
        found.append(graph.add("Sub", graph.constant([[1.0]]), total))
    return found


def _mean_label(graph: Graph, name: str, kept: Means) -> str:
    """The mean labels of each value; those of all rows for a value that is not among them."""
    values = np.array([["" if value is None else value for value in kept.levels]], dtype=object)
    same = graph.add("Cast", graph.add("Equal", name, graph.constant(values)), to=_type("DOUBLE"))
    known = graph.add("MatMul", same, graph.constant(np.transpose(kept.means)))
    total = graph.add("ReduceSum", same, graph.constant(np.array([1])), keepdims=1)
    unseen = graph.add("Sub", graph.constant([[1.0]]), total)
    return graph.add("Add", known, graph.add("Mul", unseen, graph.constant([list(kept.others)])))


def _decision_value(graph: Graph, rows: str, classifier: AnyLossClassifier, task: str) -> str:
    """The mean probability of the members, of shape `(rows,)` or `(rows, classes)`."""
    layers, threshold = classifier.layers_, classifier.threshold_
    values = graph.add("Unsqueeze", rows, graph.constant(np.array([0])))
    for k, (weight, bias) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
        values = graph.add("Relu", values) if k else values
        product = graph.add("MatMul", values, graph.constant(weight))
        values = graph.add("Add", product, graph.constant(bias))
    several = task == "multiclass"
    p = graph.add("Softmax", values, axis=2) if several else graph.add("Sigmoid", values)
    end, binary = graph.constant(np.array([0])), task == "binary"
    given = classifier.class_factors_
    mean = graph.add(
        "ReduceMean", p, end, keepdims=0, out="" if binary or given is not None else VALUE
    )
    if given is not None:
        product, last = graph.add("Mul", mean, graph.constant(given)), graph.constant(np.array([1]))
        total = graph.add("ReduceSum", product, last, keepdims=1)
        return graph.add("Div", product, total, out=VALUE)
    if not binary:
        return mean
    column = graph.add("Squeeze", mean, graph.constant(np.array([1])), out=VALUE * (not threshold))
    return _centred(graph, column, threshold) if threshold else column


def _of_trees(graph: Graph, rows: str, classifier: Any, task: str) -> str:
    """The probability of the margin, of shape `(rows,)` or `(rows, classes)`."""
    z = margin(graph, rows, classifier)
    if task == "multiclass" and classifier.task_ == "binary":  # two classes have one margin
        sides = (graph.add("Sigmoid", x) for x in (graph.add("Neg", z), z))
        return graph.add("Concat", *sides, axis=1, out=VALUE)
    if task == "multiclass":
        return graph.add("Softmax", z, axis=1, out=VALUE)
    if task == "binary":
        z = graph.add("Squeeze", z, graph.constant(np.array([1])))
    return graph.add("Sigmoid", z, out=VALUE)


def _centred(graph: Graph, p: str, threshold: float) -> str:
    """Probabilities moved so that a threshold of decision values in -1 .. 1 is at 0.5."""
    least = 1e-300  # as in `recipe.constrained.centred`
    zero, half, one, two = (graph.constant(np.array(x)) for x in (0.0, 0.5, 1.0, 2.0))
    decision = graph.add("Sub", graph.add("Mul", p, two), one)
    away = graph.add("Sub", decision, graph.constant(np.array(threshold)))
    sides = (
        graph.add("Div", away, graph.constant(np.array(max(width, least))))
        for width in (1 - threshold, 1 + threshold)
    )
    moved = graph.add("Where", graph.add("Greater", away, zero), *sides)
    value = graph.add("Mul", graph.add("Add", moved, one), half)
    return graph.add("Clip", value, zero, one, out=VALUE)


def _type(name: str) -> int:
    from onnx import TensorProto

    return int(TensorProto.DataType.Value(name))


def _onnx_model(graph: Graph, model: TableModel) -> Any:
    from onnx import TensorProto, checker, helper

    kinds = {
        name: TensorProto.DOUBLE if isinstance(kept, Numbers) else TensorProto.STRING
        for name, kept in model.encoder.columns_.items()
    }
    inputs = [helper.make_tensor_value_info(x, kind, ["rows", 1]) for x, kind in kinds.items()]
    task = model.outcome.task
    one: list[str | int] = ["rows"]
    each = [*one, len(model.outcome.classes)]
    label = (TensorProto.INT64, each) if task == "multilabel" else (TensorProto.STRING, one)
    outputs = [
        helper.make_tensor_value_info(LABEL, *label),
        helper.make_tensor_value_info(VALUE, TensorProto.DOUBLE, one if task == "binary" else each),
    ]
    body = helper.make_graph(graph.nodes, "anyloss", inputs, outputs, graph.constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, VERSION)]
    whole = helper.make_model(body, opset_imports=opsets, producer_name="anyloss", ir_version=10)
    helper.set_model_props(whole, {"classes": json.dumps(model.outcome.classes)})
    checker.check_model(whole, full_check=True)
    return whole
