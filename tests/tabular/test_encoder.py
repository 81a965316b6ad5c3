"""TableEncoder: data frames from CSV files as numbers without missing values."""

import io
import json
from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.preprocessing import OneHotEncoder

from anyloss.tabular.encoder import TableEncoder, for_tables

CSV = """age,member,city,empty,same
20,True,Rome,,7
,False,Oslo,,7
50,,,,7
40,True,Rome,,7
"""
NAMES = ["age", "member", "missingindicator_age", "missingindicator_member"]
NAMES += ["city=Oslo", "city=Rome", "city is missing"]
ENCODED = [
    [20, 1, 0, 0, 0, 1, 0],
    [40, 0, 1, 0, 1, 0, 0],
    [50, 1, 0, 1, 0, 0, 1],
    [40, 1, 0, 0, 0, 1, 0],
]


def read(**options):
    return pd.read_csv(io.StringIO(CSV), **options)


def customers(n=200, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.normal(40, 10, n)
    city = rng.choice(["Rome", "Oslo", "Lima"], n)
    y = (age + 10 * (city == "Rome") + rng.normal(0, 3, n) > 45).astype(int)
    frame = pd.DataFrame({"age": age, "city": city, "member": rng.random(n) < 0.5})
    frame.loc[::7, "age"] = np.nan
    frame.loc[::9, "city"] = None
    return frame, y


@pytest.mark.parametrize("options", [{}, {"dtype_backend": "numpy_nullable"}])
def test_a_table_from_a_csv_file(options):
    frame = read(**options)
    before = frame.copy()
    encoder = TableEncoder().fit(frame)
    encoded = encoder.transform(frame)
    assert type(encoded) is np.ndarray
    assert encoded.dtype == np.float64
    np.testing.assert_array_equal(encoded, ENCODED)
    assert encoder.get_feature_names_out().tolist() == NAMES
    assert encoder.feature_names_in_.tolist() == ["age", "member", "city", "empty", "same"]
    assert encoder.n_features_in_ == 5
    assert encoder.dropped_ == ["empty", "same"]
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.array([1, None, 4], "Int64"), [[1, 0], [2.5, 1], [4, 0]]),
        (pd.array([1.5, None, 2], "Float64"), [[1.5, 0], [1.75, 1], [2, 0]]),
        (pd.array([True, None, True], "boolean"), [[1, 0], [1, 1], [1, 0]]),
        (np.array([True, False, True]), [[1], [0], [1]]),
        (np.array([3, 1, 2], np.uint8), [[3], [1], [2]]),
        ([Decimal(1), None, Decimal(2)], [[1, 0], [1.5, 1], [2, 0]]),
        (pd.Series([1, None, 2.5], dtype=object), [[1, 0], [1.75, 1], [2.5, 0]]),
        (pd.array(["b", None, "a"], "string"), [[0, 1, 0], [0, 0, 1], [1, 0, 0]]),
        (pd.Series(["b", None, np.nan], dtype=object), [[1, 0], [0, 1], [0, 1]]),
        (pd.Categorical(["b", None, "a"]), [[0, 1, 0], [0, 0, 1], [1, 0, 0]]),
        (pd.Categorical([20, None, 10]), [[0, 1, 0], [0, 0, 1], [1, 0, 0]]),
    ],
)
def test_dtypes(column, expected):
    frame = pd.DataFrame({"it": column}).set_axis([5, 5, 6])
    np.testing.assert_array_equal(TableEncoder().fit_transform(frame), expected)


def test_a_category_of_numbers_has_the_same_names_with_and_without_gaps():
    encoder = TableEncoder().fit(pd.DataFrame({"it": pd.Categorical([20, None, 10])}))
    assert encoder.get_feature_names_out().tolist() == ["it=10", "it=20", "it is missing"]
    encoded = encoder.transform(pd.DataFrame({"it": pd.Categorical([10, 20])}))
    np.testing.assert_array_equal(encoded, [[1, 0, 0], [0, 1, 0]])


def test_the_text_nan_is_not_a_gap():
    encoder = TableEncoder().fit(pd.DataFrame({"it": ["nan", None]}))
    assert encoder.get_feature_names_out().tolist() == ["it=nan", "it is missing"]


def test_unseen_and_missing_values_after_fit():
    encoder = TableEncoder().fit(pd.DataFrame({"n": [1, 2, 9], "t": ["a", "b", "b"]}))
    encoded = encoder.transform(pd.DataFrame({"n": [np.nan, 5], "t": ["new", None]}))
    np.testing.assert_array_equal(encoded, [[2, 0, 0], [5, 0, 0]])


