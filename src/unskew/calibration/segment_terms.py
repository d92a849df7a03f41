"""Corrections of a logit by segment, one column or two crossed columns at a time. Arrays in and out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from unskew.base.seeds import stream
from unskew.calibration.calibrator import logits
from unskew.calibration.grouping import Grouped, Vector, sum_by, thinned
from unskew.calibration.platt import Platt
from unskew.calibration.segment_columns import Codes

MOST_CROSSED = 12
"""Columns that are crossed with one another: those that alone gain most."""

MOST_PAIRS = 20
"""Crossed columns that stay candidates: those that promise most at the start."""

MOST_CELLS = 4096
"""Segments of two crossed columns; more are not tried."""

CROSSING = 2.0
"""Two crossed columns must promise so many times what one does: most often two terms that add up say the same
in fewer numbers."""

LEAST_GAIN = 0.1
"""Log-likelihood, in nats, that a further step must promise: less changes no figure."""

ASKED_AGAIN = 5
"""Rounds after which all terms are asked anew what they promise. In between it is those that promised most,
until one promises more than the next did before: what is left to gain shrinks as others take their part of
it, and hardly ever grows."""

JUDGED_ROWS = 100_000
"""Rows that the number of rounds is judged on, at most. Gains differ by .1 nats from row to row where
corrections are small, so that their mean is known to .0003: rounds that are worth less change no figure. All
rows are fitted."""

LEAST_SPREAD = 1e-9
"""Of logits: scores that differ by less are one score, whose mean is off by a rounding."""

HALVINGS = 8
"""Times that a step which overshoots is halved."""


class SegmentCells(NamedTuple):
    """Rows of one score and one segment of every column, merged.

    ``code`` is ``[columns, n]``; the other arrays are those of :class:`Grouped`.
    """

    code: Codes
    score: Vector
    total: Vector
    positive: Vector
    rows: Vector
    positive_rows: Vector

    def take(self, which: Codes) -> SegmentCells:
        """Return some of the cells."""
        return SegmentCells(self.code[:, which], *(each[which] for each in self[1:]))

    def thinned(self, left_out: SegmentCells) -> SegmentCells:
        """Return what is left without a part of the rows."""
        return SegmentCells(
            self.code, self.score, *(mine - other for mine, other in zip(self[2:], left_out[2:], strict=True))
        )


def merged_cells(
    code: Codes, sizes: Sequence[int], position: Codes, score: Vector, total: Vector, outcome: Vector
) -> SegmentCells:
    """Merge rows with one code in every column and one ``place`` of the score as one cell each."""
    key = position
    for own, size in zip(code, sizes, strict=True):
        # Dense again after each column, so that the product of all sizes never overflows.
        key = np.unique(key * (size + 1) + own, return_inverse=True)[1]
    _, first, cell = np.unique(key, return_index=True, return_inverse=True)
    count = len(first)
    positive = total * outcome
    sums = [sum_by(cell, own, count) for own in (total, positive, np.ones_like(total), outcome)]
    # One mean for all rows of a place: equal scores stay equal, whatever their segments.
    places = int(position.max()) + 1
    mass = sum_by(position, total, places)
    mean = sum_by(position, total * score, places) / np.where(mass > 0, mass, 1.0)
    cells = SegmentCells(code[:, first], mean[position[first]], *sums)
    return cells.take(np.flatnonzero(cells.total > 0))


def judged_rows(cells: SegmentCells, most: int, seed: int) -> SegmentCells:
    """Draw cells with about ``most`` of their rows, by chance: up to half of them are of the rarer class.

    Rows of the other class weigh more, so that rates stay as they are; and all weigh as much as the rows that
    are left can tell: the variance of a logit is about 1 / positives + 1 / negatives. Cells come in the order
    of their codes, so that the order of rows does not matter.
    """
    counts = [np.rint(cells.positive_rows), np.rint(cells.rows - cells.positive_rows)]
    many = np.array([each.sum() for each in counts])
    if many.sum() <= most or many.min() == 0:
        return cells
    taken = np.minimum(many, max(most / 2, most - many.min()))
    share = taken / many
    known, claimed = (1 / (1 / each).sum() for each in (taken, many))
    random = np.random.default_rng(stream(seed, "rows that rounds are judged on"))
    masses = [cells.positive, cells.total - cells.positive]
    rows = [random.binomial(count.astype(np.int64), each) for count, each in zip(counts, share, strict=True)]
    positive, negative = (
        left * mass / np.maximum(count, 1) / each * (known / claimed)
        for left, mass, count, each in zip(rows, masses, counts, share, strict=True)
    )
    thinned = cells._replace(
        total=positive + negative,
        positive=positive,
        rows=(rows[0] + rows[1]).astype(np.float64),
        positive_rows=rows[0].astype(np.float64),
    )
    return thinned.take(np.flatnonzero(thinned.total > 0))


def dealt(cells: SegmentCells, folds: int, seed: int) -> Iterator[SegmentCells]:
    """Return the cells with the rows of each fold in turn: every row falls into a fold by chance.

    For merged rows that is multinomial thinning of each cell's positives and negatives, so that the order of
    rows does not matter. Rows of one cell and outcome are taken to weigh the same.
    """
    for counts in thinned(*cells[2:], folds, seed):
        yield SegmentCells(cells.code, cells.score, *counts)


@dataclass(frozen=True)
class Base:
    """The map that corrections start from, and the scale on which slopes are counted.

    η₀ = ``slope``·z + ``intercept`` of the logit z of a score; t = (z − ``middle``) / ``spread`` has mean 0
    and variance 1 where outcomes are informative (weight·p(1 − p)).
    """

    slope: float
    intercept: float
    middle: float
    spread: float
    prior: float
    """Precision of the corrections, in both parameters."""
    message: str

    @classmethod
    def of(cls, cells: SegmentCells, strength: float) -> Base:
        """Start from Platt's fit, with a prior of ``strength`` rows of the rarer class for each segment."""
        platt = Platt()._fit_on(Grouped(*cells[1:]))
        z = logits(cells.score)
        information = cells.total * _variance(expit(platt.slope_ * z + platt.intercept_))
        known = float(information.sum())
        middle = float(information @ z / known)
        spread = float(np.sqrt(information @ (z - middle) ** 2 / known))
        if spread < LEAST_SPREAD:
            spread = 1.0
        total = float(cells.total.sum())
        rate = float(cells.positive.sum()) / total
        prior = strength / min(rate, 1 - rate) * known / total
        return cls(platt.slope_, platt.intercept_, middle, spread, prior, platt.message_)

    def scaled(self, z: Vector) -> Vector:
        """t of logits."""
        return (z - self.middle) / self.spread


