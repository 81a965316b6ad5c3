"""The planner: its numbers are those of scikit-learn, and its slider works in a browser."""

import base64
import hashlib
import json
import re

import numpy as np
import pytest
from scipy.special import expit
from selenium.webdriver.common.keys import Keys
from sklearn import metrics

import anyloss
from anyloss.report import planner, render, write


def planned(result):
    return json.loads(re.search(r'id="plan-data">(.*?)</script>', render(result))[1])


@pytest.fixture(scope="module")
def data(fitted):
    return planned(fitted["linear"])


@pytest.mark.parametrize("name", ["linear", "lightgbm"])
def test_counts_and_scores_are_those_of_scikit_learn(fitted, name):
    y, p, data = fitted[name].y_test, fitted[name].p_test, planned(fitted[name])
    cells = np.array(data["cells"])
    assert data["threshold"][data["start"]] == 0.5
    for k, threshold in enumerate(data["threshold"]):
        decided = p > threshold
        tn, fp, fn, tp = metrics.confusion_matrix(y, decided).ravel()
        assert cells[:, k].tolist() == [tp, fn, fp, tn]
        assert data["score"][k] == pytest.approx(metrics.f1_score(y, decided), abs=1e-6)
        assert data["low"][k] <= data["score"][k] <= data["high"][k]
    assert data["tested"] == []
    assert len({tuple(x) for x in cells.T}) == cells.shape[1] > 20  # no step without a change


def test_thresholds_of_values_near_0_and_1_divide_them():
    rng = np.random.default_rng(0)
    y = (rng.random(5000) < 0.03).astype(float)
    p = expit(6 * rng.normal(size=5000) - 9 + 14 * y)
    found = planner.some_thresholds(y, p, np.array([0.5]))
    decided = (p[:, None] > found).sum(axis=0)
    assert len(np.unique(decided)) == len(found) > 60
    assert ((p > found[:, None]) & (y > 0)).sum(axis=1).tolist().count(0) <= 2
    few = planner.some_thresholds(y, p.round(1), np.array([0.5]))  # with 0 and 1 among the values
    assert len(np.unique((p.round(1)[:, None] > few).sum(axis=0))) == len(few)
    assert max(len(repr(x)) for x in found.tolist()) < 12  # a reader can write them down


def test_the_interval_is_that_of_resampled_rows():
    rng = np.random.default_rng(0)
    p, y = rng.random(300), (rng.random(300) < 0.3).astype(float)
    found = planner.plan(y, p, anyloss.metric("f1"), np.array([0.4]))
    draws = [rng.integers(0, 300, 300) for _ in range(2000)]
    scores = [metrics.f1_score(y[rows], p[rows] > 0.4) for rows in draws]
    expected = np.quantile(scores, [0.025, 0.975])
    assert [found.low[0], found.high[0]] == pytest.approx(expected, abs=0.015)


def test_the_policy_names_the_hash_of_the_script(fitted):
    page = render(fitted["linear"])
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_the_metric_over_prevalences_keeps_recall_and_specificity(fitted):
    result = fitted["linear"]
    tp, fn, fp, tn = result.counts
    picture = planner.over_prevalences(result, anyloss.metric("precision"), "precision")
    assert f"this share is {(tp + fn) / (tp + fn + fp + tn):.3f}" in picture


@pytest.mark.parametrize("name", ["linear", "lightgbm"])
def test_the_moved_threshold_is_that_of_predict(fitted, name, held_out):
    result, share = fitted[name], planner.MOVED[3]
    scores = planner.moved_scores(result, anyloss.metric("f1"))
    rows = held_out(result)
    moved = result.model.with_prevalence(share)
    decided = moved.decide(moved.decision_values(rows)) == "yes"
    y = (rows["left"] == "yes").to_numpy()
    weight = np.where(y, share / y.mean(), (1 - share) / (1 - y.mean()))
    expected = metrics.f1_score(y, decided, sample_weight=weight)
    assert scores[3] == pytest.approx(expected)
    assert "moved threshold" in planner.over_prevalences(result, anyloss.metric("f1"), "F1")


def test_the_slider_shows_another_threshold(browser, fitted, data, tmp_path):
    browser.get(write(fitted["linear"], tmp_path / "report.html").as_uri())
    assert browser.get_log("browser") == []

    def shown(name):
        return browser.find_element("id", f"plan-{name}").text

    assert shown("tested") == "This is the threshold of the model."
    slider = browser.find_element("id", "plan-at")
    slider.send_keys(Keys.ARROW_RIGHT)
    k = data["start"] + 1
    tp, fn, fp, tn = (cells[k] for cells in data["cells"])
    rows = tp + fn + fp + tn
    assert [shown(x) for x in ("tp", "fn", "fp", "tn")] == [f"{x:,}" for x in (tp, fn, fp, tn)]
    assert float(shown("score")) == pytest.approx(data["score"][k], abs=5e-4)
    assert float(shown("predicted")) == pytest.approx(1000 * (tp + fp) / rows, abs=0.06)
    assert "for one threshold fixed beforehand" in shown("interval")
    cost = browser.find_element("id", "plan-fn-cost")
    cost.clear()
    cost.send_keys("10")
    expected = 1000 * (10 * fn + fp) / rows
    assert float(shown("cost").replace(",", "")) == pytest.approx(expected, abs=0.06)
    assert shown("tested") == ""
    assert shown("threshold").rstrip("0") in repr(data["threshold"][k])
    cost.clear()
    cost.send_keys("-1")
    assert (shown("cost"), shown("least")) == ("undefined", "enter costs of at least 0")


def test_without_scripts_the_section_is_hidden(browser, fitted, tmp_path):
    path = write(fitted["linear"], tmp_path / "report.html")
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(path.as_uri())
        assert not browser.find_element("id", "planner").is_displayed()
        assert browser.find_element("id", "prevalence").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
