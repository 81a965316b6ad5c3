"""From a table to a model: the functions behind the command line."""

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn import metrics as sk
from sklearn.datasets import load_breast_cancer

from anyloss.tabular import (
    Baseline,
    compare_table,
    fit_table,
    load,
    predict_table,
    read_table,
    save,
)
from anyloss.tabular.comparing import methods
from anyloss.tabular.evaluating import (
    HeldOut,
    Parts,
    baseline_decisions,
    compared,
    importances,
)
from anyloss.tabular.intervals import difference_interval, score_interval
from anyloss.tabular.leaks import single_column_aucs
from anyloss.tabular.logs import write_logs
from anyloss.tabular.onnx import export
from anyloss.tabular.options import TableOptions
from anyloss.tabular.predicting import neutral
from anyloss.tabular.preparing import prepare_table
from anyloss.tabular.result import Comparison
from anyloss.tabular.scoring import scoring_of
from anyloss.tabular.splitting import row_keys, split_rows
from anyloss.tabular.verdicts import (
    corrected_interval,
    headline,
    is_useless,
    recommendation,
    repeats_needed,
)

METHODS = methods("binary")


def prepared(frame, target, **options):
    return prepare_table(frame, TableOptions((target,), **options))


def scored(metric):
    return scoring_of(metric, "binary", 1)


def customers(n=400, seed=0):
    """Mixed columns with missing values; old customers from Rome leave."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, n).round(1),
            "visits": rng.poisson(3, n),
            "city": rng.choice(["Rome", "Oslo", "Lima"], n),
            "member": rng.random(n) < 0.5,
            "name": [f"customer {k}" for k in range(n)],
        }
    )
    risk = frame["age"] + 12 * (frame["city"] == "Rome") + rng.normal(0, 5, n)
    frame["left"] = np.where(risk > 55, "yes", "no")
    frame.loc[::7, "age"] = np.nan
    frame.loc[::9, "city"] = None
    return frame


@pytest.fixture(scope="module")
def fitted():
    return fit_table(customers(), "left", "f1", model="linear", id_column="name", folds=0)


# Reading


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xef\xbb\xbfa,b\n1,x\n", {"a": [1], "b": ["x"]}),
        (b"a,b\r\n1,x\r\n2,y\r\n", {"a": [1, 2], "b": ["x", "y"]}),
        (b"a;b\n1,5;x\n2,25;y\n", {"a": [1.5, 2.25], "b": ["x", "y"]}),
        (b"a\tb\n1\tx,y\n", {"a": [1], "b": ["x,y"]}),
        (b"a|b\n1|x\n", {"a": [1], "b": ["x"]}),
        ("a,b\n1,é\n".encode(), {"a": [1], "b": ["é"]}),
        ("a,b\n1,é\n".encode("latin-1"), {"a": [1], "b": ["é"]}),
        ("a,b\n1,é\n".encode("utf-16"), {"a": [1], "b": ["é"]}),
        (
            b'a,b\n"x, y","two\nlines"\n"say ""hi""",z\n',
            {"a": ["x, y", 'say "hi"'], "b": ["two\nlines", "z"]},
        ),
        (b"a , b\n1, x\n2, y\n", {"a": [1, 2], "b": ["x", "y"]}),
        (b",a\n0,1\n1,2\n", {"column 1": [0, 1], "a": [1, 2]}),
        (b"\n\na\n1\n", {"a": [1]}),
        ("a\x85,b\n1,x\n".encode("latin-1"), {"a": [1], "b": ["x"]}),  # no line end in CSV
    ],
)
def test_files_as_they_come(tmp_path, content, expected):
    (tmp_path / "a.csv").write_bytes(content)
    assert read_table(tmp_path / "a.csv").to_dict("list") == expected
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(content))
    assert read_table(tmp_path / "a.csv.gz").to_dict("list") == expected


