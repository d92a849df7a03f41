"""Which candidate is shipped: by a random sample, helped by biased clicks as far as these deserve it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.errors import ParameterError
from unskew.metrics.paired_users import PairedUsers, paired_users
from unskew.seeds import stream
from unskew.training.ensemble import combined

Floats = NDArray[np.float64]

BASELINE = "naive"
"""What is shipped unless a candidate beats it."""
MEAN = "mean of candidates"
"""What is chosen where no candidate wins and their mean is ahead."""
DRAWS = 4000
"""Of the greatest z-value under no difference: a p-value of .05 is known to .003."""
FOLDS = 5
"""Parts of the sample's users on which the choice itself is judged."""
LEAST_CANDIDATES = 3
"""Candidates from which the bias of biased clicks is estimated; with fewer they do not count."""
LEAST_OF_EACH = 30
"""Converted, and unconverted, pairs of a sample that may decide: with fewer, standard errors of an AUC are
too small, and p-values with them."""
LEAST_OF_MEAN = 10
"""The same for the mean of candidates. It is one model, known before the sample is looked at but for those
that are clearly worse, so that it need only be ahead; and a mean of ensembles has most of what the best of
them have to give, and loses little where they are alike (``docs/choosing.md``)."""
CANNOT_DECIDE = (
    "Biased clicks cannot decide which model is better, since people clicked what they liked for reasons that"
    " no column holds; a random sample can: `unskew plan-random` says how large."
)


@dataclass(frozen=True)
class ClickEvidence:
    """How far a candidate is ahead of the baseline by biased clicks; the range is over Γ, sampling included.

    Attributes
    ----------
    advantage, standard_error
        Above 0 the candidate is ahead.
    range_low, range_high
        Where the advantage lies if the odds of a click are within a factor Γ of the propensities'.
    """

    advantage: float
    standard_error: float
    range_low: float
    range_high: float


@dataclass(frozen=True)
class JudgedCandidate:
    """One candidate beside the baseline.

    Attributes
    ----------
    advantage, standard_error
        By the random sample; None without one.
    biased, biased_error, range_low, range_high
        By held-out clicks, weighted; None where they were not asked.
    weight
        What the sample counts for in ``combined``, from 0 to 1; the rest is the biased clicks'.
    combined, combined_error
        Both together.
    p_value
        One-sided, for "no better than the baseline", corrected for the number of candidates.
    rejected
        Whether it is clearly worse: by the sample, or by biased clicks whatever Γ allows.
    """

    name: str
    advantage: float | None
    standard_error: float | None
    biased: float | None
    biased_error: float | None
    range_low: float | None
    range_high: float | None
    weight: float | None
    combined: float | None
    combined_error: float | None
    p_value: float | None
    rejected: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Decision:
    """What is shipped, and why.

    Attributes
    ----------
    chosen
        The baseline, a candidate that beats it beyond noise, or :data:`MEAN`.
    shipped
        The names of those whose mean logit is shipped: the one that is chosen; of :data:`MEAN` the baseline
        and all candidates that are not rejected.
    mean_advantage, mean_error
        By how much that mean is ahead on the sample, and its standard error; None without a sample, and where
        all candidates are rejected.
    rows, users
        Of the random sample; 0 without one.
    bias
        How far the advantages of biased clicks are off, beyond noise: the root of the mean square over
        candidates, with its standard error added; None where it was not estimated.
    cross_validated
        By how much what is chosen on four fifths of the sample's users is ahead on the others, on average:
        what the whole choice is worth, without the luck of the winner. None without a sample.
    sentence
        The decision in one sentence.
    """

    chosen: str
    shipped: tuple[str, ...]
    baseline: str
    criterion: str
    level: float
    rows: int
    users: int
    judged: tuple[JudgedCandidate, ...]
    bias: float | None
    cross_validated: float | None
    mean_advantage: float | None
    mean_error: float | None
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "judged": [each.to_dict() for each in self.judged]}


@dataclass(frozen=True, eq=False)
class RandomSample:
    """A random sample: the user and the outcome of each row, and predictions ``[seeds, n]`` by candidate."""

    user: NDArray[Any]
    outcome: Floats
    predictions: Mapping[str, Floats]

    def take(self, rows: NDArray[np.bool_]) -> RandomSample:
        """Some of the rows."""
        kept = {name: lines[:, rows] for name, lines in self.predictions.items()}
        return RandomSample(self.user[rows], self.outcome[rows], kept)


