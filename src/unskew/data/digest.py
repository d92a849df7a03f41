"""A digest of arrays and plain values: the same wherever they lie and whatever process made them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from unskew.data.distinct import TEXT
from unskew.data.vocabulary import text_hashes


def digest_of(*parts: Any) -> str:
    """A digest of arrays, and of anything else by what it prints as.

    Examples
    --------
    >>> digest_of(np.array([1, 2]), "x") == digest_of(np.array([1, 2]), "x") != digest_of(np.array([1]), "x")
    True
    """
    digest = hashlib.sha256()
    for part in parts:
        if not isinstance(part, np.ndarray):
            digest.update(repr(part).encode())
            continue
        digest.update(f"{part.dtype} {part.shape}".encode())
        if part.dtype == TEXT or part.dtype.kind in "OU":
            # Their bytes in memory are places, or padded.
            flat = part.ravel()
            part = text_hashes(flat if flat.dtype == TEXT else flat.astype(str).astype(TEXT))
        digest.update(np.ascontiguousarray(part).view(np.uint8).data)
    return digest.hexdigest()
