"""Propensities as they are given (an estimator, an array, a column, one number): checked and clipped."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.columns import number_column
from unskew.base.errors import DataError, NotFittedError, ParameterError
from unskew.base.numbers import without_mask
from unskew.base.plain_text import listed
from unskew.calibration.venn_abers import warn_if_raised
from unskew.data import Log
from unskew.metrics import WeightDiagnostics, weight_diagnostics
from unskew.metrics.weights import Clip, require_clip, resolve_clip

MOST_EVERYWHERE = 1 << 29
"""Propensities of all of D that are kept in memory, over all seeds (2 GiB of float32)."""

MOSTLY = 0.5
"""From this share on of its clicked pairs a log counts as the one that was trained on. A part of the training
log has all of them; a log of other days repeats some pairs by chance."""

Lines = NDArray[np.float64]
"""One line for all seeds, or one for each."""


class InSampleWarning(UserWarning):
    """Propensities of training rows from a model that saw these rows: no weights."""


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
    lines: tuple[int, ...]
    """The line that each replica reads: that of its seed."""

    def of_members(self, members: int) -> GivenPropensities:
        """Repeat each seed's propensities for every member."""
        return replace(self, lines=tuple(np.repeat(self.lines, members).tolist()))

    def share(self, replicas: slice) -> GivenPropensities:
        """Return those of some replicas, with the lines from their first to their last."""
        own = self.lines[replicas]
        read = slice(min(own), max(own) + 1)
        return replace(
            self,
            clicked=self.clicked[read],
            everywhere=None if self.everywhere is None else self.everywhere[read],
            floors=self.floors[read],
            lines=tuple(line - read.start for line in own),
        )


def _of_seeds(propensity: Any, seeds: tuple[int, ...], lines: Lines) -> Lines:
    """Return an estimator's lines seed by seed where its seeds are these, else their mean."""
    paired = tuple(propensity.seeds_) == seeds
    return lines if paired else np.asarray(lines.mean(axis=0, keepdims=True))


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
    if everywhere and log.population_size * len(seeds) > MOST_EVERYWHERE:
        raise ParameterError(
            f"propensities on all {log.population_size:,} cells of D for {len(seeds)} seeds do not fit",
            remedy="use fewer seeds, or a method that needs them on clicks alone",
        )
    if hasattr(propensity, "predict_each"):
        clicked, all_cells = _predicted(log, propensity, seeds, calibrated, everywhere)
    else:
        values = column_of(log, propensity) if isinstance(propensity, str) else without_mask(propensity)
        clicked, all_cells = _aligned(log, np.asarray(values), seeds, everywhere)
    require_probabilities(clicked, lambda column: f"row {log.clicked[column]}")
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

    def cell_name(cell: int) -> str:
        if log.space == "impressions":
            return f"row {cell}"
        user, item = divmod(cell, log.n_items)
        return f"{log.users.name} {log.users.ids[user]}, {log.items.name} {log.items.ids[item]}"

    if all_cells is not None:
        require_probabilities(all_cells, cell_name)
        clipped = np.maximum(all_cells, least).astype(np.float32)
        on_cells = np.broadcast_to(clipped, (len(seeds), clipped.shape[1]))
    return GivenPropensities(
        clicked=values,
        everywhere=on_cells,
        diagnostics=diagnostics,
        floors=tuple(np.broadcast_to(floors, len(seeds)).tolist()),
        lines=tuple(range(len(seeds))),
    )


def require_probabilities(lines: Lines, name_of: Callable[[int], str]) -> None:
    """Raise for the first value that is not in [0, 1], with its place by column."""
    wrong = ~((lines >= 0.0) & (lines <= 1.0))
    if wrong.any():
        line, column = np.argwhere(wrong)[0]
        raise DataError(
            f"propensity is {lines[line, column]}, not a probability",
            where=name_of(int(column)),
            remedy="give P(click = 1), in [0, 1]",
        )


