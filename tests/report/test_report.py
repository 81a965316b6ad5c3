"""The report: its numbers are those of scikit-learn, and a browser shows it."""

import base64
import dataclasses
import html
import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from sklearn import metrics
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import anyloss
from anyloss.report import curves, render, words, write
from anyloss.sklearn import AnyLossClassifier
from anyloss.tabular import Outcome, Reading, fit_table
from anyloss.tabular.encoder import TableEncoder
from anyloss.tabular.messages import Message, by_level, information, stop
from anyloss.tabular.model import TableModel
from anyloss.tabular.result import Baseline, Importance, Result
from anyloss.tabular.verdicts import advice

SECTIONS = [
    "answer", "decisions", "threshold", "ranking", "prevalence", "planner", "training", "baselines", "columns", "data", "readings", "again",
]  # fmt: skip
NASTY = {
    "script": "<script>document.title='taken'</script>",
    "quotes": "\"><img src=x onerror=alert(1)> 'a' & b",
    "long": "an_unbroken_name_" * 40,
    "many words": "so many words " * 40,
    "arabic": "العمر بالسنوات",
    "emoji": "👩‍👩‍👧 height",
    "hidden": "a\x00b\u202ec\ud800\n\nd",
}


@pytest.fixture(scope="module")
def result():
    """A real model of noisy data, so that it makes errors."""
    data = load_breast_cancer()
    y = 1 - data.target  # malignant is positive
    rng = np.random.default_rng(0)
    X = data.data + 2.5 * data.data.std(axis=0) * rng.normal(size=data.data.shape)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
    model = AnyLossClassifier("f1", pos_label=1, random_state=0).fit(X, y)
    plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    p, other_decisions = model.predict_proba(X_test)[:, 1], plain.predict(X_test)
    draws = [rng.integers(0, len(y_test), len(y_test)) for _ in range(200)]
    ours, theirs = (
        np.array([metrics.f1_score(y_test[i], decisions[i]) for i in draws])
        for decisions in (p > 0.5, other_decisions)
    )
    found = permutation_importance(model, X_test, y_test, n_repeats=3, random_state=0)
    score, other = (metrics.f1_score(y_test, d) for d in (p > 0.5, other_decisions))
    steps = np.arange(len(model.history_))
    outcome = Outcome("binary", ("diagnosis",), ("benign", "malignant"))
    return Result(
        model=TableModel(TableEncoder(), model, outcome, (), {}),
        model_name="linear",
        metric="f1",
        average="binary",
        outcome=outcome,
        readings=(
            Reading("worst area", "numbers", "unit 'mm2'", 569, 3, 500, "185", "4254", "2019 mm2"),
            Reading("id", "numbers", "", 569, 0, 569, "1", "569", "1", use="only numbers the rows"),
        ),
        score=score,
        interval=tuple(np.quantile(ours, [0.025, 0.975])),
        counts=anyloss.counts(y_test, p),
        y_test=y_test,
        p_test=p,
        curve=np.column_stack([steps, model.history_, model.history_]),
        baselines=(
            Baseline(
                "cross-entropy at 0.5",
                other,
                score - other,
                tuple(np.quantile(ours - theirs, [0.025, 0.975])),
            ),
            Baseline("always malignant", 0.545, score - 0.545, (0.13, 0.3)),
        ),
        candidates={"linear": 0.83, "mlp": 0.81},
        importances=tuple(
            map(Importance, data.feature_names, found.importances_mean, found.importances_std)
        ),
        facts={
            "rows": 569, "train_rows": len(y), "test_rows": len(y_test), "positives": 212,
            "evaluation": "random rows", "folds": 0,
            "columns": 30, "numbers": 30, "dates": 0, "texts": 0, "missing": 0.0004, "dropped": ["id"],
        },
        warnings=("column 'worst area' alone nearly determines the label.",),
        settings={
            "command": "anyloss fit cancer.csv --target diagnosis --metric f1 --out model/",
            "source": "cancer.csv", "seed": 0, "test_share": 0.3, "date": "2026-11-16",
            "versions": {"anyloss": anyloss.__version__}, "positive_named": False,
        },
    )  # fmt: skip


