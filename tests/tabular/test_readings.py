"""Hostile and odd tables, and how their columns must be read."""

from datetime import date

import numpy as np
import pandas as pd
import pytest

from anyloss.tabular import fit_table, load, predict_table, read_table, save
from anyloss.tabular.options import TableOptions
from anyloss.tabular.preparing import prepare_table
from anyloss.tabular.readings import apply_reading, read_columns, reading_from_json

NAN = float("nan")
NBSP, THIN = "\u00a0", "\u202f"

# The name of a case, its cells, and the numbers that they are.
NUMBERS = {
    "plain": (["1", "2.5", "-3"], [1, 2.5, -3]),
    "exponents": (["1e3", "2E-2", "5"], [1000, 0.02, 5]),
    "comma groups": (["7,295", "950", "12,000"], [7295, 950, 12000]),
    "point groups beside whole numbers": (["7.295", "950", "12.000"], [7295, 950, 12000]),
    "point groups, twice": (["1.234.567", "12.000"], [1234567, 12000]),
    "comma groups, twice": (["1,234,567", "12,000"], [1234567, 12000]),
    "three decimals": (["7.295", "8.120", "6.001"], [7.295, 8.12, 6.001]),
    "eighths": (["1.125", "2", "3.375"], [1.125, 2, 3.375]),
    "decimals of a rate": (["0.125", "0.250", "0.375"], [0.125, 0.25, 0.375]),
    "US money": (["$7,295", "$950", "$1.50"], [7295, 950, 1.5]),
    "US money with cents": (["$1,234.56", "$0.99"], [1234.56, 0.99]),
    "German money": (["7.295 €", "950 €", "12,50 €"], [7295, 950, 12.5]),
    "German money with cents": (["1.234,56 EUR", "0,99 EUR"], [1234.56, 0.99]),
    "code before": (["USD 5", "USD 1,500"], [5, 1500]),
    "some without a currency": (["£5", "6", "£7"], [5, 6, 7]),
    "percent": (["12 %", "7%", "0.5 %"], [12, 7, 0.5]),
    "German percent": (["12,5 %", "7 %"], [12.5, 7]),
    "kilograms": (["3.5 kg", "10 kg", "7kg"], [3.5, 10, 7]),
    "degrees": (["-3 °C", "21.5 °C"], [-3, 21.5]),
    "speed": (["50 km/h", "130 km/h"], [50, 130]),
    "area": (["50 m2", "75 m2"], [50, 75]),
    "words as unit": (["3 rooms", "4 rooms", "12 rooms"], [3, 4, 12]),
    "space groups": (["1 234", "12 345 678", "950"], [1234, 12345678, 950]),
    "no-break spaces": ([f"1{NBSP}234", f"5{NBSP}678,9"], [1234, 5678.9]),
    "thin spaces and unit": ([f"1{THIN}234{NBSP}€", "950 €"], [1234, 950]),
    "Swiss apostrophes": (["1'234", "1’234’567.50"], [1234, 1234567.5]),
    "decimal commas": (["1,5", "2,25", "3"], [1.5, 2.25, 3]),
    "one decimal comma shows it": (["7,295", "1,5", "8,120"], [7.295, 1.5, 8.12]),
    "below one": (["0,295", "0,120"], [0.295, 0.12]),
    "accounting": (["(1,234)", "500", "(7)"], [-1234, 500, -7]),
    "trailing minus": (["5-", "6"], [-5, 6]),
    "unicode minus": (["\u22125", "6"], [-5, 6]),
    "plus signs": (["+5", "+6.5"], [5, 6.5]),
    "sign and currency": (["-$5", "$-6", "$7"], [-5, -6, 7]),
    "outer spaces": ([" 5 ", "\t6", f"7{NBSP}"], [5, 6, 7]),
    "leading points": ([".5", ".25"], [0.5, 0.25]),
    "gap words": (["5", "N/A", "unknown", "-", "?", "6"], [5, NAN, NAN, NAN, NAN, 6]),
    "German gap words": (["5,5", "k.A.", "unbekannt", "keine Angabe"], [5.5, NAN, NAN, NAN]),
    "error cells": (["5", "#DIV/0!", "#REF!", "6"], [5, NAN, NAN, 6]),
    "gaps with a unit": (["5 kg", "--", "6 kg"], [5, NAN, 6]),
    "one odd cell in twenty": (["1.5"] * 19 + ["twenty"], [1.5] * 19 + [NAN]),
}  # fmt: skip

