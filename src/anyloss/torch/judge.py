"""Validation rows for `refine`: the best decision rule of logits, and their scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anyloss._core.backend import Array
from anyloss.recipe.skeleton import HeldOutScores
from anyloss.recipe.target import RESAMPLES, Target, new_target
from anyloss.steps import Uniform
from anyloss.torch.loss import AnyLoss
from anyloss.torch.refined import shifted
from anyloss.torch.rows import Labels, Rows, collect, gather
from anyloss.torch.sync import ranks

TUNED_NUMBERS = 2**22  # logits that a decision rule is tuned on, at most
CUTS = 16  # candidates of a threshold per class and label, where samples are counted apart


class Judge:
    """Validation rows: the best decision rule of logits, and their scores.

    With several ranks all of them must call each method, and all get the same result.
    """

    def __init__(self, loss: AnyLoss, labels: Labels, priors: Sequence[float] | None) -> None:
        lay, options = labels.layout, loss.settings.options
        self.labels, self.factors = labels, labels.to_priors(priors)
        empty = np.zeros((1, lay.classes))  # until logits are given
        self.target = new_target(empty, loss.settings.metric, lay.task, lay.average)

        def scorer(from_logits: bool) -> AnyLoss:
            return AnyLoss(
                loss.settings.metric, from_logits=from_logits, step=Uniform(),
                average=lay.average, task=lay.task,  # type: ignore[arg-type]
                per_sample=options.per_sample, ignore_index=options.ignore_index, sync=True,
            )  # fmt: skip

        self.decided, self.soft = scorer(from_logits=False), scorer(from_logits=True)

    def rows(self, model: nn.Module, loader: Iterable[Any]) -> Rows:
        """The logits of a model on all rows of a loader, weighted to the priors."""
        found = collect(model, loader, self.labels)
        if self.factors is None:
            return found
        flat = self.labels._replace(axes=found.z.ndim, ignore_index=None)
        return found._replace(weight=flat.weigh(found.y, found.weight, self.factors))

    @torch.no_grad()
    def scores(self, rows: Rows, threshold: Tensor) -> HeldOutScores:
        """The metric of the hard decisions and of the probabilities at a threshold."""
        rows = rows._replace(z=shifted(rows.z, threshold.to(rows.z)))
        return HeldOutScores(self._score(rows), float(self.soft.soft_score(*rows)))

    def _score(self, rows: Rows) -> float:
        """The metric of decisions, at exactly 0 or by arg-max."""
        z, lay = rows.z, self.labels.layout
        if lay.task == "multiclass":
            z = torch.zeros_like(z).scatter_(1, z.argmax(1, keepdim=True), 1.0)
        else:
            z = (z > 0).to(z)
        return float(self.decided.score(z, rows.y, rows.weight))

    def constant_score(self, rows: Rows) -> float:
        """The metric of the best constant decision."""
        lay, found = self.labels.layout, []
        if lay.task == "multiclass":
            decisions = list(torch.eye(lay.classes))
        else:
            decisions = [torch.full((lay.classes,), sign) for sign in (1.0, -1.0)]
        for each in decisions:
            z = shifted(torch.zeros_like(rows.z), -each.to(rows.z))
            found.append(self._score(rows._replace(z=z)))
        return max(found)

    def are_probabilities(self, rows: Rows) -> bool:
        """Whether what the model returned for these rows looks like probabilities."""
        within = bool(((rows.z >= 0) & (rows.z <= 1)).all())
        if self.labels.layout.task != "multiclass":
            return within and bool(rows.z.any())  # zeros are an untrained last layer
        return within and bool(((rows.z.sum(1) - 1).abs() < 1e-3).all())

    def threshold(self, rows: Rows) -> Tensor:
        """The threshold of each class for the metric, in turn where there are several.

        It is the mean of the best thresholds of resampled rows, of which there are fewer where
        there are many logits; those of several labels are shrunk towards a shared one. Of more than
        `TUNED_NUMBERS` logits some are drawn with a fixed seed.
        """
        if self.labels.layout.per_sample:
            return self._threshold_of_samples(rows)
        target, z, resamples = self._tuned(rows)
        return self._like(rows, target.steady_offsets(z, resamples))

    def thresholds(self, rows: Rows, trained: Tensor) -> list[Tensor]:
        """The thresholds of a model that was trained at one, those preferred first."""
        if self.labels.layout.per_sample:
            return [self._threshold_of_samples(rows)]
        target, z, resamples = self._tuned(rows)
        found = target.refined_offsets(z, trained.double().cpu().numpy(), resamples)
        return [self._like(rows, each) for each in found]

    def _like(self, rows: Rows, offsets: Array) -> Tensor:
        return torch.tensor(offsets, dtype=rows.z.dtype, device=rows.z.device)

    def _tuned(self, rows: Rows) -> tuple[Target, Array, int]:
        """The labels and the logits that thresholds are tuned on, and how many resamples."""
        z, y, w = self._drawn(rows)
        lay = self.labels.layout
        one_hot = F.one_hot(y.long(), lay.classes) if lay.task == "multiclass" else y
        columns, weight = one_hot.reshape(len(z), -1).double().numpy(), w.double().numpy()
        target = self.target._replace(y=columns, weight=weight)
        resamples = max(0, min(RESAMPLES, TUNED_NUMBERS // max(1, z.numel()) - 1))
        return target, z.reshape(len(z), -1).numpy(), resamples

    def _drawn(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of all ranks, on the CPU."""
        most = TUNED_NUMBERS // (self.labels.layout.classes * ranks(True, None))
        weight = (
            torch.ones(len(rows.y), device=rows.y.device) if rows.weight is None else rows.weight
        )
        parts: list[Tensor] = [rows.z, rows.y, weight]
        if len(rows.y) > most:
            drawn = torch.randint(len(rows.y), (most,), generator=torch.Generator().manual_seed(0))
            parts = [x[drawn.to(x.device)] for x in parts]
        z, y, w = (gather(x).cpu() for x in parts)
        return z, y, w

    def _threshold_of_samples(self, rows: Rows) -> Tensor:
        """Candidates are quantiles of the logits of each class, scored on a part of each map."""
        lay, positions = self.labels.layout, rows.z.shape[2]
        most = max(1, TUNED_NUMBERS // max(1, len(rows.z) * lay.classes))
        if positions > most:
            drawn = torch.randint(positions, (most,), generator=torch.Generator().manual_seed(0))
            z, y, w = rows
            drawn = drawn.to(z.device)
            w = w[..., drawn] if w is not None and w.ndim > 1 else w
            rows = Rows(z[..., drawn], y[..., drawn], w)
        threshold, best = rows.z.new_zeros(lay.classes), self._score(rows)
        for k in range(lay.classes):
            at, cuts = threshold.clone(), self._cuts(rows, threshold, k)
            for _ in range(2):  # quantiles, then the range around the best of them
                reached = [self._score_at(rows, at, k, cut) for cut in cuts.tolist()]
                top = int(np.argmax(reached))
                if reached[top] > best:
                    best, threshold = reached[top], at.clone()
                    threshold[k] += cuts[top]
                low, high = cuts[max(0, top - 1)], cuts[min(len(cuts) - 1, top + 1)]
                cuts = low + (high - low) * torch.linspace(0, 1, CUTS).to(cuts)
        return threshold

    def _score_at(self, rows: Rows, threshold: Tensor, k: int, cut: float) -> float:
        moved = threshold.clone()
        moved[k] += cut
        return self._score(rows._replace(z=shifted(rows.z, moved)))

    def _cuts(self, rows: Rows, threshold: Tensor, k: int) -> Tensor:
        """Quantiles of how far class `k` is ahead, of its own positions and of the others."""
        lay, z, y = self.labels.layout, shifted(rows.z, threshold), rows.y
        counts, margin = self.labels.full_weight(y, rows.weight) > 0, z[:, k]
        if lay.task == "multiclass":
            others = torch.arange(lay.classes, device=z.device) != k
            margin, own = margin - z[:, others].amax(1), y == k
        else:
            own, counts = y[:, k] == 1, counts[:, k]
        levels, found = torch.linspace(0, 1, CUTS, dtype=torch.float64), []
        for which in (own & counts, ~own & counts):
            part = gather(margin[which]).double().cpu().numpy()
            if len(part):
                found.append(torch.from_numpy(np.quantile(part, levels.numpy())))
        cuts: Tensor = torch.unique(torch.cat(found)).to(z)
        return cuts