def test_a_given_separator_and_encoding_are_used(tmp_path):
    (tmp_path / "a.csv").write_text("a!b\n1!\u0436\n", encoding="cp1251")
    found = read_table(tmp_path / "a.csv", separator="!", encoding="cp1251")
    assert found.to_dict("list") == {"a": [1], "b": ["\u0436"]}
    for options, message in (
        ({"encoding": "klingon"}, "encoding must be one that Python knows"),
        ({"separator": "ab"}, "separator must be one character"),
        ({"encoding": "ascii"}, "cannot be read as ascii"),
    ):
        with pytest.raises(ValueError, match=message):
            read_table(tmp_path / "a.csv", **options)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "has no column names"),
        (b"a,b\n", "has column names but no rows"),
        (b"a,b,a\n1,2,3\n", "distinct column names; got 'a' more than once"),
        (b"a,b\n1,2\n1,2,3\n", "rows of 3 fields but 2 column names"),
        (b'a,b\n"1,2\n', "cannot be read as utf-8 with the separator ','"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9, "is not a text file"),
        (np.random.default_rng(0).bytes(4000), "is not a text file"),
    ],
)
def test_files_that_are_refused(tmp_path, content, message):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "a.csv")


def test_parquet(tmp_path):
    frame = customers(20)
    frame.to_parquet(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "a.parquet"), frame)
    grouped = frame.assign(city=frame["city"].astype("category"))
    grouped.to_parquet(tmp_path / "groups.parquet", row_group_size=6)
    pd.testing.assert_frame_equal(read_table(tmp_path / "groups.parquet"), grouped)
    frame[:0].to_parquet(tmp_path / "none.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"a,b\n1,2\n")
    for name, message in (
        ("none", "has columns but no rows"),
        ("bad", "cannot be read as Parquet"),
        ("absent", "does not exist"),
    ):
        with pytest.raises(ValueError, match=message):
            read_table(tmp_path / f"{name}.parquet")


# The label, the columns, the test rows


def test_the_positive_class():
    frame = customers()
    rarer = frame["left"].value_counts().idxmin()
    table = prepared(frame, "left")
    assert (table.outcome.positive, table.y.sum()) == (rarer, (frame["left"] == rarer).sum())
    assert prepared(frame, "left", positive="no").y.sum() == (frame["left"] == "no").sum()
    against_rest = prepared(frame, "city", positive="Rome")
    assert against_rest.outcome.negative == "not Rome"
    assert against_rest.y.sum() == (frame["city"] == "Rome").sum()
    assert against_rest.warnings == ["rows without a value in 'city' are not used (45 of 400 rows)"]


def test_labels_of_numbers_are_named_as_in_the_file():
    frame = pd.DataFrame({"x": range(100, 0, -1), "y": [1.0, 0.0, 0.0, None] * 25})
    table = prepared(frame, "y")
    assert (table.outcome.positive, table.outcome.negative, len(table.y)) == ("1", "0", 75)
    frame["y"] = frame["x"] > 70
    assert prepared(frame, "y").outcome.positive == "True"
    assert list(prepared(frame.set_axis([0, 1], axis=1) ** 2, "1").frame) == ["0"]


def test_columns_that_number_the_rows_are_not_used():
    frame = customers().assign(
        customer_id=np.arange(400) * 7, row=range(5, 405), paid=range(1, 401)
    )
    frame["paid"] = frame["paid"] ** 2
    table = prepared(frame, "left", drop=("city",))
    assert table.dropped == ["city", "customer_id", "row"]
    assert table.warnings == [
        "columns that only number the rows are not used: 'customer_id', 'row'"
    ]
    assert "paid" in table.frame


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "lefd"}, "there is no column 'lefd'; did you mean 'left'"),
        ({"target": "age"}, "got 2.. classes, of which .* fewer: it looks like a column of num"),
        ({"target": "same"}, "'same' must have two classes or more; got 'x' in all rows"),
        ({"target": "left", "positive": "maybe"}, "must be one of 'no', 'yes'; got 'maybe'"),
        (
            {"target": "rare"},
            "must have at least 10 rows of each class.* got 9 of '1' and 391 of '0'",
        ),
        ({"target": "left", "drop": ("agee",)}, "there is no column 'agee'"),
        ({"target": "left", "id_column": "key"}, "there is no column 'key'"),
    ],
)
def test_labels_that_are_refused(options, message):
    frame = customers().assign(same="x", rare=[1] * 9 + [0] * 391)
    with pytest.raises(ValueError, match=message):
        prepared(frame, **options)


