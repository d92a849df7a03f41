"""The shapes of all tensors are checked."""

from __future__ import annotations

from importlib.util import find_spec

from unskew.debias.losses import balance, binned, doubly_robust, experts, tasks, weighted
from unskew.training import means

# A bare machine (``pytest -m gpu``) may lack jaxtyping.
if find_spec("jaxtyping"):
    from contracts.shapes import check_shapes

    check_shapes(balance, binned, doubly_robust, experts, means, tasks, weighted)