DATES = {
    "ISO": (["2020-01-31", "2021-12-01"], "2020-01-31"),
    "ISO with time": (["2020-01-31T10:30:00", "2021-12-01 08:00:00"], "2020-01-31 10:30"),
    "ISO with zone": (["2020-01-31T10:30:00Z", "2020-01-31 10:30:00+02:00"], "2020-01-31 10:30"),
    "year and month": (["2020-01", "2021-12"], "2020-01-01"),
    "German": (["31.01.2020", "1.2.2020"], "2020-01-31"),
    "German with time": (["31.01.2020 10:30", "1.2.2020"], "2020-01-31 10:30"),
    "German, short": (["31.01.20", "01.02.21"], "2020-01-31"),
    "US": (["1/31/2020", "12/1/2021"], "2020-01-31"),
    "US with time": (["1/31/2020 10:30 PM", "12/1/2021 1:00 AM"], "2020-01-31 22:30"),
    "British": (["31/1/2020", "1/12/2021"], "2020-01-31"),
    "names of months": (["31-Jan-2020", "01-Dec-2021"], "2020-01-31"),
    "long names": (["January 31, 2020", "December 1, 2021"], "2020-01-31"),
    "slashes, year first": (["2020/01/31", "2021/12/01"], "2020-01-31"),
    "gaps": (["31.01.2020", "-", "unknown"], "2020-01-31"),
}

TEXTS = {
    "words": ["Rome", "Oslo"],
    "codes with letters": ["A1", "B2", "C3"],
    "suffixes that differ": ["12a", "12b", "13c"],
    "versions": ["1.2.3", "1.2.4"],
    "not a date": ["2020-13-01", "2020-01-32"],
    "ranges": ["10-20", "20-30", "30-40"],
    "comparisons": ["<5", ">5", ">10"],
    "sizes": ["10x20", "30x40"],
    "phone numbers": ["030 1234567", "089 7654321"],
    "yes and no": ["yes", "no"],
    "grades": ["1", "2", "A", "B"],
    "leading zeros": ["01234", "10115", "00501"],
    "many commas": ["1,,234", "1,23,4"],
    "formulas": ["=1+1", "=cmd()"],
    "right to left": ["العمر", "بالسنوات"],
}

REFUSED = {
    "currencies": (["$5", "€6", "£7"], r"different units \('\$', '€', '£'\): convert them to one"),
    "units": (["5 kg", "500 g"], "different units"),
    "percent and plain": (["12 %", "0.12"], "some cells have a percent sign and 1 have none"),
    "day or month": (["01/02/2020", "03/04/2020"], "can be read as day or month first: write them"),
    "numbers and words": (
        [*map(str, range(60)), *(f"word {k}" for k in range(20))], "75% of the cells are numbers",
    ),
    "huge": (["1e300", "5"], "expected finite numbers below 1e.100; got 1e.300"),
    "infinite": ([np.inf, 1.0], "expected finite numbers below 1e.100; got inf"),
    "lists": ([[1], [2, 3]], "expected numbers, dates or text; got values of 'list'"),
    "dictionaries": ([{}, {}], "got values of 'dict'"),
    "bytes": ([b"a", b"b"], "got values of 'bytes'"),
}  # fmt: skip


