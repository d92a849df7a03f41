"""Parts of a training that change from step to step, as tensors by name, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from unskew.learners.noise import Noise


class Stateful(Protocol):
    """A part of a training that changes from step to step."""

    def tensors(self) -> Mapping[str, Tensor]:
        """Return all of it, by name; not copies."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`tensors` gave, by copies."""
        ...


Parts = Mapping[str, Stateful]


def tensors_of(parts: Parts) -> dict[str, Tensor]:
    """Return the tensors of all parts."""
    return {f"{part}/{name}": value for part, each in parts.items() for name, value in each.tensors().items()}


def restore(parts: Parts, tensors: Mapping[str, Tensor]) -> None:
    """Bring all parts to what they were."""
    for part, each in parts.items():
        each.restore(under(tensors, f"{part}/"))


def copy_back(held: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Give tensors, where they are, what those of the same names had."""
    for name, part in held.items():
        part.copy_(saved[name])


def under(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin so, by the rest of their names."""
    return {name.removeprefix(start): each for name, each in tensors.items() if name.startswith(start)}


def result_parts(networks: Mapping[str, nn.Module], state: Stateful | None) -> dict[str, Stateful]:
    """Return what a training leaves: networks, random state, and what the method keeps."""
    parts: dict[str, Stateful] = {f"network/{name}": NetworkState(each) for name, each in networks.items()}
    return {**parts, "random": RandomState(), **({} if state is None else {"method": state})}


class NetworkState:
    """The weights of a network, and how many masks its dropout has made."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._noise: Noise | None = getattr(network, "noise", None)

    def tensors(self) -> dict[str, Tensor]:
        """Return all of it."""
        made = {} if self._noise is None else {"masks": self._noise.calls_so_far()}
        return {**{f"weight/{name}": value for name, value in self._network.state_dict().items()}, **made}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put weights where they are: optimisers and best weights hold them."""
        self._network.load_state_dict(under(tensors, "weight/"))
        if self._noise is not None:
            self._noise.calls_so_far().copy_(tensors["masks"])


class RandomState:
    """PyTorch's generators: nothing of unskew's draws from them on a CPU, a method of one's own may."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the states of the CPU and of every GPU that is in use."""
        states = [torch.get_rng_state()]
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            states += torch.cuda.get_rng_state_all()
        return {str(number): state for number, state in enumerate(states)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Bring them back; a GPU that is no longer there is left out."""
        torch.set_rng_state(tensors["0"].clone())
        for number in range(1, len(tensors)):
            if number <= torch.cuda.device_count():
                torch.cuda.set_rng_state(tensors[str(number)].clone(), number - 1)
