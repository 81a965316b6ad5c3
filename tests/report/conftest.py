"""A browser, and models of a table of customers, for the tests of the report."""

import shutil

import numpy as np
import pandas as pd
import pytest

from anyloss.tabular import fit_table


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window."""
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver = (shutil.which(x) for x in ("chromium", "chromedriver"))
    if not (chromium and driver):
        pytest.skip("no browser: install chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(option)
    running = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield running
    running.quit()


def customers(n=700, seed=0):
    """Old customers and those from Rome leave; 'plan' and 'noise' have no effect."""
    rng = np.random.default_rng(seed)
    age, city = rng.normal(40, 12, n).round(), rng.choice(["Rome", "Oslo", "<b>Bonn"], n)
    start = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    frame = pd.DataFrame({"age": age, "city": city, "start": start})
    frame["plan"], frame["noise"] = rng.choice([0, 1], n), rng.normal(size=n).round(2)
    z = 0.1 * (age - 45) + 1.5 * (city == "Rome") + rng.normal(0, 1, n)
    frame["left"] = np.where(z > 0.8, "yes", "no")
    frame.loc[::9, "age"] = np.nan
    return frame


@pytest.fixture(scope="session")
def table():
    """A table whose index says nothing, with rows without a label."""
    frame = customers()
    frame.loc[frame.index[5:60:7], "left"] = None
    return frame.set_axis(np.random.default_rng(1).permutation(len(frame)) + 5000)


@pytest.fixture(scope="session")
def fitted(table):
    return {x: fit_table(table, "left", "f1", model=x, folds=0) for x in ("linear", "lightgbm")}


@pytest.fixture(scope="session")
def held_out(table):
    """A function that finds the test rows of a result, by their decision values."""

    def found(result):
        labelled = table[table["left"].notna()]
        values = result.model.decision_values(labelled)
        rows = labelled[np.isin(values.round(10), np.asarray(result.p_test).round(10))]
        assert len(rows) == len(result.p_test)
        return rows

    return found
