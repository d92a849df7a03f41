"""Scores, outcomes and weights as checked NumPy chunks. Takes NumPy, Arrow, torch, pandas and polars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.numbers import parts_of

CHUNK_ROWS = 1 << 17
"""Rows of a chunk: what is computed of them stays in the second-level cache."""


class Names(NamedTuple):
    """The caller's names of the three columns, for error messages."""

    score: str = "score"
    outcome: str = "outcome"
    weight: str = "weight"


DEFAULT_NAMES = Names()


class ScoreChunk(NamedTuple):
    """Checked rows: scores in [0, 1], whether the outcome is 1, and weights of at least 0."""

    score: NDArray[np.float64]
    clicked: NDArray[np.bool_]
    weight: NDArray[np.float64] | None


def chunks(
    score: Any, outcome: Any, weight: Any = None, *, first_row: int = 0, names: Names = DEFAULT_NAMES
) -> Iterator[ScoreChunk]:
    """Yield chunks of aligned rows; lengths that differ and bad values are errors.

    ``first_row`` is the number of the first row, for error messages.
    """
    columns = [_column(score, names.score, first_row), _column(outcome, names.outcome, first_row)]
    if weight is not None:
        columns.append(_column(weight, names.weight, first_row))
    for column, name in zip(columns[1:], names[1:], strict=False):
        if len(column) != len(columns[0]):
            raise DataError(
                f"'{name}' has {len(column)} rows where '{names.score}' has {len(columns[0])}",
                remedy="give one value for each row",
            )
    for start in range(0, len(columns[0]), CHUNK_ROWS):
        rows = [column[start : start + CHUNK_ROWS] for column in columns]
        p = rows[0].astype(np.float64, copy=False)
        w = rows[2].astype(np.float64, copy=False) if len(rows) > 2 else None
        clicked = rows[1] == 1
        if not (
            p.min() >= 0.0
            and p.max() <= 1.0
            and (clicked | (rows[1] == 0)).all()
            and (w is None or (w.min() >= 0.0 and w.max() < np.inf))
        ):
            raise _bad_row(p, rows[1], w, first_row + start, names)
        yield ScoreChunk(p, clicked, w)


def _column(values: Any, name: str, first_row: int) -> NDArray[Any]:
    parts = parts_of(values, name, first_row)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def wrong_score(score: float, where: str) -> DataError:
    """Return the error for a score that is missing or no probability."""
    if np.isnan(score):
        remedy = "drop these rows or fill in the scores"
        return DataError("score is missing (NaN)", where=where, remedy=remedy)
    remedy = "give probabilities; the sigmoid, 1 / (1 + exp(-logit)), makes them of logits"
    return DataError(f"score {score:g} is outside [0, 1]", where=where, remedy=remedy)


def _bad_row(
    score: NDArray[np.float64],
    outcome: NDArray[Any],
    weight: NDArray[np.float64] | None,
    first_row: int,
    names: Names,
) -> DataError:
    """Return the error for the first bad row of a chunk."""
    good_score, good_outcome = (score >= 0) & (score <= 1), (outcome == 0) | (outcome == 1)
    good = good_score & good_outcome
    if weight is not None:
        good &= (weight >= 0) & (weight < np.inf)
    at = int(np.argmin(good))
    if not good_score[at]:
        return wrong_score(float(score[at]), f"column '{names.score}', row {first_row + at}")
    if not good_outcome[at]:
        value, name = float(outcome[at]), names.outcome
        problem = f"outcome is {'missing (NaN)' if np.isnan(value) else f'{value:g}, not 0 or 1'}"
        remedy = "encode outcomes as 0 and 1, without missing values"
    else:
        assert weight is not None
        problem, name = f"weight {weight[at]:g} is not a finite number of at least 0", names.weight
        remedy = "give finite weights of at least 0"
    return DataError(problem, where=f"column '{name}', row {first_row + at}", remedy=remedy)
