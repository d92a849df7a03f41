"""Propensities → trained methods: shared by runs, studies and reproductions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data import Log
from unskew.metrics import CalibrationSketch
from unskew.metrics.weights import Clip
from unskew.propensity.diagnosis import average, propensity_figures
from unskew.propensity.propensity import BasePropensity

SKETCH_ROWS = 1 << 22
"""Cells of D that are sketched at once where propensities are given, not trained."""


@dataclass(frozen=True)
class Estimated:
    """Propensities of a log, one line per seed, and how far they can be trusted."""

    rows: NDArray[np.float64]
    """``[seeds, n]``: of the log's rows; one line for all seeds where nothing was trained."""
    figures: Mapping[str, Any]
    """Means over seeds; by seed under ``"per_seed"``."""
    sketch: CalibrationSketch
    """Scores against clicks of the first seed, on the cells where they are judged."""
    seconds: float = 0.0
    """What the rows took."""
    spread: NDArray[np.float64] | None = None
    """How far members or passes disagree on the raw propensities of the rows."""


def read_off(propensity: BasePropensity, log: Log, p_min: Clip) -> dict[str, Estimated]:
    """What a trained propensity gives for its log, ``"raw"`` and ``"calibrated"``: scored once."""
    start = time.perf_counter()
    predicted = propensity.predict_both_each(log)
    seconds = time.perf_counter() - start
    figures = propensity.diagnose(log, p_min=p_min, predicted=predicted)
    return {
        kind: Estimated(
            rows=predicted.one(calibrated=calibrated),
            figures=figures[kind],
            sketch=propensity.held_out_sketches(calibrated=calibrated)[0],
            seconds=seconds,
            spread=None if calibrated else predicted.spread,
        )
        for kind, calibrated in (("raw", False), ("calibrated", True))
    }


def figures_on_test(propensity: BasePropensity, test: Log | None, p_min: Clip) -> dict[str, Any] | None:
    """Return the figures of a propensity on test impressions; None where they have no clicks and others."""
    if test is None or test.space != "impressions" or not 0 < test.n_clicks < len(test):
        return None
    figures = []
    for score in propensity.predict_each(test, average=True):
        sketch = CalibrationSketch()
        sketch.update(score, test.click)
        clicks = score[test.clicked]
        figures.append(propensity_figures(sketch, clicks, p_min=p_min, population_size=len(test)))
    return average(figures)


def given_everywhere(log: Log, scores: NDArray[np.float64] | float, p_min: Clip, seeds: int = 1) -> Estimated:
    """The same of propensities that were not trained: one number, or one for every cell of D, judged there.

    Parameters
    ----------
    seeds
        How often the figures, which are the same for every seed, are repeated.
    """
    clicked = np.sort(log.cell[log.clicked]) if log.space == "matrix" else log.clicked
    sketch = CalibrationSketch()
    for start in range(0, log.population_size, SKETCH_ROWS):
        stop = min(start + SKETCH_ROWS, log.population_size)
        outcome = np.zeros(stop - start)
        first, last = np.searchsorted(clicked, (start, stop))
        outcome[clicked[first:last] - start] = 1.0
        part = np.full(stop - start, scores) if isinstance(scores, float) else scores[start:stop]
        sketch.update(part, outcome)
    if isinstance(scores, float):
        rows = np.full(len(log), scores)
    else:
        rows = scores[log.cell] if log.space == "matrix" else scores
    figures = propensity_figures(sketch, rows[log.clicked], p_min=p_min, population_size=log.population_size)
    return Estimated(rows[None], average([figures] * seeds), sketch)
