"""The loss that chooses the epoch: on held-out clicks, or on a log of the user's own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.backbones import Network
from unskew.debias.core.observed import Observed
from unskew.log import Log
from unskew.training import cross_entropy
from unskew.training.inference import logits


def validation_loss(
    prediction: Network,
    data: Observed,
    held_out: Tensor,
    log: Log,
    validation: Log | None,
    *,
    weighted: bool,
) -> Callable[[], Tensor] | None:
    """Σ w·CE(r, r̂) / Σ w of each replica ``[R]``, as the network is when it is called.

    Parameters
    ----------
    held_out
        Positions in O that trained nothing, ``[R, n]``; with none of them there is no such loss.
    validation
        A log to take instead, unweighted; its ids must be those of ``log``.
    weighted
        w = 1/p where propensities were given; else w = 1.
    """
    if validation is not None:
        clicks = validation.take(validation.clicked)
        user = _on(log.users.recode(clicks.user, clicks.users), data.device)
        item = _on(log.items.recode(clicks.item, clicks.items), data.device)
        conversion = torch.as_tensor(clicks.known_conversion(), device=data.device)[None]
        weight = torch.ones_like(conversion)
    elif held_out.shape[1] == 0:
        return None
    else:
        batch = data.observed(held_out)
        user, item, conversion = batch.user, batch.item, batch.conversion
        plain = data.propensity is None or not weighted
        weight = torch.ones_like(conversion) if plain else 1.0 / batch.propensity

    def weighted_cross_entropy() -> Tensor:
        logit = logits(prediction, user, item, tower="prediction")
        return (weight * cross_entropy(conversion, logit)).sum(1) / weight.sum(1)

    return weighted_cross_entropy


def _on(codes: NDArray[np.int32], device: torch.device) -> Tensor:
    return torch.as_tensor(codes.astype(np.int64), device=device)[None]
