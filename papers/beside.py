"""Runs with chance in them beside the published figures: means, spread, and who is best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from papers.text import columns, signed

KEYS = ["dataset", "loss", "metric"]
DIGITS = 2  # of the published figures: what is equal in them is a tie


def beside(
    scores: Any, paper: Any, losses: Mapping[str, str] = {}, metrics: Mapping[str, str] = {}
) -> Any:
    """Mean and standard deviation over the trials, and the published figure where there is one.

    `losses` and `metrics` say under which published name one of ours is compared, if not its own;
    those losses repeat a flaw of the paper and take no part in who is best. A metric that lends
    its published figures in this way has none itself.
    """
    grouped = scores.groupby(KEYS, sort=False)["ours"]
    table = grouped.agg(ours="mean", spread="std", trials="count").reset_index()
    table["spread"] = table["spread"].fillna(0.0)
    names = {"loss": losses, "metric": metrics}
    keys = table[KEYS].assign(**{x: table[x].replace(dict(given)) for x, given in names.items()})
    known = paper[[*KEYS, "value"]].rename(columns={"value": "published"})
    lent = table["metric"].isin(metrics.values())
    table["published"] = keys.merge(known, on=KEYS, how="left", validate="m:1")["published"]
    table.loc[lent, "published"] = float("nan")
    table["difference"] = table["ours"] - table["published"]
    table["clean"] = ~table["loss"].isin(losses)
    return table


def beside_text(
    title: str, notes: Sequence[str], table: Any, rival: str, digits: int = DIGITS
) -> str:
    """A line per figure; then, for each data set and metric, which losses are best."""
    rows = [
        (r.dataset, r.loss, r.metric, _shown(r.published, digits),
         f"{r.ours:.{digits}f} ± {r.spread:.{digits}f}", _shown(r.difference, digits, sign=True))
        for r in table.itertuples()
    ]  # fmt: skip
    header = ("data set", "loss", "metric", "published", "ours", "difference")
    known = table[table["published"].notna() & table["clean"]]
    parts = [title, *(f"  {note}" for note in notes), "", columns(header, rows), ""]
    if len(known):
        parts += [
            "Best loss (all that are equal in the printed digits):", "",
            columns(("data set", "metric", "paper", "ours"), _bests(known, digits)), "",
            *_claims(known, rival),
        ]  # fmt: skip
    return "\n".join(parts).rstrip()


def _shown(x: float, digits: int, *, sign: bool = False) -> str:
    if x != x:
        return ""
    return signed(x, digits) if sign else f"{x:.{digits}f}"


def _bests(known: Any, digits: int) -> Iterator[tuple[str, str, str, str]]:
    for (dataset, metric), group in known.groupby(["dataset", "metric"], sort=False):
        best = []
        for column in ("published", "ours"):
            shown = group[column].round(digits)
            best.append(" = ".join(group.loc[shown == shown.max(), "loss"]))
        yield dataset, metric, *best


def _claims(known: Any, rival: str) -> Iterator[str]:
    """How often a loss is above the rival in the paper, and how often here."""
    index = known.set_index(["dataset", "metric", "loss"])[["published", "ours"]]
    base = index.xs(rival, level="loss")
    for loss in known["loss"].unique():
        if loss == rival:
            continue
        gap = (index.xs(loss, level="loss") - base).dropna()
        above = gap[gap["published"] > 0]
        yield (
            f"{loss} above {rival}: {len(above)} of {len(gap)} figures in the paper, "
            f"{int((above['ours'] > 0).sum())} of these here; "
            f"{int((gap['ours'] > 0).sum())} of {len(gap)} here in all"
        )
