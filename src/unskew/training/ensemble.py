"""Ensembles: how the members of a seed come about, and what they make together.

Their mean logit is the model; how far they disagree tells where another would predict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit, stdtrit
from torch import Tensor

from unskew.backbones import Backbone, BatchEnsemble, Network
from unskew.estimator import require
from unskew.seeds import Replica, replicas_of

LEAST = 1e-15
"""Probabilities of members are kept so far from 0 and 1, where logits would be infinite."""

CYCLE_PARTS = 2
"""Of a cycle: away from the best epoch, and down again."""

CYCLE_STEPS = 12
"""Of each part of a cycle: as many epochs as have about so many steps, and at least one."""

CYCLE_RATE = 0.03
"""The learning rate with which a cycle begins, where the method's own is not higher."""

MOST_MEMBERS = 1000
"""Members of a seed; more are a mistake."""

Kind = Literal["seeds", "bootstrap", "snapshot", "swa", "batch"]
"""Members that are trained apart, with all pairs or with Poisson weights of their own, or left by one
training; the mean of the weights that it leaves; or members that share weights."""

APART: tuple[Kind, ...] = ("seeds", "bootstrap")
"""Kinds whose members are trained each on its own."""

ENSEMBLES: tuple[Kind, ...] = get_args(Kind)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """A part of a cycle: the optimiser starts anew, and the order of batches is its own.

    Parameters
    ----------
    cycle
        Its number, from 1.
    fast
        Whether it is the first part, at a high learning rate, which leads away from the last member; the
        second, at the method's own, goes down again and keeps its best epoch.
    """

    cycle: int
    fast: bool
    epochs: int

    @property
    def name(self) -> str:
        """For a stream of random numbers."""
        return f", cycle {self.cycle}, {'fast' if self.fast else 'slow'}"

    def rates(self, rates: Mapping[str, float]) -> dict[str, float]:
        """Learning rates by network, from those of the method."""
        return {name: max(rate, CYCLE_RATE) if self.fast else rate for name, rate in rates.items()}


@dataclass(frozen=True)
class Ensemble:
    """How the members of a seed come about.

    Parameters
    ----------
    kind
        ``"seeds"``: each is trained on its own. ``"bootstrap"``: the same, and each reads a pair as often
        as a Poisson weight of its own says. ``"snapshot"``: one training goes on from its best epoch in
        ``members - 1`` short cycles, and what each leaves is a member. ``"swa"``: the same, and the model is
        one network with the mean of their weights. ``"batch"``: one network, inside which members share all
        large weights (:class:`unskew.backbones.BatchEnsemble`).
    members
        How many.
    """

    kind: Kind
    members: int

    @property
    def trained(self) -> int:
        """Replicas of a seed that are trained."""
        return self.members if self.kind in APART else 1

    @property
    def resamples(self) -> bool:
        """Whether each member has weights of the pairs of its own; one alone reads every pair once."""
        return self.kind == "bootstrap" and self.members > 1

    @property
    def copies(self) -> int:
        """Networks that the model has of each replica that was trained."""
        return self.members if self.kind == "snapshot" else 1

    @property
    def networks(self) -> int:
        """Networks of a seed that the model has."""
        return self.trained * self.copies

    @property
    def cycles(self) -> int:
        """How often a training goes on after its end."""
        return self.members - 1 if self.kind in ("snapshot", "swa") else 0

    def backbone(self, backbone: Backbone) -> Backbone:
        """What builds its networks, from the backbone of one member."""
        if self.kind != "batch" or self.members == 1:
            return backbone
        return BatchEnsemble(base=backbone, members=self.members)

    def parts(self, steps: int) -> Iterator[tuple[Part, Part]]:
        """The cycles, where an epoch has so many steps."""
        epochs = max(1, round(CYCLE_STEPS / steps))
        for cycle in range(1, self.cycles + 1):
            yield Part(cycle, True, epochs), Part(cycle, False, epochs)

    def to_train(self, seeds: Sequence[int]) -> tuple[Replica, ...]:
        """The replicas that are trained."""
        return replicas_of(seeds, self.trained)

    def left_by(self, replicas: Sequence[Replica]) -> tuple[Replica, ...]:
        """Those that the model has, of some that are trained."""
        if self.copies == 1:
            return tuple(replicas)
        return tuple(Replica(each.seed, copy, each.part) for each in replicas for copy in range(self.copies))

    def snapshots(self, networks: Mapping[str, Network], judge: Judge | None) -> Snapshots:
        """What collects the weights of a training."""
        return Snapshots(networks, judge, averaged=self.kind == "swa")


class Judge(Protocol):
    """The loss of held-out clicks."""

    def logit(self) -> Tensor:
        """Logits ``[R, n]`` of the networks as they are."""
        ...

    def of_logit(self, logit: Tensor) -> Tensor:
        """The loss ``[R]`` of logits."""
        ...


