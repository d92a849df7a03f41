"""torch, loaded when it is first used: for modules that must import without it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
else:
    Tensor = Any

    class _Torch:
        def __getattr__(self, name: str) -> Any:
            return getattr(import_module("torch"), name)

    torch = _Torch()
