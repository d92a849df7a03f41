"""Compiled loops that NumPy cannot express. Imported only where one is needed: numba is slow to load."""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.compiled import compiled


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


@compiled()
def pooled_starts(total: Any, positive: Any) -> Any:
    """First group of each block of the isotonic regression of positive/total: pool adjacent violators."""
    starts = np.empty(len(total), np.int64)
    n = np.empty(len(total))
    y = np.empty(len(total))
    height = 0
    for i in range(len(total)):
        starts[height], n[height], y[height] = i, total[i], positive[i]
        height += 1
        while height > 1 and y[height - 2] * n[height - 1] >= y[height - 1] * n[height - 2]:
            height -= 1
            n[height - 1] += n[height]
            y[height - 1] += y[height]
    return starts[:height].copy()


@compiled(inline="always")
def _turns_down(x: Any, y: Any, a: int, b: int, c: int) -> Any:
    return (x[b] - x[a]) * (y[c] - y[b]) <= (y[b] - y[a]) * (x[c] - x[b])


@compiled()
def step_values(score: Any, first: Any, edges: Any, values: Any, shift: int, crowded: bool, out: Any) -> None:
    """``values[k]`` of each score, k the number of ``edges`` at or below it; the last edge is infinite.

    ``first[b]`` is the first edge that can lie above a score of bucket b, the top bits of its float32
    without the sign, which −0.0 has; ``crowded`` says whether a bucket holds more than one.
    """
    for i in range(len(score)):
        p = score[i]
        step = np.uint64(first[np.uint64(np.float32(abs(p)).view(np.uint32) >> np.uint32(shift))])
        step += np.uint64(edges[step] <= p)
        if crowded:
            while edges[step] <= p:
                step += np.uint64(1)
        out[i] = values[step]


@compiled()
def segment_sums(segment: Any, by_row: Any, segments: int) -> Any:
    """Sums ``[columns, segments]`` of each column of ``by_row [n, columns]`` over the rows of a segment."""
    columns = by_row.shape[1]
    sums = np.zeros((segments, columns))
    for i in range(len(segment)):
        for column in range(columns):
            sums[segment[i], column] += by_row[i, column]
    return sums.T.copy()
