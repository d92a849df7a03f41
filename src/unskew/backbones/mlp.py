"""An MLP over the embeddings of all fields, on replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn

from unskew.backbones.backbone import Backbone, Blueprint, Embedded, Network
from unskew.backbones.fields import DROP, FieldNetwork, FlatFields, Tower, require_tower
from unskew.log import Rows
from unskew.registry import register

if TYPE_CHECKING:
    from jaxtyping import Float


@register(order=50)
@dataclass(kw_only=True)
class MLP(Backbone):
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
        return _MLPNetwork(self, plan)


class _MLPNetwork(FieldNetwork):
    def __init__(self, spec: MLP, plan: Blueprint):
        super().__init__()
        self.noise = plan.noise
        self.inputs = FlatFields(plan, spec.dim, spec.init_std, spec.drop)
        self.tower = nn.ModuleDict(
            {name: Tower(self.inputs.width, spec.layers, spec.dropout, plan) for name in plan.towers}
        )

    def embed(self, rows: Rows) -> Embedded:
        return (self.inputs(rows),)

    def read(self, embedded: Embedded, tower: str) -> Float[Tensor, "R B"]:
        logit: Tensor = self.tower[tower](*embedded)
        return logit
