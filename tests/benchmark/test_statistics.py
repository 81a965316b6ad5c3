import io
import re

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import integrate, stats

from anyloss.benchmark.plots import winning_probabilities
from anyloss.benchmark.statistics import (
    by_family,
    by_imbalance,
    differences,
    mean_ranks,
    per_dataset,
    sign_test,
    versus,
    win_draw_lose,
)
from anyloss.benchmark.summary import compare, null_row, print_tables, to_markdown

# Mean score per set. Against bce_tuned: +0.10, +0.01 (a draw, though not in floating point), -0.04,
# +0.03, so 2/1/1; per family (a, b; c, d): 0.055 and -0.005.
SCORES = {
    "anyloss": {"a": 0.90, "b": 0.81, "c": 0.50, "d": 0.63},
    "bce_tuned": {"a": 0.80, "b": 0.80, "c": 0.54, "d": 0.60},
    "null": {"a": 0.83, "b": 0.80, "c": 0.50, "d": 0.605},
    "bce": {"a": 0.40, "c": 0.50},
}
FAMILY = dict(zip("abcd", ("first", "first", "second", "second"), strict=True))
POSITIVES = {"a": 45, "b": 40, "c": 5, "d": 5}
SECONDS = {"anyloss": 3.0, "bce_tuned": 2.0, "null": 2.0, "bce": 0.5}


def make(scores=SCORES, models=("linear",), metrics=("f1",)):
    """Two folds, 0.02 below and above the mean; `bce` never predicts a positive in the first."""
    rows = [
        {
            "dataset": dataset,
            "family": FAMILY[dataset],
            "rows": 100,
            "features": 3,
            "positives": POSITIVES[dataset],
            "model": model,
            "metric": metric,
            "method": method,
            "repeat": 0,
            "fold": fold,
            "score": mean + (0.02 if fold else -0.02),
            "brier": 0.1 + 0.1 * fold,
            "collapsed": method == "bce" and fold == 0,
        }
        for model in models
        for metric in metrics
        for method, sets in scores.items()
        for dataset, mean in sets.items()
        for fold in (0, 1)
    ]
    return pd.DataFrame(rows)


def make_seconds(results):
    seconds = results[["dataset", "model", "metric", "method", "repeat", "fold"]].copy()
    seconds["seconds"] = results["method"].map(SECONDS) * (1 + results["fold"])
    return seconds


def exactly_largest(counts):
    """The same probabilities by integration: shares are Gamma variables over their sum."""
    shape = np.add(counts, [0, 1, 0])

    def density(x, k):
        others = [stats.gamma.cdf(x, shape[j]) if shape[j] else 1.0 for j in range(3) if j != k]
        return stats.gamma.pdf(x, shape[k]) * np.prod(others)

    return [
        integrate.quad(density, 0, 300, (k,), limit=500, points=[1, 10, 60])[0] if shape[k] else 0.0
        for k in range(3)
    ]


def test_per_dataset_is_the_mean_over_folds():
    table = per_dataset(make())
    assert table.index.names == ["model", "metric", "dataset"]
    row = table.loc[("linear", "f1", "a")]
    assert row.to_dict() == pytest.approx(
        {"anyloss": 0.9, "bce": 0.4, "bce_tuned": 0.8, "null": 0.83}
    )
    assert np.isnan(table.loc[("linear", "f1", "b"), "bce"])


def test_difference_only_of_folds_that_both_have():
    results = make()
    cut = results[
        ~((results["method"] == "bce_tuned") & (results["dataset"] == "a") & (results["fold"] == 1))
    ]
    assert differences(cut, "anyloss", "bce_tuned")["linear", "f1", "a"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("difference", "rope", "expected"),
    [
        ([0.81 - 0.80, 0.80 - 0.81], 0.01, (0, 2, 0)),
        ([0.0101, -0.0101, 0.0], 0.01, (1, 1, 1)),
        ([0.001, -0.001, 0.0], 0, (1, 1, 1)),
        (pd.Series([0.5]), 0.01, (1, 0, 0)),
    ],
)
def test_win_draw_lose(difference, rope, expected):
    assert win_draw_lose(difference, rope) == expected


@pytest.mark.parametrize("difference", [[], [np.nan], [0.1, np.inf], 0.1, [[0.1]]])
def test_differences_must_be_numbers(difference):
    with pytest.raises(ValueError, match="at least one number, all of them finite"):
        sign_test(difference)


def test_bad_rope_and_samples():
    with pytest.raises(ValueError, match="rope must be 0 or more; got -1"):
        win_draw_lose([0.1], -1)
    with pytest.raises(ValueError, match="samples must be 1 or more; got 0"):
        sign_test([0.1], samples=0)


