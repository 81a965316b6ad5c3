"""Gradient boosting for any metric: LightGBM, XGBoost and (experimental) CatBoost."""

from anyloss.boosting.adapters import eval_metric, objective
__all__=["objective","eval_metric"]
