"""The surrogate F-beta loss of Lee, Yang and Yoo (2021), a mean over samples."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from anyloss._core.choices import make_options
from anyloss._core.documents import documented
from anyloss.torch.batch import BACKENDS, make_batch


@documented
class SurrogateFBetaLoss(nn.Module):
    """The surrogate F-beta loss, a mean over samples whose gradient approximates that of F-beta.

    The loss is the mean of `-y log p + (1 - y) log(k + p)` with `k = beta^2 s / (1 - s)`.

    It is a mean over samples, so that small batches do not bias it. It can be below 0. With
    balanced classes its gradient follows that of F-beta on a large sample. With rare positives
    only the sum of the means of the two classes does so (`python -m papers surrogate-paths`).

    Args:
        beta (float): the weight of recall relative to precision. Default: 1.
        positive_share (float): the share `s` of positives in the training set (not in the batch),
            strictly between 0 and 1.

    Shape:
        - input: any shape; every number is the score of one sample.
        - target: the shape of the input, with values in [0, 1].
        - output: a scalar.

    Raises:
        ValueError: if `beta` or `positive_share` is out of its range, the shapes differ, or the
            input is not finite.

    Examples:
        >>> loss = SurrogateFBetaLoss(positive_share=0.2)
        >>> round(loss(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0])).item(), 4)
        0.2027

    References:
        N. Lee, H. Yang and H. Yoo, "A surrogate loss function for optimization of F-beta score in
        binary classification with imbalanced data", arXiv:2104.01459, 2021. The formula was taken
        from an independent implementation that cites the paper (github.com/qtwang/iEDeaL); the
        paper's own equation was not available.
    """

    def __init__(
        self, beta: float = 1.0, *, positive_share: float, from_logits: bool = True,
        validate: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if not beta > 0:
            raise ValueError(f"beta must be a positive number; got {beta!r}")
        if not 0 < positive_share < 1:
            raise ValueError(
                "positive_share must be the share of positives in the training set, strictly "
                f"between 0 and 1; got {positive_share!r}"
            )
        self.k = beta**2 * positive_share / (1 - positive_share)
        self.options = make_options(from_logits=from_logits, task="binary", validate=validate)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of a batch, a scalar."""
        batch = make_batch(input, target, None, self.options)
        z, y = batch.scores, batch.target
        if self.options.from_logits:
            p, minus_log_p = torch.sigmoid(z), softplus(-z)
        else:
            p, minus_log_p = z, -torch.log(z.clamp_min(BACKENDS[z.dtype].tiny))
        losses = y * minus_log_p + (1 - y) * torch.log(self.k + p)
        loss = (losses / max(1, losses.numel())).sum()  # the sum of the losses could overflow
        if batch.checked and not torch.isfinite(loss.detach()):
            raise ValueError(f"input must hold finite numbers; got a loss of {loss.item()}")
        return loss
