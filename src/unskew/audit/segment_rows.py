"""A bounded sample of rows with their segments, taken as they pass, to fit calibrators by segment on.

Which rows are kept follows from their numbers alone, so that batches do not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.audit.crossfit import fold_of_rows
from unskew.base.seeds import splitmix64
from unskew.base.seeds import stream as seed_stream
from unskew.calibration import Multicalibrated

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
        """The rows in the order of their hashes, each with the weight that it has for those left out."""
        order = np.argsort(self._columns[0])
        _, score, outcome, weight, fold, *codes = (each[order] for each in self._columns)
        kept = np.bincount(outcome, minlength=2)
        stands_for = self._seen / np.maximum(kept, 1)
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
    calibrator: Multicalibrated, kept: KeptRows, names: Sequence[str], folds: int
) -> tuple[list[Multicalibrated], NDArray[np.float64]]:
    """Fit a calibrator that reads segments without each fold; return the fits, and each row's probability."""

    def features_of(rows: NDArray[Any]) -> dict[str, NDArray[np.int32]]:
        return {column: code[rows] for column, code in zip(names, kept.code, strict=True)}

    fitted = []
    for fold in range(folds):
        rows = kept.fold != fold
        clone = calibrator.clone().set_params(segments=None)
        clone.fit(kept.score[rows], kept.outcome[rows], kept.weight[rows], features=features_of(rows))
        fitted.append(clone)

    def predict(k: int, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return fitted[k].predict(kept.score[rows], features_of(rows))

    return fitted, out_of_fold(kept.fold, predict)
