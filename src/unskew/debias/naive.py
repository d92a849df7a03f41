"""Naive: train on what was clicked as if it were everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor
from unskew.debias.method import Batch, Debiaser, Setting
from unskew.training.means import OnRows, PerModel, Space, cross_entropy


@register(order=10)
@dataclass(kw_only=True)
class Naive(Debiaser):
    """L = (1/|O|) Σ_O CE(r, r̂).

    r is ``conversion``, r̂ the prediction. No propensities: biased wherever selection depends on what is
    predicted. It is the yardstick, and the better choice where selection is random.
    """

    name = "naive"
    paper = "—"
    when = "as the yardstick, or where clicks are random"
    with_tables = "weights"

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_B CE(r, r̂)."""
        return naive(observed.conversion, setting.logit(observed))


def naive(conversion: OnRows, logit: OnRows, **space: Any) -> PerModel:
    """L = (1/|O|) Σ_O CE(r, r̂).

    Parameters
    ----------
    conversion, logit
        r and the logit of r̂, of clicks; or of rows of D, with ``click``.
    space
        ``click``, as in :func:`ips`.

    Examples
    --------
    >>> import torch
    >>> naive(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]))
    tensor(1.4100)
    """
    whole = Space(**space)
    return whole.mean_of_clicks(cross_entropy(whole.known(conversion), logit))
