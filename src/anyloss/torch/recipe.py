"""The recipe of `refine` without its loop, so that the loop of any library can use it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from anyloss._core.scoring import check_number
from anyloss.recipe.priors import log_shares
from anyloss.recipe.selection import Candidate, Selection
from anyloss.recipe.skeleton import HeldOutScores
from anyloss.torch.batch import entropy_sums, read_batch
from anyloss.torch.judge import Judge
from anyloss.torch.loss import AnyLoss
from anyloss.torch.memory import RunningCounts
from anyloss.torch.refined import Epoch, RefinedModule, logits_of, shifted
from anyloss.torch.rows import Rows, batches, read_labels
from anyloss.torch.snapshots import (
    batch_norms,
    estimate_statistics,
    inner,
    mean_weights,
    restore,
    same_buffers,
    snapshot,
)
from anyloss.torch.sync import CROSS_ENTROPY, pooled

MEMORY = 0.98  # of the counts of a batch are kept, at most: about fifty batches


class Refinement:
    """The recipe without its loop: the loss of a batch, the guard and the selection.

    `begin` is called with the started model, `loss` for each batch, `end_epoch` after each epoch
    and `finish` at the end. With several ranks all of them make the same calls.
    """

    def __init__(
        self, model: nn.Module, loader: Iterable[Any], valid: Iterable[Any] | None, loss: AnyLoss,
        *, cross_entropy: float = 1.0, priors: Sequence[float] | None = None,
        parameters: Sequence[Tensor] | None = None,
    ) -> None:  # fmt: skip
        check_number("cross_entropy", cross_entropy)
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
        self.log_shares = torch.from_numpy(
            log_shares(self.labels.sums.numpy(), self.labels.layout.task)
        )
        self.norms = batch_norms(model, parameters)
        if self.labels.batches > 1 and not loss.settings.options.by_sample:
            loss.memory = RunningCounts(min(MEMORY, 1 - 1 / self.labels.batches))
        self.selection: Selection | None = None
        self.history = list[Epoch]()

    def state_dict(self) -> dict[str, Any]:
        """What was found so far, in plain tuples."""
        found: dict[str, Any] = {"history": [tuple(epoch) for epoch in self.history]}
        if self.selection is None:
            return found | {"kept": []}
        kept = [x for x in (self.selection.start, self.selection.refined) if x is not None]
        plain = [(each.weights, each.threshold.cpu(), tuple(each.scores)) for each in kept]
        counts = self.metric_loss.state_dict()
        return found | {"kept": plain, "waited": self.selection.waited, "counts": counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.history = [Epoch(*each) for each in state["history"]]
        kept = [Candidate(w, at, HeldOutScores(*scores)) for w, at, scores in state["kept"]]
        if kept:
            refined = kept[1] if len(kept) > 1 else None
            self.selection = Selection(kept[0], refined, state["waited"])
            self.metric_loss.load_state_dict(state["counts"])

    @property
    def fixed_norms(self) -> list[nn.Module]:
        """The batch norms that are not trained."""
        return [norm for norm in batch_norms(self.model, None) if norm not in self.norms]

    def start_loss(
        self, adjusted: bool, z: Tensor, y: Tensor, weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The loss of a batch of the start, the cross-entropy, and its value."""
        if adjusted:
            entropy = self._adjusted_entropy(z, y, weight)
        else:
            entropy = self._entropy(z, y, self.labels.weigh(y, weight, self.factors))
        return entropy, entropy.detach()

    def loss(self, z: Tensor, y: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The loss of a batch for the metric, and the soft score in it."""
        decided = shifted(z, self._begun.start.threshold.to(z))
        missing: Tensor = self.metric_loss(decided, y, self.labels.weigh(y, weight, self.factors))
        soft_score = 1 - missing.detach()
        if self.cross_entropy:
            missing = missing + self.cross_entropy * self._adjusted_entropy(z, y, weight)
        return missing, soft_score

    def criterion(self, input: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss as a criterion: of the model's output, as it is, and labels."""
        given = (None, target) if weight is None else (None, target, weight)
        return self.loss(logits_of(input), *self.labels.read(given))[0]

    def _adjusted_entropy(self, z: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """The cross-entropy that leaves the frequencies of the classes out of the logits."""
        return self._entropy(shifted(z, -self.log_shares.to(z)), y, weight)

    def _entropy(self, z: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """The mean cross-entropy of the rows of all ranks."""
        each = self.labels.full_weight(y, weight).to(z)
        total = entropy_sums(read_batch(z, y, each, self.metric_loss.settings))[0]
        sums, pool = torch.stack([total, each.sum()]), self.metric_loss.pool()
        if pool is not None:
            sums = pooled(pool, CROSS_ENTROPY, sums)
        return sums[0] / sums[1].detach().clamp_min(1e-30)

    def _rows(self, model: nn.Module) -> Rows:
        return self.judge.rows(model, self.loader if self.valid is None else self.valid)

    @property
    def _begun(self) -> Selection:
        assert self.selection is not None, "begin() comes first"
        return self.selection

    def begin(self, advice: str = "write start_epochs=20 to train it by cross-entropy") -> None:
        """Judge the start; warn with an advice if it looks untrained."""
        same_buffers(inner(self.model))
        rows = self._rows(self.model)
        if self.judge.are_probabilities(rows):
            warnings.warn(
                "the model must return logits; what it returns looks like probabilities: all "
                "numbers are between 0 and 1, and those of several classes sum to 1. Remove the "
                "sigmoid or softmax at its end",
                UserWarning,
                stacklevel=3,
            )
        threshold = self.judge.threshold(rows)
        start = Candidate(snapshot(self.model), threshold, self.judge.scores(rows, threshold))
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

    def end_epoch(self, only_better: bool = False) -> float:
        """Keep the refined model, or the best one so far; its score, NaN without `valid`.

        The score is that at the threshold which it is trained at, to which nothing was fitted.
        """
        same_buffers(inner(self.model))
        rows = None if self.valid is None else self._rows(self.model)
        found = self._begun.start._replace(weights=snapshot(self.model))  # FSDP splits it again
        if rows is None:
            self._begun.refined = found
            return math.nan
        scores = self.judge.scores(rows, found.threshold)
        self._begun.offer(found._replace(scores=scores), only_better)
        return scores.hard

    def finish(self, ensemble: bool = False) -> RefinedModule:
        """Load the weights that are used into the model, and return it as a module."""
        begun, task = self._begun, self.labels.layout.task
        share, chosen = begun.choose(self._tried(ensemble))
        refined = chosen.weights
        if not isinstance(refined, RefinedModule):
            restore(self.model, refined)
            refined = RefinedModule([inner(self.model)], chosen.threshold, task)
        refined.threshold_ = chosen.threshold.to(next(self.model.parameters()).device)
        refined.share, refined.history = share, self.history
        refined.start_score, refined.end_score = begun.start.scores.hard, chosen.scores.hard
        refined.scored_on = "training rows" if self.valid is None else "validation rows"
        return refined.eval()

    def _tried(self, ensemble: bool) -> Iterator[tuple[float, Candidate]]:
        """What may be used, those preferred first, with the share of the refinement in it.

        Without held-out rows the refined weights are not used alone.
        """
        start, refined = self._begun.start, self._begun.refined
        if refined is None:
            return
        if ensemble:
            pair = self._pair(start, refined)
            yield from ((0.5, each) for each in self._judged(pair, pair))
        if self.valid is not None:
            restore(self.model, refined.weights)
            yield from ((1.0, each) for each in self._judged(self.model))
        if not ensemble:
            self._load_mean(start, refined)
            yield from ((0.5, each) for each in self._judged(self.model))

    def _judged(self, model: nn.Module, pair: RefinedModule | None = None) -> Iterator[Candidate]:
        """A refined model with each of its thresholds, those preferred first."""
        same_buffers(inner(model))
        rows = self._rows(model)
        weights = pair or snapshot(model)
        for threshold in self.judge.thresholds(rows, self._begun.start.threshold):
            yield Candidate(weights, threshold, self.judge.scores(rows, threshold))

    def _load_mean(self, start: Candidate, refined: Candidate) -> None:
        """Load the mean of the started and the refined weights; batch norms are estimated again."""
        restore(self.model, mean_weights(start.weights, refined.weights))
        estimate_statistics(self.model, self.norms, (each[0] for each in batches(self.loader)))

    def _pair(self, start: Candidate, refined: Candidate) -> RefinedModule:
        """The started and the refined model; the first one is a copy."""
        restore(self.model, refined.weights)
        started = deepcopy(inner(self.model))
        restore(started, start.weights)
        zero = torch.zeros_like(start.threshold)
        return RefinedModule([started, inner(self.model)], zero, self.labels.layout.task)
