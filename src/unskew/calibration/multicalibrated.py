"""Multicalibration: corrections of Platt's map by segments of many columns, found by boosting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.estimator import require, require_above, require_at_least
from unskew.calibration import sql
from unskew.calibration.calibrator import LARGEST_LOGIT, Calibrator, checked_chunks, inside, logits, sigmoid
from unskew.calibration.grouping import Grouped, Vector, numeric
from unskew.calibration.platt import Platt
from unskew.calibration.segment_columns import Codes, SegmentColumn, columns_of
from unskew.calibration.segment_terms import (
    Base,
    Boosting,
    SegmentCells,
    Term,
    cross_validated,
    merged_cells,
)
from unskew.calibration.step_calibrator import bucket_of

SCORE_BINS = 8
"""Bins of the score, of one information each, that corrections may depend on."""


_NO_COLUMNS: tuple[SegmentColumn, ...] = ()
_NO_TERMS: tuple[Term, ...] = ()


@dataclass(kw_only=True, eq=False, repr=False)
class Multicalibrated(Calibrator):
    r"""q(p̂, x) = σ(b·z + c + Σ_k a_k(x) + s_k(x)·t): Platt's map, corrected by segments of many columns.

    .. math:: \max \log L(b z + c + \textstyle\sum_k a_k + s_k t)
              - \tfrac{m}{2} \sum_k \sum_{g} (a_{kg}, s_{kg})\, I\, (a_{kg}, s_{kg})^\top

    z = logit p̂, (b, c) starts at Platt's fit, t is z in units of its spread. Term k has a level a and a
    slope s for each segment of one column of ``features`` (or of two crossed ones, or of one crossed with
    bins of the score), under a prior that counts as ``strength`` rows of the rarer class.
    Boosting improves one term at a time, the one that promises most beyond the degrees of freedom it adds.
    Out of fold it is judged after how many rounds to stop; 0, which is Platt's map, unless the gain is larger
    than its standard error. A value never seen in ``fit`` gets what the other terms say; a prediction without
    features is Platt's.

    Use it where calibrated overall is not calibrated for each group of users, items or contexts, and several
    columns may tell the groups. Not for columns that were chosen by looking at the outcome.

    Parameters
    ----------
    segments
        Columns of ``features`` that are read; None for all. Text and whole numbers have a segment for each
        value, other numbers for each of 16 bins.
    strength
        20: ten events for each of two parameters (Peduzzi et al. 1996). Sample weights count as
        repeated rows.
    rounds
        Most rounds of boosting.
    monotone
        Never gives a lower probability to a higher score of the same features.
    folds, seed
        Rows go to folds at random.

    Attributes
    ----------
    rounds_
        Rounds that were chosen.
    gain_, gain_error_
        What they gain in held-out log loss per row over Platt's map, and its standard error.
    slope_, intercept_, common_slope_, common_intercept_
        Platt's fit, and b and c beside the terms.
    columns_, terms_
        The columns and the corrections.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> score, age = random.uniform(0.1, 0.5, 20_000), random.uniform(18, 60, 20_000)
    >>> country = random.choice(["de", "fr"], 20_000)
    >>> honest = np.where((country == "de") & (age < 30), score / 3, score)
    >>> outcome = random.random(20_000) < honest
    >>> multi = Multicalibrated().fit(score, outcome, features={"country": country, "age": age})
    >>> asked = {"country": ["de", "de", "fr"], "age": [25.0, 50.0, 25.0]}
    >>> multi.predict([0.3, 0.3, 0.3], features=asked).round(1)
    array([0.1, 0.3, 0.3])
    """

    name: ClassVar[str] = "multicalibrated"
    learned: ClassVar[tuple[str, ...]] = (
        "slope_",
        "intercept_",
        "common_slope_",
        "common_intercept_",
        "middle_",
        "spread_",
        "rounds_",
        "gain_",
        "gain_error_",
        "score_edges_",
    )
    reads_features: ClassVar[bool] = True

    segments: tuple[str, ...] | None = None
    strength: float = 20.0
    rounds: int = 30
    monotone: bool = False  # type: ignore[misc]
    folds: int = 5
    seed: int = 0

    def fit(
        self, score: Any, outcome: Any = None, sample_weight: Any = None, *, features: Any = None
    ) -> Self:
        """Learn the map and its corrections.

        Parameters
        ----------
        features
            Columns by name (a mapping or a data frame), one column, or a matrix; a row for each score.
        """
        if features is None:
            raise DataError(
                f"{type(self).__name__} reads features, and none are given",
                remedy="call fit(score, outcome, features=…), or use Platt",
            )
        super().fit(score, outcome, sample_weight)
        if outcome is None:
            raise DataError(
                "a sketch does not tell its features", remedy="give arrays: score, outcome, features="
            )
        scores, outcomes = numeric(score, "score").astype(np.float64), numeric(outcome, "outcome")
        weights = np.ones(1) if sample_weight is None else numeric(sample_weight, "sample_weight")
        weights = np.broadcast_to(weights, scores.shape).astype(np.float64)
        columns = columns_of(features, self.segments, len(scores))
        self.columns_ = tuple(SegmentColumn.fit(name, column) for name, column in columns.items())
        if not self.monotone:
            self.score_edges_ = self._score_edges(scores, weights)
        code = self._codes(columns, scores)
        positions = (
            bucket_of(scores) if len(scores) > self.exact_below else np.unique(scores, return_inverse=True)[1]
        )
        self._fit_cells(
            merged_cells(code, self._sizes(), positions, scores, weights, outcomes.astype(np.float64))
        )
        return self

    def predict(self, score: Any, features: Any = None) -> NDArray[np.float64]:
        """Predict probabilities by each row's features; by Platt's map without ``features``."""
        if features is None:
            return super().predict(score)
        self._require_fitted("terms_")
        scores = numeric(score, "score")
        columns = columns_of(features, [column.name for column in self.columns_], len(scores))
        probability = np.empty(len(scores))
        for rows, chunk in checked_chunks(scores):
            code = self._codes({name: column[rows] for name, column in columns.items()}, chunk)
            z = logits(chunk)
            t = (z - self.middle_) / self.spread_
            z *= self.common_slope_
            z += self.common_intercept_
            for term in self.terms_:
                z += term.of(term.segment(code), t)
            inside(sigmoid(z), out=probability[rows])
        return probability

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_above(0, strength=self.strength)
        require_at_least(0, rounds=self.rounds)
        require_at_least(2, folds=self.folds)
        require(
            self.segments is None or len(self.segments) == len(set(self.segments)) > 0,
            f"segments must name columns, each once, not {self.segments!r}",
            "name some, or give None for all",
        )

    def _fit_points(self, score: Vector, total: Vector, positive: Vector) -> None:
        platt = Platt()._fit_on(Grouped.unweighted(score, total, positive))
        self.slope_, self.intercept_, self.message_ = platt.slope_, platt.intercept_, platt.message_
        self.common_slope_, self.common_intercept_ = platt.slope_, platt.intercept_
        self.middle_, self.spread_, self.rounds_ = 0.0, 1.0, 0
        self.gain_, self.gain_error_ = 0.0, 0.0
        self.columns_, self.terms_ = _NO_COLUMNS, _NO_TERMS
        self.score_edges_ = np.empty(0)

    def _fit_cells(self, cells: SegmentCells) -> None:
        sizes = self._sizes()
        loss, error, total = cross_validated(
            cells,
            sizes,
            strength=self.strength,
            rounds=self.rounds,
            folds=self.folds,
            seed=self.seed,
            monotone=self.monotone,
        )
        best = int(np.argmin(loss))
        gain = loss[0] - loss[best]
        if gain <= error[best]:
            return
        self.gain_, self.gain_error_ = float(gain / total), float(error[best] / total)
        base = Base.of(cells, self.strength)
        boosting = Boosting(cells, sizes, base, monotone=self.monotone)
        while self.rounds_ < best and boosting.step():
            self.rounds_ += 1
        level, slope = boosting.common.tolist()
        self.common_slope_ = base.slope + slope / base.spread
        self.common_intercept_ = base.intercept + level - slope * base.middle / base.spread
        self.middle_, self.spread_ = base.middle, base.spread
        self.terms_ = tuple(boosting.terms.values())

    def _predict(self, score: Vector) -> Vector:
        return sigmoid(self.slope_ * logits(score) + self.intercept_)

    def _sql(self, score: str, safe: str, dialect: sql.Dialect) -> str:
        z = sql.logit(safe)
        conditions = [column.conditions(sql.named(column.name, dialect)) for column in self.columns_]
        edges = self.score_edges_.tolist()
        codes = range(len(edges) + 1)
        conditions.append(
            [sql.steps(score, edges, [str(int(code == own)) for own in codes]) + " = 1" for code in codes]
        )
        terms = [
            "".join(
                f" + {_cases(term.value[power].reshape(term.shape), [conditions[c] for c in term.columns])}"
                for term in self.terms_
            )
            for power in (0, 1)
        ]
        t = f"(({z} - {sql.double(self.middle_)}) / {sql.double(self.spread_)})"
        common = sql.line(self.common_slope_, z, self.common_intercept_)
        return sql.sigmoid(f"({common}{terms[0]} + ({sql.double(0.0)}{terms[1]}) * {t})", LARGEST_LOGIT)

    def _sizes(self) -> list[int]:
        sizes = [column.size for column in self.columns_]
        return sizes if self.monotone else [*sizes, len(self.score_edges_) + 1]

    def _codes(self, columns: Mapping[str, NDArray[Any]], score: Vector) -> Codes:
        """Return codes ``[columns, n]``; the last are the bins of the score."""
        codes = [column.codes(columns[column.name]) for column in self.columns_]
        if not self.monotone:
            codes.append(np.searchsorted(self.score_edges_, score, side="right"))
        return np.stack(codes)

    def _score_edges(self, score: Vector, weight: Vector) -> Vector:
        """Return scores between bins that hold the same information each: Σ w·q(1 − q)."""
        order = np.argsort(score, kind="stable")
        q = self._predict(score[order])
        held = np.cumsum(weight[order] * q * (1 - q))
        at = np.searchsorted(held, held[-1] * np.arange(1, SCORE_BINS) / SCORE_BINS)
        return np.unique(score[order[np.minimum(at, len(order) - 1)]])

    def _learned_to_dict(self) -> dict[str, Any]:
        return super()._learned_to_dict() | {
            "columns_": [column.to_dict() for column in self.columns_],
            "terms_": [{"columns": list(term.columns), "value": term.value.tolist()} for term in self.terms_],
        }

    def _learned_from_dict(self, learned: Mapping[str, Any]) -> None:
        super()._learned_from_dict(learned)
        self.segments = None if self.segments is None else tuple(self.segments)
        self.columns_ = tuple(SegmentColumn.from_dict(each) for each in learned["columns_"])
        self.terms_ = tuple(self._term(each) for each in learned["terms_"])
        if not (self.spread_ > 0 and self.score_edges_.ndim == 1):
            raise ValueError(f"spread_ is {self.spread_!r} and score_edges_ {self.score_edges_!r}")

    def _term(self, saved: Mapping[str, Any]) -> Term:
        sizes, columns = self._sizes(), tuple(saved["columns"])
        if not all(type(place) is int and 0 <= place < len(sizes) for place in columns) or not columns:
            raise ValueError(f"a term of the columns {columns!r}, of {len(sizes)}")
        shape = tuple(sizes[place] + 1 for place in columns)
        value = np.array(saved["value"], dtype=np.float64)
        if value.shape != (2, int(np.prod(shape))) or not np.isfinite(value).all():
            raise ValueError(f"a term of shape {value.shape} where columns have {shape} segments")
        return Term(columns, shape, value)


def _cases(value: Vector, conditions: Sequence[Sequence[str]]) -> str:
    """Return the value ``[code, ...]`` of a row, given the condition of each code of each column."""
    if not conditions:
        return sql.double(float(value))
    # Codes of no rows, and the one of values that were never seen, have the value 0.
    cases = [
        (condition, _cases(of_code, conditions[1:]))
        for condition, of_code in zip(conditions[0], value, strict=False)
        if of_code.any()
    ]
    return sql.switch(cases, sql.double(0.0))
