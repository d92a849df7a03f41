"""Files of tensors: those of safetensors' own writer, without a copy of all tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save

from unskew.training.tensor_file import TYPES, copied, parts_of, write_tensors


def _of(dtype):
    return (torch.arange(21) % 2).to(dtype).view(3, 7)


def test_a_file_is_what_safetensors_writes(tmp_path):
    tensors = {f"b {number}": _of(dtype) for number, dtype in enumerate(reversed(TYPES))}
    tensors |= {f"a {number}": _of(dtype) for number, dtype in enumerate(TYPES)}
    tensors |= {"none": torch.empty(0, 4), "one": torch.tensor(3.5), 'größe "1"': torch.ones(2)}
    write_tensors(tmp_path / "file", tensors)
    assert (tmp_path / "file").read_bytes() == save(tensors)


def test_parts_of_others_and_one_under_two_names_are_written_whole(tmp_path):
    whole = torch.arange(24.0).view(4, 6)
    tensors = {
        "left": whole[:, :3],
        "down": whole.t(),
        "row": whole[1:2],
        "one": whole[2:3, 5],
        "again": whole,
    }
    write_tensors(tmp_path / "file", tensors)
    found = load_file(tmp_path / "file")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor), name


def test_a_tensor_in_memory_is_not_copied():
    tensor = torch.randn(5, 6)
    *_, part = parts_of({"tensor": tensor})
    assert np.frombuffer(part, np.uint8).ctypes.data == tensor.data_ptr()


@pytest.mark.parametrize("piece", [1, 7, 80, 1000])
def test_pieces_go_through_one_buffer(piece):
    flat = torch.arange(80, dtype=torch.uint8)
    places, parts = set(), []
    for part in copied(flat, piece):
        places.add(np.frombuffer(part, np.uint8).ctypes.data)
        parts.append(bytes(part))
    assert b"".join(parts) == bytes(range(80))
    assert max(map(len, parts)) <= piece
    assert len(places) == 1
