"""Layers with a leading replica dimension R: independent copies that train in one step.

Shapes are ``[R, B, …]`` throughout. Initial weights and dropout masks of replica k come from its own
seed alone, so a replica is the same network whether it is trained alone or beside others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from unskew.base.tensors import Tensor, nn, torch
from unskew.data import Field
from unskew.learners.noise import Noise
from unskew.learners.tables import LazyRows, gathered, look_up

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Initialiser = Callable[[Tensor, torch.Generator], None]


class Undrawn(torch.Generator):
    """In the place of a replica's generator: its weights are not drawn, somebody will fill in all of them."""


def normal(std: float) -> Initialiser:
    """N(0, std²)."""

    def fill(weight: Tensor, generator: torch.Generator) -> None:
        weight.normal_(0.0, std, generator=generator)

    return fill


def xavier_uniform(weight: Tensor, generator: torch.Generator) -> None:
    """U(−a, a) with a = √(6 / (fan_in + fan_out)), for a weight of shape [in, out]."""
    bound = math.sqrt(6.0 / (weight.shape[0] + weight.shape[1]))
    weight.uniform_(-bound, bound, generator=generator)


def fan_in_uniform(fan_in: int) -> Initialiser:
    """U(−1/√fan_in, 1/√fan_in), PyTorch's default for weights and biases of ``nn.Linear``."""
    bound = 1.0 / math.sqrt(fan_in)

    def fill(weight: Tensor, generator: torch.Generator) -> None:
        weight.uniform_(-bound, bound, generator=generator)

    return fill


def zeros(weight: Tensor, generator: torch.Generator) -> None:
    """Set all to zero; the generator is left untouched."""
    weight.zero_()


def ones(weight: Tensor, generator: torch.Generator) -> None:
    """Set all to one; the generator is left untouched."""
    weight.fill_(1.0)


def random_signs(weight: Tensor, generator: torch.Generator) -> None:
    """Draw +1 or −1 with equal probability."""
    weight.bernoulli_(0.5, generator=generator).mul_(2.0).sub_(1.0)


def replicated(
    shape: Sequence[int], initialise: Initialiser, generators: Sequence[torch.Generator]
) -> nn.Parameter:
    """Return a parameter ``[R, *shape]`` whose slice k is drawn from ``generators[k]``, else NaN."""
    weight = torch.empty(len(generators), *shape)
    if weight.is_meta:
        # A shape alone: there is nothing to draw into.
        return nn.Parameter(weight)
    if any(isinstance(replica, Undrawn) for replica in generators):
        # Not left as the memory was: what nobody filled in must be seen.
        return nn.Parameter(weight.fill_(torch.nan))

    with torch.no_grad():
        for replica, generator in zip(weight, generators, strict=True):
            initialise(replica, generator)
    return nn.Parameter(weight)


class ReplicaEmbedding(nn.Module):
    """A field's table, one per replica."""

    lazy: LazyRows | None = None
    """While it is trained by the rows that are read (:mod:`unskew.training.adam`)."""

    def __init__(
        self, field: Field, dim: int, initialise: Initialiser, generators: Sequence[torch.Generator]
    ):
        super().__init__()
        self.weight = replicated((field.size, dim), initialise, generators)
        self.rows_of = {field.name: slice(0, field.size)}
        """Which rows are of which field."""

    def forward(self, index: Int[Tensor, "_ B"]) -> Float[Tensor, "R B F"]:
        """``[R, B]`` codes, or ``[1, B]`` for all replicas → ``[R, B, dim]``."""
        if self.lazy is not None:
            return look_up(self.weight, index.expand(len(self.weight), -1), self.lazy)
        return gathered(self.weight, index)


def tables_of(network: nn.Module) -> list[ReplicaEmbedding]:
    """Return the tables of a network."""
    return [module for module in network.modules() if isinstance(module, ReplicaEmbedding)]


def settle(network: nn.Module) -> None:
    """Bring all rows of a network's tables up to date, for whoever reads more than it looks up."""
    for table in tables_of(network):
        if table.lazy is not None:
            table.lazy.settle()


def release(network: nn.Module) -> None:
    """Leave a network's tables to whoever reads or trains them next."""
    settle(network)
    for table in tables_of(network):
        table.lazy = None


class ReplicaLinear(nn.Module):
    """y = x W + b for each replica, as one batched matrix product."""

    def __init__(
        self,
        fan_in: int,
        fan_out: int,
        generators: Sequence[torch.Generator],
        weight: Initialiser = xavier_uniform,
        bias: Initialiser = zeros,
    ):
        super().__init__()
        self.weight = replicated((fan_in, fan_out), weight, generators)
        self.bias = replicated((1, fan_out), bias, generators)

    def forward(self, x: Float[Tensor, "R B F"]) -> Float[Tensor, "R B G"]:
        """``[R, B, in]`` → ``[R, B, out]``."""
        if self.weight.shape[0] == 1 and not torch.onnx.is_in_onnx_export():
            # Views that drop a dimension: indexing would fill and copy a gradient for each.
            weight, bias = self.weight.squeeze(0), self.bias.view(-1)
            return nn.functional.linear(x.squeeze(0), weight.t(), bias).unsqueeze(0)
        return torch.baddbmm(self.bias, x, self.weight)


class ReplicaDropout(nn.Module):
    """Inverted dropout whose masks come from each replica's own noise."""

    def __init__(self, rate: float, noise: Noise):
        super().__init__()
        self.rate = rate
        self.noise = noise

    def forward(self, x: Float[Tensor, "R B F"]) -> Float[Tensor, "R B F"]:
        """``[R, B, F]`` → the same shape; the identity in ``eval`` mode or at rate 0."""
        if not self.training or self.rate == 0.0:
            return x
        return self.noise.dropped(x, self.rate)
