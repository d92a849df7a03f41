"""Which candidates are shipped: the mean of all, less those without which a random sample is surer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.plain_text import listed
from unskew.base.seeds import stream
from unskew.metrics.user_bootstrap import PairedUsers, paired_users
from unskew.training.fitted import combined

Floats = NDArray[np.float64]
Names = tuple[str, ...]

BASELINE = "naive"
"""The method that candidates are held against."""
CRITERION = "auc"
"""What models are chosen by."""
FOLDS = 5
"""Parts of the sample's users on which the choice itself is judged."""
LEAST_OF_EACH = 5
"""Converted, and unconverted, pairs of a sample that may decide."""
CLEARLY = 1.96
"""Standard errors that are taken off what a mean seems to gain by leaving models out: with fewer a choice is
now and then worse than the baseline (``docs/explanation/choosing.md``)."""
PLAN = "`unskew plan-random` says how many pairs shown at random would settle it."


@dataclass(frozen=True)
class Decision:
    """The decision which models are shipped, and why.

    Attributes
    ----------
    shipped
        The names of those whose mean logit is shipped.
    naive
        The names of those whose mean logit is the naive model.
    rows, users
        Of the random sample; 0 without one.
    advantage, advantage_error
        How far what is shipped is ahead of the naive model on users that took no part in the choice (five
        folds of the sample's users), and its standard error; None without a sample, and with too few users.
    sentence
        The decision in one sentence.
    """

    shipped: Names
    naive: Names
    sentence: str
    criterion: str = CRITERION
    rows: int = 0
    users: int = 0
    advantage: float | None = None
    advantage_error: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class RandomSample:
    """A random sample: the user and the outcome of each row, and predictions ``[seeds, n]`` by candidate."""

    user: NDArray[Any]
    outcome: Floats
    predictions: Mapping[str, Floats]

    def take(self, rows: NDArray[np.bool_]) -> RandomSample:
        """Return some of the rows."""
        lines = {name: values[:, rows] for name, values in self.predictions.items()}
        return RandomSample(self.user[rows], self.outcome[rows], lines)


def decide(sample: RandomSample | None, candidates: Names, naive: Names, *, seed: int = 0) -> Decision:
    r"""Ship the mean logit of all candidates, less those without which a random sample is surely better.

    Models are left out of the mean one by one, each time the one without which it is best on the sample. Of
    all these means the one is shipped whose lead over the mean of all, less 1.96 standard errors (paired, by
    user), is greatest, if it is above 0. So a few pairs leave nearly all models in, and many the best ones.
    Without a sample, or with fewer than 5 converted or unconverted pairs, all are shipped: a hedge.

    No candidate was trained on the sample, so that all of it judges.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> rate = random.random(4000) / 2
    >>> outcome = (random.random(4000) < rate).astype(float)
    >>> sample = RandomSample(
    ...     np.repeat(np.arange(800), 5), outcome, {"naive": random.random((1, 4000)), "ips": rate[None]}
    ... )
    >>> names = ("naive", "ips")
    >>> decide(sample, names, ("naive",)).shipped, decide(None, names, ("naive",)).shipped
    (('ips',), ('naive', 'ips'))
    """
    if sample is None:
        return Decision(candidates, naive, _hedged(candidates))
    fewest = int(min((sample.outcome == label).sum() for label in (0, 1)))
    shipped = _surest(sample, candidates) if fewest >= LEAST_OF_EACH else candidates
    worth = _cross_validated(sample, candidates, naive, seed) if fewest >= LEAST_OF_EACH else None
    users = len(np.unique(sample.user))
    sentence = _sentence(len(sample.outcome), fewest, shipped, candidates, worth)
    figures = (None, None) if worth is None else worth
    return Decision(shipped, naive, sentence, CRITERION, len(sample.outcome), users, *figures)


