"""Grouped data, from a sketch or exactly from arrays, and its division into bins.

Every metric takes ``(score, outcome, weight)``, or a sketch in their place; :func:`cells_of` is where the two
meet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require_choice
from unskew.base.numbers import parts_of
from unskew.metrics.cell_sums import CellSums, both, tabled
from unskew.metrics.chunks import DEFAULT_NAMES, Names, ScoreChunk, chunks
from unskew.metrics.sketch import DEFAULT_BINS, CalibrationSketch
from unskew.metrics.sketch_grid import SMALLEST, Rule, check_bins, width_bin

Array = NDArray[np.float64]
Spacing = Literal["width", "mass", "log"]
"""Bins of equal width in the score, of equal weight, or of equal width in the score's logarithm."""

WEIGHT_BLOCKS = 20
"""Most blocks, in order of score, within which an outcome's weights are taken not to depend on the score."""

WEIGHT_ROWS = 100
"""Rows of an outcome in such a block: with some four of them Σw²/Σw is so rough that tests at 5 % refuse
honest scores in 15 to 40 % of cases (benchmarks/sizes.py)."""

EXACT_BELOW = 50_000
"""Arrays of at most this many rows are grouped by their unique scores, larger ones by a sketch."""


_OF_CELLS = ("score", "rows", "weight", "score_sum", "square_sum", "inverse_sum", "outcome_weight", "ids")
"""What a cell has a value of."""


@dataclass(frozen=True, eq=False)
class ScoreCells:
    """Groups of rows of (nearly) one score, in order of score.

    Attributes
    ----------
    score
        Mean score of each cell.
    rows, weight, score_sum, square_sum
        ``[cell, outcome]``: n, Σw, Σwp, Σw².
    outcome_weight
        w₀ and w₁, ``[cell, outcome]``: see :func:`outcome_weights`.
    inverse_sum
        Σ wo/p (0 where p is 0).
    brier_sum, log_loss_sum
        Σ w(o − p)² and −Σ w log(likelihood) over all rows.
    sketch, ids
        Where the cells come from a sketch: it, and the id of each cell.
    """

    score: Array
    rows: NDArray[np.int64]
    weight: Array
    score_sum: Array
    square_sum: Array
    outcome_weight: Array
    inverse_sum: Array
    brier_sum: float
    log_loss_sum: float
    sketch: CalibrationSketch | None = None
    ids: NDArray[np.int64] | None = None

    @cached_property
    def total(self) -> Array:
        """Σw of each cell."""
        return both(self.weight)

    @property
    def positive(self) -> Array:
        """Σ w·o of each cell."""
        return self.weight[:, 1]

    @cached_property
    def gap(self) -> Array:
        """Σ w(o − p) of each cell."""
        return np.asarray(self.positive - both(self.score_sum))

    def row_weight(self, rate: Array | None = None) -> Array:
        r"""Return the weight ω of one of as many equal rows as make the same noise: (1 − r)·w₁ + r·w₀.

        A unit of weight of rate r adds the variance r(1 − r)²·w₁ + (1 − r)r²·w₀ = r(1 − r)·ω: what clicks
        add depends on *their* weights, and what the other rows add on theirs. Pooling both would inflate
        the noise of sampled negatives (clicks 1, the others k) up to k times. ``rate`` is the cells'
        score unless given.
        """
        rate = self.score if rate is None else rate
        return np.asarray((1.0 - rate) * self.outcome_weight[:, 1] + rate * self.outcome_weight[:, 0])

    @property
    def effective_rows(self) -> Array:
        """Σw / ω of each cell: the rows, without weights."""
        return np.asarray(self.total / self.row_weight())

    def equal_rows(self, rate: Array | None = None) -> tuple[Array, Array]:
        """Return a whole number n of equal rows for each cell, and the weight s of each that keeps the noise.

        n is Σw/ω, rounded, and n·s² = Σw·ω: draws of n outcomes have the variance that the cell's have.
        """
        row = self.row_weight(rate)
        rows = np.maximum(np.rint(self.total / row), 1.0)
        return rows, np.sqrt(self.total * row / rows)

    @property
    def expected_rows(self) -> Array:
        """Rows that a cell has if its scores are true, ``[cell, outcome]``: Σw(1 − p)/w₀ and Σwp/w₁.

        Negatives that weigh no more than positives were not sampled, and count as more than enough.
        """
        rate = np.stack([1.0 - self.score, self.score], axis=1)
        rows = self.total[:, None] * rate / self.outcome_weight
        rows[self.outcome_weight[:, 0] <= self.outcome_weight[:, 1], 0] = np.inf
        return rows

    def spread(self) -> Array:
        """Return the variance of Σ w(o − p) of each cell, if its scores are true: Σw · ω · p(1 − p)."""
        return np.asarray(self.total * self.row_weight() * self.score * (1.0 - self.score))

    def take(self, which: NDArray[np.bool_]) -> ScoreCells:
        """Return some of the cells."""
        taken = {name: v[which] for name, v in vars(self).items() if name in _OF_CELLS and v is not None}
        return replace(self, **taken)

    def bin_index(
        self, *, bins: int | None, spacing: Spacing = "width", rule: Rule = "paper"
    ) -> NDArray[np.int64]:
        """Return the bin of each cell, not decreasing; a cell is never split."""
        require_choice("spacing", spacing, get_args(Spacing))
        if spacing == "width":
            return self._width_index(bins, rule)
        count = check_bins(DEFAULT_BINS if bins is None else bins)
        if spacing == "mass":
            total = self.total
            middle = np.cumsum(total) - total / 2
            return np.asarray(np.minimum((middle / total.sum() * count).astype(np.int64), count - 1))
        edges = self.log_edges(count)
        return np.searchsorted(edges[1:-1], self.score, side="left").astype(np.int64)

    def log_edges(self, bins: int) -> Array:
        """Return edges of equal ratio from the lowest positive score to the highest."""
        positive = self.score[self.score > 0]
        if not len(positive):
            return np.zeros(bins + 1)
        return np.geomspace(max(positive[0], SMALLEST), positive[-1], bins + 1)

    def _width_index(self, bins: int | None, rule: Rule) -> NDArray[np.int64]:
        if self.sketch is None or self.ids is None:
            return width_bin(self.score, bins=check_bins(DEFAULT_BINS if bins is None else bins), rule=rule)
        if bins is not None and check_bins(bins) != self.sketch.bins:
            raise ParameterError(
                f"the sketch keeps {self.sketch.bins} equal-width bins, not {bins}",
                remedy=f"make it with CalibrationSketch(bins={bins})",
            )
        return self.sketch.grid.bin_of_id(rule)[self.ids]


