"""The calibration sketch: one pass over scores and outcomes into cells spaced in the logit, mergeable.

It holds what every metric of ``unskew.metrics`` and every calibrator of ``unskew.calibration`` needs;
what is computed from it is theirs.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError
from unskew.base.files import whole_file
from unskew.metrics.cell_sums import SUMS, CellSums, added_up, both, tabled, values_of
from unskew.metrics.chunks import DEFAULT_NAMES, Names, ScoreChunk, chunks
from unskew.metrics.sketch_grid import SketchGrid, grid

FORMAT_VERSION = 2
"""Of files; 1 had cells spaced in the score at the upper end too, which cannot be separated afterwards."""

DEFAULT_BINS = 100
"""Equal-width bins of ECE, as in the paper."""

DEFAULT_MANTISSA_BITS = 7
"""With the exponent, the top 16 bits of a float32 score, or of what it lacks to 1: cells 0.4–0.8 % wide."""


class Points(NamedTuple):
    """Occupied cells in order of score: mean score, weight, positive weight, rows."""

    score: NDArray[np.float64]
    total: NDArray[np.float64]
    positive: NDArray[np.float64]
    rows: NDArray[np.int64]


class CalibrationSketch:
    r"""Sums over cells of the score, spaced in the logit, from which calibration is measured and fitted.

    .. math::
        \text{cell}(p) = \text{the exponent and the first } m \text{ mantissa bits of } \min(p, 1 - p),
        \text{ by side of } \tfrac12, \qquad
        \text{sums by outcome: } n,\ \Sigma w,\ \Sigma w p,\ \Sigma w^2,\ \Sigma w o/p

    So cells are 0.4 to 0.8 % wide in p near 0 and in 1 − p near 1, down to 2^-30 (m is ``mantissa_bits``).
    Scores of 0 and of 1 have a cell of their own, and a score that equals an edge of the equal-width bins
    too, so that ECE is exact under both rules; so are NLL and Brier, of which the totals are kept. The size
    is some 7,600 cells whatever the number of rows. Use it for data that arrive in chunks, for more data
    than memory, or to compute several metrics at the price of one pass; for one ECE of two arrays
    :func:`unskew.metrics.ece` alone is faster.

    Counts are equal under any chunking, order and merging; floating-point sums are equal to rounding.

    Parameters
    ----------
    bins
        Equal-width bins that are kept exact (the paper's M).
    mantissa_bits
        ScoreCells an octave are 2 to this power: fewer make a smaller, coarser sketch.

    Examples
    --------
    >>> sketch = CalibrationSketch().update([0.1, 0.8], [0, 1]).update([0.3], [0])
    >>> sketch.rows, sketch.positives, round(sketch.mean_score, 6)
    (3, 1.0, 0.4)
    >>> (sketch + CalibrationSketch.of(score=[0.5], outcome=[1])).base_rate
    0.5
    """

    def __init__(self, *, bins: int = DEFAULT_BINS, mantissa_bits: int = DEFAULT_MANTISSA_BITS) -> None:
        self.grid: SketchGrid = grid(bins, mantissa_bits)
        self.bins, self.mantissa_bits = self.grid.bins, self.grid.mantissa_bits
        self.table = np.zeros((len(SUMS), self.grid.size, 2))

    @classmethod
    def of(cls, score: Any, outcome: Any, weight: Any = None, **options: Any) -> CalibrationSketch:
        """Return a sketch of arrays; ``options`` go to the constructor."""
        return cls(**options).update(score, outcome, weight)

    def update(
        self,
        score: Any,
        outcome: Any,
        weight: Any = None,
        *,
        first_row: int = 0,
        names: tuple[str, str, str] = DEFAULT_NAMES,
    ) -> Self:
        """Add rows: NumPy, Arrow, torch, pandas or polars. A bad value is an error, and nothing is added.

        Parameters
        ----------
        score
            Probabilities in [0, 1].
        outcome
            0 or 1.
        weight
            Finite, at least 0; how many rows of the population a row stands for.
        first_row, names
            The number of the first row and the names of the columns, for error messages.
        """
        fresh = np.zeros_like(self.table)
        for chunk in chunks(score, outcome, weight, first_row=first_row, names=Names(*names)):
            fresh += tabled(self.grid.ids(chunk.score), chunk, self.grid.size)
        self.table += fresh
        return self

    def merge(self, other: CalibrationSketch) -> Self:
        """Add the rows of another sketch of the same bins and cells."""
        if not isinstance(other, CalibrationSketch):
            raise ParameterError(
                f"a sketch merges with a sketch, not with {type(other).__name__}",
                remedy="give a CalibrationSketch",
            )
        for name in ("bins", "mantissa_bits"):
            mine, theirs = getattr(self.grid, name), getattr(other.grid, name)
            if mine != theirs:
                raise ParameterError(
                    f"sketches of {name}={mine} and {name}={theirs} cannot be merged",
                    remedy=f"make both with the same {name}",
                )
        self.table += other.table
        return self

    def __add__(self, other: CalibrationSketch) -> CalibrationSketch:
        return self.copy().merge(other)

    def copy(self) -> CalibrationSketch:
        """Return a sketch of the same rows."""
        return CalibrationSketch(bins=self.bins, mantissa_bits=self.mantissa_bits).merge(self)

    @property
    def sums(self) -> CellSums:
        """The sums of every cell of the grid."""
        return CellSums(*self.table)

    @property
    def rows(self) -> int:
        """Rows seen."""
        return round(float(self.sums.rows.sum()))

    @property
    def total(self) -> float:
        """Σw; the rows, without weights."""
        return float(self.sums.weight.sum())

    @property
    def positives(self) -> float:
        """Σ w·o."""
        return float(self.sums.weight[:, 1].sum())

    @property
    def base_rate(self) -> float:
        """Weighted mean outcome; NaN for an empty sketch."""
        return self.positives / self.total if self.total else float("nan")

    @property
    def mean_score(self) -> float:
        """Weighted mean score; NaN for an empty sketch."""
        return float(self.sums.score.sum()) / self.total if self.total else float("nan")

    @property
    def brier_sum(self) -> float:
        """Σ w (o − p)², exact."""
        return float(self.sums.brier.sum())

    @property
    def log_loss_sum(self) -> float:
        """−Σ w log(likelihood), exact, likelihoods floored at 2^-52."""
        return float(self.sums.log_loss.sum())

    def points(self) -> Points:
        """Return the occupied cells in order of score, as grouped data for a calibrator."""
        ids = self.occupied()
        rows, weight, *_ = self.table[:, ids]
        return Points(self.scores(ids), both(weight), weight[:, 1], np.rint(both(rows)).astype(np.int64))

    def scores(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the mean scores of occupied cells; rounding moves none out of its equal-width bin."""
        weight, score = (both(sums[ids]) for sums in (self.sums.weight, self.sums.score))
        left, right = self.grid.left_bin[ids], self.grid.right_bin[ids]
        low, high = self.grid.edges[right], self.grid.edges[left + 1]
        inside = np.clip(score / weight, np.nextafter(low, 2.0), np.nextafter(high, -1.0))
        return np.where(left > right, self.grid.edges[left], np.clip(inside, 0.0, 1.0))

    def mapped(self, probability: NDArray[np.float64]) -> CalibrationSketch:
        """Return the sketch of the same rows with a probability in the place of each occupied cell's score.

        Scores of one cell are within 0.8 % of each other, and get the probability of their mean.
        """
        result = CalibrationSketch(bins=self.bins, mantissa_bits=self.mantissa_bits)
        rows, weight, square, *_ = self.table[:, self.occupied()].reshape(len(SUMS), -1)
        chunk = ScoreChunk(np.repeat(probability, 2), np.tile([False, True], len(probability)), weight)
        code = 2 * self.grid.ids(chunk.score) + chunk.clicked
        code, sums = added_up(code, [rows, weight, square, *values_of(chunk)[3:]])
        result.table.reshape(len(SUMS), -1)[:, code] = sums
        return result

    def occupied(self) -> NDArray[np.int64]:
        """Return the ids of the cells with a positive weight, in order of score."""
        return np.flatnonzero(both(self.sums.weight))

    def __repr__(self) -> str:
        return (
            f"CalibrationSketch({self.rows:,} rows, {len(self.occupied()):,} cells,"
            f" base rate {self.base_rate:.4g}, mean score {self.mean_score:.4g})"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one small file (NumPy's npz, no pickle), beside and then moved into place."""
        ids = np.flatnonzero(both(self.sums.rows))
        sums = CellSums(*self.table[:, ids])
        contents: dict[str, Any] = {
            "header": np.array([FORMAT_VERSION, self.bins, self.mantissa_bits]),
            "ids": ids,
            "rows": np.rint(sums.rows).astype(np.int64),
            **{name: getattr(sums, name) for name in ("weight", "score", "square")},
            "inverse": sums.inverse[:, 1],
            "totals": np.array([self.brier_sum, self.log_loss_sum]),
        }
        with whole_file(Path(path)) as beside, beside.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **contents)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CalibrationSketch:
        """Read what :meth:`save` wrote."""
        source = Path(path)
        try:
            with source.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                version, bins, mantissa_bits = (int(value) for value in stored["header"])
                if version != FORMAT_VERSION:
                    raise DataError(
                        f"the sketch has format {version}, this library reads {FORMAT_VERSION}",
                        where=str(source),
                        remedy="make the sketch again from the data",
                    )
                sketch = cls(bins=bins, mantissa_bits=mantissa_bits)
                sums, ids = sketch.sums, stored["ids"]
                for name in ("rows", "weight", "score", "square"):
                    getattr(sums, name)[ids] = stored[name]
                sums.inverse[ids, 1] = stored["inverse"]
                sums.brier[0, 0], sums.log_loss[0, 0] = stored["totals"]
        except DataError:
            raise
        except OSError as error:
            raise DataError(
                f"the sketch cannot be read: {error.strerror or error}",
                where=str(source),
                remedy="check the path and the permissions",
            ) from error
        except (ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(
                "the file is not a calibration sketch, or is damaged",
                where=str(source),
                remedy="make the sketch again from the data",
            ) from error
        return sketch
