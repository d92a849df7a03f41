"""What a served model promised against what came: one sketch for each model, on disk a few seconds behind."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from unskew.audit.audit_figures import errors, regions
from unskew.errors import DataError
from unskew.metrics import CalibrationSketch, ece, wce
from unskew.metrics.judgement import TOLERANCE, judge_weights
from unskew.metrics.proper import auc, brier, nll
from unskew.metrics.weight_calibration import has_infinite_weight
from unskew.report.words import brief, number, percent

MOST_MODELS = 32
"""Sketches that are kept, of the models that were served last."""

INDEX = "sketches.json"

Outcomes = dict[int, list[tuple[float, int, float]]]
"""By the number of the model: score, outcome and weight of rows."""


class Calibration:
    """The sketches of a service, by the names of its models.

    Parameters
    ----------
    folder
        Where they are kept: ``NAME.npz`` each, and the order of the names.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.refused: list[str] = []
        """Why sketches on disk could not be read; they are left where they are, under another name."""
        # Two locks: whoever brings outcomes does not wait for sketches.
        self._inbox, self._lock = threading.Lock(), threading.Lock()
        self._waiting: Outcomes = {}
        self._sketches: dict[str, CalibrationSketch] = {}
        self._saved_rows: dict[str, int] = {}
        self._saved_at = time.time()
        self._figures: dict[str, tuple[int, dict[str, Any]]] = {}
        for name in self._names_on_disk():
            self._load(name)

    def serve(self, name: str) -> None:
        """A model is served from now on; the sketches of those long ago are forgotten."""
        with self._lock:
            sketch = self._sketches.pop(name, None) or CalibrationSketch()
            self._sketches[name] = sketch
            for old in list(self._sketches)[:-MOST_MODELS]:
                del self._sketches[old]
                (self.folder / f"{old}.npz").unlink(missing_ok=True)
            self._write_index()

    @property
    def models(self) -> list[str]:
        """Names of models, the one served now last."""
        return list(self._sketches)

    def add(self, outcomes: Outcomes) -> None:
        """Rows whose outcomes came; they are put into sketches when these are looked at, or saved."""
        with self._inbox:
            for model, rows in outcomes.items():
                self._waiting.setdefault(model, []).extend(rows)

    def sketch(self, name: str) -> CalibrationSketch:
        """A copy of that of a model, with all outcomes that came."""
        self._settle()
        with self._lock:
            return self._sketches[name].copy()

    def _settle(self) -> None:
        """Put what waits into the sketches."""
        with self._inbox:
            waiting, self._waiting = self._waiting, {}
        with self._lock:
            by_number = {int(name[:8], 16): name for name in self._sketches}
            for model, rows in waiting.items():
                if model in by_number:
                    score, outcome, weight = np.array(rows, dtype=np.float64).T
                    self._sketches[by_number[model]].update(
                        score, outcome, None if (weight == 1).all() else weight
                    )

    def save(self) -> int:
        """Write the sketches that changed; how many."""
        self._settle()
        with self._lock:
            changed = {
                name: sketch.copy()
                for name, sketch in self._sketches.items()
                if sketch.rows != self._saved_rows.get(name, 0)
            }
        for name, sketch in changed.items():
            sketch.save(self.folder / f"{name}.npz")
            self._saved_rows[name] = sketch.rows
        self._saved_at = time.time()
        return len(changed)

    def behind(self, name: str) -> dict[str, Any]:
        """How far the file is behind what is known here."""
        rows = self.sketch(name).rows - self._saved_rows.get(name, 0)
        return {"rows_behind": rows, "seconds_ago": round(time.time() - self._saved_at, 3)}

    def errors(self, name: str) -> dict[str, float]:
        """ECE, WCE and level so far, for whoever asks often; NaN where there are no outcomes."""
        sketch = self.sketch(name)
        if not sketch.rows:
            return {"rows": 0, **dict.fromkeys(("ece", "wce", "mean_over_rate"), float("nan"))}
        level = sketch.mean_score / sketch.base_rate if sketch.base_rate else float("inf")
        return {
            "rows": sketch.rows,
            "ece": ece(sketch=sketch),
            "wce": wce(sketch=sketch),
            "mean_over_rate": level,
        }

    def figures(self, name: str) -> dict[str, Any]:
        """What the sketch amounts to, with intervals, floors and a verdict."""
        sketch = self.sketch(name)
        cached = self._figures.get(name)
        if cached is None or cached[0] != sketch.rows:
            self._figures[name] = (sketch.rows, figures_of(sketch))
        return self._figures[name][1]

    def _names_on_disk(self) -> list[str]:
        try:
            names = json.loads((self.folder / INDEX).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        plain = [each for each in names if isinstance(each, str) and len(each) == 16 and each.isalnum()]
        return plain[-MOST_MODELS:]

    def _write_index(self) -> None:
        from unskew.io.files import write_json

        write_json(self.folder / INDEX, list(self._sketches))

    def _load(self, name: str) -> None:
        path = self.folder / f"{name}.npz"
        if not path.exists():
            self._sketches[name] = CalibrationSketch()
            return
        try:
            self._sketches[name] = CalibrationSketch.load(path)
        except DataError as error:
            path.replace(path.with_suffix(".damaged"))
            self.refused.append(str(error))
            self._sketches[name] = CalibrationSketch()
        self._saved_rows[name] = self._sketches[name].rows


def figures_of(sketch: CalibrationSketch) -> dict[str, Any]:
    """Figures of a sketch as plain values, and what they amount to."""
    found: dict[str, Any] = {"rows": sketch.rows, "positives": sketch.positives}
    if not sketch.rows:
        return {**found, "healthy": None, "verdict": "No outcome has come yet."}
    judgement = judge_weights(sketch)
    both = 0 < sketch.positives < sketch.total
    level = sketch.mean_score / sketch.base_rate if sketch.base_rate else None
    return {
        **found,
        "mean_score": sketch.mean_score,
        "rate": sketch.base_rate,
        "mean_over_rate": level,
        **{name: asdict(each) for name, each in errors(sketch).items()},
        "nll": nll(sketch=sketch),
        "brier": brier(sketch=sketch),
        "auc": auc(sketch=sketch) if both else None,
        "healthy": judgement.healthy,
        "reason": judgement.reason,
        "rows_needed": judgement.rows_needed,
        "verdict": _verdict(sketch, judgement.reason, judgement.rows_needed),
    }


def _verdict(sketch: CalibrationSketch, reason: str, needed: int | None) -> str:
    """The judgement in a sentence or two."""
    came = f"{number(sketch.rows, 0)} outcomes"
    if reason == "too few rows":
        enough = f"; about {number(needed, 0)} would decide" if needed else ""
        return f"Undecided: {came} are too few to tell honest probabilities from wrong ones{enough}."
    if reason == "not beyond chance":
        return (
            f"Undecided: on {came} the scores do not tell rows with outcome 1 from the others; their mean is"
            f" {brief(sketch.mean_score)} and the rate {brief(sketch.base_rate)}."
        )
    if reason == "honest":
        error = percent(wce(sketch=sketch, debiased=True))
        return (
            f"Honest: on {came} probabilities are off by {error} of themselves on average, within"
            f" {percent(TOLERANCE)}."
        )
    if has_infinite_weight(sketch):
        return f"Wrong: among {came} there is one with outcome 1 whose score was 0."
    level = sketch.mean_score / sketch.base_rate if sketch.base_rate else float("inf")
    worst = regions(sketch, tolerance=TOLERANCE)
    where = f" {_where(worst[0].low, worst[0].high, worst[0].ratio)}" if worst else ""
    return f"Wrong: on {came} the mean prediction is {brief(level)} times the rate.{where}"


def _where(low: float | None, high: float | None, ratio: float) -> str:
    if low is None and high is None:
        place = "Everywhere"
    elif low is None:
        place = f"Below {brief(high or 0.0)}"
    elif high is None:
        place = f"Above {brief(low)}"
    else:
        place = f"From {brief(low)} to {brief(high)}"
    return f"{place} outcomes are {brief(ratio)} times what was predicted."
