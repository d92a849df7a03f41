"""The noise floor: what a perfect predictor would score on so many rows."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from unskew.errors import ParameterError
from unskew.metrics._cells import cells_of
from unskew.metrics._grid import Rule
from unskew.metrics._limits import MOST_RESAMPLES, SMALLEST
from unskew.metrics._noise import drawn_noise
from unskew.metrics.sketch import CalibrationSketch
from unskew.metrics.weight_calibration import DEFAULT_WEIGHT_BINS
from unskew.seeds import as_seed

FloorMetric = Literal["ece", "adaptive_ece", "wce"]


def noise_floor(
    *,
    score: Any = None,
    outcome: Any = None,
    weight: Any = None,
    sketch: CalibrationSketch | None = None,
    metric: FloorMetric = "ece",
    bins: int | None = None,
    rule: Rule = "paper",
    draws: int = 100,
    seed: int = 0,
) -> float:
    r"""Mean of a calibration error when the scores are true: it is not 0, and depends on n.

    .. math::
        \text{floor} = \mathbb{E}\left[\mathrm{ECE}(p, o^*)\right], \qquad
        o^*_i \sim \mathrm{Bernoulli}(p_i)

    Outcomes are drawn for whole cells, at their mean score. Print it beside every ECE: an ECE near its
    floor says nothing against the scores.

    Parameters
    ----------
    metric
        ``"ece"``, ``"adaptive_ece"`` or ``"wce"``.
    bins, rule
        Those of the metric; by default its own.
    draws
        Simulated outcomes to average over.

    Examples
    --------
    >>> import numpy as np
    >>> score = np.linspace(0.01, 0.99, 1000)
    >>> 0.05 < noise_floor(score=score, outcome=np.arange(1000) % 2) < 0.15
    True
    """
    if not 1 <= draws <= MOST_RESAMPLES:
        raise ParameterError(
            f"draws must be from 1 to {MOST_RESAMPLES:,}, not {draws!r}", remedy="give 100, for example"
        )
    if metric not in ("ece", "adaptive_ece", "wce"):
        raise ParameterError(
            f"metric must be 'ece', 'adaptive_ece' or 'wce', not {metric!r}", remedy="give one of these"
        )
    cells = cells_of(score=score, outcome=outcome, weight=weight, sketch=sketch, bins=bins)
    if metric == "wce":
        bins = DEFAULT_WEIGHT_BINS if bins is None else bins
    spacing: Literal["width", "mass"] = "width" if metric == "ece" else "mass"
    index = cells.bin_index(bins=bins, spacing=spacing, rule=rule)
    rows, step = cells.equal_rows()
    if metric == "wce":
        step = np.where(cells.score > 0, step / np.maximum(cells.score, SMALLEST), 0.0)
    generator = np.random.default_rng(as_seed(seed))
    # Cubes of 1/p of the smallest scores overflow: such noise is skewed, which is what an infinity says.
    with np.errstate(over="ignore"):
        noise = drawn_noise(index, rows, cells.score, step, draws, generator)
    return float(np.abs(noise).sum(axis=-1).mean() / cells.total.sum())
