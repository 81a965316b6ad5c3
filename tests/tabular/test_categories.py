"""Columns of many categories: the mean label of each, cross-fitted on the training rows."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_predict
from sklearn.preprocessing import TargetEncoder

from anyloss.tabular import TableEncoder, fit_table, for_tables, load, save
from anyloss.tabular.encoder import SEED
from anyloss.tabular.encodings import SMOOTH, Means


def shops(n=600, levels=60, seed=0, noise=False):
    """A column of many shops, each with an effect of its own (or none)."""
    rng = np.random.default_rng(seed)
    code, x = rng.integers(0, levels, n), rng.normal(size=n)
    effect = 0 if noise else 2 * np.random.default_rng(7).normal(size=levels)[code]
    y = (rng.random(n) < 1 / (1 + np.exp(0.5 - effect))).astype(int)
    names = np.char.add("shop ", code.astype(str)).astype(object)
    return pd.DataFrame({"x": x, "shop": names}), y


def expected_encoder(values, y):
    """scikit-learn's encoder for a column of 0 and 1."""
    return TargetEncoder(target_type="binary", smooth=SMOOTH).fit(values[:, None], y)


def test_the_means_are_those_of_scikit_learn():
    frame, y = shops()
    frame.loc[::9, "shop"] = None
    encoder = TableEncoder().fit(frame, y)
    new = frame.iloc[:50].copy()
    new.loc[3, "shop"] = "a new shop"
    filled = frame["shop"].fillna("missing").to_numpy()
    expected = expected_encoder(filled, y).transform(
        new["shop"].fillna("missing").to_numpy()[:, None]
    )
    assert encoder.get_feature_names_out().tolist() == ["x", "shop: mean label"]
    np.testing.assert_allclose(encoder.transform(new)[:, 1], expected[:, 0])
    assert encoder.transform(new)[3, 1] == pytest.approx(y.mean())
    assert encoder.in_words()["shop"] == "mean label of each of 61 values"


def test_training_rows_are_encoded_by_the_labels_of_other_folds():
    frame, y = shops()
    encoder = TableEncoder()
    encoded = encoder.fit_transform(frame, y)
    values = frame["shop"].to_numpy()
    folds = StratifiedKFold(5, shuffle=True, random_state=SEED).split(values, y)
    expected = np.empty(len(y))
    for rows, held in folds:
        expected[held] = expected_encoder(values[rows], y[rows]).transform(values[held, None])[:, 0]
    np.testing.assert_allclose(encoded[:, 1], expected)
    np.testing.assert_array_equal(
        encoder.transform(frame), TableEncoder().fit(frame, y).transform(frame)
    )


def test_groups_stay_in_one_fold():
    frame, y = shops()
    groups = np.arange(len(y)) // 4
    encoded = TableEncoder().fit_transform(frame, y, groups)
    values, expected = frame["shop"].to_numpy(), np.empty(len(y))
    folds = StratifiedGroupKFold(5, shuffle=True, random_state=SEED)
    for rows, held in folds.split(values, y, groups):
        assert not set(groups[rows]) & set(groups[held])
        expected[held] = expected_encoder(values[rows], y[rows]).transform(values[held, None])[:, 0]
    np.testing.assert_allclose(encoded[:, 1], expected)


@pytest.mark.parametrize("kind", ["classes", "labels"])
def test_several_classes_and_labels_have_a_column_each(kind):
    frame, y = shops()
    rng = np.random.default_rng(1)
    if kind == "classes":
        target = np.where(y == 1, "c", rng.choice(["a", "b"], len(y)))
        columns, names = (target[:, None] == ["a", "b", "c"]).astype(int), ["a", "b", "c"]
    else:
        target = columns = np.column_stack([y, rng.integers(0, 2, len(y))])
        names = ["0", "1"]
    encoder = TableEncoder().fit(frame, target)
    found, values = encoder.transform(frame), frame["shop"].to_numpy()
    assert encoder.get_feature_names_out().tolist()[1:] == [f"shop: mean label {x}" for x in names]
    for k, labels in enumerate(columns.T):
        expected = expected_encoder(values, labels).transform(values[:, None])[:, 0]
        np.testing.assert_allclose(found[:, k + 1], expected)
    stored = json.loads(json.dumps(encoder.to_json()))
    np.testing.assert_array_equal(TableEncoder.from_json(stored).transform(frame), found)
    assert TableEncoder().fit_transform(frame, target).shape == found.shape


