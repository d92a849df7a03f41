"""The smallest networks: one number per replica, the same for every pair, or for all pairs of a user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from unskew.base.tensors import Tensor, nn
from unskew.data import Rows
from unskew.learners.layers import ReplicaEmbedding, replicated, zeros
from unskew.learners.network import Blueprint, Embedded, Network, NetworkLearner

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(kw_only=True)
class Intercept(NetworkLearner):
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


@dataclass(kw_only=True)
class UserIntercept(NetworkLearner):
    """logit(u, i) = b_u.

    b_u starts at zero; each tower has its own. It is no model of conversions: a method builds it where it
    trains a number for each user, such as who is calibrated by which map.
    """

    name: ClassVar[str] = "user-intercept"

    def _network(self, plan: Blueprint) -> Network:
        return _UserInterceptNetwork(plan)


class _UserInterceptNetwork(Network):
    def __init__(self, plan: Blueprint):
        super().__init__()
        self.noise = plan.noise
        self.place = {name: place for place, name in enumerate(plan.towers)}
        self.user = ReplicaEmbedding(plan.schema.user, len(plan.towers), zeros, plan.generators)

    def embed(self, rows: Rows) -> Embedded:
        return (self.user(rows.user),)

    def read(self, embedded: Embedded, tower: str) -> Float[Tensor, "R B"]:
        return embedded[0][..., self.place[tower]]
