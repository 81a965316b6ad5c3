"""The automatic model: members, weights, the limit of time, the folder."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

from anyloss import report
from anyloss.recipe import deadlines
from anyloss.recipe.target import new_target
from anyloss.tabular import automatic, fit_table, load, save
from anyloss.tabular.automatic import AutoClassifier
from anyloss.tabular.combining import greedy_weights, member_weights
from anyloss.tabular.portfolio import held_out_values, member_values


def rows(n=160, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (X[:, 0] + 0.5 * X[:, 1] ** 2 + rng.normal(size=n) > 1.2).astype(int)


@pytest.fixture(scope="module")
def fitted():
    X, y = rows()
    return AutoClassifier("f1", time_limit=1e6, jobs=1).fit(X, y)


def test_all_members_are_fitted_and_the_weights_are_shares(fitted):
    names = ["linear", "lightgbm", "mlp", "mlp32", "lightgbm-extra", "xgboost"]
    assert list(fitted.scores_) == list(fitted.weights_) == names
    assert sum(fitted.weights_.values()) == pytest.approx(1)
    assert all(x.weight > 0 for x in fitted.members_)
    assert fitted.skipped_ == {}


def test_the_decision_is_the_weighted_mean_of_the_members(fitted):
    X, _ = rows(50, seed=1)
    expected = sum(x.weight * x.classifier.predict_proba(X)[:, 1] for x in fitted.members_)
    np.testing.assert_allclose(fitted.predict_proba(X)[:, 1], expected, rtol=1e-12)
    np.testing.assert_array_equal(fitted.predict(X), expected > 0.5)


def test_scores_are_those_of_scikit_learn_on_held_out_decisions(fitted):
    _, y = rows()
    total = 0.0
    for x in fitted.members_:
        values = held_out_values(x.classifier, "binary")
        assert x.score == pytest.approx(f1_score(y, values[:, 0] > 0))
        total = total + x.weight * values
    assert fitted.held_out_score_ == pytest.approx(f1_score(y, total[:, 0] > 0))


def test_two_lanes_give_the_same_model(fitted):
    X, y = rows()
    both = AutoClassifier("f1", time_limit=1e6, jobs=2).fit(X, y)
    np.testing.assert_array_equal(both.predict_proba(X), fitted.predict_proba(X))


def test_an_error_in_one_lane_ends_the_other():
    X, y = rows()
    seen = set()

    def on_fit(name):
        seen.add(name)
        if name == "lightgbm":
            raise KeyboardInterrupt

    model = AutoClassifier("f1", time_limit=1e6, jobs=2, on_fit=on_fit)
    with pytest.raises(KeyboardInterrupt):
        model.fit(np.tile(X, (20, 1)), np.tile(y, 20))
    assert seen <= {"linear", "lightgbm"}  # the networks come after the linear model


def test_greedy_selection_finds_the_best_pair():
    y = np.array([1.0, 1.0, 0.0, 0.0])
    values = np.array([[1, -0.5, -1, -1], [-0.5, 1, -1, -1], [-1, -1, 1, 1]])[:, :, None]
    target = new_target(y, "f1", "binary")
    hard = greedy_weights(values, lambda x: target.held_out(x).hard)
    assert hard.tolist() == [0.5, 0.5, 0.0]  # F1 is 2/3 alone and 1 together
    assert member_weights(values, target)[2] == 0


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_several_classes_and_labels(task, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    y = X.argmax(axis=1) if task == "multiclass" else (X > 0.5).astype(int)
    model = AutoClassifier("f1", "macro", task).fit(X, y)
    assert set(model.scores_) == {"linear", "mlp", "lightgbm"}
    score = f1_score(y, model.predict(X), average="macro")
    assert score > 0.9
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(
        AutoClassifier.load(tmp_path / "m").predict_proba(X), model.predict_proba(X)
    )


def test_two_classes_with_an_average_over_both():
    X, y = rows()
    model = AutoClassifier("f1", "macro", "multiclass").fit(X, y)
    values = [held_out_values(x.classifier, "multiclass") for x in model.members_]
    assert {x.shape for x in values} == {(160, 2)}
    total = sum(x.weight * own for x, own in zip(model.members_, values, strict=True))
    expected = f1_score(y, total.argmax(axis=1), average="macro")
    assert model.held_out_score_ == pytest.approx(expected)


def test_a_folder_of_members(fitted, tmp_path):
    X, _ = rows(40, seed=2)
    fitted.save(tmp_path / "m")
    found = AutoClassifier.load(tmp_path / "m")
    np.testing.assert_array_equal(found.predict_proba(X), fitted.predict_proba(X))
    assert found.weights_ == fitted.weights_
    assert not list((tmp_path / "m").rglob("*.pkl"))
    (tmp_path / "m" / "model.json").write_text(
        (tmp_path / "m" / "model.json").read_text().replace("AnyLoss", "EvilLoss")
    )
    with pytest.raises(ValueError, match="changed"):
        AutoClassifier.load(tmp_path / "m")


class Stub:
    """A classifier that needs some seconds of a fake clock, and reports each hundredth of them."""

    def __init__(self, name, clock, costs, y):
        self.name, self.clock, self.seconds, self.y = name, clock, costs[name], y

    def fit(self, X, y, **given):
        for k in range(1, 101):
            self.clock["now"] += self.seconds / 100
            deadlines.report(k / 100)
        return self


@pytest.fixture
def started(monkeypatch):
    """A function that fits stubs of given costs within a limit: the model, and what was started."""

    def run(costs, limit):
        X, y = rows(30)
        clock, names = {"now": 0.0}, []

        def new_member(entry, goal, seed, **options):
            names.append(entry.name)
            return Stub(entry.name, clock, costs, y)

        monkeypatch.setattr(automatic, "new_member", new_member)
        monkeypatch.setattr(automatic, "held_out_values", lambda x, task: 2.0 * x.y[:, None] - 1)
        model = AutoClassifier("f1", time_limit=limit, jobs=1, clock=lambda: clock["now"])
        return model.fit(X, y), names, clock["now"]

    return run


COSTS = {"linear": 1, "lightgbm": 4, "mlp": 2, "mlp32": 5, "lightgbm-extra": 6, "xgboost": 8}


def test_with_enough_time_every_member_is_started(started):
    model, names, seconds = started(COSTS, 100)
    assert names == ["linear", "mlp", "mlp32", "lightgbm", "lightgbm-extra", "xgboost"]
    assert model.skipped_ == {}
    assert seconds == pytest.approx(26)


def test_a_member_that_is_predicted_to_be_late_is_not_started(started):
    # After linear, mlp, mlp32 and lightgbm 12 of 19 s are over; the extra trees are predicted to
    # take 1.5 times as long as LightGBM, 6 s, and XGBoost twice as long, 8 s.
    model, names, seconds = started(COSTS, 20)
    assert names == ["linear", "mlp", "mlp32", "lightgbm", "lightgbm-extra"]
    assert model.skipped_ == {"xgboost": "it would take about 8 s"}
    assert seconds == pytest.approx(18)


def test_a_member_that_turns_out_to_be_late_is_given_up_early(started):
    model, names, seconds = started(COSTS | {"lightgbm": 100}, 20)
    assert "lightgbm" in names
    assert model.skipped_["lightgbm"] == "it would take 100 s or more"
    assert "lightgbm-extra" not in names  # predicted from LightGBM
    assert seconds == pytest.approx(8 + 10)  # a tenth of it showed that
    assert seconds < 20


def test_the_limit_is_kept_if_only_one_member_ends(started):
    model, _, seconds = started(dict.fromkeys(COSTS, 50) | {"linear": 3}, 10)
    assert list(model.weights_) == ["linear"]
    assert seconds <= 10


def test_if_nothing_ends_in_time_a_linear_model_is_fitted_all_the_same(started, monkeypatch):
    model, names, seconds = started(dict.fromkeys(COSTS, 500), 1)
    assert names == ["linear"]  # of few rows, without a limit, once
    assert seconds == 500
    assert model.weights_ == {"linear": 1.0}
    assert set(model.skipped_) == {*COSTS} - {"linear"}
    monkeypatch.setattr(automatic, "LEAST_ROWS", 20)
    model, names, _ = started(dict.fromkeys(COSTS, 500), 1)
    assert names == ["linear"]  # of a sample, without a limit; then no time is left
    assert set(model.skipped_) == {*COSTS, "linear, all rows"} - {"linear"}


def test_a_sample_of_the_linear_model_represents_all_rows(monkeypatch):
    monkeypatch.setattr(automatic, "LEAST_ROWS", 200)
    X, y = rows(1_000)
    ticks = iter(range(100_000))
    model = AutoClassifier("f1", time_limit=3, jobs=1, clock=lambda: float(next(ticks))).fit(X, y)
    assert list(model.weights_) == ["linear"]
    (member,) = model.members_
    assert len(held_out_values(member.classifier, "binary")) == 200
    assert f1_score(y, model.predict(X)) > 0.5  # 0.43 for all rows
    assert model.skipped_["lightgbm"] == "no time was left"


@pytest.fixture(scope="module")
def result():
    X, y = rows(300, seed=3)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=np.where(y, "yes", "no"))
    return fit_table(frame, "y", "f1", folds=0, time_limit=1e6), frame


def test_a_table_gets_an_ensemble(result, tmp_path):
    found, frame = result
    assert found.model_name == "auto"
    assert set(found.candidates) == set(found.weights) == set(COSTS)
    assert found.facts["left_out"] == {}
    assert "time_limit=1000000.0" in found.settings["command"]
    save(found, tmp_path / "m", {"report.html": lambda path: report.write(found, path)})
    stored = json.loads((tmp_path / "m" / "metrics.json").read_text())
    assert stored["weights"] == found.weights
    page = (tmp_path / "m" / "report.html").read_text()
    assert (
        "lightgbm-extra\u2069 <small>weight" in page
    )  # the name is isolated from its surroundings
    values = load(tmp_path / "m").decision_values(frame)
    np.testing.assert_array_equal(values, found.model.decision_values(frame))
    expected = sum(
        x.weight * member_values(x.classifier, found.model.encoder.transform(frame), "binary")
        for x in found.model.classifier.members_
    )
    np.testing.assert_allclose(2 * values - 1, expected[:, 0], atol=1e-12)


def test_an_ensemble_is_not_exported(result, tmp_path):
    from anyloss.tabular.onnx import export

    found, _ = result
    with pytest.raises(ValueError, match="fit with --model linear, mlp or lightgbm"):
        export(found.model, tmp_path / "m.onnx")


def test_an_ensemble_has_calibrated_probabilities_and_is_moved_to_a_prevalence(result, tmp_path):
    found, frame = result
    auto = found.model.classifier
    p = found.model.probabilities(frame)
    values, labels, _ = auto._held_out
    held_out = auto._calibration((1 + values) / 2, "binary")
    assert held_out.mean() == pytest.approx(labels.mean(), abs=0.02)
    assert np.mean((held_out - labels) ** 2) < np.mean(((1 + values) / 2 - labels) ** 2)
    rare, share = found.model.with_prevalence(0.02), labels.mean()
    given = np.where(labels[:, 0] == 1, 0.02 / share, 0.98 / (1 - share))
    at = new_target(labels, "f1", "binary", weight=given).averaged_offsets(values)
    assert rare.classifier._rule.threshold == pytest.approx(at.item())
    before, after = (x.decide(x.decision_values(frame)) for x in (found.model, rare))
    assert 0 < (after == "yes").sum() < (before == "yes").sum()
    odds = 0.02 / 0.98 * (1 - share) / share * p / np.maximum(1 - p, 1e-300)
    np.testing.assert_allclose(rare.probabilities(frame), odds / (1 + odds), atol=1e-9)
    rare.classifier.save(tmp_path / "rare")
    again, X = AutoClassifier.load(tmp_path / "rare"), rare.encoder.transform(frame)
    np.testing.assert_array_equal(again.predict_proba(X), rare.classifier.predict_proba(X))
    np.testing.assert_array_equal(again.calibrated_proba(X), rare.classifier.calibrated_proba(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_limit": 0}, "positive number of seconds; got 0"),
        ({"time_limit": 5, "model": "linear"}, "for the automatic model without constraints"),
        ({"time_limit": 5, "constraints": "recall >= 0.5"}, "without constraints"),
    ],
)
def test_limits_that_make_no_sense(options, message):
    X, y = rows(100)
    with pytest.raises(ValueError, match=message):
        fit_table(pd.DataFrame(X, columns=list("abc")).assign(y=y), "y", **options)


def test_rows_of_weight_zero_have_no_part():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    y, weight = (X[:, 0] + rng.normal(size=150) > 0.6) * 1, rng.integers(0, 3, 150) * 1.0
    used = weight > 0
    every = AutoClassifier("f1", seed=0).fit(X, y, sample_weight=weight)
    some = AutoClassifier("f1", seed=0).fit(X[used], y[used], sample_weight=weight[used])
    assert every.predict_proba(X).tolist() == some.predict_proba(X).tolist()
    assert every.held_out_score_ == some.held_out_score_
