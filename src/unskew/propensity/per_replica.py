"""Models without a network, one after another: the cells that each is fitted on, and how all are scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from unskew.base import processes
from unskew.base.progress import Progress
from unskew.base.seeds import stream
from unskew.base.tensors import Tensor, nn, torch
from unskew.data import Rows
from unskew.propensity.crossfit import (
    OUT,
    STOP,
    TRAIN,
    Codes,
    DealtCells,
    Floats,
    ReplicaScores,
    logit_offset,
)
from unskew.training import ClicksAndNegatives, EveryCell, Sampler
from unskew.training.checkpoint import checkpoint_in_effect
from unskew.training.samplers import is_large, share_of_unclicked

BLOCK = 1 << 18
"""Cells looked at, or pairs scored, at once: bounds the memory of a model's inputs."""

MOST_CELLS = 5_000_000
"""Above so many cells of D, ``negatives="auto"`` samples: a fit holds its rows in memory."""

SMALLEST_SCORE = 1e-12
"""Scores are read no closer than this to 0 and 1 where an offset is added to their logit."""


class ReplicaModel(Protocol):
    """A fitted model."""

    def __call__(self, user: Codes, item: Codes, further: Floats | None) -> Floats:
        """Return probabilities in [0, 1] of pairs, over the cells it was fitted on.

        Parameters
        ----------
        further
            What else the kind reads of a row, where it reads something and the rows have it.
        """
        ...


class TrainingCells(NamedTuple):
    """Cells of D with the slot of the partition that each is in."""

    user: Codes
    item: Codes
    click: Floats
    slot: Codes
    cell: Codes
    """Their numbers in D."""


class ReplicaCells:
    """One model to fit: the cells that it may see, and a seed for what it draws.

    Parameters
    ----------
    number
        Its place among the replicas of all seeds.
    purpose
        What its seed is for: a kind's name.
    """

    def __init__(self, dealt: DealtCells, number: int, purpose: str) -> None:
        seed, fold = divmod(number, dealt.folds.design.replicas)
        self.number = number
        self.seed = stream(dealt.folds.seeds[seed], purpose, fold)
        self.population = dealt.population
        self._dealt = dealt
        self._slots = dealt.slots([number])
        self._roles: Codes = dealt.roles[number].numpy()

    def slot(self, cell: Codes) -> Codes:
        """Return slots of cells."""
        return np.asarray(self._slots.of(torch.as_tensor(cell).unsqueeze(0))[0].numpy())

    def role(self, cell: Codes) -> Codes:
        """Return what cells are to the replica: training, calibration or evaluation."""
        return np.asarray(self._roles[self.slot(cell)])

    def blocks(self) -> Iterator[TrainingCells]:
        """Yield all its training cells, in blocks."""
        for start in range(0, self.population.size, BLOCK):
            cells = np.arange(start, min(start + BLOCK, self.population.size))
            yield self._training(self._looked_up(cells))

    def training_clicks(self) -> TrainingCells:
        """Return the clicked cells among its training cells."""
        return self._training(self._looked_up(self.population.observed.numpy()))

    def training_margins(self) -> tuple[Floats, Floats]:
        """Return how many of its training cells each user and each item of a matrix has.

        What is expected where a fold holds pairs, and what is so where it holds users or items.
        """
        items = self.population.n_items
        users = self.population.size // items
        by, trains = self._dealt.folds.by, self._roles == TRAIN
        if by == "cell":
            return np.full(users, items * trains.mean()), np.full(items, users * trains.mean())
        slot = self.slot(np.arange(0, users * items, items) if by == "user" else np.arange(items))
        own = trains[slot].astype(np.float64)
        if by == "user":
            return own * items, np.full(items, own.sum())
        return np.full(users, own.sum()), own * users

    def training(self, ratio: float | None) -> TrainingCells:
        """Return all its training cells; with ``ratio``, the clicks among them and so many negatives per
        click."""
        if ratio is None:
            return TrainingCells(*(np.concatenate(part) for part in zip(*self.blocks(), strict=True)))
        admitted = self._dealt.admitted(TRAIN, [self.number])
        seeds = [stream(self.seed, "negatives")]
        arguments = self.population, seeds, self.population.size, self._slots, admitted
        sampler: Sampler = ClicksAndNegatives(*arguments, ratio)
        if is_large(self.population):
            sampler = EveryCell(*arguments, unclicked=share_of_unclicked(self.population, ratio))
        blocks = [block.cells.flatten() for block in sampler.epoch(0) if block.cells is not None]
        return self._looked_up(torch.cat(blocks).numpy())

    def offset(self, ratio: float | None) -> float:
        """log w of the negatives that it samples; 0 where it trains on all its cells."""
        if ratio is None:
            return 0.0
        clicks = int((self.role(self.population.observed.numpy()) == TRAIN).sum())
        # The share of D that it trains on; folds of rows, users or items differ in size.
        size, width, by = self.population.size, self.population.n_items, self._dealt.folds.by
        if self.population.space == "impressions":
            roles = self.role(np.arange(size))
        elif by == "cell":
            roles = self._roles
        else:
            roles = self.role(np.arange(0, size, width) if by == "user" else np.arange(width))
        return logit_offset(ratio, clicks, round(size * float((roles == TRAIN).mean())))

    def _training(self, cells: TrainingCells) -> TrainingCells:
        trains = self._roles[cells.slot] == TRAIN
        return TrainingCells(*(each[trains] for each in cells))

    def _looked_up(self, cell: Codes) -> TrainingCells:
        numbers = torch.as_tensor(cell)
        rows, click = self.population.ids(numbers), self.population.click(numbers)
        return TrainingCells(
            rows.user.numpy(), rows.item.numpy(), click.numpy().astype(np.float64), self.slot(cell), cell
        )


