"""Adam on rows of one replica's table as compiled loops, behind :mod:`unskew.training.lazy_adam`.

A row belongs to one of ``parts`` threads, ``row % parts``: the parts of a table can be worked on at the same
time, and what becomes of a row does not depend on how many there are. Imported only where needed: numba is
slow to load.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.compiled import ask_for, compiled

# Divisions are not checked, which makes them SIMD: no denominator is 0, by ε.
# Sums may be reordered, which makes them SIMD; NaN and infinities stay what they are.
_FAST = {"reassoc", "contract", "nsz"}
_ZERO = np.float32(0.0)

# PyTorch's defaults.
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
_B1, _B2, _EPSILON = np.float32(BETA_1), np.float32(BETA_2), np.float32(EPSILON)
_NEW_1, _NEW_2 = np.float32(1.0 - BETA_1), np.float32(1.0 - BETA_2)

HORIZON = 128
"""Steps after which a row's momentum is spent: β₁¹²⁸ = 1.4e-6 of it is left."""
CORRECTED = 20_000
"""Steps after which both of Adam's corrections for its start are 1 to a float's precision."""
SPAN = 16
"""A row's idle steps are added up in groups of a SPANth of the steps so far: within a group Adam's
denominator changes by a few percent, and its mean is right to 1e-4."""

AHEAD = 8
"""Rows of a table are spread over memory: each is asked for so many rows before it is worked on."""

_k = np.arange(HORIZON + 1)
_t = np.maximum(np.arange(CORRECTED + HORIZON + 1), 1)
_LEFT_1 = (BETA_1**_k).astype(np.float32)
_LEFT_2 = (BETA_2**_k).astype(np.float32)
_ROOT_LEFT_2 = (BETA_2 ** (_k / 2)).astype(np.float32)
_RATE = (1.0 / (1.0 - BETA_1**_t)).astype(np.float32)
_SCALE = (1.0 / np.sqrt(1.0 - BETA_2**_t)).astype(np.float32)


