"""Scores, outcomes and weights as aligned NumPy chunks, without copies where the type allows.

Takes NumPy, Arrow (chunked), torch, pandas and polars; leaves the check of the values to the passes,
and finds the words for what they reject (:func:`validate`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.numbers import parts_of

CONVERTED_ROWS = 1 << 18
"""Rows a chunk where a conversion of type must copy: bounds the extra memory."""

_Types = tuple[np.dtype[Any], ...]
_SCORE_TYPES: _Types = (np.dtype(np.float64), np.dtype(np.float32))
_OUTCOME_TYPES: _Types = (np.dtype(np.uint8), np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.float32))
_WEIGHT_TYPES: _Types = (np.dtype(np.float64),)


class Names(NamedTuple):
    """What the caller calls the three columns, for error messages."""

    score: str = "score"
    outcome: str = "outcome"
    weight: str = "weight"


DEFAULT_NAMES = Names()


class ScoreChunk(NamedTuple):
    """Rows of equal length, contiguous and read-only; ``first_row`` is the row number of the first."""

    score: NDArray[Any]
    outcome: NDArray[Any]
    weight: NDArray[np.float64] | None
    first_row: int


def chunks(
    score: Any, outcome: Any, weight: Any = None, *, first_row: int = 0, names: Names = DEFAULT_NAMES
) -> Iterator[ScoreChunk]:
    """Aligned chunks of score, outcome and weight; lengths that differ are an error."""
    columns = [(parts_of(score, names.score, first_row), _SCORE_TYPES)]
    columns.append((parts_of(outcome, names.outcome, first_row), _OUTCOME_TYPES))
    if weight is not None:
        columns.append((parts_of(weight, names.weight, first_row), _WEIGHT_TYPES))
    lengths = [sum(len(part) for part in parts) for parts, _ in columns]
    for length, name in zip(lengths[1:], (names.outcome, names.weight), strict=False):
        if length != lengths[0]:
            raise DataError(
                f"'{name}' has {length} rows where '{names.score}' has {lengths[0]}",
                remedy="give one value for each row",
            )
    converts = any(part.dtype not in kept for parts, kept in columns for part in parts)
    if not converts and lengths[0] and all(len(parts) == 1 for parts, _ in columns):
        # What follows takes a third of the time of an ECE of 100,000 rows, and would give the same.
        whole = [_kept_type(parts[0], kept) for parts, kept in columns]
        yield ScoreChunk(whole[0], whole[1], whole[2] if weight is not None else None, first_row)
        return
    ends = [np.cumsum([len(part) for part in parts]) for parts, _ in columns]
    breaks = np.unique(np.concatenate(ends))
    if converts and lengths[0] > CONVERTED_ROWS:
        breaks = np.unique(np.concatenate([breaks, np.arange(CONVERTED_ROWS, lengths[0], CONVERTED_ROWS)]))
    start = 0
    for stop in breaks.tolist():
        if stop == start:
            continue
        rows = []
        for (parts, kept), end in zip(columns, ends, strict=True):
            which = int(np.searchsorted(end, start, side="right"))
            offset = int(end[which]) - len(parts[which])
            rows.append(_kept_type(parts[which][start - offset : stop - offset], kept))
        yield ScoreChunk(rows[0], rows[1], rows[2] if weight is not None else None, first_row + start)
        start = stop


def _kept_type(part: NDArray[Any], kept: _Types) -> NDArray[Any]:
    """The part in a type that a kernel is compiled for, read-only: one compilation serves all callers."""
    if part.dtype not in kept:
        exact_integer = part.dtype.kind in "iu" and np.dtype(np.int64) in kept
        part = part.astype(np.int64 if exact_integer else np.float64)
    part = np.ascontiguousarray(part).view()
    part.flags.writeable = False
    return part


def wrong_score(score: float, where: str) -> DataError:
    """The error for a score that is missing or no probability."""
    if np.isnan(score):
        remedy = "drop these rows or fill in the scores"
        return DataError("score is missing (NaN)", where=where, remedy=remedy)
    remedy = "give probabilities; the sigmoid, 1 / (1 + exp(-logit)), makes them of logits"
    return DataError(f"score {score:g} is outside [0, 1]", where=where, remedy=remedy)


def validate(chunk: ScoreChunk, names: Names = DEFAULT_NAMES) -> None:
    """Raise the error for the first row of a chunk that is no probability with an outcome and a weight."""
    score, outcome = chunk.score, chunk.outcome
    good_score, good_outcome = (score >= 0) & (score <= 1), (outcome == 0) | (outcome == 1)
    good = good_score & good_outcome
    if chunk.weight is not None:
        good &= (chunk.weight >= 0) & (chunk.weight < np.inf)
    if good.all():
        return
    at = int(np.argmin(good))
    if not good_score[at]:
        raise wrong_score(float(score[at]), f"column '{names.score}', row {chunk.first_row + at}")
    if not good_outcome[at]:
        value, name = float(outcome[at]), names.outcome
        problem = f"outcome is {'missing (NaN)' if np.isnan(value) else f'{value:g}, not 0 or 1'}"
        remedy = "encode outcomes as 0 and 1, without missing values"
    else:
        assert chunk.weight is not None
        problem, name = f"weight {chunk.weight[at]:g} is not a finite number of at least 0", names.weight
        remedy = "give finite weights of at least 0"
    raise DataError(problem, where=f"column '{name}', row {chunk.first_row + at}", remedy=remedy)
