"""What public code does otherwise than the papers, kept to reproduce its numbers; off unless asked for."""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.debias.core.setting import Batch, Setting


def clicks_of_batch(batch_size: int, ratio: float) -> int:
    """Rows of O in a batch whose size counts them together with their ``ratio`` cells of D."""
    return max(1, round(batch_size / (1.0 + ratio)))


def averaged_together(clicked: Tensor, imputed: Tensor, ratio: float) -> Tensor:
    """mean_{B_O} clicked · s + mean_{B_D} imputed · (1 − s): |O|/|D| is taken for s = 1/(1 + ratio)."""
    share = 1.0 / (1.0 + ratio)
    return share * clicked.mean(-1) + (1.0 - share) * imputed.mean(-1)


def noisy_imputation(setting: Setting, batch: Batch) -> Tensor:
    """b with its dropout on, without gradient.

    Both terms of a click must see the same noise: what the loss read of a batch is kept until its end.
    """
    if setting.imputed is None or setting.imputed[0] is not batch:
        with torch.no_grad():
            setting.imputed = batch, setting.logit(batch, "imputation")
    return setting.imputed[1]
