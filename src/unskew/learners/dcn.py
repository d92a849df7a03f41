"""DCN-V2 on replicas: crosses of all fields beside an MLP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unskew.base.estimator import require_at_least
from unskew.base.registry import register
from unskew.learners.fields import DROP, FlatFields, FlatNetwork, Tower, require_tower
from unskew.learners.network import Blueprint, Network, NetworkLearner


@register(order=30)
@dataclass(kw_only=True)
class DCN(NetworkLearner):
    r"""logit = w · [ x_L ; MLP(x₀) ] + b, with x_{l+1} = x₀ ⊙ (x_l W_l + b_l) + x_l.

    x₀ is the embeddings of all fields (ids, categories, bags) and the numbers, side by side; W_l are full
    matrices. Crosses and MLP are parallel (DCN-V2; Wang et al. 2021), each layer of the MLP is Dropout →
    Linear → ReLU. Several towers share the embeddings; each has crosses, MLP and head of its own. Use it by
    default where the log has features.

    Parameters
    ----------
    dim
        Dimension of the embeddings; None is 4·n^¼ for the largest vocabulary n, a multiple of 4 from 8 to 32.
        A field may have its own.
    crosses
        L, the number of cross layers.
    layers
        Widths of the MLP.
    dropout
        Rate in front of each layer of the MLP.
    drop
        Share of the ids and categories that are replaced by "other" in training, so that users, items and
        values that come later are scored by what is known of them.
    init_std
        Standard deviation of the initial embeddings; those of ids start at a tenth of it.
    """

    name: ClassVar[str] = "dcn"
    reads_features: ClassVar[bool] = True
    dim: int | None = None
    crosses: int = 2
    layers: tuple[int, ...] = (64, 32)
    dropout: float = 0.2
    drop: float = DROP
    init_std: float = 0.5

    def _network(self, plan: Blueprint) -> Network:
        require_tower(self.layers, self.dropout, self.dim, self.drop)
        require_at_least(1, crosses=self.crosses)
        inputs = FlatFields(plan, self.dim, self.init_std, self.drop)
        return FlatNetwork(
            plan, inputs, lambda width: Tower(width, self.layers, self.dropout, plan, self.crosses)
        )
