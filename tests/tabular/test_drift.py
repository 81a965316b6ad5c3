"""A new table against the training rows."""

import json

import numpy as np
import pandas as pd
import pytest

from anyloss.tabular import fit_table, load, predict_table, save
from anyloss.tabular.drift import Drift, column_profiles


def shops(n=400, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, n).round(1),
            "city": rng.choice(["Rome", "Oslo", "Lima"], n),
            "since": pd.Timestamp("2022-01-01")
            + pd.to_timedelta(rng.integers(0, 500, n), unit="D"),
        }
    )
    frame["left"] = np.where(frame["age"] + rng.normal(0, 3, n) > 50, "yes", "no")
    return frame


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    place = tmp_path_factory.mktemp("drift") / "model"
    save(fit_table(shops(), "left", model="linear"), place)
    return load(place)


def predicted(model, frame, place, **options):
    """The warnings of predicting a table."""
    frame.to_csv(place / "new.csv", index=False)
    found = []
    predict_table(
        model, place / "new.csv", place / "out.csv", rows=60, on_warning=found.append, **options
    )
    return found


def test_a_table_of_the_same_kind_gives_no_warning(model, tmp_path):
    for seed in range(1, 6):
        assert predicted(model, shops(300, seed), tmp_path) == []
    json.dumps(model.profile, allow_nan=False)


def test_what_differs_is_named(model, tmp_path):
    new = shops(300, seed=1)
    new["age"] += 12
    new.loc[::4, "city"] = "Atlantis"
    found = predicted(model, new, tmp_path)
    assert found[0] == (
        "column 'city': 75 of 300 cells have values that the training rows do not have"
    )
    assert found[1].startswith("the values of 'age', 'city' are distributed otherwise than in")
    assert "of the rows are predicted as 'yes', and" in found[2]


def test_columns_that_became_unreadable_stop_the_prediction(model, tmp_path):
    new = shops(300, seed=1).astype({"age": object})
    new.loc[:49, "age"] = "forty"
    new.loc[50:99, "age"] = "unknown"  # a gap is not unreadable
    with pytest.raises(ValueError, match=r"training table: 'age' \(17%\); correct them, or"):
        predicted(model, new, tmp_path)
    assert not (tmp_path / "out.csv").exists()
    assert "not numbers" in predicted(model, new, tmp_path, allow_drift=True)[0]


def test_the_population_stability_index():
    old, new = (
        pd.DataFrame({"x": ["a"] * 600 + ["b"] * 400}),
        pd.DataFrame({"x": ["a"] * 2 + ["b"] * 8}),
    )
    new = pd.concat([new] * 50)
    drift = Drift({"columns": column_profiles(old), "predicted": [0.5], "classes": ["yes"]})
    drift.add(new, new, np.zeros(500))
    p, q = np.array([0.6, 0.4]), np.array([0.2, 0.8])
    assert drift.stability("x") == pytest.approx(((q - p) * np.log(q / p)).sum(), abs=0.01)
