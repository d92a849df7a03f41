"""Reports of commands are pages without drawings, but where a file looks at them (its own ``_undrawn``)."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _undrawn(undrawn: None) -> None:
    """In every file here."""
