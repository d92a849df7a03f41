"""Propensities as they are given (an estimator, an array, a column, one number): checked and clipped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.calibration.venn_abers import warn_if_raised
from unskew.errors import DataError, NotFittedError, ParameterError
from unskew.io.columns import number_column
from unskew.io.numbers import without_mask
from unskew.log import Log
from unskew.metrics import WeightDiagnostics, weight_diagnostics
from unskew.metrics.clip import Clip, require_clip, resolve_clip
from unskew.plain_text import listed
from unskew.propensity.in_sample import warn_if_in_sample

MOST_EVERYWHERE = 1 << 29
"""Propensities of all of D that are kept in memory, over all seeds (2 GiB of float32)."""

Lines = NDArray[np.float64]
"""One line for all seeds, or one for each."""


@dataclass(frozen=True)
class GivenPropensities:
    """Propensities after clipping at ``p_min``, one line per seed."""

    clicked: NDArray[np.float64]
    """``[seeds, |O|]``."""
    everywhere: NDArray[np.float32] | None
    """``[seeds, |D|]``, for methods that need them on every cell; None for the others."""
    diagnostics: tuple[WeightDiagnostics, ...]
    """What was clipped on O and what that did."""
    floors: tuple[float, ...]
    """The clip of each seed."""

    def share(self, replicas: slice) -> GivenPropensities:
        """Those of some seeds."""
        return GivenPropensities(
            clicked=self.clicked[replicas],
            everywhere=None if self.everywhere is None else self.everywhere[replicas],
            diagnostics=self.diagnostics[replicas],
            floors=self.floors[replicas],
        )


def given_propensities(
    log: Log,
    propensity: Any,
    seeds: tuple[int, ...],
    p_min: Clip,
    *,
    calibrated: bool = True,
    everywhere: bool = False,
    full_space: bool = False,
) -> GivenPropensities:
    """Resolve ``propensity=``.

    Accepts a fitted :class:`Propensity` (one line per seed where its seeds are ``seeds``, else its mean for
    all), an array ``[n]`` or ``[seeds, n]`` aligned with the log's rows, an array ``[users, items]`` or
    ``[seeds, users, items]`` over D, the name of one of the log's columns, or one number for all pairs.

    Parameters
    ----------
    everywhere
        Also give them on every cell of D.
    full_space
        The method sums over D, so a propensity of a sampled population is refused.
    """
    require_clip(p_min)
    if full_space and getattr(propensity, "population", "D") == "sampled":
        raise ParameterError(
            "this propensity is of a sampled population (1:k negatives without the logit offset), not of D",
            remedy="fit it with population='D', which adds the offset log w",
        )
    clicked, all_cells = _resolved(log, propensity, seeds, calibrated=calibrated, everywhere=everywhere)
    _require_probabilities(clicked, lambda column: f"row {log.clicked[column]}")
    if len(log.clicked) and not clicked.any(axis=1).all():
        raise DataError(
            "the propensity of every click is 0, though it was clicked: all weights would be 1/p_min",
            remedy="give P(click = 1), above 0 where there are clicks",
        )
    floors = [resolve_clip(p_min, propensity=line) for line in clicked]
    diagnostics = tuple(
        weight_diagnostics(propensity=line, p_min=floor, population_size=log.population_size)
        for line, floor in zip(clicked, floors, strict=True)
    )
    least = np.array(floors)[:, None]
    values = np.broadcast_to(np.maximum(clicked, least), (len(seeds), clicked.shape[1]))
    on_cells = None
    if all_cells is not None:
        _require_probabilities(all_cells, lambda cell: _cell_name(log, cell))
        clipped = np.maximum(all_cells, least).astype(np.float32)
        on_cells = np.broadcast_to(clipped, (len(seeds), clipped.shape[1]))
    return GivenPropensities(
        clicked=values,
        everywhere=on_cells,
        diagnostics=diagnostics,
        floors=tuple(np.broadcast_to(floors, len(seeds)).tolist()),
    )


def _require_probabilities(lines: NDArray[np.float64], place: Callable[[int], str]) -> None:
    wrong = ~((lines >= 0.0) & (lines <= 1.0))
    if wrong.any():
        line, column = np.argwhere(wrong)[0]
        raise DataError(
            f"propensity is {lines[line, column]}, not a probability",
            where=place(int(column)),
            remedy="give P(click = 1), in [0, 1]",
        )


def _cell_name(log: Log, cell: int) -> str:
    if log.space == "impressions":
        return f"row {cell}"
    user, item = divmod(cell, log.n_items)
    return f"{log.users.name} {log.users.ids[user]}, {log.items.name} {log.items.ids[item]}"


def _resolved(
    log: Log, propensity: Any, seeds: tuple[int, ...], *, calibrated: bool, everywhere: bool
) -> tuple[Lines, Lines | None]:
    """Propensities of the clicked rows and, if asked for, of all cells of D."""
    if everywhere and log.population_size * len(seeds) > MOST_EVERYWHERE:
        raise ParameterError(
            f"propensities on all {log.population_size:,} cells of D for {len(seeds)} seeds do not fit",
            remedy="use fewer seeds, or a method that needs them on clicks alone",
        )
    if hasattr(propensity, "predict_each"):
        return _predicted(log, propensity, seeds, calibrated, everywhere)
    values = _column(log, propensity) if isinstance(propensity, str) else _numbers(propensity)
    return _aligned(log, values, seeds, everywhere)


def _predicted(
    log: Log, propensity: Any, seeds: tuple[int, ...], calibrated: bool, everywhere: bool
) -> tuple[Lines, Lines | None]:
    """By an estimator: seed by seed where its seeds are these, else its mean."""
    if not hasattr(propensity, "seeds_"):
        raise NotFittedError(f"this {type(propensity).__name__} is not fitted yet", remedy="call fit first")
    warn_if_in_sample(propensity, log, stacklevel=6)
    paired = tuple(propensity.seeds_) == seeds

    def lines(each: Lines) -> Lines:
        return each if paired else np.asarray(each.mean(axis=0, keepdims=True))

    if calibrated:
        warn_if_raised(getattr(propensity, "calibrators_", ()), stacklevel=6)
    rows = propensity.predict_each(log, calibrated=calibrated)
    clicked = lines(rows[:, log.clicked])
    if not everywhere:
        return clicked, None
    return clicked, lines(rows if log.space == "impressions" else _matrix_of(propensity, calibrated))


def _aligned(log: Log, values: Lines, seeds: tuple[int, ...], everywhere: bool) -> tuple[Lines, Lines | None]:
    """From one number, from a matrix over D, or from numbers of the log's rows."""
    if values.ndim == 0:
        return (
            np.full((1, log.n_clicks), float(values)),
            np.full((1, log.population_size), float(values)) if everywhere else None,
        )
    if log.space == "matrix" and values.shape[-2:] == (log.n_users, log.n_items):
        cells = values.reshape(-1, log.population_size)
        _require_lines(cells, seeds)
        return cells[:, log.cell[log.clicked]], cells if everywhere else None
    rows = values[None] if values.ndim == 1 else values
    if rows.ndim != 2 or rows.shape[1] != len(log):
        raise DataError(
            f"propensities of shape {values.shape} do not fit a log of {len(log)} rows",
            remedy="give one number per row of the log (or per seed and row), or a matrix [users, items]",
        )
    _require_lines(rows, seeds)
    if everywhere and log.space == "matrix":
        raise ParameterError(
            "this method needs propensities on every pair, not on the log's rows alone",
            remedy="give a fitted Propensity or an array [users, items]",
        )
    return rows[:, log.clicked], rows if everywhere else None


def _matrix_of(propensity: Any, calibrated: bool) -> Lines:
    matrix = propensity.predict_matrix_each(calibrated=calibrated)
    return np.asarray(matrix.reshape(len(matrix), -1))


def _column(log: Log, name: str) -> Lines:
    if name not in log.columns:
        raise DataError(
            f"the log has no column '{name}'",
            remedy=f"keep it when the log is built; it has: {listed(log.columns) or 'none'}",
        )
    return number_column(log.columns[name], name)


def _numbers(propensity: Any) -> Lines:
    values = np.asarray(without_mask(propensity))
    if values.dtype.kind not in "biuf":
        raise DataError(
            f"propensities of type {values.dtype} are not numbers",
            remedy="give a fitted Propensity, an array of numbers or a column's name",
        )
    return values.astype(np.float64)


def _require_lines(lines: Lines, seeds: tuple[int, ...]) -> None:
    if len(lines) not in (1, len(seeds)):
        raise DataError(
            f"{len(lines)} lines of propensities do not fit {len(seeds)} seeds",
            remedy="give one line for all seeds, or one for each",
        )
