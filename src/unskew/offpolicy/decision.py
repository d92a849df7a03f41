"""Which candidate is shipped: by a random sample, helped by biased clicks as far as these deserve it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import ParameterError
from unskew.base.seeds import stream
from unskew.metrics.user_bootstrap import PairedUsers, paired_users
from unskew.training.fitted import combined

Floats = NDArray[np.float64]

BASELINE = "naive"
"""What is shipped unless a candidate beats it."""
MEAN = "mean of candidates"
"""What is chosen where the mean of several is shipped."""
FOLDS = 5
"""Parts of the sample's users on which the choice itself is judged."""
LEAST_CANDIDATES = 3
"""Candidates from which the bias of biased clicks is estimated; with fewer they do not count."""
LEAST_OF_EACH = 5
"""Converted, and unconverted, pairs of a sample that may decide."""
CLEARLY = 1.96
"""Standard errors by which a candidate is clearly worse, and that are taken off what a mean seems to gain by
leaving models out: with fewer a choice is now and then worse than the baseline (the page on choosing)."""
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
    rejected
        Whether it is clearly worse: by the sample, or by biased clicks whatever Γ allows.
    """

    name: str
    advantage: float | None = None
    standard_error: float | None = None
    biased: float | None = None
    biased_error: float | None = None
    range_low: float | None = None
    range_high: float | None = None
    weight: float | None = None
    combined: float | None = None
    combined_error: float | None = None
    rejected: bool = False

    @classmethod
    def by_clicks(cls, name: str, clicks: ClickEvidence | None) -> JudgedCandidate:
        """Return what biased clicks alone say: they reject what is worse whatever Γ allows."""
        if clicks is None:
            return cls(name)
        figures = (clicks.advantage, clicks.standard_error, clicks.range_low, clicks.range_high)
        return cls(name, None, None, *figures, rejected=clicks.range_high < 0)


@dataclass(frozen=True)
class Decision:
    """What is shipped, and why.

    Attributes
    ----------
    chosen
        The baseline, a candidate, or :data:`MEAN`.
    shipped
        The names of those whose mean logit is shipped.
    mean_advantage, mean_error
        By how much the mean of those that are best together is ahead of the baseline on the sample, and its
        standard error; None without a sample, and where only the baseline was left.
    rows, users
        Of the random sample; 0 without one.
    bias
        How far the advantages of biased clicks are off, beyond noise: the root of the mean square over
        candidates, with its standard error added; None where it was not estimated.
    cross_validated, cross_validated_error
        By how much the models chosen on four fifths of the users are ahead on the others, on average,
        and its standard error: what the whole choice is worth, without the luck of the winner. None without
        a sample, and with too few users.
    sentence
        The decision in one sentence.
    """

    chosen: str
    shipped: tuple[str, ...]
    baseline: str
    criterion: str
    rows: int
    users: int
    judged: tuple[JudgedCandidate, ...]
    sentence: str
    bias: float | None = None
    cross_validated: float | None = None
    cross_validated_error: float | None = None
    mean_advantage: float | None = None
    mean_error: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**asdict(self), "judged": [asdict(each) for each in self.judged]}


@dataclass(frozen=True, eq=False)
class RandomSample:
    """A random sample: the user and the outcome of each row, and predictions ``[seeds, n]`` by candidate."""

    user: NDArray[Any]
    outcome: Floats
    predictions: Mapping[str, Floats]

    def take(self, rows: NDArray[np.bool_]) -> RandomSample:
        """Return some of the rows."""
        kept = {name: lines[:, rows] for name, lines in self.predictions.items()}
        return RandomSample(self.user[rows], self.outcome[rows], kept)


def decide(
    sample: RandomSample | None,
    evidence: Mapping[str, ClickEvidence] | None = None,
    *,
    candidates: tuple[str, ...] = (),
    baseline: str = BASELINE,
    criterion: str = "auc",
    seed: int = 0,
) -> Decision:
    r"""Choose the models that are best together, and ship the baseline unless their mean is ahead of it.

    With a random sample, candidate c is ahead of the baseline by s_c ± σ_c (paired, by user), and by b_c ±
    τ_c according to held-out biased clicks. How far these are off is estimated over the candidates, and
    decides how much they count:

    .. math::
        \beta^2 = \max\Bigl(0, \overline{(s_c - b_c)^2 - \sigma_c^2 - \tau_c^2}\Bigr) + \mathrm{se}, \qquad
        w_c = \frac{\tau_c^2 + \beta^2}{\sigma_c^2 + \tau_c^2 + \beta^2}, \qquad
        d_c = w_c s_c + (1 - w_c) b_c

    Where clicks rank candidates as the sample does, β is small and the error of d_c is below σ_c; where they
    mislead, β is large and w_c near 1. No candidate was trained on the sample, so that all of it judges.

    Those that are clearly worse (d_c below −1.96 standard errors) are left out. Of the others and the
    baseline the mean logit is taken, and models are left out of it one by one, each time the one without
    which it is best on the sample. Of all these means the one is kept whose lead over the first, less 1.96
    standard errors, is greatest: few pairs keep nearly all models, many the best ones. It is shipped if it
    is ahead of the baseline on the sample. A sample with fewer than 5 converted or unconverted pairs decides
    nothing.

    Without a sample the baseline is shipped. Biased clicks reject those that are worse whatever Γ allows.

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
        judged = tuple(JudgedCandidate.by_clicks(name, of_clicks.get(name)) for name in others)
        rejected = sum(candidate.rejected for candidate in judged)
        sentence = f"The {baseline} model is shipped: there is no random sample. {CANNOT_DECIDE}"
        if rejected:
            sentence += f" {rejected} of {len(others)} candidates are worse whatever Γ allows."
        return Decision(baseline, (baseline,), baseline, criterion, 0, 0, judged, sentence)
    judged, bias = _judged(sample, of_clicks, others, baseline, criterion)
    fewest = int(min((sample.outcome == label).sum() for label in (0, 1)))
    kept = _best_together(sample, _not_rejected(judged, baseline), criterion)
    mean = _paired_means(sample, kept, (baseline,), criterion) if kept != (baseline,) else None
    ahead = fewest >= LEAST_OF_EACH and mean is not None and mean.advantage > 0
    shipped = kept if ahead else (baseline,)
    worth = _cross_validated(sample, of_clicks, others, baseline, criterion, seed)
    return Decision(
        chosen=MEAN if len(shipped) > 1 else shipped[0],
        shipped=shipped,
        baseline=baseline,
        criterion=criterion,
        rows=len(sample.user),
        users=len(np.unique(sample.user)),
        judged=judged,
        bias=bias,
        cross_validated=None if worth is None else worth[0],
        cross_validated_error=None if worth is None else worth[1],
        mean_advantage=None if mean is None else mean.advantage,
        mean_error=None if mean is None else mean.standard_error,
        sentence=_sentence(judged, shipped, mean, worth, baseline, criterion, len(sample.user), fewest),
    )