def test_the_test_rows_keep_the_classes_and_copies_together():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(0, 600, 1000), "b": "x"})
    y = (rng.random(1000) < 0.1).astype(float)
    test, copies = split_rows(row_keys(frame), y, 0.25, seed=1)
    assert copies == 0
    assert not set(frame["a"][test]) & set(frame["a"][~test])
    assert test.mean() == pytest.approx(0.25, abs=0.01)
    assert y[test].mean() == pytest.approx(y.mean(), abs=0.03)
    assert (split_rows(row_keys(frame), y, 0.25, seed=1)[0] == test).all()
    assert (split_rows(row_keys(frame), y, 0.25, seed=2)[0] != test).any()
    few = frame.assign(a=frame["a"] % 3)  # rows with many copies are split one by one
    test, copies = split_rows(row_keys(few), y, 0.25, seed=1)
    assert (test.sum(), copies) == (250, 250)
    for share in (0, 1, -0.5, float("nan")):
        with pytest.raises(ValueError, match="between 0 and 1"):
            split_rows(row_keys(frame), y, share, seed=0)
    with pytest.raises(ValueError, match="leaves too few training rows of a class"):
        split_rows(row_keys(frame[:40]), np.repeat([1.0, 0.0], 20), 0.9, seed=0)


def test_the_aucs_of_single_columns():
    rng = np.random.default_rng(0)
    y = (rng.random(3000) < 0.3).astype(float)
    frame = pd.DataFrame(
        {
            "noise": rng.normal(size=3000),
            "good": y + rng.normal(size=3000),
            "minus": -y - rng.normal(size=3000),
            "text": np.where(y + rng.normal(0, 0.5, 3000) > 0.5, "high", "low"),
            "gaps": np.where(y == 1, np.nan, 1.0),
        }
    )
    found = single_column_aucs(frame, y, seed=0)
    assert found["good"][0] == pytest.approx(sk.roc_auc_score(y, frame["good"]), abs=1e-12)
    assert found["minus"][0] == pytest.approx(1 - sk.roc_auc_score(y, frame["minus"]), abs=1e-12)
    assert found["text"][0] == pytest.approx(sk.roc_auc_score(y, frame["text"] == "high"), abs=0.01)
    assert found["gaps"][0] == 1
    assert found["noise"][0] < 0.55


# How sure


def test_intervals_agree_with_a_bootstrap_of_the_rows():
    rng = np.random.default_rng(0)
    y = (rng.random(500) < 0.3).astype(int)
    ours = np.where(rng.random(500) < 0.85, y, 1 - y)
    theirs = np.where(rng.random(500) < 0.75, y, 1 - y)
    options = {"method": "percentile", "n_resamples": 2000, "paired": True, "rng": 1}

    def f1(y, d, axis=-1):
        return 2 * (y * d).sum(axis) / (y + d).sum(axis)

    assert f1(y, ours) == pytest.approx(sk.f1_score(y, ours))
    expected = stats.bootstrap((y, ours), f1, **options).confidence_interval
    assert score_interval(y, ours, scored("f1")) == pytest.approx(tuple(expected), abs=0.01)

    def gain(y, a, b, axis=-1):
        return f1(y, a, axis) - f1(y, b, axis)

    expected = stats.bootstrap((y, ours, theirs), gain, **options).confidence_interval
    found = difference_interval(y, ours, theirs, scored("f1"))
    assert found == pytest.approx(tuple(expected), abs=0.012)


def test_the_corrected_interval_is_that_of_nadeau_and_bengio():
    d = np.random.default_rng(0).normal(0.02, 0.03, 15)
    low, high = corrected_interval(d, folds=5)
    # t = mean / sqrt((1/n + n_test/n_train) var), with 14 degrees of freedom; 1:4 with five folds
    scale = np.sqrt((1 / 15 + 1 / 4) * np.var(d, ddof=1))
    assert (low, high) == pytest.approx(stats.t.interval(0.95, 14, loc=d.mean(), scale=scale))


def test_importances_agree_with_scikit_learn():
    from sklearn.inspection import permutation_importance
    from sklearn.linear_model import LogisticRegression

    X, y = load_breast_cancer(return_X_y=True)
    X = X[:, :4].copy()
    before = X.copy()
    model = LogisticRegression(max_iter=5000).fit(X, y)
    names = list("abcd")
    decide = lambda rows: model.predict(rows)  # noqa: E731
    sets = [HeldOut(decide, x, np.array(names)) for x in (X[:300], X[300:])]
    found = importances(sets, y.astype(float), names, scored("accuracy"), seed=0)
    expected = permutation_importance(model, X, y, n_repeats=50, random_state=0).importances_mean
    assert [x.drop for x in found] == sorted((x.drop for x in found), reverse=True)
    for each in found:
        assert each.drop == pytest.approx(expected[names.index(each.column)], abs=0.03)
    np.testing.assert_array_equal(X, before)


