"""Calibrators that never saw what they map, and the sketches that judge them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unskew.calibration import Calibrator
from unskew.metrics import CalibrationSketch
from unskew.metrics.collapse import Collapsed, learned_by_sketch

Scored = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""Score, outcome and weight of the cells of one fold of one seed."""


def cross_calibrators(
    calibrator: Calibrator | None,
    calibration: Sequence[Scored],
    out: Sequence[Scored],
    folds: int,
    *,
    crossfitted: bool,
) -> list[Calibrator | None]:
    """One fitted calibrator per fold of each seed.

    Without cross-fitting it is fitted on the calibration cells. With it, on the out-of-fold scores of the
    seed's other folds: no cell is lost to calibration, and none is mapped by a fit that saw it.
    """
    if calibrator is None:
        return [None] * len(out)
    fit_on = out if crossfitted else calibration
    sketches = [CalibrationSketch.of(score=s, outcome=o, weight=w) for s, o, w in fit_on]
    fitted: list[Calibrator | None] = []
    for place in range(len(out)):
        seed, fold = divmod(place, folds)
        own = sketches[seed * folds : (seed + 1) * folds]
        merged = CalibrationSketch()
        for sketch in own[:fold] + own[fold + 1 :] if crossfitted else own:
            merged.merge(sketch)
        fitted.append(type(calibrator)(**calibrator.get_params(deep=False)).fit(merged))
    return fitted


def held_out_sketches(
    out: Sequence[Scored], calibrators: Sequence[Calibrator | None], folds: int
) -> tuple[list[CalibrationSketch], list[CalibrationSketch]]:
    """Sketches of held-out cells, one per seed: raw, and calibrated."""
    raw_sketches, calibrated_sketches = [], []
    for start in range(0, len(out), folds):
        raw, calibrated = CalibrationSketch(), CalibrationSketch()
        for (score, outcome, weight), calibrator in zip(
            out[start : start + folds], calibrators[start : start + folds], strict=True
        ):
            raw.update(score, outcome, weight)
            calibrated.update(apply(calibrator, score), outcome, weight)
        raw_sketches.append(raw)
        calibrated_sketches.append(calibrated)
    return raw_sketches, calibrated_sketches


def collapsed_networks(out: Sequence[Scored], seeds: Sequence[int], folds: int) -> tuple[Collapsed, ...]:
    """The seeds and folds whose network learned nothing, by its raw scores of cells that it never saw."""
    found = []
    for place, (score, outcome, weight) in enumerate(out):
        seed, fold = divmod(place, folds)
        reason = learned_by_sketch(CalibrationSketch.of(score=score, outcome=outcome, weight=weight)).reason
        if reason is not None:
            name = "propensity" if folds == 1 else f"propensity, fold {fold}"
            found.append(Collapsed(name, seeds[seed], reason))
    return tuple(found)


def apply(calibrator: Calibrator | None, score: NDArray[np.float64]) -> NDArray[np.float64]:
    """Calibrated scores; the scores themselves without a calibrator."""
    return score if calibrator is None else calibrator.predict(score)
