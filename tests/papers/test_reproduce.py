"""The papers' figures: equal to the last printed digit where the protocol is deterministic."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import anyloss
from anyloss._core.outputs import check_output
from anyloss.benchmark.statistics import versus
from anyloss.steps import Amplified
from papers import REPORTS, reproduce, slp
from papers.__main__ import EXPERIMENTS, main
from papers.data import (
    TABLE17,
    LabelledData,
    breast_cancer,
    random_rows,
    standardised,
    undersampled,
)
from papers.experiment_list import experiment_list
from papers.four_sets import METRICS, compared, rates, table17_text
from papers.many_sets import (
    AIMS,
    RATES,
    rebuilt_sets,
    results,
    table15,
    winning_numbers,
)
from papers.many_sets_report import table15_text
from papers.published import anyloss_table, authors_scores, published_figures
from papers.range_of_l import table1
from papers.runs import Request
from papers.text_tables import text_table

pytestmark = pytest.mark.slow("the papers' experiments")

SHARED = Path(__file__).parents[3] / "shared" / "data"
needs_shared = pytest.mark.skipif(
    not (SHARED / "paper").is_dir(), reason=f"published scores and data sets are not in {SHARED}"
)


# The training


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = (X[:, 0] + rng.normal(size=120) > 0.8).astype(float)
    return slp.with_intercept(X), y


def one_model(X, y, loss, rate, epochs):
    """One fold and one loss, with the gradient of the core's closed form."""
    metrics = {"L_A": "accuracy", "L_F1": "f1", "L_G": "gmean", "L_B": "balanced_accuracy"}
    metrics |= {f"L_F{b}": anyloss.metric("fbeta", beta=b) for b in (0.5, 2)}
    w = np.zeros(X.shape[1])
    for _ in range(epochs):
        z = X @ w
        if loss == "MSE":
            d_logits = (z - (2 * y - 1)) / len(y)
        elif loss == "BCE":
            d_logits = (1 / (1 + np.exp(-z)) - y) / len(y)
        else:
            _, up = anyloss.gradient(y, z, metrics[loss], Amplified(73.0), from_logits=True)
            d_logits = -up * (4 if loss == "L_G" else 1)
        w = w - rate * X.T @ d_logits
    return w


