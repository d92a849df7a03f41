"""Parts of a training that change from step to step, as tensors by name; and such tensors in files.

A file has plain facts beside its tensors, and a digest of all. It is written beside and moved into place: of
a process that is killed at any moment nothing is left that could be taken for a state. It is never a pickle.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from unskew.base.tensors import Tensor, nn, torch
from unskew.data.digest import digest_of
from unskew.learners.noise import Noise
from unskew.training.tensor_files import read_tensors, text_about, write_tensors

PARTIAL = ".partial"
"""The end of the name of a file that is being written."""


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
    for name, stateful in parts.items():
        stateful.restore(under(tensors, f"{name}/"))


def copy_back(held: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Give tensors, where they are, what those of the same names had."""
    for name, tensor in held.items():
        tensor.copy_(saved[name])


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


class DamagedStateError(Exception):
    """A state that is not what was written; its text says in what way."""


@dataclass(frozen=True)
class SavedState:
    """The saved state of a training, or of a value."""

    facts: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @property
    def digest(self) -> str:
        """Return the digest of all of it."""
        arrays = (part for name, each in sorted(self.tensors.items()) for part in (name, each.numpy()))
        return digest_of(json.dumps(self.facts, sort_keys=True), *arrays)


def write_state(path: Path, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Save a state; one that is there is replaced."""
    state = SavedState(facts, {name: each.detach().cpu().contiguous() for name, each in tensors.items()})
    beside = path.with_name(f".{path.name}{PARTIAL}")
    write_tensors(beside, state.tensors, json.dumps({"facts": facts, "digest": state.digest}))
    with beside.open("rb") as file, suppress(OSError):
        # Some file systems cannot; what a loss of power did is then found out by the digest.
        os.fsync(file.fileno())
    os.replace(beside, path)


def read_state(path: Path) -> SavedState:
    """Return a state as it was written; :class:`DamagedStateError` if it is not."""
    try:
        header = json.loads(text_about(path))
        state = SavedState(header["facts"], read_tensors(path))
        whole = state.digest == header["digest"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise DamagedStateError(f"{path.name} cannot be read") from error
    if not whole:
        raise DamagedStateError(f"{path.name} was changed")
    return state
