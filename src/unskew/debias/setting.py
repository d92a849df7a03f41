"""The inputs and the schedule of losses: batches of O and D, networks, state, passes and stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from unskew.base.tensors import Tensor, torch
from unskew.data import Log, Rows
from unskew.data.splitting import SplitBy
from unskew.learners import Network
from unskew.learners.layers import settle
from unskew.propensity.given import GivenPropensities
from unskew.training import ObservedAndFull, Pass, Population, Sample, Sampler, ShuffledRows
from unskew.training.held_out import Ends, HeldOut, SplitCells, split_parts
from unskew.training.inference import logits


@dataclass(frozen=True)
class Batch:
    """The rows of one step, of O or of D, that a loss reads, with what is known of them, ``[R, B]`` each."""

    rows: Rows
    conversion: Tensor
    """Known on a batch of O; NaN on a batch of D, where a loss must not look."""
    propensity: Tensor
    """Clipped, without gradient; NaN where the method was given none (or none for all of D)."""
    cell: Tensor | None = None
    """Number of the pair's cell in D."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Return the same, each tensor changed in the same way."""
        return Batch(
            rows=self.rows.map(change),
            conversion=change(self.conversion),
            propensity=change(self.propensity),
            cell=None if self.cell is None else change(self.cell),
        )


def within(**intervals: str) -> Mapping[str, str]:
    """Return the intervals that parameters must lie in, such as ``ratio="(0, inf)"``."""
    return MappingProxyType(intervals)


class State:
    """Tensors ``[R, …]`` that one part of a method writes between steps and reads in them.

    A subclass names them by annotations; :meth:`Setting.state` has one object of each.
    """

    def write(self, **values: Tensor) -> None:
        """Set tensors by name: the first time a copy, then in place, where a captured step reads them."""
        for name, value in values.items():
            if name in vars(self):
                vars(self)[name].copy_(value.detach())
            else:
                vars(self)[name] = value.detach().clone()

    @property
    def is_empty(self) -> bool:
        """True where nothing was written yet."""
        return not vars(self)

    @classmethod
    def kinds(cls) -> list[type[State]]:
        """Return all kinds that were defined so far."""
        return [kind for each in cls.__subclasses__() for kind in (each, *each.kinds())]

    @classmethod
    def full_name(cls) -> str:
        """Return what tells a kind from all others."""
        return f"{cls.__module__}.{cls.__qualname__}"


AnyState = TypeVar("AnyState", bound=State)


@dataclass
class Setting:
    """Networks, the density of clicks, all training rows of O, and what is kept between steps."""

    networks: Mapping[str, Network]
    density: float
    """|O| / |D|."""
    clicks: Batch
    """All training rows of O."""
    floor: Tensor = field(default_factory=lambda: torch.zeros(1, 1))
    """What propensities are clipped at ``[R, 1]``; changed in place."""
    given: bool = False
    """Whether the batches' propensities were given."""
    held_out: HeldOut | None = None
    """Which cells no click tower trains on."""
    states: dict[type[State], State] = field(default_factory=dict)

    @property
    def cells(self) -> HeldOut:
        """Which cells no click tower trains on, of a setting that has data."""
        assert self.held_out is not None
        return self.held_out

    def clicked(self, batch: Batch) -> Tensor:
        """Return 1.0 where a pair of D has a click at all, also one that is held out for validation."""
        assert batch.cell is not None
        return self.cells.population.click(batch.cell)

    def state(self, kind: type[AnyState]) -> AnyState:
        """Return the state of a kind, empty at first."""
        return cast(AnyState, self.states.setdefault(kind, kind()))

    def logits(self, batch: Batch, *towers: str) -> tuple[Tensor, ...]:
        """Return logits ``[R, B]`` of a batch for each tower; towers of one network share one look-up."""
        embedded = {}
        result = []
        for tower in towers:
            name, network = self.network_of(tower)
            if name not in embedded:
                embedded[name] = network.embed(batch.rows)
            result.append(network.read(embedded[name], tower))
        return tuple(result)

    def logit(self, batch: Batch, tower: str = "prediction") -> Tensor:
        """Return logits ``[R, B]`` of a batch by one tower."""
        result: Tensor = self.network_of(tower)[1](batch.rows, tower)
        return result

    def predicted(self, batch: Batch | SplitCells, tower: str = "prediction") -> Tensor:
        """Predict the logits of many pairs in ``eval`` mode, without gradient and in chunks."""
        return logits(self.network_of(tower)[1], batch.rows, tower=tower)

    def network_of(self, tower: str) -> tuple[str, Network]:
        """Return the network that has a tower."""
        for name, network in self.networks.items():
            if tower in network.towers:
                return name, network
        raise KeyError(tower)

    def copy_weights(self, source: str, target: str) -> None:
        """Give one network the weights of another of the same shape; its optimiser's state is kept."""
        for name in (source, target):
            settle(self.networks[name])
        with torch.no_grad():
            for new, old in zip(
                self.networks[target].parameters(), self.networks[source].parameters(), strict=True
            ):
                new.copy_(old)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that steps change beside the networks, for a checkpoint."""
        states = {
            f"{kind.full_name()}/{name}": value
            for kind, state in self.states.items()
            for name, value in vars(state).items()
        }
        return {"floor": self.floor, **states}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Bring back what :meth:`tensors` gave."""
        self.floor.copy_(tensors["floor"])
        kinds = {kind.full_name(): kind for kind in State.kinds()}
        for key, value in tensors.items():
            kind, _, name = key.partition("/")
            if name:
                self.state(kinds[kind]).write(**{name: value.to(self.floor.device)})


