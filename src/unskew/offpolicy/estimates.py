"""A model's metrics as a random test set would show them, estimated from clicks that trained nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from unskew.base.errors import DataError
from unskew.base.seeds import stream
from unskew.data import Log
from unskew.metrics.sketch_grid import DEFAULT_RESAMPLES
from unskew.metrics.weights import Clip
from unskew.offpolicy.covariates import Balance
from unskew.offpolicy.evidence import evidence_of
from unskew.offpolicy.inputs import (
    DEFAULT_METRICS,
    Estimator,
    HeldOutRows,
    check_options,
    estimator_for,
    metrics_of,
    scores_of,
    seeds_and_rows,
)
from unskew.offpolicy.sensitivity import Line, least_value
from unskew.offpolicy.statistics import contribution_of
from unskew.offpolicy.weighing import Contribution, Kind, Weighted, weigh
from unskew.propensity.given import given_propensities

Floats = NDArray[np.float64]

DEFAULT_SLATE = 16
"""Items shown at random to each user of Coat's test set, and of the synthetic one."""


@dataclass(frozen=True)
class OffPolicyEstimate:
    """One metric of one model, as a random test set of unseen pairs would show it.

    Attributes
    ----------
    value
        The estimate, averaged over the model's seeds.
    low, high
        The interval at ``level``, from a bootstrap over users.
    gamma, range_low, range_high
        Where the metric lies if the odds of a click are within a factor Γ of the propensities', sampling
        included.
    standard_error
        The standard deviation of the resamples.
    seeds
        The estimate of each seed.
    rows
        Held-out clicks of each seed, those of all its members.
    users
        Users that were resampled.
    ess
        Effective sample size of the weights, (Σw)² / Σw², averaged over seeds; members' own clicks add up.
    weight_check
        Σw over the number of unseen pairs, averaged over seeds: 1 for honest propensities.
    """

    metric: str
    estimator: Estimator
    value: float
    low: float
    high: float
    level: float
    gamma: float
    range_low: float
    range_high: float
    standard_error: float
    seeds: tuple[float, ...]
    rows: int
    users: int
    ess: float
    weight_check: float

    def __str__(self) -> str:
        return f"{self.metric} {self.value:.4f} ({100 * self.level:g} % {self.low:.4f} to {self.high:.4f})"

    @property
    def in_cell(self) -> str:
        """The estimate, its interval and its range, as tables show them."""
        return (
            f"{self.value:.4f} ({self.low:.4f} to {self.high:.4f})"
            f" [{self.range_low:.3f} to {self.range_high:.3f}]"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**asdict(self), "seeds": list(self.seeds)}


@dataclass(frozen=True, eq=False)
class PairedEstimates:
    """Estimates of several models on the same rows, and their resamples ``[resamples]``, paired.

    ``parts`` has, for each model and metric, the weighted clicks of each seed and what they add to it.
    """

    seeds: tuple[int, ...]
    estimates: Mapping[str, Mapping[str, OffPolicyEstimate]]
    draws: Mapping[tuple[str, str], Floats]
    parts: Mapping[tuple[str, str], tuple[tuple[Weighted, Contribution], ...]]
    balance: tuple[Balance, ...]
    gamma: float


