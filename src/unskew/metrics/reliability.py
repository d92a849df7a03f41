"""The reliability curve with intervals, as numbers; ``unskew.report`` draws it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from unskew.base.estimator import require_share
from unskew.metrics.cell_sums import both
from unskew.metrics.score_cells import ScoreCells, Spacing, bin_sums, cells_of, occupied_bin
from unskew.metrics.sketch import CalibrationSketch
from unskew.metrics.sketch_grid import Rule

Array = NDArray[np.float64]

DEFAULT_CURVE_BINS = 20
"""Bins of a curve that people look at, as in the plots of the paper's code."""


class ReliabilityCurve(NamedTuple):
    """One entry for each bin that holds rows.

    ``score`` and ``frequency`` are the mean score and mean outcome, ``low`` and ``high`` the interval of
    the frequency, ``rows`` the number of rows, ``edges`` the ends of the bin as ``[bin, 2]``.
    """

    score: Array
    frequency: Array
    low: Array
    high: Array
    rows: NDArray[np.int64]
    edges: Array


def reliability_curve(
    score: Any,
    outcome: Any = None,
    weight: Any = None,
    *,
    bins: int | None = None,
    spacing: Spacing = "width",
    rule: Rule = "paper",
    level: float = 0.95,
) -> ReliabilityCurve:
    r"""Mean outcome against mean score, bin by bin, with Wilson's interval.

    .. math::
        \bar o_b \pm: \quad
        \frac{\bar o_b + \frac{z^2}{2 n_b} \pm z \sqrt{\frac{\bar o_b (1 - \bar o_b)}{n_b} +
        \frac{z^2}{4 n_b^2}}}{1 + z^2 / n_b}

    With weights n_b is the effective number of rows Σw/ω, ω = (1 − ō)·w₁ + ō·w₀, with w₁ and w₀
    the Σw²/Σw of rows with outcome 1 and 0: equal weights leave the rows. Calibrated scores lie on the
    diagonal.

    Parameters
    ----------
    bins
        20 by default; for a sketch and ``spacing="width"`` the bins that it keeps.
    spacing
        ``"width"``: equal width. ``"mass"``: equal weight. ``"log"``: equal ratio, for small scores.
    level
        Coverage of each interval.

    Examples
    --------
    >>> curve = reliability_curve(score=[0.1, 0.1, 0.9, 0.9], outcome=[0, 0, 1, 0], bins=2)
    >>> curve.frequency, curve.rows
    (array([0. , 0.5]), array([2, 2]))
    """
    require_share("level", level, "0.95")
    kept = isinstance(score, CalibrationSketch) and spacing == "width"
    wanted = DEFAULT_CURVE_BINS if bins is None and not kept else bins
    cells = cells_of(score, outcome, weight, bins=wanted)
    index = cells.bin_index(bins=wanted, spacing=spacing, rule=rule)
    total = bin_sums(cells.total, index)
    frequency = bin_sums(cells.positive, index) / total
    low, high = wilson(frequency, frequency_rows(cells, index), level)
    return ReliabilityCurve(
        score=bin_sums(both(cells.score_sum), index) / total,
        frequency=frequency,
        low=low,
        high=high,
        rows=np.add.reduceat(both(cells.rows), np.flatnonzero(np.diff(index, prepend=-1))),
        edges=_edges(cells, index, wanted, spacing),
    )


def frequency_rows(cells: ScoreCells, index: NDArray[np.int64]) -> Array:
    """Effective rows behind the frequency of each occupied bin: Σw / ω at that frequency."""
    total, positive = bin_sums(cells.total, index), bin_sums(cells.positive, index)
    rate = (positive / total)[occupied_bin(index)]
    return np.asarray(total**2 / bin_sums(cells.total * cells.row_weight(rate), index))


def wilson(frequency: Array, rows: Array, level: float) -> tuple[Array, Array]:
    """Wilson's score interval of a frequency over a number of rows."""
    z = float(ndtri(0.5 + level / 2))
    centre = frequency + z**2 / (2 * rows)
    half = z * np.sqrt(frequency * (1 - frequency) / rows + z**2 / (4 * rows**2))
    norm = 1 + z**2 / rows
    low, high = (centre - half) / norm, (centre + half) / norm
    return np.clip(low, 0.0, frequency), np.clip(high, frequency, 1.0)


def _edges(cells: Any, index: NDArray[np.int64], bins: int | None, spacing: Spacing) -> Array:
    occupied = np.unique(index)
    if spacing == "mass":
        first = np.flatnonzero(np.diff(index, prepend=-1))
        last = np.append(first[1:], len(index)) - 1
        return np.stack([cells.score[first], cells.score[last]], axis=1)
    count = bins if bins is not None else cells.sketch.bins
    edges = np.linspace(0.0, 1.0, count + 1) if spacing == "width" else cells.log_edges(count)
    return np.stack([edges[occupied], edges[occupied + 1]], axis=1)
