"""PyTorch where it is installed; elsewhere the part of it that linear models and trees need, on NumPy arrays.

Whatever computes with tensors takes ``torch``, ``Tensor`` and ``nn`` from here, so that there is one
implementation. What NumPy arrays cannot stand in for is an error that names the extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unskew.base.errors import MissingPackageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
else:
    try:
        import torch
    except ImportError:
        from unskew.base import numpy_tensors as torch
    Tensor, nn = torch.Tensor, torch.nn

__all__ = ["Tensor", "nn", "require_torch", "torch"]

REMEDY = "pip install 'unskew[torch]', or use the learners linear, trees or blend"


def require_torch(what: str) -> None:
    """Raise an error where PyTorch, which something needs, is not installed."""
    if torch.__name__ != "torch":
        raise MissingPackageError(f"{what} needs PyTorch, which is not installed", remedy=REMEDY)