def off_policy_estimates(
    model: Any,
    log: Log,
    *,
    propensity: Any,
    estimator: Estimator = "balanced",
    metrics: Sequence[str] = DEFAULT_METRICS,
    held_out: HeldOutRows = "validation",
    imputation: Any = None,
    p_min: Clip = "auto",
    slate: int = DEFAULT_SLATE,
    gamma: float | None = None,
    resamples: int = DEFAULT_RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, OffPolicyEstimate]:
    r"""Estimate what a random test set would say of a model, from held-out clicks alone.

    .. math::
        \hat M_{IPS} = \frac{1}{|D'|} \sum_V w x, \qquad
        \hat M_{SNIPS} = \frac{\sum_V w x}{\sum_V w}, \qquad
        \hat M_{DR} = \frac{1}{|D'|} \Bigl[ \sum_{D'} x(\tilde r) + \sum_V w (x(r) - x(\tilde r)) \Bigr]

    V are the held-out clicks, D′ the unseen pairs (all pairs but the clicks that trained the model), and
    w = 1 + (1 − p)/(s·p) the inverse chance of an unseen pair to be in V, with s the share of clicks that is
    held out. x is what a pair adds to the metric: its cross-entropy (``nll``), or its conversion times the
    expected gain on a random slate, summed over a user's pairs and averaged over all users (``dcg@K``,
    ``hits@K``; users without a conversion count 0, other than in :func:`unskew.evaluate`). The ``auc``
    weighs each pair of a converted and an unconverted click by both weights; it is a ratio anyway, so that
    ``"ips"`` and ``"snips"`` agree on it.

    ``"balanced"`` is SNIPS with weights that are tilted as little as it takes so that strata of users, items,
    features and predictions have the weight of their unseen pairs
    (:func:`unskew.offpolicy.weighing.balanced`).

    The interval is the estimate ± z standard errors of a bootstrap over users. With ``"balanced"`` the noise
    of refitting the propensities' level by stratum is in it; the others take propensities as true. What is
    left, and what no stratum tells, is the range: of all propensities whose odds are within a factor Γ of the
    given ones (Tan, 2006). No weight makes up for pairs that are never clicked.

    Parameters
    ----------
    model
        A fitted :class:`unskew.Debiaser`; or, with ``held_out``, anything with ``predict_each``, or
        probabilities as an array ``[users, items]`` or aligned with the log's rows.
    log
        The log that the model was trained on; with ``held_out="all"``, a new one.
    propensity
        As for :meth:`unskew.Debiaser.fit`. It should be out of fold, as a cross-fitted one is.
    estimator
        ``"balanced"`` mends the propensities as far as users, items, features and predictions tell;
        ``"snips"`` does not mind a wrong scale of them; ``"ips"`` is unbiased for true ones; ``"dr"`` is
        unbiased if they or the imputed conversions are right.
    held_out
        ``"validation"``: the rows that each seed of the model, or each of its members, held out to choose its
        epoch, and each is asked about its own; ``"all"``: no row
        of this log trained the model; or row numbers. The other clicks count as seen.
    imputation
        r̃ for ``"dr"``: a model, an array or one number; by default the model's own predictions.
    p_min
        Propensities below are raised to it; ``"auto"`` takes the clip with the least estimated error of the
        weights (:mod:`unskew.metrics.weights`), whatever the density.
    slate
        Items shown at random to each user in the test set that dcg@K and hits@K imagine.
    gamma
        Γ; by default measured, as in :func:`compare`. Give 1 for propensities that are known, not estimated:
        ``"balanced"`` then does not make up for a user's luck, which an estimate has in it too.
    resamples, level, seed
        Of the bootstrap.

    Examples
    --------
    >>> import unskew as us
    >>> data = us.load("synthetic")
    >>> found = us.off_policy_estimates(
    ...     data.truth.conversion, data.train, propensity=data.truth.propensity, held_out="all"
    ... )
    >>> print(found["nll"])
    nll 0.4604 (95 % 0.4373 to 0.4835)
    """
    judged = judge(
        {"model": model},
        *(
            log,
            propensity,
            estimator,
            metrics,
            held_out,
            imputation,
            p_min,
            slate,
            gamma,
            resamples,
            level,
            seed,
        ),
    )
    return dict(judged.estimates["model"])


