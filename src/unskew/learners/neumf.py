"""NeuMF on replicas, exactly as the paper's code has it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from unskew.base.compiled import numba_is_installed
from unskew.base.estimator import require, require_at_least, require_in
from unskew.base.registry import register
from unskew.base.tensors import Tensor, nn, torch
from unskew.data import Rows
from unskew.learners.layers import (
    ReplicaDropout,
    ReplicaEmbedding,
    ReplicaLinear,
    fan_in_uniform,
    normal,
)
from unskew.learners.network import Blueprint, Embedded, Network, NetworkLearner
from unskew.learners.tables import require_rows

if TYPE_CHECKING:
    from jaxtyping import Float


@register(order=10)
@dataclass(kw_only=True)
class NeuMF(NetworkLearner):
    """logit(u, i) = w · [ x_u ⊙ y_i ; MLP([x'_u ; y'_i]) ] + b.

    x, y are the tables of the GMF branch, x', y' those of the MLP branch (four tables in all, dimension
    ``dim`` each, N(0, ``init_std``²)); each layer of the MLP is Dropout → Linear (Xavier-uniform, zero
    bias) → ReLU with widths ``layers``; the head has PyTorch's default initialisation. On Coat's 290 × 300
    pairs this has 86,465 parameters. The tables of a user's two branches are stored side by side as one of
    width 2 · ``dim``: the same parameters, half the look-ups.

    Parameters
    ----------
    dim
        Dimension of each of the four embedding tables.
    layers
        Widths of the MLP.
    dropout
        Rate in front of each MLP layer (so also on its input).
    emb_dropout
        Rate applied to all four looked-up embeddings (a later variant of the published code; 0 is off).
    init_std
        Standard deviation of the initial embeddings.
    """

    name: ClassVar[str] = "neumf"
    dim: int = 64
    layers: tuple[int, ...] = (64, 32, 16)
    dropout: float = 0.2
    emb_dropout: float = 0.0
    init_std: float = 0.01

    def _network(self, plan: Blueprint) -> Network:
        require_at_least(1, dim=self.dim)
        require(bool(self.layers), "layers must name at least one width", "give layers=(64, 32, 16)")
        require_in("[0, 1)", dropout=self.dropout, emb_dropout=self.emb_dropout)
        return _NeuMFNetwork(self, plan)


class _NeuMFNetwork(Network):
    def __init__(self, spec: NeuMF, plan: Blueprint):
        super().__init__()
        self.noise = plan.noise
        self.user = ReplicaEmbedding(plan.schema.user, 2 * spec.dim, normal(spec.init_std), plan.generators)
        self.item = ReplicaEmbedding(plan.schema.item, 2 * spec.dim, normal(spec.init_std), plan.generators)
        self.embedding_dropout = ReplicaDropout(spec.emb_dropout, plan.noise)
        self.fusible = spec.emb_dropout == 0.0
        self.tower = nn.ModuleDict({name: _Tower(spec, plan) for name in plan.towers})

    def forward(self, rows: Rows, tower: str | None = None) -> Float[Tensor, "R B"]:
        if not self.fusible or not numba_is_installed():
            return super().forward(rows, tower)
        weight, chosen = self.user.weight, self.tower[tower or self.towers[0]]
        if weight.is_cuda or weight.dtype != torch.float32 or torch.onnx.is_in_onnx_export():
            return super().forward(rows, tower)
        from unskew.kernels.neumf_cpu import neumf_logits

        rows = rows.expand(self.replicas)
        require_rows(rows.user, weight, "user")
        require_rows(rows.item, self.item.weight, "item")
        assert isinstance(chosen, _Tower)
        parameters = (weight, self.item.weight, *chosen.parameters())
        masks = chosen.masks(rows.shape)
        return neumf_logits(rows.user, rows.item, parameters, masks, (self.user.lazy, self.item.lazy))

    def embed(self, rows: Rows) -> Embedded:
        return self.embedding_dropout(self.user(rows.user)), self.embedding_dropout(self.item(rows.item))

    def read(self, embedded: Embedded, tower: str) -> Float[Tensor, "R B"]:
        logit: Tensor = self.tower[tower](*embedded)
        return logit


class _Tower(nn.Module):
    """The MLP and the head over looked-up rows."""

    def __init__(self, spec: NeuMF, plan: Blueprint):
        super().__init__()
        self.dim = spec.dim
        self.widths = (2 * spec.dim, *spec.layers)
        self.dropouts = nn.ModuleList(ReplicaDropout(spec.dropout, plan.noise) for _ in spec.layers)
        self.mlp = nn.ModuleList(ReplicaLinear(i, o, plan.generators) for i, o in pairwise(self.widths))
        fan_in = spec.dim + spec.layers[-1]
        default = fan_in_uniform(fan_in)
        self.head = ReplicaLinear(fan_in, 1, plan.generators, weight=default, bias=default)

    def masks(self, shape: tuple[int, ...]) -> list[Tensor]:
        """Return the masks in front of each layer for rows ``[R, B]``; none where nothing is dropped."""
        first = self.dropouts[0]
        assert isinstance(first, ReplicaDropout)
        if not first.training or first.rate == 0.0:
            return []
        return [
            first.noise.keep_mask((*shape, width), first.rate, torch.float32) for width in self.widths[:-1]
        ]

    def forward(self, user_rows: Tensor, item_rows: Tensor) -> Tensor:
        # Split, not sliced: the gradient of a slice is a whole tensor of zeros.
        user_gmf, user_mlp = torch.split(user_rows, self.dim, dim=-1)
        item_gmf, item_mlp = torch.split(item_rows, self.dim, dim=-1)
        gmf = user_gmf * item_gmf
        hidden = torch.cat((user_mlp, item_mlp), dim=-1)
        for dropout, linear in zip(self.dropouts, self.mlp, strict=True):
            hidden = torch.relu(linear(dropout(hidden)))
        logit: Tensor = self.head(torch.cat((gmf, hidden), dim=-1))
        return logit.squeeze(-1)