def _not_rejected(judged: tuple[JudgedCandidate, ...], baseline: str) -> tuple[str, ...]:
    return (baseline, *(each.name for each in judged if not each.rejected))


def _best_together(sample: RandomSample, names: tuple[str, ...], criterion: str) -> tuple[str, ...]:
    """Leave models out of a mean, the costliest first, and return those whose mean gains most surely."""
    best, most, left = names, 0.0, names
    while len(left) > 1:
        smaller = [tuple(other for other in left if other != name) for name in left]
        gains = [_paired_means(sample, each, names, criterion) for each in smaller]
        place = max(range(len(left)), key=lambda at: gains[at].advantage)
        left, gain = smaller[place], gains[place]
        surely = gain.advantage - CLEARLY * gain.standard_error
        if surely > most:
            best, most = left, surely
    return best


def _paired_means(
    sample: RandomSample, names: tuple[str, ...], others: tuple[str, ...], criterion: str
) -> PairedUsers:
    """Compare the mean logit of some models with that of others."""
    lines = {
        MEAN: combined(np.stack([sample.predictions[name] for name in names], axis=1)),
        BASELINE: combined(np.stack([sample.predictions[name] for name in others], axis=1)),
    }
    return mean_paired(replace(sample, predictions=lines), MEAN, BASELINE, criterion)


def mean_paired(sample: RandomSample, name: str, baseline: str, criterion: str) -> PairedUsers:
    """Compare a candidate with the baseline on the sample, averaged over seeds."""
    pairs = zip(sample.predictions[name], sample.predictions[baseline], strict=True)
    found = [
        paired_users(criterion, user=sample.user, outcome=sample.outcome, first=first, second=second)
        for first, second in pairs
    ]
    influence = np.mean([each.influence for each in found], axis=0)
    advantage = float(np.mean([each.advantage for each in found]))
    return PairedUsers(criterion, advantage, influence, found[0].rows)


