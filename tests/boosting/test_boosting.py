"""Objectives for gradient boosting: exact, and the same in every interface."""

import sys
import types

import catboost
import lightgbm
import numpy as np
import pytest
import xgboost
from sklearn.metrics import f1_score, matthews_corrcoef

import anyloss
from anyloss.boosting import eval_metric, objective
from anyloss.boosting.blocks import SETTINGS
from anyloss.boosting.core import gradient_and_curvature
from anyloss.steps import Amplified, Linear, LogitSigmoid, RaisedCosine, Uniform

METRICS = ["f1", "mcc", "gmean", "balanced_accuracy", "p4", "tp / (tp + 0.3*fp + 2*fn)"]
STEPS = [Uniform(), Amplified(4.0), Amplified(20.0, 0.4), LogitSigmoid(2.0, 0.3), Linear(),
         RaisedCosine(0.4)]  # fmt: skip


def problem(n=60, seed=0):
    """Margins, labels and weights."""
    rng = np.random.default_rng(seed)
    y = (rng.uniform(size=n) < 0.3).astype(float)
    return rng.normal(y - 0.5, 1.5), y, rng.uniform(0.2, 3.0, n)


def table(n=1200, seed=0):
    """Rows, labels and weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    y = (X[:, 0] + X[:, 1] ** 2 + rng.normal(size=n) > 2.2).astype(int)
    return X, y, rng.uniform(0.2, 3.0, n)


def finite_differences(z, y, metric, step, weight, h=1e-5):
    """Minus n times the slope of the soft metric, by the public function for it."""
    n = len(y) if weight is None else weight.sum()

    def score(z):
        return anyloss.score(y, z, metric, step, from_logits=True, weight=weight)

    slopes = []
    for k in range(len(z)):
        up, down = z.copy(), z.copy()
        up[k] += h
        down[k] -= h
        slopes.append((score(up) - score(down)) / (2 * h))
    return -n * np.array(slopes)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("metric", "step"), [(m, Uniform()) for m in METRICS] + [("f1", s) for s in STEPS[1:]]
)
def test_the_gradient_is_that_of_the_soft_metric(metric, step, weighted):
    z, y, weight = problem()
    weight = weight if weighted else None
    gradient, curvature = gradient_and_curvature(z, y, anyloss.metric(metric), step, weight)
    wanted = finite_differences(z, y, metric, step, weight)
    np.testing.assert_allclose(gradient, wanted, rtol=0, atol=1e-6)
    assert np.abs(wanted).max() > 0.05
    assert (curvature > 0).all()


def test_the_curvature_is_that_of_the_log_loss_in_the_unit_of_the_gradient():
    z, y, weight = problem()
    for w in (None, weight):
        gradient, curvature = gradient_and_curvature(z, y, anyloss.metric("f1"), Uniform(), w)
        p = 1 / (1 + np.exp(-z))
        rows = np.ones_like(y) if w is None else w
        worth = np.abs(gradient) / (p * (1 - p))  # |c_i| w_i
        np.testing.assert_allclose(curvature, rows * p * (1 - p) * worth.sum() / rows.sum())


@pytest.mark.parametrize("size", [0.0, 30.0, 800.0])
@pytest.mark.parametrize("metric", ["f1", "mcc", "precision", "gmean"])
@pytest.mark.parametrize("step", [Uniform(), Amplified(73.0), LogitSigmoid()])
def test_numbers_a_library_can_take(size, metric, step):
    y = np.array([0.0, 1.0] * 10)
    for z in (np.full(20, size), np.full(20, -size), size * (2 * y - 1), size * (1 - 2 * y)):
        for weight in (None, np.where(y == 1, 1e-6, 1e6), y):
            found = gradient_and_curvature(z, y, anyloss.metric(metric), step, weight)
            as_given = [x.astype(np.float32) for x in found]
            assert all(np.isfinite(x).all() for x in as_given)
            assert (as_given[1] > 0).all()


def test_weight_two_is_the_row_twice():
    z, y, _ = problem()
    weight = np.ones(len(y))
    weight[::3] = 2
    twice = np.repeat(np.arange(len(y)), weight.astype(int))
    chosen, step = anyloss.metric("mcc"), Uniform()
    gradient, curvature = gradient_and_curvature(z, y, chosen, step, weight)
    double, bend = gradient_and_curvature(z[twice], y[twice], chosen, step)
    np.testing.assert_allclose(np.bincount(twice, double), gradient, rtol=1e-12)
    np.testing.assert_allclose(np.bincount(twice, bend), curvature, rtol=1e-12)


def lightgbm_native(f, X, y, weight, rounds=4):
    data = lightgbm.Dataset(X, y, weight=weight)
    params = {"objective": f, "num_threads": 1, "verbose": -1, "min_data_in_leaf": 5}
    return lightgbm.train(params, data, rounds).predict(X)


def lightgbm_sklearn(f, X, y, weight, rounds=4):
    model = lightgbm.LGBMClassifier(
        objective=f, n_estimators=rounds, n_jobs=1, verbose=-1, min_child_samples=5
    )
    return model.fit(X, y, sample_weight=weight).predict(X, raw_score=True)


def xgboost_native(f, X, y, weight, rounds=4):
    data = xgboost.DMatrix(X, y, weight=weight)
    params = {"nthread": 1, "base_score": 0.0, "disable_default_eval_metric": 1}
    return xgboost.train(params, data, rounds, obj=f).predict(data, output_margin=True)


def xgboost_sklearn(f, X, y, weight, rounds=4):
    model = xgboost.XGBClassifier(objective=f, n_estimators=rounds, n_jobs=1)
    return model.fit(X, y, sample_weight=weight).predict(X, output_margin=True)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_native_and_scikit_learn_interfaces_train_alike(library, weighted, spy_on):
    X, y, weight = table()
    weight = weight.astype(np.float32) if weighted else None
    native, through_sklearn = {
        "lightgbm": (lightgbm_native, lightgbm_sklearn),
        "xgboost": (xgboost_native, xgboost_sklearn),
    }[library]
    spies = [spy_on(objective("f1", library)) for _ in range(2)]
    ends = [
        run(spy, X, y, weight) for run, spy in zip((native, through_sklearn), spies, strict=True)
    ]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-6, atol=1e-6)
    assert len(spies[0].calls) == len(spies[1].calls) == 4
    assert (spies[0].calls[0][0] == 0).all()  # it starts at margin 0
    w = None if weight is None else weight.astype(float)
    scores = []
    for spy in spies:
        for margins, gradient, curvature in spy.calls:
            score, slope = anyloss.gradient(y, margins, "f1", Uniform(), from_logits=True, weight=w)
            n = len(y) if w is None else w.sum()
            np.testing.assert_allclose(gradient, -n * slope, rtol=0, atol=1e-6)
            assert (curvature > 0).all()
            scores.append(score)
    assert scores[0] < scores[1] < scores[2] < scores[3]  # each round raises the soft metric


def catboost_both(f, X, y, weight, rounds=4, valid=None, **more):
    params = SETTINGS | {
        "loss_function": f, "eval_metric": f, "iterations": rounds, "thread_count": 1,
        "learning_rate": 0.3, "logging_level": "Silent", "allow_writing_files": False,
    }  # fmt: skip
    pool = catboost.Pool(X, y, weight=weight, baseline=more.pop("margin", None))
    return catboost.CatBoost(params | more).fit(pool, eval_set=valid)


@pytest.mark.parametrize("metric", ["f1", "mcc"])
@pytest.mark.parametrize("weighted", [False, True])
def test_catboosts_blocks_see_the_counts_of_all_rows(monkeypatch, metric, weighted):
    X, y, weight = table(3200)
    weight = weight.astype(np.float32) if weighted else None
    start = np.random.default_rng(1).normal(size=len(y))
    f = objective(metric, "catboost", y_true=y, margin=start, sample_weight=weight)
    blocks = []
    plain = type(f).calc_ders_range

    def calc_ders_range(self, approxes, targets, weights):
        found = plain(self, approxes, targets, weights)
        w = None if weights is None or not len(weights) else np.array(weights)
        blocks.append((np.array(approxes), np.array(targets), w, np.array(found), f.counts))
        return found

    monkeypatch.setattr(type(f), "calc_ders_range", calc_ders_range)
    valid = catboost.Pool(X[:90], y[:90], baseline=np.zeros(90))
    catboost_both(f, X, y, weight, 5, valid, margin=start, use_best_model=False)
    assert max(len(block[0]) for block in blocks) <= 1000
    passes, part = [], []
    for block in blocks:  # the blocks of one pass over the training set
        part.append(block)
        if sum(len(x[0]) for x in part) == len(y):
            passes.append(part)
            part = []
    assert len(passes) == 10  # two a tree: for its shape, for its leaves
    assert not part
    for part in passes:
        z, t, found = (np.concatenate([x[k] for x in part]) for k in (0, 1, 3))
        w = np.concatenate([x[2] for x in part]) if weighted else None
        whole = anyloss.counts(t, z, Uniform(), from_logits=True, weight=w)
        for stashed in (x[4] for x in part):
            np.testing.assert_allclose(list(stashed), list(whole), rtol=1e-8)
        _, slope = anyloss.gradient(t, z, metric, Uniform(), from_logits=True, weight=w)
        n = len(t) if w is None else w.sum()
        np.testing.assert_allclose(found[:, 0], n * slope, rtol=0, atol=1e-6)
        assert (found[:, 1] < 0).all()


def test_catboosts_scikit_learn_interface():
    X, y, _ = table()
    f = objective("f1", "catboost", y_true=y)
    model = catboost.CatBoostClassifier(
        iterations=4, loss_function=f, eval_metric=f, thread_count=1, learning_rate=0.3,
        logging_level="Silent", allow_writing_files=False, **SETTINGS,
    ).fit(X, y)  # fmt: skip
    native = catboost_both(objective("f1", "catboost", y_true=y), X, y, None)
    ends = [m.predict(X, prediction_type="RawFormulaVal") for m in (model, native)]
    np.testing.assert_allclose(ends[0], ends[1])
    history = model.get_evals_result()["learn"]["BlockObjective"]
    assert history[-1] == pytest.approx(f1_score(y, ends[0] > 0))


def test_catboost_without_the_labels_differs_in_the_first_tree_only():
    X, y, _ = table(500)  # a single block: nothing differs
    short = [
        catboost_both(objective("f1", "catboost", **labels), X, y, None)
        for labels in ({}, {"y_true": y})
    ]
    ends = [m.predict(X, prediction_type="RawFormulaVal") for m in short]
    np.testing.assert_allclose(ends[0], ends[1])
    X, y, _ = table(3200)
    f = objective("f1", "catboost")
    model = catboost_both(f, X, y, None, 5)
    z = model.predict(X, prediction_type="RawFormulaVal")
    whole = anyloss.counts(y, z, Uniform(), from_logits=True)
    np.testing.assert_allclose(list(f.counts), list(whole), rtol=1e-8)
    assert f1_score(y, z > 0) > 0.5
    with pytest.raises(catboost.CatBoostError, match="has not seen the training set since"):
        catboost_both(objective("f1", "catboost"), X, y, None, 9, metric_period=3)


@pytest.mark.parametrize(
    "wrong", [{"metric_period": 3}, {"leaf_estimation_iterations": 4}, {"eval_metric": "AUC"}]
)
def test_catboost_stops_when_its_order_is_another(wrong):
    X, y, _ = table()
    f = objective("f1", "catboost", y_true=y)
    with pytest.raises(catboost.CatBoostError, match="has not seen the training set since"):
        catboost_both(f, X, y, None, **wrong)


def test_catboost_stops_when_the_labels_are_of_other_rows():
    X, y, _ = table()
    with pytest.raises(catboost.CatBoostError, match="expected its 1200 rows, got 1000"):
        catboost_both(objective("f1", "catboost", y_true=y), X[:1000], y[:1000], None)


# Evaluation


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("name", "reference"), [("f1", f1_score), ("mcc", matthews_corrcoef)])
def test_the_evaluation_metric_is_scikit_learns(name, reference, weighted):
    z, y, weight = problem(200)
    weight = weight if weighted else None
    wanted = pytest.approx(reference(y, z > 0, sample_weight=weight), abs=1e-12)
    p = 1 / (1 + np.exp(-z))
    assert eval_metric(name)(y, z, weight) == (name, wanted, True)
    assert eval_metric(name, from_logits=False)(y, p, weight) == (name, wanted, True)
    assert eval_metric(name, "xgboost")(y, z, sample_weight=weight) == wanted
    assert eval_metric(name, "catboost").evaluate([z], y, weight) == (wanted, 1.0)
    data = lightgbm.Dataset(z[:, None], y, weight=weight).construct()
    # the data sets of the libraries hold labels and weights in single precision
    near = pytest.approx(reference(y, z > 0, sample_weight=weight), abs=1e-6)
    assert eval_metric(name)(z, data) == (name, near, True)
    data = xgboost.DMatrix(z[:, None], y, weight=weight)
    assert eval_metric(name, "xgboost")(z, data) == (f"pre@0.5-{name}", near)


def best_round(scores):
    return int(np.argmax(scores))


def test_early_stopping_keeps_the_best_round_of_lightgbm():
    X, y, _ = table(600)
    X, y, V, v = X[:300], y[:300], X[300:], y[300:]
    seen = {}
    params = {"objective": objective("f1"), "num_threads": 1, "verbose": -1, "metric": "None"}
    model = lightgbm.train(
        params, lightgbm.Dataset(X, y), 200, valid_sets=[lightgbm.Dataset(V, v)],
        feval=eval_metric("f1"),
        callbacks=[lightgbm.early_stopping(15, verbose=False), lightgbm.record_evaluation(seen)],
    )  # fmt: skip
    scores = seen["valid_0"]["f1"]
    assert len(scores) < 200
    assert model.best_iteration == 1 + best_round(scores)
    assert max(scores) == pytest.approx(f1_score(v, model.predict(V) > 0))
    own = lightgbm.LGBMClassifier(
        objective=objective("f1"), n_estimators=200, n_jobs=1, verbose=-1, metric="None"
    )
    stop = lightgbm.early_stopping(15, verbose=False)
    own.fit(X, y, eval_X=V, eval_y=v, eval_metric=eval_metric("f1"), callbacks=[stop])
    assert own.best_iteration_ == model.best_iteration


def test_early_stopping_keeps_the_best_round_of_xgboost():
    X, y, _ = table(600)
    X, y, V, v = X[:300], y[:300], X[300:], y[300:]
    data, valid, seen = xgboost.DMatrix(X, y), xgboost.DMatrix(V, v), {}
    params = {"nthread": 1, "base_score": 0.0, "disable_default_eval_metric": 1}
    model = xgboost.train(
        params, data, 200, obj=objective("f1", "xgboost"), evals=[(valid, "v")],
        custom_metric=eval_metric("f1", "xgboost"), early_stopping_rounds=15, evals_result=seen,
        verbose_eval=False,
    )  # fmt: skip
    scores = seen["v"]["pre@0.5-f1"]
    assert len(scores) < 200
    assert model.best_iteration == best_round(scores)
    own = xgboost.XGBClassifier(
        objective=objective("f1", "xgboost"), eval_metric=eval_metric("f1", "xgboost"),
        n_estimators=200, n_jobs=1, early_stopping_rounds=15,
    ).fit(X, y, eval_set=[(V, v)], verbose=False)  # fmt: skip
    assert own.best_iteration == model.best_iteration
    assert own.best_score == pytest.approx(f1_score(v, own.predict(V, output_margin=True) > 0))


def test_early_stopping_keeps_the_best_round_of_catboost():
    X, y, _ = table(600)
    X, y, V, v = X[:300], y[:300], X[300:], y[300:]
    f = objective("f1", "catboost", y_true=y)
    model = catboost_both(f, X, y, None, 200, catboost.Pool(V, v), early_stopping_rounds=15)
    scores = model.get_evals_result()["validation"]["BlockObjective"]
    assert len(scores) < 200
    assert model.get_best_iteration() == best_round(scores)
    margin = model.predict(V, prediction_type="RawFormulaVal")
    assert max(scores) == pytest.approx(f1_score(v, margin > 0))
    # the hard metric on its own watches a log-loss
    own = catboost.CatBoost({
        "loss_function": "Logloss", "eval_metric": eval_metric("f1", "catboost"), "iterations": 30,
        "thread_count": 1, "logging_level": "Silent", "allow_writing_files": False,
    }).fit(X, y, eval_set=(V, v))  # fmt: skip
    margin = own.predict(V, prediction_type="RawFormulaVal")
    best = max(own.get_evals_result()["validation"]["BlockMetric"])
    assert best == pytest.approx(f1_score(v, margin > 0))


# Bad input


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: objective("f1x"), ValueError, "did you mean"),
        (lambda: eval_metric("f1x"), ValueError, "did you mean"),
        (lambda: objective("f1", "sklearn"), ValueError, "library must be one of lightgbm, xgb"),
        (lambda: objective("f1", scale="big"), ValueError, "scale must be 'auto' or a positive"),
        (lambda: objective("f1", scale=-1), ValueError, "scale must be a positive number; got -1"),
        (lambda: objective("f1", scale=2, step=Uniform()), ValueError, "pass either scale or step; got scale=2 and"),
        (lambda: objective("f1", y_true=[0, 1]), ValueError, "are for CatBoost; lightgbm passes"),
        (lambda: objective("f1", "catboost", y_true=[1, 1]), ValueError, r"got one class, \[1.0\]"),
        (lambda: eval_metric("f1", "catboost", from_logits=False), ValueError, "CatBoost passes margins"),
        (lambda: objective()([0, 0], [1.0, 2.0]), ValueError, r"got one class, \[0.0\]"),
        (lambda: objective()([0, np.nan], [1.0, 2.0]), ValueError, "0 and 1, with no NaN; got"),
        (lambda: objective()([0, 2], [1.0, 2.0]), ValueError, r"must be 0 and 1.*got \[0.0, 2.0\]"),
        (lambda: objective()([0, 1], np.zeros(6)), ValueError, r"got shapes \(2,\), \(6,\) and"),
        (lambda: objective()([0, 3], np.zeros((2, 3))), ValueError, "class numbers from 0 to 2, .*got \\[0.0, 3.0\\]"),
        (lambda: objective()([1, 1], np.zeros((2, 3))), ValueError, r"got one class, \[1.0\]"),
        (lambda: objective()([[0, 2]], np.zeros((1, 2))), ValueError, "labels must be 0 and 1"),
        (lambda: objective()([[0, 1]], np.zeros((1, 3))), ValueError, r"got shapes \(1, 2\), \(1, 3\)"),
        (lambda: objective("f1", average="samples"), ValueError, "boosting needs one number of all rows"),
        (lambda: eval_metric("f1", average=None), ValueError, "boosting needs one number of all rows"),
        (lambda: objective("f1", average="mean"), ValueError, "average must be one of"),
        (lambda: objective("f1", average="multiclass"), ValueError, "metrics with a multiclass form"),
        (lambda: objective(anyloss.cost_matrix(1 - np.eye(3)))([0, 1], np.zeros(2)), ValueError, "cost matrix of 3"),
        (lambda: objective(anyloss.cost_matrix(1 - np.eye(3)))([0, 1], np.zeros((2, 4))), ValueError, "task of 4 columns"),
        (lambda: objective("f1", "xgboost", y_true=[[0, 1]]), ValueError, "xgboost passes them itself"),
        (lambda: eval_metric("f1", "xgboost", y_true=[[0, 1]]), ValueError, r"got shape \(1, 2\) for xgboost"),
        (lambda: eval_metric("f1", y_true=[0, 1]), ValueError, r"got shape \(2,\) for lightgbm"),
        (lambda: objective()([0, 1], np.zeros(2), [1.0]), ValueError, r"and \(1,\)"),
        (lambda: eval_metric()([0, 2], np.zeros(2)), ValueError, "must be 0 and 1"),
        (
            lambda: eval_metric("f1", "catboost").evaluate([[0.0]] * 3, [3], None),
            ValueError,
            "class numbers from 0 to 2",
        ),
        (
            lambda: objective("f1", "catboost").calc_ders_multi([0.0] * 3, 1, 1.0),
            ValueError,
            "pass objective.*y_true=y",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost"])
def test_a_library_that_is_missing_or_too_old(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    for build in (objective, eval_metric):
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'anyloss\[boosting\]'"):
            build("f1", library)
    monkeypatch.setitem(sys.modules, library, types.SimpleNamespace(__version__="0.9.1"))
    with pytest.raises(ImportError, match=f"needs {library} .* or newer; got 0.9.1"):
        objective("f1", library)


def test_what_is_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'Boosted'"):
        anyloss.boosting.Boosted  # noqa: B018
    assert repr(objective("f1", "catboost", y_true=[0, 1])) == "BlockObjective('f1')"
    assert repr(eval_metric("f1")) == "EvalMetric('f1', 'lightgbm')"
