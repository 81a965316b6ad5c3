"""The recipe of `refine` without its loop, so that the loop of any library can use it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from anyloss.recipe.selection import Candidate, Selection
from anyloss.recipe.skeleton import HeldOutScores
from anyloss.torch.batch import entropy_sums, read_batch
from anyloss.torch.judge import Judge
from anyloss.torch.loss import AnyLoss
from anyloss.torch.refined import Epoch, RefinedModule, logits_of, shifted
from anyloss.torch.rows import Rows, batches, read_labels
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
from anyloss.torch.sync import CROSS_ENTROPY, pooled


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
        self.selection: Selection | None = None
        self.history = list[Epoch]()

    def state_dict(self) -> dict[str, Any]:
        """What was found so far, in plain tuples."""
        found: dict[str, Any] = {"history": [tuple(epoch) for epoch in self.history]}
        if self.selection is None:
            return found | {"kept": []}
        kept = [each for each in (self.selection.start, self.selection.best) if each is not None]
        plain = [(each.weights, each.threshold.cpu(), tuple(each.scores)) for each in kept]
        return found | {"kept": plain, "waited": self.selection.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.history = [Epoch(*each) for each in state["history"]]
        kept = [Candidate(w, at, HeldOutScores(*scores)) for w, at, scores in state["kept"]]
        if kept:
            best = kept[1] if len(kept) > 1 else None
            self.selection = Selection(kept[0], best, state["waited"])

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
        weight = self.labels.weigh(y, weight, self.factors)
        z = shifted(z, self._begun.start.threshold.to(z))
        missing: Tensor = self.metric_loss(z, y, weight)
        soft_score = 1 - missing.detach()
        if self.cross_entropy:
            missing = missing + self.cross_entropy * self._entropy(z, y, weight, self.balance)
        return missing, soft_score

    def criterion(self, input: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss as a criterion: of the model's output, as it is, and labels."""
        given = (None, target) if weight is None else (None, target, weight)
        return self.loss(logits_of(input), *self.labels.read(given))[0]

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

    @property
    def _begun(self) -> Selection:
        assert self.selection is not None, "begin() comes first"
        return self.selection

    def begin(self, advice: str = "write start_epochs=20 to train it by cross-entropy") -> None:
        """Judge the start; warn with an advice if it looks untrained."""
        same_buffers(inner(self.model))
        rows = self._rows(self.model)
        start = self._candidate(rows, snapshot(self.model))
        self.selection = Selection(start)
        constant = self.judge.constant_score(rows)
        if start.scores.hard <= constant:
            warnings.warn(
                f"the start has a score of {start.scores.hard:.4f}, no better than a constant "
                f"decision ({constant:.4f}), as if it were untrained; train the model first, or "
                + advice,
                UserWarning,
                stacklevel=3,
            )

    def end_epoch(self) -> float:
        """Judge the refined model and keep the best one; its score, NaN without `valid`.

        Without `valid` the last one is kept, because training rows cannot show that refining went
        too far.
        """
        if self.valid is None:
            same_buffers(inner(self.model))
            self._begun.best = self._begun.start._replace(weights=snapshot(self.model))
            return math.nan
        found = self.judged()
        self._begun.offer(found)
        return found.scores.hard

    def finish(self, ensemble: bool = False) -> RefinedModule:
        """Load the weights with the best scores into the model, and return it as a module."""
        pair: RefinedModule | None = None

        def mean(start: Candidate, best: Candidate) -> Candidate:
            nonlocal pair
            if not ensemble:
                return self._mean(start, best)
            pair = self._pair(start, best)
            return self._candidate(self._rows(pair), {})

        begun, task = self._begun, self.labels.layout.task
        share, chosen = begun.choose(mean, guarded=self.valid is not None)
        if pair is None or share != 0.5:
            restore(self.model, chosen.weights)
            pair = RefinedModule([inner(self.model)], chosen.threshold, task)
        pair.threshold_ = chosen.threshold.to(next(self.model.parameters()).device)
        pair.share, pair.history = share, self.history
        pair.start_score, pair.end_score = begun.start.scores.hard, chosen.scores.hard
        pair.scored_on = "training rows" if self.valid is None else "validation rows"
        return pair.eval()

    def _mean(self, start: Candidate, best: Candidate) -> Candidate:
        """The mean of the started and the refined weights; batch norms are estimated again."""
        restore(self.model, mean_weights(start.weights, best.weights))
        estimate_statistics(self.model, self.norms, (each[0] for each in batches(self.loader)))
        return self.judged()

    def _pair(self, start: Candidate, best: Candidate) -> RefinedModule:
        """The started and the refined model; the first one is a copy."""
        restore(self.model, best.weights)
        started = deepcopy(inner(self.model))
        restore(started, start.weights)
        zero = torch.zeros_like(start.threshold)
        return RefinedModule([started, inner(self.model)], zero, self.labels.layout.task)
