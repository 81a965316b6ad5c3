"""Costs that differ from row to row, in fit and predict."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from anyloss.cli import main
from anyloss.costs import cost_summary, least_cost
from anyloss.report import render
from anyloss.tabular import fit_table, load, predict_table, save
from anyloss.tabular.row_costs import PER_ROW, RowCosts, read_costs
from anyloss.tabular.verdicts import advice


def customers(n=900, seed=0):
    """Customers who leave, each with an amount that is lost with them."""
    rng = np.random.default_rng(seed)
    x, amount = rng.normal(size=n), np.exp(rng.normal(3, 1.2, n)).round(2)
    left = rng.random(n) < 1 / (1 + np.exp(-(1.5 * x - 1.2)))
    return pd.DataFrame({"x": x, "amount": amount, "left": np.where(left, "yes", "no")})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("costs")
    customers().to_csv(place / "data.csv", index=False)
    customers(200, 1).drop(columns="left").to_csv(place / "new.csv", index=False)
    command = "fit {0}/data.csv --target left --model linear --out {0}/model --folds 0"
    costs = ["--fn-cost", "amount", "--fp-cost", "5"]
    assert main([*command.format(place).split(), *costs]) in (0, None)
    return place


def test_the_result_has_the_cost_of_the_test_rows():
    frame = customers()
    found = fit_table(
        frame, "left", model="linear", folds=0, fn_cost="amount", fp_cost=5, positive="yes"
    )
    own, metric = found.costs[PER_ROW], found.costs["decided for f1"]
    assert own.savings > max(0.0, metric.savings)
    assert max(found.costs[x].savings for x in ("always positive", "never positive")) == 0
    p = found.model.probabilities(frame)
    decided = least_cost(p, fn_cost=frame["amount"], fp_cost=5)
    whole = cost_summary(frame["left"] == "yes", decided, fn_cost=frame["amount"], fp_cost=5)
    assert whole.savings == pytest.approx(own.savings, abs=0.15)
    low, high = own.interval
    assert advice(found) == (
        "Use this model: deciding each row by its cost is clearly better than deciding all alike. It "
        f"saves {own.savings:.3f} of the cost (95 % interval: {low:.3f} to "
        f"{high:.3f})."
    )
    nothing = dataclasses.replace(found, costs={PER_ROW: own._replace(interval=(-0.1, 0.2))})
    assert advice(nothing).level == "stop"
    page = render(found)
    assert "<code>predict</code> decides each row by its cost instead" in page
    assert 'id="plan-fp-cost" type="number" min="0" step="any" value="5"' in page
    assert "What the errors cost" in page
    assert f"{own.total:,.2f}" in page


def test_predict_decides_each_row_by_its_costs(folder, capsys):
    out = folder / "out.csv"
    assert main(["predict", f"{folder}/model", f"{folder}/new.csv", "--out", str(out)]) in (0, None)
    found, new = pd.read_csv(out), pd.read_csv(folder / "new.csv")
    assert list(found) == ["prediction", "decision_value", "probability"]
    expected = least_cost(found["probability"], fn_cost=new["amount"], fp_cost=5)
    assert (found["prediction"] == "yes").astype(int).tolist() == expected.tolist()
    assert load(folder / "model").costs == RowCosts("amount", 5.0)
    stored = json.loads((folder / "model" / "metrics.json").read_text())["costs"]
    assert stored[PER_ROW]["savings"] > stored["decided for f1"]["savings"]


def test_other_costs_for_a_new_table(folder):
    command = ["predict", f"{folder}/model", f"{folder}/new.csv", "--force", "--out"]
    shares = []
    for cost in ("1", "1000"):
        out = str(folder / "other.csv")
        assert main([*command, out, "--fn-cost", "20", "--fp-cost", cost]) in (0, None)
        shares.append((pd.read_csv(out)["prediction"] == "yes").mean())
    assert shares[0] > 0.5 > shares[1]


def test_what_is_refused(folder, capsys):
    frame = customers(300)
    given = {"source": frame, "target": "left", "model": "linear"}
    for costs, message in (
        ({"fn_cost": "amount"}, "the costs of both kinds of errors"),
        ({"fn_cost": "price", "fp_cost": 1}, "there is no column 'price'"),
        ({"fn_cost": -1, "fp_cost": 1}, "a cost must be a number of at least 0"),
        ({"fn_cost": "x", "fp_cost": 1}, "the cost column 'x' must have a number of at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            fit_table(**given, **costs)
    with pytest.raises(ValueError, match="do not follow constraints"):
        fit_table(**given, fn_cost=1, fp_cost=1, metric="precision", constraints="recall >= 0.5")
    several = frame.assign(left=np.arange(300) % 3)
    with pytest.raises(ValueError, match=r"got 3 classes: name the positive one .* \(--positive\)"):
        fit_table(several, "left", model="linear", fn_cost=1, fp_cost=1)
    with pytest.raises(ValueError, match="two classes that count alike: fit without --average"):
        fit_table(**given, average="macro", fn_cost=1, fp_cost=1)
    with pytest.raises(ValueError, match="an error must cost more than 0; got costs of 0"):
        fit_table(**given, fn_cost=0, fp_cost=0)
    with pytest.raises(ValueError, match="the cost 5 is a number and also the name of a column"):
        fit_table(
            frame.rename(columns={"amount": "5"}), "left", model="linear", fn_cost="5", fp_cost=1
        )
    with pytest.raises(ValueError, match="'left' is a label column and cannot be a cost"):
        fit_table(**given, fn_cost="left", fp_cost=1)
    gap = pd.read_csv(folder / "new.csv")
    gap.loc[3, "amount"] = np.nan
    gap.to_csv(folder / "gap.csv", index=False)
    out = str(folder / "gap-out.csv")
    assert main(["predict", f"{folder}/model", f"{folder}/gap.csv", "--out", out]) == 2
    error = capsys.readouterr().err
    assert "the cost column 'amount' must have a number" in error
    assert "got no readable number in 1 row" in error
    below = frame.assign(amount=np.where(np.arange(300) < 2, -1.5, 1.0))
    with pytest.raises(ValueError, match=r"got '-1.5' in 2 rows"):
        fit_table(below, "left", model="linear", fn_cost="amount", fp_cost=1)
    mixed = below.assign(amount=below["amount"].where(np.arange(300) > 0))
    with pytest.raises(ValueError, match=r"got no readable number in 1 rows and '-1.5' in 1 rows"):
        fit_table(mixed, "left", model="linear", fn_cost="amount", fp_cost=1)
    assert read_costs(None, None) is None


@pytest.mark.parametrize("kind", ["dropped", "group", "id", "numbers the rows"])
def test_a_cost_column_need_not_be_a_feature(kind, tmp_path):
    frame = customers(600).assign(cents=np.random.default_rng(2).permutation(600) + 1)
    given = {
        "dropped": {"drop": ["cents"]},
        "group": {"group": "cents"},
        "id": {"id_column": "cents"},
    }.get(kind, {})
    found = fit_table(
        frame, "left", model="linear", folds=0, fn_cost="cents", fp_cost=5, positive="yes", **given
    )
    assert found.model.columns() == ["x", "amount"]
    assert "cents" in found.facts["dropped"]
    own = found.costs[PER_ROW]
    rows = frame.iloc[: len(found.y_test)]
    assert own.total < found.costs["never positive"].total
    save(found, tmp_path / "model")
    rows.drop(columns="left").to_csv(tmp_path / "new.csv", index=False)
    messages = []
    out = tmp_path / "out.csv"
    predict_table(load(tmp_path / "model"), tmp_path / "new.csv", out, on_warning=messages.append)
    written = pd.read_csv(out)
    expected = least_cost(written["probability"], fn_cost=rows["cents"], fp_cost=5)
    assert (written["prediction"] == "yes").astype(int).tolist() == expected.tolist()
    assert not [x for x in messages if "predicted" in x]


def test_the_share_of_predictions_is_that_of_the_decisions_by_cost(folder, capsys):
    """A new table like the old one is no drift, neither with the costs of the fit nor with others."""
    new, out = folder / "same.csv", str(folder / "same-out.csv")
    customers().drop(columns="left").to_csv(new, index=False)
    for more in ([], ["--fn-cost", "200", "--fp-cost", "1"]):
        assert main(["predict", f"{folder}/model", str(new), "--out", out, "--force", *more]) in (
            0,
            None,
        )
        captured = capsys.readouterr()
        assert "were" not in captured.err + captured.out
    with pytest.raises(
        ValueError, match="the cost column 'x2' is not one that the model was fitted"
    ):
        RowCosts("x2", 1.0).read(pd.DataFrame({"x2": [1.0]}), load(folder / "model").readings)


def test_a_model_with_costs_is_not_exported(folder, capsys):
    pytest.importorskip("onnx")
    assert main(["export", f"{folder}/model", f"{folder}/model.onnx"]) == 2
    assert "a model with costs decides each row by its costs" in capsys.readouterr().err
    assert not (folder / "model.onnx").exists()
