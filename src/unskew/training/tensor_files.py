"""Files of tensors in the format of safetensors: the size of a header, the header (JSON), the numbers.

Read and written with NumPy, so that models without networks need no further package.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unskew.base.tensors import Tensor, torch

KINDS = {"BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}
KINDS |= {"U64": "<u8", "F16": "<f2", "F32": "<f4", "F64": "<f8"}
CODES = {np.dtype(kind).name: code for code, kind in KINDS.items()}
ALIGNED = 8
"""Bytes of the size of a header, and what its length is a multiple of."""
METADATA, ABOUT = "__metadata__", "about"


class TensorFileError(ValueError):
    """A file that holds no tensors, or not all of them; its text says in what way."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: str | None = None) -> None:
    """Write tensors, and a text about them."""
    arrays = {name: np.asarray(each.detach().cpu().numpy(), order="C") for name, each in tensors.items()}
    # Wide numbers first, so that all are aligned.
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {} if about is None else {METADATA: {ABOUT: about}}
    end = 0
    for name in order:
        array = arrays[name]
        places = [end, end + array.nbytes]
        header[name] = {"dtype": CODES[array.dtype.name], "shape": array.shape, "data_offsets": places}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNED)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(ALIGNED, "little") + text)
        for name in order:
            file.write(arrays[name].data)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file; :class:`TensorFileError` where it is not whole."""
    tensors = {}
    content = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
    for name, (kind, shape, first, last) in _declared(path).items():
        tensors[name] = torch.from_numpy(np.array(content[first:last]).view(kind).reshape(shape))
    return tensors


def text_about(path: Path) -> str:
    """Return the text about the tensors of a file; empty where there is none."""
    return str((_header(path)[0].get(METADATA) or {}).get(ABOUT, ""))


def shapes_of(path: Path) -> dict[str, list[int]]:
    """Return the shapes of the tensors of a file, without reading them."""
    return {name: list(shape) for name, (_, shape, _, _) in _declared(path).items()}


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header of a file, and where the numbers begin."""
    with path.open("rb") as file:
        start = ALIGNED + int.from_bytes(file.read(ALIGNED), "little")
        if start > path.stat().st_size:
            raise TensorFileError("it was cut")
        try:
            header = json.loads(file.read(start - ALIGNED))
        except (ValueError, RecursionError) as error:
            raise TensorFileError("its header cannot be read") from error
    if not isinstance(header, dict) or not isinstance(header.get(METADATA, {}), dict):
        raise TensorFileError("its header is none of tensors")
    return header, start


def _declared(path: Path) -> dict[str, tuple[str, tuple[int, ...], int, int]]:
    """Return the type, shape, first byte and end of each tensor of a file."""
    header, start = _header(path)
    size, declared = path.stat().st_size, {}
    for name, about in header.items():
        if name == METADATA:
            continue
        try:
            kind, shape = KINDS[about["dtype"]], tuple(map(operator.index, about["shape"]))
            first, last = (start + operator.index(place) for place in about["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            raise TensorFileError(f"{name} is no tensor") from error
        wanted = math.prod(shape) * np.dtype(kind).itemsize
        if min(shape, default=0) < 0 or not start <= first <= last <= size or last - first != wanted:
            raise TensorFileError(f"{name} does not fit into {size} bytes")
        declared[name] = (kind, shape, first, last)
    return declared
