"""Tables that are streamed: the same split, sample and score as in memory."""

import json
from dataclasses import fields

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import metrics as sk

from anyloss import best_threshold
from anyloss.cli import main
from anyloss.sklearn import AnyLossClassifier
from anyloss.tabular import evaluating, fit_table, judging, read_table, streaming
from anyloss.tabular.evaluating import compared
from anyloss.tabular.intervals import distinct_rows
from anyloss.tabular.options import TableOptions
from anyloss.tabular.parquet import parquet_file
from anyloss.tabular.preparing import load_table
from anyloss.tabular.scoring import scoring_of
from anyloss.tabular.splitting import split_rows


def mixed(rows=1200, seed=0):
    """All kinds of columns; three classes, and two labels."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame.loc[rng.random(rows) < 0.1, "b"] = np.nan
    frame["steps"] = pd.Series(rng.integers(0, 9, rows)).where(rng.random(rows) < 0.99)
    frame["member"] = rng.random(rows) < 0.5
    frame["city"] = rng.choice(["Rome", "Oslo", "unknown"], rows)
    frame["street"] = [f"street {k}" for k in rng.integers(0, 40, rows)]
    frame["price"] = [f"$1,{k:03}" for k in rng.integers(0, 999, rows)]
    frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, rows), "D")
    frame["row"] = np.arange(rows)
    frame["customer"] = [f"customer {k}" for k in rng.integers(0, 200, rows)]
    z = x[:, 0] + x[:, 1] + (frame["city"] == "Rome") + rng.normal(size=rows)
    frame["left"] = np.where(z > 1.2, "yes", "no")
    frame["kind"] = np.select([z > 1.2, z > 0], ["plum", "pear"], "fig")
    frame["loud"], frame["late"] = (z > 1).astype(int), (x[:, 2] > 0.5).astype(int)
    frame.loc[[3, rows // 2], "left"] = None
    return frame


LABELS = ["left", "kind", "loud", "late"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Row groups of 170 rows."""
    file = tmp_path_factory.mktemp("streamed") / "mixed.parquet"
    mixed().to_parquet(file, row_group_size=170)
    return file


def values(result):
    """The fields of a result that can be compared."""
    found = {x.name: getattr(result, x.name) for x in fields(result)}
    found["counts"] = tuple(found["counts"])
    found["means"] = np.concatenate([x.means for x in found.pop("effects")])
    return {name: x for name, x in found.items() if name not in ("model", "settings")}


@pytest.mark.parametrize(
    ("target", "metric", "more"),
    [
        ("left", "f1", {"drop": ["kind", "loud", "late"]}),
        ("left", "f1", {"drop": ["kind", "loud", "late"], "group": "customer"}),
        ("left", "f1", {"drop": ["kind", "loud", "late"], "time": "day"}),
        ("kind", "mcc", {"drop": ["left", "loud", "late"]}),
        (["loud", "late"], "f1", {"drop": ["left", "kind"]}),
    ],
    ids=["two classes", "groups", "time", "classes", "labels"],
)
def test_a_streamed_table_has_the_result_of_the_table_in_memory(path, target, metric, more):
    given = {"model": "linear", "folds": 0, "max_categories": 10, **more}
    here, there = (
        values(fit_table(path, target, metric, stream=x, **given)) for x in (False, True)
    )
    assert set(here) == set(there)
    for name, expected in here.items():
        np.testing.assert_array_equal(there[name], expected, err_msg=name)


