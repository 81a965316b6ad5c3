"""What a table is read from: Excel, the standard input, and what cannot be read, in one line."""

import io
import os
import sys
from functools import partial

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from anyloss.cli import main
from anyloss.tabular import compare_table, fit_table, load, predict_table, read_table, save
from anyloss.tabular.reading import read_parts
from anyloss.tabular.readings import read_columns


def customers(n=200, seed=0):
    rng = np.random.default_rng(seed)
    age, city = rng.normal(40, 10, n).round(1), rng.choice(["Rome", "Oslo", "Lima"], n)
    left = age + 10 * (city == "Rome") + rng.normal(0, 4, n) > 45
    since = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    return pd.DataFrame(
        {"age": age, "city": city, "since": since, "left": np.where(left, "yes", "no")}
    )


def write_book(path, **sheets):
    """Sheets of rows, each a list of cells."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)


def test_an_excel_file_is_read_as_pandas_reads_it(tmp_path):
    frame = customers()
    frame.loc[3, "age"] = None
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    found = read_table(tmp_path / "a.xlsx", label="left")
    expected = pd.read_excel(tmp_path / "a.xlsx")
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert found["age"].dtype == float
    assert found["since"].dtype.kind == "M"


def test_fit_and_predict_an_excel_file(tmp_path):
    customers().to_excel(tmp_path / "a.xlsx", index=False)
    result = fit_table(tmp_path / "a.xlsx", "left", model="tuned-linear")
    assert result.score > 0.7
    save(result, tmp_path / "model")
    new = customers(120, seed=1).drop(columns="left")
    new.to_excel(tmp_path / "new.xlsx", index=False)
    rows = predict_table(
        load(tmp_path / "model"), tmp_path / "new.xlsx", tmp_path / "out.csv", rows=50
    )
    assert rows == 120
    found = read_table(tmp_path / "out.csv")["decision_value"]
    np.testing.assert_allclose(found, result.model.decision_values(new))


def test_sheets(tmp_path):
    rows = [["a", None, "b"], [1, "x", "01"], [None, None, None], [2, None, "NA"]]
    write_book(tmp_path / "a.xlsx", first=rows, empty=[])
    found = read_table(tmp_path / "a.xlsx", label="b")
    assert list(found) == ["a", "column 2", "b"]
    assert found["a"].tolist() == [1, 2]
    assert found["b"].tolist() == ["01", "NA"]  # of a label, only empty cells are missing
    assert read_table(tmp_path / "a.xlsx")["b"].isna().tolist() == [False, True]
    write_book(tmp_path / "b.xlsx", first=rows, second=rows)
    with pytest.raises(ValueError, match="2 sheets with cells: 'first', 'second'; name one"):
        read_table(tmp_path / "b.xlsx")
    assert len(read_table(tmp_path / "b.xlsx", sheet="second")) == 2
    with pytest.raises(ValueError, match="has no sheet 'third'; its sheets are 'first', 'second'"):
        read_table(tmp_path / "b.xlsx", sheet="third")
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="only an Excel file has sheets; got the sheet 'x'"):
        read_table(tmp_path / "a.csv", sheet="x")


def test_excel_files_that_cannot_be_read(tmp_path, monkeypatch):
    (tmp_path / "a.xlsx").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"a\.xlsx cannot be read as Excel .*not a zip file"):
        read_table(tmp_path / "a.xlsx")
    write_book(tmp_path / "b.xlsx", first=[["a", "b"]])
    with pytest.raises(ValueError, match=r"the sheet 'first' of .* has no rows below its names"):
        read_table(tmp_path / "b.xlsx")
    write_book(tmp_path / "c.xlsx", first=[["a", "a"], [1, 2]])
    with pytest.raises(ValueError, match="distinct column names; got 'a' more than once"):
        read_table(tmp_path / "c.xlsx")
    for name in ("a.xls", "a.ods"):
        (tmp_path / name).write_bytes(b"\0\1\2")
        with pytest.raises(ValueError, match=f"{name}: save it as .xlsx"):
            read_table(tmp_path / name)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'anyloss\[excel\]'"):
        read_table(tmp_path / "b.xlsx")


def test_the_standard_input(tmp_path, monkeypatch, capsys):
    text = customers().to_csv(index=False).replace("age", "age of all", 1)
    (tmp_path / "a.csv").write_text(text)

    def give():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    give()
    pd.testing.assert_frame_equal(read_table("-"), read_table(tmp_path / "a.csv"))
    give()
    words = ["fit", "-", "--target", "left", "--model", "plain-linear"]
    assert main([*words, "--out", str(tmp_path / "m")]) == 0
    give()
    assert main(["predict", str(tmp_path / "m"), "-", "--out", str(tmp_path / "p.csv")]) == 0
    assert "Wrote 200 predictions" in capsys.readouterr().out
    text = text.replace("Rome", '"Rome', 1)
    give()
    assert main([*words, "--out", str(tmp_path / "m2")]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "the standard input cannot be read as utf-8" in message
    assert "is never closed" in message


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match=r"pipe.csv is a pipe or a device, .* with the path -"):
        read_table(tmp_path / "pipe.csv")
    (tmp_path / "link.csv").symlink_to(tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match=r"link.csv is a link to .*nowhere.csv, which does not"):
        read_table(tmp_path / "link.csv")
    with pytest.raises(ValueError, match="is a folder"):
        read_table(tmp_path)
    with pytest.raises(ValueError, match=r"absent.csv does not exist"):
        read_table(tmp_path / "absent.csv")


LISTS = [[1.0, 2.0], [3.0]] * 100


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array(LISTS), "ndarray"),
        (pa.array([{"a": 1}, {"a": 2}] * 100), "dict"),
        (pa.array([b"a", b"b"] * 100), "bytes"),
    ],
)
def test_parquet_columns_of_lists_have_one_clear_line(column, kind, tmp_path, capsys):
    frame = customers()
    table = pa.Table.from_pandas(frame, preserve_index=False).append_column("odd", column)
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    base = ["fit", str(tmp_path / "a.parquet"), "--out", str(tmp_path / "m"), "--model"]
    assert main([*base, "plain-linear", "--target", "left"]) == 2
    assert (
        f"column 'odd': expected numbers, dates or text; got values of '{kind}': convert them, or "
        "do not use the column (--drop)"
    ) in capsys.readouterr().err
    assert main([*base, "plain-linear", "--target", "odd"]) == 2
    assert f"column 'odd' must hold numbers or text; got values of '{kind}'" in (
        capsys.readouterr().err
    )
    assert main([*base, "plain-linear", "--target", "left", "--drop", "odd"]) == 0
    place = ["predict", str(tmp_path / "m"), str(tmp_path / "a.parquet")]
    assert main([*place, "--out", str(tmp_path / "p.csv")]) == 0


def test_huge_cells_are_refused_with_their_line(tmp_path):
    frame = customers()
    frame["age"] = frame["age"].astype(str)
    frame.loc[[5, 9], "age"] = ["1e300", "-2e305"]
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(
        ValueError, match=r"column 'age': .* below 1e\+100; got 1e\+300 in line 7, -2e\+305 in"
    ):
        fit_table(tmp_path / "a.csv", "left")
    with pytest.raises(ValueError, match=r"1e\+300 in line 7"):
        compare_table(tmp_path / "a.csv", "left", journal=tmp_path / "j")
    model = fit_table(customers(), "left", model="plain-linear").model
    with pytest.raises(ValueError, match=r"column 'age': .*got 1e\+300 in line 7"):
        predict_table(model, tmp_path / "a.csv", tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_words_among_numbers_are_named_with_their_lines(tmp_path):
    frame = customers(400)
    frame["age"] = frame["age"].astype(str)
    frame.loc[[15, 203, 300], "age"] = ["young", "old", "n/a"]
    frame.loc[98, "city"] = "Rome\nand more"
    text = frame.to_csv(index=False).split("\n")
    (tmp_path / "a.csv").write_text("\n".join(text[:50]) + "\n\n" + "\n".join(text[50:]))
    (message,) = fit_table(tmp_path / "a.csv", "left", model="plain-linear").warnings[:1]
    lines = (tmp_path / "a.csv").read_text().split("\n")
    places = [1 + next(k for k, x in enumerate(lines) if x.startswith(f"{y},"))
              for y in ("young", "old")]  # fmt: skip
    assert places[0] == 17
    assert places[1] > 205  # a blank line, and a cell of two lines
    assert message == (
        "column 'age': cells that are not numbers are treated as missing (2: 'young' in line "
        f"{places[0]}, 'old' in line {places[1]})"
    )
    write_book(tmp_path / "b.xlsx", first=[list(frame), *frame.astype(str).to_numpy().tolist()])
    (message,) = read_columns(read_table(tmp_path / "b.xlsx"))[2]
    assert "(2: 'young' in row 17, 'old' in row 205)" in message


def test_too_many_words_among_numbers_are_refused_with_their_lines(tmp_path):
    frame = customers(400)
    frame["age"] = frame["age"].astype(str)
    frame.loc[100:199, "age"] = "old"
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(
        ValueError, match="75% of the cells are numbers, and others are not, such as 'old' in line "
        "102, 'old' in line 103"
    ):  # fmt: skip
        fit_table(tmp_path / "a.csv", "left")


@pytest.mark.parametrize("name", ["A.PARQUET", "A.CSV.GZ", "A.XLSX"])
def test_suffixes_in_capitals(name, tmp_path):
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    write = {"T": frame.to_parquet, "Z": partial(frame.to_csv, compression="gzip")}
    write.get(name[-1], partial(frame.to_excel, engine="openpyxl"))(tmp_path / name, index=False)
    assert read_table(tmp_path / name).to_dict("list") == frame.to_dict("list")


def test_parts_of_a_parquet_file_do_not_hold_the_whole_file(tmp_path):
    rows, parts = 5_000, 40
    table = pa.table({f"x{k}": np.random.default_rng(k).normal(size=rows) for k in range(10)})
    with pa.parquet.ParquetWriter(tmp_path / "a.parquet", table.schema) as file:
        for _ in range(parts):
            file.write_table(table)
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in read_parts(tmp_path / "a.parquet", rows)]
    assert len(held) == parts
    assert max(held) < 6 * table.nbytes  # of 40
