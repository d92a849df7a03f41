"""The Triton kernels behind :mod:`unskew.backbones.fused`. Imported only on a GPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.backbones import fused

TILE = 32
"""Pairs a program works on at once."""


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
def _lookup(table, index, valid, offset, D: tl.constexpr):
    place = index[:, None] * (2 * D) + offset + tl.arange(0, D)[None, :]
    return tl.load(table + place, mask=valid[:, None], other=0.0)


@triton.jit
def _forward_kernel(
    user,
    item,
    seeds,
    calls,
    out,
    users,
    items,
    w1,
    b1,
    w2,
    b2,
    w3,
    b3,
    wh,
    bh,
    batch,
    n_users,
    n_items,
    threshold,
    scale,
    D: tl.constexpr,
    H1: tl.constexpr,
    H2: tl.constexpr,
    H3: tl.constexpr,
    DROP: tl.constexpr,
    T: tl.constexpr,
    PRECISION: tl.constexpr,
):
    r = tl.program_id(0)
    rows = tl.program_id(1) * T + tl.arange(0, T)
    valid = rows < batch
    u = tl.load(user + r * batch + rows, mask=valid, other=0) + r * n_users
    i = tl.load(item + r * batch + rows, mask=valid, other=0) + r * n_items
    gmf = _lookup(users, u, valid, 0, D) * _lookup(items, i, valid, 0, D)
    wg = tl.load(wh + r * (D + H3) + tl.arange(0, D))
    logit = tl.sum(gmf * wg[None, :], axis=1)
    xu = _lookup(users, u, valid, D, D)
    xi = _lookup(items, i, valid, D, D)
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
    logit += tl.sum(h3 * wt[None, :], axis=1) + tl.load(bh + r)
    tl.store(out + r * batch + rows, logit, mask=valid)


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
    grad,
    user,
    item,
    seeds,
    calls,
    users,
    items,
    w1,
    b1,
    w2,
    b2,
    w3,
    b3,
    wh,
    d_users,
    d_items,
    d_w1,
    d_b1,
    d_w2,
    d_b2,
    d_w3,
    d_b3,
    d_wh,
    d_bh,
    batch,
    n_users,
    n_items,
    threshold,
    scale,
    D: tl.constexpr,
    H1: tl.constexpr,
    H2: tl.constexpr,
    H3: tl.constexpr,
    DROP: tl.constexpr,
    T: tl.constexpr,
    PRECISION: tl.constexpr,
):
    r = tl.program_id(0)
    w1a = _matrix(w1 + r * 2 * D * H1, D, H1)
    w1b = _matrix(w1 + r * 2 * D * H1 + D * H1, D, H1)
    w2m = _matrix(w2 + r * H1 * H2, H1, H2)
    w3m = _matrix(w3 + r * H2 * H3, H2, H3)
    c1 = tl.load(b1 + r * H1 + tl.arange(0, H1))
    c2 = tl.load(b2 + r * H2 + tl.arange(0, H2))
    c3 = tl.load(b3 + r * H3 + tl.arange(0, H3))
    wg = tl.load(wh + r * (D + H3) + tl.arange(0, D))
    wt = tl.load(wh + r * (D + H3) + D + tl.arange(0, H3))
    rows = tl.program_id(1) * T + tl.arange(0, T)
    valid = rows < batch
    u = tl.load(user + r * batch + rows, mask=valid, other=0) + r * n_users
    i = tl.load(item + r * batch + rows, mask=valid, other=0) + r * n_items
    g = tl.load(grad + r * batch + rows, mask=valid, other=0.0)
    xu = _lookup(users, u, valid, D, D)
    xi = _lookup(items, i, valid, D, D)
    if DROP:
        key = _key(seeds, calls, r, 0)
        mu = _mask(key, rows, 0, D, 2 * D, threshold, scale)
        mi = _mask(key, rows, D, D, 2 * D, threshold, scale)
        xu = xu * mu
        xi = xi * mi
    h = tl.dot(xu, w1a, input_precision=PRECISION)
    h1 = tl.maximum(tl.dot(xi, w1b, acc=h, input_precision=PRECISION) + c1[None, :], 0.0)
    x1 = h1
    if DROP:
        m1 = _mask(_key(seeds, calls, r, 1), rows, 0, H1, H1, threshold, scale)
        x1 = h1 * m1
    h2 = tl.maximum(tl.dot(x1, w2m, input_precision=PRECISION) + c2[None, :], 0.0)
    x2 = h2
    if DROP:
        m2 = _mask(_key(seeds, calls, r, 2), rows, 0, H2, H2, threshold, scale)
        x2 = h2 * m2
    h3 = tl.maximum(tl.dot(x2, w3m, input_precision=PRECISION) + c3[None, :], 0.0)

    _add(d_wh + r * (D + H3) + D, tl.sum(g[:, None] * h3, axis=0), H3)
    tl.atomic_add(d_bh + r, tl.sum(g, axis=0), sem="relaxed")
    z3 = tl.where(h3 > 0, g[:, None] * wt[None, :], 0.0)
    _add_matrix(d_w3 + r * H2 * H3, tl.dot(tl.trans(x2), z3, input_precision=PRECISION), H2, H3)
    _add(d_b3 + r * H3, tl.sum(z3, axis=0), H3)
    z2 = tl.dot(z3, tl.trans(w3m), input_precision=PRECISION)
    if DROP:
        z2 = z2 * m2
    z2 = tl.where(h2 > 0, z2, 0.0)
    _add_matrix(d_w2 + r * H1 * H2, tl.dot(tl.trans(x1), z2, input_precision=PRECISION), H1, H2)
    _add(d_b2 + r * H2, tl.sum(z2, axis=0), H2)
    z1 = tl.dot(z2, tl.trans(w2m), input_precision=PRECISION)
    if DROP:
        z1 = z1 * m1
    z1 = tl.where(h1 > 0, z1, 0.0)
    _add_matrix(d_w1 + r * 2 * D * H1, tl.dot(tl.trans(xu), z1, input_precision=PRECISION), D, H1)
    _add_matrix(d_w1 + r * 2 * D * H1 + D * H1, tl.dot(tl.trans(xi), z1, input_precision=PRECISION), D, H1)
    _add(d_b1 + r * H1, tl.sum(z1, axis=0), H1)
    du = tl.dot(z1, tl.trans(w1a), input_precision=PRECISION)
    di = tl.dot(z1, tl.trans(w1b), input_precision=PRECISION)
    if DROP:
        du = du * mu
        di = di * mi
    _add_rows(d_users, u, valid, D, du, D)
    _add_rows(d_items, i, valid, D, di, D)

    ug = _lookup(users, u, valid, 0, D)
    ig = _lookup(items, i, valid, 0, D)
    _add(d_wh + r * (D + H3), tl.sum(g[:, None] * ug * ig, axis=0), D)
    weighted = g[:, None] * wg[None, :]
    _add_rows(d_users, u, valid, 0, weighted * ig, D)
    _add_rows(d_items, i, valid, 0, weighted * ug, D)


def _sizes(parameters: tuple[Tensor, ...]) -> dict[str, int]:
    users, _, w1, _, w2, _, w3, _, _, _ = parameters
    return {"D": users.shape[2] // 2, "H1": w1.shape[2], "H2": w2.shape[2], "H3": w3.shape[2]}


def _precision() -> str:
    return "tf32" if fused.ALLOW_TF32 else "ieee"


def _dropout(rate: float) -> tuple[int, float]:
    return round(rate * 65536) - 32768, 1.0 / (1.0 - rate)


def forward(
    user: Tensor, item: Tensor, seeds: Tensor, calls: Tensor, rate: float, parameters: tuple[Tensor, ...]
) -> Tensor:
    """Logits ``[R, B]``."""
    user, item = user.contiguous(), item.contiguous()
    replicas, batch = user.shape
    out = torch.empty(replicas, batch, device=user.device)
    grid = (replicas, triton.cdiv(batch, TILE))
    # Triton launches on the current device, which need not be the tensors'.
    with torch.cuda.device_of(user):
        _forward_kernel[grid](
            user, item, seeds, calls, out, *parameters,
            batch, parameters[0].shape[1], parameters[1].shape[1], *_dropout(rate),
            **_sizes(parameters), DROP=rate > 0.0, T=TILE, PRECISION=_precision(), num_warps=4,
        )  # fmt: skip
    return out


def backward(
    grad: Tensor,
    user: Tensor,
    item: Tensor,
    seeds: Tensor,
    calls: Tensor,
    rate: float,
    parameters: tuple[Tensor, ...],
) -> tuple[Tensor, ...]:
    """Gradients of the parameters: views of one buffer, in their order."""
    user, item = user.contiguous(), item.contiguous()
    replicas, batch = user.shape
    buffer = torch.zeros(sum(p.numel() for p in parameters), device=grad.device)
    grads = tuple(
        part.view_as(p)
        for part, p in zip(buffer.split([p.numel() for p in parameters]), parameters, strict=True)
    )
    grid = (replicas, triton.cdiv(batch, TILE))
    # Triton launches on the current device, which need not be the tensors'.
    with torch.cuda.device_of(user):
        _backward_kernel[grid](
            grad, user, item, seeds, calls, *parameters[:-1], *grads,
            batch, parameters[0].shape[1], parameters[1].shape[1], *_dropout(rate),
            **_sizes(parameters), DROP=rate > 0.0, T=TILE, PRECISION=_precision(), num_warps=4,
        )  # fmt: skip
    return grads
