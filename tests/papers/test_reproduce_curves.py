"""Resampling, learning curves and figures: exact where the papers' protocol is deterministic."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from imblearn.over_sampling import SMOTE
from sklearn.metrics import f1_score, log_loss

from papers import figures, learning_curves, network_training, resampling, runs, slp
from papers.__main__ import main
from papers.data import TABLE17, LabelledData, breast_cancer
from papers.four_sets import rates
from papers.published import published_figures
from papers.text_tables import truncated

pytestmark = pytest.mark.slow("the papers' experiments")

SHARED = Path(__file__).parents[3] / "shared" / "data"
needs_shared = pytest.mark.skipif(
    not (SHARED / "paper").is_dir(), reason=f"published scores and data sets are not in {SHARED}"
)
CANCER = "breast_cancer_393"


@pytest.fixture(scope="module")
def cancer():
    return breast_cancer()


# Table 7


def test_undersampling_is_exact_on_breast_cancer(cancer):
    """At the share that is best by F1; `python -m papers table7` runs all of them."""
    rows = resampling.scores(*cancer, rates(CANCER)["BCE"], "undersampling", 0.3)
    found = {row["metric"]: truncated(row["ours"], 3) for row in rows}
    expected = {x: published_figures(7, CANCER, x)["undersampling"] for x in resampling.METRICS}
    assert found == expected


def test_only_training_rows_are_resampled_and_with_seed_0(cancer):
    train, _ = slp.paper_folds(cancer.y)[3]
    X, y = resampling.resampled(cancer.X[train], cancer.y[train], "SMOTE", 0.5)
    made = SMOTE(sampling_strategy=0.5, random_state=0).fit_resample(
        cancer.X[train], cancer.y[train]
    )
    np.testing.assert_array_equal(X, made[0])
    assert y.sum() == (y == 0).sum() // 2
    fewer = resampling.resampled(cancer.X[train], cancer.y[train], "undersampling", 0.5)[1]
    assert fewer.sum() == cancer.y[train].sum() == (fewer == 0).sum() / 2


def test_the_best_share_is_compared_and_all_are_kept(tmp_path, monkeypatch, cancer):
    monkeypatch.setattr(resampling, "SHARES", (0.2, 0.7))
    monkeypatch.setattr(resampling, "SAMPLERS", ("SMOTE",))
    monkeypatch.setitem(TABLE17, "breast-cancer", (CANCER, lambda folder: cancer))
    request = runs.Request(tmp_path / "scores.csv", datasets=("breast-cancer",))
    table, missing = resampling.table7(request)
    assert len(table) == 6
    assert set(table.loc[table["published"].notna(), "share"]) == {0.7}
    text = resampling.table7_text(table, missing)
    assert text.endswith("exact matches: 3 of 3")
    assert "breast-cancer  SMOTE         0.7  f1                     0.930  0.930159" in text


# Table 9 and Figure 5


def test_achievement_rates_are_exact_on_breast_cancer(tmp_path, cancer):
    request = runs.Request(tmp_path / "rates.csv", datasets=("breast-cancer",))
    table, _ = learning_curves.table9(request)
    assert len(table) == 10
    assert table["agrees"].all(), table[~table["agrees"]]
    assert learning_curves.table9_text(table, {}).endswith("exact matches: 10 of 10")
    record = json.loads((tmp_path / "rates.json").read_text())
    assert record["figures"] == "Table 9"


def test_losses_are_those_of_scikit_learn(cancer):
    X = slp.with_intercept(cancer.X)
    folds = slp.paper_folds(cancer.y)[:1]
    w = np.random.default_rng(0).normal(size=(1, X.shape[1])) * 9  # sure rows: soft is hard
    train = folds[0][0]
    z = X[train] @ w[0]
    assert learning_curves.losses(w, X, cancer.y, folds, "L_F1")[0] == pytest.approx(
        1 - f1_score(cancer.y[train], z > 0), abs=1e-3
    )
    small = w / 90
    p = 1 / (1 + np.exp(-X[train] @ small[0]))
    assert learning_curves.losses(small, X, cancer.y, folds, "BCE")[0] == pytest.approx(
        log_loss(cancer.y[train], p)
    )


def drawn(path):
    """The number of groups in an SVG file, which must be well-formed."""
    return len(ET.parse(path).findall(".//{*}g[@id]"))


def test_figure_5_is_drawn(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    monkeypatch.setitem(
        TABLE17,
        "random",
        ("random_10000", lambda folder: LabelledData(X, (X[:, 0] > 0.5).astype(float))),
    )
    out = tmp_path / "figure5.csv"
    assert main(["figure5", "--dataset", "random", "--out", str(out)]) == 0
    table = pd.read_csv(out)
    start = table[table["epoch"] == 1].set_index("loss")["value"]
    assert start["BCE"] == pytest.approx(np.log(2))
    assert start["L_B"] == pytest.approx(0.5)
    assert drawn(out.with_suffix(".svg")) > 7


# Figures 2 to 4


def test_figure_2_has_the_points_that_the_paper_names(tmp_path, capsys):
    out = tmp_path / "figure2.csv"
    assert main(["figure2", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "  5  0.1            0.12  0.12" in shown
    assert "100  0.9             1.0   1.0" in shown
    first = out.with_suffix(".svg").read_bytes()
    main(["figure2", "--out", str(out)])
    assert out.with_suffix(".svg").read_bytes() == first
    table = pd.read_csv(out)
    np.testing.assert_allclose(table["value"], 1 / (1 + np.exp(-table["L"] * (table["p"] - 0.5))))


def plain_curve(X, y, scale, rate, steps):
    """As printed in the paper: 1 - a is a subtraction, so that a saturated row has gradient 0."""
    w, found = np.zeros(X.shape[1]), []
    for _ in range(steps):
        p = 1 / (1 + np.exp(-X @ w))
        a = 1 / (1 + np.exp(-scale * (p - 0.5)))
        tp, rows = a @ y, y.sum() + a.sum()
        found.append(1 - 2 * tp / rows)
        up = 2 * (y * rows - tp) / rows**2
        w = w + rate * X.T @ (up * scale * a * (1 - a) * p * (1 - p))
    return found


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
def test_learning_stops_by_saturation_and_not_by_rounding(cancer):
    X, y = slp.with_intercept(cancer.X), cancer.y
    last = {}
    for scale in (10, 73, 100):
        stable = figures.learning_curve(X, y, scale, 1.0, 40)
        np.testing.assert_allclose(stable, plain_curve(X, y, scale, 1.0, 40), atol=1e-6)
        last[scale] = stable[-1]
    assert last[10] < 0.1
    assert last[73] == pytest.approx(last[100], abs=1e-3)  # 73 is within Table 1's range
    assert last[73] > 0.2
    slow = figures.learning_curve(X, y, 100, 0.01, 40)
    assert slow[-1] < 0.05


def test_figure_3_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "STEPS", 12)
    out = tmp_path / "figure3.csv"
    text = figures.figure3(runs.Request(out))
    assert "saturation" in text
    assert len(pd.read_csv(out)) == 2 * 5 * 12
    assert drawn(out.with_suffix(".svg")) > 10


@needs_shared
def test_figure_4_shows_the_authors_scores_and_ours(tmp_path, monkeypatch):
    monkeypatch.setattr("papers.many_sets.QUICK_ROWS", 310)
    monkeypatch.setattr(network_training.scores, "__defaults__", (network_training.HIDDEN, 2))
    out = tmp_path / "figure4.csv"
    figures.figure4(runs.Request(out, SHARED, quick=True))
    table = pd.read_csv(out)
    counted = table.groupby("model")["dataset"].nunique()
    assert counted["SLP, paper"] == counted["MLP, paper"] == 102
    assert counted["SLP, ours"] == counted["MLP, ours"] < 10
    pictured = [tmp_path / f"figure4-rope{rope}.svg" for rope in ("0.01", "0.05")]
    assert pictured[0].read_bytes() != pictured[1].read_bytes()
    assert drawn(pictured[0]) > 20
