"""Parts of a training that change from step to step, as tensors by name, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor


class Stateful(Protocol):
    """A part of a training that changes from step to step."""

    def tensors(self) -> Mapping[str, Tensor]:
        """All of it, by name; not copies."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`tensors` gave, by copies."""
        ...


Parts = Mapping[str, Stateful]


def tensors_of(parts: Parts) -> dict[str, Tensor]:
    """The tensors of all parts."""
    return {f"{part}/{name}": value for part, each in parts.items() for name, value in each.tensors().items()}


def restore(parts: Parts, tensors: Mapping[str, Tensor]) -> None:
    """Bring all parts to what they were."""
    for part, each in parts.items():
        start = f"{part}/"
        each.restore(under(tensors, start))


def under(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    """Those whose names begin so, without it."""
    return {name[len(start) :]: value for name, value in tensors.items() if name.startswith(start)}


class AdamState:
    """Moments and steps, ``NUMBER/NAME`` for each parameter; one that never had a gradient has none."""

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self._optimiser = optimiser
        self._parameters = [p for group in optimiser.param_groups for p in group["params"]]

    def tensors(self) -> dict[str, Tensor]:
        """All of it."""
        return {
            f"{number}/{name}": value
            for number, parameter in enumerate(self._parameters)
            for name, value in self._optimiser.state[parameter].items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Copies, in memory of their own: a kernel may compute otherwise on memory of another alignment."""
        for key, value in tensors.items():
            number, _, name = key.partition("/")
            parameter = self._parameters[int(number)]
            # The number of steps is where Adam keeps it, on the CPU or beside the parameter.
            self._optimiser.state[parameter][name] = value.to(self._place(name, parameter)).clone()

    def _place(self, name: str, parameter: Tensor) -> torch.device:
        keeps_apart = name == "step" and not self._optimiser.defaults["fused"]
        return torch.device("cpu") if keeps_apart else parameter.device
