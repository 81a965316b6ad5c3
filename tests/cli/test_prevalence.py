"""`predict`: thresholds for another share of positive rows, and calibrated probabilities."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.metrics import f1_score

from anyloss.cli import main
from anyloss.tabular import (
    estimate_prevalence,
    fit_table,
    load,
    predict_table,
    predicting,
    save,
)


@pytest.fixture(scope="module")
def noisy():
    """A table whose classes overlap, so that the threshold matters."""
    frame = load_breast_cancer(as_frame=True).frame[["mean texture", "mean smoothness", "target"]]
    return frame.rename(columns={"target": "benign"})


@pytest.fixture(scope="module", params=["linear", "mlp", "lightgbm"])
def folder(request, noisy, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model"
    save(fit_table(noisy, "benign", "f1", positive="0", model=request.param, folds=0), path)
    return path


def written(folder, table, out, *more):
    assert main(["predict", str(folder), str(table), "--out", str(out), *more]) in (0, None)
    return pd.read_csv(out, dtype={"prediction": str})


def predicted(folder, table, out, *more):
    return written(folder, table, out, *more)["prediction"]


def test_rarer_positives_are_predicted_less_often(folder, noisy, tmp_path):
    table = tmp_path / "new.csv"
    noisy.drop(columns="benign").to_csv(table, index=False)
    usual = predicted(folder, table, tmp_path / "usual.csv")
    rare = predicted(folder, table, tmp_path / "rare.csv", "--prevalence", "0.02")
    assert 0 < (rare == "0").sum() < (usual == "0").sum()
    weight = np.where(noisy["benign"] == 0, 0.02 / 0.373, 0.98 / 0.627)
    before, after = (
        f1_score(noisy["benign"].astype(str), x, pos_label="0", sample_weight=weight)
        for x in (usual, rare)
    )
    assert after > before
    moved = load(folder).with_prevalence(0.02)
    assert rare.tolist() == moved.decide(moved.decision_values(noisy)).tolist()


def test_the_share_of_a_new_file_is_estimated(folder, noisy, tmp_path, capsys, monkeypatch):
    positive = noisy["benign"] == 0
    table = pd.concat([noisy[~positive], noisy[positive].iloc[:18]])  # 5 %
    table.drop(columns="benign").to_csv(tmp_path / "new.csv", index=False)
    found = predicted(folder, tmp_path / "new.csv", tmp_path / "out.csv", "--prevalence", "auto")
    shown = float(re.search(r"estimated share of 0: (\S+)", capsys.readouterr().out)[1])
    model = load(folder)
    X = model.encoder.transform(model.read(table))
    share = float(model.classifier.estimate_priors(X)[1])
    assert shown == pytest.approx(share, rel=1e-3)
    if "LGBM" not in type(model.classifier).__name__:  # trees know the rows that they have seen
        assert 0.02 < share < 0.09
    moved = model.with_prevalence(share)
    assert found.tolist() == moved.decide(moved.decision_values(table)).tolist()
    monkeypatch.setattr(predicting, "PART", 40)  # some of the rows only, spread over the file
    assert estimate_prevalence(model, tmp_path / "new.csv") == pytest.approx(share, abs=0.15)
    assert main(["predict", str(folder), "-", "--out", "x.csv", "--prevalence", "auto"]) == 2
    assert "the standard input is read once" in capsys.readouterr().err


@pytest.mark.parametrize("share", ["0", "1", "2", "nan"])
def test_a_prevalence_is_a_share(folder, share, tmp_path, capsys):
    out = tmp_path / "out.csv"
    code = main(["predict", str(folder), "x.csv", "--out", str(out), "--prevalence", share])
    assert code == 2
    assert "the prevalence must be between 0 and 1" in capsys.readouterr().err


def test_probabilities_are_those_of_the_model(folder, noisy, tmp_path):
    table = tmp_path / "new.csv"
    noisy.drop(columns="benign").to_csv(table, index=False)
    plain = written(folder, table, tmp_path / "plain.csv")
    found = written(folder, table, tmp_path / "found.csv", "--probabilities")
    assert list(found) == ["prediction", "decision_value", "probability"]
    assert found.drop(columns="probability").equals(plain)
    assert found["probability"].to_numpy() == pytest.approx(load(folder).probabilities(noisy))
    assert found["probability"].mean() == pytest.approx((noisy["benign"] == 0).mean(), abs=0.05)
    rare = written(folder, table, tmp_path / "r.csv", "--probabilities", "--prevalence", "0.02")
    assert rare["probability"].mean() < 0.1


@pytest.mark.parametrize("model", ["tuned-linear", "plain-mlp", "weighted-lightgbm"])
def test_usual_methods_have_calibrated_probabilities(noisy, model, tmp_path):
    result = fit_table(noisy, "benign", "f1", positive="0", model=model, folds=0)
    save(result, tmp_path / "model")
    p = result.model.probabilities(noisy)
    assert p.mean() == pytest.approx((noisy["benign"] == 0).mean(), abs=0.05)
    assert np.array_equal(load(tmp_path / "model").probabilities(noisy), p)
    with pytest.raises(ValueError, match="--model linear, mlp or lightgbm"):
        result.model.with_prevalence(0.1)


@pytest.mark.parametrize("model", ["linear", "tuned-linear", "lightgbm"])
def test_several_classes_have_a_probability_each(model, tmp_path):
    wine = load_wine(as_frame=True).frame
    several = fit_table(wine, "target", "f1", model=model, folds=0).model
    with pytest.raises(
        ValueError, match="a prevalence is the share of a positive class .*got 3 classes"
    ):
        several.with_prevalence(0.1)
    wine.to_csv(tmp_path / "wine.csv", index=False)
    out = tmp_path / "out.parquet"
    predict_table(several, tmp_path / "wine.csv", out, probabilities=True)
    found = pd.read_parquet(out)
    names = [f"probability: {k}" for k in range(3)]
    assert list(found)[-3:] == names
    assert found[names].sum(axis=1).to_numpy() == pytest.approx(1)
    shares = found[names].mean().to_numpy()
    assert shares == pytest.approx(
        wine["target"].value_counts(normalize=True, sort=False), abs=0.03
    )