@dataclass(frozen=True, eq=False)
class Term:
    """A correction a_g + s_g·t for each segment g of one column, or of two crossed ones.

    Attributes
    ----------
    columns
        Their places.
    shape
        Segments of each, with one more for values that were never seen, whose correction is 0.
    value
        a and s, ``[2, segments]``.
    """

    columns: tuple[int, ...]
    shape: tuple[int, ...]
    value: Vector

    def segment(self, code: Codes) -> Codes:
        """Return the segment of rows with codes ``[columns, n]``."""
        segment = code[self.columns[0]]
        for position, size in zip(self.columns[1:], self.shape[1:], strict=True):
            segment = segment * size + code[position]
        return np.asarray(segment)

    def of(self, segment: Codes, t: Vector) -> Vector:
        """Return the correction of rows."""
        return np.asarray(self.value[0].take(segment) + self.value[1].take(segment) * t)


@dataclass
class _Step:
    """A Newton step of one term, with its gain."""

    value: Vector
    gain: float
    freedom: float


class Boosting:
    """η = η₀ + Σ terms, a term improved at a time; the terms and how they gain are found as it goes.

    Each step moves one term by a Newton step of the penalised log-likelihood; the term is the one that
    promises most, less the degrees of freedom that it adds (Akaike's criterion).

    Parameters
    ----------
    sizes
        Codes of each column.
    monotone
        Keeps the slope in the score of every combination of segments at 0 or above.
    """

    def __init__(
        self, cells: SegmentCells, sizes: Sequence[int], base: Base, *, monotone: bool = False
    ) -> None:
        self.cells, self.sizes, self.base, self.monotone = cells, tuple(sizes), base, monotone
        z = logits(cells.score)
        self.t = base.scaled(z)
        self.eta = base.slope * z + base.intercept
        self.terms: dict[tuple[int, ...], Term] = {}
        self.common = np.zeros(2)
        """Level and slope that all rows share, beyond the base."""
        self._segments: dict[tuple[int, ...], Codes] = {}
        self._tried = [self._named((place,)) for place in range(len(sizes))]
        self._freedom: dict[tuple[int, ...], float] = {}
        self._promised: dict[tuple[int, ...], float] = {}
        self._rounds = 0
        self._likelihood = self._likelihood_of(self.eta)

    def step(self) -> bool:
        """Improve one term; False where none promises enough."""
        q = expit(self.eta)
        residual, curvature = self.cells.positive - self.cells.total * q, self.cells.total * _variance(q)
        sloped = curvature * self.t
        best, step = self._best((residual, residual * self.t, curvature, sloped, sloped * self.t))
        self._rounds += 1
        if self._worth(best, step) < LEAST_GAIN:
            return False
        self._freedom[best] = max(step.freedom, self._freedom.get(best, 0.0))
        if not self._take(best, step.value):
            return False
        self._take_common()
        return True

    def predicted(self, code: Codes, z: Vector) -> Vector:
        """η of rows with codes ``[columns, n]`` and logits of scores."""
        t = self.base.scaled(z)
        eta = self.base.slope * z + self.base.intercept + self.common[0] + self.common[1] * t
        for term in self.terms.values():
            eta += term.of(term.segment(code), t)
        return np.asarray(eta)

    def _best(self, by_row: Sequence[Vector]) -> tuple[tuple[int, ...], _Step]:
        """Return the term that promises most, and its step."""
        steps: dict[tuple[int, ...], _Step] = {}
        ask_all = self._rounds % ASKED_AGAIN == 0
        for name in sorted(self._tried, key=lambda name: -self._promised.get(name, np.inf)):
            if not ask_all and steps and max(map(self._promised.__getitem__, steps)) >= self._promised[name]:
                break
            steps[name] = self._asked(name, by_row)
        if self._rounds == 0:
            alone = sorted((name[0] for name in steps), key=lambda place: -self._promised[(place,)])
            pairs = [
                self._named(pair)
                for pair in combinations(sorted(alone[:MOST_CROSSED]), 2)
                if np.prod([self.sizes[place] + 1 for place in pair]) <= MOST_CELLS
            ]
            crossed = {name: self._asked(name, by_row) for name in pairs}
            promising = sorted(pairs, key=lambda name: -self._promised[name])[:MOST_PAIRS]
            steps |= {name: crossed[name] for name in promising}
            self._tried += promising
            self._segments = {name: self._segments[name] for name in self._tried}
        best = max(steps, key=lambda name: self._promised[name])
        if self._worth(best, steps[best]) < LEAST_GAIN and len(steps) < len(self._tried):
            steps |= {name: self._asked(name, by_row) for name in self._tried if name not in steps}
            best = max(steps, key=lambda name: self._promised[name])
        return best, steps[best]

    def _asked(self, name: tuple[int, ...], by_row: Sequence[Vector]) -> _Step:
        """Return the step of a term; what it promises is noted."""
        step = self._step(name, by_row)
        self._promised[name] = self._worth(name, step) / CROSSING ** (len(name) - 1)
        return step

    def _worth(self, name: tuple[int, ...], step: _Step) -> float:
        """Return the gain, less the degrees of freedom that the term does not have yet."""
        return step.gain - max(0.0, step.freedom - self._freedom.get(name, 0.0))

    def _named(self, columns: tuple[int, ...]) -> tuple[int, ...]:
        """Return the columns themselves, once their segments are known."""
        self._segments[columns] = self._empty(columns).segment(self.cells.code)
        return columns

    def _empty(self, columns: tuple[int, ...]) -> Term:
        shape = tuple(self.sizes[place] + 1 for place in columns)
        return Term(columns, shape, np.zeros((2, int(np.prod(shape)))))

    def _step(self, name: tuple[int, ...], by_row: Sequence[Vector]) -> _Step:
        """Return a Newton step of all segments of a term, 2×2 each, or of their levels alone if worth more.

        ``by_row`` has a gradient in level and slope and the three numbers of the curvature, ``[n]`` each.
        """
        term = self.terms.get(name) or self._empty(name)
        segment, count = self._segments[name], term.value.shape[1]
        g0, g1, h00, h01, h11 = (sum_by(segment, column, count) for column in by_row)
        gradient = np.stack([g0, g1]) - self.base.prior * term.value
        a, d = h00 + self.base.prior, h11 + self.base.prior
        determinant = a * d - h01 * h01
        move = np.stack([d * gradient[0] - h01 * gradient[1], a * gradient[1] - h01 * gradient[0]])
        move /= determinant
        trace = (d * h00 - 2 * h01 * h01 + a * h11) / determinant
        level = np.stack([gradient[0] / a, np.zeros(count)])
        steps = [
            _Step(term.value + moved, 0.5 * float((moved * gradient).sum()), float(freedom.sum()))
            for moved, freedom in ((move, trace), (level, h00 / a))
        ]
        return max(steps, key=lambda step: self._worth(name, step))

    def _take(self, name: tuple[int, ...], wanted: Vector) -> bool:
        """Move a term as far as the penalised likelihood rises."""
        term = self.terms.get(name) or self._empty(name)
        if self.monotone:
            # Even the least slopes of all terms together leave the whole slope at 0 or above.
            wanted = np.stack([wanted[0], np.maximum(wanted[1], -self._least_slope(name))])
        segment, before = self._segments[name], self._likelihood - self._penalty(term.value)
        for halving in range(HALVINGS):
            value = term.value + (wanted - term.value) / 2**halving
            moved = Term(term.columns, term.shape, value - term.value)
            eta = self.eta + moved.of(segment, self.t)
            likelihood = self._likelihood_of(eta)
            if likelihood - self._penalty(value) > before:
                self.eta, self.terms[name] = eta, Term(term.columns, term.shape, value)
                self._likelihood = likelihood
                return True
        return False

    def _likelihood_of(self, eta: Vector) -> float:
        return float(self.cells.positive @ eta - self.cells.total @ np.logaddexp(0, eta))

    def _penalty(self, value: Vector) -> float:
        return float(0.5 * self.base.prior * (value**2).sum())

    def _take_common(self) -> None:
        """Return a Newton step of the level and slope of all rows, which have no prior.

        Segments that tell rows apart leave each of them a steeper map than the one of all, and the mean
        prediction stays at the base rate.
        """
        q = expit(self.eta)
        residual, curvature = self.cells.positive - self.cells.total * q, self.cells.total * _variance(q)
        features = np.stack([np.ones_like(self.t), self.t])
        information = (features * curvature) @ features.T
        # Where every score is the same the slope has no curvature, and no gradient either.
        move = np.linalg.lstsq(information, features @ residual)[0]
        if self.monotone:
            move[1] = max(move[1], -self._least_slope(()))
        for halving in range(HALVINGS):
            eta = self.eta + move @ features / 2**halving
            likelihood = self._likelihood_of(eta)
            if likelihood > self._likelihood:
                self.eta, self.common = eta, self.common + move / 2**halving
                self._likelihood = likelihood
                return

    def _least_slope(self, name: tuple[int, ...]) -> float:
        """Return the slope in t of the worst combination of segments, without one term."""
        others = sum(min(0.0, each.value[1].min()) for key, each in self.terms.items() if key != name)
        return max(0.0, float(self.base.slope * self.base.spread + self.common[1] + others))


