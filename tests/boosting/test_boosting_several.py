"""Boosting for several classes and labels: exact objectives, and classifiers that agree."""

from functools import partial

import catboost
import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from scipy.sparse import csr_array
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    f1_score,
    jaccard_score,
    matthews_corrcoef,
)

import anyloss
from anyloss.boosting import (
    CatBoostAnyLossClassifier,
    LGBMAnyLossClassifier,
    XGBAnyLossClassifier,
    eval_metric,
    objective,
)
from anyloss.boosting.blocks import SETTINGS, _key
from anyloss.boosting.per_label import PerLabel
from anyloss.boosting.several import for_two_classes
from anyloss.steps import Amplified, Uniform
from anyloss.torch import AnyLoss

SMALL = {"n_estimators": 9, "learning_rate": 0.3, "folds": 3, "repeats": 1, "random_state": 0}
BUILD = {
    LGBMAnyLossClassifier: partial(LGBMAnyLossClassifier, min_child_samples=5, n_jobs=1),
    XGBAnyLossClassifier: partial(XGBAnyLossClassifier, n_jobs=1),
    CatBoostAnyLossClassifier: partial(CatBoostAnyLossClassifier, thread_count=1),
}
ALL = list(BUILD)
AVERAGES = [("f1", "macro"), ("f1", "micro"), ("f1", "weighted"), ("mcc", "multiclass"),
            ("gmean", "multiclass"), ("balanced_accuracy", "auto")]  # fmt: skip


def build(cls, metric="f1", **more):
    return BUILD[cls](metric, **SMALL | more)


def margins(n=40, columns=3, seed=0):
    """Margins, class numbers, labels and weights."""
    rng = np.random.default_rng(seed)
    label = rng.choice(columns, n, p=np.arange(1, columns + 1) / np.arange(columns + 1).sum())
    z = rng.normal(size=(n, columns)) + np.eye(columns)[label]
    labels = (rng.uniform(size=(n, columns)) < 0.3).astype(float)
    return z, label, labels, rng.uniform(0.2, 3.0, n)


