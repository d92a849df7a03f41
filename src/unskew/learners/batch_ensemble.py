"""BatchEnsemble: members that share all large weights and differ by vectors of rank one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from unskew.base.estimator import require, require_at_least, require_choice
from unskew.base.tensors import Tensor, nn, torch
from unskew.learners.layers import (
    Initialiser,
    ReplicaEmbedding,
    ReplicaLinear,
    normal,
    random_signs,
    replicated,
)
from unskew.learners.network import Blueprint, Network, NetworkLearner
from unskew.learners.neumf import NeuMF

if TYPE_CHECKING:
    from jaxtyping import Float, Int

SPREAD = 0.5
"""Standard deviation of r and s around 1 with ``init="normal"`` (METHODS §3.3)."""


@dataclass(kw_only=True)
class BatchEnsemble(NetworkLearner):
    """y_i = ((x ∘ r_i) W) ∘ s_i + b_i: member i has the weight W ∘ (r_i s_iᵀ).

    W is shared by the ``members``; r_i, s_i and the bias b_i are the member's own, for every linear layer of
    ``base``; embedding tables are shared too, with an output-side s_i. In training the k-th part of a batch
    goes to member k; for a prediction every member sees every pair and probabilities are averaged
    (:mod:`unskew.training.inference`). r and s are not decayed. Costs little more memory than one network;
    its members are less diverse than a deep ensemble's.

    Parameters
    ----------
    init
        ``"signs"`` starts r and s at random ±1, ``"normal"`` at N(1, 0.5²). (At 1 all members would be one.)
    """

    name: ClassVar[str] = "batch-ensemble"
    base: NetworkLearner = field(default_factory=NeuMF)
    members: int = 10
    init: Literal["signs", "normal"] = "signs"

    @property
    def reads_features(self) -> bool:  # type: ignore[override]
        """Return whether the base reads more than the two ids."""
        return self.base.reads_features

    def _network(self, plan: Blueprint) -> Network:
        require_at_least(1, members=self.members)
        require_choice("init", self.init, ("signs", "normal"))
        network = self.base._network(plan)
        shared = [each for each in network.modules() if isinstance(each, ReplicaLinear | ReplicaEmbedding)]
        require(
            bool(shared),
            f"the learner {self.base.name!r} has no layers whose weights members could share",
            "use another, such as NeuMF(), or members that are trained apart",
        )
        initialise = random_signs if self.init == "signs" else _around_one
        for module in list(network.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, ReplicaLinear):
                    setattr(module, name, MemberLinear(child, self.members, initialise, plan.generators))
                elif isinstance(child, ReplicaEmbedding):
                    setattr(module, name, MemberEmbedding(child, self.members, initialise, plan.generators))
        network.members = self.members
        network.fusible = False
        return network


class MemberLinear(nn.Module):
    """A shared linear layer with each member's r, s and bias."""

    def __init__(
        self,
        shared: ReplicaLinear,
        members: int,
        initialise: Initialiser,
        generators: Sequence[torch.Generator],
    ):
        super().__init__()
        _, fan_in, fan_out = shared.weight.shape
        self.weight = shared.weight
        self.bias = nn.Parameter(shared.bias.detach().expand(-1, members, -1).clone())
        self.input_side = _vectors(members, fan_in, initialise, generators)
        self.output_side = _vectors(members, fan_out, initialise, generators)

    def forward(self, x: Float[Tensor, "R B F"]) -> Float[Tensor, "R B G"]:
        """``[R, B, in]`` → ``[R, B, out]``; the k-th part of the batch by member k."""
        product = torch.bmm(by_member(x, self.input_side), self.weight)
        return by_member(product, self.output_side, self.bias)


class MemberEmbedding(nn.Module):
    """A shared table with each member's s."""

    def __init__(
        self,
        shared: ReplicaEmbedding,
        members: int,
        initialise: Initialiser,
        generators: Sequence[torch.Generator],
    ):
        super().__init__()
        self.shared = shared
        self.output_side = _vectors(members, shared.weight.shape[2], initialise, generators)

    def forward(self, index: Int[Tensor, "_ B"]) -> Float[Tensor, "R B F"]:
        """``[R, B]`` → ``[R, B, dim]``; the k-th part of the batch by member k."""
        return by_member(self.shared(index), self.output_side)


def by_member(
    x: Float[Tensor, "R B F"],
    scale: Float[Tensor, "R members F"],
    shift: Float[Tensor, "R members F"] | None = None,
) -> Float[Tensor, "R B F"]:
    """x ∘ s_k (+ b_k) on the k-th part of a batch ``[R, B, F]``; s and b are ``[R, members, F]``."""
    replicas, batch, width = x.shape
    members = scale.shape[1]
    if batch % members:
        member = member_of(batch, members, x.device)
        scale = scale.index_select(1, member)
        return x * scale if shift is None else torch.addcmul(shift.index_select(1, member), x, scale)
    parts, scale = x.reshape(replicas, members, batch // members, width), scale.unsqueeze(2)
    result = parts * scale if shift is None else torch.addcmul(shift.unsqueeze(2), parts, scale)
    return result.view(x.shape)


def member_of(batch: int, members: int, device: torch.device) -> Int[Tensor, " B"]:
    """Return the member that each row of a batch goes to: parts of equal size, as far as they divide."""
    return torch.div(torch.arange(batch, device=device) * members, batch, rounding_mode="floor")


def _vectors(
    members: int, width: int, initialise: Initialiser, generators: Sequence[torch.Generator]
) -> nn.Parameter:
    vectors = replicated((members, width), initialise, generators)
    vectors.without_decay = True  # type: ignore[attr-defined]
    return vectors


def _around_one(weight: Tensor, generator: torch.Generator) -> None:
    normal(SPREAD)(weight, generator)
    weight.add_(1.0)
