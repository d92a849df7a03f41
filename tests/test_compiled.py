"""Compiled functions work where nothing can be kept."""

from __future__ import annotations

import pytest

from unskew.base.compiled import compiled


def twice(x):
    return 2 * x


def test_without_a_place_to_keep_it_a_function_is_compiled_anew(monkeypatch):
    numba = pytest.importorskip("numba")
    real, asked = numba.njit, []

    def njit(*, cache=False, **options):
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function 'twice': no locator available")
        return real(**options)

    monkeypatch.setattr(numba, "njit", njit)
    made = compiled(error_model="numpy")(twice)
    assert asked == [True, False]
    assert made(21) == 42
