"""The compiled pass over rows of many sketches at once: cells of groups, kept only where there are rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.base.compiled import compiled
from unskew.metrics._kernel import _both, _cell
from unskew.metrics.limits import LIKELIHOOD_FLOOR, SMALLEST

SUMS = 9
"""Numbers of a cell: n, Σw, Σwp and Σw² by outcome, and Σwo/p."""


@compiled(error_model="numpy")
def fill_groups(
    score: Any,
    outcome: Any,
    weight: Any,
    group: Any,
    start: int,
    edges: Any,
    bins: int,
    shift: int,
    base: int,
    slot: Any,
    used: Any,
    sums: Any,
    totals: Any,
) -> int:
    """Add rows from ``start`` on; −1 when all are in, a row that finds no room, or −2 − row for a bad one.

    ``slot[group, cell]`` is the place of a cell in ``sums``, below 0 for a new one; ``used[0]`` places are
    taken. An empty ``weight`` stands for ones.
    """
    weighted = len(weight) > 0
    for row in range(start, len(score)):
        p = np.float64(score[row])
        o = np.float64(outcome[row])
        w = np.float64(weight[row]) if weighted else 1.0
        if not ((p >= 0.0) & (p <= 1.0) & ((o == 0.0) | (o == 1.0)) & (w >= 0.0) & (w < np.inf)):
            return -2 - row
        which = group[row]
        cell = _cell(p, shift, base) + _both(p, edges, bins)
        place = np.int64(slot[which, cell])
        if place < 0:
            if used[0] == len(sums):
                return row
            place = used[0]
            slot[which, cell] = place
            used[0] += 1
        clicked = np.int64(o)
        sums[place, clicked] += 1.0
        sums[place, 2 + clicked] += w
        sums[place, 4 + clicked] += w * p
        sums[place, 6 + clicked] += w * w
        if o > 0.5 and p > 0.0:
            sums[place, 8] += w / max(p, SMALLEST)
        totals[which, 0] += w * (o - p) ** 2
        totals[which, 1] -= w * np.log(max(p if o > 0.5 else 1.0 - p, LIKELIHOOD_FLOOR))
    return -1