def text_of(page):
    """The visible text on one line, without tags, isolates and no-break spaces."""
    body = re.sub(r"<style>.*?</style>", " ", page, flags=re.DOTALL)
    plain = html.unescape(re.sub(r"<[^>]+>", " ", body))
    return " ".join(re.sub("[\u2068\u2069]", "", plain).split())


def pictures_of(page):
    return [ElementTree.fromstring(x) for x in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def with_values(result, y, p, metric="f1", **changes):
    """A result for other labels and decision values."""
    y, p = np.asarray(y), np.asarray(p, dtype=float)
    score = anyloss.score(y, p, metric)
    return dataclasses.replace(
        result, metric=metric, y_test=y, p_test=p, counts=anyloss.counts(y, p), score=score,
        **{"interval": (score - 0.1, score + 0.1), **changes},
    )  # fmt: skip


def shown(name):
    """The title and the meaning of a metric, as the page shows them."""
    return f"{anyloss.metric(name).title} {anyloss.metric(name).meaning}"


def test_the_numbers_are_those_of_scikit_learn(result):
    text = text_of(render(result))
    y, p = result.y_test, result.p_test
    decisions = p > 0.5
    (tn, fp), (fn, tp) = metrics.confusion_matrix(y, decisions)
    low, high = result.interval
    assert (
        f"F1 is {metrics.f1_score(y, decisions):.2f} (95 % interval: {low:.2f} to {high:.2f}) on "
        f"{len(y)} test rows that the model has not seen. The model finds "
        f"{100 * tp / (tp + fn):.0f} % of the rows with diagnosis = malignant ({tp} of {tp + fn}), "
        f"and {100 * tp / (tp + fp):.0f} % of the positive predictions ({tp} of {tp + fp}) are "
        "correct."
    ) in text
    for number, title in (
        (tp, "true positives"),
        (fn, "false negatives"),
        (fp, "false positives"),
        (tn, "true negatives"),
    ):
        assert f"{number} {title}" in text
    for name, reference in (
        (shown("precision"), metrics.precision_score(y, decisions)),
        (shown("recall"), metrics.recall_score(y, decisions)),
        (shown("balanced_accuracy"), metrics.balanced_accuracy_score(y, decisions)),
        (shown("mcc"), metrics.matthews_corrcoef(y, decisions)),
        (shown("accuracy"), metrics.accuracy_score(y, decisions)),
        ("Average precision:", metrics.average_precision_score(y, p)),
        ("Area under the curve:", metrics.roc_auc_score(y, p)),
        ("cross-entropy at 0.5", result.baselines[0].score),
    ):
        assert f"{name} {reference:.3f}" in text
    best = max(metrics.f1_score(y, p > t) for t in p)
    assert f"with a score of {best:.3f}. That is within the 95 % interval" in text
    moved = text_of(render(with_values(result, y, p**3, interval=(0.6, 0.7))))
    assert f"with a score of {best:.3f}. That is above the 95 % interval" in moved
    first = max(result.importances, key=lambda each: each.drop)
    assert f"{first.column}: {first.drop:.3f} {first.drop:.3f} ± {first.deviation:.3f}" in text


def test_the_facts_about_the_data_and_how_to_reproduce_the_result(result):
    text = text_of(render(result))
    for part in (
        "1 warning about the data",
        "Column 'worst area' alone nearly determines the label.",
        "37 % of the rows (212 of 569); this is the positive class because it is the rarer one",
        "569 (398 training rows, 171 test rows)",
        "Missing values 0.1 % of the cells",
        "Columns not used id",
        "the 15 largest of 30 columns",
        "Seed 0",
        "Test rows random rows",
        f"anyloss {anyloss.__version__}",
        "The decision value is not a calibrated probability",
        "worst area numbers unit 'mm2' 2019 mm2 185 to 4254 500 0.5 %",
        "id not used: only numbers the rows numbers 1 1 to 569 569 0 %",
        "linear chosen 0.830",
    ):
        assert part in text


def test_the_command_can_be_copied_as_it_is(result):
    command = "anyloss fit 'my  data.csv' --target diagnosis"
    page = render(dataclasses.replace(result, settings={**result.settings, "command": command}))
    assert html.unescape(re.search("<pre><code>(.*)</code>", page)[1]) == command


def test_the_line_is_the_metric_at_every_threshold(result):
    x, y = curves.against_threshold(result.y_test, result.p_test, anyloss.metric("mcc"))
    assert len(x) > 150
    for threshold, value in zip(x[1:], y[1:], strict=True):
        decisions = result.p_test > threshold
        expected = metrics.matthews_corrcoef(result.y_test, decisions)
        assert value == pytest.approx(expected, abs=1e-12)
    at_half = y[np.searchsorted(x, 0.5, side="right") - 1]
    assert at_half == pytest.approx(anyloss.score(result.y_test, result.p_test, "mcc"))


def test_thousands_of_rows_keep_their_shape():
    rng = np.random.default_rng(0)
    y = rng.random(200_000) < 0.01
    p = 1 / (1 + np.exp(-rng.normal(size=len(y)) - 2.5 * y + 5))
    false_positive_rate, recall, _ = metrics.roc_curve(y, p)
    curve = curves.roc(y, p)
    assert 100 < len(curve.x) <= 300
    whole, shown = (
        np.column_stack(points) for points in ((false_positive_rate, recall), curve[:2])
    )
    assert cdist(whole, shown, "cityblock").min(axis=1).max() < 2 / 298
    x, scores = curves.against_threshold(y * 1, p, anyloss.metric("f1"))
    assert (x[0], x[-1], len(x) <= 300) == (0, 1, True)
    for threshold in rng.random(50):
        shown = scores[np.searchsorted(x, threshold, side="right") - 1]
        assert shown == pytest.approx(metrics.f1_score(y, p > threshold), abs=0.02)


def test_thin_takes_no_more_than_asked():
    rng = np.random.default_rng(0)
    for rows in (3, 10, 11, 1000):
        x, y = np.arange(rows) * 1.0, rng.random(rows)
        kept, _ = curves.thin(x, y, most=10)
        assert len(kept) <= 10
        assert (kept[0], kept[-1]) == (0, rows - 1)


def test_names_are_text_and_nothing_else(result):
    names = list(NASTY.values())
    nasty = dataclasses.replace(
        result, outcome=Outcome("binary", (names[0],), (names[2], names[1])), model_name=names[3],
        baselines=tuple(dataclasses.replace(result.baselines[0], name=x) for x in names),
        importances=tuple(Importance(x, 0.1, 0.01) for x in names),
        candidates=dict.fromkeys(names, 0.5), warnings=tuple(names),
        facts={**result.facts, "dropped": names * 5},
        settings={**result.settings, "command": names[0], "source": names[1]},
    )  # fmt: skip
    page = render(nasty)
    text = text_of(page)
    assert len(re.findall("<script", page)) == 2  # the planner, and its numbers
    assert "<img" not in page
    for name in ("script", "quotes", "arabic", "emoji"):
        assert NASTY[name] in text
    assert "a\ufffdb\ufffdc\ufffd d" in text
    assert "and 15 more" in text
    assert page.encode("utf-8")
    assert len(pictures_of(page)) == 6 + 7 + 7


@pytest.mark.parametrize(
    ("score", "low", "high", "words_of_it"),
    [
        (0.7, -0.01, 0.05, "There is no clear difference from the best baseline, b (0.700)"),
        (0.7, 0.0, 0.05, "There is no clear difference"),
        (0.7, 0.01, 0.05, "The model is clearly better than the best baseline, b (0.700)"),
        (0.7, -0.05, -0.01, "The baseline b (0.700) is clearly better"),
    ],
)
def test_the_best_baseline_is_judged_honestly(result, score, low, high, words_of_it):
    others = (
        Baseline("a", 0.2, 0.5, (0.4, 0.6)),
        Baseline("b", score, (low + high) / 2, (low, high)),
    )
    text = text_of(words.against_baselines(dataclasses.replace(result, baselines=others)))
    assert words_of_it in text


ODD = {
    "bare": lambda r: dataclasses.replace(
        r, baselines=(), importances=(), candidates={}, warnings=(), curve=np.zeros((0, 3))
    ),
    "two positives": lambda r: with_values(r, [1, 1, 0, 0, 0], [0.9, 0.2, 0.6, 0.1, 0.1]),
    "no positive prediction": lambda r: with_values(r, [1, 0, 0], [0.4, 0.4, 0.4]),
    "one class": lambda r: with_values(r, [0, 0, 0], [0.4, 0.6, 0.1]),
    "one row": lambda r: with_values(r, [1], [1.0]),
    "perfect": lambda r: with_values(r, [1, 0, 0], [1.0, 0.0, 0.0], interval=(1.0, 1.0)),
    "money": lambda r: with_values(
        r, [1, 1, 0, 0] * 50, [0.9, 0.2, 0.6, 0.1] * 50, "100*tp - 300*fp", interval=(-2e4, 3e3)
    ),
    "negative": lambda r: with_values(r, [1, 0], [0.1, 0.9], "mcc", interval=(-1.0, -0.5)),
    "one step": lambda r: dataclasses.replace(r, curve=np.array([[5.0, 0.5, 0.5]])),
    "no soft score": lambda r: dataclasses.replace(
        r, curve=np.array([[0.0, np.nan, 0.5], [1.0, np.nan, 0.6]])
    ),
    "nothing known": lambda r: dataclasses.replace(
        r,
        interval=(np.nan, np.nan),
        baselines=(
            Baseline("a", np.nan, np.nan, (np.nan, np.nan)), Baseline("b", 0.5, 0.0, (0.0, 0.0)),
        ),
        importances=(Importance("x", np.nan, np.nan), Importance("y", 0.0, np.nan)),
        curve=np.full((4, 3), np.nan),
    ),
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_odd_results_give_a_whole_page(result, odd):
    page = render(ODD[odd](result))
    assert not re.search(r"\b(nan|inf|None)\b", page)
    left_out = {"bare": "training", "one class": "prevalence", "one row": "prevalence"}
    expected = [x for x in SECTIONS if x != left_out.get(odd)]  # no empty section
    assert re.findall(r'<(?:header|section) id="(\w+)"', page) == expected
    for picture in pictures_of(page):
        left, top, width, height = map(float, picture.get("viewBox").split())
        assert picture[0].tag == "title"
        for part in picture.iter():
            for key in ("x", "x1", "x2", "cx"):
                assert left <= float(part.get(key, left)) <= left + width
            for key in ("y", "y1", "y2", "cy"):
                assert top <= float(part.get(key, top)) <= top + height


def test_odd_results_name_what_is_missing(result):
    bare = text_of(render(ODD["bare"](result)))
    for part in (
        "The model was not compared with baselines.",
        "The importance of the columns was not measured.",
        "There are no warnings about the data.",
    ):
        assert part in bare
    silent = text_of(render(ODD["no positive prediction"](result)))
    assert "and the model predicts no row as positive." in silent
    one = text_of(render(ODD["one class"](result)))
    assert (
        "No test row has diagnosis = malignant, and 0 % of the positive predictions (0 of 1) "
        "are correct."
    ) in one
    assert "These curves need test rows of both classes; there is only one." in one
    money = text_of(render(ODD["money"](result)))
    assert "The score is −10,000 (95 % interval: −20,000 to 3,000) on 200 test rows" in money
    assert "The score: 100*tp - 300*fp." in money


def test_one_file_that_asks_for_nothing(result, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.random(20_000) < 0.2
    large = with_values(result, y * 1, (0.3 * y + 0.7 * rng.random(len(y))).clip(0, 1))
    path = write(large, tmp_path / "report.html")
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert len(page) < 150_000
    assert not re.search(r"https?://|url\(|@import|<link|<img|<iframe", page)
    assert set(re.findall(r'(?:href|src)="([^"]*)"', page)) == {"#data"}
    assert [x.name for x in tmp_path.iterdir()] == ["report.html"]


def show(browser, path, width=1100, scheme="light", media="screen"):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(path.as_uri())


def colour(browser, selector, kind):
    """The relative luminance of a colour as it is shown, as WCAG defines it."""
    code = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    shown = browser.execute_script(code, selector, kind)
    channels = np.array([int(x) for x in re.findall(r"\d+", shown)[:3]]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.fixture(scope="module")
def page(result, tmp_path_factory):
    return write(result, tmp_path_factory.mktemp("report") / "report.html")


def test_a_browser_opens_it(browser, page):
    show(browser, page)
    assert browser.get_log("browser") == []
    assert "diagnosis" in browser.title
    for section in SECTIONS:
        assert browser.find_element("id", section).is_displayed()
        assert browser.find_element("id", section).size["height"] > 60
    for picture in browser.find_elements("css selector", "figure svg"):
        assert picture.size["width"] > 200
        left, right = picture.rect["x"], picture.rect["x"] + picture.rect["width"]
        for word in picture.find_elements("tag name", "text"):
            assert left <= word.rect["x"] <= word.rect["x"] + word.rect["width"] <= right, word.text
    levels = [x.tag_name for x in browser.find_elements("css selector", "h1, h2, h3")]
    assert levels == ["h1"] + ["h2"] * 11


@pytest.mark.parametrize("odd", ["plain", "nasty"])
@pytest.mark.parametrize("width", [320, 390, 1100])
def test_no_page_is_wider_than_its_screen(browser, result, tmp_path, width, odd):
    names = list(NASTY.values()) if odd == "nasty" else ["age"]
    changed = dataclasses.replace(
        result, outcome=Outcome("binary", (names[0],), (names[-1], names[-5 % len(names)])),
        importances=tuple(Importance(x, 0.1, 0.01) for x in names),
        baselines=tuple(Baseline(x, 0.5, 0.1, (0.0, 0.2)) for x in names), warnings=tuple(names),
    )  # fmt: skip
    show(browser, write(changed, tmp_path / "report.html"), width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.get_log("browser") == []
    assert browser.title != "taken"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colours_follow_the_screen_and_can_be_read(browser, page, scheme):
    show(browser, page, scheme=scheme)
    ground = colour(browser, "body", "backgroundColor")
    assert ground < 0.05 if scheme == "dark" else ground > 0.9
    for selector, kind in (
        ("body", "color"),
        (".quiet", "color"),
        ("a", "color"),
        (".picture .tick", "fill"),
        (".picture .line.first", "stroke"),
        (".picture .chosen", "fill"),
    ):
        light, dark = sorted((ground, colour(browser, selector, kind)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, selector


def test_it_prints_dark_on_white_even_from_a_dark_screen(browser, page):
    show(browser, page, scheme="dark", media="print")
    assert colour(browser, "body", "color") < 0.05
    assert colour(browser, ".picture .tick", "fill") < 0.2
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    pdf = base64.b64decode(printed["data"])
    assert pdf.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type /Page\b", pdf)) <= 6


@pytest.fixture(scope="module")
def several():
    """A real model of several classes, by its task."""
    wine = load_wine(as_frame=True).frame
    noise = np.random.default_rng(0).normal(size=wine.shape) * wine.std().to_numpy()
    noise[:, -1] = 0
    frame = (wine + noise).assign(target=[f"<b>{k}</b>" for k in wine["target"]])
    films = np.random.default_rng(1).normal(size=(300, 3))
    labels = (films + np.random.default_rng(2).normal(size=(300, 3)) > 0.7).astype(int)
    both = pd.DataFrame(np.hstack([films, labels]), columns=["x", "y", "z", "sad", "loud", "odd"])
    return {
        "multiclass": fit_table(frame, "target", "mcc", model="linear", folds=0),
        "multilabel": fit_table(both, ["sad", "loud", "odd"], "f1", model="linear", folds=0),
    }


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_the_tables_of_several_classes_are_those_of_scikit_learn(several, task):
    result = several[task]
    page = render(result)
    text = text_of(page)
    y, d = result.y_test, result.outcome.decide(result.p_test)
    if task == "multiclass":
        y, d = y.argmax(axis=1), d.argmax(axis=1)
        cells = re.findall(r'<td class="(?:right|wrong)".*?<b>([\d,]+)</b>', page)
        expected = metrics.confusion_matrix(y, d)
        assert [int(x) for x in cells] == expected.ravel().tolist()
        mcc, title = metrics.matthews_corrcoef(y, d), anyloss.metric("mcc").title
        assert f"{title} is {mcc:.2f}" in text
        assert re.search(rf"{title} ([\d.]+ ){{3}}{mcc:.3f} Precision", text)
        right = int((y == d).sum())
    else:
        assert f"Macro F1 is {metrics.f1_score(y, d, average='macro'):.2f}" in text
        right = int((y == d).all(axis=1).sum())
    assert f"% of the rows ({right} of {len(y)}) correctly." in text
    each = metrics.precision_recall_fscore_support(y, d)
    for k, name in enumerate(result.outcome.classes):
        precision, recall, f1, rows = (x[k] for x in each)
        positive = y == k if task == "multiclass" else y[:, k]
        always = metrics.f1_score(positive, np.ones(len(y)))
        assert f"{name} {precision:.3f} {recall:.3f} {f1:.3f} {always:.3f} {rows}" in text
    for title, function in (
        ("Precision", metrics.precision_score),
        ("Recall", metrics.recall_score),
        ("F1", metrics.f1_score),
    ):
        values = [f"{function(y, d, average=x):.3f}" for x in ("macro", "micro", "weighted")]
        assert f"{title} {' '.join(values)}" in text
    ids = re.findall(r'<(?:header|section) id="(\w+)"', page)
    assert ids == [
        "answer", "decisions", "averages", "calibration", "errors",
        *(["slices"] if result.slices else []),
        "training", "baselines", "columns", "data", "readings", "again",
    ]  # fmt: skip
    assert "<b>0</b>" not in page.replace("<b>0</b></td>", "")  # the names of classes are escaped
    assert not re.search(r"\b(nan|inf|None)\b", text)


def test_many_classes_have_a_list_of_errors(several):
    result = several["multiclass"]
    rng = np.random.default_rng(0)
    names = tuple(f"class {k}" for k in range(40))
    y, d = rng.integers(0, 40, 2000), rng.integers(0, 40, 2000)
    d = np.where(rng.random(2000) < 0.7, y, d)
    many = dataclasses.replace(
        result, outcome=Outcome("multiclass", ("k",), names), y_test=np.eye(40)[y],
        p_test=np.eye(40)[d], counts=anyloss.counts(y, np.eye(40)[d]),
        facts={**result.facts, "positives": [50] * 40},
    )  # fmt: skip
    page = render(many)
    assert "The most frequent errors on the 2,000 test rows" in text_of(page)
    wrong = metrics.confusion_matrix(y, d)
    np.fill_diagonal(wrong, 0)
    i, k = np.unravel_index(wrong.argmax(), wrong.shape)
    assert f"class {i} class {k} {wrong.max()} " in text_of(page)
    assert "and 20 more" in text_of(page)
    assert len(page) < 150_000


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
@pytest.mark.parametrize("width", [320, 1100])
def test_the_page_of_several_classes_fits_its_screen(browser, several, tmp_path, width, task):
    show(browser, write(several[task], tmp_path / "report.html"), width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.get_log("browser") == []


def test_the_calibration_picture_shows_where_the_scores_are(fitted):
    result = fitted["linear"]
    low = dataclasses.replace(result, p_test=result.p_test / 10)
    for given, most in ((result, 1.0), (low, 0.1)):
        page = render(given)
        picture = page[page.index("Calibration curve") :]
        ticks = re.findall(
            r'class="tick middle"[^>]*>([\d.]+)<', picture[: picture.index("</svg>")]
        )
        assert max(map(float, ticks)) <= most


@pytest.mark.parametrize("model", ["linear", "lightgbm"])
def test_the_page_has_the_scores_the_slices_and_the_errors(fitted, table, held_out, model):
    result = fitted[model]
    page = render(result)
    text = text_of(page)
    train = table[table["left"].notna()].drop(index=held_out(result).index)
    decided = result.model.decide(result.model.decision_values(train))
    expected = metrics.f1_score(train["left"], decided, pos_label="yes")
    assert result.train_score == pytest.approx(expected)
    assert f"training rows the model has seen them {expected:.3f}" in text
    assert f"test rows took no part in anything {result.score:.3f}" in text
    assert f"did decide {result.held_out_score:.3f}" not in text
    assert f"chosen on them {result.held_out_score:.3f}" in text
    assert "Best trivial decision" in text
    sections = re.findall(r'<(?:header|section) id="(\w+)"', page)
    assert sections == [
        "answer", "decisions", "threshold", "ranking", "prevalence", "planner", "errors", "slices",
        "training",
        "baselines", "columns", "data", "readings", "again",
    ]  # fmt: skip
    for each in result.slices:
        assert f"{each.values}" in html.unescape(text)
    outside = sum(not x.interval[0] <= result.score <= x.interval[1] for x in result.slices)
    assert f"Of {len(result.slices)} slices, {outside} ha" in text
    for each in result.wrong_rows:
        assert f"row {each.row:,} actual {each.actual} predicted {each.predicted} value" in text
    assert "<b>Bonn" not in page
    assert "&lt;b&gt;Bonn" in page
    assert len(page) < 100_000


def test_a_model_that_overfits_is_named(fitted):
    result = fitted["lightgbm"]
    far = dataclasses.replace(result, train_score=0.99, score=0.6, interval=(0.5, 0.7))
    assert "far above the test rows: the model overfits" in text_of(render(far))
    near = dataclasses.replace(far, train_score=0.65)
    assert "within the interval of the test rows" in text_of(render(near))
    for given in fitted.values():
        gap = given.train_score - given.score
        expected = gap > 0.1 and given.train_score > given.interval[1]
        assert any("the model overfits" in x for x in given.warnings) == expected


def test_messages_are_graded_on_the_page(fitted):
    texts = (information("columns are not used"), "plain text", stop("the metric is wrong"))
    better = (Baseline("a", 0.2, 0.5, (0.4, 0.6)), Baseline("b", 0.1, 0.6, (0.4, 0.7), True))
    result = dataclasses.replace(
        fitted["linear"], warnings=tuple(by_level(texts)), baselines=better
    )
    text = text_of(render(result))
    assert "Do not rely on this model: the metric is wrong." in text
    assert "Stop. The metric is wrong Warning. Plain text Information. Columns are not" in text
    assert "Read the 2 warnings about the data" in text
    assert advice(dataclasses.replace(result, warnings=())) == (
        "Use this model: it is clearly better than all baselines."
    )
    unclear = Baseline("c", 0.15, 0.55, (-0.1, 0.7))  # although its score is not the highest
    assert advice(dataclasses.replace(result, warnings=(), baselines=(*better, unclear))) == (
        "Use the simpler one of this model and the baseline c: there is no clear difference between "
        "them on these test rows."
    )
    with pytest.raises(
        ValueError, match="level must be one of stop, warning, information; got 'x'"
    ):
        Message("text", "x")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_levels_can_be_read_and_the_focus_is_seen(browser, fitted, tmp_path, scheme):
    nasty = tuple(
        Message(x, level)
        for x, level in zip(NASTY.values(), ["stop", "warning", "information"] * 2, strict=False)
    )
    cells = tuple((x, x) for x in list(NASTY.values())[:5])
    rows = tuple(
        dataclasses.replace(x, cells=cells, actual=cells[2][0]) for x in fitted["linear"].wrong_rows
    )
    pieces = tuple(
        dataclasses.replace(x, column=cells[2][0], values=cells[3][0])
        for x in fitted["linear"].slices
    )
    result = dataclasses.replace(fitted["linear"], warnings=nasty, wrong_rows=rows, slices=pieces)
    path = write(result, tmp_path / "report.html")
    for width in (320, 390, 1100):
        show(browser, path, width, scheme)
        browser.execute_script("document.querySelectorAll('details').forEach(x => x.open = true)")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    for level in ("stop", "warning", "information"):
        ground = colour(browser, f"li.{level}", "backgroundColor")
        light, dark = sorted((ground, colour(browser, f"li.{level} b", "color")), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, level
    assert browser.get_log("browser") == []
    seen = set()
    for _ in range(6):  # a keyboard reaches the link, the table that scrolls, and the folded list
        browser.execute_cdp_cmd(
            "Input.dispatchKeyEvent",
            {"type": "keyDown", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9},
        )
        browser.execute_cdp_cmd(
            "Input.dispatchKeyEvent",
            {"type": "keyUp", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9},
        )
        tag, style, size = browser.execute_script(
            "const x = document.activeElement, s = getComputedStyle(x);"
            "return [x.tagName, s.outlineStyle, parseFloat(s.outlineWidth)]"
        )
        seen.add(tag)
        if tag != "BODY":
            assert (style, size) == ("solid", 2), tag
    assert {"A", "SUMMARY", "DIV"} <= seen
