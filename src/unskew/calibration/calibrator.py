"""The base of all calibrators: rows or sketch in, chunked prediction, parameters, JSON. No map itself."""

from __future__ import annotations

import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError, RunFolderError, UnskewError
from unskew.base.estimator import Estimator, require_at_least, require_types
from unskew.base.files import write_text
from unskew.base.notebook import ShowsItself
from unskew.base.plain_text import plain
from unskew.calibration import sql
from unskew.calibration.grouping import Grouped, Vector, check_scores, group, numeric

PROBABILITY_FLOOR = 1e-12
"""Scores are read, and probabilities given, no closer than this to 0 and 1: inverse weights stay finite."""

LARGEST_LOGIT = 40.0
"""Beyond it σ is within :data:`PROBABILITY_FLOOR` of 0 or 1, and the exponential could overflow."""

CHUNK_ROWS = 1 << 15
"""Rows mapped at a time: 256 KB of float64, which stays in a core's cache and bounds the extra memory."""

FORMAT_VERSION = 1

PROBES: Vector = np.concatenate(
    [[0.0], np.geomspace(1e-12, 0.5, 48), 1 - np.geomspace(0.5, 1e-12, 48), [1.0]]
)
"""Scores that a calibrator read from a file is tried on."""
ROUNDING = 1e-9
"""Of a map that never falls: what its values may fall by."""


def inside(probability: Vector, out: Vector | None = None) -> Vector:
    """Return probabilities kept :data:`PROBABILITY_FLOOR` away from 0 and 1."""
    return np.clip(probability, PROBABILITY_FLOOR, 1 - PROBABILITY_FLOOR, out=out)


def logits(score: Vector) -> Vector:
    """log(p/(1−p)) with p kept :data:`PROBABILITY_FLOOR` away from 0 and 1."""
    safe = inside(score)
    logit = np.log1p(-safe)
    np.subtract(np.log(safe, out=safe), logit, out=logit)
    return logit


def sigmoid(logit: Vector) -> Vector:
    """1/(1 + e^−z), written over its argument; NumPy's vectorised exp is three times SciPy's ``expit``."""
    np.clip(logit, -LARGEST_LOGIT, LARGEST_LOGIT, out=logit)
    np.negative(logit, out=logit)
    np.exp(logit, out=logit)
    logit += 1.0
    return np.reciprocal(logit, out=logit)


def checked_chunks(scores: NDArray[Any]) -> Iterator[tuple[slice, Vector]]:
    """Yield scores, checked to be in [0, 1], :data:`CHUNK_ROWS` at a time."""
    for start in range(0, len(scores), CHUNK_ROWS):
        rows = slice(start, min(start + CHUNK_ROWS, len(scores)))
        chunk = scores[rows].astype(np.float64, copy=False)
        check_scores(chunk, first_row=start)
        yield rows, chunk


