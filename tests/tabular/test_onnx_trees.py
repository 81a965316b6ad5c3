"""Trees as ONNX: the margins of the graph are those of LightGBM."""

from types import SimpleNamespace

import numpy as np
import pytest

from anyloss.boosting import LGBMAnyLossClassifier
from anyloss.tabular.onnx import OPSET, Graph
from anyloss.tabular.onnx_trees import DOMAIN, VERSION, Trees, margin

onnx = pytest.importorskip("onnx")
SETTINGS = {"n_estimators": 12, "folds": 2, "repeats": 1, "n_jobs": 1, "random_state": 0}


def rows(n=240, seed=0):
    """Rows with gaps, a column of zeros and ones, and thresholds on both sides of 0."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    X[:, 3] = rng.integers(0, 2, n)
    y = (X[:, 0] + X[:, 3] + rng.normal(size=n) > 0.8).astype(int)
    X[rng.random((n, 4)) < 0.15] = np.nan
    return X, y


def evaluated(classifier, X):
    """The margins of the graph by the reference evaluator."""
    from onnx import TensorProto, checker, helper, reference

    graph = Graph()
    z = margin(graph, "rows", classifier)
    given = helper.make_tensor_value_info("rows", TensorProto.DOUBLE, ["n", X.shape[1]])
    found = helper.make_tensor_value_info(z, TensorProto.DOUBLE, ["n", None])
    body = helper.make_graph(graph.nodes, "trees", [given], [found], graph.constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, VERSION)]
    whole = helper.make_model(body, opset_imports=opsets, ir_version=10)
    checker.check_model(whole, full_check=True)
    return reference.ReferenceEvaluator(whole).run(None, {"rows": X})[0]


@pytest.mark.parametrize("kind", ["two", "moved", "constrained", "several", "labels"])
def test_margins_are_those_of_lightgbm(kind):
    X, y = rows()
    given = {"metric": "precision", "constraints": "recall >= 0.8"} if kind == "constrained" else {}
    if kind == "several":
        y = y + (X[:, 1] > 1)
    if kind == "labels":
        y = np.column_stack([y, X[:, 1] > 0, np.arange(len(y)) == 7]).astype(int)
    model = LGBMAnyLossClassifier(**SETTINGS, **given).fit(X, y)
    if kind == "moved":
        model = model.with_priors([0.9, 0.1])
        assert model.class_offsets_[0] != 0
    new, _ = rows(60, seed=1)
    expected = model.decision_function(new).reshape(60, -1)
    if kind not in ("several", "labels") and model.pos_label_ != 1:
        expected = -expected
    np.testing.assert_allclose(evaluated(model, new), expected, rtol=0, atol=1e-12)


def test_trees_without_a_split_are_constants():
    X, y = rows(40)
    model = LGBMAnyLossClassifier(**SETTINGS, min_child_samples=100).fit(X, y)
    found = evaluated(model, X)[:, 0]
    assert np.ptp(found) == 0
    assert abs(found[0]) == pytest.approx(abs(model.decision_function(X)[0]))


def test_gaps_without_gaps_in_training_are_zeros():
    X, y = rows()
    X = np.nan_to_num(X)
    model = LGBMAnyLossClassifier(pos_label=1, **SETTINGS).fit(X, y)
    new, _ = rows(60, seed=1)
    np.testing.assert_allclose(
        evaluated(model, new)[:, 0], model.decision_function(new), rtol=0, atol=1e-12
    )


def test_categories_of_lightgbm_are_refused():
    with pytest.raises(ValueError, match="own categories cannot be exported"):
        Trees(1).add({"decision_type": "=="}, 1.0, 0)


def test_a_label_without_a_model_is_a_constant():
    found = SimpleNamespace(
        started=[[1.5]], whole=[], refined=[], share=0.0, offset=np.array([0.5])
    )
    model = SimpleNamespace(
        models_=found, task_="multilabel", classes_=[0], class_offsets_=np.zeros(1)
    )
    np.testing.assert_allclose(evaluated(model, np.ones((3, 2))), np.ones((3, 1)))
