"""Trainings are short, and reports without drawings, but where a file has its own ``_undrawn``."""

from __future__ import annotations

import pytest

from unskew.cli import main


@pytest.fixture(scope="module", autouse=True)
def _undrawn(undrawn: None) -> None:
    """In every file here."""


@pytest.fixture(autouse=True)
def _unannounced(monkeypatch) -> None:
    """A slow machine announces how long a run takes, and a fast one does not."""
    monkeypatch.setattr("unskew.run.sizes.SAID_SECONDS", float("inf"))


@pytest.fixture(scope="module", autouse=True)
def _briefly(briefly: None) -> None:
    """In every file here; a test of what is learned asks for ``at_length``."""


def fails(arguments, capsys) -> str:
    """Run, and return the one line that it printed on standard error."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1, error
    assert error.startswith("unskew: ")
    return error
