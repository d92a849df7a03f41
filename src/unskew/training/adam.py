"""Adam for a GPU in one kernel: parameters, gradients and moments as flat buffers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from unskew.training.dense_adam import DenseOptimiser, decays_of
from unskew.training.stateful import copy_back

BLOCK = 1024

MOST_RUNS = 4
"""Gradients that lie apart from each other are copied together where there are more: small kernels cost more
than the copy."""


# The numbers in the kernel are PyTorch's defaults: β₁ = 0.9, β₂ = 0.999, ε = 1e-8.
@triton.jit
def _adam_kernel(
    parameter, gradient, first, second, decay, step, n, lr, DECAY: tl.constexpr, BLOCK: tl.constexpr
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n
    t = tl.load(step) + 1.0
    p = tl.load(parameter + place, mask=inside)
    g = tl.load(gradient + place, mask=inside)
    if DECAY:
        g += tl.load(decay + place, mask=inside) * p
    m = 0.9 * tl.load(first + place, mask=inside) + (1.0 - 0.9) * g
    v = 0.999 * tl.load(second + place, mask=inside) + (1.0 - 0.999) * g * g
    correction_1 = 1.0 - tl.exp2(t * tl.log2(0.9))
    correction_2 = 1.0 - tl.exp2(t * tl.log2(0.999))
    denominator = tl.sqrt(v) / tl.sqrt(correction_2) + 1e-8
    tl.store(parameter + place, p - lr / correction_1 * m / denominator, mask=inside)
    tl.store(first + place, m, mask=inside)
    tl.store(second + place, v, mask=inside)


class FlatAdam(DenseOptimiser):
    """The same update as ``torch.optim.Adam`` with coupled weight decay.

    Parameters are moved into one buffer and stay views of it. Gradients that lie in memory as they do, one
    after another (as :mod:`unskew.backbones.fused` and :mod:`unskew.backbones.tower_kernels` make them), are
    read in place.
    """

    def __init__(self, parameters: list[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(parameters)
        self.lr = lr
        self._sizes = [p.numel() for p in parameters]
        self._flat = torch.cat([p.detach().flatten() for p in parameters])
        for p, part in zip(parameters, self._flat.split(self._sizes), strict=True):
            p.data = part.view_as(p)
        decays = decays_of(parameters, weight_decay)
        self._decays = any(decays)
        self._decay_without: dict[tuple[int, ...], Tensor] = {}
        # One number per parameter costs an eighth of the kernel's traffic: only where there is any decay.
        self._decay = self._flat.new_zeros(0)
        if self._decays:
            parts = zip(self._sizes, decays, strict=True)
            self._decay = torch.cat([torch.full((n,), d, device=self._flat.device) for n, d in parts])
        self._first = torch.zeros_like(self._flat)
        self._second = torch.zeros_like(self._flat)
        self._step = torch.zeros(1, device=self._flat.device)

    @torch.no_grad()
    def step(self) -> None:
        """One update."""
        idle = tuple(k for k, p in enumerate(self.parameters) if p.grad is None)
        decay = self._decay_of(idle)
        # Triton launches on the current device, which need not be the tensors'.
        with torch.cuda.device_of(self._flat):
            for part, gradient in self._gradients():
                n = gradient.numel()
                _adam_kernel[(triton.cdiv(n, BLOCK),)](
                    self._flat[part], gradient, self._first[part], self._second[part], decay[part],
                    self._step, n, self.lr, DECAY=self._decays, BLOCK=BLOCK,
                )  # fmt: skip
        self._step += 1.0

    def tensors(self) -> dict[str, Tensor]:
        """Moments and the number of steps, for a checkpoint; the weights are the network's."""
        return {"first": self._first, "second": self._second, "step": self._step}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Bring back what :meth:`tensors` gave, in place."""
        copy_back(self.tensors(), tensors)

    def _decay_of(self, idle: tuple[int, ...]) -> Tensor:
        """Decays; 0 for parameters without a gradient, which ``torch.optim.Adam`` leaves alone."""
        if not idle or not self._decays:
            return self._decay
        if idle not in self._decay_without:
            decay = self._decay.clone()
            for k, part in enumerate(decay.split(self._sizes)):
                if k in idle:
                    part.zero_()
            self._decay_without[idle] = decay
        return self._decay_without[idle]

    def _gradients(self) -> list[tuple[slice, Tensor]]:
        """Gradients, each with the part of all parameters that it is of; few, since each has its kernel."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad.contiguous() for p in self.parameters]
        starts = list(accumulate(self._sizes, initial=0))
        runs: list[list[int]] = []
        for k, grad in enumerate(grads):
            if k > 0 and _follows(grad, grads[k - 1]):
                runs[-1].append(k)
            else:
                runs.append([k])
        if len(runs) > MOST_RUNS:
            return [(slice(None), torch.cat([grad.flatten() for grad in grads]))]
        parts = (slice(starts[run[0]], starts[run[-1] + 1]) for run in runs)
        return [
            (part, torch.as_strided(grads[run[0]], (part.stop - part.start,), (1,)))
            for run, part in zip(runs, parts, strict=True)
        ]


def _follows(one: Tensor, other: Tensor) -> bool:
    """Whether a gradient lies behind another in the same buffer."""
    together = one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    return together and one.storage_offset() == other.storage_offset() + other.numel()
