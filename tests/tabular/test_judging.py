"""How a model is judged: one set of test rows or cross-fitting; and the usual methods by name."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics as sk
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from anyloss.baselines.splits import MODELS, new_split
from anyloss.baselines.tables import several_decisions, several_split
from anyloss.cli import main
from anyloss.tabular import fit_table, load, save
from anyloss.tabular.evaluating import predictions
from anyloss.tabular.preparing import fitted_encoder
from anyloss.tabular.scoring import scoring_of
from anyloss.tabular.splitting import plan_splits, row_keys
from anyloss.tabular.usual import USUAL, UsualClassifier

CANCER = load_breast_cancer(as_frame=True).frame[["mean area", "mean texture", "target"]]


def plan(y, folds=None, groups=None, times=None, task="binary", frame=None, used=None):
    frame = pd.DataFrame({"a": np.arange(len(y))}) if frame is None else frame
    used = np.ones(len(y), dtype=bool) if used is None else used
    return plan_splits(row_keys(frame), y, used, 0.2, folds, 0, task, groups, times)


def test_few_rows_of_a_class_are_judged_by_cross_fitting():
    many, few = np.repeat([0.0, 1.0], [600, 250]), np.repeat([0.0, 1.0], [600, 245])
    assert not plan(many).crossed
    assert "170 random rows that the model has not seen" in plan(many).words
    found = plan(few)
    assert found.crossed
    assert "would have only 49 rows of a class" in found.words
    tests = np.array([test for _, test in found.splits])
    assert (tests.sum(axis=0) == 1).all()  # each row is tested once
    for train, test in found.splits:
        assert (train == ~test).all()
        assert few[test].sum() == 49
    assert not plan(few, folds=0).crossed
    assert len(plan(many, folds=3).splits) == 3
    assert not plan(np.repeat([0.0, 1.0], [21_000, 200])).crossed  # too many rows
    with pytest.raises(ValueError, match="folds must be 0, .* or at least 2; got 1"):
        plan(many, folds=1)


def test_rows_that_certify_are_in_no_fold():
    y, used = np.repeat([0.0, 1.0], 150), np.arange(300) % 5 > 0
    for train, test in plan(y, used=used).splits:
        assert not (train | test)[~used].any()
        assert (train | test)[used].all()


def test_copies_and_groups_stay_in_one_fold():
    y = np.repeat([0.0, 1.0], 150)
    twice = pd.DataFrame({"a": np.tile(np.arange(75), 4)})
    for train, test in plan(y, frame=twice).splits:
        assert not set(twice["a"][train]) & set(twice["a"][test])
    groups = np.arange(300) % 60
    for train, test in plan(y, groups=groups).splits:
        assert not set(groups[train]) & set(groups[test])


def test_folds_of_the_time_train_on_earlier_rows():
    y, times = np.tile([0.0, 1.0], 150), np.random.default_rng(0).permutation(300) // 4
    found = plan(y, times=times.astype(float))
    assert len(found.splits) == 5
    assert "to earlier rows only" in found.words
    seen = np.zeros(300, dtype=int)
    for train, test in found.splits:
        assert times[train].max() < times[test].min()
        seen += test
    assert seen.max() == 1
    late = np.where(np.arange(300) < 200, 0.0, np.tile([0.0, 1.0], 150))  # positives come late
    found = plan(late, times=np.arange(300.0))
    assert all(late[train].sum() >= 5 for train, _ in found.splits)
    assert len(found.splits) < 5


def test_the_score_is_that_of_all_rows(tmp_path):
    result = fit_table(CANCER, "target", model="plain-linear")
    assert (result.facts["folds"], result.facts["fits"]) == (5, 6)
    assert result.facts["test_rows"] == result.facts["train_rows"] == len(result.y_test) == 569
    assert result.y_test.sum() == 212
    X, y = CANCER.drop(columns="target").to_numpy(), (CANCER["target"] == 0).to_numpy(float)
    found = plan(y, frame=CANCER.drop(columns="target"))
    decided, labels = [], []
    for train, test in found.splits:  # the same folds, fitted with scikit-learn alone
        scaler = StandardScaler().fit(X[train])
        model = LogisticRegression(max_iter=1000).fit(scaler.transform(X[train]), y[train])
        decided.append(model.predict(scaler.transform(X[test])))
        labels.append(y[test])
    np.testing.assert_array_equal(result.y_test, np.concatenate(labels))
    assert result.score == sk.f1_score(result.y_test, np.concatenate(decided))
    scaler = StandardScaler().fit(X)  # the model that is kept is fitted on all rows
    model = LogisticRegression(max_iter=1000).fit(scaler.transform(X), y)
    np.testing.assert_allclose(
        result.model.decision_values(CANCER), model.predict_proba(scaler.transform(X))[:, 1]
    )
    one = fit_table(CANCER, "target", model="plain-linear", folds=0)
    assert one.facts["folds"] == 0
    assert one.facts["test_rows"] == pytest.approx(114, abs=1)
    width = [x.interval[1] - x.interval[0] for x in (result, one)]
    assert width[0] < 0.7 * width[1]


def test_the_certificate_keeps_its_own_rows():
    result = fit_table(
        CANCER, "target", "precision", positive="0", model="linear", constraints="recall >= 0.7",
        confidence_level=0.9,
    )  # fmt: skip
    assert result.facts["folds"] == 5
    certifying = round(0.2 * 569)
    assert result.facts["test_rows"] == 569 - certifying
    assert result.certificate is not None
    assert len(result.baselines) >= 1


def test_the_printed_sentence_states_what_the_score_rests_on(tmp_path, capsys):
    CANCER.to_csv(tmp_path / "a.csv", index=False)
    words = ["fit", str(tmp_path / "a.csv"), "--target", "target", "--model", "tuned-linear"]
    assert main([*words, "--out", str(tmp_path / "m"), "--verbose"]) == 0
    out, err = capsys.readouterr()
    assert (
        "the score rests on 569 rows in 5 folds, each predicted by a model that was fitted without "
        "its fold (one set of test rows would have only 42 rows of a class)"
    ) in out
    assert "5 more models are fitted" in " ".join(err.split())
    assert "Fold 5 of 5: Fitting the model 'tuned-linear'" in err
    assert "; encoded: number" in out
    stored = json.loads((tmp_path / "m" / "metrics.json").read_text())
    assert stored["facts"]["folds"] == 5
    assert "Score rests on" in (tmp_path / "m" / "report.html").read_text()


# The usual methods


@pytest.mark.parametrize("name", list(USUAL))
def test_a_usual_model_decides_as_the_row_of_a_comparison(name, tmp_path):
    if name.endswith("lightgbm"):
        pytest.importorskip("lightgbm")
    frame, y = CANCER.drop(columns="target"), (CANCER["target"] == 0).to_numpy(float)
    train = np.arange(569) % 3 > 0
    encoder, X = fitted_encoder(frame[train], y[train])
    test = encoder.transform(frame[~train])
    model = UsualClassifier(name, "f1", "binary", "binary", 2, seed=0).fit(X, y[train])
    base, method = USUAL[name]
    split = new_split(X, y[train], test, MODELS.get(base, ()), 0)
    family = method.removesuffix("_tuned")
    (expected,) = predictions(base, {family: [method]}, split, "f1")
    decided = model.predict_proba(test)[:, 1] > 0.5
    np.testing.assert_array_equal(decided, expected.decision)
    model.save(tmp_path / "m")
    again = UsualClassifier.load(tmp_path / "m").predict_proba(test)
    np.testing.assert_array_equal(again, model.predict_proba(test))
    assert not list((tmp_path / "m").rglob("*.pkl"))


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
@pytest.mark.parametrize("name", ["plain-linear", "tuned-linear", "weighted-mlp", "tuned-mlp",
                                  "tuned-lightgbm"])  # fmt: skip
def test_usual_models_of_several_classes_and_labels(name, task, tmp_path):
    if name.endswith("lightgbm"):
        pytest.importorskip("lightgbm")
    X, classes = load_wine(return_X_y=True)
    X = X[:, :4]
    y = np.eye(3)[classes]
    if task == "multilabel":
        y = np.column_stack([classes == 0, X[:, 1] > 2]).astype(float)
    base, method = USUAL[name]
    model = UsualClassifier(name, "f1", "macro", task, y.shape[1], seed=0)
    labels = classes if task == "multiclass" else y
    if (name, task) == ("weighted-mlp", "multilabel"):
        with pytest.raises(ValueError, match="'weighted-mlp' cannot be trained for several labels"):
            model.fit(X, labels)
        return
    values = model.fit(X, labels).predict_proba(X)
    split = several_split(X, y, X, task, base, 0)
    ((_, expected),) = several_decisions(base, split, [method], *scoring_of("f1", task, y.shape[1]))
    if task == "multiclass":
        np.testing.assert_array_equal(values.argmax(axis=1), expected.argmax(axis=1))
    else:
        np.testing.assert_array_equal(values > 0.5, expected == 1)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(UsualClassifier.load(tmp_path / "m").predict_proba(X), values)


def test_a_recommended_model_is_saved_and_predicts(tmp_path, capsys):
    result = fit_table(CANCER, "target", model="tuned-linear")
    assert (result.model_name, result.candidates) == ("tuned-linear", {})
    names = [x.name for x in result.baselines if not x.trivial]
    assert names == [
        "cross-entropy, threshold 0.5", "class-weighted cross-entropy",
        "trained for the metric (anyloss)",
    ]  # fmt: skip
    save(result, tmp_path / "m")
    loaded = load(tmp_path / "m")
    np.testing.assert_array_equal(
        loaded.decision_values(CANCER), result.model.decision_values(CANCER)
    )
    CANCER.to_csv(tmp_path / "a.csv", index=False)
    place = [str(tmp_path / "m"), str(tmp_path / "a.csv")]
    assert main(["predict", *place, "--out", str(tmp_path / "p.csv")]) == 0
    with pytest.raises(
        ValueError, match="'tuned-linear' knows no constraints: choose one of linear"
    ):
        fit_table(CANCER, "target", model="tuned-linear", constraints="recall >= 0.9")
    with pytest.raises(ValueError, match="model must be one of auto, linear, .* got 'forest'"):
        fit_table(CANCER, "target", model="forest")
    capsys.readouterr()
    assert main(["export", str(tmp_path / "m"), str(tmp_path / "m.onnx")]) == 2
    assert "fit with --model linear, mlp or lightgbm" in capsys.readouterr().err


def test_a_comparison_names_the_models_of_fit(tmp_path, capsys):
    CANCER.to_csv(tmp_path / "a.csv", index=False)
    words = ["compare", str(tmp_path / "a.csv"), "--target", "target", "--folds", "3"]
    assert main([*words, "--repeats", "2", "--journal", str(tmp_path / "j")]) == 0
    out = capsys.readouterr().out
    lines = {x.split("  ")[0]: x.split()[-1] for x in out.splitlines()}
    assert lines["cross-entropy, threshold 0.5"] == "plain-linear"
    assert lines["cross-entropy, tuned threshold"] == "tuned-linear"
    assert lines["class-weighted cross-entropy"] == "weighted-linear"
    assert lines["LightGBM, tuned threshold"] == "tuned-lightgbm"
    assert lines["anyloss"] == "linear"
    assert "'anyloss fit --model " in out.splitlines()[-1]
