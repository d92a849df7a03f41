"""DeepFM on replicas: a factorisation machine and an MLP on the same embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from unskew.base.estimator import require
from unskew.base.registry import register
from unskew.base.tensors import Tensor, nn, torch
from unskew.data import Rows
from unskew.learners.fields import (
    DROP,
    FieldEmbeddings,
    FieldNetwork,
    Tower,
    embeddings,
    number_columns,
    numbers_of,
    require_tower,
)
from unskew.learners.layers import ones, replicated
from unskew.learners.network import Blueprint, Embedded, Network, NetworkLearner

if TYPE_CHECKING:
    from jaxtyping import Float


@register(order=40)
@dataclass(kw_only=True)
class DeepFM(NetworkLearner):
    r"""logit = Σ_f a_f + Σ_{f < g} ⟨v_f, v_g⟩ + w · MLP([ v ; numbers ]) + b.

    v_f is the embedding of field f and a_f its weight; a number x has v = x·v_j and a = x·a_j (Guo et al.
    2017). All embeddings have one dimension. Several towers share v: each has its own a, MLP and b, and a
    weight per dimension of the products (with one tower, 1, not trained).

    Parameters
    ----------
    dim, drop, init_std
        The embeddings, as in :class:`DCN`; a field cannot have a dimension of its own here.
    layers, dropout
        The MLP, as in :class:`MLP`.
    """

    name: ClassVar[str] = "deepfm"
    reads_features: ClassVar[bool] = True
    dim: int | None = None
    layers: tuple[int, ...] = (64, 32)
    dropout: float = 0.2
    drop: float = DROP
    init_std: float = 0.1

    def _network(self, plan: Blueprint) -> Network:
        require_tower(self.layers, self.dropout, self.dim, self.drop)
        own = [each.name for each in plan.schema if each.dim is not None]
        require(
            not own,
            f"DeepFM multiplies embeddings, which must have one dimension, and {', '.join(own)} has its own",
            "leave dim out of the features, or use DCN",
        )
        return _DeepFMNetwork(self, plan)


class _DeepFMNetwork(FieldNetwork):
    def __init__(self, spec: DeepFM, plan: Blueprint):
        super().__init__()
        self.noise = plan.noise
        self.place = {name: place for place, name in enumerate(plan.towers)}
        towers = len(plan.towers)
        # The weights of a code, one for each tower, are more columns of its table: one look-up in all.
        self.inputs = FieldEmbeddings(plan, spec.dim, spec.init_std, spec.drop, extra=towers)
        dim = self.inputs.dim
        self.split = [dim, towers]
        self.columns = number_columns(plan.schema)
        start = embeddings(spec.init_std, (), towers)
        self.numbers = (
            replicated((self.columns, dim + towers), start, plan.generators) if self.columns else None
        )
        fields = len(self.inputs.groups[0][0])
        width = fields * dim + self.columns
        self.tower = nn.ModuleDict(
            {name: Tower(width, spec.layers, spec.dropout, plan) for name in plan.towers}
        )
        self.scale = (
            nn.ParameterDict({name: replicated((1, dim), ones, plan.generators) for name in plan.towers})
            if towers > 1
            else None
        )

    def embed(self, rows: Rows) -> Embedded:
        (vectors,) = self.inputs(rows)
        v, a = torch.split(vectors, self.split, dim=-1)
        inputs, first = v.flatten(2), a.sum(2)
        total, squares = v.sum(2), v.square().sum(2)
        if self.numbers is not None:
            x = numbers_of(rows, v)
            v_numbers, a_numbers = torch.split(self.numbers, self.split, dim=-1)
            total = total + x @ v_numbers
            squares = squares + x.square() @ v_numbers.square()
            first = first + x @ a_numbers
            inputs = torch.cat((inputs, x), dim=-1)
        return inputs, 0.5 * (total.square() - squares), first

    def read(self, embedded: Embedded, tower: str) -> Float[Tensor, "R B"]:
        inputs, products, first = embedded
        if self.scale is not None:
            products = products * self.scale[tower]
        logit: Tensor = self.tower[tower](inputs) + products.sum(2) + first[..., self.place[tower]]
        return logit
