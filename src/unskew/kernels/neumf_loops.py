"""Compiled loops of one replica of NeuMF's tower, around its matrix products. numba is slow to load."""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.base.compiled import compiled

# Sums may be reordered, which makes them SIMD; NaN and infinities stay what they are.
_FAST = {"reassoc", "contract", "nsz"}
_ZERO = np.float32(0.0)


@compiled(fastmath=_FAST)
def look_up(
    user: Any, item: Any, users: Any, items: Any, head: Any, head_bias: Any, mask: Any, x: Any, logit: Any
) -> None:
    """Write the first layer's input ``[n, 2D]`` and the GMF branch's part of the logit ``[n]``.

    A mask without rows stands for no dropout, here and below.
    """
    dim = users.shape[1] // 2
    for row in range(len(user)):
        of_user, of_item, of_x = users[user[row]], items[item[row]], x[row]
        total = _ZERO
        for d in range(dim):
            total += of_user[d] * of_item[d] * head[d]
        logit[row] = total + head_bias
        for d in range(dim):
            of_x[d] = of_user[dim + d]
        for d in range(dim):
            of_x[dim + d] = of_item[dim + d]
        if len(mask):
            for d in range(2 * dim):
                of_x[d] *= mask[row, d]


@compiled(fastmath=_FAST)
def relu_and_drop(h: Any, mask: Any) -> None:
    """Apply ReLU and dropout in place, ``[n, width]``."""
    for row in range(len(h)):
        of_h = h[row]
        for k in range(h.shape[1]):
            of_h[k] = _ZERO if of_h[k] <= _ZERO else of_h[k]
        if len(mask):
            for k in range(h.shape[1]):
                of_h[k] *= mask[row, k]


@compiled(fastmath=_FAST)
def relu_and_read(h: Any, head: Any, logit: Any) -> None:
    """Apply ReLU in place ``[n, width]``; add its product with the head to the logit."""
    for row in range(len(h)):
        of_h = h[row]
        total = _ZERO
        for k in range(h.shape[1]):
            of_h[k] = _ZERO if of_h[k] <= _ZERO else of_h[k]
            total += of_h[k] * head[k]
        logit[row] += total


@compiled(fastmath=_FAST)
def head_gradient(g: Any, h: Any, head: Any, z: Any, d_head: Any, d_head_bias: Any, d_bias: Any) -> None:
    """Go back through the head and the last ReLU: ``z`` ``[n, width]`` is the gradient before it."""
    total = _ZERO
    for row in range(len(g)):
        of_g, of_h, of_z = g[row], h[row], z[row]
        total += of_g
        for k in range(h.shape[1]):
            back = of_g * head[k] if of_h[k] > _ZERO else _ZERO
            d_head[k] += of_g * of_h[k]
            d_bias[k] += back
            of_z[k] = back
    d_head_bias[0] += total


@compiled(fastmath=_FAST)
def gate(z: Any, x: Any, mask: Any, d_bias: Any) -> None:
    """Go back through dropout and ReLU, in place: they let through where their output is positive."""
    for row in range(len(x)):
        of_x, of_z = x[row], z[row]
        if len(mask):
            for k in range(x.shape[1]):
                of_z[k] *= mask[row, k]
        for k in range(x.shape[1]):
            back = of_z[k] if of_x[k] > _ZERO else _ZERO
            d_bias[k] += back
            of_z[k] = back


@compiled(fastmath=_FAST)
def scatter(
    g: Any, dx: Any, codes: Any, users: Any, items: Any, head: Any, mask: Any,
    d_users: Any, d_items: Any, d_head: Any,
) -> None:  # fmt: skip
    """Add the gradients of both branches to the head's and to the tables'.

    ``codes [4, n]`` are the rows of users and of items in their tables, and in the tables' gradients.
    """
    dim = users.shape[1] // 2
    for row in range(len(g)):
        of_user, of_item, of_x, of_g = users[codes[0, row]], items[codes[1, row]], dx[row], g[row]
        to_user, to_item = d_users[codes[2, row]], d_items[codes[3, row]]
        if len(mask):
            for d in range(2 * dim):
                of_x[d] *= mask[row, d]
        for d in range(dim):
            weighted = of_g * head[d]
            d_head[d] += of_g * of_user[d] * of_item[d]
            to_user[d] += weighted * of_item[d]
            to_item[d] += weighted * of_user[d]
        for d in range(dim):
            to_user[dim + d] += of_x[d]
        for d in range(dim):
            to_item[dim + d] += of_x[dim + d]