def test_the_limit_decides():
    frame, y = shops(levels=20)
    assert TableEncoder().fit_transform(frame, y).shape[1] == 21
    assert TableEncoder(max_categories=19).fit_transform(frame, y).shape[1] == 2
    assert TableEncoder(max_categories=None).fit_transform(*shops(levels=60)).shape[1] == 61
    assert TableEncoder(max_categories=19).fit_transform(frame).shape[1] == 20  # without labels


def test_noise_stays_noise():
    """Shops without any effect: a model on cross-fitted means has the AUC of chance."""
    aucs = []
    for seed in range(5):
        frame, y = shops(400, levels=150, seed=seed, noise=True)
        X = TableEncoder().fit_transform(frame, y)
        p = cross_val_predict(LogisticRegression(), X, y, cv=5, method="predict_proba")[:, 1]
        plain = TableEncoder().fit(frame, y).transform(frame)  # with each row's own label
        q = cross_val_predict(LogisticRegression(), plain, y, cv=5, method="predict_proba")[:, 1]
        aucs.append((roc_auc_score(y, p), roc_auc_score(y, q)))
    fitted, leaked = np.mean(aucs, axis=0)
    assert fitted < 0.54
    assert leaked > 0.7


def test_pipelines_encode_the_training_rows_by_other_rows():
    frame, y = shops()
    model = for_tables(LogisticRegression()).fit(frame, y)
    expected = LogisticRegression().fit(TableEncoder().fit_transform(frame, y), y)
    np.testing.assert_array_equal(model[-1].coef_, expected.coef_)


def test_sixty_levels_are_not_lost(tmp_path):
    frame, y = shops(900)
    frame["left"] = np.where(y == 1, "yes", "no")
    scores = {
        most: fit_table(frame, "left", model="tuned-linear", folds=0, max_categories=most)
        for most in (20, 100)
    }
    assert abs(scores[20].score - scores[100].score) < 0.06
    result = scores[20]
    assert isinstance(result.model.encoder.columns_["shop"], Means)
    assert {x.name: x.encoding for x in result.readings} == {
        "x": "number", "shop": "mean label of each of 60 values"
    }  # fmt: skip
    assert scores[100].readings[1].encoding == "one-hot, 60 columns"
    save(result, tmp_path / "m")
    model = load(tmp_path / "m")
    np.testing.assert_array_equal(model.decision_values(frame), result.model.decision_values(frame))
    with pytest.raises(
        ValueError, match="max_categories must be an integer of at least 2, or None"
    ):
        fit_table(frame, "left", max_categories=1)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_the_means_are_exported(task, tmp_path):
    reference = pytest.importorskip("onnx.reference")
    from anyloss.tabular.onnx import export

    frame, y = shops(500)
    frame.loc[::11, "shop"] = None
    names = np.array(["no", "yes", "maybe"])
    frame["left"] = names[y + (task == "multiclass") * (frame["x"].to_numpy() > 1) * (1 - y) * 2]
    model = fit_table(frame, "left", model="linear", folds=0).model
    export(model, tmp_path / "m.onnx")
    new = shops(80, levels=70, seed=3)[0]
    new.loc[::7, "shop"] = None
    inputs = {
        "x": new[["x"]].to_numpy(float),
        "shop": new[["shop"]].fillna("").to_numpy(object),
    }
    graph = reference.ReferenceEvaluator(str(tmp_path / "m.onnx"))
    (value,) = graph.run(["decision_value"], inputs)
    np.testing.assert_allclose(value, model.decision_values(new), atol=1e-9)
