"""Rows that are held out from training, by ids and seeds: clicks of O, and cells of D for click towers.

Their loss chooses the epoch. It can where some of each replica's held-out clicks converted, and some did not.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from unskew.base.errors import DataError, HeldOutWarning
from unskew.base.seeds import Replica, stream
from unskew.base.tensors import Tensor, torch
from unskew.data import Log, Rows
from unskew.data.splitting import SplitBy
from unskew.learners import Network
from unskew.training.inference import held_out_cells, logits
from unskew.training.means import cross_entropy, weighted_mean
from unskew.training.population import Population, Slots

Part = Literal["calibration", "evaluation"]

SLOTS = 10
"""D is dealt into so many slots: eight train, one calibrates, one evaluates (METHODS §2.4: 80/10/10)."""
SLOT_OF: dict[Part, int] = {"calibration": 0, "evaluation": 1}
BY_PAIR = SplitBy()
NAMES = {"pair": "pairs", "user": "users", "time": "moments", "group": "groups"}
MOST_CELLS = 1 << 17
"""Held-out cells of a part per replica; beyond it the unclicked are thinned and weighted."""


LATE_CHANCE = 1e-6
"""Conversions of the latest clicks are missing where so few of them have less than this chance at the rate of
the others; a run looks once, and a million runs may look."""
LATE_SHARE = 0.8
"""… and where their rate is below this share of the others': with many clicks a quiet week-end is beyond
chance too, and of no harm."""

MATURITY = "leave out rows too young to have converted, as --maturity 7d (unskew.data.splitting.mature_rows)"
BY_PAIRS = "--split pair (validation_by='pair')"

NEWTON_STEPS = 12
"""Of at most 1 each: enough to move a level by a factor of 10⁵."""


@dataclass(frozen=True)
class SplitCells:
    """Cells of D with their clicks, ``[R, n]`` each."""

    rows: Rows
    click: Tensor
    weight: Tensor
    """How many cells of D each stands for; 0 is padding."""


class HeldOut:
    """A split of D, for each replica from its own seed, into cells for training, calibration, evaluation.

    By a hash of the pair's ids. It is the click of a held-out cell, o = 1 or o = 0, that nothing trains on;
    a conversion there still trains the conversion model.
    """

    def __init__(self, population: Population, seeds: Sequence[int]) -> None:
        self.population = population
        self._seeds = [stream(seed, "held-out cells") for seed in seeds]

    def trains(self, rows: Rows) -> Tensor:
        """Return whether a click tower trains on rows ``[R, B]``."""
        return self._slots.of_rows(rows) >= len(SLOT_OF)

    def of(self, seeds: Sequence[int]) -> HeldOut:
        """Return the same for other seeds."""
        return HeldOut(self.population, seeds)

    @cached_property
    def calibration(self) -> SplitCells:
        """Return cells to calibrate with."""
        return self._cells("calibration")

    @cached_property
    def evaluation(self) -> SplitCells:
        """Return cells to judge by."""
        return self._cells("evaluation")

    @cached_property
    def _slots(self) -> Slots:
        return self.population.slots(self._seeds, SLOTS)

    def _cells(self, use: Part) -> SplitCells:
        chosen = torch.zeros(len(self._seeds), SLOTS, dtype=torch.bool, device=self.population.device)
        chosen[:, SLOT_OF[use]] = True
        cell, weight = held_out_cells(self.population, self._slots, chosen, MOST_CELLS)
        return SplitCells(rows=self.population.rows(cell), click=self.population.click(cell), weight=weight)


Positions = NDArray[np.int64]
Ends = tuple[int, ...]
"""The greatest key of each part of the clicks, one after the other."""


def split_parts(
    log: Log, seed: int, held_out: int, by: SplitBy, parts: Sequence[int], ends: Ends = ()
) -> dict[int, tuple[Positions, Positions]]:
    """Return positions in O that train (one order of a seed's own), and those that are held out, for some
    parts.

    The clicks are dealt into parts of as many as are held out, by their keys; where there are fewer parts
    than asked for, the first follows the last. Of times there is one part, the latest.

    No pair (user, group, moment) is in both: where several of its rows lie across the end of a part, those
    that do not fit in train nothing, and others come twice in their place, so that every seed has as many.

    Parameters
    ----------
    ends
        The greatest key of each part, where an earlier training has set them: nothing between the ends of a
        part trains, and ``held_out`` clicks of it are held out.
    """
    key = by.keys(log, log.clicked, seed)
    order = np.argsort(key, kind="stable")
    key = key[order]
    ends = ends or _ends(key, held_out, by, max(parts) + 1)
    split = {}
    for number in dict.fromkeys(parts):
        held, rest = order[:0], order
        if held_out:
            line = number % len(ends)
            first = int(np.searchsorted(key, ends[line - 1], side="right")) if line else 0
            held = order[first : first + held_out]
            rest = order[(key < key[first]) | (key > ends[line])]
        if not len(rest):
            raise DataError(
                f"{len(order)} clicked rows are of too few {NAMES[by.kind]} to split",
                remedy="give more data, or validation_share=0",
            )
        split[number] = np.resize(rest, len(order) - held_out), held
    return split


def _ends(key: NDArray[np.int64], held_out: int, by: SplitBy, most: int) -> Ends:
    """Return the greatest key of each part of the clicks, whose keys are sorted.

    A part has whole keys: the next begins with the first key above its last. What is later than a held-out
    click must not train, so that times have one part.
    """
    ends: list[int] = []
    first = 0
    while held_out and len(ends) < (1 if by.kind == "time" else most) and first + held_out <= len(key):
        ends.append(int(key[first + held_out - 1]))
        first = int(np.searchsorted(key, ends[-1], side="right"))
    return tuple(ends)


@dataclass(frozen=True)
class Split:
    """Which clicks were held out.

    Attributes
    ----------
    held_out
        How many for each seed, or each of its members; 0 if every click trained.
    ends
        For each seed the greatest keys (:meth:`~unskew.data.splitting.SplitBy.keys`) of the parts that were
        held out, one after the other.
    by
        What was held out together.
    lines
        Of a seed: its members that hold out a part each; 1 where all of a seed hold out the same.
    """

    held_out: int
    ends: tuple[Ends, ...]
    by: SplitBy = BY_PAIR
    lines: int = 1

    @classmethod
    def of(
        cls,
        log: Log,
        seeds: Sequence[int],
        held_out: int,
        by: SplitBy = BY_PAIR,
        *,
        members: int = 1,
    ) -> Split:
        """Return the split of a log, for so many members that are trained on their own."""
        if not held_out:
            return cls(0, ())
        lines = 1 if by.kind == "time" else members
        ends = tuple(_ends(np.sort(by.keys(log, log.clicked, seed)), held_out, by, lines) for seed in seeds)
        return cls(held_out, ends, by, lines)

    def rows(self, log: Log, seeds: Sequence[int]) -> NDArray[np.int64]:
        """Return numbers ``[seeds · lines, n]`` of a log's clicked rows that did not train a seed, or its
        member.

        The log may be the training log, in any order, or a part of it: what is between the ends of a part
        trained nothing, wherever it comes from. Where a log has more such rows in one line than in another,
        those with the least keys are given.
        """
        clicked = log.clicked
        if not self.held_out:
            return np.empty((len(seeds) * self.lines, 0), dtype=np.int64)
        lines = []
        for seed, ends in zip(seeds, self.ends, strict=True):
            key = self.by.keys(log, clicked, seed)
            order = np.argsort(key, kind="stable")
            borders = [0, *np.searchsorted(key[order], ends, side="right")]
            parts = [clicked[order[first:last]] for first, last in pairwise(borders)]
            lines += [parts[line % len(parts)] for line in range(self.lines)]
        count = min(len(each) for each in lines)
        if not count:
            raise DataError(
                "none of these clicks was held out from training, for some seed or member",
                remedy="give the training log, or more of it; or say which rows trained no model"
                " (held_out='all' for a new log)",
            )
        return np.stack([each[:count] for each in lines])


@dataclass(frozen=True)
class ValidationLoss:
    """Σ w·CE(r, r̂) / Σ w of each replica ``[R]``, as the network is when it is called: it chooses the epoch.

    Its rows trained nothing: ``[R, n]``, or ``[1, n]`` for all replicas.
    """

    prediction: Network
    rows: Rows
    conversion: Tensor
    weight: Tensor
    level: bool = True
    """False judges scores that are not meant as rates: after the shift of their logits that suits best."""

    def __call__(self) -> Tensor:
        """Return the loss of the present weights."""
        return self.of_logit(self.logit())

    def logit(self) -> Tensor:
        """Return the logits ``[R, n]`` of its rows."""
        return logits(self.prediction, self.rows, tower="prediction")

    def of_logit(self, logit: Tensor) -> Tensor:
        """Return the loss of logits."""
        if not self.level:
            logit = logit + _best_shift(self.conversion, logit, self.weight)
        return weighted_mean(cross_entropy(self.conversion, logit), self.weight)


def _best_shift(conversion: Tensor, logit: Tensor, weight: Tensor) -> Tensor:
    """Return the b ``[R, 1]`` that minimises Σ w·CE(r, σ(a + b)), by Newton's method."""
    least = torch.finfo(logit.dtype).tiny
    shift = torch.zeros_like(logit[:, :1])
    for _ in range(NEWTON_STEPS):
        p = torch.sigmoid(logit + shift)
        slope = (weight * (p - conversion)).sum(1, keepdim=True)
        curvature = (weight * p * (1.0 - p)).sum(1, keepdim=True).clamp(min=least)
        shift = shift - (slope / curvature).clamp(-1.0, 1.0)
    return shift


@dataclass(frozen=True)
class Outcomes:
    """Clicks that are held out and the others, and how many of them converted."""

    clicks: int
    converted: int
    others: int
    others_converted: int

    @property
    def decide(self) -> bool:
        """Return whether there are both outcomes: a loss of one falls as far as predictions follow it."""
        return 0 < self.converted < self.clicks

    @property
    def late(self) -> bool:
        """Return whether far fewer converted than others did, beyond chance."""
        rate = self.others_converted / max(self.others, 1)
        if self.converted >= LATE_SHARE * rate * self.clicks:
            return False
        return bool(bdtr(self.converted, self.clicks, rate) < LATE_CHANCE)

    @property
    def words(self) -> str:
        """Return what the held-out clicks and the others did."""
        return (
            f"{self.converted:,} of {self.clicks:,} converted, and {self.others_converted:,} of the"
            f" {self.others:,} others"
        )


def outcomes_of(log: Log, share: float, by: SplitBy, replicas: Sequence[Replica]) -> list[Outcomes]:
    """Return what each replica would hold out; nothing where clicks are too few to split."""
    held = by.count(log, log.clicked, share)
    if log.conversion is None or not 0 < held < log.n_clicks:
        return []
    converted = log.known_conversion() > 0.5
    parts: dict[int, set[int]] = {}
    # The latest clicks are the same for all replicas.
    for seed, number in [(0, 0)] if by.kind == "time" else [(each.seed, each.part) for each in replicas]:
        parts.setdefault(seed, set()).add(number)
    outcomes = []
    for seed, numbers in parts.items():
        for _, chosen in split_parts(log, seed, held, by, sorted(numbers)).values():
            count = int(converted[chosen].sum())
            outcomes.append(Outcomes(held, count, len(converted) - held, int(converted.sum()) - count))
    return outcomes


def split_that_decides(
    asked: str, log: Log, share: float, replicas: Sequence[Replica], *, selects: bool
) -> SplitBy:
    """Return what is held out together, with a warning where that cannot choose an epoch.

    Where nobody asked for the latest clicks and they have one outcome alone, pairs are held out instead.

    Parameters
    ----------
    asked
        ``validation_by``.
    selects
        Whether an epoch is chosen at all.
    """
    by = SplitBy.of(asked, log)
    outcomes = outcomes_of(log, share, by, replicas)
    lacking = [each for each in outcomes if not each.decide]
    if lacking and by.kind == "time" and asked.partition(":")[0] == "auto":
        pairs = outcomes_of(log, share, BY_PAIR, replicas)
        if any(each.decide for each in pairs):
            _warn(
                f"the latest clicks cannot choose the epoch: of them {lacking[0].words}. A split by pair"
                f" chooses it instead. If their conversions are yet to come, {MATURITY}"
            )
            by, outcomes, lacking = BY_PAIR, pairs, [each for each in pairs if not each.decide]
    if lacking and selects:
        _warn_of(lacking, outcomes, by, share)
    elif by.kind == "time" and outcomes and outcomes[0].late:
        _warn(
            f"conversions of the latest clicks seem to be missing: of those that are held out"
            f" {outcomes[0].words}, so that levels are too low. To fix: {MATURITY}"
        )
    return by


def _warn_of(lacking: Sequence[Outcomes], outcomes: Sequence[Outcomes], by: SplitBy, share: float) -> None:
    """Warn of held-out clicks of one outcome, and say what helps."""
    more = min(0.5, round(2 * share, 2))
    remedies = ["give more data", f"hold out more, as --split pair:{more:g} (validation_share={more:g})"]
    if by.kind == "time":
        remedies = [f"give {BY_PAIRS}", MATURITY, "give more data"]
    networks = f" in {len(lacking)} of {len(outcomes)} networks" if len(outcomes) > 1 else ""
    _warn(
        f"held-out clicks cannot choose the epoch{networks}: of them {lacking[0].words}, and their loss falls"
        f" as predictions go to {'0' if not lacking[0].converted else '1'}. To fix: {'; or '.join(remedies)}"
    )


def _warn(what: str) -> None:
    # The caller of fit, so that each of several methods does not say it once more.
    warnings.warn(f"{what}.", HeldOutWarning, stacklevel=5)


def outcome_words(log: Log, rows: NDArray[np.int64]) -> str:
    """Return how many clicks ``[lines, n]`` were held out, and how many of them converted, in words."""
    converted = log.take(rows.ravel()).known_conversion().reshape(rows.shape) > 0.5
    counts = converted.sum(axis=1)
    few, many = int(counts.min()), int(counts.max())
    counted = f"{few:,}" if few == many else f"{few:,} to {many:,}"
    return f"{rows.shape[1]:,} clicks held out, {counted} of which converted"