Loss = Callable[[Setting, Batch, Batch], Tensor]
"""(setting, batch of O, batch of D) → ``[R]``. A pass over clicks alone gives the batch of O twice."""


class Observed:
    """The clicked rows O of a log on a device, and batches of O and of D, for R replicas.

    Parameters
    ----------
    parts
        Which part of the clicks each replica holds out (:func:`~unskew.training.held_out.split_parts`); by
        default the first.
    """

    def __init__(
        self,
        log: Log,
        propensities: GivenPropensities | None,
        seeds: tuple[int, ...],
        device: torch.device,
        *,
        parts: tuple[int, ...] | None = None,
    ) -> None:
        clicked = log.clicked
        self._log = log
        self.seeds = seeds
        self._holds_out = tuple(zip(seeds, parts or (0,) * len(seeds), strict=True))
        self.device = device
        self.population = Population(log, device)
        self.cell = torch.as_tensor(log.cell[clicked] if log.space == "matrix" else clicked, device=device)
        self.conversion = torch.as_tensor(log.known_conversion(), device=device)
        self.propensity = None if propensities is None else _on(propensities.clicked, device)
        self.everywhere = (
            None
            if propensities is None or propensities.everywhere is None
            else _on(propensities.everywhere, device)
        )
        lines = range(len(seeds)) if propensities is None else propensities.lines
        self._line = torch.tensor(list(lines), device=device).unsqueeze(1)

    def split(self, held_out: int, by: SplitBy, ends: Mapping[int, Ends]) -> tuple[Tensor, Tensor]:
        """Split O into training and validation positions ``[R, n]``, by ids, times, and each seed and part.

        Parameters
        ----------
        ends
            Of the parts of each seed, where an earlier training has set them.
        """
        parts: dict[int, list[int]] = {}
        for seed, number in self._holds_out:
            parts.setdefault(seed, []).append(number)
        splits_of = {
            seed: split_parts(self._log, seed, held_out, by, numbers, ends.get(seed, ()))
            for seed, numbers in parts.items()
        }
        splits = (splits_of[seed][part] for seed, part in self._holds_out)
        training, validation = (np.stack(each) for each in zip(*splits, strict=True))
        return torch.as_tensor(training, device=self.device), torch.as_tensor(validation, device=self.device)

    def observed(self, rows: Tensor) -> Batch:
        """Return a batch of O from positions ``[R, B]``, or ``[1, B]`` for all replicas."""
        cell, shape = self.cell[rows], (len(self.seeds), rows.shape[1])
        return Batch(
            rows=self.population.rows(cell),
            conversion=self.conversion[rows].expand(shape),
            propensity=_known(
                None if self.propensity is None else self.propensity[self._line, rows.expand(shape)],
                shape,
                rows.device,
            ),
            cell=cell.expand(shape),
        )

    def full(self, cells: Tensor) -> Batch:
        """Return a batch of D from cells ``[R, B]``."""
        return Batch(
            rows=self.population.rows(cells),
            conversion=_known(None, cells.shape, cells.device),
            propensity=_known(
                None if self.everywhere is None else self.everywhere[self._line, cells],
                cells.shape,
                cells.device,
            ),
            cell=cells,
        )

    def bind(self, loss: Loss, setting: Setting) -> Callable[[Sample], Tensor]:
        """Return a method's loss as a function of a sample."""

        def of_sample(sample: Sample) -> Tensor:
            assert sample.observed is not None
            observed = self.observed(sample.observed)
            return loss(setting, observed, observed if sample.cells is None else self.full(sample.cells))

        return of_sample


def _known(values: Tensor | None, shape: Sequence[int], device: torch.device) -> Tensor:
    """Return values for all replicas; NaN where nothing is known."""
    return (torch.full((1, 1), torch.nan, device=device) if values is None else values).expand(*shape)


def _on(values: NDArray[Any], device: torch.device) -> Tensor:
    return torch.as_tensor(values.astype(np.float32), device=device)


class Draws(Protocol):
    """How a pass of a method draws its batches, from a sampler of O and the population D."""

    def __call__(self, observed: ShuffledRows, population: Population) -> Sampler:
        """Return the sampler."""
        ...


def clicks(observed: ShuffledRows, population: Population) -> Sampler:
    """Return batches of O alone."""
    return observed


@dataclass(frozen=True)
class ClicksAndCells:
    """Batches of O, each with ``ratio`` times as many cells that are drawn uniformly from D."""

    ratio: float = 1.0

    def __call__(self, observed: ShuffledRows, population: Population) -> Sampler:
        """Return the sampler."""
        return ObservedAndFull(observed, population, self.ratio)


Plan = tuple[Pass[Draws], ...]
"""The passes of an epoch: two passes alternate by epoch, two steps in one pass by batch.

The steps' losses are a :data:`Loss`; ``before`` takes the setting, in ``eval`` mode without gradient.
"""


@dataclass(frozen=True)
class Stage:
    """Passes that are repeated for up to so many epochs; stages follow one another."""

    passes: Plan
    epochs: int | None = None
    """None takes the method's ``epochs``."""
    selects: bool = True
    """Whether early stopping chooses the epoch of this stage."""
    validate: Callable[[Setting], Tensor] | None = None
    """The loss ``[R]`` it stops on; None takes that of the conversions."""
    patience: int | None = None
    """None takes the method's ``patience``."""
