"""Gradient boosting for any metric: LightGBM, XGBoost and (experimental) CatBoost."""

from typing import Any

from anyloss.boosting.adapters import eval_metric, objective

__all__ = [
    "CatBoostAnyLossClassifier",
    "LGBMAnyLossClassifier",
    "XGBAnyLossClassifier",
    "eval_metric",
    "objective",
]


def __getattr__(name: str) -> Any:
    """The classifiers need scikit-learn, so they are imported when they are asked for."""
    if name in __all__:
        from anyloss.boosting import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
