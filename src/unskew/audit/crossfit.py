"""Calibrators judged on rows that they were not fitted on, from the sketches of the folds alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.audit.folds import FoldSketches, merged
from unskew.calibration import CALIBRATORS, Calibrator, make_calibrator
from unskew.calibration.auto import CANDIDATES
from unskew.errors import DataError
from unskew.metrics import CalibrationSketch, ece, mean_outcome_over_score, nll, wce
from unskew.metrics._grid import ids
from unskew.metrics._kernel import LIKELIHOOD_FLOOR
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


def fit_without_each(
    name: str | Calibrator, folds: FoldSketches, *, choose_once: bool = False
) -> list[Calibrator]:
    """For each fold the calibrator fitted on the rows of all others; one class among them is an error.

    ``choose_once`` keeps a smoothing that was chosen without the first fold (the spline's penalty) for the
    other folds: for a comparison, where choosing it five times would take as long as all other calibrators.
    """
    fitted: list[Calibrator] = []
    for fold in range(folds.folds):
        training = folds.without(fold)
        if not _both_classes(training):
            raise DataError(
                f"outcome {int(training.positives == training.total)} is on every row outside fold {fold}:"
                " too few rows of one class for cross-fitting",
                remedy="give more rows, or fewer folds",
            )
        chosen = name.clone() if isinstance(name, Calibrator) else make_calibrator(name)
        if choose_once and fitted and hasattr(fitted[0], "penalty_"):
            chosen.set_params(penalty=fitted[0].penalty_)
        fitted.append(chosen.fit(training))
    return fitted


def can_crossfit(folds: FoldSketches) -> bool:
    """Whether there are rows of both classes outside every fold."""
    return all(_both_classes(folds.without(fold)) for fold in range(folds.folds))


def compare(folds: FoldSketches, names: Sequence[str] = COMPARED) -> list[CalibratorScore]:
    """Every calibrator cross-fitted, lowest NLL first."""
    parts: dict[str, list[CalibrationSketch]] = {}
    losses: dict[str, list[Array]] = {}
    for name in names:
        fitted = fit_without_each(name, folds, choose_once=True)
        predicted = [
            np.asarray(calibrator.predict(sketch.points().score)) if sketch.rows else np.empty(0)
            for calibrator, sketch in zip(fitted, folds.sketches, strict=True)
        ]
        parts[name] = (
            folds.sketches
            if name == "none"
            else [mapped(s, q) for s, q in zip(folds.sketches, predicted, strict=True)]
        )
        losses[name] = [_losses(q) for q in predicted]
    whole = {name: merged(sketches) for name, sketches in parts.items()}
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
            excess_error=_error_of_difference(folds.sketches, losses[name], losses[best]),
            sketch=whole[name],
        )
        for name in names
    ]
    return sorted(scores, key=lambda score: score.nll)


def mapped(sketch: CalibrationSketch, probability: Array) -> CalibrationSketch:
    """The sketch of the same rows with each occupied cell's score replaced by a probability.

    Scores of one cell are within 0.8 % of each other, and get the probability of their mean.
    """
    result = CalibrationSketch(bins=sketch.bins, mantissa_bits=sketch.mantissa_bits)
    grid, sums = sketch.grid, sketch.sums.take(sketch.occupied())
    at = ids(probability, edges=grid.edges, bins=grid.bins, shift=grid.shift, base=grid.base)
    q = probability[:, None]
    inverse = np.divide(1.0, probability, out=np.zeros_like(probability), where=probability > 0)
    error = np.concatenate([q, 1 - q], axis=1)
    fresh = CellSums(
        rows=sums.rows,
        weight=sums.weight,
        score=sums.weight * q,
        square=sums.square,
        inverse=sums.weight[:, 1] * inverse,
        totals=np.array(
            [
                (sums.weight * error**2).sum(),
                -(sums.weight * np.log(np.maximum(1 - error, LIKELIHOOD_FLOOR))).sum(),
            ]
        ),
    )
    for name, target in result.sums.arrays().items():
        if name == "totals":
            target += fresh.totals
        else:
            np.add.at(target, at, getattr(fresh, name))
    return result


def _both_classes(sketch: CalibrationSketch) -> bool:
    return 0 < sketch.positives < sketch.total


def _losses(probability: Array) -> Array:
    """−log-likelihood ``[cell, outcome]``."""
    both = np.stack([1 - probability, probability], axis=1)
    return np.asarray(-np.log(np.maximum(both, LIKELIHOOD_FLOOR)))


def _error_of_difference(
    sketches: Sequence[CalibrationSketch], one: Sequence[Array], other: Sequence[Array]
) -> float:
    """Standard error of the mean paired difference of two log losses."""
    kept = [sketch.sums.take(sketch.occupied()) for sketch in sketches]
    weight = np.concatenate([sums.weight for sums in kept])
    square = np.concatenate([sums.square for sums in kept])
    difference = np.concatenate([a - b for a, b in zip(one, other, strict=True)])
    total = weight.sum()
    spread = difference - (weight * difference).sum() / total
    return float(np.sqrt((square * spread**2).sum()) / total)
