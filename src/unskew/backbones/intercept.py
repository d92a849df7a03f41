"""The smallest network: one number per replica, the same for every pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn

from unskew.backbones.backbone import Backbone, Blueprint, Embedded, Network
from unskew.backbones.layers import replicated, zeros
from unskew.log import Rows

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(kw_only=True)
class Intercept(Backbone):
    """logit(u, i) = b.

    b starts at zero; each tower has its own. It is no model of conversions: a method builds it where it
    trains a single number, such as a shift of somebody else's logits.
    """

    name: ClassVar[str] = "intercept"

    def _network(self, plan: Blueprint) -> Network:
        return _InterceptNetwork(plan)


class _InterceptNetwork(Network):
    def __init__(self, plan: Blueprint):
        super().__init__()
        self.noise = plan.noise
        self.offset = nn.ParameterDict(
            {name: replicated((1,), zeros, plan.generators) for name in plan.towers}
        )

    def embed(self, rows: Rows) -> Embedded:
        rows = rows.expand(self.replicas)
        return rows.user, rows.item

    def read(self, embedded: Embedded, tower: str) -> Float[Tensor, "R B"]:
        offset: Tensor = self.offset[tower]
        return offset.expand(embedded[0].shape)
