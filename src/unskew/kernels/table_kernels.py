"""Adam on the rows of tables that steps touch, on a GPU: what :mod:`unskew.training.adam` does on a CPU.

Gradients are added up in a buffer of the table's shape, of which a step reads and clears the rows that were
looked up. A row that was looked up several times belongs to the place that is first to claim it, in a kernel
of its own: what an atomic operation on fewer elements than a program has threads returns is not the same in
all of them. The number of the step is on the device, so that a captured step can be replayed. Imported only
on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 8
"""Rows of a table that one program works on."""
CLAIMS = 512
"""Places that one program claims rows for: several for each of its threads."""


# β₁ = 0.9, β₂ = 0.999 and ε = 1e-8 are PyTorch's defaults; 128 is HORIZON of adam. Idle steps are summed in groups of
# a sixteenth of the steps so far, which share the mean denominator: right to 1e-4.
@triton.jit
def _brought(p, m, v, since, step, settled, lr):
    """Bring rows from the steps ``since`` to ``step``."""
    log_1: tl.constexpr = -0.15200309344504995
    log_2: tl.constexpr = -0.0014434168696687186
    waited = step - since
    moving = since >= settled
    idle = tl.where(moving, tl.minimum(waited, 128), 0)
    k = tl.arange(0, 128)[None, :] + 1
    t = (since[:, None] + k).to(tl.float32)
    rate = tl.exp2(k.to(tl.float32) * log_1) / (1.0 - tl.exp2(t * log_1))
    scaled = rate * tl.exp2(k.to(tl.float32) * (0.5 * log_2)) / tl.sqrt(1.0 - tl.exp2(t * log_2))
    root = tl.sqrt(v)
    done = tl.zeros_like(idle)
    while tl.max(idle - done, axis=0) > 0:
        stop = tl.minimum(idle, done + tl.maximum((since + done) // 16, 1))
        group = (k > done[:, None]) & (k <= stop[:, None])
        weight = tl.sum(tl.where(group, rate, 0.0), axis=1)
        total = tl.sum(tl.where(group, scaled, 0.0), axis=1) / tl.maximum(weight, 1e-30)
        p = p - (lr * weight)[:, None] * m / (root * total[:, None] + 1e-8)
        done = stop
    left = tl.where(waited < 128, tl.exp2(waited.to(tl.float32) * log_1), 0.0)
    m = m * tl.where(moving, left, 1.0)[:, None]
    v = v * tl.exp2(waited.to(tl.float32) * log_2)[:, None]
    return p, m, v


@triton.jit
def _claim_behind_kernel(codes, seen, claims, step, codes_stride, n, rows, T: tl.constexpr):
    """Return the step that a row is at, at the place that is to bring it up to date; 0 elsewhere."""
    r = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * T + tl.arange(0, T)
    inside = place < n
    row = r * rows + tl.load(codes + r * codes_stride + place, mask=inside, other=0)
    now = tl.load(step)
    since = tl.load(seen + row, mask=inside, other=0)
    behind = inside & (since > 0) & (since < now)
    # No row is at the step −1: those that are not behind stay as they are.
    old = tl.atomic_cas(seen + row, tl.where(behind, since, -1), tl.zeros_like(since) + now)
    tl.store(claims + r * n + place, tl.where(behind & (old == since), since, 0), mask=inside)


@triton.jit
def _claim_kernel(codes, claimed, claims, step, codes_stride, n, rows, T: tl.constexpr):
    """1 at the place that is to update a row, 0 elsewhere."""
    r = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * T + tl.arange(0, T)
    inside = place < n
    row = r * rows + tl.load(codes + r * codes_stride + place, mask=inside, other=0)
    t = tl.load(step) + 1
    last = tl.atomic_xchg(claimed + row, tl.zeros((T,), dtype=tl.int32) + t, mask=inside)
    tl.store(claims + r * n + place, tl.where(last != t, 1, 0), mask=inside)


@triton.jit
def _read_kernel(
    codes, claims, parameter, first, second, step, settled, codes_stride, n, rows, lr,
    D: tl.constexpr, BLOCK_D: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * T + tl.arange(0, T)
    inside = place < n
    row = r * rows + tl.load(codes + r * codes_stride + place, mask=inside, other=0)
    now = tl.load(step)
    since = tl.load(claims + r * n + place, mask=inside, other=0)
    own = since > 0
    if tl.max(since, axis=0) > 0:
        at = row[:, None] * D + tl.arange(0, BLOCK_D)[None, :]
        there = own[:, None] & (tl.arange(0, BLOCK_D) < D)[None, :]
        p = tl.load(parameter + at, mask=there, other=0.0)
        m = tl.load(first + at, mask=there, other=0.0)
        v = tl.load(second + at, mask=there, other=0.0)
        # Rows of other programs have nothing to make up for.
        p, m, v = _brought(p, m, v, tl.where(own, since, now), now, tl.load(settled), lr)
        tl.store(parameter + at, p, mask=there)
        tl.store(first + at, m, mask=there)
        tl.store(second + at, v, mask=there)


@triton.jit
def _update_kernel(
    codes, claims, parameter, gradient, first, second, seen, touched, step, codes_stride, n, rows, lr, decay,
    D: tl.constexpr, BLOCK_D: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * T + tl.arange(0, T)
    inside = place < n
    row = r * rows + tl.load(codes + r * codes_stride + place, mask=inside, other=0)
    t = tl.load(step) + 1
    own = tl.load(claims + r * n + place, mask=inside, other=0) > 0
    at = row[:, None] * D + tl.arange(0, BLOCK_D)[None, :]
    there = own[:, None] & (tl.arange(0, BLOCK_D) < D)[None, :]
    p = tl.load(parameter + at, mask=there, other=0.0)
    g = tl.load(gradient + at, mask=there, other=0.0)
    waited = (t - tl.load(touched + row, mask=own, other=0)).to(tl.float32)
    g += (decay * waited)[:, None] * p
    m = 0.9 * tl.load(first + at, mask=there, other=0.0) + (1.0 - 0.9) * g
    v = 0.999 * tl.load(second + at, mask=there, other=0.0) + (1.0 - 0.999) * g * g
    number = t.to(tl.float32)
    correction_1 = 1.0 - tl.exp2(number * tl.log2(0.9))
    correction_2 = 1.0 - tl.exp2(number * tl.log2(0.999))
    denominator = tl.sqrt(v) / tl.sqrt(correction_2) + 1e-8
    tl.store(parameter + at, p - lr / correction_1 * m / denominator, mask=there)
    tl.store(first + at, m, mask=there)
    tl.store(second + at, v, mask=there)
    tl.store(gradient + at, tl.zeros_like(g), mask=there)
    tl.store(seen + row, tl.zeros((T,), dtype=tl.int32) + t, mask=own)
    tl.store(touched + row, tl.zeros((T,), dtype=tl.int32) + t, mask=own)


@triton.jit
def _settle_kernel(
    parameter, first, second, seen, step, settled, n, lr,
    D: tl.constexpr, BLOCK_D: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    inside = row < n
    now, before = tl.load(step), tl.load(settled)
    since = tl.load(seen + row, mask=inside, other=0)
    behind = inside & (since > 0) & (since >= before) & (since < now)
    if tl.max(behind.to(tl.int32), axis=0) > 0:
        at = row[:, None] * D + tl.arange(0, BLOCK_D)[None, :]
        there = behind[:, None] & (tl.arange(0, BLOCK_D) < D)[None, :]
        p = tl.load(parameter + at, mask=there, other=0.0)
        m = tl.load(first + at, mask=there, other=0.0)
        v = tl.load(second + at, mask=there, other=0.0)
        p, m, faded = _brought(p, m, v, tl.where(behind, since, now), now, before, lr)
        tl.store(parameter + at, p, mask=there)
        tl.store(first + at, m, mask=there)
        # A row whose momentum is spent stays at its step, before the one that the table is settled at.
        recent = behind & (now - since < 128)
        tl.store(second + at, faded, mask=there & recent[:, None])
        tl.store(seen + row, tl.zeros((T,), dtype=tl.int32) + now, mask=recent)


class TableOnGPU:
    """The state of a table that is trained by touched rows, on a GPU.

    Attributes
    ----------
    gradient
        Where gradients of rows are added up, ``[R, codes, F]``; all zero between steps.
    """

    def __init__(self, weight: Tensor, lr: float, weight_decay: float) -> None:
        self._weight = weight.detach()
        self._lr, self._decay = lr, weight_decay
        self.gradient, self._first, self._second = (torch.zeros_like(self._weight) for _ in range(3))
        (self._replicas, self._rows), device = self._weight.shape[:2], self._weight.device
        of_row = self._replicas, self._rows
        # The step that a row is at, that of its last gradient, and the one that claimed it.
        self._seen, self._touched, self._claimed = (
            torch.zeros(of_row, dtype=torch.int32, device=device) for _ in range(3)
        )
        self._step, self._settled = (torch.zeros(1, dtype=torch.int32, device=device) for _ in range(2))
        self._touching: list[Tensor] = []
        width = self._weight.shape[2]
        self._sizes = {"D": width, "BLOCK_D": triton.next_power_of_2(width), "T": ROWS}

    def read(self, codes: Tensor) -> None:
        """Bring rows up to date, ``[R, n]`` or ``[1, n]`` for all replicas."""
        codes = codes.contiguous()
        where = (self._stride(codes), codes.shape[1], self._rows)
        with torch.cuda.device_of(codes):
            claims = self._claims(codes)
            _claim_behind_kernel[self._grid(codes, CLAIMS)](
                codes, self._seen, claims, self._step, *where, T=CLAIMS
            )
            _read_kernel[self._grid(codes, ROWS)](
                codes, claims, self._weight, self._first, self._second, self._step, self._settled,
                *where, self._lr, **self._sizes,
            )  # fmt: skip

    def add(self, codes: Tensor, gradient: Tensor) -> None:
        """Add the gradients ``[R, n, F]`` of rows that were read."""
        width = self._weight.shape[2]
        self.gradient.view(-1, width).index_add_(0, self._flat(codes), gradient.reshape(-1, width))
        self.touch(codes)

    def touch(self, codes: Tensor) -> None:
        """Note rows whose gradients are in the buffer."""
        self._touching.append(codes.contiguous())

    def forget(self) -> None:
        """Drop the gradients that no step has taken."""
        for codes in self._touching:
            self.gradient.view(-1, self._weight.shape[2]).index_fill_(0, self._flat(codes), 0.0)
        self._touching = []

    def step(self) -> None:
        """Make one update by the gradients that there are; without any the table stays as it is."""
        if not self._touching:
            return
        for codes in self._touching:
            where = (self._stride(codes), codes.shape[1], self._rows)
            with torch.cuda.device_of(codes):
                claims = self._claims(codes)
                _claim_kernel[self._grid(codes, CLAIMS)](
                    codes, self._claimed, claims, self._step, *where, T=CLAIMS
                )
                _update_kernel[self._grid(codes, ROWS)](
                    codes, claims, self._weight, self.gradient, self._first, self._second, self._seen,
                    self._touched, self._step, *where, self._lr, self._decay, **self._sizes,
                )  # fmt: skip
        self._step += 1
        self._touching = []

    def settle(self) -> None:
        """Bring all rows up to date."""
        rows = self._seen.numel()
        with torch.cuda.device_of(self._weight):
            _settle_kernel[(triton.cdiv(rows, ROWS),)](
                self._weight, self._first, self._second, self._seen, self._step, self._settled, rows, self._lr,
                **self._sizes,
            )  # fmt: skip
        self._settled.copy_(self._step)

    def tensors(self) -> dict[str, Tensor]:
        """Return moments and steps between two steps, for a checkpoint; the weights are the network's."""
        return {
            "first": self._first,
            "second": self._second,
            "seen": self._seen,
            "touched": self._touched,
            "step": self._step,
            "settled": self._settled,
            "claimed": self._claimed,
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Bring back what :meth:`tensors` gave, in place."""
        for name, value in self.tensors().items():
            value.copy_(tensors[name])

    def _flat(self, codes: Tensor) -> Tensor:
        """View the rows of all replicas, as those of one table."""
        start = torch.arange(0, self._replicas * self._rows, self._rows, device=codes.device).unsqueeze(1)
        return (codes + start).flatten()

    def _grid(self, codes: Tensor, places: int) -> tuple[int, int]:
        return triton.cdiv(codes.shape[1], places), len(self._weight)

    def _claims(self, codes: Tensor) -> Tensor:
        """Allocate room for what each replica's places claim."""
        return torch.empty(len(self._weight), codes.shape[1], dtype=torch.int32, device=codes.device)

    @staticmethod
    def _stride(codes: Tensor) -> int:
        return codes.stride(0) if len(codes) > 1 else 0
