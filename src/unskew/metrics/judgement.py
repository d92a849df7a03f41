"""Every judgement: honest, significant, clipped too much, too few, level off, beyond noise.

Whether a figure is good is decided here, once (of networks that learned nothing, in ``collapse``): ``audit``,
``run``, ``compare``, studies, reports and tables read it. Pure functions of figures and sketches; words are
left to others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scipy.special import ndtr, ndtri

from unskew.base.estimator import require, require_share
from unskew.metrics.intervals import Interval
from unskew.metrics.proper import ChanceTest, auc_beyond_chance
from unskew.metrics.registry import metric
from unskew.metrics.sketch import CalibrationSketch
from unskew.metrics.weight_calibration import (
    beyond_tolerance,
    has_infinite_weight,
    power,
    rows_needed,
    surely_within,
    wce,
)

Level = Literal["good", "doubtful", "bad", "undecided"]

TOLERANCE = 0.05
"""Relative error of the weights, and so of an estimate by IPS, that passes as honest."""

SIGNIFICANCE = 0.01
"""Chance of blaming honest scores for their noise: in a daily pipeline, less than 4 times a year."""

DETECTED_ERROR = 1.2
"""Weights that are off by this factor must be found before scores are called honest: an estimate by IPS that
is 20 % wrong decides wrongly."""

TOLERANCES_DETECTED = 4.0
"""… or by so many tolerances, where that is more: an error within the tolerance cannot be found."""

LEAST_POWER = 0.8
"""Chance of finding them below which nothing is decided (Cohen 1988)."""

PREDICTABLE_AUC = 0.55
"""Up to here propensities know next to nothing, even if beyond chance: their weights are nearly constant."""

MOST_CLIPPED_MASS = 0.1
"""A clip that takes more than this share of Σ_O 1/p decides the result itself: an estimate of a total that
propensities make right is then too low by that share."""

LEVEL_TOLERANCE = 0.1
"""A model that predicts within this share of the actual rate passes as right: a test set of some thousand
pairs tells the conversion rate itself to 3 to 5 %. Right or off is said where the whole interval is."""

CLEAR_ERRORS = 3.0
"""A deviation of so many standard errors is clear: 20 honest bins have one such in 1 of 20 audits."""

SIGNIFICANT = 0.05
"""As in the paper; here after Holm's correction, and only where other test users would not undo it."""

FEW_EFFECTIVE_ROWS = 100.0
"""Intervals from a smaller effective sample are rough."""

UNBALANCED = 0.1
"""Standardised differences beyond are unbalanced, as is customary (Austin 2009)."""

WEIGHT_CHECK_TOLERANCE = 0.2
"""Weights of held-out clicks that miss the number of unseen pairs by more do not add up: some hundred clicks
tell their sum to 10 %."""

MOST_TIMES_DATA = 100.0
"""Beyond so many times the data, nobody will collect them."""


@dataclass(frozen=True)
class Judgement:
    """The level that figures amount to, and the reason, a key for words to start from."""

    level: Level
    reason: str

    @property
    def healthy(self) -> bool | None:
        """True where it is good, False where it is bad, None where that is not known."""
        return {"good": True, "bad": False}.get(self.level)


@dataclass(frozen=True)
class WeightJudgement(Judgement):
    """A judgement of the weights 1/p̂ from a number of rows.

    Attributes
    ----------
    level, reason
        Bad: ``"off"`` and ``"infinite weight"``; undecided: ``"too few rows"`` and ``"not beyond chance"``;
        good: ``"honest"``.
    wce_debiased, p_beyond_tolerance
        WCE₂, and the p-value of :func:`unskew.metrics.weight_calibration.beyond_tolerance`.
    error, power, rows_needed
        The factor of an error that must be found, the chance of finding it with these rows, and how many rows
        like these would find it with :data:`LEAST_POWER` (None where no number would).
    chance
        Whether the scores tell positives from negatives at all; None where one outcome is missing.
    """

    wce_debiased: float
    p_beyond_tolerance: float
    error: float
    power: float
    rows_needed: int | None
    chance: ChanceTest | None


def require_limits(tolerance: float, significance: float) -> None:
    """Raise unless both are in their range."""
    require(
        0 < tolerance < math.inf, f"tolerance must be above 0 and finite, not {tolerance!r}", "give 0.05, say"
    )
    require_share("significance", significance, "0.01")


