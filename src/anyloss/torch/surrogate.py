"""The surrogate F-beta loss of Lee, Yang and Yoo (2021): a cross-entropy with a metric's slope."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from anyloss._core.shapes import Options
from anyloss.torch.batch import BACKENDS, make_batch


class SurrogateFBetaLoss(nn.Module):
    """The mean of `-y log p + (1 - y) log(k + p)`, with `k = beta^2 prior / (1 - prior)`.

    A mean over rows, so that small batches do not bias it. With balanced classes its gradient
    follows that of F-beta on a large sample; with rare positives only the sum of the means of the
    two classes does (`python -m papers surrogate-paths`). `prior` is the share of positives in the
    *training set*, not in the batch. The loss can be below 0. The formula was taken from an
    independent implementation that cites the paper (qtwang/iEDeaL); the paper's own equation was
    not seen.

    >>> loss = SurrogateFBetaLoss(prior=0.2)
    >>> round(loss(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0])).item(), 4)
    0.2027
    """

    def __init__(
        self, beta: float = 1.0, *, prior: float, from_logits: bool = True, validate: bool = True
    ) -> None:
        super().__init__()
        if not beta > 0:
            raise ValueError(f"beta must be a positive number; got {beta!r}")
        if not 0 < prior < 1:
            raise ValueError(
                "prior must be the share of positives in the training set, strictly between 0 and "
                f"1; got {prior!r}"
            )
        self.k = beta**2 * prior / (1 - prior)
        self.options = Options(from_logits=from_logits, task="binary", validate=validate)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        batch = make_batch(input, target, None, self.options)
        z, y = batch.scores, batch.target
        if self.options.from_logits:
            p, minus_log_p = torch.sigmoid(z), softplus(-z)
        else:
            p, minus_log_p = z, -torch.log(z.clamp_min(BACKENDS[z.dtype].tiny))
        rows = y * minus_log_p + (1 - y) * torch.log(self.k + p)
        loss = (rows / max(1, rows.numel())).sum()  # a mean that does not overflow on the way
        if batch.checked and not torch.isfinite(loss.detach()):
            raise ValueError(f"input must hold finite numbers; the loss came out as {loss.item()}")
        return loss
