"""What the report shows beyond the score: slices, effects, errors, calibration, the training score."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn import metrics
from sklearn.calibration import calibration_curve

from anyloss.report import curves, details, render, write
from anyloss.tabular import Outcome, fit_table
from anyloss.tabular.effects import Effect, effects
from anyloss.tabular.intervals import few_rows_interval, score_interval
from anyloss.tabular.scoring import scoring_of
from anyloss.tabular.slices import LEAST_CLASS, slices
from anyloss.tabular.wrong_rows import wrong_rows

TWO = Outcome("binary", ("left",), ("no", "yes"))


def noisy(y, share, seed=0):
    """Decisions that are wrong for a share of the rows."""
    flipped = np.random.default_rng(seed).random(len(y)) < share
    return np.where(flipped, 1 - y, y)


def test_slices_of_two_classes_are_those_of_scikit_learn(table):
    frame = table.dropna(subset="left")
    y = (frame.pop("left") == "yes").to_numpy(float)
    decided = noisy(y, 0.2)
    found, small = slices(frame, y, decided, scoring_of("f1", "binary", 1), list(frame))
    assert small == 0
    for name, own in (("city", frame["city"]), ("plan", frame["plan"])):
        for value in own.unique():
            (each,) = [x for x in found if (x.column, x.values) == (name, str(value))]
            at = (own == value).to_numpy()
            assert each.rows == at.sum()
            assert each.positives == pytest.approx(y[at].mean())
            assert each.score == pytest.approx(metrics.f1_score(y[at], decided[at]))
            assert each.interval[0] < each.score < each.interval[1]
    edges = np.quantile(frame["age"].dropna(), [0, 0.25, 0.5, 0.75, 1])
    quarters = [x for x in found if x.column == "age"]
    assert [x.values for x in quarters][-1] == "missing"
    assert [x.rows for x in quarters] == [
        *np.histogram(-frame["age"].dropna(), -edges[::-1])[0][::-1], frame["age"].isna().sum()
    ]  # fmt: skip
    for each, low, high in zip(quarters, edges, edges[1:], strict=False):
        at = ((frame["age"] > low) | (low == edges[0])) & (frame["age"] <= high)
        assert each.score == pytest.approx(metrics.f1_score(y[at], decided[at]))
        first, last = each.values.split(" to ")
        assert float(first) >= low
        assert float(last) <= high
    first = next(x.values for x in found if x.column == "start")
    assert first.startswith(f"{frame['start'].min():%Y-%m-%d} to 2020-")


def test_slices_of_several_classes_and_labels_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"city": rng.choice(list("ab"), 400)})
    codes = rng.integers(0, 3, 400)
    decided = np.where(rng.random(400) < 0.7, codes, rng.integers(0, 3, 400))
    one_hot = np.eye(3)
    several = scoring_of("f1", "multiclass", 3)
    found, _ = slices(frame, one_hot[codes], one_hot[decided], several, ["city"])
    for each in found:
        at = (frame["city"] == each.values).to_numpy()
        expected = metrics.f1_score(codes[at], decided[at], average="macro")
        assert each.score == pytest.approx(expected)
        assert each.positives is None
    y = (rng.random((400, 2)) < 0.4).astype(float)
    d = noisy(y.ravel(), 0.2).reshape(400, 2)
    found, _ = slices(frame, y, d, scoring_of("f1", "multilabel", 2), ["city"])
    for each in found:
        at = (frame["city"] == each.values).to_numpy()
        assert each.score == pytest.approx(metrics.f1_score(y[at], d[at], average="macro"))
        assert each.interval[0] < each.score < each.interval[1]


def test_small_slices_are_left_out_and_counted():
    rows = {"tiny": 20, "few positives": 100, "whole": 100}
    frame = pd.DataFrame({"k": np.repeat(list(rows), list(rows.values()))})
    y = np.zeros(220)
    y[:10], y[20 : 20 + LEAST_CLASS - 1], y[120:140] = 1, 1, 1
    found, small = slices(frame, y, noisy(y, 0.1), scoring_of("f1", "binary", 1), ["k"])
    assert ([x.values for x in found], small) == (["whole"], 2)
    assert slices(frame, y, y, scoring_of("5*tp - 3*fp", "binary", 1), ["k"]) == ((), 0)
    many = pd.DataFrame({"k": np.arange(4000) % 100}).astype(str)
    y = (np.arange(4000) // 100 % 2).astype(float)
    found, _ = slices(many, y, y, scoring_of("f1", "binary", 1), ["k"])
    assert len(found) == 9
    assert (found[-1].values, found[-1].rows) == ("92 other values", 3680)


def test_the_interval_of_few_rows_is_that_of_jeffreys_and_covers():
    y, d = np.repeat([1.0, 1.0, 0.0], [3, 9, 60]), np.repeat([1.0, 0.0], [3, 69])
    low, high = few_rows_interval(y, d, scoring_of("recall", "binary", 1))
    # Recall: a beta distribution with half a row added to both cells.
    expected = stats.beta.ppf([0.025, 0.975], 3.5, 9.5)
    assert (low, high) == pytest.approx(tuple(expected), abs=0.03)
    assert few_rows_interval(y, y, scoring_of("recall", "binary", 1))[1] == 1  # no mistakes
    assert few_rows_interval(y, 1 - y, scoring_of("recall", "binary", 1))[0] == 0
    rng, f1 = np.random.default_rng(0), scoring_of("f1", "binary", 1)
    shares = np.array([0.01, 0.05, 0.03, 0.91])  # true positives, false negatives, ...
    truth = 2 * shares[0] / (2 * shares[0] + shares[1] + shares[2])
    covered = {few_rows_interval: 0, score_interval: 0}
    for _ in range(150):
        cells = rng.multinomial(150, shares)
        y, d = (np.repeat(x, cells) for x in ([1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]))
        for interval in covered:
            low, high = interval(y, d, f1)
            covered[interval] += low <= truth <= high
    assert covered[few_rows_interval] >= 0.92 * 150
    assert covered[score_interval] < 0.9 * 150  # a bootstrap of few rows does not cover


@pytest.mark.parametrize("ties", [False, True])
def test_the_calibration_curve_is_that_of_scikit_learn(ties):
    rng = np.random.default_rng(0)
    y = (rng.random(800) < 0.1).astype(float)
    p = 1 / (1 + np.exp(4 - 3 * y - rng.normal(size=800)))
    p = p.round(2) if ties else p
    found = curves.calibration(y, p)
    share, value = calibration_curve(y, p, n_bins=10, strategy="quantile")
    assert found.y == pytest.approx(share)
    assert found.x == pytest.approx(value)
    if not ties:
        z, n = stats.norm.ppf(0.975), 80  # Wilson's interval
        middle = (share + z * z / 2 / n) / (1 + z * z / n)
        width = z * np.sqrt(share * (1 - share) / n + z * z / 4 / n**2) / (1 + z * z / n)
        assert found.low == pytest.approx(middle - width)
        assert found.high == pytest.approx(middle + width)


@pytest.mark.parametrize("model", ["linear", "lightgbm"])
def test_effects_are_partial_dependence(fitted, held_out, model):
    result = fitted[model]
    columns = {x.column: x for x in result.effects}
    assert list(columns) == [x.column for x in result.importances]
    # All test rows are sampled: the mean over them of the decision values with this age.
    rows = held_out(result)
    for column, convert in (("age", float), ("city", str), ("start", pd.Timestamp)):
        effect = columns[column]
        for value, mean in zip(effect.values, effect.means[:, 0], strict=True):
            same = rows.assign(**{column: convert(value)})
            assert mean == pytest.approx(result.model.decision_values(same).mean(), abs=1e-9)
    assert effect.ordered
    text = details.direction(columns["age"], result.outcome)
    assert re.fullmatch(r"higher values: more .yes. \(0\.\d\d at .\d+., 0\.\d\d at .\d+.\)", text)
    assert "most \u2068yes\u2069 for \u2068Rome\u2069" in details.direction(columns["city"], TWO)


def test_the_direction_of_a_linear_model_is_the_sign_of_its_coefficient():
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(300, 4)), np.array([2.0, -1.0, 0.0, 0.5])
    frame = pd.DataFrame(X, columns=list("abcd"))

    def predict(rows):
        return 1 / (1 + np.exp(-rows @ w))

    found = effects(predict, X, frame, np.array(list("abcd"), dtype=object), list("abcd"))
    words = [details.direction(x, TWO).split(" (")[0] for x in found]
    assert [re.sub("[\u2068\u2069]", "", x) for x in words] == [
        "higher values: more yes", "higher values: less yes", "hardly any effect on its own",
        "higher values: more yes",
    ]  # fmt: skip
    bent = effects(lambda rows: predict(rows**2), X, frame, np.array(list("abcd")), ["a"])
    assert "not in one direction: " in details.direction(bent[0], TWO)
    several = Effect("a", ("1", "2"), np.array([[0.35, 0.2, 0.45], [0.4, 0.5, 0.1]]), True)
    colours = Outcome("multiclass", ("colour",), ("blue", "green", "red"))
    assert "less \u2068red\u2069 (0.45 at" in details.direction(several, colours)


def test_wrong_rows_are_the_most_confident_errors(fitted, table):
    result = fitted["linear"]
    rows = result.wrong_rows
    y, p = result.y_test, result.p_test
    kinds = [(x.actual, x.predicted) for x in rows]
    false_positives = sorted(p[(y == 0) & (p > 0.5)])[::-1][:5]
    false_negatives = sorted(p[(y == 1) & (p <= 0.5)])[:5]
    assert [x.value for x in rows] == [*false_positives, *false_negatives]
    assert kinds == [("no", "yes")] * len(false_positives) + [("yes", "no")] * len(false_negatives)
    for each in rows:  # the number is that of the row in the table, whatever its index is
        own = table.iloc[[each.row - 1]]
        assert own["left"].iloc[0] == each.actual
        assert result.model.decision_values(own)[0] == pytest.approx(each.value)
        assert dict(each.cells)["city"] == own["city"].iloc[0]
    assert len(rows[0].cells) == 5


def test_wrong_rows_of_several_classes_and_labels():
    frame = pd.DataFrame({"x": [10, 20, 30, 40]})
    p = np.array([[0.1, 0.9, 0.0], [0.5, 0.3, 0.2], [0.2, 0.35, 0.45], [0.05, 0.05, 0.9]])
    colours = Outcome("multiclass", ("colour",), ("blue", "green", "red"))
    y = np.eye(3)[[0, 1, 2, 1]]
    found = wrong_rows(frame.take, y, p, colours, ["x"])
    assert [(x.row, x.actual, x.predicted, x.value) for x in found] == [
        (4, "green", "red", 0.9), (1, "blue", "green", 0.9), (2, "green", "blue", 0.5)
    ]  # fmt: skip
    labels = Outcome("multilabel", ("sad", "loud"), ("sad", "loud"))
    p = np.array([[0.9, 0.6], [0.2, 0.1], [0.9, 0.9], [0.4, 0.1]])
    y = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    found = wrong_rows(frame.take, y, p, labels, ["x"])
    assert [(x.row, x.actual, x.predicted, x.value) for x in found] == [
        (1, "not sad", "sad", 0.9), (4, "loud", "not loud", 0.1)
    ]  # fmt: skip


def test_rows_can_be_left_out(table):
    result = fit_table(table[:250], "left", "f1", model="linear", show_rows=False)
    assert result.wrong_rows == ()
    assert 'id="errors"' not in render(result)


def test_a_wide_table_has_a_page_of_reasonable_size(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(600, 100)).round(3)).add_prefix("a long column name ")
    frame["y"] = (frame.iloc[:, 0] + frame.iloc[:, 1] + rng.normal(size=600) > 0).astype(int)
    result = fit_table(frame, "y", "f1", model="linear")
    assert len(result.slices) <= 24 * 4
    assert write(result, tmp_path / "report.html").stat().st_size < 150_000


def test_a_cross_fitted_page_names_what_the_score_rests_on(table):
    page = render(fit_table(table.iloc[:200], "left", "f1", model="linear", folds=3))
    assert "each decided by a model of this kind that has not seen it" in page
    assert "each decided by a model that was fitted without its fold" in page
    assert "rows in 3 folds, each predicted by a model that was fitted without its fold" in page
    assert "took no part in anything" not in page
