"""Methods with a learner of tables: row weights, or a pseudo-outcome that a regressor of squared errors fits.

METHODS §5.11. Each replica is one fit; nothing is trained jointly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unskew.base.seeds import Replica
from unskew.base.tensors import Tensor, torch
from unskew.debias.setting import Batch, Observed, Setting
from unskew.learners.fitted import FittedLearners
from unskew.learners.learner import Errors, TableLearner
from unskew.learners.table import EncodedTable, Examples, Floats, joined, table_of
from unskew.training.population import Population

if TYPE_CHECKING:
    from unskew.debias.method import Debiaser

FOLDS = 5
"""Imputed conversions of a row come from clicks of other folds."""

MOST_CELLS = 1 << 20
"""Unclicked cells of D that a pseudo-outcome is fitted on; of more, so many are drawn and weighted."""


class TableFits:
    """The examples of all replicas of a method, and their fits.

    Parameters
    ----------
    training, held_out
        Positions in O ``[R, n]`` of the clicks that train, and of those that choose a penalty or the number
        of trees.
    """

    def __init__(
        self,
        method: Debiaser,
        setting: Setting,
        data: Observed,
        replicas: tuple[Replica, ...],
        training: Tensor,
        held_out: Tensor,
    ) -> None:
        assert isinstance(method.learner, TableLearner)
        network = setting.networks["prediction"]
        assert isinstance(network, FittedLearners)
        self.method, self.learner, self.setting, self.network = method, method.learner, setting, network
        self.replicas, self.population = replicas, data.population
        self.clicks = data.observed(training)
        self.held_out = data.observed(held_out) if held_out.shape[1] else None
        self.weight = method.click_weight(setting, self.clicks)

    def fit(self) -> None:
        """Fit the model of every replica."""
        self.network.models = [self._fitted(at) for at in range(len(self.replicas))]

    def _fitted(self, at: int) -> TableLearner:
        seed, learner = self.replicas[at].own, self.learner.unfitted()
        clicks = self._examples(self.clicks, self.weight, at)
        validation = None
        if self.held_out is not None:
            weighted = self.setting.given and self.method.selection == "snips"
            p = self.held_out.propensity
            weight = 1.0 / p if weighted else torch.ones_like(self.held_out.conversion)
            validation = self._examples(self.held_out, weight, at)
        if self.method.with_tables == "weights":
            return learner.fit(clicks, validation=validation, seed=seed)
        return learner.fit(
            self._pseudo_outcomes(clicks, validation, at), validation=validation, errors="squared", seed=seed
        )

    def _pseudo_outcomes(self, clicks: Examples, validation: Examples | None, at: int) -> Examples:
        """Return t = r̃ + o·(r − r̃)/p of all cells of D, or of clicks and a weighted sample of the others."""
        cells, weight = self._unclicked(at)
        others = self._table(self.population, cells)
        rate = self.method.imputed_rate(self.setting)
        if rate is None:
            of_clicks, of_others = self._imputed(clicks, others, validation, at)
        else:
            of_clicks, of_others = (np.full(len(each), float(rate[at])) for each in (clicks.target, others))
        p = _line(self.method.pseudo_propensity(self.clicks), at)
        target = of_clicks + (clicks.target - of_clicks) / p
        rows = joined([clicks.rows, others])
        return Examples(
            rows,
            np.concatenate([target, of_others]),
            np.concatenate([np.ones(len(target)), np.full(len(others), weight)]),
        )

    def _imputed(
        self, clicks: Examples, others: EncodedTable, validation: Examples | None, at: int
    ) -> tuple[Floats, Floats]:
        """Return r̃ of clicks and of other cells, each by clicks of other folds."""
        seed = self.replicas[at].own
        folds = clicks.rows.folds(FOLDS, seed), others.folds(FOLDS, seed)
        imputed = np.empty(len(clicks.target)), np.empty(len(others))
        for fold in range(FOLDS):
            # Where a fold's clicks all converted, or none did, there is no logit to fit.
            some = clicks.take(folds[0] != fold)
            errors: Errors = "ce" if 0.0 < some.target.mean() < 1.0 else "squared"
            model = self.learner.unfitted().fit(some, validation=validation, errors=errors, seed=seed)
            for values, of, rows in zip(imputed, folds, (clicks.rows, others), strict=True):
                values[of == fold] = model.predict(rows.take(of == fold))
        return imputed

    def _unclicked(self, at: int) -> tuple[Tensor, float]:
        """Return cells of D without a click, and how many each stands for; none that is held out."""
        size, device = self.population.size, self.population.device
        if size <= MOST_CELLS:
            cells = torch.arange(size, device=device)
        else:
            drawn = np.random.default_rng(self.replicas[at].own).integers(size, size=MOST_CELLS)
            cells = torch.as_tensor(np.unique(drawn), device=device)
        cells = cells[self.population.click(cells) == 0]
        return cells, (size - self.population.n_clicks) / max(len(cells), 1)

    def _table(self, population: Population, cells: Tensor) -> EncodedTable:
        hashes = population.hashes
        return table_of(
            self.network.schema,
            population.rows(cells[None]),
            (hashes.user.cpu().numpy(), hashes.item.cpu().numpy()),
        )

    def _examples(self, batch: Batch, weight: Tensor, at: int) -> Examples:
        """Return the clicks of a batch for one replica."""
        own = batch.rows.map(lambda values: values[at : at + 1] if len(values) > 1 else values)
        hashes = self.population.hashes
        table = table_of(self.network.schema, own, (hashes.user.cpu().numpy(), hashes.item.cpu().numpy()))
        return Examples(table, _line(batch.conversion, at), _line(weight, at))


def _line(values: Tensor, at: int) -> Floats:
    return np.asarray(values[at].detach().double().cpu().numpy())