def test_baselines_are_scikit_learns_logistic_regression():
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    X, y = load_breast_cancer(return_X_y=True)
    train, test = np.arange(569) % 4 > 0, np.arange(569) % 4 == 0
    parts = Parts(X[train], y[train].astype(float), X[test], y[test].astype(float))
    others = baseline_decisions("linear", parts, "binary", scored("f1"), seed=0)
    found = compared(parts.y_test, np.zeros(test.sum()), others, [], scored("f1"), seed=0)
    scaler = StandardScaler().fit(X[train])
    for k, weight in ((0, None), (2, "balanced")):
        model = LogisticRegression(max_iter=1000, class_weight=weight)
        model.fit(scaler.transform(X[train]), y[train])
        expected = sk.f1_score(y[test], model.predict(scaler.transform(X[test])))
        assert found[k].score == expected
        assert found[k].difference == -expected


# Fitting, saving, loading


def test_what_fitting_a_table_gives(fitted):
    frame = customers()
    assert (fitted.model_name, fitted.outcome.positive, fitted.candidates) == ("linear", "yes", {})
    tested = len(fitted.y_test)
    assert tested == sum(fitted.counts) == pytest.approx(80, abs=1)
    decided = (fitted.p_test > 0.5).astype(int)
    assert fitted.score == pytest.approx(sk.f1_score(fitted.y_test, decided))
    assert fitted.score > 0.6
    assert fitted.interval[0] < fitted.score < fitted.interval[1]
    assert fitted.facts == {
        "rows": 400, "positives": int((frame["left"] == "yes").sum()), "columns": 4, "numbers": 3,
        "dates": 0, "texts": 1, "missing": pytest.approx(frame[["age", "visits", "city", "member"]].isna().mean().mean()),
        "train_rows": 400 - tested, "fitted_rows": 400 - tested, "test_rows": tested,
        "compared_rows": tested, "dropped": ["name"], "folds": 0, "fits": 1, "left_out": {},
        "evaluation": f"{tested} random rows that the model has not seen",
    }  # fmt: skip
    assert [x.column for x in fitted.importances][:2] == ["age", "city"]
    assert fitted.curve.shape == (31, 3)
    assert fitted.curve[-1, 0] == 300
    names = [METHODS[x] for x in ("bce", "bce_tuned", "weighted")]
    assert [x.name for x in fitted.baselines] == [*names, "always 'yes'", "always 'no'"]
    assert fitted.settings["command"].startswith("fit_table(frame, 'left', 'f1', model='linear'")
    assert not fitted.settings["positive_named"]
    assert any("of the test rows are positive, so the score" in text for text in fitted.warnings)


def test_the_same_seed_gives_the_same_result(fitted):
    again = fit_table(customers(), "left", "f1", model="linear", id_column="name", folds=0)
    np.testing.assert_array_equal(again.p_test, fitted.p_test)
    assert again.importances == fitted.importances
    assert again.baselines == fitted.baselines


def test_warnings_about_the_data():
    rng = np.random.default_rng(0)
    frame = customers(300)
    frame = frame.assign(
        refund=np.where(frame["left"] == "yes", 5.0, 0.0), nothing=None, same=1,
        mail=[f"{k}@x.org" for k in range(300)],
    )  # fmt: skip
    frame = pd.concat([frame, frame.iloc[[0] * 40]], ignore_index=True)
    frame["mail"] = frame["mail"].where(frame.index < 300, [f"{k}@y.org" for k in range(340)])
    frame["name"] = rng.choice(["a", "b"], 340)
    frame.loc[[0, *range(300, 340)], "name"] = "a"
    found = fit_table(frame.drop(columns="mail"), "left", model="linear").warnings
    for words in (
        "test rows are copies of training rows",
        "'refund' alone identifies 100% of the positive rows",
        "constant or empty are not used: 'nothing', 'same'",
        "no mistake on the test rows",
    ):
        assert any(words in text for text in found), (words, found)
    found = fit_table(frame, "left", model="linear")
    assert any("values hardly ever repeat are not used: 'mail'" in text for text in found.warnings)
    assert found.facts["dropped"] == ["mail", "nothing", "same"]


