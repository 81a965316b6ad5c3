"""Figures of a benchmark's results. matplotlib is imported when a figure is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anyloss.benchmark.statistics import check_results, versus

SUFFIXES = (".svg", ".png")
# Vermilion, grey and blue of Okabe and Ito, which colour-blind readers can distinguish. Their
# lightness differs as well, for print.
COLOURS = {"lose": "#D55E00", "draw": "#D0D0D0", "win": "#0072B2"}
LABELS = {"lose": "{} loses", "draw": "draw", "win": "{} wins"}


def winning_probabilities(
    results: Any, path: Path | str, ours: str = "anyloss", rope: float = 0.01
) -> None:
    """Draw the probabilities of losing, drawing and winning against each baseline, as SVG or PNG.

    There is a row of panels per model, a panel per metric and a stacked bar per baseline (the
    Bayesian sign test), as in Figure 4 of AnyLoss. The baselines have the same order in all panels,
    the strongest first. A baseline without results has no bar.

    >>> winning_probabilities(None, "figure.bmp")
    Traceback (most recent call last):
        ...
    ValueError: the figure must be a .svg or .png file; got 'figure.bmp'
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"the figure must be a .svg or .png file; got {path.name!r}")
    bars = _bars(results, ours, rope)
    models, metrics = (list(results[column].unique()) for column in ("model", "metric"))
    save_figure(_draw(bars, models, metrics, ours), path)


def save_figure(figure: Any, path: Path) -> None:
    """Write a matplotlib figure as SVG or PNG. The same figure gives the same bytes."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
    with matplotlib.rc_context({"svg.hashsalt": "anyloss"}):
        figure.savefig(path, dpi=150, metadata=metadata)


def _bars(results: Any, ours: str, rope: float) -> dict[str, Any]:
    """The probabilities by (model, metric) for each baseline, the strongest baseline first."""
    check_results(results, ours)
    others = [method for method in results["method"].unique() if method != ours]
    found = {baseline: versus(results, ours, baseline, rope) for baseline in others}
    bars = {baseline: table for baseline, table in found.items() if len(table)}
    if not bars:
        raise ValueError(f"no method shares data sets with {ours!r}; there are {[ours, *others]}")
    strongest = sorted(bars, key=lambda x: float((bars[x].p_win - bars[x].p_lose).mean()))
    return {baseline: bars[baseline] for baseline in strongest}


def _draw(bars: dict[str, Any], models: list[str], metrics: list[str], ours: str) -> Any:
    """The figure: a row of panels per model, a panel per metric."""
    from matplotlib.figure import Figure

    width = max(1.8, 0.5 + 0.19 * len(bars))
    height = 1.1 + 1.9 * len(models) + 0.075 * max(map(len, bars))  # for vertical names
    size = (max(5.0, 0.7 + width * len(metrics)), height)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(models), len(metrics), sharex=True, sharey=True, squeeze=False)
    for row, model in enumerate(models):
        for column, metric in enumerate(metrics):
            _panel(grid[row, column], bars, (model, metric))
            if row == 0:
                grid[row, column].set_title(metric, fontsize=10)
        grid[row, 0].set_ylabel(f"{model}\nprobability", fontsize=9)
    handles, names = grid[0, 0].get_legend_handles_labels()
    names = [LABELS[name].format(ours) for name in names]
    figure.legend(handles, names, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


def _panel(axes: Any, bars: dict[str, Any], pair: tuple[str, str]) -> None:
    """Draw the bars of one (model, metric)."""
    places = range(len(bars))
    bottom = [0.0] * len(bars)
    for outcome, colour in COLOURS.items():
        heights = [
            float(table.loc[pair, f"p_{outcome}"]) if pair in table.index else 0.0
            for table in bars.values()
        ]
        axes.bar(places, heights, 0.8, bottom, color=colour, label=outcome)
        bottom = [low + high for low, high in zip(bottom, heights, strict=True)]
    axes.axhline(0.5, color="black", linewidth=0.6, linestyle=":")
    axes.set(xlim=(-0.6, len(bars) - 0.4), ylim=(0, 1), yticks=(0, 0.5, 1))
    axes.set_xticks(places, list(bars), rotation=90, fontsize=8)
    axes.tick_params(axis="y", labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