def read(cells, decimal="."):
    frame, (reading,), warnings = read_columns(pd.DataFrame({"x": cells}), decimal)
    return frame["x"], reading, warnings


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_are_numbers(case):
    cells, expected = NUMBERS[case]
    values, reading, warnings = read(cells)
    assert reading.kind == "numbers"
    np.testing.assert_allclose(values, expected)
    assert len(warnings) == (case == "one odd cell in twenty")
    again = reading_from_json(reading.to_json())
    np.testing.assert_allclose(apply_reading(again, pd.Series(cells))[0], expected)


@pytest.mark.parametrize("case", DATES)
def test_dates_are_dates(case):
    cells, first = DATES[case]
    values, reading, _ = read(cells)
    assert reading.kind == "dates"
    assert values.iloc[0] == pd.Timestamp(first)
    assert values.notna().sum() == sum(x not in ("-", "unknown") for x in cells)
    again, unread = apply_reading(reading, pd.Series(cells))
    assert unread == 0
    pd.testing.assert_series_equal(again, values, check_names=False)


@pytest.mark.parametrize("case", TEXTS)
def test_other_texts_are_text(case):
    values, reading, _ = read(TEXTS[case])
    assert reading.kind == "text"
    assert values.tolist() == TEXTS[case]


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_one_reading_is_refused(case):
    cells, message = REFUSED[case]
    with pytest.raises(ValueError, match=f"column 'x': .*{message}.*--drop"):
        read(cells)


def test_there_are_enough_cases():
    assert sum(map(len, (NUMBERS, DATES, TEXTS, REFUSED, FILES))) >= 60