@dataclass(kw_only=True, eq=False, repr=False)
class Calibrator(ShowsItself, Estimator, ABC):
    """A map q from a score p̂ to an honest probability q(p̂) ≈ P(outcome = 1 | p̂).

    A calibrator is a dataclass of parameters; ``fit`` learns attributes that end in ``_``. A subclass
    gives :attr:`name`, :attr:`monotone`, :attr:`learned`, and two methods: ``_fit_points`` on grouped
    data and ``_predict``.

    Parameters
    ----------
    exact_below
        Arrays of up to this many rows are fitted exactly, grouped by distinct score; longer ones through
        a :class:`~unskew.metrics.sketch.CalibrationSketch`, which is some ten times faster and changes
        the parameters in the fourth digit.

    Attributes
    ----------
    rows_, base_rate_
        Rows fitted on, and their weighted share of positives.
    message_
        What a user should know about this fit, or ``""``.
    """

    name: ClassVar[str]
    """Its name in the registry, on the command line and in JSON."""
    monotone: ClassVar[bool]
    """Whether a higher score never gets a lower probability."""
    learned: ClassVar[tuple[str, ...]] = ()
    """Names of the learned attributes, all of them numbers, text, or arrays of numbers."""
    needs_both_classes: ClassVar[bool] = True
    reads_features: ClassVar[bool] = False
    """Whether ``fit`` and ``predict`` take ``features=`` beside the scores."""

    exact_below: int = 50_000

    def fit(self, score: Any, outcome: Any = None, sample_weight: Any = None) -> Self:
        """Learn the map.

        Parameters
        ----------
        score
            Probabilities in [0, 1] (an array of any kind), or a ``CalibrationSketch``.
        outcome
            0 or 1 for each score; left out with a sketch.
        sample_weight
            Weights of the rows, such as 1 / sampling rate for sampled negatives.
        """
        self._check_parameters()
        return self._fit_on(group(score, outcome, sample_weight, exact_below=self.exact_below))

    def predict(self, score: Any) -> NDArray[np.float64]:
        """Return calibrated probabilities, each inside (0, 1), in the order of the scores."""
        self._require_fitted("base_rate_")
        scores = numeric(score, "score")
        probability = np.empty(len(scores))
        for rows, chunk in checked_chunks(scores):
            inside(self._predict(chunk), out=probability[rows])
        return probability

    def to_sql(self, column: str = "p", dialect: sql.Dialect = "duckdb") -> str:
        """Return the map as an SQL expression: null where the score is null or outside [0, 1].

        Equal to :meth:`predict` up to rounding.

        Parameters
        ----------
        column
            The column of scores.
        dialect
            ``"duckdb"``, ``"spark"``, ``"bigquery"``, ``"snowflake"`` or ``"postgres"``.
            :class:`unskew.Multicalibrated` reads the columns of ``fit`` by their names.
        """
        sql.require_dialect(dialect)
        return sql.rendered(self.sql_of(sql.named(column, dialect), dialect), dialect)

    def sql_of(self, column: str, dialect: sql.Dialect) -> str:
        """Return the map of a quoted column in sqlglot's dialect; features are columns of an engine."""
        self._require_fitted("base_rate_")
        score = f"CAST({column} AS DOUBLE)"
        low, high = PROBABILITY_FLOOR, 1 - PROBABILITY_FLOOR
        value = sql.between(low, self._sql(score, sql.between(low, score, high), dialect), high)
        return f"CASE WHEN {score} >= 0 AND {score} <= 1 THEN {value} END"

    def clone(self) -> Self:
        """Return a new, unfitted calibrator with the same parameters."""
        return type(self)(**self.get_params(deep=False))

    def to_dict(self) -> dict[str, Any]:
        """Return parameters and learned state as plain numbers, text and lists."""
        self._require_fitted("base_rate_")
        return {
            "calibrator": self.name,
            "version": FORMAT_VERSION,
            "parameters": {key: _plain(value) for key, value in self.get_params(deep=False).items()},
            "learned": self._learned_to_dict(),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Return the fitted calibrator that :meth:`to_dict` describes."""
        if not isinstance(saved, Mapping) or saved.get("calibrator") != cls.name:
            kind = saved.get("calibrator") if isinstance(saved, Mapping) else type(saved).__name__
            raise RunFolderError(
                f"this is not a saved {cls.name} calibrator but {kind!r}",
                remedy="load it with unskew.calibration.load_calibrator, or fit and save it again",
            )
        if saved.get("version") != FORMAT_VERSION:
            raise RunFolderError(
                f"the calibrator was saved in format {saved.get('version')}, not {FORMAT_VERSION}",
                remedy="fit and save it again",
            )
        try:
            calibrator = cls().set_params(**saved["parameters"])
            calibrator._check_parameters()
            calibrator._learned_from_dict(saved["learned"])
            calibrator._check_learned()
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
            problem = error.problem if isinstance(error, UnskewError) else error
            raise RunFolderError(
                f"the saved {cls.name} calibrator is damaged: {problem}", remedy="fit and save it again"
            ) from error
        return calibrator

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted calibrator as JSON; read it with :func:`unskew.calibration.load_calibrator`."""
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        write_text(Path(path), text + "\n")

    def __repr__(self) -> str:
        changed = (
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def _check_parameters(self) -> None:
        """Raise a ParameterError for a parameter of another type or out of range."""
        require_types(self)
        require_at_least(0, exact_below=self.exact_below)

    def _fit_on(self, points: Grouped) -> Self:
        if self.needs_both_classes:
            require_both_classes(points)
        self.message_ = ""
        self.rows_ = round(points.rows.sum())
        self.base_rate_ = points.base_rate
        self._fit_grouped(points)
        return self

    def _fit_grouped(self, points: Grouped) -> None:
        """Learn from groups that also tell their rows; most calibrators need only ``_fit_points``."""
        self._fit_points(points.score, points.total, points.positive)

    @abstractmethod
    def _fit_points(self, score: Vector, total: Vector, positive: Vector) -> None:
        """Learn from groups: distinct ascending scores, their total weight, their positive weight."""

    @abstractmethod
    def _predict(self, score: Vector) -> Vector:
        """Return the map, for scores known to be in [0, 1]; the caller clips to (0, 1)."""

    def _sql(self, score: str, safe: str, dialect: sql.Dialect) -> str:
        """Return :meth:`_predict` in SQL, of a score and of the same moved inside (0, 1)."""
        raise ParameterError(f"{self.name} does not say its map in SQL", remedy="define its _sql")

    def _learned_to_dict(self) -> dict[str, Any]:
        names = ("rows_", "base_rate_", "message_", *self.learned)
        return {name: _plain(getattr(self, name)) for name in names}

    def _learned_from_dict(self, learned: Mapping[str, Any]) -> None:
        for name in ("rows_", "base_rate_", "message_", *self.learned):
            value = learned[name]
            if not (isinstance(value, str) if name == "message_" else _are_numbers(value)):
                raise TypeError(f"{name} is {plain(repr(value), 80)}")
            setattr(self, name, np.asarray(value, dtype=np.float64) if isinstance(value, list) else value)

    def _check_learned(self) -> None:
        """Raise for a state that is no map: that gives no probability, or a lower one to a higher score."""
        if not (self.rows_ >= 0 and 0 <= self.base_rate_ <= 1):
            raise ValueError(f"rows_ is {self.rows_!r} and base_rate_ {self.base_rate_!r}")
        with np.errstate(over="raise", invalid="raise"):
            probed = self.predict(PROBES)
        if not (np.isfinite(probed).all() and (not self.monotone or (np.diff(probed) >= -ROUNDING).all())):
            raise ValueError("what it learned gives no probabilities")


def require_both_classes(points: Grouped) -> None:
    """Raise a DataError where the outcome never varies: the likelihood then has no finite optimum."""
    for label, other in ((0, points.positive), (1, points.total - points.positive)):
        if not (other > 0).any():
            raise DataError(
                f"outcome is {label} on every row: one class only",
                where="outcome",
                remedy="fit on rows of both classes (for sampled clicks, add non-clicks)",
            )


def _are_numbers(value: Any, depth: int = 2) -> bool:
    """Return whether a value of JSON is a finite number, a list of these or a list of such lists."""
    if isinstance(value, list):
        return depth > 0 and all(_are_numbers(each, depth - 1) for each in value)
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value
