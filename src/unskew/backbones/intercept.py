"""The smallest network: one number per replica, the same for every pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from unskew.backbones.base import Backbone, Embedded, Network
from unskew.backbones.layers import replicated, zeros
from unskew.backbones.noise import Noise


@dataclass(kw_only=True)
class Intercept(Backbone):
    """logit(u, i) = b.

    b starts at zero; each tower has its own. It is no model of conversions: a method builds it where it
    trains a single number, such as a shift of somebody else's logits.
    """

    name: ClassVar[str] = "intercept"

    def _network(
        self,
        n_users: int,
        n_items: int,
        generators: Sequence[torch.Generator],
        noise: Noise,
        towers: tuple[str, ...],
    ) -> Network:
        return _InterceptNetwork(generators, noise, towers)


class _InterceptNetwork(Network):
    def __init__(self, generators: Sequence[torch.Generator], noise: Noise, towers: tuple[str, ...]):
        super().__init__()
        self.noise = noise
        self.offset = nn.ParameterDict({name: replicated((1,), zeros, generators) for name in towers})

    def embed(self, user: Tensor, item: Tensor) -> Embedded:
        return user, item

    def read(self, embedded: Embedded, tower: str) -> Tensor:
        offset: Tensor = self.offset[tower]
        return offset.expand(embedded[0].shape)