Weights = dict[str, dict[str, Tensor]]
"""By network and name."""


class Snapshots:
    """Weights that a training leaves, in slots: the first is its best epoch, each other what a cycle left.

    A cycle's weights come into a slot where the model does better with them, on held-out clicks, than with
    the first in their place; without held-out clicks always.

    Parameters
    ----------
    averaged
        Whether the model has the mean of the weights; otherwise the mean of the logits.
    """

    def __init__(self, networks: Mapping[str, Network], judge: Judge | None, *, averaged: bool) -> None:
        self._networks, self._judge, self._averaged = networks, judge, averaged
        self._slots = [self._now()]
        self._logits = [] if judge is None else [judge.logit()]
        self.taken: list[list[bool]] = []
        """Of each cycle and replica, whether its weights came into a slot."""

    def restart(self) -> None:
        """Give the networks their first weights again."""
        _load(self._networks, self._slots[0])

    def take(self) -> None:
        """Weights of now for the next slot, of those replicas that do better with them."""
        first, now = self._slots[0], self._now()
        better = torch.ones(_replicas(first), dtype=torch.bool)
        if self._judge is not None:
            logit = self._judge.logit()
            better = self._loss(now, logit) < self._loss(first, self._logits[0])
            self._logits.append(torch.where(better[:, None], logit, self._logits[0]))
        self.taken.append(better.tolist())
        self._slots.append(
            {
                name: {key: _where(better, now[name][key], weight) for key, weight in of.items()}
                for name, of in first.items()
            }
        )

    def fill(self, fresh: Mapping[str, Network]) -> None:
        """Give them to networks: those of one replica side by side, or their mean."""
        if self._averaged:
            _load(fresh, _combined(self._slots, lambda each: torch.stack(each).mean(0)))
        else:
            _load(fresh, _combined(self._slots, lambda each: torch.stack(each, 1).flatten(0, 1)))

    def _loss(self, weights: Weights, logit: Tensor) -> Tensor:
        """Of the model with such weights in the next slot ``[R]``."""
        assert self._judge is not None
        if self._averaged:
            mean = _combined([*self._slots, weights], lambda each: torch.stack(each).mean(0))
            _load(self._networks, mean)
            loss = self._judge.of_logit(self._judge.logit())
        else:
            loss = self._judge.of_logit(torch.stack([*self._logits, logit]).mean(0))
        return loss

    def _now(self) -> Weights:
        return {
            name: {key: value.detach().clone() for key, value in network.state_dict().items()}
            for name, network in self._networks.items()
        }


def _load(networks: Mapping[str, Network], weights: Weights) -> None:
    for name, network in networks.items():
        network.load_state_dict(weights[name])


def _combined(slots: Sequence[Weights], combine: Callable[[list[Tensor]], Tensor]) -> Weights:
    return {
        name: {key: combine([slot[name][key] for slot in slots]) for key in weights}
        for name, weights in slots[0].items()
    }


def _where(chosen: Tensor, this: Tensor, that: Tensor) -> Tensor:
    """By replica."""
    return torch.where(chosen.to(this.device).view(-1, *(1,) * (this.dim() - 1)), this, that)


def _replicas(weights: Weights) -> int:
    return len(next(iter(weights["prediction"].values())))


def combined(members: Floats) -> Floats:
    """σ of the mean logit of members: probabilities ``[…, members, n]`` → ``[…, n]``; those of one stay."""
    if members.shape[-2] == 1:
        return members[..., 0, :]
    return np.asarray(expit(_logits(members).mean(axis=-2)))


def spread(members: Floats) -> Floats:
    """The standard deviation ``[n]`` of probabilities ``[K, n]``."""
    return np.asarray(members.std(axis=0, ddof=1))


def interval(members: Floats, level: float) -> Floats:
    r"""Limits ``[2, n]`` between which another member of as many, ``[K, n]``, would predict.

    .. math:: \sigma\left(\bar z \pm t_{K-1} \, s \, \sqrt{1 + 1/K}\right)
    """
    z, count = _logits(members), len(members)
    half = stdtrit(count - 1, (1.0 + level) / 2.0) * z.std(axis=0, ddof=1) * math.sqrt(1.0 + 1.0 / count)
    return np.stack([expit(z.mean(axis=0) - half), expit(z.mean(axis=0) + half)])


def require_several(members: int, name: str) -> None:
    """An error for a model of one network, by the name of its method."""
    require(
        members > 1,
        f"one network of {name} does not tell how far its predictions may be off",
        "fit it with members=5; ensemble='swa' and 'batch' make one network of them",
    )


def _logits(members: Floats) -> Floats:
    return np.asarray(logit(np.clip(members, LEAST, 1.0 - LEAST)))
