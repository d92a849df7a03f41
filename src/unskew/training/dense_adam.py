"""Adam over whole parameters: those of layers, and tables that are small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

# PyTorch's defaults.
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


class _Moments(NamedTuple):
    first: Tensor
    second: Tensor
    step: Tensor


class DenseAdam:
    """``torch.optim.Adam`` with coupled weight decay, by PyTorch's own fused kernel.

    The class of PyTorch loads its compiler, which takes every process that trains some seconds.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float, weight_decay: float) -> None:
        self.parameters = list(parameters)
        self.lr = lr
        self._decays = [0.0 if hasattr(each, "without_decay") else weight_decay for each in self.parameters]
        self._moments: dict[int, _Moments] = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, or make them zero."""
        for each in self.parameters:
            if set_to_none:
                each.grad = None
            elif each.grad is not None:
                each.grad.zero_()

    @torch.no_grad()
    def step(self) -> None:
        """Take one step; parameters without a gradient are left alone."""
        for decay in sorted(set(self._decays)):
            self._update(
                [
                    number
                    for number, parameter in enumerate(self.parameters)
                    if self._decays[number] == decay and parameter.grad is not None
                ],
                decay,
            )

    def tensors(self) -> dict[str, Tensor]:
        """Return moments and steps, ``NUMBER/NAME`` for each parameter; one that never had a gradient has
        none."""
        return {
            f"{number}/{name}": value
            for number, moments in sorted(self._moments.items())
            for name, value in moments._asdict().items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take copies in memory of their own: a kernel may compute otherwise on memory of another
        alignment."""
        numbers = sorted({int(key.partition("/")[0]) for key in tensors})
        self._moments = {
            number: _Moments(
                *(
                    tensors[f"{number}/{name}"].to(self.parameters[number].device, copy=True)
                    for name in _Moments._fields
                )
            )
            for number in numbers
        }

    def _update(self, numbers: list[int], decay: float) -> None:
        if not numbers:
            return
        parameters = [self.parameters[number] for number in numbers]
        for number, each in zip(numbers, parameters, strict=True):
            if number not in self._moments:
                self._moments[number] = _Moments(
                    torch.zeros_like(each),
                    torch.zeros_like(each),
                    torch.zeros((), dtype=torch.float32, device=each.device),
                )
        moments = [self._moments[number] for number in numbers]
        adam(
            list[Tensor](parameters),
            [each.grad for each in parameters if each.grad is not None],
            [each.first for each in moments],
            [each.second for each in moments],
            [],
            [each.step for each in moments],
            fused=True,
            capturable=parameters[0].is_cuda,
            amsgrad=False,
            beta1=BETA_1,
            beta2=BETA_2,
            lr=self.lr,
            weight_decay=decay,
            eps=EPSILON,
            maximize=False,
        )
