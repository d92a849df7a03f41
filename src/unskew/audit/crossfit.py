"""Calibrators judged on rows that they were not fitted on, from one sketch of each fold alone.

Rows without ids are known by their place in the files. They go to folds in blocks of :data:`BLOCK_ROWS`
neighbours: K blocks in a row go to the K folds in turn, beginning with a fold that is a hash of their place.
So folds are of one size, whatever period the data have, and depend on nothing but the row's number, K and the
seed (not on batches, files or threads). Neighbours (rows of one request, one session) mostly share a fold, so
they do not vouch for each other. Rows with ids, and rows in a database, go to folds by :func:`fold_of_id`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

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
from unskew.metrics import CalibrationSketch, ece, mean_outcome_over_score, nll, wce
from unskew.metrics.cells import Cells
from unskew.metrics.sketch_grid import LIKELIHOOD_FLOOR

Array = NDArray[np.float64]
Folds = Sequence[CalibrationSketch]
"""One sketch of each fold."""

BLOCK_ROWS = 64
"""Rows of a block: few enough for small files to have all folds."""

FOLDS = 5
MOST_FOLDS = 100

HASH_DIGITS = 4
"""Hexadecimal digits of an id's MD5 that decide on its fold."""


def fold_of_id(text: str, folds: int) -> int:
    """Return the fold of an id as text: the first 16 bits of its MD5, modulo the number of folds.

    Every SQL engine computes the same; a user's rows share a fold where the id is the user's.

    Examples
    --------
    >>> [fold_of_id(name, 5) for name in ("anna", "ben", "cleo")]
    [2, 0, 3]
    """
    return int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:HASH_DIGITS], 16) % folds


