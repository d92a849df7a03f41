"""Calibration of each value of a column (country, device, …): which segments are off beyond chance.

They are judged on sums over octaves of the score; what is said about them is in ``verdict``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import chdtrc, chdtri, expit, logit, ndtr

from unskew.metrics.cells import Cells, Key
from unskew.metrics.judgement import is_off
from unskew.metrics.sketch_grid import OCTAVES, SMALLEST

Array = NDArray[np.float64]

MOST_SEGMENTS = 10_000
"""Values of a column that get a table of their own, the first to be met; the rest is one group."""

OTHERS = "(all others)"
MISSING = "(missing)"

SEGMENT_GRID = {"bins": 1, "mantissa_bits": 0}
"""Of cells that are counted for segments alone: octaves, of which thousands of values need little memory."""

LEAST_EXPECTED = 5.0
"""Rows of each outcome that a bin must be expected to hold to be tested, given how many rows it has (Cochran
1954); smaller cells are merged with the next."""

NORMAL_95 = 1.96
"""Standard deviations on either side that hold 95 % of a normal law."""

MOST_TILT, BISECTIONS = 60.0, 40
"""Where a saddlepoint is looked for, in units of the largest step, and how closely: to 1e-10."""

SMALLEST_STEP_SCORE = 1e-100
"""Least score that weighs a click in the test of segments: 1/p̂ of the smallest double overflows."""

NEAR = 0.01
"""Standard deviations within which a value is the mean: the p-value is 1."""


@dataclass(frozen=True)
class Segment:
    """How honest the scores of one segment are.

    Attributes
    ----------
    column, value, rows
        Which rows, and how many.
    base_rate, mean_score
        Weighted means of outcome and score.
    mean_outcome_over_score, low, high
        Mean of o/p̂, 1 for honest propensities, and its 95 % interval (normal, with the variance that the
        scores imply in proportion to the mean).
    wce
        Σ_b n_b/n |S_b| over octaves of the score (merged where there are few expected outcomes).
    wce_debiased
        √max(0, Σ_b n_b/n (S_b² − V_b)): what is left after noise.
    p_value, q_value
        Of the χ² test that the scores are right, with tails that hold for few clicks, and corrected for the
        number of segments (Benjamini and Hochberg 1995). ``p_value`` is None where the rows are too few for
        the test.
    of_rest
        Mean of o/p̂ of the column's other rows; None where there are none.
    p_differs, q_differs
        Of the test that both means are one, and corrected likewise; None without a rest, or a ``p_value``.
    """

    column: str
    value: str
    rows: int
    base_rate: float
    mean_score: float
    mean_outcome_over_score: float
    low: float
    high: float
    wce: float
    wce_debiased: float
    p_value: float | None
    q_value: float | None
    of_rest: float | None = None
    p_differs: float | None = None
    q_differs: float | None = None

    @property
    def apart(self) -> float:
        """How far its mean of o/p̂ is from that of the column's other rows, relative to the latter."""
        if self.of_rest is None:
            return 0.0
        return abs(self.mean_outcome_over_score / max(self.of_rest, SMALLEST) - 1)

    def is_off(self, *, tolerance: float, significance: float) -> bool:
        """Return whether its weights are off beyond noise and beyond the tolerance."""
        return is_off(self.q_value, self.wce_debiased, tolerance=tolerance, significance=significance)

    def stands_out(self, *, tolerance: float, significance: float) -> bool:
        """Return whether it is off, and by another factor than the column's other rows."""
        limits = {"tolerance": tolerance, "significance": significance}
        return self.is_off(**limits) and is_off(self.q_differs, self.apart, **limits)


class ValueCodes:
    """Values of a column as numbers, in the order in which they are met; the rest beyond ``most`` is one."""

    def __init__(self, most: int = MOST_SEGMENTS, known: Sequence[str] = ()) -> None:
        self.most = most
        self._codes: dict[str, int] = {name: code for code, name in enumerate(known)}

    def __len__(self) -> int:
        return len(self._codes)

    def names(self) -> list[str]:
        """Return the values, by code."""
        return list(self._codes)

    def codes(self, values: Any) -> NDArray[np.int64]:
        """Return the code of each value of an Arrow array of any type that has equality."""
        encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        size = len(encoded.dictionary)
        if encoded.indices.null_count:
            indices = np.where(np.isnan(indices), size, indices).astype(np.int64)
        # A dictionary may name many values that no row has: they get no table, which others may need.
        used = np.flatnonzero(np.bincount(indices, minlength=size + 1))
        dictionary = encoded.dictionary
        # Arrow cannot take rows of views.
        if pa.types.is_string_view(dictionary.type):
            dictionary = dictionary.cast(pa.large_string())
        elif pa.types.is_binary_view(dictionary.type):
            dictionary = dictionary.cast(pa.large_binary())
        names = dictionary.take(pa.array(used[used < size])).to_pylist()
        names += [None] * (len(used) - len(names))
        lookup = np.zeros(size + 1, dtype=np.int64)
        lookup[used] = [self.code_of(MISSING if name is None else str(name)) for name in names]
        return np.asarray(lookup[indices])

    def code_of(self, name: str) -> int:
        """Return the code of one value."""
        code = self._codes.get(name)
        if code is None:
            if len(self._codes) >= self.most and name != MISSING:
                name = OTHERS
            code = self._codes.setdefault(name, len(self._codes))
        return code


