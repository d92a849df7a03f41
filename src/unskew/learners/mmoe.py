"""MMoE on replicas: experts that all towers share, mixed by each tower's own gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from unskew.base.estimator import require_at_least
from unskew.base.registry import register
from unskew.base.tensors import Tensor, nn, torch
from unskew.data import Rows
from unskew.learners.fields import DROP, FieldNetwork, FlatFields, Hidden, head, require_tower
from unskew.learners.layers import ReplicaLinear
from unskew.learners.network import Blueprint, Embedded, Network, NetworkLearner

if TYPE_CHECKING:
    from jaxtyping import Float


@register(order=60)
@dataclass(kw_only=True)
class MMoE(NetworkLearner):
    r"""logit_t = w_t · MLP_t( Σ_e g_{te}(x₀) · expert_e(x₀) ) + b_t, with g_t = softmax(x₀ G_t).

    x₀ is the embeddings of all fields and the numbers. The experts are MLPs that all towers t share; each
    tower has its own gate g_t, MLP and head (Ma et al. 2018). Use it with the methods of several tasks (ESMM,
    ESCM², DDPO, Multi-IPW, Multi-DR), which then share more than embeddings; with one tower it is a mixture
    of experts.

    Parameters
    ----------
    experts
        How many.
    expert_layers, layers
        Widths of an expert, and of each tower above the mixture.
    dropout
        Rate in front of each layer.
    dim, drop, init_std
        The embeddings, as in :class:`DCN`.
    """

    name: ClassVar[str] = "mmoe"
    reads_features: ClassVar[bool] = True
    dim: int | None = None
    experts: int = 4
    expert_layers: tuple[int, ...] = (64,)
    layers: tuple[int, ...] = (32,)
    dropout: float = 0.2
    drop: float = DROP
    init_std: float = 0.5

    def _network(self, plan: Blueprint) -> Network:
        require_tower(self.layers, self.dropout, self.dim, self.drop)
        require_tower(self.expert_layers, self.dropout, self.dim, self.drop)
        require_at_least(1, experts=self.experts)
        return _MMoENetwork(self, plan)


class _MMoENetwork(FieldNetwork):
    def __init__(self, spec: MMoE, plan: Blueprint):
        super().__init__()
        self.noise = plan.noise
        self.inputs = FlatFields(plan, spec.dim, spec.init_std, spec.drop)
        widths = (self.inputs.width, *spec.expert_layers)
        self.experts = nn.ModuleList(Hidden(widths, spec.dropout, plan) for _ in range(spec.experts))
        self.tower = nn.ModuleDict({name: _Tower(spec, widths[0], plan) for name in plan.towers})

    def embed(self, rows: Rows) -> Embedded:
        x = self.inputs(rows)
        return x, torch.cat([expert(x) for expert in self.experts], dim=-1)

    def read(self, embedded: Embedded, tower: str) -> Float[Tensor, "R B"]:
        logit: Tensor = self.tower[tower](*embedded)
        return logit


class _Tower(nn.Module):
    def __init__(self, spec: MMoE, width: int, plan: Blueprint):
        super().__init__()
        self.gate = ReplicaLinear(width, spec.experts, plan.generators)
        self.mlp = Hidden((spec.expert_layers[-1], *spec.layers), spec.dropout, plan)
        self.head = head(spec.layers[-1], plan)

    def forward(self, x: Tensor, experts: Tensor) -> Tensor:
        share = torch.softmax(self.gate(x), dim=-1)
        by_expert = experts.view(*share.shape, -1)
        mixed = (share.unsqueeze(-1) * by_expert).sum(2)
        logit: Tensor = self.head(self.mlp(mixed))
        return logit.squeeze(-1)