def test_sign_test_by_hand():
    # Only wins: the share of winning is Beta(n, 1), above one half with probability 1 - 2**-n.
    for n in (1, 2, 5):
        assert sign_test([0.1] * n) == pytest.approx((0, 0.5**n, 1 - 0.5**n), abs=0.006)
        assert sign_test([-0.1] * n) == pytest.approx((1 - 0.5**n, 0.5**n, 0), abs=0.006)
    assert sign_test([0.0] * 7) == (0, 1, 0)
    # One win, one loss, the prior on drawing: three alike.
    assert sign_test([0.1, -0.1]) == pytest.approx((1 / 3, 1 / 3, 1 / 3), abs=0.006)


# baycomp 1.0.3, SignTest(zeros, difference, 0.01, nsamples=4_000_000, random_state=1).probs(), by
# the authors of the test; prior of strength 1 on the rope, as here. Run once, 2026-11-16.
@pytest.mark.parametrize(
    ("win", "draw", "lose", "expected"),
    [
        (3, 0, 0, (0.0, 0.1248, 0.8752)),
        (5, 8, 6, (0.1847, 0.7178, 0.0975)),
        (39, 42, 7, (0.0, 0.6711, 0.3289)),
        (8, 25, 55, (0.9995, 0.0005, 0.0)),
        (37, 36, 15, (0.0001, 0.5002, 0.4998)),
        (10, 2, 10, (0.4983, 0.0044, 0.4973)),
    ],
)
def test_sign_test_against_baycomp_and_integration(win, draw, lose, expected):
    difference = [0.05] * win + [0.0] * draw + [-0.05] * lose
    found = sign_test(difference)
    assert found == pytest.approx(expected, abs=0.006)
    assert found == pytest.approx(exactly_largest((lose, draw, win)), abs=0.006)
    assert sum(found) == pytest.approx(1)
    assert sign_test(difference[::-1]) == found
    assert sign_test(difference, seed=1) == pytest.approx(found, abs=0.01)


def test_sign_test_over_families():
    results = make()
    gap = by_family(differences(results, "anyloss", "bce_tuned"), results)
    assert gap.to_dict() == pytest.approx({"first": 0.055, "second": -0.005})
    row = versus(results, "anyloss", "bce_tuned").loc[("linear", "f1")]
    assert row["p_lose_families"] == sign_test([0.055, -0.005]).lose == 0
    assert row["p_lose"] == sign_test([0.1, 0.0, -0.04, 0.03]).lose > 0
    assert versus(results.drop(columns="family"), "anyloss", "null")["p_lose_families"].isna().all()


def test_mean_ranks_against_scipy():
    table = pd.DataFrame(np.random.default_rng(0).integers(0, 5, (20, 4)) / 5, columns=list("abcd"))
    expected = np.mean([stats.rankdata(-row) for row in table.to_numpy()], axis=0)
    assert mean_ranks(table).to_numpy() == pytest.approx(expected)
    assert mean_ranks(pd.DataFrame({"a": [0.1 + 0.2], "b": [0.3]})).to_list() == [1.5, 1.5]
    with pytest.raises(ValueError, match="1 of them missing"):
        mean_ranks(pd.DataFrame({"a": [0.1, np.nan]}))


def test_by_imbalance():
    # Shares of the larger class: a 0.55, b 0.60, c and d 0.95.
    table = by_imbalance(make(), "anyloss", "bce_tuned").loc["linear", "f1"]
    assert table["sets"].to_list() == [1, 1, 0, 0, 2]
    assert table["mean"].to_list() == pytest.approx(
        [0.1, 0.01, np.nan, np.nan, -0.005], nan_ok=True
    )
    deviation = np.std([-0.04, 0.03], ddof=1)
    assert table["std"].to_list() == pytest.approx([np.nan] * 4 + [deviation], nan_ok=True)


def test_the_larger_class_may_be_the_positive_one():
    results = make().assign(positives=85)
    table = by_imbalance(results, "anyloss", "bce_tuned")
    assert table["sets"].to_dict()["linear", "f1", "0.8-0.9"] == 4


