"""A bounded sample of rows with their segments, and calibrators that read these, compared on it out of fold.

Which rows are in the sample follows from their numbers alone, so that batches do not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from unskew.audit.crossfit import Folds, error_of_mean, fit_without_each, fold_of_rows, log_losses
from unskew.audit.segments import Segment, ValueCodes, corrected, segment_cells, segments_of, worst_first
from unskew.base.plain_text import listed, plain
from unskew.base.seeds import splitmix64
from unskew.base.seeds import stream as seed_stream
from unskew.calibration import Multicalibrated

Array = NDArray[np.float64]

MOST_KEPT = 1 << 15
"""Rows of each outcome that are kept; beyond it those left stand for more."""

_TYPES = (np.uint64, np.float64, np.uint8, np.float64, np.int8)
"""Of priority, score, outcome, weight and fold."""


@dataclass(frozen=True, eq=False)
class KeptRows:
    """The rows that were kept; ``code`` is ``[columns, n]``, ``weight`` what each stands for."""

    score: NDArray[np.float64]
    outcome: NDArray[np.uint8]
    weight: NDArray[np.float64]
    fold: NDArray[np.int8]
    code: NDArray[np.int32]
    seen: int
    """All rows that passed."""


class SegmentRows:
    """Rows of each outcome with the lowest hashes of their numbers, at most ``most`` of each.

    Parameters
    ----------
    columns
        How many columns of segments there are.
    """

    def __init__(self, columns: int, folds: int, *, seed: int = 0, most: int = MOST_KEPT) -> None:
        self.folds, self.seed, self.most = folds, seed, most
        self._columns: list[NDArray[Any]] = [
            np.empty(0, kind) for kind in (*_TYPES, *(np.int32 for _ in range(columns)))
        ]
        self._seen = np.zeros(2, dtype=np.int64)
        self._above = np.full(2, np.iinfo(np.uint64).max, dtype=np.uint64)

    def add(self, start: int, numbers: Sequence[NDArray[Any]], codes: Sequence[NDArray[np.int64]]) -> None:
        """Add rows of which the first has the number ``start``: score, outcome, weight (if any), segments."""
        score, outcome = numbers[0], numbers[1]
        rows = len(score)
        number = np.arange(start, start + rows, dtype=np.uint64)
        priority = splitmix64(number + np.uint64(seed_stream(self.seed, "segment rows")))
        clicked = outcome == 1
        self._seen += np.array([rows - clicked.sum(), clicked.sum()])
        low = np.flatnonzero(priority <= np.where(clicked, self._above[1], self._above[0]))
        weight = numbers[2] if len(numbers) > 2 else np.ones(rows)
        fold = fold_of_rows(start, rows, self.folds, self.seed)
        columns = (priority, score, outcome, weight, fold, *codes)
        joined = [
            np.concatenate([before, column[low].astype(before.dtype)])
            for before, column in zip(self._columns, columns, strict=True)
        ]
        chosen = []
        for kind in (0, 1):
            at = np.flatnonzero(joined[2] == kind)
            if len(at) > self.most:
                at = at[np.argpartition(joined[0][at], self.most - 1)[: self.most]]
                self._above[kind] = joined[0][at].max()
            chosen.append(at)
        self._columns = [column[np.concatenate(chosen)] for column in joined]

    def rows(self) -> KeptRows:
        """Return the rows in the order of their hashes, each with a weight for those left out too."""
        order = np.argsort(self._columns[0])
        _, score, outcome, weight, fold, *codes = (each[order] for each in self._columns)
        counts = np.bincount(outcome, minlength=2)
        stands_for = self._seen / np.maximum(counts, 1)
        return KeptRows(
            score, outcome, weight * stands_for[outcome], fold, np.stack(codes), int(self._seen.sum())
        )


def out_of_fold(
    fold: NDArray[np.int8], predict: Callable[[int, NDArray[np.int64]], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return ``predict(k, rows)`` for the rows of each fold k."""
    propensity = np.empty(len(fold))
    for k in np.unique(fold):
        rows = np.flatnonzero(fold == k)
        propensity[rows] = predict(int(k), rows)
    return propensity


def crossfit_by_segment(
    calibrator: Multicalibrated, sample: KeptRows, names: Sequence[str], folds: int
) -> tuple[list[Multicalibrated], NDArray[np.float64]]:
    """Fit a calibrator that reads segments without each fold; return the fits, and each row's probability."""

    def features_of(rows: NDArray[Any]) -> dict[str, NDArray[np.int32]]:
        return {column: code[rows] for column, code in zip(names, sample.code, strict=True)}

    fitted = []
    for fold in range(folds):
        rows = sample.fold != fold
        clone = calibrator.clone().set_params(segments=None)
        clone.fit(sample.score[rows], sample.outcome[rows], sample.weight[rows], features=features_of(rows))
        fitted.append(clone)

    def predict(k: int, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return fitted[k].predict(sample.score[rows], features_of(rows))

    return fitted, out_of_fold(sample.fold, predict)


INNER_FOLDS = 3
"""Folds in which each fit chooses its rounds: each is one of the folds that judge it already."""

MULTI = Multicalibrated.name


@dataclass(frozen=True)
class RepairLine:
    """The figures that one calibrator reaches on held-out rows.

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
        by_name = {line.name: line for line in self.lines}
        before, after = by_name[self.beside], by_name[MULTI]
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
    sample: KeptRows,
    values: Mapping[str, ValueCodes],
    folds: Folds,
    *,
    recommended: str,
    tolerance: float,
    significance: float,
) -> SegmentRepair | None:
    """Compare them; None where some fold leaves rows of one class alone, or none at all."""
    for fold in range(len(folds)):
        clicks = sample.outcome[sample.fold != fold]
        if not 0 < clicks.sum() < len(clicks):
            return None
    names = list(values)
    probabilities: dict[str, Array] = {"none": sample.score}
    if recommended != "none":
        fitted = fit_without_each(recommended, folds)
        probabilities[recommended] = out_of_fold(
            sample.fold, lambda fold, rows: fitted[fold].predict(sample.score[rows])
        )
    multi = Multicalibrated(folds=INNER_FOLDS, exact_below=0)
    _, probabilities[MULTI] = crossfit_by_segment(multi, sample, names, len(folds))
    at = np.arange(len(sample.score)), sample.outcome
    loss = {name: log_losses(p)[at] for name, p in probabilities.items()}
    difference = loss[recommended] - loss[MULTI]
    gain = float(sample.weight @ difference / sample.weight.sum())
    error = error_of_mean(sample.weight, sample.weight**2, difference)
    lines = {
        name: RepairLine(
            name,
            float(sample.weight @ loss[name] / sample.weight.sum()),
            _worst(sample, values, p, tolerance=tolerance, significance=significance),
        )
        for name, p in probabilities.items()
    }
    better = error > 0 and ndtr(-gain / error) < significance
    return SegmentRepair(
        columns=tuple(names),
        rows=len(sample.score),
        lines=tuple(sorted(lines.values(), key=lambda line: line.nll)),
        beside=recommended,
        gain=gain,
        gain_error=error,
        worth_it=bool(better and lines[recommended].worst is not None),
    )


def _worst(
    sample: KeptRows, values: Mapping[str, ValueCodes], probability: Array, **limits: float
) -> Segment | None:
    segments = []
    for (column, codes), code in zip(values.items(), sample.code, strict=True):
        cells = segment_cells(column, codes.names(), code, probability, sample.outcome, sample.weight)
        segments += segments_of(cells)
    off = (each for each in worst_first(corrected(segments), **limits) if each.is_off(**limits))
    return next(off, None)
