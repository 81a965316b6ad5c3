"""AnyLoss's Figures 2 to 5, drawn from our own numbers; the numbers are written beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import anyloss
from anyloss.benchmark.plots import save_figure, winning_probabilities
from anyloss.steps import Amplified
from papers import curves, many_sets, runs, slp
from papers.data import breast_cancer
from papers.four_sets import asked, not_at_hand
from papers.many_sets_text import ROPES
from papers.published import authors_scores
from papers.text import columns

RED, BLUE = "#D55E00", "#0072B2"
SCALES, RATES, STEPS = (1, 5, 10, 73, 100), (1.0, 0.01), 300  # of Figure 3


def figure2(request: runs.Request) -> str:
    """The soft decision A(p) for L = 5 and L = 100, and the two points that the paper names."""
    p = np.linspace(0, 1, 101)
    table = pd.DataFrame(
        [
            {"L": L, "p": x, "value": value}
            for L in (5, 100)
            for x, value in zip(p, Amplified(L).value(p), strict=True)
        ]
    )
    runs.write(table, request.out, {"figure": 2})
    picture = request.out.with_suffix(".svg")

    def draw(axes: Any, L: int) -> None:
        part = table[table["L"] == L]
        axes.plot(part["p"], part["value"], color=BLUE)
        axes.plot(part["p"], part["p"], color="grey", linewidth=0.8, linestyle=":")
        at = 0.1 if L == 5 else 0.9
        value = float(Amplified(L).value(at))
        axes.plot(at, value, "o", color=RED)
        axes.annotate(f"({at}, {value:.2f})", (at, value), (0.6, 0.85) if L > 5 else (0.3, 0.1))
        axes.set(title=f"L = {L}", xlabel="p")

    _draw(picture, [5, 100], draw, "A(p)")
    request.told(1, 1, "figure2")
    rows = [
        ("5", "0.1", "0.12", f"{Amplified(5).value(0.1):.2f}"),
        ("100", "0.9", "1.0", f"{1 / (1 + np.exp(-100 * 0.4)):.1f}"),
    ]
    return "\n".join(
        [
            "AnyLoss, Figure 2: the soft decision with a small and with a large L",
            "",
            columns(("L", "p", "published A(p)", "ours"), rows),
            "",
            f"The plain formula at 0.9 is exactly 1 in float64; 1 - A(0.9), computed stably, is "
            f"{Amplified(100).mirror(0.9):.1e}",
            f"picture: {picture}",
        ]
    )


def learning_curve(X: Any, y: Any, scale: float, rate: float, epochs: int) -> list[float]:
    """L_F1 of a perceptron on all rows, before each of so many plain gradient steps."""
    w, found = np.zeros(X.shape[1]), []
    for _ in range(epochs):
        score, slope = anyloss.gradient(y, X @ w, "f1", Amplified(scale), from_logits=True)
        found.append(1 - float(score))
        w += rate * (X.T @ slope)
    return found


def scale_curves(told: runs.Told = runs.silent) -> Any:
    """Tidy: rate, L, step, value, on breast cancer."""
    rows = breast_cancer()
    X, found = slp.with_intercept(rows.X), []
    for done, rate in enumerate(RATES):
        told(done, len(RATES), f"rate {rate}")
        for scale in SCALES:
            values = learning_curve(X, rows.y, scale, rate, STEPS)
            found += [(rate, scale, step, value) for step, value in enumerate(values)]
    told(len(RATES), len(RATES), "")
    return pd.DataFrame(found, columns=["rate", "L", "step", "value"])


def figure3(request: runs.Request) -> str:
    """How L_F1 falls on breast cancer for five scales, at two learning rates."""
    table = scale_curves(request.told)
    runs.write(table, request.out, {"figure": 3, "dataset": "breast-cancer", "loss": "L_F1"})
    picture = request.out.with_suffix(".svg")

    def draw(axes: Any, rate: float) -> None:
        for scale, part in table[table["rate"] == rate].groupby("L"):
            axes.plot(part["step"][::2], part["value"][::2], label=f"L = {scale}", linewidth=1.2)
        axes.set(title=f"learning rate {rate:g}", xlabel="step", ylim=(0, 1))
        if rate == RATES[0]:
            axes.legend(fontsize=8, frameon=False, loc="center right")

    _draw(picture, list(RATES), draw, "loss")
    last = table[table["step"] == STEPS - 1].pivot(index="L", columns="rate", values="value")
    lines = [(str(L), *(f"{row[rate]:.4f}" for rate in RATES)) for L, row in last.iterrows()]
    return "\n".join(
        [
            "AnyLoss, Figure 3: learning curves by L (L_F1, breast cancer; the paper's data set,",
            "loss and learning rate are not said)",
            "",
            columns(("L", *(f"last loss, rate {rate:g}" for rate in RATES)), lines),
            "",
            "L = 100 stops at once at learning rate 1, as in the paper, but so does the paper's",
            "own 73; at 0.01 both are the best. The numbers are computed stably: the stop comes",
            "from saturation after too long a step, not from values rounded to 0 or 1.",
            f"picture: {picture}",
        ]
    )


def figure4(request: runs.Request) -> str:
    """The sign test as stacked bars, by the authors' scores and by ours, at both ropes.

    What table15 and table16 have run beside the output is not run again.
    """
    folder, _ = many_sets.sets(request.folder, request.quick)
    beside = request.out.with_name
    ours = {
        "SLP": many_sets.table15(
            folder, request.quick, beside("reproduce-table15.csv"), request.told
        ),
        "MLP": many_sets.table16(
            folder, request.quick, beside("reproduce-table16.csv"), request.told
        ),
    }
    parts = []
    for model, table in ours.items():
        every = authors_scores(folder, model).rename(columns={"table14": "dataset"})
        parts += [
            many_sets.results(every, "score", f"{model}, paper"),
            many_sets.results(table, "ours", f"{model}, ours"),
        ]
    found = pd.concat(parts, ignore_index=True)
    found["dataset"] = found["dataset"].astype(str)
    runs.write(found, request.out, {"figure": 4, "ropes": ROPES})
    pictures = [request.out.with_name(f"{request.out.stem}-rope{rope:g}.svg") for rope in ROPES]
    for rope, picture in zip(ROPES, pictures, strict=True):
        winning_probabilities(found, picture, ours=many_sets.OURS, rope=rope)
    return "\n".join(
        [
            "AnyLoss, Figure 4: probabilities of winning, drawing and losing (also in table15, 16)",
            *(f"picture: {picture}" for picture in pictures),
        ]
    )


def figure5(request: runs.Request) -> str:
    """The learning curves behind Table 9: cross-entropy, and the six losses of AnyLoss."""
    names = asked(request)
    table, absent = curves.curves(names, request.folder, request.out, request.told)
    runs.write(table, request.out, figures="Figure 5", absent=absent)
    picture = request.out.with_suffix(".svg")

    def draw(axes: Any, name: str) -> None:
        for loss, part in table[table["dataset"] == name].groupby("loss", sort=False):
            bce = loss == "BCE"
            axes.plot(
                part["epoch"], part["value"], color=RED if bce else BLUE,
                linewidth=1.5 if bce else 0.8, label=loss if bce else None,
            )  # fmt: skip
        axes.plot([], [], color=BLUE, label="AnyLoss")
        axes.set(title=name, xlabel="epoch", ylim=(0, 1))
        axes.legend(fontsize=8, frameon=False)

    _draw(picture, list(table["dataset"].unique()), draw, "loss")
    return "\n".join(
        [
            "AnyLoss, Figure 5: learning curves of BCE and AnyLoss (numbers: table9)",
            *not_at_hand(absent),
            f"picture: {picture}",
        ]
    )


def _draw(path: Path, panels: list[Any], draw: Callable[[Any, Any], None], label: str) -> None:
    """A row of panels with one vertical axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(panels), 2.8), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(grid, panels, strict=True):
        draw(axes, panel)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    grid[0].set_ylabel(label)
    save_figure(figure, path)
