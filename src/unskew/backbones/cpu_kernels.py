"""Compiled loops of one replica on a CPU: dropout masks, and towers around their matrix products.

All loops run
without Python's lock, so replicas can run on threads. Imported only where needed: numba is slow to load.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.compiled import compiled

# Sums may be reordered, which makes them SIMD; NaN and infinities stay what they are.
_FAST = {"reassoc", "contract", "nsz"}
_GOLDEN = np.uint32(0x9E3779B9)
_MIX_1, _MIX_2 = np.uint32(0x7FEB352D), np.uint32(0x846CA68B)
_HALF, _FIFTEEN, _ONE = np.uint32(16), np.uint32(15), np.uint32(1)
_ZERO = np.float32(0.0)
ONE = np.float32(1.0)


@compiled()
def mix32(x: Any) -> Any:
    """Bits that all depend on all of a uint32's."""
    x = np.uint32(x ^ (x >> _HALF))
    x = np.uint32(x * _MIX_1)
    x = np.uint32(x ^ (x >> _FIFTEEN))
    x = np.uint32(x * _MIX_2)
    return np.uint32(x ^ (x >> _HALF))


@compiled()
def _key(seed: Any, call: Any) -> Any:
    return mix32(np.uint32(np.uint32(seed) + mix32(np.uint32(np.uint32(call) * _GOLDEN + _ONE))))


@compiled()
def _mask(key: Any, element: Any, threshold: Any, scale: Any) -> Any:
    """``scale`` where the element is kept, else 0."""
    bits = mix32(np.uint32(np.uint32(np.uint32(element) * _GOLDEN) ^ key))
    return scale if (np.int32(bits) >> 16) >= threshold else _ZERO


@compiled()
def fill_mask(seed: Any, call: Any, threshold: Any, scale: Any, start: Any, out: Any) -> None:
    """The mask of one call, ``[n]``, from element ``start`` on."""
    key = _key(seed, call)
    for element in range(len(out)):
        out[element] = _mask(key, start + element, threshold, scale)


@compiled(fastmath=_FAST)
def look_up(
    user: Any,
    item: Any,
    users: Any,
    items: Any,
    head: Any,
    head_bias: Any,
    seed: Any,
    call: Any,
    threshold: Any,
    scale: Any,
    start: Any,
    x: Any,
    logit: Any,
) -> None:
    """The first layer's input ``[n, 2D]`` and the GMF branch's part of the logit ``[n]``.

    ``start`` is the number of the first of these rows in the batch; a ``scale`` of 0 stands for no dropout.
    """
    dim = users.shape[1] // 2
    key = _key(seed, call)
    for row in range(len(user)):
        of_user, of_item, of_x = users[user[row]], items[item[row]], x[row]
        total = _ZERO
        for d in range(dim):
            total += of_user[d] * of_item[d] * head[d]
        logit[row] = total + head_bias
        if scale == _ZERO:
            for d in range(dim):
                of_x[d] = of_user[dim + d]
            for d in range(dim):
                of_x[dim + d] = of_item[dim + d]
        else:
            first = (start + row) * 2 * dim
            for d in range(dim):
                of_x[d] = of_user[dim + d] * _mask(key, first + d, threshold, scale)
            first += dim
            for d in range(dim):
                of_x[dim + d] = of_item[dim + d] * _mask(key, first + d, threshold, scale)


@compiled(fastmath=_FAST)
def relu_and_drop(h: Any, seed: Any, call: Any, threshold: Any, scale: Any, start: Any) -> None:
    """ReLU and dropout in place, ``[n, width]``; a ``scale`` of 0 stands for no dropout."""
    key = _key(seed, call)
    flat = h.reshape(h.size)
    first = start * h.shape[1]
    if scale == _ZERO:
        for place in range(len(flat)):
            flat[place] = _ZERO if flat[place] <= _ZERO else flat[place]
    else:
        for place in range(len(flat)):
            positive = _ZERO if flat[place] <= _ZERO else flat[place]
            flat[place] = positive * _mask(key, first + place, threshold, scale)


@compiled(fastmath=_FAST)
def relu_and_read(h: Any, head: Any, logit: Any) -> None:
    """ReLU in place ``[n, width]``; its product with the head is added to the logit."""
    width = h.shape[1]
    for row in range(len(h)):
        of_h = h[row]
        total = _ZERO
        for k in range(width):
            of_h[k] = _ZERO if of_h[k] <= _ZERO else of_h[k]
            total += of_h[k] * head[k]
        logit[row] += total