def judge_weights(
    sketch: CalibrationSketch, *, tolerance: float = TOLERANCE, significance: float = SIGNIFICANCE
) -> WeightJudgement:
    r"""Judge weights: are they honest, off, or is it undecided?

    .. math::
        \text{off} \iff p(\text{beyond tolerance}) < \text{significance} \ \text{ and }\
        \mathrm{WCE}_2^2 + 2\,\mathrm{SE} > \text{tolerance}^2; \qquad
        \text{undecided} \iff \text{not off, and power} < 0.8 \text{ or AUC not beyond chance}

    WCE₂ is the debiased weight-calibration error (:func:`unskew.metrics.wce`) with the standard error of its
    square (:func:`~unskew.metrics.weight_calibration.surely_within`), p that of
    :func:`~unskew.metrics.weight_calibration.beyond_tolerance`, the power that of
    :func:`~unskew.metrics.weight_calibration.power` against weights off by a factor 1.2. So few rows are
    neither blamed for their noise nor praised for it, and many are not blamed for an error that does not
    matter. An outcome at a score of 0 is an infinite weight, and never honest; scores that do not tell
    positives from negatives (:func:`unskew.metrics.auc_beyond_chance`) may be right on average, and debias
    nothing. ECE has no part in it: it is an error of the scores, in which the smallest, whose weights decide,
    hardly count.

    Examples
    --------
    >>> import numpy as np
    >>> score = np.tile([0.1, 0.4], 5000)
    >>> honest = np.arange(10_000) % 20 < np.where(score == 0.1, 2, 8)
    >>> judge_weights(CalibrationSketch.of(score=score, outcome=honest)).reason
    'honest'
    >>> few = judge_weights(CalibrationSketch.of(score=score[:200], outcome=honest[:200]))
    >>> few.level, few.reason, 500 < few.rows_needed < 5000
    ('undecided', 'too few rows', True)
    """
    error = detected_error(tolerance)
    limits = {"tolerance": tolerance, "significance": significance, "error": error}
    chance_to_find = power(sketch, **limits)
    beyond = beyond_tolerance(sketch, tolerance)
    both = 0.0 < sketch.positives < sketch.total
    chance = auc_beyond_chance(sketch, significance=significance) if both else None
    level: Level
    if has_infinite_weight(sketch):
        level, reason = "bad", "infinite weight"
    elif beyond < significance and not surely_within(sketch, tolerance):
        level, reason = "bad", "off"
    elif chance_to_find < LEAST_POWER or chance is None:
        level, reason = "undecided", "too few rows"
    elif not chance.beyond:
        level, reason = "undecided", "not beyond chance"
    else:
        level, reason = "good", "honest"
    return WeightJudgement(
        level,
        reason,
        wce_debiased=wce(sketch, debiased=True),
        p_beyond_tolerance=beyond,
        error=error,
        power=chance_to_find,
        rows_needed=sketch.rows
        if chance_to_find >= LEAST_POWER
        else rows_needed(sketch, **limits, least=LEAST_POWER),
        chance=chance,
    )


def may_be_honest(sketch: CalibrationSketch, *, tolerance: float, significance: float) -> bool:
    """Return whether nothing shows the weights to be off: :func:`judge_weights` is good or undecided."""
    if has_infinite_weight(sketch):
        return False
    return beyond_tolerance(sketch, tolerance) >= significance or surely_within(sketch, tolerance)


def detected_error(tolerance: float) -> float:
    """Return the factor of an error of the weights that must be found before they are called honest."""
    return max(DETECTED_ERROR, 1.0 + TOLERANCES_DETECTED * tolerance)


@dataclass(frozen=True)
class MeanJudgement(Judgement):
    """A judgement by the mean of 1/p of shown actions, its power to find an error, and the rows needed."""

    power: float
    rows_needed: int


def judge_mean(
    ratio: float, error: float, rows: int, *, tolerance: float = TOLERANCE, significance: float = SIGNIFICANCE
) -> MeanJudgement:
    """Judge weights by their mean (1 is right) and its standard error: a z-test, and its power.

    Examples
    --------
    >>> judge_mean(1.01, 0.02, 1000).level, judge_mean(1.3, 0.02, 1000).level, judge_mean(1.0, 0.2, 10).level
    ('good', 'bad', 'undecided')
    """
    critical = float(ndtri(1 - significance / 2))
    room = 1 - 1 / detected_error(tolerance) - tolerance
    chance_to_find = 1.0 if error == 0 else float(ndtr(room / error - critical))
    needed = math.ceil(rows * ((critical + float(ndtri(LEAST_POWER))) * error / room) ** 2)
    enough = chance_to_find >= LEAST_POWER
    level: Level = "good" if enough else "undecided"
    reason = "honest" if enough else "too few rows"
    if max(abs(ratio - 1) - tolerance, 0.0) > critical * error:
        level, reason = "bad", "off"
    return MeanJudgement(level, reason, chance_to_find, max(needed, rows) if enough else needed)


def judge_weight_change(before: Interval, after: Interval) -> Judgement:
    """Judge whether weights are better or worse after calibration, by intervals of WCE that do not overlap.

    Examples
    --------
    >>> judge_weight_change(Interval(0.2, 0.15, 0.25, 0.95), Interval(0.05, 0.0, 0.1, 0.95)).reason
    'better'
    """
    if after.high < before.low:
        return Judgement("good", "better")
    return Judgement("bad", "worse") if after.low > before.high else Judgement("undecided", "within noise")


def judge_clip(clipped_mass: float | None) -> Judgement:
    """Judge whether the clip decides, or the propensities do, by the share of Σ 1/p that it takes.

    Examples
    --------
    >>> judge_clip(0.02).level, judge_clip(0.3).level
    ('good', 'bad')
    """
    decides = clipped_mass is not None and clipped_mass > MOST_CLIPPED_MASS
    return Judgement("bad", "the clip decides") if decides else Judgement("good", "little is clipped")


