r"""Tests that hold however often one looks: evidence that scores broke, period by period.

A period's evidence for an alternative is to second order a likelihood ratio. Its mean is at most 1 while
scores are honest within the tolerance; products over periods are then a test supermartingale, and by Ville's
inequality the chance that it *ever* reaches 1/α is at most α. Averages of such products are one too, which is
how the size, the kind and the beginning of a change can be unknown.

What follows from the evidence is put together in ``unskew.audit.monitor``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from unskew.metrics.score_cells import ScoreCells

Array = NDArray[np.float64]
Kind = Literal["level", "slope", "shape"]
"""All scores too high or too low; too spread or too flat; off in the middle against the ends."""

KIND_WEIGHT = {"level": 0.5, "slope": 0.25, "shape": 0.25}
"""How the evidence is averaged over kinds: a change of the level is the most common."""

SIZES = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0)
"""Shifts of the logit, beyond the tolerance, that are looked for; a factor 2 between two costs little."""

SPREAD_LIMIT = 2.0
"""Standard deviations of the logit beyond which slope and shape grow no further: a few extreme scores must
not decide."""

LEAST_PROBABILITY = 1e-12

LARGEST_BET = 3.0
"""The largest shift of the logit that is bet on: x − x²/6, the most that a click can add, falls beyond."""

CERTAIN = 1e4
"""The logarithm of the evidence of a click at a score of 0, which no honest score allows."""

POWER_DEVIATION = 0.8416
"""A normal quantile: a change is "seen" if it would be found in 80 % of cases."""


class Alternative(NamedTuple):
    """A way in which scores may be off."""

    kind: Kind
    sign: int
    size: float


ALTERNATIVES = tuple(
    Alternative(kind, sign, size) for kind in get_args(Kind) for sign in (1, -1) for size in SIZES
)
PRIOR = np.array([KIND_WEIGHT[each.kind] / (2 * len(SIZES)) for each in ALTERNATIVES])
"""Weights of the alternatives in the average, adding up to 1."""


def log_evidence(cells: ScoreCells, tolerance: float) -> Array:
    """Return the logarithm of a period's evidence for each of :data:`ALTERNATIVES`.

    :func:`evidence_terms` has the formula.

    Examples
    --------
    >>> from unskew.metrics import CalibrationSketch
    >>> from unskew.metrics.score_cells import cells_of
    >>> score = np.full(10_000, 0.1)
    >>> honest = CalibrationSketch.of(score=score, outcome=np.arange(10_000) < 1_000)
    >>> low = CalibrationSketch.of(score=score, outcome=np.arange(10_000) < 1_300)
    >>> float(log_evidence(cells_of(honest), 0.05).max())
    0.0
    >>> bool(log_evidence(cells_of(low), 0.05).max() > 20)
    True
    """
    impossible = bool(((cells.score == 0) & (cells.positive > 0)).any())
    certain = np.array(
        [CERTAIN * (impossible and (each.kind, each.sign) == ("level", 1)) for each in ALTERNATIVES]
    )
    used = cells.take(cells.score > 0)
    if not len(used.score):
        return certain
    row = used.row_weight()
    squares = used.square_sum / row[:, None] ** 2
    sums = np.stack([used.positive / row, used.total / row, squares[:, 1], squares[:, 0]])
    terms = evidence_terms(used.score, sums[1], tolerance)
    return np.asarray(np.tensordot(sums, terms, axes=2) + certain)


def evidence_terms(score: Array, rows: Array, tolerance: float) -> Array:
    r"""Return what each cell's sums add to the evidence of alternatives, ``[sum, cell, alternative]``.

    .. math::
        \log E = \sum_i \theta c_i (o_i - b) - \tfrac16 \theta^2 c_i^2 (o_i - b)^2
        - \tfrac13 \theta^2 c_i^2 \, b (1 - b), \qquad
        \theta = \operatorname{logit} q - \operatorname{logit} b, \quad
        \operatorname{logit} q = \operatorname{logit} p + \delta\, g(p)

    p is the score, c = w/ω the weight (:meth:`~unskew.metrics.score_cells.ScoreCells.row_weight`; 1 where
    there are none), δ = ±(log(1 + tolerance) + size), g is 1 (level), the standardised logit s (slope) or
    s² − 1 (shape), and b the end of [p/(1 + tolerance), p·(1 + tolerance)] on q's side; a cell whose q lies
    between them says nothing. The sums are Σco, Σc, Σc² of clicks and Σc² of the other rows.

    As x − x²/6 ≤ log(1 + x + x²/3) for every x, E has a mean of at most 1 if the true rate is b, whatever
    weights the rows have before their outcomes (Delyon 2009): one of a hundred times the usual weight counts
    as evidence at most 1.5. It is so for every rate within the tolerance while θc is at most 3, beyond which
    a bet of ours never goes; and where scores within a cell differ, the mean is less. To the second order E
    is the likelihood ratio q/b, which heavy weights would break. Σc²·b(1 − b) is taken as Σc·b(1 − b), since
    ω makes them equal, where weights depend on the outcome too (sampled negatives).
    """
    p = np.clip(score, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    logit = np.log(p) - np.log1p(-p)
    weight = rows * p * (1 - p)
    total = weight.sum() or 1.0
    centre = float(weight @ logit) / total
    spread = float(np.sqrt(weight @ (logit - centre) ** 2 / total))
    position = np.clip((logit - centre) / spread, -SPREAD_LIMIT, SPREAD_LIMIT) if spread > 0 else 0 * logit
    bend = {"level": np.ones_like(p), "slope": position, "shape": position**2 - (1 if spread > 0 else 0)}
    band = float(np.log1p(tolerance))
    shift = np.stack([bend[each.kind] * each.sign * (band + each.size) for each in ALTERNATIVES], axis=1)
    high = np.minimum(p * (1 + tolerance), 1 - LEAST_PROBABILITY)[:, None]
    low = (p / (1 + tolerance))[:, None]
    bound = np.where(shift > 0, high, low)
    theta = logit[:, None] + shift - (np.log(bound) - np.log1p(-bound))
    theta = np.where(theta * shift > 0, np.clip(theta, -LARGEST_BET, LARGEST_BET), 0.0)
    square = theta**2
    per_row = -theta * bound - square * bound * (1 - bound) / 3
    return np.stack([theta, per_row, -square * (1 - bound) ** 2 / 6, -square * bound**2 / 6])


def start_weight(number: NDArray[np.int64] | int) -> Array:
    """Return the weight of a change that begins with period n: 1/(n(n + 1)), over all n adding up to 1."""
    n = np.asarray(number, dtype=np.float64)
    return np.asarray(1 / (n * (n + 1)))


def evidence_over_time(periods: Array) -> Array:
    r"""log M_t after each period: the evidence that scores broke at some time so far.

    .. math::
        M_t = \sum_a \pi_a \Big(\sum_{j \le t} \frac{1}{j(j+1)} \prod_{s=j}^{t} E_s(a) + \frac{1}{t+1}\Big)

    ``periods`` are log E, ``[..., period, alternative]``. The last term is for changes still to come.
    Under honest scores the chance that M ever exceeds 1/α is at most α.

    Examples
    --------
    >>> quiet = np.zeros((3, len(ALTERNATIVES)))
    >>> np.round(evidence_over_time(quiet), 12).tolist()
    [0.0, 0.0, 0.0]
    """
    count = periods.shape[-2]
    evidence = np.empty(periods.shape[:-1])
    running = np.full((*periods.shape[:-2], periods.shape[-1]), -np.inf)
    for number in range(count):
        begun = np.logaddexp(running, np.log(start_weight(number + 1)))
        running = begun + periods[..., number, :]
        whole = np.logaddexp(running, -np.log(number + 2.0))
        highest = whole.max(axis=-1, keepdims=True)
        evidence[..., number] = np.log(np.exp(whole - highest) @ PRIOR) + highest[..., 0]
    return evidence


@dataclass(frozen=True)
class Episode:
    """Periods in which scores were off: first and last, when that was certain, and in which way.

    ``found`` is the period with which the evidence sufficed, ``over`` whether the last periods show that it
    has ended.
    """

    first: int
    last: int
    found: int
    over: bool
    kind: Kind
    log_evidence: float


def episodes(periods: Array, threshold: float) -> list[Episode]:
    """Return the episodes in which the evidence reached the threshold, from when to when, and of what kind.

    An episode begins where its product is the most probable, and ends where the evidence for it stopped
    growing, once as much evidence as it takes to find one speaks against it; then the search begins anew.

    Parameters
    ----------
    periods
        log E, ``[period, alternative]``.
    threshold
        log(1/α).

    Examples
    --------
    >>> quiet, off = np.full((5, len(ALTERNATIVES)), -1.0), np.full((3, len(ALTERNATIVES)), 9.0)
    >>> (found,) = episodes(np.concatenate([quiet, off, 9 * quiet]), 6.0)
    >>> found.first, found.last, found.over
    (5, 7, True)
    """
    complete: list[Episode] = []
    start = 0
    while start < len(periods):
        here = periods[start:]
        reached = np.flatnonzero(evidence_over_time(here) >= threshold)
        if not len(reached):
            break
        at = int(reached[0])
        summed = np.concatenate([np.zeros((1, here.shape[1])), np.cumsum(here, axis=0)])
        begun = summed[at + 1] - summed[: at + 1] + np.log(start_weight(np.arange(1, at + 2)))[:, None]
        first, alternative = np.unravel_index(int((begun + np.log(PRIOR)).argmax()), begun.shape)
        since = summed[at + 1 :, alternative]
        peak = int(since.argmax())
        over = bool(since[peak] - since[-1] >= threshold)
        last = at + peak if over else len(here) - 1
        whole = summed[last + 1] - summed[first] + np.log(PRIOR)
        by_kind = {
            kind: float(np.logaddexp.reduce(whole[[each.kind == kind for each in ALTERNATIVES]]))
            for kind in get_args(Kind)
        }
        kind = max(by_kind, key=lambda name: by_kind[name])
        complete.append(Episode(start + int(first), start + last, start + at, over, kind, by_kind[kind]))
        start += last + 1
        if not over:
            break
    return complete


def smallest_factor(expected: float, threshold: float, tolerance: float) -> float:
    r"""Return the least change of the level that so many expected clicks would show, in 80 % of cases.

    .. math:: n \left[(f - b)\,\theta - \theta^2 (f + 2b)/6\right]
              - 0.84 \sqrt{n f}\,(\theta - \theta^2/6) \ge \text{threshold}, \quad
              \theta = 3\,\frac{f - b}{f + 2b}, \quad b = 1 + \text{tolerance}

    The evidence of n·f clicks (:func:`evidence_terms`, small scores, the best bet θ) where at most n·b are
    honest, less what chance may take of it. Infinite where not even a factor 1,000 would show.

    Examples
    --------
    >>> round(smallest_factor(2000, 21.0, 0.05), 2), round(smallest_factor(20, 21.0, 0.05), 1)
    (1.22, 3.3)
    """
    low, high = 1 + tolerance, 1000.0

    def shows(factor: float) -> bool:
        bound = 1 + tolerance
        bet = 3 * (factor - bound) / (factor + 2 * bound)
        mean = expected * ((factor - bound) * bet - bet**2 * (factor + 2 * bound) / 6)
        return bool(mean - POWER_DEVIATION * np.sqrt(expected * factor) * (bet - bet**2 / 6) >= threshold)

    if not shows(high):
        return float("inf")
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if shows(middle) else (middle, high)
    return high


def family_shares(first_seen: NDArray[np.int64]) -> Array:
    r"""Return the share of α of each member of a growing family, from the period in which it was first seen.

    .. math:: \frac{6}{\pi^2 b^2 \, n_b}

    b numbers the periods that brought new members, n_b those that came with it: the shares add up to at most
    1 however many come later, and none changes when others come.

    Examples
    --------
    >>> family_shares(np.array([0, 0, 3])).round(3).tolist()
    [0.304, 0.304, 0.152]
    """
    _, batch, counts = np.unique(first_seen, return_inverse=True, return_counts=True)
    return np.asarray(6 / (np.pi**2 * (batch + 1.0) ** 2 * counts[batch]))