def judge(
    models: Mapping[str, Any],
    log: Log,
    propensity: Any,
    estimator: Estimator,
    metrics: Sequence[str],
    held_out: HeldOutRows,
    imputation: Any,
    p_min: Clip,
    slate: int,
    gamma: float | None,
    resamples: int,
    level: float,
    seed: int,
) -> PairedEstimates:
    """Estimate every model on the same rows, candidates, imputation and resamples."""
    check_options(estimator=estimator, slate=slate, resamples=resamples, level=level, gamma=gamma)
    wanted = metrics_of(metrics)
    estimator = estimator_for(log, estimator, wanted)
    seeds, rows = seeds_and_rows(models, log, held_out)
    members = len(rows) // len(seeds)
    # More members than parts of the clicks hold out some parts twice.
    distinct = len(np.unique(rows[:members], axis=0))
    propensities = given_propensities(log, propensity, seeds, p_min).clicked.repeat(members, axis=0)
    of_lines = np.repeat(seeds, members).tolist()
    evidence = evidence_of(log, rows, propensities, seeds=of_lines, slate=slate, seed=seed)
    everywhere = estimator == "dr" or any(metric.ranks for metric in wanted)
    scores = {
        name: scores_of(model, evidence, log, seeds, name, everywhere=everywhere)
        for name, model in models.items()
    }
    imputed: Floats | None = None
    if estimator == "dr":
        # The models' own mean: it saw no held-out row either, and is the same for all.
        imputed = (
            np.mean(list(scores.values()), axis=0)
            if imputation is None
            else scores_of(imputation, evidence, log, seeds, "imputation", everywhere=True)
        )
    weights, balance = weigh(log, evidence, np.mean(list(scores.values()), axis=0), known=gamma == 1.0)
    # Γ = exp(τ), τ the greatest measured error of the weights over all covariates. What was measured, by
    # users, items, features and predictions, is taken as the size of what cannot be measured: a propensity
    # that is off by a factor along what is known is no better along what is not.
    measured = float(np.exp(max((each.spread for each in balance), default=0.0)))
    chosen = measured if gamma is None else gamma
    random = np.random.default_rng(stream(seed, "users"))
    groups = evidence.groups
    counts = random.multinomial(groups, np.full(groups, 1.0 / groups), size=resamples).astype(np.float64)
    parts: dict[tuple[str, str], tuple[tuple[Weighted, Contribution], ...]] = {}
    draws: dict[tuple[str, str], Floats] = {}
    estimates: dict[str, dict[str, OffPolicyEstimate]] = {name: {} for name in models}
    margin = float(ndtri((1.0 + level) / 2.0))
    for (name, lines), metric in product(scores.items(), wanted):
        key = name, metric.name
        kind: Kind = "balanced" if estimator == "balanced" else "plain"
        if estimator == "snips" or (estimator == "ips" and metric.kind == "auc"):
            # The AUC is a ratio under IPS too.
            kind = "normalised"
        parts[key] = tuple(
            (weighted, contribution_of(metric, lines, evidence, number, weighted, imputed, slate))
            for number, weighted in enumerate(weights[kind])
        )
        own = np.array([weighted.mean(added) for weighted, added in parts[key]]).reshape(len(seeds), members)
        if not np.isfinite(own).all():
            raise DataError(
                f"{metric.name} cannot be estimated from {evidence.rows} held-out clicks: one outcome is"
                " missing",
                remedy="hold out more clicks, or judge by fewer metrics",
            )
        influence = np.mean([weighted.influence(added) for weighted, added in parts[key]], axis=0)
        draws[key] = own.mean() + counts @ influence
        value, error, within = float(own.mean()), float(draws[key].std(ddof=1)), metric.within
        ranged = [Line.of(weighted, added) for weighted, added in parts[key]]
        estimates[name][metric.name] = OffPolicyEstimate(
            metric=metric.name,
            estimator=estimator,
            value=value,
            low=min(value, within(value - margin * error)),
            high=max(value, within(value + margin * error)),
            level=level,
            gamma=chosen,
            range_low=min(value, within(least_value(ranged, chosen, level))),
            range_high=max(value, within(-least_value([line.negated() for line in ranged], chosen, level))),
            standard_error=error,
            seeds=tuple(own.mean(axis=1).tolist()),
            rows=evidence.rows * distinct,
            users=evidence.users,
            ess=float(np.mean([atoms.effective_sample_size for atoms in evidence.seeds])) * distinct,
            weight_check=float(np.mean([atoms.weight_check for atoms in evidence.seeds])),
        )
    return PairedEstimates(seeds, estimates, draws, parts, balance, chosen)
