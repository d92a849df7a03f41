"""Calibrators judged on rows that they were not fitted on, from the sketches of the folds alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.audit.folds import FoldSketches
from unskew.calibration import CALIBRATORS, Calibrator, make_calibrator
from unskew.calibration._grouping import Grouped, group
from unskew.calibration.auto import CANDIDATES
from unskew.errors import DataError
from unskew.metrics import CalibrationSketch, ece, mean_outcome_over_score, nll, wce
from unskew.metrics._grid import ids
from unskew.metrics._limits import LIKELIHOOD_FLOOR
from unskew.metrics._sums import CellSums

Array = NDArray[np.float64]

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
    """Every calibrator cross-fitted, lowest NLL first."""
    training = _training(folds)
    held_out = [sketch.points().score for sketch in folds.sketches]
    cells = _occupied(folds.sketches)
    whole: dict[str, CalibrationSketch] = {}
    losses: dict[str, Array] = {}
    for name in names:
        fitted = _fit_each(name, training, choose_once=True)
        parts = [calibrator.predict(score) for calibrator, score in zip(fitted, held_out, strict=True)]
        probability = np.concatenate(parts)
        whole[name] = folds.all() if name == "none" else _mapped(cells, probability, folds.sketches[0])
        losses[name] = _losses(probability)
    found = {name: nll(sketch=sketch) for name, sketch in whole.items()}
    best = min(found, key=lambda name: found[name])
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
            sketch=whole[name],
        )
        for name in names
    ]
    return sorted(scores, key=lambda score: score.nll)


def mapped(sketch: CalibrationSketch, probability: Array) -> CalibrationSketch:
    """The sketch of the same rows with each occupied cell's score replaced by a probability.

    Scores of one cell are within 0.8 % of each other, and get the probability of their mean.
    """
    return _mapped(_occupied([sketch]), probability, sketch)


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


def _occupied(sketches: Sequence[CalibrationSketch]) -> CellSums:
    """The occupied cells of several sketches, one sketch after the other."""
    kept = [sketch.sums.take(sketch.occupied()).arrays() for sketch in sketches]
    return CellSums(**{name: np.concatenate([sums[name] for sums in kept]) for name in kept[0]})


def _mapped(cells: CellSums, probability: Array, like: CalibrationSketch) -> CalibrationSketch:
    result = CalibrationSketch(bins=like.bins, mantissa_bits=like.mantissa_bits)
    grid = result.grid
    at = ids(probability, edges=grid.edges, bins=grid.bins, shift=grid.shift, base=grid.base)
    q = probability[:, None]
    inverse = np.divide(1.0, probability, out=np.zeros_like(probability), where=probability > 0)
    error = np.concatenate([q, 1 - q], axis=1)
    for target, values in (
        (result.sums.rows, cells.rows),
        (result.sums.weight, cells.weight),
        (result.sums.score, cells.weight * q),
        (result.sums.square, cells.square),
        (result.sums.inverse[:, None], (cells.weight[:, 1] * inverse)[:, None]),
    ):
        for column in range(target.shape[1]):
            target[:, column] = np.bincount(at, values[:, column], minlength=len(target))
    likelihood = np.maximum(1 - error, LIKELIHOOD_FLOOR)
    result.sums.totals[:] = (cells.weight * error**2).sum(), -(cells.weight * np.log(likelihood)).sum()
    return result


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