def test_rare_and_unseen_values_share_a_column():
    encoder = TableEncoder(max_categories=2).fit(pd.DataFrame({"t": list("aaabbc")}))
    assert encoder.get_feature_names_out().tolist() == ["t=a", "t=infrequent_sklearn"]
    encoded = encoder.transform(pd.DataFrame({"t": ["a", "b", "c", "new"]}))
    np.testing.assert_array_equal(encoded, [[1, 0], [0, 1], [0, 1], [0, 1]])


def test_columns_that_are_all_missing_after_fit():
    encoder = TableEncoder().fit(read())
    nothing = pd.DataFrame(np.nan, index=[0], columns=["age", "member", "city", "empty", "same"])
    np.testing.assert_array_equal(encoder.transform(nothing), [[40, 1, 1, 1, 0, 0, 1]])


def test_a_value_and_gaps_are_not_constant():
    encoder = TableEncoder().fit(pd.DataFrame({"n": [5, None], "t": ["yes", None]}))
    assert encoder.dropped_ == []


def test_columns_are_found_by_name():
    frame = read()
    encoder = TableEncoder().fit(frame)
    turned = frame[frame.columns[::-1]].assign(extra=[[1], [2], [3], [4]])
    np.testing.assert_array_equal(encoder.transform(turned), ENCODED)
    with pytest.raises(ValueError, match="columns of fit; 'age', 'city' not found among 'member'"):
        encoder.transform(frame.drop(columns=["age", "city"]))


def test_names_that_are_no_text():
    encoder = TableEncoder().fit(pd.DataFrame({0: [1, 2], 1: ["a", "b"]}))
    assert encoder.get_feature_names_out().tolist() == ["0", "1=a", "1=b"]
    with pytest.raises(ValueError, match="distinct column names; got '1' more than once"):
        TableEncoder().fit(pd.DataFrame({1: [1, 2], "1": [1, 2]}))


def test_arrays_of_numbers():
    encoder = TableEncoder().fit(np.array([[1.0, 2.0], [3.0, np.nan]]))
    assert encoder.get_feature_names_out().tolist() == ["x0", "x1", "missingindicator_x1"]
    np.testing.assert_array_equal(encoder.transform(np.array([[4, 5]])), [[4, 5, 0]])
    with pytest.raises(ValueError, match="an array of 2 columns, as in fit; got 3"):
        encoder.transform(np.ones((1, 3)))


@pytest.mark.parametrize("settings", ["set_output", "config"])
def test_data_frame_output(settings):
    frame = read().set_axis([9, 8, 8, 7])
    expected = pd.DataFrame(ENCODED, index=[9, 8, 8, 7], columns=NAMES, dtype=float)
    if settings == "set_output":
        encoded = TableEncoder().set_output(transform="pandas").fit_transform(frame)
    else:
        with sklearn.config_context(transform_output="pandas"):
            encoded = TableEncoder().fit_transform(frame)
    pd.testing.assert_frame_equal(encoded, expected, check_column_type=False)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.to_timedelta([1, 2], "D"), "timedelta64 values, such as '1 days 00:00:00'"),
        (["2020-01-31", "2021-12-01"], "dates as text, such as '2020-01-31'"),
        (["2020/1/31", None], "dates as text, such as '2020/1/31'"),
        (["31.01.2020", "1.2.2020 10:30"], "dates as text, such as '31.01.2020'"),
        (["2020-01-31T10:30:00.5Z", "2020-01-31 10:30:00+02:00"], "dates as text"),
        (pd.Categorical(["2020-01-31", "2021-12-01"]), "dates as text"),
    ],
)
def test_dates_in_text_are_refused(column, message):
    with pytest.raises(ValueError, match="column 'when': .*pandas.to_datetime") as error:
        TableEncoder().fit(pd.DataFrame({"n": [1, 2], "when": column}))
    assert message in str(error.value)


@pytest.mark.parametrize(
    "column",
    [
        pd.to_datetime(["2024-02-29 12:00", None, "2024-03-04 18:00"]),
        pd.to_datetime(["2024-02-29 12:00", None, "2024-03-04 18:00"]).tz_localize("UTC"),
    ],
)
def test_dates_become_numbers(column):
    frame = pd.DataFrame({"when": column})
    encoder = TableEncoder().fit(frame)
    assert encoder.get_feature_names_out().tolist() == [
        "when: month", "when: weekday", "when: days", "when: hour", "missingindicator_when",
    ]  # fmt: skip
    expected = [[2, 3, 0.5, 12, 0], [2.5, 1.5, 2.625, 15, 1], [3, 0, 4.75, 18, 0]]
    np.testing.assert_array_equal(encoder.transform(frame), expected)
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    np.testing.assert_array_equal(again.transform(frame), expected)
    assert again.sources().tolist() == ["when"] * 5
    with pytest.raises(ValueError, match="column 'when': expected dates, as in fit; got dtype int"):
        encoder.transform(pd.DataFrame({"when": [1]}))


