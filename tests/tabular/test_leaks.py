"""Rows that belong together, near-copies and columns that give the label away."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import f1_score

from anyloss.recipe.folds import inner_folds
from anyloss.sklearn import AnyLossClassifier
from anyloss.tabular import compare_table, fit_table
from anyloss.tabular.leaks import given_away, twins
from anyloss.tabular.options import TableOptions
from anyloss.tabular.preparing import prepare_table
from anyloss.tabular.splitting import split_rows


def copies(customers=60, rows=8, seed=0):
    """Each customer has several nearly equal rows, and a label that nothing explains."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(customers, 6)).repeat(rows, axis=0)
    frame = pd.DataFrame(X + 0.01 * rng.normal(size=X.shape), columns=list("abcdef"))
    frame["customer"] = np.arange(customers).repeat(rows)
    frame["left"] = (rng.random(customers) < 0.4).repeat(rows).astype(int)
    return frame.sample(frac=1, random_state=seed, ignore_index=True)


def test_copies_of_a_customer_are_found_and_kept_together():
    frame = copies()
    plain = fit_table(frame, "left", model="mlp", drop=["customer"])
    warned = [x for x in plain.warnings if "near-copy" in x]
    assert len(warned) == 1
    assert warned[0].startswith("100% of the test rows have a near-copy among the training rows")
    assert warned[0].endswith("if rows belong together, name their column (--group)")
    grouped = fit_table(frame, "left", model="mlp", group="customer")
    assert not [x for x in grouped.warnings if "near-copy" in x]
    assert plain.score > 0.8 > grouped.score
    assert "customer" not in grouped.model.columns()
    with pytest.raises(ValueError, match="inner folds of the model 'lightgbm' cannot keep groups"):
        fit_table(frame, "left", model="lightgbm", group="customer")


def test_the_rows_of_a_group_are_on_one_side():
    table = prepare_table(copies(), TableOptions(("left",), group="customer"))
    test, _ = split_rows(table.keys, table.y, 0.25, 0, groups=table.groups)
    assert not set(table.groups[test]) & set(table.groups[~test])
    assert test.mean() == pytest.approx(0.25, abs=0.03)
    X, y = table.frame.to_numpy(), table.y[:, None]
    held = inner_folds(X, y, "binary", 5, 2, np.random.default_rng(0), table.groups)
    assert (held.reshape(2, 5, -1).sum(axis=1) == 1).all()
    for rows in held:
        assert not set(table.groups[rows]) & set(table.groups[~rows])


def test_groups_in_the_classifier_change_the_folds_and_nothing_else():
    frame = copies()
    X, y = frame[list("abcdef")].to_numpy(), frame["left"].to_numpy()
    alone = AnyLossClassifier(random_state=0, max_iter=5).fit(X, y, groups=np.arange(len(y)))
    plain = AnyLossClassifier(random_state=0, max_iter=5).fit(X, y)
    grouped = AnyLossClassifier(random_state=0, max_iter=5).fit(X, y, groups=frame["customer"])
    assert alone.start_score_ == pytest.approx(plain.start_score_, abs=0.05)
    assert grouped.start_score_ < plain.start_score_ + 0.05
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        AnyLossClassifier().fit(X, y, groups=[1, 2])


def test_the_latest_rows_are_the_test_rows():
    rng = np.random.default_rng(0)
    n = 400
    when = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.permutation(n), unit="D")
    x = rng.normal(size=n)
    late = when > pd.Timestamp("2023-11-01")
    sign = np.where(late, -1, 1)  # the past no longer holds
    frame = pd.DataFrame({"x": x, "when": when.strftime("%d.%m.%Y"), "y": (sign * x > 0.3) * 1})
    result = fit_table(frame, "y", model="linear", time="when", folds=0)
    assert result.facts["test_rows"] == 80
    assert result.score < 0.3 < 0.5 < fit_table(frame, "y", model="linear", drop=["when"]).score
    periods = fit_table(frame, "y", model="plain-linear", time="when", folds=5)
    assert periods.facts["folds"] == 5
    assert any("the latest of the 5 periods has a score of 0." in x for x in periods.warnings)
    for options, message in (
        ({"time": "when", "group": "x"}, "got both: name one of them"),
        ({"time": "name"}, "must have a date or a number in every row; got text"),
        ({"group": "three"}, "must have at least 10 groups; got 3"),
        ({"group": "none"}, "there is no column 'none'"),
    ):
        odd = frame.assign(name=["a", "b"] * 200, three=np.arange(n) % 3)
        with pytest.raises(ValueError, match=message):
            fit_table(odd, "y", model="linear", **options)