@dataclass(frozen=True)
class PerReplica:
    """The scorer of models that are fitted and asked one after another."""

    models: Sequence[ReplicaModel]
    offsets: Sequence[float]
    """Added to logits that were learned from sampled negatives."""
    reads: str = ""
    """The field of rows that models read beside the ids."""

    @classmethod
    def fit(
        cls,
        fit_one: Callable[[ReplicaCells], ReplicaModel],
        dealt: DealtCells,
        name: str,
        progress: Progress,
        *,
        make: Callable[..., ReplicaModel] | None,
        ratio: float | None = None,
        reads: str = "",
        about: Callable[[], Mapping[str, Any]] | None = None,
    ) -> Self:
        """Fit one model for each replica, and find the offset of what it samples.

        Parameters
        ----------
        make
            What makes a model from its numbers (:meth:`tensors`), so that several processes can share the
            work; None where a model is more than numbers, and every process fits them all.
        about
            What a checkpoint, where one is in effect, knows the fits by; None fits them again after a kill.
        """
        for role in (TRAIN, OUT) if dealt.folds.design.folds else (TRAIN, STOP, OUT):
            dealt.require_clicks(role)
        own = processes.share(dealt.folds.replicas) if make is not None else slice(0, dealt.folds.replicas)
        tracker = progress.task(name, own.stop - own.start)

        def fit_some() -> PerReplica:
            models, offsets = [], []
            for number in range(own.start, own.stop):
                replica = ReplicaCells(dealt, number, name)
                offsets.append(replica.offset(ratio))
                models.append(_recorded(fit_one, replica, make, about))
                tracker.advance()
            return PerReplica(models, offsets, reads)

        def packed() -> processes.Packed:
            fitted = fit_some()
            return None, fitted.tensors() if fitted.models else {}

        if make is None or processes.world() == 1:
            fitted = fit_some()
        else:
            sent = [cls.of(tensors, make) for _, tensors in processes.exchange(packed) if tensors]
            models = [model for some in sent for model in some.models]
            fitted = PerReplica(models, [offset for some in sent for offset in some.offsets])
        tracker.finish()
        return cls(fitted.models, fitted.offsets, reads)

    def groups(self) -> Sequence[Sequence[int]]:
        """Return each replica alone."""
        return [[number] for number in range(len(self.models))]

    def score(self, rows: Rows, replicas: Sequence[int]) -> ReplicaScores:
        """Return raw propensities over D, in blocks."""
        user, item = rows.user[0].numpy(), rows.item[0].numpy()
        further = rows[self.reads][0].numpy() if self.reads in rows else None
        scores = np.empty((len(replicas), len(user)))
        for line, number in zip(scores, replicas, strict=True):
            model, offset = self.models[number], self.offsets[number]
            for start in range(0, len(line), BLOCK):
                at = slice(start, start + BLOCK)
                p = model(user[at], item[at], None if further is None else further[at])
                line[at] = (
                    expit(logit(np.clip(p, SMALLEST_SCORE, 1 - SMALLEST_SCORE)) + offset) if offset else p
                )
        return ReplicaScores(scores)

    def tensors(self) -> dict[str, Tensor]:
        """Return the numbers of all models, replica by replica."""
        first: Any = self.models[0]
        stacked: dict[str, NDArray[Any]] = {
            each.name: np.stack([np.asarray(getattr(model, each.name)) for model in self.models])
            for each in (fields(first) if is_dataclass(first) else ())
        }
        stacked["offset"] = np.asarray(self.offsets)
        return {name: torch.as_tensor(values) for name, values in stacked.items()}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], make: Callable[..., ReplicaModel], reads: str = "") -> Self:
        """Return the models that such tensors hold."""
        stacked = {name: value.numpy() for name, value in tensors.items()}
        offsets = stacked.pop("offset").tolist()
        return cls([make(*each) for each in zip(*stacked.values(), strict=True)], offsets, reads)


def _recorded(
    fit_one: Callable[[ReplicaCells], ReplicaModel],
    replica: ReplicaCells,
    make: Callable[..., ReplicaModel] | None,
    about: Callable[[], Mapping[str, Any]] | None,
) -> ReplicaModel:
    """Return the model of a replica: fitted, or as a checkpoint has it."""
    checkpoint = checkpoint_in_effect()
    if checkpoint is None or make is None or about is None:
        return fit_one(replica)
    call = checkpoint.call({**about(), "replica": replica.number})
    if (done := call.done()) is not None:
        # Copies, in the order of the numbers: those of a file lie anywhere.
        numbers = {name: done.tensors[name].clone() for name in done.facts["numbers"]}
        return PerReplica.of(numbers, make).models[0]
    model = fit_one(replica)
    tensors = PerReplica([model], [0.0]).tensors()
    call.finish({"numbers": list(tensors)}, tensors)
    return model


def room_for(replicas: int, **shapes: tuple[int, ...]) -> nn.Module:
    """Return tensors to be filled with the numbers of so many models, each of these shapes."""
    module = nn.Module()
    for name, shape in {**shapes, "offset": ()}.items():
        module.register_buffer(name, torch.empty((replicas, *shape), dtype=torch.float64))
    return module
