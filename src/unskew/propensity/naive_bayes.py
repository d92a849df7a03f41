"""Propensities by Bayes' rule from conversions: of the clicked pairs, and of pairs shown at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np

from unskew.base.errors import DataError, NotFittedError, ParameterError
from unskew.base.estimator import require_above, require_in
from unskew.base.progress import SILENT, Progress
from unskew.base.registry import register
from unskew.base.seeds import stream
from unskew.base.tensors import nn, torch
from unskew.data import Log, Rows, Schema
from unskew.propensity.crossfit import TRAIN, Codes, Floats, Scorer
from unskew.propensity.per_replica import MOST_CELLS, PerReplica, ReplicaCells, room_for
from unskew.propensity.propensity import BasePropensity, HeldOutCells, Predicted


@register(order=40)
@dataclass(kw_only=True)
class NaiveBayesPropensity(BasePropensity):
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
    calibrator, crossfit, fold_by
        As every propensity has them. ``negatives`` changes nothing: what is known is counted whole.
    sample_share
        Share of ``random_sample`` that may be looked at.
    smoothing
        Pseudo-count of each conversion (Laplace's 1).

    Attributes
    ----------
    unseen_
        The rows of the random sample that were not looked at; None if there are none. A saved propensity
        does not keep them.
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
    reads: ClassVar[str] = "conversion"
    most_cells: ClassVar[int] = MOST_CELLS
    facts: ClassVar[Mapping[str, type]] = {"message_": str}
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
        self._sample = random_sample
        return super().fit(log, seeds=seeds, device=device, progress=progress)

    def predict_both_matrix_each(self) -> Predicted:
        """Refuse: the propensity of a pair depends on its conversion, which only clicks tell."""
        raise ParameterError(
            "naive Bayes knows propensities of pairs whose conversion is known, not of all of D",
            remedy="use Propensity for methods that need them on every pair",
        )

    def _check(self) -> None:
        super()._check()
        require_in("(0, 1]", sample_share=self.sample_share)
        require_above(0, smoothing=self.smoothing)

    def _train(self, progress: Progress) -> Scorer:
        log = self.log_
        assert log is not None
        self._cells = self._seen(log, _checked_sample(log, self._sample))
        # All its cells are counted, whatever ``negatives`` says, so that no offset is to be undone.
        return PerReplica.fit(
            lambda replica: self._fit_one(replica, log.density),
            self.cells_,
            self.name,
            progress,
            make=BayesModel,
            reads=self.reads,
        )

    def _seen(self, log: Log, sample: Log) -> SeenCells:
        """Return the population as it can be seen: clicks, and unclicked pairs that stand for the rest."""
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
        clicks = log.take(log.clicked)
        click = np.repeat([1.0, 0.0], [len(clicks), len(unclicked)])
        stands_for = (log.population_size - log.n_clicks) / max(len(unclicked), 1)
        return SeenCells(
            cell=np.concatenate([clicks.cell, unclicked.cell]),
            conversion=np.concatenate([each.known_conversion() for each in (clicks, unclicked)]).astype(
                np.float64
            ),
            click=click,
            weight=np.where(click == 1, 1.0, stands_for),
        )

    def _fit_one(self, replica: ReplicaCells, density: float) -> BayesModel:
        seen = self._cells
        trains = replica.role(seen.cell) == TRAIN
        likelihood = np.empty((2, 2))
        for click in (0, 1):
            chosen = trains & (seen.click == click)
            if not chosen.any():
                raise DataError(
                    "the random sample has no unclicked pair to train on",
                    remedy="give a larger sample, or fewer folds (crossfit)",
                )
            counts = np.bincount(seen.conversion[chosen].astype(np.int64), minlength=2) + self.smoothing
            likelihood[click] = counts / counts.sum()
        clicked = density * likelihood[1]
        return BayesModel(density, clicked / (clicked + (1 - density) * likelihood[0]))

    def _held_out(self, role: int, replicas: Sequence[int]) -> HeldOutCells:
        (number,) = replicas
        self.cells_.require_clicks(role)
        seen = self._cells
        mine = ReplicaCells(self.cells_, number, self.name).role(seen.cell) == role
        user, item = np.divmod(seen.cell[mine], len(self.items_))
        lines = (user, item, seen.conversion[mine], seen.click[mine], seen.weight[mine])
        users, items, conversion, click, weight = (torch.as_tensor(line)[None] for line in lines)
        return HeldOutCells(Rows(user=users, item=items, conversion=conversion), click, weight)

    def _further(self, log: Log) -> Floats | None:
        return None if log.conversion is None else log.conversion.astype(np.float64)

    def use_log(self, log: Log) -> None:
        """Refuse a loaded propensity: a folder does not keep what was seen of the random sample."""
        if not hasattr(self, "_sample"):
            raise NotFittedError(
                "a loaded naive Bayes has no random sample to be calibrated on", remedy="fit it again"
            )
        super().use_log(log)

    def _untrained(self, schema: Schema) -> nn.Module:
        return room_for(self.replicas_, density=(), by_conversion=(2,))

    def _scorer_of(self, trained: nn.Module) -> Scorer:
        return PerReplica.of(trained.state_dict(), BayesModel, reads=self.reads)


@dataclass(frozen=True, eq=False)
class BayesModel:
    """P(o = 1 | r) where r is known, and the density d elsewhere."""

    density: float
    by_conversion: Floats
    """``[2]``."""

    def __call__(self, user: Codes, item: Codes, further: Floats | None) -> Floats:
        """Return propensities of pairs with their conversions."""
        if further is None:
            return np.full(len(user), self.density)
        known = ~np.isnan(further)
        index = np.where(known, further, 0).astype(np.int64)
        return np.where(known, self.by_conversion[index], self.density)


class SeenCells(NamedTuple):
    """Cells of D whose conversion is known, and how many each stands for."""

    cell: Codes
    conversion: Floats
    click: Floats
    weight: Floats


def _checked_sample(log: Log, sample: Log | None) -> Log:
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
