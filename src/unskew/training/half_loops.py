"""Adam on rows of one replica's table that is stored as bfloat16, as compiled loops.

What :mod:`unskew.training.table_loops` does for float32, with the same arguments, but for

- the weights, which are read as float32 and written back by stochastic rounding: x goes to one of its two
  neighbours in bfloat16, with a probability that makes x their mean. To the nearest, a step of less than
  1/512 of a weight would be lost every time. What decides is a hash of (key, step, row, column): neither
  threads nor the order of a batch change it.
- the second moment, of which a row has one for each of the tables that lie side by side in it: v is the
  running mean of the mean square of their columns' gradients. So a row that waits has one denominator, and
  what momentum does to it meanwhile is a number times m, Σ_k in full.

A row is brought to the last step when it is read, always before it has a gradient. Imported only where
needed: numba is slow to load.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.backbones.cpu_kernels import mix32
from unskew.compiled import compiled
from unskew.training.table_loops import (
    _B1,
    _B2,
    _EPSILON,
    _FAST,
    _LEFT_1,
    _NEW_1,
    _NEW_2,
    _RATE,
    _ROOT_LEFT_2,
    _SCALE,
    _ZERO,
    BETA_1,
    BETA_2,
    CORRECTED,
    HORIZON,
)

_GOLDEN, _ONE, _HALF = np.uint32(0x9E3779B9), np.uint32(1), np.uint32(16)
_LOW, _EXPONENT = np.uint32(0xFFFF), np.uint32(0x7F800000)


@compiled()
def key_of_step(key: Any, call: Any) -> Any:
    """For all rows of one step."""
    return mix32(np.uint32(np.uint32(key) + mix32(np.uint32(np.uint32(call) * _GOLDEN + _ONE))))


@compiled()
def _load(stored: Any, bits: Any) -> None:
    """A row ``[F]`` of bfloat16 as the bits of float32."""
    for d in range(len(stored)):
        bits[d] = np.uint32(stored[d]) << _HALF


@compiled()
def store(bits: Any, stored: Any, key: Any, row: Any) -> None:
    """Bits of float32 as a row of bfloat16, rounded by a hash; NaN and infinities stay what they are."""
    key = mix32(np.uint32(np.uint32(np.uint32(row) * _GOLDEN) ^ key))
    for d in range(len(stored)):
        random = mix32(np.uint32(np.uint32(np.uint32(d) * _GOLDEN) ^ key)) & _LOW
        if bits[d] & _EXPONENT == _EXPONENT:
            random = np.uint32(0)
        stored[d] = np.uint16(np.uint32(bits[d] + random) >> _HALF)


@compiled(fastmath=_FAST, error_model="numpy")
def _pull(v: Any, since: Any, idle: Any, lr: Any) -> Any:
    """What a row moves, by m: lr · Σ_{k=1}^{idle} β₁ᵏ / c₁(t) / (√(β₂ᵏ v / c₂(t)) + ε) with t = since + k."""
    first, root, total = min(since, CORRECTED), np.float32(np.sqrt(v)), _ZERO
    for k in range(1, idle + 1):
        total += _LEFT_1[k] * _RATE[first + k] / (root * _ROOT_LEFT_2[k] * _SCALE[first + k] + _EPSILON)
    return np.float32(lr * total)


@compiled(fastmath=_FAST, error_model="numpy")
def _drift(p: Any, m: Any, v: Any, edges: Any, since: Any, idle: Any, lr: Any) -> None:
    """What ``idle`` steps without a gradient after step ``since`` do to a row; its moments are left alone."""
    for table in range(len(v)):
        pull = _pull(v[table], since, idle, lr)
        for d in range(edges[table], edges[table + 1]):
            p[d] -= pull * m[d]


@compiled(fastmath=_FAST, error_model="numpy")
def bring_read(
    codes: Any, p: Any, m: Any, v: Any, seen: Any, step: Any, settled: Any, lr: Any, edges: Any, key: Any,
    part: Any, parts: Any,
) -> None:  # fmt: skip
    """Bring the rows of ``codes`` ``[n]`` to ``step``; ``seen`` is the step each is at, 0 for untouched."""
    bits = np.empty(p.shape[1], dtype=np.uint32)
    key = key_of_step(key, 2 * step)
    for place in range(len(codes)):
        row = codes[place]
        if row % parts == part and 0 < seen[row] < step:
            _bring(row, p, m, v, bits, edges, seen[row], step, settled, lr, key)
            seen[row] = step


@compiled(fastmath=_FAST, error_model="numpy")
def _bring(
    row: Any, p: Any, m: Any, v: Any, bits: Any, edges: Any, since: Any, step: Any, settled: Any, lr: Any,
    key: Any,
) -> None:  # fmt: skip
    """A row from step ``since`` to ``step``; its momentum was spent if it was not settled since."""
    waited = step - since
    if since >= settled:
        _load(p[row], bits)
        _drift(bits.view(np.float32), m[row], v[row], edges, since, min(waited, HORIZON), lr)
        store(bits, p[row], key, row)
        left_1 = _LEFT_1[waited] if waited < HORIZON else _ZERO
        for d in range(m.shape[1]):
            m[row, d] *= left_1
    left_2 = np.float32(BETA_2**waited)
    for table in range(v.shape[1]):
        v[row, table] *= left_2


@compiled(fastmath=_FAST, error_model="numpy")
def bring_all(
    p: Any, m: Any, v: Any, seen: Any, step: Any, settled: Any, lr: Any, edges: Any, key: Any, part: Any,
    parts: Any,
) -> None:  # fmt: skip
    """Bring the weights of all rows to ``step``; one whose momentum is spent stays at its step, as there."""
    bits = np.empty(p.shape[1], dtype=np.uint32)
    key = key_of_step(key, 2 * step)
    for row in range(part, len(seen), parts):
        since = seen[row]
        if since == 0 or since < settled or since == step:
            continue
        if step - since < HORIZON:
            _bring(row, p, m, v, bits, edges, since, step, settled, lr, key)
            seen[row] = step
        else:
            _load(p[row], bits)
            _drift(bits.view(np.float32), m[row], v[row], edges, since, HORIZON, lr)
            store(bits, p[row], key, row)
            m[row, :] = _ZERO


@compiled(fastmath=_FAST, error_model="numpy")
def update(
    codes: Any, gradient: Any, p: Any, m: Any, v: Any, seen: Any, touched: Any, slot: Any, step: Any,
    settled: Any, lr: Any, decay: Any, edges: Any, key: Any, part: Any, parts: Any,
) -> None:  # fmt: skip
    """Step number ``step`` on the rows of ``codes`` ``[n]``, each by the sum of its ``gradient`` ``[n, F]``.

    ``touched`` is the step of a row's last gradient; ``slot`` is 0 before and after.
    """
    n, width = gradient.shape
    following = np.empty(n, dtype=np.int32)
    # From the back, so that a row's chain of places is in the order of the batch.
    for place in range(n - 1, -1, -1):
        row = codes[place]
        if row % parts == part:
            following[place] = slot[row]
            slot[row] = place + 1
    total, bits = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.uint32)
    of_p = bits.view(np.float32)
    rate = np.float32(lr / (1.0 - BETA_1**step))
    scale = np.float32(1.0 / np.sqrt(1.0 - BETA_2**step))
    key = key_of_step(key, 2 * step + 1)
    for place in range(n):
        row = codes[place]
        if row % parts != part or slot[row] != place + 1:
            continue
        slot[row] = 0
        _load(p[row], bits)
        factor = np.float32(decay * (step - touched[row]))
        for d in range(width):
            total[d] = factor * of_p[d]
        other = place + 1
        while other > 0:
            of_gradient = gradient[other - 1]
            for d in range(width):
                total[d] += of_gradient[d]
            other = following[other - 1]
        of_m = m[row]
        for table in range(len(edges) - 1):
            start, stop = edges[table], edges[table + 1]
            square = _ZERO
            for d in range(start, stop):
                square += total[d] * total[d]
            v[row, table] = _B2 * v[row, table] + _NEW_2 * square / np.float32(stop - start)
            moved = rate / (np.float32(np.sqrt(v[row, table])) * scale + _EPSILON)
            for d in range(start, stop):
                of_m[d] = _B1 * of_m[d] + _NEW_1 * total[d]
                of_p[d] -= moved * of_m[d]
        store(bits, p[row], key, row)
        seen[row] = touched[row] = step
