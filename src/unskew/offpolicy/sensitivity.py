"""Estimates under wrong propensities: the marginal sensitivity model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from unskew.offpolicy.weighing import Contribution, Weighted

Floats = NDArray[np.float64]

MOST_GAMMA = 20.0
"""A verdict that survives so much survives everything."""
HALVINGS = 20
"""Of the search for the Γ at which a verdict falls; it is then known to less than a thousandth."""


@dataclass(frozen=True, eq=False)
class Line:
    """A mean of one seed as the adversary sees it: what each click adds beyond its strata, in order.

    Attributes
    ----------
    rest
        x − hᵀB of the clicks in rising order, times |D′|/n.
    odds
        w − 1, the odds against a click being in the sample.
    group
        Of each click.
    value
        The mean.
    of_strata
        What the population's strata add to ψ by group: (HᵀB − θn_g)/n.
    """

    rest: Floats
    odds: Floats
    group: NDArray[np.int64]
    value: float
    of_strata: Floats
    keeps_totals: bool
    total: float

    @classmethod
    def of(cls, weighted: Weighted, added: Contribution) -> Line:
        """Return the line of what each click adds."""
        n, theta = float(added.units.sum()), weighted.mean(added)
        rest, of_strata = weighted.residual(added.value)
        total = float(weighted.weight.sum())
        order = np.argsort(rest, kind="stable")
        return cls(
            rest=rest[order] * (total / n),
            odds=np.maximum(weighted.weight[order] - 1.0, 0.0),
            group=weighted.group[order],
            value=theta,
            of_strata=(of_strata + added.base - theta * added.units) / n,
            keeps_totals=weighted.keeps_totals,
            total=total,
        )

    def negated(self) -> Line:
        """Return the mean of −x, whose least value is minus the greatest of x."""
        return replace(
            self,
            rest=-self.rest[::-1],
            odds=self.odds[::-1],
            group=self.group[::-1],
            value=-self.value,
            of_strata=-self.of_strata,
        )

    def least(self, gamma: float) -> tuple[float, Floats]:
        r"""Return the least value with odds within [1/Γ, Γ] of the propensities', and its ψ by group.

        .. math::
            \min_{w'} \frac{\sum_V w' e}{\sum_V w'}, \qquad
            1 + \frac{w - 1}{\Gamma} \le w' \le 1 + \Gamma (w - 1)

        At the least, clicks below some e have the upper weight and the others the lower one (Zhao, Small and
        Bhattacharya, 2019), so that one pass over the sorted clicks finds it.
        """
        upper, lower = 1.0 + self.odds * gamma, 1.0 + self.odds / gamma
        if not self.keeps_totals:
            weight = np.where(self.rest < 0, upper, lower)
            change = float((weight - 1.0 - self.odds) @ self.rest) / self.total
            return self.value + change, self._influence(weight * self.rest, self.total)
        top = np.cumsum(upper * self.rest) + (lower @ self.rest - np.cumsum(lower * self.rest))
        bottom = np.cumsum(upper) + (lower.sum() - np.cumsum(lower))
        last = int(np.argmin(top / bottom))
        ratio = float(top[last] / bottom[last])
        weight = np.where(np.arange(len(upper)) <= last, upper, lower)
        return self.value + ratio, self._influence(weight * (self.rest - ratio), float(bottom[last]))

    def _influence(self, added: Floats, total: float) -> Floats:
        own = np.bincount(self.group, weights=added, minlength=len(self.of_strata)) / total
        influence: Floats = own + self.of_strata
        influence -= influence.mean()
        return influence


def least_value(lines: Sequence[Line], gamma: float, level: float) -> float:
    """Return the lower end of the range: the least mean over seeds, less what sampling may add to it."""
    least = [line.least(gamma) for line in lines]
    value = float(np.mean([mean for mean, _ in least]))
    influence = np.mean([psi for _, psi in least], axis=0)
    return value - float(ndtri((1.0 + level) / 2.0)) * float(np.sqrt(influence @ influence))


def tipping_point(lines: Sequence[Line], level: float) -> float:
    """Return the largest Γ at which the range excludes 0; 1 if it never does, at most ``MOST_GAMMA``."""
    if least_value(lines, 1.0, level) <= 0:
        return 1.0
    if least_value(lines, MOST_GAMMA, level) > 0:
        return MOST_GAMMA
    low, high = 0.0, float(np.log(MOST_GAMMA))
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if least_value(lines, float(np.exp(middle)), level) > 0 else (low, middle)
    return float(np.exp(low))
