"""How a classifier is trained for a metric; `recipe.skeleton` explains the stages.

`fit` does it in NumPy, without scikit-learn. `anyloss.sklearn`, `anyloss.boosting` and
`anyloss.torch.refine` use the same recipe for their models.
"""

from anyloss.recipe.numpy_models import Ensemble, fit

__all__ = ["Ensemble", "fit"]