def decide(
    sample: RandomSample | None,
    evidence: Mapping[str, ClickEvidence] | None = None,
    *,
    candidates: tuple[str, ...] = (),
    baseline: str = BASELINE,
    criterion: str = "auc",
    level: float = 0.95,
    seed: int = 0,
) -> Decision:
    r"""Choose among candidates, and ship the baseline unless one beats it beyond noise.

    With a random sample, candidate c is ahead of the baseline by s_c ± σ_c (paired, by user), and by b_c ±
    τ_c according to held-out biased clicks. How far these are off is estimated over the candidates, and
    decides how much they count:

    .. math::
        \beta^2 = \max\Bigl(0, \overline{(s_c - b_c)^2 - \sigma_c^2 - \tau_c^2}\Bigr) + \mathrm{se}, \qquad
        w_c = \frac{\tau_c^2 + \beta^2}{\sigma_c^2 + \tau_c^2 + \beta^2}, \qquad
        d_c = w_c s_c + (1 - w_c) b_c

    Where clicks rank candidates as the sample does, β is small and the error of d_c is below σ_c; where they
    mislead, β is large and w_c near 1. No candidate was trained on the sample, so that all of it judges. The
    winner has the greatest d_c of those whose p-value is below 1 − ``level``; p-values are corrected for the
    number of candidates by the distribution of the greatest z-value under no difference (users' influences
    with random signs and sizes, so that candidates that are alike count as one). Where none is beyond noise,
    the mean logit of the baseline and all candidates that are not clearly worse is shipped, if it is ahead of
    the baseline on the sample; otherwise the baseline. A sample with fewer than 10 converted or unconverted
    pairs decides nothing. One with fewer than 30 has no winner, nor has one on which the choice does not hold
    up: what is chosen on four fifths of its users must not be worse on the others, on average.

    Without a sample no candidate wins. Biased clicks reject those that are worse whatever Γ allows.

    Parameters
    ----------
    sample
        None where there is no random sample.
    evidence
        By candidate, what biased clicks say.
    candidates
        Names, where there is no sample to list them.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> rate = random.random(4000) / 2
    >>> outcome = (random.random(4000) < rate).astype(float)
    >>> sample = RandomSample(
    ...     np.repeat(np.arange(800), 5), outcome, {"naive": random.random((1, 4000)), "ips": rate[None]}
    ... )
    >>> decide(sample).chosen, decide(None, candidates=("naive", "ips")).chosen
    ('ips', 'naive')
    """
    names = tuple(sample.predictions) if sample is not None else candidates
    if baseline not in names:
        raise ParameterError(f"the baseline {baseline!r} is no candidate", remedy="add it to the candidates")
    others = [name for name in names if name != baseline]
    of_clicks = dict(evidence or {})
    if sample is None:
        judged = tuple(_by_clicks_alone(name, of_clicks.get(name)) for name in others)
        rejected = sum(each.rejected for each in judged)
        sentence = f"The {baseline} model is shipped: there is no random sample. {CANNOT_DECIDE}"
        if rejected:
            sentence += f" {rejected} of {len(others)} candidates are worse whatever Γ allows."
        nothing = (None, None, None, None)
        return Decision(baseline, (baseline,), baseline, criterion, level, 0, 0, judged, *nothing, sentence)
    judged, bias = _judged(sample, of_clicks, others, baseline, criterion, level, seed)
    worth = _cross_validated(sample, of_clicks, others, baseline, criterion, level, seed)
    fewest = int(min((sample.outcome == label).sum() for label in (0, 1)))
    winner = _winner(judged, level) if fewest >= LEAST_OF_EACH else None
    names = (baseline, *(each.name for each in judged if not each.rejected))
    mean = _mean_paired(sample, names, baseline, criterion) if len(names) > 1 else None
    lucky = winner is not None and worth is not None and worth < 0
    if lucky:
        winner = None
    chosen = baseline if winner is None else winner.name
    if winner is None and mean is not None and mean.advantage > 0 and fewest >= LEAST_OF_MEAN:
        chosen = MEAN
    return Decision(
        chosen=chosen,
        shipped=names if chosen == MEAN else (chosen,),
        baseline=baseline,
        criterion=criterion,
        level=level,
        rows=len(sample.user),
        users=len(np.unique(sample.user)),
        judged=judged,
        bias=bias,
        cross_validated=worth,
        mean_advantage=None if mean is None else mean.advantage,
        mean_error=None if mean is None else mean.standard_error,
        sentence=_sentence(
            judged, winner, mean, len(names), baseline, criterion, len(sample.user), fewest, lucky
        ),
    )


