"""Sums over cells behind :mod:`unskew.propensity.logistic`, for cells in the order of their users.

Imported only where needed: numba is slow to load.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.compiled import compiled

# Sums may be reordered, which makes them SIMD.
_FAST = {"reassoc", "contract", "nsz"}


@compiled(fastmath=_FAST)
def add_products(z: Any, starts: Any, item: Any, left: Any, right: Any, row: Any, weight: Any) -> None:
    """Add ``left[u] · right[i] + row[n] · weight`` to the logits of users' cells.

    Those of user u are ``starts[u]`` to ``starts[u + 1]``.
    """
    for u in range(len(starts) - 1):
        of_left = left[u]
        for n in range(starts[u], starts[u + 1]):
            of_right, of_row = right[item[n]], row[n]
            total = z[n]
            for k in range(len(of_left)):
                total += of_left[k] * of_right[k]
            for k in range(len(weight)):
                total += of_row[k] * weight[k]
            z[n] = total


@compiled(fastmath=_FAST, error_model="numpy")
def cross_entropy(z: Any, click: Any, residual: Any) -> float:
    """Σ CE(o, σ(z)), and its derivatives σ(z) − o."""
    value = 0.0
    for n in range(len(z)):
        small = np.exp(-abs(z[n]))
        value += max(z[n], 0.0) + np.log1p(small) - click[n] * z[n]
        residual[n] = (1.0 if z[n] >= 0.0 else small) / (1.0 + small) - click[n]
    return value


@compiled(fastmath=_FAST)
def add_derivatives(
    residual: Any,
    starts: Any,
    item: Any,
    right: Any,
    row: Any,
    of_users: Any,
    of_items: Any,
    products: Any,
    of_row: Any,
) -> None:
    """What residuals e add up to over the cells of users.

    ``of_users[u] = Σ e``, ``products[u] = Σ e · right[i]``, and the sums of e by item and of ``e · row`` are
    added to ``of_items`` and ``of_row``.
    """
    for u in range(len(starts) - 1):
        total = 0.0
        of_products = products[u]
        of_products[:] = 0.0
        for n in range(starts[u], starts[u + 1]):
            e, i = residual[n], item[n]
            of_right, cell = right[i], row[n]
            total += e
            of_items[i] += e
            for k in range(len(of_products)):
                of_products[k] += e * of_right[k]
            for k in range(len(of_row)):
                of_row[k] += e * cell[k]
        of_users[u] = total