def segment_cells(
    column: str, names: Sequence[str], code: NDArray[Any], score: Any, outcome: Any, weight: Any = None
) -> Cells:
    """Count rows by the value of a column, of which each row has the number in ``names``.

    Examples
    --------
    >>> cells = segment_cells("country", ["de", "fr"], np.array([0, 1, 0]), [0.5, 0.25, 0.5], [1, 0, 0])
    >>> [(segment.value, segment.rows, segment.base_rate) for segment in segments_of(cells)]
    [('de', 2, 0.5), ('fr', 1, 0.0)]
    """
    cells = Cells([Key(segment=column, value=name) for name in names], **SEGMENT_GRID)
    cells.update(score, outcome, weight, key=code)
    return cells


def segments_of(cells: Cells) -> list[Segment]:
    """Return figures of every segment that has rows, column by column, without q-values."""
    columns, rows = cells.columns(), cells.rows()
    octave = cells.grid.octave[columns["cell"]]
    segments = []
    for column in dict.fromkeys(key.segment for key in cells.keys):
        keys = [key for key in cells.keys if key.segment == column and rows[key]]
        position = {key: number for number, key in enumerate(keys)}
        number = np.array([position.get(key, -1) for key in cells.keys], dtype=np.int64)[columns["key"]]
        sums = _octave_sums(columns, OCTAVES * number + octave, len(keys))
        weights = _outcome_weights(sums)
        whole = sums.sum(axis=1)
        bins, p_values = _tested_bins(sums, weights)
        p_differs = _differences(sums, weights)
        for key, own in position.items():
            figures = _figures(column, key.value or MISSING, sums[:, own], bins[:, own], p_values[own])
            others, weight, _, _, inverse = (whole - sums[:, own]).sum(axis=-1)[:5]
            if others > 0 and weight > 0 and sums[1, own].sum() > 0:
                p = None if figures.p_value is None else float(p_differs[own])
                figures = replace(figures, of_rest=float(inverse / weight), p_differs=p)
            segments.append(figures)
    return segments


def _octave_sums(columns: Mapping[str, NDArray[Any]], at: NDArray[np.int64], segments: int) -> Array:
    """Return sums ``[sum, segment, octave]`` of cells at ``segment · octaves + octave``, unless below 0.

    They are n, Σw, Σwo, Σwp, Σwo/p, Σw(1 − p)/p, and Σw² of rows with outcome 1 and 0.
    """
    own = at >= 0
    at, clicked = at[own], columns["outcome"][own] == 1
    rows, weight, square, score, inverse = (
        columns[name][own] for name in ("rows", "weight", "square", "score", "inverse")
    )
    odds = np.where(inverse > 0, inverse - weight, 0.0)
    values = (
        *(rows, weight, weight * clicked, score, inverse * clicked, odds),
        *(square * clicked, square * ~clicked),
    )
    added = [np.bincount(at, each, minlength=segments * OCTAVES) for each in values]
    return np.stack(added).astype(np.float64).reshape(len(values), segments, OCTAVES)