def _mean_paired(sample: RandomSample, names: tuple[str, ...], baseline: str, criterion: str) -> PairedUsers:
    """The mean logit of some candidates against the baseline."""
    mean = combined(np.stack([sample.predictions[name] for name in names], axis=1))
    both = {MEAN: mean, baseline: sample.predictions[baseline]}
    return mean_paired(replace(sample, predictions=both), MEAN, baseline, criterion)


def mean_paired(sample: RandomSample, name: str, baseline: str, criterion: str) -> PairedUsers:
    """A candidate against the baseline on the sample, averaged over seeds."""
    pairs = zip(sample.predictions[name], sample.predictions[baseline], strict=True)
    found = [
        paired_users(criterion, user=sample.user, outcome=sample.outcome, first=first, second=second)
        for first, second in pairs
    ]
    influence = np.mean([each.influence for each in found], axis=0)
    advantage = float(np.mean([each.advantage for each in found]))
    return PairedUsers(criterion, advantage, influence, found[0].rows)


def _by_clicks_alone(name: str, of_clicks: ClickEvidence | None) -> JudgedCandidate:
    nothing: dict[str, Any] = dict.fromkeys(
        ("advantage", "standard_error", "weight", "combined", "combined_error", "p_value")
    )
    if of_clicks is None:
        unasked = dict.fromkeys(("biased", "biased_error", "range_low", "range_high"))
        return JudgedCandidate(name=name, **nothing, **unasked, rejected=False)
    return JudgedCandidate(
        name=name,
        **nothing,
        biased=of_clicks.advantage,
        biased_error=of_clicks.standard_error,
        range_low=of_clicks.range_low,
        range_high=of_clicks.range_high,
        rejected=of_clicks.range_high < 0,
    )


def _judged(
    sample: RandomSample,
    of_clicks: Mapping[str, ClickEvidence],
    others: list[str],
    baseline: str,
    criterion: str,
    level: float,
    seed: int,
) -> tuple[tuple[JudgedCandidate, ...], float | None]:
    """Every candidate, and the bias of biased clicks."""
    paired = {name: mean_paired(sample, name, baseline, criterion) for name in others}
    bias = _bias(paired, of_clicks)
    parts = {name: _combined(paired[name], of_clicks.get(name), bias) for name in others}
    p_values = _corrected(paired, parts, seed)
    judged = []
    for name in others:
        weight, combined, error = parts[name]
        clicks = of_clicks.get(name)
        judged.append(
            JudgedCandidate(
                name=name,
                advantage=paired[name].advantage,
                standard_error=paired[name].standard_error,
                biased=None if clicks is None else clicks.advantage,
                biased_error=None if clicks is None else clicks.standard_error,
                range_low=None if clicks is None else clicks.range_low,
                range_high=None if clicks is None else clicks.range_high,
                weight=weight,
                combined=combined,
                combined_error=error,
                p_value=p_values[name],
                rejected=error > 0 and combined / error < -1.96,
            )
        )
    return tuple(judged), None if bias is None else math.sqrt(bias)


def _bias(paired: Mapping[str, PairedUsers], of_clicks: Mapping[str, ClickEvidence]) -> float | None:
    """β²: the mean square by which clicks are off beyond noise, with its standard error added."""
    beyond = [
        (each.advantage - of_clicks[name].advantage) ** 2
        - each.standard_error**2
        - of_clicks[name].standard_error ** 2
        for name, each in paired.items()
        if name in of_clicks and each.standard_error > 0
    ]
    if len(beyond) < LEAST_CANDIDATES:
        return None
    return max(0.0, float(np.mean(beyond))) + float(np.std(beyond, ddof=1)) / math.sqrt(len(beyond))


def _combined(
    paired: PairedUsers, clicks: ClickEvidence | None, bias: float | None
) -> tuple[float, float, float]:
    """The weight of the sample, the combined advantage and its standard error."""
    variance = paired.standard_error**2
    if clicks is None or bias is None or not variance > 0:
        return 1.0, paired.advantage, paired.standard_error
    of_clicks = clicks.standard_error**2 + bias
    weight = of_clicks / (variance + of_clicks)
    combined = weight * paired.advantage + (1.0 - weight) * clicks.advantage
    return weight, combined, math.sqrt(weight * variance)


