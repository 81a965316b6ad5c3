"""AnyLoss's Figures 2 to 5, drawn from our own numbers, which are written to a CSV file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import anyloss
from anyloss.benchmark.plots import save_figure, winning_probabilities
from anyloss.steps import Amplified
from papers import learning_curves, many_sets, runs, slp
from papers.data import breast_cancer
from papers.four_sets import missing_lines
from papers.many_sets_report import ROPES
from papers.published import authors_scores
from papers.text_tables import text_table

RED, BLUE = "#D55E00", "#0072B2"
SCALES, RATES, STEPS = (1, 5, 10, 73, 100), (1.0, 0.01), 300  # of Figure 3


def figure2(request: runs.Request) -> str:
    """Draw the soft decision A(p) for L = 5 and L = 100; compare the paper's two points."""
    p = np.linspace(0, 1, 101)
    table = pd.DataFrame(
        [
            {"L": L, "p": x, "value": value}
            for L in (5, 100)
            for x, value in zip(p, Amplified(L).value(p), strict=True)
        ]
    )
    runs.write(table, request.out, {"figure": 2})
    image = request.out.with_suffix(".svg")

    def draw(axes: Any, L: int) -> None:
        part = table[table["L"] == L]
        axes.plot(part["p"], part["value"], color=BLUE)
        axes.plot(part["p"], part["p"], color="grey", linewidth=0.8, linestyle=":")
        at = 0.1 if L == 5 else 0.9
        value = float(Amplified(L).value(at))
        axes.plot(at, value, "o", color=RED)
        axes.annotate(f"({at}, {value:.2f})", (at, value), (0.6, 0.85) if L > 5 else (0.3, 0.1))
        axes.set(title=f"L = {L}", xlabel="p")

    _draw(image, [5, 100], draw, "A(p)")
    request.on_progress(1, 1, "figure2")
    rows = [
        ("5", "0.1", "0.12", f"{Amplified(5).value(0.1):.2f}"),
        ("100", "0.9", "1.0", f"{1 / (1 + np.exp(-100 * 0.4)):.1f}"),
    ]
    return "\n".join(
        [
            "AnyLoss, Figure 2: the soft decision with a small and with a large L",
            "",
            text_table(("L", "p", "published A(p)", "ours"), rows),
            "",
            f"At 0.9 the plain formula is exactly 1 in float64; computed stably, 1 - A(0.9) is "
            f"{Amplified(100).mirror(0.9):.1e}",
            f"figure: {image}",
        ]
    )


def learning_curve(X: Any, y: Any, scale: float, rate: float, epochs: int) -> list[float]:
    """L_F1 of a perceptron on all rows, before each plain gradient step."""
    w, found = np.zeros(X.shape[1]), []
    for _ in range(epochs):
        score, gradient = anyloss.gradient(y, X @ w, "f1", Amplified(scale), from_logits=True)
        found.append(1 - float(score))
        w += rate * (X.T @ gradient)
    return found


def scale_curves(on_progress: runs.ProgressCallback = runs.no_progress) -> Any:
    """Tidy: rate, L, step and value, on breast cancer."""
    rows = breast_cancer()
    X, found = slp.with_intercept(rows.X), []
    for done, rate in enumerate(RATES):
        on_progress(done, len(RATES), f"rate {rate}")
        for scale in SCALES:
            values = learning_curve(X, rows.y, scale, rate, STEPS)
            found += [(rate, scale, step, value) for step, value in enumerate(values)]
    on_progress(len(RATES), len(RATES), "")
    return pd.DataFrame(found, columns=["rate", "L", "step", "value"])


def figure3(request: runs.Request) -> str:
    """Draw how L_F1 decreases on breast cancer for five scales, at two learning rates."""
    table = scale_curves(request.on_progress)
    runs.write(table, request.out, {"figure": 3, "dataset": "breast-cancer", "loss": "L_F1"})
    image = request.out.with_suffix(".svg")

    def draw(axes: Any, rate: float) -> None:
        for scale, part in table[table["rate"] == rate].groupby("L"):
            axes.plot(part["step"][::2], part["value"][::2], label=f"L = {scale}", linewidth=1.2)
        axes.set(title=f"learning rate {rate:g}", xlabel="step", ylim=(0, 1))
        if rate == RATES[0]:
            axes.legend(fontsize=8, frameon=False, loc="center right")

    _draw(image, list(RATES), draw, "loss")
    last = table[table["step"] == STEPS - 1].pivot(index="L", columns="rate", values="value")
    lines = [(str(L), *(f"{row[rate]:.4f}" for rate in RATES)) for L, row in last.iterrows()]
    return "\n".join(
        [
            "AnyLoss, Figure 3: learning curves by L (L_F1, breast cancer; the paper does not name",
            "its data set, loss and learning rate)",
            "",
            text_table(("L", *(f"last loss, rate {rate:g}" for rate in RATES)), lines),
            "",
            "At learning rate 1, L = 100 stops learning at once, as in the paper, but so does the",
            "paper's own L = 73. At 0.01 both are best. The numbers are computed stably: learning",
            "stops by saturation after too long a step, and not by rounding to 0 or 1.",
            f"figure: {image}",
        ]
    )


def figure4(request: runs.Request) -> str:
    """Draw the sign test as stacked bars, by the authors' scores and by ours, at both ropes.

    Results of table15 and table16 in the folder of the output are not computed again.
    """
    folder, _ = many_sets.rebuilt_sets(request.folder, request.quick)

    def request_for(table: str) -> runs.Request:
        return request._replace(out=request.out.with_name(f"reproduce-{table}.csv"))

    ours = {
        "SLP": many_sets.table15(request_for("table15")),
        "MLP": many_sets.table16(request_for("table16")),
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
    images = [request.out.with_name(f"{request.out.stem}-rope{rope:g}.svg") for rope in ROPES]
    for rope, image in zip(ROPES, images, strict=True):
        winning_probabilities(found, image, ours=many_sets.OURS, rope=rope)
    return "\n".join(
        [
            "AnyLoss, Figure 4: probabilities of winning, drawing and losing (numbers: table15 and",
            "table16)",
            *(f"figure: {image}" for image in images),
        ]
    )


def figure5(request: runs.Request) -> str:
    """Draw the learning curves of Table 9: cross-entropy, and the six losses of AnyLoss."""
    table, missing = learning_curves.curves(request)
    runs.write(table, request.out, figures="Figure 5", absent=missing)
    image = request.out.with_suffix(".svg")

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

    _draw(image, list(table["dataset"].unique()), draw, "loss")
    return "\n".join(
        [
            "AnyLoss, Figure 5: learning curves of BCE and AnyLoss (numbers: table9)",
            *missing_lines(missing),
            f"figure: {image}",
        ]
    )


def _draw(path: Path, panels: list[Any], draw: Callable[[Any, Any], None], label: str) -> None:
    """Draw a row of panels with a common vertical axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(panels), 2.8), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(grid, panels, strict=True):
        draw(axes, panel)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    grid[0].set_ylabel(label)
    save_figure(figure, path)
