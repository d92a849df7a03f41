"""How much better one model is than another, and how surely: paired resamples, corrected by Holm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from unskew.metrics.significance import holm
from unskew.offpolicy.estimates import Judged
from unskew.offpolicy.inputs import Metric
from unskew.offpolicy.sensitivity import Line, least_value, tipping_point
from unskew.offpolicy.words import difference_text

POWER = 0.8
"""Chance of a verdict, at the difference estimated, for which the data needed are counted."""


@dataclass(frozen=True)
class Difference:
    """How much better one model is than another in one metric.

    Attributes
    ----------
    better, worse
        The models, in the order of their estimates.
    advantage
        By how much the first is better, 0 or more: dcg, hits or AUC more, NLL less.
    low, high
        Its interval, not corrected for the number of comparisons.
    standard_error
        The standard deviation of the paired resamples.
    probability
        Share of the resamples in which the first is better.
    p_value, p_holm
        Two-sided, for "no difference"; and corrected by Holm over all comparisons that were made.
    gamma, range_low, range_high
        Where the advantage lies if the odds of a click are within a factor Γ of the propensities', sampling
        included.
    survives
        The largest Γ at which that range still excludes 0: 1 if it never does.
    decided
        Whether ``p_holm`` is below 1 − level *and* ``range_low`` above 0.
    times_more_data
        How many times as many clicks would decide it with a chance of 80 %, if the difference is as
        estimated; None if they are not what is missing, infinite if the estimates are equal.
    """

    metric: str
    better: str
    worse: str
    advantage: float
    low: float
    high: float
    level: float
    standard_error: float
    probability: float
    p_value: float
    p_holm: float
    gamma: float
    range_low: float
    range_high: float
    survives: float
    decided: bool
    times_more_data: float | None

    def __str__(self) -> str:
        return difference_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain values and the verdict in words, for JSON."""
        return {**asdict(self), "verdict": str(self)}


def differences(judged: Judged, pairs: Sequence[tuple[str, str]], level: float) -> tuple[Difference, ...]:
    """Of each pair of models in each metric, from the same resamples, with Holm's correction over all."""
    metrics = [Metric.of(name) for name in next(iter(judged.estimates.values()))]
    found: list[tuple[Metric, str, str, float, NDArray[np.float64]]] = []
    for metric in metrics:
        for first, second in pairs:
            value = {name: judged.estimates[name][metric.name].value for name in (first, second)}
            ahead = metric.sign * (value[first] - value[second]) >= 0
            better, worse = (first, second) if ahead else (second, first)
            draws = metric.sign * (judged.draws[better, metric.name] - judged.draws[worse, metric.name])
            found.append(
                (metric, better, worse, abs(value[first] - value[second]), draws[np.isfinite(draws)])
            )
    errors = np.array([draws.std(ddof=1) for *_, draws in found])
    advantages = np.array([advantage for *_, advantage, _ in found])
    p_values = 2.0 * ndtr(-_ratio(advantages, errors))
    adjusted = holm(p_values)
    z_needed = float(ndtri(1.0 - (1.0 - level) / (2.0 * len(found))) + ndtri(POWER))
    margin = float(ndtri((1.0 + level) / 2.0))
    result = []
    for number, (metric, better, worse, advantage, draws) in enumerate(found):
        lines = _lines(judged, metric, better, worse)
        range_low = least_value(lines, judged.gamma, level)
        is_sure = bool(adjusted[number] < 1.0 - level)
        decided = is_sure and range_low > 0
        error = float(errors[number])
        more = (z_needed * error / advantage) ** 2 if advantage > 0 else np.inf
        result.append(
            Difference(
                metric=metric.name,
                better=better,
                worse=worse,
                advantage=advantage,
                low=advantage - margin * error,
                high=advantage + margin * error,
                level=level,
                standard_error=error,
                probability=float(np.mean(draws > 0) + np.mean(draws == 0) / 2.0),
                p_value=float(p_values[number]),
                p_holm=float(adjusted[number]),
                gamma=judged.gamma,
                range_low=range_low,
                range_high=-least_value([line.negated() for line in lines], judged.gamma, level),
                survives=tipping_point(lines, level) if is_sure else 1.0,
                decided=decided,
                times_more_data=None if is_sure else more,
            )
        )
    return tuple(result)


def _lines(judged: Judged, metric: Metric, better: str, worse: str) -> list[Line]:
    """The advantage of one model over another, seed by seed."""
    mine, theirs = (judged.parts[name, metric.name] for name in (better, worse))
    return [
        Line.of(weighted, of.minus(other, metric.sign))
        for (weighted, of), (_, other) in zip(mine, theirs, strict=True)
    ]


def _ratio(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
    """top ÷ bottom; nothing ÷ nothing is 0, no evidence: equal models have the p-value 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((top == 0) & (bottom == 0), 0.0, top / bottom)