def test_days_and_constant_dates():
    encoder = TableEncoder().fit(pd.DataFrame({"n": [1, 2], "on": [date(2020, 1, 1), None]}))
    assert encoder.get_feature_names_out().tolist() == ["n", "on: days", "missingindicator_on"]
    encoder = TableEncoder().fit(pd.DataFrame({"n": [1, 2], "on": [date(2020, 1, 1)] * 2}))
    assert encoder.dropped_ == ["on"]


def test_nearly_all_dates_are_dates_and_text_like_dates_is_text():
    days = [f"2020-01-{day:02}" for day in range(1, 21)]
    with pytest.raises(ValueError, match="column 'when': .* dates as text"):
        TableEncoder().fit(pd.DataFrame({"when": [*days, "unknown"]}))
    for texts in (["2020-13-01", "2020-01-32"], ["1.2.3", "1.2.4"], [days[0], "never"]):
        assert TableEncoder().fit(pd.DataFrame({"it": texts})).dropped_ == []


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1.0, np.inf, -np.inf], "finite numbers; got 2 infinite: replace"),
        ([[1], [2], None], "got values of 'list': convert all of them"),
        ([{}, {}, {}], "got values of 'dict'"),
        (["a", 1, 2.5], "got values of 'float', 'int', 'str'"),
        ([b"a", b"b", None], "got values of 'bytes'"),
        ([1j, 2j, 3j], "got values of 'complex'"),
    ],
)
def test_values_that_are_refused(column, message):
    with pytest.raises(ValueError, match=f"column 'it': expected .*{message}"):
        TableEncoder().fit(pd.DataFrame({"n": [1, 2, 3], "it": column}))


def test_identifiers_are_refused():
    names = [f"customer {i}" for i in range(51)]
    with pytest.raises(ValueError, match="column 'id': .* 51 distinct values in 51 rows, such as"):
        TableEncoder().fit(pd.DataFrame({"id": names}))
    assert TableEncoder().fit_transform(pd.DataFrame({"id": names[:50]})).shape == (50, 20)
    repeated = names[:45] + names[:6]
    assert TableEncoder().fit_transform(pd.DataFrame({"id": repeated})).shape == (51, 20)
    every = TableEncoder(max_categories=None).fit_transform(pd.DataFrame({"id": repeated}))
    assert every.shape == (51, 45)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"a": []}), "got 0 rows and 1 columns"),
        (pd.DataFrame(index=[0, 1]), "got 2 rows and 0 columns"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), "got 'a' more than once"),
        (pd.DataFrame({"a": [1, 1], "b": None}), "all of 'a', 'b' are constant or empty"),
        (pd.DataFrame(np.ones((2, 12))), "'9' and 2 more are constant"),
    ],
)
def test_tables_that_are_refused(frame, message):
    with pytest.raises(ValueError, match=message):
        TableEncoder().fit(frame)


@pytest.mark.parametrize(
    ("table", "came"),
    [
        ([[1, 2]], "got list: convert"),
        (pd.Series([1, 2]), "got Series: convert"),
        (np.array([1.0, 2.0]), r"got ndarray of float64, shape \(2,\)"),
        (np.array([["a"]]), "got ndarray of <U1"),
        (None, "got NoneType"),
    ],
)
def test_other_things_are_refused(table, came):
    with pytest.raises(TypeError, match=f"expected a pandas DataFrame or a NumPy .*{came}"):
        TableEncoder().fit(table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": "12"}, "column 'n': expected numbers, as in fit; got dtype .*'12'"),
        ({"t": 12}, "column 't': expected text, as in fit; got dtype int64"),
        ({"n": np.inf}, "column 'n': expected finite numbers; got 2 infinite"),
        ({"t": pd.Timestamp("2020-01-01")}, "column 't': .* datetime64"),
    ],
)
def test_columns_that_changed_after_fit_are_refused(change, message):
    frame = pd.DataFrame({"n": [1, 2], "t": ["a", "b"]})
    encoder = TableEncoder().fit(frame)
    with pytest.raises(ValueError, match=message):
        encoder.transform(frame.assign(**change))


