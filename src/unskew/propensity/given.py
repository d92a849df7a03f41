"""Propensities as they are given (an estimator, an array, a column, one number): checked and clipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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
from unskew.training.kept import Kept

if TYPE_CHECKING:
    from unskew.propensity.propensity import Predicted

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
    lines: tuple[int, ...]
    """The line that each replica reads: that of its seed."""
    of_rows: PropensitiesOfRows | None = None
    """Those of the rows of a stream, as they come; the others are then of the rows that are kept."""

    def of_members(self, members: int) -> GivenPropensities:
        """Those of so many members of each seed, side by side."""
        return replace(
            self,
            lines=_repeated(self.lines, members),
            of_rows=None if self.of_rows is None else self.of_rows.of_members(members),
        )

    def share(self, replicas: slice) -> GivenPropensities:
        """Those of some replicas, with the lines from their first to their last."""
        own = self.lines[replicas]
        read = slice(min(own), max(own) + 1)
        return replace(
            self,
            clicked=self.clicked[read],
            everywhere=None if self.everywhere is None else self.everywhere[read],
            floors=self.floors[read],
            lines=tuple(line - read.start for line in own),
            of_rows=None if self.of_rows is None else self.of_rows.share(replicas),
        )


def _repeated(lines: tuple[int, ...], times: int) -> tuple[int, ...]:
    return tuple(line for line in lines for _ in range(times))


@dataclass(frozen=True)
class PropensitiesOfRows:
    """Propensities of rows of a stream, one line for all replicas or one for each, clipped.

    Parameters
    ----------
    sources
        What was given: of one set of propensities, or of several, side by side.
    """

    sources: tuple[PropensitySource, ...]
    floors: tuple[float, ...]
    """The clip of each seed, source after source."""
    lines: tuple[int, ...]
    """Which of these each replica reads."""

    def __call__(self, rows: Log) -> NDArray[np.float32]:
        """Of all rows of a log ``[1 or R, n]``."""
        every = self.every(rows)
        read = self.read_of(len(every))
        return every if read is None else np.asarray(every[list(read)])

    def every(self, rows: Log) -> NDArray[np.float32]:
        """The lines that replicas read, each once: one, or one for each seed and source ``[lines, n]``."""
        found = _lines_of(self.sources, rows)
        if len(self.sources) == 1 and len(set(self.floors)) == 1 and len(found[0]) == 1:
            return np.asarray(np.maximum(found[0], self.floors[0]), dtype=np.float32)
        shape = (len(self.sources[0].seeds), len(rows))
        every = np.concatenate([np.broadcast_to(each, shape) for each in found])
        return np.asarray(np.maximum(every, np.array(self.floors)[:, None]), dtype=np.float32)

    def read_of(self, lines: int) -> tuple[int, ...] | None:
        """Which of so many lines replicas read: one serves all that read the same. None for all there are."""
        if lines == 1:
            return None
        return self.lines[:1] if len(set(self.lines)) == 1 else self.lines

    def digest(self) -> tuple[Any, ...] | None:
        """By which lines that are the same for the same rows are known again; None where nothing says so.

        Which of them each replica reads is not a part of it.
        """
        digests: dict[int, str | None] = {}
        for each in self.sources:
            if id(each.propensity) not in digests:
                digests[id(each.propensity)] = each.digest()
        found = [digests[id(each.propensity)] for each in self.sources]
        if None in found:
            return None
        seeds = [(each.seeds, each.calibrated) for each in self.sources]
        return (*zip(found, seeds, strict=True), self.floors)

    def of_members(self, members: int) -> PropensitiesOfRows:
        """Those of so many members of each seed, side by side."""
        return replace(self, lines=_repeated(self.lines, members))

    def share(self, replicas: slice) -> PropensitiesOfRows:
        """Those of some replicas."""
        return replace(self, lines=self.lines[replicas])

    @classmethod
    def joined(cls, parts: Sequence[PropensitiesOfRows]) -> PropensitiesOfRows:
        """Several sets, one after the other."""
        first = np.cumsum([0, *(len(part.floors) for part in parts)]).tolist()
        return cls(
            tuple(source for part in parts for source in part.sources),
            tuple(floor for part in parts for floor in part.floors),
            tuple(
                int(start) + line for start, part in zip(first, parts, strict=False) for line in part.lines
            ),
        )


@dataclass(frozen=True)
class PropensitySource:
    """A fitted propensity, the name of a column, or one number; for seeds."""

    propensity: Any
    seeds: tuple[int, ...]
    calibrated: bool

    def digest(self) -> str | None:
        """Of the propensity by its value; None where nothing says so."""
        if hasattr(self.propensity, "predict_each"):
            from unskew.propensity.storage import propensity_digest

            return propensity_digest(self.propensity)
        return repr(self.propensity)

    def lines(self, rows: Log, predicted: Predicted | None) -> Lines:
        """Of all rows of a log, one line for all seeds or one for each; not clipped.

        Parameters
        ----------
        predicted
            What a fitted propensity gave for these rows, if it was asked already.
        """
        if predicted is not None or hasattr(self.propensity, "predict_each"):
            lines = (
                self.propensity.predict_each(rows, calibrated=self.calibrated)
                if predicted is None
                else predicted.one(calibrated=self.calibrated)
            )
            paired = tuple(self.propensity.seeds_) == self.seeds
            found = lines if paired else np.asarray(lines.mean(axis=0, keepdims=True))
        elif isinstance(self.propensity, str):
            found = _column(rows, self.propensity)[None]
        else:
            found = np.full((1, len(rows)), float(self.propensity))
        _require_probabilities(found, lambda row: f"user {rows.users.ids[rows.user[row]]}")
        return found


def _lines_of(sources: Sequence[PropensitySource], rows: Log) -> list[Lines]:
    """Of each source; a propensity whose raw and calibrated scores are both asked for predicts once."""
    predicted: dict[int, Predicted] = {}
    for each in sources:
        if hasattr(each.propensity, "predict_both_each") and id(each.propensity) not in predicted:
            predicted[id(each.propensity)] = each.propensity.predict_both_each(rows)
    return [each.lines(rows, predicted.get(id(each.propensity))) for each in sources]


def streamed_propensities(
    kept: Kept, propensity: Any, seeds: tuple[int, ...], p_min: Clip, *, calibrated: bool, full_space: bool
) -> GivenPropensities:
    """Resolve ``propensity=`` for a stream: a fitted :class:`Propensity`, a column's name, or one number.

    Clips, and what they do, are found on the clicks that are kept, each of which stands for several.
    """
    if not hasattr(propensity, "predict_each") and not isinstance(propensity, str | int | float):
        raise ParameterError(
            f"a {type(propensity).__name__} of propensities does not fit a stream, whose rows come in parts",
            remedy="give a fitted Propensity, the name of a column that the stream keeps, or one number",
        )
    given = given_propensities(
        kept.log.take(kept.log.clicked),
        propensity,
        seeds,
        p_min,
        calibrated=calibrated,
        full_space=full_space,
        clicks_each=kept.clicks_each,
        density=kept.stream.density,
    )
    source = PropensitySource(propensity, seeds, calibrated)
    return replace(given, of_rows=PropensitiesOfRows((source,), given.floors, given.lines))


def given_propensities(
    log: Log,
    propensity: Any,
    seeds: tuple[int, ...],
    p_min: Clip,
    *,
    calibrated: bool = True,
    everywhere: bool = False,
    full_space: bool = False,
    clicks_each: float = 1.0,
    density: float | None = None,
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
    clicks_each, density
        Of a log that is a sample of another's clicks: how many each stands for, and the density of the other.
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
    count = np.full(clicked.shape[1], clicks_each)
    floors = [resolve_clip(p_min, propensity=line, count=count) for line in clicked]
    size = log.population_size if density is None else round(log.n_clicks / density)
    diagnostics = tuple(
        weight_diagnostics(propensity=line, p_min=floor, population_size=size)
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
        lines=tuple(range(len(seeds))),
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
