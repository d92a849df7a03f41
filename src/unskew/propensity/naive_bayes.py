"""Propensities by Bayes' rule from conversions: of the clicked pairs, and of pairs shown at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from unskew.errors import DataError, ParameterError
from unskew.estimator import require
from unskew.log import Log
from unskew.progress import SILENT, Progress
from unskew.propensity.cells import Codes, Floats, HeldOut, Pairs, Replica, Scorer
from unskew.propensity.classic import ClassicPropensity
from unskew.seeds import stream


@dataclass(kw_only=True)
class NaiveBayesPropensity(ClassicPropensity):
    r"""p̂ = P(o = 1 | r): how likely a pair with conversion r was to be clicked.

    .. math:: P(o{=}1 \mid r) = \frac{d \, P(r \mid o{=}1)}
              {d \, P(r \mid o{=}1) + (1 - d) \, P(r \mid o{=}0)}, \qquad d = |O| / |D|

    P(r | o=1) is counted on the clicks, P(r | o=0) on those pairs of ``random_sample`` that were not
    clicked. That is Schnabel's estimate P(r | o=1)·d / P(r), but right as well where clicked pairs were
    taken out of the sample, as Coat's leaked ones are.

    **It sees labels that a log does not have**: conversions of pairs shown at random (MAR), usually a part
    of the test set. What it saw must not be tested on; ``unseen_`` is the rest of the sample, and
    ``message_`` says how many labels were used. Use it to compare with published results (Schnabel et al.
    took 5 % of the test set), or where you have a randomised sample to spend. A pair whose conversion is
    unknown has the propensity d, so methods that need propensities on all of D refuse it.

    Parameters
    ----------
    sample_share
        Share of ``random_sample`` that may be looked at.
    smoothing
        Pseudo-count of each conversion (Laplace's 1).

    Attributes
    ----------
    unseen_
        The rows of the random sample that were not looked at; None if there are none.
    message_
        What was looked at, in words.

    Examples
    --------
    >>> import unskew as us
    >>> data = us.load("synthetic", n_users=80, n_items=60)
    >>> p = us.NaiveBayesPropensity(sample_share=0.25, crossfit=2).fit(data.train, random_sample=data.test)
    >>> print(p.message_)
    naive Bayes saw the conversions of 291 pairs shown at random; leave them out of every test
    >>> len(p.unseen_) + 291 == len(data.test)
    True
    """

    name: ClassVar[str] = "naive_bayes"
    sample_share: float = 1.0
    smoothing: float = 1.0

    def fit(
        self,
        log: Log,
        *,
        random_sample: Log | None = None,
        seeds: int | Sequence[int] = 1,
        device: str = "auto",
        progress: Progress = SILENT,
    ) -> Self:
        """Count conversions on the clicks and on the random sample.

        Parameters
        ----------
        random_sample
            Pairs shown at random with their conversions, such as ``data.test``.
        """
        require(
            0 < self.sample_share <= 1,
            f"sample_share must be in (0, 1], not {self.sample_share}",
            "give a number between 0 and 1, such as 0.5",
        )
        require(
            self.smoothing > 0, f"smoothing must be above 0, not {self.smoothing}", "give a number above 0"
        )
        self._sample = self._checked_sample(log, random_sample)
        return super().fit(log, seeds=seeds, device=device, progress=progress)

    def predict_matrix_each(self, *, calibrated: bool = True) -> Floats:
        """Refused: the propensity of a pair depends on its conversion, which only clicks tell."""
        raise ParameterError(
            "naive Bayes knows propensities of pairs whose conversion is known, not of all of D",
            remedy="use LogisticPropensity or Propensity for methods that need them on every pair",
        )

    def _checked_sample(self, log: Log, sample: Log | None) -> Log:
        if sample is None:
            raise ParameterError(
                "naive Bayes needs pairs shown at random, with their conversions",
                remedy="give fit(…, random_sample=data.test), and leave what it saw out of the test",
            )
        if log.space != "matrix":
            raise ParameterError(
                "naive Bayes needs the space 'matrix', in which unclicked pairs can have a conversion",
                remedy="give another propensity, or a log with space='matrix'",
            )
        if not (sample.users.same_as(log.users) and sample.items.same_as(log.items)):
            raise DataError(
                "the random sample has other users or items than the log",
                remedy="build it with users=log.users and items=log.items",
            )
        log.known_conversion()
        sample.known_conversion()
        return sample.take(sample.clicked)

    def _use(self, log: Log) -> None:
        sample = self._sample
        random = np.random.default_rng(stream(self.seeds_[0], "random sample"))
        order = random.permutation(len(sample))
        count = max(1, round(self.sample_share * len(sample)))
        self.unseen_ = sample.take(np.sort(order[count:])) if count < len(sample) else None
        seen = sample.take(np.sort(order[:count]))
        self.message_ = (
            f"naive Bayes saw the conversions of {len(seen):,} pairs shown at random;"
            " leave them out of every test"
        )
        unclicked = seen.take(~np.isin(seen.cell, log.cell[log.clicked]))
        # The population as naive Bayes can see it: every click, and unclicked pairs that stand for the rest.
        clicks = log.take(log.clicked)
        self._cell: Codes = np.concatenate([clicks.cell, unclicked.cell])
        conversions = (clicks.known_conversion(), unclicked.known_conversion())
        self._conversion: Floats = np.concatenate(conversions).astype(np.float64)
        self._click: Floats = np.repeat([1.0, 0.0], [len(clicks), len(unclicked)])
        stands_for = (log.population_size - log.n_clicks) / max(len(unclicked), 1)
        self._weight: Floats = np.where(self._click == 1, 1.0, stands_for)

    def _fit_replica(self, replica: Replica) -> Scorer:
        trains = replica.trains[self.cells_.slot(replica.seed, self._cell)]
        self.cells_.require_clicks(float(self._click[trains].sum()))
        density = self.log_.density
        likelihood = np.empty((2, 2))
        for click in (0, 1):
            chosen = trains & (self._click == click)
            if not chosen.any():
                raise DataError(
                    "the random sample has no unclicked pair to train on",
                    remedy="give a larger sample, or fewer folds (crossfit)",
                )
            counts = np.bincount(self._conversion[chosen].astype(np.int64), minlength=2) + self.smoothing
            likelihood[click] = counts / counts.sum()
        clicked = density * likelihood[1]
        by_conversion = clicked / (clicked + (1 - density) * likelihood[0])

        def score(rows: Pairs) -> Floats:
            if rows.conversion is None:
                return np.full(len(rows.user), density)
            known = ~np.isnan(rows.conversion)
            place = np.where(known, rows.conversion, 0).astype(np.int64)
            return np.where(known, by_conversion[place], density)

        return score

    def _held_out(self, number: int, role: int) -> HeldOut:
        mine = self.cells_.role(number, self._cell) == role
        self.cells_.require_held_out(number, role, float(self._click[mine].sum()))
        user, item = np.divmod(self._cell[mine], len(self.items_))
        return HeldOut(Pairs(user, item, self._conversion[mine]), self._click[mine], self._weight[mine])
