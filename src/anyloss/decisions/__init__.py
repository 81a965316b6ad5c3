"""Decision rules for any model: what turns its scores into decisions, found for a metric.

Two classes have one threshold (`anyloss.best_threshold`), several labels have thresholds
(`labels`), and several classes have gains and offsets (`classes`).
"""

from anyloss.decisions.rules import Decision, Found

__all__ = ["Decision", "Found"]
