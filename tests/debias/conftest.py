"""The shapes of all tensors are checked."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from inspect import isfunction

from unskew.debias import losses
from unskew.training import means

# A bare machine (``pytest -m gpu``) may lack jaxtyping.
if find_spec("jaxtyping"):
    from contracts.shapes import check_shapes

    check_shapes(
        means,
        *{sys.modules[function.__module__] for function in vars(losses).values() if isfunction(function)},
    )
