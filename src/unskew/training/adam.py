"""Adam for a GPU in one kernel: parameters, gradients and moments as flat buffers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from unskew.training.dense_adam import DenseOptimiser, decays_of
from unskew.training.stateful import copy_back

BLOCK = 1024


# The numbers in the kernel are PyTorch's defaults: β₁ = 0.9, β₂ = 0.999, ε = 1e-8.
@triton.jit
def _adam_kernel(
    parameter, gradient, first, second, decay, step, n, lr, DECAY: tl.constexpr, BLOCK: tl.constexpr
):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
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

    Parameters are moved into one buffer and stay views of it. Gradients that already are views of one
    buffer in the same order (as :mod:`unskew.backbones.fused` makes them) are read in place.
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
        n = self._flat.numel()
        idle = tuple(k for k, p in enumerate(self.parameters) if p.grad is None)
        # Triton launches on the current device, which need not be the tensors'.
        with torch.cuda.device_of(self._flat):
            _adam_kernel[(triton.cdiv(n, BLOCK),)](
                self._flat, self._gradient(), self._first, self._second, self._decay_of(idle), self._step, n,
                self.lr, DECAY=self._decays, BLOCK=BLOCK,
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

    def _gradient(self) -> Tensor:
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        start = grads[0].data_ptr()
        together = all(
            g.is_contiguous() and g.data_ptr() == start + 4 * sum(self._sizes[:k])
            for k, g in enumerate(grads)
        )
        if together:
            return torch.as_strided(grads[0], (self._flat.numel(),), (1,))
        return torch.cat([g.flatten() for g in grads])
