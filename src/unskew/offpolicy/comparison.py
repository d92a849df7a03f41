"""Which model is better, by how much and how surely, from clicks that trained none of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from unskew.base.errors import ParameterError
from unskew.base.notebook import ShowsItself
from unskew.data import Log
from unskew.metrics.judgement import (
    FEW_EFFECTIVE_ROWS,
    LEAST_POWER,
    MOST_TIMES_DATA,
    UNBALANCED,
    WEIGHT_CHECK_TOLERANCE,
    judge_estimate,
)
from unskew.metrics.significance import holm
from unskew.metrics.sketch_grid import DEFAULT_RESAMPLES
from unskew.metrics.weights import Clip
from unskew.offpolicy.covariates import NOT_FEATURES, PREDICTION, Balance
from unskew.offpolicy.estimates import DEFAULT_SLATE, OffPolicyEstimate, PairedEstimates, judge
from unskew.offpolicy.inputs import (
    DEFAULT_METRICS,
    METRICS_OF_SHOWN_ROWS,
    Estimator,
    HeldOutRows,
    OffPolicyMetric,
    estimator_for,
    metrics_of,
)
from unskew.offpolicy.sensitivity import MOST_GAMMA, Line, least_value, tipping_point
from unskew.report.numbers import counted
from unskew.report.table import Table, markdown_of, text_of

Floats = NDArray[np.float64]

BALANCE_TITLE = "Held-out clicks against the unseen pairs, differences of means in standard deviations"
BALANCE_COLUMNS = ("covariate", "clicks", "weighted", "balanced", "weights off by")
SHOWN_FEATURES = 5
"""Features that the table of balance shows, the worst; all are in JSON."""


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
        low, high, advantage = map(_number, (self.low, self.high, self.advantage))
        interval = f"{100 * self.level:g} % {low} to {high}"
        off = f"the propensities are off by {_gamma(self.gamma)}"
        if self.decided:
            return (
                f"{self.better} is better than {self.worse} by {advantage} {self.metric} ({interval};"
                f" it holds up to Γ = {_gamma(self.survives)}, and {off})."
            )
        opening = f"{self.metric}: the data cannot tell {self.better} from {self.worse}"
        if self.times_more_data is None:
            return (
                f"{opening}: {advantage} ({interval}) holds only up to Γ = {_gamma(self.survives)}, and"
                f" {off}; better propensities are needed, not more clicks."
            )
        why = (
            f"the interval of the difference, {low} to {high}, includes 0"
            if self.low <= 0
            else f"{advantage} ({interval}) is not enough among this many comparisons"
        )
        times = self.times_more_data
        more = (
            f"even {MOST_TIMES_DATA:.0f} times as many clicks would hardly settle so small a difference"
            if times > MOST_TIMES_DATA
            else f"about {times:.{int(times < 10)}f} times as many clicks would be needed"
        )
        return f"{opening}: {why}; {more}."

    def to_dict(self) -> dict[str, Any]:
        """Return plain values and the verdict in words, for JSON."""
        return {**asdict(self), "verdict": str(self)}


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(ShowsItself):
    """The result of :func:`compare`; ``print`` it, or read its parts.

    Attributes
    ----------
    estimates
        By model and metric.
    differences
        Of every pair of models, or of every model and the baseline, in every metric.
    gamma
        Γ: how far the odds of a click may be from those of the propensities; measured, or as given.
    balance
        Held-out clicks against the unseen pairs, by covariate.
    notes
        Why to be careful with these numbers, if there is a reason.
    """

    estimator: Estimator
    level: float
    resamples: int
    seeds: tuple[int, ...]
    estimates: Mapping[str, Mapping[str, OffPolicyEstimate]]
    differences: tuple[Difference, ...]
    gamma: float
    balance: tuple[Balance, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return text_of(self.tables(), [*self.verdicts, *(f"Note: {note}" for note in self.notes)])

    @property
    def verdicts(self) -> list[str]:
        """One sentence for each difference."""
        return [str(difference) for difference in self.differences]

    def to_markdown(self) -> str:
        """Return the tables, the verdicts and the notes in Markdown."""
        return markdown_of(self.tables(), [*self.verdicts, *(f"Note: {note}" for note in self.notes)])

    def tables(self) -> list[Table]:
        """Return the estimates by metric and model with their intervals, and the balance if there is one."""
        some = next(iter(next(iter(self.estimates.values())).values()))
        title = (
            f"Off-policy estimates ({self.estimator}) from {some.rows:,} held-out clicks of"
            f" {counted(len(self.seeds), 'seed')}, effectively {some.ess:,.0f}: {100 * self.level:g} %"
            f" intervals, and ranges for propensities whose odds are off by Γ = {_gamma(self.gamma)}"
        )
        rows = [
            (metric, *(by_metric[metric].in_cell for by_metric in self.estimates.values()))
            for metric in next(iter(self.estimates.values()))
        ]
        balance = [Table(BALANCE_TITLE, BALANCE_COLUMNS, self._balance_rows())] if self.balance else []
        return [Table(title, ("metric", *self.estimates), rows), *balance]

    def _balance_rows(self) -> list[tuple[str, ...]]:
        """Return what weights are balanced by first, and the features furthest off."""
        first = [row for row in self.balance if row.covariate in NOT_FEATURES]
        features = [row for row in self.balance if row.covariate not in NOT_FEATURES]
        worst = sorted(features, key=lambda row: -abs(row.weighted))[:SHOWN_FEATURES]
        return [
            (
                row.covariate,
                *map("{:+.2f}".format, (row.clicks, row.weighted, row.balanced)),
                f"{math.exp(row.spread):.2f}",
            )
            for row in (*first, *worst)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        names = ("estimator", "level", "resamples", "gamma")
        return {
            **{name: getattr(self, name) for name in names},
            "seeds": list(self.seeds),
            "estimates": {
                name: {metric: estimate.to_dict() for metric, estimate in by_metric.items()}
                for name, by_metric in self.estimates.items()
            },
            "differences": [difference.to_dict() for difference in self.differences],
            "balance": [balance.to_dict() for balance in self.balance],
            "notes": list(self.notes),
        }


def compare(
    models: Mapping[str, Any],
    log: Log,
    *,
    propensity: Any,
    estimator: Estimator = "balanced",
    metrics: Sequence[str] | None = None,
    baseline: str | None = None,
    held_out: HeldOutRows = "validation",
    imputation: Any = None,
    p_min: Clip = "auto",
    slate: int = DEFAULT_SLATE,
    gamma: float | None = None,
    resamples: int = DEFAULT_RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    r"""Say which model is better, by how much and how surely, or that the data cannot tell.

    .. math::
        d = \pm(\hat M_a - \hat M_b), \qquad
        d \pm z_{(1 + level)/2} \, s, \qquad
        s^2 = \mathrm{Var}_{users}(d)

    Both models are estimated on the same held-out clicks with the same weights, and s is the spread of d when
    users are resampled, so that what is common to both cancels. A difference is called decided if

    * its p-value, corrected by Holm over all pairs of models and all metrics, is below 1 − level, and
    * it survives Γ: with any odds of a click within a factor Γ of the propensities' it stays above 0, at
      the same level (:mod:`unskew.offpolicy.sensitivity`). Γ is measured: what the propensities are off by
      along users, items, features and predictions (:func:`unskew.offpolicy.estimates.judge`).

    Otherwise the verdict says what is missing: data, and how much more of them, or propensities.

    The verdict is about these trained models, on the users and items of this log. The held-out clicks also
    chose each model's epoch, so the values themselves are a little flattering; hold out rows of your own
    (``held_out=``) where that matters.

    Parameters
    ----------
    models
        By name; fitted with the same seeds, members, kind of ensemble and ``validation_share`` on ``log``,
        so that they held out the same rows. With ``held_out`` given, anything that
        :func:`off_policy_estimates` takes.
    metrics
        By default ``nll``, ``auc``, ``dcg@4`` and ``hits@4``, without ``nll`` if a model does not predict
        rates, and without the last two on a log with known propensities, which lists no pairs to rank among.
    baseline
        Compare every model with this one instead of every pair.
    imputation
        For ``"dr"``; by default the mean prediction of the models.
    log, propensity, estimator, held_out, p_min, slate, gamma, resamples, level, seed
        As in :func:`off_policy_estimates`.

    Examples
    --------
    >>> import numpy as np, unskew as us
    >>> data = us.load("synthetic")
    >>> truth = data.truth
    >>> found = us.compare(
    ...     {"true rates": truth.conversion, "one rate": np.full_like(truth.conversion, 0.3)},
    ...     data.train, propensity=truth.propensity, held_out="all", metrics=["nll"],
    ... )
    >>> best = found.differences[0]
    >>> best.better, best.decided, round(best.advantage, 2)
    ('true rates', True, 0.15)
    """
    if len(models) < 2:
        raise ParameterError(f"{len(models)} model(s) cannot be compared", remedy="give at least two")
    if baseline is not None and baseline not in models:
        raise ParameterError(
            f"the baseline {baseline!r} is none of the models", remedy=f"use one of {', '.join(models)}"
        )
    wanted = _metrics(models, log, metrics)
    estimator = estimator_for(log, estimator, metrics_of(wanted))
    options = (held_out, imputation, p_min, slate, gamma, resamples, level, seed)
    judged = judge(models, log, propensity, estimator, wanted, *options)
    names = list(models)
    pairs = (
        [(a, b) for number, a in enumerate(names) for b in names[number + 1 :]]
        if baseline is None
        else [(name, baseline) for name in names if name != baseline]
    )
    return Comparison(
        estimator=estimator,
        level=level,
        resamples=resamples,
        seeds=judged.seeds,
        estimates=judged.estimates,
        differences=_differences(judged, pairs, level),
        gamma=judged.gamma,
        balance=judged.balance,
        notes=_notes(judged, estimator, log),
    )


def _metrics(models: Mapping[str, Any], log: Log, metrics: Sequence[str] | None) -> Sequence[str]:
    scorers = [name for name, model in models.items() if not getattr(model, "predicts_rates", True)]
    if metrics is None:
        possible = DEFAULT_METRICS if log.known_propensity is None else METRICS_OF_SHOWN_ROWS
        return [name for name in possible if name != "nll" or not scorers]
    if "nll" in metrics and scorers:
        raise ParameterError(
            f"{', '.join(scorers)} does not predict rates, so its nll says nothing",
            remedy="compare by auc, dcg@K or hits@K",
        )
    return metrics


def _notes(judged: PairedEstimates, estimator: Estimator, log: Log) -> tuple[str, ...]:
    any_estimate = next(iter(next(iter(judged.estimates.values())).values()))
    notes = []
    members = len(next(iter(judged.parts.values()))) // len(judged.seeds)
    if members > 1:
        notes.append(
            f"Each of the {members} members of a seed is judged on the clicks that it held out, and figures"
            " are those of a member on average: their mean, which is shipped, has seen what one of them held"
            " out, and is as a rule a little better."
        )
    if log.known_propensity is not None:
        notes.append(
            "The propensities are known probabilities of showing: they are used as they are, and no model of"
            f" them is refitted or balanced. Held-out rows stand for their {log.actions} actions each, as if"
            " shown at random."
        )
    if any_estimate.ess < FEW_EFFECTIVE_ROWS:
        notes.append(
            f"The weights leave an effective sample of {any_estimate.ess:.0f} of {any_estimate.rows:,}"
            " held-out clicks: intervals are rough. A larger p_min trades variance for bias."
        )
    if abs(any_estimate.weight_check - 1.0) > WEIGHT_CHECK_TOLERANCE:
        population = "the unseen pairs" if log.known_propensity is None else "rows × actions"
        tail = "" if estimator == "snips" else "; snips does not mind their scale"
        notes.append(
            f"The weights add up to {any_estimate.weight_check:.2f} times {population} instead of 1: the"
            f" propensities are not honest on these clicks, or clipped{tail}."
        )
    if log.known_propensity is not None:
        return tuple(notes)
    worst = max(judged.balance, key=lambda each: abs(each.weighted))
    if abs(worst.weighted) > UNBALANCED:
        then = f"{worst.balanced:+.2f} once balanced" if estimator == "balanced" else "which they keep"
        notes.append(
            f"The propensities' weights leave {worst.covariate} {worst.weighted:+.2f} standard deviations"
            f" from the unseen pairs, {then}: they miss what makes people click."
        )
    if not any(each.covariate == PREDICTION for each in judged.balance):
        notes.append(
            "Scores of clicked rows alone: weights could not be checked against predictions of the unseen"
            " pairs. A model, or an array [users, items], tells more."
        )
    return tuple(notes)


def _differences(
    judged: PairedEstimates, pairs: Sequence[tuple[str, str]], level: float
) -> tuple[Difference, ...]:
    """Return how each pair of models differs in each metric, with Holm's correction over all."""
    metrics = [OffPolicyMetric.of(name) for name in next(iter(judged.estimates.values()))]
    compared = [(metric, *pair) for metric in metrics for pair in pairs]
    ahead: list[tuple[OffPolicyMetric, str, str, float, Floats]] = []
    for metric, first, second in compared:
        by_how_much = metric.sign * (
            judged.estimates[first][metric.name].value - judged.estimates[second][metric.name].value
        )
        better, worse = (first, second) if by_how_much >= 0 else (second, first)
        draws = metric.sign * (judged.draws[better, metric.name] - judged.draws[worse, metric.name])
        ahead.append((metric, better, worse, abs(by_how_much), draws))
    errors = np.array([draws.std(ddof=1) for *_, draws in ahead])
    advantages = np.array([advantage for *_, advantage, _ in ahead])
    with np.errstate(divide="ignore", invalid="ignore"):
        # Nothing ÷ nothing is no evidence: equal models have the p-value 1.
        ratio = np.where((advantages == 0) & (errors == 0), 0.0, advantages / errors)
    p_values = 2.0 * ndtr(-ratio)
    adjusted = holm(p_values)
    z_needed = float(ndtri(1.0 - (1.0 - level) / (2.0 * len(ahead))) + ndtri(LEAST_POWER))
    margin = float(ndtri((1.0 + level) / 2.0))
    result = []
    for (metric, better, worse, advantage, draws), error, p_value, p_holm in zip(
        ahead, errors.tolist(), p_values.tolist(), adjusted.tolist(), strict=True
    ):
        of_both = zip(*(judged.parts[name, metric.name] for name in (better, worse)), strict=True)
        lines = [
            Line.of(weighted, added.minus(other, metric.sign)) for (weighted, added), (_, other) in of_both
        ]
        range_low = least_value(lines, judged.gamma, level)
        verdict = judge_estimate(p_holm, level, range_low)
        is_sure = verdict.reason != "too few rows"
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
                p_value=p_value,
                p_holm=p_holm,
                gamma=judged.gamma,
                range_low=range_low,
                range_high=-least_value([line.negated() for line in lines], judged.gamma, level),
                survives=tipping_point(lines, level) if is_sure else 1.0,
                decided=verdict.level == "good",
                times_more_data=None if is_sure else more,
            )
        )
    return tuple(result)


def _gamma(value: float) -> str:
    return f"{value:g} and more" if value >= MOST_GAMMA else f"{value:.2f}"


def _number(value: float) -> str:
    """Return a number with four places, or with three figures where it is smaller."""
    return f"{value:.4f}" if abs(value) >= 0.001 or value == 0 else f"{value:.2g}"
