"""The Triton kernels behind :mod:`unskew.backbones.fused`. Imported only on a GPU."""

from __future__ import annotations

from itertools import zip_longest

import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.backbones import fused
from unskew.compiled import triton_cache

triton_cache()

FEW_PAIRS = 4096
"""With fewer pairs, programs are many and small, so that every multiprocessor has one."""
MANY_PAIRS = 65536
"""With as many pairs, programs are few and large, so that they share more."""


def _launch(replicas: int, batch: int, many: tuple[int, int]) -> tuple[tuple[int, int], dict[str, int]]:
    """The grid, and the pairs and warps of a program: measured best on an H200, ``many`` for many pairs.

    Programs of one replica stand side by side, so that what they share is in the cache while they run.
    """
    tile, warps = (16, 4) if replicas * batch < FEW_PAIRS else many
    return (triton.cdiv(batch, tile), replicas), {"T": tile, "num_warps": warps}


@triton.jit
def _mix32(x):
    x = x ^ (x >> 16)
    x = x * 0x7FEB352D
    x = x ^ (x >> 15)
    x = x * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _key(seeds, calls, r, layer):
    seed = tl.load(seeds + r).to(tl.uint32, bitcast=True)
    call = (tl.load(calls) + layer).to(tl.uint32, bitcast=True)
    return _mix32(seed + _mix32(call * 0x9E3779B9 + 1))


@triton.jit
def _mask(key, rows, offset, WIDTH: tl.constexpr, FULL: tl.constexpr, threshold, scale):
    element = rows[:, None] * FULL + offset + tl.arange(0, WIDTH)[None, :]
    bits = _mix32((element.to(tl.uint32, bitcast=True) * 0x9E3779B9) ^ key)
    keep = (bits.to(tl.int32, bitcast=True) >> 16) >= threshold
    return tl.where(keep, scale, 0.0)


@triton.jit
def _matrix(pointer, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    return tl.load(pointer + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])


@triton.jit
def _placed(number, LONG: tl.constexpr):
    if LONG:
        number = number.to(tl.int64)
    return number


@triton.jit
def _codes(codes, at, valid, LONG: tl.constexpr):
    code = tl.load(codes + at, mask=valid, other=0)
    # Of half as many registers where a place in the table needs no more.
    if not LONG:
        code = code.to(tl.int32)
    return code


@triton.jit
def _lookup(table, index, valid, offset, D: tl.constexpr):
    place = index[:, None] * (2 * D) + offset + tl.arange(0, D)[None, :]
    return tl.load(table + place, mask=valid[:, None], other=0.0)


