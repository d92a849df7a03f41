"""Propensities as a debiaser takes them: checked, clipped, counted; how their forms are read is elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.debias.core.method import Method
from unskew.debias.core.resolving import resolved
from unskew.errors import DataError, ParameterError
from unskew.log import Log
from unskew.metrics import WeightDiagnostics, weight_diagnostics
from unskew.metrics.clip import Clip, require_clip, resolve_clip


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
    clicked, all_cells = resolved(log, propensity, seeds, calibrated=calibrated, everywhere=everywhere)
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


def propensities_for(
    method: Method, log: Log, propensity: Any, seeds: tuple[int, ...], *, calibrated: bool
) -> GivenPropensities | None:
    """Propensities where a method's losses read them; None if none are given and it can do without.

    A log with known propensities needs no others.
    """
    if log.known_propensity is not None:
        require_shown_alone(method)
        if propensity is None and method.needs_propensity:
            propensity = log.known_propensity
    if propensity is not None:
        return given_propensities(
            log,
            propensity,
            seeds,
            method.p_min,
            calibrated=calibrated,
            everywhere=method.needs_propensity_everywhere,
            full_space=method.needs_full_space,
        )
    if method.needs_propensity:
        raise ParameterError(
            f"{method.name} needs propensities",
            remedy="give fit(…, propensity=) a fitted Propensity, an array or a column's name",
        )
    return None


def require_shown_alone(method: Method) -> None:
    """An error for a method that looks at pairs which a log of shown rows does not list."""
    if method.needs_full_space or method.needs_propensity_everywhere:
        raise ParameterError(
            f"{method.name} looks at pairs that were not shown, which a log with known propensities does not"
            " list",
            remedy="use naive, ips or snips",
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
