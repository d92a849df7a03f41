"""An MLP over the embeddings of all fields, on replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unskew.base.registry import register
from unskew.learners.fields import DROP, FlatFields, FlatNetwork, Tower, require_tower
from unskew.learners.network import Blueprint, Network, NetworkLearner


@register(order=50)
@dataclass(kw_only=True)
class MLP(NetworkLearner):
    """logit = w · MLP([ embeddings of all fields ; numbers ]) + b.

    Each layer is Dropout → Linear → ReLU. Several towers share the embeddings alone. The plainest network
    that reads features; :class:`DCN` has crosses beside it.

    Parameters
    ----------
    dim, drop, init_std
        The embeddings, as in :class:`DCN`.
    layers, dropout
        Widths of the layers, and the rate in front of each.
    """

    name: ClassVar[str] = "mlp"
    reads_features: ClassVar[bool] = True
    dim: int | None = None
    layers: tuple[int, ...] = (64, 32)
    dropout: float = 0.2
    drop: float = DROP
    init_std: float = 0.5

    def _network(self, plan: Blueprint) -> Network:
        require_tower(self.layers, self.dropout, self.dim, self.drop)
        inputs = FlatFields(plan, self.dim, self.init_std, self.drop)
        return FlatNetwork(plan, inputs, lambda width: Tower(width, self.layers, self.dropout, plan))
