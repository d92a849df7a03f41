"""Cross-fitting of a stream: rows dealt to folds by their number, one sketch of each fold, and calibrators
judged on rows that they were not fitted on, from these sketches alone.

A table of scores has no ids, so a row is known by its place in the files: in another order of rows the folds
are others. What is cross-fitted is a calibrator of few parameters; a propensity that is trained from users
and items has folds by ids (:func:`unskew.audit.weights_trained.train_weights`).

Rows go to folds in blocks of :data:`BLOCK_ROWS` neighbours. K blocks in a row go to the K folds in turn,
beginning with a fold that is a hash of their place: folds are of one size, whatever period the data have,
and depend on nothing but the row's number, K and the seed (not on batches, files or threads). Neighbours
(rows of one request, one session) mostly share a fold, so they do not vouch for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from unskew.base.errors import DataError
from unskew.base.estimator import require_whole
from unskew.base.seeds import as_seed, splitmix64
from unskew.base.seeds import stream as seed_stream
from unskew.calibration import CALIBRATORS, Calibrator, make_calibrator
from unskew.calibration.auto import CANDIDATES
from unskew.calibration.grouping import Grouped, group
from unskew.data.stream import FileBatch, Roles, located, number_columns
from unskew.metrics import CalibrationSketch, ece, mean_outcome_over_score, nll, wce
from unskew.metrics.cell_sums import CellSums
from unskew.metrics.limits import LIKELIHOOD_FLOOR
from unskew.metrics.mapped_sketch import mapped_cells, occupied_cells

Array = NDArray[np.float64]

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
        require_whole(2, MOST_FOLDS, folds=folds)
        self.folds = folds
        self.seed = as_seed(seed)
        self.sketches = [CalibrationSketch() for _ in range(folds)]
        self._lightest, self._heaviest = np.inf, 0.0

    @classmethod
    def of_sketch(cls, sketch: CalibrationSketch, folds: int, *, seed: int = 0) -> FoldSketches:
        """The rows of a sketch dealt to folds at random, where the rows themselves are elsewhere.

        Each row of a cell falls into a fold by chance (equal parts would make every fold vouch for the
        others); sums go with the rows, since within a cell scores are nearly equal. Neighbours are not kept
        together.
        """
        dealt = cls(folds, seed=seed)
        generator = np.random.default_rng(seed_stream(dealt.seed, "folds"))
        left = sketch.sums.rows.copy()
        whole = np.maximum(sketch.sums.rows, 1)
        clicks = np.maximum(sketch.sums.rows[:, 1], 1)
        for fold in range(folds):
            taken = np.asarray(generator.binomial(left, 1 / (folds - fold)))
            left -= taken
            share = taken / whole
            part = CellSums(
                rows=taken,
                weight=sketch.sums.weight * share,
                score=sketch.sums.score * share,
                square=sketch.sums.square * share,
                inverse=sketch.sums.inverse * (taken[:, 1] / clicks),
                totals=sketch.sums.totals * (taken.sum() / max(sketch.rows, 1)),
            )
            dealt.sketches[fold] = CalibrationSketch.from_cell_sums(sketch.bins, sketch.mantissa_bits, part)
        return dealt

    def add(self, batch: FileBatch, roles: Roles) -> list[NDArray[Any]]:
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

    def _require_near_weights(self, weight: NDArray[Any], name: str, batch: FileBatch) -> None:
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


def _require_weights(weight: NDArray[Any], name: str, batch: FileBatch) -> None:
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
    whole = sketches[0].copy()
    for sketch in sketches[1:]:
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


COMPARED = (*CANDIDATES, *(name for name in CALIBRATORS if name not in (*CANDIDATES, "auto")))
"""From the simplest on; those that ``auto`` does not choose from come last."""


@dataclass(frozen=True, eq=False)
class CalibratorScore:
    """What a calibrator reaches on held-out rows.

    Attributes
    ----------
    name
        Its name in the registry; ``"none"`` leaves the scores as they are.
    nll, ece, wce, wce_debiased, mean_outcome_over_score
        Of the calibrated scores, each row's from a fit without its fold.
    excess, excess_error
        NLL above the lowest of all, and the standard error of that difference.
    p_better
        Of the paired test that the scores as they are have no higher NLL. A calibrator is fitted on other
        rows, so that honest scores are better than it on average: it needs no correction for several.
    sketch
        The calibrated scores.
    """

    name: str
    nll: float
    ece: float
    wce: float
    wce_debiased: float
    mean_outcome_over_score: float
    excess: float
    excess_error: float
    p_better: float
    sketch: CalibrationSketch

    @property
    def near_best(self) -> bool:
        """Whether the NLL is within one standard error of the lowest."""
        return self.excess <= self.excess_error


def fit_without_each(name: str | Calibrator, folds: FoldSketches) -> list[Calibrator]:
    """For each fold the calibrator fitted on the rows of all others; one class among them is an error."""
    return _fit_each(name, _training(folds), choose_once=False)


def can_crossfit(folds: FoldSketches) -> bool:
    """Whether there are rows of both classes outside every fold."""
    return all(_both_classes(folds.without(fold)) for fold in range(folds.folds))


def compare(folds: FoldSketches, names: Sequence[str] = COMPARED) -> list[CalibratorScore]:
    """Cross-fit every calibrator beside the scores as they are, and sort them by NLL, the lowest first."""
    names = tuple(dict.fromkeys(("none", *names)))
    training = _training(folds)
    held_out = [sketch.points().score for sketch in folds.sketches]
    cells = occupied_cells(folds.sketches)
    whole: dict[str, CalibrationSketch] = {}
    losses: dict[str, Array] = {}
    for name in names:
        fitted = _fit_each(name, training, choose_once=True)
        parts = [calibrator.predict(score) for calibrator, score in zip(fitted, held_out, strict=True)]
        probability = np.concatenate(parts)
        whole[name] = folds.all() if name == "none" else mapped_cells(cells, probability, folds.sketches[0])
        losses[name] = _losses(probability)
    found = {name: nll(sketch=sketch) for name, sketch in whole.items()}
    best = min(found, key=lambda name: found[name])
    gain = {name: found["none"] - found[name] for name in names}
    error = {name: _error_of_mean(cells, losses[name] - losses["none"]) for name in names}
    scores = [
        CalibratorScore(
            name=name,
            nll=found[name],
            ece=ece(sketch=whole[name]),
            wce=wce(sketch=whole[name]),
            wce_debiased=wce(sketch=whole[name], debiased=True),
            mean_outcome_over_score=mean_outcome_over_score(sketch=whole[name]),
            excess=found[name] - found[best],
            excess_error=_error_of_mean(cells, losses[name] - losses[best]),
            p_better=float(ndtr(-gain[name] / error[name])) if error[name] > 0 else 1.0,
            sketch=whole[name],
        )
        for name in names
    ]
    return sorted(scores, key=lambda score: score.nll)


def _training(folds: FoldSketches) -> list[Grouped]:
    """The points of all folds but each; one class among them is an error."""
    points = []
    for fold in range(folds.folds):
        training = folds.without(fold)
        if not _both_classes(training):
            raise DataError(
                f"outcome {int(training.positives == training.total)} is on every row outside fold {fold}:"
                " too few rows of one class for cross-fitting",
                remedy="give more rows, or fewer folds",
            )
        points.append(group(training, None, None, exact_below=0))
    return points


def _fit_each(name: str | Calibrator, training: Sequence[Grouped], *, choose_once: bool) -> list[Calibrator]:
    """A calibrator for each of the training sets.

    ``choose_once`` keeps a smoothing that was chosen on the first (the spline's penalty) for the others: for
    a comparison, where choosing it five times would take as long as all other calibrators.
    """
    fitted: list[Calibrator] = []
    for points in training:
        chosen = name.clone() if isinstance(name, Calibrator) else make_calibrator(name)
        if choose_once and fitted and hasattr(fitted[0], "penalty_"):
            chosen.set_params(penalty=fitted[0].penalty_)
        fitted.append(chosen.fit(points))
    return fitted


def _both_classes(sketch: CalibrationSketch) -> bool:
    return 0 < sketch.positives < sketch.total


def _losses(probability: Array) -> Array:
    """−log-likelihood ``[cell, outcome]``."""
    both = np.stack([1 - probability, probability], axis=1)
    return np.asarray(-np.log(np.maximum(both, LIKELIHOOD_FLOOR)))


def _error_of_mean(cells: CellSums, difference: Array) -> float:
    """Standard error of the mean paired difference ``[cell, outcome]`` of two log losses."""
    total = cells.weight.sum()
    spread = difference - (cells.weight * difference).sum() / total
    return float(np.sqrt((cells.square * spread**2).sum()) / total)