def _judged(
    sample: RandomSample,
    of_clicks: Mapping[str, ClickEvidence],
    others: list[str],
    baseline: str,
    criterion: str,
) -> tuple[tuple[JudgedCandidate, ...], float | None]:
    """Judge every candidate, and estimate the bias of biased clicks."""
    paired = {name: mean_paired(sample, name, baseline, criterion) for name in others}
    bias = _bias(paired, of_clicks)
    judged = []
    for name, of_sample in paired.items():
        clicks = of_clicks.get(name)
        advantage, error = of_sample.advantage, of_sample.standard_error
        weight, combined, combined_error = 1.0, advantage, error
        if clicks is not None and bias is not None and error > 0:
            variance = clicks.standard_error**2 + bias
            weight = variance / (error**2 + variance)
            combined = weight * advantage + (1.0 - weight) * clicks.advantage
            combined_error = math.sqrt(weight * error**2)
        rejected = combined_error > 0 and combined / combined_error < -CLEARLY
        by_both = replace(
            JudgedCandidate.by_clicks(name, clicks),
            advantage=advantage,
            standard_error=error,
            weight=weight,
            combined=combined,
            combined_error=combined_error,
            rejected=rejected,
        )
        judged.append(by_both)
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


def _cross_validated(
    sample: RandomSample,
    of_clicks: Mapping[str, ClickEvidence],
    others: list[str],
    baseline: str,
    criterion: str,
    seed: int,
) -> tuple[float, float] | None:
    """Judge what is best together without a part of the users against the baseline on that part.

    Return the mean over the parts, whose users are distinct, and its standard error.
    """
    users, code = np.unique(sample.user, return_inverse=True)
    if len(users) < 2 * FOLDS or not others:
        return None
    fold = np.random.default_rng(stream(seed, "folds of the sample")).permutation(len(users)) % FOLDS
    worth = []
    for part in range(FOLDS):
        held = (fold == part)[code]
        if any(len(np.unique(sample.outcome[rows])) < 2 for rows in (held, ~held)):
            return None
        rest = sample.take(~held)
        judged, _ = _judged(rest, of_clicks, others, baseline, criterion)
        kept = _best_together(rest, _not_rejected(judged, baseline), criterion)
        worth.append(_paired_means(sample.take(held), kept, (baseline,), criterion))
    error = math.sqrt(sum(each.standard_error**2 for each in worth)) / FOLDS
    return float(np.mean([each.advantage for each in worth])), error


def _sentence(
    judged: tuple[JudgedCandidate, ...],
    shipped: tuple[str, ...],
    mean: PairedUsers | None,
    worth: tuple[float, float] | None,
    baseline: str,
    criterion: str,
    rows: int,
    fewest: int,
) -> str:
    if not judged:
        return f"The {baseline} model is shipped: it is the only candidate."
    sample = f"a random sample of {rows:,} pairs"
    planned = "`unskew plan-random` says how many random pairs would make sure of it."
    if fewest < LEAST_OF_EACH:
        return (
            f"The {baseline} model is shipped: {sample}, {fewest} of them of one outcome, is too small to"
            f" choose on (at least {LEAST_OF_EACH} converted and unconverted ones). {planned}"
        )
    if mean is None:
        return f"The {baseline} model is shipped: on {sample} no candidate adds to it. {planned}"
    if shipped == (baseline,):
        return (
            f"The {baseline} model is shipped: on {sample} what is best together is not ahead of it"
            f" ({mean.advantage:+.4f} ± {mean.standard_error:.4f} in {criterion}). {planned}"
        )
    what = (
        f"The mean of {len(shipped)} of {len(judged) + 1} models is"
        if len(shipped) > 1
        else f"{shipped[0]} is"
    )
    shown = f"{what} shipped: on {sample} it is ahead of the {baseline} model, and no other makes it better."
    if worth is None:
        return f"{shown} By how much is not known: the sample has too few users to cross-validate. {planned}"
    sure = worth[0] > CLEARLY * worth[1]
    return (
        f"{shown} Cross-validated, on users that took no part in the choice, such a choice is ahead by"
        f" {worth[0]:+.4f} ± {worth[1]:.4f} in {criterion}.{'' if sure else ' ' + planned}"
    )