# Files: the content, and the columns that must come of it.
FILES = {
    "thousands in a semicolon file": (
        "price;n\n7.295;1\n950;2\n12.400;3\n", {"price": [7295, 950, 12400], "n": [1, 2, 3]},
    ),
    "decimal commas in a semicolon file": ("a;b\n1,5;x\n7,295;y\n", {"a": [1.5, 7.295]}),
    "quoted groups in a comma file": ('a,b\n"7,295",1\n"950",2\n', {"a": [7295, 950]}),
    "quoted decimal commas": ('a,b\n"7,29",1\n"0,5",2\n', {"a": [7.29, 0.5]}),
    "comma groups in a tab file": ("a\tb\n7,295\t1\n950\t2\n", {"a": [7295, 950]}),
    "leading zeros are codes": ("zip,n\n01234,5\n10115,6\n", {"zip": ["01234", "10115"]}),
    "plain decimals stay": ("a,b\n7.295,1\n9.5,2\n", {"a": [7.295, 9.5]}),
    "gap words": ("a,b\n5,x\nunknown,y\n?,-\n", {"a": [5, NAN, NAN], "b": ["x", "y", None]}),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_files_are_read_as_they_are_meant(case, tmp_path):
    content, expected = FILES[case]
    (tmp_path / "a.csv").write_text(content)
    frame = read_table(tmp_path / "a.csv")
    found, _, _ = read_columns(frame, frame.attrs["decimal"])
    for name, values in expected.items():
        if isinstance(values[0], str):
            assert found[name].astype(object).where(found[name].notna(), None).tolist() == values
        else:
            np.testing.assert_allclose(found[name], values)


def test_other_types_of_dates_and_durations():
    days = pd.date_range("2020-01-01", periods=3, tz="Europe/Berlin")
    for column in (days, [date(2020, 1, k) for k in (1, 2, 3)], pd.period_range("2020", periods=3)):
        assert read(column)[1].kind == "dates"
    values, reading, _ = read(pd.to_timedelta([1, 36, None], unit="h"))
    assert reading.kind == "numbers"
    np.testing.assert_allclose(values, [1 / 24, 1.5, NAN])
    values, reading, _ = read([1, "2", "x", 2.5])  # mixed types are read as text is
    assert reading.kind == "text"
    assert read([1, "2", 2.5])[0].tolist() == [1, 2, 2.5]


def shop(n=300, seed=0):
    """Money in German writing decides, beside dates, percent and codes."""
    rng = np.random.default_rng(seed)
    price = rng.integers(200, 20_000, n)
    when = pd.Timestamp("2023-01-02") + pd.to_timedelta(rng.integers(0, 700, n), unit="D")
    late = price + 4000 * (when.day_of_week > 4) + rng.normal(0, 1500, n) > 12_000
    return pd.DataFrame(
        {
            "price": [f"{x:,} €".replace(",", ".") for x in price],
            "when": when.strftime("%d.%m.%Y"),
            "discount": [f"{x} %" for x in rng.integers(0, 30, n)],
            "zip": [f"{x:05}" for x in rng.choice([1067, 10115, 20095], n)],
            "late": np.where(late, "yes", "no"),
        }
    )


def test_the_readings_go_with_the_model(tmp_path):
    shop().to_csv(tmp_path / "shop.csv", index=False)
    result = fit_table(tmp_path / "shop.csv", "late", model="linear")
    kinds = {x.name: (x.kind, x.rule) for x in result.readings}
    assert kinds == {
        "price": ("numbers", "decimal comma, thousands separator '.', unit '€'"),
        "when": ("dates", "dates, day.month.year"),
        "discount": ("numbers", "unit '%'"),
        "zip": ("text", "codes with leading zeros"),
    }
    assert result.score > 0.8
    assert result.importances[0].column == "price"
    assert (result.facts["numbers"], result.facts["dates"], result.facts["texts"]) == (2, 1, 1)
    save(result, tmp_path / "model")
    model, new = load(tmp_path / "model"), shop(100, seed=1)
    assert model.readings == result.readings
    new.loc[3, "price"] = "free"
    new.loc[4, "when"] = "-"
    new.to_csv(tmp_path / "new.csv", index=False)
    warnings = []
    predict_table(model, tmp_path / "new.csv", tmp_path / "out.csv", on_warning=warnings.append)
    assert warnings == [
        "column 'price': cells that are not numbers are treated as missing (1: 'free' in line 5)"
    ]
    lines = (tmp_path / "new.csv").read_text().splitlines()
    (tmp_path / "gaps.csv").write_text("\n".join([lines[0], "", "   ", *lines[1:]]) + "\n")
    gaps = []
    predict_table(model, tmp_path / "gaps.csv", tmp_path / "out.csv", on_warning=gaps.append)
    assert gaps == [warnings[0].replace("line 5", "line 7")]
    typed = new.assign(
        price=pd.to_numeric(new["price"].str.replace(r"\D", "", regex=True)),
        when=pd.to_datetime(new["when"], format="%d.%m.%Y", errors="coerce"),
        discount=pd.to_numeric(new["discount"].str.rstrip(" %")),
    )
    found = read_table(tmp_path / "out.csv")["decision_value"]
    np.testing.assert_allclose(found, model.decision_values(typed))


def test_what_a_reading_describes():
    frame = shop().assign(row=range(300), same="x", free=[f"text {k}" for k in range(300)])
    frame.loc[:2, "price"] = ["n/a", "-", "gratis"]
    table = prepare_table(frame, TableOptions(("late",)))
    price, when = table.readings[:2]
    values = shop()["price"][3:].str.replace(r"\D", "", regex=True).astype(int)
    assert (price.rows, price.gaps, price.unread, price.example) == (300, 2, 1, "n/a")
    assert (price.low, price.high) == (str(values.min()), str(values.max()))
    assert price.levels == values.nunique()
    assert when.low == str(pd.to_datetime(frame["when"], format="%d.%m.%Y").min().date())
    result = fit_table(frame, "late", model="linear")
    assert {x.name: x.use for x in result.readings if x.use != "used"} == {
        "row": "only numbers the rows", "same": "constant or empty",
        "free": "values hardly ever repeat",
    }  # fmt: skip


BROKEN = {
    "swallowed": (
        'a,b,c\n1,"x,2\n3,y,4\n5,"z",6\n7,w,8\n',
        "a quote that opens in the row of line 2 is closed only 2 lines later, .* 1 or more rows",
    ),
    "never closed": ('a,b\n1,x\n2,"y\n3,z\n', "a quote in line 3 is never closed: remove it"),
    "too long": (
        "a,b\n" + "1,2\n" * 60_000 + "1,2,3\n",
        "has 3 fields in line 60002, and 2 before",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_refused_with_the_line(case, tmp_path):
    content, message = BROKEN[case]
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "a.csv")


def test_short_rows_are_named_with_the_line(tmp_path):
    rows = [f"{k},x,{k % 7}" for k in range(50)]
    rows[20] = "20,x"
    rows[30] = '"30\n31",x'
    rows[40] = "40"
    (tmp_path / "a.csv").write_text("a,b,c\n" + "\n".join(rows) + "\n")
    assert read_table(tmp_path / "a.csv").attrs["warnings"] == [
        "3 rows of the file have fewer fields than the 3 column names, and the others are missing "
        "values (the first is in line 22)"
    ]
    (tmp_path / "a.csv").write_text('a,b\n1,"two\nlines, and a comma"\n2,\n')
    assert read_table(tmp_path / "a.csv").attrs["warnings"] == []


def test_half_precision_is_read_as_single_precision():
    frame = pd.DataFrame({"x": np.array([0.5, np.nan, 2.0], dtype=np.float16)})
    found, (reading,), _ = read_columns(frame)
    assert found["x"].dtype == np.float32
    assert (reading.kind, reading.low, reading.high, reading.gaps) == ("numbers", "0.5", "2", 1)


@pytest.mark.parametrize("kind", ["Int64", "Int16", "Float64", "int64[pyarrow]", "double[pyarrow]"])
def test_nullable_numbers_are_numbers(kind):
    values = pd.array([3, None, 70], dtype=kind)
    found, (reading,), _ = read_columns(pd.DataFrame({"x": values}))
    assert found["x"].dtype == np.float64
    assert found["x"].tolist() == pytest.approx([3.0, np.nan, 70.0], nan_ok=True)
    assert (reading.kind, reading.gaps, reading.low, reading.high) == ("numbers", 1, "3", "70")


@pytest.mark.parametrize("kind", ["boolean", "bool[pyarrow]"])
def test_nullable_truth_is_numbers(kind):
    gaps, whole = pd.array([True, None, False], dtype=kind), pd.array([True, False], dtype=kind)
    (found, _, _), (full, _, _) = (read_columns(pd.DataFrame({"x": x})) for x in (gaps, whole))
    assert found["x"].tolist() == pytest.approx([1.0, np.nan, 0.0], nan_ok=True)
    assert full["x"].dtype == bool


def test_a_table_of_nullable_numbers_is_fitted_as_one_of_floats():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=300), "x": rng.integers(0, 900, 300).astype(float)})
    frame["y"] = np.where(frame["a"] + rng.normal(size=300) > 0.5, "yes", "no")
    frame.loc[5, "x"] = np.nan
    plain, nullable = (
        fit_table(x, "y", model="linear", folds=0) for x in (frame, frame.astype({"x": "Int64"}))
    )
    assert nullable.score == plain.score
    assert nullable.p_test.tolist() == plain.p_test.tolist()


def test_one_short_row(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,c\n" + "1,x,2\n" * 30 + "1,x\n")
    assert (
        read_table(tmp_path / "a.csv")
        .attrs["warnings"][0]
        .startswith("1 row of the file has fewer fields than the 3 column names")
    )


def test_what_is_no_table():
    with pytest.raises(TypeError, match="a file or a pandas DataFrame; got list"):
        fit_table([1, 2], "a", "f1")
