"""Draw the pictures of the documents: `python docs/figures/draw.py [folder]`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from anyloss import best_threshold, counts, explain, plot
from anyloss.benchmark.plots import save_figure
from anyloss.steps import Amplified, Linear, RaisedCosine, Uniform


def threshold_curve() -> Figure:
    """The best precision with a recall of at least 0.9."""
    rng = np.random.default_rng(0)
    y = rng.random(600) < 0.25
    scores = 1 / (1 + np.exp(1.5 - 2.2 * y - rng.normal(size=600)))
    figure = Figure(figsize=(5.6, 3.2), layout="constrained")
    plot.threshold_curve(y, scores, "precision", constraints="recall >= 0.9", ax=figure.subplots())
    return figure


def worth() -> Figure:
    """F1 of calibrated probabilities over the thresholds, and what a positive decision adds."""
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 1.5, 5000)
    y = rng.random(5000) < p
    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    plot.threshold_curve(y, p, "f1", ax=left)
    decided = p > best_threshold(y, p, "f1").threshold
    at = explain("f1", **vars(counts(y, decided)))
    right.plot([0, 1], [at.false_positive, at.true_positive], color=plot.BLUE)
    right.axhline(0, color=plot.GREY, linewidth=0.8)
    right.axvline(at.threshold, color=plot.GREY, linewidth=0.8, linestyle="--")
    text = f"the decision pays above {at.threshold:.3g}, half of F1"
    right.set(xlabel="probability", ylabel="what a positive decision adds", title=text)
    right.spines[["top", "right"]].set_visible(False)
    return figure


def steps() -> Figure:
    """Four steps and their derivatives."""
    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    shown = [Uniform(), Amplified(10.0), Linear(), RaisedCosine(0.3)]
    plot.step(shown, ax=left)
    plot.step(shown, derivative=True, ax=right).get_legend().remove()
    return figure


def surfaces() -> Figure:
    """F1 and MCC over recall and precision, with few and with many positives."""
    figure = Figure(figsize=(9.6, 2.9), layout="constrained")
    cases = [("f1", 0.3), ("mcc", 0.3), ("mcc", 0.01)]
    for ax, (metric, prevalence) in zip(figure.subplots(1, 3), cases, strict=True):
        plot.metric_surface(metric, prevalence=prevalence, ax=ax)
    return figure


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for draw in (threshold_curve, steps, surfaces, worth):
        suffix = "png" if draw is surfaces else "svg"  # filled contours are large as SVG
        save_figure(draw(), folder / f"{draw.__name__}.{suffix}")
