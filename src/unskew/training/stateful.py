"""Parts of a training that change from step to step, as tensors by name, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

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


def copy_back(held: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Give tensors, where they are, what those of the same names had."""
    for name, part in held.items():
        part.copy_(saved[name])


def under(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    """Those whose names begin so, without it."""
    return {name[len(start) :]: value for name, value in tensors.items() if name.startswith(start)}
