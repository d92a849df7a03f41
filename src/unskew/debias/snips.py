"""SNIPS: IPS normalised by the weights of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor
from unskew.debias.ips import IPS
from unskew.debias.method import Batch, Setting
from unskew.training.means import OnRows, PerModel, Space, cross_entropy


@register(order=30)
@dataclass(kw_only=True)
class SNIPS(IPS):
    """L = Σ_B CE(r, r̂)/p / Σ_B 1/p for each batch B of O.

    p is ``propensity``, clipped at ``p_min`` and without gradient. Slightly biased, with less variance than
    :class:`IPS`, and indifferent to a common factor in the propensities. Normalising over all of O instead
    of the batch would divide by a constant and be IPS again.
    """

    name = "snips"
    paper = "Swaminathan 2015"
    when = "where weights vary much, or propensities are known only up to a factor"

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Return the weighted mean over the batch."""
        return snips(observed.conversion, setting.logit(observed), observed.propensity)


def snips(conversion: OnRows, logit: OnRows, propensity: OnRows, **space: Any) -> PerModel:
    """L = Σ_B CE(r, r̂)/p / Σ_B 1/p, over the clicks of a batch.

    Parameters
    ----------
    conversion, logit, propensity, space
        As in :func:`ips`; a common factor of p does not matter.

    Examples
    --------
    >>> import torch
    >>> snips(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]), torch.tensor([0.5, 0.1]))
    tensor(1.8880)
    """
    whole = Space(**space)
    error = cross_entropy(whole.known(conversion), logit)
    return whole.normalised(error, 1.0 / whole.known(propensity).detach())