def test_compare():
    results = make()
    table = compare(results, make_seconds(results)).loc["linear", "f1"]
    tuned, bce, ours = table.loc["bce_tuned"], table.loc["bce"], table.loc["anyloss"]
    assert tuned[["sets", "win", "draw", "lose"]].to_list() == [4, 2, 1, 1]
    assert tuned["difference"] == pytest.approx(0.025)
    assert tuned["mean_score"] == pytest.approx((0.8 + 0.8 + 0.54 + 0.6) / 4)
    assert tuned[["p_lose", "p_draw", "p_win"]].to_list() == list(sign_test([0.1, 0, -0.04, 0.03]))
    # Ranks among the three methods that have all sets: a 1 3 2, b 1 2.5 2.5, c 2.5 1 2.5, d 1 3 2.
    assert table["mean_rank"].to_dict() == pytest.approx(
        {"anyloss": 1.375, "bce_tuned": 2.375, "null": 2.25, "bce": np.nan}, nan_ok=True
    )
    assert bce[["sets", "win", "draw", "lose"]].to_list() == [2, 1, 1, 0]
    assert bce[["mean_score", "difference"]].to_list() == pytest.approx([0.45, 0.25])
    assert table["collapse_rate"].to_dict() == {"anyloss": 0, "bce_tuned": 0, "null": 0, "bce": 0.5}
    assert table["brier"].to_list() == pytest.approx([0.15] * 4)
    assert table["time_ratio"].to_dict() == {"anyloss": 1.5, "bce_tuned": 1, "null": 1, "bce": 0.25}
    assert ours[["difference", "win", "p_lose"]].isna().all()
    assert ours["sets"] == 4
    # Best first, by ours minus the method: 0, 0.025, (0.07 + 0.01 + 0 + 0.025) / 4 = 0.02625, 0.25.
    assert table.index.to_list() == ["anyloss", "bce_tuned", "null", "bce"]


def test_null_row():
    # +0.03, 0, -0.04 and +0.005
    row = null_row(make()).loc[("linear", "f1")]
    assert row[["sets", "win", "draw", "lose"]].to_list() == [4, 1, 2, 1]
    assert row["difference"] == pytest.approx(-0.00125)


def test_order_of_rows_does_not_matter_nor_does_a_second_model():
    one = compare(make())
    both = make(models=("mlp", "linear"), metrics=("mcc", "f1"))
    pd.testing.assert_frame_equal(compare(both).loc[["linear"]].loc[:, ["f1"], :], one)
    shuffled = compare(both.sample(frac=1, random_state=0))
    pd.testing.assert_frame_equal(shuffled.sort_index(), compare(both).sort_index())
    assert compare(both).index.droplevel("method").unique().to_list() == [
        ("mlp", "mcc"), ("mlp", "f1"), ("linear", "mcc"), ("linear", "f1")
    ]  # fmt: skip


def test_one_set_and_all_ties():
    table = compare(make({"anyloss": {"a": 0.5}, "bce_tuned": {"a": 0.5}})).loc["linear", "f1"]
    assert table["mean_rank"].to_list() == [1.5, 1.5]
    tuned = table.loc["bce_tuned"]
    assert tuned[["win", "draw", "lose"]].to_list() == [0, 1, 0]
    assert tuned[["p_lose", "p_draw", "p_win"]].to_list() == [0, 1, 0]
    assert pd.isna(tuned["time_ratio"])


def test_only_ours_and_no_common_set():
    assert compare(make({"anyloss": {"a": 0.5}}))["mean_rank"].to_list() == [1.0]
    results = make({"anyloss": {"a": 0.5}, "bce_tuned": {"b": 0.5}})
    table = compare(results, make_seconds(results)).loc["linear", "f1"]
    assert table["sets"].to_dict() == {"anyloss": 1, "bce_tuned": 0}
    assert table.loc["bce_tuned"].drop("sets").isna().all()
    assert "| bce_tuned | 0 |  |" in to_markdown(results)


def test_ours_is_missing():
    with pytest.raises(
        ValueError, match=r"no results of the method 'anyloss'; there are \['bce'\]"
    ):
        compare(make({"bce": {"a": 0.5}}))
    results = make(models=("linear", "mlp"))
    results = results[(results["method"] != "anyloss") | (results["model"] == "linear")]
    with pytest.raises(ValueError, match="no results of 'anyloss' for .'mlp', 'f1'.; there are"):
        compare(results)


@pytest.mark.parametrize(
    "function",
    [
        per_dataset,
        compare,
        null_row,
        print_tables,
        to_markdown,
        lambda results: by_imbalance(results, "anyloss", "bce_tuned"),
        lambda results: winning_probabilities(results, "never.png"),
    ],
)
def test_bad_results(function):
    results = make()
    with pytest.raises(ValueError, match="at least one row; got none"):
        function(results[:0])
    with pytest.raises(ValueError, match="must have the columns .'fold', 'method'.; got"):
        function(results.drop(columns=["fold", "method"]))
    with pytest.raises(ValueError, match="a finite score in each row; got .*'dataset': 'a'.*nan"):
        function(results.assign(score=results["score"].where(results.index > 0)))
    with pytest.raises(ValueError, match="one row per fold and method; got"):
        function(pd.concat([results, results[:1]]))


def test_null_is_a_name(tmp_path):
    make().to_csv(tmp_path / "results.csv", index=False)
    with pytest.raises(ValueError, match="no missing names; got .*'method': nan"):
        compare(pd.read_csv(tmp_path / "results.csv"))
    results = pd.read_csv(tmp_path / "results.csv", keep_default_na=False, na_values=[""])
    pd.testing.assert_frame_equal(compare(results), compare(make()))