def outcome_weights(rows: NDArray[Any], weight: Array, square: Array) -> Array:
    """Return Σw²/Σw of the rows of each outcome around each cell, from n, Σw and Σw² ``[cell, outcome]``.

    Around a cell: in blocks of at least 100 rows of the outcome, at most 20, in order of score, so that
    weights may depend on outcome and score. An outcome without rows gets the ratio of all rows.
    """
    if np.array_equal(square, weight):
        return np.ones_like(weight)
    result = np.full_like(weight, square.sum() / weight.sum())
    for outcome, total in enumerate(rows.sum(axis=0)):
        if total == 0:
            continue
        blocks = int(np.clip(total // WEIGHT_ROWS, 1, WEIGHT_BLOCKS))
        middle = np.cumsum(rows[:, outcome]) - rows[:, outcome] / 2
        block = np.minimum((middle / total * blocks).astype(np.int64), blocks - 1)
        squares, weights = (np.bincount(block, sums[:, outcome], blocks) for sums in (square, weight))
        whole = np.full(blocks, squares.sum() / weights.sum())
        result[:, outcome] = np.divide(squares, weights, out=whole, where=weights > 0)[block]
    return result


def cells_of(
    score: Any, outcome: Any = None, weight: Any = None, *, bins: int | None = None, exact: bool = False
) -> ScoreCells:
    """Return the cells of arrays, or of a sketch given as ``score``; no rows, or no weight, is an error.

    ``exact`` keeps every distinct score of arrays of any size in a cell of its own.
    """
    if isinstance(score, CalibrationSketch):
        if outcome is not None or weight is not None:
            raise ParameterError(
                "a sketch holds its outcomes and weights", remedy="give the sketch alone, or arrays"
            )
        return _cells_of_sketch(score)
    if outcome is None:
        raise ParameterError("score needs outcome", remedy="give an outcome for each score, or a sketch")
    if not exact and sum(len(part) for part in parts_of(score, DEFAULT_NAMES.score)) > EXACT_BELOW:
        bins = DEFAULT_BINS if bins is None else bins
        return _cells_of_sketch(CalibrationSketch.of(score, outcome, weight, bins=bins))
    return exact_cells(score, outcome, weight)


def require_rows(total: float) -> None:
    """Raise an error unless there is something to measure."""
    if not total > 0:
        raise DataError("there are no rows with a positive weight", remedy="give at least one row")


def bin_sums(values: Array, index: NDArray[np.int64]) -> Array:
    """Return sums of values ``[..., cell]`` over the occupied bins, in order: ``[..., bin]``."""
    starts = np.flatnonzero(np.diff(index, prepend=-1))
    return np.asarray(np.add.reduceat(values, starts, axis=-1))


def occupied_bin(index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of each cell's bin among the occupied ones: its place in :func:`bin_sums`."""
    return np.cumsum(np.diff(index, prepend=index[:1]) > 0, dtype=np.int64)


def _cells_of_sketch(sketch: CalibrationSketch) -> ScoreCells:
    ids = sketch.occupied()
    require_rows(float(len(ids)))
    cells = _of_sums(sketch.scores(ids), CellSums(*sketch.table[:, ids]))
    return replace(
        cells, brier_sum=sketch.brier_sum, log_loss_sum=sketch.log_loss_sum, sketch=sketch, ids=ids
    )


def _of_sums(score: Array, sums: CellSums) -> ScoreCells:
    return ScoreCells(
        score=score,
        rows=np.rint(sums.rows).astype(np.int64),
        weight=sums.weight,
        score_sum=sums.score,
        square_sum=sums.square,
        outcome_weight=outcome_weights(sums.rows, sums.weight, sums.square),
        inverse_sum=sums.inverse[:, 1],
        brier_sum=float(sums.brier.sum()),
        log_loss_sum=float(sums.log_loss.sum()),
    )


def exact_cells(score: Any, outcome: Any, weight: Any = None, names: Names = DEFAULT_NAMES) -> ScoreCells:
    """Return cells of arrays, one for each distinct score."""
    parts = list(chunks(score, outcome, weight, names=names))
    require_rows(float(len(parts)))
    p, clicked = (np.concatenate(column) for column in zip(*(part[:2] for part in parts), strict=True))
    w = None if weight is None else np.concatenate([part[2] for part in parts])
    if w is not None:
        p, clicked, w = p[w > 0], clicked[w > 0], w[w > 0]
    require_rows(float(len(p)))
    # −0.0 becomes 0.0: one score with two signs would be an edge that bits cannot place.
    unique, cell = np.unique(p + 0.0, return_inverse=True)
    return _of_sums(unique, CellSums(*tabled(cell, ScoreChunk(p, clicked, w), len(unique))))