def test_dates_become_features():
    days = pd.date_range("2020-01-01", periods=400)
    frame = customers().assign(when=days.strftime("%d.%m.%Y"))
    frame["left"] = np.where(days.day_of_week == 6, "yes", "no")  # on Sundays
    result = fit_table(frame, "left", model="mlp", folds=0)
    assert result.score > 0.95
    assert result.importances[0].column == "when"
    names = result.model.encoder.get_feature_names_out().tolist()
    assert [x for x in names if x.startswith("when")] == [
        "when: year", "when: month", "when: weekday", "when: days",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="model must be one of auto, linear"):
        fit_table(frame, "left", model="forest")


@pytest.mark.parametrize("model", ["linear", "mlp", "lightgbm"])
def test_a_loaded_model_decides_as_the_fitted_one(model, fitted, tmp_path):
    result = (
        fitted
        if model == "linear"
        else fit_table(customers(), "left", model=model, id_column="name", folds=0)
    )
    save(result, tmp_path / "model", {"extra.txt": lambda path: path.write_text("hello")})
    again, new = load(tmp_path / "model"), customers(100, seed=5)
    np.testing.assert_array_equal(again.decision_values(new), result.model.decision_values(new))
    assert (again.outcome.classes, again.id_column) == (("no", "yes"), "name")
    stored = json.loads((tmp_path / "model" / "metrics.json").read_text())
    assert stored["score"] == result.score
    assert stored["counts"] == vars(result.counts)
    (tmp_path / "model" / "extra.txt").unlink()  # an extra file is not part of the model
    save(result, tmp_path / "model")
    parts = [p for p in (tmp_path / "model" / "classifier").iterdir() if p.name != "model.json"]
    for path in (tmp_path / "model" / "model.json", parts[0]):
        content = path.read_bytes()
        path.write_bytes(content.replace(b"0", b"1", 1))
        with pytest.raises(
            ValueError, match=f"{re.escape(path.name)} was changed since it was saved"
        ):
            load(tmp_path / "model")
        path.write_bytes(content)
    assert len(list(tmp_path.iterdir())) == 1  # no temporary folder is left


def test_a_run_that_is_killed_while_saving_leaves_the_old_model(fitted, tmp_path, monkeypatch):
    def stopped(path):
        raise KeyboardInterrupt

    save(fitted, tmp_path / "model")
    before = (tmp_path / "model" / "model.json").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        save(fitted, tmp_path / "model", {"report.html": stopped})
    assert (tmp_path / "model" / "model.json").read_bytes() == before
    assert [x.name for x in tmp_path.iterdir()] == ["model"]
    rename, renamed = Path.rename, []

    def stopped_between(self, target):
        renamed.append(target)
        if len(renamed) == 2:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", stopped_between)
    with pytest.raises(KeyboardInterrupt):
        save(fitted, tmp_path / "model")
    assert (tmp_path / "model" / "model.json").read_bytes() == before
    assert [x.name for x in tmp_path.iterdir()] == ["model"]


# Predicting


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")
def test_predictions_do_not_depend_on_the_parts_or_the_order_of_columns(fitted, tmp_path):
    new = customers(230, seed=3)
    new.loc[5, "city"] = "Atlantis"
    new["age"] = new["age"].astype(object)
    new.loc[8, "age"] = "unknown"
    new[new.columns[::-1]].to_csv(tmp_path / "new.csv", index=False)
    clean = new.assign(age=pd.to_numeric(new["age"], errors="coerce"))
    expected = fitted.model.decision_values(clean)
    finished = []
    for rows in (50, 1000):
        out = tmp_path / "out.csv"
        options = {"rows": rows, "on_rows": finished.append}
        assert predict_table(fitted.model, tmp_path / "new.csv", out, **options) == 230
        found = read_table(out)
        assert list(found) == ["name", "prediction", "decision_value"]
        assert found["name"].tolist() == new["name"].tolist()
        np.testing.assert_array_equal(found["decision_value"], expected)
        assert (found["prediction"] == np.where(expected > 0.5, "yes", "no")).all()
    assert finished == [50, 100, 150, 200, 230, 230]
    clean.to_parquet(tmp_path / "new.parquet")
    predict_table(fitted.model, tmp_path / "new.parquet", tmp_path / "out.parquet", rows=60)
    found = read_table(tmp_path / "out.parquet")
    np.testing.assert_array_equal(found["decision_value"], expected)
    assert new["city"].isna().any()  # a gap is a gap in both
    with pd.option_context("future.infer_string", False):  # texts as pandas 2 has them
        predict_table(fitted.model, tmp_path / "new.parquet", tmp_path / "out.parquet", rows=60)
    np.testing.assert_array_equal(read_table(tmp_path / "out.parquet")["decision_value"], expected)


