"""SNIPS: IPS normalised by the weights of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from torch import Tensor

from unskew.base.registry import register
from unskew.debias.method import Debiaser
from unskew.debias.setting import Batch, Setting
from unskew.training.means import Space, cross_entropy

if TYPE_CHECKING:
    from jaxtyping import Float


@register(order=30)
@dataclass(kw_only=True)
class SNIPS(Debiaser):
    """L = Σ_B CE(r, r̂)/p / Σ_B 1/p for each batch B of O.

    p is ``propensity``, clipped at ``p_min`` and without gradient. Slightly biased, with less variance than
    :class:`IPS`, and indifferent to a common factor in the propensities. Normalising over all of O instead
    of the batch would divide by a constant and be IPS again.
    """

    name: ClassVar[str] = "snips"
    paper: ClassVar[str] = "Swaminathan 2015"
    when: ClassVar[str] = "where weights vary much, or propensities are known only up to a factor"
    needs_propensity: ClassVar[bool] = True
    with_tables: ClassVar[Literal["weights"]] = "weights"
    detached: ClassVar[tuple[str, ...]] = ("propensity",)

    def click_weight(self, setting: Setting, observed: Batch) -> Tensor:
        """Return 1/p."""
        return 1.0 / observed.propensity

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Weighted mean over the batch."""
        return snips(observed.conversion, setting.logit(observed), observed.propensity)


def snips(
    conversion: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    propensity: Float[Tensor, "*#batches #B"],
    *,
    click: Tensor | None = None,
) -> Float[Tensor, " *batches"]:
    """L = Σ_B CE(r, r̂)/p / Σ_B 1/p, over the clicks of a batch.

    Parameters
    ----------
    conversion, logit, propensity
        As in :func:`ips`; a common factor of p does not matter.

    Examples
    --------
    >>> import torch
    >>> snips(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]), torch.tensor([0.5, 0.1]))
    tensor(1.8880)
    """
    space = Space(click)
    error = cross_entropy(space.known(conversion), logit)
    return space.normalised(error, 1.0 / space.known(propensity).detach())
