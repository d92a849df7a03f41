"""A digest of arrays and plain values: the same wherever they lie and whatever process made them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from unskew.data.distinct import TEXT
from unskew.data.vocabulary import text_hashes


def digest_of(*parts: Any) -> str:
    """Return a digest of arrays, and of anything else by what it prints as.

    Examples
    --------
    >>> digest_of(np.array([1, 2]), "x") == digest_of(np.array([1, 2]), "x") != digest_of(np.array([1]), "x")
    True
    """
    digest = hashlib.sha256()
    for piece in parts:
        if not isinstance(piece, np.ndarray):
            digest.update(repr(piece).encode())
            continue
        digest.update(f"{piece.dtype} {piece.shape}".encode())
        if piece.dtype == TEXT or piece.dtype.kind in "OU":
            # Their bytes in memory are places, or padded.
            flat = piece.ravel()
            piece = text_hashes(flat if flat.dtype == TEXT else flat.astype(str).astype(TEXT))
        digest.update(np.ascontiguousarray(piece).view(np.uint8).data)
    return digest.hexdigest()