def test_formulas_are_neutralised_and_ids_keep_their_form(fitted, tmp_path):
    new = customers(8, seed=3).drop(columns=["name", "left"])
    new["=id"] = ["=cmd()", "007", "-5", "@sum", "\tx", "<script>", "NA", "None"]
    new.to_csv(tmp_path / "new.csv", index=False)
    predict_table(fitted.model, tmp_path / "new.csv", tmp_path / "out.csv", id_column="=id")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "'=id", "'=cmd()", "007", "-5", "'@sum", "'\tx", "<script>", "NA", "None",
    ]  # fmt: skip
    kept = ["+1", "-1,5", "-1e5", "+2.5E-3", "a=b", ""]
    assert [neutral(x) for x in kept] == kept
    assert [neutral(x) for x in ("+1-1", "-1e", "-e5")] == ["'+1-1", "'-1e", "'-e5"]


def test_what_predict_refuses_leaves_nothing_behind(fitted, tmp_path):
    new = customers(20, seed=3)
    new.drop(columns=["age", "city"]).to_csv(tmp_path / "less.csv", index=False)
    new.to_csv(tmp_path / "new.csv", index=False)
    before = sorted(tmp_path.iterdir())
    for source, out, options, message in (
        ("less.csv", "out.csv", {}, "expected the columns of fit; 'age', 'city' not found"),
        ("new.csv", "out.xlsx", {}, "must end in .csv or .parquet"),
        ("new.csv", "out.csv", {"id_column": "key"}, "there is no column 'key'"),
        ("none.csv", "out.csv", {}, "does not exist"),
    ):
        with pytest.raises(ValueError, match=message):
            predict_table(fitted.model, tmp_path / source, tmp_path / out, **options)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow("a large file")
def test_the_memory_of_predicting_does_not_grow_with_the_file(fitted, tmp_path):
    import tracemalloc

    peaks = []
    for rows in (10_000, 40_000):
        customers(rows, seed=3).to_csv(tmp_path / "new.csv", index=False)
        tracemalloc.start()
        predict_table(fitted.model, tmp_path / "new.csv", tmp_path / "out.csv", rows=1_000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]


# Comparing