def tells_apart(auc: float | None, chance: float | None = None) -> bool:
    """Return whether propensities put clicked pairs first, by more than a trifle and than ``chance``."""
    return auc is not None and auc > PREDICTABLE_AUC and not (chance is not None and auc <= chance)


def judge_level(low: float | None, high: float | None, *, tolerance: float = LEVEL_TOLERANCE) -> Judgement:
    """Judge by its interval whether the mean prediction ÷ the actual rate is right, off, or undecided.

    Examples
    --------
    >>> [judge_level(*limits).reason for limits in ((0.95, 1.08), (1.21, 1.9), (0.8, 1.52), (None, None))]
    ['right', 'off', 'wide interval', 'wide interval']
    """
    if low is not None and high is not None:
        if low > 1 + tolerance or high < 1 - tolerance:
            return Judgement("bad", "off")
        if low >= 1 - tolerance and high <= 1 + tolerance:
            return Judgement("good", "right")
    return Judgement("undecided", "wide interval")


def is_clear(deviation: float, error: float) -> bool:
    """Return whether a deviation is beyond its noise, of this standard error."""
    return abs(deviation) > CLEAR_ERRORS * error


def is_significant(p_holm: float | None, *, users: Mapping[str, Any] | None = None, of_users: bool) -> bool:
    """Return whether a difference earns its mark.

    It must be beyond the noise of training (p over seeds, corrected) *and*, if it was measured on test users,
    beyond theirs (the interval ``users`` excludes 0).

    Examples
    --------
    >>> is_significant(0.001, users={"low": 0.02, "high": 0.18}, of_users=True)
    True
    >>> is_significant(0.001, users={"low": -0.02, "high": 0.22}, of_users=True)
    False
    """
    over_seeds = p_holm is not None and p_holm < SIGNIFICANT
    return over_seeds and (not of_users or excludes_zero(users))


def excludes_zero(interval: Mapping[str, Any] | None) -> bool:
    """Return whether an interval of a difference is on one side of 0."""
    low, high = (None, None) if interval is None else (interval["low"], interval["high"])
    return low is not None and high is not None and (low > 0 or high < 0)


def differs(comparison: Mapping[str, Any]) -> bool:
    """Return whether a comparison of ``metrics.json`` is beyond the noise of test users and training."""
    p_value = comparison.get("p_holm", comparison.get("p_value"))
    return is_significant(p_value, of_users=False)


def judge_difference(name: str, comparison: Mapping[str, Any]) -> Judgement:
    """Judge from a comparison of ``metrics.json`` whether a model is better or worse, beyond noise.

    Examples
    --------
    >>> fallen = {"difference": -0.1, "p_holm": 0.001}
    >>> [judge_difference(name, fallen).reason for name in ("nll", "auc")], judge_difference("auc", {}).reason
    (['better', 'worse'], 'within noise')
    """
    difference = comparison.get("difference")
    gain = 0.0 if difference is None else metric(name).gain(float(difference))
    if not differs(comparison) or not gain:
        return Judgement("undecided", "within noise")
    return Judgement("good", "better") if gain > 0 else Judgement("bad", "worse")


def judge_change(differences: Sequence[Judgement]) -> Judgement:
    """Return what several differences amount to: better or worse on more of them."""
    better, worse = (sum(each.reason == word for each in differences) for word in ("better", "worse"))
    if better == worse:
        return Judgement("undecided", "within noise")
    return Judgement("good", "better") if better > worse else Judgement("bad", "worse")


def judge_help(changes: Sequence[Judgement]) -> Level:
    """Judge whether a method helped in several things: good with help and no harm, bad with harm alone."""
    helped, harmed = (any(each.level == level for each in changes) for level in ("good", "bad"))
    return "undecided" if helped == harmed else "good" if helped else "bad"


def judge_estimate(p_holm: float, level: float, range_low: float) -> Judgement:
    """Judge an off-policy difference: decided if significant *and* above 0 with propensities off by Γ."""
    if not p_holm < 1.0 - level:
        return Judgement("undecided", "too few rows")
    return Judgement("good", "decided") if range_low > 0 else Judgement("undecided", "propensities off")


def is_off(q_value: float | None, deviation: float, *, tolerance: float, significance: float) -> bool:
    """Return whether a segment is worth naming: off beyond noise *and* beyond the tolerance.

    ``q_value`` is corrected for the number of segments; None stands for too few rows to tell.

    Examples
    --------
    >>> [is_off(q, 0.2, tolerance=0.05, significance=0.01) for q in (0.001, 0.2, None)]
    [True, False, False]
    >>> is_off(1e-9, 0.01, tolerance=0.05, significance=0.01)
    False
    """
    return q_value is not None and q_value < significance and deviation > tolerance


def most_collapsed(seeds: int, total: int) -> bool:
    """Return whether a network learned nothing in most of its seeds: then its predictions say nothing."""
    return 2 * seeds > total
