"""A stack of replicas: its networks before training, and all that training leaves, joined or shared out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from unskew.backbones import Network
from unskew.debias.core.method import Method
from unskew.debias.core.setting import Setting
from unskew.debias.core.stacking import joined_setting, share_of_history, share_of_network, share_of_setting
from unskew.log import Schema
from unskew.metrics.collapse import Collapsed, Learned
from unskew.seeds import stream
from unskew.training import History, join_histories, join_networks

Networks = dict[str, Network]


@dataclass(frozen=True)
class Trained:
    """What training leaves of a stack of replicas."""

    networks: Networks
    setting: Setting
    """What the losses saw last, for :meth:`Method.finish`."""
    history: History
    validation_loss: list[float] | None
    """Of each replica at its chosen epoch; None where nothing was held out."""
    held_out: int
    """Clicks of each seed that trained nothing."""
    learned: dict[str, list[Learned]]
    """What each replica's towers learned, by the tower's name."""

    @classmethod
    def joined(cls, parts: Sequence[Trained], fresh: Networks, seeds: tuple[int, ...]) -> Trained:
        """All replicas of several groups, in untrained networks of as many."""
        networks = {
            name: join_networks([part.networks[name] for part in parts], network)
            for name, network in fresh.items()
        }
        losses = [part.validation_loss for part in parts if part.validation_loss is not None]
        return cls(
            networks=networks,
            setting=joined_setting([part.setting for part in parts], networks, seeds),
            history=join_histories([part.history for part in parts]),
            validation_loss=[loss for part in losses for loss in part] if losses else None,
            held_out=parts[0].held_out,
            learned={
                tower: [each for part in parts for each in part.learned[tower]] for tower in parts[0].learned
            },
        )

    def share(self, replicas: slice, fresh: Networks, seeds: tuple[int, ...]) -> Trained:
        """What some of the replicas would have been alone, in untrained networks of as many."""
        networks = {
            name: share_of_network(self.networks[name], network, replicas) for name, network in fresh.items()
        }
        return Trained(
            networks=networks,
            setting=share_of_setting(self.setting, networks, replicas, seeds),
            history=share_of_history(self.history, replicas),
            validation_loss=None if self.validation_loss is None else self.validation_loss[replicas],
            held_out=self.held_out,
            learned={tower: of_replicas[replicas] for tower, of_replicas in self.learned.items()},
        )

    def collapsed(self, seeds: tuple[int, ...]) -> tuple[Collapsed, ...]:
        """The towers and seeds that learned nothing."""
        return tuple(
            Collapsed(tower, seed, each.reason)
            for tower, of_replicas in self.learned.items()
            for seed, each in zip(seeds, of_replicas, strict=True)
            if each.reason is not None
        )


def untrained(
    method: Method, schema: Schema, seeds: Sequence[int], device: torch.device | None = None
) -> Networks:
    """Networks of one replica per seed; a seed's first weights do not depend on the others'.

    Without a device they stay where they are made.
    """
    networks = {
        name: method.backbones()
        .get(name, method.backbone)
        .build(schema, [stream(seed, name) for seed in seeds], towers)
        for name, towers in method.networks().items()
    }
    return {
        name: network if device is None else network.to_device(device) for name, network in networks.items()
    }