@compiled(fastmath=_FAST)
def head_gradient(g: Any, h: Any, head: Any, z: Any, d_head: Any, d_head_bias: Any, d_bias: Any) -> None:
    """Back through the head and the last ReLU: ``z`` ``[n, width]`` is the gradient before it."""
    width = h.shape[1]
    total = _ZERO
    for row in range(len(g)):
        of_g, of_h, of_z = g[row], h[row], z[row]
        total += of_g
        for k in range(width):
            back = of_g * head[k] if of_h[k] > _ZERO else _ZERO
            d_head[k] += of_g * of_h[k]
            d_bias[k] += back
            of_z[k] = back
    d_head_bias[0] += total


@compiled(fastmath=_FAST)
def gate(z: Any, x: Any, scale: Any, d_bias: Any) -> None:
    """Back through dropout and ReLU, in place: what they let through is where their output is positive."""
    width = x.shape[1]
    for row in range(len(x)):
        of_x, of_z = x[row], z[row]
        for k in range(width):
            back = of_z[k] * scale if of_x[k] > _ZERO else _ZERO
            d_bias[k] += back
            of_z[k] = back


@compiled(fastmath=_FAST)
def scatter(
    g: Any,
    dx: Any,
    user: Any,
    item: Any,
    user_place: Any,
    item_place: Any,
    users: Any,
    items: Any,
    head: Any,
    seed: Any,
    call: Any,
    threshold: Any,
    scale: Any,
    start: Any,
    d_users: Any,
    d_items: Any,
    d_head: Any,
) -> None:
    """Add the gradients of both branches to the head's and to the tables', there at each row's place."""
    dim = users.shape[1] // 2
    key = _key(seed, call)
    for row in range(len(g)):
        of_user, of_item, of_x, of_g = users[user[row]], items[item[row]], dx[row], g[row]
        to_user, to_item = d_users[user_place[row]], d_items[item_place[row]]
        for d in range(dim):
            weighted = of_g * head[d]
            d_head[d] += of_g * of_user[d] * of_item[d]
            to_user[d] += weighted * of_item[d]
            to_item[d] += weighted * of_user[d]
        if scale == _ZERO:
            for d in range(dim):
                to_user[dim + d] += of_x[d]
            for d in range(dim):
                to_item[dim + d] += of_x[dim + d]
        else:
            first = (start + row) * 2 * dim
            for d in range(dim):
                to_user[dim + d] += of_x[d] * _mask(key, first + d, threshold, scale)
            first += dim
            for d in range(dim):
                to_item[dim + d] += of_x[dim + d] * _mask(key, first + d, threshold, scale)


@compiled(fastmath=_FAST)
def drop(x: Any, seed: Any, call: Any, threshold: Any, scale: Any, start: Any, out: Any) -> None:
    """Dropout of ``x`` ``[n, width]`` to ``out``."""
    key = _key(seed, call)
    first = start * x.shape[1]
    of_x, of_out = x.reshape(x.size), out.reshape(out.size)
    for place in range(len(of_x)):
        of_out[place] = of_x[place] * _mask(key, first + place, threshold, scale)


@compiled(fastmath=_FAST)
def cross_and_read(x: Any, product: Any, below: Any, head: Any, logit: Any) -> None:
    """The last cross, x₀ ⊙ u + x_l ``[n, width]``: its product with the head is added to the logit."""
    width = x.shape[1]
    for row in range(len(x)):
        of_x, of_product, of_below = x[row], product[row], below[row]
        total = _ZERO
        for k in range(width):
            total += (of_x[k] * of_product[k] + of_below[k]) * head[k]
        logit[row] += total


@compiled(fastmath=_FAST)
def crosses_head_gradient(
    g: Any, x: Any, product: Any, below: Any, head: Any, back: Any, d_head: Any
) -> None:
    """Back through the head: ``back`` ``[n, width]`` is the gradient of the last cross."""
    width = x.shape[1]
    for row in range(len(x)):
        of_x, of_product, of_below, of_back = x[row], product[row], below[row], back[row]
        of_g = g[row]
        for k in range(width):
            d_head[k] += of_g * (of_x[k] * of_product[k] + of_below[k])
            of_back[k] = of_g * head[k]


@compiled(fastmath=_FAST)
def cross_gradient(
    back: Any, x: Any, product: Any, is_first: Any, d_product: Any, d_x: Any, d_bias: Any
) -> None:
    """Back through x₀ ⊙ u + x_l: the gradient of u is written, that of x₀ is added to ``d_x``.

    The input of the first cross is x₀ too.
    """
    width = x.shape[1]
    own = ONE if is_first else _ZERO
    for row in range(len(x)):
        of_x, of_product, of_back = x[row], product[row], back[row]
        to_product, to_x = d_product[row], d_x[row]
        for k in range(width):
            of_u = of_back[k] * of_x[k]
            to_product[k] = of_u
            d_bias[k] += of_u
            to_x[k] += of_back[k] * (of_product[k] + own)
