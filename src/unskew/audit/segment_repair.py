"""Compare a calibrator that reads the segments, out of fold, with the recommended one of the scores alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from unskew.audit.crossfit import error_of_mean, fit_without_each, log_losses
from unskew.audit.reading import Counted
from unskew.audit.segment_rows import KeptRows, crossfit_by_segment, out_of_fold
from unskew.audit.segments import Segment, ValueCodes, corrected, segment_cells, segments_of, worst_first
from unskew.base.plain_text import listed, plain
from unskew.calibration import Multicalibrated

Array = NDArray[np.float64]

INNER_FOLDS = 3
"""Folds in which each fit chooses its rounds: each is one of the folds that judge it already."""

MULTI = Multicalibrated.name


@dataclass(frozen=True)
class RepairLine:
    """What one way to calibrate reaches on held-out rows.

    Attributes
    ----------
    name
        Of the calibrator, as ``unskew weights`` knows it; ``"none"`` leaves the scores as they are.
    worst
        The segment that costs most of those that are off beyond noise and beyond the tolerance, or None.
    """

    name: str
    nll: float
    worst: Segment | None


@dataclass(frozen=True)
class SegmentRepair:
    """Calibrators compared by segment, each row by a fit without its fold.

    Attributes
    ----------
    columns, rows
        What :class:`unskew.Multicalibrated` reads, and the rows that were kept for the comparison.
    beside
        The calibrator of scores alone that it is compared with: the recommended one.
    gain, gain_error
        By how much its NLL is lower, and the standard error of that.
    worth_it
        Whether some segment is off with the calibrator beside it, and the NLL is lower beyond noise.
    """

    columns: tuple[str, ...]
    rows: int
    lines: tuple[RepairLine, ...]
    beside: str
    gain: float
    gain_error: float
    worth_it: bool

    @property
    def sentence(self) -> str:
        """Say whether it is worth it, and why."""
        of = {line.name: line for line in self.lines}
        before, after = of[self.beside], of[MULTI]
        with_what = "the scores as they are" if self.beside == "none" else self.beside
        figures = f"held-out NLL {after.nll:.5f} against {before.nll:.5f} with {with_what}"
        over = listed(map(plain, self.columns))
        if before.worst is None or not self.worth_it:
            honest = "" if before.worst else f"no segment is off with {with_what}; "
            return (
                f"Multicalibrated over {over} is not worth it: {honest}{figures} (a difference with a"
                f" standard error of {self.gain_error:.1g})."
            )
        left = f"the weights of {_off(after.worst)} at worst" if after.worst else "no segment is off"
        return (
            f"Multicalibrated over {over} is worth it: {figures} (lower by {self.gain:.2g} ±"
            f" {self.gain_error:.1g}), and {left}; with {with_what} the weights of {_off(before.worst)}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, text and lists."""
        names = ("rows", "worth_it", "sentence", "beside", "gain", "gain_error")
        return {
            "columns": list(self.columns),
            **{name: getattr(self, name) for name in names},
            "calibrators": [
                {**vars(line), "worst": None if line.worst is None else vars(line.worst)}
                for line in self.lines
            ],
        }


def _off(segment: Segment) -> str:
    return f"{plain(segment.column)} = {plain(segment.value)} are off by {100 * segment.wce_debiased:.2g} %"


def compare_by_segment(
    counted: Counted, *, recommended: str, tolerance: float, significance: float
) -> SegmentRepair | None:
    """Compare them; None where some fold leaves rows of one class alone, or none at all."""
    assert counted.sample is not None
    kept = counted.sample.rows()
    for fold in range(len(counted.folds)):
        clicks = kept.outcome[kept.fold != fold]
        if not 0 < clicks.sum() < len(clicks):
            return None
    names = list(counted.values)
    probabilities: dict[str, Array] = {"none": kept.score}
    if recommended != "none":
        fitted = fit_without_each(recommended, counted.folds)
        probabilities[recommended] = out_of_fold(
            kept.fold, lambda fold, rows: fitted[fold].predict(kept.score[rows])
        )
    multi = Multicalibrated(folds=INNER_FOLDS, exact_below=0)
    _, probabilities[MULTI] = crossfit_by_segment(multi, kept, names, len(counted.folds))
    at = np.arange(len(kept.score)), kept.outcome
    loss = {name: log_losses(p)[at] for name, p in probabilities.items()}
    difference = loss[recommended] - loss[MULTI]
    gain = float(kept.weight @ difference / kept.weight.sum())
    error = error_of_mean(kept.weight, kept.weight**2, difference)
    lines = {
        name: RepairLine(
            name,
            float(kept.weight @ loss[name] / kept.weight.sum()),
            _worst(kept, counted.values, p, tolerance=tolerance, significance=significance),
        )
        for name, p in probabilities.items()
    }
    better = error > 0 and ndtr(-gain / error) < significance
    return SegmentRepair(
        columns=tuple(names),
        rows=len(kept.score),
        lines=tuple(sorted(lines.values(), key=lambda line: line.nll)),
        beside=recommended,
        gain=gain,
        gain_error=error,
        worth_it=bool(better and lines[recommended].worst is not None),
    )


def _worst(
    kept: KeptRows, values: Mapping[str, ValueCodes], probability: Array, **limits: float
) -> Segment | None:
    segments = []
    for (column, codes), code in zip(values.items(), kept.code, strict=True):
        cells = segment_cells(column, codes.names(), code, probability, kept.outcome, kept.weight)
        segments += segments_of(cells)
    off = (each for each in worst_first(corrected(segments), **limits) if each.is_off(**limits))
    return next(off, None)
