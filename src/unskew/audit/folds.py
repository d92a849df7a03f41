"""Rows dealt to folds by their number, and one sketch of each fold: what cross-validation needs of a stream.

A table of scores has no ids, so a row is told by its place in the files: in another order of rows the folds
are others. What is cross-fitted is a calibrator of few parameters; a propensity that is trained from users
and items has folds by ids (``trained``).

Rows go to folds in blocks of :data:`BLOCK_ROWS` neighbours. K blocks in a row go to the K folds in turn,
beginning with a fold that is a hash of their place: folds are of one size, whatever period the data have,
and depend on nothing but the row's number, K and the seed (not on batches, files or threads). Neighbours
(rows of one request, one session) mostly share a fold, so they do not vouch for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.errors import DataError
from unskew.estimator import require
from unskew.io.stream import Batch, Roles, located, number_columns
from unskew.metrics import CalibrationSketch
from unskew.seeds import as_seed, splitmix64
from unskew.seeds import stream as seed_stream

BLOCK_ROWS = 64
"""Rows of a block: enough to copy them fast, few enough for small files to have all folds."""

MOST_FOLDS = 100

LARGEST_WEIGHT = 1e12
"""Rows that a row may stand for, and one over it the least but 0: their squares, divided by those of the
smallest scores, must stay numbers."""

MOST_WEIGHT_RATIO = 1e12
"""Largest weight over the smallest above 0: sums of doubles, of 16 digits, tell both with four to spare."""


class FoldSketches:
    """One sketch of each fold, filled batch by batch.

    Parameters
    ----------
    folds
        K.
    seed
        Another seed deals other folds.
    """

    def __init__(self, folds: int, *, seed: int = 0) -> None:
        require(
            isinstance(folds, int) and 2 <= folds <= MOST_FOLDS,
            f"folds must be from 2 to {MOST_FOLDS}, not {folds!r}",
            "give a number of this range",
        )
        self.folds = folds
        self.seed = as_seed(seed)
        self.sketches = [CalibrationSketch() for _ in range(folds)]
        self._lightest, self._heaviest = np.inf, 0.0

    def add(self, batch: Batch, roles: Roles) -> list[NDArray[Any]]:
        """Add the rows of a batch; gives its score, outcome and, where there is one, weight.

        A bad value is an error that names the file, the column and the row within the file.
        """
        columns = number_columns(batch, roles.numbers)
        if roles.weight is not None:
            _require_weights(columns[2], roles.weight, batch)
            self._require_near_weights(columns[2], roles.weight, batch)
        try:
            for fold, part in enumerate(deal(columns, batch.start, self.folds, self.seed)):
                self.sketches[fold].update(*part)
        except DataError:
            # A fold's rows are not neighbours in the file: the batch itself tells the row.
            names = (roles.score, roles.outcome, roles.weight or "weight")
            with located(batch):
                CalibrationSketch().update(*columns, first_row=batch.first_row, names=names)
            raise
        return columns

    def _require_near_weights(self, weight: NDArray[Any], name: str, batch: Batch) -> None:
        """An error where the lightest rows would be nothing beside the heaviest, in all rows so far."""
        above = weight[weight > 0] if len(weight) and weight.min() <= 0 else weight
        if not len(above):
            return
        self._lightest = min(self._lightest, float(above.min()))
        self._heaviest = max(self._heaviest, float(above.max()))
        if self._heaviest > MOST_WEIGHT_RATIO * self._lightest:
            raise DataError(
                f"weights from {self._lightest:.3g} to {self._heaviest:.3g} are {MOST_WEIGHT_RATIO:.0e} times"
                " each other and more: beside the large ones the small ones are lost",
                where=f"{batch.file}, column '{name}'",
                remedy="give how many rows of the population a row stands for, 0 where it stands for none",
            )

    def all(self) -> CalibrationSketch:
        """The sketch of all rows."""
        return merged(self.sketches)

    def without(self, fold: int) -> CalibrationSketch:
        """The sketch of the rows of the other folds."""
        return merged(self.sketches[:fold] + self.sketches[fold + 1 :])


def _require_weights(weight: NDArray[Any], name: str, batch: Batch) -> None:
    """An error for a weight of which the square is no number; the sketch itself refuses what is no weight."""
    if not len(weight) or (weight.max() <= LARGEST_WEIGHT and weight.min() >= 1 / LARGEST_WEIGHT):
        return
    wrong = (weight > LARGEST_WEIGHT) & (weight < np.inf) | (weight > 0) & (weight < 1 / LARGEST_WEIGHT)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"weight {weight[row]:g} is not 0 or from {1 / LARGEST_WEIGHT:g} to {LARGEST_WEIGHT:g}",
            where=f"{batch.file}, column '{name}', row {batch.first_row + row}",
            remedy="give how many rows of the population a row stands for",
        )


def merged(sketches: Sequence[CalibrationSketch]) -> CalibrationSketch:
    """One sketch of the rows of several."""
    whole = CalibrationSketch()
    for sketch in sketches:
        whole.merge(sketch)
    return whole


def fold_of_rows(start: int, rows: int, folds: int, seed: int) -> NDArray[np.int8]:
    """The folds of rows ``start`` to ``start + rows``.

    Examples
    --------
    >>> fold = fold_of_rows(0, 640, folds=5, seed=0)
    >>> np.bincount(fold)
    array([128, 128, 128, 128, 128])
    >>> bool((fold_of_rows(100, 50, folds=5, seed=0) == fold[100:150]).all())
    True
    """
    first = start // BLOCK_ROWS
    blocks = (start + rows - 1) // BLOCK_ROWS - first + 1
    offset = start - first * BLOCK_ROWS
    return np.repeat(_fold_of_blocks(first, blocks, folds, seed), BLOCK_ROWS)[offset : offset + rows]


def deal(
    columns: Sequence[NDArray[Any]], start: int, folds: int, seed: int
) -> Iterator[tuple[NDArray[Any], ...]]:
    """The rows of each fold in turn, of columns whose first row has the number ``start``.

    All folds are given in the same memory: take what you need of one before you ask for the next. Fresh
    memory for each would cost more than everything else.
    """
    rows = len(columns[0])
    lead = min(-start % BLOCK_ROWS, rows)
    whole = (rows - lead) // BLOCK_ROWS
    end = lead + whole * BLOCK_ROWS
    body = _fold_of_blocks((start + lead) // BLOCK_ROWS, whole, folds, seed)
    ends = [
        (piece, int(_fold_of_blocks((start + piece.start) // BLOCK_ROWS, 1, folds, seed)[0]))
        for piece in (slice(0, lead), slice(end, rows))
        if piece.stop > piece.start
    ]
    memory = [np.empty(rows, dtype=column.dtype) for column in columns]
    for fold in range(folds):
        at = np.flatnonzero(body == fold)
        dealt = []
        for column, target in zip(columns, memory, strict=True):
            filled = len(at) * BLOCK_ROWS
            blocks = column[lead:end].reshape(whole, BLOCK_ROWS)
            # "clip" is what lets NumPy write into `out` directly; no index is out of bounds.
            blocks.take(at, axis=0, out=target[:filled].reshape(len(at), BLOCK_ROWS), mode="clip")
            for piece in (piece for piece, of in ends if of == fold):
                size = piece.stop - piece.start
                target[filled : filled + size] = column[piece]
                filled += size
            dealt.append(target[:filled])
        yield tuple(dealt)


def _fold_of_blocks(first: int, blocks: int, folds: int, seed: int) -> NDArray[np.int8]:
    block = np.arange(first, first + blocks, dtype=np.uint64)
    turn = splitmix64(block // np.uint64(folds) + np.uint64(seed_stream(seed, "folds")))
    return ((block + turn % np.uint64(folds)) % np.uint64(folds)).astype(np.int8)
