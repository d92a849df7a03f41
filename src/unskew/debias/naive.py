"""Naive: train on what was clicked as if it were everything."""

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


@register(order=10)
@dataclass(kw_only=True)
class Naive(Debiaser):
    """L = (1/|O|) Σ_O CE(r, r̂).

    r is ``conversion``, r̂ the prediction. No propensities: biased wherever selection depends on what is
    predicted. It is the yardstick, and the better choice where selection is random.
    """

    name: ClassVar[str] = "naive"
    paper: ClassVar[str] = "—"
    when: ClassVar[str] = "as the yardstick, or where clicks are random"

    with_tables: ClassVar[Literal["weights"]] = "weights"

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_B CE(r, r̂)."""
        return naive(observed.conversion, setting.logit(observed))


def naive(
    conversion: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    *,
    click: Tensor | None = None,
) -> Float[Tensor, " *batches"]:
    """L = (1/|O|) Σ_O CE(r, r̂).

    Parameters
    ----------
    conversion, logit
        r and the logit of r̂, of clicks; or of rows of D, with ``click``.

    Examples
    --------
    >>> import torch
    >>> naive(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]))
    tensor(1.4100)
    """
    space = Space(click)
    return space.mean_of_clicks(cross_entropy(space.known(conversion), logit))
