"""Reports of runs are pages without drawings, and trainings are short."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _undrawn(undrawn: None) -> None:
    """In every file here."""


@pytest.fixture(scope="module", autouse=True)
def _briefly(briefly: None) -> None:
    """In every file here; a test of what is learned asks for ``at_length``."""
