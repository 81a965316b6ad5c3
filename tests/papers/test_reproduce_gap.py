"""Randomised networks: Bridging the Gap, images, and the surrogate F-beta."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics as sk
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from anyloss.torch import AUROCLoss
from papers import images, perceptrons, reproduce, residual, runs, soft_sets
from papers import surrogate_fbeta as sur
from papers.__main__ import main
from papers.comparison import comparison_text, with_published
from papers.published import printed_table

pytestmark = pytest.mark.slow("the papers' experiments")

SHARED = Path(__file__).parents[3] / "shared" / "data"
needs_shared = pytest.mark.skipif(
    not (SHARED / "images").is_dir(), reason=f"images and data sets are not in {SHARED}"
)


# Trials side by side


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return X, (y == 0).astype(float)


def test_a_split_is_stratified_and_scaled_by_its_training_rows(cancer):
    parts = perceptrons.split_trials(*cancer, trials=3)
    assert [part.y.shape for part in parts] == [(364, 3), (91, 3), (114, 3)]
    for part in parts:
        np.testing.assert_allclose(part.y.mean(0), cancer[1].mean(), atol=0.01)
    np.testing.assert_allclose(parts.train.X.mean(1), 0.0, atol=1e-5)
    np.testing.assert_allclose(parts.train.X.std(1, correction=0), 1.0, atol=1e-5)
    assert not torch.equal(parts.test.y[:, 0], parts.test.y[:, 1])


def test_networks_side_by_side_equal_single_networks():
    torch.manual_seed(0)
    model = perceptrons.Perceptrons(trials=3, inputs=5).eval()
    X, y = torch.randn(3, 40, 5), (torch.rand(40, 3) < 0.3).float()
    sizes = ((5, 32), (32, 16), (16, 1))
    for k in range(3):
        layers = [torch.nn.Linear(*size) for size in sizes]
        for layer, weight, bias in zip(layers, model.weights, model.biases, strict=True):
            assert weight.abs().max() <= layer.in_features**-0.5
            layer.weight.data, layer.bias.data = weight[k].T.clone(), bias[k, 0].clone()
        first, second, last = layers
        single = last(second(first(X[k]).relu()).relu())[:, 0]
        torch.testing.assert_close(model(X)[:, k], single)
    for loss in (*soft_sets.losses(1).values(), *soft_sets.losses(4).values()):
        found = loss(model(X), y)
        assert found.shape == (3,)
        torch.testing.assert_close(found[1:], loss(model(X)[:, 1:], y[:, 1:]))
        (gradient,) = torch.autograd.grad(found[1], [model.weights[0]])
        assert gradient[1].any()
        assert not gradient[[0, 2]].any()


def test_dropout_keeps_the_mean():
    torch.manual_seed(0)
    model = perceptrons.Perceptrons(trials=2, inputs=4)
    with torch.no_grad():  # linear, so that the mean passes through
        for weight, bias in zip(model.weights, model.biases, strict=True):
            weight.abs_()
            bias.abs_()
    X = torch.rand(2, 1, 4).expand(2, 20_000, 4)
    sure = model.eval()(X)
    drawn = model.train()(X)
    assert drawn.std() > 0.05
    torch.testing.assert_close(drawn.mean(0), sure.mean(0), rtol=0.02, atol=0.0)


def test_training_is_the_same_again_and_ranks_as_logistic_regression_does(cancer):
    parts = perceptrons.split_trials(*cancer, trials=2)
    loss = soft_sets.losses(1)["soft-set F1, sigmoid"]
    first, again = (perceptrons.fit(parts, loss, epochs=60) for _ in range(2))
    assert torch.equal(first, again)
    for k in range(2):
        X, y = parts.train.X[k], parts.train.y[:, k]
        baseline = LogisticRegression().fit(X, y).decision_function(parts.test.X[k])
        truth = parts.test.y[:, k].numpy()
        ours = soft_sets.scores(truth, first[:, k].numpy())["auroc"]
        assert ours > sk.roc_auc_score(truth, baseline) - 0.02


# Scores


def test_scores_are_means_over_thresholds_also_as_in_the_authors_code():
    rng = np.random.default_rng(0)
    y = (rng.random(300) < 0.2).astype(float)
    z = 2 * y + rng.normal(size=300) - 1
    p = 1 / (1 + np.exp(-z))
    (name, clean), (coded_name, coded) = soft_sets.variants("BCE", y, z)
    assert (name, coded_name) == ("BCE", "BCE, logits cut")
    assert clean["auroc"] == coded["auroc"] == sk.roc_auc_score(y, z)
    for found, values in ((clean, p), (coded, z)):
        for key, reference in {
            "f1": sk.f1_score,
            "accuracy": sk.accuracy_score,
            "recall": sk.recall_score,
            "precision": lambda y, d: sk.precision_score(y, d, zero_division=0),
            "f3": lambda y, d: sk.fbeta_score(y, d, beta=3),
            "auroc_of_labels": sk.roc_auc_score,
        }.items():
            mean = np.mean([reference(y, values > k / 10) for k in range(1, 10)])
            assert found[key] == pytest.approx(mean), key
    assert [name for name, _ in soft_sets.variants("WMW AUROC", y, z)] == ["WMW AUROC"]


def test_areas_column_by_column():
    z, y = torch.randn(50, 3), (torch.rand(50, 3) < 0.4).float()
    each = AUROCLoss(average=None)(z, y)
    torch.testing.assert_close(each.mean(), AUROCLoss()(z, y))
    torch.testing.assert_close(each[2], AUROCLoss()(z[:, 2], y[:, 2]))
    with pytest.raises(ValueError, match="average must be 'macro' or None; got 'micro'"):
        AUROCLoss(average="micro")


def test_published_figures_are_compared_with_ours():
    columns = ["dataset", "loss", "metric", "ours"]
    cells = [("A", 0.5), ("A", 0.7), ("B", 0.4), ("B", 0.4), ("B as coded", 0.9), ("C", 0.1)]
    scores = pd.DataFrame([("set", x, "labels", value) for x, value in cells], columns=columns)
    extra = pd.DataFrame([("set", "A", "auroc", 0.8)], columns=columns)
    paper = pd.DataFrame(
        [("set", "A", "auroc", 0.55), ("set", "B", "auroc", 0.45)],
        columns=["dataset", "loss", "metric", "value"],
    )
    table = with_published(
        pd.concat([scores, extra]), paper, {"B as coded": "B"}, {"labels": "auroc"}
    ).set_index(["loss", "metric"])
    assert table["ours"].tolist() == pytest.approx([0.6, 0.4, 0.9, 0.1, 0.8])
    assert table["spread"].iloc[0] == pytest.approx(np.std([0.5, 0.7], ddof=1))
    np.testing.assert_array_equal(table["published"], [0.55, 0.45, 0.45, np.nan, np.nan])
    assert table["difference"].iloc[2] == pytest.approx(0.45)
    text = comparison_text("Title", ["a remark"], table.reset_index(), "B").splitlines()
    assert text[:2] == ["Title", "  a remark"]
    assert text[4].split() == ["set", "A", "labels", "0.55", "0.60", "±", "0.14", "+0.05"]
    assert text[-3].split() == ["set", "labels", "A", "A"]  # not the one as coded
    assert text[-1] == "A above B: 1 of 1 figures in the paper, 1 of these here; 1 of 1 here in all"


# Images


def test_a_small_residual_network_learns_and_is_the_same_again():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1100, 1, 12, 12)).astype(np.float32)
    y = rng.random(1100) < 0.3
    X[y, :, 3:9, 3:9] += 1.0
    fit = (soft_sets.bce, X[:768], y[:768], X[768:])
    z = residual.fit(*fit, epochs=8, seed=1)
    assert sk.roc_auc_score(y[768:], z) > 0.95
    np.testing.assert_array_equal(z, residual.fit(*fit, epochs=8, seed=1))
    assert not np.array_equal(z, residual.fit(*fit, epochs=8, seed=2))


def test_images_are_scaled_and_chosen(tmp_path):
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, size=(30, 4, 4, 3), dtype=np.uint8)
    y = np.repeat(np.arange(3), 10)
    file = tmp_path / "images" / "some.npz"
    np.savez(file, x_train=x, y_train=y, x_test=x[:5], y_test=y[:5])
    found = residual.read_images(tmp_path, "some")
    X = found.scaled(found.x)
    assert X.shape == (30, 3, 4, 4)
    np.testing.assert_allclose(X.mean((0, 2, 3)), 0.0, atol=1e-6)
    np.testing.assert_allclose(X.std((0, 2, 3)), 1.0, atol=1e-6)
    np.testing.assert_array_equal(found.scaled(found.x_test), X[:5])
    trial = images.ImageTrial("set", "BCE", 0, (1,), soft_sets.bce, share=0.2)
    rows, positive = images._rows(y, trial, each=8)
    assert (len(rows), positive.sum()) == (20, 4)
    np.testing.assert_array_equal(y[rows] == 1, positive)


EXPERIMENTS = ("table10", "gap-table1", "gap-table2", "gap-table4", "surrogate-images")


@pytest.mark.parametrize("table", EXPERIMENTS)
def test_missing_data_are_reported(table, capsys, tmp_path):
    assert main([table, "--data", str(tmp_path)]) == 2
    assert f" is needed; it is not in {tmp_path}" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match="is needed; give its folder as --data FOLDER"):
        reproduce(table, out=tmp_path / "a.csv")


@needs_shared
@pytest.mark.parametrize(
    ("table", "rows", "line"),
    [
        ("table10", 6 * 4, "AnyLoss above BCE: 3 of 3 figures in the paper"),
        ("gap-table2", 2 * 6 * 2, "soft-set F1 above BCE: 4 of 4 figures in the paper"),
        ("gap-table1", 9 * 2 * 4, "soft-set F1 above BCE: 2 of 3 figures in the paper"),
        ("gap-table4", 6 * 2 * 5, "soft-set F3 above soft-set F1: 3 of 5 figures in the paper"),
    ],
)
def test_a_quick_run_is_compared_with_the_published_figures(
    table, rows, line, tmp_path, monkeypatch
):
    monkeypatch.setattr(images, "QUICK", images.TrainingBudget(1, 1, 60, 30))
    monkeypatch.setattr(soft_sets, "QUICK_UPDATES", 4)
    out = tmp_path / "scores.csv"
    text = reproduce(table, folder=SHARED, out=out, quick=True)
    assert line in text
    written = pd.read_csv(out)
    assert len(written) == rows
    assert written["ours"].between(0, 1).all()
    record = json.loads(out.with_suffix(".json").read_text())
    assert "torch" in record["versions"]
    assert "seed" in json.dumps(record)
    monkeypatch.setattr(perceptrons, "fit", None)  # nothing is trained again
    monkeypatch.setattr(residual, "fit", None)
    assert reproduce(table, folder=SHARED, out=out, quick=True) == text


@needs_shared
def test_the_figures_compared_are_those_of_the_papers():
    def values(paper, table, **keys):
        found = printed_table(SHARED, paper, table)
        for column, value in keys.items():
            found = found[found[column] == value]
        return found["value"].tolist()

    assert values("AnyLoss", 10, loss="AnyLoss") == [0.998, 0.98, 0.98]
    assert values("Bridging the Gap", 2, loss="BCE") == [0.88, 0.91, 0.59, 0.94]
    assert values("Bridging the Gap", 1, loss="BCE", dataset="Adult") == [0.26, 0.8, 0.58]
    assert values("Bridging the Gap", 4, loss="soft-set F3", metric="f3") == [0.75]
    for name in soft_sets.SETS:
        assert set(printed_table(SHARED, "Bridging the Gap", 1)["dataset"]) > {name}


# The surrogate F-beta


@pytest.mark.parametrize("beta", sur.BETAS)
@pytest.mark.parametrize("prior", sur.PRIORS)
def test_where_all_rows_have_one_p_the_surrogate_by_class_is_parallel_to_f_beta(beta, prior):
    x, y = sur.sample(prior, 1000)
    every = sur.losses(sur.of_large_samples(beta), beta, prior)
    for b in (-2.0, 0.0, 1.0):
        at = torch.tensor([0.0, b], dtype=torch.float64)
        found = {name: sur.gradient(loss, at, x, y) for name, loss in every.items()}
        cosines = [torch.cosine_similarity(found[sur.F_BETA], found[n], dim=0) for n in sur.OTHERS]
        assert cosines[1] == pytest.approx(1.0, abs=1e-12)
        if prior < 0.5:  # the means over all rows then have another direction
            assert cosines[0] < 0.9
        else:
            assert cosines[0] == pytest.approx(1.0, abs=1e-12)


def test_gradients_are_those_of_finite_differences():
    x, y = sur.sample(0.1, 500)
    at, h = torch.tensor([0.7, -1.2], dtype=torch.float64), 1e-6
    for loss in sur.losses(sur.of_large_samples(2), 2, 0.1).values():
        for k, derivative in enumerate(sur.gradient(loss, at, x, y)):
            move = h * torch.eye(2, dtype=torch.float64)[k]
            ends = [loss(w * x + b, y).item() for w, b in (at + move, at - move)]
            assert derivative == pytest.approx((ends[0] - ends[1]) / (2 * h), abs=1e-8)


def test_paths_and_their_figure(tmp_path, monkeypatch):
    monkeypatch.setattr(sur, "STRIDES", 12)
    monkeypatch.setattr(sur, "ROWS", 500)
    seen = []
    request = runs.Request(tmp_path / "a.csv", None, (), True, lambda *call: seen.append(call[:2]))
    text = sur.report_paths(request)
    assert seen == [(0, 1), (1, 1)]
    table = pd.read_csv(tmp_path / "a.csv")
    assert len(table) == len(sur.STARTS) * 4 * 13
    strides = table.groupby(["start", "path"], sort=False)[["w", "b"]].diff().dropna()
    np.testing.assert_allclose(np.hypot(strides["w"], strides["b"]), 0.1)
    along = table[table["path"] == sur.F_BETA]
    by_class, rows, bce = (along[f"cosine_{x}"].mean() for x in ("by class", "surrogate", "BCE"))
    assert by_class > 0.95
    assert by_class > max(rows, bce) + 0.2
    last = along.groupby("start")["score"].last()
    assert (last >= along.groupby("start")["score"].first()).all()
    assert "by class" in text
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")


def test_imbalanced_images_as_text():
    rows = pd.DataFrame(
        [("2% positives, F1", loss, trial, "f1", value + trial / 10)
         for loss, value in (("surrogate", 0.5), ("BCE", 0.3)) for trial in range(2)],
        columns=["dataset", "loss", "trial", "metric", "ours"],
    )  # fmt: skip
    text = sur.images_text(rows, sur.IMAGES).splitlines()
    assert text[-1] == "2% positives, F1  0.550 ± 0.071  0.350 ± 0.071  surrogate"
