"""The loss of held-out rows that chooses the epoch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.data import Rows
from unskew.learners import Network
from unskew.training.inference import logits
from unskew.training.means import cross_entropy, weighted_mean

NEWTON_STEPS = 12
"""Of at most 1 each: enough to move a level by a factor of 10⁵."""


@dataclass(frozen=True)
class ValidationLoss:
    """Σ w·CE(r, r̂) / Σ w of each replica ``[R]``, as the network is when it is called: it chooses the epoch.

    Its rows trained nothing: ``[R, n]``, or ``[1, n]`` for all replicas.
    """

    prediction: Network
    rows: Rows
    conversion: Tensor
    weight: Tensor
    level: bool = True
    """False judges scores that are not meant as rates: after the shift of their logits that suits best."""

    def __call__(self) -> Tensor:
        """Return the loss of the present weights."""
        return self.of_logit(self.logit())

    def logit(self) -> Tensor:
        """Return the logits ``[R, n]`` of its rows."""
        return logits(self.prediction, self.rows, tower="prediction")

    def of_logit(self, logit: Tensor) -> Tensor:
        """Return the loss of logits."""
        if not self.level:
            logit = logit + _best_shift(self.conversion, logit, self.weight)
        return weighted_mean(cross_entropy(self.conversion, logit), self.weight)


def _best_shift(conversion: Tensor, logit: Tensor, weight: Tensor) -> Tensor:
    """Return the b ``[R, 1]`` that minimises Σ w·CE(r, σ(a + b)), by Newton's method."""
    least = torch.finfo(logit.dtype).tiny
    shift = torch.zeros_like(logit[:, :1])
    for _ in range(NEWTON_STEPS):
        p = torch.sigmoid(logit + shift)
        slope = (weight * (p - conversion)).sum(1, keepdim=True)
        curvature = (weight * p * (1.0 - p)).sum(1, keepdim=True).clamp(min=least)
        shift = shift - (slope / curvature).clamp(-1.0, 1.0)
    return shift