def mean_paired(sample: RandomSample, names: Names, others: Names) -> PairedUsers:
    """Compare the mean logit of some models with that of others on the sample, averaged over seeds."""
    first, second = (
        combined(np.stack([sample.predictions[name] for name in some], axis=1)) for some in (names, others)
    )
    by_seed = [
        paired_users(CRITERION, user=sample.user, outcome=sample.outcome, first=one, second=other)
        for one, other in zip(first, second, strict=True)
    ]
    influence = np.mean([paired.influence for paired in by_seed], axis=0)
    advantage = float(np.mean([paired.advantage for paired in by_seed]))
    return PairedUsers(CRITERION, advantage, influence, by_seed[0].rows)


def _surest(sample: RandomSample, names: Names) -> Names:
    """Leave models out of a mean, the costliest first, and return those whose mean gains most surely."""
    best, most, left = names, 0.0, names
    while len(left) > 1:
        smaller = [tuple(other for other in left if other != name) for name in left]
        gains = [mean_paired(sample, some, names) for some in smaller]
        at = max(range(len(left)), key=lambda number: gains[number].advantage)
        left, gain = smaller[at], gains[at]
        surely = gain.advantage - CLEARLY * gain.standard_error
        if surely > most:
            best, most = left, surely
    return best


def _cross_validated(
    sample: RandomSample, names: Names, naive: Names, seed: int
) -> tuple[float, float] | None:
    """Judge what is surest without a fold of the users against the naive model on that fold.

    Return the mean over the folds, whose users are distinct, and its standard error.
    """
    users, code = np.unique(sample.user, return_inverse=True)
    if len(users) < 2 * FOLDS:
        return None
    fold = np.random.default_rng(stream(seed, "folds of the sample")).permutation(len(users)) % FOLDS
    worth = []
    for number in range(FOLDS):
        held = (fold == number)[code]
        if any(len(np.unique(sample.outcome[rows])) < 2 for rows in (held, ~held)):
            return None
        worth.append(mean_paired(sample.take(held), _surest(sample.take(~held), names), naive))
    error = math.sqrt(sum(paired.standard_error**2 for paired in worth)) / FOLDS
    return float(np.mean([paired.advantage for paired in worth])), error


def _hedged(names: Names) -> str:
    """Say what is shipped where nothing decided."""
    parts = [name.partition(", ") for name in names]
    methods, learners = (listed(list(dict.fromkeys(part[at] for part in parts))) for at in (0, 2))
    if methods == BASELINE:
        return (
            f"No data of yours says that a debiased model would be better: the naive one is shipped (by"
            f" {learners}), since where features tell why people click, or nothing does, weights and click"
            f" towers lost AUC in the worlds of docs/explanation/choosing.md; {PLAN}"
        )
    return (
        f"No data of yours decided this: the mean of {len(names)} models is shipped ({methods}; by"
        f" {learners}), a hedge that lost to the naive model in none of the worlds of"
        f" docs/explanation/choosing.md, and may cost some AUC where clicks follow no taste; {PLAN}"
    )


def _sentence(
    rows: int, fewest: int, shipped: Names, candidates: Names, worth: tuple[float, float] | None
) -> str:
    sample = f"a random sample of {rows:,} pairs"
    if fewest < LEAST_OF_EACH:
        return f"{_hedged(candidates)} The sample, {rows:,} pairs with {fewest} of one outcome, is too small."
    what = f"The mean of {len(shipped)} of {len(candidates)} models" if len(shipped) > 1 else shipped[0]
    why = "is surely better without the others" if shipped != candidates else "tells none of them apart"
    shown = f"{what} is shipped: {sample} {why}."
    if worth is None:
        return f"{shown} What that gains is not known: the sample has too few users to cross-validate. {PLAN}"
    gained = f"ahead of the naive model by {worth[0]:+.4f} ± {worth[1]:.4f} in {CRITERION}"
    unsure = "" if worth[0] > CLEARLY * worth[1] else f" {PLAN}"
    return f"{shown} On users that took no part in the choice such a choice is {gained}.{unsure}"
