"""Which device to train on."""

from __future__ import annotations

import os

from unskew.base import processes
from unskew.base.errors import ParameterError
from unskew.base.tensors import torch


def resolve_device(name: str | torch.device) -> torch.device:
    """Resolve a device: ``"auto"`` is a GPU if there is one; a device that is not there is an error.

    Each of several processes has a GPU of its own, as far as there are enough.
    """
    if not isinstance(name, str | torch.device):
        raise ParameterError(f"{name!r} is not a device", remedy="use auto, cpu, cuda or cuda:1")
    if name == "auto":
        return _own_gpu() if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ParameterError(f"{name!r} is not a device", remedy="use auto, cpu, cuda or cuda:1") from None
    if device.type == "cuda":
        available = torch.cuda.device_count()
        if (device.index or 0) >= available:
            raise ParameterError(
                f"device {name} is not there ({available} GPUs are)", remedy="use --device auto or cpu"
            )
        if device == torch.device("cuda"):
            return _own_gpu()
    elif device.type != "cpu":
        raise ParameterError(f"device {name!r} is not supported", remedy="use auto, cpu, cuda or cuda:1")
    return device


def _own_gpu() -> torch.device:
    """Return the GPU of this process: shared where there are fewer than processes."""
    if processes.world() == 1:
        return torch.device("cuda")
    number = int(os.environ.get("LOCAL_RANK", processes.rank()))
    return torch.device("cuda", number % torch.cuda.device_count())
