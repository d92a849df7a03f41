"""The judgement of weights: honest, off, or undecided. Pure functions of a sketch; words are left to others.

Whether a figure is good is decided here alone: what an error must exceed, how sure that must be, and how many
rows it takes to say that it does not.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, chdtri

from unskew.metrics._cells import Cells, bin_sums, cells_of
from unskew.metrics.proper import ChanceTest, auc_beyond_chance
from unskew.metrics.sketch import CalibrationSketch
from unskew.metrics.weight_calibration import (
    DEFAULT_WEIGHT_BINS,
    inverse_of,
    inverse_variance,
    joined_bins,
    wce,
)

Array = NDArray[np.float64]
Reason = Literal["honest", "off", "infinite weight", "too few rows", "not beyond chance"]

DETECTED_ERROR = 1.2
"""Weights that are off by this factor must be found before scores are called honest: an estimate by IPS that
is 20 % wrong decides wrongly."""

TOLERANCES_DETECTED = 4.0
"""… or by so many tolerances, where that is more: an error within the tolerance cannot be found."""

LEAST_POWER = 0.8
"""Chance of finding them below which nothing is decided (Cohen 1988)."""

_DRAWS = 2000
_MOST_DOUBLINGS = 60
_HALVINGS = 12


class Judgement(NamedTuple):
    """What so many rows say of the weights 1/p̂.

    Attributes
    ----------
    healthy
        True, False, or None where the rows do not decide.
    reason
        ``"off"`` and ``"infinite weight"`` are not healthy, ``"too few rows"`` and ``"not beyond chance"``
        undecided, ``"honest"`` healthy.
    wce_debiased, p_beyond_tolerance
        WCE₂, and the p-value of :func:`beyond_tolerance`.
    error, power, rows_needed
        The factor of an error that must be found, the chance of finding it with these rows, and how many rows
        like these would find it with :data:`LEAST_POWER` (None where no number would).
    chance
        Whether the scores tell positives from negatives at all; None where one outcome is missing.
    """

    healthy: bool | None
    reason: Reason
    wce_debiased: float
    p_beyond_tolerance: float
    error: float
    power: float
    rows_needed: int | None
    chance: ChanceTest | None


def judge_weights(sketch: CalibrationSketch, *, tolerance: float, significance: float) -> Judgement:
    r"""Are the weights honest, off, or is it undecided?

    .. math::
        \text{off} \iff p(\text{beyond tolerance}) < \text{significance} \ \text{ and }\
        \mathrm{WCE}_2^2 + 2\,\mathrm{SE} > \text{tolerance}^2; \qquad
        \text{undecided} \iff \text{not off, and power} < 0.8 \text{ or AUC not beyond chance}

    WCE₂ is the debiased weight-calibration error (:func:`unskew.metrics.wce`) with the standard error of its
    square (:func:`surely_within`), p that of :func:`beyond_tolerance`, the power that of :func:`power`
    against weights off by a factor 1.2. So few rows are neither blamed for their noise nor praised for it,
    and many are not blamed for an error that does not matter. An outcome at a score of 0 is an infinite
    weight, and never honest; scores that do not tell positives from negatives
    (:func:`unskew.metrics.auc_beyond_chance`) may be right on average, and debias nothing.

    Examples
    --------
    >>> score = np.tile([0.1, 0.4], 5000)
    >>> honest = np.arange(10_000) % 20 < np.where(score == 0.1, 2, 8)
    >>> many = CalibrationSketch.of(score=score, outcome=honest)
    >>> found = judge_weights(many, tolerance=0.05, significance=0.01)
    >>> found.healthy, found.reason
    (True, 'honest')
    >>> few = CalibrationSketch.of(score=score[:200], outcome=honest[:200])
    >>> found = judge_weights(few, tolerance=0.05, significance=0.01)
    >>> found.healthy, found.reason, 500 < found.rows_needed < 5000
    (None, 'too few rows', True)
    """
    error = max(DETECTED_ERROR, 1.0 + TOLERANCES_DETECTED * tolerance)
    limits = {"tolerance": tolerance, "significance": significance, "error": error}
    found = power(sketch, **limits)
    beyond = beyond_tolerance(sketch, tolerance)
    debiased = wce(sketch=sketch, debiased=True)
    both = 0.0 < sketch.positives < sketch.total
    chance = auc_beyond_chance(sketch=sketch, significance=significance) if both else None
    healthy: bool | None
    reason: Reason
    if has_infinite_weight(sketch):
        healthy, reason = False, "infinite weight"
    elif beyond < significance and not surely_within(sketch, tolerance):
        healthy, reason = False, "off"
    elif found < LEAST_POWER or chance is None:
        healthy, reason = None, "too few rows"
    elif not chance.beyond:
        healthy, reason = None, "not beyond chance"
    else:
        healthy, reason = True, "honest"
    needed = sketch.rows if found >= LEAST_POWER else rows_needed(sketch, **limits)
    return Judgement(healthy, reason, debiased, beyond, error, found, needed, chance)


def may_be_honest(sketch: CalibrationSketch, *, tolerance: float, significance: float) -> bool:
    """Whether nothing shows the weights to be off: :func:`judge_weights` is healthy or undecided."""
    if has_infinite_weight(sketch):
        return False
    return beyond_tolerance(sketch, tolerance) >= significance or surely_within(sketch, tolerance)


def has_infinite_weight(sketch: CalibrationSketch) -> bool:
    """Whether a row has score 0 and outcome 1."""
    cells = cells_of(sketch=sketch)
    return bool(((cells.score == 0) & (cells.positive > 0)).any())


def surely_within(sketch: CalibrationSketch, tolerance: float) -> bool:
    r"""Whether the error of the weights, over all rows, is known to be within the tolerance.

    .. math:: \mathrm{WCE}_2^2 + 2\,\mathrm{SE} \le \text{tolerance}^2, \qquad
              \mathrm{SE}^2 = \sum_b \Big(\frac{n_b}{n}\Big)^2 \left(2 V_b^2 + 4 S_b^2 V_b\right)

    S_b and V_b as in :func:`unskew.metrics.wce`. A few bins may then be off by more: it does not matter. A
    WCE₂ that is small because its noise is large is not known to be.
    """
    cells = cells_of(sketch=sketch)
    index = cells.bin_index(bins=DEFAULT_WEIGHT_BINS, spacing="mass")
    total = bin_sums(cells.total, index)
    share = total / total.sum()
    excess = bin_sums(inverse_of(cells), index) / total - 1
    variance = bin_sums(inverse_variance(cells), index) / total**2
    square = share @ (excess**2 - variance)
    error = np.sqrt(share**2 @ (2 * variance**2 + 4 * excess**2 * variance))
    return bool(square + 2 * error <= tolerance**2)


def beyond_tolerance(sketch: CalibrationSketch, tolerance: float) -> float:
    r"""The chance of such errors if the weights of every bin were within the tolerance of honest.

    .. math:: \chi^2 = \sum_b \frac{\max(|S_b| - \text{tolerance}, 0)^2}{(1 + \text{tolerance}) V_b},
              \qquad B \text{ degrees of freedom}

    S_b, V_b and the bins are those of :func:`unskew.metrics.wce_test`, which this is at a tolerance of 0.
    Where the tolerance is not used up the chance is less than this.
    """
    cells = _positive_scores(sketch)
    if not len(cells.score):
        return 1.0
    index = _bins(cells)
    total = bin_sums(cells.total, index)
    variance = bin_sums(inverse_variance(cells), index) / total**2
    terms = _terms(bin_sums(cells.inverse_sum, index) / total - 1, variance, tolerance)
    return float(chdtrc(max(int((variance > 0).sum()), 1), terms.sum()))


def power(
    sketch: CalibrationSketch, *, tolerance: float, significance: float, error: float, times: float = 1.0
) -> float:
    r"""The chance that :func:`beyond_tolerance` finds weights that are off by a factor everywhere.

    .. math:: P\left(\chi^2 > \chi^2_{B, 1 - \text{significance}}\right), \qquad
              S_b \sim N\left(f - 1,\ f V_b / \text{times}\right), \quad
              f \in \{\text{error}, 1/\text{error}\}

    The less of the two, over 2,000 draws of the errors S_b of the bins. ``times`` stands for as many times
    the rows, distributed like these.
    """
    cells = _positive_scores(sketch)
    if not len(cells.score):
        return 0.0
    return _power(cells, tolerance, significance, error, times)


def rows_needed(
    sketch: CalibrationSketch, *, tolerance: float, significance: float, error: float
) -> int | None:
    """Rows, distributed like these, with which :func:`power` is 0.8; None if no number is enough."""
    cells = _positive_scores(sketch)

    def enough(times: float) -> bool:
        return _power(cells, tolerance, significance, error, times) >= LEAST_POWER

    if not len(cells.score) or not (cells.score < 1).any():
        return None
    low, high = 1.0, 1.0
    for _ in range(_MOST_DOUBLINGS):
        if enough(high):
            break
        low, high = high, 2 * high
    else:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return int(np.ceil(high * sketch.rows))


def _power(cells: Cells, tolerance: float, significance: float, error: float, times: float) -> float:
    index = _bins(cells, times)
    total = bin_sums(cells.total, index)
    variance = bin_sums(inverse_variance(cells), index) / total**2 / times
    variance = variance[variance > 0]
    if not len(variance):
        return 0.0
    critical = float(chdtri(len(variance), significance))
    normal = np.random.default_rng(0).standard_normal((_DRAWS, len(variance)))
    found = []
    for factor in (error, 1 / error):
        excess = factor - 1 + normal * np.sqrt(factor * variance)
        found.append(float((_terms(excess, variance, tolerance).sum(axis=-1) > critical).mean()))
    return min(found)


def _terms(excess: Array, variance: Array, tolerance: float) -> Array:
    """What each bin's error adds to χ²."""
    beyond = np.maximum(np.abs(excess) - tolerance, 0.0)
    # A bin of scores 1 has no variance: within the tolerance it says nothing, beyond it everything.
    certain = np.where(beyond > 0, np.inf, 0.0)
    terms = np.divide(beyond**2, (1 + tolerance) * variance, out=certain, where=variance > 0)
    return np.asarray(terms)


def _positive_scores(sketch: CalibrationSketch) -> Cells:
    cells = cells_of(sketch=sketch)
    return cells.take(cells.score > 0)


def _bins(cells: Cells, times: float = 1.0) -> NDArray[np.int64]:
    return joined_bins(cells, cells.bin_index(bins=DEFAULT_WEIGHT_BINS, spacing="mass"), times=times)
