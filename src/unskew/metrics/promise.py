"""What scores promise on the rows at hand, beside what came: the cost of a wrong level in outcomes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unskew.base.estimator import require_share
from unskew.metrics.reliability import frequency_rows, wilson
from unskew.metrics.score_cells import cells_of
from unskew.metrics.sketch import CalibrationSketch


class Promise(NamedTuple):
    """Outcomes that scores promise (their sum), that came, and the interval of what was to come."""

    promised: float
    came: float
    low: float
    high: float

    @property
    def excess(self) -> float:
        """Promised beyond what came; below 0, too few."""
        return self.promised - self.came

    @property
    def excess_low(self) -> float:
        """The lower end of the interval of :attr:`excess`."""
        return self.promised - self.high

    @property
    def excess_high(self) -> float:
        """Its upper end."""
        return self.promised - self.low


def promise(sketch: CalibrationSketch, *, level: float = 0.95) -> Promise:
    r"""The sum of the scores, the sum of the outcomes, and the interval that chance leaves to the latter.

    .. math:: \sum_i w_i \hat p_i, \qquad \sum_i w_i o_i, \qquad
              W \cdot \mathrm{Wilson}\Bigl(\tfrac{1}{W} \sum_i w_i o_i\Bigr), \quad W = \sum_i w_i

    Wilson's interval is for rows of one rate; where rates differ it is a little too wide, never too narrow.
    Use it to say what a wrong level costs on this many rows. Errors that cancel out are not in it: those are
    what WCE and the reliability curve show.

    Examples
    --------
    >>> scores = np.full(1000, 0.3)
    >>> found = promise(CalibrationSketch.of(score=scores, outcome=np.arange(1000) < 200))
    >>> round(found.promised), round(found.came), round(found.excess_low), round(found.excess_high)
    (300, 200, 74, 124)
    """
    cells = cells_of(sketch)
    total = float(cells.total.sum())
    effective = frequency_rows(cells, np.zeros(len(cells.total), dtype=np.int64))
    return counted_promise(
        float(cells.score_sum.sum()),
        float(cells.positive.sum()),
        total,
        rows=float(effective[0]),
        level=level,
    )


def counted_promise(
    promised: float, came: float, total: float, *, rows: float | None = None, level: float = 0.95
) -> Promise:
    """The same of sums that are known: of scores, of outcomes, of weights; ``rows`` are effective ones."""
    require_share("level", level, "0.95")
    rate = np.array([came / total])
    low, high = wilson(rate, np.array([total if rows is None else rows]), level)
    return Promise(promised, came, total * float(low[0]), total * float(high[0]))