@pytest.mark.parametrize("most", [1, 2.5, True, "all"])
def test_max_categories_is_checked(most):
    with pytest.raises(
        ValueError, match="max_categories must be an integer of at least 2, or None"
    ):
        TableEncoder(max_categories=most).fit(read())


def test_before_fit():
    with pytest.raises(NotFittedError):
        TableEncoder().transform(read())
    with pytest.raises(NotFittedError):
        TableEncoder().get_feature_names_out()


def test_a_pipeline_in_cross_validation():
    frame, y = customers()
    model = for_tables(LogisticRegression(max_iter=1000), max_categories=5)
    assert clone(model).get_params()["tableencoder__max_categories"] == 5
    assert cross_val_score(clone(model), frame, y, cv=5, error_score="raise").mean() > 0.8
    search = GridSearchCV(model, {"tableencoder__max_categories": [2, None]}, error_score="raise")
    assert search.fit(frame, y).best_score_ > 0.8


def test_a_fitted_pipeline_takes_gaps_in_a_column_that_had_none():
    frame, y = customers()
    model = for_tables(LogisticRegression(max_iter=1000)).fit(frame, y)
    row = pd.DataFrame({"member": [None], "city": ["Quito"], "age": [70]})
    assert model.predict(row).tolist() == [1]
    assert model[:-1].get_feature_names_out().tolist() == [
        *("age", "member", "missingindicator_age"),
        *("city=Lima", "city=Oslo", "city=Rome", "city is missing"),
    ]


def nasty(n=60, seed=0):
    """Columns that are hard to store: missing values, quotes, unicode, rare and huge values."""
    rng = np.random.default_rng(seed)
    words = [
        "",
        " ",
        "=1+1",
        "nan",
        "None",
        'say "hi"',
        "a,b\nc",
        "\u00e9",
        "\U0001f600",
        "z",
    ]
    frame = pd.DataFrame(
        {
            "size": rng.choice([1e-300, 1e300, -0.0, 1 / 3, np.nan], n),
            "flag": rng.choice(np.array([True, False, None], dtype=object), n),
            "word": rng.choice(np.array([*words, None], dtype=object), n),
            "many": rng.choice(np.array([f"v{k % 17}" for k in range(40)], dtype=object), n),
            "never empty": rng.integers(0, 2**53, n),
            "constant": "x",
        }
    )
    frame.loc[0, "many"] = "v\u2028"
    return frame


@pytest.mark.parametrize("most", [2, 3, 11, 12, 13, 20, None])
def test_the_encoder_gives_what_scikit_learns_transformers_give(most):
    frame, new = nasty(), nasty(seed=1)
    encoder = TableEncoder(max_categories=most).fit(frame)
    texts = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=most, sparse_output=False
    )
    numbers = SimpleImputer(strategy="median", add_indicator=True)
    reference = ColumnTransformer(
        [("n", numbers, ["size", "flag", "never empty"]), ("t", texts, ["word", "many"])]
    )

    def plain(frame):
        numbers = frame[["size", "flag", "never empty"]].astype(float)
        texts = (
            frame[["word", "many"]].astype(object).where(frame[["word", "many"]].notna(), np.nan)
        )
        return pd.concat([numbers, texts], axis=1)

    reference.fit(plain(frame))
    np.testing.assert_array_equal(encoder.transform(frame), reference.transform(plain(frame)))
    np.testing.assert_array_equal(encoder.transform(new), reference.transform(plain(new)))


@pytest.mark.parametrize("most", [2, 12, None])
def test_an_encoder_out_of_json_is_the_same_encoder(most):
    frame, new = nasty(), nasty(seed=1)
    encoder = TableEncoder(max_categories=most).fit(frame)
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json(), allow_nan=False)))
    for rows in (frame, new, new[new.columns[::-1]]):
        assert again.transform(rows).tobytes() == encoder.transform(rows).tobytes()
    assert again.get_feature_names_out().tolist() == encoder.get_feature_names_out().tolist()
    assert again.sources().tolist() == encoder.sources().tolist()
    assert again.dropped_ == encoder.dropped_ == ["constant"]
    assert again.feature_names_in_.tolist() == list(frame)
    assert again.get_params() == encoder.get_params()


def test_two_encoded_columns_never_share_a_name():
    frame = pd.DataFrame({"a": ["b=c", "d"] * 3, "a=b": ["c", "e"] * 3, "a=d": [1.0, 2.0] * 3})
    names = TableEncoder().fit(frame).get_feature_names_out().tolist()
    assert names == ["a=d", "a=b=c", "a=d (2)", "a=b=c (2)", "a=b=e"]
