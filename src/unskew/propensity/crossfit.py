"""Cross-fitting for every kind of propensity: which model sees which cells of D, and the calibrators.

A replica is one model of one fold of one seed; those of a seed stand side by side. A kind of propensity
trains its replicas and gives a :class:`Scorer`; folds, calibrators and the sketches that judge are here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require
from unskew.base.seeds import stream
from unskew.base.tensors import Tensor, torch
from unskew.calibration import Calibrator, Multicalibrated
from unskew.data import Rows
from unskew.metrics import CalibrationSketch
from unskew.metrics.collapse import Collapsed, learned_by_sketch
from unskew.propensity.segments import Columns
from unskew.training import IdHashes, Population, Slots
from unskew.training.inference import held_out_cells
from unskew.training.population import FoldBy

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Negatives = float | Literal["auto"] | None

TRAIN, STOP, OUT = 0, 1, 2
"""Roles of a slot for a replica: trained on; early stopping (and, without cross-fitting, calibration);
held out from both."""

DEFAULT_FOLDS = 5
"""Folds of a propensity that may become a weight."""

MOST_FOLDS = 100
"""Each fold is a model of its own; beyond this many they differ in nothing."""

AUTO_RATIO = 4.0
"""Negatives per click that ``negatives="auto"`` draws where D is too large (METHODS §5A, step 2)."""

SAMPLED_CELLS = 1 << 20
"""Unclicked cells that a replica is judged on where D is too large to judge it on all that it holds out. With
clicks on 0.1 % of D, NLL over D is then known to some 0.1 % of itself, and the clicks, which are all there,
decide how well everything else is."""

_HOLDOUT_SLOTS = 10
_SLOTS_PER_FOLD = 4
_STOP_SHARE = 0.1


class ReplicaScores(NamedTuple):
    """The scores of replicas for rows, ``[replicas, n]``: raw propensities over D."""

    mean: Floats
    variance: Floats | None = None
    """Over members or passes, where a kind has them."""


class Scorer(Protocol):
    """The fitted models of all replicas: what a kind of propensity plugs into the engine."""

    def groups(self) -> Sequence[Sequence[int]]:
        """Return replicas that are scored in one go: all of a stack of networks; otherwise one after
        another."""
        ...

    def score(self, rows: Rows, replicas: Sequence[int]) -> ReplicaScores:
        """Return raw propensities of rows ``[replicas, n]``, or ``[1, n]``, by a group of replicas."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Return all that was learned, for a file of tensors."""
        ...


@dataclass(frozen=True)
class SplitDesign:
    """Roles of the slots of D for the replicas of one seed.

    A pair's slot follows from its ids and the seed (:class:`unskew.training.Slots`), so which replica never
    saw it is known wherever the pair comes from.

    Without cross-fitting there is one replica: 80 % of the cells train it, 10 % stop and calibrate it, 10 %
    judge it (METHODS §2.4). With K folds there are K replicas; replica k is held out from fold k, stops on
    a tenth of the rest and trains on what remains, so every cell is held out from exactly one replica.
    """

    folds: int | None
    roles: Tensor
    """``[K or 1, S]``."""

    @classmethod
    def of(cls, crossfit: int | None, *, stops: bool = True) -> SplitDesign:
        """Return the design for ``crossfit`` folds, or for a single hold-out (None).

        Parameters
        ----------
        stops
            False where nothing is stopped early: the cells that would stop a replica then train it. Without
            cross-fitting they calibrate it all the same.
        """
        if crossfit is None:
            roles = torch.full((1, _HOLDOUT_SLOTS), TRAIN)
            roles[0, -2], roles[0, -1] = STOP, OUT
            return cls(folds=None, roles=roles)
        require(
            2 <= crossfit <= MOST_FOLDS,
            f"crossfit must be None or from 2 to {MOST_FOLDS} folds, not {crossfit}",
            "give 5, for example",
        )
        slots = crossfit * _SLOTS_PER_FOLD
        fold = torch.arange(slots) // _SLOTS_PER_FOLD
        roles = torch.full((crossfit, slots), TRAIN)
        stop = max(1, round(_STOP_SHARE * slots)) if stops else 0
        for k in range(crossfit):
            after = ((k + 1) * _SLOTS_PER_FOLD + torch.arange(stop)) % slots
            roles[k, after] = STOP
            roles[k, fold == k] = OUT
        return cls(folds=crossfit, roles=roles)

    @property
    def replicas(self) -> int:
        """Return the number of replicas per seed."""
        return len(self.roles)

    @property
    def slots(self) -> int:
        """Return the number of slots into which D is cut."""
        return int(self.roles.shape[1])

    def roles_of(self, clicks: Tensor) -> Tensor:
        """``[seeds · replicas, S]``: the roles for each seed's replicas, side by side.

        Slots are even in expectation only, so in a small log those that stop a replica (without
        cross-fitting also those that judge it) may have no click. Then they get one of the slots that would
        have trained it, if another one with clicks is left for training. Folds stay what they are.

        Parameters
        ----------
        clicks
            ``[seeds, S]`` clicks in each slot.
        """
        lacking = (STOP,) if self.folds else (STOP, OUT)
        roles = self.roles.repeat(len(clicks), 1)
        for line, of_slot in zip(roles, clicks.repeat_interleave(self.replicas, dim=0).cpu(), strict=True):
            for role in lacking:
                if bool((line == role).any()) and not bool(of_slot[line == role].any()):
                    trains = torch.nonzero((line == TRAIN) & (of_slot > 0))[:, 0]
                    if len(trains) > 1:
                        line[trains[0]] = role
        return roles

    def fold_of(self, slot: Tensor) -> Tensor:
        """Return the replica that a slot is held out from (0 without cross-fitting)."""
        if self.folds is None:
            return torch.zeros_like(slot)
        return torch.div(slot, _SLOTS_PER_FOLD, rounding_mode="floor")


