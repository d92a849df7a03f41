"""All that a training is at a moment: its parts, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unskew.learners.noise import Noise
from unskew.training.state_files import SavedState
from unskew.training.stateful import Stateful, under
from unskew.training.steps import START, Optimiser, Position


def result_parts(networks: Mapping[str, nn.Module], state: Stateful | None) -> dict[str, Stateful]:
    """What a training leaves."""
    parts: dict[str, Stateful] = {f"network/{name}": NetworkState(each) for name, each in networks.items()}
    return {**parts, "random": RandomState(), **({} if state is None else {"method": state})}


def optimiser_parts(optimisers: Mapping[str, Optimiser]) -> dict[str, Stateful]:
    """What optimisers remember."""
    return {f"optimiser/{name}": each for name, each in optimisers.items()}


@dataclass(frozen=True)
class Place:
    """How far a training is: the epoch, the number of the pass in it, and the position in the pass."""

    epoch: int = 0
    number: int = 0
    position: Position = START

    @classmethod
    def of(cls, saved: SavedState, device: torch.device) -> Place:
        """That of a state."""
        sums = {name: total.to(device) for name, total in under(saved.tensors, "sums/").items()}
        facts = saved.facts
        return cls(
            facts["epoch"], facts["pass"], Position(facts["block"], facts["step"], facts["taken"], sums)
        )

    def facts(self) -> dict[str, int]:
        """Numbers for a state."""
        at = self.position
        return {
            "epoch": self.epoch,
            "pass": self.number,
            "block": at.block,
            "step": at.step,
            "taken": at.taken,
        }

    def tensors(self) -> dict[str, Tensor]:
        """Sums of losses for a state."""
        return {f"sums/{name}": total for name, total in self.position.sums.items()}


class NetworkState:
    """The weights of a network, and how many masks its dropout has made."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._noise: Noise | None = getattr(network, "noise", None)

    def tensors(self) -> dict[str, Tensor]:
        """All of it."""
        made = {} if self._noise is None else {"masks": self._noise.calls_so_far()}
        return {**{f"weight/{name}": value for name, value in self._network.state_dict().items()}, **made}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Weights where they are: optimisers and best weights hold them."""
        self._network.load_state_dict(under(tensors, "weight/"))
        if self._noise is not None:
            self._noise.calls_so_far().copy_(tensors["masks"])


class RandomState:
    """PyTorch's generators: nothing of unskew's draws from them on a CPU, a method of one's own may."""

    def tensors(self) -> dict[str, Tensor]:
        """Of the CPU and of every GPU that is in use."""
        states = [torch.get_rng_state()]
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            states += torch.cuda.get_rng_state_all()
        return {str(number): state for number, state in enumerate(states)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As they were; a GPU that is no longer there is left out."""
        torch.set_rng_state(tensors["0"].clone())
        for number in range(1, len(tensors)):
            if number <= torch.cuda.device_count():
                torch.cuda.set_rng_state(tensors[str(number)].clone(), number - 1)