@pytest.mark.parametrize("kind", ["no statistics", "an empty row group", "gaps, no statistics"])
def test_a_file_that_does_not_name_its_gaps_is_split_as_in_memory(kind, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    frame = pd.DataFrame({"x": x, "steps": rng.integers(0, 9, 400), "member": x > 0})
    if kind.startswith("gaps"):
        frame["steps"] = frame["steps"].astype("Int64").where(rng.random(400) < 0.9)
    frame["y"] = (x + rng.normal(size=400) > 1).astype(int)
    table = pa.Table.from_pandas(frame)
    with pq.ParquetWriter(
        tmp_path / "a.parquet", table.schema, write_statistics="empty" in kind
    ) as writer:
        for part in (table[:150], table[:0], table[150:]):
            if len(part) or "empty" in kind:
                writer.write_table(part)
    here, there = (
        fit_table(tmp_path / "a.parquet", "y", model="linear", folds=0, stream=x)
        for x in (False, True)
    )
    np.testing.assert_array_equal(there.y_test, here.y_test)
    np.testing.assert_array_equal(there.p_test, here.p_test)


def test_what_a_sample_has_not_shown_is_refused_with_the_name_of_the_column(few_rows, tmp_path):
    frame = numbers().assign(tags=None).astype({"tags": object})
    chosen = np.sort(np.random.default_rng(0).choice(4000, 300, replace=False))
    hidden = int(np.setdiff1d(np.arange(4000), chosen)[0])
    frame.at[hidden, "tags"] = ["a", "b"]
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(
        ValueError, match=r"column 'tags': expected .*do not use the column \(--drop"
    ):
        fit_table(tmp_path / "a.parquet", "y", model="linear", stream=True)


@pytest.fixture
def few_rows(monkeypatch):
    """Samples of 400 rows in place of 100,000."""
    for module in (evaluating, judging, streaming):
        monkeypatch.setattr(module, "BASELINE_ROWS", 400)
    monkeypatch.setattr(evaluating, "BASELINE_RARER", 10)
    monkeypatch.setattr(streaming, "READ_ROWS", 300)


def numbers(rows=4000):
    """Numbers without gaps, which are encoded as they are; 7 % positives."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 4)).round(6)
    z = x @ [1.0, -0.5, 0.3, 0.0] + rng.normal(size=rows)
    return pd.DataFrame(x, columns=list("abcd")).assign(y=(z > 2.3).astype(int))


def test_the_model_is_that_of_the_weighted_sample_and_the_score_that_of_all_test_rows(
    few_rows, tmp_path
):
    frame = numbers()
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=333)
    found = fit_table(tmp_path / "a.parquet", "y", "f1", model="linear", stream=True, seed=3)
    table = load_table(frame, TableOptions(("y",)))
    test, _ = split_rows(table.keys, table.y, 0.2, 3)
    X, y = table.frame.to_numpy(), table.y
    whole = AnyLossClassifier("f1", (), max_rows=400, random_state=3).fit(X[~test], y[~test])
    p = whole.predict_proba(X[test])[:, 1]
    np.testing.assert_array_equal(found.y_test, y[test])
    np.testing.assert_allclose(found.p_test, p, rtol=0, atol=1e-12)
    assert found.score == pytest.approx(sk.f1_score(y[test], p > 0.5), abs=1e-12)
    assert tuple(found.counts) == tuple(sk.confusion_matrix(y[test], p > 0.5)[::-1, ::-1].ravel())
    threshold = best_threshold(y[test], p, "f1").threshold
    assert best_threshold(found.y_test, found.p_test, "f1").threshold == pytest.approx(
        threshold, abs=1e-12
    )
    facts = {x: found.facts[x] for x in ("rows", "train_rows", "fitted_rows", "compared_rows")}
    assert facts == {"rows": 4000, "train_rows": 3200, "fitted_rows": 400, "compared_rows": 400}
    assert "slices on 400 of them, drawn at random" in found.facts["evaluation"]
    assert max(x.rows for x in found.slices) <= 400
    told = [x for x in found.warnings if "the table is streamed" in x]
    assert "300 of 4000 rows" in told[0]
    assert any("fitted to 400 of 3200 training rows: the rarer" in x for x in found.warnings)


def test_the_most_confident_errors_are_those_of_all_test_rows(few_rows, tmp_path):
    frame = numbers()
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=333)
    found = fit_table(tmp_path / "a.parquet", "y", "f1", model="linear", stream=True)
    wrong = (found.y_test == 0) & (found.p_test > 0.5)
    assert found.wrong_rows[0].value == found.p_test[wrong].max()
    own = frame.iloc[[found.wrong_rows[0].row - 1]]
    assert found.model.decision_values(own)[0] == pytest.approx(found.wrong_rows[0].value)
    assert dict(found.wrong_rows[0].cells)["a"] == f"{own['a'].iloc[0]:.6g}"


@pytest.mark.parametrize(
    ("model", "target"),
    [("tuned-linear", "left"), ("lightgbm", "left"), ("linear", "kind"), ("linear", LABELS[2:])],
)
def test_every_model_and_task_can_be_streamed_with_samples(few_rows, path, model, target):
    drop = [x for x in LABELS if x != target and x not in target]
    found = fit_table(path, target, "f1", model=model, drop=drop, stream=True)
    frame = read_table(path, label=target)
    used = frame[[target] if isinstance(target, str) else target].notna().all(axis=1)
    rows = used.sum()
    assert found.facts["train_rows"] + found.facts["test_rows"] == rows == found.facts["rows"]
    assert found.facts["fitted_rows"] == pytest.approx(400, abs=3)
    decided = found.outcome.decide(found.p_test)
    average = "binary" if found.outcome.task == "binary" else "macro"
    truth, ours = found.y_test, decided
    assert found.score == pytest.approx(sk.f1_score(truth, ours, average=average), abs=1e-12)
    assert len(found.y_test) == found.facts["test_rows"]


def test_a_certificate_rests_on_rows_that_count_alike(few_rows, tmp_path):
    numbers().to_parquet(tmp_path / "a.parquet", row_group_size=500)
    found = fit_table(
        tmp_path / "a.parquet", "y", "precision", model="linear", positive="1", stream=True,
        constraints="recall >= 0.3", confidence_level=0.9,
    )  # fmt: skip
    assert found.certificate.threshold is not None
    assert found.facts["train_rows"] + found.facts["test_rows"] == 4000 - 400


def test_what_is_found_in_the_columns_is_that_of_all_rows(few_rows, tmp_path):
    frame = numbers().assign(
        pay=[f"{k}.5" for k in range(4000)], gaps=np.r_[np.full(3999, np.nan), 7.0], k=range(4000)
    )
    frame.loc[3990, "pay"] = "twenty"
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=500)
    table = streaming.open_table(tmp_path / "a.parquet", TableOptions(("y",)), True)
    expected = load_table(frame, TableOptions(("y",)))
    for ours, theirs in zip(table.readings, expected.readings, strict=True):
        for name in ("name", "kind", "rows", "gaps", "unread", "low", "high", "use"):
            assert getattr(ours, name) == getattr(theirs, name)
    np.testing.assert_array_equal(table.keys, expected.keys)
    assert "columns that only number the rows are not used: 'k'" in table.warnings
    assert (
        "column 'pay': cells that are not numbers are treated as missing (1: 'twenty' in row 3990)"
        in table.warnings
    )
    rows = np.array([0, 499, 500, 3990])
    pd.testing.assert_frame_equal(table.take(rows), expected.take(rows))
    assert [len(x) for x in table.parts(rows)] == [2, 1, 1]


@pytest.mark.parametrize("statistics", [True, False])
def test_integers_with_gaps_have_one_type_in_all_batches(tmp_path, statistics):
    frame = numbers(600).assign(k=pd.Series(np.arange(600) % 7).where(np.arange(600) != 599))
    frame = frame.assign(k=frame["k"].astype("Int64"), n=np.arange(600) % 5)
    frame.index = frame.index * 3  # pandas stores the index as a column
    path = tmp_path / "a.parquet"
    frame.to_parquet(path, row_group_size=100, write_statistics=statistics)
    file = parquet_file(path)
    assert file.names == list(frame)
    assert file.gaps == ({"k"} if statistics else {"k", *"abcd"})  # floats may have some
    found = streaming.open_table(path, TableOptions(("y",)), True)
    np.testing.assert_array_equal(found.take(np.arange(600))["n"], frame["n"])
    assert found.take(np.arange(600))["k"].isna().sum() == 1
    np.testing.assert_array_equal(found.keys, load_table(path, TableOptions(("y",))).keys)


def test_the_size_decides_and_other_files_are_read_as_a_whole(path, tmp_path, monkeypatch):
    assert not streaming.is_streamed(path, None)
    cells = 1200 * len(mixed(10).columns)
    for most, expected in ((cells, False), (cells - 1, True)):
        monkeypatch.setattr(streaming, "MOST_CELLS", most)
        assert streaming.is_streamed(path, None) is expected
    assert streaming.is_streamed(path, False) is False
    mixed(50).to_csv(tmp_path / "a.csv", index=False)
    for source in (tmp_path / "a.csv", mixed(50)):
        assert not streaming.is_streamed(source, None)
        with pytest.raises(ValueError, match="only a Parquet file is streamed; got .*convert it"):
            fit_table(source, "left", stream=True)
    with pytest.raises(ValueError, match="one set of test rows; got 5 folds"):
        fit_table(path, "left", drop=LABELS[1:], stream=True, folds=5)
    assert streaming.size_advice(tmp_path / "a.csv") == ""
    monkeypatch.setattr(streaming, "LARGE_CSV", 100)
    stages = []
    fit_table(mixed(200).to_csv(tmp_path / "b.csv", index=False) or tmp_path / "b.csv", "left",
              model="linear", drop=LABELS[1:], folds=0, on_stage=stages.append)  # fmt: skip
    assert "convert it to Parquet, which is streamed" in stages[0]


def test_errors_of_a_streamed_table(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_text("no Parquet")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        fit_table(path, "y", stream=True)
    numbers(60).iloc[:0].to_parquet(path)
    with pytest.raises(ValueError, match="has columns but no rows"):
        fit_table(path, "y", stream=True)
    numbers(600).to_parquet(path)
    with pytest.raises(ValueError, match="there is no column 'z'"):
        fit_table(path, "z", stream=True)
    with pytest.raises(ValueError, match="expected feature columns besides 'y'"):
        fit_table(path, "y", drop=list("abcd"), stream=True)


def test_rows_that_stand_for_several_have_the_costs_of_all():
    rng, scoring = np.random.default_rng(0), scoring_of("100*tp - 30*fp", "binary", 1)
    y, ours, theirs = ((rng.random(300) < share).astype(float) for share in (0.3, 0.3, 0.5))
    one, many = (
        compared(y, ours, [("other", theirs)], [], scoring, seed=0, weight=x)[0] for x in (1, 20)
    )
    costs = 100 * y @ theirs - 30 * (1 - y) @ theirs
    assert (one.score, many.score) == pytest.approx((costs, 20 * costs))
    np.testing.assert_allclose(many.interval, 20 * np.array(one.interval))


def test_distinct_rows_are_those_of_numpy():
    rng = np.random.default_rng(0)
    for shape, high in (((200, 3), 2), ((300, 5), 4), ((50, 12), 3), ((10, 1), 9)):
        rows = rng.integers(0, high, shape)
        kinds, at = np.unique(rows, axis=0, return_inverse=True)
        found = distinct_rows(rows)
        np.testing.assert_array_equal(found[0], kinds)
        np.testing.assert_array_equal(found[1], at.ravel())


def test_the_command_streams_and_writes_a_report(few_rows, tmp_path, capsys):
    numbers().to_parquet(tmp_path / "a.parquet", row_group_size=500)
    words = f"fit {tmp_path}/a.parquet --target y --model linear --out {tmp_path}/model --stream"
    assert main(words.split()) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "f1 on 800 test rows: 0." in shown
    assert "baselines, importances and slices on 400 of them" in shown
    assert "the model is fitted to 400 of 3200 training rows" in shown
    assert (
        "--stream"
        in json.loads((tmp_path / "model/metrics.json").read_text())["settings"]["command"]
    )
    assert "400 of them, drawn at random" in (tmp_path / "model/report.html").read_text()
    words = f"predict {tmp_path}/model {tmp_path}/a.parquet --out {tmp_path}/p.parquet"
    assert main(words.split()) == 0
    assert len(read_table(tmp_path / "p.parquet")) == 4000


def test_texts_whose_dictionaries_differ_between_row_groups(tmp_path):
    rng, n = np.random.default_rng(0), 600
    frame = pd.DataFrame({"a": rng.normal(size=n)})
    frame["code"] = [str(x) for x in np.repeat(range(6), 100) + rng.integers(0, 3, n)]
    frame["y"] = np.where(frame["a"] + rng.normal(size=n) > 0.7, "yes", "no")
    words = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("a", pa.float64()), ("code", words), ("y", pa.string())])
    with pq.ParquetWriter(tmp_path / "t.parquet", schema) as file:
        for k in range(0, n, 100):
            part = frame[k : k + 100].astype({"code": "category"})
            file.write_table(pa.Table.from_pandas(part, schema, preserve_index=False))
    whole, streamed = (
        fit_table(tmp_path / "t.parquet", "y", model="linear", folds=0, stream=stream)
        for stream in (False, True)
    )
    assert streamed.readings == whole.readings
    assert streamed.score == whole.score


def test_a_text_column_that_is_empty_in_the_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "READ_ROWS", 100)
    frame = pd.DataFrame({"a": np.arange(1000.0) % 37, "note": None, "y": ["no", "yes"] * 500})
    others = np.setdiff1d(np.arange(1000), streaming._some(np.arange(1000), 0))
    frame.loc[others[-1], "note"] = "refund"
    frame.to_parquet(tmp_path / "t.parquet")
    table = streaming.stream_table(tmp_path / "t.parquet", TableOptions(("y",)))
    (text,) = (x for x in table.warnings if "note" in x)
    assert text == (
        "column 'note': cells that are not numbers are treated as missing (1: 'refund' in row "
        f"{others[-1]})"
    )