def fold_of_rows(start: int, rows: int, folds: int, seed: int) -> NDArray[np.int8]:
    """Return the folds of rows ``start`` to ``start + rows``.

    Examples
    --------
    >>> fold = fold_of_rows(0, 640, folds=5, seed=0)
    >>> np.bincount(fold)
    array([128, 128, 128, 128, 128])
    >>> bool((fold_of_rows(100, 50, folds=5, seed=0) == fold[100:150]).all())
    True
    """
    first = start // BLOCK_ROWS
    block = np.arange(first, (start + rows - 1) // BLOCK_ROWS + 1, dtype=np.uint64)
    turn = splitmix64(block // np.uint64(folds) + np.uint64(seed_stream(as_seed(seed), "folds")))
    fold = ((block + turn % np.uint64(folds)) % np.uint64(folds)).astype(np.int8)
    offset = start - first * BLOCK_ROWS
    return np.repeat(fold, BLOCK_ROWS)[offset : offset + rows]


def dealt(sketch: CalibrationSketch, folds: int, *, seed: int = 0) -> list[CalibrationSketch]:
    """Deal the rows of a sketch to folds at random, where the rows themselves are elsewhere.

    Each row of a cell falls into a fold by chance (equal parts would make every fold vouch for the others);
    sums go with the rows, since within a cell scores are nearly equal. Neighbours are not kept together.
    """
    require_whole(2, MOST_FOLDS, folds=folds)
    generator = np.random.default_rng(seed_stream(as_seed(seed), "folds"))
    rows = np.rint(sketch.sums.rows).astype(np.int64)
    left = rows.copy()
    sketches = []
    for fold in range(folds):
        taken = np.asarray(generator.binomial(left, 1 / (folds - fold)))
        left -= taken
        drawn = CalibrationSketch(bins=sketch.bins, mantissa_bits=sketch.mantissa_bits)
        drawn.table[:] = sketch.table * (taken / np.maximum(rows, 1))
        drawn.sums.rows[:] = taken
        sketches.append(drawn)
    return sketches


def folds_of_cells(cells: Cells) -> list[CalibrationSketch] | None:
    """Return a sketch of each fold that cells were counted by; None where they have none."""
    first = min((key.segment for key in cells.keys), default="")
    by_fold = cells.select(lambda key: key.segment == first).group("fold")
    if any(key.fold < 0 for key in by_fold.keys):
        return None
    numbers = {key.fold: number for number, key in enumerate(by_fold.keys)}
    return [
        by_fold.sketch_at(numbers[fold]) if fold in numbers else CalibrationSketch()
        for fold in range(max(numbers) + 1)
    ]


def merged(folds: Folds, *, without: int | None = None) -> CalibrationSketch:
    """Return one sketch of the rows of all folds, or of all but one."""
    others = [sketch for fold, sketch in enumerate(folds) if fold != without]
    return reduce(CalibrationSketch.merge, others[1:], others[0].copy())


COMPARED = (*CANDIDATES, *(name for name in CALIBRATORS.built_in if name not in (*CANDIDATES, "auto")))
"""From the simplest on; those that ``auto`` does not choose from come last."""


@dataclass(frozen=True, eq=False)
class CalibratorScore:
    """The figures of a calibrator on held-out rows.

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
        """Return whether the NLL is within one standard error of the lowest."""
        return self.excess <= self.excess_error


def fit_without_each(name: str | Calibrator, folds: Folds) -> list[Calibrator]:
    """Fit a calibrator for each fold on the rows of all others; one class among them is an error."""
    return _fit_each(name, _training(folds), choose_once=False)


def mapped(folds: Folds, fitted: Sequence[Calibrator]) -> CalibrationSketch:
    """Return one sketch of the rows of all folds, each fold's mapped by its own calibrator."""
    pairs = [(sketch, q) for sketch, q in zip(folds, fitted, strict=True) if sketch.rows]
    return merged([sketch.mapped(q.predict(sketch.points().score)) for sketch, q in pairs])


def can_crossfit(folds: Folds) -> bool:
    """Return whether there are rows of both classes outside every fold."""
    return all(_both_classes(merged(folds, without=fold)) for fold in range(len(folds)))


def compare(folds: Folds, names: Sequence[str] = COMPARED) -> list[CalibratorScore]:
    """Cross-fit every calibrator beside the scores as they are, and sort them by NLL, the lowest first."""
    names = tuple(dict.fromkeys(("none", *names)))
    training = _training(folds)
    held_out = [sketch.points().score for sketch in folds]
    weight, square = np.concatenate([sketch.table[1:3, sketch.occupied()] for sketch in folds], axis=1)
    whole: dict[str, CalibrationSketch] = {}
    losses: dict[str, Array] = {}
    for name in names:
        fitted = _fit_each(name, training, choose_once=True)
        predicted = [calibrator.predict(score) for calibrator, score in zip(fitted, held_out, strict=True)]
        mapped = (sketch.mapped(q) for sketch, q in zip(folds, predicted, strict=True))
        whole[name] = merged(folds if name == "none" else list(mapped))
        losses[name] = log_losses(np.concatenate(predicted))
    losses_of = {name: nll(sketch) for name, sketch in whole.items()}
    best = min(losses_of, key=lambda name: losses_of[name])
    gain = {name: losses_of["none"] - losses_of[name] for name in names}
    error = {name: error_of_mean(weight, square, losses[name] - losses["none"]) for name in names}
    scores = [
        CalibratorScore(
            name=name,
            nll=losses_of[name],
            ece=ece(whole[name]),
            wce=wce(whole[name]),
            wce_debiased=wce(whole[name], debiased=True),
            mean_outcome_over_score=mean_outcome_over_score(whole[name]),
            excess=losses_of[name] - losses_of[best],
            excess_error=error_of_mean(weight, square, losses[name] - losses[best]),
            p_better=float(ndtr(-gain[name] / error[name])) if error[name] > 0 else 1.0,
            sketch=whole[name],
        )
        for name in names
    ]
    return sorted(scores, key=lambda score: score.nll)


def _training(folds: Folds) -> list[Grouped]:
    """Return the points of all folds but each; one class among them is an error."""
    points = []
    for fold in range(len(folds)):
        training = merged(folds, without=fold)
        if not _both_classes(training):
            raise DataError(
                f"outcome {int(training.positives == training.total)} is on every row outside fold {fold}:"
                " too few rows of one class for cross-fitting",
                remedy="give more rows, or fewer folds",
            )
        points.append(group(training, None, None, exact_below=0))
    return points


def _fit_each(name: str | Calibrator, training: Sequence[Grouped], *, choose_once: bool) -> list[Calibrator]:
    """Fit a calibrator on each of the training sets.

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


def log_losses(probability: Array) -> Array:
    """Return −log-likelihood ``[cell, outcome]``."""
    both = np.stack([1 - probability, probability], axis=1)
    return np.asarray(-np.log(np.maximum(both, LIKELIHOOD_FLOOR)))


def error_of_mean(weight: Array, square: Array, difference: Array) -> float:
    """Return the standard error of the mean paired difference ``[cell, outcome]`` of two log losses."""
    total = weight.sum()
    spread = difference - (weight * difference).sum() / total
    return float(np.sqrt((square * spread**2).sum()) / total)