def test_comparing_with_groups_and_time(tmp_path):
    frame = copies().assign(day=range(480))
    options = {"folds": 2, "repeats": 1, "model": "linear"}
    plain = compare_table(
        frame, "left", journal=tmp_path / "a", drop=["customer", "day"], **options
    )
    grouped = compare_table(
        frame, "left", journal=tmp_path / "b", group="customer", drop=["day"], **options
    )
    lightgbm = "LightGBM, tuned threshold"
    assert np.mean(plain.scores[lightgbm]) > np.mean(grouped.scores[lightgbm]) + 0.1
    later = compare_table(
        frame, "left", journal=tmp_path / "c", time="day", drop=["customer"], folds=3, repeats=4
    )
    assert len(later.scores["anyloss"]) == 3


def test_real_measurements_are_neither_twins_nor_leaks():
    frame = load_breast_cancer(as_frame=True).frame
    found = fit_table(frame, "target", model="linear").warnings
    assert not [x for x in found if "near-copy" in x or "alone identifies" in x]
    rng = np.random.default_rng(0)
    narrow = rng.normal(size=(1000, 2))
    assert (twins(narrow[:800], narrow[800:], seed=0) == 1).mean() < 0.05


def test_columns_that_identify_most_positives():
    rng = np.random.default_rng(0)
    y = (rng.random(600) < 0.3).astype(float)
    refund = np.where((y == 1) & (rng.random(600) < 0.7), rng.normal(50, 9, 600), np.nan)
    status = np.where((y == 1) & (rng.random(600) < 0.6), "cancelled", "open")
    frame = pd.DataFrame({"refund": refund, "status": status, "noise": rng.normal(size=600)})
    found = given_away(frame, y, seed=0)
    assert found["refund"][0] == pytest.approx(np.isfinite(refund)[y == 1].mean(), abs=0.02)
    assert found["status"][0] == pytest.approx((status == "cancelled")[y == 1].mean(), abs=0.02)
    assert found["noise"][0] == 0
    warnings = fit_table(frame.assign(y=y.astype(int)), "y", model="linear").warnings
    for name in ("refund", "status"):
        assert any(f"column '{name}' alone identifies" in x for x in warnings)
    decided = np.isfinite(refund)
    assert f1_score(y, decided) < 0.9  # no AUC of 0.99


def test_a_column_that_is_the_label_stops():
    frame = load_breast_cancer(as_frame=True).frame[["mean area", "target"]]
    frame["invoice"] = np.where(frame["target"] == 0, "I0", "I1")
    found = fit_table(frame, "target", model="linear", folds=0)
    (text,) = (x for x in found.warnings if "'invoice'" in x)
    assert text.level == "stop"
    assert "alone identifies 100% of the positive rows" in text
    assert "leave it out if it is not (--drop invoice)" in text


def test_an_identifier_that_rows_share_is_named():
    frame = copies(rows=5).rename(columns={"customer": "customer_id"})
    text = "rows share the values of 'customer_id' \\(60 in 300 rows\\).* \\(--group customer_id\\)"
    (found,) = (x for x in prepare_table(frame, TableOptions(("left",))).warnings if "share" in x)
    assert re.match(text, found)
    grouped = prepare_table(frame, TableOptions(("left",), group="customer_id"))
    assert not any("share" in x for x in grouped.warnings)
    alone = frame.assign(customer_id=np.arange(300) * 3)  # distinct numbers are not used anyway
    assert not any("share" in x for x in prepare_table(alone, TableOptions(("left",))).warnings)


def test_the_interval_of_copies_is_that_of_the_rows():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 3)), columns=list("abc"))
    frame["left"] = (frame["a"] + rng.normal(size=400) > 0.8).astype(int)
    ninefold = pd.concat([frame] * 9).sample(frac=1, random_state=0, ignore_index=True)
    once, often = (fit_table(x, "left", model="linear", folds=5) for x in (frame, ninefold))
    widths = [high - low for low, high in (once.interval, often.interval)]
    assert widths[1] == pytest.approx(widths[0], rel=0.1)  # a third without the copies together
    assert not any("copies" in x for x in once.warnings)
    (text,) = (x for x in often.warnings if "copies" in x)
    assert text.startswith("3200 of 3600 test rows are copies of others")
