"""Propensities from counts alone: how often each user clicks, and how often each item is clicked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from unskew.base.estimator import require_above
from unskew.base.progress import Progress
from unskew.base.registry import register
from unskew.base.tensors import nn
from unskew.data import Schema
from unskew.propensity.crossfit import Codes, Floats, Scorer
from unskew.propensity.per_replica import MOST_CELLS, PerReplica, ReplicaCells, TrainingCells, room_for
from unskew.propensity.propensity import BasePropensity

LARGEST = 1 - 1e-6
"""Products of rates are no probabilities; those above are cut here."""

PARTS = 4
"""Parts into which training cells are dealt where a cell's own click must not enter its rates."""


@dataclass(frozen=True, eq=False)
class ClickRates:
    r"""f = (clicks + s) / (expected clicks + s): how much more than the average a user (an item) clicks.

    Expected are the clicks if every cell had the same chance; s is ``smoothing``, in clicks. Users without
    a cell in training have f = 1.

    Attributes
    ----------
    clicks, cells
        For users and for items, ``[codes, parts]``.
    """

    clicks: tuple[Floats, Floats]
    cells: tuple[Floats, Floats]
    smoothing: float

    @classmethod
    def of(
        cls, blocks: Iterable[TrainingCells], *, users: int, items: int, smoothing: float, parts: int = 1
    ) -> ClickRates:
        """Count the training cells, slot by slot into ``parts``."""
        sizes = (users, items)
        clicks = tuple(np.zeros(size * parts) for size in sizes)
        cells = tuple(np.zeros(size * parts) for size in sizes)
        for block in blocks:
            part = block.slot % parts
            for side, code in enumerate((block.user, block.item)):
                place = code * parts + part
                clicks[side][:] += np.bincount(place, block.click, minlength=len(clicks[side]))
                cells[side][:] += np.bincount(place, minlength=len(cells[side]))
        shaped = [
            tuple(each.reshape(size, parts) for each, size in zip(counts, sizes, strict=True))
            for counts in (clicks, cells)
        ]
        return cls(shaped[0], shaped[1], smoothing)  # type: ignore[arg-type]

    @classmethod
    def of_replica(
        cls, replica: ReplicaCells, *, users: int, items: int, smoothing: float, parts: int = 1
    ) -> ClickRates:
        """Return the rates of a replica's training cells: counted, or for a large matrix computed from its
        margins.

        Its clicks are counted in any case. How many of a user's pairs train is then what is expected of
        slots: with 10⁴ items that is right to some 0.5 %, and no cell of D is looked at.
        """
        if replica.population.space == "impressions" or replica.population.size <= MOST_CELLS:
            return cls.of(replica.blocks(), users=users, items=items, smoothing=smoothing, parts=parts)
        clicked = replica.training_clicks()
        counted = cls.of([clicked], users=users, items=items, smoothing=smoothing, parts=parts)
        return cls(counted.clicks, replica.training_margins(parts), smoothing)

    @property
    def density(self) -> float:
        """Share of training cells that are clicked."""
        return float(self.clicks[0].sum() / self.cells[0].sum())

    def of_side(self, side: Literal[0, 1], code: Codes, slot: Codes | None = None) -> Floats:
        """Return f of users (side 0) or items (1); with slots, from the cells of the other parts alone."""
        # One more, of whom nothing is known: the rate of the average.
        clicks, cells = (np.append(each[side].sum(axis=1), 0.0)[code] for each in (self.clicks, self.cells))
        if slot is not None:
            part = slot % self.clicks[side].shape[1]
            clicks, cells = clicks - self.clicks[side][code, part], cells - self.cells[side][code, part]
        return np.asarray((clicks + self.smoothing) / (self.density * cells + self.smoothing))


@register(order=20)
@dataclass(kw_only=True)
class PopularityPropensity(BasePropensity):
    r"""p̂(u, i) = c · f_u^a · f_i^b, with f how much more than the average a user clicks, an item is clicked.

    .. math:: f_u = \frac{n_u + s}{\bar n_u + s}, \qquad f_i = \frac{n_i + s}{\bar n_i + s}, \qquad
              \frac{1}{|D|} \sum_D \hat p = \frac{|O|}{|D|}

    n_u and n_i are clicks, n̄ what they would be if all cells had the same chance; a is ``user_power``, b
    ``item_power``, s ``smoothing``. Powers 1 and 1 are independence, p̂ = n_u·n_i/|O|; a power of 0 leaves a
    side out. Use it as a baseline that costs one pass over D (of a large matrix over its clicks) and that no
    network should lose to. Not where tastes differ: it knows no pair.

    Published code divides counts by the largest count instead: such numbers rank pairs, but are no
    probabilities over D.

    Parameters
    ----------
    calibrator, crossfit, fold_by
        As every propensity has them. ``negatives`` changes nothing: all training cells are counted.
    user_power, item_power
        a and b.
    smoothing
        Pseudo-clicks; without them, users who click nothing in training get 0 and an infinite weight.

    Examples
    --------
    >>> import unskew as us
    >>> log = us.load("synthetic", n_users=60, n_items=50, density=0.2).train
    >>> p = us.PopularityPropensity(crossfit=3).fit(log)
    >>> bool(abs(p.predict_matrix_each().mean() - log.density) < 0.01)
    True
    """

    name: ClassVar[str] = "popularity"
    most_cells: ClassVar[int] = MOST_CELLS
    user_power: float = 1.0
    item_power: float = 1.0
    smoothing: float = 1.0

    def _check(self) -> None:
        super()._check()
        require_above(0, smoothing=self.smoothing)

    def _train(self, progress: Progress) -> Scorer:
        # All training cells are counted, whatever ``negatives`` says, so that no offset is to be undone.
        return PerReplica.fit(self._fit_one, self.cells_, self.name, progress, make=ProductModel)

    def _fit_one(self, replica: ReplicaCells) -> ProductModel:
        users, items = len(self.users_), len(self.items_)
        rates = ClickRates.of_replica(replica, users=users, items=items, smoothing=self.smoothing)
        user = rates.of_side(0, np.arange(users)) ** self.user_power
        item = rates.of_side(1, np.arange(items)) ** self.item_power
        if self.space_ == "matrix":
            mean = float(user.mean() * item.mean())
        else:
            assert self.log_ is not None
            mean = float((user[self.log_.user] * item[self.log_.item]).mean())
        return ProductModel(rates.density / mean, user, item)

    def _untrained(self, schema: Schema) -> nn.Module:
        return room_for(self.replicas_, constant=(), user=(schema.user.size,), item=(schema.item.size,))

    def _scorer_of(self, trained: nn.Module) -> Scorer:
        return PerReplica.of(trained.state_dict(), ProductModel)


@dataclass(frozen=True, eq=False)
class ProductModel:
    """p̂(u, i) = c · f_u^a · f_i^b."""

    constant: float
    user: Floats
    """f_u^a, ``[users]``."""
    item: Floats

    def __call__(self, user: Codes, item: Codes, further: Floats | None) -> Floats:
        """Score pairs."""
        return np.minimum(self.constant * self.user[user] * self.item[item], LARGEST)
