"""Functions compiled by numba, and cached on disk where a cache can be written."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def numba_is_installed() -> bool:
    """Return whether loops can be compiled; elsewhere PyTorch does the same work (``unskew[fast]``)."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return True


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Return a decorator: a function is compiled at its first call, and runs without Python's lock.

    What was compiled is kept beside the module or in numba's folder of the user, and found there by the next
    process. Where neither can be written (an install of another user, no home) each process compiles anew.
    """

    from numba import njit

    def decorate(function: Function) -> Function:
        try:
            made = njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:
            made = njit(nogil=True, **options)(function)
        result: Function = made
        return result

    return decorate
