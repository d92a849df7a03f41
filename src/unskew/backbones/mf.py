"""Matrix factorisation on replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from unskew.backbones.base import Backbone, Blueprint, Embedded, Network
from unskew.backbones.layers import Initialiser, ReplicaEmbedding, normal, ones, replicated, zeros
from unskew.estimator import require


@dataclass(kw_only=True)
class MF(Backbone):
    """logit(u, i) = ⟨x_u, y_i⟩ + b_u + b_i + b.

    x_u, y_i are embeddings of dimension ``dim``; b_u, b_i biases; b an offset. With several towers each has
    its own b and a weight per dimension, Σ_d w_d x_ud y_id (with one tower w = 1 is not trained). Use it
    where the data are few or speed counts; :class:`NeuMF` is the paper's backbone.

    Parameters
    ----------
    dim
        Embedding dimension.
    init_std
        Standard deviation of the initial embeddings; biases start at zero.
    """

    name: ClassVar[str] = "mf"
    dim: int = 32
    init_std: float = 0.01

    def _network(self, plan: Blueprint) -> Network:
        require(self.dim >= 1, f"dim must be at least 1, not {self.dim}", "give 1 or more")
        return _MFNetwork(self, plan)


class _MFNetwork(Network):
    def __init__(self, spec: MF, plan: Blueprint):
        super().__init__()
        self.noise = plan.noise
        # The bias of a user (item) is one more column of its table: one look-up instead of two.
        self.user = ReplicaEmbedding(plan.n_users, spec.dim + 1, _with_zero_bias(spec), plan.generators)
        self.item = ReplicaEmbedding(plan.n_items, spec.dim + 1, _with_zero_bias(spec), plan.generators)
        self.offset = nn.ParameterDict(
            {name: replicated((1,), zeros, plan.generators) for name in plan.towers}
        )
        self.scale = (
            nn.ParameterDict({name: replicated((1, spec.dim), ones, plan.generators) for name in plan.towers})
            if len(plan.towers) > 1
            else None
        )

    def embed(self, user: Tensor, item: Tensor) -> Embedded:
        return self.user(user), self.item(item)

    def read(self, embedded: Embedded, tower: str) -> Tensor:
        user, item = embedded
        product = user[..., :-1] * item[..., :-1]
        if self.scale is not None:
            product = product * self.scale[tower]
        logit: Tensor = product.sum(-1) + user[..., -1] + item[..., -1] + self.offset[tower]
        return logit


def _with_zero_bias(spec: MF) -> Initialiser:
    embeddings = normal(spec.init_std)

    def fill(weight: Tensor, generator: torch.Generator) -> None:
        embeddings(weight, generator)
        weight[:, -1] = 0.0

    return fill
