"""What the tests of boosting share."""

import numpy as np
import pytest


class Spy:
    """Keep what a library hands to an objective, and what it is given."""

    def __init__(self, inner):
        self.inner, self.calls = inner, []

    def __deepcopy__(self, memo):  # LightGBM trains with a copy
        return self

    def __call__(self, y_true, y_pred, sample_weight=None):
        found = self.inner(y_true, y_pred, sample_weight)
        native = hasattr(y_pred, "get_label")
        self.calls.append((np.array(y_true if native else y_pred, dtype=float), *found))
        return found


@pytest.fixture
def spy_on():
    """A function that wraps an objective."""
    return Spy