def test_comparing_on_folds_goes_on_where_it_was_stopped(tmp_path):
    frame, options = customers(250).drop(columns="name"), {"folds": 2, "repeats": 1}
    calls = []

    def stop(done, total, name):
        calls.append((done, total, name))
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare_table(frame, "left", journal=tmp_path / "j", on_progress=stop, **options)
    kept = (tmp_path / "j").read_text().count("\n")
    found = compare_table(frame, "left", journal=tmp_path / "j", **options)
    assert (kept, (tmp_path / "j").read_text().count("\n"), calls[-1][1]) == (3, 13, 12)
    whole = compare_table(frame, "left", journal=tmp_path / "k", **options)
    assert found == whole
    trivial = ["always 'yes'", "always 'no'"]
    assert [x.name for x in found.baselines] == [*METHODS.values(), *trivial]
    lines = [json.loads(x) for x in (tmp_path / "k").read_text().splitlines()[1:]]
    scores = {
        m: [r["score"] for x in lines for r in x["rows"] if r["method"] == m]
        for m in (*METHODS, "anyloss")
    }
    assert found.score == pytest.approx(np.mean(scores["anyloss"]))
    for method, each in zip(METHODS, found.baselines, strict=False):
        assert each.score == pytest.approx(np.mean(scores[method]))
        gains = np.subtract(scores["anyloss"], scores[method])
        assert each.difference == pytest.approx(gains.mean())
        assert each.interval == corrected_interval(gains, folds=2)
    with pytest.raises(ValueError, match="started with other settings"):
        compare_table(frame[5:], "left", journal=tmp_path / "k", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "forest"}, "model must be one of linear, mlp"),
        ({"folds": 1}, "at least 2 folds"),
        ({"folds": 500}, "too few for 500 folds with 5 inner folds each; use fewer folds"),
    ],
)
def test_comparisons_that_are_refused(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        compare_table(customers(), "left", journal=tmp_path / "j", **options)


def test_texts_that_repeat_in_the_whole_table_only(tmp_path):
    """In a sample or a fold they repeat less, and may be identifiers there."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000)
    code = [f"code {k}" for k in rng.integers(0, 1500, 4000)]
    frame = pd.DataFrame({"x": x, "code": code, "left": x + rng.normal(size=4000) > 1})
    options = {"rows": 200, "folds": 2, "repeats": 1, "journal": tmp_path / "j"}
    found = compare_table(frame, "left", **options)
    assert found.warnings == ("text columns whose values hardly ever repeat are not used: 'code'",)
    frame = frame[:400].assign(code=[f"code {k % 340}" for k in range(400)])  # 0.85, in folds 0.9+
    assert not compare_table(
        frame, "left", **options | {"rows": 400, "journal": tmp_path / "k"}
    ).warnings


def test_columns_of_one_name_are_refused():
    frame = pd.DataFrame(np.zeros((40, 3)), columns=["a", "a", "left"])
    with pytest.raises(ValueError, match="expected distinct column names; got 'a' more than once"):
        fit_table(frame, "left")


def comparison(scores, trivial=(), folds=5):
    """A comparison with these scores of each fold."""
    others = tuple(
        Baseline(name, float(np.mean(x)), 0.0, (0.0, 0.0), name in trivial)
        for name, x in scores.items()
        if name != "anyloss"
    )
    scores = {name: tuple(x) for name, x in scores.items()}
    return Comparison("f1", 100, float(np.mean(scores["anyloss"])), others, (), scores, folds)


def test_the_recommendation():
    base = np.array([0.6, 0.62, 0.58, 0.61, 0.59])
    noise = np.array([0.01, -0.01, 0.02, 0.0, -0.02])
    better = recommendation(comparison({"simple": base, "other": base, "anyloss": base + 0.1}))
    assert better == "Recommendation: use anyloss, which has the best mean score, 0.7000."
    same = recommendation(comparison({"simple": base, "anyloss": base + 0.004 + noise}))
    assert same.startswith("Recommendation: use simple. It is simpler than anyloss, which has the")
    assert "difference +0.0040, 95 % interval: -0.0" in same
    # The lowest score was recommended if its interval touched 0.
    wide = comparison({"simple": base, "tuned": base + 0.045, "anyloss": base + 0.05 + 4 * noise})
    found = recommendation(wide)
    assert found.startswith("Recommendation: use tuned. It is simpler than anyloss")
    unclear = recommendation(comparison({"simple": base, "anyloss": base + 0.05 + 5 * noise}))
    assert unclear.startswith("Recommendation: use anyloss, which has the best mean score, 0.6500.")
    assert "cannot decide whether it is better than simple" in unclear
    assert unclear.endswith(": only more rows would decide.")
    worse = recommendation(comparison({"simple": base + 0.1, "anyloss": base}))
    assert worse.startswith("Recommendation: use simple, which has the best mean score")
    useless = recommendation(
        comparison(
            {"simple": base, "anyloss": base + noise, "always": base - 0.001 - noise}, ("always",)
        )
    )
    assert useless.startswith("Recommendation: none. No method is clearly better than the trivial")


def test_the_number_of_repeats_that_would_tell():
    gain = np.array([0.10, 0.02, 0.08, -0.02, 0.07])
    assert corrected_interval(gain, 5)[0] < 0
    repeats = repeats_needed(gain, 5)
    assert corrected_interval(np.tile(gain, repeats), 5)[0] > 0
    assert corrected_interval(gain[[0, 1, 2, 3, 4] * 3] - 0.01, 5)[0] < 0
    n, spread = 5 * np.array([repeats - 1, repeats]), gain.std(ddof=1)
    width = stats.t.ppf(0.975, n - 1) * spread * np.sqrt(1 / n + 1 / 4)
    assert width[0] > gain.mean() > width[1]


def test_labels_by_chance_are_called_so():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 4)), columns=list("abcd"))
    frame["y"] = rng.random(400) < 0.35
    result = fit_table(frame, "y", model="linear")
    assert result.score > 0.4  # which looks like a result
    assert is_useless(result.baselines)
    assert headline(result.baselines).startswith(
        "Do not rely on this model: it is not clearly better than a decision that ignores the "
        "columns, always 'True' (0."
    )


@pytest.mark.parametrize(
    ("metric", "constant"),
    [("recall", "'yes'"), ("specificity", "'no'"), ("f1", None), ("mcc", None), ("accuracy", None)],
)
def test_metrics_that_a_constant_decision_maximises_are_named(metric, constant):
    found = fit_table(customers(200).drop(columns="name"), "left", metric, model="linear").warnings
    named = [x for x in found if "as high as it can be" in x]
    assert len(named) == (constant is not None)
    assert all(f"for the decision always {constant}:" in x for x in named)


def test_a_metric_of_one_kind_of_mistakes_needs_a_constraint():
    frame = customers(400).drop(columns="name")
    alone = fit_table(frame, "left", "precision", model="linear").warnings
    assert any(x.startswith("precision does not count false negatives: the best") for x in alone)
    for metric, other in (("precision", "recall"), ("recall", "precision")):
        text = f"{other} >= 0.4"
        found = fit_table(frame, "left", metric, model="linear", constraints=text).warnings
        assert not any("does not count" in x or "as high as it can be" in x for x in found)


# Elsewhere


@pytest.mark.parametrize("model", ["linear", "mlp", "lightgbm"])
def test_an_onnx_graph_decides_as_the_model(model, fitted, tmp_path):
    reference = pytest.importorskip("onnx.reference")
    frame = customers()
    frame["code"] = np.random.default_rng(0).choice([f"c{k}" for k in range(30)], 400)  # rare ones
    result = fit_table(frame.drop(columns="name"), "left", model=model, folds=0)
    export(result.model, tmp_path / "model.onnx")
    new = (
        customers(50, seed=8)
        .drop(columns=["name", "left"])
        .assign(code=["c1", "c29", "new", None, "c7"] * 10)
    )
    new.loc[3, "city"] = "Atlantis"
    texts = {x: new[x].fillna("").to_numpy(object)[:, None] for x in ("city", "code")}
    numbers = {x: new[x].to_numpy(float)[:, None] for x in ("age", "visits", "member")}
    label, values = reference.ReferenceEvaluator(str(tmp_path / "model.onnx")).run(
        None, texts | numbers
    )
    expected = result.model.decision_values(new)
    np.testing.assert_allclose(values, expected, atol=1e-12)
    assert label.tolist() == np.where(expected > 0.5, "yes", "no").tolist()
    with pytest.raises(ValueError, match="must end in .onnx"):
        export(result.model, tmp_path / "model.json")


def test_models_that_do_not_become_onnx(fitted, tmp_path):
    pytest.importorskip("onnx")
    trees = SimpleNamespace(classifier=None)
    with pytest.raises(
        ValueError, match="can be exported to ONNX, no ensemble .*fit with --model linear"
    ):
        export(trees, tmp_path / "model.onnx")
    result = fit_table(
        customers().rename(columns={"age": "decision_value"}).drop(columns="name"),
        "left",
        model="linear",
    )
    with pytest.raises(ValueError, match="the name of an output; got \\['decision_value'\\]"):
        export(result.model, tmp_path / "model.onnx")


def test_tensorboard_shows_the_training(fitted, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write_logs(fitted, tmp_path)
    events = EventAccumulator(str(tmp_path)).Reload()
    hard = [(x.step, x.value) for x in events.Scalars("training/hard score, held out")]
    np.testing.assert_allclose(hard, fitted.curve[:, [0, 2]], atol=1e-6)
    assert events.Scalars("test/anyloss")[0].value == pytest.approx(fitted.score, abs=1e-6)


def test_a_class_may_be_called_none(tmp_path):
    path = tmp_path / "none.csv"
    labels = ["None", "NA", " 7 ", ""] * 5
    path.write_text("a,y\n" + "".join(f"{k},{x}\n" for k, x in enumerate(labels)))
    assert read_table(path, label="y")["y"].tolist()[:3] == ["None", "NA", "7"]
    assert read_table(path, label="y")["y"].isna().sum() == 5
    with pytest.raises(ValueError, match="at least 10 rows of each class; got 3 classes"):
        fit_table(path, "y")
    path.write_text("a,y\n1,1\n2,0\n3,\n")
    np.testing.assert_array_equal(read_table(path, label="y")["y"], [1, 0, np.nan])


def test_the_positive_class_may_be_named_as_a_number():
    frame = load_breast_cancer(as_frame=True).frame[["mean area", "mean texture", "target"]]
    for positive in (0, 0.0, "0"):
        found = fit_table(frame, "target", model="linear", positive=positive, folds=0)
        assert found.outcome.positive == "0"