def classes(n=240, seed=0):
    """Rows of three classes of different sizes."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    X = rng.normal(size=(n, 4))
    X[:, 0] += 1.2 * y
    X[:, 1] -= 1.5 * (y == 2)
    return X, y


def labels(n=240):
    return make_multilabel_classification(n, 8, n_classes=4, n_labels=2, random_state=0)


# The objective


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
@pytest.mark.parametrize(("metric", "average"), AVERAGES)
@pytest.mark.parametrize("step", [Uniform(), Amplified(6.0)])
def test_the_gradient_is_that_of_the_soft_metric(metric, average, step, task, weighted):
    """By finite differences, by `anyloss.gradient` and by the loss of PyTorch."""
    if task == "multilabel" and average == "multiclass":
        pytest.skip("a multiclass form needs classes")
    z, label, several, weight = margins()
    y, w = (label if task == "multiclass" else several), weight if weighted else None
    n = len(z) if w is None else w.sum()
    gradient, curvature = objective(metric, average=average, step=step)(y, z, w)
    given = {"average": average, "from_logits": True, "task": task, "weight": w}
    truth = label if task == "multiclass" else several

    def score(z):
        return anyloss.score(truth, z, metric, step, **given)

    for i, k in ((0, 0), (7, 1), (23, 2)):
        up, down = z.copy(), z.copy()
        up[i, k] += 1e-5
        down[i, k] -= 1e-5
        wanted = -n * (score(up) - score(down)) / 2e-5
        assert gradient[i, k] == pytest.approx(wanted, abs=1e-6)
    np.testing.assert_allclose(
        gradient, -n * anyloss.gradient(truth, z, metric, step, **given)[1], atol=1e-10
    )
    logits = torch.tensor(z, requires_grad=True)
    loss = AnyLoss(metric, step=step, average=average, task=task)
    loss(logits, torch.tensor(truth), None if w is None else torch.tensor(w)).backward()
    np.testing.assert_allclose(gradient, n * logits.grad.numpy(), atol=1e-8)
    assert np.abs(gradient).max() > 0.01
    assert (curvature > 0).all()


def test_the_curvature_is_that_of_the_log_loss_in_the_unit_of_the_gradient():
    z, label, labels, _ = margins()
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    _, slope = anyloss.gradient(label, p, "f1", Uniform(), average="macro", task="multiclass")
    _, curvature = objective("f1")(label, z)
    np.testing.assert_allclose(curvature, p * (1 - p) * np.abs(slope).mean(axis=0) * len(z))
    p = 1 / (1 + np.exp(-z))
    _, slope = anyloss.gradient(labels, p, "f1", Uniform(), average="macro", task="multilabel")
    _, curvature = objective("f1")(labels, z)
    np.testing.assert_allclose(curvature, p * (1 - p) * np.abs(slope).mean(axis=0) * len(z))


def test_one_label_of_a_macro_average_is_the_objective_of_two_classes():
    z, _, labels, weight = margins()
    gradient, curvature = objective("f1")(labels, z, weight)
    for k in range(3):
        one = objective("f1")(labels[:, k], z[:, k], weight)
        np.testing.assert_allclose(3 * gradient[:, k], one[0])
        np.testing.assert_allclose(3 * curvature[:, k], one[1])


@pytest.mark.parametrize("size", [0.0, 30.0, 800.0])
@pytest.mark.parametrize(("metric", "average"), AVERAGES)
def test_numbers_a_library_can_take(size, metric, average):
    label = np.arange(12) % 3
    one_hot = np.eye(3)[label]
    for z in (np.full((12, 3), size), size * one_hot, -size * one_hot):
        for weight in (None, np.where(label == 1, 1e-6, 1e6), 1.0 * (label < 2)):
            found = objective(metric, average=average)(label, z, weight)
            as_given = [x.astype(np.float32) for x in found]
            assert all(np.isfinite(x).all() for x in as_given)
            assert (as_given[1] > 0).all()


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", "auto"])
@pytest.mark.parametrize("metric", ["f1", "mcc", "gmean", "balanced_accuracy"])
def test_two_classes_averaged_over_both(metric, average):
    z, label, _, weight = margins(columns=2)
    given = {"average": average, "weight": weight, "task": "binary"}
    counts = anyloss.counts(label, 1 / (1 + np.exp(-z[:, 1])), weight=weight)
    reached = anyloss.score(label, 1 / (1 + np.exp(-z[:, 1])), metric, **given)
    assert float(for_two_classes(anyloss.metric(metric), average)(*counts)) == pytest.approx(
        reached
    )
    gradient, _ = objective(metric, average=average)(label, z[:, 1], weight)
    _, slope = anyloss.gradient(label, z[:, 1], metric, Uniform(), from_logits=True, **given)
    np.testing.assert_allclose(gradient, -weight.sum() * slope, atol=1e-9)
    assert eval_metric(metric, average=average)(label, z[:, 1], weight)[1] == pytest.approx(reached)


def natively(library, f, X, y, weight, columns, rounds=3):
    if library == "lightgbm":
        params = {"objective": f, "num_class": columns, "num_threads": 1, "verbose": -1}
        first = y if y.ndim == 1 else np.arange(len(y)) % columns
        data = lightgbm.Dataset(X, first, weight=weight)
        return lightgbm.train(params | {"min_data_in_leaf": 5}, data, rounds).predict(X)
    params = {"nthread": 1, "base_score": 0.0, "disable_default_eval_metric": 1}
    if y.ndim == 1:
        params["num_class"] = columns
    data = xgboost.DMatrix(X, y, weight=weight)
    return xgboost.train(params, data, rounds, obj=f).predict(data, output_margin=True)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_both_interfaces_train_classes_alike(library, weighted, spy_on):
    X, y = classes()
    weight = np.random.default_rng(0).uniform(0.2, 3.0, len(y)).astype(np.float32)
    weight = weight if weighted else None
    spies = [spy_on(objective("f1", library)) for _ in range(2)]
    native = natively(library, spies[0], X, y, weight, 3)
    if library == "lightgbm":
        model = lightgbm.LGBMClassifier(
            objective=spies[1], n_estimators=3, n_jobs=1, verbose=-1, min_child_samples=5
        )
        own = model.fit(X, y, sample_weight=weight).predict(X, raw_score=True)
    else:
        model = xgboost.XGBClassifier(objective=spies[1], n_estimators=3, n_jobs=1)
        own = model.fit(X, y, sample_weight=weight).predict(X, output_margin=True) - 0.5
    np.testing.assert_allclose(native, own, atol=1e-5)
    w, scores = None if weight is None else weight.astype(float), []
    for z, gradient, _ in spies[0].calls:
        score, slope = anyloss.gradient(y, z, "f1", Uniform(), from_logits=True, weight=w)
        np.testing.assert_allclose(
            gradient, -(len(y) if w is None else w.sum()) * slope, rtol=0, atol=1e-6
        )
        scores.append(score)
    assert scores[0] < scores[1] < scores[2]  # each round raises the soft metric


@pytest.mark.parametrize("average", ["macro", "micro"])
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_labels_are_trained_together(library, average, spy_on):
    X, Y = labels()
    given = {"y_true": Y} if library == "lightgbm" else {}
    spy = spy_on(objective("f1", library, average=average, **given))
    z = natively(library, spy, X, Y, None, 4, rounds=12)
    for margin, gradient, _ in spy.calls[:3]:
        slope = anyloss.gradient(Y, margin, "f1", Uniform(), from_logits=True, average=average)[1]
        np.testing.assert_allclose(gradient, -len(Y) * slope, atol=1e-6)
    reached = f1_score(Y, z > 0, average=average)
    assert reached > 0.75
    score = eval_metric("f1", library, average=average, **given)
    if library == "lightgbm":
        assert score(np.zeros(len(Y)), z) == ("f1", pytest.approx(reached), True)
    else:
        assert score(Y, z) == pytest.approx(reached)


def catboost_fit(f, X, y, weight=None, rounds=4, **more):
    params = SETTINGS | {
        "loss_function": f, "eval_metric": f, "iterations": rounds, "thread_count": 1,
        "learning_rate": 0.3, "logging_level": "Silent", "allow_writing_files": False,
    }  # fmt: skip
    pool = catboost.Pool(X, y, weight=weight, baseline=more.pop("margin", None))
    return catboost.CatBoost(params | more).fit(pool)


@pytest.mark.parametrize("weighted", [False, True])
def test_catboosts_rows_see_the_counts_of_all_rows(monkeypatch, weighted):
    X, y = classes()
    weight = np.random.default_rng(0).uniform(0.2, 3.0, len(y)) if weighted else None
    start = np.random.default_rng(1).normal(size=(len(y), 3))
    f = objective("f1", "catboost", y_true=y, margin=start, sample_weight=weight)
    rows, together, plain = [], [], type(f).calc_ders_multi

    def calc_ders_multi(self, approxes, target, w):
        found = plain(self, approxes, target, w)
        together.append(_key(approxes, target, w) in self.of_rows)
        rows.append((np.array(approxes), int(target), w, found[0], np.diag(found[1])))
        return found

    monkeypatch.setattr(type(f), "calc_ders_multi", calc_ders_multi)
    model = catboost_fit(f, X, y, weight, margin=start, classes_count=3)
    assert len(rows) == 2 * 4 * len(y)  # for the shape and for the leaves of each tree
    # Computed together after each tree; CatBoost rounds the start margins to 32 bits.
    assert sum(together) == 2 * 3 * len(y)
    for k in range(0, len(rows), len(y)):
        part = rows[k : k + len(y)]
        z, t, w, found, bend = (np.array([row[j] for row in part]) for j in range(5))
        _, slope = anyloss.gradient(t, z, "f1", Uniform(), from_logits=True, weight=w)
        np.testing.assert_allclose(found, w.sum() * slope, atol=1e-5)
        assert (bend < 0).all()
    z = model.predict(X, prediction_type="RawFormulaVal") + start
    history = model.get_evals_result()["learn"]["BlockObjective"]
    wanted = f1_score(y, z.argmax(axis=1), average="macro", sample_weight=weight)
    assert history[-1] == pytest.approx(wanted)


def test_catboosts_labels():
    X, Y = labels()
    f = objective("f1", "catboost", average="micro", y_true=Y)
    model = catboost_fit(f, X, Y, rounds=40)
    z = model.predict(X, prediction_type="RawFormulaVal")
    reached = f1_score(Y, z > 0, average="micro")
    assert model.get_evals_result()["learn"]["BlockObjective"][-1] == pytest.approx(reached)
    assert reached > 0.75
    own = eval_metric("f1", "catboost", average="micro", y_true=Y)
    assert own.evaluate(list(z.T), list(Y.T), None) == (pytest.approx(reached), 1.0)


def test_catboost_stops_when_its_order_is_another():
    X, y = classes()
    f = objective("f1", "catboost", y_true=y)
    with pytest.raises(catboost.CatBoostError, match="has not seen the training set since"):
        catboost_fit(f, X, y, classes_count=3, metric_period=3)


@pytest.mark.parametrize(
    ("metric", "average", "reference"),
    [
        ("f1", "macro", lambda y, p, w: f1_score(y, p, average="macro", sample_weight=w)),
        ("f1", "weighted", lambda y, p, w: f1_score(y, p, average="weighted", sample_weight=w)),
        ("mcc", "auto", lambda y, p, w: matthews_corrcoef(y, p, sample_weight=w)),
        ("balanced_accuracy", "auto", lambda y, p, w: balanced_accuracy_score(y, p, sample_weight=w)),
        ("accuracy", "auto", lambda y, p, w: accuracy_score(y, p, sample_weight=w)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("weighted", [False, True])
def test_the_evaluation_metric_is_scikit_learns(metric, average, reference, weighted):
    z, label, _, weight = margins(200)
    weight = weight if weighted else None
    wanted = pytest.approx(reference(label, z.argmax(axis=1), weight), abs=1e-12)
    assert eval_metric(metric, average=average)(label, z, weight) == (metric, wanted, True)
    assert eval_metric(metric, "xgboost", average=average)(label, z, weight) == wanted
    score = eval_metric(metric, "catboost", average=average)
    assert score.evaluate(list(z.T), label, weight) == (wanted, 1.0)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)  # no warning: they decide alike
    assert eval_metric(metric, average=average)(label, p, weight)[1] == wanted


def test_early_stopping_for_a_metric_of_classes():
    X, y = classes(500)
    X, y, V, v = X[:250], y[:250], X[250:], y[250:]
    seen = {}
    params = {"objective": objective("f1"), "num_class": 3, "num_threads": 1, "verbose": -1}
    model = lightgbm.train(
        params | {"metric": "None"}, lightgbm.Dataset(X, y), 100,
        valid_sets=[lightgbm.Dataset(V, v)], feval=eval_metric("f1"),
        callbacks=[lightgbm.early_stopping(8, verbose=False), lightgbm.record_evaluation(seen)],
    )  # fmt: skip
    scores = seen["valid_0"]["f1"]
    assert model.best_iteration == 1 + int(np.argmax(scores))
    reached = f1_score(v, model.predict(V).argmax(axis=1), average="macro")
    assert max(scores) == pytest.approx(reached)


# The classifiers


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize(
    ("metric", "average", "reference"),
    [
        ("f1", "macro", lambda y, p, w: f1_score(y, p, average="macro", sample_weight=w)),
        ("f1", "micro", lambda y, p, w: f1_score(y, p, average="micro", sample_weight=w)),
        ("mcc", "auto", lambda y, p, w: matthews_corrcoef(y, p, sample_weight=w)),
    ],
)
def test_several_classes(cls, metric, average, reference, tmp_path, capfd):
    X, y = classes(420)
    names = np.array(["low", "mid", "top"])[y]
    model = build(cls, metric, average=average).fit(X[:240], names[:240])
    assert (model.task_, model.pos_label_) == ("multiclass", None)
    X, names = X[240:], names[240:]
    weight = np.random.default_rng(0).uniform(size=len(X))
    for w in (None, weight):
        wanted = reference(names, model.predict(X), w)
        assert model.score(X, names, w) == pytest.approx(wanted, abs=1e-12)
    assert model.score(X, names) > 0.4
    p, z = model.predict_proba(X), model.decision_function(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    for values in (p, z):
        np.testing.assert_array_equal(model.classes_[values.argmax(axis=1)], model.predict(X))
    assert model.feature_importances_.argmax() in (0, 1)
    model.save(tmp_path / "model")
    again = cls.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), p)
    assert again.score(X, names) == model.score(X, names)
    assert again.get_params() == model.get_params()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("average", ["macro", "micro"])
def test_several_labels(cls, average, tmp_path):
    X, Y = labels()
    Y[:, 3] = 0
    Y[5, 3] = 1  # this label is the same in some folds
    model = build(cls, average=average).fit(X, csr_array(Y) if average == "micro" else Y)
    assert model.task_ == "multilabel"
    predicted = model.predict(X)
    assert model.score(X, Y) == pytest.approx(
        f1_score(Y, predicted, average=average, zero_division=0)
    )
    assert f1_score(Y[:, :3], predicted[:, :3], average=average) > 0.75
    np.testing.assert_array_equal(model.predict_proba(X) > 0.5, predicted == 1)
    assert model.feature_importances_.shape == (8,)
    model.save(tmp_path / "model")
    again = cls.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match="y must have the shape of the predictions"):
        model.score(X, Y[:, :2])


def test_labels_that_no_row_has():
    X, Y = labels(80)
    Y[:, 0], Y[:, 1] = 0, 1
    model = build(LGBMAnyLossClassifier).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X)[:, 0], 0)
    np.testing.assert_array_equal(model.predict(X)[:, 1], 1)
    assert model.models_.whole[0][0] == -model.models_.whole[0][1] == -np.log(161)
    assert isinstance(model._trees, PerLabel)


@pytest.mark.parametrize("cls", ALL)
def test_weights_of_several_classes(cls):
    X, y = classes()
    kept = np.arange(len(y)) % 3 > 0
    without = build(cls).fit(X[kept], y[kept]).decision_function(X)
    plain = build(cls).fit(X, y, sample_weight=1.0 * kept)
    np.testing.assert_allclose(plain.decision_function(X), without, atol=1e-6)
    keen = build(cls).fit(X, y, sample_weight=np.where(y == 2, 20.0, 1.0))
    assert (keen.predict(X) == 2).sum() > (plain.predict(X) == 2).sum()


@pytest.mark.parametrize("cls", ALL)
def test_early_stopping_of_several_classes_and_labels(cls):
    X, y = classes(400)
    model = build(cls, n_estimators=200, early_stopping_rounds=4)
    model.fit(X[:250], y[:250], eval_set=(X[250:], y[250:]))
    count = {
        LGBMAnyLossClassifier: lambda x: x.best_iteration,
        XGBAnyLossClassifier: lambda x: x.best_iteration + 1,
        CatBoostAnyLossClassifier: lambda x: x.tree_count_,
    }[cls]
    assert all(count(x) < 150 for x in (*model.models_.started, *model.models_.whole))
    X, Y = labels()
    model = build(cls, n_estimators=100, early_stopping_rounds=3)
    model.fit(X[:150], Y[:150], eval_set=(X[150:], Y[150:]))
    assert any(count(x) < 90 for x in model.models_.whole[0])


def test_data_frames_and_two_classes_with_an_average():
    X, y = classes()
    frame = pd.DataFrame(X, columns=list("abcd")).assign(e=pd.Categorical(np.array(list("uvw"))[y]))
    model = build(LGBMAnyLossClassifier, min_data_per_group=5, cat_smooth=1).fit(frame, y)
    assert model.score(frame, y) > 0.97
    two = build(LGBMAnyLossClassifier, average="macro").fit(X, y > 0)
    assert two.task_ == "binary"
    assert two.score(X, y > 0) == pytest.approx(f1_score(y > 0, two.predict(X), average="macro"))
    jaccard = build(LGBMAnyLossClassifier, "jaccard", average="weighted").fit(X, y > 0)
    wanted = jaccard_score(y > 0, jaccard.predict(X), average="weighted")
    assert jaccard.score(X, y > 0) == pytest.approx(wanted)


@pytest.mark.parametrize("cls", ALL)
def test_the_recipe_of_several_classes_by_hand(cls, monkeypatch):
    """Margins of the members and of all rows, minus offsets, plus the refinement."""
    X, y = classes()
    model = build(cls).fit(X, y)
    found, library = model.models_, cls.library
    start = np.mean([library.margin(x, X) for x in found.started], axis=0)
    z = (start + library.margin(found.whole[0], X)) / 2 - found.offset
    if found.share:
        z = z + found.share * np.mean([library.margin(x, X) for x in found.refined], axis=0)
    np.testing.assert_allclose(model.decision_function(X), z)
    assert len(found.started) == 3
    assert found.offset.shape == (3,)
    assert model.held_out_score_ > 0.4


@pytest.mark.slow("fits many models")
def test_it_does_not_lose_to_the_arg_max_on_bundled_data():
    """Digits through few pixels, with rare classes; macro-F1."""
    digits = load_digits()
    kept = np.random.default_rng(0).uniform(size=1797) < np.where(digits.target < 5, 0.15, 0.6)
    X, y = digits.data[kept][:, 18:30], digits.target[kept]
    gains = []
    for k in range(3):
        train, test = np.arange(len(y)) % 3 != k, np.arange(len(y)) % 3 == k
        given = {"n_estimators": 30, "n_jobs": 1, "random_state": 0}
        ours = LGBMAnyLossClassifier("f1", **given).fit(X[train], y[train]).predict(X[test])
        plain = (
            lightgbm.LGBMClassifier(verbose=-1, **given).fit(X[train], y[train]).predict(X[test])
        )
        gains.append(
            f1_score(y[test], ours, average="macro") - f1_score(y[test], plain, average="macro")
        )
    assert np.mean(gains) > 0
