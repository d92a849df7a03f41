"""IPS: weight each click by the inverse of its propensity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from unskew.base.registry import register
from unskew.base.tensors import Tensor
from unskew.debias.method import Batch, Debiaser, Setting
from unskew.training.means import OnRows, PerModel, Space, cross_entropy, squared_error

Errors = Literal["ce", "squared"]
"""Cross-entropy, or the squared difference of probabilities."""

ERRORS = {"ce": cross_entropy, "squared": squared_error}


@register(order=20)
@dataclass(kw_only=True)
class IPS(Debiaser):
    """L = (1/|D|) Σ_O CE(r, r̂) / p.

    p is ``propensity``, clipped at ``p_min`` and without gradient. Unbiased for the ideal loss if p is the
    true propensity; its variance grows with 1/p. Use it with calibrated, cross-fitted propensities; where
    weights vary wildly prefer :class:`SNIPS` or a doubly robust method.
    """

    name = "ips"
    paper = "Schnabel 2016"
    when = "with propensities you trust and weights of moderate size"
    needs_propensity = True
    with_tables = "weights"

    def click_weight(self, setting: Setting, observed: Batch) -> Tensor:
        """Return 1/p."""
        return 1.0 / observed.propensity

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """(|O|/|D|) · mean_B CE(r, r̂) / p."""
        logit = setting.logit(observed)
        return ips(observed.conversion, logit, observed.propensity, density=setting.density)


def ips(
    conversion: OnRows, logit: OnRows, propensity: OnRows, *, errors: Errors = "ce", **space: Any
) -> PerModel:
    """L = (1/|D|) Σ_O e/p, e = CE(r, r̂).

    Parameters
    ----------
    conversion, logit, propensity
        r, the logit of r̂, and p, clipped as you like: of clicks; or of rows of D, with ``click``. Where a
        row has no click its conversion and its propensity are not read. p is read without gradient.
    errors
        ``"squared"``: e = (r − r̂)², as IPS-V2 has it.
    space
        ``click``, 1 (or true) where a row of D was clicked; or, for a batch of clicks, ``density`` =
        |O| / |D|, which is a factor of the loss.

    Examples
    --------
    >>> import torch

    Clicks alone, then rows of the population:

    >>> conversion, logit, p = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]), torch.tensor([0.5, 0.1])
    >>> ips(conversion, logit, p, density=0.5)
    tensor(5.6639)
    >>> ips(conversion, logit, p, click=torch.tensor([1.0, 0.0]))
    tensor(0.6931)
    """
    whole = Space(**space)
    error = ERRORS[errors](whole.known(conversion), logit)
    return whole.over_clicks(error / whole.known(propensity).detach())