def test_names_as_categories():
    results = make()
    names = results.astype(
        dict.fromkeys(("dataset", "family", "model", "metric", "method"), "category")
    )
    assert to_markdown(names, make_seconds(results)) == to_markdown(results, make_seconds(results))


def test_a_method_is_not_its_own_baseline():
    with pytest.raises(ValueError, match="must be different; got 'bce' twice"):
        differences(make(), "bce", "bce")


def printed(results, width, **options):
    file = io.StringIO()
    print_tables(results, make_seconds(results), Console(file=file, width=width), **options)
    return file.getvalue()


def test_print_tables():
    results = make(models=("linear", "mlp"))
    text = printed(results, 120)
    assert text.count("anyloss against each method, rope 0.01") == 2
    line = next(line for line in text.splitlines() if line.startswith(" bce_tuned"))
    lose, draw, win = sign_test([0.1, 0, -0.04, 0.03])
    expected = ["bce_tuned", "4", "0.6850", "2.38", "+0.0250", "2/1/1"]
    expected += [f"{lose:.3f}", f"{draw:.3f}", f"{win:.3f}", "0.000", "0.0%", "0.150", "1.00"]
    assert line.split() == expected
    assert len(re.findall("null against bce_tuned +4 +-0.0013 +1/2/1 ", text)) == 2
    assert text.count("-0.0050 ± 0.0495 (2)") == 2
    narrow = printed(results, 80)
    assert "P(win)" in text
    assert "P(win)" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80


def test_names_are_no_markup():
    results = make({"anyloss": {"a": 0.5}, "bce[bold]|x": {"a": 0.5}})
    assert "bce[bold]|x" in printed(results.assign(metric="[red]f1"), 120)
    assert "| bce[bold]\\|x | 1 |" in to_markdown(results)
    assert "larger class" not in to_markdown(results)


def test_markdown():
    results = make()
    lines = to_markdown(results, make_seconds(results)).splitlines()
    assert lines[0] == "**linear, f1: anyloss against each method, rope 0.01**"
    assert lines[2].startswith(
        "| method | sets | mean | rank | gain | win / draw / lose | P(lose) |"
    )
    assert lines[4] == "| anyloss | 4 | 0.7100 | 1.38 |  |  |  |  |  |  | 0.0% | 0.150 | 1.50 |"
    assert lines[8].startswith("| null against bce_tuned | 4 |  |  | -0.0013 | 1/2/1 |")
    assert lines[-1] == "| linear, f1 | +0.1000 (1) | +0.0100 (1) |  |  | -0.0050 ± 0.0495 (2) |"
    assert len({line.count("|") for line in lines[2:9]}) == 1


def test_another_method_as_ours():
    table = compare(make(), ours="bce_tuned").loc["linear", "f1"]
    assert table.loc["anyloss", ["win", "draw", "lose"]].to_list() == [1, 1, 2]
    assert "larger class" not in to_markdown(make(), ours="bce_tuned")


@pytest.mark.parametrize(("name", "start"), [("p.png", b"\x89PNG"), ("p.SVG", b"<?xml")])
def test_picture(tmp_path, name, start):
    results = make(models=("linear", "mlp"), metrics=("f1", "mcc"))
    results = results[(results["method"] != "bce") | (results["model"] == "linear")]
    winning_probabilities(results, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    assert first.startswith(start)
    winning_probabilities(results, str(tmp_path / name))
    assert (tmp_path / name).read_bytes() == first


def test_heights_of_the_bars():
    from anyloss.benchmark.plots import COLOURS, _bars, _draw

    bars = _bars(make(), "anyloss", 0.01)
    assert list(bars) == sorted(bars, key=lambda x: (bars[x].p_win - bars[x].p_lose).item())
    (axes,) = _draw(bars, ["linear"], ["f1"], "anyloss").axes
    assert [label.get_text() for label in axes.get_xticklabels()] == list(bars)
    place = list(bars).index("bce_tuned")
    expected = sign_test([0.1, 0, -0.04, 0.03])
    base = 0.0
    for container, outcome in zip(axes.containers, COLOURS, strict=True):
        bar = container[place]
        assert (bar.get_y(), bar.get_height()) == pytest.approx((base, getattr(expected, outcome)))
        base += bar.get_height()
    assert base == pytest.approx(1)


def test_a_figure_needs_a_baseline(tmp_path):
    with pytest.raises(ValueError, match="no method shares data sets with 'anyloss'"):
        winning_probabilities(make({"anyloss": {"a": 0.5}, "bce": {"b": 0.5}}), tmp_path / "p.png")
