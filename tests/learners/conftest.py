"""The shapes of all tensors are checked while these tests run."""

from __future__ import annotations

from importlib.util import find_spec

from unskew.learners import (
    batch_ensemble,
    custom,
    dcn,
    deepfm,
    fields,
    intercept,
    layers,
    learner,
    mf,
    mlp,
    mmoe,
    neumf,
)

# A bare machine (``pytest -m gpu``) may lack jaxtyping.
if find_spec("jaxtyping"):
    from contracts.shapes import check_shapes

    check_shapes(
        learner, batch_ensemble, custom, dcn, deepfm, fields, intercept, layers, mf, mlp, mmoe, neumf
    )