@compiled(fastmath=_FAST, error_model="numpy")
def _drift(p: Any, m: Any, v: Any, since: Any, idle: Any, lr: Any) -> None:
    """What ``idle`` steps without a gradient after step ``since`` do to a row; its moments are left alone.

    p −= lr · Σ_k β₁ᵏ m / c₁(t) / (√(β₂ᵏ v / c₂(t)) + ε) with t = since + k, groups of k sharing the mean
    denominator.
    """
    first = min(since, CORRECTED)
    done = 0
    while done < idle:
        stop = min(idle, done + max(1, (since + done) // SPAN))
        weight = total = _ZERO
        for k in range(done + 1, stop + 1):
            rate = _LEFT_1[k] * _RATE[first + k]
            weight += rate
            total += rate * _ROOT_LEFT_2[k] * _SCALE[first + k]
        total /= weight
        weight *= lr
        for d in range(len(p)):
            p[d] -= weight * m[d] / (np.sqrt(v[d]) * total + _EPSILON)
        done = stop


@compiled(fastmath=_FAST, error_model="numpy")
def _bring(p: Any, m: Any, v: Any, since: Any, step: Any, settled: Any, lr: Any) -> None:
    """A row from step ``since`` to ``step``; its momentum was spent if it was not settled since."""
    waited = step - since
    left_2 = _LEFT_2[waited] if waited <= HORIZON else np.float32(BETA_2**waited)
    if since >= settled:
        _drift(p, m, v, since, min(waited, HORIZON), lr)
        left_1 = _LEFT_1[waited] if waited < HORIZON else _ZERO
        for d in range(len(m)):
            m[d] *= left_1
    for d in range(len(v)):
        v[d] *= left_2


@compiled(fastmath=_FAST, error_model="numpy")
def bring_read(
    codes: Any, p: Any, m: Any, v: Any, seen: Any, step: Any, settled: Any, lr: Any, part: Any, parts: Any
) -> None:
    """Bring the rows of ``codes`` ``[n]`` to ``step``; ``seen`` is the step each is at, 0 for untouched."""
    n = len(codes)
    for place in range(n):
        if place + 2 * AHEAD < n:
            ask_for(seen, codes[place + 2 * AHEAD])
        if place + AHEAD < n:
            coming = codes[place + AHEAD]
            if 0 < seen[coming] < step:
                ask_for(m, coming)
                ask_for(v, coming)
            ask_for(p, coming)
        row = codes[place]
        if row % parts == part and 0 < seen[row] < step:
            _bring(p[row], m[row], v[row], seen[row], step, settled, lr)
            seen[row] = step


@compiled(fastmath=_FAST, error_model="numpy")
def bring_all(
    p: Any, m: Any, v: Any, seen: Any, step: Any, settled: Any, lr: Any, part: Any, parts: Any
) -> None:
    """Bring the weights of all rows to ``step``.

    A row that waited so long that its momentum is spent stays at its step, which is then before the one that
    the table is settled at: the next time it is only looked at.
    """
    for row in range(part, len(seen), parts):
        since = seen[row]
        if since == 0 or since < settled or since == step:
            continue
        waited = step - since
        if waited < HORIZON:
            _bring(p[row], m[row], v[row], since, step, settled, lr)
            seen[row] = step
        else:
            _drift(p[row], m[row], v[row], since, HORIZON, lr)
            m[row, :] = _ZERO


@compiled(fastmath=_FAST, error_model="numpy")
def update(
    codes: Any,
    gradient: Any,
    p: Any,
    m: Any,
    v: Any,
    seen: Any,
    touched: Any,
    slot: Any,
    step: Any,
    settled: Any,
    lr: Any,
    decay: Any,
    part: Any,
    parts: Any,
) -> None:
    """Step number ``step`` on the rows of ``codes`` ``[n]``, each by the sum of its ``gradient`` ``[n, F]``.

    ``touched`` is the step of a row's last gradient; ``slot`` is 0 before and after.
    """
    n, width = gradient.shape
    following, firsts = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    # From the back, so that a row's chain of places is in the order of the batch.
    for place in range(n - 1, -1, -1):
        row = codes[place]
        if row % parts == part:
            following[place] = slot[row]
            slot[row] = place + 1
    rows = 0
    for place in range(n):
        row = codes[place]
        if row % parts == part and slot[row] == place + 1:
            slot[row] = 0
            firsts[rows] = place
            rows += 1
    total = np.empty(width, dtype=np.float32)
    rate = np.float32(lr / (1.0 - BETA_1**step))
    scale = np.float32(1.0 / np.sqrt(1.0 - BETA_2**step))
    for number in range(rows):
        if number + AHEAD < rows:
            coming = codes[firsts[number + AHEAD]]
            ask_for(p, coming)
            ask_for(m, coming)
            ask_for(v, coming)
            ask_for(seen, coming)
            ask_for(touched, coming)
        place = firsts[number]
        row = codes[place]
        of_p, of_m, of_v = p[row], m[row], v[row]
        if 0 < seen[row] < step - 1:
            _bring(of_p, of_m, of_v, seen[row], step - 1, settled, lr)
        factor = np.float32(decay * (step - touched[row]))
        for d in range(width):
            total[d] = factor * of_p[d]
        other = place + 1
        while other > 0:
            of_gradient = gradient[other - 1]
            for d in range(width):
                total[d] += of_gradient[d]
            other = following[other - 1]
        for d in range(width):
            of_m[d] = _B1 * of_m[d] + _NEW_1 * total[d]
            of_v[d] = _B2 * of_v[d] + _NEW_2 * total[d] * total[d]
            of_p[d] -= rate * of_m[d] / (np.sqrt(of_v[d]) * scale + _EPSILON)
        seen[row] = touched[row] = step