@pytest.mark.parametrize("numbers", [2**16, 1000])  # one block of rows, and many
def test_all_models_at_once_equal_single_models(small, numbers, monkeypatch):
    monkeypatch.setattr(slp, "NUMBERS", numbers)
    X, y = small
    folds = slp.paper_folds(y)
    found = slp.train(X, y, folds, RATES, epochs=60)
    assert list(found) == list(RATES)
    for loss, rate in RATES.items():
        for k in (0, 7):
            single = one_model(X[folds[k][0]], y[folds[k][0]], loss, rate, 60)
            np.testing.assert_allclose(found[loss][k], single, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("chosen", [["MSE"], ["L_G"], ["BCE", "L_F2"], ["L_B", "MSE"]])
def test_a_subset_of_the_losses_gives_the_same(small, chosen):
    X, y = small
    folds = slp.paper_folds(y)
    every = slp.train(X, y, folds, RATES, epochs=30)
    subset = slp.train(X, y, folds, {loss: RATES[loss] for loss in chosen}, epochs=30)
    assert list(subset) == chosen
    for loss in chosen:
        np.testing.assert_allclose(subset[loss], every[loss], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("given", [{}, {"L_MCC": 0.1}])
def test_losses_that_the_paper_does_not_have(small, given):
    X, y = small
    with pytest.raises(ValueError, match="losses must be among MSE, BCE"):
        slp.train(X, y, slp.paper_folds(y), given)


def test_derivatives_that_are_computed_once_are_constant():
    for name in slp.LINEAR.values():
        derivatives = [
            anyloss._core.gradient.binary_derivatives(
                anyloss.Counts(tp, 30 - tp, fp, 70 - fp), slp.SCORES[name]
            )
            for tp, fp in ((3.0, 9.0), (20.0, 60.0))
        ]
        assert derivatives[0][1:] == pytest.approx(derivatives[1][1:])


# Table 17


def exact(name, losses, found):
    scores = [
        {"dataset": name, "loss": loss, "metric": metric, "ours": found[loss][metric]}
        for loss in losses
        for metric in METRICS
    ]
    return compared(pd.DataFrame(scores))


def test_breast_cancer_is_exact_in_all_32_figures():
    found = slp.scores(*breast_cancer(), rates("breast_cancer_393"))
    table = exact("breast-cancer", slp.LOSSES, found)
    assert len(table) == 32
    assert table["agrees"].all(), table[~table["agrees"]]


def test_random_is_exact():
    losses = ("MSE", "BCE", "L_A", "L_F1", "L_G")  # all of them in `python -m papers table17`
    given = {loss: rates("random_10000")[loss] for loss in losses}
    table = exact("random", losses, slp.scores(*random_rows(), given))
    assert len(table) == 20
    assert table["agrees"].all(), table[~table["agrees"]]


def test_without_the_factor_of_equation_19_the_gmean_figures_are_missed(monkeypatch):
    monkeypatch.setattr(slp, "FACTORS", {})
    given = {"L_G": rates("breast_cancer_393")["L_G"]}
    table = exact("breast-cancer", ["L_G"], slp.scores(*breast_cancer(), given))
    assert not table["agrees"].all()


@needs_shared
def test_scikit_learns_breast_cancer_table_gives_the_same_as_the_file():
    file = pd.read_csv(SHARED / "tabular" / "wdbc.csv.gz")
    ours, theirs = breast_cancer(), undersampled(file.drop(columns="y"), file["y"] == 1, 36)
    assert ours.X.shape == (393, 30)
    np.testing.assert_array_equal(ours.y, theirs.y)
    np.testing.assert_allclose(ours.X, theirs.X, atol=2e-4)  # two columns have other last digits
    found = slp.scores(*theirs, rates("breast_cancer_393"))
    assert exact("breast-cancer", slp.LOSSES, found)["agrees"].all()


def test_six_decimals_are_kept_and_the_matches_counted():
    scores = pd.DataFrame(
        {
            "dataset": "random",
            "loss": ["MSE", "BCE", "MSE"],
            "metric": ["accuracy", "accuracy", "f2"],
            "ours": [0.8980000001, 0.5, 0.1],
        }
    )
    lines = table17_text(compared(scores), {"diabetes": "no file"}).splitlines()
    assert lines[3].split() == ["random", "MSE", "accuracy", "0.898000", "0.898000", "0.000000"]
    assert lines[-3:] == [
        "not available: diabetes: no file",
        "random: 1 of 2 exact",
        "exact matches: 1 of 2",
    ]


@needs_shared
def test_the_committed_figures_are_the_published_ones():
    paper = anyloss_table(SHARED, 17)
    for dataset in ("random_10000", "breast_cancer_393", "diabetes_100k"):
        part = paper[(paper["dataset"] == dataset) & paper["loss"].isin(slp.LOSSES)]
        assert len(part) == 40
        for row in part.itertuples():
            assert float(published_figures(17, dataset, row.metric)[row.loss]) == row.value


# Table 1


def test_table_1_is_exact_and_true():
    table = table1()
    float64 = table[table["dtype"] == "float64"]
    assert (float64["difference"] == 0).all()
    assert len(float64) == 12
    for level in (0.1, 0.01, 0.001, 1e-15):
        low, high = anyloss.scale_range(level)

        def soft(p, scale):
            return 1 / (1 + math.exp(-scale * (p - 0.5)))

        assert soft(level, low * 1.001) < level < soft(level, low * 0.999)
        assert soft(1 - level, high * 0.999) < 1
        assert soft(1 - level, high * 1.001) == 1


# Table 15


@needs_shared
def test_winning_numbers_of_the_authors_scores():
    every = authors_scores(SHARED).rename(columns={"table14": "dataset"})
    found = winning_numbers(results(every, "score"))
    assert found.loc["accuracy"].tolist()[:3] == [12, 18, 72]  # the paper: 13, 20, 69
    assert found.loc["accuracy"].tolist()[3:] == [12, 18, 52, 20]
    assert found.loc["gmean"].tolist() == [2, 5, 95, 2, 5, 88, 7]
    assert found.loc["balanced_accuracy"].tolist() == [4, 9, 89, 4, 8, 81, 9]


@needs_shared
def test_the_sign_test_gives_the_published_probabilities():
    """Table 15, all 102 sets, within the noise of the samples behind it."""
    paper = anyloss_table(SHARED, 15).set_index(["loss", "metric"])["value"]
    every = authors_scores(SHARED).rename(columns={"table14": "dataset"})
    scores = results(every, "score")
    for baseline in ("MSE", "BCE"):
        for rope in (0.01, 0.05):
            table = versus(scores, "AnyLoss", baseline, rope)
            for metric in AIMS:
                for end in ("win", "draw", "lose"):
                    key = f"AnyLoss vs {baseline}", f"bayes_sign_{end}_{metric}_rope{rope:g}"
                    ours = table.loc[("SLP", metric), f"p_{end}"]
                    assert ours == pytest.approx(paper[key], abs=0.01), key


@needs_shared
def test_three_sets_of_table_15(tmp_path, monkeypatch):
    monkeypatch.setattr("papers.many_sets.QUICK_ROWS", 320)
    seen = []
    out = tmp_path / "scores.csv"
    request = Request(out, SHARED, quick=True, on_progress=lambda *call: seen.append(call[:2]))
    table = table15(request)
    assert len(table) == 3 * 8 * 6
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert table["agrees"].mean() > 0.98
    text = table15_text(table, SHARED)
    assert text.splitlines()[-1] == f"scores that agree: {int(table['agrees'].sum())} of 144"
    assert "paper" in text
    written = pd.read_csv(out)
    pd.testing.assert_frame_equal(written, table, check_exact=False)
    record = json.loads(out.with_suffix(".json").read_text())
    assert (record["seed"], record["epochs"], record["scale"]) == (2, 1000, 73.0)
    assert set(record["versions"]) == {"python", "numpy", "torch", "scikit-learn", "pandas"}
    monkeypatch.setattr(slp, "scores", None)  # nothing is trained again
    pd.testing.assert_frame_equal(table15(Request(out, SHARED, quick=True)), table)


def test_a_score_that_does_not_agree_is_listed(tmp_path):
    (tmp_path / "paper").mkdir()
    scores = [
        {"table14": 1, "structure": "SLP", "loss": loss, "metric": metric, "score": 0.5}
        for metric in AIMS
        for loss in ("MSE", "BCE", "L_A", "L_F1", "L_G", "L_B")
    ]
    pd.DataFrame(scores).to_csv(tmp_path / "paper" / "anyloss_102_scores.csv", index=False)
    ends = [f"{x}_{m}_rope{r}" for x in ("win", "draw", "lose") for m in AIMS for r in (0.01, 0.05)]
    lines = [
        *((15, "102 datasets", x, f"wins_{m}", 1) for x in ("MSE", "BCE", "AnyLoss") for m in AIMS),
        *((15, "", f"AnyLoss vs {x}", f"bayes_sign_{e}", 1) for x in ("MSE", "BCE") for e in ends),
        *((4, "share 60-70%", f"AnyLoss minus {x}", "f1", 0.1) for x in ("MSE", "BCE")),
        *((4, "share 90-%", f"AnyLoss minus {x}", "f1", 0.1) for x in ("MSE", "BCE")),
    ]
    paper = pd.DataFrame(lines, columns=["table", "dataset", "loss", "metric", "value"])
    paper = paper.assign(source="AnyLoss", structure="SLP", std=0.1)
    paper.to_csv(tmp_path / "paper" / "tables.csv", index=False)
    table = pd.DataFrame(scores).rename(columns={"score": "published"}).drop(columns="structure")
    table = table.assign(dataset="one", n=100, positives=35, ours=0.5)
    table.loc[0, "ours"] = 0.6
    table["difference"] = table["ours"] - table["published"]
    table["agrees"] = table["difference"] == 0
    text = table15_text(table, tmp_path)
    assert "Scores that do not agree" in text
    assert "one            1  MSE   accuracy     0.5000  0.600000   +0.100000" in text
    assert text.endswith("scores that agree: 23 of 24")


# The command


def test_the_list_shows_what_can_be_run_and_what_cannot(capsys):
    assert main(["--list"]) == 0
    assert main([]) == 0
    out = capsys.readouterr().out
    assert out == 2 * f"{experiment_list()}\n"
    for word in ("table1 ", "table15", "table17", "Credit Card 2023", "CocktailParty", "minutes"):
        assert word in out


def test_every_experiment_is_listed():
    assert tuple(REPORTS) == EXPERIMENTS
    assert all(f"\n{name} " in experiment_list() for name in EXPERIMENTS)


def test_a_run_from_the_command_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = np.random.default_rng(0).normal(size=(60, 2))
    made = LabelledData(few, (few[:, 0] > 0.7).astype(float))
    monkeypatch.setitem(TABLE17, "random", ("random_10000", lambda folder: made))
    assert main(["table17", "--data", "nowhere"]) == 0
    out = capsys.readouterr().out
    assert "not available: credit-card-2023: Credit Card Fraud 2023" in out
    missing = "tabular/diabetes_100k.csv.gz"
    assert f"diabetes: the file {missing} is needed; it is not in nowhere" in out
    assert "exact matches: " in out
    assert max(map(len, out.splitlines())) < 120
    table = pd.read_csv("reproduce-table17.csv")
    assert sorted(table["dataset"].unique()) == ["breast-cancer", "random"]
    assert main(["--quick"]) == 0
    assert "exact matches: 12 of 12" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table17", "--dataset", "iris"], "data sets must be among random, credit-card-2023"),
        (["table15"], "Table 14 need --data FOLDER with an index.csv; got no folder"),
        (["table15", "--data", "absent"], "got absent"),
        (
            ["table1", "--dataset", "random"],
            "--dataset can be used with table6, .* only; got table1",
        ),
        (["--quick", "--out", "a.csv"], "--out needs the name of an experiment; got --quick alone"),
        (["table1", "--out", "a.txt"], "must end in .csv; got 'a.txt'"),
    ],
)
def test_invalid_arguments_are_reported(words, message, capsys):
    assert main([*words]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_tables_and_folders_that_are_not_there(tmp_path):
    with pytest.raises(ValueError, match="the experiment must be one of table1, .*; got 'table2'"):
        reproduce("table2")
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        check_output(tmp_path / "a.csv")
    with pytest.raises(FileNotFoundError, match="is needed; give its folder as --data FOLDER"):
        TABLE17["diabetes"][1](None)
    with pytest.raises(FileNotFoundError, match="anyloss_102_scores.csv"):
        authors_scores(tmp_path)
    (tmp_path / "index.csv").write_text("name,file\n")
    with pytest.raises(ValueError, match="index.csv must have the columns"):
        rebuilt_sets(tmp_path)
    (tmp_path / "index.csv").write_text("name,file,table14,n,positives,match\na,b,1,9,2,shape\n")
    with pytest.raises(ValueError, match="no data set .* has match = scores"):
        rebuilt_sets(tmp_path)
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "tables.csv").write_text("a\n1\n")
    with pytest.raises(ValueError, match="must have the columns"):
        anyloss_table(tmp_path, 15)


def test_a_constant_column_becomes_zero():
    assert standardised([[1.0, 5.0], [3.0, 5.0]])[:, 1].tolist() == [0.0, 0.0]


def test_nothing_is_truncated_in_a_pipe():
    command = [sys.executable, "-m", "papers", "--list"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert out == f"{experiment_list()}\n"
    wide = text_table(["a", "b"], [["x" * 300, "1"]])
    assert wide.splitlines()[1] == "x" * 300 + "  1"
