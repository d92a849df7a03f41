"""Towers over x₀ on a GPU (crosses beside an MLP, or an MLP alone): a kernel a layer forward, two backward.

The same function as the layers compute one by one, dropout masks included. Everything between the matrix
products is done by the kernel of the product before or after it, on tiles that it holds anyway: biases, ReLU,
dropout, crosses, the head's sum, and all gradients but those of the weights. Imported only on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from unskew.backbones.fused_kernels import _dropout, _key, _mask, _placed, _precision
from unskew.backbones.noise import Noise
from unskew.backbones.tower_layers import Layer, TowerLayers
from unskew.compiled import needs_int64, triton_cache

if TYPE_CHECKING:
    from jaxtyping import Float

triton_cache()

COLUMNS, INNER = 64, 32
"""Columns of a tile, and how many a product sums over at a time; products need 16 at least."""
ROWS_FORWARD, ROWS_BACK, ROWS_SUMMED = 32, 64, 64
"""Rows of a tile: of a layer, of the gradient of its input, and of that of its weights, which sums over them.
These were the fastest on an H200 for ten replicas of 2,048 rows, or within a microsecond of it, and nearly so
for one of 1,024."""
PROGRAMS = 800
"""About so many share the gradients of weights: six for each multiprocessor of a large card."""


NUMBERS = ("layer", "batch", "chunk", "head_stride")
"""Arguments whose values are compiled into no kernel: the last batch of an epoch is a smaller one."""


@triton.jit
def _tile(pointer, rows, valid, columns, WIDTH: tl.constexpr, LONG: tl.constexpr = False):
    at = _placed(rows, LONG)[:, None] * WIDTH + columns[None, :]
    return tl.load(pointer + at, mask=valid[:, None] & (columns < WIDTH)[None, :], other=0.0)


@triton.jit
def _line(pointer, columns, WIDTH: tl.constexpr):
    return tl.load(pointer + columns, mask=columns < WIDTH, other=0.0)


@triton.jit(do_not_specialize=NUMBERS)
def _layer_kernel(
    x, x0, weight, bias, head, head_stride, product, out, logit, seeds, calls, layer, batch, threshold, scale,
    K: tl.constexpr, N: tl.constexpr, CROSS: tl.constexpr, DROP_INPUT: tl.constexpr, DROP: tl.constexpr,
    LAST: tl.constexpr, KEEP: tl.constexpr, STORE: tl.constexpr, T: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, PRECISION: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(0) * T + tl.arange(0, T)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    valid = rows < batch
    x += r * batch * K
    weight += r * K * N
    total = tl.zeros((T, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        inner = first + tl.arange(0, BK)
        a = _tile(x, rows, valid, inner, K, LONG)
        if DROP_INPUT:
            a = a * _mask(_key(seeds, calls, r, layer), rows, first, BK, K, threshold, scale)
        w = _tile(weight, inner, inner < K, columns, N)
        total = tl.dot(a, w, acc=total, input_precision=PRECISION)
    total += _line(bias + r * N, columns, N)[None, :]
    inside = valid[:, None] & (columns < N)[None, :]
    at = r * batch * N + _placed(rows, LONG)[:, None] * N + columns[None, :]
    if CROSS:
        if KEEP:
            tl.store(product + at, total, mask=inside)
        value = _tile(x0 + r * batch * N, rows, valid, columns, N, LONG) * total
        value += _tile(x, rows, valid, columns, N, LONG)
    else:
        value = tl.where(total < 0, 0.0, total)  # what is not a number stays
    if DROP:
        # What the next layer takes.
        key = _key(seeds, calls, r, layer + 1)
        value = value * _mask(key, rows, tl.program_id(1) * BN, BN, N, threshold, scale)
    if STORE:
        tl.store(out + at, value, mask=inside)
    if LAST:
        part = tl.sum(value * _line(head + r * head_stride, columns, N)[None, :], axis=1)
        tl.atomic_add(logit + r * batch + rows, part, mask=valid, sem="relaxed")


@triton.jit
def _of_product(
    back, gate, grad, head, rows, valid, columns, N: tl.constexpr, CROSS: tl.constexpr, LAST: tl.constexpr,
    LONG: tl.constexpr,
):  # fmt: skip
    # The gradient of x W + b.
    if LAST:
        g = tl.load(grad + rows, mask=valid, other=0.0)[:, None] * _line(head, columns, N)[None, :]
    else:
        g = _tile(back, rows, valid, columns, N, LONG)
    if CROSS:
        g = g * _tile(gate, rows, valid, columns, N, LONG)
    elif LAST:
        g = tl.where(_tile(gate, rows, valid, columns, N, LONG) > 0, g, 0.0)
    return g


@triton.jit(do_not_specialize=NUMBERS)
def _input_gradient_kernel(
    back, gate, grad, head, head_stride, weight, product, below, out, d_x, seeds, calls, batch, threshold,
    scale,
    K: tl.constexpr, N: tl.constexpr, CROSS: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
    DROP: tl.constexpr, T: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
    LONG: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(0) * T + tl.arange(0, T)
    columns = tl.program_id(1) * BK + tl.arange(0, BK)
    valid = rows < batch
    back += r * batch * N
    gate += r * batch * N
    grad += r * batch
    head += r * head_stride
    total = tl.zeros((T, BK), dtype=tl.float32)
    for first in range(0, N, BN):
        inner = first + tl.arange(0, BN)
        g = _of_product(back, gate, grad, head, rows, valid, inner, N, CROSS, LAST, LONG)
        w = tl.trans(_tile(weight + r * K * N, columns, columns < K, inner, N))
        total = tl.dot(g, w, acc=total, input_precision=PRECISION)
    inside = valid[:, None] & (columns < K)[None, :]
    own = _placed(rows, LONG)[:, None] * K + columns[None, :]
    d_x += r * batch * K
    if CROSS:
        if LAST:
            g = tl.load(grad + rows, mask=valid, other=0.0)[:, None] * _line(head, columns, K)[None, :]
        else:
            g = _tile(back, rows, valid, columns, K, LONG)
        of_x = g * _tile(product + r * batch * K, rows, valid, columns, K, LONG)
        of_x += _tile(d_x, rows, valid, columns, K, LONG)
        total += g
        if FIRST:
            of_x += total
        else:
            tl.store(out + r * batch * K + own, total, mask=inside)
        tl.store(d_x + own, of_x, mask=inside)
    elif FIRST:
        if DROP:
            key = _key(seeds, calls, r, 0)
            total = total * _mask(key, rows, tl.program_id(1) * BK, BK, K, threshold, scale)
        tl.store(d_x + own, total, mask=inside)
    else:
        # 0 where a unit was dropped or not active.
        active = _tile(below + r * batch * K, rows, valid, columns, K, LONG) > 0
        tl.store(out + r * batch * K + own, tl.where(active, total * scale, 0.0), mask=inside)


@triton.jit(do_not_specialize=NUMBERS)
def _weight_gradient_kernel(
    x, back, gate, grad, head, head_stride, product, d_weight, d_bias, d_head, d_head_bias, seeds, calls,
    batch, chunk, threshold, scale,
    K: tl.constexpr, N: tl.constexpr, CROSS: tl.constexpr, LAST: tl.constexpr, DROP_INPUT: tl.constexpr,
    T: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(2).to(tl.int64)
    across: tl.constexpr = (N + BN - 1) // BN
    down, right = tl.program_id(0) // across, tl.program_id(0) % across
    above = down * BK + tl.arange(0, BK)
    columns = right * BN + tl.arange(0, BN)
    x += r * batch * K
    back += r * batch * N
    gate += r * batch * N
    product += r * batch * N
    grad += r * batch
    head += r * head_stride
    total = tl.zeros((BK, BN), dtype=tl.float32)
    of_bias = tl.zeros((BN,), dtype=tl.float32)
    of_head = tl.zeros((BN,), dtype=tl.float32)
    of_head_bias = tl.zeros((T,), dtype=tl.float32)
    first = tl.program_id(1) * chunk
    for start in range(first, tl.minimum(first + chunk, batch), T):
        rows = start + tl.arange(0, T)
        valid = rows < batch
        a = _tile(x, rows, valid, above, K, LONG)
        if DROP_INPUT:
            a = a * _mask(_key(seeds, calls, r, 0), rows, down * BK, BK, K, threshold, scale)
        g = _of_product(back, gate, grad, head, rows, valid, columns, N, CROSS, LAST, LONG)
        total = tl.dot(tl.trans(a), g, acc=total, input_precision=PRECISION)
        if down == 0:
            of_bias += tl.sum(g, axis=0)
            if LAST:
                # gate is x₀ of a cross, and the output of a layer.
                read = _tile(gate, rows, valid, columns, N, LONG)
                if CROSS:
                    read = read * _tile(product, rows, valid, columns, N, LONG)
                    read += _tile(x, rows, valid, columns, N, LONG)
                of_row = tl.load(grad + rows, mask=valid, other=0.0)
                of_head += tl.sum(of_row[:, None] * read, axis=0)
                of_head_bias += of_row
    at = above[:, None] * N + columns[None, :]
    inside = (above < K)[:, None] & (columns < N)[None, :]
    tl.atomic_add(d_weight + r * K * N + at, total, mask=inside, sem="relaxed")
    if down == 0:
        tl.atomic_add(d_bias + r * N + columns, of_bias, mask=columns < N, sem="relaxed")
        if LAST:
            tl.atomic_add(d_head + r * head_stride + columns, of_head, mask=columns < N, sem="relaxed")
            if not CROSS and right == 0:
                tl.atomic_add(d_head_bias + r, tl.sum(of_head_bias, axis=0), sem="relaxed")


class Mask(NamedTuple):
    """What the masks of a call are made from."""

    seeds: Tensor
    call: Tensor
    rate: float


class LayerOutputs(NamedTuple):
    """What is kept of a batch for its gradients, ``[R, B, width]`` each."""

    products: tuple[Tensor, ...]
    """u_l = x_l W_l + b_l of each cross."""
    crossed: tuple[Tensor, ...]
    """x_l, the input of each cross; the first is x₀."""
    inputs: tuple[Tensor, ...]
    """Of each layer of the MLP, after dropout but for the first, and what comes out of the last."""

    @classmethod
    def empty(cls, x: Tensor, tower: TowerLayers) -> LayerOutputs:
        """Memory for a batch."""
        products = tuple(torch.empty_like(x) for _ in tower.crosses)
        crossed = (x, *(torch.empty_like(x) for _ in tower.crosses[1:]))
        hidden = (x.new_empty(*x.shape[:2], weight.shape[2]) for weight, _ in tower.mlp)
        return cls(products, crossed, (x, *hidden))


def tower_logits(
    x: Float[Tensor, "R B F"], parameters: tuple[Tensor, ...], crosses: int, noise: Noise, rate: float
) -> Float[Tensor, "R B"]:
    """Logits; ``rate`` is the dropout in front of each layer of the MLP, 0 in ``eval`` mode."""
    layers = len(parameters) // 2 - 1 - crosses
    call = noise.next_calls(layers) if rate > 0.0 else noise.calls_so_far()
    mask = Mask(noise.seed_tensor, call, rate)
    if not torch.is_grad_enabled():
        return _forward(x.contiguous(), mask, TowerLayers.of(parameters, crosses), keep=False)[0]
    apply: Callable[..., Tensor] = _Tower.apply
    return apply(x.contiguous(), mask, crosses, *parameters)


class _Tower(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Mask, crosses: int, *parameters: Tensor) -> Tensor:
        logit, kept = _forward(x, mask, TowerLayers.of(parameters, crosses), keep=True)
        ctx.save_for_backward(x, *parameters)
        ctx.kept, ctx.mask, ctx.crosses = kept, mask, crosses
        return logit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *parameters = ctx.saved_tensors
        # Views of one buffer, in the order of the parameters, so that Adam reads them in one go.
        sizes = [each.numel() for each in parameters]
        parts = torch.zeros(sum(sizes), device=x.device).split(sizes)
        gradients = tuple(part.view_as(each) for part, each in zip(parts, parameters, strict=True))
        tower, into = (TowerLayers.of(tuple(each), ctx.crosses) for each in (parameters, gradients))
        d_x = _backward(x, grad.contiguous(), ctx.mask, tower, ctx.kept, into)
        return (d_x, None, None, *gradients)


def _forward(x: Tensor, mask: Mask, tower: TowerLayers, *, keep: bool) -> tuple[Tensor, LayerOutputs]:
    """Logits ``[R, B]``, and what the gradients need, where it is to be kept."""
    logit = tower.head_bias.expand(x.shape[:2]).contiguous()
    kept = LayerOutputs.empty(x, tower)
    if x.shape[1] == 0:
        return logit, kept
    of_crosses, of_mlp = tower.head_parts()
    drop = mask.rate > 0.0
    for number, (layer, below, out) in enumerate(zip(tower.mlp, kept.inputs, kept.inputs[1:], strict=False)):
        last = number + 1 == len(tower.mlp)
        _launch_layer(
            below, x, layer, of_mlp, x, out, logit, mask, number, CROSS=False,
            DROP_INPUT=drop and number == 0, DROP=drop and not last, LAST=last, KEEP=keep,
            STORE=keep or not last,
        )  # fmt: skip
    for number, (layer, below, product) in enumerate(
        zip(tower.crosses, kept.crossed, kept.products, strict=False)
    ):
        last = number + 1 == len(tower.crosses)
        out = x if last else kept.crossed[number + 1]
        _launch_layer(
            below, x, layer, of_crosses, product, out, logit, mask, 0, CROSS=True,
            DROP_INPUT=False, DROP=False, LAST=last, KEEP=keep, STORE=not last,
        )  # fmt: skip
    return logit, kept


def _backward(
    x: Tensor, grad: Tensor, mask: Mask, tower: TowerLayers, kept: LayerOutputs, into: TowerLayers
) -> Tensor:
    """Add the gradients of the parameters to ``into``; that of x₀ is returned."""
    d_x = torch.empty_like(x)
    (of_crosses, of_mlp), (d_crosses, d_mlp) = tower.head_parts(), into.head_parts()
    # The last layer's comes from the head: what stands here first is not read.
    back = kept.inputs[-1]
    for number in reversed(range(len(tower.mlp))):
        below, last = kept.inputs[number], number + 1 == len(tower.mlp)
        out = torch.empty_like(below) if number > 0 else d_x
        upstream = (back, kept.inputs[-1] if last else back, grad, of_mlp)
        _launch_weight_gradient(
            below, upstream, x, into.mlp[number], d_mlp, into.head_bias, mask,
            CROSS=False, LAST=last, DROP_INPUT=mask.rate > 0.0 and number == 0,
        )  # fmt: skip
        _launch_input_gradient(
            upstream, tower.mlp[number][0], x, below, out, d_x, mask,
            CROSS=False, FIRST=number == 0, LAST=last, DROP=mask.rate > 0.0,
        )  # fmt: skip
        back = out
    back = x
    for number in reversed(range(len(tower.crosses))):
        below, last = kept.crossed[number], number + 1 == len(tower.crosses)
        out = torch.empty_like(x) if number > 0 else d_x
        upstream = (back, x, grad, of_crosses)
        _launch_weight_gradient(
            below, upstream, kept.products[number], into.crosses[number], d_crosses, into.head_bias, mask,
            CROSS=True, LAST=last, DROP_INPUT=False,
        )  # fmt: skip
        _launch_input_gradient(
            upstream, tower.crosses[number][0], kept.products[number], below, out, d_x, mask,
            CROSS=True, FIRST=number == 0, LAST=last, DROP=False,
        )  # fmt: skip
        back = out
    return d_x


def _launch_layer(
    x: Tensor,
    x0: Tensor,
    layer: Layer,
    head: Tensor,
    product: Tensor,
    out: Tensor,
    logit: Tensor,
    mask: Mask,
    number: int,
    **switches: bool,
) -> None:
    """One layer forward: of x ``[R, B, K]``; the last adds its part of the logits."""
    (replicas, batch, inner), width = x.shape, layer[0].shape[2]
    tile, columns = ROWS_FORWARD, _tile_width(width, COLUMNS)
    # Triton launches on the current device, which need not be the tensors'.
    with torch.cuda.device_of(x):
        _layer_kernel[(triton.cdiv(batch, tile), triton.cdiv(width, columns), replicas)](
            x, x0, *layer, head, head.stride(0), product, out, logit, mask.seeds, mask.call, number, batch,
            *_dropout(mask.rate), K=inner, N=width, T=tile, BN=columns, BK=_tile_width(inner, INNER),
            PRECISION=_precision(), LONG=needs_int64(batch * max(inner, width)), **switches,
        )  # fmt: skip


def _launch_input_gradient(
    upstream: tuple[Tensor, Tensor, Tensor, Tensor],
    weight: Tensor,
    product: Tensor,
    below: Tensor,
    out: Tensor,
    d_x: Tensor,
    mask: Mask,
    **switches: bool,
) -> None:
    """The gradient of a layer's input, ``below``; upstream are that of its output, its gate, that of logits
    and the head."""
    (replicas, batch, inner), width = below.shape, weight.shape[2]
    tile, columns = ROWS_BACK, _tile_width(inner, COLUMNS)
    with torch.cuda.device_of(below):
        _input_gradient_kernel[(triton.cdiv(batch, tile), triton.cdiv(inner, columns), replicas)](
            *upstream, upstream[-1].stride(0), weight, product, below, out, d_x, mask.seeds, mask.call, batch,
            *_dropout(mask.rate), K=inner, N=width, T=tile, BK=columns, BN=_tile_width(width, INNER),
            PRECISION=_precision(), LONG=needs_int64(batch * max(inner, width)), **switches,
        )  # fmt: skip


def _launch_weight_gradient(
    x: Tensor,
    upstream: tuple[Tensor, Tensor, Tensor, Tensor],
    product: Tensor,
    into: Layer,
    d_head: Tensor,
    d_head_bias: Tensor,
    mask: Mask,
    **switches: bool,
) -> None:
    """Add the gradients of a layer's weight and bias; the last layer's adds the head's too."""
    (replicas, batch, inner), width = x.shape, into[0].shape[2]
    down, right = _tile_width(inner, COLUMNS), _tile_width(width, COLUMNS)
    tiles = triton.cdiv(inner, down) * triton.cdiv(width, right)
    parts = min(triton.cdiv(PROGRAMS, tiles * replicas), triton.cdiv(batch, ROWS_SUMMED))
    chunk = triton.cdiv(triton.cdiv(batch, parts), ROWS_SUMMED) * ROWS_SUMMED
    with torch.cuda.device_of(x):
        _weight_gradient_kernel[(tiles, triton.cdiv(batch, chunk), replicas)](
            x, *upstream, upstream[-1].stride(0), product, *into, d_head, d_head_bias, mask.seeds, mask.call,
            batch, chunk, *_dropout(mask.rate), K=inner, N=width, T=ROWS_SUMMED, BK=down, BN=right,
            PRECISION=_precision(), LONG=needs_int64(batch * max(inner, width)), num_stages=1, **switches,
        )  # fmt: skip


def _tile_width(width: int, most: int) -> int:
    return int(min(max(triton.next_power_of_2(width), 16), most))