def cross_validated(
    cells: SegmentCells,
    sizes: Sequence[int],
    *,
    strength: float,
    rounds: int,
    folds: int,
    seed: int,
    monotone: bool,
) -> tuple[Vector, Vector, float]:
    """Return the held-out log loss after each number of rounds, the error of its gain, and the rows' weight.

    The losses are sums over rows; folds that lack a class are left out. Of more than :data:`JUDGED_ROWS` rows
    so many are judged on.
    """
    cells = judged_rows(cells, JUDGED_ROWS, seed)
    loss, square, total = np.zeros(rounds + 1), np.zeros(rounds + 1), 0.0
    for left_out in dealt(cells, folds, seed):
        training = cells.thinned(left_out)
        fitted = training.take(np.flatnonzero(training.total > 0))
        if not 0 < fitted.positive.sum() < fitted.total.sum() or left_out.total.sum() <= 0:
            continue
        base = Base.of(fitted, strength)
        boosting = Boosting(fitted, sizes, base, monotone=monotone)
        left_out = left_out.take(np.flatnonzero(left_out.total > 0))
        z = logits(left_out.score)
        first = _losses(base.slope * z + base.intercept)
        negative = left_out.total - left_out.positive
        total += float(left_out.total.sum())
        going, losses, gain = True, first, np.zeros_like(first)
        for number in range(rounds + 1):
            if number and going and (going := boosting.step()):
                losses = _losses(boosting.predicted(left_out.code, z))
                gain = first - losses
            loss[number] += left_out.positive @ losses[0] + negative @ losses[1]
            square[number] += left_out.positive**2 / np.maximum(left_out.positive_rows, 1) @ gain[0] ** 2
            square[number] += (
                negative**2 / np.maximum(left_out.rows - left_out.positive_rows, 1) @ gain[1] ** 2
            )
    return loss, np.sqrt(square), total


def _losses(eta: Vector) -> Vector:
    """−log-likelihood ``[2, n]`` of outcome 1 and of outcome 0."""
    return np.stack([np.logaddexp(0, -eta), np.logaddexp(0, eta)])


def _variance(probability: Vector) -> Vector:
    return probability * (1 - probability)
