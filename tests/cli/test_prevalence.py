"""`predict --prevalence`: the threshold for another share of positive rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.metrics import f1_score

from anyloss.cli import main
from anyloss.tabular import fit_table, load, save


@pytest.fixture(scope="module")
def noisy():
    """A table whose classes overlap, so that the threshold matters."""
    frame = load_breast_cancer(as_frame=True).frame[["mean texture", "mean smoothness", "target"]]
    return frame.rename(columns={"target": "benign"})


@pytest.fixture(scope="module")
def folder(noisy, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model"
    save(fit_table(noisy, "benign", "f1", positive="0", model="linear", folds=0), path)
    return path


def predicted(folder, table, out, *more):
    assert main(["predict", str(folder), str(table), "--out", str(out), *more]) in (0, None)
    return pd.read_csv(out, dtype={"prediction": str})["prediction"]


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


@pytest.mark.parametrize("share", ["0", "1", "2", "nan"])
def test_a_prevalence_is_a_share(folder, share, tmp_path, capsys):
    out = tmp_path / "out.csv"
    code = main(["predict", str(folder), "x.csv", "--out", str(out), "--prevalence", share])
    assert code == 2
    assert "the prevalence must be between 0 and 1" in capsys.readouterr().err


def test_other_models_have_no_prevalence(noisy):
    wine = load_wine(as_frame=True).frame
    several = fit_table(wine, "target", "f1", model="linear", folds=0).model
    with pytest.raises(ValueError, match="a prevalence is for two classes"):
        several.with_prevalence(0.1)
    trees = fit_table(noisy, "benign", "f1", model="lightgbm", folds=0).model
    with pytest.raises(ValueError, match="fit one with --model linear"):
        trees.with_prevalence(0.1)
