"""The loss that chooses the epoch: on held-out clicks, or on a log of the user's own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.backbones import Network
from unskew.debias.core.observed import Observed
from unskew.log import Log, Rows
from unskew.training import cross_entropy, rows_of
from unskew.training.inference import logits

NEWTON_STEPS = 12
"""Of at most 1 each: enough to move a level by a factor of 10⁵."""


@dataclass(frozen=True)
class ValidationLoss:
    """Σ w·CE(r, r̂) / Σ w of each replica ``[R]``, as the network is when it is called.

    Its rows trained nothing: ``[R, n]``, or ``[1, n]`` for all replicas.
    """

    prediction: Network
    rows: Rows
    conversion: Tensor
    weight: Tensor
    level: bool = True
    """False judges scores that are not meant as rates: after the shift of their logits that suits best."""

    def __call__(self) -> Tensor:
        """The loss of the present weights."""
        logit = logits(self.prediction, self.rows, tower="prediction")
        if not self.level:
            logit = logit + best_shift(self.conversion, logit, self.weight)
        return (self.weight * cross_entropy(self.conversion, logit)).sum(1) / self.weight.sum(1)


def validation_loss(
    prediction: Network,
    data: Observed,
    held_out: Tensor,
    log: Log,
    validation: Log | None,
    *,
    weighted: bool,
    level: bool = True,
) -> ValidationLoss | None:
    """The validation loss of a network.

    Parameters
    ----------
    held_out
        Positions in O that trained nothing, ``[R, n]``; with none of them there is no such loss.
    validation
        A log to take instead, unweighted; its ids must be those of ``log``.
    weighted
        w = 1/p where propensities were given; else w = 1.
    level
        As in :class:`ValidationLoss`.
    """
    if validation is not None:
        clicks = validation.take(validation.clicked)
        user = log.users.recode(clicks.user, clicks.users)
        rows = rows_of(user, log.items.recode(clicks.item, clicks.items), data.device)
        conversion = torch.as_tensor(clicks.known_conversion(), device=data.device)[None]
        return ValidationLoss(prediction, rows, conversion, torch.ones_like(conversion), level)
    if held_out.shape[1] == 0:
        return None
    batch = data.observed(held_out)
    plain = data.propensity is None or not weighted
    weight = torch.ones_like(batch.conversion) if plain else 1.0 / batch.propensity
    return ValidationLoss(prediction, batch.rows, batch.conversion, weight, level)


def best_shift(conversion: Tensor, logit: Tensor, weight: Tensor) -> Tensor:
    """The b ``[R, 1]`` that minimises Σ w·CE(r, σ(a + b)), by Newton's method."""
    least = torch.finfo(logit.dtype).tiny
    shift = torch.zeros_like(logit[:, :1])
    for _ in range(NEWTON_STEPS):
        p = torch.sigmoid(logit + shift)
        slope = (weight * (p - conversion)).sum(1, keepdim=True)
        curvature = (weight * p * (1.0 - p)).sum(1, keepdim=True).clamp(min=least)
        shift = shift - (slope / curvature).clamp(-1.0, 1.0)
    return shift