def _corrected(
    paired: Mapping[str, PairedUsers], parts: Mapping[str, tuple[float, float, float]], seed: int
) -> dict[str, float]:
    """p-values from the distribution of the greatest z-value of all candidates under no difference."""
    names = [name for name in paired if parts[name][2] > 0]
    found = dict.fromkeys(paired, 1.0)
    if not names:
        return found
    influence = np.stack([paired[name].influence / paired[name].sigma for name in names])
    users = influence.shape[1]
    random = np.random.default_rng(stream(seed, "greatest of candidates"))
    greatest = np.empty(DRAWS)
    # In blocks, so that a large sample does not take memory in proportion to the draws.
    for block in np.array_split(np.arange(DRAWS), max(1, DRAWS * users // 10**7)):
        signs = random.standard_normal((len(block), users))
        greatest[block] = (signs @ influence.T / math.sqrt(users)).max(axis=1)
    for name in names:
        z = parts[name][1] / parts[name][2]
        found[name] = float((1 + (greatest >= z).sum()) / (1 + DRAWS))
    return found


def _winner(judged: tuple[JudgedCandidate, ...], level: float) -> JudgedCandidate | None:
    ahead = [each for each in judged if each.p_value is not None and each.p_value < 1.0 - level]
    return max(ahead, key=lambda each: each.combined or 0.0, default=None)


def _cross_validated(
    sample: RandomSample,
    of_clicks: Mapping[str, ClickEvidence],
    others: list[str],
    baseline: str,
    criterion: str,
    level: float,
    seed: int,
) -> float | None:
    """What is chosen without a part of the users, judged on that part; 0 where the baseline is chosen."""
    users, code = np.unique(sample.user, return_inverse=True)
    if len(users) < 2 * FOLDS or not others:
        return None
    fold = np.random.default_rng(stream(seed, "folds of the sample")).permutation(len(users)) % FOLDS
    total = 0.0
    for part in range(FOLDS):
        held = (fold == part)[code]
        if any(len(np.unique(sample.outcome[rows])) < 2 for rows in (held, ~held)):
            return None
        judged, _ = _judged(sample.take(~held), of_clicks, others, baseline, criterion, level, seed)
        winner = _winner(judged, level)
        if winner is not None:
            total += mean_paired(sample.take(held), winner.name, baseline, criterion).advantage / FOLDS
    return total


def _sentence(
    judged: tuple[JudgedCandidate, ...],
    winner: JudgedCandidate | None,
    mean: PairedUsers | None,
    averaged: int,
    baseline: str,
    criterion: str,
    rows: int,
    fewest: int,
    lucky: bool,
) -> str:
    if not judged:
        return f"The {baseline} model is shipped: it is the only candidate."
    on = f"on a random sample of {rows:,} pairs"
    many = f"{len(judged)} candidate{'' if len(judged) == 1 else 's'}"
    if fewest < LEAST_OF_MEAN:
        return (
            f"The {baseline} model is shipped: a random sample of {rows:,} pairs, {fewest} of them of one"
            f" outcome, is too small to choose on (at least {LEAST_OF_MEAN} converted and unconverted ones)."
            " `unskew plan-random` says how many random pairs would decide."
        )
    if winner is not None:
        return (
            f"{winner.name} is shipped: of {many} it is ahead of the {baseline} model in {criterion} {on} by"
            f" {winner.combined:+.4f} ± {winner.combined_error:.4f} (p = {winner.p_value:.2g}, corrected)."
        )
    best = max(judged, key=lambda each: each.combined or 0.0)
    why = f"none of {many} beats the {baseline} model beyond noise in {criterion} {on}"
    if lucky:
        why = f"what is chosen on a part of a random sample of {rows:,} pairs is worse on the rest"
    elif fewest < LEAST_OF_EACH:
        why = f"of a random sample of {rows:,} pairs {fewest} of one outcome are too few to be sure of one"
    ahead = (
        f"the best, {best.name}, is ahead by {best.combined:+.4f} ± {best.combined_error:.4f}"
        f" (p = {best.p_value:.2g}, corrected). `unskew plan-random` says how many random pairs would decide."
    )
    if mean is None:
        return f"The {baseline} model is shipped: {why}, and all are clearly worse; {ahead}"
    of_mean = f"{mean.advantage:+.4f} ± {mean.standard_error:.4f}"
    if mean.advantage > 0:
        return (
            f"The mean of {averaged} models, {baseline} and the candidates that are not clearly worse, is"
            f" shipped: {why}, and their mean is ahead by {of_mean}; {ahead}"
        )
    return f"The {baseline} model is shipped: {why}, and their mean is not ahead ({of_mean}); {ahead}"
