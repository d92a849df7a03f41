"""Files of tensors: what is read is what was written, for whoever may read a new file."""

from __future__ import annotations

import stat

import torch
from safetensors.torch import load_file

from unskew.training.tensor_files import write_tensors


def test_views_numbers_and_empty_tensors_of_every_type_are_written_whole(tmp_path):
    whole = torch.arange(24.0).view(4, 6)
    tensors = {"left": whole[:, :3], "down": whole.t(), "one": whole[2:3, 5], "again": whole}
    tensors |= {"none": torch.empty(0, 4), "number": torch.tensor(3.5), 'größe "1"': torch.ones(2)}
    for dtype in (torch.int64, torch.float64, torch.float16, torch.int32, torch.uint8, torch.bool):
        tensors[str(dtype)] = (torch.arange(21) % 2).to(dtype).view(3, 7)
    write_tensors(tmp_path / "file", tensors)
    found = load_file(tmp_path / "file")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name], tensor), name
    write_tensors(tmp_path / "turned", dict(reversed(tensors.items())))
    assert (tmp_path / "turned").read_bytes() == (tmp_path / "file").read_bytes()
    (tmp_path / "other").touch()
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("file", "other")}
    assert len(modes) == 1
