"""TunedDecisionClassifierCV: scikit-learn's checks, TunedThresholdClassifierCV, and its contract."""

import json

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_multilabel_classification,
)
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    balanced_accuracy_score,
    f1_score,
    make_scorer,
    matthews_corrcoef,
)
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    PredefinedSplit,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import anyloss
from anyloss.sklearn import TunedDecisionClassifierCV

# The probabilities are those of the estimator, and a tuned decision differs from their arg-max.
DIFFERS = {"check_classifiers_train": "tuned decisions are not the arg-max of predict_proba"}


@parametrize_with_checks(
    [
        TunedDecisionClassifierCV(LinearSVC(), cv=2),
        TunedDecisionClassifierCV(GaussianNB(), "mcc", cv=3),
    ],
    expected_failed_checks=lambda each: DIFFERS if hasattr(each.estimator, "predict_proba") else {},
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def rare(n=500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, (X[:, 0] + X[:, 1] + 1.5 * rng.normal(size=n) > 2.5).astype(int)


@pytest.mark.parametrize(
    ("metric", "scorer"),
    [
        ("f1", "f1"),
        ("mcc", make_scorer(matthews_corrcoef)),
        ("balanced_accuracy", "balanced_accuracy"),
    ],
)
def test_the_best_threshold_is_that_of_scikit_learn_if_it_tries_every_one(metric, scorer):
    X, y = rare()
    prefit = LogisticRegression().fit(X[:250], y[:250])
    ours = TunedDecisionClassifierCV(
        prefit, metric, cv="prefit", pos_label=1, store_cv_results=True
    ).fit(X[250:], y[250:])
    p = np.unique(prefit.predict_proba(X[250:])[:, 1])
    theirs = TunedThresholdClassifierCV(
        prefit, scoring=scorer, cv="prefit", refit=False, thresholds=p
    ).fit(X[250:], y[250:])
    assert ours.best_score_ == pytest.approx(theirs.best_score_, abs=1e-12)
    assert ours.cv_results_["scores"].max() == ours.best_score_
    assert ours.best_decision_.thresholds[0] in ours.cv_results_["thresholds"]
    np.testing.assert_array_equal(ours.predict_proba(X), prefit.predict_proba(X))
    np.testing.assert_array_equal(ours.predict_log_proba(X), prefit.predict_log_proba(X))
    assert ours.score(X[250:], y[250:]) == pytest.approx(ours.best_score_, abs=1e-12)


def test_the_positive_class_is_the_rarer_one():
    X, y = load_breast_cancer(return_X_y=True)
    model = TunedDecisionClassifierCV(GaussianNB()).fit(X, y)
    assert model.pos_label_ == 0
    assert model.score(X, y) == pytest.approx(f1_score(y, model.predict(X), pos_label=0))
    np.testing.assert_array_equal((model.decision_function(X) > 0).astype(int), model.predict(X))
    names = np.where(y == 0, "malignant", "benign")
    named = TunedDecisionClassifierCV(GaussianNB(), pos_label="benign").fit(X, names)
    assert named.score(X, names) == pytest.approx(
        f1_score(names, named.predict(X), pos_label="benign")
    )


def test_best_score_is_that_of_all_held_out_rows_together():
    X, y = load_digits(return_X_y=True)
    X, y, folds = X[:600, 18:30], y[:600], StratifiedKFold(4)
    model = TunedDecisionClassifierCV(GaussianNB(), "f1", cv=folds, store_cv_results=True).fit(X, y)
    p = cross_val_predict(GaussianNB(), X, y, cv=folds, method="predict_proba")
    expected = f1_score(y, model.best_decision_.decide(p), average="macro")
    assert model.best_score_ == pytest.approx(expected, abs=1e-12)
    assert model.best_score_ > f1_score(y, p.argmax(axis=1), average="macro")
    compared = model.cv_results_
    assert compared["rules"] == ["argmax", "linear", "balanced", "ascent", "mean"]
    assert compared["scores"][-1] == model.best_score_ > compared["scores"][0]
    assert compared["evaluations"] <= 500
    assert compared["mixture_score"] is not None
    np.testing.assert_array_equal(
        model.predict(X), model.classes_[model.decision_function(X).argmax(axis=1)]
    )
    assert model.score(X, y) == pytest.approx(f1_score(y, model.predict(X), average="macro"))


def test_two_classes_with_an_average_over_both():
    X, y = rare()
    model = TunedDecisionClassifierCV(GaussianNB(), "f1", average="macro").fit(X, y)
    assert model.task_ == "multiclass"
    assert model.score(X, y) == pytest.approx(f1_score(y, model.predict(X), average="macro"))
    np.testing.assert_array_equal((model.decision_function(X) > 0) * 1, model.predict(X))
    with pytest.raises(ValueError, match="has no pos_label"):
        TunedDecisionClassifierCV(GaussianNB(), average="macro", pos_label=1).fit(X, y)


def test_costs():
    X, y = load_iris(return_X_y=True)
    costs = anyloss.cost_matrix([[0, 1, 4], [1, 0, 1], [10, 1, 0]])
    model = TunedDecisionClassifierCV(GaussianNB(), costs).fit(X[:, :2], y)
    assert model.average_ == "multiclass"
    assert model.best_decision_.gains.shape in ((3,), (3, 3))
    assert 0.8 < model.best_score_ < 1
    paid = np.array(costs.cost_matrix.costs)[y, model.predict(X[:, :2])].sum()
    assert model.score(X[:, :2], y) == pytest.approx(1 - paid / (50 * (4 + 1 + 10)))
    two = TunedDecisionClassifierCV(
        GaussianNB(), anyloss.cost_matrix([[0, 1], [5, 0]]), pos_label=1
    )
    X, y = rare()
    low = two.fit(X, y).best_decision_.thresholds[0]
    assert low < 0.4  # near 1 / (1 + 5), the threshold of calibrated probabilities


@pytest.mark.parametrize(
    "estimator",
    [
        OneVsRestClassifier(LogisticRegression()),
        RandomForestClassifier(20, min_samples_leaf=5, random_state=0),  # a list of probabilities
        OneVsRestClassifier(LinearSVC()),
    ],
)
def test_several_labels(estimator):
    X, y = make_multilabel_classification(300, n_classes=4, random_state=0)
    reached = {}
    for how in ("per_label", "shared", "shrunk"):
        model = TunedDecisionClassifierCV(
            estimator, "f1", label_thresholds=how, store_cv_results=True
        ).fit(X, y)
        assert model.predict(X).shape == y.shape
        assert model.score(X, y) == pytest.approx(f1_score(y, model.predict(X), average="macro"))
        np.testing.assert_array_equal((model.decision_function(X) > 0) * 1, model.predict(X))
        assert (len(set(model.best_decision_.thresholds)) == 1) == (how == "shared")
        reached[how] = model.best_score_
        assert model.cv_results_["rules"] == ["per_label", "shared", "shrunk"]
    assert reached["per_label"] >= max(reached.values())
    if isinstance(estimator, OneVsRestClassifier):
        sparse = TunedDecisionClassifierCV(estimator, "f1").fit(X, csr_matrix(y)).best_decision_
        np.testing.assert_array_equal(sparse.thresholds, model.best_decision_.thresholds)


def test_a_class_that_a_fold_has_not_seen_has_probability_0():
    X, y = load_iris(return_X_y=True)
    fold = np.repeat([0, 1, 2], 50)  # each fold holds out a whole class
    model = TunedDecisionClassifierCV(GaussianNB(), cv=PredefinedSplit(fold)).fit(X, y)
    assert set(model.predict(X)) <= {0, 1, 2}
    assert model.best_score_ < 0.5


def test_margins_of_several_classes():
    X, y = load_wine(return_X_y=True)
    for estimator in (LinearSVC(), SVC()):
        model = TunedDecisionClassifierCV(make_pipeline(StandardScaler(), estimator), cv=3).fit(
            X, y
        )
        assert model.score(X, y) > 0.95
    pairs = SVC(decision_function_shape="ovo", break_ties=False)
    X, y = load_digits(return_X_y=True)
    with pytest.raises(
        ValueError, match="one column for each of 10 classes; got one for each pair"
    ):
        TunedDecisionClassifierCV(pairs, cv=2).fit(X[:200], y[:200])
    with pytest.raises(AttributeError, match="predict_proba"):
        TunedDecisionClassifierCV(LinearSVC(), response_method="predict_proba", cv=2).fit(X, y)


def test_prefit_and_frozen_estimators_are_not_fitted_again():
    X, y = load_wine(return_X_y=True)
    fitted = GaussianNB().fit(X[::2], y[::2])
    prefit = TunedDecisionClassifierCV(fitted, cv="prefit").fit(X[1::2], y[1::2])
    assert prefit.estimator_ is fitted
    frozen = TunedDecisionClassifierCV(FrozenEstimator(fitted)).fit(X[1::2], y[1::2])
    np.testing.assert_array_equal(frozen.predict_proba(X), fitted.predict_proba(X))
    assert frozen.best_score_ == pytest.approx(prefit.best_score_)
    with pytest.raises(NotFittedError, match="cv='prefit' needs a fitted estimator"):
        TunedDecisionClassifierCV(GaussianNB(), cv="prefit").fit(X, y)
    with pytest.raises(ValueError, match="not present in fit"):
        TunedDecisionClassifierCV(fitted, cv="prefit").fit(X, y + 1)
    some = y < 2  # a class of the estimator may be absent from the rows
    tuned = TunedDecisionClassifierCV(fitted, cv="prefit").fit(X[some], y[some])
    assert tuned.classes_.tolist() == [0, 1, 2]


def test_a_single_split_and_refit():
    X, y = rare()
    models = [
        TunedDecisionClassifierCV(LogisticRegression(), cv=0.3, refit=refit, random_state=1).fit(
            X, y
        )
        for refit in (True, False)
    ]
    assert models[0].best_score_ == models[1].best_score_
    np.testing.assert_array_equal(models[0].estimator_.coef_, LogisticRegression().fit(X, y).coef_)
    assert not np.array_equal(models[0].estimator_.coef_, models[1].estimator_.coef_)
    with pytest.raises(ValueError, match="single split; got 5 splits"):
        TunedDecisionClassifierCV(LogisticRegression(), refit=False).fit(X, y)


def test_weights_count_in_the_estimator_and_in_the_metric():
    X, y = rare()
    weight = np.where(y == 1, 3.0, 1.0)
    folds = StratifiedKFold(3)
    model = TunedDecisionClassifierCV(GaussianNB(), cv=folds).fit(X, y, sample_weight=weight)
    p = cross_val_predict(
        GaussianNB(), X, y, cv=folds, method="predict_proba", params={"sample_weight": weight}
    )[:, 1]
    best = max(f1_score(y, p > t, sample_weight=weight) for t in p)
    assert model.best_score_ == pytest.approx(best, abs=1e-12)
    some = np.arange(len(y)) % 3 > 0
    zero = TunedDecisionClassifierCV(GaussianNB()).fit(X, y, sample_weight=some * 1.0)
    dropped = TunedDecisionClassifierCV(GaussianNB()).fit(X[some], y[some])
    np.testing.assert_allclose(zero.best_decision_.thresholds, dropped.best_decision_.thresholds)
    with pytest.raises(ValueError, match="(?i)negative"):
        TunedDecisionClassifierCV(GaussianNB()).fit(X, y, sample_weight=-weight)


def test_groups_and_metadata_routing():
    X, y = rare(240)
    groups = np.arange(240) // 4
    weight = np.random.default_rng(0).random(240) + 0.5
    plain = TunedDecisionClassifierCV(GaussianNB(), cv=GroupKFold(3))
    plain.fit(X, y, sample_weight=weight, groups=groups)
    with pytest.raises(ValueError, match="check_input"):
        plain.fit(X, y, check_input=False)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = TunedDecisionClassifierCV(
            GaussianNB().set_fit_request(sample_weight=True), cv=GroupKFold(3)
        ).fit(X, y, sample_weight=weight, groups=groups)
        grid = GridSearchCV(clone(routed), {"metric": ["f1", "mcc"]}, cv=GroupKFold(2))
        assert grid.fit(X, y, sample_weight=weight, groups=groups).best_score_ > 0
        with pytest.raises(TypeError, match="unexpected argument"):
            routed.fit(X, y, unknown=weight)
    np.testing.assert_array_equal(routed.best_decision_.thresholds, plain.best_decision_.thresholds)
    assert routed.best_score_ == plain.best_score_


def test_inside_scikit_learns_tools():
    X, y = load_wine(return_X_y=True)
    tuned = TunedDecisionClassifierCV(LogisticRegression(), cv=3, n_jobs=2)
    pipeline = make_pipeline(StandardScaler(), tuned).fit(X, y)
    assert pipeline.score(X, y) > 0.95
    inner = make_pipeline(StandardScaler(), LogisticRegression())
    grid = GridSearchCV(
        TunedDecisionClassifierCV(inner, cv=3), {"estimator__logisticregression__C": [0.1, 1]}, cv=2
    ).fit(X, y)
    assert grid.best_score_ > 0.9
    frame = pd.DataFrame(X).add_prefix("x")
    named = TunedDecisionClassifierCV(GaussianNB(), cv=2).fit(frame, pd.Series(y))
    assert named.feature_names_in_.tolist() == list(frame)
    assert named.n_features_in_ == 13


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"average": "samples"}, "average must be one of"),
        ({"label_thresholds": "own"}, "label_thresholds must be one of"),
        ({"response_method": "predict"}, "response_method must be one of"),
        ({"refit": "yes"}, "refit must be one of"),
        ({"max_evaluations": 0}, "max_evaluations must be an integer of at least 1; got 0"),
        ({"cv": "five"}, "cv must be a number of folds"),
        ({"metric": "f1_scor"}, "did you mean"),
        ({"average": "multiclass"}, "for metrics with a multiclass form"),
        ({"pos_label": 1}, "pos_label=1 is for two classes"),
    ],
)
def test_bad_parameters(given, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        TunedDecisionClassifierCV(GaussianNB(), **given).fit(X, y)


def test_a_failed_fit_leaves_the_object_unchanged():
    X, y = load_iris(return_X_y=True)
    model = TunedDecisionClassifierCV(GaussianNB()).fit(X, y)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="one class"):
        model.fit(X, np.zeros(150))
    assert vars(model) == before


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel", "costs"])
def test_save_and_load(task, tmp_path):
    X, y = load_wine(return_X_y=True)
    metric = "f1"
    if task == "binary":
        y = np.where(y == 2, "c", "ab")
    if task == "multilabel":
        y = np.column_stack([y == 0, y < 2]).astype(int)
    if task == "costs":
        metric = anyloss.cost_matrix([[0, 1, 4], [1, 0, 1], [9, 1, 0]])
    estimator = RandomForestClassifier(10, random_state=0)
    model = TunedDecisionClassifierCV(estimator, metric, cv=2).fit(X, y)
    model.save(tmp_path / "rule")
    loaded = TunedDecisionClassifierCV.load(tmp_path / "rule", estimator=model.estimator_)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.score(X, y) == model.score(X, y)
    assert loaded.fit(X, y).best_score_ >= loaded.best_score_ - 1e-12
    files = sorted(path.name for path in (tmp_path / "rule").iterdir())
    assert files == ["arrays.safetensors", "model.json"]
    assert json.loads((tmp_path / "rule" / "model.json").read_text())["score"] == model.best_score_
    with pytest.raises(ValueError, match="holds the decision rule and not the estimator"):
        TunedDecisionClassifierCV.load(tmp_path / "rule")
    with pytest.raises(NotFittedError):
        TunedDecisionClassifierCV.load(tmp_path / "rule", estimator=GaussianNB())
    if task != "multilabel":
        other = GaussianNB().fit(X, np.arange(len(y)) % 2)
        with pytest.raises(ValueError, match="the rule is for an estimator of the classes"):
            TunedDecisionClassifierCV.load(tmp_path / "rule", estimator=other)


@pytest.mark.slow("fits many models")
@pytest.mark.parametrize("metric", ["f1", "balanced_accuracy"])
def test_it_is_not_below_arg_max_on_new_rows_of_bundled_data(metric):
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    gains = []
    for load in (load_iris, load_wine, load_digits):
        X, y = load(return_X_y=True)
        for estimator in (GaussianNB(), LogisticRegression(max_iter=5000, C=0.01)):
            tuned = TunedDecisionClassifierCV(estimator, metric)
            scored = {
                "f1": lambda y, p: f1_score(y, p, average="macro"),
                "balanced_accuracy": balanced_accuracy_score,
            }[metric]
            gains.append(
                scored(y, cross_val_predict(tuned, X, y, cv=folds))
                - scored(y, cross_val_predict(estimator, X, y, cv=folds))
            )
    assert np.mean(gains) > 0
    assert min(gains) > -0.02
