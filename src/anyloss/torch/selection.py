"""What decides in `refine`: the decision rule of validation rows, and which weights are used.

Nothing here trains, so that a training loop of any library can use it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anyloss.recipe.skeleton import HeldOutScores, best_share
from anyloss.recipe.target import new_target
from anyloss.steps import Uniform
from anyloss.torch.batch import entropy_sums, read_batch
from anyloss.torch.loss import AnyLoss
from anyloss.torch.refined import Epoch, RefinedModule, shifted
from anyloss.torch.rows import Labels, Rows, batches, collect, gather, read_labels
from anyloss.torch.snapshots import (
    Weights,
    batch_norms,
    estimate_statistics,
    inner,
    mean_weights,
    restore,
    same_buffers,
    snapshot,
)
from anyloss.torch.sync import CROSS_ENTROPY, pooled, ranks

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

    def threshold(self, rows: Rows) -> Tensor:
        """The threshold of each class with the best metric, in turn where there are several.

        It is tuned on at most `TUNED_NUMBERS` logits, which are drawn with a fixed seed.
        """
        if self.labels.layout.per_sample:
            return self._threshold_of_samples(rows)
        z, y, w = self._drawn(rows)
        lay = self.labels.layout
        one_hot = F.one_hot(y.long(), lay.classes) if lay.task == "multiclass" else y
        columns, weight = one_hot.reshape(len(z), -1).double().numpy(), w.double().numpy()
        target = self.target._replace(y=columns, weight=weight)
        offsets, _ = target.offsets(z.reshape(len(z), -1).numpy())
        return torch.tensor(offsets, dtype=rows.z.dtype, device=rows.z.device)

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


class Candidate(NamedTuple):
    """Weights with their threshold, and their scores on the validation rows."""

    weights: Weights
    threshold: Tensor
    scores: HeldOutScores


class Refinement:
    """The recipe without its loop: the loss of a batch, the guard and the selection.

    `begin` is called with the started model, `loss` for each batch, `end_epoch` after each epoch
    and `finish` at the end. With several ranks all of them make the same calls.
    """

    def __init__(
        self, model: nn.Module, loader: Iterable[Any], valid: Iterable[Any] | None, loss: AnyLoss,
        *, cross_entropy: float = 0.1, priors: Sequence[float] | None = None,
        parameters: Sequence[Tensor] | None = None,
    ) -> None:  # fmt: skip
        self.model, self.loader, self.valid = model, loader, valid
        self.metric_loss, self.cross_entropy = loss, cross_entropy
        self.labels = read_labels(model, loader, loss)
        held = self.labels if valid is None else read_labels(model, valid, loss)
        if (held.layout, held.axes) != (self.labels.layout, self.labels.axes):
            raise ValueError(
                f"valid must have the task and classes of loader, {self.labels.layout}; got "
                f"{held.layout}"
            )
        self.factors, self.judge = self.labels.to_priors(priors), Judge(loss, held, priors)
        sums = self.labels.sums
        weighted = sums if self.factors is None else sums * self.factors
        self.balance = self.labels._replace(sums=weighted).balance()
        self.norms = batch_norms(model, parameters)
        self.start: Candidate | None = None
        self.best: Candidate | None = None
        self.waited, self.history = 0, list[Epoch]()

    def state_dict(self) -> dict[str, Any]:
        """What was found so far, in plain tuples."""
        kept = [
            None if each is None else (each.weights, each.threshold.cpu(), tuple(each.scores))
            for each in (self.start, self.best)
        ]
        history = [tuple(epoch) for epoch in self.history]
        return {"kept": kept, "waited": self.waited, "history": history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.start, self.best = (
            each and Candidate(each[0], each[1], HeldOutScores(*each[2])) for each in state["kept"]
        )
        self.waited, self.history = state["waited"], [Epoch(*each) for each in state["history"]]

    @property
    def fixed_norms(self) -> list[nn.Module]:
        """The batch norms that are not trained."""
        return [norm for norm in batch_norms(self.model, None) if norm not in self.norms]

    def start_loss(
        self, balanced: bool, z: Tensor, y: Tensor, weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The loss of a batch of the start, the cross-entropy, and its value."""
        weight = self.labels.weigh(y, weight, self.factors)
        entropy = self._entropy(z, y, weight, self.balance if balanced else None)
        return entropy, entropy.detach()

    def loss(self, z: Tensor, y: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The loss of a batch for the metric, and the soft score in it."""
        assert self.start is not None
        weight = self.labels.weigh(y, weight, self.factors)
        z = shifted(z, self.start.threshold.to(z))
        missing: Tensor = self.metric_loss(z, y, weight)
        soft_score = 1 - missing.detach()
        if self.cross_entropy:
            missing = missing + self.cross_entropy * self._entropy(z, y, weight, self.balance)
        return missing, soft_score

    def _entropy(
        self, z: Tensor, y: Tensor, weight: Tensor | None, balance: Tensor | None
    ) -> Tensor:
        """The mean cross-entropy of the rows of all ranks, class-weighted with a balance."""
        each = self.labels.full_weight(y, weight).to(z)
        own = each if balance is None else each * self.labels.of_class(y, balance).to(z)
        total = entropy_sums(read_batch(z, y, own, self.metric_loss.settings))[0]
        sums, pool = torch.stack([total, each.sum()]), self.metric_loss.pool()
        if pool is not None:
            sums = pooled(pool, CROSS_ENTROPY, sums)
        return sums[0] / sums[1].detach().clamp_min(1e-30)

    def judged(self) -> Candidate:
        """The model as it is, with its best threshold and its scores."""
        same_buffers(inner(self.model))
        return self._candidate(self._rows(self.model), snapshot(self.model))

    def _rows(self, model: nn.Module) -> Rows:
        return self.judge.rows(model, self.loader if self.valid is None else self.valid)

    def _candidate(self, rows: Rows, weights: Weights) -> Candidate:
        threshold = self.judge.threshold(rows)
        return Candidate(weights, threshold, self.judge.scores(rows, threshold))

    def begin(self) -> None:
        """Judge the start; warn if it looks untrained."""
        same_buffers(inner(self.model))
        rows = self._rows(self.model)
        self.start = self._candidate(rows, snapshot(self.model))
        reached, constant = self.start.scores.hard, self.judge.constant_score(rows)
        if reached <= constant:
            warnings.warn(
                f"the start has a score of {reached:.4f}, no better than a constant decision "
                f"({constant:.4f}), as if it were untrained; train the model first, or write "
                "start_epochs=20 to train it by cross-entropy",
                UserWarning,
                stacklevel=3,
            )

    def end_epoch(self) -> float:
        """Judge the refined model and keep the best one; its score, NaN without `valid`.

        Without `valid` the last one is kept, because training rows cannot show that refining went
        too far.
        """
        assert self.start is not None
        if self.valid is None:
            same_buffers(inner(self.model))
            self.best = self.start._replace(weights=snapshot(self.model))
            return math.nan
        found = self.judged()
        better = self.best is None or found.scores > self.best.scores
        self.best, self.waited = (found, 0) if better else (self.best, self.waited + 1)
        return found.scores.hard

    def finish(self, ensemble: bool = False) -> RefinedModule:
        """Load the weights with the best scores into the model, and return it as a module."""
        assert self.start is not None
        tried, pair = {0.0: self.start}, self._pair() if ensemble and self.best else None
        if self.best is not None:
            mean = self._mean() if pair is None else self._candidate(self._rows(pair), {})
            tried = (
                {0.5: mean} | tried if self.valid is None else {1.0: self.best, 0.5: mean} | tried
            )
        least = self.start.scores.hard
        share = best_share(
            {k: each.scores for k, each in tried.items() if each.scores.hard >= least}
        )
        chosen = tried[share]
        if pair is None or share != 0.5:
            restore(self.model, chosen.weights)
            pair = RefinedModule([inner(self.model)], chosen.threshold, self.labels.layout.task)
        pair.threshold_ = chosen.threshold.to(next(self.model.parameters()).device)
        pair.share, pair.history = share, self.history
        pair.start_score, pair.end_score = least, chosen.scores.hard
        pair.scored_on = "training rows" if self.valid is None else "validation rows"
        return pair.eval()

    def _mean(self) -> Candidate:
        """The mean of the started and the refined weights; batch norms are estimated again."""
        assert self.start is not None
        assert self.best is not None
        restore(self.model, mean_weights(self.start.weights, self.best.weights))
        estimate_statistics(self.model, self.norms, (each[0] for each in batches(self.loader)))
        return self.judged()

    def _pair(self) -> RefinedModule:
        """The started and the refined model; the first one is a copy."""
        assert self.start is not None
        assert self.best is not None
        restore(self.model, self.best.weights)
        started = deepcopy(inner(self.model))
        restore(started, self.start.weights)
        task, zero = self.labels.layout.task, torch.zeros_like(self.start.threshold)
        return RefinedModule([started, inner(self.model)], zero, task)
