"""Reports of runs are pages without drawings."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _undrawn(undrawn: None) -> None:
    """In every file here."""