def _predicted(
    log: Log, propensity: Any, seeds: tuple[int, ...], calibrated: bool, everywhere: bool
) -> tuple[Lines, Lines | None]:
    """Return an estimator's propensities of the clicked rows and, if asked for, of all cells of D."""
    if not hasattr(propensity, "seeds_"):
        raise NotFittedError(f"this {type(propensity).__name__} is not fitted yet", remedy="call fit first")
    warn_if_in_sample(propensity, log, stacklevel=5)
    if calibrated:
        warn_if_raised(getattr(propensity, "calibrators_", ()), stacklevel=5)
    of_rows = everywhere and log.space == "impressions"
    parts, on_clicks = [], []
    for block in log.blocks():
        rows = _of_seeds(propensity, seeds, propensity.predict_each(block, calibrated=calibrated))
        on_clicks.append(rows[:, block.clicked])
        parts += [rows] if of_rows else []
    clicked = np.concatenate(on_clicks, axis=1)
    if not everywhere or of_rows:
        return clicked, np.concatenate(parts, axis=1) if of_rows else None
    matrix = _of_seeds(propensity, seeds, propensity.predict_matrix_each(calibrated=calibrated))
    return clicked, np.asarray(matrix.reshape(len(matrix), -1))


def _aligned(
    log: Log, values: NDArray[Any], seeds: tuple[int, ...], everywhere: bool
) -> tuple[Lines, Lines | None]:
    """Return the same from one number, from a matrix over D, or from numbers of the log's rows."""
    if values.dtype.kind not in "biuf":
        raise DataError(
            f"propensities of type {values.dtype} are not numbers",
            remedy="give a fitted Propensity, an array of numbers or a column's name",
        )
    values = values.astype(np.float64)
    if values.ndim == 0:
        everywhere_too = np.full((1, log.population_size), float(values)) if everywhere else None
        return np.full((1, log.n_clicks), float(values)), everywhere_too
    over_d = log.space == "matrix" and values.shape[-2:] == (log.n_users, log.n_items)
    rows = values.reshape(-1, log.population_size) if over_d else np.atleast_2d(values)
    if not over_d and (rows.ndim != 2 or rows.shape[1] != len(log)):
        raise DataError(
            f"propensities of shape {values.shape} do not fit a log of {len(log)} rows",
            remedy="give one number per row of the log (or per seed and row), or a matrix [users, items]",
        )
    if len(rows) not in (1, len(seeds)):
        raise DataError(
            f"{len(rows)} lines of propensities do not fit {len(seeds)} seeds",
            remedy="give one line for all seeds, or one for each",
        )
    if everywhere and log.space == "matrix" and not over_d:
        raise ParameterError(
            "this method needs propensities on every pair, not on the log's rows alone",
            remedy="give a fitted Propensity or an array [users, items]",
        )
    return rows[:, log.cell[log.clicked] if over_d else log.clicked], rows if everywhere else None


def column_of(log: Log, name: str) -> Lines:
    """Return the numbers of one of a log's columns."""
    if name not in log.columns:
        raise DataError(
            f"the log has no column '{name}'",
            remedy=f"keep it when the log is built; it has: {listed(log.columns) or 'none'}",
        )
    return number_column(log.columns[name], name)


def warn_if_in_sample(propensity: Any, log: Log, stacklevel: int = 2) -> None:
    """Warn that a propensity is no weight for the rows of a log that it was trained on.

    A log counts as that one if the propensity was trained on most of its clicked pairs, by ids, and has no
    other model of them. A loaded propensity does not know its clicks any more: one without cross-fitting is
    then taken to have seen them.
    """
    # An estimator of the user's own may say nothing of cross-fitting; it is not judged.
    if getattr(propensity, "crossfit", 0) is not None:
        return
    trained: Log | None = propensity.log_
    if trained is not None:
        clicked, seen, width = log.clicked, trained.clicked, len(trained.items)
        users = trained.users.recode(log.user[clicked], log.users, unseen="nan").astype(np.int64)
        items = trained.items.recode(log.item[clicked], log.items, unseen="nan")
        known = trained.user[seen].astype(np.int64) * width + trained.item[seen]
        both_known = (users >= 0) & (items >= 0)
        if (both_known & np.isin(users * width + items, known)).mean() <= MOSTLY:
            return
    warnings.warn(
        f"these propensities are in-sample: {type(propensity).__name__}(crossfit=None) was trained on the"
        " clicks that it is now to weigh, so that their weights are too small."
        " To fix: fit it with crossfit=5, the default",
        InSampleWarning,
        stacklevel=stacklevel + 1,
    )
