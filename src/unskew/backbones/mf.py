"""Matrix factorisation on replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unskew.backbones.base import Backbone, Network
from unskew.backbones.layers import ReplicaEmbedding, normal, replicated, zeros
from unskew.backbones.noise import Noise
from unskew.estimator import require


@dataclass(kw_only=True)
class MF(Backbone):
    """logit(u, i) = ⟨x_u, y_i⟩ + b_u + b_i + b.

    x_u, y_i are embeddings of dimension ``dim``; b_u, b_i biases; b an offset. Use it where the data are
    few or speed counts; :class:`NeuMF` is the paper's backbone.

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

    def _network(
        self, n_users: int, n_items: int, generators: Sequence[torch.Generator], noise: Noise
    ) -> Network:
        require(self.dim >= 1, f"dim must be at least 1, not {self.dim}")
        return _MFNetwork(self, n_users, n_items, generators, noise)


class _MFNetwork(Network):
    def __init__(
        self, spec: MF, n_users: int, n_items: int, generators: Sequence[torch.Generator], noise: Noise
    ):
        super().__init__()
        self.noise = noise
        self.user = ReplicaEmbedding(n_users, spec.dim, normal(spec.init_std), generators)
        self.item = ReplicaEmbedding(n_items, spec.dim, normal(spec.init_std), generators)
        self.user_bias = ReplicaEmbedding(n_users, 1, zeros, generators)
        self.item_bias = ReplicaEmbedding(n_items, 1, zeros, generators)
        self.offset = replicated((1,), zeros, generators)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        affinity = (self.user(user) * self.item(item)).sum(-1)
        bias = (self.user_bias(user) + self.item_bias(item)).squeeze(-1)
        logit: Tensor = affinity + bias + self.offset
        return logit
