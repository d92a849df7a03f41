"""Tensors as a safetensors file, a piece at a time; its own writer makes bytes of all of them first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PIECE = 1 << 26
"""Bytes of a tensor that are copied from a GPU at a time."""

TYPES = {
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Names of types, in the order in which safetensors' own writer has their tensors: the widest first, so that
each tensor begins at a multiple of its numbers' size."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A file of tensors, the same bytes whatever their order and device.

    Not by safetensors' own writers: these take as much memory again as all tensors, and what ``save_file``
    wrote nobody but its owner may read.
    """
    with path.open("wb") as file:
        for part in parts_of(tensors):
            file.write(part)


def parts_of(tensors: Mapping[str, Tensor], piece: int = PIECE) -> Iterator[Any]:
    """The bytes of such a file, in order; each part is valid until the next is asked for."""
    kinds = list(TYPES)
    named = sorted(tensors.items(), key=lambda each: (kinds.index(each[1].dtype), each[0]))
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in named:
        start, end = end, end + tensor.numel() * tensor.element_size()
        shape = list(tensor.shape)
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for _, tensor in named:
        if tensor.numel():
            flat = _flat(tensor)
            yield from (flat.numpy().data,) if flat.device.type == "cpu" else copied(flat, piece)


def _flat(tensor: Tensor) -> Tensor:
    """The bytes of a tensor, where it is."""
    flat = tensor.detach().contiguous().view(-1)
    if flat.stride() != (1,):
        # A single number counts as contiguous whatever its stride is.
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8)


def copied(flat: Tensor, piece: int) -> Iterator[Any]:
    """Bytes of a device in pieces, all through one buffer: memory that is new to a process is slow."""
    buffer = torch.empty(min(piece, len(flat)), dtype=torch.uint8, pin_memory=flat.is_cuda)
    for each in torch.split(flat, piece):
        yield buffer[: len(each)].copy_(each).numpy().data
