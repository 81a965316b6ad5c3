"""Comparisons of randomised runs with the published figures: means, deviations and best losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from papers.text_tables import signed, text_table

KEYS = ["dataset", "loss", "metric"]
DIGITS = 2  # of the published figures: figures that are equal in these digits are a tie


def with_published(
    scores: Any, paper: Any, losses: Mapping[str, str] = {}, metrics: Mapping[str, str] = {}
) -> Any:
    """Mean and standard deviation over the trials, with the published figure where there is one.

    `losses` and `metrics` map names of ours to the published names that they are compared with, if
    the names differ. Such losses repeat a flaw of the paper and are excluded from the best losses.
    A metric of ours that has one of these published names is not compared.
    """
    grouped = scores.groupby(KEYS, sort=False)["ours"]
    table = grouped.agg(ours="mean", spread="std", trials="count").reset_index()
    table["spread"] = table["spread"].fillna(0.0)
    names = {"loss": losses, "metric": metrics}
    keys = table[KEYS].assign(**{x: table[x].replace(dict(given)) for x, given in names.items()})
    known = paper[[*KEYS, "value"]].rename(columns={"value": "published"})
    not_compared = table["metric"].isin(metrics.values())
    table["published"] = keys.merge(known, on=KEYS, how="left", validate="m:1")["published"]
    table.loc[not_compared, "published"] = float("nan")
    table["difference"] = table["ours"] - table["published"]
    table["clean"] = ~table["loss"].isin(losses)
    return table


def comparison_text(
    title: str, remarks: Sequence[str], table: Any, baseline: str, digits: int = DIGITS
) -> str:
    """A line per figure; then, for each data set and metric, the best losses."""
    rows = [
        (r.dataset, r.loss, r.metric, _shown(r.published, digits),
         f"{r.ours:.{digits}f} ± {r.spread:.{digits}f}", _shown(r.difference, digits, sign=True))
        for r in table.itertuples()
    ]  # fmt: skip
    header = ("data set", "loss", "metric", "published", "ours", "difference")
    known = table[table["published"].notna() & table["clean"]]
    parts = [title, *(f"  {remark}" for remark in remarks), "", text_table(header, rows), ""]
    if len(known):
        parts += [
            "Best losses (all that are equal in the printed digits):", "",
            text_table(("data set", "metric", "paper", "ours"), _best_losses(known, digits)), "",
            *_wins_against(baseline, known),
        ]  # fmt: skip
    return "\n".join(parts).rstrip()


def _shown(x: float, digits: int, *, sign: bool = False) -> str:
    """A figure as text; a missing one is empty."""
    if x != x:
        return ""
    return signed(x, digits) if sign else f"{x:.{digits}f}"


def _best_losses(known: Any, digits: int) -> Iterator[tuple[str, str, str, str]]:
    """Yield data set, metric and the best losses, published and ours."""
    for (dataset, metric), group in known.groupby(["dataset", "metric"], sort=False):
        best = []
        for column in ("published", "ours"):
            shown = group[column].round(digits)
            best.append(" = ".join(group.loc[shown == shown.max(), "loss"]))
        yield dataset, metric, *best


def _wins_against(baseline: str, known: Any) -> Iterator[str]:
    """How often each loss is above the baseline in the paper, and how often here."""
    index = known.set_index(["dataset", "metric", "loss"])[["published", "ours"]]
    base = index.xs(baseline, level="loss")
    for loss in known["loss"].unique():
        if loss == baseline:
            continue
        gap = (index.xs(loss, level="loss") - base).dropna()
        above = gap[gap["published"] > 0]
        yield (
            f"{loss} above {baseline}: {len(above)} of {len(gap)} figures in the paper, "
            f"{int((above['ours'] > 0).sum())} of these here; "
            f"{int((gap['ours'] > 0).sum())} of {len(gap)} here in all"
        )