@triton.jit
def _kept(pointer, rows, valid, WIDTH: tl.constexpr):
    place = rows[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    return tl.load(pointer + place, mask=valid[:, None], other=0.0)


@triton.jit
def _keep(pointer, rows, valid, value, WIDTH: tl.constexpr):
    place = rows[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(pointer + place, value, mask=valid[:, None])


@triton.jit
def _gmf(users, items, wh, u, i, valid, r, D: tl.constexpr, H3: tl.constexpr):
    wg = tl.load(wh + r * (D + H3) + tl.arange(0, D))
    gmf = _lookup(users, u, valid, 0, D) * _lookup(items, i, valid, 0, D)
    return tl.sum(gmf * wg[None, :], axis=1)


@triton.jit
def _tower(
    xu, xi, rows, seeds, calls, w1, b1, w2, b2, w3, b3, wh, bh, r, threshold, scale,
    D: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, H3: tl.constexpr, DROP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    if DROP:
        key = _key(seeds, calls, r, 0)
        xu = xu * _mask(key, rows, 0, D, 2 * D, threshold, scale)
        xi = xi * _mask(key, rows, D, D, 2 * D, threshold, scale)
    h = tl.dot(xu, _matrix(w1 + r * 2 * D * H1, D, H1), input_precision=PRECISION)
    h = tl.dot(xi, _matrix(w1 + r * 2 * D * H1 + D * H1, D, H1), acc=h, input_precision=PRECISION)
    h1 = tl.maximum(h + tl.load(b1 + r * H1 + tl.arange(0, H1))[None, :], 0.0)
    if DROP:
        h1 = h1 * _mask(_key(seeds, calls, r, 1), rows, 0, H1, H1, threshold, scale)
    h = tl.dot(h1, _matrix(w2 + r * H1 * H2, H1, H2), input_precision=PRECISION)
    h2 = tl.maximum(h + tl.load(b2 + r * H2 + tl.arange(0, H2))[None, :], 0.0)
    if DROP:
        h2 = h2 * _mask(_key(seeds, calls, r, 2), rows, 0, H2, H2, threshold, scale)
    h = tl.dot(h2, _matrix(w3 + r * H2 * H3, H2, H3), input_precision=PRECISION)
    h3 = tl.maximum(h + tl.load(b3 + r * H3 + tl.arange(0, H3))[None, :], 0.0)
    wt = tl.load(wh + r * (D + H3) + D + tl.arange(0, H3))
    return tl.sum(h3 * wt[None, :], axis=1) + tl.load(bh + r), h1, h2, h3


@triton.jit
def _forward_kernel(
    user, item, seeds, calls, out, x1, x2, x3, users, items, w1, b1, w2, b2, w3, b3, wh, bh, batch, n_users,
    n_items, threshold, scale,
    D: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, H3: tl.constexpr, DROP: tl.constexpr,
    KEEP: tl.constexpr, T: tl.constexpr, PRECISION: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(1)
    rows = tl.program_id(0) * T + tl.arange(0, T)
    valid = rows < batch
    at = _placed(r, LONG) * batch + rows
    u = _codes(user, at, valid, LONG)
    i = _codes(item, at, valid, LONG)
    users += r.to(tl.int64) * n_users * (2 * D)
    items += r.to(tl.int64) * n_items * (2 * D)
    gmf = _gmf(users, items, wh, u, i, valid, r, D, H3)
    xu = _lookup(users, u, valid, D, D)
    xi = _lookup(items, i, valid, D, D)
    mlp, h1, h2, h3 = _tower(
        xu, xi, rows, seeds, calls, w1, b1, w2, b2, w3, b3, wh, bh, r, threshold, scale,
        D, H1, H2, H3, DROP, PRECISION,
    )  # fmt: skip
    tl.store(out + at, gmf + mlp, mask=valid)
    if KEEP:
        _keep(x1, at, valid, h1, H1)
        _keep(x2, at, valid, h2, H2)
        _keep(x3, at, valid, h3, H3)


@triton.jit
def _moments_kernel(
    user, item, seeds, calls, mean, variance, users, items, w1, b1, w2, b2, w3, b3, wh, bh, batch, n_users,
    n_items, threshold, scale, passes, offset,
    D: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, H3: tl.constexpr, T: tl.constexpr,
    PRECISION: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(1)
    rows = tl.program_id(0) * T + tl.arange(0, T)
    valid = rows < batch
    at = _placed(r, LONG) * batch + rows
    u = _codes(user, at, valid, LONG)
    i = _codes(item, at, valid, LONG)
    users += r.to(tl.int64) * n_users * (2 * D)
    items += r.to(tl.int64) * n_items * (2 * D)
    base = _gmf(users, items, wh, u, i, valid, r, D, H3) + offset
    xu = _lookup(users, u, valid, D, D)
    xi = _lookup(items, i, valid, D, D)
    total = tl.zeros((T,), dtype=tl.float64)
    squares = tl.zeros((T,), dtype=tl.float64)
    for t in range(passes):
        # The masks of pass t are those of the t-th copy of the batch.
        mlp, _, _, _ = _tower(
            xu, xi, t * batch + rows, seeds, calls, w1, b1, w2, b2, w3, b3, wh, bh, r, threshold, scale,
            D, H1, H2, H3, True, PRECISION,
        )  # fmt: skip
        logit = base + mlp
        p = 1.0 / (1.0 + tl.exp(-logit.to(tl.float64)))
        total += p
        squares += p * p
    centre = total / passes
    tl.store(mean + at, centre, mask=valid)
    tl.store(variance + at, tl.maximum(squares / passes - centre * centre, 0.0), mask=valid)


@triton.jit
def _add_rows(table, index, valid, offset, value, D: tl.constexpr):
    place = index[:, None] * (2 * D) + offset + tl.arange(0, D)[None, :]
    tl.atomic_add(table + place, value, mask=valid[:, None], sem="relaxed")


@triton.jit
def _add_matrix(pointer, value, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    place = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.atomic_add(pointer + place, value, sem="relaxed")


@triton.jit
def _add(pointer, value, WIDTH: tl.constexpr):
    tl.atomic_add(pointer + tl.arange(0, WIDTH), value, sem="relaxed")


@triton.jit
def _backward_kernel(
    grad, user, item, seeds, calls, users, items, w1, w2, w3, wh, x1, x2, x3, d_users, d_items, d_w1, d_b1,
    d_w2, d_b2, d_w3, d_b3, d_wh, d_bh, batch, n_users, n_items, threshold, scale,
    D: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, H3: tl.constexpr, DROP: tl.constexpr,
    T: tl.constexpr, PRECISION: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(1)
    rows = tl.program_id(0) * T + tl.arange(0, T)
    valid = rows < batch
    at = _placed(r, LONG) * batch + rows
    g = tl.load(grad + at, mask=valid, other=0.0)[:, None]
    # Inputs of the layers after dropout: 0 where a unit was dropped or not active.
    h3 = _kept(x3, at, valid, H3)
    h2 = _kept(x2, at, valid, H2)
    h1 = _kept(x1, at, valid, H1)
    wt = tl.load(wh + r * (D + H3) + D + tl.arange(0, H3))

    _add(d_wh + r * (D + H3) + D, tl.sum(g * h3, axis=0), H3)
    tl.atomic_add(d_bh + r, tl.sum(tl.sum(g, axis=1), axis=0), sem="relaxed")
    z3 = tl.where(h3 > 0, g * wt[None, :], 0.0)
    _add_matrix(d_w3 + r * H2 * H3, tl.dot(tl.trans(h2), z3, input_precision=PRECISION), H2, H3)
    _add(d_b3 + r * H3, tl.sum(z3, axis=0), H3)
    z2 = tl.dot(z3, tl.trans(_matrix(w3 + r * H2 * H3, H2, H3)), input_precision=PRECISION)
    z2 = tl.where(h2 > 0, z2 * scale, 0.0)
    _add_matrix(d_w2 + r * H1 * H2, tl.dot(tl.trans(h1), z2, input_precision=PRECISION), H1, H2)
    _add(d_b2 + r * H2, tl.sum(z2, axis=0), H2)
    z1 = tl.dot(z2, tl.trans(_matrix(w2 + r * H1 * H2, H1, H2)), input_precision=PRECISION)
    z1 = tl.where(h1 > 0, z1 * scale, 0.0)
    _add(d_b1 + r * H1, tl.sum(z1, axis=0), H1)

    u = _codes(user, at, valid, LONG)
    i = _codes(item, at, valid, LONG)
    users += r.to(tl.int64) * n_users * (2 * D)
    items += r.to(tl.int64) * n_items * (2 * D)
    d_users += r.to(tl.int64) * n_users * (2 * D)
    d_items += r.to(tl.int64) * n_items * (2 * D)
    first = w1 + r * 2 * D * H1
    xu = _lookup(users, u, valid, D, D)
    du = tl.dot(z1, tl.trans(_matrix(first, D, H1)), input_precision=PRECISION)
    if DROP:
        key = _key(seeds, calls, r, 0)
        mask = _mask(key, rows, 0, D, 2 * D, threshold, scale)
        xu = xu * mask
        du = du * mask
    _add_rows(d_users, u, valid, D, du, D)
    _add_matrix(d_w1 + r * 2 * D * H1, tl.dot(tl.trans(xu), z1, input_precision=PRECISION), D, H1)
    xi = _lookup(items, i, valid, D, D)
    di = tl.dot(z1, tl.trans(_matrix(first + D * H1, D, H1)), input_precision=PRECISION)
    if DROP:
        mask = _mask(key, rows, D, D, 2 * D, threshold, scale)
        xi = xi * mask
        di = di * mask
    _add_rows(d_items, i, valid, D, di, D)
    _add_matrix(d_w1 + r * 2 * D * H1 + D * H1, tl.dot(tl.trans(xi), z1, input_precision=PRECISION), D, H1)

    wg = tl.load(wh + r * (D + H3) + tl.arange(0, D))
    ug = _lookup(users, u, valid, 0, D)
    ig = _lookup(items, i, valid, 0, D)
    _add(d_wh + r * (D + H3), tl.sum(g * ug * ig, axis=0), D)
    _add_rows(d_users, u, valid, 0, g * wg[None, :] * ig, D)
    _add_rows(d_items, i, valid, 0, g * wg[None, :] * ug, D)


def _sizes(parameters: tuple[Tensor, ...]) -> dict[str, int]:
    users, _, w1, _, w2, _, w3, _, _, _ = parameters
    return {"D": users.shape[2] // 2, "H1": w1.shape[2], "H2": w2.shape[2], "H3": w3.shape[2]}


def _precision() -> str:
    return "tf32" if fused.ALLOW_TF32 else "ieee"


def _dropout(rate: float) -> tuple[int, float]:
    return round(rate * 65536) - 32768, 1.0 / (1.0 - rate)


def forward(
    user: Tensor,
    item: Tensor,
    seeds: Tensor,
    calls: Tensor,
    rate: float,
    parameters: tuple[Tensor, ...],
    *,
    keep: bool = False,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Logits ``[R, B]`` and, where asked to keep them, the outputs of the layers as the next one takes them."""
    user, item = user.contiguous(), item.contiguous()
    replicas, batch = user.shape
    out = torch.empty(replicas, batch, device=user.device)
    sizes = _sizes(parameters)
    widths = [sizes[name] if keep else 0 for name in ("H1", "H2", "H3")]
    kept = tuple(torch.empty(replicas, batch, width, device=user.device) for width in widths)
    kept_best = (64, 4) if replicas * batch >= MANY_PAIRS else (32, 2)
    grid, launch = _launch(replicas, batch, kept_best if keep else (64, 2))
    # Triton launches on the current device, which need not be the tensors'.
    with torch.cuda.device_of(user):
        _forward_kernel[grid](
            user, item, seeds, calls, out, *kept, *parameters,
            batch, parameters[0].shape[1], parameters[1].shape[1], *_dropout(rate),
            **sizes, DROP=rate > 0.0, KEEP=keep, PRECISION=_precision(),
            LONG=fused.is_long(parameters, user.numel()), **launch,
        )  # fmt: skip
    return out, kept


def moments(
    user: Tensor,
    item: Tensor,
    seeds: Tensor,
    calls: Tensor,
    rate: float,
    passes: int,
    offset: float,
    parameters: tuple[Tensor, ...],
) -> tuple[Tensor, Tensor]:
    """Mean and variance ``[R, B]`` in float64 of the probabilities over passes with dropout on."""
    user, item = user.contiguous(), item.contiguous()
    replicas, batch = user.shape
    mean, variance = torch.empty(2, replicas, batch, dtype=torch.float64, device=user.device)
    grid, launch = _launch(replicas, batch, (64, 4))
    # Triton launches on the current device, which need not be the tensors'.
    with torch.cuda.device_of(user):
        _moments_kernel[grid](
            user, item, seeds, calls, mean, variance, *parameters,
            batch, parameters[0].shape[1], parameters[1].shape[1], *_dropout(rate), passes, offset,
            **_sizes(parameters), PRECISION=_precision(), LONG=fused.is_long(parameters, user.numel()), **launch,
        )  # fmt: skip
    return mean, variance


def backward(
    grad: Tensor,
    user: Tensor,
    item: Tensor,
    seeds: Tensor,
    calls: Tensor,
    rate: float,
    parameters: tuple[Tensor, ...],
    kept: tuple[Tensor, ...],
    buffers: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor, ...]:
    """Gradients of the parameters: views of one buffer, in their order.

    Those of the tables are added to ``buffers`` where there are any.
    """
    user, item = user.contiguous(), item.contiguous()
    replicas, batch = user.shape
    own = [p for p, given in zip_longest(parameters, buffers) if given is None]
    buffer = torch.zeros(sum(p.numel() for p in own), device=grad.device)
    parts = iter(buffer.split([p.numel() for p in own]))
    grads = tuple(
        next(parts).view_as(p) if given is None else given for p, given in zip_longest(parameters, buffers)
    )
    users, items, w1, _, w2, _, w3, _, head, _ = parameters
    grid, launch = _launch(replicas, batch, (64, 4))
    # Triton launches on the current device, which need not be the tensors'.
    with torch.cuda.device_of(user):
        _backward_kernel[grid](
            grad, user, item, seeds, calls, users, items, w1, w2, w3, head, *kept, *grads,
            batch, users.shape[1], items.shape[1], *_dropout(rate),
            **_sizes(parameters), DROP=rate > 0.0, PRECISION=_precision(),
            LONG=fused.is_long(parameters, user.numel()), **launch,
        )  # fmt: skip
    return grads