def corrected(segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments with q-values (Benjamini and Hochberg's step-up over all that could be tested)."""
    q_values = _stepped_up([segment.p_value for segment in segments])
    q_differs = _stepped_up([segment.p_differs for segment in segments])
    return [
        replace(segment, q_value=q_values.get(place), q_differs=q_differs.get(place))
        for place, segment in enumerate(segments)
    ]


def _stepped_up(p_values: Sequence[float | None]) -> dict[int, float]:
    """Return the q-value at each place that has a p-value: min over p' ≥ p of p'·m ÷ rank(p')."""
    tested = sorted((p, number) for number, p in enumerate(p_values) if p is not None)
    p = np.array([p for p, _ in tested])
    ratio = p * len(p) / np.arange(1, len(p) + 1)
    q_values = np.minimum(np.minimum.accumulate(ratio[::-1])[::-1], 1.0).tolist()
    return {number: q for (_, number), q in zip(tested, q_values, strict=True)}


def worst_first(segments: Sequence[Segment], *, tolerance: float, significance: float) -> list[Segment]:
    """Sort segments that are off first, by rows × what is left of WCE after noise; then the rest, likewise.

    So a small segment does not stand before a large one that costs more, however far off it is. Those with
    too few rows for a test come last, the largest first.
    """

    def key(segment: Segment) -> tuple[int, float, int]:
        if segment.q_value is None:
            return 2, 0.0, -segment.rows
        off = segment.is_off(tolerance=tolerance, significance=significance)
        return int(not off), -segment.rows * segment.wce_debiased, -segment.rows

    return sorted(segments, key=key)


def _outcome_weights(sums: Array) -> Array:
    """Σw²/Σw of the rows with outcome 1 and 0 of each segment, ``[segment, 2]``.

    Where a segment has no such row, that of all segments; where none has, that of the other outcome.
    """
    _, total, positive, *_, positive_square, negative_square = sums.sum(axis=-1)
    weight = np.stack([positive, total - positive], axis=1)
    square = np.stack([positive_square, negative_square], axis=1)
    either = square.sum() / (weight.sum() or 1.0)
    of_outcome = weight.sum(axis=0)
    whole = np.divide(square.sum(axis=0), of_outcome, out=np.full(2, either), where=square.sum(axis=0) > 0)
    local = np.divide(square, weight, out=np.tile(whole, (len(weight), 1)), where=square > 0)
    return np.asarray(local)


def _figures(column: str, value: str, sums: Array, bins: Array, p_value: float) -> Segment:
    rows, weight, positive, score, inverse = sums[:5]
    total = float(weight.sum()) or np.nan
    infinite = bool(positive[0] > 0)
    w, inv, inv_var = bins[[0, 3, 4]][:, bins[0] > 0]
    share = w / total
    excess = np.divide(inv, w, out=np.zeros_like(w), where=w > 0) - 1
    noise = np.divide(inv_var, w**2, out=np.zeros_like(w), where=w > 0)
    ratio = float(inverse.sum() / total)
    half = float(NORMAL_95 * np.sqrt(inv_var.sum() * ratio) / total)
    return Segment(
        column=column,
        value=value,
        rows=int(rows.sum()),
        base_rate=float(positive.sum() / total),
        mean_score=float(score.sum() / total),
        mean_outcome_over_score=np.inf if infinite else ratio,
        low=max(ratio - half, 0.0),
        high=np.inf if infinite else ratio + half,
        wce=np.inf if infinite else float(share @ np.abs(excess)),
        wce_debiased=np.inf if infinite else float(np.sqrt(max(0.0, share @ (excess**2 - noise)))),
        p_value=0.0 if infinite else None if math.isnan(p_value) else p_value,
        q_value=None,
    )


def _differences(sums: Array, outcome_weight: Array) -> Array:
    """Return the p-value of each segment's mean of o/p̂ against the rest's, if both had that of all rows."""
    whole = sums.sum(axis=1, keepdims=True)
    sides = ((sums, outcome_weight), (whole - sums, _outcome_weights(whole)))
    factor = float(whole[4].sum() / (whole[1].sum() or 1.0))
    draws, means = [], []
    for sign, (own, weights) in zip((1, -1), sides, strict=True):
        rows, chance, row_weight = _draws(own, weights, factor)
        total = sign * np.where(own[0].sum(axis=-1) > 0, own[1].sum(axis=-1), np.nan)[:, np.newaxis]
        # A click at a score near 0 is as good as impossible, however near: its step must not overflow.
        score = np.maximum(own[3], SMALLEST_STEP_SCORE * own[1])
        step = np.divide(row_weight * own[1], score * total, out=np.zeros_like(rows), where=rows * chance > 0)
        draws.append((rows, chance, step))
        means.append(own[4].sum(axis=-1) / total[:, 0])
    rows, chance, step = (np.concatenate(pair, axis=1) for pair in zip(*draws, strict=True))
    known = np.isfinite(means[0] + means[1])
    p_values = _two_sided(rows, chance, step, np.where(known, means[0] + means[1], 0.0))
    return np.where(sums[2, :, 0] > 0, 0.0, p_values)


def _draws(sums: Array, outcome_weight: Array, factor: float = 1.0) -> Array:
    """Return each cell's rows of equal weight, the chance that one of them is clicked, and ω.

    Where a log keeps one in w₀/w₁ of the rows without a click, the odds of a click among the rows that it has
    are that many times those of the population, whose rate is ``factor`` times the score. Given the rows, a
    click more and another row less adds ω = (1 − p)w₁ + p·w₀ to Σw(o − p).
    """
    weight, positive, score = sums[1:4]
    mean = factor * np.divide(score, weight, out=np.zeros_like(score), where=weight > 0)
    mean = np.minimum(mean, 1.0 - 1e-12)
    clicked, other = outcome_weight[..., 0, np.newaxis], outcome_weight[..., 1, np.newaxis]
    row_weight = (1 - mean) * clicked + mean * other
    rows = np.maximum(positive, 0.0) / clicked + np.maximum(weight - positive, 0.0) / other
    return np.stack([rows, mean * other / row_weight, row_weight])


def _two_sided(rows: Array, chance: Array, step: Array, value: Array) -> Array:
    r"""Return the two-sided p-value of Σ h(x − nπ), x ~ Binomial(n, π): ``[test, cell]`` and ``[test]``.

    .. math:: P \approx \Phi(-r) + \varphi(r)\,(1/v - 1/r), \quad r = \sqrt{2 (t\,T - K(t))}, \quad
              v = t \sqrt{K''(t)}, \quad K'(t) = T

    Lugannani and Rice's saddlepoint approximation (1980), K the cumulants' generating function: right in
    the tails of few and skewed counts, where a normal law is wrong by an order of magnitude. It counts half
    of the chance of the value itself, as the mid-p does.
    """
    rows, chance, step = (values[:, (rows > 0).any(axis=0)] for values in (rows, chance, step))
    size = np.where(rows * chance > 0, np.abs(step), 0.0)
    unit = np.maximum(size.max(axis=1, initial=0.0), SMALLEST)
    h, target = step / unit[:, np.newaxis], value / unit
    least = np.where(size > 0, size / unit[:, np.newaxis], np.inf).min(axis=1, initial=np.inf)
    ends = [(np.minimum(sign * h, 0.0) * rows).sum(axis=1) for sign in (1, -1)]
    centre = (rows * chance * h).sum(axis=1)
    half = np.where(np.isfinite(least), least / 2, 0.0)
    target = np.clip(
        target, ends[0] - centre + half, np.maximum(-ends[1] - centre - half, ends[0] - centre + half)
    )
    odds = logit(chance)
    low, high = np.full(len(value), -MOST_TILT), np.full(len(value), MOST_TILT)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        tilted = expit(odds + middle[:, np.newaxis] * h)
        below = (rows * h * (tilted - chance)).sum(axis=1) < target
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    tilt = (low + high) / 2
    x = tilt[:, np.newaxis] * h
    tilted = expit(odds + x)
    cumulants = (rows * (np.log1p(chance * np.expm1(x)) - chance * x)).sum(axis=1)
    root = np.sqrt(np.maximum(2 * (tilt * target - cumulants), 0.0))
    slope = np.abs(tilt) * np.sqrt((rows * h**2 * tilted * (1 - tilted)).sum(axis=1))
    far = (root > NEAR) & (slope > 0)
    r, v = np.where(far, root, 1.0), np.where(far, slope, 1.0)
    tail = ndtr(-r) + np.exp(-(r**2) / 2) / math.sqrt(2 * math.pi) * (1 / v - 1 / r)
    return np.where(far, np.clip(2 * tail, 0.0, 1.0), 1.0)


def _tested_bins(sums: Array, outcome_weight: Array) -> tuple[Array, Array]:
    """Return sums of each segment's bins, ``[sum, segment, bin]``, and the p-value of each segment.

    Cells are joined with the next until each bin is expected to hold enough outcomes. The p-value is that of
    the χ² of the normal deviates of its bins, each with the tail of its own distribution; NaN without a bin
    that is large enough.
    """
    rows, chance, step = _draws(sums, outcome_weight)
    cells = np.stack([*sums[1:5], sums[5] * step, rows * chance, rows * (1 - chance)])
    places = np.arange(sums.shape[1])
    bins, index = np.zeros_like(cells), np.zeros(sums.shape[1:], dtype=np.int64)
    current = np.zeros(len(places), dtype=np.int64)
    for cell in range(OCTAVES):
        index[:, cell] = current
        bins[:, places, current] += cells[:, :, cell]
        current += bins[5:, places, current].min(axis=0) >= LEAST_EXPECTED
        current = np.minimum(current, OCTAVES - 1)
    last = np.maximum(current - 1, 0)
    left = np.where(current > 0, bins[:, places, current], 0.0)
    bins[:, places, current] -= left
    bins[:, places, last] += left
    index = np.minimum(index, last[:, np.newaxis])
    segment, number = np.nonzero(bins[5:].min(axis=0) >= LEAST_EXPECTED)
    here = np.where(index[segment] == number[:, np.newaxis], rows[segment], 0.0)
    tail = _two_sided(here, chance[segment], step[segment], (bins[1] - bins[2])[segment, number])
    tested = np.bincount(segment, minlength=len(places))
    statistic = np.bincount(segment, chdtri(1.0, tail), len(places))
    return bins, np.where(tested > 0, chdtrc(np.maximum(tested, 1), statistic), np.nan)
