"""What a method's losses see: batches, the networks, and what hooks leave for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unskew.backbones import Network
from unskew.debias.core.held_out import Cells, HeldOut
from unskew.log import Rows
from unskew.training.inference import logits

FLOOR = "floor"
"""The clip of each replica's propensities ``[R, 1]`` among what the setting remembers."""


@dataclass(frozen=True)
class Batch:
    """Rows with what is known of them, ``[R, B]`` each."""

    rows: Rows
    conversion: Tensor
    """Known on a batch of O; NaN on a batch of D, where a loss must not look."""
    propensity: Tensor
    """Clipped, without gradient; NaN where the method was given none (or none for all of D)."""
    cell: Tensor | None = None
    """Number of the pair's cell in D."""


@dataclass
class Setting:
    """Networks, the density of clicks, all training rows of O, and what hooks remember between steps."""

    networks: Mapping[str, Network]
    density: float
    """|O| / |D|."""
    clicks: Batch
    """All training rows of O."""
    state: dict[str, Tensor] = field(default_factory=dict)
    given: bool = False
    """Whether the batches' propensities were given."""
    held_out: HeldOut | None = None
    """Which cells no click tower trains on."""
    imputed: tuple[Batch, Tensor] | None = None
    """The batch that a noisy imputer read last within a loss, and its output."""

    def logits(self, batch: Batch, *towers: str) -> tuple[Tensor, ...]:
        """Logits ``[R, B]`` of a batch, one for each tower; towers of one network share one look-up."""
        embedded = {}
        result = []
        for tower in towers:
            name, network = self.network_of(tower)
            if name not in embedded:
                embedded[name] = network.embed(batch.rows)
            result.append(network.read(embedded[name], tower))
        return tuple(result)

    def logit(self, batch: Batch, tower: str = "prediction") -> Tensor:
        """Logits ``[R, B]`` of a batch by one tower."""
        result: Tensor = self.network_of(tower)[1](batch.rows, tower)
        return result

    def predicted(self, batch: Batch | Cells, tower: str = "prediction") -> Tensor:
        """Logits of many pairs in ``eval`` mode, without gradient and in chunks; for hooks."""
        return logits(self.network_of(tower)[1], batch.rows, tower=tower)

    def network_of(self, tower: str) -> tuple[str, Network]:
        """The network that has a tower."""
        for name, network in self.networks.items():
            if tower in network.towers:
                return name, network
        raise KeyError(tower)

    def copy_weights(self, source: str, target: str) -> None:
        """Give one network the weights of another of the same shape; its optimiser's state is kept."""
        with torch.no_grad():
            for new, old in zip(
                self.networks[target].parameters(), self.networks[source].parameters(), strict=True
            ):
                new.copy_(old)

    @property
    def floor(self) -> Tensor:
        """What propensities are clipped at ``[R, 1]``."""
        return self.state[FLOOR]

    def remember(self, name: str, value: Tensor) -> None:
        """Keep a tensor for later steps, in place, so that a captured step sees the new value."""
        if name in self.state:
            self.state[name].copy_(value.detach())
        else:
            self.state[name] = value.detach().clone()