class Folds:
    """Which replica never saw a pair: a function of the pair's ids and the seed.

    Parameters
    ----------
    by
        What a fold holds together.
    hashes
        Of the ids whose codes :meth:`of` gets.
    """

    def __init__(self, design: SplitDesign, seeds: Sequence[int], by: FoldBy, hashes: IdHashes) -> None:
        self.design, self.seeds, self.by, self.hashes = design, tuple(seeds), by, hashes
        self.split_seeds = [stream(seed, "propensity split") for seed in seeds]

    @property
    def replicas(self) -> int:
        """Return the number of replicas of all seeds."""
        return len(self.seeds) * self.design.replicas

    def slots(self, replicas: Sequence[int], population: Population | None = None) -> Slots:
        """Return the partition of D for each of some replicas; those of one seed share theirs."""
        seeds = [self.split_seeds[replica // self.design.replicas] for replica in replicas]
        return Slots(self.hashes, seeds, self.design.slots, self.by, population)

    def of(self, rows: Rows) -> Codes:
        """Return the fold ``[seeds, n]`` of rows ``[1, n]``."""
        slots = self.slots(range(0, self.replicas, self.design.replicas))
        return np.asarray(self.design.fold_of(slots.of_rows(rows)).cpu().numpy())


class DealtCells:
    """The cells of D of a log, dealt to the replicas of all seeds.

    Attributes
    ----------
    roles
        ``[replicas, S]``.
    """

    def __init__(self, population: Population, folds: Folds) -> None:
        self.population, self.folds = population, folds
        design = folds.design
        slots = folds.slots(range(0, folds.replicas, design.replicas), population)
        clicks = [torch.bincount(of, minlength=design.slots) for of in slots.of(population.observed[None])]
        self._clicks = torch.stack(clicks)
        self.roles = design.roles_of(self._clicks).to(population.device)

    def slots(self, replicas: Sequence[int]) -> Slots:
        """Return the slots of cells, for each of some replicas."""
        return self.folds.slots(replicas, self.population)

    def admitted(self, role: int, replicas: Sequence[int]) -> Tensor:
        """``[replicas, S]``: the slots that have a role for each of some replicas."""
        return self.roles[list(replicas)] == role

    def held_out(self, role: int, replicas: Sequence[int], most: int) -> tuple[Tensor, Tensor]:
        """Return cells and weights ``[replicas, n]`` that have a role; of more than ``most`` each, a
        sample."""
        self.require_clicks(role)
        slots, admitted = self.slots(replicas), self.admitted(role, replicas)
        return held_out_cells(self.population, slots, admitted, most, min(most, SAMPLED_CELLS))

    def require_clicks(self, role: int) -> None:
        """Raise an error where the cells of a role have no click, for some replica."""
        design = self.folds.design
        clicks = self._clicks.repeat_interleave(design.replicas, dim=0)
        has_clicks = (clicks * (self.roles == role)).sum(1) > 0
        if role == OUT and design.folds:
            # Calibrator and figures are made from several folds together, so one may lack clicks.
            has_clicks = has_clicks.reshape(len(self._clicks), -1).sum(1) > 1
            has_clicks &= self.population.n_clicks >= design.folds
        if not bool(has_clicks.all()):
            raise DataError(
                f"too few clicks ({self.population.n_clicks}) for every fold to train on some and to hold"
                " some out",
                remedy="give more data, or fewer folds (crossfit)",
            )


class ScoredCells(NamedTuple):
    """Cells that one replica is calibrated or judged on, scored."""

    raw: Floats
    to_map: Floats
    """What the calibrator gets: the raw scores, unless a kind has others for it."""
    outcome: Floats
    weight: Floats
    features: Columns | None = None
    """What the calibrator reads beside the scores, if anything."""

    def sketch(self, *, to_map: bool) -> CalibrationSketch:
        """Return a sketch of the raw scores, or of those that the calibrator gets."""
        score = self.to_map if to_map else self.raw
        return CalibrationSketch.of(score=score, outcome=self.outcome, weight=self.weight)


def cross_calibrators(
    calibrator: Calibrator | None,
    held_out: Sequence[CalibrationSketch] | Sequence[ScoredCells],
    folds: int,
    *,
    crossfitted: bool,
) -> list[Calibrator | None]:
    """Return one fitted calibrator per replica, from the cells of each that it never saw, or sketches of
    them.

    Without cross-fitting it is fitted on the replica's calibration cells. With it, on the out-of-fold scores
    of the seed's other folds: no cell is lost to calibration, and none is mapped by a fit that saw it.
    """
    if calibrator is None:
        return [None] * len(held_out)
    fitted: list[Calibrator | None] = []
    for replica in range(len(held_out)):
        seed, fold = divmod(replica, folds)
        own: list[Any] = list(held_out[seed * folds : (seed + 1) * folds])
        others = own[:fold] + own[fold + 1 :] if crossfitted else own
        clone = calibrator.clone()
        if isinstance(clone, Multicalibrated):
            score, outcome, weight = (
                np.concatenate([getattr(each, name) for each in others])
                for name in ("to_map", "outcome", "weight")
            )
            names = others[0].features
            features = {name: np.concatenate([each.features[name] for each in others]) for name in names}
            fitted.append(clone.fit(score, outcome, weight, features=features))
        else:
            merged = CalibrationSketch()
            for sketch in others:
                merged.merge(sketch)
            fitted.append(clone.fit(merged))
    return fitted


def judging_sketches(
    judged: Sequence[ScoredCells], calibrators: Sequence[Calibrator | None], folds: int
) -> tuple[list[CalibrationSketch], list[CalibrationSketch]]:
    """Return sketches of the cells to judge on, one per seed: raw, and calibrated."""
    raw = [CalibrationSketch() for _ in range(0, len(judged), folds)]
    calibrated = [CalibrationSketch() for _ in raw]
    for replica, (cells, calibrator) in enumerate(zip(judged, calibrators, strict=True)):
        raw[replica // folds].update(cells.raw, cells.outcome, cells.weight)
        probability = apply(calibrator, cells.to_map, cells.features)
        calibrated[replica // folds].update(probability, cells.outcome, cells.weight)
    return raw, calibrated


def collapsed_replicas(
    judged: Sequence[CalibrationSketch], seeds: Sequence[int], folds: int
) -> tuple[Collapsed, ...]:
    """Return the seeds and folds whose model learned nothing, by its raw scores of cells that it never
    saw."""
    collapsed = []
    for replica, sketch in enumerate(judged):
        seed, fold = divmod(replica, folds)
        reason = learned_by_sketch(sketch).reason
        if reason is not None:
            name = "propensity" if folds == 1 else f"propensity, fold {fold}"
            collapsed.append(Collapsed(name, seeds[seed], reason))
    return tuple(collapsed)


def apply(calibrator: Calibrator | None, score: Floats, features: Columns | None = None) -> Floats:
    """Return calibrated scores; the scores themselves without a calibrator."""
    if isinstance(calibrator, Multicalibrated):
        return calibrator.predict(score, features)
    return score if calibrator is None else calibrator.predict(score)


def resolve_ratio(negatives: Negatives, population_size: int, most_cells: int) -> float | None:
    """Return negatives per click to sample, or None to train over all of D; ``"auto"`` samples above
    ``most_cells``."""
    if negatives == "auto":
        return AUTO_RATIO if population_size > most_cells else None
    if negatives is None:
        return None
    if not (isinstance(negatives, int | float) and negatives > 0):
        raise ParameterError(
            f"negatives must be None, 'auto' or a positive ratio, not {negatives!r}",
            remedy="give one of these",
        )
    return float(negatives)


def logit_offset(ratio: float, n_clicks: int, population_size: int) -> float:
    """log w with w = k·|O| / (|D| − |O|): z_D = z_sample + log w.

    Negatives are kept with probability w and clicks with probability 1, so the odds over D are w times
    those of the sample. ``ratio`` is k. On Coat at 1:1 the offset is −2.442.

    Examples
    --------
    >>> round(logit_offset(1, 6_960, 87_000), 3)
    -2.442
    """
    return math.log(ratio * n_clicks / (population_size - n_clicks))
