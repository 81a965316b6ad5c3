"""A model of a table as one ONNX graph, from its columns to class and vote.

Each column is an input of its own, `(rows, 1)`: numbers as double with NaN for a gap, text as
string with the empty one for a gap. Outputs, `(rows,)`: `label` and `vote`, 0.5 decides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.outputs import aside, check_output
from anyloss.sklearn import AnyLossClassifier
from anyloss.tabular.encoder import Numbers, Texts
from anyloss.tabular.model import TableModel

OPSET = 21  # Equal takes strings from 19 on


class Graph:
    """Nodes and constants as they are added."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """A node; the name of its one output."""
        from onnx import helper

        out = out or f"/{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [out], **attributes))
        return out

    def constant(self, values: Any) -> str:
        """Numbers, whole numbers or texts that the graph holds; their name."""
        from onnx import numpy_helper

        name = f"/constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name


def export(model: TableModel, path: Path | str) -> None:
    """Write a linear model or a network, with its encoder, as an ONNX file."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "export needs onnx; install it with: pip install 'anyloss[onnx]'"
        ) from None
    path = Path(path)
    check_output(path, (".onnx",))
    if not isinstance(model.classifier, AnyLossClassifier):
        raise ValueError(
            "only linear models and networks become ONNX, and this is a model of trees: fit with "
            "--model linear or mlp, or convert the files in its folder"
        )
    taken = [name for name in ("label", "vote") if name in model.columns()]
    if taken:
        raise ValueError(f"the outputs are called label and vote, and so is a column: {taken}")
    graph = Graph()
    vote = _vote(graph, _encoded(graph, model), model.classifier.layers_)
    names = (graph.constant(np.array([x], dtype=object)) for x in (model.positive, model.negative))
    half = graph.constant(np.array(0.5))
    graph.add("Where", graph.add("Greater", vote, half), *names, out="label")
    whole = _whole(graph, model)
    with aside(path) as part:
        onnx.save(whole, str(part))


def _encoded(graph: Graph, model: TableModel) -> str:
    """The columns as `TableEncoder` writes them: numbers, where they had gaps, texts."""
    numbers, gaps, texts = list[str](), list[str](), list[str]()
    for name, kept in model.encoder.columns_.items():
        if isinstance(kept, Numbers):
            empty = graph.add("IsNaN", name)
            numbers.append(graph.add("Where", empty, graph.constant([[kept.median]]), name))
            if kept.gaps:
                gaps.append(graph.add("Cast", empty, to=_double()))
        else:
            texts += _one_hot(graph, name, kept)
    return graph.add("Concat", *numbers, *gaps, *texts, axis=1)


def _one_hot(graph: Graph, name: str, kept: Texts) -> list[str]:
    values = np.array([["" if value is None else value for value in kept.values]], dtype=object)
    same = graph.add("Equal", name, graph.constant(values))
    found = [graph.add("Cast", same, to=_double())]
    if kept.rare:  # whatever has no column of its own
        total = graph.add("ReduceSum", *found, graph.constant(np.array([1])), keepdims=1)
        found.append(graph.add("Sub", graph.constant([[1.0]]), total))
    return found


def _vote(graph: Graph, rows: str, layers: list[Array]) -> str:
    """The mean probability over the members, as `(rows,)`."""
    values = graph.add("Unsqueeze", rows, graph.constant(np.array([0])))
    for k, (weight, bias) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
        values = graph.add("Relu", values) if k else values
        product = graph.add("MatMul", values, graph.constant(weight))
        values = graph.add("Add", product, graph.constant(bias))
    mean = graph.add(
        "ReduceMean", graph.add("Sigmoid", values), graph.constant(np.array([0])), keepdims=0
    )
    return graph.add("Squeeze", mean, graph.constant(np.array([1])), out="vote")


def _double() -> int:
    from onnx import TensorProto

    return int(TensorProto.DOUBLE)


def _whole(graph: Graph, model: TableModel) -> Any:
    from onnx import TensorProto, checker, helper

    kinds = {
        name: TensorProto.DOUBLE if isinstance(kept, Numbers) else TensorProto.STRING
        for name, kept in model.encoder.columns_.items()
    }
    inputs = [helper.make_tensor_value_info(x, kind, ["rows", 1]) for x, kind in kinds.items()]
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.STRING, ["rows"]),
        helper.make_tensor_value_info("vote", TensorProto.DOUBLE, ["rows"]),
    ]
    body = helper.make_graph(graph.nodes, "anyloss", inputs, outputs, graph.constants)
    whole = helper.make_model(
        body, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="anyloss", ir_version=10
    )
    checker.check_model(whole, full_check=True)
    return whole
