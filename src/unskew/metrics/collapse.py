"""A check that a trained network learned something: the spread of its logits, its gain over a constant.

One rule for every network (conversion models, imputers, click towers, propensities); who is asked, on which
rows, and what is said about it is left to the callers.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, stdtrit

from unskew.base.errors import CollapseWarning
from unskew.metrics.score_cells import cells_of
from unskew.metrics.sketch import CalibrationSketch

Array = NDArray[np.float64]

FLAT_LOGITS = 0.05
"""Logits whose standard deviation is below this are flat: the odds of nearly all pairs are within some 10 %
of each other, which neither ranks nor weighs anything. It does not depend on the rate of the outcome."""

NEGLIGIBLE_GAIN = 0.002
"""A share of the constant's loss that is as good as nothing. An AUC of about .53 gains so much, whether one
row in ten has the outcome or one in five hundred."""

SURE = 0.975
"""How sure, on one side, one must be that the gain is negligible (or that it is not)."""

LEAST_PROBABILITY = 1e-12
"""Scores of 0 and 1 are moved so far, that their logits are numbers."""

Reason = Literal["flat", "no gain"]

REASONS: dict[Reason, str] = {
    "flat": "it gives nearly every pair the same prediction",
    "no gain": "on held-out rows it is no better than one constant for every pair",
}
"""Why a network counts as collapsed, in words."""


class Collapsed(NamedTuple):
    """A network that learned nothing: its name, its seed, and why it is thought so."""

    network: str
    seed: int
    reason: Reason


REMEDIES: dict[Reason, str] = {
    "flat": "lower weight_decay or p_min, or train longer (epochs, patience, learning_rate)",
    "no gain": "give more data or a smaller learner, raise weight_decay, or stop early (patience)",
}
"""What to do about it where there is something to learn."""


def collapse_message(model: str, network: str, reason: Reason, seeds: int, total: int) -> str:
    """Return what became of a network, and the remedy, in a sentence or two."""
    return (
        f"{model}: the network '{network}' learned nothing in {seeds} of {total}"
        f" {'seed' if total == 1 else 'seeds'}: {REASONS[reason]}."
        f" If there is something to learn, {REMEDIES[reason]}."
    )


def counts(collapsed: Iterable[Collapsed], members: int = 1) -> list[tuple[str, Reason, int]]:
    """Return networks and reasons, each with the number of its seeds; the folds of a seed count as one.

    Of an ensemble of so many members a seed counts where most of them learned nothing: their mean has what
    the others learned.
    """
    reasons: dict[tuple[str, int], list[Reason]] = {}
    for network_seed in collapsed:
        reasons.setdefault((network_seed.network.partition(", ")[0], network_seed.seed), []).append(
            network_seed.reason
        )
    counted = Counter(
        (network, max(of, key=of.count)) for (network, _), of in reasons.items() if 2 * len(of) > members
    )
    return [(network, reason, seeds) for (network, reason), seeds in counted.items()]


def warn_of_collapse(model: str, collapsed: Sequence[Collapsed], total: int, members: int = 1) -> None:
    """Warn once for each network that learned nothing in some of the seeds, and why."""
    for network, reason, seeds in counts(collapsed, members):
        warnings.warn(collapse_message(model, network, reason, seeds, total), CollapseWarning, stacklevel=3)


class Learned(NamedTuple):
    """The figures that show how much a network learned.

    Attributes
    ----------
    spread
        Standard deviation of its logits, on the held-out rows or elsewhere, whichever is larger.
    gain
        1 − its loss ÷ the best constant's, both with the best level; NaN where it could not be judged.
    error
        Standard error of ``gain``, from differences row by row.
    reason
        Why it counts as collapsed; None where it does not.
    """

    spread: float
    gain: float
    error: float
    reason: Reason | None


def learned(*, logits: Any, outcome: Any = None, weight: Any = None, elsewhere: Any = None) -> Learned:
    r"""Judge whether a network learned anything about rows that it was not trained on.

    .. math::
        s = \max(\mathrm{sd}_V\, z, \mathrm{sd}_E\, z), \qquad
        g = 1 - \frac{\min_c \sum_V w\,\mathrm{CE}(o, \sigma(z + c))}
                     {\min_c \sum_V w\,\mathrm{CE}(o, \sigma(c))}

    z are the logits of held-out rows V with outcomes o, E are other pairs (``elsewhere``). The level c is
    free on both sides, since the question is whether the network tells rows apart; whether its level is right
    is judged by others. It counts as collapsed if

    * s < 0.05: flat; or
    * g + t·e ≤ 0.002, and not g − t·e > 0: no gain. e is the standard error of the mean of the *paired*
      differences of losses, t the 97.5 % point of Student's distribution with as many degrees of freedom as
      the rarer outcome has rows (effective rows, with weights), less one.

    Few rows have a large t·e and raise no alarm; with many rows a small but sure gain is a gain. A network
    that gains 0.002 or more is accused in at most 1 of 40 cases. "Learned nothing" is no defect where nothing
    can be learned: outcomes that are pure noise are rightly answered by a constant.

    Parameters
    ----------
    logits
        ``[n]``.
    outcome
        0 or 1 for each; without it (or where it is the same everywhere) the spread alone is judged.
    weight
        Of each row.
    elsewhere
        Logits of other pairs, for the spread.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> z = random.standard_normal(2000)
    >>> converted = random.random(2000) < expit(z - 2)
    >>> learned(logits=z, outcome=converted).reason, learned(logits=z / 100, outcome=converted).reason
    (None, 'flat')
    >>> learned(logits=random.standard_normal(2000), outcome=converted).reason
    'no gain'
    """
    z = np.asarray(logits, dtype=np.float64)
    w = np.ones(len(z)) if weight is None else np.asarray(weight, dtype=np.float64)
    spreads = [_deviation(z, w)]
    if elsewhere is not None:
        other = np.asarray(elsewhere, dtype=np.float64)
        spreads.append(_deviation(other, np.ones(len(other))))
    spread = max(spreads)
    if outcome is None:
        return Learned(spread, math.nan, math.nan, "flat" if spread < FLAT_LOGITS else None)
    o = np.asarray(outcome, dtype=np.float64)
    of_outcome = np.stack([w * (1 - o), w * o], axis=1)
    return _judged(z, of_outcome, of_outcome**2, spread)


def learned_by_sketch(sketch: CalibrationSketch) -> Learned:
    """:func:`learned` of the scores of a sketch: its cells have one logit each, its sums are exact."""
    cells = cells_of(sketch)
    z = logit(np.clip(cells.score, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY))
    return _judged(z, cells.weight, cells.square_sum, _deviation(z, cells.total))


def _judged(z: Array, weight: Array, square: Array, spread: float) -> Learned:
    """Judge logits ``[n]`` with the sums of w and of w² ``[n, outcome]`` of the rows that have them."""
    reason: Reason | None = "flat" if spread < FLAT_LOGITS else None
    sums = weight.sum(axis=0)
    if not (sums > 0).all():
        return Learned(spread, math.nan, math.nan, reason)
    total, positives = float(sums.sum()), float(sums[1])
    rate = positives / total
    shifted = z + _level(z, weight.sum(axis=1), positives)
    # What each row's loss is less than under the constant, if its outcome is 0 and if it is 1.
    difference = np.stack(
        [-math.log1p(-rate) - np.logaddexp(0, shifted), -math.log(rate) - np.logaddexp(0, -shifted)], axis=1
    )
    mean = float((weight * difference).sum()) / total
    error = math.sqrt(float((square * (difference - mean) ** 2).sum())) / total
    constant = -rate * math.log(rate) - (1 - rate) * math.log1p(-rate)
    gain, error = mean / constant, error / constant
    rarer = float((sums**2 / square.sum(axis=0)).min())
    margin = float(stdtrit(max(rarer - 1, 1.0), SURE)) * error
    if reason is None and gain + margin <= NEGLIGIBLE_GAIN and not gain - margin > 0:
        reason = "no gain"
    return Learned(spread, gain, error, reason)


def _level(z: Array, weight: Array, positives: float) -> float:
    """Return the c with Σ w·σ(z + c) = Σ w·o."""
    # Here, since few ask: it takes a while to load.
    from scipy.optimize import brentq

    aim = float(logit(positives / weight.sum()))
    # With one c each, all would be too low, or too high.
    bracket = aim - float(z.max()) - 1.0, aim - float(z.min()) + 1.0
    return float(brentq(lambda c: float(weight @ expit(z + c)) - positives, *bracket, xtol=1e-10))


def _deviation(z: Array, weight: Array) -> float:
    total = weight.sum()
    if not total > 0:
        return 0.0
    mean = float(weight @ z / total)
    return math.sqrt(float(weight @ (z - mean) ** 2 / total))
