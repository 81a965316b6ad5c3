"""scikit-learn classifiers of LightGBM, XGBoost and CatBoost, fitted for the metric you name."""

from anyloss.boosting.base import BoostedClassifier
from anyloss.boosting.libraries import CatBoost, LightGBM, XGBoost


class LGBMAnyLossClassifier(BoostedClassifier):
    """LightGBM, trained for a metric of the confusion matrix. Two classes.

    It starts from log-loss on inner folds, moves the best threshold into the margin and goes on for
    the metric itself (see `anyloss.boosting.fitting`); the margin is the mean over the folds'
    models. Rows may be data frames with categories, sparse, and have gaps: what `LGBMClassifier`
    takes. `predict_proba` is centred so that 0.5 is the decision; it is not calibrated.

    Args:
        metric: a name, a formula or a function of `tp, fn, fp, tn`.
        pos_label: the positive class of two, which metrics such as F1 are about. Default: the rarer
            class in the training data (for equal numbers the second one); see `pos_label_`.
        scale: how sharp the soft decision is; "auto" is the probability itself. See `objective`.
        folds, repeats: inner folds, and how often they are drawn; a model is trained and refined
            for each.
        refine_rounds: rounds for the metric. Default: a third of the library's rounds.
        early_stopping_rounds: with an `eval_set`, stop when so many rounds have not improved it.
        random_state: seed of the folds and of the library.
        **library_parameters: those of `LGBMClassifier`, but for its objective.

    After `fit`: `classes_`, `pos_label_`, `models_` (the library's models, the offset and the share
    of the refinement that was kept), `start_score_` (log-loss with the offset, on held-out rows:
    those it was chosen on), `held_out_score_` (the same after refinement), `n_features_in_`,
    `feature_names_in_`.

    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LGBMAnyLossClassifier("f1", n_estimators=10, n_jobs=1).fit(X, y)
    >>> int(model.pos_label_), model.score(X, y) > 0.9
    (0, True)
    """

    library = LightGBM()


class XGBAnyLossClassifier(BoostedClassifier):
    """XGBoost, trained for a metric of the confusion matrix. Two classes.

    Everything is as in `LGBMAnyLossClassifier`; the parameters are those of `XGBClassifier`
    (`enable_categorical=True` for data frames with categories).

    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = XGBAnyLossClassifier("mcc", n_estimators=10, n_jobs=1).fit(X, y)
    >>> int(model.pos_label_), model.score(X, y) > 0.9
    (0, True)
    """

    library = XGBoost()


class CatBoostAnyLossClassifier(BoostedClassifier):
    """CatBoost, trained for a metric of the confusion matrix. Two classes. Experimental.

    Everything is as in `LGBMAnyLossClassifier`; the parameters are those of `CatBoostClassifier`.
    Experimental, because an objective for CatBoost leans on its order of evaluation (which is
    checked; see `anyloss.boosting.blocks`). Refinement uses plain boosting without sampling.

    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = CatBoostAnyLossClassifier("f1", n_estimators=10, thread_count=1).fit(X, y)
    >>> int(model.pos_label_), model.score(X, y) > 0.9
    (0, True)
    """

    library = CatBoost()
