"""Matrix factorisation on replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from unskew.base.estimator import require_at_least
from unskew.base.registry import register
from unskew.base.tensors import Tensor, nn, torch
from unskew.data import Rows
from unskew.learners.layers import Initialiser, ReplicaEmbedding, normal, ones, replicated, zeros
from unskew.learners.network import Blueprint, Embedded, Network, NetworkLearner

if TYPE_CHECKING:
    from jaxtyping import Float


@register(order=20)
@dataclass(kw_only=True)
class MF(NetworkLearner):
    """logit(u, i) = ⟨x_u, y_i⟩ + b_u + b_i + b.

    x_u, y_i are embeddings of dimension ``dim``; b_u, b_i biases; b an offset. Several towers share x and y
    alone: each has its own b_u, b_i, b and a weight per dimension, Σ_d w_d x_ud y_id (with one tower w = 1 is
    not trained). Use it where the data are few or speed counts; :class:`NeuMF` is the paper's learner.

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
        require_at_least(1, dim=self.dim)
        return _MFNetwork(self, plan)


class _MFNetwork(Network):
    def __init__(self, spec: MF, plan: Blueprint):
        super().__init__()
        self.noise = plan.noise
        self.widths = [spec.dim, len(plan.towers)]
        self.place = {name: place for place, name in enumerate(plan.towers)}
        # The biases of a user (item), one for each tower, are more columns of its table: one look-up in all.
        self.user, self.item = (
            ReplicaEmbedding(field, sum(self.widths), _with_zero_biases(spec), plan.generators)
            for field in (plan.schema.user, plan.schema.item)
        )
        self.offset = nn.ParameterDict(
            {name: replicated((1,), zeros, plan.generators) for name in plan.towers}
        )
        self.scale = (
            nn.ParameterDict({name: replicated((1, spec.dim), ones, plan.generators) for name in plan.towers})
            if len(plan.towers) > 1
            else None
        )

    def embed(self, rows: Rows) -> Embedded:
        return self.user(rows.user), self.item(rows.item)

    def read(self, embedded: Embedded, tower: str) -> Float[Tensor, "R B"]:
        (x, user_biases), (y, item_biases) = (torch.split(rows, self.widths, dim=-1) for rows in embedded)
        product = x * y
        if self.scale is not None:
            product = product * self.scale[tower]
        number = self.place[tower]
        logit: Tensor = (
            product.sum(2) + user_biases[..., number] + item_biases[..., number] + self.offset[tower]
        )
        return logit


def _with_zero_biases(spec: MF) -> Initialiser:
    embeddings = normal(spec.init_std)

    def fill(weight: Tensor, generator: torch.Generator) -> None:
        # As many draws whatever the number of towers: a seed's embeddings are the same in every method.
        drawn = weight.new_empty(len(weight), spec.dim + 1)
        embeddings(drawn, generator)
        weight[:, : spec.dim] = drawn[:, : spec.dim]
        weight[:, spec.dim :] = 0.0

    return fill
