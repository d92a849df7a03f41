"""Parts of a training that change from step to step, as tensors by name, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


class _Under(Mapping[str, Tensor]):
    """Some of the tensors, which may be read when they are asked for, by the rest of their names."""

    def __init__(self, tensors: Mapping[str, Tensor], start: str) -> None:
        self._tensors, self._start = tensors, start
        self._names = [name[len(start) :] for name in tensors if name.startswith(start)]

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[self._start + name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def under(tensors: Mapping[str, Tensor], start: str) -> Mapping[str, Tensor]:
    """Those whose names begin so, without it."""
    return _Under(tensors, start)
