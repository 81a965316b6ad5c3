"""scikit-learn classifiers of LightGBM, XGBoost and CatBoost, trained for a metric."""

import inspect
from typing import TypeVar

from anyloss.boosting.base import BoostedClassifier
from anyloss.boosting.libraries import CatBoost, LightGBM, XGBoost

Classifier = TypeVar("Classifier", bound=type[BoostedClassifier])

SECTIONS = """
Args:
    metric (str, callable or Metric): a name, a formula or a function of `tp, fn, fp, tn`.
        Default: `"f1"`.
    average (str): how several classes or labels are combined: `"macro"`, `"micro"`, `"weighted"`,
        or `"multiclass"` for a metric with a multiclass form. `"auto"`, the default, is the
        metric's own form if it has one, else `"macro"`. For two classes it is the metric of
        `pos_label`.
    pos_label (Any): the positive one of two classes. Default: the class that is rarer in the
        training data (the second one if both are equally frequent); see `pos_label_`.
    scale (float or str): the sharpness of the soft decision, as in `objective`. `"auto"`, the
        default, is the probability itself.
    folds (int): the number of inner folds. Default: 5.
    repeats (int): how often inner folds are drawn; a model is trained and refined for each fold.
        Default: 2.
    refine_rounds (int, optional): the rounds for the metric. Default: a third of the library's
        rounds.
    early_stopping_rounds (int, optional): with an `eval_set` in `fit`, stop after this many
        rounds without improvement.
    random_state (int, RandomState or None): the seed of the folds and of the library.
    constraints (str or list of str, optional): constraints such as `"recall >= 0.9"`. The metric is
        then the best one among the decisions that satisfy them on held-out rows.
    confidence_level (float, optional): the confidence with which the constraints shall hold on new
        data, such as 0.95. Some of the rows are then set apart to certify the fitted model.
    certify_share (float): the share of the rows that is set apart, at random. Default: 0.2.
    calibrate (str, optional): how `predict_proba` is calibrated on held-out rows: by Platt's
        `"sigmoid"`, by `"isotonic"` regression, or by the one with the lower Brier score on rows it
        was not fitted to (`"auto"`). None, the default, does not calibrate it; then
        `calibrated_proba` is calibrated as by `"auto"`.
    priors (sequence of float, optional): the shares of `classes_` where the classifier will be
        used, if they are not those of the training rows. The rows are weighted to these shares,
        also those of `score`. A fitted classifier is moved by `with_priors`.
    **library_parameters (Any): the parameters of `{parameters}`, except its objective.

Attributes:
    classes_ (array): the classes, or the numbers of the labels.
    pos_label_ (Any): the positive class; None unless the task is binary.
    task_ (str): `"binary"`, `"multilabel"` or `"multiclass"`.
    average_ (str): the average that is used.
    models_ (TreeEnsemble): the library's models, the offset of their margins, and the share of the
        refinement that is used.
    certificate_ (CertifiedThreshold or None): with a confidence level, what is certified. Its
        `threshold` is None if nothing could be certified. Thresholds are margins, above those that
        satisfy the constraints on held-out rows.
    class_offsets_ (array): what is subtracted from the margins for other priors.
    calibration_method_ (str): how `calibrated_proba` is calibrated.
    class_shares_ (array or None): the class shares that decisions and calibrated probabilities are
        for; None for several labels.
    start_score_ (float): the held-out metric of the log-loss models. The threshold was tuned on
        the same rows, so it is optimistic.
    held_out_score_ (float): the held-out metric after refinement, on the same rows. After
        `with_priors` they are weighted to the new shares.
    feature_importances_ (array): the share of each column in the gain of all trees.
    n_features_in_ (int): the number of columns.
    feature_names_in_ (array): their names, if `X` was a data frame.

Shape:
    - `X`: `(n, columns)`.
    - `y`: `(n,)`, or `(n, labels)` of 0 and 1 for several labels.

Raises:
    ValueError: by `fit`, if a parameter is out of range, unknown or set by the recipe, or if `y`
        has one class only.
    ImportError: by `fit`, if the library is missing or too old.
"""


def _documented(own: Classifier) -> Classifier:
    """Insert the sections that the three classifiers share before the examples."""
    if own.__doc__:
        text, examples = inspect.cleandoc(own.__doc__).split("\nExamples:\n")
        parameters = type(own.library).__name__.replace("LightGBM", "LGBM")
        parameters = parameters.replace("XGBoost", "XGB") + "Classifier"
        shared = SECTIONS.replace("{parameters}", parameters)
        own.__doc__ = f"{text}{shared}\nExamples:\n{examples}"
    return own


@_documented
class LGBMAnyLossClassifier(BoostedClassifier):
    """LightGBM, trained for a metric of the confusion matrix.

    It starts from log-loss on inner folds, moves the best threshold into the margin and refines the
    models for the metric (see `anyloss.recipe.skeleton` and `anyloss.boosting.trees`). The margin
    is the mean over the folds' models. The target has two classes, several classes, or several
    labels per row (a matrix of 0 and 1; each label has models of its own, which are not refined).
    Rows may be anything that `LGBMClassifier` accepts: data frames with categories, sparse
    matrices, missing values. `predict_proba` is centred so that 0.5 is the decision (for several
    classes: the highest); with `calibrate="auto"` it gives calibrated probabilities instead, and
    the decisions stay the same.

    Examples:
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = LGBMAnyLossClassifier("f1", n_estimators=10, n_jobs=1).fit(X, y)
        >>> int(model.pos_label_), model.score(X, y) > 0.9
        (0, True)
    """

    library = LightGBM()


@_documented
class XGBAnyLossClassifier(BoostedClassifier):
    """XGBoost, trained for a metric of the confusion matrix.

    It works like `LGBMAnyLossClassifier`. Data frames with categories need
    `enable_categorical=True`.

    Examples:
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = XGBAnyLossClassifier("mcc", n_estimators=10, n_jobs=1).fit(X, y)
        >>> int(model.pos_label_), model.score(X, y) > 0.9
        (0, True)
    """

    library = XGBoost()


@_documented
class CatBoostAnyLossClassifier(BoostedClassifier):
    """CatBoost, trained for a metric of the confusion matrix; experimental.

    It works like `LGBMAnyLossClassifier`. It is experimental because an objective for CatBoost
    depends on CatBoost's order of evaluation (which is checked; see `anyloss.boosting.blocks`). The
    refinement uses plain boosting without sampling.

    Examples:
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = CatBoostAnyLossClassifier("f1", n_estimators=10, thread_count=1).fit(X, y)
        >>> int(model.pos_label_), model.score(X, y) > 0.9
        (0, True)
    """

    library = CatBoost()
