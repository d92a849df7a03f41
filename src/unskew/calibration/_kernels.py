"""Compiled loops that NumPy cannot express. Imported only where one is needed: numba is slow to load."""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.base.compiled import compiled


@compiled()
def isotonic_with_one_more(total: Any, positive: Any) -> Any:
    """Value at each group of the isotonic regression to which one positive row of that group is added.

    One sweep over the cumulative sums (Vovk, Petej and Fedorova 2015, Algorithms 1 and 2), O(groups).
    With the extra row at group i, the sums before i are P₀ … P_{i−1} and those from i on are moved by
    (1, 1); the value is the slope of the greatest convex minorant from the one set to the other. Going
    from i to i+1 moves one point only, so the part of the minorant to its right is kept on a stack.
    """
    groups = len(total)
    x = np.empty(groups + 2)
    y = np.empty(groups + 2)
    # Point 0 is P₋₁ = (−1, −1), point 1 the origin: the extra row comes before every group at first.
    x[0] = y[0] = -1.0
    x[1] = y[1] = 0.0
    for i in range(groups):
        x[i + 2] = x[i + 1] + total[i]
        y[i + 2] = y[i + 1] + positive[i]
    stack = np.empty(groups + 2, np.int64)
    height = 0
    for i in range(groups + 1, -1, -1):
        while height > 1 and _turns_down(x, y, i, stack[height - 1], stack[height - 2]):
            height -= 1
        stack[height] = i
        height += 1
    value = np.empty(groups)
    for i in range(groups):
        top, after = stack[height - 1], stack[height - 2]
        # Beside weights of 16 decades more, a weight adds nothing to the sums: the added row is left.
        width = x[after] - x[top]
        value[i] = (y[after] - y[top]) / width if width > 0.0 else 1.0
        new = i + 1
        x[new] = x[i] + x[i + 2] - x[new]
        y[new] = y[i] + y[i + 2] - y[new]
        if (y[new] - y[top]) * (x[after] - x[top]) >= (y[after] - y[top]) * (x[new] - x[top]):
            continue
        height -= 1
        while height > 1 and _turns_down(x, y, new, stack[height - 1], stack[height - 2]):
            height -= 1
        stack[height] = new
        height += 1
    return value


@compiled(inline="always")
def _turns_down(x: Any, y: Any, a: int, b: int, c: int) -> Any:
    return (x[b] - x[a]) * (y[c] - y[b]) <= (y[b] - y[a]) * (x[c] - x[b])
