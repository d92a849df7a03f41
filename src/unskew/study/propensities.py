"""The propensities of a study: trained once, calibrated in every way, kept as cells."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.calibration import Calibrator
from unskew.datasets import Dataset
from unskew.errors import ParameterError
from unskew.log import Log, Schema
from unskew.metrics import CalibrationSketch
from unskew.metrics.clip import Clip
from unskew.progress import Progress
from unskew.propensity import Propensity, load_propensity
from unskew.propensity.diagnosis import propensity_figures
from unskew.propensity.storage import save_propensity
from unskew.study.cells import CellStore
from unskew.study.collapsed import collapsed_values
from unskew.training.saved import SavedFolder

SKETCH_ROWS = 1 << 22
"""Cells of D that are sketched at once where a propensity is given, not trained."""


@dataclass(frozen=True)
class Given:
    """One set of propensities as methods take it: a cell of rows and, where needed, one of all pairs."""

    propensity: str
    calibrator: str
    seeds: tuple[int, ...]
    key: str
    matrix_key: str
    raw_key: str
    """The cell of the trained model; empty where nothing was trained."""


def train_raw(
    store: CellStore, key: str, propensity: Propensity, log: Log, progress: Progress, **fit: Any
) -> None:
    """Train, and keep the networks as a cell."""
    start = time.perf_counter()
    propensity.fit(log, progress=progress, **fit)
    seconds = time.perf_counter() - start
    store.remove(key)
    epochs = len(propensity.history_.validation) or propensity.epochs
    timing = {"train_seconds": seconds, "epochs": epochs}
    save_propensity(propensity, store.subfolder(key), timing=timing)


def check(propensity: Propensity) -> None:
    """Refuse, before any training, parameters that could not be trained."""
    propensity._check()
    propensity.split_design()
    propensity.method().check_network(propensity.trained_backbone().build(Schema.of_ids(2, 2), [0]))


def trained(store: CellStore, key: str, log: Log, device: str) -> Propensity:
    """The propensity of such a cell, ready to be calibrated and judged on its log."""
    propensity = load_propensity(store.subfolder(key), device=device)
    assert propensity is not None
    propensity.use_log(log)
    return propensity


def raw_timing(folder: Path) -> dict[str, float]:
    """How long the training of such a cell took."""
    timing: dict[str, float] = SavedFolder(folder).config["timing"]
    return timing


def calibrate(
    store: CellStore, key: str, propensity: Propensity, calibrator: Calibrator | None, log: Log, p_min: Clip
) -> None:
    """Calibrate a trained propensity anew; keep the propensities of the log's rows and their figures."""
    start = time.perf_counter()
    calibrated = propensity.reread(calibrator=calibrator)
    fitted = time.perf_counter()
    rows = calibrated.predict_each(log)
    read = time.perf_counter()
    figures = calibrated.diagnose(p_min=p_min)["calibrated"]["per_seed"]
    facts = {
        "figures": {**figures, **collapsed_values(calibrated.collapsed_, calibrated.seeds_)},
        "timing": {"calibrate_seconds": fitted - start, "predict_seconds": read - fitted},
    }
    store.write(key, facts, {"rows": rows})


def calibrate_everywhere(
    store: CellStore, key: str, propensity: Propensity, calibrator: Calibrator | None
) -> None:
    """Keep the propensities of every pair of D."""
    matrix = propensity.reread(calibrator=calibrator).predict_matrix_each()
    store.write(key, {}, {"matrix": matrix.astype(np.float32)})


def check_given(name: str, data: Dataset) -> None:
    """Refuse the true propensities of data that have none."""
    if name == "true" and data.truth is None:
        raise ParameterError(
            f"{data.name} has no true propensities", remedy="leave 'true' out, or use synthetic data"
        )


def keep_given(store: CellStore, key: str, name: str, data: Dataset, seeds: int, p_min: Clip) -> None:
    """Keep a propensity that is known without training: the share of clicks, or the truth."""
    log = data.train
    if name == "true":
        assert data.truth is not None
        everywhere = data.truth.propensity
        rows = everywhere.ravel()[log.cell]
        cells: NDArray[np.float64] | float = everywhere.ravel()
    else:
        rows, cells = np.full(len(log), log.density), log.density
    sketch = _sketch(log, cells)
    figures = propensity_figures(sketch, rows[log.clicked], p_min=p_min, population_size=log.population_size)
    per_seed = {metric: [value] * seeds for metric, value in asdict(figures).items()}
    arrays = {"rows": rows[None]} if name == "constant" else {"rows": rows[None], "matrix": everywhere[None]}
    store.write(key, {"figures": per_seed, "timing": {}}, arrays)


def _sketch(log: Log, scores: NDArray[np.float64] | float) -> CalibrationSketch:
    """Scores of all cells of D against clicks."""
    clicked = np.sort(log.cell[log.clicked]) if log.space == "matrix" else log.clicked
    sketch = CalibrationSketch()
    for start in range(0, log.population_size, SKETCH_ROWS):
        stop = min(start + SKETCH_ROWS, log.population_size)
        outcome = np.zeros(stop - start)
        first, last = np.searchsorted(clicked, (start, stop))
        outcome[clicked[first:last] - start] = 1.0
        score = np.full(stop - start, scores) if isinstance(scores, float) else scores[start:stop]
        sketch.update(score, outcome)
    return sketch
