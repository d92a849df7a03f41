"""Adam on the rows of a table that is stored as bfloat16, as tensor operations: for a GPU.

What :mod:`unskew.training.half_loops` does on a CPU, on any device. All shapes are those of the batch, and
the number of the step is on the device, so that a captured step can be replayed. A row that comes several
times in a batch is computed at each of its places, from the same numbers: all of them write the same.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from unskew import processes
from unskew.backbones.layers import ReplicaEmbedding
from unskew.backbones.noise import GOLDEN, mix32
from unskew.training.row_gradients import RowGradients
from unskew.training.table_loops import BETA_1, BETA_2, EPSILON, HORIZON
from unskew.training.touched_rows import TouchedRows

AT_ONCE = 1 << 23
"""Numbers, of idle steps of the rows of a batch, that are added up at once: 32 MB, where kernels are few and
memory is not much."""

ROWS_AT_ONCE = 1 << 17
"""Rows of a table that are brought up to date at once."""

_LOG_1, _LOG_2 = math.log(BETA_1), math.log(BETA_2)
_HIGH = -(1 << 16)


class HalfTable(RowGradients, TouchedRows):
    """The state of a table of bfloat16 while it is trained: 6 bytes a weight, and of a row 12 and 4 a table.

    Beside the weights the first moment is as large as the table; of the second a row has one number for
    each of the tables that lie side by side. There is no gradient of the table's size.
    """

    def __init__(self, table: ReplicaEmbedding, lr: float, weight_decay: float) -> None:
        weight = table.weight.detach()
        self._width = weight.shape[2]
        self._weight = weight.view(-1, self._width)
        self._lr, self._decay = lr, weight_decay
        device, count = weight.device, len(self._weight)
        RowGradients.__init__(self)
        TouchedRows.__init__(
            self,
            len(weight),
            torch.zeros(count, self._width, device=device),
            torch.zeros(count, len(table.widths), device=device),
        )
        self._slot = torch.zeros_like(self._seen)
        self._edges = [sum(table.widths[:number]) for number in range(len(table.widths) + 1)]
        of_column = [number for number, width in enumerate(table.widths) for _ in range(width)]
        self._table_of = torch.tensor(of_column, device=device)
        self._keys = torch.tensor(table.keys, dtype=torch.int32, device=device)
        table.lazy = self

    def read(self, codes: Tensor) -> None:
        """Bring rows up to date: of a batch that processes have in parts, those of all, so that all agree."""
        lines = processes.side_by_side(codes, 1) if processes.in_parts() else codes
        for at in torch.split(self._flat(lines), ROWS_AT_ONCE):
            self._bring(at)

    def _bring(self, at: Tensor) -> None:
        """Bring some rows up to date, and leave those that are."""
        since, old = self._seen[at], self._weight[at]
        behind = (since > 0) & (since < self._step)
        p, m, v = self._brought(at, torch.where(behind, since, self._step))
        rounded = self.round_rows(p, at, 2 * self._step)
        self._weight.index_copy_(0, at, torch.where(behind.unsqueeze(1), rounded, old))
        self._first.index_copy_(0, at, m)
        self._second.index_copy_(0, at, v)
        self._seen.index_copy_(0, at, torch.where(behind, self._step, since))

    def step(self) -> None:
        """One update by the gradients that there are; without any the table stays as it is."""
        if not self._kept:
            return
        codes, gradient = self._joined()
        at = self._flat(codes)
        # Of the places of a row one, whichever it is, is where its gradients are added up.
        self._slot.index_copy_(0, at, torch.arange(len(at), dtype=torch.int32, device=at.device))
        place = self._slot[at].long()
        g = _sums(gradient.reshape(len(at), self._width), place)[place]
        self._step += 1
        p = self._weight[at].float()
        g = g + (self._decay * (self._step - self._touched[at])).unsqueeze(1) * p
        m = BETA_1 * self._first[at] + (1.0 - BETA_1) * g
        v = BETA_2 * self._second[at] + (1.0 - BETA_2) * self._mean_square(g)
        rate = self._lr / _correction(self._step, _LOG_1)
        moved = rate / (v.sqrt() / _correction(self._step, _LOG_2).sqrt() + EPSILON)
        p = p - self._by_column(moved) * m
        self._weight.index_copy_(0, at, self.round_rows(p, at, 2 * self._step + 1))
        self._first.index_copy_(0, at, m)
        self._second.index_copy_(0, at, v)
        now = self._step.expand(len(at))
        self._seen.index_copy_(0, at, now)
        self._touched.index_copy_(0, at, now)
        self._kept = []

    def settle(self) -> None:
        """Bring the weights of all rows up to date."""
        behind = (self._seen > 0) & (self._seen >= self._settled) & (self._seen < self._step)
        for at in torch.split(behind.nonzero().flatten(), ROWS_AT_ONCE):
            since = self._seen[at]
            p, m, v = self._brought(at, since)
            self._weight[at] = self.round_rows(p, at, 2 * self._step)
            self._first[at] = m
            # A row whose momentum is spent stays at its step, before the one that the table is settled at.
            recent = self._step - since < HORIZON
            self._second[at] = torch.where(recent.unsqueeze(1), v, self._second[at])
            self._seen[at] = torch.where(recent, self._step, since)
        self._settled.copy_(self._step)

    def _brought(self, at: Tensor, since: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows from the steps ``since`` to that of the table, as ``half_loops._bring``."""
        waited, moving = self._step - since, since >= self._settled
        p, m, v = self._weight[at].float(), self._first[at], self._second[at]
        pull = self._pull(v, since, torch.where(moving, waited.clamp(max=HORIZON), 0))
        left = torch.where(waited < HORIZON, torch.exp(waited * _LOG_1), 0.0)
        kept = torch.where(moving, left, 1.0).unsqueeze(1)
        return p - self._by_column(pull) * m, m * kept, v * torch.exp(waited * _LOG_2).unsqueeze(1)

    def _pull(self, v: Tensor, since: Tensor, idle: Tensor) -> Tensor:
        """What ``half_loops._pull`` is, ``[n, tables]``."""
        root, total = v.sqrt().unsqueeze(2), torch.zeros_like(v)
        since, idle = since.unsqueeze(1), idle.unsqueeze(1)
        size = min(HORIZON, max(1, AT_ONCE // max(v.numel(), 1)))
        for first in range(1, HORIZON + 1, size):
            k = torch.arange(first, min(first + size, HORIZON + 1), device=v.device)
            rate = torch.exp(k * _LOG_1) / _correction(since + k, _LOG_1) * (k <= idle)
            scale = torch.exp(k * (0.5 * _LOG_2)) / _correction(since + k, _LOG_2).sqrt()
            total += (rate.unsqueeze(1) / (root * scale.unsqueeze(1) + EPSILON)).sum(2)
        return self._lr * total

    def _mean_square(self, g: Tensor) -> Tensor:
        """Of the columns of each table, ``[n, tables]``."""
        return torch.stack([g[:, start:stop].square().mean(1) for start, stop in pairwise(self._edges)], 1)

    def _by_column(self, of_table: Tensor) -> Tensor:
        """A number of each table for each of its columns."""
        return of_table.index_select(1, self._table_of)

    def round_rows(self, p: Tensor, at: Tensor, call: Tensor) -> Tensor:
        """Float32 ``[n, F]`` as bfloat16, by the hash of ``half_loops.store``."""
        key = mix32(self._keys + mix32(call * GOLDEN + 1))[at // self._rows]
        key = mix32(((at % self._rows).to(torch.int32) * GOLDEN) ^ key)
        column = torch.arange(self._width, dtype=torch.int32, device=p.device) * GOLDEN
        return rounded(p, mix32(column ^ key.unsqueeze(1)))


def rounded(p: Tensor, random: Tensor) -> Tensor:
    """Float32 as one of its two neighbours in bfloat16, by the lower 16 of random bits (int32).

    NaN and infinities stay what they are.
    """
    cut = ((p.contiguous().view(torch.int32) + (random & 0xFFFF)) & _HIGH).view(torch.float32)
    return torch.where(p.isfinite(), cut, p).bfloat16()


def _sums(gradient: Tensor, place: Tensor) -> Tensor:
    """Gradients ``[n, F]`` added up at the places that are named."""
    total = torch.zeros_like(gradient)
    if processes.parts() > 1:
        # In a fixed order, on a GPU too: the tables of all processes stay the same.
        return total.index_put_((place,), gradient, accumulate=True)
    return total.index_add_(0, place, gradient)


def _correction(step: Tensor, log: float) -> Tensor:
    """1 − βᵗ."""
    return -torch.expm1(step * log)
