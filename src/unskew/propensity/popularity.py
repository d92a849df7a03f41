"""Propensities from counts alone: how often each user clicks, and how often each item is clicked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unskew.base.estimator import require_above
from unskew.base.progress import Progress
from unskew.base.registry import register
from unskew.base.tensors import nn
from unskew.data import Schema
from unskew.propensity.crossfit import Codes, Floats, Scorer
from unskew.propensity.per_replica import MOST_CELLS, PerReplica, ReplicaCells, room_for
from unskew.propensity.propensity import BasePropensity

LARGEST = 1 - 1e-6
"""Products of rates are no probabilities; those above are cut here."""


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
        clicks, cells = self._counts(replica)
        density = float(clicks[0].sum() / cells[0].sum())
        user, item = (
            ((of_id + self.smoothing) / (density * known + self.smoothing)) ** power
            for of_id, known, power in zip(clicks, cells, (self.user_power, self.item_power), strict=True)
        )
        if self.space_ == "matrix":
            mean = float(user.mean() * item.mean())
        else:
            assert self.log_ is not None
            mean = float((user[self.log_.user] * item[self.log_.item]).mean())
        return ProductModel(density / mean, user, item)

    def _counts(self, replica: ReplicaCells) -> tuple[list[Floats], Sequence[Floats]]:
        """Return clicks, and training cells, of each user and each item.

        Clicks are counted. How many pairs of a large matrix train is what is expected of slots: with 10⁴
        items that is right to some 0.5 %, and no cell of D is looked at.
        """
        population, sizes = replica.population, (len(self.users_), len(self.items_))
        whole = population.space == "impressions" or population.size <= MOST_CELLS
        clicks, cells = ([np.zeros(size) for size in sizes] for _ in range(2))
        for block in replica.blocks() if whole else [replica.training_clicks()]:
            for side, code in enumerate((block.user, block.item)):
                clicks[side] += np.bincount(code, block.click, minlength=sizes[side])
                cells[side] += np.bincount(code, minlength=sizes[side])
        return clicks, cells if whole else replica.training_margins()

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
